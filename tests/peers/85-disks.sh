#!/bin/bash
# The running server's disks: added, retired, replaced, lost, brought back; volumes grow and go; jobs are stopped and go on.
. "$(dirname "$0")/../lib.sh"

start_server --disk-size 1GiB || { not_ok "quickstart says ready"; summary; }
cd "$work" || exit 1
id_of() { cli --json disk list | python3 -c 'import json,sys; print(next((d["id"] for d in json.load(sys.stdin) if d["path"].endswith(sys.argv[1])), "none"))' "$1"; }
status_of() { cli --json disk list | python3 -c 'import json,sys; print(next((d["status"] for d in json.load(sys.stdin) if d["path"].endswith(sys.argv[1])), "none"))' "$1"; }
allocated_on() { cli --json disk list | python3 -c 'import json,sys; print(next((d["allocated_bytes"] for d in json.load(sys.stdin) if d["path"].endswith(sys.argv[1])), 0))' "$1"; }
until_is() { # WANT COMMAND...: for 30 s at most
    local want=$1 end=$((SECONDS + 30))
    shift
    until [[ $("$@") == "$want" ]] || ((SECONDS > end)); do sleep 0.3; done
    [[ $("$@") == "$want" ]]
}
for i in 1 2; do random_file f$i 48; done
check "files are written" smb "put f1; put f2"

# Reserve, fault domains of one node: three disks keep one's worth.
check "pool show tells the reserve" bash -c "'$CENOTE' --data data pool show pool | grep -E 'reserve.*\(1 disk\)'"
refuses "a reserve of all disks is refused" "leaves nothing" cli pool set pool --reserve-disks 3
check "the reserve is changed" cli pool set pool --reserve-disks 0
check "and shown" bash -c "'$CENOTE' --data data pool show pool | grep -E '\(0 disks\)'"

check "inspect tells what a disk is" bash -c "'$CENOTE' disk inspect data/disks/disk-1.img | grep 'nothing is damaged'"
refuses "inspect of a file that is no disk" "no label|too small|empty|not one of ours" "$CENOTE" disk inspect f1
check "locate of a file says that it has no slot" bash -c "'$CENOTE' --data data disk locate $(id_of disk-1.img) | grep 'no slot'"
refuses "locate of a disk that is not there" "no disk" cli disk locate 00000000-0000-0000-0000-000000000009

# Add, rebalance.
refuses "a disk of the pool is not added again" "is a disk of pool" cli disk add data/disks/disk-1.img
head -c 320M /dev/zero >fill
check "it fills" smb "put fill"
check "a disk is added" cli disk add "$work/data/disks/disk-4.img" --create 1GiB
check "the pool is rebalanced" cli pool rebalance pool --watch
# Volumes take a moment to count a new disk as in sync; what a rebalance plans before that is left out.
end=$((SECONDS + 30))
until (($(allocated_on disk-4.img) > 0)) || ((SECONDS > end)); do
    sleep 1
    cli pool rebalance pool --watch >/dev/null 2>&1
done
check "the new disk holds something" test "$(allocated_on disk-4.img)" -gt 0
reads_right "after the rebalance" f1 f2
smb "rm fill" >/dev/null 2>&1

# Retire: the disk leaves by itself, and counts as empty.
old=$(id_of disk-2.img)
check "a disk is retired" cli disk retire "$old" --watch
check "it leaves the pool" until_is none id_of disk-2.img
check "its label is gone" bash -c "for i in {1..50}; do '$CENOTE' disk inspect data/disks/disk-2.img 2>&1 | grep -q 'no label' && exit; sleep 0.2; done; exit 1"
reads_right "without the retired disk" f1 f2
check "it may be used again" cli disk add "$work/data/disks/disk-2.img"

# Replace.
old=$(id_of disk-1.img)
check "a disk is replaced" cli disk replace "$old" "$work/data/disks/disk-5.img" --create 1GiB --watch
check "the old one leaves" until_is none id_of disk-1.img
reads_right "after the replacement" f1 f2
check "health is clean" until_is healthy bash -c "'$CENOTE' --data data health | head -1"

# A disk is lost while the server is stopped, and another is given its work.
stop_server
mv data/disks/disk-3.img gone
start_server || { not_ok "starts without a disk"; summary; }
check "the lost disk's state is recorded" until_is lost_communication status_of disk-3.img
random_file f3 16
check "files are written without it" smb "put f3"
check "the lost disk is replaced" cli disk replace "$(id_of disk-3.img)" "$work/data/disks/disk-6.img" --create 1GiB --watch
check "it leaves the pool" until_is none id_of disk-3.img
check "health is clean without it" until_is healthy bash -c "'$CENOTE' --data data health | head -1"
mv gone data/disks/disk-3.img
reads_right "from the disks that are left" f1 f2 f3

# Too few disks.
for disk in disk-2.img disk-4.img; do
    cli disk retire "$(id_of $disk)" --watch >/dev/null
    until_is none id_of $disk
done
refuses "a disk that two copies need is not retired" "add a disk first" cli disk retire "$(id_of disk-5.img)"
reads_right "on two disks" f1 f2 f3

# Stop a job, let it go on.
check "a disk is added once more" cli disk add "$work/data/disks/disk-7.img" --create 1GiB
check "a disk is retired" cli disk retire "$(id_of disk-6.img)"
job=$(cli --json job list | python3 -c 'import json,sys; print(next((j["id"] for j in json.load(sys.stdin) if j["state"] == "running" and j["kind"] != "retirement"), ""))')
if [[ -n $job ]] && cli job cancel "$job" >/dev/null 2>&1; then
    check "a stopped job is listed" bash -c "'$CENOTE' --data data job list | grep -E '^ *$job .*suspended'"
    check "health tells of it" bash -c "'$CENOTE' --data data health | grep -q 'job resume $job'"
    check "it goes on" cli job resume "$job"
else
    skip "the job was done before it could be stopped"
fi
check "the retired disk leaves" until_is none id_of disk-6.img
reads_right "after that" f1 f2 f3
refuses "there is nothing to resume" "no stopped job" cli job resume 4711

# Volumes grow and go.
refuses "one too small is refused, with what is enough" "192 MiB" cli volume create extra --size 128MiB
check "another volume is made" cli volume create extra --size 192MiB
check "it grows" cli volume resize extra --size 384MiB
check "and shows it" bash -c "'$CENOTE' --data data --json volume show extra | python3 -c 'import json,sys; sys.exit(json.load(sys.stdin)[\"size_bytes\"] < 192 << 20)'"
refuses "a fixed volume larger than the pool is refused" "room for" cli volume create solid --fixed --size 1TiB
check "a fixed volume is made" cli volume create solid --fixed --size 256MiB
check "thin ones do not get its space" bash -c "! '$CENOTE' --data data volume create second --fixed --size 2GiB"
check "it is deleted" cli volume delete solid --yes solid
refuses "it does not shrink" "only grow" cli volume resize extra --size 128MiB
refuses "deletion needs its name" "yes" cli volume delete extra
check "it is deleted" cli volume delete extra --yes extra
check "it is gone" bash -c "! '$CENOTE' --data data volume list | grep -qw extra"
stop_server
start_server || { not_ok "starts again"; summary; }
reads_right "after a restart" f1 f2 f3
check "health is clean at the end" until_is healthy bash -c "'$CENOTE' --data data health | head -1"
stop_server
summary
