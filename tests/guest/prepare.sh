# The beginning of tests that work on a mount in the guest: they source it after tests/lib.sh. As guest.sh, and gives MOUNTWORK, the
# program that works on a mount.
. "$root/tests/guest/guest.sh"

# Statically linked, since the guest has no libraries.
if ! RUSTFLAGS='-C target-feature=+crt-static' cargo build --quiet --locked --release --package mountwork \
    --target x86_64-unknown-linux-gnu --manifest-path "$root/Cargo.toml" >"$work/mountwork.log" 2>&1; then
    not_ok "mountwork builds" "$(tail -n 10 "$work/mountwork.log")"
    summary
fi
export MOUNTWORK=$target/x86_64-unknown-linux-gnu/release/mountwork
