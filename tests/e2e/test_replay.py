"""DDL under prepared statements: "cached plan must not change result type" does not reach a client that can go on.

PostgreSQL refuses a prepared statement whose result DDL has changed; PgBouncer passes that on, on every server, until
somebody says RECONNECT."""

import asyncio
import os
import threading

import asyncpg
import psycopg
import pytest

import host
import wire

# PgBouncer passes the errors on.
pytestmark = [pytest.mark.weir_only, pytest.mark.every_version]

SECONDS = 60 if os.environ.get("WEIR_LONG") else 4
SELECT = "select * from shape"


class Shape:
    """A table with one row; `alter` gives it another column, or takes that away."""

    def __init__(self, pg):
        self.pg, self.wide = pg, False
        pg.query("drop table if exists shape; create table shape as select 1 as a; grant all on shape to public", "app")

    def alter(self):
        self.wide = not self.wide
        self.pg.query("alter table shape " + ("add column b int" if self.wide else "drop column b"), "app")


@pytest.fixture
def shape(pg):
    return Shape(pg)


def parsed_on_servers(pooler):
    return next(row for row in pooler.console("SHOW STATS") if row["database"] == "app")["total_server_parse_count"]


# --- under load -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("mode", ["transaction", "statement"])
def test_psycopg_goes_on_while_the_table_changes(weir, shape, mode):
    pooler = weir(pool_mode=mode, default_pool_size=4, threads=4)
    stop, errors, rows = threading.Event(), [], []

    def work():
        try:
            with psycopg.connect(**pooler.address(), autocommit=True, prepare_threshold=0) as client:
                while not stop.is_set():
                    rows.extend(client.execute(SELECT).fetchall())
        except psycopg.Error as error:
            errors.append(error)

    workers = [threading.Thread(target=work) for _ in range(4)]
    for worker in workers:
        worker.start()
    try:
        for _ in range(30):
            before = len(rows)
            shape.alter()
            host.eventually(lambda: len(rows) >= before + 20 or errors)
    finally:
        stop.set()
        for worker in workers:
            worker.join()
    assert not errors, errors[:3]
    assert {len(row) for row in rows} == {1, 2}
    assert parsed_on_servers(pooler) > 30


def test_a_driver_that_keeps_descriptions_goes_on(weir, shape):
    """asyncpg describes once, and refuses rows of another shape. Told of a new result it prepares anew, once; so each client
    has to get on before the table changes again. They share one server: it is a refusal that tells of the change, and a further
    server that prepares the statement for the first time just after it would refuse nothing."""
    pooler = weir(default_pool_size=1, threads=1)
    stop, errors, fetched = threading.Event(), [], [0] * 4

    async def work(number):
        client = await asyncpg.connect(host="127.0.0.1", port=pooler.port, user="alice", database="app", ssl=False)
        try:
            while not stop.is_set():
                await client.fetch(SELECT)
                fetched[number] += 1
        except Exception as error:  # asyncpg has several kinds, and one that is missed ends the others too
            errors.append(error)
        await client.close()

    async def crowd():
        await asyncio.gather(*[work(number) for number in range(len(fetched))])

    worker = threading.Thread(target=lambda: asyncio.run(crowd()))
    worker.start()
    try:
        for _ in range(20):
            before = list(fetched)
            host.eventually(lambda: errors or all(now >= then + 3 for now, then in zip(fetched, before)))
            shape.alter()
    finally:
        stop.set()
        worker.join()
    assert not errors, errors[:3]
    assert parsed_on_servers(pooler) >= 20


@pytest.mark.parametrize("mode", ["transaction", "statement"])
def test_pgbench_goes_on_while_the_table_changes(weir, pg, shape, mode):
    pooler = weir(pool_mode=mode, default_pool_size=6, threads=2)
    script = pooler.directory / "shape.sql"
    script.write_text(f"{SELECT};\n")
    command = [pg.bindir / "pgbench", "-n", "-M", "prepared", "-c", 6, "-j", 6, "-T", SECONDS, "-f", script, pooler.uri()]
    done = []
    bench = threading.Thread(target=lambda: done.append(host.run(command, check=False, timeout=SECONDS + 60)))
    bench.start()
    alterations = 0
    while bench.is_alive():
        shape.alter()
        alterations += 1
        bench.join(0.05)
    assert done[0].returncode == 0, done[0].stderr
    assert "number of failed transactions: 0" in done[0].stdout, done[0].stdout
    assert alterations > 5 and parsed_on_servers(pooler) > alterations


# --- one at a time --------------------------------------------------------------------------------------------
@pytest.fixture
def raw(weir):
    pooler = weir(default_pool_size=1)
    with wire.Raw(pooler.port).login() as one:
        one.pooler = pooler
        yield one


def prepare(raw, name, statement=SELECT):
    assert wire.kinds(raw.ask(wire.parse(name, statement), wire.SYNC)) == "1Z"
    assert wire.kinds(raw.ask(run(name))) == "2DCZ"


def run(name, *between):
    return b"".join([wire.bind(name), *between, wire.execute(), wire.SYNC])


def columns(replies):
    return [len(reply.row()) for reply in replies if reply.kind == "D"]


def test_a_pipeline_of_several_segments_keeps_its_order(raw, shape):
    prepare(raw, "s")
    assert wire.kinds(raw.ask(wire.parse("add", "insert into shape (a) values (2)"), wire.SYNC)) == "1Z"
    shape.alter()
    raw.send(run("s"), run("add"), run("s"), wire.query("select count(*) from shape"), run("s"))
    replies = [message for _ in range(5) for message in raw.read_until("Z")]
    assert wire.kinds(replies) == "2DCZ" + "2CZ" + "2DDCZ" + "TDCZ" + "2DDCZ"
    assert columns(replies) == [2, 2, 2, 1, 2, 2]


def test_statements_that_somebody_has_dropped(raw, shape):
    """DEALLOCATE ALL where no command tag tells of it."""
    prepare(raw, "s")
    other = raw.pooler.connect(prepare_threshold=None)
    other.execute("do $$ begin execute 'deallocate all'; end $$")
    assert wire.kinds(raw.ask(run("s"))) == "2DCZ"
    assert columns(raw.ask(run("s"))) == [1]


def test_a_segment_that_is_flushed_before_its_sync(raw, shape):
    prepare(raw, "s")
    shape.alter()
    raw.send(wire.bind("s"), wire.execute(), wire.FLUSH)
    assert wire.kinds(raw.read_until("C")) == "2DC"
    assert wire.kinds(raw.ask(wire.SYNC)) == "Z"
    shape.alter()
    for byte in run("s"):
        raw.send(bytes([byte]))
    assert wire.kinds(raw.read_until("Z")) == "2DCZ"


def test_a_description_is_the_new_one(raw, shape):
    prepare(raw, "s")
    for wide in (True, False):
        shape.alter()
        replies = raw.ask(wire.describe(b"S", "s"), wire.SYNC)
        assert wire.kinds(replies) == "tTZ"
        assert (b"b\0" in replies[1].body) == wide
        shape.alter()
        shape.alter()
        replies = raw.ask(run("s", wire.describe(b"P")))
        assert wire.kinds(replies) == "2TDCZ"
        assert (b"b\0" in replies[1].body) == wide


def test_a_client_with_an_old_description_is_told(raw, shape):
    """Rows of another shape would be misread by who does not ask for the description again: that is PostgreSQL's point."""
    prepare(raw, "s")
    raw.ask(wire.describe(b"S", "s"), wire.SYNC)
    shape.alter()
    ((code, text),) = wire.errors(raw.ask(run("s")))
    assert (code, text) == ("0A000", "cached plan must not change result type")
    assert columns(raw.ask(run("s", wire.describe(b"P")))) == [2], "the next use is mended"


def test_nobody_gets_rows_by_an_old_description(raw, shape):
    """Not even when the statement, which all clients share, has been prepared anew for another client."""
    with wire.Raw(raw.pooler.port).login() as other:
        for one in (raw, other):
            prepare(one, "s")
            one.ask(wire.describe(b"S", "s"), wire.SYNC)
        shape.alter()
        assert columns(raw.ask(run("s", wire.describe(b"P")))) == [2]
        ((code, text),) = wire.errors(other.ask(run("s")))
        assert (code, text) == ("0A000", "cached plan must not change result type")
        other.ask(wire.close(b"S", "s"), wire.parse("s", SELECT), wire.describe(b"S", "s"), wire.SYNC)
        assert columns(other.ask(run("s"))) == [2]


def test_inside_a_transaction_block_it_passes(raw, shape):
    prepare(raw, "s")
    shape.alter()
    raw.simple("begin")
    ((code, _),) = wire.errors(raw.ask(run("s")))
    assert code == "0A000"
    raw.simple("rollback")
    assert columns(raw.ask(run("s"))) == [2]


def test_a_request_over_the_bound_passes_and_heals(raw, shape):
    prepare(raw, "none", "select 1")
    assert wire.kinds(raw.ask(wire.parse("big", SELECT + " where $1::text <> ''"), wire.SYNC)) == "1Z"
    big = wire.bind("big", values=[b"x" * 100_000]) + wire.execute() + wire.SYNC
    assert columns(raw.ask(big)) == [1]
    shape.alter()
    ((code, _),) = wire.errors(raw.ask(big))
    assert code == "0A000"
    assert columns(raw.ask(big)) == [2]


def test_a_table_that_is_gone_is_told_as_such(raw, pg, shape):
    prepare(raw, "s")
    pg.query("drop table shape", "app")
    ((code, _),) = wire.errors(raw.ask(run("s")))
    assert code == "42P01"
    Shape(pg)
    assert columns(raw.ask(run("s"))) == [1]
