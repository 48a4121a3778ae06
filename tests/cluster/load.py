"""Clients that read and write blocks of files which all of them share, wherever these are served, and record what they did and were told.

A roaming client goes on at another server when its own does not answer; a pinned one asks one server for ever, which so has no chance to be
forgotten with an old answer in its hands. Both keep sessions with the servers they may need, as a good client does.
"""
import random, threading, time

import smb2
from cluster import Trouble
from history import BLOCK, PENDING_S, content, stamp_of

# Files and their blocks: a small one in which all meet, and one over which writes of several blocks are spread.
FILES = {0: 64, 1: 8192}
LARGE_BLOCKS = 16
LOG_ON_S = 3.0
# To find out whether a server serves the share.
MOVE_S = 3.0
PAUSE_S = 0.01


def file_name(file):
    return f"registers-{file}"


def read_or_nothing(link, file, first, count):
    """Blocks of a file; what lies behind its end was never written, and is zeroes."""
    try:
        data = link.read(file, first * BLOCK, count * BLOCK)
    except smb2.Refused as refusal:
        if refusal.status != smb2.END_OF_FILE:
            raise
        data = b""
    return data.ljust(count * BLOCK, b"\0")


class Links(threading.Thread):
    """Keeps a session with each server, so that moving to it costs no logon."""

    def __init__(self, servers, user, password):
        super().__init__(daemon=True)
        self.servers, self.user, self.password = servers, user, password
        self.lock, self.idle, self.ended, self.taken = threading.Lock(), {}, False, set()
        self.halt, self.halted = threading.Event(), threading.Event()

    def run(self):
        while not self.ended:
            if self.halt.is_set():
                self.halted.set()
                time.sleep(0.02)
                continue
            for node, address in self.servers.items():
                with self.lock:
                    wanted = node not in self.idle and node not in self.taken
                if not wanted or self.ended or self.halt.is_set():
                    continue
                try:
                    link = smb2.Connection(address, self.user, self.password, LOG_ON_S)
                except (OSError, smb2.Refused):
                    continue
                with self.lock:
                    self.idle[node] = link
            time.sleep(0.1)

    def take(self, node):
        with self.lock:
            link = self.idle.pop(node, None)
            if link:
                self.taken.add(node)
            return link

    def give_back(self, node, link):
        """`None` as link: it is of no use any more."""
        with self.lock:
            self.taken.discard(node)
            if link:
                self.idle[node] = link


class Client(threading.Thread):
    """`records` has what it did (see `history.History.close_segment`); `slow` its waits as (start, end, node it was answered by), from the start
    of what failed or took longer than 50 ms to the next answer."""

    def __init__(self, number, servers, share, user, password, seed, patience_s, pace_s, only_reads=False):
        super().__init__(daemon=True)
        self.number, self.servers, self.share = number, servers, share
        self.links = Links(servers, user, password)
        self.random = random.Random(f"{seed}-{number}")
        self.patience_s, self.pace_s, self.only_reads = patience_s, pace_s, only_reads
        self.sequence, self.records, self.slow, self.torn = 0, [], [], []
        # Names that it made and was told of, and those that it was told are gone.
        self.made, self.removed = {}, set()
        self.node, self.link, self.files = None, None, {}
        self.ended, self.halt, self.halted = False, threading.Event(), threading.Event()
        self.waiting_since, self.failures, self.write_flags = None, {}, smb2.WRITE_THROUGH

    def run(self):
        self.links.start()
        while not self.ended:
            if self.halt.is_set():
                self.halted.set()
                time.sleep(0.02)
                continue
            self.halted.clear()
            if self.link is None and not self.move():
                time.sleep(PAUSE_S)
                continue
            try:
                self.act()
            except (OSError, smb2.Refused) as error:
                self.leave(error)
            time.sleep(self.pace_s)
        self.halted.set()

    def note_failure(self, error):
        words = str(error)[:60]
        self.failures[words] = self.failures.get(words, 0) + 1

    def leave(self, error):
        self.note_failure(error)
        # A session of an answered error is good still, but has files open that are of no use.
        self.link.close()
        self.links.give_back(self.node, None)
        self.link = None

    def move(self):
        """Whether a server serves the share now."""
        for node in self.random.sample(sorted(self.servers), len(self.servers)):
            link = self.links.take(node)
            if link is None:
                continue
            try:
                link.seconds = min(self.patience_s, MOVE_S)
                link.connect_share(self.share)
                self.files = {file: link.create(file_name(file), smb2.OPEN_IF) for file in FILES}
            except smb2.Refused as refusal:
                self.note_failure(refusal)
                if link.tree:
                    link.close()
                    link = None
                self.links.give_back(node, link)
                continue
            except OSError as error:
                self.note_failure(error)
                link.close()
                self.links.give_back(node, None)
                continue
            link.seconds = self.patience_s
            self.node, self.link = node, link
            return True
        return False

    def act(self):
        chance = self.random.random()
        file = 0 if chance < 0.6 else 1
        count = 1 if file == 0 or chance < 0.8 else LARGE_BLOCKS
        first = self.random.randrange(FILES[file] - count + 1)
        start = time.monotonic()
        if self.waiting_since is None:
            self.waiting_since = start
        if self.only_reads or self.random.random() < 0.5:
            self.read(start, file, first, count)
        elif chance > 0.97:
            self.name(start)
        else:
            self.write(start, file, first, count)
        end = time.monotonic()
        if end - self.waiting_since > 0.05:
            self.slow.append((self.waiting_since, end, self.node))
        self.waiting_since = None

    def read(self, start, file, first, count):
        data = read_or_nothing(self.link, self.files[file], first, count)
        end = time.monotonic()
        stamps = [stamp_of(data[at * BLOCK:(at + 1) * BLOCK], file, first + at) for at in range(count)]
        for at, stamp in enumerate(stamps):
            if stamp is None:
                self.torn.append(f"file {file} block {first + at} read at {end:.3f}: no block that was ever written: {data[at * BLOCK:at * BLOCK + 32].hex()}")
                return
        self.records.append((start, end, self.node, False, file, first, stamps, True))

    def new_stamp(self):
        self.sequence += 1
        return self.number << 40 | self.sequence

    def write(self, start, file, first, count):
        stamps = [self.new_stamp() for _ in range(count)]
        data = b"".join(content(stamp, file, first + at) for at, stamp in enumerate(stamps))
        try:
            self.link.write(self.files[file], first * BLOCK, data, flags=self.write_flags)
        except (OSError, smb2.Refused):
            self.records.append((start, start + PENDING_S, self.node, True, file, first, stamps, False))
            raise
        self.records.append((start, time.monotonic(), self.node, True, file, first, stamps, True))

    def name(self, start):
        """Makes a file of one block, or removes one."""
        if len(self.made) > 20:
            name = self.random.choice(sorted(self.made))
            self.made.pop(name)
            self.link.close_file(self.link.create(name, options=smb2.DELETE_ON_CLOSE))
            self.removed.add(name)
            return
        stamp = self.new_stamp()
        name = f"named-{stamp:x}"
        file = self.link.create(name, smb2.CREATE_NEW)
        self.link.write(file, 0, content(stamp, 2, 0))
        self.link.close_file(file)
        self.made[name] = stamp


class Load:
    """All clients, and what was found wrong so far."""

    def __init__(self, servers, share, user, password, seed, history, roaming=3, pinned=(), patience_s=10.0, pinned_patience_s=30.0, pace_s=0.004,
                 write_flags=smb2.WRITE_THROUGH):
        self.servers, self.share, self.user, self.password, self.history = servers, share, user, password, history
        self.clients = [Client(number, servers, share, user, password, seed, patience_s, pace_s) for number in range(1, roaming + 1)]
        for number, node in enumerate(pinned, roaming + 1):
            self.clients.append(Client(number, {node: servers[node]}, share, user, password, seed, pinned_patience_s, pace_s * 2))
        self.roaming = self.clients[:roaming]
        self.deaths, self.wrong, self.slow = [], [], []
        for client in self.clients:
            client.write_flags = write_flags
            client.start()

    def first_answer(self, since, nodes, is_write):
        """When a client was first answered by one of these nodes, of what it asked after `since`; none yet: `None`."""
        found = [record[1] for client in self.clients for record in list(client.records)
                 if record[7] and record[3] == is_write and record[1] > since and record[2] in nodes]
        return min(found, default=None)

    def acknowledged(self):
        return sum(1 for client in self.clients for record in list(client.records) if record[7] and record[3])

    def longest_wait(self, since, until):
        """The longest that a roaming client waited for an answer, of waits that were on in this time."""
        waits = [min(end, until) - start for client in self.roaming for start, end, _ in client.slow if start < until and end > since and end > since]
        waits += [until - client.waiting_since for client in self.roaming if client.waiting_since]
        return max(waits, default=0.05)

    def halt(self, seconds=60):
        """Until no request is under way: what is asked later and seen earlier would look like a lie."""
        for client in self.clients:
            client.halt.set()
        until = time.monotonic() + seconds
        for client in self.clients:
            if not client.halted.wait(max(0, until - time.monotonic())):
                raise Trouble(f"client {client.number} got no answer from {client.node} within {seconds} s")

    def rest(self, seconds):
        """Lets no client ask anything more, nor log on. One that waits for a server which does not answer asks nothing either."""
        asking = [asking for client in self.clients for asking in (client, client.links)]
        for one in asking:
            one.halt.set()
        until = time.monotonic() + seconds
        for one in asking:
            one.halted.wait(max(0, until - time.monotonic()))

    def resume(self):
        for client in self.clients:
            for one in (client, client.links):
                one.halted.clear()
                one.halt.clear()

    def check(self, whole=False, seconds=60):
        """Halts the clients, reads back what they wrote, and adds what is wrong to `wrong`."""
        self.halt()
        records = []
        for client in self.clients:
            taken, client.records = client.records, []
            records += taken
            torn, client.torn = client.torn, []
            self.wrong += torn
        places = {(record[4], record[5] + at) for record in records for at in range(len(record[6]))}
        if whole:
            places = {(file, number) for file, blocks in FILES.items() for number in range(blocks)}
        final = self.read_back(places, seconds)
        self.wrong += self.history.close_segment(records, final, time.monotonic(), self.deaths)
        self.deaths.clear()
        for client in self.clients:
            client.slow.clear()
        self.resume()
        return not self.wrong

    def reader(self, seconds):
        """A connection to the server that serves the share."""
        until = time.monotonic() + seconds
        why = None
        while time.monotonic() < until:
            for address in self.servers.values():
                try:
                    link = smb2.Connection(address, self.user, self.password, LOG_ON_S)
                    link.seconds = 30
                    link.connect_share(self.share)
                    return link, {file: link.create(file_name(file), smb2.OPEN_IF) for file in FILES}
                except (OSError, smb2.Refused) as error:
                    why = error
            time.sleep(0.1)
        raise Trouble(f"no server serves the share within {seconds} s: {why}")

    def read_back(self, places, seconds):
        until = time.monotonic() + seconds
        while True:
            try:
                link, files = self.reader(seconds)
                final = {}
                for file in FILES:
                    for first, count in runs(sorted(number for of, number in places if of == file)):
                        start = time.monotonic()
                        data = read_or_nothing(link, files[file], first, count)
                        end = time.monotonic()
                        for at in range(count):
                            block = data[at * BLOCK:(at + 1) * BLOCK]
                            stamp = stamp_of(block, file, first + at)
                            if stamp is None:
                                self.wrong.append(f"file {file} block {first + at}: no block that was ever written: {block[:32].hex()}")
                            else:
                                final[file, first + at] = (start, end, stamp)
                link.close()
                return final
            except (OSError, smb2.Refused) as error:
                if time.monotonic() > until:
                    raise Trouble(f"what was written cannot be read back: {error}") from error

    def check_names(self):
        """Files that were made are there with their bytes, and those removed are gone."""
        link, _ = self.reader(60)
        count = 0
        for client in self.clients:
            for name, stamp in client.made.items():
                count += 1
                try:
                    file = link.create(name)
                    if stamp_of(link.read(file, 0, BLOCK), 2, 0) != stamp:
                        self.wrong.append(f"{name} has other bytes")
                    link.close_file(file)
                except smb2.Refused as refusal:
                    self.wrong.append(f"{name} was made and is not there: {refusal}")
            for name in client.removed:
                count += 1
                try:
                    link.close_file(link.create(name))
                    self.wrong.append(f"{name} was removed and is there")
                except smb2.Refused as refusal:
                    if refusal.status != smb2.NOT_FOUND:
                        self.wrong.append(f"{name} was removed: {refusal}")
        link.close()
        return count

    def stop(self):
        for client in self.clients:
            client.ended = client.links.ended = True
        for client in self.clients:
            client.join(40)

    def failures(self):
        found = {}
        for client in self.clients:
            for words, count in client.failures.items():
                found[words] = found.get(words, 0) + count
        return found


def runs(numbers):
    """First and count of runs of numbers, of at most LARGE_BLOCKS each."""
    first = count = None
    for number in numbers:
        if count and number == first + count and count < LARGE_BLOCKS:
            count += 1
            continue
        if count:
            yield first, count
        first, count = number, 1
    if count:
        yield first, count
