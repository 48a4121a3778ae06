#!/bin/bash
# The section "An afternoon" of docs/OPERATIONS.md, line by line as it stands there: each command's exit status is 0, or what the line says.
. "$(dirname "$0")/../lib.sh"
command -v smbclient >/dev/null || { echo "no smbclient"; exit 77; }

# The ports, and the path of the program, differ from the document.
as_here() { sed "s/\b4455\b/$smb_port/g; s/\b9445\b/$http_port/g"; }
mkdir "$work/bin" "$work/afternoon"
ln -s "$CENOTE" "$work/bin/cenote"
PATH=$work/bin:$PATH
unset CENOTE_DATA CENOTE_API CENOTE_LOG
seconds_per_command=60

# Runs one command of the document. Those that begin or await the server do so in this shell, which is the parent of that process.
run() {
    case $1 in
        *'server=$!'*) eval "$1"; local status=$?; server_pid=$server; return $status ;;
        *'wait $server'*) server_pid=; eval "$1" ;;
        *) timeout "$seconds_per_command" bash -c "umask 077; $1" ;;
    esac
}

cd "$work/afternoon" || exit 1
block= command= commands=0
while IFS= read -r line; do
    case $line in
        '```sh') block=1; continue ;;
        '```') [[ -z $command ]] || not_ok "the document's block ends within a command" "$command"; block= command=; continue ;;
    esac
    [[ -n $block ]] || continue
    command+=$line$'\n'
    # A here document or a loop goes on in the next line.
    [[ -z $(bash -n <<<"$command" 2>&1) ]] || continue
    want=0
    [[ $line =~ \#\ status\ ([0-9]+) ]] && want=${BASH_REMATCH[1]}
    name=$(sed -n '1s/  *#.*//p;1q' <<<"$command"); name=${name:-${command%%$'\n'*}}
    began=$SECONDS
    run "$(as_here <<<"$command")" >output 2>&1 </dev/null
    status=$?
    took=$((SECONDS - began))
    if ((status == want)); then
        ok "$name (status $status, $took s)"
    else
        not_ok "$name: status $status, and the document says $want" "$(tail -n 25 output)"
    fi
    command=
    ((++commands))
done < <(sed -n '/^<!-- afternoon: begin -->$/,/^<!-- afternoon: end -->$/p' "$root/docs/OPERATIONS.md")
check "the document's section is there, to its end ($commands commands)" test "$commands" -gt 50
check "the server went through it without a panic" bash -c "! grep -n panicked server.log"
summary
