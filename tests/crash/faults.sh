#!/bin/bash
# Disks of the running server hang, fail and fill up under it (a build with fault injection): I/O goes on, health tells it, and when the
# fault is over everything is on every disk again.
. "$(dirname "$0")/../lib.sh"
CENOTE=${CENOTE_FAULTY:-$target/release/cenote-faults}
[[ -x $CENOTE ]] || {
    echo "no binary at $CENOTE: cargo build --release -p cenote-faultserver"
    exit 77
}
export CENOTE_FAULTS=$work/faults.sock

write_config "$work/config.toml" '[disks]' 'search = []' '[limits]' 'disk_timeout_ms = 1500' 'cache_bytes = 67108864'
serve() { serve_config "$work/config.toml" 30; }
tell() { # COMMAND: told to the fault socket
    local answer
    answer=$(python3 - "$CENOTE_FAULTS" "$*" <<'PYTHON'
import socket, sys
with socket.socket(socket.AF_UNIX) as plug:
    plug.connect(sys.argv[1])
    plug.sendall(sys.argv[2].encode() + b"\n")
    print(plug.recv(500).decode().strip())
PYTHON
)
    [[ $answer == ok ]] || { not_ok "faults: $*" "$answer"; return 1; }
}
clean_within() { # SECONDS
    local end=$((SECONDS + $1))
    until cli health >"$work/health" 2>&1; do
        ((SECONDS < end)) || { cat "$work/health"; cli volume list; cli job list; return 1; }
        sleep 0.2
    done
}
told_within() { # SECONDS PATTERN
    local end=$((SECONDS + $1))
    until grep -qE "$2" <<<"$(cli health 2>&1)"; do
        ((SECONDS < end)) || { cli health; return 1; }
        sleep 0.2
    done
}
reads_right() { # WHEN
    local file want=() got=()
    for file in "${files[@]}"; do
        rm -f back
        smb "get $file back" >/dev/null 2>&1
        want+=("$file $(sha "$file")") got+=("$file $(sha back 2>/dev/null)")
    done
    equal "$1: ${#files[@]} files read right" "${want[*]}" "${got[*]}"
}
# journal DISK: where its journal lies, as offset and length in bytes.
journal() { "$CENOTE" disk inspect "$work/$1" 2>/dev/null | awk '$1 == "journal" && $3 == "KiB" { print $5, $2 * 1024; exit }'; }

serve || { not_ok "the server starts"; summary; }
cd "$work" || exit 1
check "a pool of three disks is made" cli pool create tank a.img b.img c.img --create 512MiB
check "a volume is made" cli volume create demo --size 384MiB
check "a user is made" cli user add "$user" --password "$password" --group Administrators
check "a share is made" cli share create demo --volume demo --grant "$user:full"
files=()
put() { # FILE MIB: a new file, kept in mind
    random_file "$1" "$2"
    smb "put $1" && files+=("$1")
}
check "a file is written" put before 8
files=(before)

# fault NAME TOLD COMMAND...: writes and reads while the fault lasts, and compares afterwards; TOLD is what health says of it.
fault() {
    local name=$1 told=$2 began=$SECONDS
    shift 2
    for command in "$@"; do tell "$command"; done
    if put "during-${#files[@]}" 6 >"$work/put" 2>&1; then ok "$name: a file is written"; else not_ok "$name: a file is written" "$(tail -n 3 "$work/put")"; fi
    check "$name: health tells it" told_within 10 "$told"
    reads_right "$name"
    tell "clear all"
    check "$name: health is clean when it is over" clean_within 20
    echo "        after $((SECONDS - began)) s"
}
fault "a disk that hangs" 'b\.img' "hang b.img"
fault "a disk whose writes fail" 'a\.img' "fail a.img write 1000000"
fault "a disk that fails altogether" 'c\.img' "fail c.img any 1000000"
read -r offset len < <(journal a.img)
check "the journal lies where inspect says" test "${len:-0}" -gt 0
fault "no space in the journal" 'a\.img|volume_degraded|fewer copies' "no-space a.img $offset $len"
fault "no space on a disk" 'c\.img|volume_degraded|fewer copies' "no-space c.img"

# quiet NAME COMMAND: a fault of a disk that nobody reads or writes.
quiet() {
    tell "$2"
    check "$1, and nobody uses it: health tells it" told_within 15 'b\.img'
    tell "clear all"
    check "$1, and nobody uses it: health is clean when it is over" clean_within 20
}
quiet "a disk that hangs" "hang b.img"
quiet "a disk that was pulled" "fail b.img any 1000000"

# Nothing can be written anywhere: refused, and nothing that was there is harmed.
tell "no-space all"
random_file nowhere 6
smb "put nowhere" >"$work/put" 2>&1
check "without space on any disk a write is refused" grep -q NT_STATUS "$work/put"
tell "clear all"
check "with space again health is clean" clean_within 20
check "with space again a file is written" smb "put nowhere"
files+=(nowhere)
reads_right "with space again"

# All disks hang: clients wait or are refused; afterwards it goes on.
tell "hang all"
sleep 4
tell "clear all"
check "after all disks hung health is clean" clean_within 25
reads_right "after all disks hung"
stop_server
equal "SIGTERM ends it with status 0" 0 $?

# Every disk has everything: with any one away all is there.
for away in a b c; do
    # Not beside the others, where it would be found by its label.
    mkdir -p gone && mv "$away.img" gone/
    serve || { not_ok "starts without $away.img"; summary; }
    check "without $away.img: the volume is served" told_within 15 "$away\.img"
    for ((try = 0; try < 50; try++)); do smb ls >/dev/null 2>&1 && break; sleep 0.3; done
    reads_right "without $away.img"
    stop_server
    mv "gone/$away.img" .
    # The disk gets the writes that it missed before another disk goes: else that one may have the only copy of something.
    serve || { not_ok "starts with $away.img again"; summary; }
    check "with $away.img again: health is clean" clean_within 20
    stop_server
done
summary
