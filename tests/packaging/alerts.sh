#!/bin/bash
# Runs Prometheus on the rules that ship: alerts fire when they should, with three servers of a cluster as with one (alerts.yml), and the
# dashboard uses what the rules record. promtool comes from Debian's package, beside the build, so that no service is installed.
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
cd "$root" || exit 1

check "the dashboard uses what the rules record" python3 - <<'E2'
import json, re
rules = open("packaging/monitoring/cenote.rules.yml").read()
recorded = set(re.findall(r'record: "?(cenote:[a-z0-9_:]+)', rules))
board = json.dumps(json.load(open("packaging/monitoring/cenote.dashboard.json")))
used = set(re.findall(r"cenote:[a-z0-9_:]+", board + rules))
assert "cenote_" not in board, "the dashboard names a metric itself"
assert used <= recorded, used - recorded
E2

promtool=$(command -v promtool) || promtool=$target/promtool/usr/bin/promtool
download() { (cd "$target/promtool" && apt-get download prometheus && dpkg-deb -x prometheus_*.deb . && rm prometheus_*.deb) >>"$work/download" 2>&1; }
if [[ ! -x $promtool ]] && command -v apt-get >/dev/null; then
    mkdir -p "$target/promtool"
    download || { ((EUID == 0)) && apt-get update >>"$work/download" 2>&1 && download; }
fi
if [[ -x $promtool ]]; then
    check "Prometheus takes the rules" "$promtool" check rules packaging/monitoring/cenote.rules.yml
    check "alerts fire when they should" "$promtool" test rules tests/packaging/alerts.yml
else
    skip "the alerts' tests: promtool cannot be had here (apt-get install prometheus): $(tail -n 1 "$work/download" 2>/dev/null)"
fi
summary
