#!/bin/bash
# A full pool: writing says so, nothing that was there is harmed, and freed space is used again.
. "$(dirname "$0")/../lib.sh"

start_server --disk-size 1GiB --disks 2 || { not_ok "quickstart says ready"; summary; }
cd "$work" || exit 1
random_file first 16
random_file block 64
check "a file is written" smb "put first"
written=0
for i in $(seq 40); do
    output=$(smb "put block b$i" 2>&1) || break
    grep -q NT_STATUS <<<"$output" && break
    ((written++))
done
if grep -q DISK_FULL <<<"$output"; then ok "after $written files of 64 MiB the disk is full"; else not_ok "after $written files of 64 MiB" "$output"; fi
check "some files fitted" test "$written" -ge 2
for name in first $(seq -f 'b%g' $written); do
    rm -f back
    smb "get $name back" >/dev/null 2>&1
    [[ $name == first ]] && want=$(sha first) || want=$(sha block)
    [[ $(sha back 2>/dev/null) == "$want" ]] || bad+=" $name"
done
equal "what was written before is intact" "" "${bad:-}"
check "files can be deleted when it is full" smb "rm b1; rm b2"
check "freed space is used again" smb "put block again; get again back"
equal "sha256 of what was written again" "$(sha block)" "$(sha back)"
stop_server
equal "SIGTERM ends it with status 0" 0 $?
start_server || { not_ok "starts when full"; summary; }
rm -f back
smb "get first back" >/dev/null 2>&1
equal "sha256 after a restart" "$(sha first)" "$(sha back)"
stop_server
summary
