#!/bin/bash
# Payload that leaves by reference: no byte of it may change while a slow reader, or a network that loses packets, has it in flight,
# though its blocks are overwritten and pushed out of the cache. 77 without root for a namespace.
if [[ -z ${CENOTE_TEST_NAMESPACE:-} ]]; then
    ((EUID == 0)) && unshare -n true 2>/dev/null || { echo "no network namespace can be made here (root is needed)"; exit 77; }
    CENOTE_TEST_NAMESPACE=yes exec unshare -n "$0" "$@"
fi
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../lib.sh"
ip link set lo up
seconds=8
[[ $mode == full ]] && seconds=60
address=10.9.75.1 elsewhere=10.9.75.2
smb_address=127.0.0.1:$smb_port
start_server --disk-size 2GiB || { not_ok "quickstart says ready"; summary; }
stop_server
# The client here signs nothing: it compares bytes, and what is signed is sent by a copy.
smb_address=0.0.0.0:$smb_port write_config "$work/serve.toml" 'require_signing = false' '[limits]' 'cache_bytes = "48MiB"'

in_flight() { # ADDRESS
    timeout $((seconds + 100)) python3 "$here/in_flight.py" "$1" "$smb_port" "$share" "$user" "$password" "$seconds"
}
# The seen blocks are worth something only if they left by reference.
lent() { metric cenote_smb_lent_bytes_total; }

for path in automatic reference; do
    export CENOTE_SEND=$path
    serve_config "$work/serve.toml" 60 || { not_ok "it is served"; summary; }
    in_flight 127.0.0.1 >"$work/seen" 2>&1 &
    load=$!
    sleep $((seconds - 2))
    check "$path: session list says that there is no copy" grep -w yes <<<"$(cli session list)"
    if wait "$load"; then ok "$path: $(tail -n 1 "$work/seen")"; else not_ok "$path: blocks in flight" "$(cat "$work/seen")"; fi
    if [[ $path == reference ]]; then
        output=$(python3 "$here/lossy.py" 1 "$address" "$elsewhere" timeout $((seconds + 100)) python3 "$here/in_flight.py" \
            "$address" "$smb_port" "$share" "$user" "$password" "$seconds" 2>&1)
        case $? in
            0) ok "under loss: $(tr '\n' ' ' <<<"$output")" ;;
            77) skip "under loss: $output" ;;
            *) not_ok "under loss: blocks in flight" "$output" ;;
        esac
    fi
    check "$path: bytes left by reference" test "$(lent)" -gt 0
    check "health is clean" cli health
    stop_server
    equal "SIGTERM ends it with status 0" 0 $?
done
summary
