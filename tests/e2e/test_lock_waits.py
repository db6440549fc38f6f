"""`track_lock_waits`: what servers themselves wait for, sampled from pg_stat_activity of a real PostgreSQL. Weir's own."""

import contextlib
import re
import threading

import pytest

import host
import panel
from test_waits import waits

pytestmark = pytest.mark.weir_only

ASKS = "application_name = 'weir lock waits'"
# Longer than two samples are apart, and nothing to wait for.
BUSY = "do $$ declare ends timestamptz := clock_timestamp() + '2500 ms'; begin while clock_timestamp() < ends loop end loop; end $$"
BLOCKED = "update locked set n = n + 1 where id = 1"


@pytest.fixture
def watched(pg):
    """A table with a row to lock, and a role that may see what all sessions wait for."""
    pg.query("create table locked (id int primary key, n int); insert into locked values (1, 0); grant all on locked to public", "app")
    pg.query("create role watcher login in role pg_monitor; create role stranger login")
    yield pg
    pg.query("drop table locked", "app")
    pg.query("drop role watcher, stranger")


def asking(weir, **settings):
    secrets = {name: "" for name in ("alice", "bob", "carol", "admin", "watcher", "stranger")}
    return weir(userlist=secrets, **{"track_lock_waits": 1, "lock_wait_user": "watcher", "threads": 2, **settings})


@contextlib.contextmanager
def blocked(pooler, user="alice"):
    """A client waits for a row that another client's transaction has; both end with the block."""
    holder, other = pooler.connect(user="bob", autocommit=False), pooler.connect(user=user, application_name="blocked")
    holder.execute(BLOCKED)
    thread = threading.Thread(target=other.execute, args=(BLOCKED,))
    thread.start()
    try:
        yield
    finally:
        holder.commit()
        thread.join(30)


def waited_us(pooler, user, wait):
    rows = pooler.console("SHOW WAITS")
    return sum(row["time_us"] for row in rows if (row["database"], row["user"], row["wait"]) == ("app", user, wait))


def lock_us(pooler, user):
    return waited_us(pooler, user, "lock")


def asked(pg):
    return pg.count(ASKS)


@pytest.mark.every_version
def test_a_lock_counts_for_whom_it_blocks_and_for_no_other(weir, watched):
    pooler = asking(weir, log_slow_queries=0.5)
    busy = pooler.connect(user="carol", application_name="busy")
    with blocked(pooler):
        host.eventually(lambda: lock_us(pooler, "alice") >= 2_000_000)
        busy.execute(BUSY)
    assert lock_us(pooler, "bob") == lock_us(pooler, "carol") == 0
    [row] = [row for row in pooler.console("SHOW CLIENT_WAITS") if row["lock_us"]]
    assert row["application_name"] == "blocked" and row["lock_us"] == lock_us(pooler, "alice")
    kinds = {row["query"]: row for row in pooler.console("SHOW QUERIES")}
    mine = kinds["update locked set n = n + ? where id = ?"]
    assert mine["total_us"] >= mine["lock_us"] == row["lock_us"]
    assert all(kind["lock_us"] == 0 for kind in kinds.values() if kind is not mine)
    [(total, server, lock)] = pooler.wait_log(r"app/alice\S* slow query: ([\d.]+) ms \(server ([\d.]+) \[lock ([\d.]+)\][^)]*\): update locked")
    assert float(total) >= float(server) >= float(lock) >= 2000
    assert waited_us(pooler, "alice", "server") >= lock_us(pooler, "alice"), "it is part of the server's time"
    assert "GRANT" not in pooler.log_text()


def test_a_wait_for_anything_else_is_no_lock(weir, watched):
    pooler = asking(weir)
    host.eventually(lambda: asked(watched) == 1)
    pooler.value("select pg_sleep(6)")
    found = waits(pooler)
    assert found["lock"][1] == found["io"][1] == 0 and 1_000_000 <= found["other"][1] <= 8_000_000


def test_the_interval_is_that_of_the_samples(weir, watched):
    pooler = asking(weir, lock_wait_interval=3)
    host.eventually(lambda: asked(watched) == 1)
    pooler.value("select pg_sleep(10.5)")
    count, us = waits(pooler)["other"]
    assert 2 <= count <= 4 and us >= 3_000_000, "with an interval of one second there would be ten"


@pytest.mark.every_version
def test_off_asks_nothing_and_reload_begins_and_ends_it(weir, watched):
    pooler = asking(weir, track_lock_waits=0, log_slow_queries=0.5)
    mark = watched.log_mark()
    with blocked(pooler):
        pooler.value("select pg_sleep(2.2)")
        assert asked(watched) == 0
    assert lock_us(pooler, "alice") == 0 and "watcher" not in watched.log_since(mark)
    assert "lock" not in pooler.wait_log(r"app/alice\S* slow query: (.*)")[0].split(":")[0]
    pooler.reload(track_lock_waits=1)
    with blocked(pooler):
        host.eventually(lambda: lock_us(pooler, "alice") > 0)
    assert asked(watched) == 1
    pooler.reload(lock_wait_interval=2)
    assert asked(watched) == 1, "the connection stays"
    pooler.reload(track_lock_waits=0)
    host.eventually(lambda: asked(watched) == 0)


@pytest.mark.every_version
def test_who_may_not_see_it_is_told_once_what_to_grant(weir, watched):
    pooler = asking(weir, lock_wait_user="stranger")
    message = r'lock waits: 127\.0\.0\.1:\d+ does not show user "stranger" what sessions of other users wait for.*GRANT pg_monitor TO "stranger"'
    with blocked(pooler):
        pooler.wait_log(message)
        pooler.value("select pg_sleep(2.2)")
        assert lock_us(pooler, "alice") == 0
        watched.query("grant pg_monitor to stranger")
        host.eventually(lambda: lock_us(pooler, "alice") > 0)
    assert len(re.findall(message, pooler.log_text())) == 1


def test_without_a_user_the_entrys_asks_and_sees_its_own_sessions(weir, watched):
    pooler = asking(weir, lock_wait_user=None, databases={"app": "user=alice"})
    with blocked(pooler, user="carol"):
        host.eventually(lambda: lock_us(pooler, "alice") > 0)
    nobody = asking(weir, lock_wait_user=None)
    nobody.wait_log(r"lock waits: .* is not asked: no user asks; set lock_wait_user")


def test_a_server_that_is_away_is_asked_again(weir, watched):
    pooler = asking(weir)
    host.eventually(lambda: asked(watched) == 1)
    watched.query(f"select pg_terminate_backend(pid) from pg_stat_activity where {ASKS}")
    pooler.wait_log(r"lock waits: 127\.0\.0\.1:\d+ cannot be asked: .*; its waits are not counted meanwhile")
    pooler.wait_log(r"lock waits: 127\.0\.0\.1:\d+ answers again")
    with blocked(pooler):
        host.eventually(lambda: lock_us(pooler, "alice") > 0)
    pooler.reload(lock_wait_user="nologin")
    pooler.wait_log(r'lock waits: .* cannot be asked: user "nologin": .* is not permitted to log in')


def test_each_host_of_an_entry_is_asked_and_a_process_id_counts_for_its_own_host(weir, watched, servers):
    """Of the second server the samples count for connections to it alone, whatever its process ids are."""
    other = servers("18")
    if other is watched:
        pytest.skip("there is one server")
    other.ensure_running()
    other.query("create role watcher login in role pg_monitor")
    other.query("create table locked (id int primary key, n int); insert into locked values (1, 0); grant all on locked to public", "app")
    try:
        databases = {"app": "", "there": f"port={other.port} dbname=app", "both": f"host=127.0.0.1,127.0.0.1 port={watched.port},{other.port} dbname=app"}
        pooler = asking(weir, databases=databases)
        host.eventually(lambda: asked(watched) == asked(other) == 1)
        holder, client = pooler.connect("there", user="bob", autocommit=False), pooler.connect("there")
        holder.execute(BLOCKED)
        thread = threading.Thread(target=client.execute, args=(BLOCKED,))
        thread.start()
        of = lambda database: sum(row["time_us"] for row in pooler.console("SHOW WAITS") if (row["database"], row["wait"]) == (database, "lock"))
        host.eventually(lambda: of("there") > 0)
        holder.commit()
        thread.join(30)
        assert of("app") == 0
    finally:
        pooler.stop()
        other.query("drop table locked", "app")
        other.query("drop role watcher")


def test_it_is_in_metrics_and_in_the_panel(weir, watched):
    secrets = {name: "" for name in ("alice", "bob", "admin", "watcher")}
    pooler, web = panel.start(weir, userlist=secrets, track_lock_waits=1, lock_wait_user="watcher", track_queries=1)
    with blocked(pooler):
        host.eventually(lambda: lock_us(pooler, "alice") > 200_000)
    _, page, _ = web.ask("GET", "/metrics")
    label = 'database="app",user="alice",wait="lock"'
    assert float(re.search(rf"weir_client_wait_time_seconds_total{{{label}}} (.*)", page)[1]) > 0.1
    assert int(re.search(rf"weir_client_waits_total{{{label}}} (.*)", page)[1]) >= 1
    queries = web.get("/api/v1/queries?database=app")["queries"]
    found = {query["text"]: query["lock_seconds"] for query in queries}
    assert found["update locked set n = n + ? where id = ?"] > 0.1 and found["begin"] == 0
