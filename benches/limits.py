"""The limits of the machine itself: the bare disk by fio, bare TCP by iperf3 and sockperf. The floor under every cell."""

import json
import re
import shutil
import subprocess
import time

import processors
import servers

FIO = [
    # name, block, operation, depth, extra
    ("disk 4 KiB random read, 1 deep", "4k", "randread", 1, []),
    ("disk 4 KiB random read, 32 deep", "4k", "randread", 32, []),
    ("disk 4 KiB random write, 32 deep", "4k", "randwrite", 32, []),
    ("disk 4 KiB random write with fdatasync, 1 deep", "4k", "randwrite", 1, ["--fdatasync=1"]),
    ("disk 64 KiB random read, 32 deep", "64k", "randread", 32, []),
    ("disk 1 MiB sequential read, 8 deep", "1m", "read", 8, []),
    ("disk 1 MiB sequential write, 8 deep", "1m", "write", 8, []),
]


def disk(work, seconds):
    """Rows of the bare file system under the servers' files, by fio with O_DIRECT and io_uring."""
    if not shutil.which("fio"):
        return [{"limit": "disk", "skipped": "fio is not installed"}]
    path = work / "fio.dat"
    base = ["fio", f"--filename={path}", "--size=1g", "--direct=1", "--ioengine=io_uring", "--output-format=json"]
    subprocess.run([*base, "--name=lay", "--rw=write", "--bs=1m", "--iodepth=8"], check=True, stdout=subprocess.DEVNULL)
    rows = []
    for name, block, operation, depth, extra in FIO:
        done = subprocess.run(
            [*base, "--name=cell", f"--rw={operation}", f"--bs={block}", f"--iodepth={depth}", "--time_based",
             f"--runtime={seconds}", *extra], check=True, capture_output=True, text=True)
        job = json.loads(done.stdout[done.stdout.index("{"):])["jobs"][0]
        side = job["write" if "write" in operation else "read"]
        percentiles = side["clat_ns"].get("percentile", {})
        row = {
            "limit": name,
            "bytes_per_s": side["bw_bytes"],
            "ops_per_s": side["iops"],
            "p50_us": percentiles.get("50.000000", 0) / 1000,
            "p99_us": percentiles.get("99.000000", 0) / 1000,
            "cpu_us_per_op": (job["usr_cpu"] + job["sys_cpu"]) / 100 * job["job_runtime"] * 1000 / max(side["total_ios"], 1),
        }
        if "--fdatasync=1" in extra:
            # A write is durable when its fdatasync is done: both make one operation.
            flush = job["sync"]["lat_ns"]
            row["p50_us"] += flush.get("percentile", {}).get("50.000000", flush["mean"]) / 1000
            row["p99_us"] += flush.get("percentile", {}).get("99.000000", flush["mean"]) / 1000
        rows.append(row)
    path.unlink()
    return rows


def wire(port, seconds):
    """Rows of loopback TCP alone: a stream by iperf3, 4 KiB there and back by sockperf."""
    rows = []
    if shutil.which("iperf3"):
        server = subprocess.Popen(["iperf3", "-s", "-1", "-B", "127.0.0.1", "-p", str(port)], stdout=subprocess.DEVNULL,
                                  preexec_fn=processors.as_server)
        try:
            time.sleep(0.3)
            done = subprocess.run(["iperf3", "-c", "127.0.0.1", "-p", str(port), "-t", str(seconds), "-J"], check=True,
                                  capture_output=True, text=True)
        finally:
            server.terminate()
            server.wait()
        rows.append({"limit": "TCP loopback, one stream (iperf3)",
                     "bytes_per_s": json.loads(done.stdout)["end"]["sum_received"]["bits_per_second"] / 8})
    else:
        rows.append({"limit": "TCP stream", "skipped": "iperf3 is not installed"})
    if shutil.which("sockperf"):
        server = subprocess.Popen(["sockperf", "server", "--tcp", "-i", "127.0.0.1", "-p", str(port + 1)],
                                  stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, preexec_fn=processors.as_server)
        try:
            servers.wait_for_port(port + 1, server, 10)
            done = subprocess.run(["sockperf", "ping-pong", "--tcp", "--full-rtt", "-i", "127.0.0.1", "-p", str(port + 1), "-m", "4096",
                                   "-t", str(seconds)], check=True, capture_output=True, text=True)
        finally:
            server.terminate()
            server.wait()
        found = {share: float(value)
                 for share, value in re.findall(r"percentile (50\.000|99\.000) =\s+([\d.]+)", done.stdout)}
        rows.append({"limit": "TCP loopback, 4 KiB there and back (sockperf)", "p50_us": found["50.000"],
                     "p99_us": found["99.000"], "ops_per_s": 1e6 / found["50.000"]})
    else:
        rows.append({"limit": "TCP round trip", "skipped": "sockperf is not installed"})
    return rows
