"""The servers that are measured: started on backing files of the same kind, on loopback, stopped by their own process id."""

import ctypes
import mmap
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import time

import processors

TICKS = os.sysconf("SC_CLK_TCK")
PASSWORD = "Bench-Passw0rd"
USER = "bench"


def end_by_signal_as_by_hand():
    """SIGTERM and SIGHUP raise, as Ctrl-C does: what was started is stopped."""
    def leave(number, _):
        raise SystemExit(128 + number)

    signal.signal(signal.SIGTERM, leave)
    signal.signal(signal.SIGHUP, leave)


def lines(options):
    return "".join(f"{option}\n" for option in options)


def wait_for_port(port, process, seconds=30):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"{process.args[0]} ended with status {process.returncode} before it listened")
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.05)
    raise RuntimeError(f"{process.args[0]} does not listen on port {port}")


def process_tree(pid):
    """pid and all its descendants."""
    children = {}
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        children.setdefault(int(fields[1]), []).append(int(stat.parent.name))
    found, queue = [], [pid]
    while queue:
        one = queue.pop()
        found.append(one)
        queue += children.get(one, [])
    return found


def cpu_seconds(pid):
    """User and system time of a process tree, ended children included."""
    total = 0
    for one in process_tree(pid):
        try:
            fields = pathlib.Path(f"/proc/{one}/stat").read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        total += sum(int(fields[i]) for i in (11, 12, 13, 14))
    return total / TICKS


def resident_bytes(pid):
    total = 0
    for one in process_tree(pid):
        try:
            total += int(re.search(r"Pss:\s+(\d+)", pathlib.Path(f"/proc/{one}/smaps_rollup").read_text())[1]) * 1024
        except (OSError, TypeError):
            continue
    return total


def written_bytes(pid):
    """Bytes that a process tree caused to be sent to storage, as the kernel accounts them (/proc/PID/io)."""
    total = 0
    for one in process_tree(pid):
        try:
            total += int(re.search(r"^write_bytes: (\d+)", pathlib.Path(f"/proc/{one}/io").read_text(), re.M)[1])
        except OSError:
            continue
    return total


class Server:
    """name, host, port, share, user and password to connect with; start() and stop(); make_cold() empties its caches."""

    process = None
    host = "127.0.0.1"
    share = "demo"
    user = USER
    password = PASSWORD
    transport = "tcp"
    crc = True

    def takes(self, cell):
        """Whether a cell says something of this server."""
        return True

    @property
    def data_port(self):
        """The port of the transport that the data takes."""
        return self.port

    def flush_to_disk(self):
        """Brings what the server wrote to the disk: what is left in it, and what the kernel holds. The next run would pay for it."""
        self.wait_until_idle()
        os.sync()

    def wait_until_idle(self, seconds=30):
        """Until the server has written back what earlier runs left to it. Whether it has in that time."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            before = self.cpu_seconds()
            time.sleep(0.25)
            if self.cpu_seconds() - before <= 2 / TICKS:
                return True
        return False

    def stop(self):
        if self.process:
            self.process.terminate()
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
            self.process = None

    def cpu_seconds(self):
        return cpu_seconds(self.process.pid)

    def resident_bytes(self):
        return resident_bytes(self.process.pid)

    def written_bytes(self):
        return written_bytes(self.process.pid)

    def make_cold(self):
        """Nothing that was written is in RAM afterwards: neither in the server's memory nor in the page cache."""
        raise NotImplementedError


class Smbd(Server):
    """Debian's smbd as it is shipped, with a configuration and state of its own; `sync`: every write durable before its answer."""

    name = "smbd"
    # Lines of [global] and of the share beside those of the shipped configuration.
    tuned_global = ()
    tuned_share = ()

    def __init__(self, work, port, sync=False):
        self.work, self.port, self.sync = pathlib.Path(work), port, sync

    def start(self):
        data = self.work / "data"
        for folder in ("data", "state", "lock", "cache", "private", "run", "ncalrpc"):
            (self.work / folder).mkdir(parents=True, exist_ok=True)
        os.chmod(data, 0o777)
        config = self.work / "smb.conf"
        config.write_text(f"""[global]
server role = standalone server
security = user
interfaces = 127.0.0.1
bind interfaces only = yes
smb ports = {self.port}
disable netbios = yes
load printers = no
state directory = {self.work}/state
lock directory = {self.work}/lock
cache directory = {self.work}/cache
private dir = {self.work}/private
pid directory = {self.work}/run
ncalrpc dir = {self.work}/ncalrpc
log file = {self.work}/log
log level = 0
server min protocol = SMB2_02
server multi channel support = yes
strict sync = yes
sync always = {"yes" if self.sync else "no"}
map to guest = never
{lines(self.tuned_global)}[demo]
path = {data}
read only = no
force user = root
{lines(self.tuned_share)}""")
        credentials = f"{PASSWORD}\n{PASSWORD}\n"
        # The account needs a name that the system knows; root is known everywhere and is private to this password database.
        subprocess.run(["smbpasswd", "-c", config, "-s", "-a", "root"], input=credentials, text=True, check=True,
                       stdout=subprocess.DEVNULL)
        self.user = "root"
        self.process = subprocess.Popen(["smbd", "--foreground", "--no-process-group", "-s", config],
                                        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                        # It ends its whole process group with itself.
                                        stderr=subprocess.DEVNULL, start_new_session=True,
                                        preexec_fn=processors.as_server)
        wait_for_port(self.port, self.process)

    def make_cold(self):
        for path in (self.work / "data").rglob("*"):
            if path.is_file():
                file = os.open(path, os.O_RDONLY)
                os.fsync(file)
                os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
                os.close(file)


class SmbdTuned(Smbd):
    """The same smbd as its administrators tune it for throughput; `benches/tuning.py` says what each option gives."""

    name = "smbd-tuned"
    tuned_global = ("socket options = TCP_NODELAY IPTOS_LOWDELAY", "min receivefile size = 16384")
    # Reads leave by sendfile, without a thread between; writes are done where they are received.
    tuned_share = ("use sendfile = yes", "aio read size = 0", "aio write size = 0")


class Cenote(Server):
    """This project's daemon by its quickstart, on file-backed disks in a two-way mirror."""

    name = "cenote-tcp"
    user = "demo"

    def __init__(self, binary, work, port, http_port, disk_size="16G", rdma_port=0):
        self.binary, self.work = pathlib.Path(binary), pathlib.Path(work)
        self.port, self.http_port, self.disk_size, self.rdma_port = port, http_port, disk_size, rdma_port

    def start(self):
        self.work.mkdir(parents=True, exist_ok=True)
        (self.work / "log").unlink(missing_ok=True)
        self.log = open(self.work / "log", "ab")
        self.process = subprocess.Popen(
            [self.binary, "quickstart", "--data", self.work / "data", "--disks", "2", "--disk-size", self.disk_size,
             "--smb", f"127.0.0.1:{self.port}", "--rdma", f"127.0.0.1:{self.rdma_port}",
             # The client decides about the CRC.
             "--rdma-no-crc",
             # As smbd is shipped: whether requests are signed is for the client, which each cell tells.
             "--allow-unsigned", "--http", f"127.0.0.1:{self.http_port}", "--user", self.user,
             "--password", PASSWORD], stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log,
            preexec_fn=processors.as_server)
        # It listens before its user is made.
        deadline = time.monotonic() + 60
        while b"\nready" not in (self.work / "log").read_bytes():
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{self.binary} does not say ready: see {self.work}/log")
            time.sleep(0.05)

    def cli(self, *arguments):
        """Runs an administrator's command against this daemon."""
        done = subprocess.run([self.binary, "--data", self.work / "data", *arguments], capture_output=True, text=True, timeout=120)
        if done.returncode != 0:
            raise RuntimeError(f"cenote {' '.join(arguments)}: {done.stdout}{done.stderr}")

    def make_share(self, name, resiliency, *options):
        """A volume of its own, and a share of it under the same name."""
        self.cli("volume", "create", name, "--resiliency", resiliency, *options)
        self.cli("share", "create", name, "--volume", name, "--grant", f"{self.user}:full")

    def make_cold(self):
        # Its disks are read past the page cache: only its own memory is to be emptied.
        self.stop()
        self.start()


class CenoteDaemon(Server):
    """The same daemon reached in another way; its process is that of the `Cenote` it is made of, which is started before."""

    def __init__(self, daemon):
        self.daemon, self.user, self.port = daemon, daemon.user, daemon.port

    @property
    def process(self):
        return self.daemon.process

    def make_cold(self):
        self.daemon.make_cold()

    def start(self):
        """The daemon is started by its own object."""

    def stop(self):
        """The daemon is stopped by its own object."""


class CenoteRdma(CenoteDaemon):
    """By SMB Direct. `crc`: frames carry one."""

    transport = "rdma"

    def __init__(self, daemon, crc=True):
        super().__init__(daemon)
        self.crc = crc
        self.name = "cenote-rdma" if crc else "cenote-rdma-nocrc"

    @property
    def data_port(self):
        return self.daemon.rdma_port


class CenoteOneCopy(CenoteDaemon):
    """A volume of the same daemon that keeps one copy, as smbd does: what a write costs without the second one."""

    def __init__(self, daemon):
        super().__init__(daemon)
        self.name = self.share = "cenote-one-copy"

    def takes(self, cell):
        return cell.operation == "write-through"

    def start(self):
        self.daemon.make_share(self.share, "simple", "--size", "4GiB")


def touch_memory(size):
    """Takes so many bytes of memory, touches all of it and frees it.

    A virtual machine may have given its free memory back to its host, which then clears and maps each page that is touched again: ten
    times the cost of clearing it. Whoever reads into new memory next would pay for it, the page cache or a server's own cache, by
    chance."""
    with mmap.mmap(-1, size) as memory:
        memory.madvise(mmap.MADV_HUGEPAGE)
        # In one call: a loop over the pages would take longer than the kernel.
        start = ctypes.c_char.from_buffer(memory)
        ctypes.memset(ctypes.addressof(start), 1, size)
        # It cannot be given back while anything points into it.
        del start


def disk_bytes_written():
    """Bytes that all real block devices of this machine were given since boot."""
    total = 0
    for stat in pathlib.Path("/sys/block").glob("*/stat"):
        if not stat.parent.name.startswith(("loop", "ram", "zram", "dm-", "md")):
            total += int(stat.read_text().split()[6]) * 512
    return total


def smbclient(server, commands, timeout=3600, options=()):
    """Runs smbclient's commands against the share; returns what it printed."""
    done = subprocess.run(
        ["smbclient", f"//127.0.0.1/{server.share}", "-p", str(server.port), "-U", f"{server.user}%{server.password}",
         *options, "-c", commands], capture_output=True, text=True, timeout=timeout)
    if done.returncode != 0:
        raise RuntimeError(f"smbclient on {server.name}: {done.stdout}{done.stderr}")
    return done.stdout


def remove_tree(path):
    shutil.rmtree(path, ignore_errors=True)
