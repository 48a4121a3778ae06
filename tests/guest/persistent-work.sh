#!/bin/sh
# Guest job of persistent.sh: two mounts of a continuously available share, each a client of its own. fsx runs, a lock and a file are held, and
# the other client tries to take the lock, while the host kills the server again and again. Says GUEST-READY; ends when /host/done is there.
# WORK_FSX: operations of fsx. WORK_REMOVE: seconds within which everything has to be removed at the end; else it is left.
. /job/functions

binary=/job/files/mountwork
port="port=${HOST_PORT:-445}"
mount_share /a "$port"
mount_share /b "$port,nosharesock"
grep -o persistenthandles /proc/mounts | sort | uniq -c
is_persistent() { [ "$(grep -c ' cifs .*persistenthandles' /proc/mounts)" = 2 ]; }
check "both mounts have persistent handles" is_persistent
mkdir /a/work || die "mkdir"

# Held through all of it: a lock, and a file that grows by a line at a time.
$binary hold /a/work/locked /host/done >/host/hold-said 2>&1 &
holder=$!
wait_for 10 grep -q held /host/hold-said || die "the lock cannot be had"
$binary want /b/work/locked /host/done >/host/want-said 2>&1 &
wanter=$!
exec 3>>/a/work/held
rounds=0
(
    # The file is written through the handle that was open before the first kill.
    while [ ! -e /host/done ]; do
        rounds=$((rounds + 1))
        echo "line $rounds" >&3 || echo "line $rounds" >>/host/unwritten
        sync /a/work/held
        sleep 0.1
    done
    echo $rounds >/host/lines
) &
writer=$!
$binary fsx /a/work/fsx "${WORK_FSX:-400}" 1 patient >/host/fsx-said 2>&1 &
fsx=$!
sleep 1
say "GUEST-READY"
wait $writer
exec 3>&-
check "the lock was kept" wait $holder
check "nobody else had it meanwhile, and somebody afterwards" wait $wanter
# A request whose sending fails cifs.ko gives up with ECONNABORTED: the application is told. Wrong bytes, sizes and all other failures are ours. What
# it gives up with EAGAIN, as an ioctl without an answer, fsx does again.
if wait $fsx; then
    check "fsx ran on" true
elif grep -E 'os error 103\)' /host/fsx-said; then
    say "skip: fsx: cifs.ko gave up a request, and said so"
else
    check "fsx ran on" false
fi
check "every line was taken" [ ! -e /host/unwritten ]
forget_cache
lines=$(cat /host/lines)
seq_lines() { i=1; while [ "$i" -le "$lines" ]; do echo "line $i"; i=$((i + 1)); done >/tmp/wanted; cmp /tmp/wanted /b/work/held; }
check "the other client reads all $lines lines, each once" seq_lines
# cifs.ko forgets a file that nobody has open when its connection is lost, and does not close it: its server has it until its time is over.
if [ -n "${WORK_REMOVE:-}" ]; then check "remove it all" wait_for "$WORK_REMOVE" rm -r /a/work; fi
EVIDENCE_LINES=30 evidence
check "unmount" umount /a /b
summary
