#!/bin/bash
# The fleet on a trial cluster of three servers: workers away from their volume's node, and volumes that go to another server in the middle
# of a run and before one.
. "$(dirname "$0")/../lib.sh"
command -v etcd >/dev/null || { echo "etcd is missing: apt-get install etcd-server"; exit 77; }
command -v smbclient >/dev/null || { echo "smbclient is missing: apt-get install smbclient"; exit 77; }
FLEET=${FLEET:-$target/release/fleet}
[[ -x $FLEET ]] || { echo "no binary at $FLEET: cargo build --release --package cenote-fleet"; exit 77; }
[[ -x $(dirname "$FLEET")/diskspd ]] || { echo "no diskspd beside $FLEET: cargo build --release --package cenote-diskspd"; exit 77; }

. "$root/tests/addresses.sh"
fleet() { timeout 180 "$FLEET" --fleet "$work/fleet" "$@" </dev/null; }
node_1() { timeout 60 "$CENOTE" --data "$work/data/node-1" "$@"; }
# value LIST NAME FIELD: of what `cenote LIST list --json` says of NAME.
value() {
    node_1 "$1" list --json | python3 -c "
import json, sys
print(next(one[sys.argv[2]] for one in json.load(sys.stdin) if one['name'] == sys.argv[1]))" "$2" "$3"
}
works() { python3 -c "import sys; assert 150 < float(sys.argv[1]) < 320, sys.argv" "$1"; }

begin_trial --disks 2 --disk-size 2GiB --restart-after 20
cd "$work" || exit 1

# --- Alignment --------------------------------------------------------------------------------------------------------
check "new makes a volume on each server" fleet new --data data -n 2 --data-size 1MiB
check "workers run away from their volume's node" fleet sweep -b 4K -t 1 -o 4 -w 0 --iops 50 -d 1 --warm-up 0 --alignment 100,50 --out sweep
check "... all of them do what they may" works "$(column sweep/result.tsv IOPS)"
equal "... and the row says how many are aligned" 50 "$(column sweep/result.tsv VMAlignmentPct)"
check "... and what one machine cannot show" grep -q '1 of each node.s 2 workers run at other nodes.*one machine' sweep/report.md
equal "measure has its passes at 100 and at 70 %" "6 6" "$(fleet measure --dry-run | awk '/100 %$/ {a++} /70 %$/ {b++} END {print a, b}')"

# --- A share that is there --------------------------------------------------------------------------------------------
printf 'username=%s\npassword=%s\n' "$user" "$password" >credentials
shared() { timeout 60 "$FLEET" --fleet "$work/shared" "$@" </dev/null; }
check "all nodes' workers use a share that one server has" shared new --data data -n 1 --data-size 1MiB --share "$share" --credentials credentials
check "... and measure it" shared run peak --iops 50 -d 1 --warm-up 0 --cool-down 0 --out shared-run
equal "... each with a file of its own" 3 "$(timeout 60 smbclient "//$(value node "$(value volume "$share" owner)" smb | cut -d : -f 1)/$share" -p "$smb_port" \
    -U "$user%$password" -m SMB3_11 -c 'ls worker-node-*-0001.dat' | grep -c '0001.dat')"
shared remove --yes fleet >/dev/null

# --- A volume that goes to another server -----------------------------------------------------------------------------
victim=$(value volume fleet-node-3 owner)
[[ $victim == node-1 ]] && victim=$(value volume fleet-node-2 owner)
equal "volumes are where they were made" node-3 "$victim"
pid=$(value node "$victim" pid)
fleet run peak --iops 50 -d 4 --warm-up 1 --cool-down 0 --out run >run.out 2>run.err &
running=$!
await 20 test -e fleet/live.json
sleep 2
kill -9 "$pid"
wait $running
equal "a run whose volume goes to another server ends well" 0 $?
check "... says that it was measured again" grep -q 'note: volume fleet-node-3 went from node-3 to node-[12] in the middle of peak: it was measured again' run.out
check "... and where the volume is now" grep -q 'note: volume fleet-node-3 is at node-[12] now' run.out
check "... and its figures are of one layout" works "$(column run/result.tsv IOPS)"
check "the next run begins at the new server, with its counters" fleet run peak --iops 50 -d 2 --warm-up 0 --cool-down 0 --out run
check "... and is measured once" bash -c '! grep -q "measured again" <<<"$1"' _ "$(column run/result.tsv Notes)"
check "... by the counters of the servers that were asked" works "$(column run/result.tsv AverageCSVIOPS)"
((failed == 0)) || tail -n 20 run.out run.err
summary
