#!/bin/bash
# All copies of two blocks of a file rot: reads of these blocks fail, everything else is served, and the file is named, until it is
# written again.
. "$(dirname "$0")/../lib.sh"

start_server --disk-size 1GiB || { not_ok "quickstart says ready"; summary; }
cd "$work" || exit 1
random_file other 4
# Each block says which it is.
python3 - marked <<'PYTHON'
import os, sys
with open(sys.argv[1], "wb") as file:
    for block in range(4096):
        file.write(b"block %8d of the marked file" % block + os.urandom(4096 - 33))
PYTHON
check "files are written" smb "mkdir plans; put marked plans\\marked; put other"
equal "nothing is damaged" 0 "$(cli --json volume damage demo | python3 -c 'import json,sys; print(len(json.load(sys.stdin)["files"]))')"
stop_server
rotten=$(python3 - data/disks/*.img <<'PYTHON'
import mmap, sys
count = 0
for path in sys.argv[1:]:
    with open(path, "r+b") as file, mmap.mmap(file.fileno(), 0) as disk:
        for block in (777, 778):
            marker, at = b"block %8d of the marked file" % block, -1
            while (at := disk.find(marker, at + 1)) >= 0:
                disk[at + 2000] ^= 1
                count += 1
print(count)
PYTHON
)
equal "both copies of two blocks rot" 4 "$rotten"
start_server || { not_ok "starts again"; summary; }
refuses "the file cannot be read" "NT_STATUS" smb "get plans\\marked back"
rm -f back
smb "get other back" >/dev/null 2>&1
equal "another file reads right" "$(sha other)" "$(sha back 2>/dev/null)"
check "health says that blocks are lost, and where the files are listed" bash -c "'$CENOTE' --data data health | grep -A5 'no intact copy' | grep 'volume damage demo'"
listed=$(cli --json volume damage demo | python3 -c '
import json, sys
for file in json.load(sys.stdin)["files"]:
    for found in file["ranges"]:
        print(file["path"], found["offset_bytes"], found["length_bytes"])')
equal "the file and its blocks are listed" 'plans\marked 3182592 8192' "$listed"
check "as a table too" bash -c "'$CENOTE' --data data volume damage demo | grep -F 'plans\\marked'"
named() { health_text | grep -A5 'no intact copy' | grep -F 'plans\marked'; }
for _ in $(seq 100); do named >/dev/null && break; sleep 0.2; done
check "health names the file" named
check "health names a disk that damaged the blocks" bash -c "'$CENOTE' --data data health | grep 'no intact copy' | grep -F '.img'"
stop_server
start_server || { not_ok "starts with lost blocks"; summary; }
check "they are known after a restart, before anybody reads them" bash -c "'$CENOTE' --data data health | grep 'no intact copy'"
check "the file is written again" smb "put marked plans\\marked"
rm -f back
smb "get plans\\marked back" >/dev/null 2>&1
equal "it reads right" "$(sha marked)" "$(sha back 2>/dev/null)"
equal "nothing is damaged any more" 0 "$(cli --json volume damage demo | python3 -c 'import json,sys; print(len(json.load(sys.stdin)["files"]))')"
stop_server
summary
