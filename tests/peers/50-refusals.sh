#!/bin/bash
# Wrong requests are refused clearly, and change nothing.
. "$(dirname "$0")/../lib.sh"

start_server --disk-size 2GiB || { not_ok "quickstart says ready"; summary; }
cd "$work" || exit 1
echo content >file
check "a file is written" smb "put file"

refuses "a second instance on the same data" "in use" "$CENOTE" quickstart --data "$work/data" --smb 127.0.0.1:0 --http 127.0.0.1:0
refuses "a taken SMB port" "another program listens" "$CENOTE" quickstart --data "$work/other" --smb "127.0.0.1:$smb_port" --http 127.0.0.1:0
refuses "a taken HTTP port" "another program listens" "$CENOTE" quickstart --data "$work/other" --smb 127.0.0.1:0 --http "127.0.0.1:$http_port"
refuses "an API beyond loopback" "loopback" "$CENOTE" quickstart --data "$work/other" --smb 127.0.0.1:0 --http 0.0.0.0:0
refuses "no disks" "disks" "$CENOTE" quickstart --data "$work/other" --disks 0
refuses "a size that is none" "size" "$CENOTE" quickstart --data "$work/other" --disk-size much
check "nothing was made by what was refused" bash -c "! ls '$work/other/disks' 2>/dev/null"

refuses "a wrong password" LOGON_FAILURE timeout 30 smbclient "//127.0.0.1/$share" -p "$smb_port" -U "$user%wrong" -c ls
refuses "an unknown user" LOGON_FAILURE timeout 30 smbclient "//127.0.0.1/$share" -p "$smb_port" -U "nobody%x" -c ls
refuses "anonymous" "LOGON_FAILURE|ACCESS_DENIED" timeout 30 smbclient "//127.0.0.1/$share" -p "$smb_port" -N -c ls
refuses "an unknown share" BAD_NETWORK_NAME timeout 30 smbclient "//127.0.0.1/none" -p "$smb_port" -U "$user%$password" -c ls
refuses "SMB1" "NT_STATUS|protocol" timeout 30 smbclient "//127.0.0.1/$share" -p "$smb_port" -U "$user%$password" --option='client min protocol=NT1' --option='client max protocol=NT1' -c ls
refuses "a path that leaves the share" "NT_STATUS" smb "get ../../etc/passwd"

printf '[smb]\nlisten = ["127.0.0.1:0"]\nlisen = 1\n' >bad.toml
refuses "an unknown configuration key, with its line" "line 3.*lisen" "$CENOTE" serve --config bad.toml
refuses "an unknown configuration key, by config check" "line 3.*lisen" "$CENOTE" config check bad.toml
refuses "a configuration that is not there" "No such file" "$CENOTE" serve --config none.toml

refuses "deleting a volume without its name" "--yes" cli volume delete demo
refuses "deleting a volume by another name" "names 'x'" cli volume delete demo --yes x
refuses "deleting a shared volume" "share" cli volume delete demo --yes demo
refuses "an unknown volume" "no volume" cli volume show none
refuses "a second share of a name" "already" cli share create DEMO --volume demo
refuses "a share outside its volume" "\.\." cli share create up --volume demo --path '..\x'
refuses "a disk that is not there" "there is no disk" cli disk retire nothing
check "a share of a new directory makes it" bash -c "'$CENOTE' --data data share create sub --volume demo --path 'a\\b' --grant '$user:full' && smbclient //127.0.0.1/sub -p $smb_port -U '$user%$password' -c 'put file x; ls'"
refuses "a share of a file" "is a file" cli share create wrong --volume demo --path 'file'
refuses "a user's empty password" "empty" bash -c "'$CENOTE' --data '$work/data' user add ann --password ''"
printf 'somebody'"'"'s data, %0100000d' 7 >foreign
before=$(sha foreign)
refuses "a disk with other data on it" "data|empty|small" cli disk add foreign
equal "the other data is untouched" "$before" "$(sha foreign)"
cp --sparse=always data/disks/disk-1.img copy.img
refuses "a disk of this pool under another name" "pool|label|already|data" cli disk add copy.img
truncate -s 1M small.img
refuses "a disk that is too small" "small" cli disk add small.img

cp data/api.token token && chmod 600 token && sed -i 's/^./z/' token
refuses "a wrong token" "token" "$CENOTE" --api "127.0.0.1:$http_port" --token-file token disk list
check "the audit log has the refusals" grep -q '"outcome":"refused"' data/audit.log
check "the audit log has no password" bash -c "! grep -qF '$password' data/audit.log"
check "secrets are private" bash -c "test \$(stat -c %a data/secret.key data/api.token data/audit.log | sort -u) = 600"

check "the file is as it was" bash -c "cd '$work' && smbclient //127.0.0.1/$share -p $smb_port -U '$user%$password' -c 'get file back' && cmp file back"
check "health is clean" cli health
stop_server
equal "SIGTERM ends it with status 0" 0 $?
refuses "no server" "no running server|cannot be reached" cli disk list
summary
