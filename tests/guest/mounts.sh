#!/bin/bash
# Linux's own SMB client in a QEMU guest against a server of ours: mounts in several dialects and protections, verified file work
# on each, and a kill -9 of the server in the middle of a tree. ./test runs four mounts, ./test full all of them.
# 77 where QEMU cannot run.
. "$(dirname "$0")/../lib.sh"
. "$root/tests/guest/prepare.sh"

start_server --disk-size 4GiB || { not_ok "quickstart says ready"; summary; }
export HOST_PORT=$smb_port SMB_SHARE=$share SMB_USER=$user SMB_PASSWORD=$password GUEST_TIMEOUT=400

# mounted NAME SCRIPT: runs a guest job and counts its checks.
mounted() {
    local name=$1 output status
    shift
    output=$("$@" 2>&1 </dev/null)
    status=$?
    if ((status == 0)); then ok "$name"; else not_ok "$name (status $status)" "$(grep -iE 'not ok|fail|error|differ|panic' <<<"$output" | tail -n 8; tail -n 6 <<<"$output")"; fi
}

if [[ $mode == full ]]; then
    for mount in "2.1" "2.1 sign" "3.0" "3.0 sign" "3.0 seal" "3.1.1" "3.1.1 sign" "3.1.1 seal"; do
        read -r version protection <<<"$mount"
        # cifs.ko offers neither fallocate nor holes with 2.1.
        [[ $version == 2.1 ]] && holes=no || holes=yes
        SMB_OPTIONS="vers=$version${protection:+,$protection}" WORK_ALLOCATION=$holes WORK_HOLE=$holes \
            mounted "vers=$mount: file work" "$here/mount-tcp.sh"
        WORK_VERSION=$version SMB_OPTIONS=${protection:-} mounted "vers=$mount: fsx, tree, eight writers" "$here/mount-work.sh"
    done
else
    # cifs.ko offers neither fallocate nor holes with 2.1.
    SMB_OPTIONS="vers=2.1" WORK_MIB=16 WORK_FILES=50 WORK_ALLOCATION=no WORK_HOLE=no mounted "vers=2.1: file work" "$here/mount-tcp.sh"
    SMB_OPTIONS="vers=3.0,seal" WORK_MIB=16 WORK_FILES=50 mounted "vers=3.0 seal: file work" "$here/mount-tcp.sh"
    WORK_VERSION=3.1.1 SMB_OPTIONS=sign WORK_FSX=500 mounted "vers=3.1.1 sign: fsx, tree, eight writers" "$here/mount-work.sh"
fi

# The server is killed and started between making a tree and verifying it; the mount goes on by itself.
mkdir -p "$work/host"
WORK_VERSION=3.1.1 WORK_STAGES=tree WORK_PAUSE=go GUEST_SHARE=$work/host "$here/mount-work.sh" >"$work/killed.log" 2>&1 </dev/null &
guest=$!
until_said "$work/killed.log" GUEST-PAUSE
kill_server
start_server || { not_ok "starts after kill -9"; summary; }
touch "$work/host/go"
if wait "$guest"; then
    ok "vers=3.1.1: a tree survives kill -9 of the server while it is mounted"
else
    not_ok "vers=3.1.1: a tree survives kill -9 of the server while it is mounted" "$(tail -n 15 "$work/killed.log")"
fi
guest=
check "health is clean" cli health
stop_server
summary
