#!/bin/bash
# A hostile peer at the SMB Direct port: what it does ends its own connection and nothing else. Another client copies files by SMB Direct
# all the while, every byte compared; the server's memory stays bounded.
. "$(dirname "$0")/../lib.sh"

rdma_port=$(free_port)
rdma_address=127.0.0.1:$rdma_port
start_server --disk-size 2GiB || { not_ok "quickstart says ready"; summary; }
random_file "$work/file" 4
export CENOTE_SMB_USER=$user CENOTE_SMB_PASSWORD=$password
there_and_back() {
    timeout 60 "$CENOTE" smb put "$work/file" "smb://127.0.0.1:$rdma_port/$share/honest" --transport rdma &&
        timeout 60 "$CENOTE" smb get "smb://127.0.0.1:$rdma_port/$share/honest" "$work/back" --transport rdma && cmp "$work/file" "$work/back"
}
check "before: a file there and back" there_and_back
random_file "$work/large" 8
check "and a larger one there" timeout 60 "$CENOTE" smb put "$work/large" "smb://127.0.0.1:$rdma_port/$share/large" --transport rdma

# Ends when the hostile peer has: prints a line a round.
while [[ ! -e $work/over ]]; do
    there_and_back >"$work/honest.last" 2>&1 || { cat "$work/honest.last"; echo failed; break; }
    echo round
done >"$work/honest.log" &
honest=$!
export RDMA_PORT=$rdma_port HTTP_PORT=$http_port SERVER_PID=$server_pid SMB_USER=$user SMB_PASSWORD=$password SMB_SHARE=$share
counts "the hostile peer comes to its end" timeout 120 python3 "$(dirname "$0")/rdma_hostile.py"
touch "$work/over"
wait $honest
if grep -q failed "$work/honest.log"; then
    not_ok "meanwhile another client's files are right" "$(tail -n 5 "$work/honest.log")"
else
    check "meanwhile another client's files are right ($(grep -c round "$work/honest.log") rounds)" grep -q round "$work/honest.log"
fi
check "afterwards: a file there and back" there_and_back
check "no connection is left" bash -c '! "$0" --data "$1" --json session list | grep -q iWARP' "$CENOTE" "$work/data"
check "health is clean" cli health
stop_server
equal "SIGTERM ends it with status 0" 0 $?
summary
