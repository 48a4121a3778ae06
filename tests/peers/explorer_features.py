"""Requests of Windows Explorer, Hyper-V and macOS, sent byte by byte.

Prints `ok NAME` or `not ok NAME` a line; exit status 1 if any was not.
"""
import os, struct, sys

import smb2
from peer_tests import run, test
from smb2 import DELETE_ON_CLOSE, NOT_FOUND, OPEN, OPEN_IF, OVERWRITE_IF, entries_of, wide

# FILE_*: access, create options, dispositions.
READ_DATA, WRITE_DATA, DELETE, READ_CONTROL, MAXIMUM_ALLOWED = 1, 2, 0x10000, 0x20000, 0x02000000
CREATE, DIRECTORY, FILE = smb2.CREATE_NEW, smb2.DIRECTORY_FILE, smb2.NON_DIRECTORY_FILE
INFO_FILE, INFO_FILESYSTEM, INFO_SECURITY, INFO_QUOTA = 1, 2, 3, 4
OWNER, GROUP, DACL = 1, 2, 4

ACCESS_DENIED, NAME_INVALID = 0xC0000022, 0xC0000033
NO_MORE_FILES, NAME_COLLISION, NO_MORE_ENTRIES = 0x80000006, 0xC0000035, 0x8000001A
FILE_ACTION_ADDED = 1


class Client(smb2.Connection):
    def __init__(self):
        capabilities = smb2.LARGE_MTU | smb2.LEASING | smb2.DIRECTORY_LEASING
        super().__init__(("127.0.0.1", int(os.environ["SMB_PORT"])), os.environ["SMB_USER"], os.environ["SMB_PASSWORD"], 20,
                         dialect=0x0311, capabilities=capabilities)
        self.connect_share(os.environ["SMB_SHARE"])

    def open(self, name, access=MAXIMUM_ALLOWED, disposition=OPEN_IF, options=0, contexts=(), oplock=0):
        body = smb2.create_body(name, access, disposition, options, oplock, smb2.create_contexts(*contexts))
        answer = self.call(smb2.CREATE, body).expect(f"CREATE {name!r:.80}")
        self.oplock, self.contexts = answer.body[2], smb2.contexts_of(answer.body)
        return answer.body[64:80]

    def make(self, name, content=b""):
        made = self.open(name, disposition=OVERWRITE_IF, options=FILE)
        if content:
            self.write(made, 0, content)
        return made

    def query(self, made, kind, number, size=65536, extra=0, data=b""):
        return self.call(smb2.QUERY_INFO, smb2.query_info_body(made, kind, number, data, size, extra)).expect("QUERY_INFO").buffer()

    def set(self, made, kind, number, data, extra=0):
        self.call(smb2.SET_INFO, smb2.set_info_body(made, kind, number, data, extra)).expect("SET_INFO")

    def list(self, made, number, pattern="*"):
        """Entries of the class, as bytes each."""
        entries = []
        while (answer := self.call(smb2.QUERY_DIRECTORY, smb2.query_directory_body(made, pattern, 65536, number, 0))).status != NO_MORE_FILES:
            entries += entries_of(answer.expect("QUERY_DIRECTORY").buffer())
        return entries

    def ioctl(self, made, code, data=b"", size=65536):
        charge = max(1, (len(data) + 65535) // 65536)
        answer = self.call(smb2.IOCTL, smb2.ioctl_body(made, code, data, size), charge=charge).expect("IOCTL")
        at, length = struct.unpack_from("<II", answer.body, 32)
        return answer.message[at:at + length]


def refused(status, call, *arguments, **named):
    try:
        call(*arguments, **named)
    except smb2.Refused as error:
        wanted = status if isinstance(status, tuple) else (status,)
        assert error.status in wanted, f"{hex(error.status)}, not {[hex(one) for one in wanted]}"
        return
    raise AssertionError(f"{arguments} was accepted")


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
    client.close_file(root)


@test
def quotas_are_off_until_an_administrator_turns_them_on():
    client = Client()
    root = client.open("", access=0x81, disposition=OPEN, options=DIRECTORY)
    control = struct.unpack_from("<QQQQQI", client.query(root, INFO_FILESYSTEM, 6))
    assert control[5] & 3 == 0, "quotas are neither tracked nor enforced"
    # SMB2_QUERY_QUOTA_INFO (MS-SMB2 2.2.37.1): one entry, from the beginning.
    question = struct.pack("<BBHIII", 1, 1, 0, 0, 0, 0)
    refused(NO_MORE_ENTRIES, client.query, root, INFO_QUOTA, 0, data=question)
    client.close_file(root)


@test
def every_directory_class_tells_the_same_files():
    client = Client()
    top = client.open("classes", options=DIRECTORY)
    names = ["a name longer than eight and three.txt", "short.txt", "Ünïcode – 日本"]
    for name in names:
        client.close_file(client.make(rf"classes\{name}", b"x" * 10))
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
            client.close_file(again)
        client.close_file(fresh)
    client.close_file(top)


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
    client.close_file(made)


@test
def streams_are_listed_and_renamed():
    client = Client()
    made = client.make("streams.txt", b"main")
    for name, content in (("Zone.Identifier", b"[ZoneTransfer]"), ("other", b"12345")):
        client.close_file(client.make(f"streams.txt:{name}", content))

    def listed():
        found = {}
        for entry in entries_of(client.query(made, INFO_FILE, 22)):
            length, size = struct.unpack_from("<IQ", entry, 4)
            found[entry[24:24 + length].decode("utf-16-le")] = size
        return found

    assert listed() == {"::$DATA": 4, ":Zone.Identifier:$DATA": 14, ":other:$DATA": 5}, listed()
    other = client.open("streams.txt:other", disposition=OPEN)
    name = wide(":renamed:$DATA")
    client.set(other, INFO_FILE, 10, struct.pack("<B7xQI", 0, 0, len(name)) + name)
    client.close_file(other)
    assert ":renamed:$DATA" in listed() and ":other:$DATA" not in listed(), listed()
    client.close_file(made)


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
    client.close_file(made)
    refused(ACCESS_DENIED, client.open, "denied.txt", access=WRITE_DATA, disposition=OPEN)
    reader = client.open("denied.txt", access=READ_DATA | READ_CONTROL, disposition=OPEN)
    assert client.read(reader, 0, 7) == b"content"
    after = client.query(reader, INFO_SECURITY, 0, extra=DACL)
    assert [(kind, mask) for kind, _, mask, _ in aces_of(after)] == [(1, WRITE_DATA), (0, 0x1F01FF)]
    refused(0xC0000023, client.query, reader, INFO_SECURITY, 0, size=8, extra=DACL)
    client.close_file(reader)


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
    client.close_file(client.open(r"inheriting\below", options=DIRECTORY), client.make(r"inheriting\below\file"))
    file = client.open(r"inheriting\below\file", disposition=OPEN)
    found = aces_of(client.query(file, INFO_SECURITY, 0, extra=DACL))
    assert [(mask, sid) for _, _, mask, sid in found] == [(0x1F01FF, owner), (0x120089, everyone)], found
    assert all(flags == 0x10 for _, flags, _, _ in found), found
    client.close_file(file, top)


@test
def a_descriptor_that_makes_no_sense_is_refused_and_changes_nothing():
    client = Client()
    made = client.make("sense.txt")
    before = client.query(made, INFO_SECURITY, 0, extra=DACL)
    for wrong in (b"", b"\1", descriptor_of()[:24], struct.pack("<BBHIIII", 1, 0, 0x8004, 0, 0, 0, 4000)):
        refused((0xC0000079, 0xC000000D, 0xC0000077), client.set, made, INFO_SECURITY, 0, wrong, extra=DACL)
    assert client.query(made, INFO_SECURITY, 0, extra=DACL) == before
    client.close_file(made)


# --- What goes on meanwhile -------------------------------------------------------------------------------------------


@test
def changes_below_a_directory_are_told():
    client, other = Client(), Client()
    top = client.open("watched", options=DIRECTORY)
    client.close_file(client.open(r"watched\deep", options=DIRECTORY), client.open(r"watched\deep\er", options=DIRECTORY))
    # WATCH_TREE, and names of files (2.2.35).
    client.send(client.build(smb2.CHANGE_NOTIFY, struct.pack("<HHI16s", 32, 1, 4096, top) + struct.pack("<II", 1, 0)))
    assert smb2.Answer(client.message()).status == smb2.PENDING, "the server says that it watches"
    other.close_file(other.make(r"watched\deep\er\new.txt"))
    told = entries_of(client.answer().expect("CHANGE_NOTIFY").buffer())
    added = [entry[12:12 + struct.unpack_from("<I", entry, 8)[0]].decode("utf-16-le") for entry in told if entry[4] == FILE_ACTION_ADDED]
    assert r"deep\er\new.txt" in added, told
    client.close_file(top)


@test
def a_directory_lease_is_granted():
    client = Client()
    client.close_file(client.open("leased", options=DIRECTORY))
    lease = struct.pack("<16sIIQ16sHH", os.urandom(16), 3, 0, 0, bytes(16), 0, 0)
    made = client.open("leased", access=0x81, disposition=OPEN, options=DIRECTORY, contexts=[(b"RqLs", lease)], oplock=0xFF)
    assert client.oplock == 0xFF and b"RqLs" in client.contexts, "a lease came back"
    state = struct.unpack_from("<I", client.contexts[b"RqLs"], 16)[0]
    assert state == 3, state
    client.close_file(made)


# --- Copies -----------------------------------------------------------------------------------------------------------


@test
def chunks_are_copied_by_the_server_and_too_many_are_refused_with_its_limits():
    client = Client()
    content = os.urandom(2 << 20)
    source, target = client.make("chunks.source"), client.make("chunks.target")
    client.write(source, 0, content)
    key = client.ioctl(source, 0x140078, size=32)[:24]
    chunks = [(0, 1 << 20, 1 << 20), (1 << 20, 0, 1 << 20)]
    request = key + struct.pack("<II", len(chunks), 0) + b"".join(struct.pack("<QQII", *chunk, 0) for chunk in chunks)
    assert struct.unpack("<III", client.ioctl(target, 0x1440F2, request, 12)) == (2, 0, 2 << 20)
    assert client.read(target, 0, len(content)) == content[1 << 20:] + content[:1 << 20]
    many = key + struct.pack("<II", 5000, 0) + struct.pack("<QQII", 0, 0, 1, 0) * 5000
    refused(0xC000000D, client.ioctl, target, 0x1440F2, many, 12)
    client.close_file(source, target)


@test
def extents_are_duplicated_and_apart_from_then_on():
    client = Client()
    content = os.urandom(1 << 16)
    source, target = client.make("cloned.source", content), client.make("cloned.target")
    client.set(target, INFO_FILE, 20, struct.pack("<Q", len(content)))
    client.ioctl(target, 0x98344, source + struct.pack("<QQQ", 0, 0, len(content)), 0)
    assert client.read(target, 0, len(content)) == content
    client.write(source, 0, b"changed")
    assert client.read(target, 0, 7) == content[:7] and client.read(source, 0, 7) == b"changed"
    client.close_file(source, target)


@test
def a_sparse_file_tells_what_is_allocated():
    client = Client()
    made = client.make("sparse.vhdx")
    client.ioctl(made, 0x900C4, b"\1", 0)
    client.set(made, INFO_FILE, 20, struct.pack("<Q", 1 << 40))
    client.write(made, 1 << 30, b"x" * 4096)
    ranges = client.ioctl(made, 0x940CF, struct.pack("<QQ", 0, 1 << 40))
    at, length = struct.unpack_from("<QQ", ranges)
    assert len(ranges) == 16 and at <= 1 << 30 and at + length >= (1 << 30) + 4096 and length <= 1 << 20, (at, length)
    client.ioctl(made, 0x980C8, struct.pack("<QQ", 0, 1 << 40), 0)
    assert client.read(made, 1 << 30, 4096) == bytes(4096)
    client.close_file(made)


# --- Names ------------------------------------------------------------------------------------------------------------


@test
def names_have_up_to_255_code_units():
    client = Client()
    for name in ("x" * 255, "日" * 255, "😀" * 127 + "y"):
        made = client.open(name, access=MAXIMUM_ALLOWED, disposition=CREATE, options=FILE | DELETE_ON_CLOSE)
        root = client.open("", access=0x81, disposition=OPEN, options=DIRECTORY)
        assert any(entry.endswith(wide(name)) for entry in client.list(root, 12)), len(name)
        client.close_file(root, made)
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
        client.close_file(again)
    # One character stays one: the upper case of ß is no SS, and an accent counts.
    for other in ("STRASSE – ÄÖÜ Ωσ Жя ŁÓDŹ.TXT", "Straße – AÖÜ Ωσ Жя ŁÓDŹ.TXT"):
        refused(NOT_FOUND, client.open, other, disposition=OPEN)
    refused(NAME_COLLISION, client.open, "STRAßE – äöü ωσ жя łódź.txt", disposition=CREATE)
    client.close_file(made)


@test
def a_path_has_up_to_32000_characters():
    client = Client()
    path, opened = "", []
    for level in range(158):
        path = (path + "\\" if path else "") + f"{level:03}" + "d" * 198
        opened.append(path)
        client.close_file(client.open(path, disposition=CREATE, options=DIRECTORY))
    assert len(path) > 31_900
    made = client.make(path + r"\bottom.txt", b"deep")
    name = client.query(made, INFO_FILE, 48, size=1 << 16)[4:].decode("utf-16-le")
    assert name == path + r"\bottom.txt"
    client.close_file(made)
    client.close_file(client.open(path + r"\bottom.txt", disposition=OPEN, access=DELETE, options=DELETE_ON_CLOSE))
    for path in reversed(opened):
        client.close_file(client.open(path, disposition=OPEN, access=DELETE, options=DIRECTORY | DELETE_ON_CLOSE))


@test
def names_that_only_win32_minds_are_names():
    client = Client()
    for name in ("CON", "nul.txt", "LPT1", "trailing.", "trailing", "trailing ", " leading", "a..b", "..."):
        made = client.open(name, disposition=CREATE, options=FILE)
        assert client.query(made, INFO_FILE, 48)[4:].decode("utf-16-le") == name, name
        client.close_file(made)
    root = client.open("", access=0x81, disposition=OPEN, options=DIRECTORY)
    listed = {entry[12:12 + struct.unpack_from("<I", entry, 8)[0]].decode("utf-16-le") for entry in client.list(root, 12)}
    assert {"CON", "trailing.", "trailing", "trailing ", "..."} <= listed
    client.close_file(root)
    for name in ("a*b", "a?b", 'a"b', "a<b", "a>b", "a|b", "a/b", "tab\tin", "a:b:c:d", "x\\\\y"):
        refused((NAME_INVALID, NOT_FOUND, 0xC000003A), client.open, name)
    refused((NAME_INVALID, 0xC0000039, 0xC000003A, 0xC000003B, 0xC000000D), client.open, r"..\x")


# --- macOS ------------------------------------------------------------------------------------------------------------


@test
def a_create_context_that_is_not_known_is_left_out_of_the_answer():
    client = Client()
    for name in (b"AAPL", b"XYZW", b"a long name of a context"):
        context = name, struct.pack("<IIQQ", 1, 0, 7, 0)
        made = client.open("", access=0x81, disposition=OPEN, options=DIRECTORY, contexts=[context])
        assert not client.contexts, client.contexts
        client.close_file(made)


@test
def metadata_of_macos_is_kept_in_streams():
    client = Client()
    client.close_file(client.make("mac.txt", b"x"))
    # Private characters stand for those that names cannot have (U+F022 for a colon).
    for name, content in (("AFP_AfpInfo", bytes(60)), ("AFP_Resource", b"fork"), ("com.apple.metadata\uf022_kMD", b"p")):
        client.close_file(client.make(f"mac.txt:{name}", content))
        made = client.open(f"mac.txt:{name}", disposition=OPEN)
        assert client.read(made, 0, 100) == content
        client.close_file(made)


if __name__ == "__main__":
    sys.exit(run("explorer"))
