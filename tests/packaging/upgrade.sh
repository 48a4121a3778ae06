#!/bin/bash
# The upgrade of a cluster's server drains it and resumes it: the package's script with a command line that only writes down what it is told.
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"

mkdir "$work/bin"
cat >"$work/bin/cenote" <<'SCRIPT'
#!/bin/sh
echo "$*" >>"$CALLS"
node() { printf '  {\n    "name": "%s",\n    "state": "%s",\n    "bus": %s\n  }' "$1" "$2" "$3"; }
case "$*" in
"node list --json") [ -z "$STATE" ] && echo '[]' || { echo '['; node node-1 up '{ "rtt_us": 7 }'; echo ,; node node-2 "$STATE" null; echo; echo ']'; } ;;
"node show node-2 --json") node node-2 "$STATE" null ;;
"node drain node-2 --watch") exit "$DRAINS" ;;
esac
SCRIPT
chmod +x "$work/bin/cenote"
sed "s#/run/cenote-upgrade-drained#$work/drained#" "$root/packaging/cenote-upgrade" >"$work/script"
export CALLS=$work/calls PATH=$work/bin:$PATH
upgrade() { # STATE STATUS-OF-DRAIN: what the command line is told, but for the questions
    : >"$CALLS"
    STATE=$1 DRAINS=$2 sh "$work/script" drain >/dev/null
    echo "-- exchanged" >>"$CALLS"
    STATE=$1 DRAINS=$2 sh "$work/script" resume >/dev/null
    grep -v json "$CALLS" | tr '\n' ';'
}
equal "a server of a cluster is drained before and resumed after" 'node drain node-2 --watch;-- exchanged;node resume node-2;' "$(upgrade up 0)"
equal "one that an administrator drained stays drained" '-- exchanged;' "$(upgrade drained 0)"
equal "one that cannot be drained has volumes again at once, and is upgraded" 'node drain node-2 --watch;node resume node-2;-- exchanged;' "$(upgrade up 1)"
equal "a single server is drained to nobody" '-- exchanged;' "$(upgrade '' 0)"
summary
