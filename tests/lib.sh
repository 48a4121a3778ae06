# Sourced by the test scripts: a server of one's own, checks, and the summary line that ./test counts.
#
# Settings: CENOTE (the binary), CENOTE_TEST_MODE (default or full), smb_address and rdma_address (where SMB and SMB Direct listen; else anywhere
# on loopback), data (the server's directory). Sets: work (a scratch directory, gone at the end), share, user, password, smb_port, http_port,
# server_pid, start_ms.

set -uo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
target=${CARGO_TARGET_DIR:-$root/target}
CENOTE=${CENOTE:-$target/release/cenote}
mode=${CENOTE_TEST_MODE:-default}
# Modules that scripts in Python share.
export PYTHONPATH=$root/tests${PYTHONPATH:+:$PYTHONPATH} PYTHONDONTWRITEBYTECODE=1
work=$(mktemp -d "${TMPDIR:-/tmp}/cenote-test.XXXXXX")
data=$work/data
share=demo user=tester password='Pa55 w%rd'
server_pid=
passed=0 failed=0 skipped=0

[[ -x $CENOTE ]] || { echo "no binary at $CENOTE: cargo build --release"; exit 77; }

cleanup() {
    [[ -n $server_pid ]] && kill -9 "$server_pid" 2>/dev/null
    rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 130' INT TERM HUP

# A loopback port that nothing listens on.
free_port() {
    local port
    while port=$((20000 + RANDOM % 12000)); do
        (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null || { echo "$port"; return; }
    done
}
smb_port=${CENOTE_TEST_SMB_PORT:-$(free_port)}
http_port=${CENOTE_TEST_HTTP_PORT:-$(free_port)}

ok() { printf 'ok      %s\n' "$1"; ((++passed)); }
not_ok() { printf 'not ok  %s\n' "$1"; ((++failed)); [[ -z ${2:-} ]] || printf '%s\n' "$2" | sed 's/^/        /'; }
skip() { printf 'skip    %s\n' "$1"; ((++skipped)); }

# check NAME COMMAND...: passes where the command does.
check() {
    local name=$1 output
    shift
    if output=$("$@" 2>&1); then ok "$name"; else not_ok "$name" "$(tail -n 12 <<<"$output")"; fi
}
# refuses NAME PATTERN COMMAND...: passes where the command fails and says PATTERN.
refuses() {
    local name=$1 pattern=$2 output
    shift 2
    if output=$("$@" 2>&1 </dev/null); then not_ok "$name: was accepted" "$output"; return; fi
    if grep -qiE -- "$pattern" <<<"$output"; then ok "$name"; else not_ok "$name: says nothing of '$pattern'" "$(tail -n 8 <<<"$output")"; fi
}
# prints NAME PATTERN COMMAND...: passes if the command prints PATTERN; its status does not count.
prints() {
    local name=$1 pattern=$2 output
    shift 2
    output=$("$@" 2>&1)
    if grep -qE -- "$pattern" <<<"$output"; then ok "$name"; else not_ok "$name" "$output"; fi
}
# equal NAME WANT GOT
equal() { if [[ $2 == "$3" ]]; then ok "$1"; else not_ok "$1" "want '$2', got '$3'"; fi; }

# counts NAME COMMAND...: the lines `ok` and `not ok` that the command prints count as checks. NAME fails if the command does.
counts() {
    local name=$1 output status
    shift
    output=$("$@" 2>&1)
    status=$?
    grep -E '^(ok|not ok|# )' <<<"$output"
    ((passed += $(grep -c '^ok ' <<<"$output"), failed += $(grep -c '^not ok ' <<<"$output"))) || true
    # Without the addresses of a browser's stack.
    ((status == 0)) || not_ok "$name" "$(grep -v '^ *#[0-9]' <<<"$output" | grep -A 20 '^not ok' | head -n 60; tail -n 20 <<<"$output")"
}

summary() {
    local line="$passed passed, $failed failed"
    ((skipped)) && line+=", $skipped skipped"
    echo "$line"
    ((failed == 0))
    exit
}

# start_server [quickstart options]: until it says ready. Data stays in $data from start to start.
start_server() {
    local began line
    began=$(date +%s%N)
    : >"$work/server.out"
    "$CENOTE" quickstart --data "$data" --smb "${smb_address:-127.0.0.1:$smb_port}" --http "127.0.0.1:$http_port" \
        --rdma "${rdma_address:-127.0.0.1:0}" ${rdma_address:+--allow-unsigned} --user "$user" --password "$password" "$@" >"$work/server.out" 2>>"$work/server.err" </dev/null &
    server_pid=$!
    while kill -0 "$server_pid" 2>/dev/null; do
        if grep -q '^ready$' "$work/server.out"; then
            start_ms=$((($(date +%s%N) - began) / 1000000))
            return 0
        fi
        (($(date +%s%N) - began < 60000000000)) || break
        sleep 0.02
    done
    echo "the server does not start:"
    tail -n 20 "$work/server.out" "$work/server.err"
    return 1
}
# await SECONDS COMMAND...: until the command succeeds.
await() {
    local end=$((SECONDS + $1))
    shift
    until "$@" >/dev/null 2>&1; do
        ((SECONDS < end)) || return 1
        sleep 0.1
    done
}
# write_config FILE [LINE...]: a configuration with the server's directory and ports. The lines follow behind those of [smb].
write_config() {
    printf '%s\n' '[server]' "data_dir = \"$data\"" '[api]' "listen = \"127.0.0.1:$http_port\"" \
        '[smb]' "listen = [\"${smb_address:-127.0.0.1:$smb_port}\"]" "${@:2}" >"$1"
}
# serve_config FILE SECONDS: the server by its configuration, until it answers.
serve_config() {
    local end=$((SECONDS + $2))
    "$CENOTE" serve --config "$1" >>"$work/server.out" 2>>"$work/server.err" </dev/null &
    server_pid=$!
    until cli disk list >/dev/null 2>&1; do
        kill -0 "$server_pid" 2>/dev/null && ((SECONDS < end)) || { tail -n 5 "$work/server.err"; return 1; }
        sleep 0.1
    done
}
stop_server() { # status of the server
    local pid=$server_pid
    server_pid=
    kill "$pid" 2>/dev/null
    wait "$pid"
}
kill_server() {
    kill -9 "$server_pid" 2>/dev/null
    wait "$server_pid" 2>/dev/null
    server_pid=
}

smb() { # smbclient commands
    timeout 600 smbclient "//127.0.0.1/$share" -p "$smb_port" -U "$user%$password" -m SMB3_11 -t 120 -c "$1"
}
cli() { "$CENOTE" --data "$data" "$@"; }
# Prints health's output; its status tells how well things are, and is of no interest here.
health_text() { cli health 2>/dev/null || true; }
metric() { # NAME: the sum over its samples
    exec 3<>"/dev/tcp/127.0.0.1/$http_port"
    printf 'GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n' >&3
    awk -v name="$1" 'index($1, name) == 1 && $1 ~ "^" name "({.*)?$|^" name "{" { sum += $NF } END { printf "%.0f\n", sum }' <&3
    exec 3>&-
}
# The codes of health's issues, in one line.
issues() { cli --json health | python3 -c 'import json, sys; print(*[issue["code"] for issue in json.load(sys.stdin)["issues"]])'; }
# column FILE NAME [ROW]: a value of a fleet's result.tsv, of its last row unless told otherwise.
column() {
    python3 -c "
import csv, sys
print(list(csv.DictReader(open(sys.argv[1]), delimiter='\t'))[int(sys.argv[3])][sys.argv[2]])" "$1" "$2" "${3:--1}"
}
sha() { sha256sum "$1" | cut -d ' ' -f 1; }
random_file() { # PATH MIB
    head -c "$(($2 * 1048576))" /dev/urandom >"$1"
}
reads_right() { # NAME FILE...: files of $work, from the share
    local name=$1 file
    shift
    for file; do
        rm -f "$work/back"
        smb "get $file $work/back" >/dev/null 2>&1
        equal "$name: $file" "$(sha "$work/$file")" "$(sha "$work/back" 2>/dev/null)"
    done
}

# A Python with the packages named, in a venv kept beside the build; 77 where they cannot be had.
python_with() {
    local venv=$target/test-venv lock
    # Scripts run beside each other.
    exec {lock}>"$target/test-venv.lock" && flock "$lock"
    if ! "$venv/bin/python" -c "import ${2:-$1}" 2>/dev/null; then
        { [[ -x $venv/bin/python ]] || python3 -m venv "$venv"; } >"$work/venv.log" 2>&1 &&
            "$venv/bin/python" -m pip install --quiet --disable-pip-version-check "$1" >>"$work/venv.log" 2>&1 ||
            { tail -n 3 "$work/venv.log" >&2; exec {lock}>&-; return 77; }
    fi
    exec {lock}>&-
    echo "$venv/bin/python"
}
