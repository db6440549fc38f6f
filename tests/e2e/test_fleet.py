"""A fleet: several poolers before one server share its limits by way of etcd. Whatever is killed, stopped or cut off, PostgreSQL never has more connections than
a limit allows, and clients of the others go on."""

import os
import signal
import threading
import time

import psycopg
import pytest

import etcd
import fault_proxy
import host
from test_takeover import reboot

pytestmark = [
    pytest.mark.weir_only,
    pytest.mark.skipif(not etcd.ETCD, reason="no etcd; scripts/prepare-tests says why"),
]

LIMIT = 9
# Seconds without a store beyond those until every node knows; the figure of the fleet is that of 600.
OUTAGE = float(os.environ.get("WEIR_FLEET_OUTAGE", "0"))


@pytest.fixture
def store(scratch):
    made = etcd.Etcd(scratch)
    yield made
    made.close()


class Fleet:
    """Poolers of one fleet; of `app`, they have `LIMIT` connections together."""

    def __init__(self, weir, pg, store):
        self.weir, self.pg, self.store, self.nodes = weir, pg, store, {}

    def start(self, name, limit=LIMIT, fleet=None, more_databases=(), **settings):
        databases = {"app": f"host=127.0.0.1 port={self.pg.port} dbname=app max_db_connections={limit}", **dict(more_databases)}
        settings = {"fleet_nodes": 3, "fleet_lease_time": 3, "fleet_user": "alice", "pool_mode": "transaction", "default_pool_size": 50, **self.store.settings, **settings}
        node = self.weir(databases=databases, fleet=fleet or self.store.url(), fleet_node=name, threads=2, **settings)
        self.nodes[name] = node
        return node

    def joined(self, *names):
        """All of these, and no others, are up in the eyes of each of them."""
        for name in names:
            host.eventually(lambda name=name: states(self.nodes[name]) == dict.fromkeys(names, "up"), timeout=40)

    def connections(self):
        return self.pg.value("select count(*) from pg_stat_activity where datname = 'app' and backend_type = 'client backend'")


@pytest.fixture
def fleet(weir, pg, store):
    return Fleet(weir, pg, store)


def states(node):
    return {row["node"]: row["state"] for row in node.console("SHOW FLEET")}


def weir_fleet(node, *words, check=True):
    return host.run([node.program, "fleet", *words, "-c", node.ini], check=check)


def budget(node, kind="database"):
    rows = [row for row in node.console("SHOW FLEET_BUDGETS") if row["kind"] == kind]
    return rows[0] if rows else {"leased": 0, "leased_total": 0, "detail": ""}


class Sampler(threading.Thread):
    """The most connections that PostgreSQL has had, asked some hundred times a second."""

    def __init__(self, pg):
        super().__init__(daemon=True)
        self.pg, self.over, self.most, self.samples = pg, threading.Event(), 0, 0
        self.start()

    def run(self):
        address = {"host": "127.0.0.1", "port": self.pg.port, "user": "postgres", "dbname": "postgres"}
        query = "select count(*) from pg_stat_activity where datname = 'app' and backend_type = 'client backend'"
        with psycopg.connect(**address, autocommit=True) as connection:
            while not self.over.is_set():
                self.most = max(self.most, connection.execute(query).fetchone()[0])
                self.samples += 1
                time.sleep(0.001)

    def stop(self):
        self.over.set()
        self.join(10)
        return self.most


class Client(threading.Thread):
    """Asks again and again; keeps when it was answered, and what went wrong."""

    def __init__(self, node, query="select pg_sleep(0.02)"):
        super().__init__(daemon=True)
        self.node, self.query, self.over = node, query, threading.Event()
        self.answered, self.errors = [], []
        self.start()

    def run(self):
        try:
            connection = self.node.connect()
            while not self.over.is_set():
                connection.execute(self.query)
                self.answered.append(time.monotonic())
        except psycopg.Error as error:
            if not self.over.is_set():
                self.errors.append(str(error))

    def goes_on(self, count=3):
        before = len(self.answered)
        return host.eventually(lambda: len(self.answered) >= before + count or self.errors, timeout=30)


def stop(clients):
    for client in clients:
        client.over.set()
    for client in clients:
        client.join(30)
    return [error for client in clients for error in client.errors]


def crowd(*nodes, each=8, **more):
    return [Client(node, **more) for node in nodes for _ in range(each)]


def test_nodes_share_a_limit(fleet):
    nodes = [fleet.start(name) for name in ("a", "b", "c")]
    fleet.joined("a", "b", "c")
    sampler = Sampler(fleet.pg)
    clients = crowd(*nodes)
    for client in clients:
        client.goes_on()
    host.eventually(lambda: fleet.connections() == LIMIT, timeout=40)
    # What is free goes to nodes whose clients wait, in equal parts.
    host.eventually(lambda: {budget(node)["leased"] for node in nodes} == {2}, timeout=40)
    assert stop(clients) == []
    assert sampler.stop() <= LIMIT and sampler.samples > 100, (sampler.most, sampler.samples)
    row = budget(nodes[0])
    assert (row["database"], row["limit"], row["floor"], row["shared"]) == ("app", LIMIT, 1, 6)


def test_nodes_take_turns_where_there_is_not_a_connection_for_each(fleet):
    nodes = [fleet.start(name, limit=2) for name in ("a", "b", "c")]
    fleet.joined("a", "b", "c")
    sampler = Sampler(fleet.pg)
    clients = [Client(node) for node in nodes]
    for _ in range(2):
        for client in clients:
            client.goes_on()
    assert stop(clients) == []
    assert sampler.stop() <= 2


def test_slots_follow_the_demand(fleet):
    first, second = fleet.start("a"), fleet.start("b")
    fleet.joined("a", "b")
    clients = crowd(first, each=12)
    host.eventually(lambda: budget(first)["leased"] == 6, timeout=40)
    assert stop(clients) == []
    began = time.monotonic()
    clients = crowd(second, each=12)
    host.eventually(lambda: budget(second)["leased"] == 6, timeout=40)
    print(f"slots have followed the demand after {time.monotonic() - began:.2f} s")
    assert stop(clients) == []


def test_a_node_that_is_cut_off_goes_on_with_its_floor(fleet, store):
    proxy = fault_proxy.Proxy(store.ports[0])
    alone, other = fleet.start("a", fleet=store.url(ports=[proxy.port])), fleet.start("b")
    fleet.joined("a", "b")
    sampler = Sampler(fleet.pg)
    clients = crowd(alone, other)
    host.eventually(lambda: fleet.connections() == LIMIT - 1, timeout=40)
    proxy.refuses = True
    proxy.reset_all()
    host.eventually(lambda: states(alone)["a"] == "alone", timeout=40)
    host.eventually(lambda: budget(other)["leased"] == 6, timeout=40)
    for client in clients:
        client.goes_on()
    row = host.eventually(lambda: next((row for row in alone.console("SHOW FLEET") if row["is_own"] and row["servers"] == 1), None))
    assert "no lease, only fleet_min_servers" in row["detail"] and (row["leased"], row["clients"]) == (0, 8)
    proxy.heal()
    fleet.joined("a", "b")
    host.eventually(lambda: budget(alone)["leased"] == 3, timeout=40)
    assert stop(clients) == []
    assert sampler.stop() <= LIMIT
    proxy.close()


def test_without_a_store_queries_go_on(fleet, store):
    nodes = [fleet.start("a"), fleet.start("b")]
    fleet.joined("a", "b")
    sampler = Sampler(fleet.pg)
    clients = crowd(*nodes, each=4)
    for client in clients:
        client.goes_on()
    store.stop()
    host.eventually(lambda: all(states(node)[name] == "alone" for node, name in zip(nodes, "ab")), timeout=40)
    until = time.monotonic() + OUTAGE
    while True:
        for client in clients:
            client.goes_on()
        host.eventually(lambda: fleet.connections() == 2)  # a floor of one for each
        if time.monotonic() >= until:
            break
    store.start("m0")
    fleet.joined("a", "b")
    host.eventually(lambda: fleet.connections() == LIMIT - 1, timeout=40)
    assert stop(clients) == []
    assert sampler.stop() <= LIMIT
    print(f"{sum(len(client.answered) for client in clients)} queries answered; at most {sampler.most} connections in {sampler.samples} samples")


def test_connections_of_a_dead_node_count_while_postgres_has_them(fleet):
    dead, other = fleet.start("a"), fleet.start("b")
    fleet.joined("a", "b")
    sampler = Sampler(fleet.pg)
    sleepers = crowd(dead, each=5, query="select pg_sleep(9)")
    host.eventually(lambda: fleet.connections() == 5, timeout=40)
    os.kill(dead.process.pid, signal.SIGKILL)
    dead.process.wait()
    clients = crowd(other, each=12)
    host.eventually(lambda: states(other) == {"a": "gone", "b": "up"}, timeout=40)
    for client in clients:
        client.goes_on()
    stop(sleepers)
    host.eventually(lambda: budget(other)["leased"] == 6, timeout=40)
    host.eventually(lambda: states(other) == {"b": "up"}, timeout=40)
    assert stop(clients) == []
    assert sampler.stop() <= LIMIT


def test_a_node_that_is_killed_and_started_again_waits_with_its_floor_for_connections_that_are_left(fleet):
    # A floor of 1 for each, and nothing to lease.
    node, other = [fleet.start(name, limit=2, fleet_nodes=2) for name in ("a", "b")]
    fleet.joined("a", "b")
    sampler, clients = Sampler(fleet.pg), crowd(other, each=2)
    sleeper = node.connect()
    sleeper.execute("begin")
    sleeper.execute("set local client_connection_check_interval = 0")
    ended = threading.Thread(target=lambda: pytest.raises(psycopg.Error, sleeper.execute, "select pg_sleep(60)"))
    ended.start()
    the_one = "from pg_stat_activity where query = 'select pg_sleep(60)' and state = 'active'"
    left = f"select count(*) {the_one}"
    host.eventually(lambda: fleet.pg.value(left) == 1)
    node.process.kill()
    node.process.wait()
    ended.join()
    node.start()
    waiting = crowd(node, each=1)
    host.eventually(lambda: "PostgreSQL has 1 backends" in str(node.console("SHOW FLEET")), timeout=40)
    assert fleet.pg.value(left) == 1 and waiting[0].answered == []
    assert budget(node)["detail"] == "1 of the floor are not used yet (SHOW FLEET says why)"
    fleet.pg.query(f"select pg_terminate_backend(pid) {the_one}")
    waiting[0].goes_on()
    assert fleet.pg.value(left) == 0
    host.eventually(lambda: "PostgreSQL has" not in str(node.console("SHOW FLEET")), timeout=40)
    assert stop(clients + waiting) == []
    assert sampler.stop() <= 2


@pytest.mark.parametrize("ending", [signal.SIGQUIT, signal.SIGTERM, signal.SIGINT])
def test_a_node_that_ends_leaves_nothing_in_the_store(fleet, store, ending):
    node = fleet.start("a")
    fleet.joined("a")
    clients = crowd(node, each=6)
    # As many as run at the same time; on a busy machine not all six do.
    host.eventually(lambda: budget(node)["leased"] > 0, timeout=40)
    assert stop(clients) == []
    kept = fleet.connections()
    for connection in node.connections:
        connection.close()
    node.signal(ending)
    node.wait_end()
    keys = store.under("/weir/")
    assert not [key for key in keys if "/nodes/" in key or "/slots/" in key], (kept, keys)
    assert keys["/weir/objects/floors"] == "weir-fleet 1\n"


def test_a_node_that_was_stopped_for_long_is_not_robbed_nor_robs(fleet):
    stopped, other = fleet.start("a"), fleet.start("b")
    fleet.joined("a", "b")
    sampler = Sampler(fleet.pg)
    first = crowd(stopped)
    host.eventually(lambda: fleet.connections() >= 6, timeout=40)
    second = crowd(other)
    host.eventually(lambda: budget(other)["leased"] >= 3, timeout=40)
    os.kill(stopped.process.pid, signal.SIGSTOP)
    host.eventually(lambda: states(other)["a"] == "gone", timeout=40)
    for client in second:
        client.goes_on()
    os.kill(stopped.process.pid, signal.SIGCONT)
    fleet.joined("a", "b")
    for client in first:
        client.goes_on()
    assert stop(first + second) == []
    assert sampler.stop() <= LIMIT


def test_a_second_process_with_the_same_id_stays_on_its_floor(fleet):
    first = fleet.start("a")
    fleet.joined("a")
    second = fleet.start("a")
    host.eventually(lambda: states(second) == {"a": "taken"}, timeout=40)
    assert "another process has this fleet_node" in second.console("SHOW FLEET")[0]["detail"]
    clients = crowd(second, each=3)
    for client in clients:
        client.goes_on()
    assert budget(second)["leased"] == 0 and fleet.connections() == 1
    assert states(first) == {"a": "up"}
    assert stop(clients) == []
    first.stop()
    host.eventually(lambda: states(second) == {"a": "up"}, timeout=40)


def test_a_takeover_goes_on_as_the_same_node(fleet):
    node, other = fleet.start("a"), fleet.start("b")
    fleet.joined("a", "b")
    sampler = Sampler(fleet.pg)
    clients = crowd(node, other)
    host.eventually(lambda: budget(node)["leased"] == 3, timeout=40)
    reboot(node)
    for client in clients:
        client.goes_on()
    fleet.joined("a", "b")
    host.eventually(lambda: budget(node)["leased"] == 3, timeout=40)
    assert stop(clients) == []
    assert sampler.stop() <= LIMIT
    assert not [row for row in other.console("SHOW FLEET_BUDGETS") if row["orphaned"]]


def test_the_store_is_reached_by_tls_with_a_certificate(weir, pg, scratch, authorities):
    authority = authorities[3]
    store = etcd.Etcd(scratch, authority=authority)
    fleet = Fleet(weir, pg, store)
    files = {"fleet_tls_ca_file": authority.cert, "fleet_tls_cert_file": authority.alice.cert, "fleet_tls_key_file": authority.alice.key}
    fleet.start("a", **files)
    fleet.joined("a")
    without = fleet.start("b", fleet_tls_ca_file=authority.cert)
    host.eventually(lambda: states(without) == {"b": "alone"}, timeout=40)
    detail = without.console("SHOW FLEET")[0]["detail"]
    assert "certificate" in detail and "127.0.0.1" in detail, detail
    assert without.connect().execute("select 1").fetchone() == (1,), "its floor does not need the store"
    store.close()


def test_a_store_restored_from_a_backup_is_followed(fleet, store):
    """Its revisions are lower than those that the nodes know."""
    a, b = fleet.start("a"), fleet.start("b")
    fleet.joined("a", "b")
    clients = crowd(a, each=12)
    host.eventually(lambda: budget(a)["leased"] == 6, timeout=40)
    backup, before = store.backup(), store.revision()
    host.eventually(lambda: budget(a)["leased"] == 6, timeout=40)
    assert stop(clients) == []
    for _ in range(200):
        store.put("/other/key", "value")
    more = crowd(b, each=12)
    host.eventually(lambda: budget(b)["leased"] == 6, timeout=40)
    weir_fleet(a, "drain", "b")
    host.eventually(lambda: states(a)["b"] == "draining")
    for _ in range(3):
        weir_fleet(a, "resume", "b")
        weir_fleet(a, "drain", "b")
    weir_fleet(a, "resume", "b")
    assert store.revision() > before + 200
    store.restore(backup)
    assert store.revision() <= before + 20
    fleet.joined("a", "b")
    host.eventually(lambda: budget(b)["leased"] == 6, timeout=40)
    assert stop(more) == []
    clients = crowd(a, each=12)
    host.eventually(lambda: budget(a)["leased"] == 6, timeout=40)
    assert stop(clients) == []
    weir_fleet(a, "drain", "b")
    host.eventually(lambda: states(a)["b"] == "draining")
    assert [row["detail"] for row in a.console("SHOW FLEET")] == ["", ""]


def test_at_rest_the_store_is_not_written(fleet, store):
    nodes = [fleet.start("a"), fleet.start("b")]
    fleet.joined("a", "b")
    idle = [node.connect() for node in nodes]
    for connection in idle:
        connection.execute("select 1")

    def is_at_rest():
        before = store.revision()
        time.sleep(3)
        return store.revision() == before

    host.eventually(is_at_rest, timeout=60)
    assert fleet.connections() == 2, "the connections of both are there, and nothing is leased"
    assert budget(nodes[0])["leased_total"] == 0


def test_foreign_data_are_left_alone_and_named(fleet, store):
    store.put("/weir/objects/slots/database/app//", "something else\n")
    node = fleet.start("a")
    clients = crowd(node, each=3)
    for client in clients:
        client.goes_on()
    host.eventually(lambda: budget(node)["detail"], timeout=40)
    assert budget(node)["leased"] == 0 and fleet.connections() == 1
    assert store.under("/weir/objects/slots/database/app")["/weir/objects/slots/database/app//"] == "something else\n"
    assert stop(clients) == []


@pytest.mark.parametrize(
    "settings, text",
    [
        ({"fleet": "etcd://127.0.0.1"}, "the prefix of the keys is missing"),
        ({"fleet": "zookeeper://h/p"}, "is neither none, kubernetes nor a URL"),
        ({"fleet": "etcd://h/p", "fleet_node": "a b"}, "is not an id of a node"),
        ({"fleet": "etcd://h/p", "fleet_node": "a", "fleet_tls_cert_file": "/etc/hostname"}, "fleet_tls_cert_file and fleet_tls_key_file need each other"),
        ({"fleet": "etcd://h/p", "fleet_node": "a", "fleet_tls_ca_file": "/nowhere"}, "fleet_tls_ca_file: cannot read"),
        ({"fleet": "etcd://h/p", "fleet_lease_time": "2"}, "is not between 3 and 3600"),
    ],
)
def test_what_cannot_be_a_node_does_not_start(weir, settings, text):
    pooler = weir.prepared(**settings)
    pooler.write_ini()
    done = host.run([pooler.program, pooler.ini], check=False)
    assert done.returncode != 0 and text in done.stdout + done.stderr, done.stdout + done.stderr
