"""SMB2 over TCP for the tests: frames, messages and NTLMv2, which share no code with the server. Section numbers are those of MS-SMB2.

`Client` does as it likes: it checks, orders and bounds nothing that a peer could leave out. It speaks dialect 2.1 unless told otherwise: that has
credits for large messages, and signatures by HMAC-SHA256, which Python's own library computes fast. `Connection` is an honest client of 3.x.
"""
import hashlib, hmac, os, socket, struct, sys, time

NEGOTIATE, SESSION_SETUP, LOGOFF, TREE_CONNECT, TREE_DISCONNECT, CREATE, CLOSE, FLUSH, READ, WRITE = range(10)
LOCK, IOCTL, CANCEL, ECHO, QUERY_DIRECTORY, CHANGE_NOTIFY, QUERY_INFO, SET_INFO, OPLOCK_BREAK = range(10, 19)
COMMANDS = (
    "NEGOTIATE SESSION_SETUP LOGOFF TREE_CONNECT TREE_DISCONNECT CREATE CLOSE FLUSH READ WRITE LOCK IOCTL CANCEL ECHO "
    "QUERY_DIRECTORY CHANGE_NOTIFY QUERY_INFO SET_INFO OPLOCK_BREAK"
).split()

SUCCESS, PENDING, MORE_PROCESSING_REQUIRED = 0x00000000, 0x00000103, 0xC0000016
END_OF_FILE, NOT_FOUND = 0xC0000011, 0xC0000034

FLAG_RESPONSE, FLAG_RELATED, FLAG_SIGNED, FLAG_REPLAY = 1, 4, 8, 0x20000000
# CreateDisposition, CreateOptions and oplock levels (2.2.13).
SUPERSEDE, OPEN, CREATE_NEW, OPEN_IF, OVERWRITE, OVERWRITE_IF = range(6)
DIRECTORY_FILE, NON_DIRECTORY_FILE, DELETE_ON_CLOSE = 0x1, 0x40, 0x1000
OPLOCK_NONE, OPLOCK_BATCH = 0, 9
ALL_ACCESS, GENERIC_READ, CHANGE_ACCESS = 0x001F01FF, 0x00120089, 0x001301BF
# Capabilities of a client (2.2.3).
LEASING, LARGE_MTU, PERSISTENT_HANDLES, DIRECTORY_LEASING = 0x02, 0x04, 0x10, 0x20
# A flag of WRITE (2.2.21), and flags of a lock's element (2.2.26.1).
WRITE_THROUGH, LOCK_EXCLUSIVE, LOCK_AT_ONCE = 1, 2, 0x10
NOBODY = b"\xff" * 16
HEADER_BYTES = 64


# Prints the status of each answer to standard error.
TRACE = False


class Ended(ConnectionError):
    """The server has ended the connection, or it is of no use any more."""


class Refused(Exception):
    """An answer with a status that was not hoped for."""

    def __init__(self, what, status):
        super().__init__(f"{what}: status {status:#010x}")
        self.status = status


# --- NTLM (MS-NLMP) ---------------------------------------------------------------------------------------------------------


def md4(data):
    """RFC 1320: hashlib has it no longer where OpenSSL keeps it away."""
    def turn(value, by):
        value &= 0xFFFFFFFF
        return (value << by | value >> 32 - by) & 0xFFFFFFFF

    rounds = (
        (lambda x, y, z: x & y | ~x & z, 0, range(16), (3, 7, 11, 19)),
        (lambda x, y, z: x & y | x & z | y & z, 0x5A827999, [n % 4 * 4 + n // 4 for n in range(16)], (3, 5, 9, 13)),
        (lambda x, y, z: x ^ y ^ z, 0x6ED9EBA1, (0, 8, 4, 12, 2, 10, 6, 14, 1, 9, 5, 13, 3, 11, 7, 15), (3, 9, 11, 15)),
    )
    state = [0x67452301, 0xEFCDAB89, 0x98BADCFE, 0x10325476]
    padded = data + b"\x80" + bytes(-(len(data) + 9) % 64) + struct.pack("<Q", len(data) * 8)
    for at in range(0, len(padded), 64):
        words = struct.unpack_from("<16I", padded, at)
        a, b, c, d = state
        for mix, constant, order, shifts in rounds:
            for step, word in enumerate(order):
                a, b, c, d = d, turn(a + mix(b, c, d) + words[word] + constant, shifts[step % 4]), b, c
        state = [x + y & 0xFFFFFFFF for x, y in zip(state, (a, b, c, d))]
    return struct.pack("<4I", *state)


def wide(text):
    return text.encode("utf-16-le")


def response_key(user, password):
    """NTOWFv2, of a user without a domain."""
    return hmac.digest(md4(wide(password)), wide(user.upper()), "md5")


# UNICODE | REQUEST_TARGET | SIGN | NTLM | ALWAYS_SIGN | EXTENDED_SESSION_SECURITY | TARGET_INFO | 128. No key exchange:
# the session key is then the base key.
NTLM_FLAGS = 0x00000001 | 0x4 | 0x10 | 0x200 | 0x8000 | 0x00080000 | 0x00800000 | 0x20000000
NTLM_NEGOTIATE = b"NTLMSSP\0" + struct.pack("<II", 1, NTLM_FLAGS) + bytes(24)


def ntlm_authenticate(challenge, user, key):
    """The AUTHENTICATE message that answers a CHALLENGE, and the session key."""
    nonce, (length, _, at) = challenge[24:32], struct.unpack_from("<HHI", challenge, 40)
    target = challenge[at:at + length]
    now = (int(time.time()) + 11644473600) * 10_000_000
    blob = b"\1\1" + bytes(6) + struct.pack("<Q", now) + os.urandom(8) + bytes(4) + target + bytes(4)
    proof = hmac.digest(key, nonce + blob, "md5")
    contents = [bytes(24), proof + blob, b"", wide(user), b"", b""]
    fields, at = b"", 88
    for content in contents:
        fields += struct.pack("<HHI", len(content), len(content), at)
        at += len(content)
    message = b"NTLMSSP\0" + struct.pack("<I", 3) + fields + struct.pack("<I", NTLM_FLAGS) + bytes(24)
    return message + b"".join(contents), hmac.digest(key, proof, "md5")


# --- Messages ---------------------------------------------------------------------------------------------------------------


def header(command, message_id=0, session=0, tree=0, credits=1, charge=1, flags=0, following=0):
    """The header of a request (2.2.1.2)."""
    return struct.pack("<4sHHIHHIIQIIQ16s", b"\xfeSMB", 64, charge, 0, command, credits, flags, following, message_id, 0, tree,
                       session, b"")


def frame(message):
    """A frame of TCP: the length, and the message (2.1)."""
    return struct.pack(">I", len(message)) + message


def negotiate_body(dialects, capabilities=0, guid=None):
    listed, context_at, context = struct.pack(f"<{len(dialects)}H", *dialects), 0, b""
    if 0x0311 in dialects:
        # 2.2.3.1.1: SHA-512, and a salt.
        listed += bytes(-(HEADER_BYTES + 36 + len(listed)) % 8)
        context_at, context = HEADER_BYTES + 36 + len(listed), struct.pack("<HHIHHH", 1, 38, 0, 1, 32, 1) + os.urandom(32)
    fixed = struct.pack("<HHHHI16sIHH", 36, len(dialects), 1, 0, capabilities, guid or os.urandom(16), context_at, bool(context), 0)
    return fixed + listed + context


def session_setup_body(token):
    return struct.pack("<HBBIIHHQ", 25, 0, 1, 0, 0, HEADER_BYTES + 24, len(token), 0) + token


def tree_connect_body(path):
    path = wide(path)
    return struct.pack("<HHHH", 9, 0, HEADER_BYTES + 8, len(path)) + path


def create_contexts(*contexts):
    """Create contexts (2.2.13.2), each (name, data)."""
    packed = b""
    for at, (name, data) in enumerate(contexts, 1):
        name_bytes, is_last = len(name) + -len(name) % 8, at == len(contexts)
        one = struct.pack("<HHHHI", 16, len(name), 0, 16 + name_bytes if data else 0, len(data)) + name.ljust(name_bytes, b"\0") + data
        one += b"" if is_last else bytes(-(4 + len(one)) % 8)
        packed += struct.pack("<I", 0 if is_last else 4 + len(one)) + one
    return packed


def contexts_of(body):
    """The data of the contexts in a CREATE's answer (2.2.14), by name."""
    at, length = struct.unpack_from("<II", body, 80)
    contexts, following = {}, length
    at -= HEADER_BYTES
    while following:
        following, name_at, name_length, _, data_at, data_length = struct.unpack_from("<IHHHHI", body, at)
        contexts[body[at + name_at:at + name_at + name_length]] = body[at + data_at:at + data_at + data_length]
        at += following
    return contexts


def create_body(name, access=ALL_ACCESS, disposition=OPEN_IF, options=0, oplock=OPLOCK_NONE, contexts=b"", share=7):
    name = wide(name) if isinstance(name, str) else name
    name_at = HEADER_BYTES + 56
    padding = bytes(-len(name) % 8) if contexts else b""
    contexts_at = name_at + len(name) + len(padding) if contexts else 0
    fixed = struct.pack("<HBBIQQIIIIIHHII", 57, 0, oplock, 2, 0, 0, access, 0x80, share, disposition, options, name_at, len(name),
                        contexts_at, len(contexts))
    return fixed + (name + padding + contexts or b"\0")


def close_body(file_id):
    return struct.pack("<HHI", 24, 0, 0) + file_id


def flush_body(file_id):
    return struct.pack("<HHI", 24, 0, 0) + file_id


def read_body(file_id, offset, length):
    return struct.pack("<HBBIQ", 49, 0x50, 0, length, offset) + file_id + struct.pack("<IIIHHB", 0, 0, 0, 0, 0, 0)


def write_body(file_id, offset, data, flags=0):
    return struct.pack("<HHIQ", 49, HEADER_BYTES + 48, len(data), offset) + file_id + struct.pack("<IIHHI", 0, 0, 0, 0, flags) + data


def lock_body(file_id, elements, sequence=0):
    packed = b"".join(struct.pack("<QQII", offset, length, flags, 0) for offset, length, flags in elements)
    return struct.pack("<HHI", 48, len(elements), sequence) + file_id + packed


def ioctl_body(file_id, code, data, answer_bytes=65536):
    at = HEADER_BYTES + 56
    return struct.pack("<HHI", 57, 0, code) + file_id + struct.pack("<IIIIIIII", at, len(data), 0, at, 0, answer_bytes, 1, 0) + data


def query_directory_body(file_id, pattern, answer_bytes=65536, level=37, flags=1):
    pattern = wide(pattern) if isinstance(pattern, str) else pattern
    return struct.pack("<HBBI", 33, level, flags, 0) + file_id + struct.pack("<HHI", HEADER_BYTES + 32, len(pattern), answer_bytes) + pattern


def query_info_body(file_id, kind, level, data=b"", answer_bytes=65536, additional=0):
    at = HEADER_BYTES + 40
    return struct.pack("<HBBIHHIII", 41, kind, level, answer_bytes, at, 0, len(data), additional, 0) + file_id + data


def set_info_body(file_id, kind, level, data, additional=0):
    return struct.pack("<HBBIHHI", 33, kind, level, len(data), HEADER_BYTES + 32, 0, additional) + file_id + data


def entries_of(data):
    """The entries of a list in which each begins with how many bytes later the next one does (MS-FSCC 2.4)."""
    entries = []
    while data:
        following = struct.unpack_from("<I", data)[0]
        entries.append(data[:following] if following else data)
        data = data[following:] if following else b""
    return entries


class Answer:
    """One response: its header's fields, and the body."""

    def __init__(self, message):
        if len(message) < HEADER_BYTES or message[:4] != b"\xfeSMB":
            raise AssertionError(f"no SMB2 message: {message[:16].hex()}")
        (_, _, _, self.status, self.command, self.credits, self.flags, self.following, self.message_id, _, self.tree, self.session,
         _) = struct.unpack_from("<4sHHIHHIIQIIQ16s", message)
        self.message, self.body = message, message[HEADER_BYTES:self.following or None]

    def expect(self, what, *wanted):
        if self.status not in (wanted or (SUCCESS,)):
            raise Refused(what, self.status)
        return self

    def buffer(self):
        """What a QUERY_DIRECTORY, QUERY_INFO or CHANGE_NOTIFY asked for."""
        at, length = struct.unpack_from("<HI", self.body, 2)
        return self.message[at:at + length]


class Peer:
    """One TCP connection to the server, from the address that is chosen. `window`: bytes of its receive buffer, 0 the kernel's own choice."""

    # By time.monotonic(): when what is received now has to be there, beside the timeout of each wait.
    until = None

    def __init__(self, address, source="", timeout=20, window=0):
        self.address, self.socket = address, socket.socket()
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if window:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, window)
        self.socket.settimeout(timeout)
        self.socket.bind((source, 0))
        try:
            self.socket.connect(address)
        except OSError:
            self.socket.close()
            raise

    def raw(self, data):
        try:
            self.socket.sendall(data)
        except ConnectionError as error:
            raise Ended(str(error)) from None

    def send(self, message):
        self.raw(frame(message))

    def bytes(self, count):
        data = bytearray(count)
        view, at = memoryview(data), 0
        while at < count:
            if self.until is not None:
                self.socket.settimeout(max(self.until - time.monotonic(), 0.001))
            try:
                received = self.socket.recv_into(view[at:])
            except ConnectionError as error:
                raise Ended(str(error)) from None
            if received == 0:
                raise Ended("end of stream")
            at += received
        return bytes(data)

    def message(self):
        (length,) = struct.unpack(">I", self.bytes(4))
        if length >> 24:
            raise AssertionError(f"what comes next is no frame: {length:#x}")
        return self.bytes(length)

    def close(self):
        self.socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Client(Peer):
    """A connection that can negotiate, log on and connect a share, then send whatever it likes."""

    message_id = session = tree = dialect = 0
    key, signs = None, False
    # The hash of what was said before the session had a key (3.2.5.2), of a single logon.
    preauth = bytes(64)

    def build(self, command, body, charge=1, flags=0, credits=8192, following=0, session=None, tree=None):
        message = header(command, self.message_id, self.session if session is None else session,
                         self.tree if tree is None else tree, credits, charge, flags, following) + body
        self.message_id += charge
        return self.sign(message) if self.signs and self.key else message

    def sign(self, message):
        flags = struct.unpack_from("<I", message, 16)[0] | FLAG_SIGNED
        message = message[:16] + struct.pack("<I", flags) + message[20:]
        return message[:48] + self.signature(message) + message[64:]

    def signature(self, message):
        """The signature that the message should have (3.1.4.1)."""
        message = message[:48] + bytes(16) + message[64:]
        if self.dialect < 0x0300:
            return hmac.digest(self.key, message, "sha256")[:16]
        # Python's own library has no AES: only clients that sign by it need another one.
        from cryptography.hazmat.primitives.ciphers.algorithms import AES
        from cryptography.hazmat.primitives.cmac import CMAC
        cmac = CMAC(AES(self.key))
        cmac.update(message)
        return cmac.finalize()

    def related(self, requests, related=True):
        """Requests, each (command, body), as one message; the second and later ones go on with the first's file."""
        built = []
        for at, (command, body) in enumerate(requests):
            padding = b"" if at == len(requests) - 1 else bytes(-len(body) % 8)
            following = HEADER_BYTES + len(body) + len(padding) if at < len(requests) - 1 else 0
            built.append(self.build(command, body + padding, flags=FLAG_RELATED if related and at else 0, following=following))
        return b"".join(built)

    def answer(self):
        """The next answer that is not an interim one."""
        while (answer := Answer(self.message())).status == PENDING or answer.command == OPLOCK_BREAK:
            pass
        return answer

    def answers(self):
        """The answers in the next message, interim ones too."""
        message = self.message()
        while message:
            answer = Answer(message)
            yield answer
            message = message[answer.following:] if answer.following else b""

    def call(self, command, body, **fields):
        message = self.build(command, body, **fields)
        self.send(message)
        answer = self.answer()
        if command in (NEGOTIATE, SESSION_SETUP):
            is_last = command == SESSION_SETUP and answer.status == SUCCESS
            for said in [message] if is_last else [message, answer.message]:
                self.preauth = hashlib.sha512(self.preauth + said).digest()
        if TRACE:
            print(f"    {COMMANDS[command]} {len(body)} bytes: {answer.status:#010x}", file=sys.stderr)
        return answer

    def negotiate(self, dialects=(0x0210,), capabilities=0, guid=None):
        answer = self.call(NEGOTIATE, negotiate_body(dialects, capabilities, guid)).expect("NEGOTIATE")
        self.dialect, self.capabilities = struct.unpack_from("<H18xI", answer.body, 4)
        return answer

    def challenge(self, token=NTLM_NEGOTIATE):
        """The first half of a logon; the CHALLENGE."""
        self.tree = 0
        answer = self.call(SESSION_SETUP, session_setup_body(token), session=0).expect("SESSION_SETUP", MORE_PROCESSING_REQUIRED)
        self.session = answer.session
        at, length = struct.unpack_from("<HH", answer.body, 4)
        return answer.message[at:at + length]

    def log_on(self, user, key):
        """Logs on with the user's response key; the status."""
        token, session_key = ntlm_authenticate(self.challenge(), user, key)
        answer = self.call(SESSION_SETUP, session_setup_body(token))
        if answer.status == SUCCESS:
            # 3.1.4.2: one block of the counter mode of SP 800-108 with HMAC-SHA256.
            purpose = b"SMBSigningKey\0\0" + self.preauth if self.dialect == 0x0311 else b"SMB2AESCMAC\0\0SmbSign\0"
            derived = hmac.digest(session_key, b"\0\0\0\1" + purpose + b"\0\0\0\x80", "sha256")[:16]
            self.key = session_key if self.dialect < 0x0300 else derived
        return answer.status

    def connect_share(self, share):
        path = rf"\\{self.address[0]}\{share}"
        self.tree = self.call(TREE_CONNECT, tree_connect_body(path), tree=0).expect(f"TREE_CONNECT {share}").tree

    def ready(self, user, key, share):
        """Negotiates, logs on, connects the share."""
        self.negotiate()
        status = self.log_on(user, key)
        if status != SUCCESS:
            raise Refused("logon", status)
        self.connect_share(share)
        return self

    def create(self, name, **options):
        """The file's identifier; `contexts` has those of the answer."""
        body = self.call(CREATE, create_body(name, **options)).expect(f"CREATE {name!r:.80}").body
        self.contexts = contexts_of(body)
        return body[64:80]

    def read(self, file_id, offset, length, **fields):
        charge = (length + 65535) // 65536
        answer = self.call(READ, read_body(file_id, offset, length), charge=charge, **fields).expect("READ")
        at, _, count = struct.unpack_from("<BBI", answer.body, 2)
        return answer.message[at:at + count]

    def write(self, file_id, offset, data, flags=0, **fields):
        charge = (len(data) + 65535) // 65536
        answer = self.call(WRITE, write_body(file_id, offset, data, flags), charge=charge, **fields).expect("WRITE")
        if (written := struct.unpack_from("<I", answer.body, 4)[0]) != len(data):
            raise Ended(f"{written} of {len(data)} bytes were written")

    def flush(self, file_id):
        self.call(FLUSH, flush_body(file_id)).expect("FLUSH")

    def lock(self, file_id, offset, length):
        """Exclusively, at once or not at all."""
        self.call(LOCK, lock_body(file_id, [(offset, length, LOCK_EXCLUSIVE | LOCK_AT_ONCE)])).expect("LOCK")

    def close_file(self, *file_ids):
        for file_id in file_ids:
            self.call(CLOSE, close_body(file_id)).expect("CLOSE")


class Connection(Client):
    """A session of dialect 3.x on a connection of its own: one request at a time, signed, each answered within `seconds`, its signature verified.

    It knows nothing of retries: a request without such an answer raises an OSError, `Ended` or a timeout. Whether it took effect is not known then, and
    the connection is of no use any more."""

    signs = True

    def __init__(self, address, user, password, seconds, guid=None, dialect=0x0302, capabilities=LARGE_MTU | PERSISTENT_HANDLES):
        super().__init__(address, timeout=seconds)
        self.seconds = seconds
        try:
            self.negotiate((dialect,), capabilities, guid)
            if status := self.log_on(user, response_key(user, password)):
                raise Refused("logon", status)
        except BaseException:
            self.close()
            raise

    def call(self, command, body, seconds=None, **fields):
        self.until, number = time.monotonic() + (seconds or self.seconds), self.message_id
        self.socket.settimeout(seconds or self.seconds)
        answer = super().call(command, body, **fields)
        if answer.message_id != number:
            raise Ended(f"an answer to request {answer.message_id}, where {number} waits")
        return answer

    def message(self):
        answer = Answer(super().message())
        # Neither interim answers nor breaks are signed (3.3.4.1.1).
        signs = self.key and answer.status != PENDING and answer.command != OPLOCK_BREAK
        if signs and not (answer.flags & FLAG_SIGNED and self.signature(answer.message) == answer.message[48:64]):
            raise Ended("the answer is not signed as agreed")
        return answer.message

    def create(self, name, disposition=OPEN, options=0, **more):
        """The open is shared with everyone for everything unless told otherwise."""
        return super().create(name, access=CHANGE_ACCESS, disposition=disposition, options=NON_DIRECTORY_FILE | options, **more)

    def write(self, file_id, offset, data, flags=WRITE_THROUGH, **fields):
        """Durable when it is answered, by the flag."""
        super().write(file_id, offset, data, flags, **fields)
