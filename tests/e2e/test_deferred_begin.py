"""`deferred_begin`: a plain BEGIN needs no server until the client's next request, and a client sees what PostgreSQL would tell it.
Holds I3 of ARCHITECTURE.md."""

import concurrent.futures

import psycopg
import pytest

import host
import wire
from test_takeover import reboot

pytestmark = pytest.mark.weir_only

# One session's requests in order; the answers must be those of a direct connection.
SCRIPTS = [
    ["begin", "select 1", "commit"],
    ["BEGIN WORK;", "insert into t values (1)", "rollback", "select count(*) from t"],
    ["start transaction", "insert into t values (1)", "end transaction", "select count(*) from t"],
    ["begin", "commit"],
    ["begin", "abort", "rollback"],
    ["begin", "begin", "select 1", "commit", "commit"],
    ["begin", "rollback and chain", "select 1", "rollback"],
    ["begin", "savepoint a", "select 1/0", "rollback to a", "select 1", "commit"],
    ["begin", "select 1/0", "select 1", "commit", "select 1"],
    ["begin", "syntax error", "end"],
    ["begin", "", "commit"],
    ["begin", "set local work_mem = '1MB'", "show work_mem", "commit", "show work_mem"],
    ["begin", "commit; select 1"],
    ["begin", "insert into t values (1); select count(*) from t", "rollback", "select count(*) from t"],
    ["begin isolation level serializable", "show transaction_isolation", "commit"],
    ["begin read only", "insert into t values (1)", "rollback"],
]


@pytest.fixture
def deferring(weir, pg):
    pg.query("drop table if exists t, d, r, m", "app")
    return lambda **settings: weir(**{"deferred_begin": 1, "default_pool_size": 2, **settings})


def answers(port, script):
    """What a client is told for each request: kinds of messages, with tags, rows, errors and transaction status."""
    found = []
    with wire.Raw(port).login() as raw:
        raw.simple("create table if not exists t (a int)")
        raw.simple("truncate t")
        for statement in script:
            replies = raw.ask(wire.query(statement))
            told = [
                (reply.kind, reply.body if reply.kind in "CDZ" else reply.fields().get("C") if reply.kind in "EN" else None)
                for reply in replies
            ]
            found.append((statement, told))
        raw.send(wire.message(b"X"))
    return found


@pytest.mark.every_version
def test_a_client_is_told_what_a_direct_connection_tells_it(deferring, pg):
    pooler = deferring()
    for script in SCRIPTS:
        assert answers(pooler.port, script) == answers(pg.port, script)


@pytest.mark.every_version
def test_the_extended_protocol_finds_no_other_statement_or_portal(deferring, pg):
    """Behind a simple BEGIN there is neither an unnamed statement nor an unnamed portal."""
    pooler = deferring(max_prepared_statements=0)

    def told(port):
        with wire.Raw(port).login() as raw:
            found = []
            for request in ([wire.bind(), wire.execute()], [wire.execute()], [wire.parse("", "select 7"), wire.bind(), wire.execute()]):
                raw.ask(wire.query("begin"))
                replies = raw.ask(*request, wire.message(b"S"))
                found.append((wire.kinds(replies), wire.errors(replies), wire.rows(replies)))
                raw.ask(wire.query("rollback"))
            return found

    assert told(pooler.port) == told(pg.port)


def test_psycopg_works_as_it_does_directly(deferring, pg):
    pooler = deferring()
    with pooler.connect(autocommit=False) as connection:
        connection.execute("create table d (a int primary key)")
        connection.commit()
        with connection.transaction():
            connection.execute("insert into d values (%s)", (1,))
        with pytest.raises(psycopg.errors.UniqueViolation), connection.transaction():
            connection.execute("insert into d values (%s)", (1,))
        with connection.transaction(), connection.transaction(force_rollback=True):
            connection.execute("insert into d values (2)")
        assert connection.execute("select array_agg(a) from d").fetchone() == ([1],)


def test_a_transaction_without_a_request_opens_no_server(deferring, pg):
    """Not even one that could not be reached."""
    pooler = deferring()
    with wire.Raw(pooler.port).login() as raw:
        for database in ("reconnect app", "pause app"):
            pooler.console(database)
        host.eventually(lambda: pg.count() == 0)
        for end in ("commit", "rollback"):
            assert wire.kinds(raw.ask(wire.query("begin"))) == "CZ"
            assert wire.kinds(raw.ask(wire.query(end))) == "CZ"
        assert pg.count() == 0
        (row,) = [row for row in pooler.console("show clients") if row["database"] == "app"]
        assert row["state"] == "idle"
        raw.ask(wire.query("begin"))
        (row,) = [row for row in pooler.console("show clients") if row["database"] == "app"]
        assert row["state"] == "deferred_begin"


def test_a_client_that_thinks_holds_no_server(deferring, pg):
    pooler = deferring(default_pool_size=1)
    thinking = [wire.Raw(pooler.port).login() for _ in range(5)]
    for raw in thinking:
        raw.ask(wire.query("begin"))
    assert pooler.value("select 1") == 1
    for raw in thinking:
        assert raw.simple("select 2") == [["2"]]
        raw.simple("commit")
        raw.socket.close()


def test_what_is_rolled_back_is_not_there(deferring, pg):
    """Many clients over few servers, each with the first request of its transaction behind a BEGIN of Weir's."""
    pooler = deferring(default_pool_size=3)
    pooler.connect().execute("create table r (client int, n int)")

    def work(client):
        with wire.Raw(pooler.port).login() as raw:
            for n in range(40):
                raw.ask(wire.query("begin"))
                raw.simple(f"insert into r values ({client}, {n})")
                raw.simple("commit" if n % 2 else "rollback")

    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        list(pool.map(work, range(12)))
    assert pg.query("select count(*), count(*) filter (where n % 2 = 0) from r", "app") == [(240, 0)]


@pytest.mark.parametrize("place", ["databases", "users"])
def test_a_database_or_a_user_has_its_own(weir, pg, place):
    entry = {"databases": {"app": "deferred_begin=1"}, "users": {"alice": "deferred_begin=1"}}[place]
    pooler = weir(**{place: entry}, default_pool_size=1)
    with wire.Raw(pooler.port).login() as raw:
        raw.ask(wire.query("begin"))
        assert pooler.value("select 1") == 1, "the only server is free"


def test_without_it_begin_takes_a_server(weir, pg):
    pooler = weir(default_pool_size=1)
    with wire.Raw(pooler.port).login() as raw:
        raw.ask(wire.query("begin"))
        (row,) = [row for row in pooler.console("show clients") if row["database"] == "app"]
        assert row["state"] == "active"


def test_it_moves_with_its_client_to_the_next_process(deferring, pg):
    pooler = deferring()
    with wire.Raw(pooler.port).login() as raw:
        raw.simple("create table m (a int)")
        raw.ask(wire.query("begin"))
        reboot(pooler)
        raw.simple("insert into m values (1)")
        raw.simple("rollback")
        assert raw.simple("select count(*) from m") == [["0"]]
