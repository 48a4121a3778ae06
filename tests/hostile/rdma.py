"""A client of SMB Direct whose messages are long, and never end."""
import functools, struct

import rdma_peer

STEP = 1364 - 24
ZEROES = bytes(STEP)


def advanced(crc, count):
    """Returns a CRC-32C register after `count` zero bytes."""
    for _ in range(count):
        crc = rdma_peer.TABLE[crc & 0xFF] ^ (crc >> 8)
    return crc


# Zeroes are sent by the hundred MiB: a register is linear in its bits, so that a whole transfer of them costs four look-ups.
BY_BYTE = [[advanced(byte << shift, STEP) for byte in range(256)] for shift in (0, 8, 16, 24)]


def skipped(crc, tables):
    return tables[0][crc & 255] ^ tables[1][crc >> 8 & 255] ^ tables[2][crc >> 16 & 255] ^ tables[3][crc >> 24]


# The same of longer segments, for messages that go as one transfer.
LONG_STEP = 24 * STEP
LONG_ZEROES = bytes(LONG_STEP)
BY_BYTE_LONG = [[functools.reduce(lambda crc, _: skipped(crc, BY_BYTE), range(23), crc) for crc in table] for table in BY_BYTE]


def before_zeroes(ulpdu, zeroes=ZEROES, tables=BY_BYTE):
    """The FPDU that begins so and goes on with zeroes."""
    front = struct.pack(">H", len(ulpdu) + len(zeroes)) + ulpdu
    padding = -(len(front) + len(zeroes)) % 4
    crc = skipped(rdma_peer.crc32c(front) ^ 0xFFFFFFFF, tables)
    return front + zeroes + bytes(padding) + struct.pack("<I", advanced(crc, padding) ^ 0xFFFFFFFF)


def zeroes_fpdu(msn, remaining, granted):
    """The FPDU of a Send with a transfer of STEP zeroes."""
    head = struct.pack("<HHHHIII", 64, granted, 0, 0, remaining, 24, STEP) + bytes(4)
    return before_zeroes(rdma_peer.untagged(rdma_peer.SEND, 0, msn, head))


class Client(rdma_peer.Client):
    """Sends messages that it never ends."""

    def begin(self, message, length):
        """Begins a message of `length` bytes: its first part, then zeroes as they are asked for."""
        self.direct.credits -= 1
        self.direct.send(rdma_peer.transfer(message, granted=self.direct.grant(), remaining=length - len(message)))
        return length - len(message)

    def go_on(self, remaining, until):
        """Sends zeroes of the message, until so many bytes or no credits are left; what remains."""
        while remaining - STEP >= until and self.direct.credits > 1:
            self.direct.credits -= 1
            remaining -= STEP
            self.direct.raw(zeroes_fpdu(self.direct.msn[0], remaining, self.direct.grant()))
            self.direct.msn[0] += 1
        return remaining

    def whole(self, message, steps):
        """A message with so many times LONG_STEP zeroes behind it, as one transfer of many segments: one credit."""
        self.direct.credits -= 1
        head = struct.pack("<HHHHIII", 64, self.direct.grant(), 0, 0, 0, 24, len(message) + steps * LONG_STEP) + bytes(4) + message
        msn = self.direct.msn[0]
        self.direct.msn[0] += 1
        parts = [rdma_peer.fpdu(rdma_peer.untagged(rdma_peer.SEND, 0, msn, head, last=False))]
        for n in range(steps):
            offset = len(head) + n * LONG_STEP
            ulpdu = rdma_peer.untagged(rdma_peer.SEND, 0, msn, b"", offset=offset, last=n == steps - 1)
            parts.append(before_zeroes(ulpdu, LONG_ZEROES, BY_BYTE_LONG))
        self.direct.raw(b"".join(parts))
