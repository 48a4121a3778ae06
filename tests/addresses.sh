# Addresses of loopback that no script beside this one has: a network by the script's number (93-other-etcd.sh: 127.93), and in it one by chance, so
# that two runs of one script on a machine rarely meet either.
network=127.$(basename "$0" | cut -d - -f 1).$((1 + RANDOM % 250))
address() { echo "$network.$1"; }

# start_trial [quickstart options]: a trial cluster of three servers, at addresses 1 to 3, until it says ready. Not by check, whose subshell would
# keep the process's number.
start_trial() {
    "$CENOTE" quickstart --nodes 3 --addresses "$(address 1),$(address 2),$(address 3)" --data "$data" --smb "$smb_port" --rdma "$((smb_port + 1))" \
        --http "$http_port" --user "$user" --password "$password" "$@" >>"$work/server.out" 2>>"$work/server.err" </dev/null &
    server_pid=$!
    await 60 grep -x ready "$work/server.out"
}
# The first start; ends the script if it fails.
begin_trial() { # [quickstart options]
    trap trial_cleanup EXIT
    if start_trial "$@"; then ok "three servers are ready"; return; fi
    not_ok "three servers are ready" "$(tail -n 20 "$work/server.err" "$work"/data/node-*.log)"
    summary
}
# Its servers end with it, since their standard input does.
trial_cleanup() {
    [[ -n $server_pid ]] && kill "$server_pid" 2>/dev/null && wait "$server_pid" 2>/dev/null
    cleanup
}
