"""docs/citus.md: a coordinator and two workers, each of which answers for all shards. Citus itself is not here; its place is taken by a partitioned table whose
partitions are on the workers (postgres_fdw)."""

import threading

import psycopg
import pytest

import host
import postgres

pytestmark = [pytest.mark.weir_only, pytest.mark.any_driver]

TENANTS = 8
CLIENTS = "application_name <> 'postgres_fdw'"


class Sharded:
    """Database `shop` on three servers: `orders` has its even and odd tenants on one worker each."""

    def __init__(self, coordinator, scratch):
        self.workers = [postgres.Postgres(coordinator.bindir, host.new_directory(scratch, "worker")) for _ in range(2)]
        self.nodes = [coordinator, *self.workers]
        for node in self.nodes:
            node.query("create database shop")
            node.query("create extension postgres_fdw; create table orders (tenant int, n int) partition by list (tenant)", "shop")
        for number, worker in enumerate(self.workers):
            tenants = ", ".join(str(tenant) for tenant in range(TENANTS) if tenant % 2 == number)
            for node in self.nodes:
                node.query(self.partition(number, worker, node is worker, tenants), "shop")
        for node in self.nodes:
            node.query("grant all on orders to alice", "shop")

    @staticmethod
    def partition(number, worker, is_local, tenants):
        name, values = f"orders_{number}", f"partition of orders for values in ({tenants})"
        if is_local:
            return f"create table {name} {values}; grant all on {name} to alice"
        return f"""
            create server worker_{number} foreign data wrapper postgres_fdw options (host '127.0.0.1', port '{worker.port}', dbname 'shop');
            create user mapping for public server worker_{number} options (user 'alice', password_required 'false');
            create foreign table {name} {values} server worker_{number}"""

    def entry(self, nodes=None, more=""):
        ports = [str(node.port) for node in nodes or self.nodes]
        return f"host={','.join(['127.0.0.1'] * len(ports))} port={','.join(ports)} dbname=shop {more}"

    def connections(self):
        """Weir's to each of them; those of one node to another are their own."""
        return [node.count(f"datname = 'shop' and {CLIENTS}") for node in self.nodes]

    def stop(self):
        for worker in self.workers:
            worker.remove()
        self.nodes[0].ensure_running()
        self.nodes[0].query("drop database shop with (force)")


@pytest.fixture(scope="module")
def servers_of_all(servers, server_version, scratch):
    coordinator = servers(server_version)
    coordinator.ensure_running()
    if not coordinator.value("select count(*) from pg_available_extensions where name = 'postgres_fdw'"):
        pytest.skip("this PostgreSQL has no postgres_fdw")
    made = Sharded(coordinator, scratch)
    yield made
    made.stop()


@pytest.fixture
def sharded(pg, servers_of_all):
    for number, worker in enumerate(servers_of_all.workers):
        worker.ensure_running()
        worker.query(f"truncate orders_{number}", "shop")
    return servers_of_all


class Client(threading.Thread):
    """Orders of all tenants, each in a transaction that reads what it has written."""

    def __init__(self, pooler, database, number):
        super().__init__(daemon=True)
        self.pooler, self.database, self.number, self.over = pooler, database, number, threading.Event()
        self.errors, self.orders, self.ports = [], 0, set()
        self.start()

    def run(self):
        try:
            connection = self.pooler.connect(self.database)
            while not self.over.is_set():
                tenant = self.orders % TENANTS
                with connection.transaction():
                    port = connection.execute("insert into orders values (%s, %s) returning inet_server_port()", [tenant, self.number]).fetchone()[0]
                    found = connection.execute("select count(*) from orders where tenant = %s and n = %s", [tenant, self.number]).fetchone()[0]
                assert found == self.orders // TENANTS + 1, (found, self.orders)
                self.ports.add(port)
                self.orders += 1
        except Exception as error:  # noqa: BLE001 (whatever it is, the test says it)
            self.errors.append(repr(error))


def finish(clients):
    for client in clients:
        client.over.set()
    for client in clients:
        client.join(30)
    assert [error for client in clients for error in client.errors] == []


def test_every_node_answers_for_all_shards_by_one_pool(weir, sharded):
    pooler = weir(databases={"shop": sharded.entry(more="target_session_attrs=any pool_size=6")})
    clients = [Client(pooler, "shop", number) for number in range(12)]
    host.eventually(lambda: sharded.connections() == [2, 2, 2] or any(client.errors for client in clients))
    host.eventually(lambda: all(client.orders > 2 * TENANTS or client.errors for client in clients))
    finish(clients)
    assert set.union(*(client.ports for client in clients)) == {node.port for node in sharded.nodes}
    assert sum(sharded.connections()) == 6
    written = sum(client.orders for client in clients)
    assert [node.value("select count(*) from orders", "shop") for node in sharded.workers] == [written, written]
    assert pooler.value("select count(*) from orders", database="shop") == written
    # A setting of an extension is its client's, on whichever node its queries are.
    setters = [pooler.connect("shop") for _ in range(2)]
    for connection, mode in zip(setters, ("parallel", "sequential")):
        connection.execute(f"set citus.multi_shard_modify_mode = '{mode}'")
    for connection, mode in list(zip(setters, ("parallel", "sequential"))) * 4:
        assert connection.execute("show citus.multi_shard_modify_mode").fetchone()[0] == mode


def test_a_pool_for_each_node_in_one_budget(weir, sharded):
    databases = {f"shop_{number}": sharded.entry([node], "max_db_connections=4") for number, node in enumerate(sharded.nodes)}
    pooler = weir(databases=databases, users={"alice": "max_user_connections=6"}, connection_sharing="demand", default_pool_size=20)
    alone = [Client(pooler, "shop_0", number) for number in range(8)]
    host.eventually(lambda: sharded.connections() == [4, 0, 0])
    others = [Client(pooler, f"shop_{1 + number % 2}", number) for number in range(8, 24)]
    host.eventually(lambda: sharded.connections() == [2, 2, 2] or any(client.errors for client in others))
    most = max(sum(sharded.connections()) for _ in range(50))
    host.eventually(lambda: all(client.orders for client in others))
    finish(alone + others)
    assert most <= 6


def test_while_a_worker_is_down_the_others_answer_for_what_they_have(weir, sharded):
    pooler = weir(databases={"shop": sharded.entry(more="target_session_attrs=any pool_size=6")})
    sharded.workers[1].stop()
    clients = [pooler.connect("shop") for _ in range(6)]
    for client in clients * 2:
        assert client.execute("select count(*) from orders where tenant = 0").fetchone() == (0,)
    with pytest.raises(psycopg.Error, match="could not connect to server"):
        clients[0].execute("select count(*) from orders where tenant = 1")


def test_with_primary_the_nodes_are_taken_for_one_cluster(weir, sharded):
    pooler = weir(databases={"shop": sharded.entry(more="target_session_attrs=primary pool_size=6")})
    clients = [Client(pooler, "shop", number) for number in range(12)]
    host.eventually(lambda: sum(sharded.connections()) == 6 or any(client.errors for client in clients))
    finish(clients)
    assert sorted(sharded.connections()) == [0, 0, 6]
