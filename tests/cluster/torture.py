"""Tortures a cluster of three servers under clients that keep histories (history.py), and prints what it measured.

usage: torture.py PART [--count N] [--seed N] --cenote BINARY --work DIR

  replica    servers other than the owner are killed, or stopped for 3 to 8 s: --count kills and --stops stops
  owner      the owner is killed: time to the first read and write that another one answers; then 1 GiB through two deaths
  frozen     the owner is stopped, and goes on after another server has taken over
  wire       tshark reads what the servers say to each other
  power      the power of all servers is cut at random moments (a binary with fault injection)
  short      one kill of a replica's server, one of the owner, one stop of the owner
  truth      nothing is asked meanwhile: how long it takes from a server's death, its stop or that of its etcd until all tell the same
  partition  frames between chosen servers are dropped, one way or both (root: network namespaces of its own)

What has to hold in all of them: each block of the files is a register that all clients see alike (no acknowledged write is lost, none is read
old, no two owners answer); files made or removed stay so; after a fault and after its end (after each fifth, if there are many) all servers that
reach each other tell the same of the cluster, byte by byte, and name those that do not answer; after the last event all copies are in sync and
identical, and health is clean.
Exit status 1 if something did not hold. `--keep` leaves the directory as it is.
"""
import argparse, os, pathlib, shutil, signal, sys

import parts
from cluster import Trouble


def main():
    parser = argparse.ArgumentParser(prog="torture.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=sorted(parts.ALL))
    parser.add_argument("--count", type=int, default=1, help="events, or rounds")
    parser.add_argument("--stops", type=int, default=0, help="with replica: stops beside the kills")
    parser.add_argument("--bytes", type=int, default=0, help="with owner: the size of a file that is put through two deaths")
    parser.add_argument("--seconds", type=float, default=8, help="with wire: how long")
    parser.add_argument("--kinds", nargs="*", help="with partition: of which kinds (see parts.py)")
    parser.add_argument("--volatile", action="store_true",
                        help="writes are not asked to be durable, on a share that promises none: losses that the checks have to find")
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(3), "little"))
    parser.add_argument("--cenote", type=pathlib.Path, required=True)
    parser.add_argument("--work", type=pathlib.Path, required=True)
    parser.add_argument("--keep", action="store_true")
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    print(f"{args.part}: seed {args.seed}", flush=True)
    part = parts.ALL[args.part]
    try:
        torture = part(args)
    except parts.Skipped as reason:
        print(f"skip    {args.part}: {reason}\n0 passed, 0 failed, 1 skipped")
        return 0
    try:
        torture.run()
    except Trouble as trouble:
        torture.fail(str(trouble))
    finally:
        torture.end()
    if not args.keep and not torture.failed:
        shutil.rmtree(args.work, ignore_errors=True)
    print(f"{torture.passed} passed, {torture.failed} failed")
    return 1 if torture.failed else 0


if __name__ == "__main__":
    def leave(number, _):
        raise SystemExit(128 + number)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, leave)
    sys.exit(main())
