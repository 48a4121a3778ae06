"""Kills the server, or cuts its power, at random points under a writer that keeps a model of what was acknowledged, and verifies
after each start: nothing is lost, health is clean.

usage: kill.py --rounds N [--cuts SOCKET] --start COMMAND... (the command starts the server in the foreground and it prints `ready`)

With --cuts it is not kill -9 that ends the server but a power cut, told to the fault socket of a build with fault injection: what no
flush covered is lost, kept or torn, by a seed. One round in eight ends the server a second time while it starts.

The model: a file is a list of 4 KiB blocks, each of one tag repeated. While a write is not yet durable (no FLUSH or CLOSE
answered after it) a block may hold its old or its new tag; afterwards only the new one. The same for names: a create, rename or
delete that was not answered may have happened or not. Anything else, a torn block above all, is a loss.
Settings: SMB_PORT SMB_SHARE SMB_USER SMB_PASSWORD CRASH_SEED; CRASH_HEALTH is the command that says whether health is clean.
Prints a line a round (with CRASH_QUIET only the bad ones and each hundredth), then `N passed, N failed`.
"""
import argparse, os, random, shlex, signal, socket, subprocess, sys, threading, time, uuid

from smbprotocol import exceptions
from smbprotocol.connection import Connection
from smbprotocol.file_info import FileDispositionInformation, FileRenameInformation
from smbprotocol.open import (CreateDisposition, CreateOptions, FileAttributes, FilePipePrinterAccessMask, ImpersonationLevel,
                              Open, ShareAccess, SMB2SetInfoRequest, SMB2SetInfoResponse)
from smbprotocol.session import Session
from smbprotocol.tree import TreeConnect

BLOCK = 4096
ACCESS = (FilePipePrinterAccessMask.FILE_READ_DATA | FilePipePrinterAccessMask.FILE_WRITE_DATA |
          FilePipePrinterAccessMask.FILE_READ_ATTRIBUTES | FilePipePrinterAccessMask.DELETE |
          FilePipePrinterAccessMask.SYNCHRONIZE)
ZERO = 0


def block(tag):
    return (tag.to_bytes(8, "little") * (BLOCK // 8)) if tag else bytes(BLOCK)


class Client:
    def __init__(self):
        self.connection = Connection(uuid.uuid4(), "127.0.0.1", int(os.environ["SMB_PORT"]))
        self.connection.connect(timeout=20)
        session = Session(self.connection, os.environ["SMB_USER"], os.environ["SMB_PASSWORD"], require_encryption=False)
        session.connect()
        self.tree = TreeConnect(session, rf"\\127.0.0.1\{os.environ['SMB_SHARE']}")
        self.tree.connect()

    def open(self, name, disposition):
        handle = Open(self.tree, name)
        handle.create(ImpersonationLevel.Impersonation, ACCESS, FileAttributes.FILE_ATTRIBUTE_NORMAL,
                      ShareAccess.FILE_SHARE_READ | ShareAccess.FILE_SHARE_WRITE | ShareAccess.FILE_SHARE_DELETE,
                      disposition, CreateOptions.FILE_NON_DIRECTORY_FILE)
        return handle

    def set_information(self, handle, information):
        request = SMB2SetInfoRequest()
        request["info_type"] = 1
        request["file_info_class"] = information.INFO_CLASS
        request["file_id"] = handle.file_id
        request["buffer"] = information
        sent = self.connection.send(request, self.tree.session.session_id, self.tree.tree_connect_id)
        response = self.connection.receive(sent)
        SMB2SetInfoResponse().unpack(response["data"].get_value())

    def close(self):
        try:
            self.connection.disconnect(close=False)
        except Exception:
            pass


class File:
    """Contents that a file may have: for each block the tags it may hold; the length in blocks it may have."""

    def __init__(self, blocks=None, lengths=frozenset({0}), exists=frozenset({True})):
        self.blocks, self.lengths, self.exists = blocks or [], set(lengths), set(exists)

    def written(self, at, tags, durable):
        while len(self.blocks) < at + len(tags):
            self.blocks.append({ZERO})
        for number, tag in enumerate(tags, at):
            self.blocks[number] = {tag} if durable else self.blocks[number] | {tag}
        end = max(max(self.lengths), at + len(tags))
        self.lengths = {end} if durable else self.lengths | set(range(min(self.lengths), end + 1))

    def differences(self, data):
        """The parts of `data` that the file must not have."""
        differences = []
        length = -(-len(data) // BLOCK)
        if length not in self.lengths:
            differences.append(f"has {length} blocks, not one of {sorted(self.lengths)[:8]}...")
        for number, offset in enumerate(range(0, len(data), BLOCK)):
            found = data[offset:offset + BLOCK]
            tag = int.from_bytes(found[:8], "little")
            allowed = self.blocks[number] if number < len(self.blocks) else set()
            whole = found == block(tag)[:len(found)]
            if not whole or tag not in allowed | ({ZERO} if len(self.lengths) > 1 else set()):
                differences.append(f"block {number} holds {tag if whole else 'a mixture'}, not {sorted(allowed)}")
        return differences


class Model:
    def __init__(self, seed):
        self.random = random.Random(seed)
        self.files = {}
        self.tag = 0
        self.name = 0
        self.acknowledged = 0

    def new_tags(self, count):
        tags = list(range(self.tag + 1, self.tag + count + 1))
        self.tag += count
        return tags

    def write_some(self, client, name, handle):
        """Writes that become durable together, by FLUSH or by CLOSE."""
        file = self.files[name]
        pending = []
        for _ in range(self.random.randint(1, 4)):
            count = self.random.choice([1, 1, 2, 7, 16, 17, 64, 200])
            at = self.random.randint(0, min(len(file.blocks), 400))
            tags = self.new_tags(count)
            # In the model before it is sent: from then on either may be found.
            file.written(at, tags, durable=False)
            data = b"".join(map(block, tags))
            for offset in range(0, len(data), 1 << 18):
                handle.write(data[offset:offset + (1 << 18)], at * BLOCK + offset)
            pending.append((at, tags))
        if self.random.random() < 0.5:
            handle.flush()
            self.note_durable(file, pending)
            pending = []
        return pending

    def note_durable(self, file, pending):
        for at, tags in pending:
            file.written(at, tags, durable=True)
            self.acknowledged += len(tags)

    def known(self):
        """Files that are there for certain."""
        return [name for name, file in self.files.items() if file.exists == {True}]

    def step(self, client):
        known = self.known()
        action = self.random.random()
        if (action < 0.35 and len(known) < 30) or not known:
            self.create(client)
        elif action < 0.8:
            self.overwrite(client, self.random.choice(known))
        elif action < 0.9:
            self.rename(client, self.random.choice(known))
        elif len(known) > 20 or action > 0.96:
            self.delete(client, self.random.choice(known))

    def create(self, client):
        self.name += 1
        name = f"f{self.name}"
        file = self.files[name] = File()
        file.exists = {True, False}
        handle = client.open(name, CreateDisposition.FILE_CREATE)
        pending = self.write_some(client, name, handle)
        handle.close()
        file.exists = {True}
        self.note_durable(file, pending)

    def overwrite(self, client, name):
        handle = client.open(name, CreateDisposition.FILE_OPEN)
        pending = self.write_some(client, name, handle)
        handle.close()
        self.note_durable(self.files[name], pending)

    def rename(self, client, old):
        self.name += 1
        new = f"r{self.name}"
        handle = client.open(old, CreateDisposition.FILE_OPEN)
        file = self.files[old]
        moved = self.files[new] = File(file.blocks, file.lengths, {True, False})
        file.exists = {True, False}
        information = FileRenameInformation()
        information["replace_if_exists"] = False
        information["file_name"] = new.encode("utf-16-le")
        client.set_information(handle, information)
        handle.close()
        moved.exists = {True}
        del self.files[old]

    def delete(self, client, name):
        handle = client.open(name, CreateDisposition.FILE_OPEN)
        self.files[name].exists = {True, False}
        information = FileDispositionInformation()
        information["delete_pending"] = True
        client.set_information(handle, information)
        handle.close()
        del self.files[name]

    def verify(self, client, adopt=True):
        """Every file is one of those it may be; afterwards the model knows which, if what was read is durable (`adopt`)."""
        losses = []
        for name in list(self.files):
            file = self.files[name]
            data = self.read_back(client, name)
            if data is None:
                if file.exists == {True}:
                    losses.append(f"{name} is gone")
                if adopt:
                    del self.files[name]
                continue
            losses += [f"{name} {difference}" for difference in file.differences(data)]
            if adopt:
                tags = [int.from_bytes(data[at:at + 8], "little") for at in range(0, len(data), BLOCK)]
                self.files[name] = File([{tag} for tag in tags], {len(tags)}, {True})
        return losses

    def read_back(self, client, name):
        """All of a file; None if there is no such file."""
        try:
            handle = client.open(name, CreateDisposition.FILE_OPEN)
        except exceptions.SMBResponseException as error:
            if error.status != 0xC0000034:
                raise
            return None
        data, size = bytearray(), handle.end_of_file
        while len(data) < size:
            piece = handle.read(len(data), min(1 << 18, size - len(data)))
            if not piece:
                raise ValueError(f"{name} of {size} bytes reads short at {len(data)}")
            data += piece
        handle.close()
        return bytes(data)


def launch(command):
    return subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)


def start(command):
    began = time.monotonic()
    server = launch(command)
    for line in server.stdout:
        if line.strip() == "ready":
            threading.Thread(target=server.stdout.read, daemon=True).start()
            return server, time.monotonic() - began
    raise SystemExit(f"the server ended with status {server.wait()} instead of getting ready")


def power_cut(path, seed):
    """False where the server did not hear it."""
    try:
        with socket.socket(socket.AF_UNIX) as plug:
            plug.settimeout(10)
            plug.connect(path)
            plug.sendall(f"cut {seed}\n".encode())
            answer = plug.recv(200)
            if answer:
                print(f"        the power was not cut: {answer.decode().strip()}", flush=True)
                return False
    except ConnectionResetError:
        pass
    except OSError:
        return False
    return True


def health(command, patience=20):
    """The complaint of health `patience` seconds after a start; nothing if health is clean by then."""
    end = time.monotonic() + patience
    while True:
        done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=60)
        if done.returncode == 0:
            return []
        if time.monotonic() > end:
            return [f"health after {patience} s: {line}" for line in (done.stdout + done.stderr).splitlines()[:6]]
        time.sleep(0.2)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--cuts", metavar="SOCKET")
    parser.add_argument("--start", nargs=argparse.REMAINDER, required=True)
    args = parser.parse_args()
    seed = int(os.environ.get("CRASH_SEED", random.SystemRandom().randrange(1 << 32)))
    print(f"seed {seed} (CRASH_SEED)", flush=True)
    what = "power cut" if args.cuts else "kill -9"
    quiet = "CRASH_QUIET" in os.environ
    health_command = shlex.split(os.environ.get("CRASH_HEALTH", "true"))
    moments = random.Random(seed)
    model = Model(seed + 1)
    passed = failed = 0
    starts = []

    def end(server):
        if not args.cuts or not power_cut(args.cuts, moments.randrange(1 << 32)):
            server.kill()

    server, _ = start(args.start)
    try:
        for round_number in range(1, args.rounds + 1):
            before = model.acknowledged
            longest = 0.8 if args.cuts else 2
            delay = moments.choice([0.025, 0.1, 0.25, 0.5, 1]) * moments.uniform(0.5, 1.5) * longest
            killer = threading.Timer(delay, end, [server])
            killer.start()
            client = None
            try:
                client = Client()
                while True:
                    model.step(client)
            except (exceptions.SMBException, OSError, ValueError) as error:
                refused = isinstance(error, exceptions.SMBResponseException)
                ended = True
                try:
                    server.wait(timeout=15)
                except subprocess.TimeoutExpired:
                    ended = False
                if not ended or (refused and killer.is_alive()):
                    killer.cancel()
                    print(f"not ok  round {round_number}: the server refused a right request: {error}", flush=True)
                    failed += 1
                    server.kill()
            if client:
                client.close()
            server.wait()
            if moments.random() < 0.125:
                server = launch(args.start)
                time.sleep(moments.uniform(0, 0.3))
                end(server)
                server.wait()
            server, took = start(args.start)
            starts.append(took)
            losses = health(health_command)
            client = Client()
            losses += model.verify(client)
            client.close()
            if losses:
                failed += 1
                print(f"not ok  round {round_number}: {len(losses)} losses, ready after {took:.2f} s", flush=True)
                for loss in losses[:10]:
                    print(f"        {loss}", flush=True)
            else:
                passed += 1
                if not quiet or round_number % 100 == 0:
                    print(f"ok      round {round_number}: {model.acknowledged - before} blocks acknowledged, "
                          f"{len(model.files)} files right, ready after {took:.2f} s", flush=True)
    finally:
        server.send_signal(signal.SIGTERM)
        try:
            status = server.wait(timeout=60)
        except subprocess.TimeoutExpired:
            server.kill()
            status = "none in 60 s"
    print(f"{'ok     ' if status == 0 else 'not ok '} SIGTERM at the end: status {status}")
    passed, failed = passed + (status == 0), failed + (status != 0)
    # The median, since a busy machine may delay any one of them.
    median = sorted(starts)[len(starts) // 2]
    quick = median < 2
    print(f"{'ok     ' if quick else 'not ok '} median start after {what} {median:.2f} s, slowest {max(starts):.2f} s")
    passed, failed = passed + quick, failed + (not quick)
    print(f"{model.acknowledged} blocks acknowledged as durable")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    socket.setdefaulttimeout(60)
    sys.exit(main())
