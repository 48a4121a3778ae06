#!/bin/bash
# The part of tests/packaging/systemd.sh that runs in its virtual machine.
ok() { echo "ok      $1"; }
not_ok() { echo "not ok  $1"; sed 's/^/        /' <<<"${2:-}"; }
check() {
    local name=$1 output
    shift
    if output=$("$@" 2>&1); then ok "$name"; else not_ok "$name" "$(tail -n 12 <<<"$output")"; fi
}
unit() { systemctl show -P "$1" cenote; }
journal() { journalctl -b -u cenote -o cat "$@"; }
smb() { smbclient //127.0.0.1/demo -U 'ann%Pa55-word' -c "$1"; }
soon() { # COMMAND...: within a minute; the machine is emulated
    for _ in {1..600}; do
        "$@" >/dev/null 2>&1 && return
        sleep 0.1
    done
    "$@"
}
override() { # FILE LINES
    mkdir -p /etc/systemd/system/cenote.service.d
    printf '[Service]\n%s\n' "$2" >"/etc/systemd/system/cenote.service.d/$1.conf"
    systemctl daemon-reload
}
export PATH=$PATH:/usr/sbin:/sbin HOME=/root
cd /root || exit 1
# The firmware leaves its line unfinished.
echo
ip link set lo up 2>/dev/null

check "the package installs" dpkg --install old.deb
check "and starts nothing" bash -c '[[ $(systemctl is-active cenote) == inactive ]]'
check "the server starts" systemctl enable --now cenote
check "it is ready at once for the command line" cenote disk list
check "its log has priorities" bash -c '[[ $(journalctl -b -u cenote -p info -o cat | grep -c serving) -ge 1 && $(journalctl -b -u cenote -p warning -o cat | grep -c serving) == 0 ]]'
check "io_uring is permitted, and nothing else is missed" bash -c '! journalctl -b -u cenote -o cat -p warning | grep .'
check "whole devices become a pool" cenote pool create pool /dev/vdb /dev/vdc
soon test -b /dev/vdb1
check "their partitions are the server's, by udev" bash -c '[[ $(stat -c %G /dev/vdb1) == cenote ]]'
check "a volume, a user and a share" bash -c 'cenote volume create v --size 1GiB && echo Pa55-word | cenote user add ann --password-stdin && cenote share create demo --volume v --grant ann:full'
head -c 20000000 /dev/urandom >file
check "a file is written on port 445" smb 'put file'
sed -i 's/^\[server\]/[log]\nlevel = "debug"\n&/' /etc/cenote/cenote.toml
check "a configuration is read again" systemctl reload cenote
check "and in force" soon bash -c 'cenote config show --effective | grep -q "level = \"debug\""'
sed -i '/^level = "debug"/d; s/^\[log\]//' /etc/cenote/cenote.toml
check "the same process serves it back" systemctl reload cenote
check "the address is in the run-time directory" test -s /run/cenote/api.address

exposure=$(systemd-analyze security --no-pager cenote | sed -n 's/.*exposure level.*: \([0-9.]*\) .*/\1/p')
check "the unit's exposure is at most 2.0 (${exposure:-unknown})" awk -v got="${exposure:-9}" 'BEGIN { exit !(got <= 2.0) }'

# --- The watchdog ---
override watchdog WatchdogSec=15
systemctl restart cenote
sleep 25
check "a server that idles is fed to the watchdog in time" test "$(unit NRestarts)" = 0
first=$(unit MainPID)
python3 service_manager.py freeze "$first" cenote-data 30 >/dev/null &
sleep 25
check "one whose data plane stands still is ended" bash -c 'journalctl -b -u cenote -o cat | grep -qi "watchdog timeout"'
wait
soon systemctl is-active cenote
check "and started anew" bash -c "[[ \$(systemctl show -P MainPID cenote) != $first ]] && systemctl is-active cenote"
check "and serves" soon smb 'get file got'
check "what was written" cmp file got

# --- Credentials ---
systemctl stop cenote
check "it stops in order" bash -c '[[ $(systemctl show -P Result cenote) == success ]]'
check "no address stays behind" bash -c '! [[ -e /run/cenote || -L /var/lib/cenote/api.address ]]'
install -m 600 /var/lib/cenote/secret.key /etc/cenote/secret.key
rm /var/lib/cenote/secret.key
override key LoadCredential=secret.key:/etc/cenote/secret.key
check "it starts with a key that root alone may read" systemctl start cenote
check "and lets its users in" soon smb 'get file got'
check "without a key of its own" test ! -e /var/lib/cenote/secret.key

# --- LEDs: an attribute of sysfs that takes 0 and 1 stands for one ---
ask() { # USER LINE
    runuser -u "$1" -- python3 -c 'import socket, sys
s = socket.socket(socket.AF_UNIX); s.connect("/run/cenote-locate.socket"); s.sendall((sys.argv[1] + "\n").encode()); print(s.recv(512).decode().strip())' "$2" 2>&1
}
check "the helper's socket is there with the server" systemctl is-active cenote-locate.socket
answer=$(ask cenote 'vdb 1')
check "it answers the server" test "$answer" = 'vdb has no slot with an LED'
answer=$(ask nobody 'vdb 1')
check "and nobody else" grep -q PermissionError <<<"$answer"
mkdir -p /etc/slots/sdq/device/enclosure_device:7 /etc/systemd/system/cenote-locate@.service.d
ln -s /sys/block/vdb/queue/iostats /etc/slots/sdq/device/enclosure_device:7/locate
printf '[Service]\nExecStart=\nExecStart=/usr/libexec/cenote-locate /etc/slots\n' >/etc/systemd/system/cenote-locate@.service.d/slots.conf
systemctl daemon-reload
answer=$(ask cenote 'sdq 0')
check "it writes what belongs to root in sysfs" test "$answer $(cat /sys/block/vdb/queue/iostats)" = 'ok 0'
disk=$(cenote disk list --json | python3 -c 'import json, sys; print(json.load(sys.stdin)[0]["id"])')
check "locating a disk without a slot says so" bash -c "cenote disk locate $disk | grep -q 'no enclosure'"

# --- Upgrade and removal ---
first=$(unit MainPID)
check "a newer version installs while it serves" dpkg --install new.deb
check "and is what serves from then on" bash -c "[[ \$(systemctl show -P MainPID cenote) != $first ]] && systemctl is-active cenote"
check "with the same files" bash -c "$(declare -f smb soon); soon smb 'get file got' && cmp file got"
check "removing it stops it" bash -c 'dpkg --remove cenote && ! systemctl is-active cenote && ! systemctl is-enabled cenote && ! pidof cenote'
check "and keeps the data" test -e /var/lib/cenote/state.redb
echo "        all of it was run"
