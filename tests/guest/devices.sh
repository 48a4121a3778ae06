#!/bin/bash
# RDMA by libibverbs in QEMU guests, over siw (iWARP) and rxe (RoCE): the conformance suite of the providers; siw in the guest against
# iWARP in software out here, in both roles; and cenote itself in one guest, mounted by the cifs.ko of another. Part of ./test full; 77 elsewhere, and where QEMU cannot run.
. "$(dirname "$0")/../lib.sh"
[[ $mode == full ]] || { echo "RDMA devices in a guest: ./test full"; exit 77; }
. "$root/tests/guest/prepare.sh"

# guest_job NAME COMMAND...: runs a guest's job, and counts its checks. siw's own faults (README.md) get a second chance.
guest_job() {
    local name=$1 log=$work/guest.log status
    shift
    "$@" >"$log" 2>&1 </dev/null
    status=$?
    if ((status == 126)) && grep -q 'siw_' "$log"; then
        echo "        siw's kernel module faulted: again"
        "$@" >"$log" 2>&1 </dev/null
        status=$?
    fi
    counts_guest "$name" "$log" $status
}

GUEST_TIMEOUT=900 guest_job "conformance" "$here/verbs.sh"

# --- One connection, siw at one end and software at the other ------------------------------------------------------------

if cargo build --quiet --locked --release --package cenote-rdma --example pair --manifest-path "$root/Cargo.toml" >"$work/pair.log" 2>&1; then
    export PAIR=$target/release/examples/pair
    PAIR_SERVER_PORT=$(free_port) HOST_PORT=$(free_port)
    export PAIR_SERVER_PORT HOST_PORT
    timeout 300 "$PAIR" serve iwarp "127.0.0.1:$PAIR_SERVER_PORT" >"$work/pair-server.log" 2>&1 &
    engine=$!
    # The software's turn to connect comes when the guest says so.
    (
        for ((i = 0; i < 1500; i++)); do
            grep -q GUEST-READY "$work/guest.log" 2>/dev/null && exec timeout 120 "$PAIR" run iwarp "127.0.0.1:$HOST_PORT" 4
            sleep 0.2
        done
        exit 1
    ) >"$work/pair-client.log" 2>&1 &
    client=$!
    : >"$work/guest.log"
    GUEST_TIMEOUT=400 guest_job "one connection" "$here/verbs-pair.sh"
    wait $client
    equal "one connection: the software's end ran" 0 $?
    wait $engine
    equal "one connection: the software's end served" 0 $?
    grep -hE '^(send|write|read):' "$work/guest.log" "$work/pair-client.log" | sed 's/^/        /'
else
    not_ok "the pair tool builds" "$(tail -n 10 "$work/pair.log")"
fi

# --- The server on a device --------------------------------------------------------------------------------------------------

GUEST_TIMEOUT=900 guest_job "cenote on a device" "$here/verbs-serve.sh"
summary
