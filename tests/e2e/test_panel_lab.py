"""The lab by the panel: who may start it, what it may be asked for, that it is watched, interrupted and read."""

import http.client
import json
import re
import shutil
from pathlib import Path

import pytest

import browser
import host
import panel
from test_panel_access import follow, key, rest
from weir import BENCH

pytestmark = [pytest.mark.weir_only, pytest.mark.any_driver]

WISH = {"kind": "compare", "workload": "select-only", "clients": [2], "pool_sizes": [2], "seconds": 1, "rounds": 1, "quick": True, "target": {"embedded": True}}
SWEEP = {**WISH, "kind": "sweep", "clients": [8], "pool_sizes": [1, 2, 4, 8], "rounds": 2}


def with_lab(weir, pg, **settings):
    pooler = weir.prepared(**settings)
    pooler.environment["WEIR_PG_BIN"] = str(pg.bindir)
    pooler.write_ini(http_port=host.free_port())
    pooler.start()
    return pooler, panel.Panel(pooler, int(pooler.settings["http_port"])).wait_up()


def ended(web, run):
    found = web.get(f"/api/v1/lab/runs/{run}")["run"]
    return found if found["state"] != "running" else None


def events(web, run):
    """Every event of a run, until the stream ends with it."""
    connection = http.client.HTTPConnection("127.0.0.1", web.port, timeout=480)
    connection.request("GET", f"/api/v1/lab/runs/{run}/events", headers={"Authorization": f"Bearer {web.token}"})
    text = connection.getresponse().read().decode()
    connection.close()
    return [json.loads(data) for data in re.findall(r"^event: progress\ndata: (.*)$", text, re.M)]


def test_a_comparison_is_run_watched_and_read(weir, pg):
    pooler, web = with_lab(weir, pg)
    status, body, _ = web.ask("POST", "/api/v1/lab/runs", WISH)
    assert status == 201, body
    run = body["run"]["id"]
    assert body["run"]["state"] == "running" and body["run"]["args"]["clients"] == [2]
    panel.is_refused(web.ask("POST", "/api/v1/lab/runs", WISH), 409, "conflict", "another run")
    told = events(web, run)
    assert told[-1]["event"] == "end" and {"begin", "run", "ran"} <= {one["event"] for one in told}, told
    found = host.eventually(lambda: ended(web, run), timeout=480)
    assert found["state"] == "done" and found["ended"] >= found["started"], found
    assert [one["id"] for one in web.get("/api/v1/lab/runs")["runs"]] == [run]
    assert events(web, run) == told
    status, page, headers = web.ask("GET", f"/api/v1/lab/runs/{run}/report")
    if told[-1]["report"]:
        assert status == 200 and "<html" in page and headers["Content-Security-Policy"].startswith("sandbox; default-src 'none'")
    else:
        assert status == 404
    panel.is_refused(web.ask("POST", f"/api/v1/lab/runs/{run}/apply", {"pool": "app"}), 409, "conflict", "advises no size")
    assert pooler.value("select 1") == 1


def test_the_size_that_a_sweep_advises_is_given_to_a_pool(weir, pg):
    _, web = with_lab(weir, pg, pools_file="pools.ini")
    pool = {"name": "test-pool", "db": "app", "user": None, "mode": "transaction", "size": 13}
    assert web.ask("POST", "/api/v1/pools", pool)[0] == 201
    sweep = {**SWEEP, "rounds": 3}
    for _ in range(3):  # a busy machine measures so unevenly that nothing can be advised
        run = web.ask("POST", "/api/v1/lab/runs", sweep)[1]["run"]["id"]
        size = host.eventually(lambda: ended(web, run), timeout=480)["advice"]["size"]
        if size:
            break
    assert size in sweep["pool_sizes"]
    panel.is_refused(web.ask("POST", f"/api/v1/lab/runs/{run}/apply", {"pool": "dne"}), 404, "not_found")
    panel.is_refused(web.ask("POST", f"/api/v1/lab/runs/{run}/apply", {"pool": "app"}), 403, "forbidden")
    assert web.ask("POST", f"/api/v1/lab/runs/{run}/apply", {"pool": "test-pool"})[0] == 204
    assert web.get("/api/v1/pools/test-pool")["pool"]["size"] == size


def test_what_other_users_make_in_the_temporary_directory_is_not_served(weir, pg):
    pooler, web = with_lab(weir, pg)
    foreseen = Path(f"/tmp/weir-lab-{pooler.process.pid}")
    foreseen.mkdir()
    foreseen.chmod(0o777)
    try:
        status, body, _ = web.ask("POST", "/api/v1/lab/runs", SWEEP)
        assert status == 201, body
        run = body["run"]["id"]
        place = Path(body["run"]["directory"])
        assert place.parent != foreseen and not list(foreseen.iterdir())
        for directory in (place, place.parent):
            assert directory.stat().st_mode & 0o777 == 0o700 and directory.owner() == host.USER_NAME
        found = host.eventually(lambda: ended(web, run), timeout=480)
        assert found["report"], found
        page = web.ask("GET", f"/api/v1/lab/runs/{run}/report")[1]
        # Whoever could rename the directory would change nothing: it is read by its handle, and no link is followed.
        place.rename(place.parent / "moved")
        place.mkdir()
        (place / "index.html").write_text("<h1>of another user</h1>")
        assert web.ask("GET", f"/api/v1/lab/runs/{run}/report")[1] == page
        (place.parent / "moved/index.html").unlink()
        (place.parent / "moved/index.html").symlink_to("/etc/passwd")
        assert web.ask("GET", f"/api/v1/lab/runs/{run}/report")[0] == 404
    finally:
        shutil.rmtree(foreseen)


def test_a_run_is_interrupted(weir, pg):
    _, web = with_lab(weir, pg)
    status, body, _ = web.ask("POST", "/api/v1/lab/runs", {**SWEEP, "seconds": 60, "quick": False})
    assert status == 201, body
    run = body["run"]["id"]
    assert web.ask("DELETE", f"/api/v1/lab/runs/{run}")[0] == 204
    assert host.eventually(lambda: ended(web, run), timeout=480)["state"] == "interrupted"
    assert web.ask("DELETE", f"/api/v1/lab/runs/{run}")[0] == 204


def test_the_events_of_a_run_end_with_the_right_to_read_them(weir, pg):
    pooler, web = with_lab(weir, pg)
    (admin, run_by), (line, token) = key(pooler, "token", "admin", "read,admin"), key(pooler, "token", "reader", "read")
    keys = pooler.directory / "panel.auth"
    keys.write_text(admin + line)
    host.hand_over(keys)
    pooler.reload(http_auth_file=keys)
    host.eventually(lambda: web.ask("GET", "/api/v1/session", token=token)[0] == 200)
    status, body, _ = web.ask("POST", "/api/v1/lab/runs", {**WISH, "seconds": 60, "quick": False}, token=run_by)
    assert status == 201, body
    run = f"/api/v1/lab/runs/{body['run']['id']}"
    stream = follow(web, f"{run}/events", Authorization=f"Bearer {token}")
    assert stream[1].readline(), web.get(run, token=run_by)["run"]
    keys.write_text(admin)
    pooler.reload()
    rest(stream)
    assert web.get(run, token=run_by)["run"]["state"] == "running"
    assert web.ask("DELETE", run, token=run_by)[0] == 204


def test_the_lab_ends_with_the_process(weir, pg):
    pooler, web = with_lab(weir, pg)
    run = web.ask("POST", "/api/v1/lab/runs", {**WISH, "seconds": 60})[1]["run"]
    children = host.eventually(lambda: host.children(pooler.process.pid))
    pooler.stop()
    host.eventually(lambda: not any(host.lives(child) for child in children), timeout=60)
    assert run["id"]


def processes_below(pid):
    """All descendants of a process."""
    children = host.children(pid)
    return children + [below for child in children for below in processes_below(child)]


def test_the_lab_ends_when_the_process_is_killed(weir, pg):
    pooler, web = with_lab(weir, pg)
    run = web.ask("POST", "/api/v1/lab/runs", {**WISH, "seconds": 120, "quick": False})[1]["run"]["id"]
    stream = follow(web, f"/api/v1/lab/runs/{run}/events", Authorization=f"Bearer {web.token}")
    while '"event":"run"' not in (line := stream[1].readline().decode()):
        assert line, "the run ended"
    stream[0].close()
    below = processes_below(pooler.process.pid)
    assert below
    pooler.process.kill()
    pooler.process.wait()
    host.eventually(lambda: not any(host.lives(process) for process in below), timeout=60)


def test_the_lab_runs_after_the_program_was_replaced(weir, pg):
    pooler = weir.prepared()
    program = pooler.directory / "weir-copy"
    shutil.copy(pooler.program, program)
    shutil.copy(BENCH, pooler.directory)
    host.hand_over(program)
    host.hand_over(pooler.directory / BENCH.name)
    pooler.program = program
    pooler.environment["WEIR_PG_BIN"] = str(pg.bindir)
    pooler.write_ini(http_port=host.free_port())
    pooler.start()
    web = panel.Panel(pooler, int(pooler.settings["http_port"])).wait_up()
    program.unlink()
    program.write_text("of another version")
    status, body, _ = web.ask("POST", "/api/v1/lab/runs", WISH)
    assert status == 201, body
    run = body["run"]["id"]
    found = host.eventually(lambda: ended(web, run), timeout=480)
    assert found["state"] == "done", found


def without_lab(weir):
    """A panel whose program stands alone in a directory, and weir-bench nowhere."""
    pooler = weir.prepared()
    alone = host.hand_over(host.new_directory(pooler.directory, "alone"))
    pooler.program = host.hand_over(Path(shutil.copy(pooler.program, alone)))
    pooler.environment["PATH"] = "/nonexistent"
    pooler.write_ini(http_port=host.free_port())
    pooler.start()
    return alone, panel.Panel(pooler, int(pooler.settings["http_port"])).wait_up()


def test_a_lab_that_is_not_installed_is_said(weir):
    """The panel says what to install; as soon as it is there, runs begin."""
    alone, web = without_lab(weir)
    missing = web.get("/api/v1/lab/runs")["missing"]
    assert missing.startswith("weir-bench is not installed") and str(alone) in missing, missing
    panel.is_refused(web.ask("POST", "/api/v1/lab/runs", WISH), 501, "lab_not_installed", "Install the program weir-bench")
    assert web.get("/api/v1/lab/runs") == {"runs": [], "missing": missing}
    bench = alone / BENCH.name
    bench.write_text("#!/bin/sh\nexit 1\n")
    host.hand_over(bench)
    assert web.get("/api/v1/lab/runs")["missing"] == missing, "it cannot be executed"
    bench.chmod(0o755)
    assert web.get("/api/v1/lab/runs")["missing"] is None
    assert web.ask("POST", "/api/v1/lab/runs", WISH)[0] == 201


def test_the_page_says_what_to_install(weir, scratch):
    _, web = without_lab(weir)
    browser.play("no_lab", web, scratch, token=web.token)


def test_the_lab_is_for_admins_and_may_be_closed(weir):
    pooler, web = panel.start(weir, http_lab=0)
    panel.is_refused(web.ask("POST", "/api/v1/lab/runs", WISH), 403, "forbidden", "http_lab is 0")
    line, token = key(pooler, "token", "reader", "read,operate")
    path = pooler.directory / "panel.auth"
    path.write_text(line)
    host.hand_over(path)
    pooler.reload(http_auth_file=path, http_lab=1)
    host.eventually(lambda: web.ask("GET", "/api/v1/lab/runs", token=token)[0] == 200)
    panel.is_refused(web.ask("POST", "/api/v1/lab/runs", WISH, token=token), 403, "forbidden", "scope admin is needed")
    assert web.get("/api/v1/lab/runs", token=token) == {"runs": [], "missing": None}


def test_only_the_labs_own_workloads_run_within_bounds(weir):
    _, web = panel.start(weir)
    for change, field in (
        ({"kind": "replay"}, "kind"),
        ({"workload": "--script=/etc/passwd"}, "workload"),
        ({"clients": [0]}, "clients"),
        ({"pool_sizes": [1, 2]}, "pool_sizes"),
        ({"seconds": 100000}, "seconds"),
        ({"target": {"pool": "app"}}, "target"),
    ):
        assert panel.is_refused(web.ask("POST", "/api/v1/lab/runs", {**WISH, **change}), 422, "unprocessable_entity")["field"] == field
    assert web.ask("POST", "/api/v1/lab/runs", {**WISH, "script": "drop table x"})[0] == 422
    panel.is_refused(web.ask("POST", "/api/v1/lab/runs", {**WISH, "target": {"pool": "none"}}), 404, "not_found")
    assert web.ask("GET", "/api/v1/lab/runs/none")[0] == 404
    assert web.get("/api/v1/lab/runs") == {"runs": [], "missing": None}
