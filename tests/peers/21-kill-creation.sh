#!/bin/bash
# kill -9 in the middle of a volume's creation or deletion, at many points: after the next start the volume is there whole or not at all,
# its name and its slabs are free, and health is clean.
. "$(dirname "$0")/../lib.sh"
rounds=8
[[ $mode == full ]] && rounds=60
# So many kills have to meet a creation at least; more rounds are played until they have.
met_min=2 rounds_max=60

write_config "$work/config.toml"
serve() { serve_config "$work/config.toml" 30; }
serve || { not_ok "the server starts"; summary; }
check "a pool is made" cli pool create pool "$work"/disk{1,2,3} --create 512MiB

now_ms() { echo $(($(date +%s%N) / 1000000)); }
allocated() { cli --json pool show pool | python3 -c 'import json,sys; print(json.load(sys.stdin)["allocated_bytes"])'; }
status_of() { cli --json volume list | python3 -c 'import json,sys; print(next((v["status"] for v in json.load(sys.stdin) if v["name"] == sys.argv[1]), "none"))' "$1"; }
eventually() { # WANT COMMAND...: for 20 s at most
    local want=$1 end=$((SECONDS + 20))
    shift
    until [[ $("$@" 2>&1) == "$want" ]] || ((SECONDS > end)); do sleep 0.2; done
    [[ $("$@" 2>&1) == "$want" ]]
}

empty=$(allocated)
began=$(now_ms)
check "a volume is made" cli volume create first --size 256MiB
create_ms=$(($(now_ms) - began))
began=$(now_ms)
check "and deleted" cli volume delete first --yes first
delete_ms=$(($(now_ms) - began))
check "its slabs are free" eventually "$empty" allocated

# Kills are spread over the time that the command took, and a little beyond.
removed=0 whole=0 round=0 bad=
while ((round < rounds || removed < met_min && round < rounds_max)); do
    ((++round))
    for what in create delete; do
        if [[ $what == create ]]; then
            [[ $(status_of v) == none ]] || cli volume delete v --yes v >/dev/null 2>&1
            words=(volume create v --size 256MiB) span=$create_ms
        else
            [[ $(status_of v) == none ]] && { cli volume create v --size 256MiB >/dev/null 2>&1 || bad+=" $round: the name is not free."; }
            words=(volume delete v --yes v) span=$delete_ms
        fi
        cli "${words[@]}" >/dev/null 2>"$work/command" &
        command=$!
        sleep "$(awk -v at=$((span * ((round - 1) % rounds) * 5 / 4 / rounds)) 'BEGIN { print at / 1000 }')"
        kill_server
        wait $command
        done=$?
        : >"$work/server.err"
        serve || { not_ok "round $round: starts again after $what"; summary; }
        # Removal begins with the start.
        eventually healthy bash -c "'$CENOTE' --data '$work/data' health | head -n 1" || bad+=" $round, $what: $(health_text | head -n 2 | tail -n 1)"
        found=$(status_of v)
        grep -q "was being made when the server ended" "$work/server.err" && ((removed++))
        [[ $found == ok ]] && ((whole++))
        [[ $found == ok || $found == none ]] || bad+=" $round, $what: $found."
        [[ $what == create && $done == 0 && $found != ok ]] && bad+=" $round: made, and gone."
        [[ $what == delete && $done == 0 && $found != none ]] && bad+=" $round: deleted, and there."
        [[ $found != none ]] || eventually "$empty" allocated || bad+=" $round, $what: $(allocated) bytes are allocated, not $empty."
    done
done
equal "after each of $((2 * round)) kills the volume is there whole ($whole times) or not at all" "" "$bad"
check "some kills met a creation ($removed)" test "$removed" -ge "$met_min"
[[ $(status_of v) == none ]] || check "the volume is deleted" cli volume delete v --yes v
check "one of its name is made" cli volume create v --size 256MiB
check "and a check finds nothing" cli volume check v --watch
stop_server
equal "SIGTERM ends it with status 0" 0 $?
check "without a panic" bash -c "! grep -n panicked '$work/server.err'"
summary
