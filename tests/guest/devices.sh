#!/bin/bash
# RDMA by libibverbs in QEMU guests, over siw (iWARP) and rxe (RoCE): the conformance suite of the providers, and cenote itself in one
# guest, mounted by the cifs.ko of another. Part of ./test full; 77 elsewhere, and where QEMU cannot run.
. "$(dirname "$0")/../lib.sh"
[[ $mode == full ]] || { echo "RDMA devices in a guest: ./test full"; exit 77; }
. "$root/tests/guest/prepare.sh"

# in_guest NAME COMMAND...: each check of a guest's job counts as one. siw's own faults (README.md) get a second chance.
in_guest() {
    local name=$1 log=$work/guest.log status line
    shift
    "$@" >"$log" 2>&1 </dev/null
    status=$?
    if ((status == 126)) && grep -q 'siw_' "$log"; then
        echo "        siw's kernel module faulted: again"
        "$@" >"$log" 2>&1 </dev/null
        status=$?
    fi
    while read -r line; do ok "$name: $line"; done < <(sed -n 's/^.*\[ *[0-9.]*s\] ok: //p' "$log")
    while read -r line; do not_ok "$name: $line"; done < <(sed -n 's/^.*\[ *[0-9.]*s\] NOT OK: //p' "$log")
    if ((status == 0)); then ok "$name: all of it"; else not_ok "$name: status $status" "$(cut -c 1-160 "$log" | tail -n 40)"; fi
}

GUEST_TIMEOUT=900 in_guest "conformance" "$here/verbs.sh"
GUEST_TIMEOUT=900 in_guest "cenote on a device" "$here/verbs-serve.sh"
summary
