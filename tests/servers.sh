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
at() { # NUMBER SHARE SMBCLIENT-COMMANDS
    timeout 60 smbclient "//$(address "$1")/$2" -p "$smb_port" -U "$user%$password" -m SMB3_11 -c "$3"
}
# Health has a status of its own.
says() { grep "$2" <(node "$1" health) >/dev/null; } # NUMBER PATTERN
votes() { # COUNT [ASKED]: so many members of etcd are on record, and all of them answer
    local view
    view=$(node "${2:-1}" cluster status --json) || return
    [[ $(sed -n '/"members": \[/,/\]/p' <<<"$view" | grep -c node-) == "$1" ]] && grep -q '"members_down": \[\]' <<<"$view"
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
# Servers 1 to 3, as cluster C.
form_cluster() {
    local number
    for number in 1 2 3; do configure $number; start_node $number; done
    for number in 1 2 3; do check "server $number serves" await 60 node $number disk list; done
    check "the cluster is made" node 1 cluster create --name C
    for number in 2 3; do
        check "server $number joins" node $number cluster join --token "$(node 1 cluster token)"
        check "and has its vote" await 60 votes $number
    done
}
in_cluster() { node "$1" cluster status --json | grep '"name": "C"' >/dev/null; }
