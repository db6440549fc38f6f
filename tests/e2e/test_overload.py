"""`queue_limit` and `queue_target`: what clients get while more of them ask than can be served, on a real PostgreSQL."""

import contextlib
import pathlib
import threading
import time

import psycopg
import pytest

import host
import wire
from test_takeover import reboot

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


@contextlib.contextmanager
def full(pooler):
    """The pool is as full as `queue_limit = 1` lets it be; a client that speaks frames, whose requests are refused meanwhile."""
    with wire.Raw(pooler.port) as raw:
        raw.login()
        with busy(pooler):
            _, threads = waiting(pooler, 1)
            yield raw
        for thread in threads:
            thread.join(30)
        raw.send(wire.query("select 'served'"))
        assert "".join(reply.kind for reply in raw.read_until("Z")) == "TDCZ"


SYNC, FLUSH, COPY_DONE = wire.message(b"S"), wire.message(b"H"), wire.message(b"c")


@pytest.mark.parametrize(
    "request_bytes, answers",
    [
        (wire.query("copy t from stdin") + wire.copy_data(b"1\n") + COPY_DONE, "EZ"),
        (wire.query("copy t from stdin") + wire.copy_fail("no") + SYNC, "EZZ"),
        (wire.function_call(1, [b"1"]), "EZ"),
        (wire.parse("s", "select 1") + FLUSH * 500 + wire.query("skipped") + SYNC, "EZ"),
        (wire.parse("s", "select 1") + wire.describe(b"S", "s") + wire.bind("s") + wire.execute() + wire.close(b"S", "s") + SYNC, "EZ"),
        (wire.parse("", "select 1") + wire.bind() + wire.execute() + SYNC * 700, "E" + "Z" * 700),
        (wire.query(" " * (64 * 1024 - 6)), "EZ"),
    ],
    ids=["copy", "copy_fail", "function_call", "flushes", "named", "syncs", "long"],
)
def test_each_message_of_a_refused_request_is_answered_as_postgresql_would(weir, request_bytes, answers):
    pooler = weir(databases={"app": "pool_size=1"}, queue_limit=1)
    with full(pooler) as raw:
        for size in (len(request_bytes), 7_000, 1 if len(request_bytes) < 5_000 else 40_000):
            for at in range(0, len(request_bytes), size):
                raw.send(request_bytes[at : at + size])
            got = [raw.read() for _ in answers]
            assert "".join(reply.kind for reply in got) == answers
            assert all(reply.fields()["C"] == "53300" for reply in got if reply.kind == "E")
            assert raw.is_silent(0.1)


def test_a_name_whose_parse_was_refused_does_not_exist(weir):
    pooler = weir(databases={"app": "pool_size=1"}, queue_limit=1)
    with full(pooler) as raw:
        raw.send(wire.parse("s", "select 1"), SYNC)
        assert "".join(reply.kind for reply in raw.read_until("Z")) == "EZ"
        late = pooler.connect()
        with pytest.raises(psycopg.errors.TooManyConnections):
            late.execute("prepare p as select 1")
    with wire.Raw(pooler.port) as raw:
        raw.login()
        raw.send(wire.bind("s"), wire.execute(), SYNC)
        failed = raw.read_until("Z")
        assert [reply.fields()["C"] for reply in failed if reply.kind == "E"] == ["26000"]
    with pytest.raises(psycopg.errors.InvalidSqlStatementName):
        late.execute("execute p")


def memory_kb(pooler):
    return int(pathlib.Path(f"/proc/{pooler.process.pid}/status").read_text().split("VmRSS:")[1].split()[0])


def test_a_client_that_never_reads_is_not_read_for_ever(weir):
    """Its requests are refused until their errors are in the way; others go on, and it gets all of them once it reads."""
    pooler = weir(databases={"app": "pool_size=1"}, queue_limit=1)
    with full(pooler) as raw:
        before, one, sent = memory_kb(pooler), wire.query("select 1" + " " * 1_000), 0
        raw.socket.settimeout(3)
        with contextlib.suppress(TimeoutError):
            while sent < 200_000_000:
                sent += raw.socket.send(one[sent % len(one) :])
        assert sent < 200_000_000, "it was read all the time"
        assert memory_kb(pooler) - before < 16_000
        with pytest.raises(psycopg.errors.TooManyConnections):
            pooler.connect().execute("select 1")
        raw.socket.settimeout(30)
        rest = -sent % len(one)
        writer = threading.Thread(target=raw.send, args=(one[len(one) - rest :],))
        writer.start()
        for _ in range((sent + rest) // len(one)):
            assert (raw.read().kind, raw.read().kind) == ("E", "Z")
        writer.join(30)


def test_a_takeover_waits_for_the_end_of_a_refused_request(weir):
    pooler = weir(databases={"app": "pool_size=1"}, queue_limit=1)
    with full(pooler) as raw:
        raw.send(wire.parse("s", "select 1"))
        assert raw.read().kind == "E"
        old = reboot(pooler, wait=False)
        time.sleep(1)
        assert old.poll() is None
        raw.send(wire.bind("s"), wire.execute(), SYNC)
        assert raw.read().kind == "Z"
        assert old.wait(30) == 0
        assert raw.is_silent(0.1)
