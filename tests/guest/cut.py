#!/usr/bin/env python3
"""cut.py LISTEN TARGET BYTES: passes TCP on between loopback ports, and resets the first connection that has carried BYTES to the target.

Ends by itself after 15 minutes."""

import selectors
import socket
import struct
import sys
import time

listen_port, target_port, cut_after = (int(word) for word in sys.argv[1:4])
listener = socket.create_server(("127.0.0.1", listen_port))
selector = selectors.DefaultSelector()
selector.register(listener, selectors.EVENT_READ)
other = {}
carried = {}
cut = False


def close(end, reset=False):
    for one in (end, other.pop(end, None)):
        if one is None or one.fileno() < 0:
            continue
        other.pop(one, None)
        selector.unregister(one)
        if reset:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        one.close()


deadline = time.monotonic() + 900
while time.monotonic() < deadline:
    for key, _ in selector.select(1):
        end = key.fileobj
        if end is listener:
            client, _ = listener.accept()
            server = socket.create_connection(("127.0.0.1", target_port))
            for one in (client, server):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                selector.register(one, selectors.EVENT_READ)
            other[client], other[server] = server, client
            carried[client] = 0
            continue
        if end.fileno() < 0 or end not in other:
            continue
        try:
            data = end.recv(65536)
            if data:
                other[end].sendall(data)
        except OSError:
            data = b""
        if not data:
            close(end)
            continue
        if end in carried:
            carried[end] += len(data)
            if not cut and carried[end] >= cut_after:
                cut = True
                print("cut after", carried[end], "bytes", flush=True)
                close(end, reset=True)
