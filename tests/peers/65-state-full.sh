#!/bin/bash
# The file system of the server's state is full (a small tmpfs; needs root): files are served, health tells it, and all goes on by itself when
# there is room.
. "$(dirname "$0")/../lib.sh"

mkdir "$work/data"
mount -t tmpfs -o size=6m tmpfs "$work/data" 2>/dev/null || { echo "no tmpfs may be mounted here"; exit 77; }
trap 'umount -l "$work/data" 2>/dev/null; cleanup' EXIT
write_config "$work/cenote.toml"
serve_config "$work/cenote.toml" 60 || { not_ok "the server starts"; summary; }
cd "$work" || exit 1
check "a pool is made" cli pool create pool "$work/disk-1" "$work/disk-2" "$work/disk-3" --create 1GiB
check "a volume" cli volume create demo --size 512MiB
check "a user" bash -c "printf '%s\n' '$password' | '$CENOTE' --data data user add $user --password-stdin"
check "a share" cli share create demo --volume demo --grant "$user:full"
random_file f 8
check "a file is written" smb "put f"

head -c 100M /dev/zero >data/filler 2>/dev/null
# The state has some room of its own, which it uses up when it is opened again: changes until there is none.
for ((i = 0, told = 0; i < 400 && told < 8; i++)); do
    cli group add "group-$i" >/dev/null 2>&1
    if grep -q cluster_state <<<"$(issues)"; then ((++told)); sleep 0.3; else told=0; fi
done
check "changes are refused when there is no room (after $i)" test "$told" = 8
check "health says so" grep -q cluster_state <<<"$(issues)"
check "and that the data directory has no room" grep -q data_directory_full <<<"$(issues)"
check "and what to do" bash -c "'$CENOTE' --data data health | grep -A4 'cluster state cannot be' | grep -i 'space'"
refuses "a change says why" "No space left" cli group add more
for round in 1 2; do
    rm -f back
    smb "get f back" >/dev/null 2>&1
    equal "files are served ($round)" "$(sha f)" "$(sha back 2>/dev/null)"
done
check "a file is written meanwhile" smb "put f g"

rm data/filler
end=$((SECONDS + 20))
until ! grep -qE 'cluster_state|data_directory' <<<"$(issues)" || ((SECONDS > end)); do sleep 0.3; done
check "with room changes are made, without a restart" cli group add more
# The audit log is told of until it has a line again, which a change makes.
equal "health is good again" "" "$(issues)"
check "one of before is there" bash -c "'$CENOTE' --data data group list | grep -w group-0"
# Membership: a disk that is lost is taken out, which the state must record.
disk=$(cli --json disk list | python3 -c 'import json,sys; print(json.load(sys.stdin)[0]["id"])')
check "a disk is retired" cli disk retire "$disk" --watch
kill_server
serve_config "$work/cenote.toml" 60 || { not_ok "the server starts again"; summary; }
check "after a kill the change is there" bash -c "'$CENOTE' --data data group list | grep -w more"
# Every line of the audit log is whole.
check "the audit log parses" python3 -c 'import json,sys; [json.loads(line) for line in open("data/audit.log")]'
stop_server
summary
