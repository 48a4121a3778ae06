#!/usr/bin/env python3
"""Measures the effect of each option that smbd's administrators set: smbd with one option beside smbd as it is shipped, by turns.

usage: sudo python3 benches/tuning.py [--rounds N] [--seconds N] [CELL-NAME-PART ...]

Printed of each option and cell are the medians of each round's ratio of throughput and of server CPU an operation, by smbd as shipped.
The options that help are what `servers.SmbdTuned` has. Needs root, as ./bench does.
"""

import argparse
import pathlib
import statistics
import tempfile

import cells as table
import network
import processors
import ruler
import servers

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent
# Share options; a name that begins with `vfs` needs the package samba-vfs-modules.
OPTIONS = {
    "sendfile": ((), ("use sendfile = yes", "aio read size = 0")),
    "writes in place": ((), ("aio write size = 0",)),
    "no threads": ((), ("aio read size = 0", "aio write size = 0")),
    "receivefile": (("min receivefile size = 16384",), ()),
    "socket options": (("socket options = TCP_NODELAY IPTOS_LOWDELAY",), ()),
    # It is on as shipped; DiskSpd's sessions have one connection each.
    "no multichannel": (("server multi channel support = no",), ()),
    "vfs_io_uring": ((), ("vfs objects = io_uring",)),
    "smbd-tuned": (servers.SmbdTuned.tuned_global, servers.SmbdTuned.tuned_share),
}
CELLS = [
    table.Cell("4k", "read-cached", 1), table.Cell("4k", "read-cached"), table.Cell("64k", "read-cached"), table.Cell("1m", "read-cached"),
    table.Cell("4k", "write"), table.Cell("64k", "write"), table.Cell("1m", "write"),
]


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=1, help="length of one measurement")
    parser.add_argument("--protection", choices=table.SECURITIES, default="plain", help="of the sessions (default plain)")
    parser.add_argument("cells", nargs="*", metavar="CELL-NAME-PART")
    return parser.parse_args()


def start(work, binary, systems):
    """Starts smbd once as shipped and once with each option; those that do not start are named and left out."""
    given = {"as shipped": ((), ())} | OPTIONS
    for number, (name, (lines, share)) in enumerate(given.items()):
        system = servers.Smbd(work / str(number), 14850 + number)
        system.tuned_global, system.tuned_share, system.label = lines, share, name
        credentials = work / f"{number}.credentials"
        try:
            system.start()
            credentials.touch(mode=0o600)
            credentials.write_text(f"username={system.user}\npassword={servers.PASSWORD}\n")
            ruler.make_file(binary, system, credentials, *ruler.WARM)
        except (RuntimeError, ruler.Failed) as reason:
            system.stop()
            print(f"{name}: left out: {reason}")
            continue
        system.credentials = credentials
        systems.append(system)


def main():
    servers.end_by_signal_as_by_hand()
    arguments = parse_arguments()
    network.enter("cubic")
    processors.part()
    binary, systems = REPOSITORY / "target/release/diskspd", []
    chosen = [cell for cell in table.under(arguments.protection, CELLS) if not arguments.cells or any(part in cell.name for part in arguments.cells)]
    with tempfile.TemporaryDirectory(prefix="tuning-") as work:
        try:
            start(pathlib.Path(work), binary, systems)
            for cell in chosen:
                runs = {system.label: [] for system in systems}
                for number in range(arguments.rounds):
                    for system in systems if number % 2 == 0 else reversed(systems):
                        runs[system.label].append(ruler.measure(binary, cell, system, system.credentials, arguments.seconds))
                print(cell.name)
                for label, own in runs.items():
                    ratios = [
                        statistics.median(run[figure] / max(base[figure], 1e-9) for run, base in zip(own, runs["as shipped"]))
                        for figure in ("ops_per_s", "server_cpu_us_per_op")
                    ]
                    middle = statistics.median(run["ops_per_s"] for run in own)
                    print(f"  {label:16} {middle:9,.0f}/s  throughput {ratios[0]:.2f}  server CPU {ratios[1]:.2f}", flush=True)
        finally:
            for system in systems:
                system.stop()


if __name__ == "__main__":
    main()
