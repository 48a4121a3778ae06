"""The adversary's scenarios, a generator for each.

It yields None once when it holds what it can hold; the harness then looks at the victim and at the server's memory, and lets it
go on. Before and after it may yield what is wrong with the server's answers, in words. Each scenario comes from an address of its
own, as what an address has done is held against it.
"""
import collections, contextlib, itertools, os, random, socket, struct, threading, time

import rdma
import smb2
from smb2 import Client, Ended, Peer, Refused

SCENARIOS = {}
PASSWORD = os.environ.get("PASSWORD", "")
KEYS = {}


class Scenario(collections.namedtuple("Scenario", "name title attack source memory_mib")):
    pass


def scenario(title, memory_mib=48):
    """`memory_mib`: what the server's memory may grow by."""
    def add(attack):
        name = attack.__name__.replace("_", "-")
        SCENARIOS[name] = Scenario(name, title, attack, f"127.0.1.{len(SCENARIOS) + 1}", memory_mib)
        return attack

    return add


def response_key(user):
    if user not in KEYS:
        KEYS[user] = smb2.response_key(user, PASSWORD)
    return KEYS[user]


class Target:
    """The server, as one scenario reaches it."""

    def __init__(self, server, source):
        self.server, self.address, self.source = server, ("127.0.0.1", server.port), source

    def peer(self, source=None, timeout=20):
        return Peer(self.address, source or self.source, timeout)

    def client(self, user="mallory", share="hostile", source=None, timeout=20):
        return Client(self.address, source or self.source, timeout).ready(user, response_key(user), share)

    def rdma_client(self, timeout=2, most=1364):
        """By SMB Direct, which knows no source but 127.0.0.1."""
        return rdma.Client(self.server.rdma, timeout, most).ready("mallory", response_key("mallory"), "hostile")

    def negotiated(self, source=None):
        client = Client(self.address, source or self.source)
        client.negotiate()
        return client


@contextlib.contextmanager
def held():
    """Connections that are closed at the end; adding one that the server does not take, or ends, is no error."""
    connections = []
    try:
        yield connections
    finally:
        for connection in connections:
            connection.close()


def attempt(connections, make):
    """Returns the result of `make`, kept among the connections; None if the server refuses or ends it."""
    try:
        made = make()
    except (OSError, Refused):
        return None
    connections.append(made)
    return made


def push(peer, data):
    """Sends as much as is taken."""
    with contextlib.suppress(OSError):
        peer.raw(data)


def drain(peer, seconds=0.0):
    """Reads and forgets what comes, until nothing has for so long."""
    peer.socket.settimeout(max(seconds, 0.001))
    with contextlib.suppress(OSError):
        while peer.socket.recv(1 << 20):
            pass
    peer.socket.settimeout(20)


# --- Nobody has logged on ---------------------------------------------------------------------------------------------------


def silence(target, sources, count):
    with held() as connections:
        for source in itertools.islice(itertools.cycle(sources), count):
            attempt(connections, lambda: target.peer(source))
        yield None


@scenario("5,000 silent connections of one address")
def silent(target):
    return silence(target, [target.source], 5000)


@scenario("5,000 silent connections of 100 addresses")
def silent_crowd(target):
    return silence(target, [f"127.0.9.{host}" for host in range(1, 101)], 5000)


@scenario("2,060 frames of 256 KiB announced, 28 bytes sent", memory_mib=64)
def partial_frames(target):
    announced = struct.pack(">I", 256 << 10) + smb2.header(smb2.NEGOTIATE)[:24]
    with held() as connections:
        for _ in range(2060):
            if peer := attempt(connections, target.peer):
                push(peer, announced)
        yield None


@scenario("2,060 frames of 256 KiB of 100 addresses, 28 bytes sent", memory_mib=64)
def partial_crowd(target):
    announced = struct.pack(">I", 256 << 10) + smb2.header(smb2.NEGOTIATE)[:24]
    with held() as connections:
        for source in itertools.islice(itertools.cycle(f"127.0.8.{host}" for host in range(1, 101)), 2060):
            if peer := attempt(connections, lambda: target.peer(source)):
                push(peer, announced)
        yield None


@scenario("frames of 256 KiB that come a byte at a time, 200 of them", memory_mib=64)
def slow_frames(target):
    with held() as connections:
        for _ in range(200):
            if peer := attempt(connections, target.peer):
                push(peer, struct.pack(">I", 256 << 10) + smb2.header(smb2.NEGOTIATE))
        for _ in range(20):
            for peer in connections:
                push(peer, b"\0")
            time.sleep(0.1)
        yield None


def half_logons_of(target, connections, count, token):
    """As many logons begun on each of `count` connections as the server takes, at most 128."""
    for _ in range(count):
        client = attempt(connections, target.negotiated)
        if not client:
            continue
        with contextlib.suppress(OSError):
            for _ in range(128):
                # A place that another client gives back is taken too.
                with contextlib.suppress(Refused):
                    client.challenge(token)


@scenario("75 connections of 128 half logons")
def half_logons(target):
    with held() as connections:
        half_logons_of(target, connections, 75, smb2.NTLM_NEGOTIATE)
        yield None


@scenario("20 connections of 128 half logons of 64 KiB", memory_mib=64)
def large_half_logons(target):
    with held() as connections:
        half_logons_of(target, connections, 20, smb2.NTLM_NEGOTIATE + bytes(65535 - len(smb2.NTLM_NEGOTIATE)))
        yield None


GUESSES = 299
# After so many wrong guesses the right password has to wait longer than this, or 300 of them longer than a minute.
HELD_BACK_SECONDS = 2


@scenario("300 guesses at a password, the last one right, of 60 connections")
def guesses(target):
    began = time.monotonic()
    right, wrong = (smb2.response_key("guessed", password) for password in (PASSWORD, "wrong"))
    with held() as connections:
        for n in range(GUESSES):
            # Each connection waits for its refusal only after the others have sent their guess.
            client = attempt(connections, target.negotiated)
            if not client:
                continue
            with contextlib.suppress(OSError, Refused):
                token, _ = smb2.ntlm_authenticate(client.challenge(), "guessed", wrong)
                client.send(client.build(smb2.SESSION_SETUP, smb2.session_setup_body(token)))
            if len(connections) > 60:
                connections.pop(0).close()
        status = None
        with contextlib.suppress(OSError, Refused):
            last = Client(target.address, target.source, HELD_BACK_SECONDS)
            connections.append(last)
            last.negotiate()
            status = last.log_on("guessed", right)
        took = time.monotonic() - began
        if status == smb2.SUCCESS and took < 60:
            yield f"299 wrong guesses and the right one took {took:.1f} s, and the right one was told"
        yield None
    lines = [line for line in target.server.audit_lines() if "failed logon" in line and target.source in line]
    if not any("guessed" in line for line in lines):
        yield f"the audit log names no failed logon of 'guessed' from {target.source}"
    if len(lines) > 100:
        yield f"the audit log has {len(lines)} lines of it"


FIRST_FRAME_BYTES = 256 << 10


def filled(command, size):
    """A body of a command of about `size` bytes: the fixed part as it should be, then as much as its fields can announce."""
    fixed = {
        smb2.NEGOTIATE: lambda: struct.pack("<HHHHI16sQ", 36, 65535, 1, 0, 0, b"", 0) + b"\x11\x03" * 65535,
        smb2.SESSION_SETUP: lambda: smb2.session_setup_body(b"\x60\x84" * 32767),
        smb2.TREE_CONNECT: lambda: struct.pack("<HHHH", 9, 0, 72, 65534) + smb2.wide("\\" * 32767),
        smb2.CREATE: lambda: smb2.create_body("a\\" * 2000, contexts=tiny_contexts(size - 8192)),
        smb2.READ: lambda: smb2.read_body(smb2.NOBODY, 0, 0xFFFFFFFF),
        smb2.WRITE: lambda: smb2.write_body(smb2.NOBODY, 0, bytes(max(size - 112, 0))),
        smb2.LOCK: lambda: smb2.lock_body(smb2.NOBODY, [(n * 2, 1, 0x12) for n in range(min(65535, size // 24 - 8))]),
        smb2.IOCTL: lambda: smb2.ioctl_body(smb2.NOBODY, 0x001401FC, bytes(max(size - 120, 0))),
        smb2.QUERY_DIRECTORY: lambda: smb2.query_directory_body(smb2.NOBODY, "*?" * 16383),
        smb2.QUERY_INFO: lambda: smb2.query_info_body(smb2.NOBODY, 1, 15, bytes(max(size - 104, 0)), answer_bytes=8 << 20),
        smb2.SET_INFO: lambda: smb2.set_info_body(smb2.NOBODY, 1, 15, b"\1" * max(size - 96, 0)),
    }
    body = fixed.get(command, lambda: struct.pack("<HH", 24, 0) + b"\xff" * 64)()
    return (body + bytes(max(size - 64 - len(body), 0)))[:size - 64]


def tiny_contexts(size):
    """A list of as many create contexts as there is room for, none of them known."""
    one = struct.pack("<IHHHHI", 24, 16, 4, 0, 0, 0) + b"ZzZz" + bytes(4)
    return one * (size // len(one)) + struct.pack("<IHHHHI", 0, 16, 4, 0, 0, 0) + b"ZzZz" + bytes(4)


def largest_of_each(make, size, charge, finish=None):
    """Every command, on a connection that `make` gives; a new one when the server has ended it."""
    with held() as connections:
        client = None
        for command in itertools.chain(range(19), (19, 0xFFFF)):
            client = client or attempt(connections, make)
            if not client:
                continue
            try:
                client.send(client.build(command, filled(command, size), charge=charge))
                if command != smb2.CANCEL:
                    client.socket.settimeout(3)
                    client.message()
            except OSError:
                client.close()
                client = None
        yield None


@scenario("the largest message of every command before NEGOTIATE")
def largest_first(target):
    return largest_of_each(lambda: Client(target.address, target.source), FIRST_FRAME_BYTES, 1)


@scenario("the largest message of every command before the logon")
def largest_before_logon(target):
    return largest_of_each(target.negotiated, FIRST_FRAME_BYTES, 1)


LARGEST_BYTES = (8 << 20) + 65536


@scenario("the largest message of every command after the logon", memory_mib=128)
def largest(target):
    return largest_of_each(target.client, LARGEST_BYTES, 128)


# --- A user with a share ----------------------------------------------------------------------------------------------------


def cancels(count, session=0):
    one = smb2.header(smb2.CANCEL, 0x7FFFFFFF, session, following=64)
    return one * (count - 1) + smb2.header(smb2.CANCEL, 0x7FFFFFFF, session)


@scenario("compounds of CANCELs before NEGOTIATE")
def cancels_first(target):
    compound = smb2.frame(cancels(FIRST_FRAME_BYTES // 64))
    with held() as connections:
        for _ in range(40):
            if peer := attempt(connections, target.peer):
                for _ in range(4):
                    push(peer, compound)
        yield None


@scenario("50,000 CANCELs, and 110,000 in a compound, with 400 requests waiting", memory_mib=128)
def cancels_of_a_user(target):
    with held() as connections:
        client = target.client()
        connections.append(client)
        directory = client.create("cancelled", options=smb2.DIRECTORY_FILE)
        for _ in range(400):
            client.send(client.build(smb2.CHANGE_NOTIFY, struct.pack("<HHI", 32, 0, 4096) + directory + struct.pack("<II", 1, 0), credits=8))
        compound = smb2.frame(cancels(110_000, client.session))
        # A compound may end its connection; messages of one CANCEL each may not.
        push(client, smb2.frame(cancels(1, client.session)) * 50_000)
        for _ in range(6):
            push(client, compound)
        drain(client, 0.5)
        yield None


def extended_attributes(count):
    """A FILE_FULL_EA_INFORMATION list of attributes with a name of five letters and a value of one byte: 16 bytes each."""
    out = []
    for n in range(count):
        name = b"%05X" % n
        out.append(struct.pack("<IBBH", 16 if n < count - 1 else 0, 0, len(name), 1) + name + b"\0v" + bytes(1))
    return b"".join(out)


@scenario("65,536 extended attributes by CREATE, SET_INFO and QUERY_INFO", memory_mib=96)
def attributes(target):
    full, some = extended_attributes(65_536), extended_attributes(4000)
    with held() as connections:
        client = target.client()
        connections.append(client)
        for n in range(3):
            # No CREATE is so long: it ends its connection.
            contexts = smb2.create_contexts((b"ExtA", full))
            with contextlib.suppress(OSError):
                target.client().call(smb2.CREATE, smb2.create_body(f"attributes-{n}", contexts=contexts), charge=17)
        file = client.create("attributes")
        for data in (full, some, some):
            client.call(smb2.SET_INFO, smb2.set_info_body(file, 1, 15, data), charge=17)
        # A list of names to look for is as long.
        names = b"".join(struct.pack("<IB", 12, 5) + b"%05X" % n + b"\0\0" for n in range(65_536))
        for _ in range(3):
            client.call(smb2.QUERY_INFO, smb2.query_info_body(file, 1, 15, names, answer_bytes=1 << 20), charge=17)
        yield None


@scenario("directory patterns of 64 KB over 100 files")
def patterns(target):
    with held() as connections:
        client = target.client()
        connections.append(client)
        directory = client.create("patterns", options=smb2.DIRECTORY_FILE)
        for n in range(100):
            client.close_file(client.create("patterns\\" + "a" * 200 + f"{n:03}"))
        star = "*a" * 16382 + "b"
        # The DOS wildcards that become of `*.` and `?` cost most (MS-FSA 2.1.4.4).
        for pattern in (star, "<a" * 16382 + "b", ">" * 32767, '<"' * 16383, "*a" * 120 + "b", "<a" * 120 + "b"):
            for flags in (1, 4 | 1, 1):
                client.call(smb2.QUERY_DIRECTORY, smb2.query_directory_body(directory, pattern, flags=flags))
        yield None


@scenario("byte-range locks without end on one open")
def locks(target):
    with held() as connections:
        client = target.client(timeout=60)
        connections.append(client)
        file = client.create("locks")
        client.write(file, 0, bytes(4096))
        for request in range(80):
            wanted = [((request * 1600 + n) * 4, 1, 0x12) for n in range(1600)]
            client.call(smb2.LOCK, smb2.lock_body(file, wanted), charge=2)
        for n in range(300):
            client.call(smb2.WRITE, smb2.write_body(file, (1 << 30) + 4096 * n, bytes(4096)))
            client.call(smb2.READ, smb2.read_body(file, (1 << 30) + 4096 * n, 4096))
        yield None


@scenario("100 CREATEs of 8 MiB wait behind a batch oplock", memory_mib=160)
def parked_creates(target):
    with held() as connections:
        holder = target.client()
        connections.append(holder)
        holder.create("parked", oplock=smb2.OPLOCK_BATCH)
        # Twice seven MiB that are kept: attributes for a file that may yet be made, and what follows in the compound.
        attributes = b"".join(struct.pack("<IBBH", 65544 if n < 110 else 0, 0, 5, 65530) + b"%05d\0" % n + bytes(65530) for n in range(111))
        bodies = [smb2.create_body("parked", contexts=smb2.create_contexts((b"ExtA", attributes))),
                  smb2.create_body("parked", contexts=smb2.create_contexts((b"ZzZz", bytes(7 << 20))))]
        for _ in range(10):
            client = attempt(connections, lambda: target.client(timeout=3))
            if not client:
                continue
            with contextlib.suppress(OSError):
                for body, _ in itertools.product(bodies, range(5)):
                    client.send(client.related([(smb2.CREATE, body), (smb2.CLOSE, smb2.close_body(smb2.NOBODY))]))
                    drain(client, 0.01)
        yield None


@scenario("answers of 2 GiB that are not read, of 20 connections", memory_mib=320)
def answers_not_read(target):
    with held() as connections:
        not_served = 0
        for n in range(20):
            try:
                client = target.client(timeout=20 if n == 0 else 1)
                connections.append(client)
                client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                file = client.create("large")
                for at in range(0, 96 << 20 if n == 0 else 0, 1 << 20):
                    client.write(file, at, random.randbytes(1 << 20))
                for part in range(12):
                    push(client, smb2.frame(client.build(smb2.READ, smb2.read_body(file, part << 23, 8 << 20), charge=128)))
            except (OSError, Refused):
                # A client that holds so much already may be told to wait; others may not.
                not_served += 1
                if not_served == 3:
                    break
        yield None


@scenario("a compound of three READs of 8 MiB", memory_mib=128)
def large_compound(target):
    with held() as connections:
        client = target.client()
        connections.append(client)
        file = client.create("compound")
        for at in range(0, 8 << 20, 1 << 20):
            client.write(file, at, b"\xfeSMB" * (1 << 18))
        for related in (False, True):
            with contextlib.suppress(Ended):
                if related:
                    client = target.client()
                    connections.append(client)
                    file = client.create("compound")
                parts = []
                for n in range(3):
                    body = smb2.read_body(file, 0, 8 << 20)
                    padding = b"" if n == 2 else bytes(-len(body) % 8)
                    following = 0 if n == 2 else 64 + len(body) + len(padding)
                    flags = smb2.FLAG_RELATED if related and n else 0
                    parts.append(client.build(smb2.READ, body + padding, charge=128, following=following, flags=flags))
                client.send(b"".join(parts))
                seen, ids = 0, set()
                while seen < 3:
                    for answer in client.answers():
                        if answer.command != smb2.READ or not answer.flags & smb2.FLAG_RESPONSE:
                            yield f"what comes is no answer to a READ: {answer.message[:16].hex()}"
                            return
                        seen += answer.status != smb2.PENDING
                        ids.add(answer.message_id)
                if len(ids) != 3:
                    yield f"three READs, and answers to {sorted(ids)}"
                echo = client.call(smb2.ECHO, struct.pack("<HH", 4, 0))
                if echo.command != smb2.ECHO:
                    yield "after them the stream is out of step"
        yield None


def rpc_bind():
    """DCE/RPC bind to srvsvc."""
    syntax = bytes.fromhex("c84f324b7016d30112785a47bf6ee188") + struct.pack("<I", 3)
    transfer = bytes.fromhex("045d888aeb1cc9119fe808002b104860") + struct.pack("<I", 2)
    body = struct.pack("<HHIBBHHBB", 4280, 4280, 0, 1, 0, 0, 0, 1, 0) + syntax + transfer
    return struct.pack("<BBBBIHHI", 5, 0, 11, 3, 0x10, 16 + len(body), 0, 1) + body


@scenario("1,500 pipe requests with 2,000 tree connects", memory_mib=64)
def pipes(target):
    with held() as connections:
        client = target.client(share="IPC$")
        connections.append(client)
        pipe_tree = client.tree
        for _ in range(2000):
            client.connect_share("hostile")
        client.tree = pipe_tree
        pipe = client.create("srvsvc", access=smb2.GENERIC_READ | 0x2, disposition=smb2.OPEN)
        client.call(smb2.WRITE, smb2.write_body(pipe, 0, rpc_bind()))
        client.call(smb2.READ, smb2.read_body(pipe, 0, 4096))
        # Fragments of a request that never ends, each a write of its own.
        fragment = struct.pack("<BBBBIHHIIHH", 5, 0, 0, 1, 0x10, 32, 0, 2, 1 << 20, 0, 15) + bytes(8)
        for _ in range(1500):
            client.send(client.build(smb2.WRITE, smb2.write_body(pipe, 0, fragment), credits=2))
            with contextlib.suppress(Ended):
                client.answer()
        yield None


def answers_to(client, bodies):
    """The answers to requests that are sent as one message."""
    client.send(client.related(bodies, related=False))
    seen = 0
    while seen < len(bodies):
        for answer in client.answers():
            seen += 1
            yield answer


@scenario("one user takes every open", memory_mib=400)
def opens(target):
    with held() as connections:
        refused = 0
        for _ in range(4):
            client = attempt(connections, lambda: target.client(timeout=30))
            if not client:
                continue
            with contextlib.suppress(OSError):
                for n in range(300):
                    # Of a hundred files, so that it is the number of opens that is tried.
                    bodies = [(smb2.CREATE, smb2.create_body(f"open-{n % 100}")) for _ in range(60)]
                    for answer in answers_to(client, bodies):
                        refused += answer.status != smb2.SUCCESS
        if not refused:
            yield "72,000 opens of one user were all granted"
        yield None


@scenario("one user multiplies sessions by tree connects", memory_mib=128)
def trees(target):
    with held() as connections:
        refused = 0
        bodies = [(smb2.TREE_CONNECT, smb2.tree_connect_body(r"\\127.0.0.1\IPC$"))] * 60
        for _ in range(40):
            client = attempt(connections, lambda: target.client(timeout=30))
            if not client:
                continue
            with contextlib.suppress(OSError):
                for _ in range(68):
                    for answer in answers_to(client, bodies):
                        refused += answer.status != smb2.SUCCESS
                    if refused:
                        break
            if refused:
                break
        if not refused:
            yield "163,200 tree connects of one user were all granted"
        yield None


# --- What a share allows ----------------------------------------------------------------------------------------------------


def file_link(target_name, replaces=0):
    """FILE_RENAME_INFORMATION and FILE_LINK_INFORMATION for SMB2 (MS-FSCC 2.4.28.2, 2.4.43.2)."""
    name = smb2.wide(target_name)
    return struct.pack("<B7xQI", replaces, 0, len(name)) + name


def names_in(client):
    """Names in the root of the client's share."""
    root = client.create("", access=smb2.GENERIC_READ, disposition=smb2.OPEN)
    answer = client.call(smb2.QUERY_DIRECTORY, smb2.query_directory_body(root, "*", level=12, flags=0))
    client.close_file(root)
    entries = smb2.entries_of(answer.buffer()) if answer.status == smb2.SUCCESS else []
    return {entry[12:12 + struct.unpack_from("<I", entry, 8)[0]].decode("utf-16-le") for entry in entries} - {".", ".."}


UPWARDS = ["..\\{}", "../{}", "x\\..\\..\\{}", "\\..\\{}", ".\\..\\{}", "x/../../{}", "..\\..\\{}", "sub\\..\\..\\{}", "..\\public\\..\\{}"]


@scenario("paths that lead out of a share of a subdirectory")
def escapes(target):
    with held() as connections:
        whole = target.client("bob", "whole")
        connections.append(whole)
        secret = whole.create("secret")
        whole.write(secret, 0, b"outside")
        whole.close_file(secret)
        client = target.client("bob", "public")
        connections.append(client)
        client.close_file(client.create("sub", options=smb2.DIRECTORY_FILE))
        inside = client.create("inside")
        before = names_in(whole)
        for upward in UPWARDS:
            for name, disposition, options in [("secret", smb2.OPEN, 0), ("new", smb2.CREATE_NEW, 0), ("new", smb2.CREATE_NEW, 1),
                                               ("secret", smb2.OVERWRITE, 0), ("secret:stream", smb2.OPEN_IF, 0)]:
                answer = client.call(smb2.CREATE, smb2.create_body(upward.format(name), disposition=disposition, options=options))
                if answer.status != smb2.SUCCESS:
                    continue
                file = answer.body[64:80]
                if name == "secret" and disposition == smb2.OPEN and client.call(smb2.READ, smb2.read_body(file, 0, 7)).message[80:87] == b"outside":
                    yield f"CREATE of {upward.format(name)} reads a file outside the share"
                client.call(smb2.CLOSE, smb2.close_body(file))
            for level in (10, 11):
                client.call(smb2.SET_INFO, smb2.set_info_body(inside, 1, level, file_link(upward.format(f"moved{level}"))))
        after = names_in(whole)
        if after != before:
            yield f"outside the share now are {sorted(after - before)}, and no more {sorted(before - after)}"
        secret = whole.create("secret", disposition=smb2.OPEN)
        if whole.read(secret, 0, 7) != b"outside":
            yield "a file outside the share was overwritten"
        yield None


@scenario("writes of every kind with a grant to read")
def read_only_grant(target):
    with held() as connections:
        owner = target.client(os.environ["USER"], "readable")
        connections.append(owner)
        file = owner.create("kept")
        owner.write(file, 0, b"kept")
        owner.close_file(file)
        before = names_in(owner)
        reader = target.client("bob", "readable")
        connections.append(reader)
        made = []
        for disposition in range(6):
            for options in (0, smb2.DIRECTORY_FILE, smb2.DELETE_ON_CLOSE):
                for name in (f"new-{disposition}-{options}", "kept", "kept:stream"):
                    for access in (smb2.GENERIC_READ, 0x80, 0x02000000, 0x40000000):
                        body = smb2.create_body(name, access=access, disposition=disposition, options=options)
                        answer = reader.call(smb2.CREATE, body)
                        if answer.status == smb2.SUCCESS:
                            # CreateAction 1 is opened; else something was made or changed.
                            if struct.unpack_from("<I", answer.body, 4)[0] != 1:
                                made.append(f"{name} by disposition {disposition} with access {access:#x}")
                            file = answer.body[64:80]
                            for kind, level, data in [(1, 10, file_link("renamed")), (1, 11, file_link("linked")), (1, 13, b"\1"),
                                                      (1, 20, bytes(8)), (1, 4, bytes(32) + struct.pack("<II", 2, 0))]:
                                if reader.call(smb2.SET_INFO, smb2.set_info_body(file, kind, level, data)).status == smb2.SUCCESS:
                                    made.append(f"SET_INFO {level} of {name} with access {access:#x}")
                            if reader.call(smb2.WRITE, smb2.write_body(file, 0, b"lost")).status == smb2.SUCCESS:
                                made.append(f"WRITE to {name} with access {access:#x}")
                            reader.call(smb2.CLOSE, smb2.close_body(file))
        if made:
            yield f"{len(made)} changes were let through: {'; '.join(made[:4])}"
        if (after := names_in(owner)) != before:
            yield f"in the share now are {sorted(after - before)}, and no more {sorted(before - after)}"
        else:
            file = owner.create("kept", disposition=smb2.OPEN)
            if owner.read(file, 0, 4) != b"kept":
                yield "the file was written to"
        yield None


# --- What one user takes from the others of a volume ------------------------------------------------------------------------


DESCRIPTORS = 400
# Space that making all of them may cost the volume; kept for ever, the descriptors alone are 24 MiB.
DESCRIPTORS_MIB_MAX = 4


def large_descriptor(number):
    """A self-relative descriptor of 61 KB that no other file has: full access for everyone, and entries of users who are nobody."""
    everyone = struct.pack("<BBHI", 0, 0, 20, 0x001F01FF) + struct.pack("<BB6sI", 1, 1, b"\0\0\0\0\0\1", 0)
    nobody = (struct.pack("<BB6s5I", 1, 5, b"\0\0\0\0\0\5", 21, number, n, 7, 1000 + n) for n in range(1690))
    entries = everyone + b"".join(struct.pack("<BBHI", 0, 0, 36, 0x00120089) + sid for sid in nobody)
    acl = struct.pack("<BBHHH", 2, 0, 8 + len(entries), 1691, 0) + entries
    return struct.pack("<BBHIIII", 1, 0, 0x8004, 0, 0, 0, 20) + acl


def free_mib(client):
    """Of the client's volume, whoever's quota (FileFsFullSizeInformation, MS-FSCC 2.5.4)."""
    root = client.create("", access=smb2.GENERIC_READ, disposition=smb2.OPEN)
    answer = client.call(smb2.QUERY_INFO, smb2.query_info_body(root, 2, 7)).expect("QUERY_INFO of the volume")
    client.close_file(root)
    _, _, free, sectors, sector_bytes = struct.unpack_from("<QQQII", answer.body, 8)
    return free * sectors * sector_bytes / (1 << 20)


@scenario("400 files with descriptors of 61 KB, made and deleted with a quota of 1 MiB")
def descriptors(target):
    with held() as connections:
        observer = target.client("bob", "whole")
        connections.append(observer)
        client = target.client("hoarder", "hoard")
        connections.append(client)

        def make(number, options=0):
            contexts = smb2.create_contexts((b"SecD", large_descriptor(number)))
            body = smb2.create_body(f"large-{number}", smb2.CHANGE_ACCESS, smb2.CREATE_NEW, options, contexts=contexts)
            return client.call(smb2.CREATE, body)

        before, made = free_mib(observer), 0
        for number in range(DESCRIPTORS):
            answer = make(number, smb2.DELETE_ON_CLOSE)
            if answer.status == smb2.SUCCESS:
                made += 1
                client.close_file(answer.body[64:80])
        if made != DESCRIPTORS:
            yield f"of {DESCRIPTORS} files that were deleted at once {made} could be made: what is deleted counts on"
        end = time.monotonic() + 10
        while (taken := before - free_mib(observer)) > DESCRIPTORS_MIB_MAX and time.monotonic() < end:
            time.sleep(0.2)
        if taken > DESCRIPTORS_MIB_MAX:
            yield f"{made} files that are no more take {taken:.1f} MiB of the volume; {DESCRIPTORS_MIB_MAX} are allowed"
        kept = []
        for number in range(DESCRIPTORS, DESCRIPTORS + 40):
            if (answer := make(number)).status == smb2.SUCCESS:
                kept.append((number, answer.body[64:80]))
        # 16 of 64 KiB are a MiB.
        if not 10 <= len(kept) <= 20:
            yield f"with a quota of 1 MiB {len(kept)} descriptors of 61 KB are kept at once"
        yield None
        for number, file in kept:
            client.call(smb2.SET_INFO, smb2.set_info_body(file, 1, 13, b"\1"))
            client.close_file(file)


PIECES = 6000
CLONES = 3000
# A turn among users is some 50 ms, and there are two users here; on a slow machine it is a few times that. Behind the queue of one user it is
# as long as the queue takes: many seconds on the same machine.
TURN_SECONDS_MAX = 2.0
FSCTL_SET_SPARSE, FSCTL_DUPLICATE_EXTENTS = 0x000900C4, 0x00098344


class Asker(threading.Thread):
    """Asks for a file's attributes and opens another, again and again; how long each took."""

    def __init__(self, client):
        super().__init__(daemon=True)
        self.client, self.is_over, self.waits, self.fault = client, False, [], None
        self.file = client.create("asked")

    def run(self):
        try:
            while not self.is_over:
                began = time.monotonic()
                self.client.call(smb2.QUERY_INFO, smb2.query_info_body(self.file, 1, 18)).expect("QUERY_INFO")
                asked = time.monotonic()
                self.client.close_file(self.client.create("opened"))
                self.waits += [(asked - began, "QUERY_INFO"), (time.monotonic() - asked, "CREATE and CLOSE")]
                time.sleep(0.002)
        except (OSError, Refused) as error:
            self.fault = f"{type(error).__name__}: {error}"


def fragmented(client, name):
    """A sparse file of PIECES blocks, each between two holes."""
    file = client.create(name)
    client.call(smb2.IOCTL, smb2.ioctl_body(file, FSCTL_SET_SPARSE, b"\1")).expect("FSCTL_SET_SPARSE")
    for first in range(0, PIECES, 100):
        requests = (client.build(smb2.WRITE, smb2.write_body(file, 8192 * n, bytes(4096))) for n in range(first, first + 100))
        client.raw(b"".join(map(smb2.frame, requests)))
        for _ in range(100):
            client.answer().expect("WRITE")
    client.call(smb2.FLUSH, smb2.flush_body(file)).expect("FLUSH")
    return file


@scenario("3,000 clones of a fragmented file are queued by one user", memory_mib=160)
def clones(target):
    with held() as connections:
        other = target.client("bob", "public", timeout=30)
        connections.append(other)
        asker = Asker(other)
        client = target.client()
        connections.append(client)
        source = fragmented(client, "fragmented")
        clone = client.create("clones")
        client.call(smb2.IOCTL, smb2.ioctl_body(clone, FSCTL_SET_SPARSE, b"\1")).expect("FSCTL_SET_SPARSE")
        client.call(smb2.SET_INFO, smb2.set_info_body(clone, 1, 20, struct.pack("<Q", 1 << 43))).expect("SET_INFO of the end")
        asker.start()
        length = 8192 * (PIECES - 1)
        for n in range(CLONES):
            duplicate = source + struct.pack("<QQQ", 0, (1 << 30) + (n << 26), length)
            client.send(client.build(smb2.IOCTL, smb2.ioctl_body(clone, FSCTL_DUPLICATE_EXTENTS, duplicate, answer_bytes=0)))
        yield None
        asker.is_over = True
        asker.join(30)
        wait, what = max(asker.waits, default=(0, "nothing"))
        if asker.fault or asker.is_alive() or len(asker.waits) < 4:
            yield f"another user is not served beside it, {len(asker.waits) // 2} rounds: {asker.fault}"
        elif wait > TURN_SECONDS_MAX:
            yield f"another user waited {wait:.2f} s for {what}; {TURN_SECONDS_MAX} s are allowed"


# --- By SMB Direct ----------------------------------------------------------------------------------------------------------

RDMA_PAYLOAD_BYTES = 8 << 20
# `limits.bytes_in_flight` of run, half of which one host may have in work and unread.
IN_FLIGHT_MIB = 256


def is_ended(client, seconds):
    """Whether the server ends the connection in time, whatever it sends before."""
    end = time.monotonic() + seconds
    try:
        while (left := end - time.monotonic()) > 0:
            client.socket.settimeout(left)
            if not client.socket.recv(1 << 16):
                return True
    except TimeoutError:
        return False
    except OSError:
        return True
    return False


def write_large(target, connections):
    """A file from which a connection can ask for four READs of as much as one may ask for."""
    writer = target.client()
    connections.append(writer)
    file = writer.create("large-by-rdma")
    for at in range(0, 4 * RDMA_PAYLOAD_BYTES, 1 << 20):
        writer.write(file, at, random.randbytes(1 << 20))
    writer.close_file(file)


@scenario("READs of 1 GiB by RDMA that are not taken, of 32 connections", memory_mib=IN_FLIGHT_MIB)
def rdma_unread(target):
    with held() as connections:
        write_large(target, connections)
        asked, is_full = 0, False
        for _ in range(32):
            # The server receives nothing from a client that holds so much already.
            if is_full:
                break
            is_full = True
            if client := attempt(connections, target.rdma_client):
                with contextlib.suppress(OSError, Refused):
                    file = client.create("large-by-rdma", access=smb2.GENERIC_READ, disposition=smb2.OPEN)
                    for n in range(4):
                        client.demand(file, n * RDMA_PAYLOAD_BYTES, RDMA_PAYLOAD_BYTES)
                        asked += 1
                    is_full = False
        # 128 MiB are one host's share. Fewer, and the server refused what the scenario is about.
        if asked < 12:
            yield f"only {asked} READs could be asked for"
        if asked * RDMA_PAYLOAD_BYTES > IN_FLIGHT_MIB << 20:
            yield f"{asked} READs of 8 MiB of one host are in work and unread; {IN_FLIGHT_MIB} MiB are there for all"
        yield None


# Of one connection the server holds 40 MiB of messages that it does not want yet: 8 connections would have more than there may be of all.
HELD_STEPS = (1 << 20) // rdma.LONG_STEP
HELD_MESSAGES = 39


@scenario("messages of 1 MiB by SMB Direct that wait for answers to be taken, of 8 connections", memory_mib=IN_FLIGHT_MIB)
def rdma_held(target):
    with held() as connections:
        write_large(target, connections)
        opened = []
        for _ in range(8):
            if client := attempt(connections, lambda: target.rdma_client(most=(1 << 20) + 1024)):
                opened.append((client, client.create("large-by-rdma", access=smb2.GENERIC_READ, disposition=smb2.OPEN)))
        # The host has as much unread as it may have: none of its messages is wanted.
        for client, file in opened[:5]:
            with contextlib.suppress(OSError):
                for n in range(4):
                    client.demand(file, n * RDMA_PAYLOAD_BYTES, RDMA_PAYLOAD_BYTES)
        time.sleep(0.5)
        sent = 0
        for client, _ in opened:
            with contextlib.suppress(OSError):
                for _ in range(HELD_MESSAGES):
                    client.whole(client.build(smb2.WRITE, b""), HELD_STEPS)
                    sent += 1
        # As many as are one user's share are taken. What is beyond would be seen in the server's memory.
        if sent < IN_FLIGHT_MIB // 4:
            yield f"only {sent} messages could be sent"
        yield None


# A guest has ten seconds for a message, and the server looks once a second.
UNFINISHED_SECONDS_MAX = 14


@scenario("messages by SMB Direct that are never ended, of 60 guests and 40 logons", memory_mib=96)
def rdma_unfinished(target):
    with held() as connections:
        guests = []
        for _ in range(60):
            if client := attempt(connections, lambda: rdma.Client(target.server.rdma)):
                with contextlib.suppress(OSError):
                    left = client.begin(smb2.header(smb2.NEGOTIATE), 64 + 40 * rdma.STEP)
                    client.go_on(left, rdma.STEP)
                    guests.append(client)
        began = time.monotonic()
        for _ in range(40):
            if client := attempt(connections, target.rdma_client):
                with contextlib.suppress(OSError):
                    client.go_on(client.begin(smb2.header(smb2.WRITE), 64 + 700 * rdma.STEP), rdma.STEP)
        yield None
        goes_on = sum(not is_ended(client, max(began + UNFINISHED_SECONDS_MAX - time.monotonic(), 0.01)) for client in guests)
        if goes_on or not guests:
            yield f"of {len(guests)} guests that end no message {goes_on} are still there after {UNFINISHED_SECONDS_MAX} s"


# --- What only nodes may do -------------------------------------------------------------------------------------------------


@scenario("users at bus$, and passwords for accounts of nodes, by dialects 2.1 to 3.0.2")
def strangers_at_bus(target):
    with held() as connections:
        for dialect, user in itertools.product((0x0210, 0x0300, 0x0302), (os.environ["USER"], "bob", "node-1$")):
            client = Client(target.address, target.source, timeout=3)
            connections.append(client)
            with contextlib.suppress(Ended, TimeoutError):
                client.negotiate((dialect,))
                if client.log_on(user, response_key(user)) == smb2.SUCCESS and user == "node-1$":
                    yield f"{user} is logged on by a password, dialect {dialect:#06x}"
                answer = client.call(smb2.TREE_CONNECT, smb2.tree_connect_body(r"\\127.0.0.1\bus$"))
                if answer.status == smb2.SUCCESS:
                    yield f"{user} reaches bus$, dialect {dialect:#06x}"
        yield None
