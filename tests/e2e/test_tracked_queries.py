"""SHOW QUERIES (track_queries): what each kind of query took. Weir's own."""

import psycopg
import pytest

import host
import wire

pytestmark = pytest.mark.weir_only


def queries(pooler, database="app"):
    """The rows of one database by their text."""
    return {row["query"]: row for row in pooler.console("SHOW QUERIES") if row["database"] == database}


@pytest.mark.parametrize("mode", ["transaction", "session"])
def test_every_way_to_ask_is_counted_by_fingerprint(weir, mode):
    """Simple, extended, by name and in a pipeline: the same text without its values is the same query."""
    pooler = weir(track_queries=1, pool_mode=mode)
    with psycopg.connect(pooler.uri(), autocommit=True, prepare_threshold=0) as client:
        for number in range(4):
            client.execute("select %s::int + 1 /* by name */", (number,))
    with psycopg.connect(pooler.uri(), autocommit=True, prepare_threshold=None) as client:
        for number in range(3):
            client.execute("SELECT %s::int +  1", (number,))
        with client.pipeline():
            for number in range(5):
                client.execute("select %s::int * 2", (number,))
    with wire.Raw(pooler.port).login() as client:
        client.simple("select 7::int + 1 -- simple")
        for _ in range(2):
            client.ask(wire.query("select 1/0"))
    found = host.eventually(lambda: (rows := queries(pooler)) and rows.get("select ? / ?", {}).get("calls") == 2 and rows)
    row = found["select ?::int + ?"]
    assert (row["calls"], row["errors"]) == (8, 0)
    assert row["mean_us"] == row["total_us"] // 8 and row["p95_us"] > 0
    assert found["select ?::int * ?"]["calls"] == 5
    assert found["select ? / ?"]["errors"] == 2
    assert len({row["fingerprint"] for row in found.values()}) == len(found)


def test_time_is_counted_with_the_query_that_took_it(weir):
    pooler = weir(track_queries=1)
    with wire.Raw(pooler.port).login() as client:
        for statement in ("begin", "select pg_sleep(4)", "select 1", "commit"):
            client.simple(statement)
    found = host.eventually(lambda: (rows := queries(pooler)) and "commit" in rows and rows)
    assert found["select pg_sleep(?)"]["total_us"] >= 4_000_000
    assert next(iter(found)) == "select pg_sleep(?)", "the most expensive comes first"
    assert found["select ?"]["total_us"] < found["select pg_sleep(?)"]["total_us"]


def test_values_are_nowhere_to_be_seen(weir):
    pooler = weir(track_queries=1)
    with wire.Raw(pooler.port).login() as client:
        for statement in ("select 'secret-1'", "select E'a\\'secret-2'", "select $x$secret-3$x$ /* secret-4 */", "select 5 -- secret-5"):
            client.simple(statement)
    assert host.eventually(lambda: queries(pooler).get("select ?", {}).get("calls") == 4)
    assert not any("secret" in text for text in queries(pooler))


def test_no_more_kinds_than_there_is_room_for(weir):
    pooler = weir(track_queries=1, threads=1)
    with wire.Raw(pooler.port).login() as client:
        for number in range(1_100):
            client.simple(f"select 1 as a{number}")
    found = host.eventually(lambda: (rows := queries(pooler)) and "select ? as a1099" in rows and rows)
    assert len(found) == 1_000 and "select ? as a0" not in found


def test_off_is_off(weir):
    pooler = weir()
    pooler.value("select 1")
    assert pooler.console("SHOW QUERIES") == []


def test_the_setting_can_change_while_clients_work(weir):
    pooler = weir()
    client = pooler.connect(prepare_threshold=0)
    client.execute("select 10 as before_it_was_on")
    pooler.console("SET track_queries = 1")
    client.execute("select 11 as before_it_was_on")
    client.execute("select 12 as afterwards")
    found = host.eventually(lambda: (rows := queries(pooler)) and "select ? as afterwards" in rows and rows)
    assert found["select ? as before_it_was_on"]["calls"] == 1, "known although it was prepared before"
    pooler.console("SET track_queries = 0")
    client.execute("select 13 as afterwards")
    assert queries(pooler) == {}
