#!/usr/bin/env python3
"""Listen at the address of a server of a cluster that died, and hand the others' logons on: relay.py ADDRESS:PORT SECONDS NODE=ADDRESS:PORT ...

Each NODE that follows is a live server, to which what comes is handed on by turns, as it is or with its dialect changed to 3.0.2, which has no
hash of what was said. Last line: how many logons of nodes were handed on to another server, how many back to the server they came from, and how
many times one of those let somebody in.
"""
import socket, struct, sys, threading, time

MARK = b"CENOTE\x01\x01"
SESSION_SETUP, TREE_CONNECT, SUCCESS = 1, 3, 0
# 3.1.1 and 3.0.2 in the list of dialects.
NEWEST, WITHOUT_HASH = struct.pack("<H", 0x0311), struct.pack("<H", 0x0302)


class Relay:
    def __init__(self, servers):
        self.servers = servers
        # How often each client came: it is led to both servers by turns, and then to one with its dialect changed.
        self.turns = {}
        self.to_another = self.to_itself = self.let_in = 0
        self.lock = threading.Lock()

    def take(self, client):
        try:
            client.settimeout(2)
            # A NEGOTIATE, by its ClientGuid; it is read again below.
            guid = client.recv(96, socket.MSG_PEEK | socket.MSG_WAITALL)[80:96]
            turn = self.turns.get(guid, len(self.turns))
            self.turns[guid] = turn + 1
            (node, address), changes = self.servers[turn % 2], turn % 5 == 4
            server = socket.create_connection(address, 2)
        except OSError:
            return client.close()
        for source, target, watch in ((client, server, self.request(node, changes)), (server, client, self.answer)):
            threading.Thread(target=self.carry, args=(source, target, watch), daemon=True).start()

    def carry(self, source, target, watch):
        """Messages of one direction, each as `watch` says that it goes on."""
        source.settimeout(None)
        try:
            with source, target, source.makefile("rb") as stream:
                while head := stream.read(4):
                    message = stream.read(int.from_bytes(head[1:], "big"))
                    target.sendall(head + watch(message))
        except OSError:
            pass

    def request(self, node, changes):
        def watch(message):
            if changes and message[12:14] == bytes(2) and NEWEST in message[100:]:
                return message[:100] + message[100:].replace(NEWEST, WITHOUT_HASH, 1)
            at = message.find(MARK)
            if at >= 0:
                client = struct.unpack_from("<I", message, at + len(MARK) + 16)[0]
                with self.lock:
                    if client == node:
                        self.to_itself += 1
                    else:
                        self.to_another += 1
            return message

        return watch

    def answer(self, message):
        if message[:4] == b"\xfeSMB":
            status, command = struct.unpack_from("<IH", message, 8)
            if status == SUCCESS and command in (SESSION_SETUP, TREE_CONNECT):
                with self.lock:
                    self.let_in += 1
        return message


def address_of(text):
    host, port = text.rsplit(":", 1)
    return host, int(port)


def main():
    here, seconds, *nodes = sys.argv[1:]
    servers = [(int(node), address_of(address)) for node, address in (text.split("=") for text in nodes)]
    relay, end = Relay(servers), time.monotonic() + float(seconds)
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address_of(here))
        listener.listen(64)
        while (left := end - time.monotonic()) > 0:
            listener.settimeout(left)
            try:
                relay.take(listener.accept()[0])
            except TimeoutError:
                break
    print(f"handed on to another {relay.to_another}, back to itself {relay.to_itself}, let in {relay.let_in}", flush=True)


main()
