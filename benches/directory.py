#!/usr/bin/env python3
"""One directory of very many small files, Cenote beside Debian's smbd on ext4: put, list, list with nothing in RAM, delete.

usage: benches/directory.py [--files N] [--lots N] [--rounds N] [--work DIR] [--out DIR]

The files are put in lots, so that the cost of a file is seen as the directory grows. smbd's lots between the first and the last are
made in its directory without it, unless --put-all: putting them through it takes by far the most time and tells nothing more. Lists
are interleaved. Needs root (smbpasswd), Debian's samba and smbclient, and a release build.
"""

import argparse
import datetime
import os
import pathlib
import statistics
import sys
import tempfile

import compare
import servers

BYTES = 4096


class Lot:
    """Files that are put together."""

    def __init__(self, work, number, files):
        self.folder, self.files = work / f"lot{number}", files
        self.folder.mkdir()
        for at in range(files):
            (self.folder / f"file{number * files + at:07}").write_bytes(os.urandom(BYTES))

    def put(self, server):
        return compare.timed(server, lambda: servers.smbclient(server, f"cd s; lcd {self.folder}; prompt off; mput *"))

    def place(self, smbd):
        """Makes them in the directory that smbd serves, without it."""
        for file in self.folder.iterdir():
            os.link(file, smbd.work / "data" / "s" / file.name)


def main():
    servers.end_by_signal_as_by_hand()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=100_000)
    parser.add_argument("--lots", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=3, help="of lists")
    parser.add_argument("--put-all", action="store_true")
    parser.add_argument("--work", type=pathlib.Path)
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--port", type=int, default=14711, help="the first of three that are used")
    parser.add_argument("--binary", type=pathlib.Path, default=compare.REPOSITORY / "target/release/cenote")
    arguments = parser.parse_args()
    files = arguments.files // arguments.lots
    count = files * arguments.lots
    work = pathlib.Path(tempfile.mkdtemp(prefix="cenote-bench-", dir=arguments.work))
    cenote = servers.Cenote(arguments.binary, work / "cenote", arguments.port, arguments.port + 1)
    smbd = servers.Smbd(work / "smbd", arguments.port + 2)
    rows = {}

    def note(row, server, figures, operations):
        rows.setdefault(row, {}).setdefault(server.name, []).append((figures, operations))
        print(f"{row:24} {server.name:12} {figures['seconds']:8.2f} s {figures['cpu_seconds']:7.2f} s CPU",
              file=sys.stderr, flush=True)

    try:
        for server in (cenote, smbd):
            server.start()
            servers.smbclient(server, "mkdir s")
        for number in range(arguments.lots):
            lot = Lot(work, number, files)
            edge = number in (0, arguments.lots - 1)
            row = {0: "put the first lot", arguments.lots - 1: "put the last lot"}.get(number, "put the other lots")
            for server in (cenote, smbd) if number % 2 == 0 else (smbd, cenote):
                if server is smbd and not edge and not arguments.put_all:
                    lot.place(smbd)
                else:
                    note(row, server, lot.put(server), files)
            servers.remove_tree(lot.folder)
        for number in range(arguments.rounds):
            for server in (cenote, smbd) if number % 2 == 0 else (smbd, cenote):
                note("list", server, compare.listed(server, count), count)
        for server in (cenote, smbd):
            server.flush_to_disk()
            server.make_cold()
            # Of smbd's directory the kernel keeps names and inodes.
            pathlib.Path("/proc/sys/vm/drop_caches").write_text("2")
            note("list, nothing in RAM", server, compare.listed(server, count), count)
        for server in (cenote, smbd):
            note("delete", server, compare.timed(server, lambda: servers.smbclient(server, "deltree s")), count)
    finally:
        for server in (cenote, smbd):
            server.stop()
        servers.remove_tree(work)
    lines = [f"# A directory of {count:,} files of 4 KiB, {datetime.date.today()}, commit {compare.commit()}", "",
             f"Client smbclient, loopback, {arguments.lots} lots of {files:,}; medians, microseconds a file. Ratio: smbd's figure by "
             "Cenote's; over 1 Cenote is ahead.", "",
             "| work | Cenote us | smbd us | ratio | Cenote CPU us | smbd CPU us | ratio |", "|---|---|---|---|---|---|---|"]
    for row, found in rows.items():
        cells = []
        for key in ("seconds", "cpu_seconds"):
            figures = [[run[key] * 1e6 / operations for run, operations in found.get(name, [])] for name in ("cenote-tcp", "smbd")]
            ours, theirs = (statistics.median(runs) if runs else None for runs in figures)
            cells += [f"{value:.1f}" if value is not None else "-" for value in (ours, theirs)]
            cells.append(f"{theirs / max(ours, 0.01):.2f}" if ours is not None and theirs is not None else "-")
        lines.append(f"| {row} | {' | '.join(cells)} |")
    report = "\n".join(lines) + "\n"
    print(report)
    if arguments.out:
        arguments.out.mkdir(parents=True, exist_ok=True)
        (arguments.out / "directory.md").write_text(report)


if __name__ == "__main__":
    main()
