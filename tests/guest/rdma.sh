#!/bin/bash
# RDMA against Linux's own in a QEMU guest: rping and cifs.ko over siw, against the software engine and a server of ours; what went over
# the wire is decoded by tshark. ./test has one pair of rping and one mount, ./test full every dialect, signed, and a connection
# that dies in the middle of a write. 77 where QEMU cannot run.
. "$(dirname "$0")/../lib.sh"
. "$root/tests/guest/prepare.sh"
if ! cargo build --quiet --locked --release --package cenote-iwarp --example rping \
    --manifest-path "$root/Cargo.toml" >"$work/rping-build.log" 2>&1; then
    not_ok "rping builds" "$(tail -n 10 "$work/rping-build.log")"
    summary
fi
rping=$target/release/examples/rping
rdma_port=$(free_port)
rdma_address=127.0.0.1:$rdma_port
start_server --disk-size 4GiB || { not_ok "quickstart says ready"; summary; }
export HOST_RDMA_PORT=$rdma_port SMB_SHARE=$share SMB_USER=$user SMB_PASSWORD=$password

finish() {
    [[ -z ${cutter:-} ]] || kill "$cutter" 2>/dev/null
    guest_cleanup
}
trap finish EXIT

# --- rping in both roles, and mounts ---------------------------------------------------------------------------------

engine_port=$(free_port)
guest_port=$(free_port)
# A round takes a third of a second in an emulated guest.
[[ $mode == full ]] && RPING_COUNT=100 || RPING_COUNT=20
export RPING_COUNT RPING_SIZE=32768
"$rping" server "127.0.0.1:$engine_port" "$RPING_COUNT" >"$work/rping-server.log" 2>&1 &
engine=$!
if [[ $mode == full ]]; then
    export RDMA_MOUNTS="vers=3.1.1 vers=3.1.1,sign vers=3.0.2 vers=3.0.2,sign vers=3.0 vers=3.0,sign" WORK_MIB=16 WORK_FSX=1000 WORK_TREE=100 GUEST_TIMEOUT=1200
else
    export RDMA_MOUNTS="vers=3.1.1" WORK_MIB=4 WORK_FSX=200 WORK_TREE=30 GUEST_TIMEOUT=240
fi
HOST_PORT=$guest_port RPING_SERVER=yes RPING_CLIENT_PORT=$engine_port GUEST_PCAP=$work/rdma.pcap \
    "$here/rdma-work.sh" >"$work/rdma.log" 2>&1 </dev/null &
guest=$!
if until_said "$work/rdma.log" GUEST-READY; then
    check "rping: the engine's client against the guest's server" \
        timeout 60 "$rping" client "127.0.0.1:$guest_port" "$RPING_COUNT" "$RPING_SIZE"
else
    not_ok "rping: the guest has a server" "$(tail -n 10 "$work/rdma.log")"
fi
wait $engine
equal "rping: the engine's server served every round" 0 $?
in_guest mount "$work/rdma.log"

# --- What went over the wire ------------------------------------------------------------------------------------------

# decoded FILTER: frames that match; tshark finds MPA in a stream by its first bytes.
decoded() {
    tshark -r "$work/rdma.pcap" -Y "$1" 2>>"$work/tshark.log" | wc -l
}
some() { if (($2 > 0)); then ok "tshark: $1"; else not_ok "tshark: $1: none"; fi; }
if command -v tshark >/dev/null; then
    some "MPA negotiation" "$(decoded "tcp.port == $rdma_port && iwarp_mpa.rev")"
    some "RDMA Writes" "$(decoded "tcp.port == $rdma_port && iwarp_rdma.opcode == 0x00")"
    some "RDMA Read Requests" "$(decoded "tcp.port == $rdma_port && iwarp_rdma.opcode == 0x01")"
    some "Sends that end a registration" "$(decoded "tcp.port == $rdma_port && iwarp_rdma.opcode == 0x04")"
    some "SMB Direct" "$(decoded "tcp.port == $rdma_port && smb_direct")"
    some "SMB2 over it" "$(decoded "tcp.port == $rdma_port && smb2")"
    # Above SMB Direct tshark 4.0 stumbles itself: over negHints of MS-SPNG, and over fragments that share a TCP segment with others. Where a
    # segment begins in the middle of an FPDU, it now and then takes what it finds for the FPDU's beginning, also for a Terminate, and reads
    # on out of step for some segments. Of each frame: the first length that it read there.
    malformed=$(tshark -r "$work/rdma.pcap" -Y "tcp.port == $rdma_port && (_ws.malformed && !smb2 || iwarp_mpa.bad_length)" \
        -T fields -E occurrence=f -E separator=: -e frame.number -e iwarp_mpa.ulpdulength 2>>"$work/tshark.log" |
        sed 's/:$/:0/' | tr '\n' ' ')
else
    skip "tshark is missing: it decodes nothing"
    malformed=
fi
# Also that there is no Terminate.
name="every byte of the mounts' streams is an FPDU as it has to be"
# shellcheck disable=SC2086
if wire=$(python3 "$here/fpdus.py" "$work/rdma.pcap" "$rdma_port" $malformed); then
    ok "$name: ${wire##*$'\n'}"
else
    not_ok "$name" "$wire"
fi
if [[ -n $malformed ]]; then
    in_step=$(sed -n 's/^frame \([0-9]*\) is read in step$/\1/p' <<<"$wire" | sort -un | tr '\n' ' ')
    name="where tshark calls a frame malformed (${malformed% }) it is out of step"
    if [[ -z $in_step ]]; then
        ok "$name"
    else
        not_ok "$name" "not in $in_step: $(tshark -r "$work/rdma.pcap" -Y "frame.number in {${in_step% }}" -V 2>>"$work/tshark.log" |
            grep -v '^ *Data: ' | sed -n '/iWARP/,$p' | cut -c 1-120 | tail -n 80)"
    fi
elif command -v tshark >/dev/null; then
    ok "tshark: no malformed frame of MPA, DDP, RDMAP or SMB Direct"
fi

# --- A connection that dies in the middle of a write --------------------------------------------------------------------

if [[ $mode == full ]]; then
    proxy_port=$(free_port)
    python3 "$here/cut.py" "$proxy_port" "$rdma_port" $((8 << 20)) >"$work/cut.log" 2>&1 &
    cutter=$!
    RDMA_CUT=yes RDMA_MOUNTS=vers=3.1.1 HOST_RDMA_PORT=$proxy_port GUEST_TIMEOUT=500 \
        "$here/rdma-work.sh" >"$work/cut-guest.log" 2>&1 </dev/null &
    guest=$!
    in_guest cut "$work/cut-guest.log"
    check "the connection was cut in the middle of a write" grep -q '^cut' "$work/cut.log"
    kill $cutter 2>/dev/null
    cutter=
fi

check "health is clean" cli health
stop_server
summary
