#!/bin/bash
# The dashboard of a trial cluster: every server shows all of it, what all do while a fleet loads them, and a server that is killed within two
# seconds. The fleet leaves nothing behind.
. "$(dirname "$0")/../lib.sh"
command -v etcd >/dev/null || { echo "etcd is missing: apt-get install etcd-server"; exit 77; }
FLEET=${FLEET:-$(dirname "$CENOTE")/fleet}
[[ -x $FLEET ]] || { echo "no fleet at $FLEET: cargo build --release --package cenote-fleet"; exit 77; }
export TMPDIR=$work

base=$((190 + RANDOM % 40))
addresses=127.0.0.$((base + 1)),127.0.0.$((base + 2)),127.0.0.$((base + 3))
# Its servers end with it, since their standard input does.
cluster_cleanup() {
    [[ -n $server_pid ]] && kill "$server_pid" 2>/dev/null && wait "$server_pid" 2>/dev/null
    cleanup
}
trap cluster_cleanup EXIT
"$CENOTE" quickstart --nodes 3 --addresses "$addresses" --data "$work/data" --smb "$smb_port" --rdma "$((smb_port + 1))" --http "$http_port" \
    --disk-size 1GiB --restart-after 0 --user "$user" --password "$password" >>"$work/server.out" 2>>"$work/server.err" </dev/null &
server_pid=$!
end=$((SECONDS + 60))
until grep -qx ready "$work/server.out" || ((SECONDS > end)); do sleep 0.2; done
check "a cluster of three is up" grep -x ready "$work/server.out"
output=$(timeout 120 python3 "$root/tests/peers/dashboard_cluster.py" "$work/data" "$addresses" "$http_port" "$FLEET" 2>&1)
status=$?
grep -E '^(ok|not ok)' <<<"$output"
((passed += $(grep -c '^ok ' <<<"$output"), failed += $(grep -c '^not ok ' <<<"$output"))) || true
((status == 0)) || not_ok "the checks run to their end" "$(tail -n 15 <<<"$output")"
summary
