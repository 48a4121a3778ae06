# The beginning of the guest tests: they source it after tests/lib.sh. Ends the script with 77 if QEMU or the guest cannot be had.
# Gives `here`, this folder.
here=$root/tests/guest

command -v qemu-system-x86_64 >/dev/null || ((EUID == 0)) ||
    { echo "qemu-system-x86 is missing; as root: apt-get install qemu-system-x86"; exit 77; }
# Does nothing where it is built already.
"$here/build.sh" >"$work/build.log" 2>&1 || { tail -n 5 "$work/build.log"; echo "the guest cannot be built here"; exit 77; }

# The process of a guest that runs beside the script, which ends with it.
guest=
guest_cleanup() {
    [[ -z $guest ]] || { kill "$guest" && wait "$guest"; } 2>/dev/null
    cleanup
}
trap guest_cleanup EXIT

# counts_guest NAME LOG STATUS: a guest's checks count as one each, and its job as one.
counts_guest() {
    local line
    while read -r line; do ok "$1: $line"; done < <(sed -n 's/^.*\[ *[0-9.]*s\] ok: //p' "$2")
    while read -r line; do not_ok "$1: $line"; done < <(sed -n 's/^.*\[ *[0-9.]*s\] NOT OK: //p' "$2")
    while read -r line; do skip "$1: $line"; done < <(sed -n 's/^.*\[ *[0-9.]*s\] skip: //p' "$2")
    if (($3 == 0)); then ok "$1: the guest's job"; return; fi
    not_ok "$1: the guest's job (status $3)" "$(grep -B 6 'NOT OK' "$2" | cut -c 1-160; tail -n 40 "$2" | cut -c 1-160)"
}

# in_guest NAME LOG: waits for the guest, process `guest`, and counts its checks.
in_guest() {
    local status
    wait "$guest"
    status=$?
    guest=
    counts_guest "$1" "$2" $status
}

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
