#!/bin/bash
# Servers become a cluster: one in use is its first, two join by tokens, accounts made on one log on at all, what is wrong is refused, a server
# leaves, and the last one of a lost majority goes on alone. Over real etcd, on loopback addresses.
. "$(dirname "$0")/../lib.sh"
command -v etcd >/dev/null || { echo "etcd is missing: apt-get install etcd-server"; exit 77; }

base=$((60 + RANDOM % 60))
pids=()
cluster_cleanup() {
    for pid in "${pids[@]}"; do kill -9 "$pid" 2>/dev/null; done
    cleanup
}
trap cluster_cleanup EXIT

address() { echo "127.0.0.$((base + $1))"; }
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
await() { # SECONDS COMMAND...: until the command succeeds
    local end=$((SECONDS + $1))
    shift
    until "$@" >/dev/null 2>&1; do
        ((SECONDS < end)) || return 1
        sleep 0.2
    done
}
in_cluster() { node "$1" cluster status --json | grep '"name": "C"' >/dev/null; }
is_up() { node "$1" node show "$2" --json | grep '"state": "up"' >/dev/null; }
has_user() { node "$1" user list --json | grep "\"$2\"" >/dev/null; }
voters() { [[ $(node 1 cluster status --json | sed -n '/"members"/,/]/p' | grep -c node-) == "$1" ]]; }

for number in 1 2 3; do configure $number; start_node $number; done
for number in 1 2 3; do check "server $number serves" await 60 node $number disk list; done

# The first one is in use.
mkdir "$work/disks"
check "a pool on the first server" node 1 pool create pool "$work/disks/a" "$work/disks/b" --create 1GiB
check "a user on the first server" bash -c "echo '$password' | '$CENOTE' --data '$work/node-1' user add ann --password-stdin"
refuses "a token without a cluster" "in no cluster" node 1 cluster token
refuses "a name that is none" "letters, digits" node 1 cluster create --name 'a b'
check "the cluster is made" node 1 cluster create --name C
check "its first server serves as a part of it" await 60 in_cluster 1
check "its state is in etcd" await 30 voters 1
check "it kept the pool" await 30 bash -c "'$CENOTE' --data '$work/node-1' pool list | grep pool"
check "it kept the user" has_user 1 ann
refuses "a second cluster" "in cluster C already" node 1 cluster create --name D

token=$(node 1 cluster token)
refuses "a token that was cut" "not copied whole" node 2 cluster join --token "${token:0:60}"
check "the preflight passes" node 2 cluster test --token "$token"
check "server 2 joins" node 2 cluster join "$(address 1):9447" --token "$token"
refuses "a token that was used" "used already, by server node-2" node 3 cluster join --token "$token"
check "server 2 is in the cluster" await 60 in_cluster 2
check "server 2 is up" await 60 is_up 1 node-2
check "server 3 joins" node 3 cluster join --token "$(node 2 cluster token)"
check "server 3 is up" await 60 is_up 2 node-3
check "three members of etcd have a vote" await 90 voters 3
check "the user is known at server 3" await 30 has_user 3 ann
check "a user is made at server 3" bash -c "echo '$password' | '$CENOTE' --data '$work/node-3' user add bob --password-stdin"
check "the first server knows it" await 10 has_user 1 bob
check "the preflight of the cluster passes" node 1 cluster test

configure 4 NODE-2
start_node 4
check "a fourth server serves" await 60 node 4 disk list
token=$(node 1 cluster token)
refuses "a server with a name that is taken" "number 2" node 4 cluster join --token "$token"
refuses "a removal without its name" "node-2" node 1 node remove node-2
refuses "the removal of the server itself" "through another one" node 1 node remove node-1 --yes node-1

# A server dies: the others go on, and it comes back.
kill -9 "${pids[2]}"
is_down() { node 1 node show node-2 --json | grep '"state": "down"' >/dev/null; }
check "server 2 is down" await 20 is_down
check "a user is made without it" bash -c "echo '$password' | '$CENOTE' --data '$work/node-1' user add carl --password-stdin"
start_node 2
check "it comes back" await 60 is_up 1 node-2
check "it knows what it missed" await 30 has_user 2 carl

# One leaves: its certificate is good for nothing any more.
check "server 3 is removed" node 1 node remove node-3 --yes node-3
refuses "its name is gone" "no server" node 1 node show node-3
check "etcd has two members" await 30 voters 2

# The majority is lost: with the cluster's name, the first server goes on alone.
kill -9 "${pids[2]}" "${pids[3]}"
kill "${pids[1]}"
wait "${pids[1]}" 2>/dev/null
refuses "a recovery without the name" "nothing was done" node 1 cluster recover
check "the first server recovers the cluster" node 1 cluster recover --yes C
start_node 1
check "it serves alone" await 60 is_up 1 node-1
check "it has what was made" has_user 1 carl
equal "it is the only one" 1 "$(node 1 node list --json | grep -c '"cluster":')"

for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null; done
((failed == 0)) || for log in "$work"/node-*.log; do echo "$log"; tail -n 12 "$log"; done
summary
