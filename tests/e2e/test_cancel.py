"""Cancel: it reaches the query that is meant, and never another client's.
Holds I5 of ARCHITECTURE.md."""

import concurrent.futures
import random
import threading
import time

import pytest

import host
import wire
from running import SLEEP, Latch, cancel_by_psycopg, wait_until_runs


def cancel(pooler, raw):
    """The cancel request of this client, on a connection of its own; waits until the pooler has closed it."""
    with wire.Raw(pooler.port) as request:
        request.send(wire.cancel(raw.pid, raw.secret))
        assert request.read_to_end() == []


def test_a_cancel_ends_the_query(weir, pg):
    client = weir().connect()
    cancel_by_psycopg(pg, client)
    assert client.execute("select 1").fetchone() == (1,)


def test_a_cancel_in_a_transaction(weir, pg):
    pooler = weir(default_pool_size=1)
    with wire.Raw(pooler.port).login() as raw:
        raw.simple("begin")
        raw.send(wire.query(SLEEP))
        wait_until_runs(pg)
        cancel(pooler, raw)
        assert wire.errors(raw.read_until("Z"))[0][0] == "57014"
        raw.simple("rollback")


def test_a_cancel_of_an_idle_client_does_nothing(weir, pg):
    pooler = weir(default_pool_size=1)
    with wire.Raw(pooler.port).login() as idle, wire.Raw(pooler.port).login() as busy, Latch(pg) as latch:
        idle.simple("select 1")
        busy.send(wire.query(latch.QUERY))
        latch.wait_for()
        cancel(pooler, idle)
        latch.open()
        assert wire.kinds(busy.read_until("Z")) == "TDCZ"


def test_a_cancel_of_a_waiting_client_hurts_nobody_who_has_a_server(weir):
    pooler = weir(default_pool_size=1)
    holder = pooler.connect()
    holder.execute("begin")
    with wire.Raw(pooler.port).login() as waiting:
        waiting.send(wire.query("select 1"))
        host.eventually(lambda: pooler.pool()["cl_waiting"] == 1)
        cancel(pooler, waiting)
        assert holder.execute("select 1").fetchone() == (1,)
        holder.execute("commit")
        # It came too early to meet a query, or took the wait itself: both are a cancel.
        replies = waiting.read_until("Z")
        assert wire.kinds(replies) == "TDCZ" or wire.errors(replies)[0][0] == "57014"


@pytest.mark.weir_only
def test_a_cancel_behind_settings_that_go_in_front_of_the_query(weir, pg):
    """PostgreSQL answers them with the query, which here ends by the cancel alone."""
    pooler = weir(default_pool_size=1, session_state="virtual")
    with wire.Raw(pooler.port).login(application_name="one") as one, wire.Raw(pooler.port).login(application_name="other") as other:
        for raw in (one, other, one, other):
            assert raw.simple("show application_name") == [["one" if raw is one else "other"]]
        one.send(wire.query(SLEEP))
        wait_until_runs(pg)
        cancel(pooler, one)
        assert wire.errors(one.read_until("Z"))[0][0] == "57014"
        assert one.simple("show application_name") == [["one"]]
        assert other.simple("show application_name") == [["other"]]


@pytest.mark.weir_only
def test_a_cancel_behind_a_begin_that_goes_in_front_of_the_query(weir, pg):
    pooler = weir(default_pool_size=1, deferred_begin=1)
    with wire.Raw(pooler.port).login() as raw:
        raw.simple("begin")
        raw.send(wire.query(SLEEP))
        wait_until_runs(pg)
        cancel(pooler, raw)
        replies = raw.read_until("Z")
        assert wire.errors(replies)[0][0] == "57014"
        assert replies[-1].body == b"E", "the transaction has begun, and has failed"
        raw.simple("rollback")


def test_a_cancel_over_the_unix_socket(weir, pg):
    pooler = weir()
    with wire.Raw(pooler.port).login() as raw:
        raw.send(wire.query(SLEEP))
        wait_until_runs(pg)
        with wire.Raw(pooler.port, path=pooler.socket_path) as request:
            request.send(wire.cancel(raw.pid, raw.secret))
            request.read_to_end()
        assert wire.errors(raw.read_until("Z"))[0][0] == "57014"


def test_a_cancel_gets_through_a_full_pool(weir, pg):
    pooler = weir(default_pool_size=2, max_db_connections=2)
    clients = [wire.Raw(pooler.port).login() for _ in range(2)]
    for client in clients:
        client.send(wire.query(SLEEP))
    wait_until_runs(pg, 2)
    for client in clients:
        cancel(pooler, client)
        assert wire.errors(client.read_until("Z"))[0][0] == "57014"


@pytest.mark.weir_only
def test_cancels_get_through_where_the_reserve_is_in_use(weir, pg):
    pooler = weir(default_pool_size=1, reserve_pool_size=2, reserve_pool_timeout=1, threads=1)
    clients = [wire.Raw(pooler.port).login() for _ in range(3)]
    for client in clients:
        client.send(wire.query(SLEEP))
    wait_until_runs(pg, 3)
    for client in clients:
        cancel(pooler, client)
        assert wire.errors(client.read_until("Z"))[0][0] == "57014"


def test_a_wrong_key_does_nothing(weir, pg):
    pooler = weir()
    with wire.Raw(pooler.port).login() as raw, Latch(pg) as latch:
        raw.send(wire.query(latch.QUERY))
        latch.wait_for()
        secret = bytes([raw.secret[0] ^ 1]) + raw.secret[1:]
        with wire.Raw(pooler.port) as request:
            request.send(wire.cancel(raw.pid, secret))
            request.read_to_end()
        latch.open()
        assert wire.kinds(raw.read_until("Z")) == "TDCZ"


def test_keys_differ_and_are_not_the_servers(weir, pg):
    pooler = weir()
    clients = [wire.Raw(pooler.port).login() for _ in range(50)]
    assert len({(client.pid, client.secret) for client in clients}) == 50
    assert len({client.secret for client in clients}) == 50


@pytest.mark.weir_only
def test_process_ids_are_positive_and_none_is_given_again(weir):
    pooler = weir()
    pids = []
    for _ in range(50):
        with wire.Raw(pooler.port).login() as raw:
            pids.append(raw.pid)
        with wire.Raw(pooler.port).login(user="admin", database="pgbouncer") as raw:
            pids.append(raw.pid)
    assert len(set(pids)) == len(pids)
    assert all(0 < pid < 2**31 for pid in pids)
    steps = [abs(two - one) for one, two in zip(pids, pids[1:], strict=False)]
    assert min(steps) > 1000, "one can be told from the one before"


@pytest.mark.weir_only
def test_who_speaks_protocol_3_2_gets_a_long_secret(weir, pg):
    pooler = weir(default_pool_size=1)
    with wire.Raw(pooler.port).login(version=wire.V3_2) as raw, Latch(pg) as latch:
        assert raw.negotiated is None and len(raw.secret) == 32
        raw.send(wire.query(latch.QUERY))
        latch.wait_for()
        for wrong in (raw.secret[:4], raw.secret[:-1] + bytes([raw.secret[-1] ^ 1]), raw.secret + b"x"):
            with wire.Raw(pooler.port) as request:
                request.send(wire.cancel(raw.pid, wrong))
                assert request.read_to_end() == []
        latch.open()
        assert wire.kinds(raw.read_until("Z")) == "TDCZ"
        raw.send(wire.query(SLEEP))
        wait_until_runs(pg)
        cancel(pooler, raw)
        assert wire.errors(raw.read_until("Z"))[0][0] == "57014"


@pytest.mark.weir_only
def test_cancels_reach_clients_of_every_thread(weir, pg):
    pooler = weir(threads=4, spread_busy_percent=1, spread_min_servers=1)
    clients = [wire.Raw(pooler.port).login(version=version) for version in (wire.V3_0, wire.V3_2) * 6]
    for raw in clients:
        raw.send(wire.query(SLEEP))
    wait_until_runs(pg, len(clients))
    for raw in clients:
        cancel(pooler, raw)
        assert wire.errors(raw.read_until("Z"))[0][0] == "57014"
        raw.socket.close()


@pytest.mark.since("1.19")
def test_a_hundred_cancels_at_once_hit_nobody_else(weir):
    """One half cancels itself all the time, close to the end of its queries; the other half must never notice."""
    pooler = weir(default_pool_size=25, max_client_conn=1000)
    all_are_in = threading.Barrier(130)

    def victim(seed):
        dice, cancelled = random.Random(seed), 0
        with wire.Raw(pooler.port).login() as raw:
            all_are_in.wait(60)
            over = time.monotonic() + 4
            while time.monotonic() < over:
                raw.send(wire.query("select pg_sleep(0.03)"))
                time.sleep(dice.uniform(0, 0.25))  # before its turn, during the query, after its end
                cancel(pooler, raw)
                found = wire.errors(raw.read_until("Z"))
                assert all(state == "57014" for state, _ in found)
                cancelled += len(found)
        return cancelled

    def bystander(number):
        answers = 0
        with wire.Raw(pooler.port).login() as raw:
            all_are_in.wait(60)
            over = time.monotonic() + 4
            while time.monotonic() < over:
                assert raw.simple(f"select {number} from pg_sleep(0.005)") == [[str(number)]]
                answers += 1
        return answers

    with concurrent.futures.ThreadPoolExecutor(150) as workers:
        victims = [workers.submit(victim, seed) for seed in range(100)]
        bystanders = [workers.submit(bystander, number) for number in range(30)]
        assert all(one.result() > 0 for one in bystanders)
        assert sum(one.result() for one in victims) > 0


@pytest.mark.since("1.19")
def test_many_cancel_requests_for_one_query_all_end(weir, pg):
    pooler = weir(default_pool_size=1)
    with wire.Raw(pooler.port).login() as raw:
        raw.send(wire.query(SLEEP))
        wait_until_runs(pg)
        requests = [wire.Raw(pooler.port) for _ in range(20)]
        for request in requests:
            request.send(wire.cancel(raw.pid, raw.secret))
        for request in requests:
            request.read_to_end()
        raw.read_until("Z")
    assert pooler.value("select 1") == 1
