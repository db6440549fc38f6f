"""`fleet_limits`: limits of clients and quotas that hold for all nodes of a fleet, known to each about a second later; without the store each node goes on by itself."""

import os
import signal
import time

import psycopg
import pytest

import etcd
import host
from test_fleet import Fleet, fleet, states, store  # noqa: F401 (fixtures)
from test_quotas import no_end_of_an_hour, used  # noqa: F401 (a fixture)
from test_takeover import reboot

pytestmark = [
    pytest.mark.weir_only,
    pytest.mark.skipif(not etcd.ETCD, reason="no etcd; scripts/prepare-tests says why"),
]

REFUSED = psycopg.errors.ConfigurationLimitExceeded
BY_ALL = "in all nodes of the fleet"


def start(fleet, names, quotas=None, **settings):  # noqa: F811
    nodes = []
    for name in names:
        more = dict(settings)
        if quotas:
            path = host.new_directory(fleet.store.directory, f"quotas-{name}") / "quotas"
            path.write_text(quotas)
            host.hand_over(path)
            more["quotas_file"] = path
        nodes.append(fleet.start(name, limit=0, **more))
    fleet.joined(*names)
    return nodes


def limit(node, kind="clients"):
    rows = [row for row in node.console("SHOW FLEET_LIMITS") if row["kind"] == kind]
    return rows[0] if rows else {"limit": None, "clients": None, "external": None}


def knows(node, external, kind="clients"):
    host.eventually(lambda: limit(node, kind)["external"] == external, timeout=20)


def is_refused(node, text=BY_ALL, **options):
    try:
        node.connect(**options).close()
    except psycopg.OperationalError as error:
        assert text in str(error), error
        return True
    return False


def connected(node, count, **options):
    """Clients up to the fleet's limit, each as soon as it is admitted: a console that asked another node a moment ago may still count."""
    clients = []

    def joins():
        try:
            clients.append(node.connect(**options))
        except psycopg.OperationalError as error:
            assert BY_ALL in str(error), error
            return False
        return True

    for _ in range(count):
        host.eventually(joins, timeout=20)
    return clients


def admits(node):
    host.eventually(lambda: not is_refused(node, ""), timeout=30)


def test_clients_of_all_nodes_count(fleet):  # noqa: F811
    a, b = start(fleet, "ab", fleet_limits="clients", max_client_conn=10)
    of_a, of_b = connected(a, 6), connected(b, 4)
    knows(a, 4)
    for node in (a, b):
        host.eventually(lambda node=node: is_refused(node, r"no more connections allowed (max_client_conn) in all nodes of the fleet"), timeout=20)
    assert of_a[0].execute("select 1").fetchone() == (1,), "who is there stays"
    of_b.pop().close()
    admits(a)
    # What a node is told to share no more counts nowhere, and what others have counts no more there.
    a.reload(fleet_limits="none")
    host.eventually(lambda: limit(a)["limit"] is None)
    of_a += connected(a, 4)
    assert is_refused(a, "no more connections allowed (max_client_conn)")
    admits(b)
    a.reload(fleet_limits="quotas, clients")
    knows(a, 3)
    host.eventually(lambda: is_refused(b), timeout=20)


def test_clients_of_a_node_that_was_killed_do_not_count_when_its_lease_is_over(fleet):  # noqa: F811
    a, b = start(fleet, "ab", fleet_limits="clients", max_client_conn=10, fleet_lease_time=10)
    of_b = connected(b, 10)
    knows(a, 10)
    assert is_refused(a)
    os.kill(b.process.pid, signal.SIGKILL)
    b.process.wait()
    assert is_refused(a), "its lease runs"
    admits(a)
    knows(a, 0)
    assert of_b


def test_without_a_store_each_node_goes_on_by_itself(fleet, store):  # noqa: F811
    a, b = start(fleet, "ab", fleet_limits="clients, quotas", max_client_conn=10, quotas="user alice connections hard=6\nuser bob queries/hour hard=10\n")
    of_b = [b.connect() for _ in range(6)] + [b.connect(user="bob")]
    for _ in range(4):
        of_b[-1].execute("select 1")
    knows(a, 7)
    host.eventually(lambda: is_refused(a, "quota of user alice exceeded: connections: hard limit 6 in all nodes of the fleet"), timeout=20)
    host.eventually(lambda: external(a, "user bob", "queries/hour") == 4, timeout=20)
    store.stop()
    host.eventually(lambda: states(a)["a"] == "alone", timeout=40)
    admits(a)
    of_a = connected(a, 6) + connected(a, 1, user="bob")
    assert is_refused(a, "quota of user alice exceeded: connections: hard limit 6")
    knows(a, 0)
    assert external(a, "user bob", "queries/hour") == 4, "what was consumed goes on counting"
    for _ in range(6):
        of_a[-1].execute("select 1")
    host.eventually(lambda: fails(of_a[-1]), timeout=20)
    store.start("m0")
    fleet.joined("a", "b")
    knows(a, 7)
    assert is_refused(a, "no more connections allowed (max_client_conn)", user="bob")


def external(node, subject, resource):
    rows = [row for row in node.console("SHOW QUOTAS") if f"{row['subject']} {row['name']}" == subject and (row["period"] is None or f"{row['resource']}/{row['period']}" == resource)]
    return int(rows[0]["external"]) if rows else None


def fails(client, text="queries/hour"):
    try:
        client.execute("select 1")
    except REFUSED as error:
        assert text in str(error), error
        return True
    return False


def passes_until_refused(client, text):
    """How many statements a client's node lets pass before it has looked at what the others have used."""
    passed = 0
    deadline = time.monotonic() + 20
    while not fails(client, text):
        assert time.monotonic() < deadline
        passed += 1
        time.sleep(0.02)
    return passed


def test_a_quota_is_used_up_by_all_nodes_and_once(fleet):  # noqa: F811
    quotas = "user default queries/hour hard=20\n"
    settings = {"fleet_limits": "quotas", "quotas": quotas, "fleet_nodes": 4}
    a, b = start(fleet, "ab", **settings)
    clients = [node.connect(prepare_threshold=None) for node in (a, b)]
    each = 9
    for client in clients:
        for _ in range(each):
            client.execute("select 1")
    for node in (a, b):
        host.eventually(lambda node=node: (used(node, "user alice", "queries/hour"), external(node, "user alice", "queries/hour")) == (2 * each, each), timeout=20)
    for _ in range(2):
        clients[0].execute("select 1")
    total = 2 * each + 2
    for client in clients:
        total += passes_until_refused(client, f"used {BY_ALL}, hard limit 20")
    for node in (a, b):
        host.eventually(lambda node=node: used(node, "user alice", "queries/hour") == total, timeout=20)
    assert all(fails(client) for client in clients)
    time.sleep(2)  # Two writes of figures.
    assert used(a, "user alice", "queries/hour") == used(b, "user alice", "queries/hour") == total, "one that is refused is not counted"
    # A node that comes later knows what was used, also by one that is gone; who starts again, or takes over, does not count for others what is its own.
    reboot(a)
    host.eventually(lambda: used(a, "user alice", "queries/hour") == total, timeout=20)
    a.stop()
    b.stop()
    (c,) = start(fleet, "c", **settings)
    late = c.connect(prepare_threshold=None)
    host.eventually(lambda: external(c, "user alice", "queries/hour") == total, timeout=20)
    of_others, total = total, total + passes_until_refused(late, BY_ALL)
    host.eventually(lambda: used(c, "user alice", "queries/hour") == total)
    assert external(c, "user alice", "queries/hour") == of_others
    a.start()
    fleet.joined("a", "c")
    host.eventually(lambda: used(a, "user alice", "queries/hour") == total, timeout=20)
    time.sleep(2)  # Two writes of figures.
    assert [used(node, "user alice", "queries/hour") for node in (a, c)] == [total, total]
    c.reload(fleet_limits="none")
    host.eventually(lambda: external(c, "user alice", "queries/hour") == 0)
    host.eventually(lambda: not fails(late))


def test_a_takeover_counts_its_clients_once(fleet):  # noqa: F811
    a, b = start(fleet, "ab", fleet_limits="clients", max_client_conn=20)
    of_a = [a.connect() for _ in range(5)]
    knows(b, 5)
    reboot(a)
    fleet.joined("a", "b")
    of_a.append(a.connect())
    knows(b, 6)
    assert [client.execute("select 1").fetchone() for client in of_a] == [(1,)] * 6
    knows(a, 0)  # Its own are none of others; who has asked b is gone.
    of_a += connected(a, 14)
    assert is_refused(a, "no more connections allowed (max_client_conn)")
    assert limit(b)["clients"] <= 1, "none but those who ask"


HOSTILE = 'we\nuser 9 0 0 alice\nird "x" %0A'


@pytest.fixture
def hostile(pg):
    """A database with a name of several lines."""
    quoted = '"' + HOSTILE.replace('"', '""') + '"'
    pg.query(f"create database {quoted}")
    yield HOSTILE
    pg.query(f"drop database {quoted} with (force)")


def test_names_that_clients_choose_count_for_no_other(fleet, store, hostile):  # noqa: F811
    quotas = "application_name default queries/hour hard=1000\n"
    settings = {"fleet_limits": "clients,quotas", "max_db_client_connections": 2, "max_user_client_connections": 5, "quotas": quotas}
    nodes = start(fleet, "ab", more_databases={"*": f"host=127.0.0.1 port={fleet.pg.port}"}, **settings)
    clients = [node.connect(database=hostile, application_name=hostile) for node in nodes]
    for client in clients:
        client.execute("select 1")
    for node in nodes:
        knows(node, 1, "user")
        host.eventually(lambda node=node: is_refused(node, f"no more connections allowed (max_db_client_connections) {BY_ALL}", database=hostile), timeout=20)
        assert [row["external"] for row in node.console("SHOW FLEET_LIMITS") if row["database"] == hostile] == [1]
        rows = {row["name"]: int(row["external"]) for row in node.console("SHOW QUOTAS") if row["name"]}
        assert all(name == hostile.replace("\n", "?") or not count for name, count in rows.items()), rows
    lines = store.under("/weir/objects/usage/a")["/weir/objects/usage/a"].split("\n")
    assert all(line.split(" ")[0] in ("weir-fleet", "session", "clients", "database", "user", "quota", "") for line in lines), lines


def test_at_rest_nothing_is_written(fleet, store):  # noqa: F811
    nodes = start(fleet, "ab", fleet_limits="clients, quotas", quotas="user default queries/hour hard=100\n")
    clients = [node.connect() for node in nodes]
    for client in clients:
        client.execute("select 1")

    def is_at_rest():
        before = store.revision()
        time.sleep(4)
        return store.revision() == before

    host.eventually(is_at_rest, timeout=60)
    assert len(store.under("/weir/objects/usage/")) == 2


def test_foreign_figures_are_left_alone_and_named(fleet, store):  # noqa: F811
    store.put("/weir/objects/usage/x", "something else\n")
    store.put("/weir/objects/usage/y", "weir-fleet 1\nsession 0000000000000001\nclients 1000 0 0 \n")
    store.put("/weir/objects/usage/z", "weir-fleet 1\nsession 0000000000000001\nuser x 0 0 \n")
    (node,) = start(fleet, "a", fleet_limits="clients", max_client_conn=10)
    clients = [node.connect() for _ in range(3)]
    host.eventually(lambda: "usage/" in node.console("SHOW FLEET")[0]["detail"], timeout=20)
    host.eventually(lambda: "/weir/objects/usage/y" not in store.under("/weir/objects/usage/"), timeout=20)
    assert store.under("/weir/objects/usage/x")["/weir/objects/usage/x"] == "something else\n"
    assert limit(node)["external"] == 0 and not is_refused(node) and clients
