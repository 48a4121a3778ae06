"""Attacks the SMB Direct port of a running server as a hostile peer: prints `ok NAME` or `not ok NAME` a line; exit status 1 if any was
not. RDMA_PORT, SERVER_PID, SMB_USER, SMB_PASSWORD, SMB_SHARE in the environment; NAMES as arguments run only those."""
import os, random, resource, socket, struct, sys, time, urllib.request

import smb2
from peer_tests import run, test
from rdma_peer import (
    MEMORY, READ_REQUEST, READ_RESPONSE, SEND, TERMINATE, WRITE, Client, Direct, Peer, fpdu, mpa_request,
    negotiate_request, tagged, transfer, untagged,
)
from smb2 import Ended

PORT, SERVER = int(os.environ["RDMA_PORT"]), int(os.environ["SERVER_PID"])
USER, SHARE = os.environ["SMB_USER"], os.environ["SMB_SHARE"]
KEY = smb2.response_key(USER, os.environ["SMB_PASSWORD"])
RANDOM = random.Random(1)


def each(cases, ends):
    """Each of the cases ends its connection."""
    for name, act in cases.items():
        try:
            ends(act)
        except AssertionError as error:
            raise AssertionError(f"{name}: {error}") from error


def resident_mib():
    with open(f"/proc/{SERVER}/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS")) >> 10


def in_flight_mib():
    with urllib.request.urlopen(f"http://127.0.0.1:{os.environ['HTTP_PORT']}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    return int(float(next(line.split()[1] for line in lines if line.startswith("cenote_smb_in_flight_bytes ")))) >> 20


# --- MPA ------------------------------------------------------------------------------------------------------------------


@test
def an_mpa_request_that_is_none_is_closed():
    cases = {
        "another key": mpa_request(key=b"MPA ID Req Framf"),
        "a reply": mpa_request(key=b"MPA ID Rep Frame"),
        "random bytes": RANDOM.randbytes(4096),
        "SMB over TCP": struct.pack(">I", 100) + b"\xfeSMB" + bytes(96),
        "revision 9": mpa_request(revision=9),
        "more private data than there may be": mpa_request(length=65535, private=bytes(600)),
        "no room for what it says it has": mpa_request(private=b"", length=0),
    }

    def ends(request):
        peer = Peer(PORT, start=False)
        try:
            peer.raw(request)
            peer.socket.settimeout(8)
            # A request that is refused openly is answered before it is closed.
            while peer.socket.recv(4096):
                pass
        except TimeoutError:
            raise AssertionError("the connection goes on") from None
        except (Ended, OSError):
            pass
        peer.close()

    each(cases, ends)


# --- DDP and RDMAP --------------------------------------------------------------------------------------------------------


def corrupted(ulpdu):
    framed = bytearray(fpdu(ulpdu))
    framed[-1] ^= 1
    return bytes(framed)


def read_request(msn, stag, length=4096, source=0):
    return untagged(READ_REQUEST, 1, msn, struct.pack(">IQIIQ", 7, 0, length, stag, source))


@test
def a_segment_that_breaks_the_rules_ends_its_connection():
    hello = negotiate_request()
    guess = RANDOM.getrandbits(32)
    cases = {
        "a wrong CRC": corrupted(untagged(SEND, 0, 1, hello)),
        "an empty segment": fpdu(b""),
        "shorter than its header": fpdu(b"\x41\x43\x00"),
        "another DDP version": fpdu(untagged(SEND, 0, 1, hello, ddp=0x02)),
        "another RDMAP version": fpdu(untagged(SEND, 0, 1, hello, rdmap=0x80)),
        "queue 7": fpdu(untagged(SEND, 7, 1, hello)),
        "message 5 before message 1": fpdu(untagged(SEND, 0, 5, hello)),
        "message 0": fpdu(untagged(SEND, 0, 0, hello)),
        "an offset that leaves a hole": fpdu(untagged(SEND, 0, 1, hello, offset=100)),
        "an offset that wraps": fpdu(untagged(SEND, 0, 1, hello, offset=0xFFFFFFF0)),
        "longer than any receive": fpdu(untagged(SEND, 0, 1, bytes(60000))),
        "opcode 15": fpdu(untagged(15, 0, 1, hello)),
        "a Send by a tagged segment": fpdu(tagged(SEND, 1, 0, hello)),
        "a Write by an untagged segment": fpdu(untagged(WRITE, 0, 1, hello)),
        "a Read Request cut short": fpdu(untagged(READ_REQUEST, 1, 1, bytes(20))),
        "a Write to a guess": fpdu(tagged(WRITE, guess, 0, bytes(64))),
        "a Write that wraps": fpdu(tagged(WRITE, guess, 2**64 - 8, bytes(64))),
        "a Read of a guess": fpdu(read_request(1, guess)),
        "the answer to a Read that nobody asked for": fpdu(tagged(READ_RESPONSE, guess, 0, bytes(64))),
        "a Terminate": fpdu(untagged(TERMINATE, 2, 1, struct.pack(">I", 0x00000000))),
        "random segments": b"".join(fpdu(RANDOM.randbytes(RANDOM.randrange(20, 200))) for _ in range(20)),
    }

    def ends(data):
        peer = Peer(PORT)
        try:
            peer.raw(data)
        except Ended:
            return
        peer.ends()
        peer.close()

    each(cases, ends)


@test
def guesses_at_registrations_find_none():
    for _ in range(100):
        peer = Peer(PORT)
        stag = RANDOM.getrandbits(32)
        peer.raw(fpdu(RANDOM.choice([tagged(WRITE, stag, 0, bytes(8)), read_request(1, stag, 8)])))
        assert "Terminate (" in (how := peer.ends()), how
        peer.close()


@test
def more_reads_than_were_agreed_end_the_connection():
    peer = Direct(PORT)
    try:
        peer.raw(b"".join(fpdu(read_request(n + 1, 0, 0)) for n in range(4000)))
    except Ended:
        return
    # Reads of nothing are answered without looking at the name: what is not taken back is what may pile up.
    peer.socket.settimeout(8)
    try:
        for _ in range(4000):
            peer.segment()
    except Ended:
        pass
    peer.close()


# --- SMB Direct -----------------------------------------------------------------------------------------------------------


@test
def a_negotiation_out_of_bounds_is_refused():
    cases = {
        "no credits": negotiate_request(credits=0),
        "messages of 64 bytes": negotiate_request(receive=64),
        "fragments of 1 KiB in all": negotiate_request(fragmented=1024),
        "cut short": negotiate_request()[:12],
        "nothing": b"",
    }

    def ends(request):
        peer = Peer(PORT)
        peer.send(request)
        peer.ends()
        peer.close()

    each(cases, ends)


@test
def another_version_is_answered_with_a_status_and_serves_for_nothing_else():
    peer = Peer(PORT)
    peer.send(negotiate_request(0x200, 0x200))
    _, _, _, _, answer = peer.segment()
    assert struct.unpack("<I", answer[12:16])[0] == 0xC00000BB, answer
    # Nothing else is said: the server ends it by itself.
    peer.ends()
    peer.close()


def flooded(peer):
    """More than the credits allow, without listening."""
    for _ in range(4000):
        peer.send(transfer(flags=0))


def promised(peer, remaining):
    for _ in range(3000):
        peer.send(transfer(b"x", remaining=remaining))
        time.sleep(0)


@test
def transfers_that_break_the_rules_end_their_connection():
    def grants(peer):
        for _ in range(40):
            peer.send(transfer(granted=65535, requested=65535))

    cases = {
        "transfers without a credit": flooded,
        "more credits than there can be": grants,
        "fragments that never end": lambda peer: promised(peer, 100_000),
        "a message longer than was agreed": lambda peer: peer.send(transfer(b"x", remaining=0xFFFFFFF0)),
        "data behind its end": lambda peer: peer.send(transfer(b"x" * 10, length=5000)),
        "data that wraps": lambda peer: peer.send(transfer(b"x" * 10, offset=0xFFFFFFF8)),
        "data in the header": lambda peer: peer.send(transfer(b"x" * 10, offset=4)),
        "an odd offset": lambda peer: peer.send(transfer(b"x" * 10, offset=25)),
        "a header cut short": lambda peer: peer.send(b"\x01\x00\x00\x00"),
        "no SMB2": lambda peer: peer.send(transfer(b"GET / HTTP/1.1\r\n\r\n" * 4)),
    }

    def ends(act):
        peer = Direct(PORT)
        try:
            act(peer)
        except Ended:
            return
        peer.ends()
        peer.close()

    each(cases, ends)


# --- A user who is let in, and places what was not asked for -----------------------------------------------------------------


class Logged(Client):
    """A session over SMB Direct, with a file open; `keeps`: one that is there."""

    def __init__(self, keeps=None):
        super().__init__(PORT)
        self.ready(USER, KEY, SHARE)
        self.file = self.create(keeps or "placed", disposition=smb2.OPEN if keeps else smb2.OVERWRITE_IF, options=smb2.NON_DIRECTORY_FILE)

    def ends(self):
        """Waits until the server ends it, and answers its reads meanwhile."""
        self.socket.settimeout(10)
        try:
            while True:
                self.message()
        except Ended:
            self.close()
        except TimeoutError:
            raise AssertionError("the connection goes on") from None


@test
def what_a_server_fetches_is_what_it_writes():
    user = Logged()
    data = RANDOM.randbytes(5000)

    def answer(sink, to, size, source, offset):
        assert source == MEMORY
        user.direct.post(tagged(READ_RESPONSE, sink, to, data[offset - 0x5000 :][:size]))

    user.direct.on_read = answer
    user.offer(user.file, len(data))
    user.answer().expect("WRITE")
    assert user.read(user.file, 0, len(data)) == data
    user.close()


@test
def answers_outside_of_what_was_asked_for_end_the_connection():
    size = 16384
    cases = {
        "behind the end": lambda sink, to: [tagged(READ_RESPONSE, sink, to + 2 * size, bytes(64))],
        "before the beginning": lambda sink, to: [tagged(READ_RESPONSE, sink, to - 64 & 2**64 - 1, bytes(64))],
        "over the end": lambda sink, to: [tagged(READ_RESPONSE, sink, to, bytes(size + 64))],
        "around the end of all addresses": lambda sink, to: [tagged(READ_RESPONSE, sink, 2**64 - 32, bytes(64))],
        "the same part twice": lambda sink, to: [tagged(READ_RESPONSE, sink, to, bytes(64), last=False)] * 2,
        "a hole": lambda sink, to: [
            tagged(READ_RESPONSE, sink, to, bytes(64), last=False),
            tagged(READ_RESPONSE, sink, to + 128, bytes(64), last=False),
        ],
        "too little": lambda sink, to: [tagged(READ_RESPONSE, sink, to, bytes(64))],
        "under another name": lambda sink, to: [tagged(READ_RESPONSE, sink ^ 0x100, to, bytes(64))],
        "under an old name": lambda sink, to: [tagged(READ_RESPONSE, sink ^ 1, to, bytes(64))],
        "by a Write": lambda sink, to: [tagged(WRITE, sink, to + 2 * size, bytes(64))],
        "by a Send that ends the registration twice": lambda sink, to: [
            untagged(4, 0, 10_000, b"", stag=sink),
            untagged(4, 0, 10_001, b"", stag=sink),
        ],
    }

    def ends(answer):
        user, asked = Logged(), []

        def on_read(sink, to, *_):
            asked.append(sink)
            for segment in answer(sink, to):
                user.direct.post(segment)

        user.direct.on_read = on_read
        user.offer(user.file, size)
        user.ends()
        assert asked, "the server does not fetch"

    each(cases, ends)


@test
def an_answer_that_comes_again_finds_nothing():
    user = Logged()
    last = []

    def answer(sink, to, size, source, offset):
        last[:] = [sink, to]
        user.direct.post(tagged(READ_RESPONSE, sink, to, b"A" * size))

    user.direct.on_read = answer
    user.offer(user.file, 8192)
    user.answer().expect("WRITE")
    try:
        user.direct.post(tagged(READ_RESPONSE, *last, b"B" * 8192))
    except Ended:
        pass
    user.ends()
    Logged().close()


# --- Memory: what a peer does not take, and does not end -------------------------------------------------------------------


@test
def answers_that_nobody_reads_take_the_share_of_one_host():
    users = [Logged(keeps="large") for _ in range(16)]
    before, grown, counted = resident_mib(), 0, 0
    try:
        for user in users:
            for _ in range(4):
                user.demand(user.file, 0, 8 << 20)
        for _ in range(30):
            grown = max(grown, resident_mib() - before)
            time.sleep(0.1)
        # As it stays, not what goes through while answers are made.
        counted = in_flight_mib()
    finally:
        for user in users:
            user.direct.reset()
    # The requests are for 512 MiB. One host alone takes half of bytes_in_flight (256 MiB), and the work under way when that was reached.
    assert 100 < counted < 200 and grown < 200, f"{counted} MiB are counted, and the process grew by {grown} MiB"


# --- Many, and gone ----------------------------------------------------------------------------------------------------------


@test
def resets_in_every_state_end_that_connection_only():
    def logged(act=lambda user: None):
        user = Logged()
        act(user)
        return user.direct

    def half_sent(peer):
        peer.raw(fpdu(untagged(SEND, 0, 1, negotiate_request()))[:30])
        return peer

    def in_a_message(peer):
        peer.send(transfer(b"x" * 500, remaining=5000))
        return peer

    def connected():
        peer = Peer(PORT, start=False)
        return peer

    def half_asked():
        peer = Peer(PORT, start=False)
        peer.raw(mpa_request()[:10])
        return peer

    def asked():
        peer = Peer(PORT, start=False)
        peer.raw(mpa_request())
        return peer

    states = {
        "connected": (connected, 30),
        "half a request": (half_asked, 30),
        "a request": (asked, 30),
        "RDMA mode": (lambda: Peer(PORT), 30),
        "half a segment": (lambda: half_sent(Peer(PORT)), 30),
        "negotiated": (lambda: Direct(PORT), 30),
        "in a message": (lambda: in_a_message(Direct(PORT)), 30),
        "logged on": (logged, 5),
        "while the server fetches": (lambda: logged(lambda user: [user.offer(user.file, 1 << 20) for _ in range(3)]), 5),
    }
    for make, times in states.values():
        for _ in range(times):
            make().reset()


@test
def a_thousand_half_open_connections_keep_nobody_out():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, hard), hard))
    before = resident_mib()
    silent = []
    for at in range(1000):
        made = socket.create_connection(("127.0.0.1", PORT), timeout=10)
        # Some say nothing, some half of a request, some the whole and nothing more.
        if at % 3:
            try:
                made.sendall(mpa_request()[: 10 if at % 3 == 1 else None])
            except OSError:
                pass
        silent.append(made)
    user = Logged()
    user.write(user.file, 0, b"let in")
    grown = resident_mib() - before
    user.close()
    for made in silent:
        made.close()
    assert grown < 64, f"{grown} MiB for them"


def main():
    resident = resident_mib()
    status = run("rdma", sys.argv[1:])
    grown = resident_mib() - resident
    print(f"{'ok     ' if grown < 96 else 'not ok '} the server's memory is as before (grown by {grown} MiB)", flush=True)
    return status or int(grown >= 96)


sys.exit(main())
