"""The panel's history and the lab's runs outlive the process: restart, takeover, a file that cannot be read."""

import json
import signal
import threading
import time

import pytest

import host
import panel
from running import Latch
from test_panel_lab import WISH, ended, with_lab

pytestmark = [pytest.mark.weir_only, pytest.mark.any_driver]


def start(weir, **settings):
    """A pooler with its panel and a state directory."""
    pooler = weir.prepared(http_port=host.free_port(), state_dir="state", **settings)
    pooler.start()
    return pooler, panel.Panel(pooler, int(pooler.settings["http_port"])).wait_up()


def renewed(pooler, web, count):
    """The panel of the process that was started as the `count`th."""
    again = panel.Panel(pooler, web.port).wait_up()
    again.first = again.token_path(count=count).read_text().strip()
    return again


def numbers(web, series="clients", **query):
    text = "&".join(f"{name}={value}" for name, value in query.items())
    past = web.get(f"/api/v1/history?{text}")
    known = {past["from"] + index * past["step_seconds"]: number for index, number in enumerate(past["series"][series]) if number is not None}
    return past, known


def wait_seconds(web, least, **query):
    return host.eventually(lambda: (found := numbers(web, **query)[1]) and len(found) >= least and found, timeout=40)


def test_history_and_trail_outlive_a_restart(weir):
    pooler, web = start(weir)
    pooler.value("select 1")
    pooler.console("PAUSE app")
    pooler.console("RESUME app")
    before = wait_seconds(web, 4, seconds=600)
    assert {"PAUSE app", "RESUME app"} <= {mark["text"] for mark in web.get("/api/v1/marks")["marks"]}
    pooler.stop()
    assert (pooler.directory / "state").stat().st_mode & 0o777 == 0o700
    pooler.start()
    web = renewed(pooler, web, 2)
    second = min(before)
    host.eventually(lambda: second in numbers(web, seconds=600)[1], timeout=20)
    after = numbers(web, seconds=600)[1]
    assert set(before) <= set(after), (before, after)
    marks = [(mark["kind"], mark["text"]) for mark in web.get("/api/v1/marks")["marks"]]
    assert ("operation", "PAUSE app") in marks and [kind for kind, _ in marks].count("start") == 2, marks
    past, _ = numbers(web, seconds=86400, database="app", series="xact_rate")
    assert past["step_seconds"] == 60 and len(past["series"]["xact_rate"]) >= 1440
    assert numbers(web, seconds=7200)[0]["step_seconds"] == 10


def test_history_outlives_a_kill(weir):
    pooler, web = start(weir)
    before = wait_seconds(web, 3, seconds=600)
    file = pooler.directory / "state/history.redb"
    for _ in range(2):  # the first write may have begun before
        mark = time.time()
        host.eventually(lambda: file.exists() and file.stat().st_mtime > mark, timeout=20)
    pooler.signal(signal.SIGKILL)
    pooler.wait_end()
    pooler.start()
    web = renewed(pooler, web, 2)
    host.eventually(lambda: set(before) <= set(numbers(web, seconds=600)[1]), timeout=20)
    assert "cannot be read" not in pooler.log_text()


def test_a_process_that_takes_over_goes_on_with_the_history(weir, pg):
    pooler, web = start(weir)
    client = pooler.connect()
    with Latch(pg) as latch:
        # The old process lives as long as it has a query to answer.
        running = threading.Thread(target=client.execute, args=(latch.QUERY,))
        running.start()
        latch.wait_for()
        before = wait_seconds(web, 3, seconds=600)
        old = pooler.process
        pooler.launch("--reboot")
        again = renewed(pooler, web, 2)
        host.eventually(lambda: set(before) <= set(numbers(again, seconds=600)[1]), timeout=20)
        assert old.poll() is None, "it has not been waited for"
        latch.open()
    newest = max(numbers(again, seconds=600)[1])
    host.eventually(lambda: max(numbers(again, seconds=600)[1]) > newest, timeout=20)
    assert "takeover" in {mark["kind"] for mark in again.get("/api/v1/marks")["marks"]}
    running.join()
    assert client.execute("select 1").fetchone() == (1,)
    assert old.wait(30) == 0


def test_a_file_that_cannot_be_read_is_put_aside(weir):
    pooler = weir.prepared(http_port=host.free_port(), state_dir="state")
    state = pooler.directory / "state"
    state.mkdir(mode=0o700)
    host.hand_over(state)
    file = state / "history.redb"
    file.write_bytes(b"no database " * 1000)
    host.hand_over(file)
    pooler.start()
    web = panel.Panel(pooler, int(pooler.settings["http_port"])).wait_up()
    pooler.wait_log(r"WARNING panel: history.redb cannot be read .*: renamed to .*history.unreadable")
    assert (state / "history.unreadable").read_bytes().startswith(b"no database")
    wait_seconds(web, 2, seconds=600)
    assert pooler.value("select 1") == 1


def test_a_directory_that_cannot_be_used_costs_no_more_than_the_past(weir):
    pooler = weir.prepared(http_port=host.free_port(), state_dir="/proc/weir-state")
    pooler.start()
    web = panel.Panel(pooler, int(pooler.settings["http_port"])).wait_up()
    pooler.wait_log(r'WARNING panel: cannot use state_dir "/proc/weir-state"')
    wait_seconds(web, 2, seconds=600)
    other, web = panel.start(weir)
    other.wait_log("panel: state_dir is not set: history, audit trail and lab runs end with this process")


def test_history_as_a_table_of_values(weir):
    pooler, web = start(weir)
    pooler.value("select 1")
    wait_seconds(web, 2, seconds=600, database="app", series="xact_rate")
    for path, headers in [("/api/v1/history?database=app&seconds=10&format=csv", {}), ("/api/v1/history?database=app&seconds=10", {"Accept": "text/csv"})]:
        status, text, answer = web.ask("GET", path, headers=headers)
        lines = text.splitlines()
        assert status == 200 and answer["Content-Type"].startswith("text/csv"), text
        assert lines[0].startswith("time,") and "xact_rate" in lines[0].split(",")
        assert len(lines) == 11 and all(line.count(",") == lines[0].count(",") for line in lines)
        assert lines[-1].split(",")[0].endswith("Z")
    panel.is_refused(web.ask("GET", "/api/v1/history?format=xml"), 400, "bad_request")


def test_lab_runs_outlive_a_restart_and_a_takeover(weir, pg):
    pooler, web = with_lab(weir, pg, state_dir="state")
    run = web.ask("POST", "/api/v1/lab/runs", WISH)[1]["run"]["id"]
    found = host.eventually(lambda: ended(web, run), timeout=480)
    old = pooler.process
    pooler.launch("--reboot")
    assert old.wait(30) == 0
    web = renewed(pooler, web, 2)
    assert web.get(f"/api/v1/lab/runs/{run}")["run"] == found
    interrupted = web.ask("POST", "/api/v1/lab/runs", {**WISH, "seconds": 60})[1]["run"]["id"]
    pooler.signal(signal.SIGKILL)
    pooler.wait_end()
    pooler.start()
    web = renewed(pooler, web, 3)
    runs = {one["id"]: one for one in web.get("/api/v1/lab/runs")["runs"]}
    assert runs[run] == found and runs[interrupted]["state"] == "interrupted", json.dumps(runs)
    if found["report"]:
        status, page, _ = web.ask("GET", f"/api/v1/lab/runs/{run}/report")
        assert status == 200 and "<html" in page
