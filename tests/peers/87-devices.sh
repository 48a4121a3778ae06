#!/bin/bash
# Whole block devices (loop devices; needs root): they get a partition table of ours, others see it, and it goes when the disk leaves its pool.
. "$(dirname "$0")/../lib.sh"

loops=()
loop() { # FILE: its device
    losetup --find --show "$1"
}
end_loops() {
    local device
    for device in "${loops[@]}"; do losetup --detach "$device" 2>/dev/null; done
}
trap 'end_loops; cleanup' EXIT
for i in 1 2 3; do
    truncate -s 1G "$work/device-$i"
    device=$(loop "$work/device-$i" 2>/dev/null) || { echo "no loop devices here"; exit 77; }
    loops+=("$device")
done
first=${loops[0]} second=${loops[1]} foreign=${loops[2]}
# Users of a device whose server just ended have it for a moment.
seen() { blkid --probe --output value --match-tag PTTYPE "$1"; }

start_server --disk-size 1GiB || { not_ok "quickstart says ready"; summary; }
cd "$work" || exit 1
id_of() { cli --json disk list | python3 -c 'import json,sys; print(next((d["id"] for d in json.load(sys.stdin) if d["path"] == sys.argv[1]), "none"))' "$1"; }

printf 'something' | dd of="$foreign" bs=512 seek=100 conv=notrunc,fsync status=none
refuses "a device that holds something is refused" "unknown kind" cli disk add "$foreign"
equal "and is as it was" "" "$(seen "$foreign")"
refuses "a pool of a free device and one that holds something is refused" "unknown kind" cli pool create other "$first" "$foreign"
equal "and the free one is as it was" "" "$(seen "$first")"

check "a pool of whole devices is made" cli pool create devices "$first" "$second"
equal "blkid finds a partition table" gpt "$(seen "$first")"
check "wipefs finds it" bash -c "wipefs --no-act '$second' | grep gpt"
type=$(partx --noheadings --raw --output TYPE,START "$first")
equal "its partition has our type and begins at 1 MiB" "84b239e1-403a-47d2-8870-db60b85e2331 2048" "$type"
check "the devices are listed" bash -c "'$CENOTE' --data data disk list | grep -E '^$first'"
check "inspect finds the disk in it" bash -c "'$CENOTE' disk inspect '$second' | grep pool"
check "a volume is made on them" cli volume create things --pool devices --size 256MiB
check "and shared" cli share create things --volume things --grant "$user:full"
random_file f 64
share=things
check "a file is written" smb "put f"
stop_server
# The first copy of a table is lost.
dd if=/dev/zero of="$first" bs=512 count=34 conv=notrunc,fsync status=none
start_server || { not_ok "starts again"; summary; }
rm -f back
smb "get f back" >/dev/null 2>&1
equal "after a restart, by the second copy of one table, the file reads right" "$(sha f)" "$(sha back 2>/dev/null)"
told() { health_text | grep -F "first copy of the partition table" | grep -F "$first"; }
check "health tells of the damaged copy" told
equal "it was written again" "EFI PART" "$(dd if="$first" bs=8 skip=64 count=1 status=none)"

check "the share goes" cli share delete things --yes things
check "the volume goes" cli volume delete things --yes things
check "a third device comes, cleared" bash -c "dd if=/dev/zero of='$foreign' bs=1M count=1 conv=notrunc,fsync status=none && '$CENOTE' --data data disk add '$foreign' --pool devices"
check "a device retires" cli disk retire "$second" --watch
end=$((SECONDS + 30))
until [[ $(id_of "$second") == none ]] || ((SECONDS > end)); do sleep 0.3; done
sleep 1
equal "it has left, and its table is gone" "none " "$(id_of "$second") $(seen "$second")"
check "it can be added again" cli disk add "$second" --pool devices
stop_server
summary
