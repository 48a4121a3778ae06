"""A network of the run's own: loopback with the congestion control that is asked for, whatever this machine sets."""

import ctypes
import os
import socket
import subprocess

CLONE_NEWNET = 0x4000_0000


class Refused(RuntimeError):
    """This system gives no network namespace, or does not have the congestion control."""


def enter(congestion):
    """Moves this process, and what it starts from now on, into a new network namespace. All TCP connections there have this congestion
    control: it stands at the routes of loopback, since a namespace has its machine's default and may set only what that allows to all."""
    library = ctypes.CDLL(None, use_errno=True)
    if library.unshare(CLONE_NEWNET) != 0:
        raise Refused(f"no network namespace: {os.strerror(ctypes.get_errno())}")
    for arguments in (
        ["link", "set", "lo", "up"],
        ["route", "replace", "table", "local", "local", "127.0.0.0/8", "dev", "lo", "proto", "kernel", "scope", "host",
         "src", "127.0.0.1", "congctl", congestion],
        ["route", "replace", "table", "local", "local", "127.0.0.1", "dev", "lo", "proto", "kernel", "scope", "host",
         "src", "127.0.0.1", "congctl", congestion],
    ):
        done = subprocess.run(["ip", *arguments], capture_output=True, text=True)
        if done.returncode != 0:
            raise Refused(f"ip {' '.join(arguments)}: {done.stderr.strip()}")
    has = congestion_control()
    if has != congestion:
        raise Refused(f"connections on loopback have the congestion control {has}, not {congestion}")


def congestion_control():
    """Returns the congestion control of a connection on loopback."""
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()) as client:
        return client.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(b"\0").decode()
