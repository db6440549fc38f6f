"""Timeouts: what ends when, with which words. Nothing ends before its time. How soon after it is the machine's affair: PgBouncer
looks three times a second, and a dozen other tests want the same cores. Whoever must be in time himself has two seconds for it,
or says all at once."""

import contextlib
import socket
import struct
import time

import psycopg
import pytest

import host
import wire
from weir import Stopwatch

SLACK = 8


def fails_after(seconds, raw, text, *sent):
    """From when this is sent: the connection ends with exactly one error of this text, not before the time and not long after it."""
    with Stopwatch() as watch:
        raw.send(*sent)
        found = wire.errors(raw.read_to_end())
    assert [message for _, message in found] == [text]
    assert seconds - 0.1 <= watch.seconds <= seconds + SLACK


# --- clients that wait ----------------------------------------------------------------------------------------
def test_query_wait_timeout(weir):
    pooler = weir(default_pool_size=1, query_wait_timeout=2)
    holder = pooler.connect()
    holder.execute("begin")
    with wire.Raw(pooler.port).login() as raw:
        fails_after(2, raw, "query_wait_timeout", wire.query("select 1"))
    pooler.wait_log("closing because: query_wait_timeout")
    assert holder.execute("select 1").fetchone() == (1,)


def test_query_timeout_of_those_who_wait(weir):
    """The time in the queue is part of a query's; PgBouncer has a word of its own for who ran out of it there."""
    pooler = weir(default_pool_size=1, query_timeout=2)
    holder = pooler.connect()
    holder.execute("begin")
    with wire.Raw(pooler.port).login() as raw:
        fails_after(2, raw, "query_timeout", wire.query("select 1"))
    pooler.wait_log("closing because: query_timeout")
    assert holder.execute("select 1").fetchone() == (1,)


@pytest.mark.since("1.26")
@pytest.mark.parametrize("place", ["databases", "users"])
def test_query_wait_timeout_of_one_pool(weir, place):
    entry = {"databases": {"app": "query_wait_timeout=2"}, "users": {"alice": "query_wait_timeout=2"}}[place]
    pooler = weir(**{place: entry}, default_pool_size=1)
    pooler.connect().execute("begin")
    with wire.Raw(pooler.port).login() as raw:
        fails_after(2, raw, "query_wait_timeout", wire.query("select 1"))


@pytest.mark.weir_only  # PgBouncer does not read from a waiting client, and so does not see it go
def test_a_waiting_client_that_hangs_up_leaves_the_queue(weir):
    pooler = weir(default_pool_size=1)
    pooler.connect().execute("begin")
    with wire.Raw(pooler.port).login() as raw:
        raw.send(wire.query("select 1"))
        host.eventually(lambda: pooler.pool()["cl_waiting"] == 1)
    host.eventually(lambda: pooler.pool()["cl_waiting"] == 0)


@pytest.mark.since("1.25")
def test_query_wait_notify(weir):
    # By the default of 5 s the client would be closed before any notice.
    pooler = weir(default_pool_size=1, query_wait_notify=1, query_wait_timeout=60)
    holder = pooler.connect()
    holder.execute("begin")
    with wire.Raw(pooler.port).login() as raw:
        raw.send(wire.query("select 1"))
        notice = raw.read()
        assert notice.kind == "N"
        text = "No server connection available in postgres backend, client being queued"
        assert notice.fields()["M"] == text
        holder.execute("rollback")
        assert wire.kinds(raw.read_until("Z")) == "TDCZ"


# --- clients with a server ------------------------------------------------------------------------------------
def test_query_timeout(weir, pg):
    pooler = weir(query_timeout=1)
    with wire.Raw(pooler.port).login() as raw:
        fails_after(1, raw, "query timeout", wire.query("select pg_sleep(60)"))
    pooler.wait_log("closing because: query timeout")
    host.eventually(lambda: pg.count("state = 'active'") == 0)


@pytest.mark.parametrize("setting", ["query_timeout", "transaction_timeout", "client_idle_timeout"])
def test_a_client_that_stops_in_the_middle_of_a_message(weir, setting):
    """A request runs from its first byte on: half of one holds a server for no longer than a whole one."""
    pooler = weir(default_pool_size=1, **{setting: 4})
    with wire.Raw(pooler.port, timeout=60).login() as raw:
        raw.simple("drop table if exists half; create table half (number int)")
        raw.send(wire.query("copy half from stdin"))
        assert raw.read().kind == "G"
        raw.send(wire.message(b"d", b"bad\n"), wire.message(b"d", b"1\n" * 2000)[:1500])
        assert wire.errors(raw.read_until("Z"))[0][0] == "22P02"
        pooler.wait_log("closing because: (query timeout|transaction timeout|client_idle_timeout)")
        assert pooler.value("select 5") == 5


@pytest.mark.since("1.25")
def test_query_timeout_spares_those_who_only_stay_in_a_transaction(weir):
    pooler = weir(query_timeout=4)
    client = pooler.connect()
    client.execute("begin")
    client.execute("select 1")
    with pytest.raises(psycopg.Error, match="query timeout"):  # of another client: this one has waited for longer
        pooler.value("select pg_sleep(60)")
    client.execute("commit")


def test_idle_transaction_timeout(weir, pg):
    pooler = weir(idle_transaction_timeout=1)
    with wire.Raw(pooler.port).login() as raw:
        fails_after(1, raw, "idle transaction timeout", wire.query("begin"))
    pooler.wait_log("closing because: idle transaction timeout")
    host.eventually(lambda: pg.count("state = 'idle in transaction'") == 0)


def test_idle_transaction_timeout_spares_a_long_query(weir):
    pooler = weir(idle_transaction_timeout=1)
    with wire.Raw(pooler.port).login() as raw:
        raw.send(*(wire.query(statement) for statement in ("begin", "select pg_sleep(2)", "commit")))
        assert [wire.kinds(raw.read_until("Z")) for _ in range(3)] == ["CZ", "TDCZ", "CZ"]


@pytest.mark.since("1.25")
def test_transaction_timeout(weir):
    pooler = weir(transaction_timeout=1)
    client = pooler.connect()
    client.execute("begin")
    with pytest.raises(psycopg.Error, match="transaction timeout|server closed the connection"):
        for _ in range(10):
            client.execute("select pg_sleep(0.3)")


def test_client_idle_timeout(weir):
    pooler = weir(client_idle_timeout=1)
    with wire.Raw(pooler.port) as raw:
        fails_after(1, raw, "client_idle_timeout", wire.startup(user="alice", database="app"), wire.query("select 1"))
    pooler.wait_log("closing because: client_idle_timeout")


def test_client_idle_timeout_spares_those_who_work_or_wait(weir):
    pooler = weir(client_idle_timeout=1, default_pool_size=1)
    hello = wire.startup(user="alice", database="app")
    with wire.Raw(pooler.port) as one, wire.Raw(pooler.port) as two:
        one.send(hello, *(wire.query(statement) for statement in ("begin", "select pg_sleep(3)", "commit")))
        one.read_until("C")
        two.send(hello, wire.query("select 2"))
        assert [wire.kinds(one.read_until("Z")) for _ in range(3)] == ["Z", "TDCZ", "CZ"]
        two.read_until("Z")
        assert wire.kinds(two.read_until("Z")) == "TDCZ"


@pytest.mark.since("1.24")
@pytest.mark.parametrize(
    "setting, asked, text",
    [
        ("query_timeout", "select pg_sleep(30)", "query timeout"),
        ("idle_transaction_timeout", "begin", "idle transaction timeout"),
        pytest.param("transaction_timeout", "begin", "transaction timeout", marks=pytest.mark.since("1.25")),
        ("client_idle_timeout", "select 1", "client_idle_timeout"),
    ],
)
def test_timeouts_of_one_user(weir, setting, asked, text):
    """A [users] entry wins over the setting for all; a user without one keeps that."""
    pooler = weir(users={"alice": f"{setting}=1"}, **{setting: 60})
    with wire.Raw(pooler.port).login(user="bob") as spared, wire.Raw(pooler.port).login(user="alice") as raw:
        for one in (spared, raw):
            one.send(wire.query(asked))
        assert wire.errors(raw.read_to_end())[-1][1] == text
        assert [row["user"] for row in pooler.console("SHOW CLIENTS") if row["database"] == "app"] == ["bob"]
    pooler.wait_log(f"closing because: {text}")


# --- clients that do not log in -------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "sent",
    [b"", b"\0\0\0", pytest.param(wire.startup(user="alice", database="app")[:-3], marks=pytest.mark.since("1.20"))],
    ids=["nothing", "a length", "a part"],
)
def test_client_login_timeout(weir, sent):
    pooler = weir(client_login_timeout=1)
    with Stopwatch() as watch, wire.Raw(pooler.port) as raw:
        raw.send(sent)
        raw.read_to_end()
    assert 0.9 <= watch.seconds <= 1 + SLACK
    pooler.wait_log("closing because: client_login_timeout")


def test_client_login_timeout_before_the_password(weir):
    pooler = weir(client_login_timeout=1, auth_type="scram-sha-256", userlist={"alice": "secret"})
    with Stopwatch() as watch, wire.Raw(pooler.port) as raw:
        raw.send(wire.startup(user="alice", database="app"))
        assert raw.read().kind == "R"
        assert [text for _, text in wire.errors(raw.read_to_end())] == ["client_login_timeout"]
    assert 0.9 <= watch.seconds <= 1 + SLACK


# --- servers --------------------------------------------------------------------------------------------------
def test_server_idle_timeout(weir, pg):
    pooler = weir(server_idle_timeout=1)
    client = pooler.connect()
    client.execute("select 1")
    host.eventually(lambda: pg.count() == 0)
    pooler.wait_log("closing because: server idle timeout")
    assert client.execute("select 1").fetchone() == (1,)


def test_server_lifetime(weir, pg):
    pooler = weir(server_lifetime=1, default_pool_size=1)
    client = pooler.connect()
    first = client.execute("select pg_backend_pid()").fetchone()[0]
    host.eventually(lambda: pg.count(f"pid = {first}") == 0)
    pooler.wait_log("closing because: server lifetime over")
    assert client.execute("select pg_backend_pid()").fetchone()[0] != first


@pytest.mark.since("1.23")
def test_server_lifetime_of_a_database(weir, pg):
    """An entry's own lifetime wins: here it ends after a second, next door it does not."""
    pooler = weir(databases={"app": "server_lifetime=1", "other": ""}, default_pool_size=1)
    here, elsewhere = pooler.connect(), pooler.connect("other")
    pids = [client.execute("select pg_backend_pid()").fetchone()[0] for client in (here, elsewhere)]
    host.eventually(lambda: pg.count(f"pid = {pids[0]}") == 0)
    pooler.wait_log("closing because: server lifetime over")
    assert here.execute("select pg_backend_pid()").fetchone()[0] != pids[0]
    assert elsewhere.execute("select pg_backend_pid()").fetchone()[0] == pids[1]


@pytest.mark.parametrize("fast", [0, 1])
def test_server_fast_close(weir, fast):
    """In session mode a server that should go waits for its session's end, or with server_fast_close for its transaction's."""
    pooler = weir(pool_mode="session", server_fast_close=fast)
    client = pooler.connect()
    client.execute("begin")
    pooler.console("RECONNECT")
    client.execute("select 1")
    client.execute("commit")
    if fast:
        pooler.wait_log("closing because: database configuration changed")
        with pytest.raises(psycopg.OperationalError, match="database configuration changed"):
            client.execute("select 1")
    else:
        # A server that is idle is closed by the same command: the pooler has looked at both.
        assert pooler.value("select 1", user="bob") == 1
        pooler.console("RECONNECT")
        pooler.wait_log("closing because: database configuration changed")
        assert client.execute("select 1").fetchone() == (1,)


def test_server_lifetime_waits_for_the_transaction(weir):
    pooler = weir(server_lifetime=1)
    client = pooler.connect()
    client.execute("begin")
    first = client.execute("select pg_backend_pid()").fetchone()
    assert pooler.value("select 1", user="bob") == 1
    pooler.wait_log("closing because: server lifetime over")  # of the server that was opened later
    assert client.execute("select pg_backend_pid()").fetchone() == first
    client.execute("commit")


def test_a_lifetime_of_zero_is_one_use(weir):
    pooler = weir(server_lifetime=0, default_pool_size=1)
    client = pooler.connect()
    assert len({client.execute("select pg_backend_pid()").fetchone() for _ in range(3)}) == 3


class DeafServer:
    """Accepts connections and says nothing, or only `greeting`."""

    def __init__(self, greeting=b""):
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.socket.settimeout(0.05)
        self.greeting, self.accepted = greeting, []

    @property
    def port(self):
        return self.socket.getsockname()[1]

    def accept_all(self):
        """Accepts the connections made since, and returns the number of all."""
        try:
            while True:
                connection, _ = self.socket.accept()
                connection.sendall(self.greeting)
                self.accepted.append(connection)
        except TimeoutError:
            return len(self.accepted)


def test_server_connect_timeout(weir):
    deaf = DeafServer()
    pooler = weir(
        databases={"app": f"port={deaf.port}"}, server_connect_timeout=1, query_wait_timeout=60, server_login_retry=1
    )
    with wire.Raw(pooler.port) as raw:
        raw.send(wire.startup(user="alice", database="app"), wire.query("select 1"))
        pooler.wait_log("closing because: connect timeout", timeout=10)  # the default is 15 s
        host.eventually(lambda: deaf.accept_all() >= 2)  # it tries again
        pooler.reload(query_wait_timeout=1)
        assert wire.errors(raw.read_to_end())


def test_a_server_that_takes_no_connection_is_closed_as_one_that_cannot_be_connected(weir):
    """Its queue of connections is full, and the kernel leaves further ones without an answer."""
    with socket.socket() as server, contextlib.ExitStack() as fillers:
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        for _ in range(5):
            filler = fillers.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(server.getsockname())
        pooler = weir(databases={"app": f"port={server.getsockname()[1]}"}, server_connect_timeout=1, server_login_retry=1)
        with wire.Raw(pooler.port) as raw:
            raw.send(wire.startup(user="alice", database="app"))
            pooler.wait_log(r"S-.* closing because: connect failed \(age=\d+s\)")


@pytest.mark.since("1.20")
def test_server_login_retry_paces_the_attempts(weir, pg):
    """A server that refuses is asked again at the pace of server_login_retry, not in a loop."""
    refusal = wire.message(b"E", b"SFATAL\0VFATAL\0C57P03\0Mthe database system is starting up\0\0")
    server = DeafServer(greeting=refusal)
    pooler = weir(databases={"app": f"port={server.port}"}, server_login_retry=1, query_wait_timeout=30)
    with wire.Raw(pooler.port) as raw:
        raw.send(wire.startup(user="alice", database="app"), wire.query("select 1"))
        started = time.monotonic()
        # At the default of 15 s there are nine within the 30 s of the client.
        host.eventually(lambda: server.accept_all() >= 11)
        attempts, took = server.accept_all(), time.monotonic() - started
    # Weir begins with shorter pauses: 0.1, 0.2, 0.4, 0.8 s.
    assert attempts <= took + 5, pooler.log_text()


def test_server_check_query_after_the_delay(weir, pg):
    """A server that was idle for longer than server_check_delay is asked before it is lent."""
    pooler = weir(server_check_query="select 2", server_check_delay=1, default_pool_size=1)
    client = pooler.connect(user="logged")
    client.execute("select 1")
    mark = pg.log_mark()
    time.sleep(2)  # idle for longer than server_check_delay
    client.execute("select 1")
    assert pg.log_since(mark).count("LOG:  statement: select 2\n") == 1


def test_a_server_that_answers_its_check_with_an_error_is_alive(weir):
    pooler = weir(server_check_query="select 1/0", server_check_delay=0, default_pool_size=1)
    first = pooler.value("select pg_backend_pid()")
    assert [pooler.value("select pg_backend_pid()") for _ in range(3)] == [first] * 3
    pooler.wait_log("division by zero")


@pytest.mark.since("1.25")
@pytest.mark.parametrize("died", [False, True], ids=["alive", "dead"])
def test_the_default_check_is_an_empty_query(weir, pg, died):
    """Asked once of a server that was idle for long; a server that has gone meanwhile is not asked but replaced."""
    pooler = weir(server_check_delay=0, default_pool_size=1)
    client = pooler.connect(user="logged")
    client.execute("select 1")
    mark = pg.log_mark()
    if died:
        pg.query("select pg_terminate_backend(pid) from pg_stat_activity where usename = 'logged'")
        host.eventually(lambda: pg.count("usename = 'logged'") == 0)
        pooler.wait_log("closing because: .*idle server|closing because: server conn crashed")
    assert client.execute("select 3").fetchone() == (3,)
    host.eventually(lambda: "statement: select 3" in pg.log_since(mark))
    assert pg.log_since(mark).count(" LOG:  statement: \n") == (0 if died else 1)


def test_an_empty_check_query_checks_nothing(weir, pg):
    pooler = weir(server_check_query="", server_check_delay=0, default_pool_size=1)
    client = pooler.connect(user="logged")
    mark = pg.log_mark()
    for number in range(3):
        client.execute(f"select {number}")
    host.eventually(lambda: "statement: select 2" in pg.log_since(mark))
    assert " LOG:  statement: \n" not in pg.log_since(mark)


def test_the_length_of_a_keepalive_is_the_sockets(weir):
    """tcp_keepalive, tcp_keepidle and so on are accepted and do no harm."""
    pooler = weir(tcp_keepalive=1, tcp_keepidle=30, tcp_keepintvl=5, tcp_keepcnt=3, tcp_user_timeout=20000)
    assert pooler.value("select 1") == 1


def test_a_reset_by_the_peer_is_no_timeout(weir):
    pooler = weir()
    raw = wire.Raw(pooler.port).login()
    raw.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    raw.socket.close()
    assert pooler.value("select 1") == 1
