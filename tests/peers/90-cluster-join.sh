#!/bin/bash
# Servers become a cluster: one in use is its first, two join by tokens, accounts made on one log on at all, what is wrong is refused, a server
# leaves, and the last one of a lost majority goes on alone. Over real etcd, on loopback addresses.
. "$(dirname "$0")/../lib.sh"
command -v etcd >/dev/null || { echo "etcd is missing: apt-get install etcd-server"; exit 77; }

. "$root/tests/servers.sh"

# shows "SCHEMA" NUMBER COMMAND...: passes where the command prints JSON of the schema, [SCHEMA] for a list; the output is in $work/shown.
schemas=
if python=$(python_with jsonschema); then schemas=$work/openapi.json; else skip "JSON is held against its schemas (jsonschema cannot be installed: no network?)"; fi
shows() {
    local schema=$1 number=$2
    shift 2
    held() {
        node "$number" --json "$@" >"$work/shown" || return
        [[ -z $schemas ]] || "$python" "$root/tests/peers/json_schemas.py" "$schemas" "$schema" <"$work/shown"
    }
    check "$* has its schema" held "$@"
}
is_up() { node "$1" node show "$2" --json | grep '"state": "up"' >/dev/null; }
has_user() { node "$1" user list --json | grep "\"$2\"" >/dev/null; }
voters() { [[ $(node 1 cluster status --json | sed -n '/"members"/,/]/p' | grep -c node-) == "$1" ]]; }

for number in 1 2 3; do configure $number; start_node $number; done
for number in 1 2 3; do check "server $number serves" await 60 node $number disk list; done

curl -sf "http://$(address 1):$http_port/openapi.json" >"$work/openapi.json" || not_ok "the API's document"

# The first one is in use.
mkdir "$work/disks"
check "a pool on the first server" node 1 pool create pool "$work/disks/a" "$work/disks/b" --create 1GiB
check "a user on the first server" bash -c "echo '$password' | '$CENOTE' --data '$work/node-1' user add ann --password-stdin"
refuses "a token without a cluster" "in no cluster" node 1 cluster token
refuses "a name that is none" "letters, digits" node 1 cluster create --name 'a b'
check "a volume of it" node 1 volume create early --size 512MiB --resiliency two-way-mirror
check "a share of that" node 1 share create demo --volume early --grant ann:full
# Its clients notice nothing of what it becomes.
client=
if python=$(python_with cryptography); then
    SMB_ADDRESS=$(address 1) SMB_PORT=$smb_port SMB_USER=ann SMB_PASSWORD=$password SMB_SHARE=demo STOP_FILE=$work/stop \
        "$python" "$root/tests/peers/held_open.py" >"$work/client.out" 2>&1 &
    client=$!
    check "a client is at work" await 20 grep -q working "$work/client.out"
else
    skip "a client over the founding (Python's cryptography cannot be installed: no network?)"
fi
process=${pids[1]}
shows "ClusterView" 1 cluster create --name C
check "its first server serves as a part of it" in_cluster 1
check "... in the same process, which was told of nothing" bash -c "kill -0 $process && ! grep -q 'starting again' '$work/node-1.log'"
if [[ -n $client ]]; then
    # For longer than a lease lasts.
    sleep 1
    touch "$work/stop"
    wait "$client"
    while read -r word name; do
        case $word in
            ok) ok "$name" ;;
            working) ;;
            longest) echo "        the longest $name" ;;
            *) not_ok "${name#ok }" "$(tail -n 3 "$work/client.out")" ;;
        esac
    done <"$work/client.out"
fi
check "the share goes" node 1 share delete demo --yes demo
check "... and the volume, whose slabs are given back" node 1 volume delete early --yes early
check "its state is in etcd" await 30 voters 1
check "it kept the pool" await 30 bash -c "'$CENOTE' --data '$work/node-1' pool list | grep pool"
check "it kept the user" has_user 1 ann
refuses "a second cluster" "in cluster C already" node 1 cluster create --name D

refuses "an export of a cluster's pool" "pool export is for a single server, and this one is in cluster C" node 1 pool export pool --yes pool
refuses "an import into a cluster" "nothing was changed" node 1 pool import

shows "NewToken" 1 cluster token
token=$(sed -n 's/.*"token": "\(.*\)".*/\1/p' "$work/shown")
refuses "a token that was cut" "not copied whole" node 2 cluster join --token "${token:0:60}"
shows "[PreflightCheck]" 2 cluster test --token "$token"
shows "Joined" 2 cluster join "$(address 1):9447" --token "$token"
refuses "a token that was used" "used already, by server node-2" node 3 cluster join --token "$token"
check "server 2 is in the cluster" await 60 in_cluster 2
check "server 2 is up" await 60 is_up 1 node-2
lacks_witness() { grep -q "two servers, and no witness" <(node 1 health); }
check "health says that two servers do not survive the death of one" await 20 lacks_witness
check "server 3 joins" node 3 cluster join --token "$(node 2 cluster token)"
check "server 3 is up" await 60 is_up 2 node-3
check "three members of etcd have a vote" await 90 voters 3
check "the user is known at server 3" await 30 has_user 3 ann
check "a user is made at server 3" bash -c "echo '$password' | '$CENOTE' --data '$work/node-3' user add bob --password-stdin"
check "the first server knows it" await 10 has_user 1 bob
check "the preflight of the cluster passes" node 1 cluster test
check "its table has the disks of each server" grep -q "disks *node-2" <(node 1 cluster test)
shows "ClusterView" 2 cluster status
shows "[NodeView]" 2 node list
shows "NodeView" 1 node show node-3
check "the bus to it is counted" grep -q '"requests": [0-9]' "$work/shown"

# Commands that only the server with the disk or the volume can carry out are handed on to it.
check "server 2 adds a disk" node 2 disk add "$work/disks/c" --create 1GiB --pool pool
disk=$(node 1 disk list --json | grep -B3 "disks/c\"" | sed -n 's/.*"id": "\(.*\)".*/\1/p')
check "a volume of server 1" node 1 volume create data --size 512MiB --resiliency two-way-mirror
check "it grows by a command at server 3" node 3 volume resize data --size 1GiB
check "a share with a directory is made at server 3" node 3 share create deep --volume data --path a/b --grant ann:full
check "the directory's entries are read there" await 5 node 3 acl show deep
check "the volume is checked by a command at server 2" node 2 volume check data
check "the disk of server 2 is found by a command at server 1" node 1 disk locate "$disk"
rebalanced() { node 1 job list | grep -E 'rebalance .*node-1' >/dev/null; }
check "a rebalance by a command at server 3 is of the volumes of all servers" node 3 pool rebalance pool --watch
check "... and says what server 1 did" rebalanced
check "a volume of server 1 is known to the next command, wherever that is given" bash -c "
    '$CENOTE' --data '$work/node-1' volume create short --size 512MiB && '$CENOTE' --data '$work/node-3' share create short --volume short &&
    '$CENOTE' --data '$work/node-1' share delete short --yes short && '$CENOTE' --data '$work/node-3' volume delete short --yes short"
audited() { grep -q 'volume resize' "$work/node-1/audit.log" && grep -q 'handed on to node-1' "$work/node-3/audit.log"; }
check "both servers have it in their audit logs" audited

# Draining.
serves() { node 1 node show "node-$1" --json | grep -A3 '"volumes"' | grep '"data"' >/dev/null; }
check "a volume with one copy, on disks of server 1 too" node 1 volume create lone --size 512MiB --resiliency simple
refuses "draining, which names what holds it up" "lone has one copy only" node 2 node drain node-1
refuses "... and the way out" "node drain node-1 --force" node 2 node drain node-1
shows "Message" 2 node drain node-1 --force --yes node-1 --watch
check "the volume with one copy is served by another server" await 10 bash -c "'$CENOTE' --data '$work/node-2' node show node-1 | grep -E '^volumes +none'"
check "the way back" node 2 node resume node-1
check "the volume with one copy goes" node 3 volume delete lone --yes lone
shows "Message" 2 node drain node-1 --watch
check "server 1 is drained, without its volume" bash -c "'$CENOTE' --data '$work/node-2' node show node-1 | grep -q drained"
check "server 2, which has a copy, serves it" await 10 serves 2
refuses "a volume on a drained server" "this server drains" node 1 volume create other --size 512MiB
refuses "the removal of a server that holds data" "cenote disk retire" node 2 node remove node-1 --yes node-1
shows "Message" 2 node resume node-1
check "it is up again" await 10 is_up 2 node-1
check "a disk is retired by a command at server 3" node 3 disk retire "$disk"
check "... which is taken back at server 1" node 1 disk retire "$disk" --undo

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

# The fourth joins, without a member of etcd; one of the first three leaves, and it takes the seat. Its certificate is good for nothing any more.
configure 4
kill "${pids[4]}"
wait "${pids[4]}" 2>/dev/null
start_node 4
check "the fourth server serves under another name" await 60 node 4 disk list
check "server 4 joins with a token that is still good" node 4 cluster join --token "$token"
check "server 4 is up" await 60 is_up 1 node-4
check "etcd has three members still" await 30 voters 3
shows "Message" 1 node remove node-3 --yes node-3
refuses "the removed server, which runs, makes no user" "" bash -c "echo '$password' | '$CENOTE' --data '$work/node-3' user add dora --password-stdin"
refuses "... and no token of a join" "" node 3 cluster token
told() { grep "was removed from cluster C" <(node 3 cluster status 2>&1) >/dev/null; }
check "... and says why" await 60 told
starts_again() { [[ $(grep -c 'starting again$' "$work/node-3.log") == 2 ]]; }
check "... and starts again, to wait outside" await 60 starts_again
kill "${pids[3]}"
check "... until it is stopped" timeout 30 tail --pid="${pids[3]}" -f /dev/null
refuses "the cluster has no user of it" "" has_user 1 dora
seated() { node 1 node show node-4 --json | grep '"runs_etcd": true' >/dev/null; }
check "server 4 runs the member in its place" await 60 seated
check "... with a vote" await 60 voters 3
check "server 4 is removed too" node 1 node remove node-4 --yes node-4
kill "${pids[4]}"
refuses "its name is gone" "no server" node 1 node show node-3
check "etcd has two members" await 30 voters 2

# The majority is lost: with the cluster's name, the first server goes on alone.
kill -9 "${pids[2]}" "${pids[3]}"
kill "${pids[1]}"
wait "${pids[1]}" 2>/dev/null
refuses "a recovery without the name" "nothing was done" node 1 cluster recover
shows "Message" 1 cluster recover --yes C
start_node 1
check "it serves alone" await 60 is_up 1 node-1
check "it has what was made" has_user 1 carl
equal "it is the only one" 1 "$(node 1 node list --json | grep -c '"cluster":')"

# A server whose etcd does not come up stays a single one.
configure 6
sed -i "/^\[cluster\]/a etcd_program = \"$work/etcd\"" "$work/node-6.toml"
printf '#!/bin/sh\n[ "$1" = --version ] && exec etcd --version\nexit 1\n' >"$work/etcd"
chmod +x "$work/etcd"
start_node 6
check "a server with an etcd that ends serves" await 60 node 6 disk list
check "a user of it" bash -c "echo '$password' | '$CENOTE' --data '$work/node-6' user add ann --password-stdin"
refuses "a cluster without etcd" "goes on as the single one" node 6 cluster create --name C
stays_single() { has_user 6 ann && ! [[ -e $work/node-6/cluster ]] && ! grep -q 'starting again' "$work/node-6.log"; }
check "... the server is a single one, and was not started again" stays_single
printf '#!/bin/sh\nexec etcd "$@"\n' >"$work/etcd"
check "... and with an etcd that runs it founds the cluster" node 6 cluster create --name C
check "... with its user" bash -c "'$CENOTE' --data '$work/node-6' cluster status --json | grep '\"name\": \"C\"' && '$CENOTE' --data '$work/node-6' user list --json | grep ann"
kill "${pids[6]}"
wait "${pids[6]}" 2>/dev/null

# A server that is killed while it founds a cluster is a single server or the cluster's first one when it is back, and has what it had.
rounds=3
[[ $mode == default ]] || rounds=15
founded=0 left=0
for ((round = 1; round <= rounds; ++round)); do
    configure 5
    rm -rf "$work/node-5"
    start_node 5
    await 60 node 5 disk list
    echo "$password" | node 5 user add ann --password-stdin >/dev/null
    node 5 cluster create --name C >/dev/null 2>&1 &
    sleep "0.$(printf %03d $((RANDOM % 400)))"
    kill -9 "${pids[5]}"
    wait "${pids[5]}" $! 2>/dev/null
    start_node 5
    await 60 node 5 user list || not_ok "round $round: the server does not start" "$(tail -n 5 "$work/node-5.log")"
    has_user 5 ann || not_ok "round $round: it lost its user" "$(tail -n 5 "$work/node-5.log")"
    if [[ -e $work/node-5/cluster ]]; then
        in_cluster 5 || not_ok "round $round: it has the cluster's files and is in none" "$(tail -n 5 "$work/node-5.log")"
        ((++founded))
    else
        node 5 cluster create --name C >/dev/null && in_cluster 5 || not_ok "round $round: it cannot found a cluster" "$(tail -n 5 "$work/node-5.log")"
        ((++left))
    fi
    echo "$password" | node 5 user add bob --password-stdin >/dev/null || not_ok "round $round: no user can be added"
    kill "${pids[5]}"
    wait "${pids[5]}" 2>/dev/null
done
ok "$rounds servers were killed while they founded a cluster: $founded are its first ones, $left had to begin again"

for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null; done
((failed == 0)) || for log in "$work"/node-*.log; do echo "$log"; tail -n 12 "$log"; done
summary
