"""COPY both ways, small and large, ended well and badly. On both PostgreSQL versions."""

import hashlib
import subprocess
import time

import psycopg
import pytest

import fake_server
import wire

pytestmark = pytest.mark.every_version

LINE = b"x" * 999 + b"\n"
LINES = 50_000  # 50 MB


@pytest.fixture
def client(weir):
    return weir(default_pool_size=1).connect()


def test_copy_out(client):
    with client.cursor().copy("copy (select generate_series(1, 3)) to stdout") as copy:
        assert b"".join(copy) == b"1\n2\n3\n"


def test_copy_in_is_there_for_the_next_client(weir):
    pooler = weir()
    one = pooler.connect()
    one.execute("drop table if exists filled; create table filled (number int, word text)")
    with one.cursor().copy("copy filled from stdin") as copy:
        for number in range(1000):
            copy.write_row((number, f"word {number}"))
    two = pooler.connect()
    assert two.execute("select count(*), max(word) from filled").fetchone() == (1000, "word 999")


def test_50_megabytes_out(client):
    digest, size = hashlib.sha256(), 0
    with client.cursor().copy(f"copy (select repeat('x', 999) from generate_series(1, {LINES})) to stdout") as copy:
        for block in copy:
            digest.update(block)
            size += len(block)
    assert size == LINES * len(LINE)
    assert digest.hexdigest() == hashlib.sha256(LINE * LINES).hexdigest()
    assert client.execute("select 1").fetchone() == (1,)


def test_50_megabytes_in(client):
    with client.transaction(force_rollback=True):
        client.execute("create temp table sink (line text) on commit drop")
        with client.cursor().copy("copy sink from stdin") as copy:
            for _ in range(LINES // 100):
                copy.write(LINE * 100)
        assert client.execute("select count(*), sum(length(line)) from sink").fetchone() == (LINES, LINES * 999)


def test_a_copy_that_the_client_gives_up(client):
    client.execute("drop table if exists given_up; create table given_up (number int)")
    with pytest.raises(RuntimeError):
        with client.cursor().copy("copy given_up from stdin") as copy:
            copy.write(b"1\n")
            raise RuntimeError("changed my mind")
    assert client.execute("select count(*) from given_up").fetchone() == (0,)


def test_a_copy_that_the_server_refuses(client):
    client.execute("drop table if exists refused; create table refused (number int)")
    with pytest.raises(psycopg.errors.InvalidTextRepresentation):
        with client.cursor().copy("copy refused from stdin") as copy:
            for _ in range(2000):
                copy.write(b"not a number\n" * 100)
    assert client.execute("select count(*) from refused").fetchone() == (0,)


@pytest.mark.since("1.26")
@pytest.mark.parametrize("waits", [False, True], ids=["at once", "behind the answer"])
def test_copy_data_after_the_error_does_not_hold_the_server(weir, waits):
    """The server says no at once; the client's CopyData and CopyDone come later and must not keep the only server."""
    pooler = weir(default_pool_size=1)
    with wire.Raw(pooler.port).login() as raw:
        raw.simple("drop table if exists late; create table late (number int)")
        raw.send(wire.query("copy late from stdin"))
        assert raw.read().kind == "G"
        raw.send(wire.message(b"d", b"bad\n"), wire.message(b"d", b"1\n" * 1000))
        replies = raw.read_until("Z") if waits else []
        raw.send(wire.message(b"c"))
        replies = replies or raw.read_until("Z")
        assert wire.errors(replies)[0][0] == "22P02"
        # Another client gets the server.
        assert pooler.value("select 5") == 5
        # Outside COPY such messages are ignored, as PostgreSQL does it.
        raw.send(wire.message(b"d", b"2\n"), wire.message(b"c"))
        assert pooler.value("select 5") == 5
        assert raw.simple("select 6") == [["6"]]


def test_a_copy_that_fails_in_the_middle_of_a_message_frees_its_server(weir):
    """The error arrives while half of a CopyData is on its way: the server is free as soon as the rest has come."""
    pooler = weir(default_pool_size=1)
    with wire.Raw(pooler.port).login() as raw:
        raw.simple("drop table if exists half; create table half (number int)")
        raw.send(wire.query("copy half from stdin"))
        assert raw.read().kind == "G"
        data = wire.message(b"d", b"1\n" * 2000)
        raw.send(wire.message(b"d", b"bad\n"), data[:1500])
        assert wire.errors(raw.read_until("Z"))[0][0] == "22P02"
        raw.send(data[1500:])
        assert pooler.value("select 5") == 5
        raw.send(wire.message(b"c"))
        assert raw.simple("select 6") == [["6"]]


def test_copy_data_outside_of_a_copy_holds_no_server(weir):
    pooler = weir(default_pool_size=1)
    with wire.Raw(pooler.port).login() as raw:
        data = wire.message(b"d", b"x" * 300_000)
        raw.send(data[:150_000])
        assert pooler.value("select 5") == 5
        raw.send(data[150_000:])
        assert raw.simple("select 6") == [["6"]]


def test_psql_whose_copy_failed_holds_no_server(weir, tmp_path):
    """psql sends much of its file before it sees the error, and then waits at its prompt."""
    pooler = weir(default_pool_size=1)
    pooler.connect().execute("drop table if exists by_file; create table by_file (number int)")
    rows = tmp_path / "rows"
    rows.write_text("1\nnot a number\n" + "2\n" * 400_000)
    command = [pooler.postgres.bindir / "psql", "-X", "-A", "-t", pooler.uri()]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
    with subprocess.Popen(command, **pipes) as psql:
        psql.stdin.write(f"\\copy by_file from '{rows}'\n\\echo at the prompt\n")
        psql.stdin.flush()
        assert psql.stdout.readline() == "at the prompt\n"
        assert pooler.value("select 5") == 5
        psql.stdin.close()


def test_the_end_of_a_copy_between_its_error_and_ready(weir):
    """The client ends the copy before it hears of the error, and the server has not said yet that it is ready."""
    def refuse(connection, statement):
        if not statement.startswith("copy"):
            return connection.sendall(fake_server.one_row(statement))
        connection.sendall(wire.message(b"G", b"\0\0\0"))
        connection.sendall(fake_server.error("no", C="22P02"))
        while not connection.recv(4096).endswith(wire.message(b"c")):
            pass
        connection.sendall(fake_server.READY)

    server = fake_server.FakeServer(refuse)
    pooler = weir(databases={"app": f"port={server.port}"}, default_pool_size=1, session_state="off")
    with wire.Raw(pooler.port).login() as raw, wire.Raw(pooler.port).login() as other:
        raw.send(wire.query("copy it from stdin"))
        raw.read_until("E")
        raw.send(wire.message(b"d", b"1\n"), wire.message(b"c"))
        assert wire.kinds(raw.read_until("Z")) == "Z"
        assert other.simple("mine") == [["mine"]]
        assert raw.simple("ours") == [["ours"]]
    server.close()


def extended(statement, name=""):
    """A COPY by the extended protocol, under a name or none; libpq sends its Sync at once, and PostgreSQL ignores it."""
    parse = wire.parse(name, statement)
    run = wire.bind(name) + wire.execute() + wire.SYNC
    return parse, run


@pytest.mark.parametrize("name", ["", pytest.param("named", marks=pytest.mark.since("1.22"))])
@pytest.mark.since("1.22")
def test_copy_by_the_extended_protocol(weir, name):
    pooler = weir(default_pool_size=1)
    with wire.Raw(pooler.port).login() as raw:
        raw.simple("drop table if exists extended; create table extended (number int)")
        for turn in range(3):
            parse, run = extended("copy extended from stdin", name and f"{name} in")
            first = parse if turn == 0 or not name else b""
            raw.send(first, run)
            assert wire.kinds(raw.read_until("G")) == ("12G" if first else "2G")
            raw.send(wire.message(b"d", b"1\n2\n"), wire.message(b"c"), wire.SYNC)
            assert wire.kinds(raw.read_until("Z")) == "CZ"
            parse, run = extended("copy extended to stdout", name and f"{name} out")
            first = parse if turn == 0 or not name else b""
            lines = "d" * 2 * (turn + 1)
            assert wire.kinds(raw.ask(first, run)) == ("12H" if first else "2H") + lines + "cCZ"
        assert pooler.value("select count(*) from extended") == 6


@pytest.mark.weir_only  # PgBouncer does not know which Sync PostgreSQL ignores
@pytest.mark.parametrize("how", ["simple", "extended"])
@pytest.mark.parametrize("line, answer", [(b"bad\n", "EZ"), (b"3\n", "CZ")], ids=["refused", "taken"])
def test_a_sync_among_copy_data(weir, how, line, answer):
    """PostgreSQL ignores it while it copies, and answers it when it has refused the data before it."""
    pooler = weir(default_pool_size=1)
    with wire.Raw(pooler.port).login() as raw:
        raw.simple("drop table if exists among; create table among (number int)")
        raw.send(wire.query("copy among from stdin") if how == "simple" else b"".join(extended("copy among from stdin")))
        raw.read_until("G")
        raw.send(wire.message(b"d", line), wire.SYNC)
        taken = answer == "CZ"
        if taken:
            raw.send(wire.message(b"c"), b"" if how == "simple" else wire.SYNC)
        assert wire.kinds(raw.read_until("Z")) == answer
        if how == "simple" and not taken:
            assert wire.kinds(raw.read_until("Z")) == "Z"
        assert pooler.value("select 5") == 5, "another client gets the server"
        assert raw.simple("select count(*) from among") == [["1" if taken else "0"]]


@pytest.mark.weir_only
@pytest.mark.parametrize("waits", [True, False], ids=["after-CopyInResponse", "in-one-write"])
@pytest.mark.parametrize("sync_first", [True, False], ids=["ignored", "answered"])
@pytest.mark.parametrize("how", ["simple", "extended"])
def test_every_answer_behind_a_copy_that_failed_beside_a_sync_is_its_clients(weir, pg, how, sync_first, waits):
    """Whether PostgreSQL answers a Sync among copy data depends on when it has refused the data."""
    copy = wire.query("copy beside from stdin")
    if how == "extended":
        copy = wire.parse("", "copy beside from stdin") + wire.bind() + wire.execute() + wire.message(b"H")
    data = wire.message(b"d", b"bad\n")
    data = wire.SYNC + data if sync_first else data + wire.SYNC
    behind = data + wire.message(b"c") + wire.SYNC + wire.query("select pg_sleep(0.2), 'mine'")
    answers = []
    for port in (pg.port, weir(default_pool_size=1).port):
        with wire.Raw(port).login() as raw, wire.Raw(port).login() as other:
            raw.simple("drop table if exists beside; create table beside (number int)")
            raw.send(copy, b"" if waits else behind)
            began = raw.read_until("G")
            raw.send(behind if waits else b"")
            time.sleep(0.1)
            other.send(wire.query("select 'yours'"))
            replies = began + raw.read_until("D") + raw.read_until("Z")
            assert [reply.body[6:] for reply in other.read_until("Z") if reply.kind == "D"] == [b"yours"]
            answers.append((wire.kinds(replies), [reply.body for reply in replies if reply.kind == "D"]))
            assert raw.simple("select 1") == [["1"]] and other.simple("select 2") == [["2"]]
    assert answers[0] == answers[1]


@pytest.mark.since("1.26")
@pytest.mark.parametrize("name", ["", "named"])
def test_an_extended_copy_that_fails_frees_its_server(weir, name):
    """CopyDone and Sync come when the error has been told already."""
    pooler = weir(default_pool_size=1)
    with wire.Raw(pooler.port).login() as raw:
        raw.simple("drop table if exists failing; create table failing (number int)")
        for _ in range(2):
            parse, run = extended("copy failing from stdin", name)
            raw.send(wire.close(b"S", name), parse, run)
            raw.read_until("G")
            raw.send(wire.message(b"d", b"bad\n"))
            raw.send(wire.message(b"d", b"1\n" * 1000), wire.message(b"c"), wire.SYNC)
            replies = raw.read_until("Z")
            assert wire.errors(replies)[0][0] == "22P02"
            assert pooler.value("select 5") == 5
        assert raw.simple("select count(*) from failing") == [["0"]]


def test_a_client_that_dies_in_copy_leaves_no_trace(weir, pg):
    pooler = weir(default_pool_size=1)
    with wire.Raw(pooler.port).login() as raw:
        raw.simple("drop table if exists died; create table died (number int)")
        raw.send(wire.query("copy died from stdin"))
        assert raw.read().kind == "G"
        raw.send(wire.message(b"d", b"1\n" * 1000))
    assert pooler.value("select count(*) from died") == 0


def test_copy_out_that_nobody_reads_does_not_stop_others(weir):
    pooler = weir(default_pool_size=2)
    with wire.Raw(pooler.port).login() as raw:
        raw.send(wire.query(f"copy (select repeat('x', 999) from generate_series(1, {LINES})) to stdout"))
        other = pooler.connect()
        for number in range(100):
            assert other.execute("select %s::int", (number,)).fetchone() == (number,)


def test_psql_copies(weir):
    pooler = weir()
    pooler.psql("-c", "drop table if exists by_psql; create table by_psql (number int)")
    pooler.psql("-c", "copy by_psql from stdin", input="1\n2\n3\n")
    assert pooler.psql("-c", "copy by_psql to stdout").stdout == "1\n2\n3\n"
