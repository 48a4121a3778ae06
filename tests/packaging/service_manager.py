#!/usr/bin/env python3
"""Runs a server as systemd does, as far as the server can tell.

service_manager.py run LOG STDERR SOCKET CHROOT COMMAND...  with a notification socket, a watchdog of two seconds and a journal; each
    message goes to LOG behind its time. SOCKET is the socket's path below CHROOT. SIGTERM is passed on; the status is the command's.
service_manager.py freeze PID NAME SECONDS  stops one thread of a process for so long; prints from when to when.
service_manager.py loopback  brings the loopback device of this network namespace up, and gives its low ports to everybody.
"""
import ctypes
import fcntl
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time

WATCHDOG_S = 2
PTRACE_SEIZE, PTRACE_INTERRUPT, PTRACE_DETACH = 0x4206, 0x4207, 17
WALL = 0x40000000
SIOCSIFFLAGS, IFF_UP = 0x8914, 1


def run(log, stderr, path, root, *command):
    inbox = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    below = root + path
    if os.path.exists(below):
        os.unlink(below)
    inbox.bind(below)
    os.chmod(below, 0o666)

    def listen():
        with open(log, "a", buffering=1) as lines:
            while True:
                for message in inbox.recv(4096).decode().split("\n"):
                    if message:
                        lines.write(f"{time.monotonic():.3f} {message}\n")

    threading.Thread(target=listen, daemon=True).start()
    with open(stderr, "ab") as journal:
        stat = os.fstat(journal.fileno())
        environment = os.environ | {
            "NOTIFY_SOCKET": path,
            "WATCHDOG_USEC": str(WATCHDOG_S * 1_000_000),
            "JOURNAL_STREAM": f"{stat.st_dev}:{stat.st_ino}",
        }
        child = subprocess.Popen(command, stderr=journal, stdin=subprocess.DEVNULL, env=environment)
    signal.signal(signal.SIGTERM, lambda *_: child.terminate())
    status = child.wait()
    time.sleep(0.2)
    return status if status >= 0 else 128 - status


def freeze(pid, name, seconds):
    tasks = f"/proc/{pid}/task"
    for task in os.listdir(tasks):
        with open(f"{tasks}/{task}/comm") as comm:
            if comm.read().strip() == name:
                break
    else:
        sys.exit(f"no thread {name}")
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    for request in (PTRACE_SEIZE, PTRACE_INTERRUPT):
        if libc.ptrace(request, int(task), None, None) != 0:
            sys.exit(f"ptrace: {os.strerror(ctypes.get_errno())}")
    os.waitpid(int(task), WALL)
    began = time.monotonic()
    time.sleep(float(seconds))
    ended = time.monotonic()
    libc.ptrace(PTRACE_DETACH, int(task), None, None)
    print(f"{began:.3f} {ended:.3f}")


def loopback():
    with socket.socket() as any_socket:
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", IFF_UP))
    with open("/proc/sys/net/ipv4/ip_unprivileged_port_start", "w") as first:
        first.write("0")


sys.exit({"run": run, "freeze": freeze, "loopback": loopback}[sys.argv[1]](*sys.argv[2:]))
