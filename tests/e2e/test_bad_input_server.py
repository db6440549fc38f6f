"""A server that breaks the protocol: its connection is closed, its client gets an error, and others go on."""

import struct

import psycopg
import pytest

import fake_server
import host
import wire
from fake_server import READY, error, one_row, parameter
from test_bad_input_login import resident_kib


@pytest.fixture
def fake():
    """A server that answers what it is asked by `bad[statement]`, and everything else properly."""
    bad = {}

    def answer(connection, statement):
        if statement in bad:
            connection.sendall(bad[statement])
        else:
            connection.sendall(one_row(statement))

    server = fake_server.FakeServer(answer)
    server.bad = bad
    yield server
    server.close()


@pytest.fixture
def pooler(weir, fake):
    return weir(databases={"app": f"port={fake.port}"}, default_pool_size=1, query_wait_timeout=30, server_login_retry=1,
                session_state="off")


def others_are_fine(pooler):
    with wire.Raw(pooler.port).login() as other:
        assert other.simple("fine") == [["fine"]]


def test_the_fake_server_itself(pooler):
    others_are_fine(pooler)
    others_are_fine(pooler)


@pytest.mark.parametrize(
    "answer",
    [
        wire.message(b"?", b"what"),
        wire.message(b"\0"),
        b"D" + struct.pack("!i", -1),
        b"D" + struct.pack("!i", 3),
        wire.message(b"Q", b"select 1\0"),
        wire.message(b"R", b"\0\0\0\3"),
        wire.message(b"Z", b"?"),
        wire.message(b"Z", b""),
    ],
    ids=["type", "nul", "negative", "short", "frontend", "login", "bad ready", "empty ready"],
)
@pytest.mark.weir_only
def test_a_broken_answer_ends_server_and_client(pooler, fake, answer):
    fake.bad["break it"] = answer
    with wire.Raw(pooler.port).login() as raw:
        raw.send(wire.query("break it"))
        assert all(state[:2] == "08" for state, _ in wire.errors(raw.read_to_end()))
    others_are_fine(pooler)
    assert len(fake.connections) == 2


def test_a_huge_declared_length_is_not_allocated(pooler, fake):
    fake.bad["huge"] = b"D" + struct.pack("!i", 2**31 - 1) + b"beginning"
    with wire.Raw(pooler.port).login() as raw:
        before = resident_kib(pooler)
        raw.send(wire.query("huge"))
        assert raw.socket.recv(1)  # the beginning, or an error: the pooler has read the length
        assert resident_kib(pooler) - before < 10_000
    others_are_fine(pooler)


@pytest.mark.parametrize(
    "answer",
    [
        error("no code") + READY,
        wire.message(b"E", b"\0") + READY,
        wire.message(b"E", b"") + READY,
        wire.message(b"E", b"SERROR") + READY,
    ],
    ids=["no code", "no fields", "no bytes", "no end"],
)
def test_an_error_without_its_fields(pooler, fake, answer):
    fake.bad["fail"] = answer
    with wire.Raw(pooler.port).login() as raw:
        raw.send(wire.query("fail"), wire.TERMINATE)
        raw.read_to_end()
    others_are_fine(pooler)


@pytest.mark.since("1.26")
def test_an_error_at_login_without_its_fields(weir):
    for greeting in (wire.message(b"E", b"\0"), wire.message(b"E", b""), error("no code")):
        server = fake_server.FakeServer(lambda connection, statement: None, greeting=greeting)
        pooler = weir(databases={"app": f"port={server.port}"}, query_wait_timeout=2, server_login_retry=1)
        with pytest.raises(psycopg.OperationalError):
            pooler.value("select 1")
        assert pooler.is_running()
        server.close()


@pytest.mark.weir_only
def test_more_readies_than_requests(pooler, fake):
    fake.bad["twice"] = one_row("first") + READY
    with wire.Raw(pooler.port).login() as raw:
        raw.send(wire.query("twice"))
        raw.read_until("Z")
    others_are_fine(pooler)
    others_are_fine(pooler)


@pytest.mark.weir_only
@pytest.mark.parametrize("surprise", [one_row("stray"), b"\0\0", READY, error("out of the blue", C="57P01", S="FATAL")], ids=range(4))
def test_bytes_on_an_idle_connection(pooler, fake, surprise):
    """An unrequested message reaches no client: the server is not used again."""
    others_are_fine(pooler)
    fake.connections[0].sendall(surprise)
    host.eventually(lambda: not pooler.console("SHOW SERVERS"))
    others_are_fine(pooler)
    assert len(fake.connections) == 2


def test_notices_and_parameters_on_an_idle_connection_are_fine(pooler, fake):
    others_are_fine(pooler)
    fake.connections[0].sendall(parameter("application_name", "renamed") + wire.message(b"N", b"SNOTICE\0Mhello\0\0"))
    pooler.console("SHOW VERSION")  # one thread reads in order: the messages are read before this
    others_are_fine(pooler)


def test_floods_of_parameters(pooler, fake):
    fake.bad["flood"] = b"".join(parameter(f"name{number}", "x" * 50) for number in range(50_000)) + one_row("end")
    with wire.Raw(pooler.port).login() as raw:
        before = resident_kib(pooler)
        replies = raw.ask(wire.query("flood"))
        assert len(replies) == 50_000 + 4
        assert resident_kib(pooler) - before < 10_000
    others_are_fine(pooler)


def test_a_server_that_closes_in_the_middle_of_a_row(weir):
    def answer(connection, statement):
        if statement == "die":
            connection.sendall(one_row("x" * 1000)[:300])
            raise EOFError
        connection.sendall(one_row(statement))

    server = fake_server.FakeServer(answer)
    pooler = weir(databases={"app": f"port={server.port}"}, default_pool_size=1)
    with wire.Raw(pooler.port).login() as raw:
        raw.send(wire.query("die"))
        raw.socket.settimeout(10)
        data = b""
        while more := raw.socket.recv(65536):
            data += more
    assert data.count(b"SFATAL") <= 1
    others_are_fine(pooler)
    server.close()


class ScramServer(fake_server.FakeServer):
    """Asks for SCRAM, says this server-first-message with the client's nonce in it, and no more."""

    def __init__(self, first):
        self.first = first
        super().__init__(None)

    def _serve(self, connection):
        self.connections.append(connection)
        (length,) = struct.unpack("!i", connection.recv(4))
        connection.recv(length - 4)
        connection.sendall(wire.message(b"R", b"\0\0\0\x0aSCRAM-SHA-256\0\0"))
        _, _, nonce = connection.recv(4096).partition(b"r=")
        if nonce:  # else the pooler has ended meanwhile
            connection.sendall(wire.message(b"R", b"\0\0\0\x0b" + self.first % nonce))
            connection.recv(4096)
        connection.close()


@pytest.mark.weir_only
@pytest.mark.parametrize(
    "first",
    [
        *(b"r=%sserver,s=c2FsdHNhbHQ=,i=" + iterations for iterations in (b"0", b"2000000000", b"-1", b"x")),
        b"r=%s" + b"n" * 60_000 + b",s=c2FsdHNhbHQ=,i=4096",
        b"r=%s" + b"n" * 200_000 + b",s=c2FsdHNhbHQ=,i=4096",
        b"r=%sserver,s=" + b"c2Fs" * 15_000 + b",i=4096",
    ],
    ids=["no rounds", "many rounds", "negative", "no number", "long nonce", "longer nonce", "long salt"],
)
def test_a_server_that_asks_for_absurd_work(weir, first):
    """SCRAM iterations above a million, or none, are refused, not computed; a long nonce overflowed PgBouncer (CVE-2026-6665)."""
    server = ScramServer(first)
    pooler = weir(
        databases={"app": f"port={server.port} user=alice password=p", "other": ""},
        query_wait_timeout=15,
        server_login_retry=1,
    )
    with pytest.raises(psycopg.OperationalError):
        pooler.value("select 1")
    assert pooler.value("select 1", database="other") == 1
    server.close()


def test_servers_come_back(pooler, fake):
    """After all the trouble the pool is as it was."""
    others_are_fine(pooler)
    fake.drop(0)
    host.eventually(lambda: pooler.pool()["sv_idle"] == 0)
    others_are_fine(pooler)

# --- without end ------------------------------------------------------------------------------------------------
@pytest.mark.weir_only
@pytest.mark.parametrize("chatter", ["parameters", "notices"])
def test_a_login_without_end_costs_others_nothing(weir, chatter):
    """A server lets Weir in and then says for ever what it is like: its connection is closed soon, and little is kept."""
    notice = b"N" + error("still here")[1:]
    said = b"".join(parameter(f"p{number}", "x" * 40) if chatter == "parameters" else notice for number in range(500_000))
    bad = fake_server.FakeServer(None, wire.message(b"R", b"\0\0\0\0") + said)
    good = fake_server.FakeServer(lambda connection, statement: connection.sendall(one_row(statement)))
    try:
        databases = {"app": f"port={good.port}", "bad": f"port={bad.port}"}
        pooler = weir(databases=databases, threads=1, server_login_retry=60)
        with wire.Raw(pooler.port).login() as other, wire.Raw(pooler.port) as waiting:
            before = resident_kib(pooler)
            waiting.send(wire.startup(user="alice", database="bad"))
            pooler.wait_log("server sent too much before it was ready")
            assert other.simple("fine") == [["fine"]]
            assert resident_kib(pooler) - before < 10_000
    finally:
        bad.close()
        good.close()
