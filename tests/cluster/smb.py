"""A small client of SMB 3.0.2: one connection, one request at a time, signed, every wait bounded.

It shares no code with the server, and knows nothing of retries: a request that was not answered raises `Lost`, and whether it took effect is
not known then. Section numbers are those of MS-SMB2.
"""
import hashlib, hmac, os, socket, struct, time

import spnego
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.cmac import CMAC

NEGOTIATE, SESSION_SETUP, TREE_CONNECT, CREATE, CLOSE, READ, WRITE, LOCK = 0, 1, 3, 5, 6, 8, 9, 10
PENDING, MORE_PROCESSING = 0x103, 0xC0000016
SIGNED = 0x8
NOT_FOUND, END_OF_FILE = 0xC0000034, 0xC0000011
# Dispositions of a create (2.2.13).
OPEN, MAKE, OPEN_OR_MAKE = 1, 2, 3
WRITE_THROUGH = 1
DELETE_ON_CLOSE = 0x1000
HEADER = struct.Struct("<4sHHIHHIIQIIQ16s")
# Of a create and of the credits that it takes along: one request is under way at a time, and none has more than 64 KiB.
CREDITS = 16


class Refused(Exception):
    """The server answered with an error."""

    def __init__(self, status):
        super().__init__(f"status 0x{status:08X}")
        self.status = status


class Lost(Exception):
    """There is no answer: the connection broke, or the time is over. It is of no use any more."""


class Connection:
    """A session on a connection of its own. `seconds` bounds each wait."""

    def __init__(self, address, user, password, seconds, client=None):
        self.address, self.seconds, self.client = address, seconds, client or os.urandom(16)
        self.message, self.session, self.tree, self.key = 0, 0, 0, None
        try:
            self.socket = socket.create_connection(address, seconds)
        except OSError as error:
            raise Lost(f"{address}: {error}") from error
        try:
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.negotiate()
            self.log_on(user, password)
        except (Lost, Refused):
            self.close()
            raise
        except Exception as error:
            self.close()
            raise Lost(f"{address}: {error!r}") from error

    def close(self):
        try:
            self.socket.close()
        except OSError:
            pass

    def signature(self, message):
        cmac = CMAC(AES(self.key))
        cmac.update(message[:48] + bytes(16) + message[64:])
        return cmac.finalize()

    def take(self, length, until):
        data = bytearray()
        while len(data) < length:
            left = until - time.monotonic()
            if left <= 0:
                raise Lost("no answer in time")
            self.socket.settimeout(left)
            piece = self.socket.recv(length - len(data))
            if not piece:
                raise Lost("the server closed the connection")
            data += piece
        return bytes(data)

    def call(self, command, body, seconds=None, accepted=(0,)):
        """The answer's body, behind its header; raises if its status is none of those accepted."""
        until = time.monotonic() + (seconds or self.seconds)
        number, self.message = self.message, self.message + 1
        flags = SIGNED if self.key else 0
        header = HEADER.pack(b"\xfeSMB", 64, 1, 0, command, CREDITS, flags, 0, number, 0, self.tree, self.session, bytes(16))
        message = header + body
        if self.key:
            message = message[:48] + self.signature(message) + message[64:]
        try:
            self.socket.settimeout(seconds or self.seconds)
            self.socket.sendall(struct.pack(">I", len(message)) + message)
            while True:
                length, = struct.unpack(">I", self.take(4, until))
                answer = self.take(length, until)
                fields = HEADER.unpack_from(answer)
                status, flags, found = fields[3], fields[6], fields[8]
                # Breaks have the number of no request (3.2.5.19); an interim answer says that another one comes (3.2.5.1.5).
                if found == number and status != PENDING:
                    break
        except OSError as error:
            raise Lost(f"{error}") from error
        if self.key and (not flags & SIGNED or self.signature(answer) != answer[48:64]):
            raise Lost("the answer is not signed as agreed")
        if status not in accepted:
            raise Refused(status)
        self.session = self.session or fields[11]
        self.answered_tree = fields[10]
        return answer[64:]

    def negotiate(self):
        # Large transfers and persistent handles.
        body = struct.pack("<HHHHI16sQH", 36, 1, 1, 0, 0x14, self.client, 0, 0x0302)
        answer = self.call(NEGOTIATE, body)
        at, length = struct.unpack_from("<HH", answer, 56)
        self.token = answer[at - 64:at - 64 + length]

    def log_on(self, user, password):
        context = spnego.client(user, password, hostname=self.address[0], service="cifs", protocol="ntlm",
                                options=spnego.NegotiateOptions.session_key)
        token = None
        while not context.complete:
            sent = context.step(token)
            if not sent:
                break
            body = struct.pack("<HBBIIHHQ", 25, 0, 1, 0, 0, 88, len(sent), 0) + sent
            answer = self.call(SESSION_SETUP, body, accepted=(0, MORE_PROCESSING))
            at, length = struct.unpack_from("<HH", answer, 4)
            token = answer[at - 64:at - 64 + length]
        # 3.1.4.2: one block of the counter mode of SP 800-108 with HMAC-SHA256.
        derived = b"\0\0\0\1" + b"SMB2AESCMAC\0" + b"\0" + b"SmbSign\0" + b"\0\0\0\x80"
        self.key = hmac.new(context.session_key[:16].ljust(16, b"\0"), derived, hashlib.sha256).digest()[:16]

    def connect_tree(self, share):
        path = rf"\\{self.address[0]}\{share}".encode("utf-16-le")
        self.tree = 0
        self.call(TREE_CONNECT, struct.pack("<HHHH", 9, 0, 72, len(path)) + path)
        self.tree = self.answered_tree

    def create(self, name, disposition=OPEN, options=0, sharing=7, contexts=()):
        """The file's id and its size in bytes. The open is shared with everyone for everything unless told otherwise; `self.contexts` has those of
        the answer."""
        path = name.encode("utf-16-le")
        padded, blob = path + bytes(-len(path) % 8), b""
        for at, (tag, data) in enumerate(contexts):
            item = struct.pack("<HHHHI", 16, 4, 0, 24, len(data)) + tag + bytes(4) + data
            item += bytes(-(4 + len(item)) % 8)
            blob += struct.pack("<I", 4 + len(item) if at + 1 < len(contexts) else 0) + item
        access, attributes = 0x0013019F, 0x80
        body = struct.pack("<HBBIQQIIIIIHHII", 57, 0, 0, 2, 0, 0, access, attributes, sharing, disposition, 0x40 | options, 120, len(path),
                           120 + len(padded) if blob else 0, len(blob))
        answer = self.call(CREATE, body + (padded + blob or b"\0"))
        size, = struct.unpack_from("<Q", answer, 48)
        at, length = struct.unpack_from("<II", answer, 80)
        self.contexts, at = {}, at - 64
        while length:
            following, name_at, name_length, _, data_at, data_length = struct.unpack_from("<IHHHHI", answer, at)
            self.contexts[answer[at + name_at:at + name_at + name_length]] = answer[at + data_at:at + data_at + data_length]
            if not following:
                break
            at += following
        return answer[64:80], size

    def lock(self, file, offset, length):
        """Exclusively, at once or not at all."""
        self.call(LOCK, struct.pack("<HHI16sQQII", 48, 1, 0, file, offset, length, 0x12, 0))

    def read(self, file, offset, length, seconds=None):
        answer = self.call(READ, struct.pack("<HBBIQ16sIIIHHB", 49, 0, 0, length, offset, file, 0, 0, 0, 0, 0, 0), seconds)
        at, found = answer[2] - 64, struct.unpack_from("<I", answer, 4)[0]
        return answer[at:at + found]

    def write(self, file, offset, data, seconds=None, flags=WRITE_THROUGH):
        """Durable when it is answered, by the flag."""
        body = struct.pack("<HHIQ16sIIHHI", 49, 112, len(data), offset, file, 0, 0, 0, 0, flags)
        answer = self.call(WRITE, body + data, seconds)
        done, = struct.unpack_from("<I", answer, 4)
        if done != len(data):
            raise Lost(f"{done} of {len(data)} bytes were written")

    def close_file(self, file):
        self.call(CLOSE, struct.pack("<HHI16s", 24, 0, 0, file))
