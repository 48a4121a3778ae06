#!/bin/bash
# The dashboard in Debian's Chromium: every page against the API, a disk that is lost, no request elsewhere, no error of a script; and what
# strangers, a thousand streams and a reader that takes nothing cost. Pictures of the pages go to target/test-logs/dashboard.
. "$(dirname "$0")/../lib.sh"

if ! command -v chromium >/dev/null || ! command -v chromedriver >/dev/null; then
    if ((EUID == 0)) && command -v apt-get >/dev/null; then
        export DEBIAN_FRONTEND=noninteractive
        { apt-get install -y --no-install-recommends chromium chromium-driver ||
            { apt-get update && apt-get install -y --no-install-recommends chromium chromium-driver; }; } >"$work/apt.log" 2>&1
    fi
fi
pictures=$target/test-logs/dashboard
mkdir -p "$pictures"

start_server --disk-size 1GiB --disks 4 || { not_ok "quickstart says ready"; summary; }
cd "$work" || exit 1
base=http://127.0.0.1:$http_port

# --- What is served, without a browser ---------------------------------------------------------------------------------
head_of() { # PATH: status and headers
    python3 - "$base$1" <<'PYTHON'
import sys, urllib.error, urllib.request
try:
    answer = urllib.request.urlopen(sys.argv[1], timeout=20)
except urllib.error.HTTPError as error:
    answer = error
print(answer.status)
print(answer.headers)
PYTHON
}
page=$(head_of /)
equal "the page is served without a token" 200 "${page%%$'\n'*}"
check "with a policy that forbids what is elsewhere" grep -q "^content-security-policy: default-src 'none'; script-src 'self'" <<<"$page"
events=$(head_of /api/v1/dashboard/events)
equal "what it shows is not served without one" 401 "${events%%$'\n'*}"
link=$(cli dashboard)
equal "the link has the token behind #" "$base/#token=$(cat data/api.token)" "$link"
check "and no log has it" bash -c "! grep -rF \"\$(cat data/api.token)\" server.out server.err data/audit.log"
plan_of() { # QUERY: what the server makes of it
    python3 - "$base/api/v1/dashboard/plan?$1" data/api.token <<'PYTHON'
import sys, urllib.error, urllib.request
request = urllib.request.Request(sys.argv[1], headers={"Authorization": "Bearer " + open(sys.argv[2]).read().strip()})
try:
    print(urllib.request.urlopen(request, timeout=20).read().decode())
except urllib.error.HTTPError as error:
    sys.exit(error.read().decode())
PYTHON
}
check "a plan is made" plan_of "nodes=4&drives=8x4TiB:nvme"
refuses "one that makes no sense is refused with the reason" "COUNTxSIZE" plan_of "nodes=4&drives=eight"
refuses "one of an option that is none, too" "unknown field" plan_of "help=1"

# --- Strangers and hogs --------------------------------------------------------------------------------------------------
counts "hogs run to their end" timeout 60 python3 "$root/tests/peers/dashboard_hostile.py" "$http_port" data/api.token "$CENOTE" "$work/data" "$server_pid"

# --- In a browser ----------------------------------------------------------------------------------------------------------
if ! command -v chromium >/dev/null || ! command -v chromedriver >/dev/null; then
    skip "the pages in a browser (chromium and chromium-driver cannot be installed)"
elif ! python=$(python_with selenium); then
    skip "the pages in a browser (selenium cannot be installed: no network?)"
else
    random_file file 24
    smb "put file" >/dev/null
    # A client that stays: its session is shown.
    mkfifo commands
    smbclient "//127.0.0.1/$share" -p "$smb_port" -U "$user%$password" -m SMB3_11 <commands >/dev/null 2>&1 &
    client=$!
    exec 9>commands
    echo "get file copy" >&9
    export SMB_USER=$user SMB_SHARE=$share CENOTE
    counts "the pages run to their end" timeout 150 "$python" "$root/tests/peers/dashboard_pages.py" "$base" "$work/data" "$pictures"
    exec 9>&-
    wait "$client"
fi

# --- The history survives ------------------------------------------------------------------------------------------------
points() {
    python3 - "$base" data/api.token <<'PYTHON'
import json, sys, urllib.request
request = urllib.request.Request(sys.argv[1] + "/api/v1/dashboard/history?span=hour", headers={"Authorization": "Bearer " + open(sys.argv[2]).read().strip()})
history = json.load(urllib.request.urlopen(request, timeout=20))
print(len(history["at_unix_s"]))
PYTHON
}
before=$(points)
kill_server
size_before=$(stat -c %s data/history.bin)
# A torn write: some points are lost, the others are not.
printf 'torn' | dd of=data/history.bin bs=1 seek=100000 conv=notrunc status=none
start_server || { not_ok "starts again"; summary; }
after=$(points)
check "the history survives kill -9 and a torn write ($before points, then $after)" test "$before" -gt 3 -a "$after" -ge $((before - 3))
equal "its file does not grow" "$size_before" "$(stat -c %s data/history.bin)"
stop_server
equal "SIGTERM ends it with status 0" 0 $?
summary
