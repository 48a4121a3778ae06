"""Requests of Windows Explorer, Hyper-V and macOS, sent byte by byte over smbprotocol's connections.

Prints `ok NAME` or `not ok NAME` a line; exit status 1 if any was not.
"""
import os, struct, sys, time, uuid
from collections import OrderedDict

from smbprotocol.change_notify import ChangeNotifyFlags, CompletionFilter, FileAction, FileSystemWatcher
from smbprotocol.connection import Connection
from smbprotocol.create_contexts import SMB2CreateContextRequest
from smbprotocol.exceptions import SMBResponseException
from smbprotocol.header import Commands
from smbprotocol.open import Open
from smbprotocol.session import Session
from smbprotocol.structure import BytesField, Structure
from smbprotocol.tree import TreeConnect

from peer_tests import run, test

PORT = int(os.environ["SMB_PORT"])
USER, PASSWORD, SHARE = os.environ["SMB_USER"], os.environ["SMB_PASSWORD"], os.environ["SMB_SHARE"]

# FILE_*: access, create options, dispositions.
READ_DATA, WRITE_DATA, DELETE, READ_CONTROL, MAXIMUM_ALLOWED = 1, 2, 0x10000, 0x20000, 0x02000000
SUPERSEDE, OPEN, CREATE, OPEN_IF, OVERWRITE, OVERWRITE_IF = range(6)
DIRECTORY, FILE, DELETE_ON_CLOSE = 1, 0x40, 0x1000
INFO_FILE, INFO_FILESYSTEM, INFO_SECURITY, INFO_QUOTA = 1, 2, 3, 4
OWNER, GROUP, DACL = 1, 2, 4

ACCESS_DENIED, NAME_INVALID, NOT_FOUND = 0xC0000022, 0xC0000033, 0xC0000034
NO_MORE_FILES, NAME_COLLISION, NO_MORE_ENTRIES = 0x80000006, 0xC0000035, 0x8000001A


class Raw(Structure):
    def __init__(self, command, body):
        self.COMMAND = command
        self.fields = OrderedDict([("data", BytesField(default=body))])
        super().__init__()


class Client:
    def __init__(self):
        self.connection = Connection(uuid.uuid4(), "127.0.0.1", PORT, require_signing=True)
        self.connection.connect(timeout=20)
        # It knows only its own structures; nothing here asks for more than 64 KiB.
        self.connection._calculate_credit_charge = lambda message: -(-len(message.pack()) // (1 << 16))
        self.session = Session(self.connection, USER, PASSWORD, require_encryption=False)
        self.session.connect()
        self.tree = TreeConnect(self.session, rf"\\127.0.0.1\{SHARE}")
        self.tree.connect()

    def call(self, command, body):
        request = self.connection.send(Raw(command, body), self.session.session_id, self.tree.tree_connect_id)
        return self.connection.receive(request)["data"].get_value()

    def open(self, name, access=MAXIMUM_ALLOWED, disposition=OPEN_IF, options=0, share=7, contexts=(), oplock=0):
        made = Open(self.tree, name)
        made.answered = made.create(2, access, 0, share, disposition, options, list(contexts), oplock) or []
        return made

    def close(self, *opens):
        for made in opens:
            made.close()

    def make(self, name, content=b""):
        made = self.open(name, disposition=OVERWRITE_IF, options=FILE)
        if content:
            made.write(content)
        return made

    def query(self, made, kind, number, size=65536, extra=0, data=b""):
        body = struct.pack("<HBBIHHIII16s", 41, kind, number, size, 104 if data else 0, 0, len(data), extra, 0, made.file_id)
        got = self.call(Commands.SMB2_QUERY_INFO, body + (data or b"\0"))
        at, length = struct.unpack_from("<HI", got, 2)
        return got[at - 64:at - 64 + length]

    def set(self, made, kind, number, data, extra=0):
        body = struct.pack("<HBBIHHI16s", 33, kind, number, len(data), 96, 0, extra, made.file_id)
        self.call(Commands.SMB2_SET_INFO, body + data)

    def list(self, made, number, pattern="*"):
        """Entries of the class, as bytes each."""
        entries, name = [], pattern.encode("utf-16-le")
        while True:
            body = struct.pack("<HBBI16sHHI", 33, number, 0, 0, made.file_id, 96, len(name), 65536)
            try:
                got = self.call(Commands.SMB2_QUERY_DIRECTORY, body + name)
            except SMBResponseException as error:
                assert error.status == NO_MORE_FILES, hex(error.status)
                return entries
            at, length = struct.unpack_from("<HI", got, 2)
            rest = got[at - 64:at - 64 + length]
            while rest:
                following = struct.unpack_from("<I", rest)[0]
                entries.append(rest[:following] if following else rest)
                rest = rest[following:] if following else b""

    def ioctl(self, made, code, data=b"", size=65536):
        body = struct.pack("<HHI16sIIIIIIII", 57, 0, code, made.file_id, 120, len(data), 0, 0, 0, size, 1, 0)
        got = self.call(Commands.SMB2_IOCTL, body + (data or b"\0"))
        at, length = struct.unpack_from("<II", got, 32)
        return got[at - 64:at - 64 + length]


def refused(status, call, *arguments, **named):
    try:
        call(*arguments, **named)
    except SMBResponseException as error:
        wanted = status if isinstance(status, tuple) else (status,)
        assert error.status in wanted, f"{hex(error.status)}, not {[hex(one) for one in wanted]}"
        return
    raise AssertionError(f"{arguments} was accepted")


def wide(text):
    return text.encode("utf-16-le")


# --- Explorer's window: volume, directory, properties -----------------------------------------------------------------


@test
def the_volume_describes_itself_in_every_class():
    client = Client()
    root = client.open("", access=0x81, disposition=OPEN, options=DIRECTORY)
    volume = client.query(root, INFO_FILESYSTEM, 1)
    serial, label_bytes = struct.unpack_from("<II", volume, 8)
    assert serial and label_bytes and len(volume) == 18 + label_bytes
    total, available, sectors, sector_bytes = struct.unpack("<QQII", client.query(root, INFO_FILESYSTEM, 3))
    full = struct.unpack("<QQQII", client.query(root, INFO_FILESYSTEM, 7))
    assert 0 < available <= total and full[0] == total and full[3:] == (sectors, sector_bytes)
    assert struct.unpack("<II", client.query(root, INFO_FILESYSTEM, 4))[0] == 7
    attributes, name_max, name_bytes = struct.unpack_from("<III", client.query(root, INFO_FILESYSTEM, 5))
    # Case kept, Unicode, ACLs, sparse, reparse, streams, hard links, block reference counts.
    wanted = 0x2 | 0x4 | 0x8 | 0x40 | 0x80 | 0x40000 | 0x400000 | 0x8000000
    assert attributes & wanted == wanted and name_max == 255 and name_bytes == 8, hex(attributes)
    assert len(client.query(root, INFO_FILESYSTEM, 6)) == 48
    assert client.query(root, INFO_FILESYSTEM, 8)[:16] != bytes(16)
    logical, atomic = struct.unpack_from("<II", client.query(root, INFO_FILESYSTEM, 11))
    assert (logical, atomic) == (512, 4096)
    refused(0xC0000003, client.query, root, INFO_FILESYSTEM, 99)
    client.close(root)


@test
def quotas_are_off_until_an_administrator_turns_them_on():
    client = Client()
    root = client.open("", access=0x81, disposition=OPEN, options=DIRECTORY)
    control = struct.unpack_from("<QQQQQI", client.query(root, INFO_FILESYSTEM, 6))
    assert control[5] & 3 == 0, "quotas are neither tracked nor enforced"
    # SMB2_QUERY_QUOTA_INFO (MS-SMB2 2.2.37.1): one entry, from the beginning.
    question = struct.pack("<BBHIII", 1, 1, 0, 0, 0, 0)
    refused(NO_MORE_ENTRIES, client.query, root, INFO_QUOTA, 0, data=question)
    client.close(root)


@test
def every_directory_class_tells_the_same_files():
    client = Client()
    top = client.open("classes", options=DIRECTORY)
    names = ["a name longer than eight and three.txt", "short.txt", "Ünïcode – 日本"]
    for name in names:
        client.close(client.make(rf"classes\{name}", b"x" * 10))
    # Where the name begins, and where id and short name are, by class (MS-FSCC 2.4.8 to 2.4.22).
    layouts = {1: (64, None, None), 2: (68, None, None), 3: (94, None, 68), 12: (12, None, None), 37: (104, 96, 68),
               38: (80, 72, None), 60: (88, 72, None), 78: (80, 72, None), 79: (106, 72, 80), 80: (96, 72, None), 81: (122, 72, 96)}
    ids = None
    for number, (name_at, id_at, short_at) in layouts.items():
        fresh = client.open("classes", access=0x81, disposition=OPEN, options=DIRECTORY)
        found = {}
        for entry in client.list(fresh, number):
            length = struct.unpack_from("<I", entry, 8 if number == 12 else 60)[0]
            found[entry[name_at:name_at + length].decode("utf-16-le")] = entry
        assert sorted(found) == sorted([".", "..", *names]), (number, sorted(found))
        if number != 12:
            assert all(struct.unpack_from("<Q", found[name], 40)[0] == 10 for name in names), number
        if id_at:
            own = {name: struct.unpack_from("<Q", found[name], id_at)[0] for name in names}
            assert len(set(own.values())) == 3 and (ids is None or ids == own), number
            ids = own
        if short_at:
            short = {name: found[name][short_at + 2:short_at + 2 + found[name][short_at]].decode("utf-16-le") for name in names}
            assert short["short.txt"] == "" and len(short[names[0]]) <= 12 and "~" in short[names[0]], short
            again = client.open(rf"classes\{short[names[0]]}", disposition=OPEN)
            assert struct.unpack_from("<Q", client.query(again, INFO_FILE, 6))[0] == ids[names[0]] if ids else True
            client.close(again)
        client.close(fresh)
    client.close(top)


@test
def a_file_tells_its_properties_in_every_class():
    client = Client()
    made = client.make("properties.bin", b"p" * 5000)
    basic = struct.unpack("<QQQQII", client.query(made, INFO_FILE, 4))
    allocation, end, links, pending, directory = struct.unpack_from("<QQIBB", client.query(made, INFO_FILE, 5))
    assert end == 5000 and allocation >= 5000 and (links, pending, directory) == (1, 0, 0)
    everything = client.query(made, INFO_FILE, 18)
    assert everything[:40] == struct.pack("<QQQQII", *basic)
    name_bytes = struct.unpack_from("<I", everything, 96)[0]
    assert everything[100:100 + name_bytes].decode("utf-16-le") == r"\properties.bin"
    assert struct.unpack_from("<Q", client.query(made, INFO_FILE, 34), 40)[0] == 5000
    assert client.query(made, INFO_FILE, 48)[4:].decode("utf-16-le") == "properties.bin"
    short = client.query(made, INFO_FILE, 21)
    assert short[4:].decode("utf-16-le").upper().startswith("P"), short
    volume, file_id = struct.unpack("<Q16s", client.query(made, INFO_FILE, 59))
    assert volume and file_id[:8] == client.query(made, INFO_FILE, 6)
    refused(0xC0000004, client.query, made, INFO_FILE, 4, size=8)
    refused(0xC0000003, client.query, made, INFO_FILE, 200)
    client.close(made)


@test
def streams_are_listed_and_renamed():
    client = Client()
    made = client.make("streams.txt", b"main")
    for name, content in (("Zone.Identifier", b"[ZoneTransfer]"), ("other", b"12345")):
        client.close(client.make(f"streams.txt:{name}", content))

    def listed():
        found, rest = {}, client.query(made, INFO_FILE, 22)
        while True:
            following, length, size = struct.unpack_from("<IIQ", rest)
            found[rest[24:24 + length].decode("utf-16-le")] = size
            if not following:
                return found
            rest = rest[following:]

    assert listed() == {"::$DATA": 4, ":Zone.Identifier:$DATA": 14, ":other:$DATA": 5}, listed()
    other = client.open("streams.txt:other", disposition=OPEN)
    name = wide(":renamed:$DATA")
    client.set(other, INFO_FILE, 10, struct.pack("<B7xQI", 0, 0, len(name)) + name)
    client.close(other)
    assert ":renamed:$DATA" in listed() and ":other:$DATA" not in listed(), listed()
    client.close(made)


# --- The Security tab -------------------------------------------------------------------------------------------------


def sid_at(descriptor, at):
    return descriptor[at:at + 8 + 4 * descriptor[at + 1]]


def ace(kind, flags, mask, sid):
    return struct.pack("<BBHI", kind, flags, 8 + len(sid), mask) + sid


def descriptor_of(*aces, control=0x8004):
    acl = struct.pack("<BBHHH", 2, 0, 8 + sum(map(len, aces)), len(aces), 0) + b"".join(aces)
    return struct.pack("<BBHIIII", 1, 0, control, 0, 0, 0, 20) + acl


def aces_of(descriptor):
    at = struct.unpack_from("<I", descriptor, 16)[0]
    count, at, found = struct.unpack_from("<H", descriptor, at + 4)[0], at + 8, []
    for _ in range(count):
        kind, flags, length, mask = struct.unpack_from("<BBHI", descriptor, at)
        found.append((kind, flags, mask, descriptor[at + 8:at + length]))
        at += length
    return found


@test
def a_denied_right_is_denied_and_the_rest_is_not():
    client = Client()
    made = client.make("denied.txt", b"content")
    before = client.query(made, INFO_SECURITY, 0, extra=OWNER | GROUP | DACL)
    owner = sid_at(before, struct.unpack_from("<I", before, 4)[0])
    new = descriptor_of(ace(1, 0, WRITE_DATA, owner), ace(0, 0, 0x1F01FF, owner))
    client.set(made, INFO_SECURITY, 0, new, extra=DACL)
    client.close(made)
    refused(ACCESS_DENIED, client.open, "denied.txt", access=WRITE_DATA, disposition=OPEN)
    reader = client.open("denied.txt", access=READ_DATA | READ_CONTROL, disposition=OPEN)
    assert reader.read(0, 7) == b"content"
    after = client.query(reader, INFO_SECURITY, 0, extra=DACL)
    assert [(kind, mask) for kind, _, mask, _ in aces_of(after)] == [(1, WRITE_DATA), (0, 0x1F01FF)]
    refused(0xC0000023, client.query, reader, INFO_SECURITY, 0, size=8, extra=DACL)
    client.close(reader)


@test
def what_a_directory_grants_is_inherited_by_what_is_made_in_it():
    client = Client()
    top = client.open("inheriting", options=DIRECTORY)
    before = client.query(top, INFO_SECURITY, 0, extra=OWNER)
    owner = sid_at(before, struct.unpack_from("<I", before, 4)[0])
    everyone = bytes([1, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0])
    # Everything to the owner; to everyone reading, in files only. As Explorer sets it: protected, and inherited automatically.
    new = descriptor_of(ace(0, 3, 0x1F01FF, owner), ace(0, 1 | 8, 0x120089, everyone), control=0x9504)
    client.set(top, INFO_SECURITY, 0, new, extra=DACL | 0x80000000)
    client.close(client.open(r"inheriting\below", options=DIRECTORY), client.make(r"inheriting\below\file"))
    file = client.open(r"inheriting\below\file", disposition=OPEN)
    found = aces_of(client.query(file, INFO_SECURITY, 0, extra=DACL))
    assert [(mask, sid) for _, _, mask, sid in found] == [(0x1F01FF, owner), (0x120089, everyone)], found
    assert all(flags == 0x10 for _, flags, _, _ in found), found
    client.close(file, top)


@test
def a_descriptor_that_makes_no_sense_is_refused_and_changes_nothing():
    client = Client()
    made = client.make("sense.txt")
    before = client.query(made, INFO_SECURITY, 0, extra=DACL)
    for wrong in (b"", b"\1", descriptor_of()[:24], struct.pack("<BBHIIII", 1, 0, 0x8004, 0, 0, 0, 4000)):
        refused((0xC0000079, 0xC000000D, 0xC0000077), client.set, made, INFO_SECURITY, 0, wrong, extra=DACL)
    assert client.query(made, INFO_SECURITY, 0, extra=DACL) == before
    client.close(made)


# --- What goes on meanwhile -------------------------------------------------------------------------------------------


@test
def changes_below_a_directory_are_told():
    client, other = Client(), Client()
    top = client.open("watched", options=DIRECTORY)
    client.close(client.open(r"watched\deep", options=DIRECTORY), client.open(r"watched\deep\er", options=DIRECTORY))
    watcher = FileSystemWatcher(top)
    watcher.start(CompletionFilter.FILE_NOTIFY_CHANGE_FILE_NAME, flags=ChangeNotifyFlags.SMB2_WATCH_TREE)
    until = time.monotonic() + 20
    while watcher._request.response is None and time.monotonic() < until:
        time.sleep(0.01)
    assert watcher._request.response is not None, "the server says that it watches"
    other.close(other.make(r"watched\deep\er\new.txt"))
    assert watcher.response_event.wait(20), "the change was told"
    told = [(one["action"].get_value(), one["file_name"].get_value()) for one in watcher.wait()]
    assert (FileAction.FILE_ACTION_ADDED, r"deep\er\new.txt") in told, told
    client.close(top)


@test
def a_directory_lease_is_granted():
    client = Client()
    client.close(client.open("leased", options=DIRECTORY))
    lease = SMB2CreateContextRequest()
    lease["buffer_name"] = b"RqLs"
    lease["buffer_data"] = struct.pack("<16sIIQ16sHH", uuid.uuid4().bytes, 3, 0, 0, bytes(16), 0, 0)
    made = client.open("leased", access=0x81, disposition=OPEN, options=DIRECTORY, contexts=[lease], oplock=0xFF)
    assert made.oplock_level == 0xFF and made.answered, "a lease came back"
    state = struct.unpack_from("<I", made.answered[0].pack(), 16)[0]
    assert state == 3, state
    client.close(made)


# --- Copies -----------------------------------------------------------------------------------------------------------


@test
def chunks_are_copied_by_the_server_and_too_many_are_refused_with_its_limits():
    client = Client()
    content = os.urandom(2 << 20)
    source, target = client.make("chunks.source"), client.make("chunks.target")
    for at in range(0, len(content), 1 << 16):
        source.write(content[at:at + (1 << 16)], at)
    key = client.ioctl(source, 0x140078, size=32)[:24]
    chunks = [(0, 1 << 20, 1 << 20), (1 << 20, 0, 1 << 20)]
    request = key + struct.pack("<II", len(chunks), 0) + b"".join(struct.pack("<QQII", *chunk, 0) for chunk in chunks)
    assert struct.unpack("<III", client.ioctl(target, 0x1440F2, request, 12)) == (2, 0, 2 << 20)
    got = b"".join(target.read(at, 1 << 16) for at in range(0, len(content), 1 << 16))
    assert got == content[1 << 20:] + content[:1 << 20]
    many = key + struct.pack("<II", 5000, 0) + struct.pack("<QQII", 0, 0, 1, 0) * 5000
    refused(0xC000000D, client.ioctl, target, 0x1440F2, many, 12)
    client.close(source, target)


@test
def extents_are_duplicated_and_apart_from_then_on():
    client = Client()
    content = os.urandom(1 << 16)
    source, target = client.make("cloned.source", content), client.make("cloned.target")
    client.set(target, INFO_FILE, 20, struct.pack("<Q", len(content)))
    client.ioctl(target, 0x98344, source.file_id + struct.pack("<QQQ", 0, 0, len(content)), 0)
    assert target.read(0, len(content)) == content
    source.write(b"changed", 0)
    assert target.read(0, 7) == content[:7] and source.read(0, 7) == b"changed"
    client.close(source, target)


@test
def a_sparse_file_tells_what_is_allocated():
    client = Client()
    made = client.make("sparse.vhdx")
    client.ioctl(made, 0x900C4, b"\1", 0)
    client.set(made, INFO_FILE, 20, struct.pack("<Q", 1 << 40))
    made.write(b"x" * 4096, 1 << 30)
    ranges = client.ioctl(made, 0x940CF, struct.pack("<QQ", 0, 1 << 40))
    at, length = struct.unpack_from("<QQ", ranges)
    assert len(ranges) == 16 and at <= 1 << 30 and at + length >= (1 << 30) + 4096 and length <= 1 << 20, (at, length)
    client.ioctl(made, 0x980C8, struct.pack("<QQ", 0, 1 << 40), 0)
    assert made.read(1 << 30, 4096) == bytes(4096)
    client.close(made)


# --- Names ------------------------------------------------------------------------------------------------------------


@test
def names_have_up_to_255_code_units():
    client = Client()
    for name in ("x" * 255, "日" * 255, "😀" * 127 + "y"):
        made = client.open(name, access=MAXIMUM_ALLOWED, disposition=CREATE, options=FILE | DELETE_ON_CLOSE)
        root = client.open("", access=0x81, disposition=OPEN, options=DIRECTORY)
        assert any(entry.endswith(wide(name)) for entry in client.list(root, 12)), len(name)
        client.close(root, made)
    refused(NAME_INVALID, client.open, "x" * 256)
    refused(NAME_INVALID, client.open, "😀" * 128)


@test
def case_does_not_count_and_is_kept():
    client = Client()
    made = client.make("Straße – ÄÖÜ Ωσ Жя ŁÓDŹ.TXT")
    for other in ("STRAßE – äöü ωΣ жЯ łódź.txt", "straße – äÖü Ωσ ЖЯ Łódź.Txt"):
        again = client.open(other, disposition=OPEN)
        assert client.query(again, INFO_FILE, 6) == client.query(made, INFO_FILE, 6)
        assert client.query(again, INFO_FILE, 48)[4:].decode("utf-16-le") == "Straße – ÄÖÜ Ωσ Жя ŁÓDŹ.TXT"
        client.close(again)
    # One character stays one: the upper case of ß is no SS, and an accent counts.
    for other in ("STRASSE – ÄÖÜ Ωσ Жя ŁÓDŹ.TXT", "Straße – AÖÜ Ωσ Жя ŁÓDŹ.TXT"):
        refused(NOT_FOUND, client.open, other, disposition=OPEN)
    refused(NAME_COLLISION, client.open, "STRAßE – äöü ωσ жя łódź.txt", disposition=CREATE)
    client.close(made)


@test
def a_path_has_up_to_32000_characters():
    client = Client()
    path, opened = "", []
    for level in range(158):
        path = (path + "\\" if path else "") + f"{level:03}" + "d" * 198
        opened.append(path)
        client.close(client.open(path, disposition=CREATE, options=DIRECTORY))
    assert len(path) > 31_900
    made = client.make(path + r"\bottom.txt", b"deep")
    name = client.query(made, INFO_FILE, 48, size=1 << 16)[4:].decode("utf-16-le")
    assert name == path + r"\bottom.txt"
    client.close(made)
    client.close(client.open(path + r"\bottom.txt", disposition=OPEN, access=DELETE, options=DELETE_ON_CLOSE))
    for path in reversed(opened):
        client.close(client.open(path, disposition=OPEN, access=DELETE, options=DIRECTORY | DELETE_ON_CLOSE))


@test
def names_that_only_win32_minds_are_names():
    client = Client()
    for name in ("CON", "nul.txt", "LPT1", "trailing.", "trailing", "trailing ", " leading", "a..b", "..."):
        made = client.open(name, disposition=CREATE, options=FILE)
        assert client.query(made, INFO_FILE, 48)[4:].decode("utf-16-le") == name, name
        client.close(made)
    root = client.open("", access=0x81, disposition=OPEN, options=DIRECTORY)
    listed = {entry[12:12 + struct.unpack_from("<I", entry, 8)[0]].decode("utf-16-le") for entry in client.list(root, 12)}
    assert {"CON", "trailing.", "trailing", "trailing ", "..."} <= listed
    client.close(root)
    for name in ("a*b", "a?b", 'a"b', "a<b", "a>b", "a|b", "a/b", "tab\tin", "a:b:c:d", "x\\\\y"):
        refused((NAME_INVALID, NOT_FOUND, 0xC000003A), client.open, name)
    refused((NAME_INVALID, 0xC0000039, 0xC000003A, 0xC000003B, 0xC000000D), client.open, r"..\x")


# --- macOS ------------------------------------------------------------------------------------------------------------


@test
def a_create_context_that_is_not_known_is_left_out_of_the_answer():
    client = Client()
    for name in (b"AAPL", b"XYZW", b"a long name of a context"):
        context = SMB2CreateContextRequest()
        context["buffer_name"] = name
        context["buffer_data"] = struct.pack("<IIQQ", 1, 0, 7, 0)
        made = client.open("", access=0x81, disposition=OPEN, options=DIRECTORY, contexts=[context])
        assert not made.answered, made.answered
        client.close(made)


@test
def metadata_of_macos_is_kept_in_streams():
    client = Client()
    client.close(client.make("mac.txt", b"x"))
    # Private characters stand for those that names cannot have (U+F022 for a colon).
    for name, content in (("AFP_AfpInfo", bytes(60)), ("AFP_Resource", b"fork"), ("com.apple.metadata\uf022_kMD", b"p")):
        client.close(client.make(f"mac.txt:{name}", content))
        made = client.open(f"mac.txt:{name}", disposition=OPEN)
        assert made.read(0, 100) == content
        client.close(made)


if __name__ == "__main__":
    sys.exit(run("explorer"))
