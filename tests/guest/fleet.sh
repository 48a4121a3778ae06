#!/bin/bash
# A worker of the fleet in a QEMU machine: it boots by emulation, measures a server of this host, and its row is right; it keeps no
# secret in a file or on a command line, and nothing is left of it. 77 where QEMU cannot run.
. "$(dirname "$0")/../lib.sh"
FLEET=${FLEET:-$target/release/fleet}
[[ -x $FLEET ]] || { echo "no binary at $FLEET: cargo build --release --package cenote-fleet"; exit 77; }
[[ -x $(dirname "$FLEET")/diskspd ]] || { echo "no diskspd beside $FLEET: cargo build --release --package cenote-diskspd"; exit 77; }
. "$root/tests/guest/guest.sh"

cache=${CENOTE_GUEST_CACHE:-${TMPDIR:-/tmp}/cenote-guest}
modules=$(echo "$cache"/*/image/lib/modules/*)
machine=(--microvms --accelerator tcg --kernel "$cache/kernel" --modules "${modules%% *}")
# Not 127.0.0.1: a machine reaches every address that the host does.
smb_address=127.0.0.$((100 + RANDOM % 90)):$smb_port
start_server || { not_ok "quickstart says ready"; summary; }
cd "$work" || exit 1
mkdir scratch
fleet() { TMPDIR=$work/scratch timeout 120 "$FLEET" --fleet "$work/fleet" "$@" </dev/null; }
# machines: the process numbers of this fleet's, which are named by its scratch directory.
machines() { pgrep -f "[q]emu-system.*$work/scratch"; }

check "new makes a worker" fleet new --data data -n 1 --data-size 1MiB --transport tcp --memory 512MiB
refuses "a kernel that is not there" "no-such-kernel" fleet set --microvms --accelerator tcg --kernel no-such-kernel
refuses "a machine of half a processor" "whole processors" fleet set "${machine[@]}" --vcpus 0.5
[[ -w /dev/kvm ]] || refuses "no KVM" "/dev/kvm.*--accelerator tcg" fleet set --microvms
check "workers are to run in machines" fleet set "${machine[@]}"
fleet run peak --iops 100 -d 2 --warm-up 0 --cool-down 0 --lead 20 --out run >run.out 2>run.err &
running=$!
if await 30 grep -q '"ready":1' fleet/live.json; then ok "the worker's machine boots and it logs on"; else not_ok "the worker's machine boots and it logs on" "$(cat run.err)"; fi
secret=$(sed -n 's/^password=//p' fleet/credentials)
equal "its password is in no file of the host" "" "$(grep -rls "$secret" scratch)"
equal "... and in no list of processes" "" "$(grep -lsFf - /proc/[0-9]*/cmdline <<<"$secret")"
wait $running
equal "a run in a machine ends well" 0 $?
check "it did what it was limited to" python3 -c "import sys; assert 90 < float(sys.argv[1]) < 110, sys.argv" "$(column run/result.tsv IOPS)"
check "... as the server counted" python3 -c "import sys; assert 90 < float(sys.argv[1]) < 110, sys.argv" "$(column run/result.tsv AverageCSVIOPS)"
equal "... over TCP" TCP "$(column run/result.tsv Transport)"
check "... and says what emulation is worth" grep -q 'note: workers ran in QEMU machines by emulation, WHOSE FIGURES ARE WORTH NOTHING' run.out
fleet start peak >start.out 2>&1 || not_ok "start" "$(cat start.out)"
await 20 machines
kill -9 "$(ps -o ppid= -p "$(machines | head -n 1)")"
gone() { ! machines; }
check "a machine ends with the process that started it" await 5 gone
((failed == 0)) || tail -n 20 run.out run.err
summary
