#!/usr/bin/env python3
"""DiskSpd beside fio (io_uring) on one file, interleaved: fio, DiskSpd, fio again, so that fio's difference to itself is known.

    benches/fio.py [--rounds N] [--seconds N] [--diskspd PATH] [--file PATH]

Prints a table: the median of each figure, and of the ratios within a round. CPU is user and system time per I/O: of DiskSpd's whole process,
of fio's job as fio tells it.
"""

import argparse
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent


def fio(file, block, depth, operation, seconds):
    out = subprocess.run(
        ["fio", "--name=ruler", f"--filename={file}", "--ioengine=io_uring", f"--rw=rand{operation}", f"--bs={block}k",
         f"--iodepth={depth}", "--direct=1", "--time_based", f"--runtime={seconds}", "--norandommap", "--registerfiles",
         "--fixedbufs", "--output-format=json"],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True, timeout=seconds + 60).stdout
    job = json.loads(out[out.index("{"):])["jobs"][0]
    side = job[operation]
    percentiles = side["clat_ns"]["percentile"]
    cpu_s = (job["usr_cpu"] + job["sys_cpu"]) / 100 * side["runtime"] / 1000
    return {"iops": side["iops"], "p50": percentiles["50.000000"] / 1000, "p99": percentiles["99.000000"] / 1000,
            "cpu": cpu_s * 1e6 / side["total_ios"]}


def diskspd(binary, file, block, depth, operation, seconds):
    process = subprocess.Popen(
        [binary, f"-b{block}K", f"-o{depth}", "-t1", "-r", "-n", "-w100" if operation == "write" else "-w0", "-Su", "-W0",
         f"-d{seconds}", "-L", str(file)],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    out = process.stdout.read()
    error = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        sys.exit(f"fio.py: diskspd failed: {error}")
    total = re.search(r"^total:\s+\d+ \|\s+(\d+) \|\s+[\d.]+ \|\s+([\d.]+)", out, re.M)
    row = lambda name: float(re.search(rf"^\s*{name} \|.*\|\s+([\d.]+)$", out, re.M)[1]) * 1000
    return {"iops": float(total[2]), "p50": row("50th"), "p99": row("99th"),
            "cpu": (usage.ru_utime + usage.ru_stime) * 1e6 / int(total[1])}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=3)
    parser.add_argument("--diskspd", type=pathlib.Path, default=REPOSITORY / "target/release/diskspd")
    parser.add_argument("--file", type=pathlib.Path, default=pathlib.Path("/var/tmp/diskspd-ruler.dat"))
    arguments = parser.parse_args()
    subprocess.run([arguments.diskspd, "-c256M", "-d1", "-W0", "-w0", arguments.file], check=True, stdout=subprocess.DEVNULL,
                   stderr=subprocess.DEVNULL)
    print("| cell | IOPS fio | DiskSpd | ratio | fio to itself | p50 us fio | DiskSpd | p99 us fio | DiskSpd | CPU us per I/O fio | DiskSpd |")
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    try:
        for block in (4, 64):
            for depth in (1, 32):
                for operation in ("read", "write"):
                    rounds = []
                    for _ in range(arguments.rounds):
                        first = fio(arguments.file, block, depth, operation, arguments.seconds)
                        ours = diskspd(arguments.diskspd, arguments.file, block, depth, operation, arguments.seconds)
                        second = fio(arguments.file, block, depth, operation, arguments.seconds)
                        rounds.append((first, ours, second))
                    median = lambda value: statistics.median(map(value, rounds))
                    both = lambda name: median(lambda one: (one[0][name] + one[2][name]) / 2)
                    own = lambda name: median(lambda one: one[1][name])
                    ratio = median(lambda one: one[1]["iops"] * 2 / (one[0]["iops"] + one[2]["iops"]))
                    noise = max(abs(one[2]["iops"] / one[0]["iops"] - 1) for one in rounds)
                    print(f"| {block}K {operation}, {depth} deep | {both('iops'):,.0f} | {own('iops'):,.0f} | {ratio:.2f} | ±{noise:.0%} | "
                          f"{both('p50'):.0f} | {own('p50'):.0f} | {both('p99'):.0f} | {own('p99'):.0f} | {both('cpu'):.2f} | {own('cpu'):.2f} |",
                          flush=True)
    finally:
        arguments.file.unlink(missing_ok=True)


if __name__ == "__main__":
    main()
