#!/bin/bash
# Linux's own SMB client with persistent handles, in a QEMU guest, against a continuously available share: its server is killed again and again
# under fsx, a file that is held open and a lock that another client wants. ./test has two kills, ./test full ten. 77 where QEMU cannot run.
. "$(dirname "$0")/../lib.sh"
. "$root/tests/guest/prepare.sh"
kills=2 fsx=300 remove=
[[ $mode == full ]] && kills=10 fsx=1500 remove=100

start_server --disk-size 4GiB || { not_ok "quickstart says ready"; summary; }
check "a continuously available share" cli share create lasting --volume demo --continuously-available --grant "$user:full"
mkdir -p "$work/host"
HOST_PORT=$smb_port SMB_SHARE=lasting SMB_USER=$user SMB_PASSWORD=$password GUEST_TIMEOUT=$((240 + 20 * kills)) WORK_FSX=$fsx WORK_REMOVE=$remove \
    SMB_OPTIONS=hard GUEST_SHARE=$work/host GUEST_FILES=$MOUNTWORK "$here/run.sh" "$here/persistent-work.sh" >"$work/guest.log" 2>&1 </dev/null &
guest=$!
if until_said "$work/guest.log" GUEST-READY; then
    for ((kill = 0; kill < kills; kill++)); do
        sleep $((1 + RANDOM % 3)).$((RANDOM % 10))
        kill_server
        sleep 0.$((RANDOM % 10))
        start_server || { not_ok "starts after kill -9"; break; }
    done
    # Everything is taken up again.
    sleep 4
fi
touch "$work/host/done"
in_guest "$kills kills" "$work/guest.log"
cat "$work"/host/*-said
check "health is clean" cli health
stop_server
summary
