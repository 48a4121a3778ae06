#!/bin/bash
# Two of three servers are lost with their part of the cluster's state, and their disks are whole: the third goes on alone, the others join anew, and
# their disks come back, with volumes of two and of three copies, byte for byte. The chapter "Rescue" of docs/CLUSTER.md, over real etcd.
. "$(dirname "$0")/../lib.sh"
command -v etcd >/dev/null || { echo "etcd is missing: apt-get install etcd-server"; exit 77; }
command -v smbclient >/dev/null || { echo "smbclient is missing: apt-get install smbclient"; exit 77; }

. "$root/tests/servers.sh"

copies() { node 1 volume list | grep "$1" | grep "$2" >/dev/null; } # VOLUME "N of M"
owner() { node 1 volume list --json | sed -n "/\"name\": \"$1\"/,/}/s/^ *\"owner\": \"node-\([0-9]*\)\".*/\1/p" | head -n 1; }
reads() { # VOLUME: from the server that serves it
    local number
    number=$(owner "$1")
    rm -f back
    [[ $number ]] && at "$number" "$1" "get data.bin back" && [[ $(sha back) == "$2" ]]
}
stop_hard() { kill -9 "${pids[$1]}" 2>/dev/null; wait "${pids[$1]}" 2>/dev/null; } # NUMBER

form_cluster
mkdir "$work"/disks-{1,2,3}
check "a pool" node 1 pool create pool "$work/disks-1/a" "$work/disks-1/b" --create 1GiB
for number in 2 3; do
    for disk in a b; do
        check "disk $disk of server $number" await 30 node $number disk add "$work/disks-$number/$disk" --create 1GiB --pool pool
    done
done
check "a user" bash -c "echo '$password' | '$CENOTE' --data '$work/node-1' user add '$user' --password-stdin"
cd "$work" || exit 1
random_file bytes 96
whole=$(sha bytes)
for kind in two three; do
    check "a volume of $kind copies" node 1 volume create $kind --size 512MiB --resiliency $kind-way-mirror
    check "its share" node 1 share create $kind --volume $kind --grant "$user:full"
    check "a file on it" await 20 at 1 $kind "put bytes data.bin"
done
spread() { ! grep -E "volume '(two|three)'" <(node 1 cluster status) >/dev/null; }
check "all pieces have their copies on several servers" await 60 spread

# "Back up": the files of the table, of each server.
kept=(cluster/{secret.key,node.key,node.pem,authority.pem,identity.json,known.json})
keep() { # NUMBER
    local file
    mkdir -p "$work/kept-$1/cluster"
    for file in "${kept[@]}"; do
        [[ $(stat -c %a "$work/node-$1/$file") == 600 ]] && cp -p "$work/node-$1/$file" "$work/kept-$1/$file" || return 1
    done
    cmp "$work/node-1/cluster/secret.key" "$work/kept-$1/cluster/secret.key"
}
for number in 1 2 3; do check "the files to be kept of server $number are there, for root only" await 20 keep $number; done
check "so is the founder's key of before" test "$(stat -c %a "$work/node-1/secret.key")" = 600

# The system disk of server 3 is lost, and the files that were kept are put back.
check "all servers vote" await 30 votes 3
stop_hard 3
rm -rf "$work/node-3"
mv "$work/kept-3" "$work/node-3"
start_node 3
check "server 3 is the server that it was, by the files that were kept" await 60 node 3 disk list
check "with another member of etcd, which votes" await 60 votes 3
check "and its disks are in use" await 60 copies three "3 of 3"

for number in 2 3 1; do stop_hard $number; done
start_node 1
# A cluster of which most servers are down is waited for, and so does the API say.
tells() { curl -s "http://$(address 1):$http_port/healthz" | grep -E "$1" >/dev/null; }
check "a server that starts alone says for whom it waits" await 20 tells "waits for the state of cluster C: etcd is not reached on node-2, node-3"
refuses "its command line, too" "not reached on node-2, node-3" node 1 cluster status
check "by 503" test "$(curl -s -o /dev/null -w '%{http_code}' "http://$(address 1):$http_port/healthz")" = 503
stop_hard 1
rm -rf "$work/node-2" "$work/node-3"

refuses "a recovery without the cluster's name" "confirm|--yes|name" "$CENOTE" --data "$work/node-1" cluster recover --yes other
# As one that was cut off leaves it.
touch "$work/node-1/cluster/recovering"
refuses "a start behind a recovery that was cut off" "was interrupted, so its records are incomplete" "$CENOTE" serve --config "$work/node-1.toml"
check "the recovery is given again, and comes to its end" bash -c "'$CENOTE' --data '$work/node-1' cluster recover --yes C >'$work/recovered'"
for kind in two three; do check "it names volume $kind, which waits for the others' disks" grep -q "disks of the others:.* $kind" "$work/recovered"; done
start_node 1
says_left() { (($(node 1 health --json | grep -c '"code": "disk_left_behind"') == 4)); }
check "the server serves" await 60 node 1 disk list
check "health names the disks that servers left behind" await 30 says_left
for number in 2 3; do
    start_node $number
    check "server $number serves, empty" await 60 node $number disk list
    check "and joins anew" node $number cluster join --token "$(node 1 cluster token)"
    check "and has its vote" await 60 votes $number
    for disk in a b; do
        check "its disk $disk comes back" await 30 node $number disk add "$work/disks-$number/$disk" --pool pool
    done
done
check "the volume of three copies is there" await 60 reads three "$whole"
check "the volume of two copies is there" await 60 reads two "$whole"
check "with all of its copies" await 90 copies two "2 of 2"
check "the one of three copies has all of them again" await 120 copies three "3 of 3"
check "no disk was emptied or forgotten" bash -c "[[ \$('$CENOTE' --data '$work/node-1' disk list --json | grep -c '\"path\"') == 6 ]]"
check "none is retired" bash -c "! '$CENOTE' --data '$work/node-1' disk list | grep -i retired"
stop_hard 1
gone() { for number in 2 3; do node $number node show node-1 --json | grep -q '"state": "down"' || return 1; done; }
check "the rescued server dies" await 20 gone
serves() { # VOLUME
    local number
    for number in 2 3; do
        rm -f back
        at $number "$1" "get data.bin back" && [[ $(sha back) == "$whole" ]] && return
    done
    return 1
}
for kind in two three; do check "and the volume of $kind copies is served without it, byte for byte" await 60 serves $kind; done

check "the rescued server is removed" node 2 node remove node-1 --yes node-1
start_node 1
check "when it comes back it says that it was removed, and what to do" await 30 tells "node-1', was removed from cluster C on 2.*join anew"
# The beginning of "Rescue": a server joins anew with an empty data directory, and its disks are taken as new ones.
stop_hard 1
rm -rf "$work/node-1"
start_node 1
check "with an empty data directory it serves" await 60 node 1 disk list
node 2 cluster token >"$work/token"
check "and joins anew" node 1 cluster join "$(address 2):9447" --join-token-file "$work/token"
pool_is_known() { in_cluster 1 && node 1 pool list --local | grep pool >/dev/null; }
check "and is a part of the cluster, with its pool" await 60 pool_is_known
for disk in a b; do
    refuses "its disk $disk as it is" "belongs to pool" node 1 disk add "$work/disks-1/$disk" --pool pool
    check "its disk $disk is erased" node 1 disk erase "$work/disks-1/$disk" --yes "$work/disks-1/$disk"
    check "and added as a new one" await 30 node 1 disk add "$work/disks-1/$disk" --pool pool
done
check "it has its vote" await 60 votes 3
check "copies are made there of the volume of three copies" await 120 copies three "3 of 3"
check "and of two" await 60 copies two "2 of 2"

((failed == 0)) || for log in "$work"/node-*.log "$work/recovered"; do echo "$log"; tail -n 15 "$log"; done
summary
