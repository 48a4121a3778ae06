"""Parts of a round of the judge: disks that fail on command, the server as it ships, a client that knows what was
acknowledged, and a watcher of health."""
import json, os, socket, subprocess, sys, threading, time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "crash"))
from kill import Client, CreateDisposition, File, FileRenameInformation, Model, exceptions

# How long a disk may take before the server takes it out, and any request of a client at most: the first, once more for what is done
# over, and room for a busy machine.
DISK_TIMEOUT_S = 1.5
REQUEST_S = 20


class Trouble(Exception):
    """A finding of a round: the server broke a promise."""


class Disks:
    """The file system of disks (`faultfs`), and its control socket."""

    def __init__(self, directory, binary, sizes_mib):
        self.mount = os.path.join(directory, "disks")
        os.mkdir(self.mount)
        path = os.path.join(directory, "faultfs.sock")
        named = [f"{name}={mib}" for name, mib in sizes_mib.items()]
        self.process = subprocess.Popen([binary, self.mount, path, *named], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        if self.process.stdout.readline().strip() != "ready":
            raise SystemExit(self.process.wait())
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(path)
        self.lines = self.socket.makefile("rw")

    def path(self, name):
        return os.path.join(self.mount, name)

    def tell(self, command):
        self.lines.write(command + "\n")
        self.lines.flush()
        status, _, answer = self.lines.readline().strip().partition(" ")
        if status != "ok":
            raise ValueError(f"faultfs: {command}: {answer}")
        return answer

    def hits(self, name):
        return int(self.tell(f"hits {name}"))

    def end(self):
        self.lines.close()
        self.socket.close()
        self.process.stdin.close()
        try:
            self.process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            subprocess.run(["fusermount3", "-uz", self.mount], stderr=subprocess.DEVNULL)


class Server:
    """The daemon, started with a configuration of its own in a directory of its own."""

    def __init__(self, directory, binary, smb_port, http_port):
        self.binary, self.data, self.process = binary, os.path.join(directory, "data"), None
        self.log = open(os.path.join(directory, "server.log"), "ab")
        self.config = os.path.join(directory, "config.toml")
        # Scrubs go on all the time, since what nobody reads is found by them alone.
        with open(self.config, "w") as config:
            config.write(f'[server]\ndata_dir = "{self.data}"\n[smb]\nlisten = ["127.0.0.1:{smb_port}"]\n'
                         f'[api]\nlisten = "127.0.0.1:{http_port}"\n[disks]\nsearch = []\n'
                         f'[limits]\ndisk_timeout_ms = {int(DISK_TIMEOUT_S * 1000)}\ncache_bytes = {8 << 20}\n'
                         f'scrub_period_s = 2\nscrub_bytes_per_s = {1 << 30}\nrepair_delay_s = 3600\n')
        # Counts the ends of the process, each of which a client may notice.
        self.ends = 0

    def start(self, within_s=20):
        self.process = subprocess.Popen([self.binary, "serve", "--config", self.config], stdin=subprocess.DEVNULL,
                                        stdout=self.log, stderr=self.log)
        end = time.monotonic() + within_s
        while self.command("disk", "list").returncode:
            if self.process.poll() is not None:
                raise Trouble(f"the server ended with status {self.process.returncode} instead of starting")
            if time.monotonic() > end:
                raise Trouble(f"the server does not answer its command line {within_s} s after its start")
            time.sleep(0.03)

    def kill(self):
        self.ends += 1
        self.process.kill()
        self.process.wait()

    def stop(self):
        self.ends += 1
        self.process.terminate()
        try:
            return self.process.wait(timeout=40)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return "none in 40 s"

    def command(self, *words, within_s=60):
        try:
            return subprocess.run([self.binary, "--data", self.data, *words], stdin=subprocess.DEVNULL, text=True, timeout=within_s,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        except subprocess.TimeoutExpired as error:
            raise Trouble(f"`cenote {' '.join(words)}` is not done after {within_s} s") from error

    def must(self, *words):
        done = self.command(*words)
        if done.returncode:
            raise Trouble(f"`cenote {' '.join(words)}` fails: {done.stdout.strip()[-600:]}")
        return done.stdout

    def json(self, *words):
        """Returns a listing; None if the server does not answer."""
        done = self.command("--json", *words)
        try:
            return json.loads(done.stdout)
        except ValueError:
            return None


class JudgeModel(Model):
    """Knows besides: files that take another's name (either is found there, whole), and shares on which only FLUSH makes durable."""

    def __init__(self, seed, durability):
        super().__init__(seed)
        self.flush_only = durability == "flush"

    def write_some(self, client, name, handle):
        pending = super().write_some(client, name, handle)
        if pending and self.flush_only:
            handle.flush()
            self.note_durable(self.files[name], pending)
            pending = []
        return pending

    def known(self):
        # Nor is known how long a file is whose client was cut off while it grew: until it is read, another write would hide that.
        return [name for name in super().known() if not isinstance(self.files[name], Replaced) and len(self.files[name].lengths) == 1]

    def step(self, client):
        known = self.known()
        if known and self.random.random() < 0.12:
            self.replace(client, self.random.choice(known))
        elif not self.flush_only:
            super().step(client)
        elif not known or (len(known) < 30 and self.random.random() < 0.4):
            self.create(client)
        else:
            self.overwrite(client, self.random.choice(known))

    def replace(self, client, target):
        """A new file is written, closed and takes another's name: how programs save."""
        self.name += 1
        name = f"t{self.name}"
        tags = self.new_tags(self.random.choice([1, 5, 64]))
        old, new = self.files[target], File([{tag} for tag in tags], {len(tags)})
        self.files[name] = File([{0, tag} for tag in tags], range(len(tags) + 1), {True, False})
        handle = client.open(name, CreateDisposition.FILE_CREATE)
        handle.write(b"".join((tag.to_bytes(8, "little") * 512 for tag in tags)), 0)
        handle.close()
        information = FileRenameInformation()
        information["replace_if_exists"] = True
        information["file_name"] = target.encode("utf-16-le")
        handle = client.open(name, CreateDisposition.FILE_OPEN)
        self.files[target] = Replaced(old, new)
        client.set_information(handle, information)
        handle.close()
        if not self.flush_only:
            self.files[target] = new
            del self.files[name]
            self.acknowledged += len(tags)


class Replaced(File):
    """Either of two files."""

    def __init__(self, old, new):
        super().__init__(old.blocks, old.lengths, old.exists)
        self.old, self.new = old, new

    def differences(self, data):
        return self.old.differences(data) and self.new.differences(data)


class Traffic(threading.Thread):
    """A client that works on the model, and connects anew after each end of the server."""

    def __init__(self, server, model):
        super().__init__(daemon=True)
        self.server, self.model, self.troubles = server, model, []
        self.wanted, self.idle = threading.Event(), threading.Event()
        self.idle.set()
        self.over = False
        # Since when the client waits for an answer, if it does.
        self.waits_since = None
        self.start()

    def run(self):
        client, ends = None, 0
        while not self.over:
            if not self.wanted.wait(timeout=0.1):
                self.idle.set()
                continue
            self.idle.clear()
            if not self.wanted.is_set():
                continue
            try:
                if client is None:
                    ends = self.server.ends
                    client = Client()
                self.waits_since = time.monotonic()
                self.model.step(client)
            except (exceptions.SMBException, OSError, ValueError) as error:
                refused = isinstance(error, exceptions.SMBResponseException)
                if client and ends == self.server.ends and (refused or self.server.process.poll() is not None):
                    self.troubles.append(f"a client's request failed: {error}")
                if client:
                    client.close()
                client = None
                time.sleep(0.05)
            self.waits_since = None
        if client:
            client.close()

    def pause(self):
        """After the request in work."""
        self.wanted.clear()
        if not self.idle.wait(timeout=REQUEST_S):
            raise Trouble(f"a client's operation hangs: not done after {REQUEST_S} s")

    def resume(self):
        self.wanted.set()

    def check(self):
        if self.troubles:
            raise Trouble(self.troubles[0])
        since = self.waits_since
        if since and time.monotonic() - since > REQUEST_S:
            raise Trouble(f"a client's operation hangs: not done after {REQUEST_S} s")


class Watcher(threading.Thread):
    """Remembers which issues health told, as pairs of code and text."""

    def __init__(self, server):
        super().__init__(daemon=True)
        self.server, self.told, self.over = server, set(), False
        self.start()

    def look(self):
        found = self.server.json("health")
        issues = found["issues"] if found else []
        self.told |= {(issue["code"], f"{issue['target']} {issue['what']}") for issue in issues}
        return issues

    def run(self):
        while not self.over:
            try:
                self.look()
            except Trouble:
                pass
            time.sleep(0.25)
