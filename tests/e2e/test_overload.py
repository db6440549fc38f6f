"""`queue_limit` and `queue_target`: what clients get while more of them ask than can be served, on a real PostgreSQL."""

import contextlib
import threading
import time

import psycopg
import pytest

import host

pytestmark = pytest.mark.weir_only

WHY = r"pool app/alice is overloaded: .*; try again in \d+ s"


@contextlib.contextmanager
def busy(pooler):
    """The pool's only server is in a transaction."""
    with contextlib.closing(pooler.connect(autocommit=False)) as holder:
        holder.execute("select 1")
        yield holder
        holder.rollback()


def waiting(pooler, count):
    """So many clients wait, each in a thread; the connections, and what ends the threads."""
    clients = [pooler.connect() for _ in range(count)]
    threads = [threading.Thread(target=client.execute, args=("select 2",)) for client in clients]
    for thread in threads:
        thread.start()
    host.eventually(lambda: pooler.pool()["cl_waiting"] == count)
    return clients, threads


@pytest.mark.every_version
@pytest.mark.parametrize("prepares", [None, 0])
def test_one_more_than_may_wait_is_refused_and_goes_on(weir, prepares):
    pooler = weir(databases={"app": "pool_size=1"}, queue_limit=2)
    late = pooler.connect(prepare_threshold=prepares)
    with busy(pooler):
        clients, threads = waiting(pooler, 2)
        for _ in range(3):
            with pytest.raises(psycopg.errors.TooManyConnections, match=WHY):
                late.execute("select %s::int", (3,))
        assert pooler.console("SHOW ERRORS")[0]["sqlstate"] == "53300"
    for thread in threads:
        thread.join(30)
    assert all(client.execute("select 1").fetchone() == (1,) for client in clients)
    assert late.execute("select %s::int", (3,)).fetchone() == (3,)


def test_a_pipeline_is_refused_and_its_client_goes_on(weir):
    pooler = weir(databases={"app": "pool_size=1"}, queue_limit=1)
    late = pooler.connect()
    with busy(pooler):
        _, threads = waiting(pooler, 1)
        with pytest.raises(psycopg.errors.TooManyConnections), late.pipeline() as pipeline:
            late.execute("select 1")
            pipeline.sync()
            late.execute("select 2")
        assert late.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
    for thread in threads:
        thread.join(30)
    assert late.execute("select 1").fetchone() == (1,)


def test_an_entry_has_its_own_and_reload_changes_it(weir):
    pooler = weir(databases={"app": "pool_size=1 queue_limit=1", "other": "pool_size=1"})
    late = pooler.connect()
    with busy(pooler):
        _, threads = waiting(pooler, 1)
        with pytest.raises(psycopg.errors.TooManyConnections, match=r"more than 1 clients wait \(queue_limit\)"):
            late.execute("select 1")
        pooler.databases["app"] = "pool_size=1 queue_target=0.05"
        pooler.reload()
        with pytest.raises(psycopg.errors.TooManyConnections, match=r"wait for more than 50 ms \(queue_target\)"):
            late.execute("select 1")
        pooler.databases["app"] = "pool_size=1"
        pooler.reload()
        thread = threading.Thread(target=late.execute, args=("select 1",))
        thread.start()
        threads.append(thread)
        time.sleep(0.7)
        assert thread.is_alive()
    for thread in threads:
        thread.join(30)


def test_those_who_wait_too_long_are_refused_and_others_are_served(weir):
    """Twenty clients that ask at once and again, of which two can be served in the time that is allowed."""
    pooler = weir(databases={"app": "pool_size=1"}, queue_target=0.1)
    ends, served, refused, broken = threading.Event(), [], [], []

    def ask():
        with contextlib.closing(pooler.connect()) as client:
            while not ends.is_set():
                try:
                    client.execute("select pg_sleep(0.03)")
                    served.append(1)
                except psycopg.errors.TooManyConnections:
                    refused.append(1)
                    time.sleep(0.05)
                except psycopg.Error as error:
                    broken.append(str(error))
                    return

    threads = [threading.Thread(target=ask) for _ in range(20)]
    for thread in threads:
        thread.start()
    host.eventually(lambda: len(served) >= 30 and len(refused) >= 30, timeout=60)
    ends.set()
    for thread in threads:
        thread.join(30)
    assert not broken
    assert pooler.value("select 1") == 1


def test_a_pause_refuses_nobody(weir):
    pooler = weir(databases={"app": "pool_size=1"}, queue_target=0.05)
    pooler.value("select 1")
    pooler.console("PAUSE app")
    clients, threads = waiting(pooler, 3)
    time.sleep(1)
    assert pooler.pool()["cl_waiting"] == 3
    pooler.console("RESUME app")
    for thread in threads:
        thread.join(30)
    assert all(client.execute("select 1").fetchone() == (1,) for client in clients)


def test_the_console_is_never_full(weir):
    pooler = weir(databases={"app": "pool_size=1"}, queue_limit=1, max_client_conn=4)
    late = pooler.connect()
    with busy(pooler):
        _, threads = waiting(pooler, 1)
        with pytest.raises(psycopg.errors.TooManyConnections):
            late.execute("select 1")
        assert pooler.pool()["cl_waiting"] == 1
    for thread in threads:
        thread.join(30)
