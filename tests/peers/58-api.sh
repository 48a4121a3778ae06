#!/bin/bash
# Interfaces for programs: the API's document and a client made from it, the command line's JSON, and the figures under load.
. "$(dirname "$0")/../lib.sh"
cd "$work" || exit 1

fetch() { # PATH: the body of the answer, without the token
    python3 -c 'import sys, urllib.request; sys.stdout.write(urllib.request.urlopen(sys.argv[1], timeout=20).read().decode())' "http://127.0.0.1:$http_port$1"
}
# Of the metric NAME with the labels LABELS, as they stand in the text.
labelled() { fetch /metrics | awk -v sample="$1{$2}" '$1 == sample { print $2 }'; }

start_server --disk-size 2GiB || { not_ok "quickstart says ready"; summary; }
fetch /openapi.json >openapi.json

# --- The document --------------------------------------------------------------------------------------------------
if python=$(python_with openapi-spec-validator openapi_spec_validator); then
    check "the document is valid OpenAPI" "$python" -m openapi_spec_validator openapi.json
else
    skip "the document is valid OpenAPI (openapi-spec-validator cannot be installed: no network?)"
fi

# --- A client made from it -----------------------------------------------------------------------------------------
if python=$(python_with openapi-python-client openapi_python_client); then
    # It formats what it makes with ruff, which lies beside it.
    generated=$(PATH=$(dirname "$python"):$PATH "$python" -m openapi_python_client generate --path openapi.json --output-path client 2>&1)
    equal "a client is made without a word of what it lacks" "" "$(grep -iE 'warning|error|skipping' <<<"$generated")"
    counts "the client runs to its end" env PYTHONPATH=client "$python" "$root/tests/peers/api_client.py" "http://127.0.0.1:$http_port" "$work/data/api.token" "$work/made.img"
else
    skip "a client made from the document works (openapi-python-client cannot be installed: no network?)"
fi

# --- The command line's JSON ---------------------------------------------------------------------------------------
if python=$(python_with jsonschema); then
    export CENOTE SMB_PORT=$smb_port SMB_SHARE=$share SMB_USER=$user SMB_PASSWORD=$password
    counts "all commands are tried" timeout 300 "$python" "$root/tests/peers/json_outputs.py" openapi.json "$work/data" "$work"
else
    skip "what --json prints has the schemas of the document (jsonschema cannot be installed: no network?)"
fi

# --- Figures under load --------------------------------------------------------------------------------------------
random_file big 32
smb "put big; put big other" >/dev/null 2>&1
(while :; do smb "get big got; put big other; ls" >/dev/null 2>&1 || sleep 0.2; done) &
load_pid=$!
cli --json perf --count 3 --interval 2 >samples
kill "$load_pid" 2>/dev/null
wait "$load_pid" 2>/dev/null
equal "perf prints an object a sample" 3 "$(wc -l <samples)"
check "each of its interval, with latencies and the share of the cache" python3 - samples <<'PYTHON'
import json, sys
samples = [json.loads(line) for line in open(sys.argv[1])]
for sample in samples:
    assert 1.5 < sample["interval_s"] < 10, sample
    for kind in ("read", "write", "metadata"):
        assert sample[kind]["operations_per_s"] > 0, (kind, sample)
        assert 0 < sample[kind]["mean_latency_us"] < 10e6, (kind, sample)
    assert sample["cache_hit_ratio"] is not None and 0 <= sample["cache_hit_ratio"] <= 1, sample
reads = [sample["read"]["bytes_per_s"] * sample["interval_s"] for sample in samples]
assert max(reads) < 20 * (min(reads) + 1), f"they add up: {reads}"
PYTHON
check "what is read again comes from the cache" test "$(metric cenote_cache_hit_bytes_total)" -gt $((32 << 20))
for operation in read write metadata; do
    counted=$(labelled cenote_smb_request_seconds_count "operation=\"$operation\"")
    check "$operation: latencies are in the histogram (${counted:-none})" test "${counted:-0}" -gt 0
done
check "latencies of disks, too" test "$(metric cenote_disk_io_seconds_count)" -gt 0
summed=$(metric cenote_smb_errors_total)
parts=$(for operation in read write metadata; do labelled cenote_smb_errors_total "operation=\"$operation\""; done | paste -sd+ | bc)
equal "errors are counted once" "$parts" "$summed"
smb "get nothing-there" >/dev/null 2>&1
check "and are counted" test "$(metric cenote_smb_errors_total)" -gt "$summed"
if python=$(python_with prometheus-client prometheus_client); then
    fetch /metrics >metrics
    check "Prometheus' own parser reads the figures" "$python" - metrics <<'PYTHON'
import sys
from prometheus_client.parser import text_string_to_metric_families
families = list(text_string_to_metric_families(open(sys.argv[1]).read()))
assert len(families) > 60, len(families)
seen = set()
for family in families:
    assert family.documentation and family.type in ("counter", "gauge", "histogram"), family
    for sample in family.samples:
        key = sample.name, tuple(sorted(sample.labels.items()))
        assert key not in seen, key
        seen.add(key)
for line in open(sys.argv[1]):
    if line.startswith("# TYPE "):
        _, _, name, kind = line.split()
        assert name.endswith("_total") == (kind == "counter"), line
        words = name.removesuffix("_total").split("_")
        assert not {"bytes", "seconds", "ratio"} & set(words[:-1]), f"the unit does not end it: {line}"
        assert not {"percent", "us", "ms", "kib", "mib"} & set(words), f"no base unit: {line}"
names = {family.name for family in families}
for name in ("cenote_build_info", "cenote_disk_info", "process_resident_memory_bytes", "process_cpu_seconds", "process_start_time_seconds"):
    assert name in names, name
PYTHON
else
    skip "Prometheus' own parser reads the figures (prometheus-client cannot be installed: no network?)"
fi

stop_server
equal "SIGTERM ends it with status 0" 0 $?
summary
