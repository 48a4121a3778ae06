#!/bin/bash
# Inheritance of access entries by the command line, seen by smbcacls: broken, restored, followed by what is there, cut off by kill -9.
. "$(dirname "$0")/../lib.sh"

# smbcacls knows no port: an address of loopback that nobody else has.
[[ $EUID == 0 ]] || { echo "needs root, for port 445"; exit 77; }
command -v smbcacls >/dev/null || { echo "no smbcacls"; exit 77; }
address=127.61.$((RANDOM % 250 + 1)).$((RANDOM % 250 + 1))
smb_address=$address:445
start_server || { not_ok "quickstart says ready"; summary; }
acls() { smbcacls "//$address/$share" -U "$user%$password" "$@"; }
smb() { timeout 600 smbclient "//$address/$share" -U "$user%$password" -m SMB3_11 -t 120 -c "$1"; }
shows() { # NAME PATH PATTERN
    local found
    found=$(acls "$2" 2>&1)
    if grep -qE -- "$3" <<<"$found"; then ok "$1"; else not_ok "$1" "$found"; fi
}
shows_not() {
    local found
    found=$(acls "$2" 2>&1)
    if grep -qE -- "$3" <<<"$found"; then not_ok "$1" "$found"; else ok "$1"; fi
}
cd "$work" || exit 1
printf 'one line\n' >line
check "a user" cli user add ann
check "a tree" smb "mkdir plans; mkdir plans/in; put line plans/in/file; mkdir plans/closed; put line plans/closed/file"

check "inheritance is broken" cli acl protect demo plans/closed
shows "a protected list says so" plans/closed 'CONTROL:SR\|PD'
check "a change of the directory above" cli acl set demo plans --grant ann:read
shows "a directory that was there follows" plans/in 'ACL:.*ann:ALLOWED/OI\|CI\|I/R'
shows "a file that was there follows" plans/in/file 'ACL:.*ann:ALLOWED/I/R'
shows_not "a protected directory does not" plans/closed ann
shows_not "nor what is below it" plans/closed/file ann
check "a new directory" smb "mkdir plans/new"
shows "has inherited entries" plans/new 'ACL:.*ann:ALLOWED/OI\|CI\|I/R'
shows_not "and no others" plans/new 'ALLOWED/[^/I]*(OI\|CI)?/'

refuses "an inherited entry is not revoked" 'inherited entries only' cli acl set demo plans/in --revoke ann
shows "and stays" plans/in 'ann'
refuses "an account without an entry is not revoked" 'no entry' cli acl set demo plans/closed --revoke ann
check "broken, it is the directory's own" cli acl protect demo plans/in
check "and is revoked" cli acl set demo plans/in --revoke ann
shows_not "below too" plans/in/file ann
check "inheritance is restored" cli acl inherit demo plans/in
shows "with the entry" plans/in/file 'ACL:.*ann:ALLOWED/I/R'
refuses "dropping all there is" 'nobody could open it' cli acl protect demo plans/in --drop
refuses "the volume's root inherits nothing" 'inherits nothing' cli acl inherit demo
check "a change that replaces everything below" cli acl set demo plans --grant ann:modify --recursive
shows "reaches what was protected" plans/closed/file 'ACL:.*ann:ALLOWED/I/RWXD'
shows_not "which is protected no more" plans/closed 'PD'

mkdir -p many
for directory in {1..20}; do mkdir -p "many/$directory"; (cd "many/$directory" && touch {1..150}); done
check "a tree of 3,020" smb "prompt off; recurse on; mput many"
cli acl set demo many --grant ann:full --detach >/dev/null 2>&1
sleep 0.02
kill_server
start_server || { not_ok "the server comes back"; summary; }
check "begun again after kill -9" cli acl propagate demo many
check "reaches all" bash -c "'$CENOTE' --data '$work/data' acl propagate demo many 2>&1 | grep ' 0 of 3020 '"
shows "the last file has it" many/9/150 'ACL:.*ann:ALLOWED/I/FULL'
summary
