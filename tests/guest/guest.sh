# What the guest tests begin with: sourced by them after tests/lib.sh. Ends the script with 77 where QEMU or the guest cannot be had.
# Gives `here`, this folder.
here=$root/tests/guest

command -v qemu-system-x86_64 >/dev/null || ((EUID == 0)) ||
    { echo "qemu-system-x86 is missing; as root: apt-get install qemu-system-x86"; exit 77; }
# Does nothing where it is built already.
"$here/build.sh" >"$work/build.log" 2>&1 || { tail -n 5 "$work/build.log"; echo "the guest cannot be built here"; exit 77; }

# until_said LOG WORD: until the guest, process `guest`, says it, or ends.
until_said() {
    local tries
    for ((tries = 0; tries < 1500; tries++)); do
        grep -q "$2" "$1" && return
        kill -0 "$guest" 2>/dev/null || return 1
        sleep 0.2
    done
    return 1
}
