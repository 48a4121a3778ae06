#!/bin/bash
# 10 MiB of one disk are overwritten beneath the running server: every file reads right, and health, jobs and metrics tell it.
. "$(dirname "$0")/../lib.sh"

start_server --disk-size 2GiB || { not_ok "quickstart says ready"; summary; }
cd "$work" || exit 1
for i in 1 2 3 4; do random_file f$i 64; done
check "256 MiB are written" smb "put f1; put f2; put f3; put f4"
# So that reads come from the disks.
stop_server
disk=$work/data/disks/disk-1.img
# The largest stretch of data in the file is slabs: labels, tables and journal are smaller.
offset=$(python3 - "$disk" <<'PYTHON'
import os, sys
fd = os.open(sys.argv[1], os.O_RDONLY)
end, at, best = os.fstat(fd).st_size, 0, (0, 0)
while True:
    try:
        data = os.lseek(fd, at, os.SEEK_DATA)
    except OSError:
        break
    at = os.lseek(fd, data, os.SEEK_HOLE)
    best = max(best, (at - data, data))
length, start = best
print((start + length // 2) // 1048576)
PYTHON
)
start_server || { not_ok "starts again"; summary; }
check "10 MiB at $offset MiB of one disk are overwritten" dd if=/dev/urandom of="$disk" bs=1M seek="$offset" count=10 conv=notrunc,fsync
for round in 1 2; do
    for i in 1 2 3 4; do
        rm -f back
        smb "get f$i back" >/dev/null 2>&1
        equal "round $round: file $i reads right" "$(sha f$i)" "$(sha back)"
    done
done
# Reads spread over copies, so a scrub finds what they did not touch.
if ! found=$(cli volume check demo --watch 2>&1); then
    check "a check of the volume finds the rest, and does not write" grep -qE 'checksum.*--repair' <<<"$found"
    equal "it says so once, with the volume's name" 1 "$(grep -o "cenote volume check 'demo' --repair" <<<"$found" | wc -l)"
    refuses "a repair needs the volume's name" "yes" cli volume check demo --repair
    check "the repair makes it whole" cli volume check demo --repair --yes demo --watch
else
    check "the reads had repaired everything" grep -q "intact and equal" <<<"$found"
fi
check "a check finds nothing any more" cli volume check demo --watch
corrupt=$(metric cenote_disk_corrupt_blocks_total)
repaired=$(metric cenote_disk_repaired_blocks_total)
check "metrics count each corrupt block once ($corrupt of 2560)" test "$corrupt" -gt 0 -a "$corrupt" -le 2560
check "metrics count repaired blocks ($repaired)" test "$repaired" -gt 0
check "disk list shows them" bash -c "'$CENOTE' --data '$work/data' --json disk list | grep -E '\"corrupt_blocks\": [1-9]'"
check "health names the disk" bash -c "'$CENOTE' --data '$work/data' health | grep -i disk-1.img"
named() { health_text | grep -i 'disk-1.img' | grep -E 'file f[1-4]|files f[1-4]'; }
for _ in $(seq 150); do named >/dev/null && break; sleep 0.2; done
check "health names files that had damaged blocks" named
check "job list shows the repair" bash -c "'$CENOTE' --data '$work/data' job list | grep -iE 'repair|scrub|check'"
stop_server
start_server || { not_ok "starts after the repair"; summary; }
for i in 1 2 3 4; do
    rm -f back
    smb "get f$i back" >/dev/null 2>&1
    equal "after a restart file $i reads right" "$(sha f$i)" "$(sha back)"
done
check "the corrupt blocks are known after the restart" test "$(metric cenote_disk_corrupt_blocks_total)" -ge "$corrupt"
stop_server
summary
