#!/usr/bin/env python3
"""Cenote beside Debian's smbd: one machine, one run, interleaved, the same work by the same client.

usage: benches/compare.py [--rounds N] [--work DIR] [--out DIR] [--only NAME,...] [--gib N] [--files N]

Guarantees are equal: Cenote's share default (`durability = close`) is compared with smbd's default for reads, and smbd's
`sync always` where a row says `durable`. Each figure is the median of the rounds; a ratio over 1 means Cenote is ahead.
Needs root (smbpasswd), Debian's samba and smbclient, and a release build.
"""

import argparse
import datetime
import hashlib
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import servers

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent


def timed(server, work):
    """Seconds and server CPU seconds that `work` takes; bytes written to disk."""
    cpu, disk, start = server.cpu_seconds(), servers.disk_bytes_written(), time.monotonic()
    work()
    return {
        "seconds": time.monotonic() - start,
        "cpu_seconds": server.cpu_seconds() - cpu,
        "disk_bytes": servers.disk_bytes_written() - disk,
    }


def commit():
    """The commit of this tree, short."""
    done = subprocess.run(["git", "-C", REPOSITORY, "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    return done.stdout.strip()


def listed(server, count):
    """Lists the directory of small files; figures of [`timed`]."""
    out = []
    figures = timed(server, lambda: out.append(servers.smbclient(server, "cd s; ls")))
    found = sum(" file" in line for line in out[0].splitlines())
    if found != count:
        raise RuntimeError(f"{server.name} lists {found} of {count} files")
    return figures


def digest(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class Cells:
    """Each method is one row: does its work on `server`, returns (figures, operations, bytes)."""

    def __init__(self, work, gib, files):
        self.work, self.bytes = work, int(gib * (1 << 30))
        self.big = work / "big"
        with open(self.big, "wb") as file:
            for _ in range(self.bytes >> 20):
                file.write(os.urandom(1 << 20))
        self.digest = digest(self.big)
        self.small = work / "small"
        self.small.mkdir()
        self.small_count = files
        for number in range(self.small_count):
            (self.small / f"file{number:06}").write_bytes(os.urandom(4096))

    def put_large(self, server):
        return timed(server, lambda: servers.smbclient(server, f"put {self.big} big")), 1, self.bytes

    def get_large(self, server):
        back = self.work / f"back-{server.name}"
        figures = timed(server, lambda: servers.smbclient(server, f"get big {back}"))
        if digest(back) != self.digest:
            raise RuntimeError(f"{server.name} gave back other bytes than it was given")
        back.unlink()
        return figures, 1, self.bytes

    def get_large_cold(self, server):
        """As `get_large`, with nothing of the file in RAM."""
        server.make_cold()
        return self.get_large(server)

    def put_small(self, server):
        commands = f"mkdir s; cd s; lcd {self.small}; prompt off; mput *"
        figures = timed(server, lambda: servers.smbclient(server, commands))
        return figures, self.small_count, self.small_count * 4096

    def list_small(self, server):
        return listed(server, self.small_count), self.small_count, 0

    def get_small(self, server):
        with tempfile.TemporaryDirectory(dir=self.work) as back:
            commands = f"cd s; lcd {back}; prompt off; mget *"
            figures = timed(server, lambda: servers.smbclient(server, commands))
            for number in range(0, self.small_count, 997):
                name = f"file{number:06}"
                if (pathlib.Path(back) / name).read_bytes() != (self.small / name).read_bytes():
                    raise RuntimeError(f"{server.name} gave back other bytes of {name}")
        return figures, self.small_count, self.small_count * 4096

    def delete_small(self, server):
        return timed(server, lambda: servers.smbclient(server, "deltree s")), self.small_count, 0


ROWS = ["put_large", "get_large", "get_large_cold", "put_small", "list_small", "get_small", "delete_small"]


def main():
    servers.end_by_signal_as_by_hand()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--work", type=pathlib.Path)
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--only", default=",".join(ROWS))
    parser.add_argument("--gib", type=float, default=1.0, help="size of the large file")
    parser.add_argument("--files", type=int, default=10_000, help="files of 4 KiB in one directory")
    parser.add_argument("--port", type=int, default=14701, help="the first of three that are used")
    parser.add_argument("--binary", type=pathlib.Path, default=REPOSITORY / "target/release/cenote")
    arguments = parser.parse_args()
    rows = arguments.only.split(",")
    work = pathlib.Path(tempfile.mkdtemp(prefix="cenote-bench-", dir=arguments.work))
    peers = [
        servers.Cenote(arguments.binary, work / "cenote", arguments.port, arguments.port + 1),
        servers.Smbd(work / "smbd", arguments.port + 2),
    ]
    results = {(row, peer.name): [] for row in rows for peer in peers}
    try:
        cells = Cells(work, arguments.gib, arguments.files)
        for peer in peers:
            peer.start()
        for number in range(arguments.rounds):
            for row in rows:
                for peer in peers if number % 2 == 0 else reversed(peers):
                    figures, operations, size = getattr(cells, row)(peer)
                    results[row, peer.name].append(figures | {"operations": operations, "bytes": size})
                    print(f"round {number + 1} {row:14} {peer.name:12} {figures['seconds']:8.2f} s"
                          f" {figures['cpu_seconds']:7.2f} s CPU", file=sys.stderr, flush=True)
    finally:
        for peer in peers:
            peer.stop()
        servers.remove_tree(work)
    lines = [f"# Cenote beside smbd, {datetime.date.today()}, commit {commit()}", "",
             f"Median of {arguments.rounds} rounds, client smbclient, loopback. Ratio: smbd's figure by Cenote's; over 1 Cenote is ahead.", "",
             "| work | Cenote s | smbd s | time ratio | spread | Cenote CPU s | smbd CPU s | CPU ratio |",
             "|---|---|---|---|---|---|---|---|"]
    records = []
    for row in rows:
        ours, theirs = results[row, "cenote-tcp"], results[row, "smbd"]

        def middle(runs, key):
            return statistics.median(run[key] for run in runs)

        ratios = [b["seconds"] / a["seconds"] for a, b in zip(ours, theirs)]
        cpu = middle(ours, "cpu_seconds")
        lines.append(
            f"| {row.replace('_', ' ')} | {middle(ours, 'seconds'):.2f} | {middle(theirs, 'seconds'):.2f} "
            f"| {statistics.median(ratios):.2f} | {min(ratios):.2f}-{max(ratios):.2f} "
            f"| {cpu:.2f} | {middle(theirs, 'cpu_seconds'):.2f} | {middle(theirs, 'cpu_seconds') / max(cpu, 0.01):.2f} |")
        for name in ("cenote-tcp", "smbd"):
            for run in results[row, name]:
                records.append({"cell": row, "system": name} | run)
    report = "\n".join(lines) + "\n"
    print(report)
    if arguments.out:
        arguments.out.mkdir(parents=True, exist_ok=True)
        (arguments.out / "report.md").write_text(report)
        (arguments.out / "results.json").write_text(json.dumps(records, indent=1) + "\n")


if __name__ == "__main__":
    main()
