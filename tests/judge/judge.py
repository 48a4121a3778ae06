"""Judges the built daemon from outside: pools of disks that fail on command (faultfs), a client that keeps what was acknowledged, and one
fault of one disk in each round, beside kill -9, power cuts, scrubs, checks and replaced disks.

usage: judge.py --seed N --rounds M [--fault NAME] --cenote BINARY --faultfs BINARY --work DIR --smb PORT --http PORT

A fault is over before another disk is away: after it was healed the server is started anew, and all has to be whole again. A round passes if all that was acknowledged as durable reads right while the fault lasts and after it; no request of a client fails or
hangs; health tells the fault; when it is over all copies are whole again in bounded time by themselves; and at last everything reads right
with another disk away, so from the copies that had the fault. Round M of seed N has the seed N + M - 1, which decides all but the
moments at which threads meet. Settings for the client: SMB_PORT SMB_SHARE SMB_USER SMB_PASSWORD.
"""
import argparse, os, random, shutil, socket, sys, time

import faults
from parts import Client, Disks, JudgeModel, Server, Traffic, Trouble, Watcher

DISK_MIB = 512
# From the end of a fault until all copies are whole, a scrub's way over all disks included.
WHOLE_AGAIN_S = 45
# From a fault's first effect until health tells it.
TOLD_S = 15
# Issues of health that stay while the server runs, since they count what happened.
COUNTERS = {"disk_medium_errors", "disk_corrupt_blocks", "disk_lost_writes"}


class Round:
    def __init__(self, seed, args, directory):
        self.random = random.Random(seed)
        self.server = Server(directory, args.cenote, args.smb, args.http)
        self.names = self.random.choice([["a", "b"], ["a", "b", "c"], ["a", "b", "c"]])
        self.resiliency = "three-way-mirror" if len(self.names) == 3 and self.random.random() < 0.25 else "two-way-mirror"
        self.durability = self.random.choice(["close", "close", "flush", "write"])
        self.disks = Disks(directory, args.faultfs, {name: DISK_MIB for name in [*self.names, "spare"]})
        kind = getattr(faults, args.fault) if args.fault else self.random.choice(faults.ALL)
        self.kind, self.fault, self.traffic, self.watcher = kind, None, None, None
        # The fault has struck and is not over; and how often it had been met when the server was started last.
        self.lasts, self.hits_before_start = False, 0
        self.model = JudgeModel(seed + 1, self.durability)
        self.events, self.began, self.times = [], time.monotonic(), args.times

    def note(self, event):
        self.events.append(event if not self.times else f"{event} at {time.monotonic() - self.began:.1f}")

    def name(self):
        return f"{len(self.names)} disks, {self.resiliency}, {self.durability}: " + ", ".join(self.events)

    def play(self):
        self.set_up()
        self.traffic = Traffic(self.server, self.model)
        self.watcher = Watcher(self.server)
        self.work(0.3, 1.2)
        self.fault.prepare()
        if self.fault.restart_before:
            self.kill()
        self.work(0.2, 1.2)
        if self.random.random() < 0.3:
            self.disturb()
        self.strike()
        self.work(0.3, 1.5)
        if self.random.random() < 0.75:
            self.disturb()
            self.work(0.1, 0.8)
        self.read_all("with the fault")
        self.until_told()
        self.note("healed")
        self.lasts = False
        self.disks.tell(f"clear {self.fault.disk}")
        self.traffic.resume()
        self.until_whole()
        self.note("whole")
        # A fault that lies where only a start looks is found by one, while all disks are there.
        self.kill()
        self.until_whole()
        self.read_without_another_disk()
        status = self.server.stop()
        if status != 0:
            raise Trouble(f"SIGTERM at the end: status {status}")

    def set_up(self):
        server = self.server
        server.start()
        server.must("pool", "create", "tank", *map(self.disks.path, self.names))
        server.must("volume", "create", "demo", "--size", "256MiB", "--resiliency", self.resiliency)
        server.must("user", "add", os.environ["SMB_USER"], "--password", os.environ["SMB_PASSWORD"], "--group", "Administrators")
        share = os.environ["SMB_SHARE"]
        server.must("share", "create", share, "--volume", "demo", "--durability", self.durability, "--grant",
                    os.environ["SMB_USER"] + ":full")
        disk = self.random.choice(self.names)
        layout = faults.Layout(server.must("disk", "inspect", self.disks.path(disk)), DISK_MIB << 20)
        self.fault = self.kind(self.disks, disk, layout, self.random)

    def work(self, least_s, most_s):
        """Clients work for some time."""
        self.traffic.resume()
        end = time.monotonic() + self.random.uniform(least_s, most_s)
        while time.monotonic() < end:
            self.check()
            time.sleep(0.05)

    def check(self):
        self.traffic.check()
        status = self.server.process.poll()
        if status is not None:
            raise Trouble(f"the server ended by itself with status {status}")

    def strike(self):
        if self.fault.while_down:
            self.server.kill()
        self.note(self.fault.name())
        self.fault.strike()
        self.lasts, self.hits_before_start = True, 0
        if self.fault.while_down:
            self.server.start()

    def disturb(self):
        kinds = [self.kill, self.kill, self.cut_power, self.check_volume]
        if len(self.names) == 3 and self.resiliency == "two-way-mirror":
            kinds += [self.replace_disk, self.rebalance]
        self.random.choice(kinds)()

    def kill(self):
        self.note("kill -9")
        self.end_and_start(lambda: None)

    def cut_power(self):
        self.note("power cut")
        seed = self.random.randrange(1 << 32)
        self.end_and_start(lambda: [self.disks.tell(f"cut {name} {seed}") for name in [*self.names, "spare"]])

    def end_and_start(self, meanwhile):
        hanging = isinstance(self.fault, faults.Hang) and self.lasts
        self.server.ends += 1
        self.server.process.kill()
        if hanging:
            # The kernel ends no process whose requests the disk still has.
            self.disks.tell(f"clear {self.fault.disk}")
        self.server.process.wait()
        meanwhile()
        if hanging:
            self.fault.strike()
        self.hits_before_start = self.disks.hits(self.fault.disk)
        self.server.start()

    def check_volume(self):
        """Runs a check. Its result is of no interest while a fault lasts: it has to end, and to break nothing."""
        self.note("check")
        self.server.command("volume", "check", "demo", "--watch")

    def replace_disk(self):
        """A disk is exchanged for the spare one, the one with the fault among others; which cannot be done as long as a copy is away."""
        old = self.random.choice(self.names)
        done = self.server.command("disk", "replace", self.disks.path(old), self.disks.path("spare"))
        self.note(f"replace {old}" + ("" if done.returncode == 0 else " (refused)"))

    def rebalance(self):
        self.note("rebalance")
        self.server.command("pool", "rebalance", "tank")

    def read_all(self, when):
        """After a restart, since otherwise much is read from the server's memory."""
        self.traffic.pause()
        restarted = self.random.random() < 0.5
        if restarted:
            self.kill()
        self.verify(when, adopt=restarted)

    def verify(self, when, adopt):
        self.traffic.pause()
        end = time.monotonic() + 20
        client = None
        while client is None:
            try:
                client = Client()
            except Exception as error:
                if time.monotonic() > end:
                    raise Trouble(f"{when}: no client gets in: {error}") from error
                time.sleep(0.1)
        try:
            losses = self.model.verify(client, adopt)
        except Exception as error:
            raise Trouble(f"{when}: cannot be read: {type(error).__name__} {error}") from error
        finally:
            client.close()
        if losses:
            raise Trouble(f"{when}: {len(losses)} losses: " + "; ".join(losses[:6]))

    def until_told(self):
        hits = self.disks.hits(self.fault.disk) - self.hits_before_start
        known = {self.disks.path(self.fault.disk)}
        met = hits > 0 or isinstance(self.fault, (faults.Gone, faults.Hang, faults.Reset))
        if not self.fault.told or not met or isinstance(self.fault, (faults.LostWrites, faults.MisdirectedWrite, faults.TornWrite)):
            # Nobody knows of a lost write before the place is read.
            return
        end = time.monotonic() + TOLD_S
        while not any(code in self.fault.told for code, _ in self.watcher.told):
            self.check()
            if time.monotonic() > end:
                raise Trouble(f"health says nothing of {self.fault.name()}, met {hits} times, {known}: {self.watcher.told}")
            time.sleep(0.1)

    def until_whole(self):
        """All copies are in sync and nothing is left to do, and a check finds them intact and equal."""
        end = time.monotonic() + WHOLE_AGAIN_S
        said = ""
        while True:
            self.check()
            if time.monotonic() > end:
                raise Trouble(f"not whole {WHOLE_AGAIN_S} s after the fault: {said}")
            said = self.not_whole()
            if not said:
                done = self.server.command("volume", "check", "demo", "--watch")
                if done.returncode == 0:
                    return
                said = done.stdout.strip()[-500:]
            time.sleep(0.2)

    def not_whole(self):
        issues = [issue["what"] for issue in self.watcher.look() if issue["code"] not in COUNTERS | {"pool_reserve", "job_stopped"}]
        if issues:
            return "; ".join(issues[:4])
        volumes = self.server.json("volume", "list")
        if volumes is None:
            return "the server does not answer"
        volume = volumes[0]
        in_sync, stale = volume.get("in_sync_copies"), volume.get("stale_bytes")
        if in_sync != volume["copies"] or stale:
            return f"{in_sync} of {volume['copies']} copies are in sync, {stale} bytes stale"
        running = [job["kind"] for job in self.server.json("job", "list") or [] if job.get("state") == "running"]
        return f"{running} go on" if any(kind not in ("scrub", "check") for kind in running) else ""

    def read_without_another_disk(self):
        self.traffic.pause()
        in_pool = {os.path.basename(disk["path"]) for disk in self.server.json("disk", "list") or []}
        away = self.random.choice(sorted(in_pool - {self.fault.disk}))
        self.server.kill()
        self.disks.tell(f"gone {away}")
        self.server.start()
        self.verify(f"with {away} away", adopt=True)
        self.note(f"read without {away}")
        self.disks.tell(f"clear {away}")
        self.until_whole()

    def end(self):
        if self.traffic:
            self.traffic.over = self.watcher.over = True
        for name in [*self.names, "spare"]:
            self.disks.tell(f"clear {name}")
        if self.server.process and self.server.process.poll() is None:
            self.server.kill()
        for thread in filter(None, [self.traffic, self.watcher]):
            thread.join(timeout=10)
        self.disks.end()


def play_round(seed, args):
    """Whether it passes."""
    directory = os.path.join(args.work, f"seed-{seed}")
    os.makedirs(directory)
    began, trouble = time.monotonic(), None
    played = Round(seed, args, directory)
    try:
        played.play()
    except Trouble as error:
        trouble = error
    finally:
        if trouble:
            states = [played.server.command(*words).stdout for words in (["health"], ["disk", "list"], ["job", "list"])] \
                if played.server.process.poll() is None else []
        played.end()
    print(f"{'not ok ' if trouble else 'ok     '} seed {seed}: {played.name()}; {len(played.model.files)} files, "
          f"{played.model.acknowledged} blocks acknowledged, {time.monotonic() - began:.1f} s", flush=True)
    if trouble:
        print(f"        {trouble}", flush=True)
        with open(os.path.join(directory, "server.log"), "a") as log:
            log.write("\n".join([f"--- {trouble}", *states]))
        kept = os.path.join(args.keep, f"judge-seed-{seed}.log")
        shutil.copy(os.path.join(directory, "server.log"), kept)
        print(f"        the server's log: {kept}", flush=True)
    shutil.rmtree(directory, ignore_errors=True)
    return trouble is None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=None, help="begins no round after that")
    parser.add_argument("--times", action="store_true", help="when each event of a round was")
    parser.add_argument("--fault", choices=sorted({kind.__name__ for kind in faults.ALL}))
    for name in ("cenote", "faultfs", "work", "keep"):
        parser.add_argument(f"--{name}", required=True)
    for name in ("smb", "http"):
        parser.add_argument(f"--{name}", type=int, required=True)
    args = parser.parse_args()
    seed = args.seed if args.seed is not None else random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}", flush=True)
    os.makedirs(args.keep, exist_ok=True)
    began, passed, failed = time.monotonic(), 0, 0
    for number in range(args.rounds):
        if args.seconds is not None and time.monotonic() - began > args.seconds:
            break
        if play_round(seed + number, args):
            passed += 1
        else:
            failed += 1
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    socket.setdefaulttimeout(60)
    sys.exit(main())
