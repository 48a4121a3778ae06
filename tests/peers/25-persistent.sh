#!/bin/bash
# A continuously available share: handles, leases and locks outlive kill -9, nobody takes their place, nothing happens twice.
. "$(dirname "$0")/../lib.sh"
rounds=6
[[ $mode == full ]] && rounds=40

start_server || { not_ok "quickstart says ready"; summary; }
check "a continuously available share" cli share create lasting --volume demo --continuously-available --grant "$user:full"
refuses "a share that scales out alone is refused" "continuously available" \
    cli share create wide --volume demo --scale-out --grant "$user:full"
check "one that is both" cli share create wide --volume demo --continuously-available --scale-out --grant "$user:full"
stop_server
if ! python=$(python_with cryptography); then
    skip "persistent handles (Python's cryptography cannot be installed: no network?)"
    summary
fi
command=("$CENOTE" quickstart --data "$work/data" --smb "127.0.0.1:$smb_port" --http "127.0.0.1:$http_port" --rdma 127.0.0.1:0
    --user "$user" --password "$password")
SERVER_COMMAND=$(IFS=$'\x1f'; echo "${command[*]}")
export SERVER_COMMAND SERVER_PID_FILE=$work/pid ROUNDS=$rounds SMB_PORT=$smb_port SMB_SHARE=lasting SMB_USER=$user SMB_PASSWORD=$password
counts "the clients run to their end" timeout 900 "$python" "$root/tests/peers/persistent_handles.py"
server_pid=$(cat "$work/pid" 2>/dev/null)
kill_server
start_server || { not_ok "starts again"; summary; }
check "health is clean" cli health
check "the volume's check finds nothing" cli volume check demo --watch
stop_server
summary
