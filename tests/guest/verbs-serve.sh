#!/bin/sh
# Guest jobs: cenote itself in one guest, serving SMB Direct by libibverbs over siw (iWARP) and rxe (RoCE) in turn, and in a second guest
# our own client by the same devices, and cifs.ko, which mounts it with -o rdma and works in it. On the host it boots both, joined by a network of their own.
# CENOTE: the binary to run in the guest, dynamically linked: the libraries are the guest's. MOUNTWORK as in mount-work.sh.
# VERBS_DEVICES="siw rxe"; WORK_MIB (4), WORK_TREE (10). Exit status 0 only when every check of both passed.
if [ -z "${CENOTE_GUEST:-}" ]; then
    here=$(cd "$(dirname "$0")" && pwd)
    : "${CENOTE:?the path of the cenote binary}" "${MOUNTWORK:?the mountwork binary}"
    folder=$(mktemp -d) || exit 1
    server=
    trap '[ -z "$server" ] || kill "$server" 2>/dev/null; rm -rf "$folder"' EXIT
    trap 'exit 130' INT TERM
    strip -o "$folder/cenote" "$CENOTE" || cp "$CENOTE" "$folder/cenote"
    mkdir "$folder/shared"
    # Each guest waits for files of the other in a folder that both have.
    export GUEST_SHARE="$folder/shared" GUEST_TIMEOUT="${GUEST_TIMEOUT:-600}" GUEST_PASS="${GUEST_PASS:-} VERBS_DEVICES VERBS_ROLE"
    export SMB_HOST=10.9.0.1 SMB_SHARE=demo SMB_USER=user SMB_PASSWORD='kit Pa55'
    # QEMU says which port it took only to those who can see its sockets.
    port=${VERBS_NETWORK_PORT:-$((22000 + $$ % 1000))}
    VERBS_ROLE=server GUEST_NAME=server GUEST_ADDRESS=10.9.0.1/24 GUEST_NETDEV="socket,listen=127.0.0.1:$port" GUEST_FILES="$folder/cenote" \
        GUEST_MEMORY=2048 GUEST_PCAP='' GUEST_CONSOLE="${VERBS_SERVER_CONSOLE:-}" "$here/run.sh" "$0" >"$folder/server.log" 2>&1 </dev/null &
    server=$!
    tries=0
    until [ -e "$folder/shared/booted" ]; do
        tries=$((tries + 1))
        [ "$tries" -lt 600 ] && kill -0 "$server" 2>/dev/null || { cat "$folder/server.log"; echo "the server's guest does not boot"; exit 1; }
        sleep 0.2
    done
    VERBS_ROLE=client GUEST_NAME=client GUEST_ADDRESS=10.9.0.2/24 GUEST_NETDEV="socket,connect=127.0.0.1:$port" GUEST_FILES="$MOUNTWORK $folder/cenote" \
        "$here/run.sh" "$0" </dev/null 2>&1 | sed -u 's/^/client: /' &
    wait $!
    # A client that ended without its last word is not waited for.
    : >"$folder/shared/over"
    wait "$server"
    status=$?
    server=
    sed 's/^/server: /' "$folder/server.log"
    [ -e "$folder/shared/client-passed" ] || status=1
    exit "$status"
fi
. /job/functions

tell() { : >"/host/$1"; }
# hears SECONDS WORD: until the other guest says it.
hears() { wait_for "$1" sh -c "[ -e '/host/$2' ] || [ -e /host/over ]" && [ -e "/host/$2" ]; }
more_than() { say "$1: $2 to $3"; [ "$3" -gt "$2" ]; }

# --- The server ---------------------------------------------------------------------------------------------------------

cenote() { /job/files/cenote --data /srv/cenote "$@"; }
ready() { grep -q '^ready' /tmp/cenote.log; }
# counter NAME: as `cenote rdma counters` has it since the start.
counter() { cenote --json rdma counters | tr ',{}' '\n\n\n' | sed -n "s/^ *\"$1\": *\([0-9]*\).*/\1/p" | head -n 1; }
sessions() { cenote session list | tee /tmp/sessions; }

serve() { # siw | rxe
    case $1 in siw) transport=iWARP ;; rxe) transport=RoCE ;; esac
    "start_$1"
    CENOTE_LOG=info /job/files/cenote quickstart --allow-unsigned --data /srv/cenote --disks 2 --disk-size 1GiB --smb 0.0.0.0:445 --user "$user" \
        --password "$PASSWD" >/tmp/cenote.log 2>&1 &
    server=$!
    wait_for 120 ready || { cat /tmp/cenote.log; die "cenote is not ready"; }
    check "$1: listens by the device" grep -q "SMB Direct by an RDMA device.*${1}0" /tmp/cenote.log || cat /tmp/cenote.log
    cenote rdma list | cat
    tell "ready-$1"
    hears 400 "mounted-$1" || die "$1: the client did not mount"
    check "$1: a session" sessions
    check "$1: session list says $transport" grep -q "$transport" /tmp/sessions
    written=$(counter bytes_rdma_written) read=$(counter bytes_rdma_read) accepted=$(counter accepted_connections)
    check "$1: RDMA Activity counts the connection" [ "${accepted:-0}" -ge 1 ]
    tell "counted-$1"
    hears 400 "worked-$1" || die "$1: the client did not finish its work"
    sessions
    check "$1: bytes by RDMA Read rose" more_than "bytes read by RDMA" "${read:-0}" "$(counter bytes_rdma_read)"
    check "$1: bytes by RDMA Write rose" more_than "bytes written by RDMA" "${written:-0}" "$(counter bytes_rdma_written)"
    cenote rdma list | cat
    tell "seen-$1"
    hears 60 "unmounted-$1" || die "$1: the client did not unmount"
    check "$1: healthy" cenote health
    kill "$server"
    wait "$server"
    check "$1: ends when told" [ $? -eq 0 ]
    grep -E 'WARN|ERROR' /tmp/cenote.log | head -n 10
    rdma link delete "${1}0"
}

# --- The client ---------------------------------------------------------------------------------------------------------

established() { dmesg | grep -c 'RDMA transport established'; }

# by_device DEVICE [OPTION...]: our own client, a file there and back.
by_device() {
    device=$1
    shift
    export CENOTE_SMB_USER="$user" CENOTE_SMB_PASSWORD="$PASSWD"
    timeout 120 /job/files/cenote smb put /tmp/sent "//$host/demo/by-device" --transport rdma --rdma-device "$device" "$@" &&
        timeout 120 /job/files/cenote smb get "//$host/demo/by-device" /tmp/back --transport rdma --rdma-device "$device" "$@" &&
        cmp /tmp/sent /tmp/back
}
refused_by_device() { ! by_device "$1" >/tmp/refused 2>&1 && grep -q "not by $1" /tmp/refused; }

use() { # siw | rxe
    hears 200 "ready-$1" || die "$1: the server is not ready"
    "start_$1"
    wait_for 10 ping -c 1 -W 1 "$host" >/dev/null || say "no answer to ping from $host"
    dd if=/dev/urandom of=/tmp/sent bs=1M count="$WORK_MIB" 2>/dev/null
    check "$1: our client by ${1}0" by_device "${1}0"
    check "$1: our client by whichever device leads there, signed" by_device auto --sign
    check "$1: our client over two connections" by_device "${1}0" --channels 2
    check "$1: our client refuses another device" refused_by_device other0
    before=$(established)
    mount_share /mnt rdma
    check "$1: RDMA transport established" more_than connections "$before" "$(established)"
    tell "mounted-$1"
    hears 60 "counted-$1" || die "$1: the server did not look"
    folder=/mnt/work
    check "$1: mkdir" mkdir "$folder"
    check "$1: make a tree" /job/files/mountwork tree "$folder/tree" "${WORK_TREE:-10}" 1
    forget_cache
    check "$1: verify the tree" /job/files/mountwork verify "$folder/tree" "${WORK_TREE:-10}" 1
    work_big "$folder"
    check "$1: remove it all" rm -r "$folder"
    grep -A 12 SMBDirect /proc/fs/cifs/DebugData | head -n 14
    tell "worked-$1"
    hears 60 "seen-$1"
    check "$1: unmount" umount /mnt
    tell "unmounted-$1"
    dmesg | grep -iE 'cifs.*(error|fail)|smbd.*(error|fail)|rxe.*(err|warn)' | tail -n 5
    # cifs.ko keeps nothing of the device; its connection ends a moment after the unmount.
    usleep 500000
    rdma link delete "${1}0"
}

WORK_MIB=${WORK_MIB:-4}
if [ "${VERBS_ROLE:-server}" = client ]; then
    for kind in ${VERBS_DEVICES:-siw rxe}; do use "$kind"; done
    summary || exit 1
    tell client-passed
    exit 0
fi
# The disks are files, and have to be on a file system with O_DIRECT.
modprobe -a ext4 crc32c_generic || die "modprobe ext4"
modprobe brd rd_nr=1 rd_size=$((768 << 10)) max_part=0 || die "modprobe brd"
mke2fs -q /dev/ram0 || die "mke2fs"
mount -t ext4 /dev/ram0 /srv || die "mount /srv"
ulimit -l unlimited
tell booted
for kind in ${VERBS_DEVICES:-siw rxe}; do serve "$kind"; done
summary
