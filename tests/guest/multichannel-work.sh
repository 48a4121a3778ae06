#!/bin/sh
# Guest job of multichannel.sh: two network cards, a mount over both, work on it, and channels that the host resets in mid-write.
# CHANNELS_KIND: tcp or rdma. Says GUEST-MOUNTED and GUEST-CUT, and waits for /host/counted and /host/cut.
. /job/functions

binary=/job/files/mountwork
modprobe -a virtio_pci virtio_net
ip address add 10.9.11.2/24 dev eth1 || die "no second card"
ip link set eth1 up
wait_for 10 ping -c 1 -W 1 10.9.10.1 >/dev/null || die "no answer from the first network"
wait_for 10 ping -c 1 -W 1 10.9.11.1 >/dev/null || die "no answer from the second network"
options="multichannel,max_channels=4"
if [ "$CHANNELS_KIND" = rdma ]; then
    start_siw
    rdma link add siw1 type siw netdev eth1 || die "rdma link add"
    options="rdma,$options"
fi
mount_share /mnt "$options"
# Channels are added after the mount.
sleep 3
say "GUEST-MOUNTED"
wait_for 60 test -e /host/counted || die "the host did not count"
folder=/mnt/work
check "mkdir" mkdir "$folder"
check "fsx" $binary fsx "$folder/fsx" "${WORK_FSX:-200}" 1
check "writers side by side" $binary writers "$folder" 4 1 1
head -c $((8 << 20)) /dev/urandom >/tmp/source
say "GUEST-CUT"
# A write whose sending fails cifs.ko gives up with ECONNABORTED and says so (fs/smb/client/transport.c): the application is told, and
# tries again. Any other failure is one.
sends_failed() { dmesg | grep -c 'sending data on socket to server'; }
write_once() {
    failed_before=$(sends_failed)
    timeout 100 dd if=/tmp/source of="$folder/big" bs=1M oflag=direct 2>/tmp/dd-said && return 0
    if grep -q 'Software caused connection abort' /tmp/dd-said && [ "$(sends_failed)" -gt "$failed_before" ]; then
        given_up=$((given_up + 1))
        return 0
    fi
    say "dd: $(head -n 1 /tmp/dd-said); the kernel: $(dmesg | grep -i cifs | tail -n 8)"
    return 1
}
write_until_cut() {
    while [ ! -e /host/cut ]; do
        write_once || return 1
        rounds=$((rounds + 1))
    done
    say "written $rounds times, given up by cifs.ko while sending: $given_up"
    # Channels come back; what is written now is what the file holds.
    dd if=/tmp/source of="$folder/big" bs=1M oflag=direct 2>/dev/null
}
rounds=0 given_up=0
check "write while channels are reset" write_until_cut
forget_cache
check "it holds what was written" holds "$folder/big" "$(sum /tmp/source)"
check "remove it all" rm -r "$folder"
EVIDENCE_LINES=15 evidence
check "unmount" umount /mnt
summary
