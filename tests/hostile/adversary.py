"""An adversary of resources: adversary.py --port N --rdma N --http N --server PID --audit FILE [--list] [SCENARIO ...].

Each scenario does to the server what costs it most for what it costs the peer. Meanwhile victim.py, from another address, does
its rounds. After it: the victim has had no failure, its longest step took no longer than STALL_SECONDS, the server's memory grew
by no more than the scenario allows, and the server answers. Prints `ok NAME` or `not ok NAME` and why, a scenario each.
"""
import argparse, os, resource, subprocess, sys, threading, time, traceback, urllib.request

import scenarios
import smb2
from scenarios import SCENARIOS

VICTIM_SOURCE = "127.0.0.2"
# On two noisy processors shared by server, adversary and victim. The server's own promise, 50 ms a turn, is counted in
# instructions elsewhere (tests/rawserver).
STALL_SECONDS = 1.0
# A step that is as slow when nothing else happens says that the machine is too busy for any of this.
QUIET_SECONDS_MAX = 0.5
QUIET_SECONDS = 1.5
# The victim's rounds beside what a scenario holds, so that it says something.
ROUNDS_MIN = 3
HOLD_SECONDS_MAX = 4


class Server:
    """The process that is under attack, from outside."""

    def __init__(self, options):
        self.port, self.rdma, self.http = options.port, options.rdma, options.http
        self.pid, self.audit = options.server, options.audit

    def memory_mib(self, field):
        with open(f"/proc/{self.pid}/status") as status:
            return next(int(line.split()[1]) for line in status if line.startswith(field + ":")) / 1024

    def forget_peak(self):
        with open(f"/proc/{self.pid}/clear_refs", "w") as refs:
            refs.write("5")

    def is_healthy(self):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.http}/healthz", timeout=10) as answer:
                return answer.status == 200
        except OSError:
            return False

    def audit_lines(self):
        with open(self.audit) as lines:
            return list(lines)


class Victim:
    """victim.py, and what it has said."""

    def __init__(self, server):
        command = [sys.executable, os.path.join(os.path.dirname(__file__), "victim.py"), str(server.port), VICTIM_SOURCE, "victim", "work"]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.lines = []
        threading.Thread(target=self.listen, daemon=True).start()

    def listen(self):
        for line in self.process.stdout:
            outcome, began, seconds, step = line.rstrip("\n").split(" ", 3)
            self.lines.append((outcome, float(began), float(seconds), step))

    def between(self, began, ended):
        """Its steps that overlap this time."""
        return [line for line in list(self.lines) if line[1] < ended and line[1] + line[2] >= began]

    def rounds(self, since):
        """Whole rounds that began after `since` and have come to their end."""
        count, began = 0, False
        for outcome, at, _, step in list(self.lines):
            if at >= since and outcome == "done":
                began = began or step == "connect"
                count += began and step == "close"
        return count

    def wait_for_round(self, since, seconds=12):
        end = time.monotonic() + seconds
        while not (done := self.rounds(since)) and time.monotonic() < end:
            time.sleep(0.02)
        return done > 0

    def stop(self):
        self.process.stdin.close()
        self.process.wait(20)


def longest(steps):
    return max((seconds for _, _, seconds, _ in steps), default=0)


def faults_of(steps):
    """The faults in the victim's steps, in words."""
    faults = [f"the victim failed after {seconds:.2f} s: {step}" for outcome, _, seconds, step in steps if outcome == "fail"][:4]
    slow = [(seconds, step) for outcome, _, seconds, step in steps if outcome == "done" and seconds > STALL_SECONDS]
    if slow:
        seconds, step = max(slow)
        faults.append(f"the victim waited {len(slow)} times longer than {STALL_SECONDS} s, at most {seconds:.2f} s, for {step}")
    return faults


def hold(victim, faults):
    """Keeps what the adversary holds until the victim has come around some times meanwhile, or long enough."""
    placed = time.monotonic()
    while victim.rounds(placed) < ROUNDS_MIN:
        if time.monotonic() > placed + HOLD_SECONDS_MAX:
            faults.append(f"beside it the victim came to the end of {victim.rounds(placed)} rounds in {HOLD_SECONDS_MAX} s")
            return
        time.sleep(0.02)


def run(scenario, server, victim):
    server.forget_peak()
    before, began = server.memory_mib("VmRSS"), time.monotonic()
    faults = []
    attack = scenario.attack(scenarios.Target(server, scenario.source))
    try:
        for fault in attack:
            if fault is None:
                hold(victim, faults)
            else:
                faults.append(fault)
    except Exception as error:
        faults.append(f"the adversary gave up: {type(error).__name__}: {error}")
        if smb2.TRACE:
            traceback.print_exc()
    ended, grown = time.monotonic(), server.memory_mib("VmHWM") - before
    if not victim.wait_for_round(ended):
        faults.append("afterwards the victim is not served")
    # Only now: a step that hung is told when it ends.
    steps = victim.between(began, ended)
    faults += faults_of(steps)
    if grown > scenario.memory_mib:
        faults.append(f"the server's memory grew by {grown:.0f} MiB; {scenario.memory_mib} are allowed")
    if not server.is_healthy():
        faults.append("afterwards /healthz does not answer")
    figures = f"{ended - began:.1f} s, {victim.rounds(began)} rounds, longest step {longest(steps) * 1000:.0f} ms, memory +{grown:.0f} MiB"
    print(f"{'not ok ' if faults else 'ok     '} {scenario.name}: {scenario.title} ({figures})", flush=True)
    for fault in faults:
        print(f"        {fault}", flush=True)


def main():
    parser = argparse.ArgumentParser()
    for option in ("--port", "--rdma", "--http", "--server"):
        parser.add_argument(option, type=int)
    parser.add_argument("--audit")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    if options.list:
        for scenario in SCENARIOS.values():
            print(f"{scenario.name:20} {scenario.title}")
        return
    names = options.names or list(SCENARIOS)
    unknown = [name for name in names if name not in SCENARIOS]
    if unknown:
        sys.exit(f"no scenario {unknown}; there are: {' '.join(SCENARIOS)}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    smb2.TRACE = bool(os.environ.get("HOSTILE_TRACE"))
    server = Server(options)
    victim = Victim(server)
    try:
        if not victim.wait_for_round(0):
            sys.exit(f"the victim is not served when nothing happens: {victim.lines}")
        began = time.monotonic()
        time.sleep(QUIET_SECONDS)
        quiet = victim.between(began, time.monotonic())
        fault = any(outcome == "fail" for outcome, *_ in quiet) or longest(quiet) > QUIET_SECONDS_MAX
        print(f"{'not ok ' if fault else 'ok     '} quiet: the victim alone ({len(quiet)} steps, longest {longest(quiet) * 1000:.0f} ms)", flush=True)
        for name in names:
            run(SCENARIOS[name], server, victim)
    finally:
        victim.stop()


main()
