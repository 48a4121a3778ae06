# What the guest tests begin with: sourced by them after tests/lib.sh. Ends the script with 77 where QEMU or the guest cannot be had.
# Gives `here`, this folder, and MOUNTWORK, the program that works on a mount in the guest.
here=$root/tests/guest

command -v qemu-system-x86_64 >/dev/null || ((EUID == 0)) ||
    { echo "qemu-system-x86 is missing; as root: apt-get install qemu-system-x86"; exit 77; }
if [[ ! -e ${CENOTE_GUEST_CACHE:-${TMPDIR:-/tmp}/cenote-guest}/built ]]; then
    "$here/build.sh" >"$work/build.log" 2>&1 || { tail -n 5 "$work/build.log"; echo "the guest cannot be built here"; exit 77; }
fi
# Statically linked, since the guest has no libraries.
if ! RUSTFLAGS='-C target-feature=+crt-static' cargo build --quiet --locked --release --package mountwork \
    --target x86_64-unknown-linux-gnu --manifest-path "$root/Cargo.toml" >"$work/mountwork.log" 2>&1; then
    not_ok "mountwork builds" "$(tail -n 10 "$work/mountwork.log")"
    summary
fi
export MOUNTWORK=$target/x86_64-unknown-linux-gnu/release/mountwork
