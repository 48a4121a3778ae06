"""Handles, leases and locks on a continuously available share, under kill -9.

Clients with traffic hold files open; the server is killed at random moments and started again. An intruder is refused until the clients are
back. Each client takes up what it held, says again what was not answered, and compares names, bytes and locks with what it was told.
Prints `ok NAME` or `not ok NAME` a line; exit status 1 if any was not.
"""
import os, random, struct, subprocess, sys, threading, time, traceback, uuid

import smb2

PORT = int(os.environ["SMB_PORT"])
USER, PASSWORD, SHARE = os.environ["SMB_USER"], os.environ["SMB_PASSWORD"], os.environ["SMB_SHARE"]
COMMAND, PID_FILE = os.environ["SERVER_COMMAND"].split("\x1f"), os.environ["SERVER_PID_FILE"]
ROUNDS, SEED = int(os.environ.get("ROUNDS", "5")), int(os.environ.get("SEED", str(time.time_ns() % 1_000_000)))

CLIENTS, HANDLES_MAX, BLOCK = 3, 4, 4096
CAPABILITIES = smb2.LEASING | smb2.LARGE_MTU | smb2.PERSISTENT_HANDLES | smb2.DIRECTORY_LEASING
READ_WRITE_HANDLE = 7
LOCK_NOT_GRANTED, NOT_AVAILABLE = 0xC0000055, 0xC0000467
INVALID_PARAMETER = 0xC000000D
# Flags of a lock's element.
LOCK, UNLOCK = smb2.LOCK_EXCLUSIVE | smb2.LOCK_AT_ONCE, 4


class Client:
    def __init__(self):
        self.guid, self.link = uuid.uuid4().bytes_le, None

    def connect(self):
        self.link = smb2.Connection(("127.0.0.1", PORT), USER, PASSWORD, 30, self.guid, 0x0311, CAPABILITIES)
        self.link.connect_share(SHARE)
        assert self.link.capabilities & smb2.PERSISTENT_HANDLES, "the server says PERSISTENT_HANDLES"

    def call(self, command, body, replay=False):
        """The answer. An OSError says that the connection is gone: whether the request took effect is not known."""
        return self.link.call(command, body, flags=smb2.FLAG_REPLAY if replay else 0)

    def create(self, path, contexts, disposition=smb2.CREATE_NEW, share=0, access=smb2.ALL_ACCESS, replay=False, leased=True):
        body = smb2.create_body(path, access, disposition, smb2.NON_DIRECTORY_FILE, 0xFF if leased else 0, smb2.create_contexts(*contexts), share)
        answer = self.call(smb2.CREATE, body, replay)
        if answer.status:
            return answer.status, None
        return 0, {"id": answer.body[64:80], "contexts": smb2.contexts_of(answer.body)}


class Handle:
    def __init__(self, path):
        self.path, self.guid, self.key = path, uuid.uuid4().bytes_le, os.urandom(16)
        self.id, self.blocks, self.locks, self.deleting, self.sequence = None, {}, {}, False, {}

    def lease(self):
        return b"RqLs", self.key + struct.pack("<IIQ", READ_WRITE_HANDLE, 0, 0) + bytes(16) + struct.pack("<HH", 0, 0)

    def wanted(self):
        return [(b"DH2Q", struct.pack("<IIQ", 120_000, 2, 0) + self.guid), self.lease()]

    def lost(self):
        return [(b"DH2C", self.id + self.guid + struct.pack("<I", 2)), self.lease()]


class Worker(Client):
    """One client: what it holds, what it was told, and the one request whose answer it has not got."""

    def __init__(self, number, seed):
        super().__init__()
        self.number, self.random = number, random.Random(f"{seed}-{number}")
        self.handles, self.closed, self.count, self.doubt = [], {}, 0, None
        self.operations = self.replayed = self.reclaimed = 0

    def name(self):
        self.count += 1
        return f"c{self.number}-{self.count}"

    # --- Requests: each may be sent again with `replay` and has to succeed then, too ---

    def open(self, handle, replay=False):
        status, found = self.create(handle.path, handle.wanted(), replay=replay)
        assert status == 0, f"create {handle.path}: {status:#x} (again: {replay})"
        flags = struct.unpack_from("<II", found["contexts"][b"DH2Q"])[1]
        assert flags & 2, "the handle is persistent"
        handle.id = found["id"]
        self.check_lease(handle, found)
        self.handles.append(handle)

    def check_lease(self, handle, found):
        state = struct.unpack_from("<I", found["contexts"][b"RqLs"], 16)[0]
        assert state == READ_WRITE_HANDLE, f"{handle.path}: lease {state}"

    def write(self, handle, block, data, replay=False):
        status = self.call(smb2.WRITE, smb2.write_body(handle.id, block * BLOCK, data), replay).status
        assert status == 0, f"write {handle.path}: {status:#x}"
        handle.blocks[block] = data

    def lock(self, handle, offset, locks, sequence, replay=False):
        status = self.call(smb2.LOCK, smb2.lock_body(handle.id, [(offset, 10, LOCK if locks else UNLOCK)], sequence), replay).status
        assert status == 0, f"lock {handle.path} {locks}: {status:#x} (again: {replay})"
        if locks:
            handle.locks[offset] = True
        else:
            handle.locks.pop(offset)

    def set_info(self, handle, number, buffer, replay):
        status = self.call(smb2.SET_INFO, smb2.set_info_body(handle.id, 1, number, buffer), replay).status
        assert status == 0, f"set info {number} of {handle.path}: {status:#x} (again: {replay})"

    def rename(self, handle, to, replay=False):
        name = smb2.wide(to)
        self.set_info(handle, 10, struct.pack("<QQI", 0, 0, len(name)) + name, replay)
        handle.path = to

    def delete(self, handle, deleting, replay=False):
        self.set_info(handle, 13, bytes([deleting]), replay)
        handle.deleting = bool(deleting)

    def close(self, handle, replay=False):
        status = self.call(smb2.CLOSE, smb2.close_body(handle.id), replay).status
        assert status == 0, f"close {handle.path}: {status:#x}"
        self.forget(handle)

    def forget(self, handle):
        self.handles.remove(handle)
        if not handle.deleting:
            self.closed[handle.path] = handle.blocks

    # --- Traffic ---

    def step(self):
        choose = self.random
        if not self.handles or len(self.handles) < HANDLES_MAX and choose.random() < 0.2:
            return self.open, (Handle(self.name()),)
        handle = choose.choice(self.handles)
        kind = choose.random()
        if kind < 0.45:
            return self.write, (handle, choose.randrange(16), bytes([choose.randrange(1, 256)]) * BLOCK)
        if kind < 0.75:
            offset = choose.randrange(8) * 100
            # Each bucket has numbers of its own, which begin anew after sixteen.
            bucket = choose.randrange(1, 65)
            handle.sequence[bucket] = (handle.sequence.get(bucket, -1) + 1) % 16
            return self.lock, (handle, offset, offset not in handle.locks, bucket << 4 | handle.sequence[bucket])
        if kind < 0.85 and not handle.deleting:
            return self.rename, (handle, self.name())
        if kind < 0.93:
            return self.delete, (handle, not handle.deleting)
        return self.close, (handle,)

    def work(self, stop):
        while not stop.is_set():
            self.doubt = self.step() if self.doubt is None else self.doubt
            request, arguments = self.doubt
            request(*arguments)
            self.doubt = None
            self.operations += 1

    # --- Coming back ---

    def recover(self):
        self.connect()
        doubted = self.doubt and self.doubt[1][0]
        for handle in list(self.handles):
            paths = [handle.path]
            if handle is doubted and self.doubt[0] == self.rename:
                paths.append(self.doubt[1][1])
            for path in paths:
                status, found = self.create(path, handle.lost(), disposition=smb2.OPEN)
                if status != INVALID_PARAMETER:
                    break
            if status == smb2.NOT_FOUND and handle is doubted and self.doubt[0] == self.close:
                self.forget(handle)
                self.doubt = None
                continue
            assert status == 0, f"reclaim of {handle.path}: {status:#x}, in doubt: {handle is doubted and self.doubt}"
            assert found["id"][:8] == handle.id[:8], "the persistent part of the FileId stays"
            handle.id = found["id"]
            self.check_lease(handle, found)
            self.reclaimed += 1
        if self.doubt:
            request, arguments = self.doubt
            request(*arguments, replay=True)
            self.doubt = None
            self.replayed += 1
        self.verify()

    def verify(self):
        for handle in self.handles:
            self.same_bytes(handle.path, handle.id, handle.blocks)
            for offset in range(0, 800, 100):
                status = self.call(smb2.LOCK, smb2.lock_body(handle.id, [(offset, 10, LOCK)])).status
                held = offset in handle.locks
                assert status == (LOCK_NOT_GRANTED if held else 0), f"{handle.path} at {offset}: {status:#x}, held: {held}"
                if not held:
                    self.call(smb2.LOCK, smb2.lock_body(handle.id, [(offset, 10, UNLOCK)])).expect("unlock")

    def same_bytes(self, path, id, blocks):
        for block, want in blocks.items():
            assert self.link.read(id, block * BLOCK, BLOCK) == want, f"{path}: block {block} is not what was written"

    def verify_closed(self):
        """Files that were closed are there with their bytes, others are not."""
        for path, blocks in self.closed.items():
            status, found = self.create(path, [], disposition=smb2.OPEN, share=7, access=smb2.GENERIC_READ, leased=False)
            assert status == 0, f"{path}: {status:#x}"
            self.same_bytes(path, found["id"], blocks)
            self.link.close_file(found["id"])


def start_server():
    server = subprocess.Popen(COMMAND, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    with open(PID_FILE, "w") as file:
        file.write(str(server.pid))
    for line in server.stdout:
        if line.strip() == "ready":
            threading.Thread(target=server.stdout.read, daemon=True).start()
            return server
    raise AssertionError("the server does not start")


def run_traffic(workers, server, seconds):
    stop, problems = threading.Event(), []

    def work(worker):
        try:
            worker.work(stop)
        except OSError:
            pass
        except Exception:
            problems.append(traceback.format_exc())

    threads = [threading.Thread(target=work, args=(worker,)) for worker in workers]
    for thread in threads:
        thread.start()
    time.sleep(seconds)
    if server:
        server.kill()
        server.wait()
    else:
        stop.set()
    for thread in threads:
        thread.join()
    for worker in workers:
        if server:
            worker.link.close()
    assert not problems, "\n".join(problems)


def intrude(paths):
    intruder = Client()
    intruder.connect()
    for path in paths:
        status, _ = intruder.create(path, [], disposition=smb2.OPEN, share=7, access=0x0012019F, leased=False)
        assert status == NOT_AVAILABLE, f"an intruder at {path}: {status:#x}"
    intruder.link.close()


def main():
    print(f"# seed {SEED}", flush=True)
    choose = random.Random(SEED)
    server = start_server()
    workers = [Worker(number, SEED) for number in range(CLIENTS)]
    for worker in workers:
        worker.connect()
    for number in range(1, ROUNDS + 1):
        run_traffic(workers, server, choose.uniform(0.2, 1.5))
        server = start_server()
        doubtful = {id(worker.doubt[1][0]) for worker in workers if worker.doubt}
        intrude(handle.path for worker in workers for handle in worker.handles if id(handle) not in doubtful and not handle.deleting)
        for worker in workers:
            worker.recover()
        held = sum(len(worker.handles) for worker in workers)
        locks = sum(len(handle.locks) for worker in workers for handle in worker.handles)
        print(f"ok      round {number}: {held} handles with {locks} locks are back, an intruder was refused", flush=True)
    run_traffic(workers, None, 0.2)
    for worker in workers:
        worker.verify()
        for handle in list(worker.handles):
            worker.close(handle)
        worker.verify_closed()
    done, again = sum(w.operations for w in workers), sum(w.replayed for w in workers)
    print(f"ok      {done} operations, {again} of them said again after a kill, left names, bytes and locks as they were told", flush=True)
    server.terminate()
    server.wait()


try:
    main()
except Exception:
    print("not ok  handles outlive the server", flush=True)
    traceback.print_exc()
    sys.exit(1)
