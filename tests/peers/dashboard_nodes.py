"""The dashboard of a cluster's server over TLS in Chromium: all pages, what other servers do, and one that is killed: DATA ADDRESSES TLS-PORT PICTURES."""
import json
import os
import signal
import ssl
import sys
import time
import urllib.request

from chromium import begin, driver, end, errors, go, in_all_looks, picture, picture_of, rows, script, text, wait
from peer_tests import run, test

DATA, ADDRESSES, PORT, PICTURES = sys.argv[1], sys.argv[2].split(","), sys.argv[3], sys.argv[4]
NODES = ["node-1", "node-2", "node-3"]
PAGES = ["overview", "nodes", "disks", "storage", "clients", "accounts", "jobs", "health", "events", "performance", "fleet", "plan"]
TOKEN = open(f"{DATA}/node-1/api.token").read().strip()
begin(PICTURES, "--ignore-certificate-errors")


def base(number):
    return f"https://{ADDRESSES[number - 1]}:{PORT}"


def api(number, path):
    token = open(f"{DATA}/node-{number}/api.token").read().strip()
    request = urllib.request.Request(f"{base(number)}/api/v1{path}", headers={"Authorization": f"Bearer {token}"})
    trusted = ssl.create_default_context(cafile=f"{DATA}/tls.pem")
    return json.load(urllib.request.urlopen(request, timeout=20, context=trusted))


def owner():
    """The server of the volume, which the trial's client loads."""
    return api(1, "/volumes")[0]["owner"]


def operations(row):
    return float(row["Operations/s"].replace(",", "").replace(" ", "")) if row["Operations/s"][:1].isdigit() else None


@test
def every_page_and_the_events_come_over_tls():
    driver().get(f"{base(1)}/#token={TOKEN}")
    wait(lambda: script("return document.querySelector('main')?.dataset.live") == "yes")
    go("nodes")
    wait(lambda: len(rows("Nodes") or []) == 3)
    for page in PAGES:
        picture_of(page, "cluster")


@test
def nodes_have_all_their_columns():
    go("nodes")
    wait(lambda: all(operations(row) is not None for row in rows("Nodes")), 15)
    shown = {row["Node"].split()[0]: row for row in rows("Nodes")}
    assert list(shown) == NODES, shown
    for number, name in enumerate(NODES, 1):
        row = shown[name]
        assert row["State"].endswith("Up") and row["Disks"] == "3" and row["Version"], row
        assert ADDRESSES[number - 1] in row["SMB, SMB Direct"] and row["SMB, SMB Direct"].count(":") == 2, row
    assert shown[owner()]["Volumes owned"] != "none", shown


@test
def every_server_shows_what_another_does():
    loaded = owner()
    number = next(number for number in (1, 2, 3) if NODES[number - 1] != loaded)
    token = open(f"{DATA}/node-{number}/api.token").read().strip()
    driver().get("about:blank")
    driver().get(f"{base(number)}/#token={token}")
    wait(lambda: script("return document.querySelector('main')?.dataset.live") == "yes")
    go("nodes")
    busy = lambda: next(((operations(row), row) for row in rows("Nodes") or [] if row["Node"].split()[0] == loaded), None)
    wait(lambda: busy() and busy()[0], 20)
    assert "this one" not in busy()[1]["Node"] and "B/s" in busy()[1]["Throughput"], busy()
    # Copies that go to other servers are no work of their clients.
    idle = {row["Node"].split()[0]: operations(row) for row in rows("Nodes") if row["Node"].split()[0] != loaded}
    assert set(idle.values()) == {0} and len(idle) == 2, idle
    go("clients")
    wait(lambda: "Sessions (0)" in text())
    # Not only its rates: its clients, its disks, and how fast the cluster is.
    go("disks")
    wait(lambda: len(rows("Disks")) == 9 and all("B/s" in row["Read / write"] for row in rows("Disks")), 20)
    go("performance")
    wait(lambda: [row["Client"] for row in rows("Clients") or []] not in ([], ["–"]), 20)
    assert set(row["This second"] for row in rows("This second")) == {"Read", "Write", "Others"}
    go("overview")
    wait(lambda: script("return document.getElementById('fast').dataset.verdict") == "yes", 20)
    go("nodes")
    picture("nodes-loaded")


@test
def a_killed_server_is_shown_within_two_seconds():
    victim = next(name for name in NODES if name != owner() and ADDRESSES[NODES.index(name)] not in driver().current_url)
    os.kill(int(open(f"{DATA}/{victim}.pid").read()), signal.SIGKILL)
    began = time.monotonic()
    state = lambda: next(row for row in rows("Nodes") if row["Node"].split()[0] == victim)
    wait(lambda: state()["State"].endswith("Down"), 10)
    took = time.monotonic() - began
    assert took < 2, f"after {took:.1f} s"
    assert state()["Operations/s"] == "–", state()
    assert "Healthy" not in script("return document.querySelector('header').innerText")
    in_all_looks(lambda look: picture_of("nodes", f"killed-{look}"))


@test
def nothing_was_asked_elsewhere_and_no_script_failed():
    asked = script("return performance.getEntriesByType('resource').map((entry) => entry.name)")
    assert asked and all(name.startswith("https://127.") for name in asked), asked
    failed = errors()
    assert failed == [], failed


status = run("nodes")
end()
sys.exit(status)
