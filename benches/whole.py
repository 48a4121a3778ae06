"""Measurements that are no cells: small files and directories, a cross-check by smbclient, start-up and reopen, memory, the cost of a copy."""

import copy
import os
import signal
import statistics
import subprocess
import time

import cells as table
import ruler
import servers


def in_turns(work, systems, rounds):
    """`work(system)` gives figures by step; their medians by system and step, of rounds in which the systems take turns."""
    runs = {system.name: [] for system in systems}
    for number in range(rounds):
        for system in systems if number % 2 == 0 else reversed(systems):
            runs[system.name].append(work(system))
    return {
        name: {step: {key: statistics.median(run[step][key] for run in found) for key in figures} for step, figures in found[0].items()}
        for name, found in runs.items()
    }


def small_files(server, files):
    """Create, list, open and read, delete the small files of `compare.Cells`; figures by step."""
    steps = {"create": files.put_small, "list": files.list_small, "open and read": files.get_small, "delete": files.delete_small}
    return {name: step(server)[0] for name, step in steps.items()}


def cross_check(server, files):
    """The large file of `compare.Cells` put and got by smbclient, which is nobody's ruler here; bytes a second."""
    found = {}
    for name, step in (("put", files.put_large), ("get", files.get_large)):
        figures, _, size = step(server)
        found[name] = figures | {"bytes_per_s": size / figures["seconds"]}
    return found


def reopen(server):
    """Seconds from start to the first answer: after a clean stop, and after kill -9."""
    server.stop()
    began = time.monotonic()
    server.start()
    clean = time.monotonic() - began
    for one in servers.process_tree(server.process.pid):
        os.kill(one, signal.SIGKILL)
    server.process.wait()
    server.process = None
    began = time.monotonic()
    server.start()
    return {"after_stop_s": clean, "after_kill_s": time.monotonic() - began}


def memory(server, connections=16):
    """Proportional set size at rest, and what each idle connection with a session adds."""
    server.stop()
    server.start()
    time.sleep(1)
    rest = server.resident_bytes()
    clients = [
        subprocess.Popen(["smbclient", f"//127.0.0.1/{server.share}", "-p", str(server.port), "-U",
                          f"{server.user}%{server.password}"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
                         stderr=subprocess.DEVNULL)
        for _ in range(connections)
    ]
    try:
        time.sleep(4)
        if any(client.poll() is not None for client in clients):
            raise RuntimeError(f"{server.name} did not keep {connections} connections")
        return {"rest_bytes": rest, "connection_bytes": (server.resident_bytes() - rest) / connections}
    finally:
        for client in clients:
            client.stdin.close()
        for client in clients:
            client.wait()


def copy_of_a_write(binary, server, credentials, seconds, rounds=3):
    """Server CPU of 4 KiB write-through, 32 deep, on a volume of one copy and on one of two, by turns; the difference is one replica's."""
    cell = table.Cell("4k", "write-through", security="plain")
    runs = {}
    for layout in ("simple", "two-way-mirror"):
        shared = copy.copy(server)
        shared.share = f"bench-{layout}"
        server.make_share(shared.share, layout, "--size", "1GiB", "--fixed")
        ruler.make_file(binary, shared, credentials, *ruler.WARM)
        runs[layout] = (shared, [])
    try:
        for _ in range(rounds):
            for shared, figures in runs.values():
                figures.append(ruler.measure(binary, cell, shared, credentials, seconds)["server_cpu_us_per_op"])
    finally:
        for shared, _ in runs.values():
            server.cli("share", "delete", shared.share, "--yes", shared.share)
            server.cli("volume", "delete", shared.share, "--yes", shared.share)
    medians = {layout: statistics.median(figures) for layout, (_, figures) in runs.items()}
    return medians | {"replica": medians["two-way-mirror"] - medians["simple"]}


def answers_rdma(binary, server, credentials):
    """None where SMB Direct carries a read, else why it does not."""
    try:
        ruler.run(binary, ["-b4K", "-d1", "-W0", *ruler.common(server, credentials), ruler.target(server, ruler.WARM[0])], 30)
    except ruler.Failed as reason:
        return str(reason)
    return None
