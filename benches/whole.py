"""What is not a cell: small files and directories, a cross-check by smbclient, start-up and reopen, memory."""

import os
import signal
import subprocess
import time

import ruler
import servers


def timed(server, work):
    cpu, began = server.cpu_seconds(), time.monotonic()
    work()
    return {"seconds": time.monotonic() - began, "server_cpu_s": server.cpu_seconds() - cpu}


def small_files(server, work, count):
    """Create, list, open and read, delete `count` files of 4 KiB by smbclient; figures by step."""
    source = work / "small"
    if not source.is_dir():
        source.mkdir()
        for number in range(count):
            (source / f"file{number:06}").write_bytes(os.urandom(4096))
    back = work / "back"
    back.mkdir(exist_ok=True)
    listed = []
    steps = {
        "create": lambda: servers.smbclient(server, f"mkdir s; cd s; lcd {source}; prompt off; mput *"),
        "list": lambda: listed.append(servers.smbclient(server, "cd s; ls")),
        "open and read": lambda: servers.smbclient(server, f"cd s; lcd {back}; prompt off; mget *"),
        "delete": lambda: servers.smbclient(server, "deltree s"),
    }
    figures = {name: timed(server, step) for name, step in steps.items()}
    found = sum("file" in line for line in listed[0].splitlines())
    if found != count:
        raise RuntimeError(f"{server.name} lists {found} of {count} files")
    servers.remove_tree(back)
    return figures


def cross_check(server, work, mib):
    """One large file put and got by smbclient, which is nobody's ruler here; bytes a second."""
    source, back = work / "large", work / "large.back"
    if not source.exists():
        with open(source, "wb") as file:
            for _ in range(mib):
                file.write(os.urandom(1 << 20))
    put = timed(server, lambda: servers.smbclient(server, f"put {source} large"))
    get = timed(server, lambda: servers.smbclient(server, f"get large {back}"))
    if source.read_bytes() != back.read_bytes():
        raise RuntimeError(f"{server.name} gave back other bytes than it was given")
    back.unlink()
    return {"put": put | {"bytes_per_s": (mib << 20) / put["seconds"]}, "get": get | {"bytes_per_s": (mib << 20) / get["seconds"]}}


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


def answers_rdma(binary, server, credentials):
    """None where SMB Direct carries a read, else why it does not."""
    name, _ = ruler.file_of_warm()
    try:
        ruler.run(binary, ["-b4K", "-d1", "-W0", *ruler.common(server, credentials), ruler.target(server, name)], 30)
    except ruler.Failed as reason:
        return str(reason)
    return None
