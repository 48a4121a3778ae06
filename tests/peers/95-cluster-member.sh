#!/bin/bash
# Members of the cluster's state that are lost: told by what they say and not by what is on record, and made anew by themselves. Over real etcd.
. "$(dirname "$0")/../lib.sh"
command -v etcd >/dev/null || { echo "etcd is missing: apt-get install etcd-server"; exit 77; }

. "$root/tests/servers.sh"

silent() { node "$1" cluster status --json | sed -n '/"members_down": \[/,/\]/p' | grep -q "node-$2"; } # ASKED NUMBER
says_nothing() { ! says "$1" "does not vote"; }
notes() { node "$1" cluster status | grep "$2" >/dev/null; }
etcd_of() { pgrep -P "${pids[$1]}" -x etcd; } # NUMBER

form_cluster

kill -STOP "$(etcd_of 3)"
check "a member that does not answer is not counted" await 10 silent 1 3
check "what one more death costs is told" notes 1 "one more of node-1, node-2 fails, etcd has no majority"
check "health says so when that lasts" await 40 says 1 "server 'node-3' is up, but its etcd does not vote"
kill -CONT "$(etcd_of 3)"
check "it goes on, and votes" await 30 votes 3
check "health says nothing any more" await 30 says_nothing 1

kill -9 "${pids[2]}"; wait "${pids[2]}" 2>/dev/null
rm -rf "$work/node-2/cluster/etcd"
start_node 2
check "a member whose data are gone is made anew" await 90 votes 3
check "... under another number, as its server's log says" grep -q "another one is made in its place" "$work/node-2.log"
check "accounts are changed through it" bash -c "echo '$password' | '$CENOTE' --data '$work/node-2' user add ann --password-stdin"

# Its state of before the cluster is still there, and is nobody's any more.
kill -9 "${pids[1]}"; wait "${pids[1]}" 2>/dev/null
rm -rf "$work/node-1/cluster/etcd"
start_node 1
check "so is the founder's" await 90 votes 3 2
check "with what was recorded since" await 30 bash -c "'$CENOTE' --data '$work/node-1' user list | grep -q ann"
kill -9 "${pids[3]}"
check "one death is survived after all of that" await 30 bash -c "echo '$password' | '$CENOTE' --data '$work/node-1' user add bob --password-stdin"

((failed == 0)) || for log in "$work"/node-*.log; do echo "$log"; tail -n 15 "$log"; done
summary
