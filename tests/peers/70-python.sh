#!/bin/bash
# Python's smbprotocol and impacket drive the server's features from outside; so do the requests of Explorer and macOS, byte by byte.
. "$(dirname "$0")/../lib.sh"

start_server --disk-size 2GiB || { not_ok "quickstart says ready"; summary; }
export SMB_PORT=$smb_port SMB_SHARE=$share SMB_USER=$user SMB_PASSWORD=$password
for what in smbprotocol impacket explorer; do
    # explorer speaks by tests/smb2.py.
    peer=${what/explorer/cryptography}
    if ! python=$(python_with $peer); then
        skip "$what ($peer cannot be installed: no network?)"
        continue
    fi
    counts "$what runs to its end" timeout 600 "$python" "$root/tests/peers/${what}_features.py"
done
check "health is clean" cli health
stop_server
equal "SIGTERM ends it with status 0" 0 $?
summary
