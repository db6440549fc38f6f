"""`pool_size = auto`: a pool that sizes itself, on a real PostgreSQL. Nothing here depends on how fast the machine is."""

import contextlib
import threading

import psycopg
import pytest

import host
import panel
from test_takeover import reboot

pytestmark = pytest.mark.weir_only

SLEEP = "select pg_sleep(0.05)"


def size_of(pooler, database="app"):
    rows = [row for row in pooler.console("SHOW POOL_SIZES") if row["database"] == database]
    return rows[0] if rows else {"found": 0, "size": 0, "open": 0, "state": None, "hold": None, "mode": None, "changes": 0}


@contextlib.contextmanager
def crowd(pooler, clients, statement=SLEEP):
    """Clients that ask one after the other until it ends; their errors."""
    ends, errors = threading.Event(), []

    def ask():
        try:
            with contextlib.closing(pooler.connect()) as client:
                while not ends.is_set():
                    client.execute(statement)
        except psycopg.Error as error:
            errors.append(str(error))

    threads = [threading.Thread(target=ask) for _ in range(clients)]
    for thread in threads:
        thread.start()
    try:
        yield errors
    finally:
        ends.set()
        for thread in threads:
            thread.join(60)


def change(pooler, entry):
    pooler.databases["app"] = entry
    pooler.reload()


@pytest.fixture
def auto(weir):
    """A pool between two bounds."""

    def start(entry="auto_pool_size_min=2 auto_pool_size_max=12", **settings):
        return weir(databases={"app": f"user=alice pool_size=auto {entry}"}, **settings)

    return start


def test_statements_that_sleep_get_as_many_servers_as_are_allowed(auto):
    pooler = auto()
    with crowd(pooler, 40) as errors:
        host.eventually(lambda: size_of(pooler)["found"] >= 8, timeout=90)
        row = size_of(pooler)
        assert row["mode"] == "auto" and (row["min"], row["max"]) == (2, 12)
        assert row["size"] <= 12 and row["open"] <= 12
        assert "transactions/s instead of" in row["change"] and row["changes"] >= 2
        pooler.wait_log(r"pool app/alice: pool_size \d+ -> \d+: \d+ transactions/s instead of")
    assert not errors


def test_without_demand_the_size_stays_the_least(auto):
    pooler = auto()
    with contextlib.closing(pooler.connect()) as client:
        client.execute("select 1")
        host.eventually(lambda: size_of(pooler)["hold"] == "no client waits and not all servers are busy", timeout=60)
    assert (size_of(pooler)["found"], size_of(pooler)["state"]) == (2, "holds")


def test_no_more_servers_than_the_largest_size_are_ever_open(auto):
    pooler = auto("auto_pool_size_min=1 auto_pool_size_max=3")
    seen = []
    with crowd(pooler, 30) as errors:
        host.eventually(lambda: seen.append(size_of(pooler)["open"]) or size_of(pooler)["found"] == 3, timeout=90)
        seen += [size_of(pooler)["open"] for _ in range(20)]
    assert not errors and max(seen) <= 3


def test_reload_changes_between_fixed_and_auto_and_surplus_servers_are_closed_while_clients_wait(auto):
    pooler = auto("auto_pool_size_min=8 auto_pool_size_max=10")
    with crowd(pooler, 40) as errors:
        host.eventually(lambda: size_of(pooler)["open"] >= 8, timeout=60)
        entry = "user=alice pool_size=auto auto_pool_size_min=1 auto_pool_size_max=2"
        change(pooler, entry)
        host.eventually(lambda: size_of(pooler)["open"] <= 2, timeout=60)
        change(pooler, "user=alice pool_size=5")
        host.eventually(lambda: size_of(pooler)["mode"] == "fixed" and size_of(pooler)["open"] == 5, timeout=60)
        change(pooler, entry)
        host.eventually(lambda: size_of(pooler)["mode"] == "auto" and size_of(pooler)["open"] <= 2, timeout=60)
    assert not errors, "surplus servers are closed between transactions"


def test_a_pause_holds_the_size(auto):
    pooler = auto()
    with crowd(pooler, 20) as errors:
        host.eventually(lambda: size_of(pooler)["found"] > 2, timeout=60)
        pooler.console("PAUSE app")
        host.eventually(lambda: size_of(pooler)["hold"] == "paused", timeout=30)
        found = size_of(pooler)["found"]
        assert size_of(pooler)["size"] == found
        pooler.console("RESUME app")
        host.eventually(lambda: size_of(pooler)["state"] == "seeks", timeout=30)
    assert not errors


def test_a_takeover_keeps_the_size_that_was_found(auto):
    pooler = auto("auto_pool_size_min=1 auto_pool_size_max=6")
    with crowd(pooler, 30) as errors:
        host.eventually(lambda: size_of(pooler)["found"] == 6, timeout=90)
        reboot(pooler)
        host.eventually(lambda: size_of(pooler)["mode"] == "auto", timeout=60)
        assert size_of(pooler)["found"] >= 4, "the search went on from there, not from 1"
    assert not errors


def test_the_size_is_a_metric(weir):
    pooler, web = panel.start(weir, databases={"app": "user=alice pool_size=auto auto_pool_size_min=3 auto_pool_size_max=4"})
    with contextlib.closing(pooler.connect()) as client:
        client.execute("select 1")
        host.eventually(lambda: size_of(pooler)["mode"] == "auto")
        _, text, _ = web.ask("GET", "/metrics")
    label = 'database="app",user="alice",host=""'
    for name, value in {"target": 3, "found": 3, "min": 3, "max": 4}.items():
        assert f"weir_pool_size_{name}{{{label}}} {value}" in text, name


def test_a_pool_without_an_entry_of_its_own_follows_default_pool_size(weir):
    pooler = weir(default_pool_size="auto", auto_pool_size_min=1, auto_pool_size_max=7)
    with contextlib.closing(pooler.connect()) as client:
        client.execute("select 1")
        host.eventually(lambda: size_of(pooler)["mode"] == "auto")
        assert (size_of(pooler)["min"], size_of(pooler)["max"]) == (1, 7)
        assert [row["pool_size"] for row in pooler.console("SHOW DATABASES") if row["name"] == "app"] == [7]


@pytest.mark.parametrize("entry", ["auto_pool_size_min=9 auto_pool_size_max=3", "auto_pool_size_min=0"])
def test_bounds_that_allow_no_size_change_nothing(auto, entry):
    pooler = auto()
    with contextlib.closing(pooler.connect()) as client:
        client.execute("select 1")
        with pytest.raises(psycopg.Error):
            change(pooler, f"user=alice pool_size=auto {entry}")
        host.eventually(lambda: size_of(pooler).get("max") == 12)
