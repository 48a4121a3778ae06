#!/bin/sh
# Guest job: the conformance suite of the RDMA providers over libibverbs, on siw (iWARP) and rxe (RoCE), each a connection
# of the device to itself. On the host it builds the suite (or takes it as VERBS_SUITE) and boots the guest.
# VERBS_DEVICES="siw rxe"; VERBS_FILTER: names of tests, all by default. Exit status 0 only when all passed on each device.
if [ -z "${CENOTE_GUEST:-}" ]; then
    here=$(cd "$(dirname "$0")" && pwd)
    if [ -z "${VERBS_SUITE:-}" ]; then
        VERBS_SUITE=$(cargo test --quiet --locked --manifest-path "$here/../../Cargo.toml" --package cenote-rdma --test ibverbs \
            --no-run --message-format=json | sed -n 's/.*"executable":"\([^"]*\)".*/\1/p' | tail -n 1)
        [ -x "$VERBS_SUITE" ] || { echo "the suite does not build"; exit 1; }
    fi
    cp "$VERBS_SUITE" "${TMPDIR:-/tmp}/verbs-suite.$$"
    GUEST_FILES="${GUEST_FILES:-} ${TMPDIR:-/tmp}/verbs-suite.$$" GUEST_PASS="${GUEST_PASS:-} VERBS_DEVICES VERBS_FILTER" \
        "$here/run.sh" "$0" "$@"
    status=$?
    rm -f "${TMPDIR:-/tmp}/verbs-suite.$$"
    exit $status
fi
. /job/functions

# suite DEVICE: the whole suite over one device.
suite() {
    CENOTE_VERBS_DEVICE=$1 CENOTE_VERBS_REQUIRED=1 timeout 300 /job/files/verbs-suite.* --test-threads=1 ${VERBS_FILTER:-}
}

ulimit -l unlimited
for kind in ${VERBS_DEVICES:-siw rxe}; do
    "start_$kind"
    check "conformance over $kind" suite "${kind}0"
    rdma link delete "${kind}0"
done
summary
