"""Nodes of a fleet, three members of etcd and one PostgreSQL, and faults at random on all of them at once: PostgreSQL never has more connections than the
limit, and no query of a client fails but by the death of its own node.

WEIR_FLEET_CHAOS=SECONDS makes it longer (20, and until each fault has come once); WEIR_FLEET_SEED is the seed that a run has printed, which gives the same
faults in the same order. WEIR_FLEET_NODES is how many nodes there are (3). WEIR_FLEET_STORE=kubernetes puts the API server of Kubernetes in etcd's place, or its double (kubernetes.py).
`client_connection_check_interval` (postgres.py), but for queries of which no client is ended, keeps out what docs/fleet.md lists under "What comes on top, for a while"."""

import concurrent.futures
import functools
import itertools
import os
import random
import signal
import threading
import time

import psycopg
import pytest

import etcd
import fault_proxy
import host
import kubernetes
from connection_sampler import OURS, Sampler
from test_fleet import Fleet
from test_takeover import reboot
from trouble import Trouble

pytestmark = [
    pytest.mark.weir_only,
    pytest.mark.any_driver,
    pytest.mark.skipif(not etcd.ETCD, reason="no etcd; scripts/prepare-tests says why"),
]

SECONDS = float(os.environ.get("WEIR_FLEET_CHAOS", "20"))
SEED = os.environ.get("WEIR_FLEET_SEED") or str(random.randrange(10**6))
NAMES = "abcdefghij"[: int(os.environ.get("WEIR_FLEET_NODES", "3"))]
LIMIT = 3 * len(NAMES)
LEASE = 3
# Of four kinds of clients; numbers are pauses, in which a server connection stays with its client. PostgreSQL goes on with the last query when its node is killed.
STATEMENTS = (
    ["select pg_sleep(0.02)"],
    ["begin", "select pg_sleep(0.005)", "select 1", "commit"],
    ["begin", "select 2", 1.2, "commit", 0.3],
    ["begin", "set local client_connection_check_interval = 0", "select pg_sleep(1.5)", "commit", 0.3],
)


class Node:
    """A pooler, the proxies between it and the store, and its life: even while it runs, odd from kill -9 until it is up again."""

    def __init__(self, fleet, name):
        self.name, self.fleet, self.life, self.is_resting = name, fleet, 0, False
        self.proxies = [fault_proxy.Proxy(port) for port in fleet.store.ports]
        url = fleet.store.url(ports=[proxy.port for proxy in self.proxies])
        self.pooler = fleet.start(name, limit=LIMIT, fleet=url, fleet_lease_time=LEASE, fleet_nodes=len(NAMES))

    def freeze(self, dice):
        os.kill(self.pooler.process.pid, signal.SIGSTOP)
        try:
            time.sleep(a_while(dice))
        finally:
            os.kill(self.pooler.process.pid, signal.SIGCONT)

    def die(self, dice):
        """PostgreSQL goes on with its longer queries, while it is started again."""
        self.life += 1
        self.pooler.process.send_signal(signal.SIGKILL)
        self.pooler.process.wait()
        time.sleep(dice.choice([0, 0, dice.uniform(0, 2 * LEASE)]))
        self.pooler.start()
        self.life += 1

    def take_over(self, _):
        reboot(self.pooler)

    def cut_off(self, dice, meanwhile=time.sleep):
        """Its packets to the store are lost, or its connections are refused."""
        is_silent = dice.random() < 0.5
        for proxy in self.proxies:
            if is_silent:
                proxy.silent.set()
            else:
                proxy.refuses = True
                proxy.reset_all()
        try:
            time.sleep(dice.uniform(0, 2))
            meanwhile(a_while(dice))
        finally:
            for proxy in self.proxies:
                proxy.heal()

    def take_over_alone(self, dice):
        self.cut_off(dice, lambda seconds: (reboot(self.pooler), time.sleep(seconds)))

    def rest(self, dice):
        """Its clients ask for nothing: it gives up what it has, in the store and in PostgreSQL."""
        self.rest_for(a_while(dice))

    def rest_alone(self, dice):
        self.cut_off(dice, self.rest_for)

    def rest_for(self, seconds):
        self.is_resting = True
        time.sleep(seconds)
        self.is_resting = False
        time.sleep(1)  # the clients want it again, and what is wrong has to show

    def reload(self, dice):
        """A smaller limit on this node; the smallest counts. Then the usual one."""
        usual = self.pooler.databases
        self.pooler.databases = {"app": usual["app"].replace(f"max_db_connections={LIMIT}", f"max_db_connections={dice.randrange(3, LIMIT)}")}
        self.pooler.reload()
        time.sleep(dice.uniform(0.2, 2))
        self.pooler.databases = usual
        self.pooler.reload()

    def kill_client(self, dice):
        """Between two statements, maybe in a transaction: a query that goes on without its client would come on top."""
        client = dice.choice([client for client in self.clients if len(client.statements) > 1])
        with client.between:
            rows = [row["id"] for row in self.pooler.console("SHOW CLIENTS") if row["application_name"] == client.name]
            client.is_killed = bool(rows)
            for number in rows:
                self.pooler.console(f"KILL_CLIENT {number}")

    FAULTS = (freeze, die, take_over, cut_off, take_over_alone, rest, rest_alone, reload, kill_client)


class Client(threading.Thread):
    """Asks without end, and connects again where it has lost its connection; keeps the errors that have no excuse."""

    def __init__(self, node, number):
        super().__init__(daemon=True, name=f"{node.name}{number}")
        self.node, self.statements = node, STATEMENTS[number % len(STATEMENTS)]
        self.over, self.between, self.is_killed = threading.Event(), threading.Lock(), False
        self.answered, self.longest, self.errors = 0, 0.0, []
        self.start()

    def run(self):
        while not self.over.is_set():
            life = self.node.life
            try:
                with psycopg.connect(**self.node.pooler.address(application_name=self.name), autocommit=True) as connection:
                    while not self.over.is_set():
                        if self.node.is_resting:
                            self.over.wait(0.02)
                        else:
                            self.ask(connection, life)
            except psycopg.Error as error:
                if not self.is_killed and life == self.node.life and life % 2 == 0:
                    self.errors.append(f"client {self.name} at {time.strftime('%X')}: {error}")
                self.is_killed = False
                self.over.wait(0.05)

    def ask(self, connection, life):
        begun = time.monotonic()
        for statement in self.statements:
            if isinstance(statement, float):
                self.over.wait(statement)
                continue
            with self.between:
                connection.execute(statement)
        self.answered += 1
        if life == self.node.life:
            self.longest = max(self.longest, time.monotonic() - begun)


def a_while(dice):
    """Less than a lease takes to run out, or so long that others have found out what has become of its slots."""
    return dice.choice([dice.uniform(0.2, 1), dice.uniform(2 * LEASE, 3 * LEASE)])


def members_die(store, dice):
    """kill -9 of a member of the store, or of two, without which it does nothing, and their restart."""
    names = dice.sample(store.members, min(dice.choice([1, 2]), len(store.members)))
    store.stop(*names, mode=signal.SIGKILL)
    time.sleep(a_while(dice))
    for name in names:
        store.start(name)


@pytest.fixture
def threads():
    """They have to outlive what they start: a process dies with the thread that has started it (host.start)."""
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        yield pool


@pytest.fixture
def store(scratch, authorities):
    by_kubernetes = os.environ.get("WEIR_FLEET_STORE") == "kubernetes"
    made = kubernetes.store(scratch, authorities[3]) if by_kubernetes else etcd.Etcd(scratch, members=3)
    yield made
    made.close()


@pytest.mark.timeout(SECONDS + 300)
def test_the_limit_holds_whatever_happens(threads, weir, pg, store):
    print(f"WEIR_FLEET_SEED={SEED} WEIR_FLEET_CHAOS={SECONDS:.0f}")
    fleet, journal = Fleet(weir, pg, store), []
    nodes = [Node(fleet, name) for name in NAMES]
    fleet.joined(*NAMES)
    sampler = Sampler(pg, LIMIT, journal)
    for node in nodes:
        node.clients = [Client(node, number) for number in range(6)]
    clients = list(itertools.chain.from_iterable(node.clients for node in nodes))
    kinds = {fault.__name__: {node.name: fault.__get__(node) for node in nodes} for fault in Node.FAULTS}
    kinds["members_die"] = {"store": functools.partial(members_die, store)}
    trouble = Trouble(kinds, SEED, time.monotonic() + SECONDS, journal)
    for hand in [threads.submit(trouble.run) for _ in range(2)]:
        hand.result()
    faults = trouble.count
    assert not sampler.above, "\n".join(sampler.above[:3])
    # All is well again: every client is served, and the limit is used.
    fleet.joined(*NAMES)
    host.eventually(lambda: pg.value(f"select count(*) from pg_stat_activity where {OURS}") == LIMIT, timeout=60)
    before = [client.answered for client in clients]
    host.eventually(lambda: all(client.answered > count for client, count in zip(clients, before)), timeout=60)
    for client in clients:
        client.over.set()
    for client in clients:
        client.join(30)
    sampler.stop()
    print(f"{sampler.samples} samples, most {sampler.most} of {LIMIT}; {sum(faults.values())} faults: {dict(faults)}")
    print(f"{sum(client.answered for client in clients)} transactions, the longest {max(client.longest for client in clients):.1f} s")
    assert not sampler.above, "\n".join(sampler.above[:3])
    assert [error for client in clients for error in client.errors] == []
    assert sampler.samples > 40 * SECONDS
    for proxy in itertools.chain.from_iterable(node.proxies for node in nodes):
        proxy.close()
