#!/bin/bash
# A trial cluster of three servers: a file outlives the death of a server that has copies, and of the one that serves it, byte for byte.
. "$(dirname "$0")/../lib.sh"
command -v etcd >/dev/null || { echo "etcd is missing: apt-get install etcd-server"; exit 77; }
command -v smbclient >/dev/null || { echo "smbclient is missing: apt-get install smbclient"; exit 77; }

. "$root/tests/addresses.sh"
node() { # NUMBER COMMAND...
    local number=$1
    shift
    timeout 60 "$CENOTE" --data "$work/data/node-$number" "$@"
}
at() { # NUMBER SMBCLIENT-COMMANDS
    timeout 60 smbclient "//$(address "$1")/$share" -p "$smb_port" -U "$user%$password" -m SMB3_11 -c "$2"
}
relay_pid=none
field() { # ASKED-NODE NODE FIELD
    node "$1" node show "node-$2" --json | sed -n "s/^ *\"$3\": \"\{0,1\}\([^\",]*\).*/\1/p" | head -n 1
}
is() { [[ $(field "$1" "$2" state) == "$3" ]]; } # ASKED-NODE NODE STATE
is_whole() { node "$1" volume list | grep -q '3 of 3'; }
owner() { node "$1" volume list --json | sed -n 's/^ *"owner": "node-\([0-9]*\)".*/\1/p'; } # ASKED-NODE

# The same bytes at each of these servers; figures that have moved on between two of them are asked again.
agree() { # "NUMBER..." COMMAND...
    local numbers=$1 number
    shift
    for number in $numbers; do node "$number" "$@" --json >"told.$number" 2>/dev/null & done
    wait $(jobs -p | grep -vx -e "$server_pid" -e "$relay_pid")
    for number in $numbers; do [[ -s told.$number ]] && cmp -s "told.${numbers%% *}" "told.$number" || return 1; done
}

begin_trial --disks 2 --disk-size 2GiB --restart-after 3
cd "$work" || exit 1
random_file bytes 128
whole=$(sha bytes)
first=$(owner 1)
[[ $first ]] || { not_ok "a server has the volume"; tail -n 20 data/node-*.log server.err; summary; }
others=()
for number in 1 2 3; do [[ $number == "$first" ]] || others+=("$number"); done
for number in 1 2 3; do equal "server $number names the one that has the volume" "$first" "$(owner $number)"; done
check "a file is written" at "$first" "put bytes data.bin"
# A job of another server must be found at each, and none of their own be taken for it.
asked=${others[0]}
job=$(node "$asked" volume check demo --json | sed -n 's/.*"job": *\([0-9]*\).*/\1/p')
equal "a job that another server runs has that server's number" "$first" "$((job / 1000000))"
for number in 1 2 3; do check "server $number finds it" bash -c "'$CENOTE' --data data/node-$number job watch $job | grep '^job $job: check of demo'"; done
equal "every server lists it once, with its server" "node-$first node-$first node-$first" "$(for number in 1 2 3; do
    node $number job list --json | python3 -c "import json,sys; print(*(j['server'] for j in json.load(sys.stdin) if j['id'] == $job))"
done | xargs)"
for what in health "disk list" "volume list" "job list" "session list"; do
    check "all servers tell the same of $what" await 5 agree "1 2 3" $what
done
refuses "nobody cancels it once it has ended" "no running job '*$job" node "$asked" job cancel "$job"

kill -9 "$(field "$first" "${others[0]}" pid)"
# A stranger at the dead server's address hands the others' logons on, to each other and back.
smb_at() { echo "$1=$(address "$1"):$smb_port"; }
python3 "$root/tests/hostile/relay.py" "$(smb_at "${others[0]}" | cut -d= -f2)" 2.5 "$(smb_at "$first")" "$(smb_at "${others[1]}")" >relayed 2>&1 &
relay_pid=$!
# It comes back with two connections to each of the others.
sed -i 's/^bus_channels = 0/bus_channels = 2/' "data/node-${others[0]}.toml"
check "the file is read while a server dies" at "$first" "get data.bin back"
equal "it has the same bytes" "$whole" "$(sha back)"
check "the server is known to be down" await 10 is "$first" "${others[0]}" down
check "health tells of its death at both others, the same" await 2 agree "$first ${others[1]}" health
check "and that is no healthy cluster" grep -q '"node_down"\|"server_unanswered"' "told.$first"
for what in "disk list" "job list" "session list"; do
    check "both tell the same of $what" await 2 agree "$first ${others[1]}" $what
done
check "a file that needs more of the pool is written without it" at "$first" "put bytes more.bin"
wait "$relay_pid"
check "logons of servers were handed on to another one and back" grep -q 'another [1-9].* itself [1-9]' relayed
check "and let nobody in: $(cat relayed)" grep -q 'let in 0$' relayed
check "it is started again, and up" await 30 is "$first" "${others[0]}" up
check "the volume is whole again" await 30 is_whole "$first"
has_two_channels() { [[ $(node "${others[0]}" node show "node-$first" | grep -c '^channel to .* up') == 2 ]]; }
check "by two connections to each of the others' disks" await 10 has_two_channels

# Clients with a list of servers find the one that has the volume, and continue at the next one.
printf 'username=%s\npassword=%s\n' "$user" "$password" >credentials
chmod 600 credentials
all_at="smb://$(address "${others[0]}"),$(address "${others[1]}"),$(address "$first"):$smb_port/$share"
check "a list of servers leads to the one that has the volume" bash -c "'$CENOTE' smb ls '$all_at' --credentials credentials | grep -q data.bin"
"$(dirname "$CENOTE")/diskspd" -c64M -b4K -r -o4 -t2 -w50 -d12 -L --smb-credentials credentials "$all_at/speed" >speed 2>speed.err &
speed_pid=$!
"$CENOTE" smb put bytes "$all_at/before" --credentials credentials >put 2>&1
check "and a file is written by it: $(tail -n 1 put)" grep -q 128 put
sleep 3
kill -9 "$(field "${others[1]}" "$first" pid)"
began=$(date +%s%N)
second=
takes_over() {
    for number in "${others[@]}"; do
        rm -f back
        at "$number" "get data.bin back" && second=$number && return
    done
    return 1
}
job_is_unknown() { # NUMBER: what it says is kept
    ! node "$1" job watch "$job" >told 2>&1 && ! grep -q completed told
}
if await 20 takes_over; then ok "another server serves the volume, $((($(date +%s%N) - began) / 1000000)) ms after the death with the reading"; else
    not_ok "another server serves the volume"
    summary
fi
equal "with the same bytes" "$whole" "$(sha back)"
equal "it is named as the one that has it" "$second" "$(owner "$second")"
rm -f back
"$CENOTE" smb get "$all_at/before" back --credentials credentials >/dev/null 2>&1
equal "the list leads there, and what was written by it is there" "$whole" "$(sha back)"
wait "$speed_pid"
speed_status=$?
equal "DiskSpd ran on through its server's death: $(tail -n 1 speed.err)" 0 "$speed_status"
check "with figures of its whole run" grep -q '^total:' speed
check "a file is written there" at "$second" "mkdir later"
check "a job of the dead server is not said to be completed" job_is_unknown "$second"
check "the dead server comes back" await 30 is "$second" "$first" up
check "the volume is whole again" await 60 is_whole "$second"
check "nor when that server is back, which knows of none" job_is_unknown "$second"
equal "it stays where it is" "$second" "$(owner "$first")"

kill "$server_pid"
wait "$server_pid" 2>/dev/null
server_pid=
: >server.out
# However many disks are asked for: they have theirs.
if start_trial --disks 3 --disk-size 2GiB --restart-after 3; then ok "all of them start again"; else not_ok "all of them start again"; fi
last=$(owner 1)
equal "with the disks that they had" 6 "$(node 1 disk list --json | grep -c '"path"')"
check "the file is there" await 30 at "$last" "get data.bin back"
equal "with the same bytes" "$whole" "$(sha back)"

((failed == 0)) || for log in data/node-*.log; do echo "$log"; tail -n 12 "$log"; done
summary
