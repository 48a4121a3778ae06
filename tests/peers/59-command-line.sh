#!/bin/bash
# The command line as an outsider meets it: what it says, asks and completes, on a terminal and without one.
source "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
cd "$work" || exit 1

start_server --disk-size 1GiB || { not_ok "starts"; summary; }
export SMB_PORT=$smb_port SMB_USER=$user SMB_PASSWORD=$password CENOTE

disks=("$work"/data/disks/*)

# --- What it says -----------------------------------------------------------------------------------------------------
for noun in user group share; do
    refuses "$noun delete looks before it asks" "there is no $noun 'typo'" cli $noun delete typo
done
refuses "a disk of the server's own pool is called so" "disk of pool 'pool' of this server already" cli disk add "${disks[0]}"
ln -s "${disks[1]}" link
refuses "... by any path, and for a new pool" "of this server already" cli pool create second "$work/link"
refuses "... and for a replacement" "of this server already" cli disk replace "${disks[0]}" "$work/link"
refuses "share set wants something to set" "nothing to change" cli share set demo
refuses "a grant to nobody names both kinds" "no user or group 'nope'" cli share set demo --grant nope:full
refuses "so does an entry of an ACL" "no user or group 'nope'" cli acl set demo --grant nope:full
refuses "a size in thousands is refused with what is meant" "write 1GiB or 1G" cli volume create big --size 1GB
printf '[limits]\nopens = "many"\n' >wrong.toml
refuses "a wrong key of the configuration is named" "line 2: limits.opens: .*expected a number" cli config check wrong.toml
printf '[limits]\ncache_bytes = "1GiB"\n' >sizes.toml
check "a configuration has sizes as the command line has them" cli config check sizes.toml
check "a share takes both slashes" cli share create plans --volume demo --path drafts/2026 --grant "$user:full"
equal "... and shows them as Windows does" '\drafts\2026' "$(cli share show plans | awk '$1 == "path" { print $2 }')"
cli group set Administrators --remove "$user" >/dev/null
check "a share that nobody may use says so" bash -c "'$CENOTE' --data data share create lonely --volume demo 2>&1 | grep -q 'Administrators alone.*share set lonely --grant WHO:full'"
cli group set Administrators --add "$user" >/dev/null
cli share create open --volume demo --grant "$user:full" 2>told.err >/dev/null
not_alone() { ! grep -q "Administrators alone" told.err; }
check "... and it is not told for one with members" not_alone
check "... but who reaches its files by other shares is" grep -q "share 'demo' (.*) also reaches the files of.*lets in: Administrators:full" told.err
check "a user is shown" bash -c "'$CENOTE' --data data user show $user | grep -q '^groups .*Administrators'"
refuses "a short password" "has 5 characters, and accounts.password_characters_min" cli user add eve --password short
refuses "the user's name as a password" "it is the user's name" cli user add evelyn.long --password Evelyn.Long
check "a generated one is never too short" cli user add eve
refuses "a name that is taken" "there is a user '$user' already" cli user rename eve "$user"
refuses "a user that is not there" "there is no user 'nobody'" cli user rename nobody somebody

# --- Where passwords and the token go ---------------------------------------------------------------------------------
for variable in http_proxy HTTP_PROXY https_proxy all_proxy ALL_PROXY; do
    check "$variable of the environment gets no token" env "$variable=http://127.0.0.1:9" "$CENOTE" --data data health
done
mkdir -p of-others/cenote-data group-writes
cp data/api.token data/api.address of-others/cenote-data/
cp data/api.token data/api.address group-writes/
chmod 755 of-others/cenote-data
chmod 775 group-writes
refuses "a data directory that others can write is not believed" "so others can put" "$CENOTE" --data group-writes health
if ((EUID == 0)); then
    chown -R nobody of-others/cenote-data
    chmod 755 of-others
    refuses "another user's ./cenote-data is not believed" "is another user's" env -C of-others "$CENOTE" user set "$user" --password Evil-1234567
    refuses "... and no server is started on it" "is another user's" env -C of-others "$CENOTE" quickstart
fi
# The server's files are its own: others read neither the state nor the history.
equal "no file of the data directory is open to others" "" "$(find data -maxdepth 1 -type f ! -name api.address -perm /077 -printf '%f ')"

# --- A server that starts ---------------------------------------------------------------------------------------------
mkdir starting
refuses "without a server it says so at once" "no running server is found" "$CENOTE" --data starting health
cp data/api.token starting/
exec 9>starting/lock
flock -n 9 || not_ok "the lock"
(sleep 1; cp data/api.address starting/api.address.new; mv starting/api.address.new starting/api.address) &
check "a server that starts is waited for" bash -c "'$CENOTE' --data starting disk list 2>told && grep -q 'is starting' told"
exec 9>&-

# --- Words that a shell completes -------------------------------------------------------------------------------------
# complete WORD...: what bash offers for the last word.
complete() {
    local index=$#
    _CLAP_IFS=$'\n' _CLAP_COMPLETE_INDEX=$index _CLAP_COMPLETE_COMP_TYPE=9 _CLAP_COMPLETE_SPACE=true \
        CENOTE_COMPLETE=bash "$CENOTE" -- cenote "$@" | grep -v '^--' | sort | tr '\n' ' '
}
equal "names of shares" "demo lonely open plans " "$(complete --data data share delete '')"
equal "those that begin so" "plans " "$(complete --data data share delete 'pl')"
equal "volumes for an option" "demo " "$(complete --data data share create new --volume '')"
equal "users and groups for members" "Backup\\ Operators" "$(complete --data data group set Users --add B | sed 's/ $//; s/\([^\\]\) /\1\\ /')"
equal "nothing, and at once, without a server" "" "$(complete --data nowhere share delete '')"
check "commands as before" bash -c "[[ '$(complete pool '')' == *rebalance* ]]"
for shell in bash zsh fish elvish powershell; do
    check "a script for $shell" bash -c "'$CENOTE' completion $shell | grep -q CENOTE_COMPLETE"
done
cat >complete.bash <<'B'
source <("$CENOTE" completion bash)
PATH=$(dirname "$CENOTE"):$PATH
COMP_WORDS=(cenote --data data share delete pl) COMP_CWORD=5 COMP_TYPE=9 COMP_LINE="cenote --data data share delete pl" COMP_POINT=34
$(complete -p cenote | sed 's/.*-F \([^ ]*\) .*/\1/') cenote pl delete
echo "${COMPREPLY[*]}"
B
equal "bash asks the server" "plans" "$(bash complete.bash 2>&1 | tr -d ' ')"

# --- On a terminal ----------------------------------------------------------------------------------------------------
counts "all is tried on a terminal" timeout 300 python3 "$root/tests/peers/terminal.py" "$work"

# --- ./run ------------------------------------------------------------------------------------------------------------
options() { grep -oE '^ +(-., )?--[a-z-]+' <<<"$1" | grep -oE -- '--[a-z-]+' | sort | tr '\n' ' '; }
own=$(sed '/^Global options/,$d' <<<"$("$CENOTE" quickstart --help)")
equal "./run --help shows the options of the trial server" "$(options "$own"$'\n  --data DIR' | sed 's/--help //; s/--version //')" "$(options "$(CARGO_TARGET_DIR=$work/none "$root/run" --help)")"
check "... and builds nothing" test ! -e "$work/none"

# --- Man pages --------------------------------------------------------------------------------------------------------
cli man man >/dev/null
check "man pages have examples, exit status and files" bash -c "grep -q '^.SH EXAMPLES' man/cenote-share-create.1 && grep -q 'EXIT STATUS' man/cenote-health.1 && grep -q '^.SH FILES' man/cenote-smb-put.1"
if command -v man >/dev/null; then
    equal "man has nothing to complain about" "" "$(MANROFFSEQ='' LC_ALL=C.UTF-8 man --warnings -E UTF-8 -l -Tutf8 -Z man/cenote-smb-put.1 2>&1 >/dev/null)"
fi
summary
