"""The dashboard's pages in Chromium, against the API: BASE DATA PICTURES."""
import json
import os
import subprocess
import sys
import time
import urllib.request

from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from chromium import begin, driver, end, errors, go, in_all_looks, picture, picture_of, rows, script, text, wait
from peer_tests import run, test

BASE, DATA, PICTURES = sys.argv[1:4]
TOKEN = open(f"{DATA}/api.token").read().strip()
CENOTE = os.environ["CENOTE"]
PAGES = ["overview", "nodes", "disks", "storage", "clients", "accounts", "jobs", "health", "events", "performance", "fleet", "plan"]


def api(path):
    request = urllib.request.Request(f"{BASE}/api/v1{path}", headers={"Authorization": f"Bearer {TOKEN}"})
    return json.load(urllib.request.urlopen(request, timeout=20))


begin(PICTURES)


@test
def a_wrong_token_is_told_and_forgotten():
    driver().get(f"{BASE}/")
    wait(lambda: driver().find_elements(By.ID, "token"))
    driver().find_element(By.ID, "token").send_keys("0" * 64 + Keys.ENTER)
    wait(lambda: "not the server's token" in text())
    assert script("return sessionStorage.getItem('cenote-token')") is None
    # The refusal itself is in the browser's log.
    assert all("401" in message for message in errors())


@test
def a_token_that_is_typed_logs_in():
    driver().find_element(By.ID, "token").clear()
    driver().find_element(By.ID, "token").send_keys(TOKEN + Keys.ENTER)
    wait(lambda: script("return document.querySelector('main')?.dataset.live") == "yes")
    driver().find_element(By.XPATH, "//button[text()='Log out']").click()
    wait(lambda: driver().find_elements(By.ID, "token"))
    assert script("return sessionStorage.getItem('cenote-token')") is None


@test
def the_link_logs_in_and_its_token_leaves_the_address():
    driver().get("about:blank")
    link = subprocess.run([CENOTE, "--data", DATA, "dashboard"], capture_output=True, text=True, check=True).stdout.strip()
    driver().get(link)
    wait(lambda: script("return document.querySelector('main')?.dataset.live") == "yes")
    assert TOKEN not in driver().current_url, "the token stays in the address"
    assert TOKEN not in script("return document.documentElement.outerHTML")
    assert script("return Object.keys(localStorage).length") == 0


@test
def the_overview_answers_three_questions_and_names_every_disk():
    go("overview")
    shown = text()
    for question in ["Is my data safe?", "Am I on RDMA?", "How fast is it?"]:
        assert question in shown, question
    assert script("return document.getElementById('safe').dataset.verdict") == "yes", shown
    tiles = script("return [...document.querySelectorAll('.tile')].map((tile) => [tile.dataset.disk, tile.innerText])")
    disks = {disk["id"]: disk for disk in api("/disks")}
    assert {one for one, _ in tiles} == set(disks)
    for one, words in tiles:
        assert os.path.basename(disks[one]["path"]) in words
    assert "free when repaired" in shown and "1 copy of every block left" in shown, shown


def value_of(module, name, *arguments):
    """The answer of a function of the pages' own modules."""
    driver().set_script_timeout(10)
    return driver().execute_async_script("""
        const done = arguments[arguments.length - 1];
        import(`/dashboard/${arguments[0]}`).then((module) => done(module[arguments[1]](...arguments[2])), (error) => done(String(error)));
    """, module, name, arguments)


@test
def commands_are_filled_and_gaps_are_gaps():
    filled = lambda usage, values: value_of("words.js", "fill", usage, values)
    usage = "cenote volume create NAME --size SIZE [--fixed] [--pool POOL]"
    assert filled(usage, {}) == "cenote volume create NAME --size SIZE"
    found = filled(usage, {"name": "it's NAME", "size": "1GiB", "fixed": True, "pool": "p"})
    assert found == "cenote volume create 'it'\\''s NAME' --size 1GiB --fixed --pool p", found
    assert filled("cenote group set NAME [--add MEMBER]", {"name": "g", "add": ["a", "b"]}) == "cenote group set g --add a --add b"
    assert value_of("parts.js", "withGaps", [1, 2, 10, 11], [[5, 6, 7, None]], 1) == [[1, 2, 3, 10, 11], [5, 6, None, 7, None]]


@test
def charts_begin_with_the_history():
    began = api("/dashboard/history?span=hour")["at_unix_s"][0]
    driver().refresh()
    wait(lambda: script("return document.querySelector('main')?.dataset.live") == "yes")
    go("overview")
    wait(lambda: int(script("return document.querySelector('.chart [data-from]')?.dataset.from ?? '0'")) in range(began, began + 3))


@test
def one_server_alone_is_a_list_of_one():
    go("nodes")
    wait(lambda: rows("Nodes"))
    found = rows("Nodes")
    assert len(found) == 1 and found[0]["Volumes owned"] == api("/volumes")[0]["name"], found


@test
def disks_are_those_of_the_api():
    go("disks")
    found = {row["Disk"].split()[0]: row for row in rows("Disks")}
    for disk in api("/disks"):
        row = found[os.path.basename(disk["path"])]
        assert os.path.dirname(disk["path"]) in row["Disk"], row
        assert "Healthy" in row["State"] and row["Errors"] == "none", row
        assert "of 1.00 GiB" in row["Allocated"], row
    assert len(found) == 4
    names = lambda: [row["Disk"].split()[0] for row in rows("Disks")]
    driver().find_element(By.XPATH, "//th//button[contains(text(), 'Disk')]").click()
    wait(lambda: names() == sorted(found))
    driver().find_element(By.XPATH, "//th//button[contains(text(), 'Disk')]").click()
    wait(lambda: names() == sorted(found, reverse=True))
    typed = driver().find_element(By.CSS_SELECTOR, "input.filter")
    typed.send_keys("disk-3 healthy")
    wait(lambda: names() == ["disk-3.img"])
    typed.clear()
    typed.send_keys(Keys.SPACE)
    wait(lambda: len(names()) == 4)
    heights = script("return [...document.querySelectorAll('table[aria-label=Disks] tbody tr')].map((row) => row.offsetHeight)")
    assert max(heights) <= 20, f"200 disks are to fit on four screens: {heights}"


def answered(words):
    """The dialog's answer comes; what it refuses is told."""
    def look():
        refused = script("return document.querySelector('dialog .error')?.innerText")
        assert not refused, refused
        return words in script("return document.querySelector('dialog').innerText")
    wait(look, 20)


def choose(label, item):
    """Opens a row's menu and takes an item of it."""
    driver().find_element(By.XPATH, f"//button[@aria-label='Actions for {label}']").click()
    shown = lambda: [one for one in driver().find_elements(By.XPATH, f"//button[@role='menuitem' and starts-with(text(), '{item}')]") if one.is_displayed()]
    wait(shown)
    shown()[0].click()
    wait(lambda: driver().find_elements(By.CSS_SELECTOR, "dialog[open] form"))


def close():
    driver().find_element(By.XPATH, "//dialog//button[text()='Close' or text()='Cancel']").click()
    wait(lambda: not driver().find_elements(By.CSS_SELECTOR, "dialog[open]"))


@test
def what_destroys_is_named_only_behind_a_rows_menu():
    for page in PAGES:
        go(page)
        for word in ["cenote volume delete", "cenote disk erase", "cenote share delete", "cenote session close"]:
            assert word not in text(), (page, word)
    go("storage")
    volume = api("/volumes")[0]["name"]
    choose(volume, "Delete")
    assert f"cenote volume delete {volume}" in text()
    assert not driver().find_element(By.XPATH, "//dialog//button[text()='Delete']").is_enabled()
    close()


@test
def the_first_event_after_a_while_is_fresh():
    request = lambda: urllib.request.Request(f"{BASE}/api/v1/dashboard/events", headers={"Authorization": f"Bearer {TOKEN}"})
    driver().get("about:blank")
    with urllib.request.urlopen(request(), timeout=10) as stream:
        stream.readline()
    time.sleep(3)
    asked = time.time()
    with urllib.request.urlopen(request(), timeout=10) as stream:
        event = json.loads(stream.readline()[6:])
    assert event["at_unix_ms"] / 1000 > asked - 1.6, (event["at_unix_ms"], asked)
    driver().get(f"{BASE}/#token={TOKEN}")
    wait(lambda: script("return document.querySelector('main')?.dataset.live") == "yes")


@test
def users_groups_quotas_and_entries_are_changed_by_forms():
    go("accounts")
    wait(lambda: rows("Users"))
    driver().find_element(By.XPATH, "//button[text()='Add a group']").click()
    wait(lambda: driver().find_elements(By.ID, "field-name"))
    driver().find_element(By.ID, "field-name").send_keys("staff" + Keys.ENTER)
    answered("Done.")
    close()
    wait(lambda: any(row["Group"] == "staff" for row in rows("Groups")))
    driver().find_element(By.XPATH, "//button[text()='Add a user']").click()
    wait(lambda: driver().find_elements(By.ID, "field-password"))
    for name, typed in [("name", "ann"), ("password", "Long-Enough-1"), ("group", "staff")]:
        driver().find_element(By.ID, f"field-{name}").send_keys(typed)
    assert "cenote user add ann --password-stdin --group staff" in text() and "Long-Enough-1" not in text()
    driver().find_element(By.ID, "field-group").send_keys(Keys.ENTER)
    answered("ann may log on")
    close()
    wait(lambda: next((row for row in rows("Users") if row["User"] == "ann"), {}).get("Groups") == "staff")
    driver().find_element(By.XPATH, "//button[text()='Show']").click()
    wait(lambda: rows("Access entries"))
    driver().find_element(By.XPATH, "//button[text()='Allow or deny']").click()
    wait(lambda: driver().find_elements(By.ID, "field-who"))
    driver().find_element(By.ID, "field-who").send_keys("staff" + Keys.ENTER)
    answered("Done.")
    close()
    wait(lambda: any((row["Who"], row["Access"], row["From"]) == ("staff", "modify", "itself") for row in rows("Access entries")))
    driver().find_element(By.XPATH, "//button[text()='Settings']").click()
    wait(lambda: driver().find_elements(By.ID, "field-mode"))
    script("const one = document.getElementById('field-mode'); one.value = 'track'; one.dispatchEvent(new Event('change', { bubbles: true }))")
    wait(lambda: "--mode track" in text())
    driver().find_element(By.ID, "field-limit").send_keys("10GiB" + Keys.ENTER)
    answered("Done.")
    close()
    wait(lambda: ": track; by default limit 10.0 GiB" in text())
    report = api(f"/volumes/{api('/volumes')[0]['name']}/quotas")
    assert (report["mode"], report["default_limit_bytes"]) == ("track", 10 << 30), report
    picture("accounts-forms")


@test
def events_tell_what_was_done():
    go("events")
    wait(lambda: any(row["Action"] == "user add" and row["Target"] == "ann" for row in rows("Events") or []))
    assert "Long-Enough-1" not in text()


@test
def pool_and_volumes_are_those_of_the_api():
    go("storage")
    volume, pool = api("/volumes")[0], api("/pools")[0]
    row = rows("Volumes")[0]
    assert row["Volume"] == volume["name"] and row["Copies up to date"] == "2 of 2", row
    assert row["Resiliency"] == f"Two-way mirror, {volume['provisioning']}", row
    assert f"Pool {pool['name']}" in text()


@test
def shares_and_sessions_say_why_a_client_is_not_on_rdma():
    go("clients")
    wait(lambda: rows("Shares"))
    assert rows("Shares")[0]["Share"] == os.environ["SMB_SHARE"]
    wait(lambda: rows("Sessions"))
    session, row = api("/sessions")[0], rows("Sessions")[0]
    assert row["User"] == session["user"] and session["client"][0] in row["Client"], row
    assert row["Transport"].startswith("TCP") and row["Dialect"] == "3.1.1", row
    wait(lambda: rows("Interfaces"))
    assert "it came by lo, which has no RDMA" in rows("Sessions")[0]["Why not on RDMA"], row


@test
def jobs_and_health_are_empty_when_nothing_is_wrong():
    go("jobs")
    assert "No job runs." in text()
    go("health")
    assert "Nothing is wrong." in text() and api("/health")["issues"] == []


@test
def performance_has_charts_and_history():
    go("performance")
    wait(lambda: len(driver().find_elements(By.CSS_SELECTOR, ".chart canvas")) == 8)
    driver().find_element(By.XPATH, "//button[text()='Hour']").click()
    wait(lambda: script("return document.querySelectorAll('.chart canvas').length") == 8)
    assert rows("Shares")[0]["Share"] == os.environ["SMB_SHARE"] and rows("Volumes")[0]["Volume"] == api("/volumes")[0]["name"]
    assert rows("Clients")[0]["Client"] == "127.0.0.1"
    # Everything that is asked is asked by this client; pipes are read and written, too.
    timed, total = api("/perf/clients"), api("/perf")
    measured = total["read"]["measured_operations"] + total["write"]["measured_operations"]
    assert [client["client"] for client in timed] == ["127.0.0.1"] and 0 < timed[0]["count"] <= measured, (timed, total)
    layers = {(row["Layer"], row.get("")): row for row in rows("Layers")}
    assert "MiB" in layers[("Clients", "write")]["Bytes"], layers
    history = api("/dashboard/history?span=hour")
    written = history["values"][history["series"].index("write_bytes_per_s")]
    total = api("/perf")["write"]["bytes"]
    # A point stands for a second, or for more on a machine that has much to do: one sum has too little, the other too much.
    times = history["at_unix_s"]
    least = sum(value or 0 for value in written)
    most = sum((value or 0) * (at - before) for value, at, before in zip(written, times, [times[0] - 1] + times))
    assert least <= total * 1.3 and most >= total * 0.7, (total, least, most)


@test
def the_fleet_is_shown_while_it_runs():
    go("fleet")
    assert "No fleet runs" in text()
    for second in range(2):
        nodes = {"one": {"workers": 4, "ready": 1, "processes": 1, "operations": 50_000 * second, "bytes": 204_800_000 * second, "latency_ns": 4_000_000_000 * second}}
        now = int(time.time() * 1000)
        progress = {"label": "trial", "pid": 1, "updated_unix_ms": 1_000_000 + 1000 * second, "measure_from_unix_ms": now, "ends_unix_ms": now + 60_000, "nodes": nodes}
        request = urllib.request.Request(f"{BASE}/api/v1/dashboard/fleet", data=json.dumps(progress).encode(), headers={"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"})
        urllib.request.urlopen(request, timeout=10)
    wait(lambda: rows("Fleet"), 4)
    total = rows("Fleet")[0]
    assert (total["Node"], total["IOPS"], total["BW (MB/s)"], total["Worker Lat"]) == ("Total", "50,000", "205", "0.080"), total
    picture("fleet")


@test
def a_plan_is_that_of_the_command_line():
    go("plan")
    wait(lambda: rows("Capacity"))
    mine = subprocess.run([CENOTE, "--data", DATA, "--json", "plan", "--pool", api("/pools")[0]["name"], "--add-nodes", "2"], capture_output=True, text=True, check=True)
    driver().find_element(By.ID, "plan-add_nodes").send_keys("2")
    wait(lambda: rows("Capacity") and len(rows("Capacity")) == len(json.loads(mine.stdout)["choices"]) and "3 in" not in text() and "--add-nodes 2" in text())
    expected = [f"{choice['efficiency_percent']:.1f} %" for choice in json.loads(mine.stdout)["choices"]]
    wait(lambda: [row["Of raw"] for row in rows("Capacity")] == expected)


@test
def a_volume_is_created_and_resized_and_a_disk_added():
    go("storage")
    driver().find_element(By.XPATH, "//button[text()='Create a volume']").click()
    wait(lambda: driver().find_elements(By.ID, "field-name"))
    driver().find_element(By.ID, "field-name").send_keys("second")
    driver().find_element(By.ID, "field-size").send_keys("100 tapes")
    driver().find_element(By.XPATH, "//dialog//button[text()='Create']").click()
    wait(lambda: "is no size" in text())
    field = driver().find_element(By.ID, "field-size")
    field.clear()
    field.send_keys("256MiB")
    assert "cenote volume create second --size 256MiB --resiliency two-way-mirror" in text()
    picture("dialog")
    driver().find_element(By.XPATH, "//dialog//button[text()='Create']").click()
    answered("Volume second is there")
    driver().find_element(By.XPATH, "//dialog//button[text()='Close']").click()
    wait(lambda: any(row["Volume"] == "second" for row in rows("Volumes")))
    choose("second", "Resize")
    driver().find_element(By.ID, "field-size").send_keys("512MiB" + Keys.ENTER)
    answered("Done.")
    assert {volume["name"]: volume["size_bytes"] for volume in api("/volumes")}["second"] == 512 << 20
    driver().find_element(By.XPATH, "//dialog//button[text()='Close']").click()
    go("disks")
    driver().find_element(By.XPATH, "//button[text()='Add a disk']").click()
    wait(lambda: driver().find_elements(By.ID, "field-path"))
    driver().find_element(By.ID, "field-path").send_keys(f"{DATA}/disks/added")
    driver().find_element(By.ID, "field-create").send_keys("1GiB" + Keys.ENTER)
    answered("is in the pool")
    driver().find_element(By.XPATH, "//dialog//button[text()='Close']").click()
    wait(lambda: len(rows("Disks")) == 5)


@test
def keys_lead_from_page_to_page():
    body = driver().find_element(By.TAG_NAME, "body")
    for key, page in [("7", "health"), ("0", "plan"), ("1", "overview")]:
        body.send_keys(key)
        wait(lambda: script("return document.querySelector('main').dataset.page") == page)


@test
def pages_fit_light_dark_and_narrow():
    in_all_looks(lambda look: [picture_of(page, look) for page in PAGES])


@test
def a_lost_disk_is_shown_within_two_seconds():
    go("overview")
    path = next(disk["path"] for disk in api("/disks") if disk["path"].endswith("disk-2.img"))
    os.remove(path)
    # The server looks at the files of disks once a second.
    wait(lambda: any(disk["health"] == "unhealthy" for disk in api("/disks")), 10)
    began = time.monotonic()
    wait(lambda: script("return document.querySelector('.tile.bad')?.innerText.includes('disk-2.img')"), 10)
    took = time.monotonic() - began
    assert took < 2, f"after {took:.1f} s"
    picture("lost-disk")
    go("health")
    issue = next(issue for issue in api("/health")["issues"] if path in issue["what"])
    card = script("return document.querySelector(`[data-code='${arguments[0]}']`)?.innerText", issue["code"])
    assert issue["what"] in card and issue["meaning"] in card and "cenote disk replace" in card, card
    picture("health-lost-disk")
    driver().find_element(By.CSS_SELECTOR, f"[data-code='{issue['code']}'] .menu-button").click()
    shown = lambda: [one for one in driver().find_elements(By.XPATH, "//button[@role='menuitem' and starts-with(text(), 'Mute')]") if one.is_displayed()]
    wait(shown)
    shown()[0].click()
    driver().find_element(By.XPATH, "//dialog//button[text()='Mute']").click()
    answered("Done.")
    close()
    wait(lambda: driver().find_elements(By.CSS_SELECTOR, f".muted[data-code='{issue['code']}']"))
    assert api("/health")["health"] == "unhealthy", "it stays an issue"


@test
def nothing_was_asked_elsewhere_and_no_script_failed():
    asked = script("return performance.getEntriesByType('resource').map((entry) => entry.name)")
    assert asked and all(name.startswith(BASE + "/") for name in asked), asked
    failed = errors()
    assert failed == [], failed


status = run("dashboard")
end()
sys.exit(status)
