#!/bin/bash
# Commands of docs/OPERATIONS.md and README.md that no other script tries: configuration, man pages, completion, systemd.
source "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
cd "$work" || exit 1

check "every key is documented" bash -c "'$CENOTE' config show >defaults.toml && '$CENOTE' config check defaults.toml"
check "man pages are written" "$CENOTE" man "$work/man"
check "one of them for each command" test -s man/cenote.1 -a -s man/cenote-disk-replace.1 -a -s man/cenote-smb-get.1
# Completion: 59-command-line.sh.

start_server --disk-size 1GiB || { not_ok "starts"; summary; }
check "the effective configuration reads back" bash -c "'$CENOTE' --data data config show --effective >effective.toml && '$CENOTE' config check effective.toml"
check "it names where SMB is listened on" grep -q "^listen = \[\"127.0.0.1:$smb_port\"\]" effective.toml
check "and where SMB Direct is" grep -qE '^rdma_listen = \["127.0.0.1:[1-9][0-9]*"\]' effective.toml
stop_server

# systemd learns of ready and stopping.
cat >notified.py <<'P'
import socket, sys
told = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
told.bind(sys.argv[1])
told.settimeout(60)
open(sys.argv[1] + ".bound", "w").close()
while True:
    line = told.recv(4096).decode()
    print(line, flush=True)
    if "STOPPING=1" in line:
        break
P
python3 notified.py "$work/notify" >notified &
listener=$!
until [[ -e notify.bound ]] || ! kill -0 "$listener" 2>/dev/null; do sleep 0.05; done
write_config serve.toml
export NOTIFY_SOCKET=$work/notify
serve_config serve.toml 60 && ok "it is served by a configuration" || not_ok "it is served by a configuration"
unset NOTIFY_SOCKET
stop_server
wait "$listener"
equal "systemd is told when it is ready and when it stops" "READY=1 STOPPING=1" "$(grep -oE '(READY|STOPPING)=1' notified | tr '\n' ' ' | sed 's/ $//')"

if command -v systemd-analyze >/dev/null; then
    sed "s#/usr/bin/cenote#$CENOTE#; /^Documentation=/d" "$root/packaging/cenote.service" >cenote.service
    check "the unit is right" systemd-analyze verify "$work/cenote.service"
    check "its exposure is at most 2.0" systemd-analyze security --offline=true --threshold=20 "$work/cenote.service"
else
    skip "the unit is right: no systemd-analyze"
fi
summary
