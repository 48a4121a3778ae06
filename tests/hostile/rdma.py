"""The client of smb2.py over SMB Direct: software iWARP by hand, as tests/peers/rdma_peer.py speaks it. Dialect 3.0.2, nothing signed."""
import functools, os, select, socket, struct, sys, time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "peers"))
import rdma_peer
import smb2

DIALECT = 0x0302
CHANNEL_RDMA = 1
STEP = 1364 - 24
# The memory that the server is told of, and is never served from.
MEMORY = 0x11223344
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


def memory(length):
    return struct.pack("<QII", 0, MEMORY, length)


class Client(smb2.Client):
    """A client of SMB Direct that sends whole messages as its credits allow, and messages that it never ends."""

    def __init__(self, port, timeout=20, most=1364):
        try:
            self.direct = rdma_peer.Direct(port, most)
        except rdma_peer.Ended as error:
            raise smb2.Ended(str(error)) from None
        self.socket = self.direct.socket
        self.socket.settimeout(timeout)
        self.message_id = self.session = self.tree = 0
        self.key, self.signs = None, False

    def negotiate(self, dialects=(DIALECT,)):
        return super().negotiate(dialects)

    def send(self, message):
        try:
            while self.direct.credits < len(message) // STEP + 1:
                self.take_grants(2)
            self.direct.message(message)
        except (rdma_peer.Ended, AssertionError) as error:
            raise smb2.Ended(str(error)) from None

    def message(self):
        try:
            return self.direct.take()
        except rdma_peer.Ended as error:
            raise smb2.Ended(str(error)) from None

    def take_grants(self, seconds):
        """One segment, for what it grants, if one comes in time."""
        if not select.select([self.socket], [], [], seconds)[0]:
            raise TimeoutError("no credits")
        try:
            opcode, _, _, _, data = self.direct.segment()
        except rdma_peer.Ended as error:
            raise smb2.Ended(str(error)) from None
        if opcode in (rdma_peer.SEND, rdma_peer.SEND_INVALIDATE, 5, 6):
            self.direct.credits += struct.unpack_from("<H", data, 2)[0]
            self.direct.granted = max(self.direct.granted - 1, 0)

    def demand(self, file, offset, length):
        """A READ into memory of ours."""
        body = struct.pack("<HBBIQ", 49, 0x50, 0, length, offset) + file + struct.pack("<IIIHH", 0, CHANNEL_RDMA, 0, 112, 16) + memory(length)
        self.send(self.build(smb2.READ, body, charge=(length + 65535) // 65536))

    def begin(self, message, length):
        """Begins a message of `length` bytes: its first part, then zeroes as they are asked for."""
        self.direct.credits -= 1
        self.direct.send(rdma_peer.transfer(message, granted=self.grant(), remaining=length - len(message)))
        return length - len(message)

    def go_on(self, remaining, until):
        """Sends zeroes of the message, until so many bytes or no credits are left; what remains."""
        while remaining - STEP >= until and self.direct.credits > 1:
            self.direct.credits -= 1
            remaining -= STEP
            try:
                self.direct.raw(zeroes_fpdu(self.direct.msn[0], remaining, self.grant()))
            except rdma_peer.Ended as error:
                raise smb2.Ended(str(error)) from None
            self.direct.msn[0] += 1
        return remaining

    def whole(self, message, steps):
        """A message with so many times LONG_STEP zeroes behind it, as one transfer of many segments: one credit."""
        self.direct.credits -= 1
        head = struct.pack("<HHHHIII", 64, self.grant(), 0, 0, 0, 24, len(message) + steps * LONG_STEP) + bytes(4) + message
        msn = self.direct.msn[0]
        self.direct.msn[0] += 1
        parts = [rdma_peer.fpdu(rdma_peer.untagged(rdma_peer.SEND, 0, msn, head, last=False))]
        for n in range(steps):
            offset = len(head) + n * LONG_STEP
            ulpdu = rdma_peer.untagged(rdma_peer.SEND, 0, msn, b"", offset=offset, last=n == steps - 1)
            parts.append(before_zeroes(ulpdu, LONG_ZEROES, BY_BYTE_LONG))
        try:
            self.direct.raw(b"".join(parts))
        except rdma_peer.Ended as error:
            raise smb2.Ended(str(error)) from None

    def grant(self):
        granted, self.direct.granted = self.direct.RECEIVES - self.direct.granted, self.direct.RECEIVES
        return granted
