#!/bin/bash
# A server's state that was restored from an old copy: one disk may have missed what was written since. Nothing old is served, nothing new
# is written over, and the disks bring back what was written last.
. "$(dirname "$0")/../lib.sh"

start_server --disks 2 --disk-size 1GiB || { not_ok "quickstart says ready"; summary; }
cd "$work" || exit 1
random_file first 8
random_file last 8
check "a file is written" smb "put first kept"
stop_server
cp data/state.redb old.redb
mv data/disks/disk-2.img aside
start_server || { not_ok "starts without a disk"; summary; }
check "the file is written again without the disk" smb "put last kept"
stop_server
mv aside data/disks/disk-2.img
cp old.redb data/state.redb
for try in first second third; do
    start_server || { not_ok "starts with the old state for the $try time"; summary; }
    refuses "nothing is served the $try time" BAD_NETWORK_NAME smb "get kept back"
    check "health says why the $try time" bash -c "'$CENOTE' --data data health | grep 'carries newer records'"
    refuses "... and advises nothing else the $try time" "" bash -c "'$CENOTE' --data data health | grep -E 'Bring|disk retire|can be read'"
    sleep 6
    kill_server
done
rm -f data/state.redb data/secret.key data/api.token data/api.address data/audit.log
start_server || { not_ok "starts without a state"; summary; }
check "the file is read" smb "get kept back"
equal "it is what was written last" "$(sha last)" "$(sha back)"
end=$((SECONDS + 60))
until cli health >/dev/null 2>&1 || ((SECONDS > end)); do sleep 0.5; done
check "the disk that missed it is brought up to date" cli health
stop_server
mv data/disks/disk-1.img aside
start_server || { not_ok "starts with the other disk alone"; summary; }
rm -f back
check "the file is read from it" smb "get kept back"
equal "it is what was written last" "$(sha last)" "$(sha back)"
kill_server
summary
