#!/bin/bash
# The dashboard of a trial cluster: every server shows all of it, what all do while a fleet loads them, and a server that is killed within two
# seconds. The fleet leaves nothing behind. Then the same servers over TLS, in Debian's Chromium; pictures go to target/test-logs/dashboard.
. "$(dirname "$0")/../lib.sh"
command -v etcd >/dev/null || { echo "etcd is missing: apt-get install etcd-server"; exit 77; }
FLEET=${FLEET:-$(dirname "$CENOTE")/fleet}
[[ -x $FLEET ]] || { echo "no fleet at $FLEET: cargo build --release --package cenote-fleet"; exit 77; }
export TMPDIR=$work
pids=()

. "$root/tests/addresses.sh"
addresses=$(address 1),$(address 2),$(address 3)
cluster_cleanup() {
    for pid in "${pids[@]}"; do kill -9 "$pid" 2>/dev/null; done
    trial_cleanup
}
begin_trial --disk-size 1GiB --restart-after 0
trap cluster_cleanup EXIT
counts "the checks run to their end" timeout 120 python3 "$root/tests/peers/dashboard_cluster.py" "$work/data" "$addresses" "$http_port" "$FLEET"

# --- Over TLS, in a browser ---------------------------------------------------------------------------------------------
if ! command -v chromium >/dev/null || ! command -v chromedriver >/dev/null || ! command -v openssl >/dev/null; then
    skip "the pages over TLS in a browser (88-dashboard.sh installs chromium and chromium-driver; and openssl)"
    summary
elif ! python=$(python_with selenium); then
    skip "the pages over TLS in a browser (selenium cannot be installed: no network?)"
    summary
fi
kill "$server_pid" && wait "$server_pid"
server_pid=
tls_port=$(free_port)
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=trial -addext "subjectAltName=IP:${addresses//,/,IP:}" \
    -keyout "$work/data/tls.key" -out "$work/data/tls.pem" 2>/dev/null
chmod 600 "$work/data/tls.key"
for number in 1 2 3; do
    address=$(cut -d , -f $number <<<"$addresses")
    sed -i '/^\(# *\)\?tls_\(listen\|certificate\|key\) *=/d' "$work/data/node-$number.toml"
    sed -i "s|^\[api\]$|[api]\ntls_listen = [\"$address:$tls_port\"]\ntls_certificate = \"$work/data/tls.pem\"\ntls_key = \"$work/data/tls.key\"|" "$work/data/node-$number.toml"
    "$CENOTE" serve --config "$work/data/node-$number.toml" >>"$work/server.out" 2>>"$work/server.err" </dev/null &
    pids+=($!)
    echo $! >"$work/data/node-$number.pid"
done
serves() { timeout 20 "$CENOTE" --data "$work/data/node-1" --json volume list | grep '"owner": "node-' >/dev/null; }
end=$((SECONDS + 60))
until serves && (($(timeout 20 "$CENOTE" --data "$work/data/node-3" --json node list | grep -c '"state": "up"') == 3)) || ((SECONDS > end)); do sleep 0.3; done
check "the servers are up again, with TLS" serves
# A client of the server that has the volume.
head -c 1M /dev/urandom >"$work/file"
client() {
    local owner
    while true; do
        owner=$(timeout 20 "$CENOTE" --data "$work/data/node-1" --json volume list | sed -n 's/.*"owner": "node-\(.*\)".*/\1/p' | head -n 1)
        for ((i = 0; i < 20; i++)); do
            timeout 20 "$CENOTE" smb put "$work/file" "smb://$(cut -d , -f "${owner:-1}" <<<"$addresses"):$smb_port/$share/file" --transport tcp >/dev/null 2>&1 || break
        done
        sleep 0.2
    done
}
CENOTE_SMB_USER=$user CENOTE_SMB_PASSWORD=$password client &
pids+=($!)
mkdir -p "$target/test-logs/dashboard"
counts "the pages run to their end" timeout 120 "$python" "$root/tests/peers/dashboard_nodes.py" "$work/data" "$addresses" "$tls_port" "$target/test-logs/dashboard"
summary
