#!/bin/bash
# DiskSpd: command lines published with SMB Direct and Storage Spaces Direct, unaltered but for shorter times, on a local file,
# over TCP and over SMB Direct; and what it says when things go wrong.
. "$(dirname "$0")/../lib.sh"

DISKSPD=${DISKSPD:-$target/release/diskspd}
[[ -x $DISKSPD ]] || { echo "no binary at $DISKSPD: cargo build --release --package cenote-diskspd"; exit 77; }
rdma_port=${CENOTE_TEST_RDMA_PORT:-$(free_port)}
rdma_address=127.0.0.1:$rdma_port
start_server || { not_ok "quickstart says ready"; summary; }
umask 077
printf 'username=%s\npassword=%s\n' "$user" "$password" >"$work/credentials"
cd "$work" || exit 1

# on PLACE OPTION...: what is measured there, and how it is reached.
on() {
    place=$1
    case $place in
        local) file=$work/local.dat reach=() ;;
        tcp) file=smb://127.0.0.1:$smb_port/$share/seed.dat reach=(--smb-credentials "$work/credentials" --smb-transport tcp) ;;
        rdma) file=smb://127.0.0.1:$rdma_port/$share/seed.dat reach=(--smb-credentials "$work/credentials" --smb-transport rdma) ;;
    esac
}
# Total, read and written operations of a report.
operations() { awk '/^(Total|Read|Write) IO$/ { table = $1 } /^total:/ && table { split($0, part, "|"); print table, part[2] + 0; table = "" }' report; }
# line NAME KIND COMMAND-LINE...: runs it on $file for a second; KIND is reads, writes or both.
line() {
    local name="$place: $1" kind=$2 read written
    shift 2
    # The times are given again, shorter; the last ones count.
    if ! timeout 60 "$DISKSPD" "$@" -d1 -W0 -C0 "${reach[@]}" "$file" >report 2>errors; then
        not_ok "$name" "$(tail -n 5 errors)"
        return
    fi
    read=$(operations | awk '$1 == "Read" { print $2 }') written=$(operations | awk '$1 == "Write" { print $2 }')
    case $kind in
        reads) [[ $read -gt 0 && $written -eq 0 ]] ;;
        writes) [[ $read -eq 0 && $written -gt 0 ]] ;;
        both) [[ $read -gt 0 && $written -gt 0 ]] ;;
    esac && ok "$name ($((read + written)) I/Os)" || not_ok "$name" "$read reads, $written writes; $(tail -n 3 errors)"
}

sizes=(4K 512K)
connections=(1 16)
[[ $mode == full ]] && sizes=(4K 8K 16K 32K 64K 128K 256K 512K) connections=(1 2 4 8 16)
for place in local tcp rdma; do
    on $place
    line "a remote SCM file: -si4k, eight threads" writes -b64K -c20M -d30 -L -o1 -si4k -t8 -w100 -h -fr
    line "32 threads of 64, writes" writes -b4K -w100 -r -o64 -W5 -C5 -d30 -t32 -Sh
    line "32 threads of 64, reads" reads -b4K -w0 -r -o64 -W5 -C5 -d30 -t32 -Sh
    line "one thread, 32 outstanding" reads -t1 -b4k -r -o32 -w0
    line "VMFleet run" both -Z20M -z -h -t1 -o8 -b4k -r4k -w10 -W60 -C30 -d1800 -D -L
    line "VMFleet demo 7030" both -n -h -t8 -o20 -b4k -r4k -w30 -W10 -d60 -C10 -D -L
    line "VMFleet peak" reads -t1 -b4k -o32 -w0 -r -Suw -D -L -Z10m
    line "VMFleet general" reads -t1 -b4k -o32 -w0 -r -Suw -D -L -Z10m -rdpct95/5:4/10
    line "VMFleet VDI, writes" writes -t1 -o8 -b32k -w100 -g6i -rs20 -rdpct95/5:4/10 -Z10m -f16m
    for size in "${sizes[@]}"; do line "$size, writes" writes -b$size -w100 -r -o16 -t2 -Sh; done
    for count in "${connections[@]}"; do line "$count connections" reads -b16K -w0 -r -o4 -t$count -Sh; done
    case $place in
        tcp) check "tcp: the report names the transport" grep -qP '^\ttransport:\t+TCP$' report ;;
        rdma)
            check "rdma: the report names the transport" grep -qP '^\ttransport:\t+SMB Direct$' report
            line "256 KiB, reads" reads -b256K -w0 -r -o4 -t2 -Sh
            check "rdma: payload went by RDMA" grep -qP '^\tbytes by RDMA:\t+read [1-9]' report
            ;;
    esac
done

on tcp
line "signed" both -b64K -w50 -r -o8 --smb-sign
check "the report says so" grep -qP '^\tsigning:\t+on$' report
line "encrypted" both -b64K -w50 -r -o8 --smb-seal
check "the report names the cipher" grep -qP '^\tencryption:\t+AES-128-GCM$' report
# channels PLACE TRANSPORT: the server sees one session of four connections, and the load goes over all of them.
channels() {
    on "$1"
    timeout 60 "$DISKSPD" -b64K -w50 -r -o16 -d4 -W0 --smb-channels 4 "${reach[@]}" "$file" >report 2>errors &
    local running=$! seen=
    for _ in $(seq 40); do
        seen=$(cli --json session list | python3 -c "
import json, sys
sessions = json.load(sys.stdin)
print(*[len(one['channels']) for one in sessions if one['transport'] == '$2'])")
        [[ $seen == 4 ]] && break
        sleep 0.1
    done
    equal "$1: the server sees one session with four channels" 4 "$seen"
    wait $running
    equal "$1: four channels measure" 0 $?
    check "$1: the report counts the channels" grep -qP '^\tchannels per session:\t4$' report
}
channels tcp TCP
channels rdma iWARP
on tcp
check "results as XML" bash -c "'$DISKSPD' -d1 -W0 -L -D -Rxml ${reach[*]} $file | python3 -c '
import sys, xml.etree.ElementTree as tree
root = tree.fromstring(sys.stdin.read())
buckets = root.findall(\"TimeSpan/Latency/Bucket\")
assert len(buckets) == 108 and buckets[50].find(\"Percentile\").text == \"50\", len(buckets)
assert int(root.find(\"TimeSpan/Thread/Target/IOCount\").text) > 0
'"
"$DISKSPD" -Rpxml -b8K -r -w30 -o4 x >profile.xml
sed -i 's|<Path>x</Path>|<Path>*1</Path>|' profile.xml
check "a profile with a template, there and back" bash -c "'$DISKSPD' -Xprofile.xml -Rtext -d1 -W0 ${reach[*]} $file | grep -q 'block size: 8KiB'"

# --- What goes wrong ------------------------------------------------------------------------------------------------

printf 'username=%s\npassword=wrong\n' "$user" >wrong
refuses "a wrong password" "LOGON_FAILURE|check user" "$DISKSPD" -d1 --smb-credentials wrong "$file"
refuses "a share that is not there" "BAD_NETWORK_NAME" "$DISKSPD" -d1 "${reach[@]}" "smb://127.0.0.1:$smb_port/nothing/x"
refuses "a file that is not there" "OBJECT_NAME_NOT_FOUND" "$DISKSPD" -d1 "${reach[@]}" "smb://127.0.0.1:$smb_port/$share/nothing"
refuses "a server that is not there" "no SMB session" "$DISKSPD" -d1 "${reach[@]}" "smb://127.0.0.1:1/$share/x"
refuses "a mapping of a remote file" "memory mapped" "$DISKSPD" -d1 -Sm "${reach[@]}" "$file"
refuses "a block over the server's limit" "over the server's limit" "$DISKSPD" -d1 -b16M "${reach[@]}" "$file"
refuses "write buffers longer than a buffer is" "over the limit" "$DISKSPD" -d1 -w100 -Z5G "${reach[@]}" "$file"
random_file foreign 1
smb "put foreign" >/dev/null 2>&1
refuses "data of others" "yes-overwrite" "$DISKSPD" -d1 -W0 -w100 "${reach[@]}" "smb://127.0.0.1:$smb_port/$share/foreign"
smb "get foreign foreign.back" >/dev/null 2>&1
equal "and it is as it was" "$(sha foreign)" "$(sha foreign.back)"

"$DISKSPD" -d30 -W0 -b4K -r -o8 "${reach[@]}" "$file" >report 2>errors &
running=$!
sleep 1
kill_server
wait "$running"
equal "a server that dies in the run: exit status" 1 $?
equal "and there is no report" "" "$(cat report)"
check "and a reason" grep -q "Error generating I/O requests" errors

summary
