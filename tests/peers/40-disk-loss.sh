#!/bin/bash
# A disk is away: all data is read and written, health says so; it returns and is brought up to date.
. "$(dirname "$0")/../lib.sh"

start_server --disk-size 2GiB || { not_ok "quickstart says ready"; summary; }
cd "$work" || exit 1
random_file before 64
random_file during 64
check "a file is written" smb "put before"
stop_server
mv data/disks/disk-2.img away
start_server || { not_ok "starts without a disk"; summary; }
ok "starts without a disk"
check "the file is read" smb "get before back"
equal "sha256 without a disk" "$(sha before)" "$(sha back)"
check "another file is written" smb "put during"
check "health warns, and names the disk" bash -c "'$CENOTE' --data '$work/data' health | grep disk-2.img"
check "health fails its command" bash -c "! '$CENOTE' --data '$work/data' health"
stop_server
mv away data/disks/disk-2.img
start_server || { not_ok "starts with the disk back"; summary; }
end=$((SECONDS + 60))
until cli health >/dev/null 2>&1 || ((SECONDS > end)); do sleep 0.5; done
check "health is clean again" cli health
check "job list shows the resync" bash -c "'$CENOTE' --data '$work/data' job list | grep -iE 'resync|rebuild'"
stop_server
# The disk that stayed is away this time: the returned one holds what was written without it.
mv data/disks/disk-1.img away
start_server || { not_ok "starts with another disk away"; summary; }
for file in before during; do
    rm -f back
    smb "get $file back" >/dev/null 2>&1
    equal "'$file' reads right with another disk away" "$(sha $file)" "$(sha back)"
done
stop_server
mv away data/disks/disk-1.img

# A disk that does not answer at all when the server starts: with a write lease on its file, opening it waits.
python3 - data/disks/disk-1.img <<'PYTHON' &
import fcntl, signal, sys, time
signal.signal(signal.SIGIO, signal.SIG_IGN)
with open(sys.argv[1], "r+b") as file:
    # The kernel holds a server's files for a moment after its end.
    for _ in range(50):
        try:
            fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
            break
        except BlockingIOError:
            time.sleep(0.05)
    time.sleep(25)
PYTHON
holder=$!
sleep 0.5
began=$SECONDS
write_config config.toml '[disks]' 'search = []'
serve_config config.toml 60 || { not_ok "starts with a disk that does not answer"; summary; }
check "is ready within 12 s with a disk that does not answer" test $((SECONDS - began)) -le 12
rm -f back
smb "get before back" >/dev/null 2>&1
equal "the file reads right with a disk that does not answer" "$(sha before)" "$(sha back 2>/dev/null)"
check "health says that the disk does not answer" bash -c "'$CENOTE' --data '$work/data' health | grep 'disk-1.img.*does not answer'"
kill "$holder"
end=$((SECONDS + 60))
until cli health >/dev/null 2>&1 || ((SECONDS > end)); do sleep 0.5; done
check "health is clean when the disk has answered" cli health
stop_server
summary
