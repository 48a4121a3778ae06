#!/usr/bin/env python3
"""Blocks that a slow reader has in its window while others overwrite them and push them out of the server's cache.

usage: in_flight.py ADDRESS PORT SHARE USER PASSWORD SECONDS

Each 16 bytes of a block say which block it is, which page of it, and which version. A server that sends pages by reference and uses
them for something else before they were read shows other blocks, versions that nobody had written when the answer was made, or pages
that are mixed. Nothing of it may ever be seen. The last line printed is "in flight: N blocks read, N written, ...".
"""
import random
import struct
import sys
import threading
import time

import smb2

MIB, PAGE = 1 << 20, 4096
BLOCKS, PRESSURE_BLOCKS = 24, 96
PAGES = MIB // PAGE
STAMPS = PAGE // 16


def block_bytes(block, version):
    return b"".join(struct.pack("<IIQ", block, page, version) * STAMPS for page in range(PAGES))


class Load:
    def __init__(self, address, port, share, user, password, seconds):
        self.place, self.share, self.user = (address, port), share, user
        self.key = smb2.response_key(user, password)
        self.deadline = time.monotonic() + seconds
        # By block: the version that was given out last, and the last one that was acknowledged.
        self.issued, self.acknowledged = [0] * BLOCKS, [0] * BLOCKS
        self.read = self.written = self.torn = 0
        self.faults = []

    def client(self, window=0):
        return smb2.Client(self.place, timeout=60, window=window).ready(self.user, self.key, self.share)

    def goes_on(self):
        return time.monotonic() < self.deadline and not self.faults

    def prepare(self):
        with self.client() as client:
            file = client.create("blocks", disposition=smb2.OVERWRITE_IF)
            for block in range(BLOCKS):
                client.write(file, block * MIB, block_bytes(block, 0))

    def write(self, owned):
        """Overwrites blocks of its own, since only their writer knows the order of their versions."""
        with self.client() as client:
            file = client.create("blocks")
            while self.goes_on():
                block = random.choice(owned)
                self.issued[block] += 1
                client.write(file, block * MIB, block_bytes(block, self.issued[block]))
                self.acknowledged[block] = self.issued[block]
                self.written += 1

    def press(self):
        """Fills the cache with other blocks."""
        with self.client() as client:
            file = client.create("pressure", disposition=smb2.OVERWRITE_IF)
            at = 0
            while self.goes_on():
                client.write(file, at % PRESSURE_BLOCKS * MIB, block_bytes(BLOCKS + at % PRESSURE_BLOCKS, at))
                client.read(file, random.randrange(at % PRESSURE_BLOCKS + 1) * MIB, MIB)
                at += 1

    def take_slowly(self, window, hot):
        """Asks for more than it takes, and checks all of it. `hot`: of few blocks, again and again."""
        with self.client(window) as client:
            file = client.create("blocks")
            while self.goes_on():
                asked = {}
                for _ in range(12):
                    block = random.randrange(3 if hot else BLOCKS)
                    asked[client.message_id] = block, self.acknowledged[block]
                    client.send(client.build(smb2.READ, smb2.read_body(file, block * MIB, MIB), charge=16))
                time.sleep(random.choice((0, 0.02, 0.1, 0.3)))
                for _ in range(12):
                    answer = client.answer().expect("READ")
                    block, oldest = asked[answer.message_id]
                    at, _, count = struct.unpack_from("<BBI", answer.body, 2)
                    self.check(block, oldest, memoryview(answer.message)[at:at + count])

    def check(self, block, oldest, data):
        newest, versions = self.issued[block], set()
        if len(data) != MIB:
            return self.faults.append(f"block {block}: {len(data)} bytes")
        for page in range(PAGES):
            bytes_of_page = data[page * PAGE:(page + 1) * PAGE]
            is_block, is_page, version = struct.unpack_from("<IIQ", bytes_of_page)
            versions.add(version)
            if (is_block, is_page) != (block, page) or not oldest <= version <= newest:
                return self.faults.append(
                    f"block {block} page {page}: it holds block {is_block} page {is_page} version {version}, wanted version {oldest} to {newest}")
            if bytes_of_page != struct.pack("<IIQ", block, page, version) * STAMPS:
                return self.faults.append(f"block {block} page {page}: it is mixed")
        self.torn += len(versions) > 1
        self.read += 1

    def run(self):
        self.prepare()
        work = [(self.write, list(range(0, BLOCKS, 2))), (self.write, list(range(1, BLOCKS, 2))), (self.press,),
                (self.take_slowly, 0, False), (self.take_slowly, 0, True), (self.take_slowly, 65536, False)]

        def guarded(function, *arguments):
            try:
                function(*arguments)
            except Exception as error:  # pylint: disable=broad-except
                self.faults.append(f"{function.__name__}: {error!r}")

        threads = [threading.Thread(target=guarded, args=one) for one in work]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for fault in self.faults[:8]:
            print(fault)
        print(f"in flight: {self.read} blocks read, {self.written} written, {self.torn} answers of two versions")
        return 1 if self.faults or not self.read or not self.written else 0


if __name__ == "__main__":
    address, port, share, user, password, seconds = sys.argv[1:]
    sys.exit(Load(address, int(port), share, user, password, float(seconds)).run())
