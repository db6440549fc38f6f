"""The control panel in a real browser, before the real pooler and the real PostgreSQL: what people do, by mouse and by keyboard."""

import contextlib
from concurrent.futures import ThreadPoolExecutor

import browser
import host
import panel
import psycopg
import pytest
import wire
from weir import USERLIST

# One leg is enough: what a browser sees is not the I/O driver's.
pytestmark = [pytest.mark.weir_only, pytest.mark.parametrize("io_driver", ["epoll"])]

USER, PASSWORD = "root", "a long way round"
POOL = {"db": "app", "user": "alice", "mode": "transaction", "size": 2}


def open_with_password(weir):
    """A panel into which one gets by name and password."""
    prepared = weir.prepared()
    made = host.run([prepared.program, "panel", "password", USER, "--scopes", "read,operate,admin"], input=f"{PASSWORD}\n{PASSWORD}\n").stdout
    keys = prepared.directory / "panel.txt"
    keys.write_text(made)
    host.hand_over(keys)
    port = host.free_port()
    prepared.write_ini(http_port=port, http_auth_file=keys)
    return prepared.start(), panel.Panel(prepared, port).wait_up()


def open_with_pools(weir, pools_file="pools.ini", environment=None, **settings):
    """A panel that may make pools, in this file of the pooler's directory."""
    prepared = weir.prepared(**settings)
    prepared.environment.update(environment or {})
    file = prepared.directory / pools_file
    if not file.parent.exists():
        file.parent.mkdir()
        host.hand_over(file.parent)
    port = host.free_port()
    prepared.write_ini(http_port=port, pools_file=file)
    return prepared.start(), panel.Panel(prepared, port).wait_up(), file


@pytest.mark.parametrize("journey", ["everybody", "keyboard"])
def test_all_that_is_there_can_be_seen_and_used_by_all(weir, scratch, journey):
    _, web = panel.start(weir)
    browser.play(journey, web, scratch, token=web.token)


@pytest.mark.parametrize("journey", ["tutorial", "refusals", "pool_by_keys"])
def test_a_pool_from_its_making_to_its_end(weir, scratch, journey):
    _, web, _ = open_with_pools(weir)
    browser.play(journey, web, scratch, token=web.token, password="")


@pytest.mark.parametrize("look", ["light", "dark", "phone"])
def test_all_that_opens_is_for_all(weir, scratch, look):
    pooler, web, _ = open_with_pools(weir, track_queries=1)
    held = []

    def work():
        pooler.connect("shown", application_name="free").execute("select 1")
        held.append(pooler.connect("shown", application_name="pinned", autocommit=False))
        held[0].execute("select 2")

    browser.play("dialogs", web, scratch, {"work": work}, token=web.token, look=look)


def test_what_stands_in_the_way_of_a_change(weir, scratch):
    pooler, web, file = open_with_pools(weir, "pools/pools.ini")
    pooler.value("select 1")
    kept = {}

    def break_it():
        kept["text"] = file.read_text() if file.exists() else None
        file.write_text("half a li\n")
        host.hand_over(file)

    def mend():
        file.unlink() if kept["text"] is None else file.write_text(kept["text"])

    def nothing_is_left():
        assert "first" not in file.read_text() and "second" not in file.read_text()
        assert [pool["name"] for pool in web.get("/api/v1/pools")["pools"]] == ["app", "other"]

    def delete():
        assert web.ask("DELETE", "/api/v1/pools/first")[0] == 204

    deeds = {
        "break the file": break_it,
        "mend the file": mend,
        "close the directory": lambda: file.parent.chmod(0o555),
        "open the directory": lambda: file.parent.chmod(0o755),
        "delete first": delete,
        "nothing is left": nothing_is_left,
    }
    browser.play("broken", web, scratch, deeds, token=web.token)


def test_what_clients_call_themselves_is_text(weir, scratch):
    pooler, web = panel.start(weir)
    name = "<img src=x onerror=alert(1)>"
    deeds = {f"connect as {name}": lambda: pooler.connect(application_name=name)}
    browser.play("hostile", web, scratch, deeds, token=web.token)


def test_who_keeps_a_server_is_found(weir, scratch):
    pooler, web = panel.start(weir, default_pool_size=4)
    clients = {}

    def begin():
        clients["free"] = pooler.connect(application_name="free")
        clients["held"] = pooler.connect(application_name="held", autocommit=False)
        for client in clients.values():
            client.execute("select 1")

    browser.play("pinned", web, scratch, {"begin": begin, "commit": lambda: clients["held"].commit()}, token=web.token)


def test_what_is_proposed_and_what_is_down(weir, scratch):
    closed = host.free_port()
    pooler, web, _ = open_with_pools(weir, databases={"away": f"port={closed} user=alice", "app": "", "other": ""}, query_wait_timeout=2)
    with pytest.raises(psycopg.OperationalError):
        pooler.connect("away")
    host.eventually(lambda: "server_error" in web.get("/api/v1/pools/away")["pool"])
    browser.play("choices", web, scratch, token=web.token, down=closed)


def test_a_chart_keeps_its_crosshair_while_it_grows(weir, scratch):
    pooler, web = panel.start(weir)
    pooler.value("select 1")
    browser.play("chart", web, scratch, token=web.token)


def test_charts_and_times_say_what_they_mean(weir, scratch):
    pooler, web = panel.start(weir, default_pool_size=7)
    browser.play("looks", web, scratch, {"connect": lambda: pooler.connect(application_name="seen").execute("select 1")}, token=web.token)


def test_queries_are_found_explained_reset_and_cancelled(weir, pg, scratch):
    pooler, web = panel.start(weir, track_queries=1)
    clients = {}

    def work():
        clients["first"] = pooler.connect(application_name="first of all")
        for number in range(3):
            clients["first"].execute(f"select {number} as needle")
        clients["first"].execute("select 1 as hay")

    def sleep():
        clients["sleeper"] = pooler.connect(application_name="sleeper")
        clients["outcome"] = workers.submit(clients["sleeper"].execute, "select pg_sleep(60)")

    def was_cancelled():
        with pytest.raises(psycopg.errors.QueryCanceled):
            clients["outcome"].result(20)
        assert clients["sleeper"].execute("select 1").fetchone() == (1,)

    deeds = {"work": work, "sleep": sleep, "was cancelled and is still connected": was_cancelled}
    with ThreadPoolExecutor(1) as workers:
        browser.play("queries", web, scratch, deeds, token=web.token, version=int(pg.value("show server_version_num")) // 10_000)


def test_errors_from_before_are_seen(weir, scratch):
    pooler, web = panel.start(weir)
    client = pooler.connect()
    # So that the sample before has none, whatever second this is.
    host.eventually(lambda: any(number is not None for number in web.get("/api/v1/history?database=app")["series"]["errors_rate"]))
    for _ in range(3):
        with pytest.raises(psycopg.errors.DivisionByZero):
            client.execute("select 1/0")
    rates = host.eventually(lambda: web.get("/api/v1/history?database=app&seconds=60")["series"].get("errors.22012"))
    assert sum(rate or 0 for rate in rates) > 0
    browser.play("errors", web, scratch, token=web.token)


def test_only_the_password_is_masked(weir, scratch):
    users = {**USERLIST, "app": "app"}
    _, web = panel.start(weir, auth_type="scram-sha-256", userlist=users, databases={"app": "user=app password=app"})
    browser.play("masked", web, scratch, token=web.token)


def test_two_people_at_once(weir, scratch):
    pooler, web, _ = open_with_pools(weir)
    browser.play("two", web, scratch, {"connect": lambda: pooler.connect(user="bob")}, token=web.token)


def test_wrong_passwords(weir, scratch):
    _, web = open_with_password(weir)
    browser.play("passwords", web, scratch, user=USER, password=PASSWORD)


def test_users_and_tokens_from_their_making_to_their_end(weir, scratch):
    pooler, web = open_with_password(weir)

    def named():
        host.eventually(lambda: "panel: ci@127.0.0.1" in pooler.log_text())
        assert "POST /api/v1/login 200" in next(line for line in pooler.log_text().splitlines() if "panel: ci@" in line)

    browser.play("users", web, scratch, {"the trail names the token": named}, user=USER, password=PASSWORD)


def test_an_alert_is_seen_and_seen_to_be_over(weir, scratch):
    # Longer than the first server connection takes on a busy machine, whose client would fire an alert before the page is opened.
    pooler, web = panel.start(weir, databases={"app": "pool_size=1"}, alert_wait=8)
    clients = {}

    def wait():
        clients["holder"], clients["waiter"] = pooler.connect(autocommit=False), wire.Raw(pooler.port).login()
        clients["holder"].execute("select 1")
        clients["waiter"].send(wire.query("select 1"))

    browser.play("alerts", web, scratch, {"let a client wait": wait, "serve it": lambda: clients["holder"].commit()}, token=web.token)


def test_settings_are_sorted(weir, scratch):
    _, web = panel.start(weir)
    browser.play("settings", web, scratch, token=web.token)


def test_a_session_that_ends(weir, scratch):
    pooler, web = open_with_password(weir)
    keys = pooler.directory / "panel.txt"
    line = keys.read_text()

    def put(text):
        keys.write_text(text)
        pooler.console("RELOAD")

    other = line.replace(f"user {USER} ", "user somebody ")
    deeds = {"take the key away": lambda: put(other), "give it back": lambda: put(line)}
    browser.play("ended", web, scratch, deeds, user=USER, password=PASSWORD)


def test_a_restart(weir, scratch):
    pooler, web = open_with_password(weir)
    deeds = {"stop": pooler.stop, "start": lambda: (pooler.start(), web.wait_up())}
    browser.play("restart", web, scratch, deeds, user=USER, password=PASSWORD)


@contextlib.contextmanager
def database(pg, name):
    """A database of alice's own, for as long as it is needed."""
    pg.query(f"create database {name} owner alice")
    try:
        yield
    finally:
        pg.query(f"drop database {name} with (force)")


def test_the_lab_measures_and_its_advice_is_taken(weir, pg, scratch):
    with database(pg, "measured"):
        pooler, web, _ = open_with_pools(weir, environment={"WEIR_PG_BIN": str(pg.bindir)}, databases={"measured": ""})
        assert web.ask("POST", "/api/v1/pools", {**POOL, "name": "lab-pool", "db": "measured", "size": 13})[0] == 201
        # Whatever size is advised: the pool has it, in the file and in the pooler.
        sizes = {f"has {size}": lambda size=size: has(size) for size in (1, 2, 4, 8, 13)}

        def has(size):
            assert web.get("/api/v1/pools/lab-pool")["pool"]["size"] == size
            assert {row["name"]: row["pool_size"] for row in pooler.console("SHOW DATABASES")}["lab-pool"] == size

        browser.play("lab", web, scratch, sizes, token=web.token)
