#!/bin/sh
# Guest job: mounts a continuously available share with persistent handles, and has fsx run, and a flock and a POSIX lock held and written
# through, while the host kills the server and starts it; another mount tries to get the locks. MOUNTWORK: as for mount-work.sh. WORK_FSX: operations.
# Says GUEST-PAUSE when everything is held, and goes on when the host has made /host/go. Exit status 0 only when every check passed.
if [ -z "${CENOTE_GUEST:-}" ]; then
    : "${MOUNTWORK:?the mountwork binary}"
    export GUEST_FILES="$MOUNTWORK ${GUEST_FILES:-}"
    exec "$(dirname "$0")/run.sh" "$0" "$@"
fi
. /job/functions

port="port=${HOST_PORT:-445}"
mount_share /mnt "$port,persistenthandles,nosharesock"
# Another client: a connection and a ClientGuid of its own.
mount_share /other "$port,persistenthandles,nosharesock"

holds_persistent_handles() { grep -q ' /mnt cifs .*persistenthandles' /proc/mounts && grep -q 'CONTINUOUS AVAILABILITY' /proc/fs/cifs/DebugData; }
binary=/job/files/mountwork
try_at_other() { $binary try /other/held >/tmp/try.log 2>&1; }
held_against_other() { ! try_at_other; }

check "the share promises persistent handles" holds_persistent_handles
$binary fsx /mnt/fsx "${WORK_FSX:-1500}" 7 patient >/tmp/fsx.log 2>&1 &
fsx=$!
$binary hold /mnt/held /tmp/release >/tmp/hold.log 2>&1 &
hold=$!
check "flock and POSIX locks are taken" wait_for 20 grep -q held /tmp/hold.log
check "another client does not get them" held_against_other
say "GUEST-PAUSE"
until [ -e /host/go ]; do
    held_against_other || die "another client got the locks"
    sleep 1
done
check "the locks outlived the server" held_against_other
touch /tmp/release
wait $hold
hold_status=$?
check "the open files outlived the server" same "$hold_status" 0
check "what was written is there" same "$(cat /mnt/held.flock /mnt/held.fcntl | tr '\n' ' ')" "before after before after "
check "the locks are given back" wait_for 10 try_at_other
wait $fsx
fsx_status=$?
check "fsx ran through" same "$fsx_status" 0
cat /tmp/hold.log /tmp/try.log /tmp/fsx.log
evidence
check "unmount the other" umount /other
check "unmount" umount /mnt
summary
