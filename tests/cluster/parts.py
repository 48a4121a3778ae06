"""The parts of torture.py: what is done to the cluster, and what is measured meanwhile."""
import hashlib, json, os, random, shutil, signal, struct, subprocess, threading, time

import smb2
from cluster import PASSWORD, SHARE, USER, VOLUME, Cluster, Node, Trouble, children, tell, until
from history import BLOCK, History, content, stamp_of
from load import Load
from namespaces import Refused
from switch import SHORT, Switched

# After an event: until all servers are up and all copies in sync again.
WHOLE_S = 120
# After the last server goes on: until every volume is served.
SERVED_S = 30
# The volume beside the one that clients use.
SECOND = "second"
# After a fault: until all servers tell the same of the cluster, and until health tells of it. How long it takes is measured; that it takes five times
# as long is an error, since a machine that has other work to do may take longer.
AGREED_S, TOLD_S = 2, 10
AGREED_S_MAX = 5 * AGREED_S
# Until clients have what they asked for, of servers that answer.
REST_S = 1
# `cluster status` may ask for a second.
STATUS_S = 1.5
# How many events are played between two checks of the histories.
CHECK_EVERY = 5


class Skipped(Exception):
    """Why a part cannot be played here."""


def distribution(values):
    """Of seconds, in milliseconds and words."""
    if not values:
        return "none"
    ordered = sorted(values)

    def at(share):
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))] * 1000

    return f"{len(ordered)} times, p50 {at(0.5):.0f} ms, p90 {at(0.9):.0f} ms, p99 {at(0.99):.0f} ms, max {ordered[-1] * 1000:.0f} ms"


class Torture:
    """A formed cluster with clients on it."""

    power_cuts, smb_port = False, None
    patience_s, pinned_patience_s = 10.0, 30.0

    def __init__(self, args):
        self.args, self.random = args, random.Random(args.seed)
        self.passed = self.failed = 0
        self.load, self.agreed_s, self.untrue = None, [], []
        self.cluster = Cluster(self.make_nodes(), promise="--durability flush" if args.volatile else "--continuously-available")
        self.began = time.monotonic()

    def make_nodes(self):
        base = 30 + 4 * (self.args.seed % 20)
        smb_port, http_port = self.smb_port or 22000 + self.args.seed % 7000, 30000 + self.args.seed % 2000
        return [Node(number, self.args.cenote, self.args.work, f"127.0.0.{base + number}", smb_port, http_port, 9447, power_cuts=self.power_cuts)
                for number in range(1, self.args.nodes + 1)]

    def say(self, text):
        print(f"{time.monotonic() - self.began:7.1f} s  {text}", flush=True)

    def figures(self, name, values):
        print(f"cluster: {name}: {distribution(values)}", flush=True)

    def ok(self, text):
        self.passed += 1
        print(f"ok      {text}", flush=True)

    def fail(self, text):
        self.failed += 1
        print(f"not ok  {text}", flush=True)

    def judge(self, name, wrong):
        if not wrong:
            return self.ok(name)
        self.fail(f"{name}: {len(wrong)} times")
        for line in wrong[:20]:
            print(f"        {line}", flush=True)

    def run(self):
        self.cluster.form()
        self.say(f"{len(self.cluster.nodes)} servers are a cluster, and whole")
        history = History()
        pinned = [node.name for node in self.cluster.nodes]
        self.load = Load(self.cluster.servers(), SHARE, USER, PASSWORD, self.args.seed, history, roaming=2, pinned=pinned,
                         patience_s=self.patience_s, pinned_patience_s=self.pinned_patience_s, write_flags=0 if self.args.volatile else smb2.WRITE_THROUGH)
        time.sleep(1)
        self.play()
        self.finish()

    def play(self):
        raise NotImplementedError

    def checked(self, number):
        """Checks the histories now and then; the first violation ends the part, since what follows would tell of it again."""
        if number % CHECK_EVERY == 0 and not self.load.check():
            raise Trouble(f"event {number}: the histories do not fit")

    def one_truth(self, fault, nodes=None, since=None):
        """These servers, which reach each other and no others, tell the same of the cluster soon after a fault, and name all others as not answering."""
        nodes = nodes or self.cluster.nodes
        return self.truths(fault, [(nodes, [node.name for node in self.cluster.nodes if node not in nodes])], since)

    def truths(self, fault, groups, since=None):
        """The same for each group of servers and the names of those that they do not reach. Clients ask nothing meanwhile, since what they read is
        counted, a server at a time: unless `since` is given, when they do so already. Answers what the first group tells; nothing if it never was the
        same."""
        if rests := since is None:
            self.load.rest(REST_S)
            since = time.monotonic()
        try:
            after, told = self.cluster.agree(groups, since, AGREED_S_MAX)
        except Trouble as trouble:
            self.untrue.append(f"{fault}, after {AGREED_S_MAX} s: {trouble}")
            return None
        finally:
            if rests:
                self.load.resume()
        self.agreed_s.append(max(after.values()))
        late = ", ".join(f"{words} {seconds:.1f} s" for words, seconds in after.items() if seconds > AGREED_S)
        if late:
            self.say(f"{fault}: the servers tell the same late: {late}")
        return told

    @staticmethod
    def now_and_then(number):
        """Whether what costs some seconds is done at this event."""
        return number % CHECK_EVERY == 1

    def told_without(self, victim, fault, number):
        """What the others tell, now and then, while one of them is away."""
        if self.now_and_then(number):
            self.one_truth(fault, [node for node in self.cluster.nodes if node is not victim])

    def finish(self):
        self.cluster.whole(WHOLE_S)
        self.one_truth("at the end")
        self.judge(f"the servers that answer tell the same, byte by byte, and name the others, {len(self.agreed_s)} times", self.untrue)
        self.figures(f"until they tell the same ({AGREED_S} s are meant)", self.agreed_s)
        self.load.check(whole=True)
        self.load.stop()
        names = self.load.check_names()
        wrong, self.load.wrong = self.load.wrong, []
        self.judge(f"{self.load.history.operations} operations of clients on {self.load.history.checks} histories of blocks, and {names} names, fit one order", wrong)
        self.judge("all copies are identical", self.cluster.check_copies())
        began = time.monotonic()
        self.judge("health is clean on all servers", self.cluster.healthy())
        if self.cluster.complaint:
            self.say(f"health said for {time.monotonic() - began:.1f} s: {self.cluster.complaint}")
        # Not one after the other, which the last one would take for the loss of the others.
        for node in self.cluster.nodes:
            node.kill()
        claims = self.cluster.claims()
        self.judge(f"each of {len(claims)} claims has an epoch beyond all before it",
                   [f"{one} before {two}" for one, two in zip(claims, claims[1:]) if one[0] == two[0] and one[2] >= two[2]])
        # The last claim of each volume; of two volumes the lower one, since a disk tells of both.
        last = min({volume: epoch for volume, _, epoch, _ in claims}.values())
        promised = self.cluster.promised()
        self.judge("no disk has promised less than the last claim", [str(promised)] if min(promised.values()) < last else [])
        self.judge("no server panicked", [f"{node.name}: {line}" for node in self.cluster.nodes for line in node.log.read_text(errors="replace").splitlines() if "panicked" in line])
        failures = ", ".join(f"{words}: {count}" for words, count in sorted(self.load.failures().items(), key=lambda one: -one[1])[:8])
        self.say(f"what clients were told instead of answers: {failures or 'nothing'}")

    def end(self):
        if self.load:
            for line in self.load.wrong[:20]:
                print(f"        {line}", flush=True)
            for client in self.load.clients:
                client.ended = client.links.ended = True
        if self.failed:
            for node in self.cluster.nodes:
                if node.log.exists():
                    print(f"--- the end of {node.log}\n{node.tail()}", flush=True)
        self.cluster.stop()


class Replica(Torture):
    """Servers other than the owner die or freeze."""

    def play(self):
        events = ["kill"] * self.args.count + ["stop"] * self.args.stops
        self.random.shuffle(events)
        waits, wholes = {"kill": [], "stop": []}, []
        for number, event in enumerate(events, 1):
            owner = self.cluster.owner()
            victim = self.random.choice([node for node in self.cluster.nodes if node is not owner])
            time.sleep(self.random.uniform(0.1, 0.6))
            since = time.monotonic()
            if event == "kill":
                victim.kill()
                self.told_without(victim, f"{victim.name} killed", number)
                time.sleep(self.random.uniform(0.7, 3))
                victim.start()
            else:
                with_etcd = self.random.random() < 0.5
                victim.freeze(with_etcd)
                self.told_without(victim, f"{victim.name} stopped", number)
                time.sleep(self.random.uniform(3, 8))
                victim.thaw()
            back = time.monotonic()
            wholes.append(self.cluster.whole(WHOLE_S))
            wait = self.load.longest_wait(since, time.monotonic())
            if self.now_and_then(number):
                self.one_truth(f"{event} {number} of {victim.name} is over")
            waits[event].append(wait)
            still = self.cluster.owner()
            moved = "" if still is owner else f"; the volume went from {owner.name} to {still.name}"
            self.say(f"{event} {number} of {victim.name}: longest wait {wait * 1000:.0f} ms, whole {time.monotonic() - back:.1f} s after it was back{moved}")
            self.checked(number)
        for event in ("kill", "stop"):
            self.figures(f"longest wait of a client for each {event} of a replica's server", waits[event])
        self.figures("from a server's return until all copies are in sync", wholes)


class Holder:
    """A client with a persistent handle that shares its file with nobody, and a lock: it has both still at the next owner, and nobody else gets the
    file meanwhile (I12)."""

    FILE, PERSISTENT = "held", 2
    SHARING_VIOLATION, NOT_AVAILABLE = 0xC0000043, 0xC0000467

    def __init__(self):
        self.client, self.guid, self.stamp, self.file, self.link, self.wrong = os.urandom(16), os.urandom(16), 0, None, None, []

    def connect(self, node, client):
        link = smb2.Connection(node.smb, USER, PASSWORD, 20, client)
        link.connect_share(SHARE)
        return link

    def hold(self, owner):
        """Opens it the first time."""
        self.link = self.connect(owner, self.client)
        asked = struct.pack("<IIQ", 120_000, self.PERSISTENT, 0) + self.guid
        self.file = self.link.create(self.FILE, smb2.OPEN_IF, share=0, contexts=smb2.create_contexts((b"DH2Q", asked)))
        if not struct.unpack_from("<II", self.link.contexts.get(b"DH2Q", bytes(8)))[1] & self.PERSISTENT:
            self.wrong.append(f"{owner.name} gives no persistent handle")
        self.link.lock(self.file, 0, BLOCK)
        self.write()

    def write(self):
        self.stamp += 1
        self.link.write(self.file, 0, content(self.stamp, 8, 0))

    def reclaim(self, heir):
        """Goes on at the next owner."""
        self.link.close()
        try:
            self.connect(heir, None).create(self.FILE)
            self.wrong.append(f"an intruder opened the file at {heir.name}")
        except smb2.Refused as refusal:
            if refusal.status not in (self.SHARING_VIOLATION, self.NOT_AVAILABLE):
                self.wrong.append(f"{heir.name} refused an intruder with {refusal}")
        try:
            self.link = self.connect(heir, self.client)
            asked = self.file + self.guid + struct.pack("<I", self.PERSISTENT)
            self.file = self.link.create(self.FILE, share=0, contexts=smb2.create_contexts((b"DH2C", asked)))
            if stamp_of(self.link.read(self.file, 0, BLOCK), 8, 0) != self.stamp:
                self.wrong.append(f"the file has other bytes at {heir.name}")
            self.write()
        except (OSError, smb2.Refused) as error:
            self.wrong.append(f"{heir.name} does not give the handle back: {error}")
            self.guid = os.urandom(16)
            self.hold(heir)


class Owner(Torture):
    """The owner dies, and another server serves."""

    def play(self):
        reads, writes, wholes, holder = [], [], [], Holder()
        holder.hold(self.cluster.owner())
        for number in range(1, self.args.count + 1):
            owner = self.cluster.owner()
            others = {node.name for node in self.cluster.nodes if node is not owner}
            time.sleep(self.random.uniform(0.1, 0.6))
            since = time.monotonic()
            owner.kill()
            time.sleep(self.random.uniform(2, 4))
            until("a write at another server", 40, lambda: self.load.first_answer(since, others, True))
            until("a read at another server", 40, lambda: self.load.first_answer(since, others, False))
            read, write = (self.load.first_answer(since, others, is_write) for is_write in (False, True))
            reads.append(read - since)
            writes.append(write - since)
            self.load.deaths.append((owner.name, min(read, write)))
            holder.reclaim(self.cluster.owner())
            self.told_without(owner, f"{owner.name}, the owner, killed", number)
            owner.start()
            wholes.append(self.cluster.whole(WHOLE_S))
            if self.now_and_then(number):
                self.one_truth(f"kill {number} of {owner.name}, the owner, is over")
            self.say(f"kill {number} of {owner.name}: read after {reads[-1] * 1000:.0f} ms, write after {writes[-1] * 1000:.0f} ms, whole {wholes[-1]:.1f} s later")
            self.checked(number)
        self.judge("a handle that shares with nobody, and its lock, are held through all of them", holder.wrong)
        holder.link.close_file(holder.file)
        holder.link.close()
        self.figures("from the owner's death to the first read that another server answers", reads)
        self.figures("from the owner's death to the first write that another server answers", writes)
        self.figures("from a server's return until all copies are in sync", wholes)
        if self.args.bytes:
            self.put_through_deaths()

    def smbclient(self, node, commands):
        address, port = node.smb
        return subprocess.run(["smbclient", f"//{address}/{SHARE}", "-p", str(port), "-U", f"{USER}%{PASSWORD}", "-m", "SMB3_11", "-t", "120", "-c", commands],
                              capture_output=True, text=True, timeout=900, cwd=self.args.work)

    def put_through_deaths(self):
        if not shutil.which("smbclient"):
            return self.say("smbclient is missing: no large file")
        written = hashlib.sha256()
        with open(self.args.work / "large", "wb") as file:
            for _ in range(0, self.args.bytes, 1 << 20):
                piece = os.urandom(1 << 20)
                written.update(piece)
                file.write(piece)
        owner = self.cluster.owner()
        victim = self.random.choice([node for node in self.cluster.nodes if node is not owner])
        put = []
        putting = threading.Thread(target=lambda: put.append(self.smbclient(owner, "put large large")))
        putting.start()
        time.sleep(2)
        victim.kill()
        putting.join()
        if put[0].returncode != 0:
            return self.fail(f"{self.args.bytes >> 20} MiB are put while another server dies: {put[0].stdout}{put[0].stderr}")
        self.ok(f"{self.args.bytes >> 20} MiB are put while another server dies")
        victim.start()
        self.say(f"whole {self.cluster.whole(300):.1f} s after it is back")
        owner.kill()
        heir = until("another server", 60, lambda: next((node for node in self.cluster.running() if node is self.cluster.owner(1)), None))
        got = self.smbclient(heir, "get large back")
        read = hashlib.sha256()
        if got.returncode == 0:
            with open(self.args.work / "back", "rb") as file:
                while piece := file.read(1 << 20):
                    read.update(piece)
        self.judge("then the owner dies, and another server gives the same bytes", [] if read.digest() == written.digest() else [got.stdout + got.stderr])
        owner.start()
        for name in ("large", "back"):
            (self.args.work / name).unlink(missing_ok=True)
        self.smbclient(heir, "del large")


class Probe:
    """Requests that reach the owner while it is stopped: sessions and opens that it knows, on which they are sent when another server has already
    changed the block. A read of the old bytes, or an acknowledged write, is a lie."""

    def __init__(self, torture, owner, number):
        self.torture, self.name, self.answers, self.asking = torture, f"probe-{number}", {}, []
        self.links = [smb2.Connection(owner.smb, USER, PASSWORD, 20) for _ in range(2)]
        self.files = []
        for link in self.links:
            link.connect_share(SHARE)
            self.files.append(link.create(self.name, smb2.OPEN_IF))
        self.links[0].write(self.files[0], 0, content(1, 9, 0))

    def change(self, heir):
        """At the new owner."""
        link = smb2.Connection(heir.smb, USER, PASSWORD, 20)
        link.connect_share(SHARE)
        link.write(link.create(self.name), 0, content(2, 9, 0))
        link.close()

    def ask(self):
        def read():
            found = stamp_of(self.links[0].read(self.files[0], 0, BLOCK, seconds=20), 9, 0)
            return "an old read" if found != 2 else "a read"

        def write():
            self.links[1].write(self.files[1], 0, content(3, 9, 0), seconds=20)
            return "an acknowledged write"

        def guarded(name, action):
            try:
                self.answers[name] = action()
            except (OSError, smb2.Refused) as error:
                self.answers[name] = ""
                self.torture.note_probe(error)

        self.asking = [threading.Thread(target=guarded, args=(action.__name__, action), daemon=True) for action in (read, write)]
        for asking in self.asking:
            asking.start()

    def wrong(self):
        for asking in self.asking:
            asking.join(25)
        for link in self.links:
            link.close()
        return [found for found in self.answers.values() if found]


class Frozen(Torture):
    """The owner is stopped; it goes on when another server has taken over."""

    patience_s = 2.0
    # How often its etcd is stopped with it.
    with_etcd = 0.3

    # How often another server is stopped a second later, of two volumes.
    with_another = 0.4

    def freeze_two(self, number, first):
        """Stops the owner, and a second later another server, which may be taking over: each volume is served again."""
        second = self.random.choice([node for node in self.cluster.nodes if node is not first])
        first.freeze(self.random.random() < self.with_etcd)
        time.sleep(self.random.uniform(0.7, 1.3))
        second.freeze(self.random.random() < self.with_etcd)
        time.sleep(self.random.choice([0.3, 1, 3]))
        for node in self.random.sample([first, second], 2):
            node.thaw()
            time.sleep(self.random.choice([0, 0.3, 1]))
        began = time.monotonic()
        owners = [self.cluster.owner(SERVED_S, name).name for name in (VOLUME, SECOND)]
        self.say(f"stop {number} of {first.name}, then of {second.name}: both volumes are served by {' and '.join(owners)} {time.monotonic() - began:.1f} s later")
        self.cluster.whole(WHOLE_S)
        self.one_truth(f"stop {number} of {first.name}, then of {second.name}, is over")

    def note_probe(self, error):
        self.probed[str(error)] = self.probed.get(str(error), 0) + 1

    def play(self):
        reads, wrong, self.probed = [], [], {}
        self.cluster.nodes[1].cli("volume", "create", SECOND, "--size", "1GiB", "--resiliency", "three-way-mirror")
        for number in range(1, self.args.count + 1):
            owner = self.cluster.owner()
            if self.random.random() < self.with_another:
                self.freeze_two(number, self.random.choice([owner, self.cluster.owner(name=SECOND)]))
                self.checked(number)
                continue
            others = {node.name for node in self.cluster.nodes if node is not owner}
            probe = Probe(self, owner, number)
            time.sleep(self.random.uniform(0.1, 0.6))
            since = owner.freeze(self.random.random() < self.with_etcd)
            until("a read at another server", 40, lambda: self.load.first_answer(since, others, False))
            reads.append(self.load.first_answer(since, others, False) - since)
            heir = until("the new owner", 40, lambda: next(iter([node for node in self.cluster.nodes if node is not owner and self.serves(node)]), None))
            self.told_without(owner, f"{owner.name}, the owner, stopped", number)
            probe.change(heir)
            probe.ask()
            time.sleep(self.random.choice([0.1, 0.3, 1, 4]))
            owner.thaw()
            lies = probe.wrong()
            wrong += [f"stop {number} of {owner.name}: {lie}" for lie in lies]
            whole = self.cluster.whole(WHOLE_S)
            if self.now_and_then(number):
                self.one_truth(f"stop {number} of {owner.name}, the owner, is over")
            self.say(f"stop {number} of {owner.name}: read elsewhere after {reads[-1] * 1000:.0f} ms, whole {whole:.1f} s after its return{', ' + ' and '.join(lies) if lies else ''}")
            self.checked(number)
        self.judge("a server that was stopped answers nothing for what it owned before", wrong)
        self.say(f"what it said instead: {self.probed}")
        if reads:
            self.figures("from the owner's stop to the first read that another server answers", reads)

    @staticmethod
    def serves(node):
        volume = node.json("--local", "volume", "show", VOLUME)
        return volume["owner"] == node.name


class Wire(Torture):
    """What the servers say to each other is SMB as tshark knows it."""

    # Elsewhere tshark takes the length of a frame for that of NetBIOS, which has 17 bits.
    smb_port = 445

    def __init__(self, args):
        if os.geteuid() != 0 or not shutil.which("tshark"):
            raise Skipped("tshark as root is needed")
        super().__init__(args)

    def play(self):
        port = self.cluster.nodes[0].smb[1]
        capture = self.args.work / "bus.pcap"
        # Whole packets of loopback, which have up to 64 KiB.
        shark = subprocess.Popen(["tshark", "-q", "-i", "lo", "-s", "0", "-f", f"tcp port {port}", "-w", str(capture), "-F", "pcap"],
                                 stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(2)
        victim = next(node for node in self.cluster.nodes if node is not self.cluster.owner())
        # Logons and the opening of disks are on the wire when one comes anew.
        victim.kill()
        self.told_without(victim, f"{victim.name} killed", 1)
        victim.start()
        time.sleep(self.args.seconds)
        self.cluster.whole(WHOLE_S)
        shark.send_signal(signal.SIGINT)
        shark.wait(30)
        fields = ["tcp.stream", "smb2.tree", "smb2.cmd", "smb2.flags.response", "_ws.malformed", "smb2.flags.signature"]
        done = subprocess.run(["tshark", "-r", str(capture), "-Y", "smb2 || _ws.malformed", "-T", "fields",
                               *[word for field in fields for word in ("-e", field)], "-E", "occurrence=a", "-E", "separator=;"],
                              capture_output=True, text=True, timeout=600)
        if done.returncode != 0:
            return self.fail(f"tshark reads the capture: {done.stderr[-500:]}")
        rows = [line.split(";") for line in done.stdout.splitlines()]
        streams = {row[0] for row in rows if "bus$" in row[1]}
        bus = [row for row in rows if row[0] in streams]
        commands = {}
        for row in bus:
            for command in row[2].split(","):
                commands[command] = commands.get(command, 0) + 1
        self.say(f"{len(streams)} connections of the bus, {len(bus)} frames, commands {dict(sorted(commands.items()))}")
        reads, writes, controls = (commands.get(word, 0) for word in ("8", "9", "11"))
        self.judge("the bus decodes as SMB2", [] if streams and writes and controls else [f"{len(streams)} streams, {reads} READ, {writes} WRITE, {controls} IOCTL"])
        # tshark 4.0 does not know the hint in SPNEGO's first token (MS-SPNG 2.2.1), which every server sends that Windows logs on to.
        self.judge("without a malformed frame", [";".join(row) for row in bus if row[4] and (row[2] != "0" or "Packet" in row[4])])
        unsigned = [row for row in bus if "1" not in row[5] and not set(row[2].split(",")) <= {"0", "1"}]
        self.judge("and signed", [";".join(row) for row in unsigned])


class Power(Torture):
    """The whole cluster loses its power; what was not flushed is lost, kept or torn."""

    power_cuts = True
    patience_s, pinned_patience_s = 5.0, 5.0

    def cut(self):
        """All servers within a few milliseconds."""
        seeds = [self.random.randrange(1 << 32) for _ in self.cluster.nodes]
        cuts = [threading.Thread(target=node.cut_power, args=(seed,)) for node, seed in zip(self.cluster.nodes, seeds)]
        for cutting in cuts:
            cutting.start()
        for cutting in cuts:
            cutting.join()
        for node in self.cluster.nodes:
            node.kill()

    def play(self):
        starts, acknowledged = [], 0
        for number in range(1, self.args.count + 1):
            before = self.load.acknowledged()
            time.sleep(self.random.choice([0.05, 0.3, 1, 2]) * self.random.uniform(0.5, 1.5))
            self.cut()
            acknowledged += self.load.acknowledged() - before
            dead = time.monotonic()
            for node in self.cluster.nodes:
                node.start()
            if self.random.random() < 0.125:
                time.sleep(self.random.uniform(0, 2))
                self.cut()
                for node in self.cluster.nodes:
                    node.start()
            began = time.monotonic()
            self.cluster.owner(WHOLE_S)
            # Nothing that was asked of the dead takes effect any more.
            self.load.deaths += [(node.name, dead) for node in self.cluster.nodes]
            if not self.load.check(seconds=WHOLE_S):
                raise Trouble(f"round {number}: the histories do not fit")
            starts.append(time.monotonic() - began)
            whole = self.cluster.whole(WHOLE_S)
            if self.now_and_then(number):
                self.one_truth(f"power cut {number} is over")
            self.say(f"round {number}: read back {starts[-1]:.1f} s after the start, whole {whole:.1f} s later; {acknowledged} writes acknowledged so far")
        self.figures("from the start of all servers until all was read back", starts)


class Partition(Torture):
    """A switch drops frames between servers, one way or both."""

    patience_s = 3.0

    def __init__(self, args):
        try:
            self.network = Switched(args.nodes)
        except Refused as reason:
            raise Skipped(str(reason)) from reason
        super().__init__(args)

    def make_nodes(self):
        return [Node(number, self.args.cenote, self.args.work, self.network.address(number), 445, 9445, 9447, within=self.network.within(number))
                for number in range(1, self.args.nodes + 1)]

    def choose(self, owner):
        """Which ways are cut, and in words."""
        ports = [node.number for node in self.cluster.nodes]
        one = owner.number if self.random.random() < 0.6 else self.random.choice(ports)
        others = [port for port in ports if port != one]
        kind = self.random.choice(self.args.kinds or ["to one", "from one", "with one", "deaf", "mute", "alone", "ring"])
        two = self.random.choice(others)
        out, back = [(one, port) for port in others], [(port, one) for port in others]
        return {
            "to one": [(one, two)], "from one": [(two, one)], "with one": [(one, two), (two, one)],
            "deaf": back, "mute": out, "alone": out + back,
            # Each hears the next one only.
            "ring": [(port, ports[(at + 1) % len(ports)]) for at, port in enumerate(ports)],
            # With --kinds: only long frames are lost.
            "long with one": [(one, two), (two, one)], "long alone": out + back,
        }[kind], f"node-{one} {kind}" + (f" (node-{two})" if "one" in kind else "")

    def truths_apart(self, fault, pairs):
        """Servers that reach the same ones tell the same, and name all that they do not reach: one that hears them, but is not heard, gives no answer."""
        groups = {}
        for node in self.cluster.nodes:
            unreached = [other.name for other in self.cluster.nodes if {(node.number, other.number), (other.number, node.number)} & set(pairs)]
            groups.setdefault(tuple(unreached), []).append(node)
        self.truths(fault, [(nodes, list(unreached)) for unreached, nodes in groups.items()])

    def play(self):
        moved, waits = 0, []
        for number in range(1, self.args.count + 1):
            owner = self.cluster.owner(WHOLE_S)
            time.sleep(self.random.uniform(0.1, 0.6))
            since, words = time.monotonic(), []
            for _ in range(self.random.choice([1, 1, 1, 2])):
                pairs, told = self.choose(owner)
                words.append(told)
                self.network.cut(pairs, SHORT if " long " in told else 0)
                if self.now_and_then(number) and " long " not in told:
                    self.truths_apart(f"partition {number}: {told}", pairs)
                time.sleep(self.random.choice([0.3, 1, 3, 6]) * self.random.uniform(0.7, 1.4))
            self.network.cut([])
            healed = time.monotonic()
            self.cluster.whole(WHOLE_S)
            if self.now_and_then(number):
                self.one_truth(f"partition {number} is over")
            waits.append(self.load.longest_wait(since, time.monotonic()))
            still = self.cluster.owner()
            moved += still is not owner
            self.say(f"partition {number}: {', then '.join(words)}, for {healed - since:.1f} s; longest wait {waits[-1] * 1000:.0f} ms, whole {time.monotonic() - healed:.1f} s later, {owner.name} to {still.name}")
            self.checked(number)
        print(f"cluster: {moved} takeovers in {self.args.count} partitions", flush=True)
        self.figures("longest wait of a client for each partition", waits)

    def end(self):
        self.network.cut([])
        super().end()
        self.network.close()


class Truth(Torture):
    """After each fault every server that runs tells the same of the cluster. Clients wait meanwhile, so that it is measured from the fault on."""

    def play(self):
        for _ in range(self.args.count):
            self.load.halt()
            # What was asked just before is counted.
            time.sleep(1)
            self.truth_of("at rest", self.cluster.nodes, time.monotonic())
            owner = self.cluster.owner()
            self.killed(owner)
            replica = next(node for node in self.cluster.nodes if node is not self.cluster.owner())
            self.killed(replica)
            self.stopped(self.cluster.owner())
            self.stopped(next(node for node in self.cluster.nodes if node is not self.cluster.owner()))
            self.without_etcd(self.random.choice(self.cluster.nodes))
            self.load.resume()

    def truth_of(self, fault, nodes, since, code=None):
        """All servers that run tell the same soon after a fault, and `code` is in their health then, or soon."""
        self.one_truth(fault, nodes, since)
        if not code:
            return None
        found = until(f"'{code}' in health", TOLD_S, lambda: next(
            (issue for issue in json.loads(self.cluster.told(nodes)["health", nodes[0]][0])["issues"] if issue["code"] == code), None))
        self.say(f"{fault}: '{code}' {time.monotonic() - since:.1f} s after it")
        # What is equal while nobody has noticed the fault says little.
        self.one_truth(f"{fault}, and told", nodes, time.monotonic())
        return found

    def back(self, fault):
        self.cluster.whole(WHOLE_S)
        self.truth_of(f"{fault} is over", self.cluster.nodes, time.monotonic())

    def killed(self, victim):
        fault, since = f"{victim.name} killed", time.monotonic()
        victim.kill()
        self.truth_of(fault, [node for node in self.cluster.nodes if node is not victim], since, "node_down")
        victim.start()
        self.back(fault)

    def stopped(self, victim):
        fault, others = f"{victim.name} stopped, with its etcd", [node for node in self.cluster.nodes if node is not victim]
        self.truth_of(fault, others, victim.freeze(True), "node_down")
        began = time.monotonic()
        others[0].cli("cluster", "status")
        took = time.monotonic() - began
        self.judge(f"`cluster status` waits for nobody that is stopped ({took:.2f} s)", [f"{took:.2f} s"] if took > STATUS_S else [])
        victim.thaw()
        self.back(fault)

    def without_etcd(self, victim):
        fault, etcd, since = f"etcd of {victim.name} stopped", children(victim.process.pid), time.monotonic()
        tell(etcd, signal.SIGSTOP)
        found = self.truth_of(fault, self.cluster.nodes, since, "cluster_state_member")
        self.judge("health has the command that helps", [] if any(f"kill -CONT {pid}" in found["action"] for pid in etcd) else [found["action"]])
        tell(etcd, signal.SIGCONT)
        self.back(fault)


class Short(Owner):
    """An event of each common kind, on one cluster."""

    note_probe, serves, freeze_two = Frozen.note_probe, staticmethod(Frozen.serves), Frozen.freeze_two
    # The server that is stopped alone, together with its etcd.
    with_etcd, with_another = 1, 0

    def play(self):
        for kind in (Replica, Owner, Frozen):
            kind.play(self)


ALL = {"short": Short, "replica": Replica, "owner": Owner, "frozen": Frozen, "wire": Wire, "power": Power, "partition": Partition, "truth": Truth}
