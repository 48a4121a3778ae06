#!/bin/bash
# Compares the instructions of a read and a write of a cluster's volume with six servers and with two: a look at each disk of the pool
# would be far beyond the bound. The same in every run. 77 without Valgrind.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
scale=${CARGO_TARGET_DIR:-$PWD/target}/release/scale
command -v valgrind >/dev/null || { echo "valgrind is missing: apt-get install valgrind"; exit 77; }
[[ -x $scale ]] || { echo "no binary at $scale: cargo build --release --package cenote-sim --bin scale"; exit 77; }

# Percent of two servers' instructions that six may take.
bound=120
passed=0 failed=0
instructions() { # SERVERS PERCENT-OF-WRITES
    valgrind --tool=callgrind --callgrind-out-file=/dev/null --collect-atstart=no '--toggle-collect=*measured_operations*' \
        "$scale" "$1" --operations 200 --writes "$2" 2>&1 | sed -n 's/.*Collected : //p'
}
for kind in read:0 write:100; do
    two=$(instructions 2 "${kind#*:}") six=$(instructions 6 "${kind#*:}")
    if ((${two:-0} > 0 && ${six:-0} > 0 && six * 100 <= two * bound)); then
        echo "ok      a ${kind%:*} takes $((two / 200)) instructions with two servers, $((six / 200)) with six"
        ((++passed))
    else
        echo "not ok  a ${kind%:*} takes ${two:-?} instructions with two servers and ${six:-?} with six (200 of them; at most $bound %)"
        ((++failed))
    fi
done
echo "$passed passed, $failed failed"
((failed == 0))
