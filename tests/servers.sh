# Servers as processes of their own, each at an address of loopback and with its configuration, that may become a cluster. Sourced behind lib.sh by
# scripts with a number in their name: server N is at `address N`, its data in $work/node-N, its log beside it.
pids=()
servers_cleanup() {
    for pid in "${pids[@]}"; do kill -9 "$pid" 2>/dev/null; done
    cleanup
}
trap servers_cleanup EXIT
. "$root/tests/addresses.sh"
node() { # NUMBER COMMAND...
    local number=$1
    shift
    timeout 120 "$CENOTE" --data "$work/node-$number" "$@"
}
configure() { # NUMBER [NAME]
    cat >"$work/node-$1.toml" <<TOML
[server]
data_dir = "$work/node-$1"
name = "${2:-node-$1}"
[smb]
listen = ["$(address "$1"):$smb_port"]
rdma_listen = ["$(address "$1"):$((smb_port + 1))"]
rdma_devices = []
[api]
listen = "$(address "$1"):$http_port"
[cluster]
listen = "$(address "$1"):9447"
[limits]
cache_bytes = "64MiB"
TOML
}
start_node() { # NUMBER
    "$CENOTE" serve --config "$work/node-$1.toml" >>"$work/node-$1.log" 2>&1 </dev/null &
    pids[$1]=$!
}
in_cluster() { node "$1" cluster status --json | grep '"name": "C"' >/dev/null; }
