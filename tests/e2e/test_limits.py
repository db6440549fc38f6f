"""Limits, counted where it matters: in PostgreSQL's own list of its connections. Never one too many, on one thread or on four."""

import threading
import time

import psycopg
import pytest

import conftest
import host
import wire

# Weir counts over all its threads; PgBouncer has one.
THREADS = [1] if conftest.PGBOUNCER else [1, 4]


@pytest.fixture(params=THREADS, ids=lambda count: f"threads={count}")
def threads(request):
    return {} if conftest.PGBOUNCER else {"threads": request.param}


class Census:
    """Watches pg_stat_activity from a thread of its own, on one connection, for the largest count it ever shows."""

    def __init__(self, pg, where="true"):
        self.statement = (
            "select count(*) from pg_stat_activity"
            f" where backend_type = 'client backend' and usename <> 'postgres' and {where}"
        )
        self.address = {"host": "127.0.0.1", "port": pg.port, "user": "postgres", "dbname": "postgres"}
        self.most, self.counts, self.over = 0, 0, threading.Event()

    def __enter__(self):
        self.thread = threading.Thread(target=self.watch, daemon=True)
        self.thread.start()
        return self

    def watch(self):
        with psycopg.connect(**self.address, autocommit=True) as connection:
            while not self.over.is_set():
                self.most = max(self.most, connection.execute(self.statement).fetchone()[0])
                self.counts += 1
                time.sleep(0.002)

    def __exit__(self, *failure):
        if failure == (None, None, None):
            counted = self.counts
            host.eventually(lambda: self.counts > max(10, counted + 1))  # what there is at the end is counted, too
        self.over.set()
        self.thread.join(30)


def crowd(pooler, count, rounds=5, until=lambda: True, **options):
    """So many clients, all asking at once, each for a moment of a server's time; as often as told, and on a machine that is
    slow to open servers until there are as many as there should be, for half a minute at most."""
    clients = [wire.Raw(pooler.port).login(**options) for _ in range(count)]
    deadline = time.monotonic() + 30
    while rounds > 0 or not (until() or time.monotonic() > deadline):
        rounds -= 1
        for client in clients:
            client.send(wire.query("select pg_sleep(0.02)"))
        for client in clients:
            assert wire.kinds(client.read_until("Z")) == "TDCZ"
    return clients


# --- pool_size ------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("size", [1, 3, 7])
def test_pool_size_is_never_passed(weir, pg, threads, size):
    pooler = weir(default_pool_size=size, **threads)
    with Census(pg) as census:
        crowd(pooler, 40, until=lambda: census.most >= size)
    assert census.most == size


def test_pool_size_of_a_database(weir, pg, threads):
    pooler = weir(databases={"app": "pool_size=2", "other": ""}, default_pool_size=4, **threads)
    with Census(pg, "datname = 'app'") as app, Census(pg, "datname = 'other'") as other:
        crowd(pooler, 12, until=lambda: app.most >= 2)
        crowd(pooler, 12, until=lambda: other.most >= 4, database="other")
    assert (app.most, other.most) == (2, 4)


@pytest.mark.since("1.23")
def test_pool_size_of_a_user(weir, pg, threads):
    pooler = weir(users={"bob": "pool_size=1"}, default_pool_size=3, **threads)
    with Census(pg, "usename = 'bob'") as census:
        crowd(pooler, 12, user="bob")
    assert census.most == 1


def test_each_pair_of_database_and_user_has_its_own_pool(weir, pg, threads):
    pooler = weir(default_pool_size=2, **threads)
    with Census(pg) as census:
        for pools, (database, user) in enumerate([("app", "alice"), ("app", "bob"), ("other", "alice")], start=1):
            crowd(pooler, 6, until=lambda most=2 * pools: census.most >= most, database=database, user=user)
    assert census.most == 6


def test_a_forced_user_is_one_pool_for_all(weir, pg, threads):
    pooler = weir(databases={"app": "user=carol pool_size=2"}, **threads)
    with Census(pg) as census:
        assert pooler.value("select current_user", user="bob") == "carol"
        crowd(pooler, 10, until=lambda: census.most >= 2, user="alice")
    assert census.most == 2


# --- min_pool_size --------------------------------------------------------------------------------------------
def test_min_pool_size_is_kept_up_once_a_client_came(weir, pg, threads):
    pooler = weir(min_pool_size=3, default_pool_size=5, **threads)
    client = pooler.connect()
    client.execute("select 1")
    host.eventually(lambda: pg.count() == 3)
    # A client whose server ends while Weir asks that what the session holds ends, too.
    host.eventually(lambda: (pooler.pool()["sv_active"], pooler.pool()["sv_login"]) == (0, 0))
    old = ", ".join(str(pid) for (pid,) in pg.query("select pid from pg_stat_activity where usename = 'alice'"))
    pg.query(f"select pg_terminate_backend(pid) from pg_stat_activity where pid in ({old})")
    host.eventually(lambda: (pg.count(f"pid in ({old})"), pg.count()) == (0, 3))


@pytest.mark.since("1.21")
def test_min_pool_size_of_a_forced_user_needs_no_client(weir, pg, threads):
    weir(databases={"app": "user=alice min_pool_size=4"}, default_pool_size=6, **threads)
    host.eventually(lambda: pg.count() == 4)


@pytest.mark.since("1.21")
def test_min_pool_size_is_nobodys_without_clients(weir, pg, threads):
    """An unused pool whose user is not the forced one is not filled, even while others open servers."""
    pooler = weir(default_pool_size=6, **threads)
    assert pooler.value("select 1") == 1
    pooler.databases["app"] = "user=bob min_pool_size=3"
    pooler.reload()
    host.eventually(lambda: (pg.count("usename = 'alice'"), pg.count("usename = 'bob'")) == (0, 3))


@pytest.mark.since("1.21")
def test_min_pool_size_never_passes_max_db_connections(weir, pg, threads):
    pooler = weir(databases={"app": "user=alice min_pool_size=6 max_db_connections=2"}, **threads)
    with Census(pg, "usename = 'alice'") as census:
        host.eventually(lambda: pg.count() == 2)
        # What fills another pool has looked at this one, too.
        pooler.databases["other"] = "user=bob min_pool_size=1"
        pooler.reload()
        host.eventually(lambda: pg.count("usename = 'bob'") == 1)
    assert census.most == 2


def test_what_min_pool_size_keeps_is_not_idle_for_too_long(weir, pg, threads):
    """Of many that have been idle for the same time only those too many go."""
    databases = {"app": "user=alice min_pool_size=2", "other": ""}
    pooler = weir(databases=databases, default_pool_size=6, server_idle_timeout=1, **threads)
    pids = servers_of_a_crowd(pooler, pg, 6)
    host.eventually(lambda: pg.count() == 2)
    # A server that has been used after them is too old: they would have been closed before it.
    assert pooler.value("select 1", database="other") == 1
    pooler.wait_log("closing because: server idle timeout", count=5)
    left = {row[0] for row in pg.query("select pid from pg_stat_activity where usename = 'alice'")}
    assert len(left) == 2 and left < pids
    idle = [line for line in pooler.log_text().splitlines() if "closing because: server idle timeout" in line]
    assert sum(" app/alice@" in line for line in idle) == 4


def servers_of_a_crowd(pooler, pg, count):
    """As many servers at once, all given back; their process ids."""
    clients = [wire.Raw(pooler.port).login() for _ in range(count)]
    for client in clients:
        client.simple("begin")
    pids = {row[0] for row in pg.query("select pid from pg_stat_activity where usename = 'alice'")}
    assert len(pids) == count
    for client in clients:
        client.simple("commit")
    return pids


# --- reserve_pool ---------------------------------------------------------------------------------------------
def test_the_reserve_is_for_those_who_waited_long(weir, pg, threads):
    pooler = weir(default_pool_size=2, reserve_pool_size=3, reserve_pool_timeout=1, **threads)
    clients = [wire.Raw(pooler.port).login() for _ in range(8)]
    asked = pg.value("select clock_timestamp()")
    with Census(pg) as census:
        for client in clients:
            client.send(wire.query("begin; select pg_sleep(2); commit"))
        for client in clients:
            client.read_until("Z")
    assert pg.count(f"backend_start < '{asked}'::timestamptz + interval '0.9 s'") <= 2
    assert census.most == 5
    assert len(pooler.wait_log("taking connection from reserve_pool", count=3)) == 3


@pytest.mark.parametrize("where", ["database", pytest.param("user", marks=pytest.mark.since("1.25"))])
def test_the_reserve_of_a_database_or_a_user(weir, pg, where):
    """reserve_pool_size of an entry counts for its pools alone."""
    options = {"databases": {"app": "reserve_pool_size=2", "other": ""}} if where == "database" else {"users": {"alice": "reserve_pool_size=2"}}
    pooler = weir(default_pool_size=1, reserve_pool_timeout=1, **options)
    here = [wire.Raw(pooler.port).login(database="app", user="alice") for _ in range(4)]
    elsewhere = [wire.Raw(pooler.port).login(database="other", user="bob") for _ in range(2)]
    with Census(pg, "usename = 'alice'") as alices, Census(pg, "usename = 'bob'") as bobs:
        for client in here + elsewhere:
            client.send(wire.query("begin; select pg_sleep(3); commit"))
        for client in here + elsewhere:
            client.read_until("Z")
    assert (alices.most, bobs.most) == (3, 1)


# --- max_db_connections, max_user_connections ------------------------------------------------------------------
@pytest.mark.parametrize("where", ["setting", "database"])
def test_max_db_connections_over_all_users(weir, pg, threads, where):
    limit = {"max_db_connections": 3} if where == "setting" else {"databases": {"app": "max_db_connections=3"}}
    pooler = weir(default_pool_size=5, **limit, **threads)
    with Census(pg) as census:
        for user in ("alice", "bob", "carol"):
            crowd(pooler, 8, rounds=2, until=lambda: census.most >= 3, user=user)
    assert census.most == 3


def test_max_db_connections_takes_an_idle_server_from_another_user(weir, pg, threads):
    pooler = weir(max_db_connections=1, default_pool_size=5, **threads)
    for user in ("alice", "bob", "alice", "carol"):
        assert pooler.value("select current_user", user=user) == user
        assert pg.count() == 1
    pooler.wait_log("closing because: evicted", count=3)


def test_max_user_connections_over_all_databases(weir, pg, threads):
    pooler = weir(max_user_connections=3, default_pool_size=5, **threads)
    with Census(pg) as census:
        for database in ("app", "other", "app"):
            crowd(pooler, 8, rounds=2, until=lambda: census.most >= 3, database=database)
    assert census.most == 3


def test_max_user_connections_of_one_user(weir, pg, threads):
    pooler = weir(users={"bob": "max_user_connections=1"}, default_pool_size=4, **threads)
    with Census(pg, "usename = 'bob'") as bob, Census(pg, "usename = 'alice'") as alice:
        crowd(pooler, 8, user="bob")
        crowd(pooler, 8, until=lambda: alice.most >= 4, user="alice")
    assert (bob.most, alice.most) == (1, 4)


# --- clients --------------------------------------------------------------------------------------------------
def test_max_client_conn(weir, threads):
    pooler = weir(max_client_conn=5, **threads)
    clients = [wire.Raw(pooler.port).login() for _ in range(5)]
    with pytest.raises(psycopg.OperationalError, match="no more connections allowed.*max_client_conn"):
        pooler.connect()
    # One leaves, one may come.
    clients.pop().socket.close()
    host.eventually(lambda: can_log_in(pooler))
    assert clients[0].simple("select 1") == [["1"]]


def test_max_client_conn_does_not_lock_the_admin_out(weir, threads):
    pooler = weir(max_client_conn=2, **threads)
    clients = [wire.Raw(pooler.port).login() for _ in range(2)]
    assert len(pooler.console("SHOW CLIENTS")) == len(clients) + 1


def test_no_client_at_all(weir):
    pooler = weir(max_client_conn=0)
    with pytest.raises(psycopg.OperationalError, match="no more connections allowed.*max_client_conn"):
        pooler.connect()


@pytest.mark.since("1.24")
@pytest.mark.parametrize("name", ["max_db_client_connections", "max_user_client_connections"])
def test_client_limits_of_databases_and_users(weir, threads, name):
    pooler = weir(**{name: 2}, **threads)
    clients = [wire.Raw(pooler.port).login() for _ in range(2)]
    with pytest.raises(psycopg.OperationalError, match=name):
        pooler.connect()
    clients.pop().socket.close()
    host.eventually(lambda: can_log_in(pooler))


@pytest.mark.parametrize(
    "entries", [{"databases": {"app": "max_db_client_connections=2"}}, {"users": {"alice": "max_user_client_connections=2"}}]
)
def test_client_limits_of_one_database_and_one_user(weir, entries):
    pooler = weir(**entries)
    clients = [wire.Raw(pooler.port).login() for _ in range(2)]
    with pytest.raises(psycopg.OperationalError, match="max_(db|user)_client_connections"):
        pooler.connect()
    clients.pop().socket.close()
    host.eventually(lambda: can_log_in(pooler))


def can_log_in(pooler):
    try:
        with psycopg.connect(**pooler.address(), autocommit=True) as connection:
            return connection.execute("select true").fetchone()[0]
    except psycopg.OperationalError:
        return False


# --- fairness -------------------------------------------------------------------------------------------------
def test_the_queue_is_first_come_first_served(weir):
    pooler = weir(default_pool_size=1)
    holder = wire.Raw(pooler.port).login()
    holder.simple("begin")
    clients = [wire.Raw(pooler.port).login() for _ in range(10)]
    for number, client in enumerate(clients):
        client.send(wire.query("select clock_timestamp()"))
        host.eventually(lambda: pooler.pool().get("cl_waiting") == number + 1)
    holder.simple("commit")
    served = [client.read_until("Z")[1].row()[0] for client in clients]
    assert served == sorted(served)
