"""SHOW WAITS, CLIENT_WAITS and `log_slow_queries`: what clients wait for, on a real PostgreSQL. Weir's own."""

import re
import threading
import time

import pytest

import host
import panel
import wire

pytestmark = pytest.mark.weir_only

SLOW = r"slow query: ([\d.]+) ms \((.*?)\): (.*)"


def waits(pooler):
    """The pool's rows by kind: (count, microseconds)."""
    rows = pooler.console("SHOW WAITS")
    return {row["wait"]: (row["count"], row["time_us"]) for row in rows if row["database"] == "app"}


def held(pooler, seconds):
    """The pool's only server has a query for so long; the thread ends with it."""
    client = pooler.connect()
    thread = threading.Thread(target=client.execute, args=(f"select pg_sleep({seconds})",))
    thread.start()
    host.eventually(lambda: pooler.pool()["sv_active"] == 1)
    return thread


def parts(text):
    return {name: float(ms) for name, ms in (part.rsplit(" ", 1) for part in text.split(", "))}


def test_who_waits_for_others_is_told_so_everywhere(weir):
    pooler = weir(databases={"app": "pool_size=1"}, log_slow_queries=0.3)
    late = pooler.connect(application_name="late")
    thread = held(pooler, 3)
    assert late.execute("select 'value' || 1").fetchone() == ("value1",)
    thread.join(30)
    count, all_us = waits(pooler)["queue"]
    assert count >= 1 and all_us > 100_000
    assert waits(pooler)["login"][0] >= 2 and waits(pooler)["server"][1] >= 3_000_000
    first = pooler.console("SHOW CLIENT_WAITS")[0]
    us = first["queue_us"]
    assert (first["application_name"], first["wait_us"]) == ("late", 0) and all_us >= us > 100_000 and first["login_us"] > 0
    kinds = {row["query"]: row for row in pooler.console("SHOW QUERIES")}
    assert kinds["select ? || ?"]["queue_us"] == us > kinds["select pg_sleep(?)"]["queue_us"]
    logged = {kind: (float(total), parts(of)) for total, of, kind in pooler.wait_log(SLOW, 2)}
    assert logged["select pg_sleep(?)"][1]["server"] >= 3000 and logged["select pg_sleep(?)"][0] >= 3000
    total, of = logged["select ? || ?"]
    assert of["queue"] > 100 and of.keys() <= {"server", "queue", "settings"} and abs(total - sum(of.values())) < 0.4
    assert "value" not in re.search("slow query.*queue.*", pooler.log_text())[0]


def test_one_that_waits_now_comes_first(weir):
    pooler = weir(databases={"app": "pool_size=1"}, track_queries=1)
    late = pooler.connect(application_name="late")
    thread = held(pooler, 10)
    other = threading.Thread(target=late.execute, args=("select 1",))
    other.start()
    first = host.eventually(lambda: (row := pooler.console("SHOW CLIENT_WAITS")[0])["wait_us"] >= 300_000 and row)
    assert (first["application_name"], first["state"]) == ("late", "waiting")
    thread.join(30)
    other.join(30)


def test_a_new_connection_and_a_client_in_its_transaction_have_rows_of_their_own(weir):
    pooler = weir(databases={"app": "pool_size=1 connect_query='select pg_sleep(0.3)'"})
    with pooler.connect(autocommit=False) as client:
        pooler.console("RECONNECT app")
        host.eventually(lambda: pooler.pool()["sv_idle"] == 0)
        client.execute("select 1")
        time.sleep(4)
        client.execute("select 2")
    found = waits(pooler)
    assert found["connect"][0] == 1 and found["connect"][1] >= 300_000
    assert found["client"][1] >= 4_000_000 > found["server"][1]
    assert found["reader"][1] < 100_000


def test_a_client_that_does_not_read_is_not_the_servers_fault(weir):
    pooler = weir(databases={"app": "pool_size=1"}, log_slow_queries=0.3)
    with wire.Raw(pooler.port) as raw:
        raw.login()
        raw.send(wire.query("select repeat('x', 1000) from generate_series(1, 40000)"))
        time.sleep(9)
        assert waits(pooler)["reader"][1] < 400_000, "the last of them has not ended"
        raw.read_until("Z")
    count, us = waits(pooler)["reader"]
    assert count >= 1 and us >= 4_000_000
    [(total, of, kind)] = pooler.wait_log(SLOW)
    assert parts(of)["reader"] >= 4000 and parts(of)["reader"] > parts(of)["server"] and kind.startswith("select repeat(?)"), (total, of)


def test_they_are_metrics(weir):
    pooler, web = panel.start(weir)
    pooler.value("select pg_sleep(0.1)")
    _, page, _ = web.ask("GET", "/metrics")
    label = 'database="app",user="alice",wait="server"'
    assert float(re.search(rf"weir_client_wait_time_seconds_total{{{label}}} (.*)", page)[1]) >= 0.1
    assert re.search(rf"weir_client_waits_total{{{label}}} (.*)", page)[1] == "1"
    assert 'weir_client_waits_total{database="app",user="alice",wait="reader"} 0' in page
