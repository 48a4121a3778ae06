#!/bin/bash
# The file system beneath one copy's disk is full (a small tmpfs; needs root): health says which, no copy is put out, also over a kill, and all goes on
# by itself when there is room.
. "$(dirname "$0")/../lib.sh"

mkdir "$work/host" "$work/data"
mount -t tmpfs -o size=600m,mode=755 tmpfs "$work/host" 2>/dev/null || { echo "no tmpfs may be mounted here"; exit 77; }
trap 'umount -l "$work/host" 2>/dev/null; cleanup' EXIT
write_config "$work/cenote.toml"
serve_config "$work/cenote.toml" 60 || { not_ok "the server starts"; summary; }
cd "$work" || exit 1
check "a pool is made" cli pool create pool "$work/host/disk-1" "$work/disk-2" --create 1GiB
check "a volume" cli volume create demo --size 512MiB
check "a user" bash -c "printf '%s\n' '$password' | '$CENOTE' --data data user add $user --password-stdin"
check "a share" cli share create demo --volume demo --grant "$user:full"
random_file f 8
random_file big 48
check "a file is written" smb "put f"
until_health() {
    local end=$((SECONDS + 20))
    until grep -q "$1" <<<" $(issues) " || ((SECONDS > end)); do sleep 0.2; done
    grep -q "$1" <<<" $(issues) "
}
# Slabs of metadata are given their room within a second of when they are taken.
sleep 1.5

head -c 1G /dev/zero >host/filler 2>/dev/null
smb "put big" >put.log 2>&1 &
putting=$!
check "health names the file system that is full" until_health host_file_system_full
check "and where it is" bash -c "'$CENOTE' --data data health | grep -F '$work/host'"
equal "no copy is put out" "" "$(grep -oE 'copies_missing|volume_degraded|disk_lost' <<<"$(issues)")"
rm -f back
kill_server
wait "$putting" 2>/dev/null
serve_config "$work/cenote.toml" 60 || { not_ok "the server starts again"; summary; }
smb "get f back" >/dev/null 2>&1
equal "what was there is read" "$(sha f)" "$(sha back 2>/dev/null)"
equal "no copy is put out by the comparison after the kill" "" "$(grep -oE 'copies_missing|volume_degraded|disk_lost' <<<"$(issues)")"

rm host/filler
end=$((SECONDS + 30))
until [[ -z $(issues) ]] || ((SECONDS > end)); do sleep 0.3; done
equal "with room health is good again" "" "$(issues)"
rm -f back
smb "put big big2; get big2 back" >/dev/null 2>&1
equal "and files are written" "$(sha big)" "$(sha back 2>/dev/null)"
stop_server
summary
