#!/bin/bash
# The scheduled scrub: rot that nobody reads is found and written again from the other copy, and a restart goes on with it.
. "$(dirname "$0")/../lib.sh"

write_config "$work/config.toml" '[disks]' 'search = []' '[limits]' 'disk_timeout_ms = 30000' 'cache_bytes = 67108864' \
    'scrub_period_s = 3' 'scrub_bytes_per_s = 1073741824'
serve() { serve_config "$work/config.toml" 60; }
scrubs() { cli job list | grep -cE 'scrub .*completed'; }
# Health tells of a scrub's repairs before the scrub has read the whole disk.
until_a_scrub_ends() {
    local end=$((SECONDS + 60))
    until (($(scrubs) > 0)) || ((SECONDS > end)); do sleep 0.5; done
}

serve || { not_ok "the server starts"; summary; }
cd "$work" || exit 1
check "a pool is made" cli pool create tank "$work/a.img" "$work/b.img" --create 512MiB
check "a volume is made" cli volume create demo --size 256MiB
check "a user is made" cli user add "$user" --password "$password" --group Administrators
check "a share is made" cli share create demo --volume demo --grant "$user:full"
random_file f 32
check "a file is written" smb "put f"
# Its first mebibytes on one disk rot.
python3 - a.img f <<'PYTHON'
import sys
image, wanted = sys.argv[1], open(sys.argv[2], "rb").read(1 << 20)
with open(image, "r+b") as disk:
    at = disk.read().find(wanted[:4096])
    assert at > 0, "the file is not on the disk"
    disk.seek(at)
    disk.write(bytes(1 << 20))
PYTHON
end=$((SECONDS + 60))
until (($(metric cenote_disk_repaired_blocks_total) > 0)) || ((SECONDS > end)); do sleep 0.5; done
check "the scrub repairs what nobody has read" test "$(metric cenote_disk_repaired_blocks_total)" -gt 0
until_a_scrub_ends
check "scrubs are listed as jobs" test "$(scrubs)" -gt 0
rm -f back
smb "get f back" >/dev/null 2>&1
equal "the file reads right" "$(sha f)" "$(sha back)"
check "all copies are equal" cli volume check demo --watch
stop_server
serve || { not_ok "the server starts again"; summary; }
until_a_scrub_ends
check "scrubs go on after a restart" test "$(scrubs)" -gt 0
stop_server
summary
