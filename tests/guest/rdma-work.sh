#!/bin/sh
# Guest job: iWARP by siw against the host, in one boot: rping in both roles, then mounts of cifs.ko over SMB Direct with verified work.
# RPING_CLIENT_PORT: an rping server on the host. RPING_SERVER=yes: waits for one client on 7174 and prints GUEST-READY.
# RPING_COUNT, RPING_SIZE: rounds and bytes. RDMA_MOUNTS: mount options of each mount, apart by spaces ("vers=3.0 vers=3.1.1,sign").
# MOUNTWORK: the binary, on the host. WORK_MIB: size of the big file. WORK_FSX, WORK_TREE, WORK_WRITERS, WORK_SEED as in mount-work.sh.
# RDMA_CUT=yes: instead of the work, writes while the host cuts the connection (GUEST-CUT), and wants to go on.
# Exit status 0 only when every check passed.
if [ -z "${CENOTE_GUEST:-}" ]; then
    : "${MOUNTWORK:?the mountwork binary}"
    export GUEST_FILES="$MOUNTWORK ${GUEST_FILES:-}"
    [ "${RPING_SERVER:-no}" = no ] || export GUEST_FORWARD="${GUEST_FORWARD:-} ${HOST_PORT:-7174}:7174"
    exec "$(dirname "$0")/run.sh" "$0" "$@"
fi
. /job/functions

binary=/job/files/mountwork
seed=${WORK_SEED:-1}
rounds="-v -V -C ${RPING_COUNT:-100} -S ${RPING_SIZE:-32768}"

established() { dmesg | grep -c 'RDMA transport established'; }
in_debug_data() { grep -q "$1" /proc/fs/cifs/DebugData; }
more_than() { say "$1: $2 to $3"; [ "$3" -gt "$2" ]; }
none_more() { say "$1: $2 to $3"; [ "$3" -eq "$2" ]; }

rping_as_client() {
    timeout 90 rping -c -a "$host" -p "$RPING_CLIENT_PORT" $rounds >/tmp/rping 2>&1 && return
    say "rping ended with $?: $(tail -n 3 /tmp/rping | cut -c 1-100)"
    return 1
}
rping_as_server() {
    timeout 90 rping -s -a 0.0.0.0 -p 7174 $rounds >/tmp/rping 2>&1 &
    rping_pid=$!
    wait_for 10 sh -c 'netstat -ltn 2>/dev/null | grep -q ":7174 "' || usleep 500000
    say "GUEST-READY: rping server on 7174"
    wait $rping_pid
}
all_rounds() { same "$(grep -c 'ping data' /tmp/rping)" "${RPING_COUNT:-100}" || { tail -n 5 /tmp/rping | cut -c 1-100; return 1; }; }

# One mount and its work.
mount_and_work() { # options
    before=$(established)
    reads=$(calls siw_proc_rreq) writes=$(calls siw_proc_write)
    mount_share /mnt "rdma,$1"
    check "$1: RDMA transport established" more_than connections "$before" "$(established)"
    check "$1: DebugData shows an SMB Direct connection" in_debug_data SMBDirect
    folder=/mnt/mountwork-$$
    check "$1: mkdir" mkdir "$folder"
    check "$1: fsx" $binary fsx "$folder/fsx" "${WORK_FSX:-500}" "$seed"
    check "$1: make a tree" $binary tree "$folder/tree" "${WORK_TREE:-40}" "$seed"
    forget_cache
    check "$1: verify the tree" $binary verify "$folder/tree" "${WORK_TREE:-40}" "$seed"
    check "$1: writers side by side" $binary writers "$folder" "${WORK_WRITERS:-8}" 1 "$seed"
    work_big "$folder"
    check "$1: remove it all" rm -r "$folder"
    case $1 in
    # cifs.ko leaves RDMA Read and Write out where it signs or encrypts.
    *sign* | *seal*)
        check "$1: payload went in messages alone" none_more "RDMA Reads" "$reads" "$(calls siw_proc_rreq)"
        check "$1: payload went in messages alone" none_more "RDMA Writes" "$writes" "$(calls siw_proc_write)"
        ;;
    *)
        check "$1: written by RDMA Read" more_than "RDMA Reads" "$((reads + ${WORK_MIB:-4} * 2 - 1))" "$(calls siw_proc_rreq)"
        check "$1: read by RDMA Write" more_than "RDMA Writes" "$((writes + ${WORK_MIB:-4} * 2 - 1))" "$(calls siw_proc_write)"
        ;;
    esac
    check "$1: unmount" umount /mnt
}

# The connection dies while a file is written; after that the share is to be had again.
cut_and_go_on() { # options
    mount_share /mnt "rdma,$1"
    head -c $((32 << 20)) /dev/urandom >/tmp/source
    say "GUEST-CUT"
    timeout 100 dd if=/tmp/source of=/mnt/cut bs=1M oflag=direct 2>/dev/null
    say "the write that was cut ended with $?"
    timeout 20 umount /mnt 2>/dev/null || umount -l /mnt
    mount_share /mnt "rdma,$1"
    check "$1: mounts again" in_debug_data SMBDirect
    check "$1: the file can be written again" timeout 100 dd if=/tmp/source of=/mnt/cut bs=1M oflag=direct
    forget_cache
    check "$1: and holds what was written" holds /mnt/cut "$(sum /tmp/source)"
    rm -f /mnt/cut /tmp/source
    check "$1: unmount" umount /mnt
}

start_siw
# siw's first connection does not wait for a slow address resolution.
wait_for 10 ping -c 1 -W 1 "$host" >/dev/null || say "no answer to ping from $host"
if [ -n "${RPING_CLIENT_PORT:-}" ]; then
    check "rping client against the host's engine" rping_as_client
    check "all rounds" all_rounds
fi
if [ "${RPING_SERVER:-no}" = yes ]; then
    check "rping server for the host's engine" rping_as_server
    check "all rounds" all_rounds
fi
redirect_port 5445 "${HOST_RDMA_PORT:-5445}"
load_crypto
# siw's handlers of what arrives: the server pulls written data by RDMA Read and places read data by RDMA Write.
count_calls siw_proc_rreq siw_proc_write
for options in ${RDMA_MOUNTS:-vers=3.1.1}; do
    if [ "${RDMA_CUT:-no}" = yes ]; then cut_and_go_on "$options"; else mount_and_work "$options"; fi
done
evidence
summary
