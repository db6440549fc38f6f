"""What every client does: simple and extended queries, pipelines, large rows, notices, errors. On both PostgreSQL versions."""

import psycopg
import pytest
from psycopg import sql

import wire

pytestmark = pytest.mark.every_version


@pytest.fixture
def client(weir):
    return weir().connect()


def test_simple_query(client):
    assert client.execute("select 42, 'text', null").fetchone() == (42, "text", None)


def test_several_statements_in_one_query(client):
    cursor = client.execute("select 1; select 2; select 3")
    answers = [cursor.fetchall()]
    while cursor.nextset():
        answers.append(cursor.fetchall())
    assert answers == [[(1,)], [(2,)], [(3,)]]


def test_empty_query(client):
    client.execute("")
    assert client.execute("select 1").fetchone() == (1,)


def test_extended_query_with_parameters(client):
    row = client.execute("select %s::int + 1, %s::text, %s::bytea", (41, "ü", b"\0\xff")).fetchone()
    assert row == (42, "ü", b"\0\xff")


def test_binary_results(client):
    assert client.cursor(binary=True).execute("select %s::float8", (1.5,)).fetchone() == (1.5,)


def test_an_error_is_passed_on_whole_and_the_session_goes_on(client):
    with pytest.raises(psycopg.errors.UndefinedColumn) as failure:
        client.execute("select nonsense from pg_class")
    assert failure.value.diag.statement_position == "8"
    assert 'column "nonsense" does not exist' in str(failure.value)
    assert client.execute("select 1").fetchone() == (1,)


def test_a_failed_transaction_refuses_more_until_rollback(client):
    client.execute("begin")
    with pytest.raises(psycopg.errors.DivisionByZero):
        client.execute("select 1/0")
    with pytest.raises(psycopg.errors.InFailedSqlTransaction):
        client.execute("select 1")
    client.execute("rollback")
    assert client.execute("select 1").fetchone() == (1,)


def test_transactions_commit_and_roll_back(weir):
    pooler = weir()
    one, two = pooler.connect(), pooler.connect()
    one.execute("drop table if exists kept; create table kept (number int)")
    with one.transaction():
        one.execute("insert into kept values (1)")
        assert two.execute("select count(*) from kept").fetchone() == (0,)
    one.execute("begin; insert into kept values (2); rollback")
    assert two.execute("select number from kept").fetchall() == [(1,)]


def test_notices_arrive_before_the_result(client):
    heard = []
    client.add_notice_handler(lambda diagnostics: heard.append((diagnostics.severity, diagnostics.message_primary)))
    client.execute("do $$ begin raise notice 'one'; raise warning 'two'; end $$")
    assert heard == [("NOTICE", "one"), ("WARNING", "two")]


def test_parameter_status_arrives_while_the_session_runs(client):
    with client.transaction():
        client.execute("set local timezone to 'Asia/Tokyo'")
        assert client.info.parameter_status("TimeZone") == "Asia/Tokyo"
    assert client.info.parameter_status("TimeZone") != "Asia/Tokyo"


def test_a_pipeline_answers_in_order(client):
    with client.pipeline():
        cursors = [client.execute("select %s::int", (number,)) for number in range(500)]
    assert [cursor.fetchone()[0] for cursor in cursors] == list(range(500))


def test_an_error_in_a_pipeline_skips_to_its_sync(weir):
    pooler = weir()
    good, bad = (wire.parse("", statement) + wire.bind() + wire.execute() for statement in ("select 1", "select 1/0"))
    with wire.Raw(pooler.port).login() as raw:
        raw.send(good, bad, good, wire.SYNC, good, wire.SYNC)
        assert wire.kinds(raw.read_until("Z")) == "12DC1EZ"
        assert wire.kinds(raw.read_until("Z")) == "12DCZ"


def test_an_error_skips_messages_that_come_later_too(weir):
    pooler = weir()
    good = wire.parse("", "select 1") + wire.bind() + wire.execute()
    with wire.Raw(pooler.port).login() as raw:
        raw.send(wire.parse("", "select nonsense"), wire.FLUSH)
        assert raw.read().kind == "E"
        raw.send(good, good)
        assert raw.is_silent(0.3)
        assert wire.kinds(raw.ask(wire.SYNC)) == "Z"
        assert wire.kinds(raw.ask(good, wire.SYNC)) == "12DCZ"


def test_two_pipelined_syncs_give_two_readies(weir):
    pooler = weir()
    with wire.Raw(pooler.port).login() as raw:
        group = [wire.parse("", "select 7"), wire.bind(), wire.execute(), wire.SYNC]
        raw.send(*group, *group, wire.query("select 8"))
        assert wire.kinds(raw.read_until("Z")) == "12DCZ"
        assert wire.kinds(raw.read_until("Z")) == "12DCZ"
        assert wire.kinds(raw.read_until("Z")) == "TDCZ"


def test_flush_answers_without_a_sync(weir):
    pooler = weir()
    with wire.Raw(pooler.port).login() as raw:
        raw.send(wire.parse("", "select 7"), wire.describe(b"S"), wire.FLUSH)
        assert wire.kinds(raw.read_until("T")) == "1tT"
        raw.send(wire.bind(), wire.execute(), wire.FLUSH)
        assert wire.kinds(raw.read_until("C")) == "2DC"
        assert wire.kinds(raw.ask(wire.SYNC)) == "Z"


def test_a_portal_can_be_read_in_parts(weir):
    pooler = weir()
    with wire.Raw(pooler.port).login() as raw:
        raw.send(wire.parse("", "select generate_series(1, 5)"), wire.bind(), wire.execute(rows=2), wire.FLUSH)
        assert wire.kinds(raw.read_until("s")) == "12DDs"
        assert wire.kinds(raw.ask(wire.execute(rows=0), wire.SYNC)) == "DDDCZ"


def test_function_call(weir):
    """The protocol's old fast path: int4pl(40, 2) has the OID 177."""
    call = b"\0\0\0\xb1" + b"\0\0" + b"\0\2" + b"\0\0\0\x0240" + b"\0\0\0\x012" + b"\0\0"
    pooler = weir()
    with wire.Raw(pooler.port).login() as raw:
        replies = raw.ask(wire.message(b"F", call))
    assert wire.kinds(replies) == "VZ"
    assert replies[0].body[4:] == b"42"


def test_bytes_one_by_one(weir):
    """The slowest of senders gets the same answers."""
    pooler = weir()
    with wire.Raw(pooler.port).login() as raw:
        for byte in wire.query("select 42") + wire.parse("", "select 43") + wire.bind() + wire.execute() + wire.SYNC:
            raw.send(bytes([byte]))
        assert wire.kinds(raw.read_until("Z")) == "TDCZ"
        assert wire.kinds(raw.read_until("Z")) == "12DCZ"


def test_a_server_cursor_in_a_transaction(client):
    with client.transaction():
        with client.cursor(name="walk") as cursor:
            cursor.execute("select generate_series(1, 1000)")
            cursor.itersize = 10
            assert sum(row[0] for row in cursor) == 500500


def test_large_values_both_ways(client):
    text = "0123456789" * 2_000_000
    length, echo = client.execute("select length(%s), %s", (text, text)).fetchone()
    assert length == len(text) and echo == text


def test_a_row_of_1600_columns_and_many_rows(client):
    columns = sql.SQL(", ").join(sql.SQL("g as c{}").format(sql.Literal(number)) for number in range(1600))
    rows = client.execute(sql.SQL("select {} from generate_series(1, 200) g").format(columns)).fetchall()
    assert len(rows) == 200 and rows[-1] == (200,) * 1600


def test_psql(weir):
    pooler = weir()
    done = pooler.psql("-c", "select 1", "-c", "select 2")
    assert done.stdout.split() == ["1", "2"]
    failed = pooler.psql("-c", "select 1/0", check=False)
    assert "division by zero" in failed.stderr
