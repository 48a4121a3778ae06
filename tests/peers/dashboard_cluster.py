"""What the dashboards of a cluster's servers show, before and after one is killed: DATA ADDRESSES HTTP-PORT."""
import json
import os
import signal
import sys
import time
import urllib.request

from peer_tests import run, test

DATA, ADDRESSES, PORT = sys.argv[1], sys.argv[2].split(","), sys.argv[3]


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
