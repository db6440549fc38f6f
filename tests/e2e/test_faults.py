"""PostgreSQL dies, comes back, is starting, is full. What was in flight fails once; all else goes on."""

import os
import re
import signal
import threading
import time

import psycopg
import pytest

import host
import postgres
import wire
from weir import Stopwatch

pytestmark = pytest.mark.every_driver


def load(pooler, clients):
    """Clients that ask all the time and count what they got, until their verdict is asked for; each failure is one lost request,
    then they come again. They are there when each has got its first answer."""
    workers = [Worker(pooler) for _ in range(clients)]
    host.eventually(lambda: all(worker.answers for worker in workers))
    return workers


class Worker(threading.Thread):
    """Asks for numbers and checks that each answer is its own."""

    def __init__(self, pooler):
        super().__init__(daemon=True)
        self.pooler, self.over = pooler, threading.Event()
        self.answers, self.failures, self.wrong, self.last = 0, [], [], 0.0
        self.start()

    def run(self):
        while not self.over.is_set():
            try:
                with psycopg.connect(**self.pooler.address(), autocommit=True) as client:
                    while not self.over.is_set():
                        number = self.answers
                        answer = client.execute(f"select {number} from pg_sleep(0.002)").fetchone()[0]
                        if answer != number:
                            self.wrong.append((number, answer))
                        self.answers += 1
                        self.last = time.monotonic()
            except psycopg.OperationalError as failure:
                self.failures.append(str(failure))
                time.sleep(0.05)


def all_get_answers_again(workers):
    """Each of them, from now on."""
    now = time.monotonic()
    host.eventually(lambda: all(worker.last > now for worker in workers), timeout=60)


def verdict(workers):
    for worker in workers:
        worker.over.set()
    for worker in workers:
        worker.join(60)
        assert not worker.is_alive(), "a client hangs"
    assert not [wrong for worker in workers for wrong in worker.wrong]
    return [failure for worker in workers for failure in worker.failures]


def test_kill_9_of_a_backend_ends_what_the_server_ends(weir, pg):
    """PostgreSQL takes all its backends down when one is killed; the pooler's idle clients stay."""
    pooler = weir(server_login_retry=1)
    client, idle = pooler.connect(), pooler.connect()
    idle.execute("select 1")
    client.execute("begin")
    pid = client.execute("select pg_backend_pid()").fetchone()[0]
    mark = pg.log_mark()
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(psycopg.OperationalError):
        client.execute("select 1")
    pg.wait_restarted(mark)
    host.eventually(pg.is_up)
    assert idle.execute("select 1").fetchone() == (1,)


def test_kill_9_of_a_backend_under_load(weir, pg):
    pooler = weir(server_login_retry=1, default_pool_size=5)
    workers = load(pooler, clients=15)
    victim = pg.value("select min(pid) from pg_stat_activity where usename = 'alice'")
    mark = pg.log_mark()
    os.kill(victim, signal.SIGKILL)
    pg.wait_restarted(mark)
    all_get_answers_again(workers)
    refused = re.compile("login|recovery|starting up|query_wait_timeout")  # who came while the server was not there
    in_flight = [failure for failure in verdict(workers) if not refused.search(failure)]
    assert len(in_flight) <= 2 * 5, in_flight  # five servers, and at most once more for a login that was under way


def test_kill_9_of_the_whole_server_and_a_restart_under_load(weir, pg):
    pooler = weir(server_login_retry=1, default_pool_size=5)
    workers = load(pooler, clients=15)
    pg.kill()
    pooler.wait_log("closing because: connect failed")
    pg.start()
    all_get_answers_again(workers)
    verdict(workers)


def test_idle_clients_outlive_the_server(weir, pg):
    pooler = weir(server_login_retry=1)
    clients = [pooler.connect() for _ in range(5)]
    for client in clients:
        client.execute("select 1")
    pg.kill()
    host.eventually(lambda: pooler.pool()["sv_idle"] == 0)
    pg.start()
    for client in clients:
        assert client.execute("select 1").fetchone() == (1,)


@pytest.mark.parametrize("mode", [signal.SIGINT, signal.SIGQUIT], ids=["fast", "immediate"])
def test_a_stop_under_load(weir, pg, mode):
    pooler = weir(server_login_retry=1, default_pool_size=5)
    workers = load(pooler, clients=10)
    pg.stop(mode)
    pg.start()
    all_get_answers_again(workers)
    verdict(workers)


@pytest.mark.weir_only  # PgBouncer adds one of its own
def test_one_error_and_no_second(weir, pg):
    """A client in the middle of a query hears of its server's end once."""
    pooler = weir()
    with wire.Raw(pooler.port).login() as raw:
        raw.send(wire.query("select pg_sleep(30)"))
        host.eventually(lambda: pg.count("state = 'active' and query = 'select pg_sleep(30)'") == 1)
        pg.query("select pg_terminate_backend(pid) from pg_stat_activity where usename = 'alice'")
        found = wire.errors(raw.read_to_end())
    assert [state for state, _ in found] == ["57P01"]


def test_a_terminated_idle_server_is_not_lent(weir, pg):
    pooler = weir(default_pool_size=3)
    clients = [pooler.connect() for _ in range(3)]
    for _ in range(10):
        for client in clients:
            client.execute("begin")
        for client in clients:
            client.execute("commit")
        pg.query("select pg_terminate_backend(pid) from pg_stat_activity where usename = 'alice'")
        host.eventually(lambda: pg.count() == 0)
        for client in clients:
            assert client.execute("select 1").fetchone() == (1,)


def test_a_server_that_is_down_and_then_there(weir, pg):
    """Who waits is served when the server comes, within query_wait_timeout."""
    pg.stop()
    pooler = weir(server_login_retry=1, query_wait_timeout=60)
    with wire.Raw(pooler.port) as raw:
        raw.send(wire.startup(user="alice", database="app"), wire.query("select 1"))
        pooler.wait_log("closing because: connect failed", count=2)
        pg.start()
        assert wire.kinds(raw.read_until("Z"))[-1] == "Z"
        assert wire.kinds(raw.read_until("Z")) == "TDCZ"


def test_a_server_that_is_down_for_good(weir, pg):
    pooler = weir(databases={"app": f"port={host.free_port()}"}, server_login_retry=1, query_wait_timeout=3)
    with Stopwatch() as watch:
        with pytest.raises(psycopg.OperationalError) as failure:
            pooler.value("select 1")
    assert watch.seconds < 13
    assert re.search("query_wait_timeout|refused|connect failed|server_login_retry|login fail", str(failure.value))
    pooler.wait_log("closing because: connect failed")


def test_a_starting_server_is_waited_for(weir, pg):
    """57P03 is "come again", not "go away": the waiting client is served when start-up is over."""
    pg.stop()
    pooler = weir(server_login_retry=1, query_wait_timeout=30)
    with wire.Raw(pooler.port) as raw:
        raw.send(wire.startup(user="alice", database="app"), wire.query("select 1"))
        pg.start(wait=False)
        assert wire.kinds(raw.read_until("Z"))[-1] == "Z"
        assert wire.kinds(raw.read_until("Z")) == "TDCZ"
    host.eventually(pg.is_up)


@pytest.mark.since("1.20")
def test_a_full_server_leaves_those_that_are_in_alone(weir, pg):
    """max_connections reached: what the pool has goes on serving all clients, and PostgreSQL is not stormed."""
    pg.stop()
    pg.start(max_connections="8")
    try:
        pooler = weir(default_pool_size=20, server_login_retry=1, query_wait_timeout=60)
        mark = pg.log_mark()
        with Stopwatch() as watch:
            workers = [Worker(pooler) for _ in range(20)]
            time.sleep(4)  # time enough for a storm
            host.eventually(lambda: sum(worker.answers for worker in workers) > 100)
            failures = verdict(workers)
        refusals = pg.log_since(mark).count("too many clients") + pg.log_since(mark).count("remaining connection slots")
        assert refusals < 10 * watch.seconds, "the server is stormed with logins"
        assert all("slots are reserved" in text or "too many clients" in text for text in failures), failures[:3]
    finally:
        pg.stop()
        pg.start()


def test_a_client_that_dies_anywhere_leaves_the_pool_full(weir, pg):
    """Clients cut off after each byte of a session; the one server serves the next client properly every time."""
    pooler = weir(default_pool_size=1)
    session = (
        wire.query("begin")
        + wire.parse("s", "select $1::int")
        + wire.bind("s", values=[b"7"])
        + wire.execute()
        + wire.SYNC
        + wire.query("commit")
    )
    for cut in range(0, len(session), 3):
        with wire.Raw(pooler.port).login() as raw:
            raw.send(session[:cut])
        with wire.Raw(pooler.port).login() as after:
            assert after.simple(f"select {cut}") == [[str(cut)]]
    host.eventually(lambda: pg.count() <= 1)


@pytest.mark.since("1.20")
def test_a_dropped_database(weir, pg):
    pg.query("drop database if exists doomed")
    pg.query("create database doomed")
    pooler = weir(databases={"doomed": "", "app": ""}, server_login_retry=1)
    assert pooler.value("select current_database()", database="doomed") == "doomed"
    pg.query("drop database doomed with (force)")
    with pytest.raises(psycopg.Error, match='database "doomed" does not exist'):
        pooler.value("select 1", database="doomed")
    assert pooler.value("select 1") == 1
    pg.query("create database doomed")
    host.eventually(lambda: answers(pooler, "doomed"))
    pg.query("drop database doomed with (force)")


def answers(pooler, database):
    try:
        return pooler.value("select true", database=database)
    except psycopg.Error:
        return False


def test_stopped_for_a_while(weir):
    """SIGSTOP and SIGCONT of the pooler: no client is closed but by a timer that was due."""
    pooler = weir()
    clients = [pooler.connect() for _ in range(5)]
    pooler.signal(signal.SIGSTOP)
    time.sleep(2)
    pooler.signal(signal.SIGCONT)
    for client in clients:
        assert client.execute("select 1").fetchone() == (1,)


def test_out_of_file_descriptors(weir, pg):
    """With no descriptor left the pooler pauses accepting; who is in goes on, and later ones get in when others leave."""
    pooler = weir.prepared(max_client_conn=500)
    pooler.start_with_descriptors(80)
    clients = []
    try:
        for _ in range(120):
            clients.append(wire.Raw(pooler.port, timeout=5).login())
    except (OSError, AssertionError, wire.Closed):
        pass
    assert 30 <= len(clients) < 120
    clients[0].socket.settimeout(30)
    assert clients[0].simple("select 1") == [["1"]]
    for client in clients[1:30]:
        client.socket.close()
    host.eventually(lambda: answers(pooler, "app"))


def test_postgres_versions_differ(servers):
    """The two legs of `every_version` really are two versions."""
    if postgres.programs("18") is None:
        pytest.skip("no PostgreSQL 18 on this machine")
    versions = {servers(version).value("show server_version_num") for version in ("system", "18")}
    assert "18" in {version[:2] for version in versions}
