"""Servers of a cluster as processes of the test's own: formed as an administrator forms one, killed, stopped, cut off from power, and started
again."""
import concurrent.futures, json, os, pathlib, signal, socket, subprocess, time

USER, PASSWORD, SHARE, VOLUME = "tester", "Pa55 w%rd", "demo", "demo"


class Trouble(Exception):
    """The cluster does not do what it must."""


def children(pid):
    """Processes that this one started."""
    found = []
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            if int(stat.read_text().rsplit(")", 1)[1].split()[1]) == pid:
                found.append(int(stat.parent.name))
        except (OSError, ValueError):
            continue
    return found


def tell(pids, number):
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass


class Node:
    """One server. `within`: words before each command, such as those that enter its network namespace."""

    def __init__(self, number, binary, work, address, smb_port, http_port, cluster_port, within=(), power_cuts=False):
        self.number, self.binary, self.address, self.within = number, str(binary), address, list(within)
        self.name = f"node-{number}"
        self.smb = (address, smb_port)
        self.data, self.log = work / self.name, work / f"{self.name}.log"
        self.config, self.plug = work / f"{self.name}.toml", work / f"{self.name}.faults" if power_cuts else None
        self.process, self.frozen = None, []
        self.config.write_text(f"""[server]
data_dir = "{self.data}"
name = "{self.name}"
[smb]
listen = ["{address}:{smb_port}"]
rdma_listen = []
rdma_devices = []
[api]
listen = "{"127.0.0.1" if within else address}:{http_port}"
[cluster]
listen = "{address}:{cluster_port}"
[disks]
search = []
[limits]
cache_bytes = "96MiB"
""")

    def start(self):
        environment = dict(os.environ)
        if self.plug:
            environment |= {"CENOTE_FAULTS": str(self.plug), "CENOTE_POWER_CUTS": "1"}
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen([*self.within, self.binary, "serve", "--config", self.config], stdin=subprocess.DEVNULL,
                                            stdout=log, stderr=log, env=environment)

    def pids(self):
        """Of the server, then of its etcd; a command in a namespace becomes the server itself."""
        return [self.process.pid, *children(self.process.pid)]

    def freeze(self, with_etcd):
        """The moment after which nothing of it runs."""
        self.frozen = self.pids() if with_etcd else [self.process.pid]
        tell(self.frozen, signal.SIGSTOP)
        return time.monotonic()

    def thaw(self):
        tell(self.frozen, signal.SIGCONT)
        self.frozen = []

    def kill(self):
        """Server and etcd at once, as when a machine dies."""
        tell(self.pids(), signal.SIGKILL)
        self.process.wait()

    def cut_power(self, seed):
        """Cuts the power: writes that were not flushed are lost, kept or torn. Returns whether this ended the server."""
        try:
            with socket.socket(socket.AF_UNIX) as plug:
                plug.settimeout(20)
                plug.connect(str(self.plug))
                plug.sendall(f"cut {seed}\n".encode())
                answer = plug.recv(200)
                if answer:
                    raise Trouble(f"the power of {self.name} was not cut: {answer.decode().strip()}")
        except ConnectionResetError:
            pass
        except OSError:
            # It has not opened its disks yet.
            self.kill()
            return False
        return True

    def stop(self):
        if self.process and self.process.poll() is None:
            self.thaw()
            self.process.terminate()

    def cli(self, *words, seconds=60, within=True):
        done = subprocess.run([*(self.within if within else []), self.binary, "--data", str(self.data), *map(str, words)],
                              capture_output=True, text=True, timeout=seconds, stdin=subprocess.DEVNULL)
        if done.returncode != 0:
            raise Trouble(f"{self.name}: cenote {' '.join(map(str, words))}: {(done.stderr or done.stdout).strip()[:500]}")
        return done.stdout

    def json(self, *words):
        return json.loads(self.cli("--json", *words, seconds=10))

    def tail(self, lines=15):
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])


def until(what, seconds, attempt, pause=0.1):
    """Tries until there is an answer other than none or false."""
    end, why = time.monotonic() + seconds, ""
    while True:
        try:
            found = attempt()
            if found:
                return found
        except (Trouble, subprocess.TimeoutExpired, ValueError, KeyError, StopIteration) as error:
            why = f": {error}"
        if time.monotonic() > end:
            raise Trouble(f"{what} did not come about in {seconds} s{why}")
        time.sleep(pause)


class Cluster:
    def __init__(self, nodes, disks=2, disk_size="3GiB", volume_size="2GiB", promise="--continuously-available"):
        self.nodes, self.disks, self.disk_size, self.volume_size, self.promise = nodes, disks, disk_size, volume_size, promise

    def servers(self):
        return {node.name: node.smb for node in self.nodes}

    def form(self):
        for node in self.nodes:
            node.start()
        first, *others = self.nodes
        for node in self.nodes:
            until(f"{node.name}'s start", 60, lambda node=node: node.cli("disk", "list") or True)
        first.cli("cluster", "create", "--name", "C")
        until("the cluster", 60, lambda: self.state(first, first) == "up")
        for node in others:
            node.cli("cluster", "join", "--token", first.cli("cluster", "token").strip())
            until(f"{node.name} in the cluster", 90, lambda node=node: self.state(node, node) == "up" and self.state(first, node) == "up")
        disks = {node: [node.data / "disks" / f"disk-{number}.img" for number in range(1, self.disks + 1)] for node in self.nodes}
        first.cli("pool", "create", "pool", *disks[first], "--create", self.disk_size)
        for node in others:
            until(f"the pool at {node.name}", 30, lambda node=node: node.json("pool", "list"))
            for disk in disks[node]:
                node.cli("disk", "add", disk, "--pool", "pool", "--create", self.disk_size)
        until("all disks", 60, lambda: len(first.json("disk", "list")) >= len(self.nodes) * self.disks)
        self.furnish(first, "three-way-mirror" if len(self.nodes) > 2 else "two-way-mirror")
        for node in self.nodes:
            until(f"the share at {node.name}", 30, lambda node=node: node.json("share", "list"))
        self.whole(60)

    def serve_alone(self):
        """The first server, in no cluster, with all copies on disks of its own."""
        node, = self.nodes
        node.start()
        until(f"{node.name}'s start", 60, lambda: node.cli("disk", "list") or True)
        node.cli("pool", "create", "pool", *(node.data / "disks" / f"disk-{number}.img" for number in range(1, self.disks + 1)), "--create", self.disk_size)
        self.furnish(node, "three-way-mirror")

    def furnish(self, first, resiliency):
        until("the volume", 30, lambda: first.cli("volume", "create", VOLUME, "--size", self.volume_size, "--resiliency", resiliency) or True, 1)
        first.cli("user", "add", USER, "--password", PASSWORD, "--group", "Administrators")
        first.cli("share", "create", SHARE, "--volume", VOLUME, *self.promise.split(), "--grant", f"{USER}:full")

    def running(self):
        return [node for node in self.nodes if node.process and node.process.poll() is None]

    @staticmethod
    def state(asked, node):
        return next(found["state"] for found in asked.json("node", "list") if found["name"] == node.name)

    def owner(self, seconds=30, name=VOLUME):
        """The server that serves a volume, by its own word."""
        def find():
            for node in self.running():
                try:
                    volume = node.json("--local", "volume", "show", name)
                except (Trouble, ValueError, subprocess.TimeoutExpired):
                    continue
                if len(self.nodes) == 1 or volume["owner"] == node.name and volume["status"] != "detached":
                    return node
            return None
        return until(f"a server that serves volume {name}", seconds, find)

    def is_whole(self):
        """Every server is up to every other one, and all copies are in sync."""
        if len(self.running()) < len(self.nodes):
            return False
        for asked in self.nodes:
            if any(found["state"] != "up" for found in asked.json("node", "list")):
                return False
        volume = self.owner(5).json("volume", "show", VOLUME)
        return volume.get("in_sync_copies") == volume["copies"] and volume.get("stale_bytes") == 0

    def whole(self, seconds):
        """Waits until nothing is missing; for how long."""
        began = time.monotonic()
        until("all servers up and all copies in sync", seconds, self.is_whole)
        return time.monotonic() - began

    def healthy(self, seconds=60):
        """Health's complaint after that time; nothing if health is clean. `self.complaint` has the one before."""
        end, self.complaint = time.monotonic() + seconds, ""
        for node in self.nodes:
            while True:
                try:
                    node.cli("health", seconds=20)
                    break
                except (Trouble, subprocess.TimeoutExpired) as error:
                    self.complaint = str(error)
                    if time.monotonic() > end:
                        return [self.complaint]
                time.sleep(0.3)
        return []

    # Answers about the whole cluster, which are the same at every server.
    TOLD = (("health",), ("disk", "list"), ("job", "list"), ("session", "list"))

    def told(self, nodes):
        """What each of these servers answers to each question: the bytes, and what the command says of servers that did not answer. All are asked at
        once."""
        def ask(node, words):
            done = subprocess.run([*node.within, node.binary, "--data", str(node.data), "--json", *words], capture_output=True, stdin=subprocess.DEVNULL,
                                  timeout=20)
            # Health has an exit status of its own.
            return done.stdout, done.stderr
        with concurrent.futures.ThreadPoolExecutor(len(self.TOLD) * len(nodes)) as pool:
            asked = {(" ".join(words), node): pool.submit(ask, node, words) for words in self.TOLD for node in nodes}
            return {key: answer.result() for key, answer in asked.items()}

    def differ(self, answers, missing):
        """Why these answers to one question are not one truth; nothing if they are. `missing`: the servers that nobody who is asked can ask."""
        if len(set(answers)) > 1:
            return "differs: " + " | ".join(f"{out.decode(errors='replace')[:1500]} {said.decode(errors='replace')[:200]}" for out, said in answers)
        out, said = (text.decode(errors="replace") for text in answers[0])
        try:
            told = json.loads(out)
        except ValueError:
            return f"is no answer: {out[:300]} {said[:300]}"
        named = told.get("unanswered", []) if isinstance(told, dict) else [node.name for node in self.nodes if node.name in said]
        return "" if named == sorted(missing) else f"names {named} as not answering, which {sorted(missing)} cannot"

    def agree(self, groups, since, seconds):
        """Until the servers of each group have told the same to each question, byte by byte, and named all that cannot answer. Groups: [servers, names of
        those that they do not reach]. For how long after `since`, by question, and what the first group told."""
        after, agreed = {}, {}
        while True:
            told, differing = self.told([node for nodes, _ in groups for node in nodes]), []
            for words in sorted({words for words, _ in told} - set(after)):
                # One that agreed once may have moved on since.
                found = {", ".join(node.name for node in nodes): self.differ([told[words, node] for node in nodes], missing) for nodes, missing in groups}
                differing += [f"{words} of {names} {why}" for names, why in found.items() if why]
                if not any(found.values()):
                    after[words], agreed[words] = time.monotonic() - since, json.loads(told[words, groups[0][0][0]][0])
            if not differing:
                return after, agreed
            if time.monotonic() - since > seconds:
                raise Trouble("; ".join(differing))

    def check_copies(self):
        """Findings of `volume check`; nothing if all copies are identical."""
        try:
            self.owner().cli("volume", "check", VOLUME, "--watch", seconds=600)
            return []
        except Trouble as trouble:
            return [str(trouble)]

    def claims(self):
        """When which server claimed which volume, under which epoch: by the logs, volume by volume in the order of their times."""
        found = []
        for node in self.nodes:
            for line in node.log.read_text(errors="replace").splitlines():
                if "a volume is claimed" in line:
                    volume = line.split("volume=")[1].split()[0]
                    found.append((volume, line.split()[0], int(line.split("epoch=")[1].split()[0]), node.name))
        return sorted(found)

    def promised(self):
        """The epoch that each disk has promised to the volume, as a stopped server left it."""
        found = {}
        for node in self.nodes:
            for disk in sorted(node.data.glob("disks/disk-*.img")):
                told = node.cli("disk", "inspect", disk)
                lines = [line for line in told.splitlines() if line.startswith("volume") and "epoch" in line]
                if lines:
                    found[f"{node.name}/{disk.name}"] = int(lines[0].split("epoch")[1].split()[0])
        return found

    def stop(self):
        for node in self.nodes:
            node.stop()
        end = time.monotonic() + 60
        for node in self.nodes:
            if node.process:
                try:
                    node.process.wait(max(1, end - time.monotonic()))
                except subprocess.TimeoutExpired:
                    node.kill()
