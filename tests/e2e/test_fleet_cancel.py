"""Cancel requests in a fleet: whichever node one arrives at, it ends the query that it is for, and no other, without `[peers]`."""

import contextlib
import os
import random
import signal
import socket
import threading

import pytest

import etcd
import host
import test_fleet
import wire
from running import SLEEP, how_many_run, wait_until_runs
from test_fleet import store  # noqa: F401 (a fixture)
from test_takeover import reboot

pytestmark = [
    pytest.mark.weir_only,
    pytest.mark.skipif(not etcd.ETCD, reason="no etcd; scripts/prepare-tests says why"),
]

# Longer than a busy machine may leave a node without a processor: one whose lease has run out is gone for the others. Tests in which one has to run out have less.
LEASE, SHORT_LEASE = 15, 3
CLIENTS = 6
CANCELS = int(os.environ.get("WEIR_FLEET_CANCELS", "60"))
# The notice is sent at once: from then on a cancel meets the query.
NOTICED = "do $$ begin raise notice 'runs'; perform pg_sleep(60); end $$"


class Fleet(test_fleet.Fleet):
    """Nodes that reach each other on loopback."""

    def start(self, name, **settings):
        settings = {"fleet_nodes": 3, "fleet_lease_time": LEASE, "fleet_user": "alice", "default_pool_size": 60, **self.store.settings, **settings}
        node = self.weir.prepared(fleet=self.store.url(), fleet_node=name, threads=2, **settings)
        node.settings["fleet_address"] = f"127.0.0.1:{node.port}"
        node.write_ini()
        node.start()
        self.nodes[name] = node
        return node

    def start_all(self, *names, **settings):
        nodes = [self.start(name, **settings) for name in names]
        self.know_each_other()
        return nodes

    def know_each_other(self):
        ports = {node.port for node in self.nodes.values()}
        for node in self.nodes.values():
            # Behind the view's answer, shards have what the log says.
            node.wait_log("this node has the number", node.log_text().count("process up"))
            host.eventually(lambda node=node: {row["port"] for row in peers(node)} == ports, timeout=40)


@pytest.fixture
def fleet(weir, pg, store):  # noqa: F811
    return Fleet(weir, pg, store)


def peers(node):
    return node.console("SHOW PEERS")


def number(node):
    """That which its new keys have."""
    with wire.Raw(node.port).login() as client:
        return number_in(client)


def number_in(client):
    return int.from_bytes(client.pid.to_bytes(4, "big", signed=True)[1:3], "little")


def ask_to_cancel(node, client):
    with wire.Raw(node.port) as request:
        request.send(wire.cancel(client.pid, client.secret))
        assert request.read_to_end() == []


def is_cancelled(client):
    return wire.errors(client.read_until("Z"))[0][0] == "57014"


def sleeper(pg, node, version=wire.V3_0):
    """A client whose query runs."""
    client = wire.Raw(node.port).login(version=version)
    client.send(wire.query(SLEEP))
    wait_until_runs(pg)
    return client


class Canceller(threading.Thread):
    """A client of one node, whose queries are cancelled at any."""

    def __init__(self, home, entrances, cancels, seed):
        super().__init__(daemon=True)
        self.home, self.entrances, self.cancels, self.random = home, entrances, cancels, random.Random(seed)
        self.done, self.failure = 0, None
        self.start()

    def run(self):
        try:
            version = self.random.choice([wire.V3_0, wire.V3_2])
            with wire.Raw(self.home.port).login(version=version) as client:
                for _ in range(self.cancels):
                    client.send(wire.query(NOTICED))
                    client.read_until("N")
                    assert client.is_silent(0.0001), "it was cancelled before"
                    ask_to_cancel(self.random.choice(self.entrances), client)
                    assert is_cancelled(client)
                    self.done += 1
        except Exception as error:  # noqa: BLE001 (whatever it is, the test says it)
            self.failure = error


def test_a_cancel_at_any_node_ends_its_query_and_no_other(fleet, pg):
    nodes = fleet.start_all("a", "b", "c")
    bystanders = [wire.Raw(node.port).login() for node in nodes]
    for bystander in bystanders:
        bystander.send(wire.query("select pg_sleep(3600)"))
    each = -(-CANCELS // CLIENTS)
    workers = [Canceller(node, nodes, each, seed) for seed, node in enumerate(nodes * (CLIENTS // 3))]
    for worker in workers:
        worker.join(3600)
    assert [worker.failure for worker in workers if worker.failure] == []
    assert sum(worker.done for worker in workers) == each * CLIENTS
    assert all(bystander.is_silent(0.01) for bystander in bystanders)
    assert len({number(node) for node in nodes}) == 3
    for node, bystander in zip(nodes, bystanders):
        ask_to_cancel(nodes[0], bystander)
        assert is_cancelled(bystander), node


def test_a_cancel_for_a_node_that_is_gone_goes_nowhere(fleet, pg):
    first, second = fleet.start_all("a", "b", fleet_lease_time=SHORT_LEASE)
    lost = wire.Raw(second.port).login()
    os.kill(second.process.pid, signal.SIGKILL)
    second.process.wait()
    host.eventually(lambda: [row["port"] for row in peers(first)] == [first.port], timeout=40)
    client = sleeper(pg, first)
    ask_to_cancel(first, lost)
    first.wait_log("cancel request for a client of node b, which is gone from the fleet")
    lost.pid = (lost.pid & ~0x00FFFF00) | 0x00630000
    ask_to_cancel(first, lost)
    first.wait_log("cancel request for a client of node 99, a number that no node of the fleet has")
    assert how_many_run(pg) == 1
    ask_to_cancel(first, client)
    assert is_cancelled(client)


def test_a_node_that_joins_later_or_restarts_has_a_number_of_its_own(fleet, pg):
    first, second = fleet.start_all("a", "b")
    third = fleet.start("c")
    fleet.know_each_other()
    numbers = [number(node) for node in (first, second, third)]
    assert sorted(numbers) == [1, 2, 3]
    for home, entrance in ((first, third), (third, first)):
        client = sleeper(pg, home)
        ask_to_cancel(entrance, client)
        assert is_cancelled(client)
    second.stop()
    host.eventually(lambda: len(peers(first)) == 2, timeout=40)
    second.start()
    fleet.know_each_other()
    assert [number(node) for node in (first, second, third)] == numbers
    client = sleeper(pg, second, wire.V3_2)
    assert len(client.secret) == 32
    ask_to_cancel(first, client)
    assert is_cancelled(client)


def test_keys_go_on_working_in_the_process_that_takes_over(fleet, pg):
    node, other = fleet.start_all("a", "b")
    client = sleeper(pg, node)
    reboot(node, wait=False)
    # Clients of its first milliseconds may have the number 0 in their keys: it asks the store for its number, as at any start.
    host.eventually(lambda: number(node) == number_in(client))
    ask_to_cancel(other, client)
    assert is_cancelled(client)
    client.send(wire.query(SLEEP))
    wait_until_runs(pg)
    ask_to_cancel(node, client)
    assert is_cancelled(client)
    assert "number that no node" not in other.log_text()


def test_without_a_store_requests_go_on_being_forwarded(fleet, pg, store):  # noqa: F811
    first, second = fleet.start_all("a", "b", fleet_lease_time=SHORT_LEASE)
    store.stop()
    for node in (first, second):
        host.eventually(lambda node=node: "alone" in {row["state"] for row in node.console("SHOW FLEET")}, timeout=40)
    client = sleeper(pg, second)
    ask_to_cancel(first, client)
    assert is_cancelled(client)
    store.start("m0")


def test_a_client_that_was_there_before_the_number_is_cancelled_at_its_own_node(fleet, pg, store):  # noqa: F811
    store.stop()
    node = fleet.start("a")
    client = sleeper(pg, node)
    assert number_in(client) == 0
    store.start("m0")
    host.eventually(lambda: number(node) == 1, timeout=40)
    ask_to_cancel(node, client)
    assert is_cancelled(client)


def test_the_process_id_of_a_server_leads_to_the_right_node(fleet, pg):
    """It names none: all nodes are asked for the secret (`assign_server_at_login`)."""
    nodes = fleet.start_all("a", "b", "c", pool_mode="session", assign_server_at_login=1)
    for home in nodes:
        with wire.Raw(home.port).login() as client:
            assert client.simple("select pg_backend_pid()") == [[str(client.pid)]]
            for entrance in nodes:
                client.send(wire.query(SLEEP))
                wait_until_runs(pg)
                ask_to_cancel(entrance, client)
                assert is_cancelled(client)


def test_the_operators_peers_count_before_the_fleets(fleet, pg):
    (node,) = fleet.start_all("a")
    node.extra = f"[peers]\n7 = host=127.0.0.1 port={node.port}"
    node.reload(peer_id=7)
    assert [row["peer_id"] for row in peers(node)] == [7] and number(node) == 7
    client = sleeper(pg, node, wire.V3_2)
    assert len(client.secret) == 4
    ask_to_cancel(node, client)
    assert is_cancelled(client)


class Listener(threading.Thread):
    """Passes connections on to a port, and keeps what was sent to it."""

    def __init__(self, port):
        super().__init__(daemon=True)
        self.socket, self.to, self.received = socket.create_server(("127.0.0.1", 0)), port, b""
        self.port = self.socket.getsockname()[1]
        self.start()

    def run(self):
        while True:
            near = self.socket.accept()[0]
            far = socket.create_connection(("127.0.0.1", self.to))
            threading.Thread(target=self.pump, args=(near, far, True), daemon=True).start()
            threading.Thread(target=self.pump, args=(far, near, False), daemon=True).start()

    def pump(self, source, target, keeps):
        with contextlib.suppress(OSError):
            while data := source.recv(4096):
                self.received += data if keeps else b""
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)


def with_listener(fleet, name, host_name="localhost", **settings):
    """A node that others reach by a listener in between."""
    node = fleet.weir.prepared(fleet=fleet.store.url(), fleet_node=name, fleet_nodes=3, fleet_lease_time=LEASE, fleet_user="alice", threads=2, **settings)
    between = Listener(node.port)
    node.settings["fleet_address"] = f"{host_name}:{between.port}"
    node.write_ini()
    node.start()
    node.wait_log("this node has the number")
    return node, between


def test_between_nodes_requests_go_by_tls_that_is_checked(fleet, pg, authorities):
    authority, other = authorities[3], authorities[1]
    tls = {"client_tls_sslmode": "require", "client_tls_cert_file": authority.server.cert, "client_tls_key_file": authority.server.key}
    node, between = with_listener(fleet, "a", **tls)
    entrance, mistaken = fleet.start("b", fleet_peer_tls_ca_file=authority.cert), fleet.start("c", fleet_peer_tls_ca_file=other.cert)
    for one in (entrance, mistaken):
        host.eventually(lambda one=one: len(peers(one)) == 3, timeout=40)
    client = wire.Raw(node.port, path=node.socket_path).login()  # TLS is for TCP
    client.send(wire.query(SLEEP))
    wait_until_runs(pg)
    ask_to_cancel(mistaken, client)
    mistaken.wait_log("cancel request to peer [0-9]+: TLS handshake error: handshake failed")
    assert how_many_run(pg) == 1
    ask_to_cancel(entrance, client)
    assert is_cancelled(client)
    assert between.received and client.secret[:3] not in between.received


def test_between_nodes_tls_is_used_where_it_is_offered(fleet, pg, authorities):
    authority = authorities[3]
    tls = {"client_tls_cert_file": authority.server.cert, "client_tls_key_file": authority.server.key, "client_tls_ca_file": authority.cert}
    offering, between = with_listener(fleet, "a", client_tls_sslmode="prefer", **tls)
    # It wants a certificate, which the others do not have.
    demanding, second = with_listener(fleet, "b", client_tls_sslmode="verify-ca", **tls)
    entrance = fleet.start("c")
    strict = fleet.start("d", fleet_peer_tls_ca_file=authority.cert)
    for one in (entrance, strict):
        host.eventually(lambda one=one: len(peers(one)) == 4, timeout=40)
    for node, listener, is_plain in ((offering, between, False), (demanding, second, True)):
        client = wire.Raw(node.port, path=node.socket_path).login()
        client.send(wire.query(SLEEP))
        wait_until_runs(pg)
        ask_to_cancel(entrance, client)
        assert is_cancelled(client)
        assert (client.secret[:3] in listener.received) == is_plain
    entrance.wait_log("it is sent in plain text")
    # A node without TLS gets nothing of one that has to check it.
    client = sleeper(pg, entrance)
    ask_to_cancel(strict, client)
    strict.wait_log("does not support SSL, which fleet_peer_tls_ca_file requires")
    ask_to_cancel(entrance, client)
    assert is_cancelled(client)


@pytest.mark.parametrize("address", ["h", "h:0", "::1:5", "/run:1"])
def test_what_is_no_address_does_not_start(weir, address):
    pooler = weir.prepared(fleet="etcd://h/p", fleet_node="a", fleet_address=address)
    done = host.run([pooler.program, pooler.ini], check=False)
    assert done.returncode != 0 and "is not a host with a port" in done.stdout + done.stderr, done.stdout + done.stderr
