#!/usr/bin/env python3
"""A cluster beside a single server: ./bench cluster [--seconds N] [--rounds N] [--nodes 2,3,4].

Servers stand in network namespaces of their own on one bridge, the client in another one, all on this machine and its one disk. A single server
keeps three copies on three files; two nodes keep two copies, three and four keep three, each on a node. One system runs after the other. CPU is that of the
servers' processes, without etcd, by operation of the client; that of nodes other than the owner, by copy that they wrote, is the CPU of a
replica's write. Beside the durable 4 KiB write one deep stands what it cannot go below: the disk, two round trips, and 25 us.
"""

import argparse
import datetime
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

import cells as table
import limits
import report
import revision
import ruler
import servers

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPOSITORY / "tests/cluster"))

import cluster as formed  # noqa: E402
import namespaces  # noqa: E402

CELLS = [
    table.Cell("4k", "write-through", 1),
    table.Cell("4k", "write-through", 32),
    table.Cell("64k", "write-through", 1),
    table.Cell("1m", "write-through", 1),
    table.Cell("4k", "read-cached", 1),
    table.Cell("4k", "read-cached", 32),
    table.Cell("4k", "mixed-67-33", 32),
]
# Beyond disk and network; the aim of the design.
ALLOWED_US = 25
REPLICA_AIM_US = 12
SMB_PORT = 445


def say(text):
    print(text, file=sys.stderr, flush=True)


def own_cpu_seconds(pid):
    """Of the process alone, without its etcd."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / servers.TICKS


class Servers(servers.Server):
    """A cluster of `count` servers, or one server, as `ruler` measures it: its address is that of the owner."""

    user, password, share = formed.USER, formed.PASSWORD, formed.SHARE
    port = SMB_PORT

    def __init__(self, network, binary, work, count):
        self.count, self.name = count, f"{count}-nodes" if count > 1 else "one-server"
        work = work / self.name
        work.mkdir()
        self.nodes = [formed.Node(number, binary, work, network.address(number), SMB_PORT, 9445, 9447, within=network.within(number))
                      for number in range(1, count + 1)]
        self.cluster = formed.Cluster(self.nodes, disks=1 if count > 1 else 3, disk_size="4GiB", volume_size="1GiB")
        self.split = []

    def start(self):
        if self.count > 1:
            self.cluster.form()
        else:
            self.cluster.serve_alone()
        self.host = self.cluster.owner().address

    def stop(self):
        self.cluster.stop()

    @property
    def copies(self):
        return min(self.count, 3) if self.count > 1 else 3

    def cpu_seconds(self):
        by_node = [own_cpu_seconds(node.process.pid) for node in self.nodes]
        owner = next(at for at, node in enumerate(self.nodes) if node.address == self.host)
        # The owner's and the others'; whoever asks has the sum.
        self.split.append((by_node[owner], sum(by_node) - by_node[owner]))
        return sum(by_node)


def measure(diskspd, cell, system, credentials, seconds):
    """Figures of one run, with the CPU of nodes that are not the owner, by operation."""
    if not cell.writes:
        ruler.warm(diskspd, system, credentials)
    else:
        # Not counted by CPU that stands still: the servers' heartbeats go on.
        time.sleep(1)
    before = system.cpu_seconds()
    began = system.split[-1]
    text = ruler.run(diskspd, ruler.arguments(cell, system, credentials, seconds), seconds + 60)
    after = system.cpu_seconds()
    ended = system.split[-1]
    found = ruler.parse(text)
    operations = found["operations"]
    if not operations:
        raise ruler.Failed(f"{cell.name} on {system.name}: no operation ended")
    return {
        "ops_per_s": operations / found["seconds"], "bytes_per_s": found["bytes"] / found["seconds"],
        "p50_us": found["latency_us"]["50th"], "p99_us": found["latency_us"]["99th"],
        "cpu_us_per_op": (after - before) * 1e6 / operations,
        "owner_cpu_us_per_op": (ended[0] - began[0]) * 1e6 / operations,
        "others_cpu_us_per_op": (ended[1] - began[1]) * 1e6 / operations,
    }


def idle_cpu(system, seconds=5):
    """Seconds of CPU that a server takes in a second without load; a cell's figures have it in them."""
    before = system.cpu_seconds()
    time.sleep(seconds)
    return (system.cpu_seconds() - before) / seconds / system.count


def round_trip_us(network, seconds):
    """Of 4 KiB over TCP from the client to a node and back, median."""
    if not shutil.which("sockperf"):
        return None
    address = network.address(1)
    server = subprocess.Popen([*network.within(1), "sockperf", "server", "--tcp", "-i", address, "-p", "14720"],
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        time.sleep(1)
        done = subprocess.run(["sockperf", "ping-pong", "--tcp", "--full-rtt", "-i", address, "-p", "14720", "-m", "4096", "-t", str(seconds)],
                              capture_output=True, text=True, timeout=seconds + 30)
    finally:
        server.terminate()
        server.wait()
    found = re.search(r"percentile 50\.000 =\s+([\d.]+)", done.stdout)
    return float(found[1]) if found else None


def table_of(found, systems):
    lines = ["| cell | system | IOPS | MB/s | p50 us | p99 us | CPU us/op, all servers | owner | others | by copy written elsewhere |",
             "|---|---|---:|---:|---:|---:|---:|---:|---:|---:|"]
    for cell in CELLS:
        for system in systems:
            runs = found.get((cell.name, system.name))
            if not runs:
                continue
            figure = {key: report.middle(runs, key) for key in runs[0]}
            copies = (system.copies - 1) * cell.write_percent / 100 if system.count > 1 else 0
            by_copy = report.number(figure["others_cpu_us_per_op"] / copies, 1) if copies else ""
            lines.append(
                f"| {cell.name} | {system.name} | {report.number(figure['ops_per_s'], 0)} | {report.number(figure['bytes_per_s'] / 1e6, 1)} "
                f"| {report.number(figure['p50_us'], 0)} | {report.number(figure['p99_us'], 0)} | {report.number(figure['cpu_us_per_op'], 1)} "
                f"| {report.number(figure['owner_cpu_us_per_op'], 1)} | {report.number(figure['others_cpu_us_per_op'], 1)} | {by_copy} |")
    return lines


def floor_lines(found, systems, disk_us, trip_us):
    """The durable write one deep, beside what it cannot go below."""
    lines = ["", "## The durable 4 KiB write, one deep", ""]
    if disk_us is None or trip_us is None:
        return lines + ["fio or sockperf is missing: there is nothing to set it beside."]
    floor = disk_us + 2 * trip_us + ALLOWED_US
    lines += [f"Disk {disk_us:.0f} us (fio: write and fdatasync), two round trips of {trip_us:.0f} us (sockperf, 4 KiB each way), {ALLOWED_US} us: {floor:.0f} us.", ""]
    for system in systems:
        runs = found.get((CELLS[0].name, system.name))
        if runs:
            took = report.middle(runs, "p50_us")
            lines.append(f"- {system.name}: {took:.0f} us, {took / floor:.2f} times that")
    return lines


def main():
    servers.end_by_signal_as_by_hand()
    parser = argparse.ArgumentParser(prog="./bench cluster", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--nodes", default="2,3,4")
    parser.add_argument("--work", type=pathlib.Path, help="folder for the servers' files (default: a new one)")
    parser.add_argument("--out", type=pathlib.Path, help="folder for the report (default benches/results/DATE-cluster)")
    parser.add_argument("--binaries", type=pathlib.Path, default=REPOSITORY / "target/release")
    arguments = parser.parse_args()
    commit = revision.described(REPOSITORY)
    counts = [1, *(int(word) for word in arguments.nodes.split(","))]
    work = pathlib.Path(tempfile.mkdtemp(prefix="cenote-bench-", dir=arguments.work))
    out = arguments.out or REPOSITORY / "benches/results" / datetime.datetime.now().strftime("%Y-%m-%d-%H%M-cluster")
    try:
        network = namespaces.Bridge(max(counts))
    except namespaces.Refused as reason:
        say(f"./bench cluster: {reason}")
        return 2
    found, systems, idle, failed = {}, [], {}, []
    credentials = work / "credentials"
    credentials.touch(mode=0o600)
    credentials.write_text(f"username={formed.USER}\npassword={formed.PASSWORD}\n")
    diskspd = arguments.binaries / "diskspd"
    began = time.monotonic()
    try:
        disk = limits.disk(work, arguments.seconds)
        disk_us = next((row["p50_us"] for row in disk if "fdatasync" in row["limit"]), None)
        trip_us = round_trip_us(network, arguments.seconds)
        # One after the other: servers that stand by would take of the same processors.
        for count in counts:
            system = Servers(network, arguments.binaries / "cenote", work, count)
            systems.append(system)
            system.start()
            ruler.make_file(diskspd, system, credentials, *ruler.WARM)
            idle[system.name] = idle_cpu(system)
            for number in range(arguments.rounds):
                for cell in CELLS:
                    try:
                        figures = measure(diskspd, cell, system, credentials, arguments.seconds)
                    except ruler.Failed as reason:
                        failed.append(f"{cell.name} on {system.name}: {reason}")
                        continue
                    found.setdefault((cell.name, system.name), []).append(figures)
                    say(f"{time.monotonic() - began:5.0f} s  {cell.name:32} {system.name:12} {figures['ops_per_s']:10,.0f} IOPS  p50 {figures['p50_us']:8,.0f} us  "
                        f"CPU {figures['cpu_us_per_op']:7.1f} us/op")
            system.stop()
    finally:
        for system in systems:
            system.stop()
        network.close()
        servers.remove_tree(work)
    load = os.getloadavg()[2]
    lines = [
        f"# A cluster beside one server, {datetime.date.today()}, commit {commit}", "",
        f"{os.cpu_count()} processors for all servers and the client together, load of the last 15 minutes {load:.1f}; signed sessions and bus; medians of "
        f"{arguments.rounds} rounds of {arguments.seconds} s.", "", " ".join(__doc__.split("\n", 2)[2].split()), "",
        *table_of(found, systems), *floor_lines(found, systems, disk_us, trip_us), "",
        f"Aim for a replica's write: {REPLICA_AIM_US} us of CPU on the node that has it. What a server takes without load, which the figures above have in them: "
        + ", ".join(f"{name} {seconds * 1000:.1f} ms a second and server" for name, seconds in idle.items()) + ".",
        *(["", "Failed:", *(f"- {line}" for line in failed)] if failed else []),
    ]
    out.mkdir(parents=True, exist_ok=True)
    (out / "report.md").write_text("\n".join(lines) + "\n")
    (out / "results.json").write_text(json.dumps({"cells": [{"cell": cell, "system": system, "runs": runs} for (cell, system), runs in found.items()],
                                                  "limits": disk, "round_trip_us": trip_us, "idle": idle}, indent=1) + "\n")
    print("\n".join(lines))
    say(f"{out}/report.md  ({time.monotonic() - began:.0f} s)")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
