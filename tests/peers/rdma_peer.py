"""iWARP and SMB Direct by hand: a peer that says what it is told to, right or wrong (RFC 5044, 5041, 5040, 6581; MS-SMBD)."""
import socket
import struct
import threading
import time

REQUEST, REPLY = b"MPA ID Req Frame", b"MPA ID Rep Frame"
WRITE, READ_REQUEST, READ_RESPONSE, SEND, SEND_INVALIDATE, TERMINATE = 0, 1, 2, 3, 4, 7
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


class Ended(Exception):
    """The connection was ended by the server."""


class Peer:
    """An iWARP connection in RDMA mode."""

    def __init__(self, port, start=True):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=10)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.msn = {0: 1, 1: 1, 2: 1}
        self.terminate = None
        # Takes nothing more of what the server sends.
        self.is_deaf = False
        self.lock = threading.Lock()
        if start:
            self.raw(mpa_request())
            head = self.exactly(20)
            assert head[:16] == REPLY and not head[16] & 0x20, head
            self.exactly(struct.unpack(">H", head[18:])[0])

    def raw(self, data):
        try:
            self.socket.sendall(data)
        except OSError as error:
            raise Ended(str(error)) from error

    def exactly(self, count):
        data = b""
        while len(data) < count:
            try:
                more = self.socket.recv(count - len(data))
            except TimeoutError:
                raise
            except OSError as error:
                raise Ended(str(error)) from error
            if not more:
                raise Ended("closed")
            data += more
        return data

    def post(self, ulpdu):
        with self.lock:
            self.raw(fpdu(ulpdu))

    def send(self, data):
        """One Send of one segment."""
        with self.lock:
            self.raw(fpdu(untagged(SEND, 0, self.msn[0], data)))
            self.msn[0] += 1

    def segment(self):
        """The next segment: (opcode, STag, offset, last, data), of an untagged one (opcode, queue, MSN, last, data)."""
        while self.is_deaf:
            time.sleep(0.1)
        length = struct.unpack(">H", self.exactly(2))[0]
        ulpdu = self.exactly(length)
        self.exactly(-(2 + length) % 4 + 4)
        last, opcode = bool(ulpdu[0] & 0x40), ulpdu[1] & 0xF
        if ulpdu[0] & 0x80:
            stag, to = struct.unpack(">IQ", ulpdu[2:14])
            return opcode, stag, to, last, ulpdu[14:]
        _, queue, msn, _ = struct.unpack(">IIII", ulpdu[2:18])
        if opcode == TERMINATE:
            word = struct.unpack(">I", ulpdu[18:22])[0]
            self.terminate = (word >> 28, word >> 24 & 0xF, word >> 16 & 0xFF)
            raise Ended(f"Terminate {self.terminate}")
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

    def close(self):
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
        self.enough = threading.Condition()
        # Reads of our memory that the server asks for: (sink STag, sink offset, size, source STag, source offset).
        self.on_read = lambda *read: None

    def message(self, data):
        """A whole message."""
        step = self.most - 24
        for at in range(0, len(data), step):
            piece = data[at : at + step]
            with self.enough:
                # The last credit is for a message that grants: the first one does.
                assert self.enough.wait_for(lambda: self.credits > 0, 10), "no credits"
                self.credits -= 1
                granted, self.granted = self.RECEIVES - self.granted, self.RECEIVES
            self.send(transfer(piece, granted=granted, remaining=len(data) - at - len(piece)))

    def take(self):
        """The next whole message of the server; answers its reads meanwhile."""
        while True:
            opcode, stag, to, _, data = self.segment()
            if opcode == READ_REQUEST:
                self.on_read(*struct.unpack(">IQIIQ", data))
            elif opcode in (SEND, SEND_INVALIDATE, 5, 6):
                _, granted, _, _, remaining, offset, length = struct.unpack("<HHHHIII", data[:20])
                with self.enough:
                    self.credits += granted
                    self.granted = max(self.granted - 1, 0)
                    self.enough.notify()
                if length:
                    self.parts += data[offset : offset + length]
                    if not remaining:
                        whole, self.parts = self.parts, b""
                        return whole


class Transport:
    """Takes the place of a TCP connection in smbprotocol."""

    MAX_SIZE = 1 << 20
    last = None

    def __init__(self, server, port, timeout=None):
        self.port, self.connected, self.peer = port, False, None

    def connect(self):
        self.peer, self.connected = Direct(self.port), True
        self.peer.socket.settimeout(20)
        Transport.last = self.peer

    def close(self):
        if self.connected:
            self.connected = False
            try:
                self.peer.socket.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def send(self, header):
        self.peer.message(bytes(header))

    def recv(self, timeout):
        try:
            return self.peer.take()
        except (Ended, OSError, TimeoutError):
            self.connected = False
            return None
