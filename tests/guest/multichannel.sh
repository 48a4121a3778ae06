#!/bin/bash
# Multichannel with Linux's own client: a QEMU guest with two network cards, each joined by a tap to this machine in a network namespace
# of the test's own, where the server's interfaces are as it tells them. Mounts by TCP and by SMB Direct (siw on both cards), every
# byte compared, and channels that are reset in the middle of writes. Part of ./test full; 77 elsewhere, without root, and
# where QEMU cannot run.
[[ ${CENOTE_TEST_MODE:-} == full ]] || { echo "multichannel with a guest: ./test full"; exit 77; }
if [[ -z ${CENOTE_TEST_NAMESPACE:-} ]]; then
    ((EUID == 0)) && unshare -n ip tuntap add probe mode tap 2>/dev/null ||
        { echo "no network namespace with a tap can be made here (root and /dev/net/tun are needed)"; exit 77; }
    # Downloads happen outside of the namespace.
    . "$(dirname "$0")/../lib.sh"
    . "$root/tests/guest/prepare.sh"
    CENOTE_TEST_NAMESPACE=yes unshare -n "$0" "$@"
    exit
fi
. "$(dirname "$0")/../lib.sh"
. "$root/tests/guest/guest.sh"
ip link set lo up
for n in 0 1; do
    ip tuntap add tap$n mode tap && ip address add 10.9.1$n.1/24 dev tap$n && ip link set tap$n up ||
        { echo "tap$n cannot be set up"; exit 77; }
done

export SMB_HOST=10.9.10.1 SMB_SHARE=$share SMB_USER=$user SMB_PASSWORD=$password
export GUEST_ADDRESS=10.9.10.2/24 GUEST_NETDEV=tap,ifname=tap0,script=no,downscript=no GUEST_TIMEOUT=400
# The addresses' own port: clients look for other channels there.
smb_address=0.0.0.0:445

# A second card: (the first one is run.sh's).
card=(-netdev tap,id=net1,ifname=tap1,script=no,downscript=no -device virtio-net-pci,netdev=net1,mac=52:54:00:77:00:01,romfile=)
# channels TRANSPORT: the channels of that kind that the session has.
channels() { cli --json session list | grep -o "\"transport\": *\"$1\"" | wc -l; }

for kind in TCP iWARP; do
    if [[ $kind == TCP ]]; then rdma_address=127.0.0.1:0 CHANNELS_KIND=tcp; else rdma_address=0.0.0.0:5445 CHANNELS_KIND=rdma; fi
    start_server --disk-size 4GiB || { not_ok "$kind: quickstart says ready"; summary; }
    mkdir -p "$work/host"
    rm -f "$work/host/"*
    export CHANNELS_KIND
    GUEST_SHARE=$work/host GUEST_PASS=CHANNELS_KIND GUEST_FILES=$MOUNTWORK "$here/run.sh" "$here/multichannel-work.sh" "${card[@]}" \
        >"$work/guest.log" 2>&1 </dev/null &
    guest=$!
    if until_said "$work/guest.log" GUEST-MOUNTED; then
        # The session itself is one of them: it says its transport too.
        have=$(channels "$kind")
        if ((have >= 3)); then ok "$kind: the session has $((have - 1)) channels"; else not_ok "$kind: the session has $((have - 1)) channels, not two" "$(cli session list)"; fi
        touch "$work/host/counted"
    fi
    if until_said "$work/guest.log" GUEST-CUT; then
        killed=0
        for ((i = 0; i < 3; i++)); do
            sleep 2
            ((killed += $(ss -HK state established src 10.9.11.1 2>/dev/null | wc -l)))
        done
        if ((killed)); then ok "$kind: connections were reset in the middle of writes: $killed"; else not_ok "$kind: no connection was reset"; fi
        touch "$work/host/cut"
    fi
    in_guest "$kind" "$work/guest.log"
    check "$kind: health is clean" cli health
    stop_server
done
summary
