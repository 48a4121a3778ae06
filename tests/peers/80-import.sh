#!/bin/bash
# The disks alone bring a pool back: after the server's state was lost, after an export, without one of them, and from other
# paths. What is old, in use elsewhere or a minority is refused.
. "$(dirname "$0")/../lib.sh"

# An empty server whose state is apart from its disks.
serve() { # DIRECTORY
    data=$1
    mkdir -p "$data"
    write_config "$data.toml" '[disks]' "search = [\"$work/shelf\"]" '[limits]' 'disk_timeout_ms = 30000' 'cache_bytes = 67108864'
    serve_config "$data.toml" 60
}

start_server --disk-size 1GiB || { not_ok "quickstart says ready"; summary; }
cd "$work" || exit 1
for i in 1 2; do random_file f$i 16; done
random_file late 8
check "files are written" smb "put f1; put f2"
check "another user is added" cli user add ann --password 'An0ther.One' --group Administrators
check "another share is made" cli share create more --volume demo --grant ann:full
check "a file is written last" smb "put late"
check "a disk carries a copy of the records" bash -c "'$CENOTE' disk inspect data/disks/disk-1.img | grep -E '^records +[0-9]{3,} bytes'"
sid=$(cli --json user list | grep -A1 '"ann"' | grep -o 'S-1-5[-0-9]*')
kill_server
rm -f data/state.redb data/secret.key data/api.token data/api.address data/audit.log

start_server --disk-size 1GiB || { not_ok "starts after its state was lost"; summary; }
ok "starts after its state was lost"
check "says that it brought the pool back" grep -q "pool 'pool' was imported" server.out
check "says whose password is lost" grep -q "password of 'ann'" server.out
reads_right "after the state was lost" f1 f2 late
equal "users have their SIDs" "$sid" "$(cli --json user list | grep -A1 '"ann"' | grep -o 'S-1-5[-0-9]*')"
check "shares are there" bash -c "'$CENOTE' --data data share list | grep -q more"
check "health is clean" cli health
refuses "a user without a password cannot log on" LOGON_FAILURE \
    smbclient "//127.0.0.1/more" -p "$smb_port" -U 'ann%An0ther.One' -c ls
check "a new password works" bash -c "'$CENOTE' --data data user set ann --password 'N3w.Word' && smbclient //127.0.0.1/more -p $smb_port -U 'ann%N3w.Word' -c ls"

refuses "an export needs the pool's name" "yes" cli pool export pool
check "the pool is exported" cli pool export pool --yes pool
check "no volume is left" bash -c "'$CENOTE' --data data volume list | grep -q 'no volumes'"
check "no share is left" bash -c "! '$CENOTE' --data data share list | grep -qw more"
stop_server
cp data/secret.key old.key
mkdir shelf
for i in 1 2 3; do mv data/disks/disk-$i.img "shelf/moved-$i"; done

serve "$work/second" || { not_ok "a second server starts"; summary; }
check "it imports what was exported" cli pool import --key "$work/old.key"
reads_right "on the second server" f1 f2 late
check "passwords came with the key file" smbclient "//127.0.0.1/more" -p "$smb_port" -U 'ann%N3w.Word' -c ls
refuses "it is not imported twice" "no disk|in use|already" cli pool import --yes pool
random_file after 8
check "files are written on" smb "put after"
kill_server

# Another path, and one disk missing, under the same state.
mv shelf/moved-2 shelf/elsewhere
mv shelf/moved-3 away
serve "$work/second" || { not_ok "starts with moved and missing disks"; summary; }
end=$((SECONDS + 30))
until cli --json disk list | grep -q shelf/elsewhere || ((SECONDS > end)); do sleep 0.5; done
check "a moved disk is found by its label" bash -c "'$CENOTE' --data '$work/second' disk list | grep 'shelf/elsewhere' | grep -qw ok"
reads_right "with a disk moved and one missing" f1 after
random_file without 8
check "a file is written without the missing disk" smb "put without"
kill_server

# The state is lost again; the disk that was away comes back with records that are old.
rm -rf "$work/second"
mv away shelf/returned
serve "$work/third" || { not_ok "a third server starts"; summary; }
refuses "a pool that was not exported needs its name" "not exported" cli pool import
check "it is imported by its name" cli pool import pool --yes pool --key "$work/old.key" --as tank
check "users keep their passwords, or say that they lost them" bash -c "'$CENOTE' --data '$work/third' user list | grep -E 'tester|needs'"
check "a password is set" cli user set tester --password "$password"
reads_right "newest records count" f1 f2 late after without
end=$((SECONDS + 60))
until cli health >/dev/null 2>&1 || ((SECONDS > end)); do sleep 0.5; done
check "the returned disk is brought up to date" cli health
kill_server

# A majority is missing.
rm -rf "$work/third"
mkdir away2
mv shelf/moved-1 shelf/elsewhere away2/
serve "$work/fourth" || { not_ok "a fourth server starts"; summary; }
refuses "one disk of three is refused, and the others are named" "no majority.*moved-1" cli pool import --yes tank
kill_server
summary
