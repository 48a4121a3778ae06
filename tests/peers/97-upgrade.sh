#!/bin/bash
# The chapter "Upgrade" of docs/CLUSTER.md: three servers of an older build are stopped, and started with this one. CENOTE_OLD names the older binary.
. "$(dirname "$0")/../lib.sh"
[[ ${CENOTE_OLD:-} ]] || { echo "CENOTE_OLD names no older build of cenote to upgrade from"; exit 77; }
command -v etcd >/dev/null || { echo "etcd is missing: apt-get install etcd-server"; exit 77; }
command -v smbclient >/dev/null || { echo "smbclient is missing: apt-get install smbclient"; exit 77; }

. "$root/tests/servers.sh"
new=$CENOTE
reads() {
    local number
    for number in 1 2 3; do
        rm -f back
        at $number files "get data.bin back" && [[ $(sha back) == "$whole" ]] && return
    done
    return 1
}
is_whole() { node 1 volume list | grep '3 of 3' >/dev/null; }

CENOTE=$CENOTE_OLD
form_cluster
mkdir "$work/disks"
check "a pool" node 1 pool create pool "$work/disks/1" --create 1GiB
for number in 2 3; do check "a disk of server $number" await 30 node $number disk add "$work/disks/$number" --create 1GiB --pool pool; done
check "a user" bash -c "echo '$password' | '$CENOTE' --data '$work/node-1' user add '$user' --password-stdin"
check "a volume" node 1 volume create data --size 512MiB --resiliency three-way-mirror
check "a share" node 1 share create files --volume data --grant "$user:full"
cd "$work" || exit 1
random_file bytes 32
whole=$(sha bytes)
check "a file" await 20 at 1 files "put bytes data.bin"

for number in 1 2 3; do kill "${pids[$number]}"; done
for number in 1 2 3; do wait "${pids[$number]}" 2>/dev/null; done
CENOTE=$new
for number in 1 2 3; do start_node $number; done
for number in 1 2 3; do check "server $number of this build serves" await 60 node $number disk list; done
check "the file is there, byte for byte" await 60 reads
check "with all copies" await 60 is_whole
check "all members of etcd vote" await 30 votes 3

((failed == 0)) || for log in "$work"/node-*.log; do echo "$log"; tail -n 12 "$log"; done
summary
