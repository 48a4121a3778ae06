"""iWARP and SMB Direct by hand: a peer that says what it is told to, right or wrong (RFC 5044, 5041, 5040, 6581; MS-SMBD)."""
import select
import socket
import struct

import smb2
from smb2 import Ended

REQUEST, REPLY = b"MPA ID Req Frame", b"MPA ID Rep Frame"
WRITE, READ_REQUEST, READ_RESPONSE, SEND, TERMINATE = 0, 1, 2, 3, 7
# With and without Solicited Event and Invalidate.
SENDS = (3, 4, 5, 6)
# The STag of memory of the client's that the server is told of.
MEMORY = 0x11223344
CHANNEL_RDMA = 1
TABLE = []
for n in range(256):
    for _ in range(8):
        n = (n >> 1) ^ (0x82F63B78 if n & 1 else 0)
    TABLE.append(n)


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


def fpdu(ulpdu, length=None):
    framed = struct.pack(">H", len(ulpdu) if length is None else length) + ulpdu
    framed += bytes(-len(framed) % 4)
    return framed + struct.pack("<I", crc32c(framed))


def untagged(opcode, queue, msn, data, offset=0, last=True, stag=0, ddp=0x01, rdmap=0x40):
    return struct.pack(">BBIIII", ddp | (0x40 if last else 0), rdmap | opcode, stag, queue, msn, offset) + data


def tagged(opcode, stag, to, data, last=True):
    return struct.pack(">BBIQ", 0x81 | (0x40 if last else 0), 0x40 | opcode, stag, to) + data


def mpa_request(key=REQUEST, flags=0x50, revision=2, private=struct.pack(">HH", 64, 64), length=None):
    return key + struct.pack(">BBH", flags, revision, len(private) if length is None else length) + private


class Peer(smb2.Peer):
    """An iWARP connection in RDMA mode."""

    def __init__(self, port, start=True):
        super().__init__(("127.0.0.1", port), timeout=10)
        self.msn = {0: 1, 1: 1, 2: 1}
        if start:
            self.raw(mpa_request())
            head = self.bytes(20)
            assert head[:16] == REPLY and not head[16] & 0x20, head
            self.bytes(struct.unpack(">H", head[18:])[0])

    def post(self, ulpdu):
        self.raw(fpdu(ulpdu))

    def send(self, data):
        """One Send of one segment."""
        self.post(untagged(SEND, 0, self.msn[0], data))
        self.msn[0] += 1

    def segment(self):
        """The next segment: (opcode, STag, offset, last, data), of an untagged one (opcode, queue, MSN, last, data)."""
        length = struct.unpack(">H", self.bytes(2))[0]
        ulpdu = self.bytes(length)
        self.bytes(-(2 + length) % 4 + 4)
        last, opcode = bool(ulpdu[0] & 0x40), ulpdu[1] & 0xF
        if ulpdu[0] & 0x80:
            stag, to = struct.unpack(">IQ", ulpdu[2:14])
            return opcode, stag, to, last, ulpdu[14:]
        _, queue, msn, _ = struct.unpack(">IIII", ulpdu[2:18])
        if opcode == TERMINATE:
            word = struct.unpack(">I", ulpdu[18:22])[0]
            raise Ended(f"Terminate {word >> 28, word >> 24 & 0xF, word >> 16 & 0xFF}")
        return opcode, queue, msn, last, ulpdu[18:]

    def ends(self, seconds=8):
        """Waits until the server ends it; how it did."""
        self.socket.settimeout(seconds)
        try:
            while True:
                self.segment()
        except Ended as ended:
            return str(ended)
        except TimeoutError:
            raise AssertionError("the connection goes on") from None

    def reset(self):
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()


def negotiate_request(oldest=0x100, newest=0x100, credits=64, send=1364, receive=1364, fragmented=1 << 20):
    return struct.pack("<HHHHIII", oldest, newest, 0, credits, send, receive, fragmented)


def transfer(data=b"", granted=0, requested=64, flags=0, remaining=0, offset=24, length=None):
    head = struct.pack("<HHHHIII", requested, granted, flags, 0, remaining, offset if data else 0, len(data) if length is None else length)
    return head + (bytes(4) + data if data else b"")


class Direct(Peer):
    """An SMB Direct connection, negotiated: whole messages both ways, within the credits of both ends."""

    RECEIVES = 64

    def __init__(self, port, most=1364):
        """`most`: bytes of a transfer that it may come to send at once."""
        super().__init__(port)
        self.send(negotiate_request(send=most))
        opcode, _, _, _, answer = self.segment()
        assert opcode == SEND and len(answer) == 32, (opcode, answer)
        (_, _, _, _, _, self.credits, status, _, _, self.most, _) = struct.unpack("<HHHHHHIIIII", answer)
        assert status == 0, hex(status)
        self.most = min(self.most, 1364) if self.most else 1364
        self.granted = 0
        self.parts = b""
        # Reads of our memory that the server asks for: (sink STag, sink offset, size, source STag, source offset).
        self.on_read = lambda *read: None

    def message(self, data):
        """A whole message."""
        step = self.most - 24
        for at in range(0, len(data), step):
            piece = data[at : at + step]
            # The last credit is for a message that grants: the first one does.
            assert self.credits > 0, "no credits"
            self.credits -= 1
            self.send(transfer(piece, granted=self.grant(), remaining=len(data) - at - len(piece)))

    def grant(self):
        """The receives that the server has not been granted yet; it is, from now on."""
        granted, self.granted = self.RECEIVES - self.granted, self.RECEIVES
        return granted

    def granted_by(self, data):
        """Counts the credits of a Send's data."""
        self.credits += struct.unpack_from("<H", data, 2)[0]
        self.granted = max(self.granted - 1, 0)

    def take(self):
        """The next whole message of the server; answers its reads meanwhile."""
        while True:
            opcode, stag, to, _, data = self.segment()
            if opcode == READ_REQUEST:
                self.on_read(*struct.unpack(">IQIIQ", data))
            elif opcode in SENDS:
                self.granted_by(data)
                remaining, offset, length = struct.unpack_from("<III", data, 8)
                if length:
                    self.parts += data[offset : offset + length]
                    if not remaining:
                        whole, self.parts = self.parts, b""
                        return whole


class Client(smb2.Client):
    """A client of dialect 3.0.2 by SMB Direct, which signs nothing: signed payload does not go by RDMA."""

    def __init__(self, port, timeout=20, most=1364):
        self.direct = Direct(port, most)
        self.socket, self.address = self.direct.socket, self.direct.address
        self.socket.settimeout(timeout)

    def negotiate(self, dialects=(0x0302,), **more):
        return super().negotiate(dialects, **more)

    def send(self, message):
        while self.direct.credits < len(message) // (self.direct.most - 24) + 1:
            self.take_grants(2)
        self.direct.message(message)

    def take_grants(self, seconds):
        """One segment, for what it grants, if one comes in time."""
        if not select.select([self.socket], [], [], seconds)[0]:
            raise TimeoutError("no credits")
        opcode, _, _, _, data = self.direct.segment()
        if opcode in SENDS:
            self.direct.granted_by(data)

    def message(self):
        return self.direct.take()

    def demand(self, file, offset, length):
        """A READ that the server has to place in memory of ours."""
        body = struct.pack("<HBBIQ", 49, 0x50, 0, length, offset) + file + struct.pack("<IIIHHQII", 0, CHANNEL_RDMA, 0, 112, 16, 0, MEMORY, length)
        self.send(self.build(smb2.READ, body, charge=(length + 65535) // 65536))

    def offer(self, file, length, at=0x5000):
        """A WRITE of bytes that the server has to fetch from memory of ours, from its offset `at` on."""
        body = struct.pack("<HHIQ", 49, 0, 0, 0) + file + struct.pack("<IIHHIQII", CHANNEL_RDMA, length, 112, 16, 0, at, MEMORY, length)
        self.send(self.build(smb2.WRITE, body, charge=(length + 65535) // 65536))
