"""`max_pinned`: clients that keep a server because of what their sessions hold are shown, counted and limited."""

import concurrent.futures
import re
import time

import psycopg
import pytest

import host
import panel
from test_takeover import reboot

pytestmark = pytest.mark.weir_only

TEMP = "create temp table kept (a int)"


@pytest.fixture
def virtual(weir):
    return lambda **settings: weir(**{"session_state": "virtual", "default_pool_size": 4, **settings})


def rows(pooler, view="pins"):
    return [row for row in pooler.console(f"show {view}") if row["database"] == "app"]


def totals(pooler):
    (row,) = rows(pooler, "pin_totals")
    return row


def pinned(pooler, *statements, **options):
    """A client that has run these, once Weir knows what its session holds: the client may have its answer before."""
    client = pooler.connect(**options)
    decided = lambda: (total := totals(pooler))["pins"] + total["refused"]  # noqa: E731
    before = decided()
    for statement in statements or (TEMP,):
        client.execute(statement)
    host.eventually(lambda: decided() > before)
    return client


def is_refused(connection):
    """The client got the error of the budget, and its connection is closed."""
    with pytest.raises(psycopg.OperationalError) as caught:
        connection.execute("select 1")
    assert "max_pinned (1) reached" in str(caught.value)
    return True


def test_pins_are_shown_with_reasons_and_since_when(virtual):
    pooler, web = panel.start(virtual, max_pinned=3)
    client = pinned(pooler, application_name="holder")
    client.execute("declare c cursor with hold for select 1")
    free = pooler.connect()
    free.execute("select 1")
    host.eventually(lambda: [row["reasons"] for row in rows(pooler)] == ["temporary,cursor"])
    (row,) = rows(pooler)
    assert (row["user"], row["application_name"]) == ("alice", "holder")
    assert row["server_pid"] == client.execute("select pg_backend_pid()").fetchone()[0]
    (shown,) = [other for other in pooler.console("show shard_clients") if other["id"] == row["client_id"]]
    assert shown["pinned_since"] == row["since"] and shown["port"] == row["port"]
    told = totals(pooler)
    assert (told["max_pinned"], told["max_pinned_action"], told["pinned"], told["waiting"]) == (3, "wait", 1, 0)
    assert (told["reasons"], told["pins"]) == ("cursor=1,temporary=1", 1)
    clients = web.get("/api/v1/clients?database=app")["clients"]
    since = {row["application_name"]: row["pinned_since"] for row in clients}
    assert since.pop("holder") and set(since.values()) == {None}
    pins = web.get("/api/v1/pools/app")["pool"]["pins"]
    assert pins == {"max_pinned": 3, "clients": 1, "waiting": 0, "by_reason": {"cursor": 1, "temporary": 1}}
    time.sleep(1.1)
    assert rows(pooler)[0]["seconds"] >= 1
    client.execute("close c; drop table kept")
    host.eventually(lambda: rows(pooler) == [] and totals(pooler)["pinned"] == 0)
    assert totals(pooler)["pinned_us"] >= 1_100_000


def test_metrics_of_pins(virtual):
    pooler, web = panel.start(virtual, max_pinned=1, max_pinned_action="error")
    begun = time.monotonic()
    _holder = pinned(pooler, TEMP, "select pg_advisory_lock(77)")
    assert is_refused(pinned(pooler))
    host.eventually(lambda: totals(pooler)["reasons"] == "advisory_lock=1,temporary=1")
    _, text, _ = web.ask("GET", "/metrics")
    pool = 'database="app",user="alice"'
    for line in (
        f'weir_pool_pinned_clients{{{pool},reason="temporary"}} 1',
        f'weir_pool_pinned_clients{{{pool},reason="advisory_lock"}} 1',
        f"weir_pool_max_pinned_clients{{{pool}}} 1",
        f"weir_pool_pin_waiting_clients{{{pool}}} 0",
        f"weir_pool_pins_total{{{pool}}} 1",
        f"weir_pool_pin_waits_total{{{pool}}} 0",
        f"weir_pool_pins_refused_total{{{pool}}} 1",
    ):
        assert line in text.splitlines(), (line, [found for found in text.splitlines() if "pin" in found])
    seconds = float(re.search(rf"^weir_pool_pinned_seconds_total\{{{pool}\}} (\S+)$", text, re.M)[1])
    assert 0 < seconds <= time.monotonic() - begun


def test_a_client_waits_until_another_pin_ends(virtual, pg):
    pooler = virtual(max_pinned=1)
    first, second = pinned(pooler), pooler.connect()
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(second.execute, "create temp table kept as select 5 as a")
        host.eventually(lambda: totals(pooler)["waiting"] == 1)
        assert pooler.value("select 1") == 1, "others do not wait"
        first.execute("create temp table more (a int)")
        first.execute("drop table kept, more")
        waiting.result(10)
    assert second.execute("select a from kept").fetchall() == [(5,)]
    told = totals(pooler)
    assert (told["pins"], told["waits"], told["refused"], told["waiting"]) == (2, 1, 0, 0)


def test_a_statement_that_was_prepared_before_waits_as_well(virtual, pg):
    pooler = virtual(max_pinned=1)
    second = pooler.connect()
    lock = "select pg_advisory_lock(%s)"
    second.execute(lock, [901], prepare=True)
    second.execute("select pg_advisory_unlock_all()")
    first = pinned(pooler)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(second.execute, lock, [902], prepare=True)
        host.eventually(lambda: totals(pooler)["waiting"] == 1)
        first.close()
        waiting.result(10)
    host.eventually(lambda: [row["reasons"] for row in rows(pooler)] == ["advisory_lock"])


def test_a_wait_ends_with_query_wait_timeout(virtual, pg):
    pooler = virtual(max_pinned=1, query_wait_timeout=5)
    _first, second = pinned(pooler), pooler.connect()
    with pytest.raises(psycopg.OperationalError, match="query_wait_timeout"):
        second.execute(TEMP)
    assert totals(pooler)["pinned"] == 1


def test_over_budget_is_an_error_by_setting_and_nothing_leaks(virtual, pg):
    pooler = virtual(max_pinned=1, max_pinned_action="error", default_pool_size=2)
    first, second = pinned(pooler), pooler.connect()
    second.execute(TEMP)
    assert is_refused(second)
    third = pooler.connect()
    assert third.execute("select to_regclass('pg_temp.kept')").fetchone() == (None,), "its server is closed"
    assert first.execute("select count(*) from kept").fetchone() == (0,)
    assert totals(pooler)["refused"] == 1
    # Locks that were not got, and what ends with its transaction, are no pins.
    pg_lock = first.execute("select pg_try_advisory_lock(903)").fetchone()
    assert pg_lock == (True,) and third.execute("select pg_try_advisory_lock(903)").fetchone() == (False,)
    with third.transaction():
        third.execute("create temp table gone (a int) on commit drop")
    assert third.execute("select 1").fetchone() == (1,)


def test_what_shows_only_when_it_has_run_is_an_error(virtual, pg):
    pooler = virtual(max_pinned=1)
    _first, second = pinned(pooler), pooler.connect()
    with second.transaction():
        second.execute(TEMP)
    assert is_refused(second)


@pytest.mark.parametrize("place", ["databases", "users"])
def test_a_database_or_a_user_has_its_own(virtual, pg, place):
    entry = "max_pinned=1 max_pinned_action=error"
    pooler = virtual(**{place: {"databases": {"app": entry}, "users": {"alice": entry}}[place]})
    told = [pinned(pooler), pinned(pooler)]
    assert is_refused(told[1])
    assert (totals(pooler)["max_pinned"], totals(pooler)["max_pinned_action"]) == (1, "error")


def test_reload_lowers_and_lifts_it(virtual, pg):
    pooler = virtual(max_pinned=2)
    held = [pinned(pooler), pinned(pooler)]
    pooler.console("set max_pinned = 1")
    late = pooler.connect()
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(late.execute, TEMP)
        host.eventually(lambda: totals(pooler)["waiting"] == 1)
        held.pop().close()
        time.sleep(0.7)
        assert totals(pooler)["waiting"] == 1, "one is pinned, and one may be"
        pooler.console("set max_pinned = 0")
        waiting.result(10)
    assert held[0].execute("select count(*) from kept").fetchone() == (0,)
    host.eventually(lambda: totals(pooler)["pinned"] == 2)


def test_a_budget_holds_over_all_threads(virtual, pg):
    """Clients come and go on several threads; never are more pinned than may be, and none waits for ever."""
    pooler = virtual(max_pinned=2, threads=2, spread_busy_percent=1, spread_min_servers=1, default_pool_size=8)
    most = []

    def work(number):
        with pooler.connect() as client:
            for turn in range(12):
                client.execute("create temp table kept as select %d as a" % number)
                if turn % 4 == 0:
                    most.append(totals(pooler)["pinned"])
                assert client.execute("select a from kept").fetchall() == [(number,)]
                client.execute("drop table kept")

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    assert 0 < max(most) <= 2, most
    host.eventually(lambda: totals(pooler)["pinned"] == 0)
    assert totals(pooler)["refused"] == 0


def test_a_pin_moves_with_its_client_to_the_next_process(virtual, pg):
    pooler = virtual(max_pinned=1, max_pinned_action="error")
    first = pinned(pooler)
    host.eventually(lambda: len(rows(pooler)) == 1)
    (before,) = rows(pooler)
    reboot(pooler)
    assert first.execute("select count(*) from kept").fetchone() == (0,)
    host.eventually(lambda: [row["reasons"] for row in rows(pooler)] == ["temporary"])
    (after,) = rows(pooler)
    assert after["since"] == before["since"] and after["client_id"] == before["client_id"]
    assert is_refused(pinned(pooler))
