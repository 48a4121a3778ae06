"""The report of a run: report.md, results.json, and the charts."""

import collections
import json
import statistics

import plots

FIGURES = ("bytes_per_s", "ops_per_s", "p50_us", "p99_us", "server_cpu_us_per_op", "client_cpu_us_per_op")
# Debian's smbd as it is shipped and as it is tuned: a figure of ours stands beside the better of the two.
PEERS = ("smbd", "smbd-tuned")
OWN_TCP = "cenote-tcp"


def middle(runs, key):
    values = [run[key] for run in runs if run.get(key) is not None]
    return statistics.median(values) if values else None


def ratios(ours, theirs, key="ops_per_s"):
    """Ours by theirs, round by round: what disturbed one round disturbed both of it."""
    return [a[key] / b[key] for a, b in zip(ours, theirs) if b[key]]


def spread(values):
    """Widest difference of the rounds in shares of their median."""
    return (max(values) - min(values)) / statistics.median(values) if len(values) > 1 else None


def beside_peers(runs, peers):
    """Throughput and CPU by each of the peers', and by the better one's."""
    throughput = {name: ratios(runs, peer) for name, peer in peers.items()}
    cpu = {name: statistics.median(ratios(runs, peer, "server_cpu_us_per_op") or [0]) for name, peer in peers.items()}
    better = min(throughput, key=lambda name: statistics.median(throughput[name]))
    wide = spread(throughput[better])
    return {
        "ratio_to_smbd": round(statistics.median(throughput[better]), 3), "ratio_spread": None if wide is None else round(wide, 3),
        "cpu_ratio_to_smbd": round(max(cpu.values()), 3), "better_smbd": better,
        "ratio_to_each": {name: round(statistics.median(values), 3) for name, values in throughput.items()},
        "cpu_ratio_to_each": {name: round(value, 3) for name, value in cpu.items()},
    }


def records(cells, results):
    """One object a cell and system, as results.json holds them."""
    found = []
    for cell in cells:
        for system, runs in results.get(cell, {}).items():
            if not runs:
                continue
            record = {
                "cell": cell.name, "system": system, "block_bytes": cell.block_bytes, "op": cell.operation, "depth": cell.depth,
                "connections": cell.connections, "security": cell.security, "rounds": len(runs),
            }
            record |= {key: round(middle(runs, key), 3) for key in FIGURES}
            written = middle(runs, "written_per_byte")
            if written is not None:
                record["written_per_byte"] = round(written, 3)
            peers = {name: results[cell][name] for name in PEERS if results[cell].get(name)}
            if peers and system not in PEERS:
                record |= beside_peers(runs, peers)
            record["latency_us"] = runs[-1]["latency_us"]
            found.append(record)
    return found


def number(value, digits=2):
    return "-" if value is None else f"{value:,.{digits}f}"


def cell_table(cells, found):
    lines = ["| cell | system | MB/s | IOPS | by smbd | spread | p50 us | p99 us | server CPU us/op | by smbd | client CPU us/op | written/byte |",
             "|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|"]
    for cell in cells:
        rows = [record for record in found if record["cell"] == cell.name]
        for record in rows:
            own = record["system"] in PEERS
            lines.append(
                f"| {cell.name} | {record['system']} | {number(record['bytes_per_s'] / 1e6, 1)} | {number(record['ops_per_s'], 0)} "
                f"| {'' if own else number(record.get('ratio_to_smbd'))} | {'' if own else number(record.get('ratio_spread'))} "
                f"| {number(record['p50_us'], 0)} | {number(record['p99_us'], 0)} | {number(record['server_cpu_us_per_op'], 1)} "
                f"| {'' if own else number(record.get('cpu_ratio_to_smbd'))} | {number(record['client_cpu_us_per_op'], 1)} "
                f"| {number(record.get('written_per_byte'))} |")
    return lines


def behind(found):
    """Cells in which a system of ours has less throughput, or spends more CPU for an operation, than either peer."""
    lines = []
    for record in found:
        said = []
        for name, ratio in record.get("ratio_to_each", {}).items():
            if ratio < 1:
                said.append(f"throughput {ratio:.2f} of {name}'s")
        for name, ratio in record.get("cpu_ratio_to_each", {}).items():
            if ratio > 1:
                said.append(f"server CPU an operation {ratio:.2f} of {name}'s")
        if said:
            lines.append(f"- {record['cell']}, {record['system']}: {'; '.join(said)}")
    return lines or ["None."]


def direct_table(cells, results):
    """SMB Direct by our own TCP, ratios round by round, and what each side's processors spent for an operation."""
    direct = [name for name in ("cenote-rdma", "cenote-rdma-nocrc") if any(name in runs for runs in results.values())]
    peers = [name for name in PEERS if any(name in runs for runs in results.values())]
    if not direct:
        return []
    lines = ["", "## SMB Direct by our own TCP", "",
             "Throughput and server and client CPU an operation, each divided by that of our own TCP in the same round (medians). MB/s and us are those of TCP.",
             "", "| cell | TCP MB/s | TCP server us | TCP client us | " + " | ".join(
                 f"{name}: MB/s | server | client" for name in direct + peers) + " |",
             "|---|" + "---:|" * (3 + 3 * len(direct + peers))]
    for cell in cells:
        runs = results.get(cell, {})
        own = runs.get(OWN_TCP)
        if not own:
            continue
        line = [cell.name, number(middle(own, "bytes_per_s") / 1e6, 0), number(middle(own, "server_cpu_us_per_op"), 1),
                number(middle(own, "client_cpu_us_per_op"), 1)]
        for name in direct + peers:
            for key in ("bytes_per_s", "server_cpu_us_per_op", "client_cpu_us_per_op"):
                shares = ratios(runs.get(name, []), own, key)
                line.append(number(statistics.median(shares)) if shares else "-")
        lines.append(f"| {' | '.join(line)} |")
    return lines


def limit_table(limits):
    lines = ["| limit | MB/s | operations/s | p50 us | p99 us |", "|---|---:|---:|---:|---:|"]
    for row in limits:
        if "skipped" in row:
            lines.append(f"| {row['limit']} | skipped: {row['skipped']} | | | |")
        else:
            rate = row.get("bytes_per_s")
            lines.append(f"| {row['limit']} | {number(rate / 1e6 if rate else None, 1)} | {number(row.get('ops_per_s'), 0)} "
                         f"| {number(row.get('p50_us'), 1)} | {number(row.get('p99_us'), 1)} |")
    return lines


def whole_tables(whole):
    lines = []
    steps = whole.get("small_files", {})
    if steps:
        lines += ["", f"## Small files ({whole['small_count']:,} of 4 KiB, by smbclient)", "",
                  "| step | system | seconds | files/s | server CPU us/file |", "|---|---|---:|---:|---:|"]
        count = whole["small_count"]
        for step in next(iter(steps.values())):
            for system, figures in steps.items():
                one = figures[step]
                lines.append(f"| {step} | {system} | {one['seconds']:.2f} | {number(count / one['seconds'], 0)} "
                             f"| {number(one['cpu_seconds'] * 1e6 / count, 1)} |")
    if whole.get("cross_check"):
        lines += ["", "## Cross-check: one large file by smbclient", "",
                  "The load generator of the cells is Cenote's own DiskSpd. smbclient is not; were the ruler in favour of one side, the ratios here would be others.",
                  "", "| step | system | MB/s | server CPU s |", "|---|---|---:|---:|"]
        for step in ("put", "get"):
            for system, figures in whole["cross_check"].items():
                one = figures[step]
                lines.append(f"| {step} | {system} | {number(one['bytes_per_s'] / 1e6, 1)} | {one['cpu_seconds']:.2f} |")
    if whole.get("reopen"):
        lines += ["", "## Start and memory", "",
                  "| system | start after a stop, s | start after kill -9, s | memory at rest, MiB | each idle connection, KiB |",
                  "|---|---:|---:|---:|---:|"]
        for system, figures in whole["reopen"].items():
            memory = whole["memory"][system]
            lines.append(f"| {system} | {figures['after_stop_s']:.2f} | {figures['after_kill_s']:.2f} "
                         f"| {memory['rest_bytes'] / (1 << 20):.1f} | {memory['connection_bytes'] / 1024:.0f} |")
    if whole.get("copy"):
        lines += ["", "## What a copy costs", "",
                  "Server CPU of 4 KiB write-through, 32 deep, on volumes of one copy and of two on the same disks; the difference is one replica's.", "",
                  "| volume | us a write |", "|---|---:|"]
        lines += [f"| {name} | {number(figure, 1)} |" for name, figure in whole["copy"].items()]
    return lines


def draw(out, cells, found):
    """Charts in the manner of the field's papers; returns their names."""
    at = {(record["cell"], record["system"]): record for record in found}
    systems = sorted({record["system"] for record in found})
    blocks = sorted({cell.block for cell in cells}, key=lambda block: next(c.block_bytes for c in cells if c.block == block))
    # That of most cells: what charts are of.
    protection = collections.Counter(cell.security for cell in cells).most_common(1)[0][0]
    written = []

    def save(name, chart):
        (out / name).write_text(chart)
        written.append(name)

    for figure, label, divisor in (("bytes_per_s", "MB/s", 1e6), ("ops_per_s", "I/O per s", 1)):
        series = {}
        for system in systems:
            for connections in sorted({cell.connections for cell in cells}):
                points = []
                for block in blocks:
                    record = at.get((f"{block}-read-cached-qd32-c{connections}-{protection}", system))
                    points.append(record[figure] / divisor if record else None)
                if any(points):
                    series[f"{system}, {connections} conn."] = points
        if series:
            name = "throughput" if figure == "bytes_per_s" else "iops"
            save(f"{name}.svg", plots.lines(f"{label} against I/O size: cached reads, 32 deep, {protection}", label, blocks, series, figure == "ops_per_s"))
    for block in blocks[:1]:
        series, labels = {}, ["50th", "75th", "90th", "95th", "99th", "3-nines", "4-nines", "max"]
        for system in systems:
            record = at.get((f"{block}-read-cached-qd32-c1-{protection}", system))
            if record:
                series[system] = [record["latency_us"].get(label) for label in labels]
        if series:
            save("latency.svg", plots.lines(f"Latency distribution: {block} cached reads, 32 deep, {protection}", "us", labels, series, True))
    shown = [cell for cell in cells if cell.depth == 32 and cell.connections == 1 and cell.security == protection
             and cell.operation in ("read-cached", "write")]
    series = {
        system: [at[cell.name, system]["server_cpu_us_per_op"] if (cell.name, system) in at else None for cell in shown]
        for system in systems
    }
    if shown:
        labels = [f"{cell.block}\n{cell.operation}" for cell in shown]
        save("cpu.svg", plots.bars(f"Server CPU an operation, {protection}: RDMA on and off", "us", labels, series))
    return written


def write(out, heading, cells, results, limits, whole, notes):
    """Writes everything into the folder `out`; returns the text of report.md."""
    out.mkdir(parents=True, exist_ok=True)
    found = records(cells, results)
    (out / "results.json").write_text(json.dumps(found, indent=1) + "\n")
    (out / "limits.json").write_text(json.dumps({"limits": limits, "whole": whole}, indent=1) + "\n")
    charts = draw(out, cells, found)
    lines = [*heading, "", "## Cells", "", *cell_table(cells, found), *direct_table(cells, results), "", "## Where behind smbd", "", *behind(found), "",
             "## The machine's own limits", "", *limit_table(limits), *whole_tables(whole)]
    if notes:
        lines += ["", "## Left out", "", *(f"- {note}" for note in notes)]
    if charts:
        lines += ["", "## Charts", "", *(f"![{name}]({name})" for name in charts)]
    text = "\n".join(lines) + "\n"
    (out / "report.md").write_text(text)
    return text
