"""DRAIN: clients go to another process. New ones are refused as a server that is starting does it, and connected ones are ended outside of transactions where
that is wanted. In a fleet the order reaches any node from any other."""

import json
import re

import psycopg
import pytest

import etcd
import host
import panel
import wire
from running import Latch
from test_fleet import Fleet, states, weir_fleet
from test_takeover import reboot

pytestmark = pytest.mark.weir_only

REFUSED = "the pooler is draining: connect to another node"
ENDED = "terminating connection because the pooler is draining"


def is_refused(pooler, **options):
    with pytest.raises(psycopg.OperationalError, match=REFUSED):
        pooler.connect(**options)


def is_ended(client):
    """Reads what was sent without a question."""
    assert wire.errors(client.read_to_end()) == [("57P01", ENDED)]


def state(pooler):
    return {row["key"]: row["value"] for row in pooler.console("SHOW STATE")}


def test_new_clients_are_refused_and_connected_ones_stay(weir):
    pooler, web = panel.start(weir)
    client = pooler.connect()
    assert pooler.console("DRAIN") == "DRAIN"
    host.eventually(lambda: state(pooler)["draining"] == "yes")
    is_refused(pooler)
    panel.is_refused(web.ask("GET", "/readyz", token=None), 503, "service_unavailable", "the pooler is draining")
    assert web.ask("GET", "/healthz", token=None)[0] == 200
    assert client.execute("select 1").fetchone() == (1,)
    pooler.wait_log("LOG draining, new clients are refused")
    assert pooler.console("UNDRAIN") == "UNDRAIN"
    assert pooler.value("select 1") == 1
    assert web.ask("GET", "/readyz", token=None)[:2] == (200, "ready\n")
    assert state(pooler)["draining"] == "no"


def test_libpq_goes_to_the_next_host(weir, pg):
    """57P03 is what a server says that is starting: a list of hosts is gone through."""
    first, second = weir(), weir()
    both = f"host=127.0.0.1,127.0.0.1 port={first.port},{second.port} user=alice dbname=app"
    ask = lambda: host.run([pg.bindir / "psql", "-X", "-A", "-t", "-c", "select 1", both]).stdout
    assert ask() == "1\n"
    assert "login attempt: db=app user=alice" in first.log_text()
    first.console("DRAIN")
    host.eventually(lambda: state(first)["draining"] == "yes")
    assert ask() == "1\n"
    assert "login attempt: db=app user=alice" in second.log_text()


@pytest.fixture
def raw():
    """`raw(pooler)` is a client that has logged in."""
    made = []

    def log_in(pooler):
        made.append(wire.Raw(pooler.port).login())
        return made[-1]

    yield log_in
    for client in made:
        client.__exit__()


@pytest.mark.parametrize("mode", ["transaction", "session", "statement"])
def test_clients_are_ended_outside_of_transactions(weir, raw, mode):
    pooler = weir(pool_mode=mode)
    idle, fresh, busy = raw(pooler), raw(pooler), raw(pooler)
    idle.simple("select 1")
    if mode == "session":
        idle.simple("listen news")
    if mode != "statement":
        busy.simple("begin")
    pooler.console("DRAIN END_CLIENTS")
    is_ended(idle)
    is_ended(fresh)
    if mode != "statement":
        assert busy.simple("select 2") == [["2"]]
        busy.simple("commit")
    is_ended(busy)
    host.eventually(lambda: pooler.pool().get("cl_active", 0) + pooler.pool().get("cl_waiting", 0) == 0)
    assert pooler.console("SHOW VERSION"), "the console stays"


def test_a_query_that_runs_is_answered_first(weir, pg, raw):
    pooler = weir()
    client = raw(pooler)
    with Latch(pg) as latch:
        client.send(wire.query(f"{latch.QUERY}, 5"))
        latch.wait_for()
        pooler.console("DRAIN END_CLIENTS")
        latch.open()
    messages = client.read_to_end()
    assert wire.rows(messages) == [["", "5"]] and wire.errors(messages) == [("57P01", ENDED)]
    assert wire.kinds(messages).index("Z") < wire.kinds(messages).index("E")


def test_a_deferred_begin_is_a_transaction(weir, raw):
    pooler = weir(deferred_begin=1)
    client = raw(pooler)
    client.simple("begin")
    pooler.console("DRAIN END_CLIENTS")
    host.eventually(lambda: state(pooler)["draining"] == "yes")
    assert client.simple("select 2") == [["2"]]
    client.simple("commit")
    is_ended(client)


def test_half_a_frame_is_no_reason_to_stay(weir, raw):
    pooler = weir()
    client = raw(pooler)
    client.send(b"Q\0\0")
    pooler.console("DRAIN END_CLIENTS")
    is_ended(client)


def test_a_client_whose_pin_was_refused_is_ended(weir, raw):
    pooler = weir(session_state="virtual", max_pinned=1, max_pinned_action="error")
    pinned, refused = raw(pooler), raw(pooler)
    pinned.simple("create temp table kept (n int)")
    refused.simple("do $$ begin create temp table kept2 (n int); end $$")
    # It is known only from the answer to a query of Weir's own, after the client has its own answer.
    host.eventually(lambda: [int(row["refused"]) for row in pooler.console("SHOW PIN_TOTALS")] == [1])
    pooler.console("DRAIN END_CLIENTS")
    is_ended(pinned)
    assert [code for code, _ in wire.errors(refused.read_to_end())] == ["53400"]


def test_the_process_that_takes_over_drains_too(weir):
    pooler = weir()
    client = pooler.connect()
    pooler.console("DRAIN")
    reboot(pooler)
    is_refused(pooler)
    assert client.execute("select 1").fetchone() == (1,)
    pooler.console("UNDRAIN")
    assert pooler.value("select 1") == 1


def test_without_a_fleet_there_are_no_nodes(weir):
    pooler = weir()
    for command in ("DRAIN other", "UNDRAIN other"):
        with pytest.raises(psycopg.Error, match="not a node of a fleet"):
            pooler.console(command)
    done = host.run([pooler.program, "fleet", "-c", pooler.ini], check=False)
    assert done.returncode == 1 and "not a node of a fleet" in done.stderr


class LongLeases(Fleet):
    """A node that a busy machine lets wait for some seconds is none that has gone."""

    def start(self, name, **settings):
        return super().start(name, **{"fleet_lease_time": 15, **settings})


@pytest.fixture
def fleet(weir, pg, scratch):
    if not etcd.ETCD:
        pytest.skip("no etcd; scripts/prepare-tests says why")
    store = etcd.Etcd(scratch)
    yield LongLeases(weir, pg, store)
    store.close()


def test_a_node_is_drained_and_resumed_from_another_one(fleet, raw):
    a, b = fleet.start("a"), fleet.start("b")
    fleet.joined("a", "b")
    client = raw(b)
    weir_fleet(a, "drain", "b")
    assert states(a) == {"a": "up", "b": "draining"}
    is_refused(b)
    done = weir_fleet(a, "drain", "b", "--wait", "1", check=False)
    assert done.returncode == 1 and re.search(r"b is draining and has 1 clients after 1 s", done.stderr)
    weir_fleet(a, "drain", "b", "--end-clients", "--wait", "30")
    is_ended(client)
    weir_fleet(a, "resume", "b")
    assert b.value("select 1") == 1
    rows = lambda: {row["node"]: row for row in json.loads(weir_fleet(b, "--json").stdout)}  # noqa: E731
    host.eventually(lambda: (shown := rows())["b"]["state"] == "up" and shown["b"]["is_own"] == 1 and shown["a"]["clients"] == 0)
    assert re.search(r"^a +up ", weir_fleet(b).stdout, re.MULTILINE)
    # The own node, by its name; and one that is not there.
    weir_fleet(a, "drain", "a")
    is_refused(a)
    done = weir_fleet(a, "drain", "c", check=False)
    assert done.returncode == 1 and "no node of this name is up" in done.stderr
    # Orders are removed when they are carried out.
    host.eventually(lambda: not any("/drain/" in key for key in fleet.store.under("/")))


def test_waiting_for_the_last_client_is_for_its_transaction_too(fleet, raw):
    """What SHOW FLEET has of clients may be older than the last login."""
    a = fleet.start("a")
    fleet.joined("a")
    client = raw(a)
    client.simple("begin")
    done = weir_fleet(a, "drain", "a", "--end-clients", "--wait", "2", check=False)
    assert done.returncode == 1 and "a is draining and has 1 clients" in done.stderr
    client.simple("commit")
    is_ended(client)
    weir_fleet(a, "drain", "a", "--end-clients", "--wait", "30")


def test_a_word_of_the_console_is_no_node(fleet):
    a = fleet.start("a")
    fleet.joined("a")
    for name in ("end_clients", 'a"', ""):
        done = weir_fleet(a, "drain", name, check=False)
        assert done.returncode == 1 and "cannot be the name of a node" in done.stderr
    assert state(a)["draining"] == "no"


def test_a_node_that_starts_anew_does_not_drain(fleet):
    a, b = fleet.start("a"), fleet.start("b")
    fleet.joined("a", "b")
    weir_fleet(a, "drain", "b")
    b.console("SHUTDOWN WAIT_FOR_CLIENTS")
    assert b.wait_end() == 0
    b.start()
    fleet.joined("a", "b")
    assert b.value("select 1") == 1


def test_without_the_store_orders_for_others_fail_and_the_own_one_does_not(fleet):
    a, b = (fleet.start(name, fleet_lease_time=3) for name in "ab")
    fleet.joined("a", "b")
    fleet.store.stop()
    host.eventually(lambda: states(a)["a"] == "alone", timeout=40)
    with pytest.raises(psycopg.Error, match="no lease in the store"):
        a.console("DRAIN b")
    weir_fleet(a, "drain", "a", "--wait", "20")
    is_refused(a)
    weir_fleet(a, "resume", "a")
    assert a.value("select 1") == 1
