"""One measurement: DiskSpd against a server, its text report read back, and what both sides' processors spent."""

import os
import re
import subprocess
import time

import servers

# Name and size: one that fits a server's cache, and one that is read cold.
WARM = ("warm.dat", 128 << 20)
COLD = ("cold.dat", 2 << 30)


def touched_bytes(seconds):
    """Bytes that a cold read fills within a measurement, at most: 1 GiB a second, up to the size of its file, and as much as a server takes beside."""
    return min(seconds << 30, COLD[1]) + (1 << 30)


class Failed(RuntimeError):
    """DiskSpd ended with an error, or its report lacks what is read from it."""


def run(binary, arguments, timeout):
    """Runs DiskSpd; returns its report and its own CPU seconds."""
    process = subprocess.Popen([binary, *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               text=True)
    try:
        out, error = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise Failed(f"diskspd did not end within {timeout} s: {' '.join(map(str, arguments))}") from None
    if process.returncode != 0:
        raise Failed(f"diskspd ended with {process.returncode}: {' '.join(map(str, arguments))}: {(error or out)[-400:]}")
    return out


def target(server, name):
    return f"smb://{server.host}:{server.data_port}/{server.share}/{name}"


def common(server, credentials):
    return ["--smb-credentials", str(credentials), "--smb-transport", server.transport, *([] if server.crc else ["--smb-no-crc"])]


def make_file(binary, server, credentials, name, size):
    """A file of random bytes, all of it written."""
    path = target(server, name)
    run(binary, [f"-c{size >> 20}M", "-b1M", "-o8", "-s", "-w100", "-Zr", "-d1", "-W0", *common(server, credentials),
                 "--yes-overwrite", path, path], 300)


def warm(binary, server, credentials):
    """Reads the whole of the small file, so that a server that caches has it."""
    path = target(server, WARM[0])
    run(binary, ["-b1M", "-o4", "-s", "-w0", "-d1", "-W0", *common(server, credentials), path], 60)


def arguments(cell, server, credentials, seconds):
    """DiskSpd's command line of a cell."""
    path = target(server, (COLD if cell.cold else WARM)[0])
    given = [f"-b{cell.block_bytes >> 10}K", f"-o{cell.depth}", f"-t{cell.connections}", f"-w{cell.write_percent}", "-L",
             f"-d{seconds}", "-W0", "-C0", "-z1"]
    given += ["-s"] if cell.block == "1m" and cell.connections == 1 else ["-r"]
    if cell.operation == "write-through":
        given.append("-Sw")
    if cell.security == "signed":
        given.append("--smb-sign")
    if cell.security == "encrypted":
        given.append("--smb-seal")
    if cell.writes:
        given += ["--yes-overwrite", path]
    return given + common(server, credentials) + [path]


def parse(report):
    """Bytes, operations, seconds and the latencies in microseconds by percentile name, of all I/O in a text report."""
    seconds = re.search(r"^actual test time:\s+([\d.]+)s", report, re.M)
    total = re.search(r"^Total IO\n.*?^total:\s+(\d+) \|\s+(\d+) \|", report, re.M | re.S)
    table = re.search(r"^Total latency distribution:\n(.*?)(?:\n\n|\Z)", report, re.M | re.S)
    if not (seconds and total and table):
        raise Failed("diskspd's report has no totals")
    rows = re.findall(r"^\s*(\S+) \|.*\|\s+([\d.]+)\s*$", table[1], re.M)
    return {
        "bytes": int(total[1]),
        "operations": int(total[2]),
        "seconds": float(seconds[1]),
        "latency_us": {name: round(float(value) * 1000, 3) for name, value in rows},
    }


def measure(binary, cell, server, credentials, seconds):
    """The figures of one run of a cell. Server and client CPU are those of the run alone; there is no warm-up in it."""
    if cell.cold:
        server.make_cold()
        servers.touch_memory(touched_bytes(seconds))
    if cell.writes:
        server.flush_to_disk()
    disk = servers.disk_bytes_written()
    server_cpu, client_cpu = server.cpu_seconds(), sum(os.times()[2:4])
    began = time.monotonic()
    report = run(binary, arguments(cell, server, credentials, seconds), seconds + 60)
    elapsed = time.monotonic() - began
    server_cpu, client_cpu = server.cpu_seconds() - server_cpu, sum(os.times()[2:4]) - client_cpu
    figures = parse(report)
    if figures["operations"] == 0:
        raise Failed(f"{cell.name} on {server.name}: no operation ended within {seconds} s")
    if cell.writes:
        server.flush_to_disk()
    operations = figures["operations"]
    return {
        "bytes_per_s": figures["bytes"] / figures["seconds"],
        "ops_per_s": operations / figures["seconds"],
        "p50_us": figures["latency_us"]["50th"],
        "p99_us": figures["latency_us"]["99th"],
        "latency_us": figures["latency_us"],
        "server_cpu_us_per_op": server_cpu * 1e6 / operations,
        "client_cpu_us_per_op": client_cpu * 1e6 / operations,
        "written_per_byte": (
            (servers.disk_bytes_written() - disk) / (figures["bytes"] * cell.write_percent / 100) if cell.writes else None
        ),
        "elapsed_s": elapsed,
    }
