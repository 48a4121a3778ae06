#!/bin/bash
# Two processes of ours, over TCP and SMB Direct: every combination of signing, encryption and number of connections. Each copies a file
# there and back, byte for byte; over SMB Direct the payload goes by RDMA in each, also where it is signed or encrypted (RDMA transform): back
# always, there where the client is told to lend it, and in transfers of 1 MiB where it is not.
. "$(dirname "$0")/../lib.sh"

rdma_port=$(free_port)
rdma_address=127.0.0.1:$rdma_port
start_server --disk-size 2GiB || { not_ok "quickstart says ready"; summary; }
random_file "$work/file" 3
export CENOTE_SMB_USER=$user CENOTE_SMB_PASSWORD=$password
there_and_back() { # PORT TRANSPORT OPTION...
    local place="smb://127.0.0.1:$1/$share/pair" transport=$2
    shift 2
    timeout 60 "$CENOTE" smb put "$work/file" "$place" --transport "$transport" "$@" &&
        timeout 60 "$CENOTE" smb get "$place" "$work/back" --transport "$transport" "$@" && cmp "$work/file" "$work/back"
}
by_rdma() { metric "cenote_smb_direct_connection_rdma_$1_bytes_total"; }
for transport in tcp rdma; do
    if [[ $transport == tcp ]]; then port=$smb_port; else port=$rdma_port; fi
    for protection in "" --sign --seal "--sign --seal"; do
        for channels in 1 4; do
            name="$transport, ${protection:-plain}, channels: $channels"
            [[ $transport == tcp ]] && want=0 || want=$((3 << 20))
            for lend in "" "--rdma-write-min 65537"; do
                before=$(by_rdma read) written=$(by_rdma written)
                if [[ -n $lend ]]; then lent=$want; else lent=0; fi
                # The options are words of their own.
                # shellcheck disable=SC2086
                check "$name $lend" there_and_back "$port" "$transport" --channels "$channels" $protection $lend
                equal "$name $lend: bytes that the server read by RDMA" "$lent" $(($(by_rdma read) - before))
                equal "$name $lend: bytes that the server wrote by RDMA" "$want" $(($(by_rdma written) - written))
            done
        done
    done
done
# A receive of the engine has 32 KiB where nothing is known of what comes: frames that end with it, or some bytes before or after.
random_file "$work/all" 1
for bytes in 32747 32748 32749 32750 32751 32752 32753; do
    head -c $bytes "$work/all" >"$work/file"
    check "rdma, a file of $bytes bytes" there_and_back "$rdma_port" rdma
    check "rdma, a file of $bytes bytes, read by RDMA" there_and_back "$rdma_port" rdma --rdma-read-min 4097
done
check "rdma, at the port that --rdma-port says" there_and_back "$smb_port" rdma --rdma-port "$rdma_port"
check "health is clean" cli health
stop_server
summary
