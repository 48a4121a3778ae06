#!/bin/bash
# The fleet on one server: made, run, watched, swept, started and stopped, an experiment with its report, removed; and `cenote plan`.
. "$(dirname "$0")/../lib.sh"

FLEET=${FLEET:-$target/release/fleet}
[[ -x $FLEET ]] || { echo "no binary at $FLEET: cargo build --release --package cenote-fleet"; exit 77; }
[[ -x $(dirname "$FLEET")/diskspd ]] || { echo "no diskspd beside $FLEET: cargo build --release --package cenote-diskspd"; exit 77; }
rdma_port=${CENOTE_TEST_RDMA_PORT:-$(free_port)}
rdma_address=127.0.0.1:$rdma_port
start_server || { not_ok "quickstart says ready"; summary; }
cd "$work" || exit 1
fleet() { timeout 120 "$FLEET" --fleet "$work/fleet" "$@" </dev/null; }

# --- Its life ---------------------------------------------------------------------------------------------------------
refuses "without a fleet it says how to make one" "fleet new" fleet show
check "a dry run makes nothing" bash -c "'$FLEET' --fleet fleet new --data data -n 4 --dry-run | grep -q '4 workers' && [[ ! -e fleet ]]"
check "new makes volume, share, user and files" fleet new --data data -n 4 --data-size 2MiB
volume=$(cli --json volume list | python3 -c "import json, sys; print(*[v['name'] for v in json.load(sys.stdin) if v['name'].startswith('fleet-')])")
check "... a volume of the node" test -n "$volume"
equal "the password is the owner's alone" 600 "$(stat -c %a fleet/credentials)"
refuses "a second fleet in the same place" "already" fleet new --data data
equal "show has the workers" 4 "$(fleet show --json | python3 -c "import json, sys; print(json.load(sys.stdin)['workers_per_node'])")"
refuses "workers away from their volume take two nodes" "two nodes" fleet set --alignment 70
refuses "a profile that is not there" "neither a profile" fleet run nothing
printf '<Profile><TimeSpans></TimeSpans></Profile>' >wrong.xml
refuses "a profile without targets" "\*1" fleet run wrong.xml

# --- A run, and the table meanwhile -----------------------------------------------------------------------------------
fleet run peak -d 8 --out one >run.out 2>run.err &
running=$!
# A loaded machine takes seconds to begin it, and the workers tell their times later than the volume does.
for _ in {1..30}; do
    fleet watch --count 2 --json >watched.json
    tail -n 1 watched.json | grep '"label": *"peak"' | grep -qE '"worker_ms": *[0-9]' && break
done
check "watch shows the run and the gap above the volume" python3 -c "
import json
tables = [json.loads(line) for line in open('watched.json')]
rates = [row['rates'] for table in tables for row in table['rows'] if row['rates']]
assert tables[-1]['label'] == 'peak', tables[-1]
assert max(rate['read_iops'] for rate in rates) > 10, rates
assert any(rate['worker_ms'] and rate['worker_ms'] > rate['volume_ms'] for rate in rates), rates"
wait $running
equal "a run ends well" 0 $?
check "it prints VMFleet's table" grep -qE '^ +IOPS +Reads +Writes +\| BW \(MB/s\) +Read +Write +\| Read Lat \(ms\) +Write Lat' run.out
check "... and a note of what held the workers" grep -qE 'note: workers are (not )?held' run.out
check "workers and counters agree within a tenth" python3 -c "
import sys
iops, volume = float(sys.argv[1]), float(sys.argv[2])
assert iops > 10 and abs(volume / iops - 1) < 0.1, sys.argv" "$(column one/result.tsv IOPS 0)" "$(column one/result.tsv AverageCSVIOPS 0)"
equal "nothing is left of its scratch files" "" "$(find "${TMPDIR:-/tmp}" -maxdepth 1 -name 'fleet-*' -newer run.err -user "$(id -un)" 2>/dev/null)"

# --- A sweep that goes on where it was --------------------------------------------------------------------------------
check "a sweep has a row for each combination" bash -c "'$FLEET' --fleet fleet sweep -b 4K,64K -t 1 -o 4 -w 0 --iops 200 -d 1 --out sweep && [[ \$(wc -l <sweep/result.tsv) == 3 ]]"
sed -i '$d' sweep/result.tsv
check "... and goes on behind its rows" bash -c "'$FLEET' --fleet fleet sweep -b 4K,64K -t 1 -o 4 -w 0 --iops 200 -d 1 --out sweep | grep -c 'measured before' | grep -qx 1 && [[ \$(wc -l <sweep/result.tsv) == 3 ]]"
check "a limit holds" python3 -c "
import sys
assert 10 < float(sys.argv[1]) < 840, sys.argv" "$(column sweep/result.tsv IOPS 0)"
check "a sweep has its report with a figure" bash -c "grep -q b64t1o4w0priops200 sweep/report.md && grep -q '</svg>' sweep/iops.svg"
check "results are shown" bash -c "'$FLEET' results sweep | grep -q b64t1o4w0priops200"

# --- Started, watched, stopped ----------------------------------------------------------------------------------------
check "start" fleet start general -w 10
refuses "a second start" "fleet stop" fleet start
sleep 2
check "tsv has a line a node" bash -c "[[ \$('$FLEET' --fleet fleet watch --count 1 --tsv | wc -l) == 2 ]]"
check "stop prints what was done" bash -c "'$FLEET' --fleet fleet stop | grep -q 'Total '"
equal "no worker is left" 0 "$(pgrep -fc -- "--progress-file=.*fleet-.*" || true)"

# --- A published experiment -------------------------------------------------------------------------------------------
refuses "removal wants the name" "yes fleet" fleet remove
check "remove" fleet remove --yes fleet
equal "... and the volume is gone" "" "$(cli --json volume list | python3 -c "import json, sys; print(*[v['name'] for v in json.load(sys.stdin) if v['name'].startswith('fleet-')])")"
cells=web-rdma
[[ $mode == full ]] && cells=-
check "an experiment: cells that can run, and those that cannot with the reason" bash -c "
    '$FLEET' --fleet fleet run seed-004 --data data --duration 1s --workers-per-node 4 --data-size 1MiB --only $cells --out seed >seed.out &&
    grep -q 'web-rdma-1 .*IOPS' seed.out && grep -q 'web-rdma-3 .*skipped: it asks for 3 nodes' seed.out"
check "... its report and figures" bash -c "grep -q 'What this machine cannot show' seed/report.md && grep -q '</svg>' seed/iops-by-nodes-rdma.svg && [[ -s seed/latency.svg ]]"
check "... and its fleet is gone" test ! -e fleet/fleet.json
check "it is not measured twice" bash -c "'$FLEET' --fleet fleet run seed-004 --data data --duration 1s --workers-per-node 4 --data-size 1MiB --only $cells --out seed >again.out && [[ \$(wc -l <seed/result.tsv) == $([[ $mode == full ]] && echo 7 || echo 2) ]]"

# --- The planner ------------------------------------------------------------------------------------------------------
check "a plan of four nodes" bash -c "'$CENOTE' plan --nodes 4 --drives 4x4TiB:nvme | grep -q 'three-way-mirror'"
check "a plan from the running pool, with a node more" bash -c "
    pool=\$('$CENOTE' --data data --json pool list | python3 -c 'import json, sys; print(json.load(sys.stdin)[0][\"name\"])')
    '$CENOTE' --data data --json plan --pool \$pool --add-nodes 1 | python3 -c 'import json, sys; assert json.load(sys.stdin)[\"nodes\"] == 2'"
refuses "a plan of nothing" "nothing to plan" "$CENOTE" plan
summary
