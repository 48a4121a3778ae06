#!/bin/bash
# Two servers and a witness: whichever server dies, the other one takes its volume over, and the witness comes back by itself. Over real etcd.
. "$(dirname "$0")/../lib.sh"
command -v etcd >/dev/null || { echo "etcd is missing: apt-get install etcd-server"; exit 77; }
command -v smbclient >/dev/null || { echo "smbclient is missing: apt-get install smbclient"; exit 77; }

. "$root/tests/servers.sh"

witness_pid=
witness_cleanup() {
    [[ -z $witness_pid ]] || kill -9 "$witness_pid" 2>/dev/null
    servers_cleanup
}
trap witness_cleanup EXIT
witness() { "$CENOTE" --data "$work/witness" witness serve --listen "$(address 3):9447" "$@"; }
start_witness() { # Not by witness, whose subshell would be killed in its place.
    "$CENOTE" --data "$work/witness" witness serve --listen "$(address 3):9447" "$@" >>"$work/witness.log" 2>&1 </dev/null &
    witness_pid=$!
}
is() { node "$1" node show "$2" --json | grep "\"state\": \"$3\"" >/dev/null; } # ASKED-NODE NAME STATE
# All pieces have their copies on both servers: the list counts disks.
is_whole() { node "$1" volume list | grep '2 of 2' >/dev/null && ! grep "volume 'data'" <(node "$1" cluster status) >/dev/null; }

for number in 1 2; do configure $number; start_node $number; done
for number in 1 2; do check "server $number serves" await 60 node $number disk list; done
check "the cluster is made" node 1 cluster create --name C
check "its first server serves as a part of it" await 60 in_cluster 1
check "server 2 joins" node 2 cluster join --token "$(node 1 cluster token)"
check "server 2 is up" await 60 is 1 node-2 up
check "health says that the cluster does not survive the death of one" await 30 says 1 "two servers, and no witness"

refuses "a witness without a token" "give a token" witness
refuses "one with rubbish for a token" "no token for joining" witness --token rubbish
token=$(node 1 cluster token)
start_witness --token "$token"
check "the witness joins, and serves" await 60 grep -x ready "$work/witness.log"
check "it is up" await 30 is 1 witness up
check "the list calls it what it is" await 5 bash -c "'$CENOTE' --data '$work/node-1' node list | grep -q 'up, witness'"
is_silent() { ! says 1 "no witness"; }
check "health does not speak of one any more" await 30 is_silent
refuses "a second witness" "has a witness already|needs no witness" "$CENOTE" --data "$work/other" witness serve --name other \
    --listen "$(address 4):9447" --token "$(node 1 cluster token)"
refuses "draining it" "nothing to move away" node 1 node drain witness
three_votes() { [[ $(node 1 cluster status --json | sed -n '/"members"/,/]/p' | grep -cE 'node-|witness') == 3 ]]; }
check "three members of etcd have a vote" await 90 three_votes

mkdir "$work/disks"
check "a pool" node 1 pool create pool "$work/disks/a" --create 1GiB
check "with a disk of the other server" await 20 node 2 disk add "$work/disks/b" --create 1GiB --pool pool
check "a volume" node 1 volume create data --size 512MiB --resiliency two-way-mirror
check "a user" bash -c "echo '$password' | '$CENOTE' --data '$work/node-1' user add '$user' --password-stdin"
check "a share" node 1 share create files --volume data --grant "$user:full"
cd "$work" || exit 1
random_file bytes 16
whole=$(sha bytes)
check "a file is written" await 20 at 1 files "put bytes data.bin"

kill -9 "${pids[1]}"
reads() { rm -f back; at "$1" files "get data.bin back"; }
check "server 1 dies, and server 2 takes over" await 30 reads 2
equal "with the same bytes" "$whole" "$(sha back)"
start_node 1
check "server 1 comes back" await 60 is 2 node-1 up
check "the volume is whole again" await 60 is_whole 2
kill -9 "${pids[2]}"
check "server 2 dies, and server 1 takes over" await 30 reads 1
equal "with the same bytes" "$whole" "$(sha back)"
start_node 2
check "server 2 comes back" await 60 is 1 node-2 up
check "the volume is whole again" await 60 is_whole 1

kill -9 "$witness_pid"
check "the witness dies: health says so" await 20 says 1 "the witness 'witness' is down"
check "and files are served" reads 1
resident_kib=0
: >witness.log
start_witness
check "it comes back without a token" await 60 grep -x ready witness.log
check "it is up" await 30 is 1 witness up
resident_kib=$(awk '/VmRSS/ { print $2 }' "/proc/$witness_pid/status")
check "it takes less than 64 MiB ($resident_kib KiB)" test "$resident_kib" -lt 65536
check "it leaves" await 20 node 1 node remove witness --yes witness
check "... and its process ends" timeout 60 tail --pid="$witness_pid" -f /dev/null
check "... with the reason" grep "was removed from cluster" witness.log
check "health speaks of it again" await 30 says 1 "two servers, and no witness"

for pid in "${pids[@]}" "$witness_pid"; do kill "$pid" 2>/dev/null; done
((failed == 0)) || for log in "$work"/node-*.log "$work/witness.log"; do echo "$log"; tail -n 12 "$log"; done
summary
