#!/usr/bin/env python3
"""A network that loses packets: a TUN device here, one in a namespace of its own, and between them this process, which drops some.

usage: lossy.py LOSS_PERCENT HERE THERE COMMAND [ARGUMENT ...]

HERE and THERE are the addresses of both ends. Runs the command in the other namespace; exit status is the command's, 77 if no device
can be made. Needs root.
"""
import ctypes
import fcntl
import os
import random
import select
import socket
import struct
import subprocess
import sys

TUNSETIFF, IFF_TUN, IFF_NO_PI, CLONE_NEWNET = 0x400454CA, 0x0001, 0x1000, 0x40000000
MTU = 9000


def open_device(name, address, peer):
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TUN | IFF_NO_PI))
    for arguments in (["address", "add", address, "peer", peer, "dev", name], ["link", "set", name, "mtu", str(MTU), "txqueuelen", "1000", "up"]):
        subprocess.run(["ip", *arguments], check=True)
    return device


def run_there(channel, here, there, command):
    if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNET) != 0:
        os._exit(77)
    try:
        socket.send_fds(channel, [b"x"], [open_device("lossy1", there, here)])
    except (OSError, subprocess.CalledProcessError) as error:
        print(error)
        os._exit(77)
    os.execvp(command[0], command)


def forward(devices, loss, child):
    """Until the child has ended; its status."""
    passed = lost = 0
    while True:
        readable, _, _ = select.select(devices, [], [], 0.1)
        for device in readable:
            other = devices[1 - devices.index(device)]
            for _ in range(64):
                try:
                    packet = os.read(device, MTU + 64)
                except BlockingIOError:
                    break
                if random.random() < loss:
                    lost += 1
                    continue
                try:
                    os.write(other, packet)
                    passed += 1
                except OSError:
                    lost += 1
        if not readable:
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                print(f"{passed} packets passed, {lost} were lost")
                return os.waitstatus_to_exitcode(status)


def main():
    loss, here, there, command = float(sys.argv[1]) / 100, sys.argv[2], sys.argv[3], sys.argv[4:]
    ours, theirs = socket.socketpair()
    try:
        device = open_device("lossy0", here, there)
    except (OSError, subprocess.CalledProcessError) as error:
        print(error)
        return 77
    child = os.fork()
    if child == 0:
        run_there(theirs, here, there, command)
    theirs.close()
    _, received, _, _ = socket.recv_fds(ours, 1, 1)
    if not received:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    os.set_blocking(received[0], False)
    return forward([device, received[0]], loss, child)


if __name__ == "__main__":
    sys.exit(main())
