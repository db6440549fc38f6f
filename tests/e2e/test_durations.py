"""SHOW HISTOGRAMS and SHOW ERRORS: how long things took, and what clients were told of. Weir's own."""

import psycopg
import pytest

import host
import wire

pytestmark = pytest.mark.weir_only


def histograms(pooler, database="app"):
    """The rows of one database's pools by measure, buckets as a dict from their least microsecond to their count."""
    rows = [row for row in pooler.console("SHOW HISTOGRAMS") if row["database"] == database]
    for row in rows:
        row["buckets"] = {int(from_us): int(count) for from_us, count in (word.split(":") for word in row["buckets"].split())}
    return {row["measure"]: row for row in rows}


def errors(pooler, database="app"):
    return {row["sqlstate"]: row["count"] for row in pooler.console("SHOW ERRORS") if row["database"] == database}


@pytest.mark.parametrize("threads", [1, 2])
def test_durations_are_counted_as_often_as_the_counters_say(weir, threads):
    pooler = weir(threads=threads)
    assert histograms(pooler) == {}, "a pool that was not used has none"
    with wire.Raw(pooler.port).login() as client:
        for statement in (*["select 1"] * 10, "begin", "select pg_sleep(3)", "commit"):
            client.simple(statement)
    found = host.eventually(lambda: (rows := histograms(pooler)) and rows["transaction"]["count"] == 11 and rows)
    totals = next(row for row in pooler.console("SHOW STATS_TOTALS") if row["database"] == "app")
    for measure, count, total in [
        ("wait", "server_assignment_count", "wait_time"),
        ("transaction", "xact_count", "xact_time"),
        ("query", "query_count", "query_time"),
    ]:
        row = found[measure]
        assert row["count"] == sum(row["buckets"].values()) == totals[count]
        assert row["sum_us"] == totals[total]
        assert sum(from_us * count for from_us, count in row["buckets"].items()) <= row["sum_us"]
    for measure in ("transaction", "query"):
        slow = [from_us for from_us in found[measure]["buckets"] if from_us >= 2_097_152]
        assert len(slow) == 1, "one of each held the sleep"
        assert found[measure]["p50_us"] < 2_000_000 and 3_000_000 <= found[measure]["p99_us"] * 8 // 7


def test_a_wait_is_in_the_histogram(weir):
    pooler = weir(default_pool_size=1)
    holder, waiter = pooler.connect(), wire.Raw(pooler.port).login()
    holder.execute("begin")
    waiter.send(wire.query("select 1"))
    holder.execute("select pg_sleep(0.5)")
    holder.execute("commit")
    waiter.read_until("Z")
    buckets = histograms(pooler)["wait"]["buckets"]
    assert any(from_us >= 393_216 for from_us in buckets), buckets


def test_errors_of_servers_and_of_weir_are_counted_by_code(weir):
    pooler = weir()
    with wire.Raw(pooler.port).login() as client:
        for _ in range(3):
            client.ask(wire.query("select 1/0"))
        client.ask(wire.query("select nothing"))
    assert errors(pooler) == {"22012": 3, "42703": 1}
    pooler.console("SET query_timeout = 1")
    with pytest.raises(psycopg.Error):
        pooler.value("select pg_sleep(30)")
    assert errors(pooler) == {"22012": 3, "42703": 1, "57014": 1}, "query_timeout is Weir's own"
    with pytest.raises(psycopg.Error):
        pooler.connect("not_there")
    assert errors(pooler, "") == {"3D000": 1}, "a name that somebody made up is not remembered"


def test_an_error_that_no_client_hears_of_is_not_counted(weir):
    """The query that Weir checks servers with fails: no client sees it."""
    pooler = weir(server_check_query="select 1/0", server_check_delay=0)
    for _ in range(3):
        assert pooler.value("select 1") == 1
    assert errors(pooler) == {}


def test_made_up_codes_are_counted_together_at_last(weir):
    pooler = weir()
    with wire.Raw(pooler.port).login() as client:
        for number in range(70):
            client.ask(wire.query(f"do $$ begin raise exception 'x' using errcode = 'U{number:04}'; end $$"))
    found = errors(pooler)
    assert len(found) == 65 and found["other"] == 6 and found["U0001"] == 1
