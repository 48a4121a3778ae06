#!/bin/bash
# The client finds the server's other addresses and its SMB Direct by itself: two networks in a namespace of the test's own, SMB on both,
# SMB Direct on one. 77 without root.
if [[ -z ${CENOTE_TEST_NAMESPACE:-} ]]; then
    ((EUID == 0)) && unshare -n ip link add probe type veth 2>/dev/null ||
        { echo "no network namespace can be made here (root is needed)"; exit 77; }
    CENOTE_TEST_NAMESPACE=yes exec unshare -n "$0" "$@"
fi
. "$(dirname "$0")/../lib.sh"
ip link set lo up
for n in 0 1; do
    ip link add net$n type veth peer name peer$n && ip link set peer$n up && ip link set net$n up &&
        ip address add 10.9.2$n.1/24 dev net$n ||
        { echo "net$n cannot be set up"; exit 77; }
done
smb_address=0.0.0.0:$smb_port
rdma_port=$(free_port)
rdma_address=10.9.20.1:$rdma_port
start_server --disk-size 2GiB || { not_ok "quickstart says ready"; summary; }
random_file "$work/file" 3
export CENOTE_SMB_USER=$user CENOTE_SMB_PASSWORD=$password
# The server wrote so much: what the client got. What it put comes in transfers.
by_rdma() { metric cenote_smb_direct_connection_rdma_written_bytes_total; }
there_and_back() { # OPTION...
    local place="smb://10.9.21.1:$smb_port/$share/pair"
    timeout 60 "$CENOTE" smb put "$work/file" "$place" --rdma-port "$rdma_port" "$@" &&
        timeout 60 "$CENOTE" smb get "$place" "$work/back" --rdma-port "$rdma_port" "$@" && cmp "$work/file" "$work/back"
}

check "an address without SMB Direct: a file there and back" there_and_back
equal "and none of it by RDMA" 0 "$(by_rdma)"
check "with --multichannel: a file there and back" there_and_back --multichannel
equal "and all of it by RDMA, at the other address" $((3 << 20)) "$(by_rdma)"
check "encrypted: a file there and back" there_and_back --multichannel --seal
equal "and all of it by RDMA" $((6 << 20)) "$(by_rdma)"
check "TCP alone: a file there and back" there_and_back --multichannel --channels 4 --transport tcp
equal "and none of it by RDMA" $((6 << 20)) "$(by_rdma)"
check "health is clean" cli health
stop_server
summary
