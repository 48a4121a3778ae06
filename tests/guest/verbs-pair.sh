#!/bin/sh
# Guest job: our tool for two ends of one connection (crates/rdma/examples/pair.rs) by libibverbs over siw in the guest, against iWARP in
# software on the host, in both roles. PAIR: the binary, on the host. PAIR_SERVER_PORT: where one serves on the host. HOST_PORT:
# forwarded to the guest's 7175, where it serves then and prints GUEST-READY. WORK_MIB (4). Exit status 0 only when every check passed.
if [ -z "${CENOTE_GUEST:-}" ]; then
    : "${PAIR:?the pair binary}" "${PAIR_SERVER_PORT:?}" "${HOST_PORT:?}"
    export GUEST_FILES="$PAIR ${GUEST_FILES:-}" GUEST_FORWARD="${GUEST_FORWARD:-} $HOST_PORT:7175" GUEST_PASS="${GUEST_PASS:-} PAIR_SERVER_PORT"
    exec "$(dirname "$0")/run.sh" "$0" "$@"
fi
. /job/functions

ulimit -l unlimited
start_siw
wait_for 10 ping -c 1 -W 1 "$host" >/dev/null || say "no answer to ping from $host"
check "the device's end runs, the software's serves" timeout 120 /job/files/pair run device "$host:$PAIR_SERVER_PORT" "${WORK_MIB:-4}"
timeout 120 /job/files/pair serve device 10.0.2.15:7175 >/tmp/pair 2>&1 &
server=$!
wait_for 10 grep -q listening /tmp/pair || cat /tmp/pair
say "GUEST-READY: pair on 7175"
wait $server
check "the device's end serves, the software's runs" [ $? -eq 0 ]
cat /tmp/pair
summary
