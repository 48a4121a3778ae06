#!/usr/bin/env python3
"""Cenote beside its peers: one machine, one run, cells interleaved, one report.

usage: ./bench [--quick | --short | --all] [rdma | CELL-NAME-PART ...] [options]

Every server keeps its files on the same file system of this machine and is reached on loopback by the same load generator,
Cenote's DiskSpd. Guarantees in a row are equal: an ordinary write is in memory when it is answered (Cenote's share with
`durability = close`, smbd's default), a write-through one is on the disks (smbd with `strict sync`). Cenote keeps two copies, smbd
one; written through, a volume of Cenote's that keeps one as well stands beside them.
Most cells are of signed sessions: clients of Windows 11 24H2 and Server 2025 require them by default. --protection plain has them unsigned.
Servers run on one half of the processors and clients on the other, as on two machines: where they share them, what a scheduler makes of
wake-ups decides more than what either of them does (--processors shared).
All TCP connections have Linux's own congestion control, cubic, in a network namespace of the run's own: what a machine sets (bbr paces
what it sends, on loopback too) makes a factor of two.
Needs root: Debian's samba is started with a password database of its own, and the kernel's caches are emptied for cold reads.
"""

import argparse
import datetime
import os
import pathlib
import platform
import subprocess
import sys
import tempfile
import time

import cells as table
import compare
import limits as floor
import network
import processors
import report
import revision
import ruler
import servers
import whole as rest

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent
# Rounds end when the ratio's spread is within this share, or at the mode's limit.
STEADY = 0.10


class Mode:
    """How long a run measures, how often, and what besides cells."""

    def __init__(self, cells, seconds, rounds, most_rounds, budget_s, extras):
        self.cells, self.seconds, self.rounds, self.most_rounds = cells, seconds, rounds, most_rounds
        self.budget_s, self.extras = budget_s, extras


def modes(name, protection):
    """`protection`: of the cells that say nothing of it; None: the mode's own."""
    given = [protection] if protection else []
    return {
        "quick": lambda: Mode(table.quick(*given), 1, 2, 2, 165, False),
        "default": lambda: Mode(table.default(*given), 3, 3, 5, 55 * 60, True),
        # As many cells as by default, in less than half of its time; a longer run says more of each.
        "short": lambda: Mode(table.default(*given), 1, 2, 2, 27 * 60, False),
        "all": lambda: Mode(table.every(), 3, 3, 7, None, True),
        # Longer runs say more; these are as many as there are.
        "rdma": lambda: Mode(table.direct(*given), 1, 3, 3, 30 * 60, False),
    }[name]()


def say(text):
    print(text, file=sys.stderr, flush=True)


def parse_arguments():
    parser = argparse.ArgumentParser(prog="./bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--quick", action="store_const", const="quick", dest="mode", help="some 12 cells, under 3 minutes")
    mode.add_argument("--short", action="store_const", const="short", dest="mode", help="all 48 cells, two rounds of 1 s, under 27 minutes")
    mode.add_argument("--all", action="store_const", const="all", dest="mode", help="every cell; hours")
    parser.add_argument("only", nargs="*", help="rdma: SMB Direct with CRC and without beside our own TCP and smbd; else parts of cell names")
    parser.add_argument("--list", action="store_true", help="print the names of the cells and end")
    parser.add_argument("--seconds", type=int, help="length of one measurement")
    parser.add_argument("--rounds", type=int, help="rounds of each cell")
    parser.add_argument("--minutes", type=float, help="time for the cells; those that it does not reach are named in the report")
    parser.add_argument("--no-extras", action="store_true", help="cells only: no small files, start-up, memory, limits")
    parser.add_argument("--protection", choices=table.SECURITIES,
                        help="of the sessions of most cells (default signed, as Windows' clients have it; plain with rdma)")
    parser.add_argument("--congestion-control", default="cubic", help="of all TCP connections (default cubic)")
    parser.add_argument("--processors", choices=["apart", "shared"], default="apart", help="of servers and clients (default apart)")
    parser.add_argument("--work", type=pathlib.Path, help="folder for the servers' files (default: a new one)")
    parser.add_argument("--out", type=pathlib.Path, help="folder for the report (default benches/results/DATE)")
    parser.add_argument("--binaries", type=pathlib.Path, default=REPOSITORY / "target/release", help="folder of cenote and diskspd")
    arguments = parser.parse_args()
    arguments.mode = arguments.mode or ("rdma" if "rdma" in arguments.only else "default")
    return arguments


def heading(arguments, seconds, commit):
    model = next((line.split(":", 1)[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), "unknown")
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
    smbd = subprocess.run(["smbd", "--version"], capture_output=True, text=True).stdout.strip()
    congestion = network.congestion_control()
    return [
        f"# Cenote beside smbd, {datetime.date.today()}, commit {commit}", "",
        f"Machine: {os.cpu_count()} processors ({model}), {memory:.0f} GiB, Linux {platform.release()}, TCP's congestion control "
        f"{congestion}; all on loopback, {processors.told()}. Peer: Debian's smbd {smbd.removeprefix('Version ')}. Mode {arguments.mode}, {seconds} s a "
        "measurement, medians of the rounds; a ratio over 1 in throughput, or under 1 in CPU, is in Cenote's favour.",
        "", f"smbd is measured as shipped and as smbd-tuned ({', '.join([*servers.SmbdTuned.tuned_global, *servers.SmbdTuned.tuned_share])}). \"By smbd\" is by "
        "the better of the two in that cell, of throughput and of CPU each.",
    ]


def rounds_of(cell, systems, mode, measure_one, deadline):
    """Runs of one cell by system: A B B A until the ratios are steady or a limit is reached."""
    systems = [system for system in systems if system.takes(cell)]
    runs = {system.name: [] for system in systems}
    for number in range(mode.most_rounds):
        if deadline and time.monotonic() > deadline and number:
            break
        for system in systems if number % 2 == 0 else reversed(systems):
            runs[system.name].append(measure_one(cell, system))
        if number + 1 >= mode.rounds:
            base = runs[systems[0].name]
            spreads = [report.spread(report.ratios(runs[system.name], base)) for system in systems[1:]]
            if all(spread is None or spread <= STEADY for spread in spreads):
                break
    return runs


def prepare(arguments, work, notes, mode, systems):
    """Starts servers, each one into `systems`, and makes their files; returns the credentials of each."""
    daemon = servers.Cenote(arguments.binaries / "cenote", work / "cenote", 14701, 14702, rdma_port=14703)
    direct = servers.CenoteRdma(daemon)
    shipped, tuned = servers.Smbd(work / "smbd", 14704), servers.SmbdTuned(work / "smbd-tuned", 14705)
    systems += [shipped, tuned, daemon, direct, servers.CenoteOneCopy(daemon)]
    if "rdma" in arguments.only:
        systems.append(servers.CenoteRdma(daemon, crc=False))
    systems[:] = [system for system in systems if any(system.takes(cell) for cell in mode.cells)]
    diskspd = arguments.binaries / "diskspd"
    credentials = {}
    for system in systems:
        system.start()
        file = work / f"{system.name}.credentials"
        file.touch(mode=0o600)
        # smbd sets up this account in start().
        file.write_text(f"username={system.user}\npassword={system.password}\n")
        credentials[system.name] = file
    for system in systems:
        if isinstance(system, servers.CenoteRdma):
            continue
        say(f"files on {system.name}")
        ruler.make_file(diskspd, system, credentials[system.name], *ruler.WARM)
        if any(cell.cold and system.takes(cell) for cell in mode.cells):
            ruler.make_file(diskspd, system, credentials[system.name], *ruler.COLD)
    reason = rest.answers_rdma(diskspd, direct, credentials[direct.name])
    if reason:
        notes.append(f"cenote-rdma: {reason}")
        systems[:] = [system for system in systems if not isinstance(system, servers.CenoteRdma)]
    return credentials


def main():
    servers.end_by_signal_as_by_hand()
    arguments = parse_arguments()
    # Before the first measurement: the tree may change while it runs.
    commit = revision.described(REPOSITORY)
    mode = modes(arguments.mode, arguments.protection)
    parts = [part for part in arguments.only if part != "rdma"]
    if parts:
        mode.cells = [cell for cell in mode.cells if any(part in cell.name for part in parts)]
    if arguments.list or not mode.cells:
        print("\n".join(cell.name for cell in mode.cells) or "no cell has such a name")
        return 0 if mode.cells else 2
    mode.seconds, mode.rounds = arguments.seconds or mode.seconds, arguments.rounds or mode.rounds
    mode.most_rounds = max(arguments.rounds or mode.most_rounds, mode.rounds)
    if os.geteuid() != 0:
        say("./bench needs root: it starts smbd and empties the kernel's caches")
        return 2
    try:
        network.enter(arguments.congestion_control)
    except network.Refused as reason:
        say(f"./bench: {reason}")
        return 2
    if arguments.processors == "apart":
        processors.part()
    began = time.monotonic()
    if arguments.minutes:
        mode.budget_s = arguments.minutes * 60
    deadline = began + mode.budget_s if mode.budget_s else None
    work = pathlib.Path(tempfile.mkdtemp(prefix="cenote-bench-", dir=arguments.work))
    out = arguments.out or REPOSITORY / "benches/results" / datetime.datetime.now().strftime("%Y-%m-%d-%H%M")
    notes = ["ksmbd: it runs in an emulated guest only; what an emulated processor takes is no figure beside native servers"]
    results, limits, whole, systems = {}, [], {}, []
    failed = 0
    try:
        credentials = prepare(arguments, work, notes, mode, systems)
        diskspd = arguments.binaries / "diskspd"

        def measure_one(cell, system):
            if not cell.cold and not cell.writes:
                ruler.warm(diskspd, system, credentials[system.name])
            figures = ruler.measure(diskspd, cell, system, credentials[system.name], mode.seconds)
            say(f"{time.monotonic() - began:5.0f} s  {cell.name:36} {system.name:12} {figures['ops_per_s']:10,.0f} IOPS "
                f"{figures['bytes_per_s'] / 1e6:8,.1f} MB/s  p50 {figures['p50_us']:8,.0f} us  "
                f"server {figures['server_cpu_us_per_op']:7.1f} us/op")
            return figures

        for cell in mode.cells:
            if deadline and time.monotonic() > deadline:
                notes.append(f"{cell.name}: the time of this mode was over")
                continue
            try:
                results[cell] = rounds_of(cell, systems, mode, measure_one, deadline)
            except ruler.Failed as reason:
                failed += 1
                notes.append(f"{cell.name}: FAILED: {reason}")
                say(f"{cell.name}: FAILED: {reason}")
        if not arguments.no_extras:
            limits += floor.disk(work, 1 if arguments.mode == "quick" else 3) if mode.extras else []
            limits += floor.wire(14710, 1 if arguments.mode == "quick" else 3)
        if mode.extras and not arguments.no_extras:
            native = [system for system in systems if not isinstance(system, servers.CenoteDaemon)]
            files = compare.Cells(work, 0.5, 10_000)
            whole["small_count"] = files.small_count
            for key, work_of in (("small_files", rest.small_files), ("cross_check", rest.cross_check)):
                say(f"{time.monotonic() - began:5.0f} s  {key}")
                whole[key] = rest.in_turns(lambda one, work_of=work_of: work_of(one, files), native, 3)
            for key, work_of in (("reopen", rest.reopen), ("memory", rest.memory)):
                whole[key] = {}
                for system in native:
                    say(f"{time.monotonic() - began:5.0f} s  {key} {system.name}")
                    whole[key][system.name] = work_of(system)
            daemon = next(system for system in native if isinstance(system, servers.Cenote))
            say(f"{time.monotonic() - began:5.0f} s  copy {daemon.name}")
            whole["copy"] = rest.copy_of_a_write(diskspd, daemon, credentials[daemon.name], mode.seconds)
    finally:
        for system in systems:
            system.stop()
        servers.remove_tree(work)
    text = report.write(out, heading(arguments, mode.seconds, commit), mode.cells, results, limits, whole, notes)
    print(text)
    say(f"{out}/report.md  ({time.monotonic() - began:.0f} s)")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
