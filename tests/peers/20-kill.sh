#!/bin/bash
# kill -9 in the middle of a copy: every finished file is intact, the next start is quick, health is clean.
. "$(dirname "$0")/../lib.sh"
rounds=3
[[ $mode == full ]] && rounds=15

start_server || { not_ok "quickstart says ready"; summary; }
cd "$work" || exit 1
random_file part 8
whole=$(sha part)
: >finished
for round in $(seq $rounds); do
    # Each put is one smbclient: its exit status says that the file was closed.
    (
        for i in $(seq 1000); do
            smb "put part r$round-$i" >/dev/null 2>&1 || break
            echo "r$round-$i" >>finished
        done
    ) &
    writer=$!
    sleep "0.$((RANDOM % 8 + 1))"
    sleep $((RANDOM % 2 + 1))
    kill_server
    wait $writer
    start_server || { not_ok "round $round: starts again"; summary; }
    ok "round $round: ready $start_ms ms after kill -9"
    bad=
    while read -r name; do
        rm -f back
        smb "get $name back" >/dev/null 2>&1
        [[ $(sha back 2>/dev/null) == "$whole" ]] || bad+=" $name"
    done <finished
    count=$(wc -l <finished)
    equal "round $round: $count finished files are intact" "" "$bad"
    # Room for the next round.
    if ((count > 40)); then
        smb "$(sed 's/^/rm /; s/$/;/' finished | tr '\n' ' ')" >/dev/null 2>&1
        : >finished
    fi
done
check "health is clean" cli health
check "the volume's check finds nothing" cli volume check demo --watch
stop_server
summary
