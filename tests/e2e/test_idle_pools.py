"""Unused pools, and databases added and removed by RELOAD or from `*`."""

import psycopg
import pytest

import conftest
import host
import wire


def names(pooler, view, column="database"):
    return {row[column] for row in pooler.console(f"SHOW {view}")} - {"pgbouncer"}


def counted(pooler, database="app"):
    rows = {row["database"]: row for row in pooler.console("SHOW STATS")}
    return rows.get(database, {"total_query_count": 0})["total_query_count"]


# --- pool_idle_timeout --------------------------------------------------------------------------------------------
@pytest.mark.since("1.26")
def test_a_pool_without_clients_is_dropped_with_its_servers(weir, pg):
    pooler = weir(pool_idle_timeout=1)
    assert pooler.value("select 1") == 1
    pooler.wait_log("cleaning up idle pool")
    assert names(pooler, "POOLS") == set()
    host.eventually(lambda: pg.count() == 0)
    assert len(pooler.wait_log("cleaning up idle pool")) == 1
    # What it has counted stays with the database, and the next client makes it anew.
    assert counted(pooler) == 1
    assert pooler.value("select 1") == 1
    assert counted(pooler) == 2
    pooler.wait_log("cleaning up idle pool", count=2)


@pytest.mark.since("1.26")
def test_a_pool_with_a_client_stays(weir):
    pooler = weir(pool_idle_timeout=1)
    client = pooler.connect()
    client.execute("select 1")
    pooler.value("select 1", database="other")
    pooler.wait_log("cleaning up idle pool")
    assert names(pooler, "POOLS") == {"app"}
    assert client.execute("select 1").fetchone() == (1,)


@pytest.mark.since("1.26")
def test_what_min_pool_size_keeps_is_never_idle(weir, pg):
    pooler = weir(databases={"app": "user=alice min_pool_size=2", "other": ""}, pool_idle_timeout=1)
    pooler.value("select 1")
    pooler.value("select 1", database="other")
    pooler.wait_log("cleaning up idle pool")
    assert names(pooler, "POOLS") == {"app"}
    host.eventually(lambda: pg.count("datname = 'app'") == 2)


@pytest.mark.since("1.26")
def test_pool_idle_timeout_can_be_set_later(weir):
    pooler = weir()
    pooler.value("select 1")
    pooler.console("SET pool_idle_timeout = 1")
    pooler.wait_log("cleaning up idle pool")
    assert names(pooler, "POOLS") == set()


# --- databases from `*` -------------------------------------------------------------------------------------------
def test_a_database_from_the_fallback_is_told_of_once(weir):
    pooler = weir(databases={"*": ""})
    for _ in range(3):
        assert pooler.value("select 1") == 1
    assert len(pooler.wait_log("registered new auto-database")) == 1
    assert names(pooler, "DATABASES", "name") == {"app"}


def test_an_idle_database_from_the_fallback_is_dropped(weir):
    # PgBouncer looks at intervals of its own; Weir's are short.
    pooler = weir(databases={"*": ""}, autodb_idle_timeout=1, server_idle_timeout=1)
    assert pooler.value("select 1") == 1
    pooler.wait_log("dropping database 'app' as it does not exist anymore or inactive auto-database")
    assert names(pooler, "DATABASES", "name") == set() and names(pooler, "POOLS") == set()
    assert pooler.value("select 1") == 1
    pooler.wait_log("registered new auto-database", count=2)


@pytest.mark.weir_only
def test_a_name_that_no_server_knows_is_forgotten_at_once(weir):
    pooler = weir(databases={"*": ""})
    with pytest.raises(psycopg.OperationalError, match='database "made_up" does not exist'):
        pooler.connect("made_up")
    pooler.wait_log("dropping database 'made_up'")
    assert names(pooler, "DATABASES", "name") == set() and names(pooler, "POOLS") == set()


# --- RELOAD -------------------------------------------------------------------------------------------------------
def test_a_removed_database_takes_its_pools_with_it(weir):
    pooler = weir()
    client = pooler.connect()
    client.execute("select 1")
    del pooler.databases["app"]
    pooler.reload()
    with pytest.raises(psycopg.OperationalError):
        client.execute("select 1")
    host.eventually(lambda: names(pooler, "POOLS") == set())
    assert names(pooler, "DATABASES", "name") == {"other"}
    if not conftest.PGBOUNCER:
        pooler.wait_log("dropping database 'app'")


def test_hundreds_of_databases_over_many_reloads(weir):
    """A file of 900 entries, of which a third changes each time; a client in the middle of it all never notices."""
    entries = {f"p{number}": "dbname=app" for number in range(900)}
    pooler = weir(databases={"app": "", **entries})
    client = pooler.connect()
    client.execute("begin")
    for turn in range(6):
        for number in range(900):
            if number % 3 == turn % 3:
                entries[f"p{number}"] = f"dbname=app pool_size={turn + 1}"
        kept = dict(list(entries.items())[turn * 10 :])
        pooler.databases = {"app": "", **kept}
        assert pooler.reload() == "RELOAD"
        assert client.execute("select 1").fetchone() == (1,)
        assert pooler.value("select 1", database=f"p{100 + turn}") == 1
    assert len(pooler.console("SHOW DATABASES")) >= 851
    client.execute("commit")
    with wire.Raw(pooler.port) as raw:
        raw.send(wire.startup(user="alice", database="p0"))
        assert "no such database" in wire.errors(raw.read_until("E"))[0][1] or conftest.PGBOUNCER
