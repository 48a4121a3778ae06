#!/bin/bash
# Linux's own SMB client with persistent handles in a QEMU guest, on a continuously available share: the server is killed with -9 and started
# again, several times, while fsx runs, a lock is held and a file is open for writing. Everything is reclaimed; a second client never gets
# the lock meanwhile. ./test full only: it takes minutes. 77 where QEMU cannot run.
[[ ${CENOTE_TEST_MODE:-} == full ]] || { echo "persistent handles with a guest: ./test full"; exit 77; }
. "$(dirname "$0")/../lib.sh"
. "$root/tests/guest/prepare.sh"

start_server --disk-size 4GiB || { not_ok "quickstart says ready"; summary; }
check "a continuously available share" cli share create lasting --volume demo --continuously-available --grant "$user:full"
export HOST_PORT=$smb_port SMB_SHARE=lasting SMB_USER=$user SMB_PASSWORD=$password GUEST_TIMEOUT=500
mkdir -p "$work/host"
GUEST_SHARE=$work/host "$here/persistent-work.sh" >"$work/persistent.log" 2>&1 </dev/null &
guest=$!
if until_said "$work/persistent.log" GUEST-PAUSE; then
    for round in 1 2 3; do
        kill_server
        start_server || { not_ok "starts after kill -9, round $round"; summary; }
        # Long enough for the client to have everything again.
        sleep 5
    done
fi
touch "$work/host/go"
if wait $guest; then
    ok "handles, locks and fsx of cifs.ko outlive three kills of the server"
else
    not_ok "handles, locks and fsx of cifs.ko outlive three kills of the server" "$(grep -E 'NOT OK|FAILED|CIFS' "$work/persistent.log" | tail -n 12; tail -n 8 "$work/persistent.log")"
fi
check "health is clean" cli health
stop_server
summary
