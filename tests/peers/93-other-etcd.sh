#!/bin/bash
# A cluster whose records are in an etcd that somebody else runs: formed, joined, kept over a start, and going on when that etcd is away.
. "$(dirname "$0")/../lib.sh"
command -v etcd >/dev/null || { echo "etcd is missing: apt-get install etcd-server"; exit 77; }
command -v openssl >/dev/null || { echo "openssl is missing: apt-get install openssl"; exit 77; }

. "$root/tests/servers.sh"

keys=$work/keys etcd_pid=
mkdir "$keys"
# certificate NAME: of the other etcd's own authority.
certificate() {
    openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj "/CN=$1" -keyout "$keys/$1.key" -out "$keys/$1.csr" &&
        openssl x509 -req -in "$keys/$1.csr" -CA "$keys/ca.pem" -CAkey "$keys/ca.key" -CAcreateserial -days 2 -out "$keys/$1.pem" \
            -extfile <(printf 'subjectAltName=IP:%s\nextendedKeyUsage=serverAuth,clientAuth' "$(address 9)")
}
certificates() {
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=authority -keyout "$keys/ca.key" -out "$keys/ca.pem" &&
        certificate etcd && certificate client
}
check "certificates of the other etcd" certificates
client_port=$(free_port) peer_port=$(free_port)
url=https://$(address 9):$client_port
start_etcd() {
    etcd --name other --data-dir "$work/etcd" --listen-client-urls "$url" --advertise-client-urls "$url" \
        --listen-peer-urls "http://$(address 9):$peer_port" --initial-advertise-peer-urls "http://$(address 9):$peer_port" \
        --initial-cluster "other=http://$(address 9):$peer_port" --client-cert-auth --trusted-ca-file "$keys/ca.pem" \
        --cert-file "$keys/etcd.pem" --key-file "$keys/etcd.key" >>"$work/etcd.log" 2>&1 </dev/null &
    etcd_pid=$!
    pids[9]=$etcd_pid
}
start_etcd

with_etcd() { # NUMBER KEY
    configure "$1"
    sed -i "/^\[cluster\]/a etcd = [\"$url\"]\netcd_ca_file = \"$keys/ca.pem\"\netcd_certificate = \"$keys/client.pem\"\netcd_key = \"$2\"" \
        "$work/node-$1.toml"
}
for number in 1 2; do with_etcd $number "$keys/client.key"; start_node $number; done
configure 3
start_node 3
with_etcd 4 "$keys/client.key"
start_node 4
for number in 1 2 3 4; do check "server $number serves" await 60 node $number disk list; done

check "a cluster in it" node 1 cluster create --name C
check "its first server is in it" await 60 in_cluster 1
check "a user of another server" bash -c "echo '$password' | '$CENOTE' --data '$work/node-4' user add dora --password-stdin"
refuses "a second cluster of that name in it" "of this name already.*choose another name" node 4 cluster create --name C
serves_alone() { kill -0 "${pids[4]}" && ! [[ -e $work/node-4/cluster ]] && node 4 user list --json | grep '"dora"' >/dev/null && ! in_cluster 4; }
check "... that server is a single one still, with its user" serves_alone
check "... and the cluster has its own only" bash -c "! '$CENOTE' --data '$work/node-1' user list --json | grep dora"
kill "${pids[4]}"
check "server 2 joins" node 2 cluster join --token "$(node 1 cluster token)"
check "server 2 is in it" await 60 in_cluster 2
refuses "a server that does not know that etcd" "cluster\.etcd" node 3 cluster join --token "$(node 1 cluster token)"
no_own_etcd() { ! [[ -d $work/node-1/cluster/etcd || -d $work/node-2/cluster/etcd ]]; }
check "no server runs an etcd" no_own_etcd

mkdir "$work/disks"
check "a pool over both" node 1 pool create pool "$work/disks/a" "$work/disks/b" --create 1GiB
for disk in c d; do check "a disk of the other server" node 2 disk add "$work/disks/$disk" --create 1GiB --pool pool; done
check "a user" bash -c "echo '$password' | '$CENOTE' --data '$work/node-1' user add ann --password-stdin"
check "a volume" node 1 volume create v --pool pool --size 512MiB
check "a share" node 1 share create docs --volume v --grant ann:full
smb() { timeout 60 smbclient "//$(address "$1")/docs" -p "$smb_port" -U "ann%$password" -c "$2"; }
random_file "$work/file" 4
owner() { node 1 volume list --json | sed -n 's/.*"owner": "node-\(.*\)".*/\1/p'; }
is_owned() { [[ -n $(owner) ]]; }
check "the volume has an owner" await 30 is_owned
first=$(owner) second=$((3 - first))
check "a file goes there" await 20 smb "$first" "put $work/file file"

kill -9 "$etcd_pid"
wait "$etcd_pid" 2>/dev/null
check "without that etcd files are served" smb "$first" "get file $work/back"
equal "the same bytes" "$(sha "$work/file")" "$(sha "$work/back")"
check "and written" smb "$first" "put $work/file again"
tells_etcd() { grep -q "^unhealthy: etcd at $url" <(node "$first" health); }
check "health tells that it is away" await 30 tells_etcd
last_known() { grep -q "as they were .* s ago" <(node "$first" cluster status); }
check "cluster status shows what was known last" await 30 last_known
start_etcd
check "it comes back, and the cluster with it" await 60 in_cluster "$second"
user_known() { node "$second" user list --json | grep '"ben"' >/dev/null; }
check "what is changed is kept there" await 60 bash -c "echo '$password' | '$CENOTE' --data '$work/node-$first' user add ben --password-stdin"
check "and known at the other server" await 30 user_known

kill -9 "${pids[1]}" "${pids[2]}"
wait "${pids[1]}" "${pids[2]}" 2>/dev/null
start_node 1
start_node 2
check "both start again" await 60 in_cluster 1
reads() { smb "$(owner)" "get file $work/back"; }
check "and serve what was written" await 60 reads
equal "the same bytes after the start" "$(sha "$work/file")" "$(sha "$work/back")"
summary
