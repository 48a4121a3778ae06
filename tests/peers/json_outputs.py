"""Runs every command that prints JSON and holds the output against its schema: json_outputs.py OPENAPI.json DATA WORK.

Commands are found by asking for help, so that a new one is missed here, and not in the field. Properties that no schema names are
refused, as are times in any other form than `_unix_s`."""
import json, os, re, subprocess, sys, time

from json_schemas import Schemas
from peer_tests import run, test

DOCUMENT, DATA, WORK = sys.argv[1:]
CENOTE, PORT, SHARE = os.environ["CENOTE"], os.environ["SMB_PORT"], os.environ["SMB_SHARE"]
USER, PASSWORD = os.environ["SMB_USER"], os.environ["SMB_PASSWORD"]
os.environ["CENOTE_SMB_USER"], os.environ["CENOTE_SMB_PASSWORD"] = USER, PASSWORD
PLACE = f"smb://127.0.0.1:{PORT}/{SHARE}"

# Commands that print no JSON, and why; what `--json` prints in the others is looked at below.
WITHOUT = {
    "quickstart": "runs a server",
    "serve": "runs a server",
    "completion": "prints a script",
    "man": "writes files",
    "job cancel": "needs a job that lasts; a message as that of `session close`",
    "job resume": "needs a job that was stopped; as `job cancel`",
    "witness serve": "runs a witness",
    "disk forget-promises": "needs a disk that somebody has written an impossible promise to",
}
tried = set()


SCHEMAS = Schemas(DOCUMENT)


def cenote(*words, status=(0,)):
    done = subprocess.run([CENOTE, "--data", DATA, "--json", *words], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)
    assert done.returncode in status, f"{' '.join(words)}: {done.returncode}: {done.stderr.strip()[-500:]}"
    return done.stdout


def shows(schema, *words, noun=2, status=(0,), text=None):
    """A command's output, which has the schema: NAME, or [NAME] for a list of them."""
    tried.add(" ".join(words[:noun]))
    value = json.loads(cenote(*words, status=status) if text is None else text)
    SCHEMAS.hold(schema, value)
    return value


def eventually(look, what, seconds=60):
    end = time.time() + seconds
    while not (found := look()):
        assert time.time() < end, f"{what} does not come"
        time.sleep(0.3)
    return found


@test
def disks_and_jobs():
    pool = shows(["Pool"], "pool", "list")[0]["name"]
    added = shows("Created", "disk", "add", f"{WORK}/one.img", "--create", "1GiB", "--pool", pool)
    listed = shows(["Disk"], "disk", "list")
    assert added["id"] in [disk["id"] for disk in listed] and added["name"] == f"{WORK}/one.img"
    shows("LocatedDisk", "disk", "locate", added["id"])
    replaced = shows("Replaced", "disk", "replace", added["id"], f"{WORK}/two.img", "--create", "1GiB")
    eventually(lambda: added["id"] not in [disk["id"] for disk in shows(["Disk"], "disk", "list")], "the old disk's end")
    shows("Message", "disk", "acknowledge", replaced["disk"])
    with open(f"{WORK}/foreign.img", "wb") as out:
        out.write(b"XFSB" + bytes(4092))
        out.truncate(256 << 20)
    erased = shows("ErasedDisk", "disk", "erase", f"{WORK}/foreign.img", "--yes", f"{WORK}/foreign.img")
    assert "XFS" in erased["held"], erased
    shows("DiskInspection", "disk", "inspect", f"{WORK}/one.img", status=(0, 1))
    job = shows("Started", "pool", "rebalance", pool)["job"]
    ended = shows("Job", "job", "watch", str(job))
    assert ended["id"] == job and ended["state"] == "completed", ended
    shows(["Job"], "job", "watch")
    assert job in [listed["id"] for listed in shows(["Job"], "job", "list")]
    ended = shows("Job", "disk", "retire", replaced["disk"], "--watch")
    assert (ended["kind"], ended["state"]) == ("retirement", "completed"), ended
    assert replaced["disk"] not in [disk["id"] for disk in shows(["Disk"], "disk", "list")]


@test
def pools():
    made = shows("Created", "pool", "create", "second", f"{WORK}/a.img", f"{WORK}/b.img", "--create", "1GiB")
    assert made["name"] == "second"
    shown = shows("Pool", "pool", "show", "second")
    assert shown["id"] == made["id"] and shown["disks"] == 2
    shows("Message", "pool", "set", "second", "--reserve-disks", "0")
    shows("Message", "pool", "export", "second", "--yes", "second")
    shows("ImportedPool", "pool", "import", "--search", WORK)


@test
def the_dashboards_link():
    link = shows("DashboardLink", "dashboard", noun=1)["url"]
    assert link.endswith("/#token=" + open(os.path.join(DATA, "api.token")).read().strip())


@test
def plans():
    plan = shows("Plan", "plan", "--nodes", "4", "--drives", "4x4TiB:nvme", noun=1)
    assert [choice["resiliency"] for choice in plan["choices"]] == ["simple", "two-way-mirror", "three-way-mirror"], plan
    pool = shows(["Pool"], "pool", "list")[0]["name"]
    assert shows("Plan", "plan", "--pool", pool, "--add-nodes", "2", noun=1)["nodes"] == 3


@test
def volumes_and_shares():
    made = shows("Created", "volume", "create", "plans", "--size", "256MiB", "--pool", "second")
    shown = shows("Volume", "volume", "show", "plans")
    assert (shown["id"], shown["name"]) == (made["id"], made["name"])
    shows(["Volume"], "volume", "list")
    shows("Message", "volume", "set", "plans", "--warn-at", "60")
    assert shows("Volume", "volume", "show", "plans")["warn_at_percent"] == 60
    shows("Message", "volume", "resize", "plans", "--size", "512MiB")
    job = shows("Started", "volume", "check", "plans")["job"]
    shows("Job", "job", "watch", str(job))
    shows("VolumeDamage", "volume", "damage", "plans")
    share = shows("ShareView", "share", "create", "plans", "--volume", "plans", "--grant", "Everyone:read")
    assert share["access"] == [{"who": "Everyone", "access": "read"}], share
    assert shows("ShareView", "share", "set", "plans", "--comment", "all of them")["comment"] == "all of them"
    assert "plans" in [listed["name"] for listed in shows(["ShareView"], "share", "list")]
    assert shows("ShareView", "share", "show", "PLANS")["name"] == "plans"
    acl = shows("AclView", "acl", "show", "plans")
    assert len(shows("AclView", "acl", "set", "plans", "--grant", f"{USER}:read")["entries"]) == len(acl["entries"]) + 1
    assert shows("AclView", "acl", "propagate", "plans", "--recursive")["protected"] is False
    shows("ShareView", "share", "create", "plans-2027", "--volume", "plans", "--path", "2027", "--grant", "Everyone:read")
    assert shows("AclView", "acl", "protect", "plans-2027")["protected"] is True
    assert shows("AclView", "acl", "inherit", "plans-2027")["protected"] is False
    shows("Message", "share", "delete", "plans-2027", "--yes", "plans-2027")
    shows("Message", "quota", "set", "plans", "--mode", "enforce", "--limit", "10MiB")
    shows("Message", "quota", "set", "plans", USER, "--limit", "none", "--warning", "1MiB")
    quota = shows("QuotaView", "quota", "show", "plans", USER)
    assert (quota["limit_bytes"], quota["threshold_bytes"], quota["own_limits"]) == (None, 1 << 20, True), quota
    report = shows("QuotaReport", "quota", "list", "plans")
    assert (report["mode"], report["default_limit_bytes"]) == ("enforce", 10 << 20), report
    shows("Message", "quota", "remove", "plans", USER)
    assert shows("QuotaView", "quota", "show", "plans", USER)["own_limits"] is False
    shows("Message", "share", "delete", "plans", "--yes", "plans")
    shows("Message", "volume", "delete", "plans", "--yes", "plans")
    assert shows("DeletedPool", "pool", "delete", "second", "--yes", "second")["labelled_disks"] == []


@test
def users_have_their_generated_passwords_and_groups_their_members():
    ann = shows("AddedUser", "user", "add", "ann")
    assert ann["name"] == "ann" and ann["sid"].startswith("S-1-5-21-") and len(ann["password"]) >= 8
    given = shows("AddedUser", "user", "add", "ben", "--password", "a word that is long")
    assert given["password"] is None
    assert shows("UserView", "user", "set", "ann", "--full-name", "Ann B.")["full_name"] == "Ann B."
    renamed = shows("UserView", "user", "rename", "ben", "benno")
    assert (renamed["name"], renamed["sid"]) == ("benno", given["sid"])
    assert shows("UserView", "user", "show", "benno") == renamed
    shows("UserView", "user", "rename", "benno", "ben")
    assert {"ann", "ben"} <= {user["name"] for user in shows(["UserView"], "user", "list")}
    assert shows("GroupView", "group", "add", "staff")["members"] == []
    assert shows("GroupView", "group", "set", "staff", "--add", "ann")["members"] == ["ann"]
    shows(["GroupView"], "group", "list")
    shows("Message", "group", "delete", "staff", "--yes", "staff")
    shows("Message", "user", "delete", "ben", "--yes", "ben")


@test
def files_of_a_server():
    with open(f"{WORK}/local", "wb") as out:
        out.write(b"x" * 5000)
    shows("Message", "smb", "put", f"{WORK}/local", f"{PLACE}/remote")
    listed = {file["name"]: file for file in shows(["RemoteFile"], "smb", "ls", PLACE)}
    stat = shows("RemoteFile", "smb", "stat", f"{PLACE}/remote")
    assert stat["size_bytes"] == listed["remote"]["size_bytes"] == 5000
    assert abs(stat["written_unix_s"] - time.time()) < 300, stat
    shows("Message", "smb", "get", f"{PLACE}/remote", f"{WORK}/back")
    shows("Message", "smb", "mkdir", f"{PLACE}/deep/er", "--parents")
    shows("Message", "smb", "rm", f"{PLACE}/deep", "--recursive", "--yes", "deep")


@test
def clients_and_what_they_have_open():
    # An open lasts as long as the session of smbclient, which reads commands until its input ends.
    words = ["smbclient", f"//127.0.0.1/{SHARE}", "-p", PORT, "-U", f"{USER}%{PASSWORD}", "-m", "SMB3_11"]
    client = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, text=True)
    try:
        client.stdin.write("open remote\n")
        client.stdin.flush()
        session = eventually(lambda: shows(["Session"], "session", "list"), "a session")[0]
        files = eventually(lambda: shows(["OpenFile"], "file", "list"), "an open")
        shows("Message", "file", "close", str(files[0]["id"]))
        shows("Message", "session", "close", str(session["id"]))
    finally:
        client.kill()
        client.wait()


@test
def rdma():
    listener = shows("Rdma", "rdma", "list")["listeners"][0]["address"]
    shows("RdmaPing", "rdma", "ping", listener, "--count", "3")
    shows("RdmaTrace", "rdma", "trace", "1")
    shows("RdmaCounterSets", "rdma", "counters")


@test
def tokens_of_the_api():
    made = shows("CreatedToken", "token", "create", "monitoring", "--role", "reader", "--expires", "90d")
    listed = shows(["TokenView"], "token", "list")
    assert [(token["name"], token["role"]) for token in listed] == [("monitoring", "reader")], listed
    assert made["token"] not in json.dumps(listed)
    shows("Message", "token", "delete", "monitoring")
    assert shows(["TokenView"], "token", "list") == []


@test
def health_performance_and_configuration():
    shows("HealthReport", "health", noun=1, status=(0, 1, 2))
    # No receiver is set.
    assert shows(["TestedReceiver"], "alert", "test") == []
    lines = cenote("perf", "--count", "2").splitlines()
    assert len(lines) == 2, lines
    for line in lines:
        shows("PerformanceSample", "perf", noun=1, text=line)
    effective = shows("Configuration", "config", "show", "--effective")
    defaults = shows("Configuration", "config", "show")
    assert effective["api"]["listen"] != "" and set(defaults) <= {*effective, *defaults} and "smb" in defaults
    with open(f"{WORK}/empty.toml", "w") as out:
        out.write("")
    shows("Message", "config", "check", f"{WORK}/empty.toml")


def commands(*words):
    """All commands below these words, as their help lists them."""
    text = subprocess.run([CENOTE, *words, "--help"], capture_output=True, text=True, timeout=60).stdout
    listed = re.search(r"^Commands:\n((?:  .*\n)+)", text, re.M)
    if not listed:
        return [" ".join(words)]
    nouns = [line.split()[0] for line in listed.group(1).splitlines() if re.match(r"  \S", line)]
    return [found for noun in nouns if noun != "help" for found in commands(*words, noun)]


@test
def every_command_was_tried():
    # Those of a cluster are held against their schemas where there is one.
    script = open(f"{os.path.dirname(os.path.abspath(__file__))}/90-cluster-join.sh").read()
    there = {" ".join(words) for words in re.findall(r"^ *shows \"[^\"]+\" \S+ (\w+) (\w+)", script, re.M)}
    missed = set(commands()) - tried - set(WITHOUT) - there
    assert not missed, f"tried above, or named with the reason why not: {sorted(missed)}"


sys.exit(run("--json"))
