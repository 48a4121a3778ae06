#!/usr/bin/env python3
"""Builds and transports by turns: what a change gave, and how SMB Direct compares with our own TCP, cell by cell.

usage: sudo python3 benches/turns.py [--build NAME=FOLDER ...] [--kinds tcp,nocrc,crc] [--rounds N] [--seconds N]
                                 [--protection signed] [--quick] [CELL-NAME-PART ...]

Each build is a folder with `cenote` and `diskspd` (default: target/release) and has a daemon of its own. A round measures every build by every
kind once, the next round in the opposite order. Printed of each are the medians of operations a second and of the processor time of server
and client by operation, and the medians of each round's ratio, by TCP of the same build and by the first build, with the quartiles of
throughput in brackets; --quick takes the cells of ./bench --quick instead of those of ./bench rdma, by TCP. The second daemon of a comparison may do some hundredths better or worse for its place alone: a build against itself
tells how much. Runs in a network namespace of its own, servers and clients on processors of their own, as ./bench does.
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
FIGURES = ("ops_per_s", "server_cpu_us_per_op", "client_cpu_us_per_op")
FIRST_PORT = 14801


class Contender:
    """A build, reached in one way."""

    def __init__(self, build, kind, daemon, diskspd, credentials):
        self.build, self.kind, self.diskspd, self.credentials = build, kind, diskspd, credentials
        self.server = daemon if kind == "tcp" else servers.CenoteRdma(daemon, crc=kind == "crc")
        self.runs = []

    def measure(self, cell, seconds):
        if not cell.cold and not cell.writes:
            ruler.warm(self.diskspd, self.server, self.credentials)
        self.runs.append(ruler.measure(self.diskspd, cell, self.server, self.credentials, seconds))

    def median(self, figure):
        return statistics.median(run[figure] for run in self.runs)

    def ratios(self, other, figure):
        return [run[figure] / base[figure] for run, base in zip(self.runs, other.runs)]

    def beside(self, other):
        """Throughput with its quartiles, server and client CPU by another's of the same rounds."""
        throughput, server, client = (self.ratios(other, figure) for figure in FIGURES)
        low, _, high = statistics.quantiles(throughput, n=4) if len(throughput) > 1 else throughput * 3
        medians = [statistics.median(ratios) for ratios in (throughput, server, client)]
        return "{:.2f} [{:.2f} {:.2f}] server {:.2f} client {:.2f}".format(medians[0], low, high, *medians[1:]), medians


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", action="append", help="NAME=FOLDER with cenote and diskspd; several: all of them by turns")
    parser.add_argument("--kinds", default="tcp,nocrc,crc", help="tcp, nocrc, crc (SMB Direct without and with), or some of them")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--seconds", type=int, default=1, help="length of one measurement")
    parser.add_argument("--protection", choices=table.SECURITIES, help="of the sessions (default plain, with --quick signed)")
    parser.add_argument("--quick", action="store_true", help="the cells of ./bench --quick, by TCP")
    parser.add_argument("--congestion-control", default="cubic")
    parser.add_argument("--processors", choices=["apart", "shared"], default="apart")
    parser.add_argument("cells", nargs="*", metavar="CELL-NAME-PART", help="default: the 36 of ./bench rdma")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.kinds = "tcp"
    return arguments


def cells_of(arguments):
    given = (arguments.protection,) if arguments.protection else ()
    cells = table.quick(*given) if arguments.quick else table.direct(*given)
    return [cell for cell in cells if not arguments.cells or any(part in cell.name for part in arguments.cells)]


def tell(cell, contenders, by_first):
    """Prints a cell's lines; returns the ratios to TCP by contender, and adds those to the first build to `by_first`."""
    print(cell.name)
    by_tcp = {}
    for one in contenders:
        line = f"  {one.build} {one.kind:5} {one.median(FIGURES[0]):9,.0f}/s {one.median(FIGURES[1]):7.2f} us {one.median(FIGURES[2]):7.2f} us"
        tcp = next((other for other in contenders if other.build == one.build and other.kind == "tcp"), None)
        if tcp and tcp is not one:
            text, by_tcp[one.build, one.kind] = one.beside(tcp)
            line += f" | by TCP {text}"
        first = next(other for other in contenders if other.kind == one.kind)
        if first is not one:
            text, medians = one.beside(first)
            by_first.setdefault((one.build, one.kind), []).append(medians)
            line += f" | by {first.build} {text}"
        print(line, flush=True)
    return by_tcp


def summary(all_ratios, by_first):
    for (build, kind), ratios in by_first.items():
        throughput, server, client = (statistics.median(column) for column in zip(*ratios))
        print(f"{build} {kind} by the first build, medians of {len(ratios)} cells: throughput {throughput:.2f}, server CPU {server:.2f}, "
              f"client CPU {client:.2f}")
    for build, kind in sorted({key for ratios in all_ratios for key in ratios}):
        throughput, server, _ = zip(*(ratios[build, kind] for ratios in all_ratios if (build, kind) in ratios))

        def at_least(bound):
            return sum(round(ratio, 2) >= bound for ratio in throughput)

        def at_most(bound):
            return sum(round(ratio, 2) <= bound for ratio in server)

        print(f"{build} {kind} by TCP, of {len(throughput)} cells: throughput at least 0.95 in {at_least(0.95)}, 0.90 in {at_least(0.9)}, "
              f"0.85 in {at_least(0.85)}, median {statistics.median(throughput):.2f}; server CPU at most 1.1 in {at_most(1.1)}, "
              f"1.3 in {at_most(1.3)}, median {statistics.median(server):.2f}")


def main():
    servers.end_by_signal_as_by_hand()
    arguments = parse_arguments()
    network.enter(arguments.congestion_control)
    if arguments.processors == "apart":
        processors.part()
    builds = dict(build.split("=", 1) for build in arguments.build or [f"now={REPOSITORY / 'target/release'}"])
    cells = cells_of(arguments)
    daemons, contenders, all_ratios, by_first = [], [], [], {}
    with tempfile.TemporaryDirectory(prefix="turns-") as work:
        try:
            for nth, (build, folder) in enumerate(builds.items()):
                folder, port = pathlib.Path(folder), FIRST_PORT + 3 * nth
                daemon = servers.Cenote(folder / "cenote", pathlib.Path(work) / build, port, port + 1, rdma_port=port + 2)
                daemons.append(daemon)
                daemon.start()
                credentials = daemon.work / "credentials"
                credentials.touch(mode=0o600)
                credentials.write_text(f"username={daemon.user}\npassword={daemon.password}\n")
                ruler.make_file(folder / "diskspd", daemon, credentials, *ruler.WARM)
                ruler.warm(folder / "diskspd", daemon, credentials)
                if any(cell.cold for cell in cells):
                    ruler.make_file(folder / "diskspd", daemon, credentials, *ruler.COLD)
                contenders += [Contender(build, kind, daemon, folder / "diskspd", credentials) for kind in arguments.kinds.split(",")]
            for cell in cells:
                for one in contenders:
                    one.runs.clear()
                for number in range(arguments.rounds):
                    for one in contenders if number % 2 == 0 else reversed(contenders):
                        one.measure(cell, arguments.seconds)
                all_ratios.append(tell(cell, contenders, by_first))
            summary(all_ratios, by_first)
        finally:
            for daemon in daemons:
                daemon.stop()


if __name__ == "__main__":
    main()
