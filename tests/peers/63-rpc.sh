#!/bin/bash
# RPC by other people's clients: rpcclient and `net rpc` list and change shares, files, sessions, accounts; smbtorture binds in every way.
. "$(dirname "$0")/../lib.sh"

# `net` knows no port: an address of loopback that nobody else has.
[[ $EUID == 0 ]] || { echo "needs root, for port 445"; exit 77; }
command -v rpcclient >/dev/null && command -v net >/dev/null || { echo "no rpcclient or net"; exit 77; }
address=127.63.$((RANDOM % 250 + 1)).$((RANDOM % 250 + 1))
smb_address=$address:445
start_server || { not_ok "quickstart says ready"; summary; }
as=$user%$password
rpc() { timeout 30 rpcclient "$address" -U "$as" -c "$1"; }
bound() { timeout 30 rpcclient "ncacn_np:$address[$1]" -U "$as" -c "$2"; }
net_rpc() { timeout 30 net rpc "$@" -S "$address" -U "$as"; }
cd "$work" || exit 1
check "a user who is no administrator" bash -c "echo 'a word of ann' | '$CENOTE' --data '$work/data' user add ann --password-stdin"
volume=$(cli volume list --json | sed -n 's/.*"name": "\(.*\)",/\1/p' | head -n 1)

prints "shares are listed with their paths" "path:[[:space:]]*C:.$volume" rpc netshareenumall
check "a share is made of a new directory" net_rpc share add "plans=C:\\$volume\\plans" -C "of houses"
prints "the API knows it" 'plans' cli share list
prints "the audit log too" '"share create","target":"plans"' cat "$work/data/audit.log"
check "its comment is changed" rpc "netsharesetinfo plans 1004 new"
check "it is deleted" net_rpc share delete plans
prints "one that is not there" 'NETNAMENOTFOUND' rpc "netsharedel plans"
prints "others make no share" 'denied' timeout 30 net rpc share add "mine=C:\\$volume\\mine" -S "$address" -U 'ann%a word of ann'

mkfifo held
smbclient "//$address/$share" -U "$as" -c 'put held' >/dev/null 2>&1 &
holder=$!
exec 7>held
await 5 bash -c "'$CENOTE' --data '$work/data' file list | grep -q held"
prints "an open file is listed" "C:.$volume.held" net_rpc file
id=$(net_rpc file | sed -n 's/^ *\([0-9]*\) .*held.*/\1/p')
check "and closed by its number" net_rpc file close "${id:-0}"
check "the API lists it no more" bash -c "! '$CENOTE' --data '$work/data' file list | grep -q held"
exec 7>&-
kill "$holder" 2>/dev/null
wait "$holder" 2>/dev/null
prints "sessions are listed" 'Received [1-9]' rpc 'netsessenum'
check "disks are listed" rpc netdiskenum
prints "the descriptor of a file" 'owner|SID|ACL' rpc "netnamevalidate $share 9; netfilegetsec $share \\held"

prints "users" 'ann' rpc enumdomusers
prints "a user" 'ann' rpc 'queryuser ann'
prints "groups of this server" 'None' rpc enumdomgroups
prints "groups of BUILTIN" 'Administrators' rpc 'enumalsgroups builtin'
prints "members of a group" 'S-1-5-21' rpc 'queryaliasmem builtin 544'
prints "users with their full names" 'ann' rpc querydispinfo
prints "by net" 'ann' net_rpc user
prints "others are refused" 'DENIED' timeout 30 rpcclient "$address" -U 'ann%a word of ann' -c enumdomusers
prints "BUILTIN is a domain" 'S-1-5-32 BUILTIN' rpc 'lookupsids S-1-5-32'
prints "the part in a domain" 'Machine Role.*2' rpc dsroledominfo
check "who is logged on" rpc wkssvc_enumerateusers
prints "the registry" 'ServerNT' net_rpc registry getvalue 'HKLM\SYSTEM\CurrentControlSet\Control\ProductOptions' ProductType
prints "privileges" 'SeBackupPrivilege.*0:17' rpc enumprivs
prints "a privilege by its name" '0:17' rpc 'lsalookupprivvalue SeBackupPrivilege'
prints "its name for people" 'Back up files' rpc 'getdispname SeBackupPrivilege'
prints "accounts with rights" 'S-1-5-32-551' rpc lsaenumsid
prints "the rights of an account" 'SeRestorePrivilege' rpc 'lsaenumacctrights S-1-5-32-551'
check "the privileges of an account that is opened" rpc 'lsaenumprivsaccount S-1-5-32-544'
prints "who may be asked" 'S-1-1-0' rpc lsaquerysecobj
prints "rights by net" 'SeTakeOwnershipPrivilege +Take ownership' net_rpc rights list
prints "rights of accounts by net" 'BUILTIN.Backup Operators' net_rpc rights list accounts
prints "accounts with a right by net" 'BUILTIN.Administrators' net_rpc rights list privileges SeSecurityPrivilege
prints "rights are not given here" 'ACCESS_DENIED' rpc 'lsaaddacctrights S-1-5-32-545 SeBackupPrivilege'
prints "interfaces" 'svcctl' timeout 30 rpcclient "$address" -U "$as" -c epmlookup
prints "no service" 'SERVICE_DOES_NOT_EXIST' net_rpc service status spooler

for way in sign seal 'sign,spnego' 'seal,spnego' connect bigendian; do
    says "a pipe is bound with $way" 'ann' bound "$way" enumdomusers
done
# Anonymous ones are refused, and one test asks for TCP.
passes() { # TEST SUBTEST...: that all of them are among those that succeed
    local test=$1 output subtest
    shift
    output=$(timeout 60 smbtorture "ncacn_np:$address" -U "$as" "$test" 2>&1)
    for subtest; do
        grep -qF "success: $subtest" <<<"$output" || { echo "$subtest"; grep -A 3 -F "failure: $subtest" <<<"$output"; return 1; }
    done
}
if command -v smbtorture >/dev/null; then
    admin='srvsvc (admin access)'
    check "smbtorture rpc.srvsvc" passes rpc.srvsvc "$admin".{NetConnEnum,NetFileEnum,NetSessEnum,NetSrvGetInfo,NetDiskEnum,NetRemoteTOD,NetNameValidate}
    ways=(ntlm,sign ntlm,sign,seal spnego,sign spnego,sign,seal)
    check "smbtorture rpc.bind" passes rpc.bind "${ways[@]}" "${ways[@]/#/bigendian,}"
    check "smbtorture rpc.mgmt" timeout 60 smbtorture "ncacn_np:$address" -U "$as" rpc.mgmt
    check "smbtorture rpc.epmapper" passes rpc.epmapper epmapper.{Lookup_simple,Lookup_terminate_search,Map_simple}
    check "smbtorture rpc.lsa.lookupnames" passes rpc.lsa.lookupnames lsa.LookupNames
    check "smbtorture rpc.dssetup" timeout 60 smbtorture "ncacn_np:$address" -U "$as" rpc.dssetup
fi
check "health is clean" cli health
stop_server
summary
