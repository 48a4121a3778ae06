"""The dashboards of a cluster's servers while a fleet loads them, and before and after one is killed: DATA ADDRESSES HTTP-PORT FLEET."""
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

from peer_tests import run, test

DATA, ADDRESSES, PORT, FLEET = sys.argv[1], sys.argv[2].split(","), sys.argv[3], sys.argv[4]


def open_at(number, path):
    """The answer of a server, counted from 1."""
    token = open(f"{DATA}/node-{number}/api.token").read().strip()
    url = f"http://{ADDRESSES[number - 1]}:{PORT}/api/v1{path}"
    return urllib.request.urlopen(urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"}), timeout=20)


def events(number):
    for line in open_at(number, "/dashboard/events"):
        if line.startswith(b"data: "):
            yield json.loads(line[6:])


def states(event):
    return {node["name"]: node["state"] for node in (event.get("cluster") or {"nodes": []})["nodes"]}


@test
def every_server_shows_all_of_the_cluster():
    for number in (1, 2, 3):
        began = time.monotonic()
        for event in events(number):
            if set(states(event).values()) == {"up"} and len(states(event)) == 3 and len(event["disks"]) == 9:
                break
            assert time.monotonic() - began < 15, states(event)
        owners = [volume["owner"] for volume in event["volumes"]]
        assert owners == ["node-1"] and event["server"] == f"node-{number}", (owners, event["server"])
        lost = [failure["lost"] for failure in event["next_failures"]]
        assert any(one.startswith("server node-") for one in lost), lost
        assert {disk["node"] for disk in event["disks"] if disk["is_local"]} == {f"node-{number}"}


def counted():
    """Reads and writes of each server since its start."""
    found = [json.load(open_at(number, "/perf?local=true")) for number in (1, 2, 3)]
    return [one["read"]["operations"] + one["write"]["operations"] for one in found]


class Reader(threading.Thread):
    """Figures of each server by one server's dashboard: the sum of all seconds' rates times their length, and the figures of each second by the server's
    name and its clock at both ends. Clients whose times it shows."""

    def __init__(self, number):
        super().__init__(daemon=True)
        self.number, self.sums, self.uptimes, self.told = number, {}, {}, 0
        self.seconds, self.clients = {}, set()
        self.is_over = False
        self.start()

    def run(self):
        for event in events(self.number):
            if self.is_over:
                return
            for name, node in event["nodes"].items():
                uptime, sample = node["performance"]["uptime_us"], node["sample"]
                if name in self.uptimes and uptime != self.uptimes[name]:
                    rate = sample["read"]["operations_per_s"] + sample["write"]["operations_per_s"]
                    self.sums[name] = self.sums.get(name, 0) + rate * sample["interval_s"]
                    self.seconds[name, uptime - round(sample["interval_s"] * 1e6), uptime] = sample
                self.uptimes[name] = uptime
            self.told += len(event["nodes"]) == 3
            self.clients |= {client["name"] for client in event["client_figures"] if client["count"] and client["p50_us"] <= client["p999_us"]}


def rows_of(table):
    """Operations a second by the rows of `fleet watch`, by name."""
    rows = [line.split() for line in table.splitlines() if line.startswith(("Total", "node-"))]
    return {row[0]: int(row[1].replace(",", "")) for row in rows}


def figures_of(second):
    """Returns the figures of a second that both the dashboard and `fleet watch` show."""
    if "read_iops" in second:
        return {name: second[name] for name in ("read_iops", "write_iops", "read_bytes_per_s", "write_bytes_per_s", "read_ms", "write_ms")}
    read, write = second["read"], second["write"]
    ms = [one["mean_us"] if one["mean_us"] is None else one["mean_us"] / 1000 for one in (read, write)]
    return {"read_iops": read["operations_per_s"], "write_iops": write["operations_per_s"], "read_bytes_per_s": read["bytes_per_s"],
            "write_bytes_per_s": write["bytes_per_s"], "read_ms": ms[0], "write_ms": ms[1]}


def check_same_seconds(watched, readers):
    """A second that both the table and a dashboard show has the same figures in both, within 1 %."""
    for reader in readers:
        same = {}
        for row in (row for table in watched for row in table["rows"] if row["rates"]):
            shown = reader.seconds.get((row["node"], *row["between_us"]))
            if shown is None:
                continue
            mine, its = figures_of(row["rates"]), figures_of(shown)
            for name in mine:
                one, other = mine[name] or 0, its[name] or 0
                assert abs(one - other) <= 0.01 * max(one, other), (reader.number, row, shown)
            same[row["node"]] = same.get(row["node"], 0) + (mine["read_iops"] > 10)
        # Each may miss some, on a machine that has much to do.
        assert len(same) == 3 and min(same.values()) >= 2, (reader.number, same, list(reader.seconds))


@test
def a_fleet_over_the_servers_is_shown_as_their_counters_have_it_and_leaves_nothing():
    directory = tempfile.mkdtemp(dir=os.environ.get("TMPDIR"))
    readers = [Reader(number) for number in (1, 3)]
    began = time.monotonic()
    while min(reader.told for reader in readers) < 2:
        assert time.monotonic() - began < 15, [reader.uptimes for reader in readers]
        time.sleep(0.1)
    before = counted()
    line = [FLEET, "--fleet", f"{directory}/fleet", "run", "seed-004", "--data", DATA, "--duration", "3s", "--only", "web-tcp"]
    line += ["--workers-per-node", "2", "--data-size", "1MiB", "--out", f"{directory}/out"]
    running = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    while not os.path.exists(f"{directory}/fleet/live.json") and running.poll() is None and time.monotonic() - began < 60:
        time.sleep(0.1)
    watching = {}
    for form in ("text", "json"):
        watched = [FLEET, "--fleet", f"{directory}/fleet", "watch"] + (["--json"] if form == "json" else [])
        watching[form] = subprocess.Popen(watched, stdout=open(f"{directory}/{form}", "w"))
    while running.poll() is None and time.monotonic() - began < 60:
        time.sleep(0.2)
    for form in watching.values():
        form.terminate()
        form.wait(10)
    tables = open(f"{directory}/text").read().split("\nrun: ")
    watched = [json.loads(line) for line in open(f"{directory}/json").read().splitlines()]
    said = running.communicate(timeout=30)[0]
    time.sleep(2.5)
    after = counted()
    for reader in readers:
        reader.is_over = True
    done = [line.split()[1] for line in said.splitlines() if "IOPS" in line]
    assert running.returncode == 0 and done == ["web-tcp-2", "web-tcp-3"], said
    assert os.path.exists(f"{directory}/out/report.md") and os.path.exists(f"{directory}/out/iops-by-nodes-tcp.svg"), said
    tables = [rows_of(table) for table in tables]
    assert any(all(table.get(f"node-{number}", 0) > 10 for number in (1, 2, 3)) for table in tables), tables
    for table in filter(None, tables):
        others = sum(value for name, value in table.items() if name != "Total")
        assert abs(table["Total"] - others) <= 3, table
    for reader in readers:
        for number, (first, last) in enumerate(zip(before, after), 1):
            shown = reader.sums.get(f"node-{number}", 0)
            assert last - first > 100 and abs(shown / (last - first) - 1) < 0.01, (reader.number, number, shown, last - first)
    check_same_seconds(watched, readers)
    assert any(readers[0].clients), "a client's times are shown while it asks"
    timed = json.load(open_at(1, "/perf/clients"))
    assert sum(client["count"] for client in timed) > 100 and all(client["p50_us"] <= client["p99_us"] for client in timed), timed
    for number in (1, 2, 3):
        volumes = [volume["name"] for volume in json.load(open_at(number, "/volumes"))]
        shares = [share["name"] for share in json.load(open_at(number, "/shares"))]
        users = [user["name"] for user in json.load(open_at(number, "/users"))]
        left = [name for name in volumes + shares + users if name.startswith("fleet")]
        assert not left, (number, left)


@test
def a_killed_server_is_shown_within_two_seconds():
    nodes = json.load(open_at(1, "/nodes"))
    pid = next(node["pid"] for node in nodes if node["name"] == "node-2")
    killed_at = None
    for event in events(1):
        if killed_at is None and set(states(event).values()) == {"up"}:
            os.kill(pid, signal.SIGKILL)
            killed_at = time.monotonic()
        elif killed_at is not None:
            took = time.monotonic() - killed_at
            if states(event).get("node-2") == "down":
                break
            assert took < 10, states(event)
    assert took < 2, f"after {took:.1f} s"
    lost = [disk for disk in event["disks"] if disk["node"] == "node-2"]
    assert lost and all(disk["status"] == "lost_communication" for disk in lost), lost


sys.exit(run("cluster"))
