"""Pools of all nodes of a fleet: what is made, changed, deleted, paused and disabled on one node is so on all, and a node's own files win."""

import os
import re
import threading
import time

import psycopg
import pytest

import etcd
import host
import panel
from test_fleet import Fleet
from test_takeover import reboot

pytestmark = [
    pytest.mark.weir_only,
    pytest.mark.skipif(not etcd.ETCD, reason="no etcd; scripts/prepare-tests says why"),
]

# The figure of the fleet is that of 1,000 pools and 10 nodes.
POOLS, NODES = int(os.environ.get("WEIR_FLEET_POOLS", "20")), int(os.environ.get("WEIR_FLEET_NODES", "2"))


class PoolFleet(Fleet):
    """Nodes with a panel and a pools file each."""

    webs: dict

    def start(self, name, **settings):
        port = host.free_port()
        node = super().start(name, http_port=port, **{"pools_file": "pools.ini", **settings})
        self.webs = {**getattr(self, "webs", {}), name: panel.Panel(node, port).wait_up()}
        return node

    def restart(self, name):
        self.nodes[name].stop()
        self.nodes[name].start()
        self.webs[name].wait_up().first = None

    def pools(self, name):
        return {pool["name"]: pool["size"] for pool in self.webs[name].get("/api/v1/pools?limit=500")["pools"]}

    def make(self, node, name, size=3, status=201, method="POST", **more):
        wish = {"name": name, "db": "app", "mode": "transaction", "size": size, **more}
        path = "/api/v1/pools" + ("" if method == "POST" else f"/{name}")
        got, body, _ = self.webs[node].ask(method, path, wish, timeout=60)
        assert got == status, (got, body)
        return body

    def revisions(self, node):
        return {row["node"]: int(row["pools"]) for row in self.nodes[node].console("SHOW FLEET")}


@pytest.fixture
def store(scratch):
    made = etcd.Etcd(scratch)
    yield made
    made.close()


@pytest.fixture
def fleet(weir, pg, store):
    return PoolFleet(weir, pg, store)


def refusal(node, database="app"):
    """Why a client is refused; threads hear of changes a moment later."""
    try:
        node.connect(database=database).close()
    except psycopg.OperationalError as error:
        return str(error)
    return ""


def file_of(node):
    return (node.directory / "pools.ini").read_text()


def test_a_pool_made_on_one_node_is_on_all(fleet):
    a, b = fleet.start("a"), fleet.start("b")
    fleet.joined("a", "b")
    fleet.make("a", "shared-pool")
    host.eventually(lambda: fleet.pools("b").get("shared-pool") == 3)
    host.eventually(lambda: refusal(b, "shared-pool") == "")
    host.eventually(lambda: fleet.revisions("a") == fleet.revisions("b") == {"a": 1, "b": 1})
    fleet.make("b", "shared-pool", size=5, status=200, method="PUT")
    host.eventually(lambda: fleet.pools("a") == fleet.pools("b") == {"app": 50, "shared-pool": 5})
    assert file_of(a) == file_of(b)
    # One that comes later has it, too, and one that is started again.
    fleet.start("c")
    host.eventually(lambda: "shared-pool" in fleet.pools("c"))
    fleet.restart("a")
    assert a.value("select 1", database="shared-pool") == 1
    assert fleet.webs["b"].ask("DELETE", "/api/v1/pools/shared-pool")[0] == 204
    host.eventually(lambda: [sorted(fleet.pools(name)) for name in "bc"] == [["app"]] * 2)
    host.eventually(lambda: "shared-pool" not in file_of(a))
    host.eventually(lambda: "no such database" in refusal(a, "shared-pool"))


def test_the_own_files_of_a_node_win(fleet):
    fleet.start("a")
    b = fleet.start("b")
    (b.directory / "pools.ini").write_text("; by hand\n[databases]\nmine = host=127.0.0.1 dbname=app pool_size=2\n")
    host.hand_over(b.directory / "pools.ini")
    b.databases["shared-pool"] = "dbname=app pool_size=7"
    b.write_ini()
    b.console("RELOAD")
    fleet.joined("a", "b")
    for name in ("shared-pool", "mine", "third-pool"):
        fleet.make("a", name, size=3)
    host.eventually(lambda: fleet.pools("b") == {"app": 50, "shared-pool": 7, "mine": 2, "third-pool": 3})
    assert fleet.pools("a") == {"app": 50, "shared-pool": 3, "mine": 3, "third-pool": 3}

    def said():
        return {row["node"]: row["detail"] for row in fleet.nodes["a"].console("SHOW FLEET")}

    left_out = 'pools of the fleet are left out: database "shared-pool" is defined in .*weir.ini:.* too; database "mine" is defined in .*pools.ini:3 too'
    host.eventually(lambda: re.fullmatch(left_out, said()["b"]))
    assert said()["a"] == ""
    # It starts so, too; what it does not define itself any more is the fleet's again.
    fleet.restart("b")
    assert fleet.pools("b")["shared-pool"] == 7 and file_of(b).startswith("; by hand\n")
    del b.databases["shared-pool"]
    b.write_ini()
    b.console("RELOAD")
    host.eventually(lambda: fleet.pools("b")["shared-pool"] == 3)
    # A node's own pool is changed without the others.
    fleet.make("b", "mine", size=4, status=200, method="PUT")
    assert (fleet.pools("b")["mine"], fleet.pools("a")["mine"]) == (4, 3)


def test_pause_on_all_nodes_waits_for_all_and_is_for_those_that_come(fleet):
    a, b = fleet.start("a"), fleet.start("b")
    fleet.joined("a", "b")
    busy = b.connect(autocommit=False)
    busy.execute("select 1")
    done = threading.Event()

    def pause():
        a.console("PAUSE app FLEET")
        done.set()

    threading.Thread(target=pause, daemon=True).start()
    host.eventually(lambda: paused(b))
    assert not done.wait(1), "a transaction runs at b"
    busy.commit()
    assert done.wait(60)
    assert paused(a) and paused(b)
    c = fleet.start("c")
    host.eventually(lambda: paused(c))
    waiting = threading.Thread(target=lambda: b.value("select 1"), daemon=True)
    waiting.start()
    waiting.join(0.5)
    assert waiting.is_alive()
    a.console("RESUME app FLEET")
    waiting.join(60)
    assert not waiting.is_alive()
    host.eventually(lambda: not any(paused(node) for node in (a, b, c)))
    with pytest.raises(psycopg.Error, match="database app is not paused"):
        a.console("RESUME app FLEET")
    # Everything, and nothing any more; by the API, too.
    a.console("PAUSE FLEET")
    assert all({row["key"]: row["value"] for row in node.console("SHOW STATE")}["paused"] == "yes" for node in (a, b, c))
    b.console("RESUME FLEET")
    assert fleet.webs["b"].ask("POST", "/api/v1/databases/app/disable?fleet=true", {})[0] == 204
    host.eventually(lambda: "is disabled" in refusal(c))
    assert fleet.webs["a"].ask("POST", "/api/v1/databases/app/enable?fleet=true", {})[0] == 204
    host.eventually(lambda: refusal(c) == "")


def test_pause_on_all_nodes_says_where_it_was_undone(fleet):
    a, b = fleet.start("a"), fleet.start("b")
    fleet.joined("a", "b")
    busy = b.connect(autocommit=False)
    busy.execute("select 1")
    answers = []

    def pause():
        try:
            answers.append(a.console("PAUSE app FLEET"))
        except psycopg.Error as error:
            answers.append(str(error))

    waits = threading.Thread(target=pause, daemon=True)
    waits.start()
    host.eventually(lambda: paused(b))
    b.console("RESUME app")
    waits.join(20)
    assert len(answers) == 1 and "not on b (app is resumed on this node)" in answers[0], answers
    assert busy.execute("select 2").fetchone() == (2,)
    with pytest.raises(psycopg.Error, match="not on b"):  # It is so already, but there.
        a.console("PAUSE app FLEET")
    a.console("RESUME app FLEET")
    busy.commit()
    assert a.console("PAUSE app FLEET") == "PAUSE" and paused(b)


def test_what_cannot_be_read_is_left_out_and_a_store_that_is_emptied_gets_the_pools_back(fleet, store):
    entry = f"host=127.0.0.1 port={fleet.pg.port} dbname=app pool_size=2"
    text = f"weir-fleet 1\nrevision 3 by x\n;; disabled \"app\"\n[databases]\nshared-pool = {entry}\nhalf\n%include /etc/passwd\nnewer = {entry} a_new_key=1\n"
    store.put("/weir/objects/pools", text)
    a = fleet.start("a")
    host.eventually(lambda: fleet.pools("a") == {"app": 50, "shared-pool": 2})
    host.eventually(lambda: "is disabled" in refusal(a))
    fleet.make("a", "shared-pool", size=1, status=200, method="PUT")
    store.stop()
    fleet.restart("a")
    assert "is disabled" in refusal(a) and fleet.pools("a")["shared-pool"] == 1, "as the file says"
    for name in store.names:
        store.start(name)
    host.eventually(store.is_healthy, timeout=60)
    fleet.joined("a")
    store.delete("/weir/objects/pools")
    host.eventually(lambda: any("shared-pool" in value for value in store.under("/weir/objects/pools").values()))
    a.console("ENABLE app FLEET")
    host.eventually(lambda: refusal(a) == "")
    b = fleet.start("b")
    host.eventually(lambda: fleet.pools("b") == {"app": 50, "shared-pool": 1})
    for name in ("x\nevil = host=e", "y\x1b"):
        with pytest.raises(psycopg.Error, match="no such database|control characters"):
            b.console('PAUSE "' + name + '" FLEET')


def test_the_process_that_takes_over_has_the_pools_and_what_is_paused(fleet):
    a, b = fleet.start("a"), fleet.start("b")
    fleet.joined("a", "b")
    fleet.make("a", "shared-pool")
    b.console("PAUSE app FLEET")
    b.console("PAUSE FLEET")
    old = reboot(a)
    assert old.wait(30) == 0
    assert paused(a)
    # Until it has read the store it changes nothing, and says so.
    host.eventually(lambda: not unread(a, "RESUME FLEET"))
    assert paused(a)
    # The one that has taken over hears of changes, and makes some.
    b.console("RESUME app FLEET")
    assert a.value("select 1") == 1
    a.console("DISABLE shared-pool FLEET")
    host.eventually(lambda: "is disabled" in refusal(b, "shared-pool"))


def unread(node, command):
    """Whether a node that has just begun refuses a command, for it does not know what the store has; otherwise it is carried out."""
    try:
        node.console(command)
    except psycopg.Error as error:
        assert "the store has not been read yet" in str(error)
        return True
    return False


def paused(node):
    return int(next(row for row in node.console("SHOW DATABASES") if row["name"] == "app")["paused"])


def test_without_the_store_nodes_have_their_pools_and_change_none(fleet, store):
    fleet.start("a")
    b = fleet.start("b")
    fleet.joined("a", "b")
    fleet.make("a", "shared-pool")
    host.eventually(lambda: "shared-pool" in fleet.pools("b"))
    store.stop()
    fleet.restart("b")
    assert fleet.pools("b")["shared-pool"] == 3
    answer = fleet.make("b", "late-pool", status=503)
    assert "the pools of the fleet cannot be changed" in answer["message"], answer
    assert "late-pool" not in file_of(b)
    for name in store.names:
        store.start(name)
    host.eventually(lambda: fleet.webs["a"].ask("POST", "/api/v1/pools", {"name": "late-pool", "db": "app", "mode": "transaction", "size": 2})[0] in (201, 409), timeout=40)
    host.eventually(lambda: "late-pool" in fleet.pools("b"), timeout=40)


def test_changes_at_the_same_time_are_all_made(fleet):
    names = ["a", "b", "c"]
    for name in names:
        fleet.start(name)
    fleet.joined(*names)

    def make(node):
        for number in range(7):
            fleet.make(node, f"pool-{node}-{number}", size=1)

    makers = [threading.Thread(target=make, args=(name,)) for name in names]
    for maker in makers:
        maker.start()
    for maker in makers:
        maker.join(100)
    expected = {"app": 50, **{f"pool-{name}-{number}": 1 for name in names for number in range(7)}}
    for name in names:
        host.eventually(lambda name=name: fleet.pools(name) == expected)
    host.eventually(lambda: set(fleet.revisions("a").values()) == {21})


def test_a_change_of_many_pools_reaches_all_nodes(fleet, store):
    names = [f"n{number}" for number in range(NODES)]
    lines = "".join(f"pool-{number} = host=127.0.0.1 port={fleet.pg.port} dbname=app pool_size=2\n" for number in range(POOLS))
    store.put("/weir/objects/pools", f"weir-fleet 1\nrevision 7 by x\n[databases]\n{lines}")
    for name in names:
        fleet.start(name, fleet_nodes=NODES)
    fleet.joined(*names)
    host.eventually(lambda: set(fleet.revisions("n0").values()) == {7}, timeout=60)
    begun = time.monotonic()
    fleet.make(names[-1], "pool-0", size=1, status=200, method="PUT")
    made = time.monotonic() - begun
    host.eventually(lambda: set(fleet.revisions("n0").values()) == {8}, timeout=60)
    known = time.monotonic() - begun
    for name in names:
        sizes = {row["name"]: int(row["pool_size"]) for row in fleet.nodes[name].console("SHOW DATABASES")}
        assert sizes["pool-0"] == 1 and sum(1 for one in sizes if one.startswith("pool-")) == POOLS
    before = store.revision()
    time.sleep(3)
    writes = (store.revision() - before) / 3
    print(f"\n{POOLS} pools, {NODES} nodes: a change {made:.2f} s; on all nodes, and known to another one: {known:.2f} s; at rest {writes:.1f} writes/s")
