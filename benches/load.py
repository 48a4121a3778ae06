#!/usr/bin/env python3
"""Served operations beside Debian's smbd, asked for by a pipelined client of our own (crates/smb-client, example `load`).

usage: benches/load.py [--rounds N] [--cells NAME,...] [--work DIR] [--out DIR] [--binary FILE] [--loader FILE]

Each cell is one kind of request at one depth. Servers take turns; a figure is the median of the rounds. CPU is user and system
time of all of a server's processes by operation, `disk` the bytes that the server had written to disk by byte acknowledged, flushed at
the end. A ratio over 1 means Cenote is ahead. Needs root (smbpasswd), Debian's samba, and release builds:

    cargo build --release -p cenote --bin cenote && cargo build --release -p cenote-smb-client --example load
"""

import argparse
import datetime
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import servers

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent
MIB = 1 << 20

# Name: mode, bytes of the file, bytes of a block, depth, operations, random, cold, extra options of the loader.
CELLS = {
    "read-4k-cached": ("read", 64 * MIB, "4K", 32, 300_000, True, False, ()),
    "read-4k-cached-1": ("read", 64 * MIB, "4K", 1, 30_000, True, False, ()),
    "read-64k-cached": ("read", 64 * MIB, "64K", 32, 40_000, True, False, ()),
    "read-1m-cached": ("read", 64 * MIB, "1M", 8, 4_000, False, False, ()),
    "read-4k-signed": ("read", 64 * MIB, "4K", 32, 200_000, True, False, ("--sign",)),
    "read-4k-encrypted": ("read", 64 * MIB, "4K", 32, 200_000, True, False, ("--encrypt",)),
    "read-1m-cold": ("read", 1024 * MIB, "1M", 8, 1024, False, True, ()),
    "read-64k-cold": ("read", 1024 * MIB, "64K", 4, 16_384, False, True, ()),
    "write-new-4k": ("write-new", 1024 * MIB, "4K", 32, 262_144, False, False, ("--flush",)),
    "write-new-64k": ("write-new", 1024 * MIB, "64K", 32, 16_384, False, False, ("--flush",)),
    "write-new-1m": ("write-new", 1024 * MIB, "1M", 32, 1024, False, False, ("--flush",)),
    "overwrite-4k": ("write", 1024 * MIB, "4K", 32, 262_144, True, False, ("--flush",)),
    "overwrite-64k": ("write", 1024 * MIB, "64K", 32, 16_384, True, False, ("--flush",)),
    "overwrite-128k": ("write", 1024 * MIB, "128K", 32, 8_192, True, False, ("--flush",)),
    "overwrite-1m": ("write", 1024 * MIB, "1M", 32, 1024, True, False, ("--flush",)),
}


class Loader:
    def __init__(self, binary):
        self.binary = binary

    def run(self, server, file, mode, size, block, depth, count=None, random=False, extra=()):
        command = [self.binary, f"127.0.0.1:{server.port}", server.share, file, mode, "--user", server.user, "--password",
                   server.password, "--size", str(size), "--block", block, "--depth", str(depth), "--json", *extra]
        command += ["--count", str(count)] if count else []
        command += ["--random"] if random else []
        done = subprocess.run(command, capture_output=True, text=True, timeout=600)
        if done.returncode != 0:
            raise RuntimeError(f"load on {server.name}: {done.stderr}")
        return json.loads(done.stdout)


def prepare(loader, server, cell, made):
    """The file that a cell works on; returns its name."""
    mode, size, _, _, _, _, cold, _ = CELLS[cell]
    if mode == "write-new":
        servers.smbclient(server, "del new.dat") if (server.name, "new") in made else None
        made.add((server.name, "new"))
        return "new.dat"
    name = f"file{size // MIB}.dat"
    if (server.name, name) not in made:
        loader.run(server, name, "write", size, "1M", 8, extra=("--flush",))
        made.add((server.name, name))
    if cold:
        server.make_cold()
    elif mode == "read":
        loader.run(server, name, "read", size, "1M", 8)
    return name


def wait_until_written(server):
    """Waits until the server has written what it still had to write."""
    last, quiet = server.written_bytes(), 0
    deadline = time.monotonic() + 30
    while quiet < 3 and time.monotonic() < deadline:
        time.sleep(1)
        written = server.written_bytes()
        quiet, last = (quiet + 1, last) if written - last < MIB else (0, written)


def measure(loader, server, cell, made):
    mode, size, block, depth, count, random, cold, extra = CELLS[cell]
    name = prepare(loader, server, cell, made)
    writes = mode != "read"
    if writes:
        wait_until_written(server)
    cpu, written = server.cpu_seconds(), server.written_bytes()
    figures = loader.run(server, name, "write" if writes else "read", size, block, depth, count, random, extra)
    cpu = server.cpu_seconds() - cpu
    if writes:
        wait_until_written(server)
    figures["server_cpu_us_per_operation"] = cpu * 1e6 / figures["operations"]
    figures["disk_bytes_per_byte"] = (server.written_bytes() - written) / figures["bytes"] if writes else None
    return figures


def main():
    servers.end_by_signal_as_by_hand()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cells", default=",".join(CELLS))
    parser.add_argument("--work", type=pathlib.Path)
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--binary", type=pathlib.Path, default=REPOSITORY / "target/release/cenote")
    parser.add_argument("--loader", type=pathlib.Path, default=REPOSITORY / "target/release/examples/load")
    parser.add_argument("--port", type=int, default=14711, help="the first of three that are used")
    parser.add_argument("--only", choices=["cenote-tcp", "smbd"], help="measure one server alone")
    arguments = parser.parse_args()
    cells = arguments.cells.split(",")
    loader, made = Loader(arguments.loader), set()
    work = pathlib.Path(tempfile.mkdtemp(prefix="cenote-load-", dir=arguments.work))
    peers = [
        servers.Cenote(arguments.binary, work / "cenote", arguments.port, arguments.port + 1),
        servers.Smbd(work / "smbd", arguments.port + 2),
    ]
    peers = [peer for peer in peers if arguments.only in (None, peer.name)]
    results = {(cell, peer.name): [] for cell in cells for peer in peers}
    try:
        for peer in peers:
            peer.start()
        for number in range(arguments.rounds):
            for cell in cells:
                for peer in peers if number % 2 == 0 else reversed(peers):
                    figures = measure(loader, peer, cell, made)
                    results[cell, peer.name].append(figures)
                    disk = figures["disk_bytes_per_byte"]
                    print(f"round {number + 1} {cell:18} {peer.name:12} {figures['operations_per_s']:10.0f} operations/s"
                          f" {figures['mb_per_s']:8.1f} MB/s {figures['server_cpu_us_per_operation']:8.2f} us CPU"
                          + (f" {disk:6.2f} on disk" if disk is not None else ""), file=sys.stderr, flush=True)
    finally:
        for peer in peers:
            peer.stop()
        servers.remove_tree(work)
    if len(peers) < 2:
        return
    commit = subprocess.run(["git", "-C", REPOSITORY, "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    lines = [f"# Served operations beside smbd, {datetime.date.today()}, commit {commit.stdout.strip()}", "",
             f"Median of {arguments.rounds} rounds, loader on loopback. Ratio over 1: Cenote is ahead.", "",
             "| cell | Cenote MB/s | smbd MB/s | ratio | spread | Cenote us CPU | smbd us CPU | ratio | Cenote disk | smbd disk |",
             "|---|---|---|---|---|---|---|---|---|---|"]
    for cell in cells:
        ours, theirs = results[cell, "cenote-tcp"], results[cell, "smbd"]

        def middle(runs, key):
            values = [run[key] for run in runs if run[key] is not None]
            return statistics.median(values) if values else None

        ratios = [a["mb_per_s"] / b["mb_per_s"] for a, b in zip(ours, theirs)]
        cpu = [middle(runs, "server_cpu_us_per_operation") for runs in (ours, theirs)]
        disk = ["-" if value is None else f"{value:.2f}" for value in (middle(runs, "disk_bytes_per_byte") for runs in (ours, theirs))]
        lines.append(f"| {cell} | {middle(ours, 'mb_per_s'):.0f} | {middle(theirs, 'mb_per_s'):.0f} | {statistics.median(ratios):.2f} "
                     f"| {min(ratios):.2f}-{max(ratios):.2f} | {cpu[0]:.2f} | {cpu[1]:.2f} | {cpu[1] / max(cpu[0], 0.001):.2f} "
                     f"| {disk[0]} | {disk[1]} |")
    report = "\n".join(lines) + "\n"
    print(report)
    if arguments.out:
        arguments.out.mkdir(parents=True, exist_ok=True)
        (arguments.out / "load.md").write_text(report)
        records = [{"cell": cell, "system": name} | run for (cell, name), runs in results.items() for run in runs]
        (arguments.out / "load.json").write_text(json.dumps(records, indent=1) + "\n")


if __name__ == "__main__":
    main()
