#!/bin/bash
# Python's smbprotocol and impacket drive the server's features from outside.
. "$(dirname "$0")/../lib.sh"

start_server --disk-size 2GiB || { not_ok "quickstart says ready"; summary; }
export SMB_PORT=$smb_port SMB_SHARE=$share SMB_USER=$user SMB_PASSWORD=$password
for peer in smbprotocol impacket; do
    if ! python=$(python_with $peer); then
        skip "$peer (cannot be installed: no network?)"
        continue
    fi
    output=$("$python" "$root/tests/peers/${peer}_features.py" 2>&1)
    status=$?
    grep -E '^(ok|not ok)' <<<"$output"
    ((passed += $(grep -c '^ok ' <<<"$output"), failed += $(grep -c '^not ok ' <<<"$output"))) || true
    ((status == 0)) || not_ok "$peer runs to its end" "$(tail -n 15 <<<"$output")"
done
check "health is clean" cli health
stop_server
equal "SIGTERM ends it with status 0" 0 $?
summary
