#!/bin/bash
# Quotas by user: smbcquotas lists and sets them, writes beyond are refused, counts survive kill -9.
. "$(dirname "$0")/../lib.sh"

# smbcquotas knows no port: an address of loopback that nobody else has.
[[ $EUID == 0 ]] || { echo "needs root, for port 445"; exit 77; }
command -v smbcquotas >/dev/null || { echo "no smbcquotas"; exit 77; }
address=127.62.$((RANDOM % 250 + 1)).$((RANDOM % 250 + 1))
smb_address=$address:445
start_server || { not_ok "quickstart says ready"; summary; }
quotas() { smbcquotas "//$address/$share" -U "$user%$password" "$@"; }
as_ann() { smbcquotas "//$address/$share" -U "ann%a word of ann" "$@"; }
ann() { timeout 600 smbclient "//$address/$share" -U "ann%a word of ann" -m SMB3_11 -t 120 -c "$1"; }
cd "$work" || exit 1
random_file three 3
random_file nine 9
check "a user" cli user add ann --password "a word of ann"
check "an administrator" cli group set Administrators --add "$user"
check "who may use the share" cli share set demo --grant "$user:full" --grant ann:full --grant Administrators:full
check "a file from before quotas" ann "put three before"

prints "quotas are off" 'Quotas Enabled: Off' quotas -F
check "smbcquotas turns them on" quotas -S FSQFLAGS:QUOTA_ENABLED/DENY_DISK
check "and sets defaults" quotas -S FSQLIM:5000000/10000000
prints "which it shows" 'Default Hard Limit: +10000000' quotas -F
prints "and the command line too" 'default limit +9.54 MiB' cli quota list demo
for _ in {1..50}; do cli quota list demo | grep -q counted || break; sleep 0.2; done
prints "what was there is counted" 'ann +: +3145728/ +5000000/ +10000000' quotas -L
prints "a user sees the own quota" 'ann +: +3145728/' as_ann -L
refuses "and no other one's" ACCESS_DENIED as_ann -u "$user"
refuses "and changes none" ACCESS_DENIED as_ann -S UQLIM:ann:0/99999999
prints "free space is what the quota leaves" '2441 blocks of size 4096. 1673 blocks available' ann ls
refuses "a file beyond the limit" DISK_FULL ann "put nine nine"
prints "is not counted but for its name" 'ann +: +3149824/' quotas -u ann
check "smbcquotas gives a limit" quotas -S UQLIM:ann:1000000/20000000
check "within which it is written" ann "put nine nine"
prints "and counted" 'ann +: +12582912/ +1000000/ +20000000' quotas -u ann
prints "the command line says what is over" 'ann +12.0 MiB .* own +over the warning' cli quota list demo
kill_server
start_server || { not_ok "the server comes back"; summary; }
prints "after kill -9 as before" 'ann +: +12582912/ +1000000/ +20000000' quotas -u ann
check "and as a check finds" cli volume check demo --watch
check "a limit of the command line" cli quota set demo ann --limit 13MiB
refuses "holds" DISK_FULL ann "put three more"
check "what is deleted counts no more" ann "del nine; put three more"
check "the defaults hold again" cli quota remove demo ann
prints "for smbcquotas too" 'ann +: +6291456/ +5000000/ +10000000' quotas -u ann
refuses "an unknown user" 'no user' cli quota set demo nobody --limit 1GiB
check "turned off" cli quota set demo --mode off
check "nobody is refused" ann "put nine nine; put nine ten"
summary
