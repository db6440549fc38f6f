"""The console over the extended protocol, which PgBouncer's does not speak: what drivers of exporters send."""

import asyncio
import struct

import asyncpg
import psycopg
import pytest

import wire

pytestmark = pytest.mark.weir_only

ADMIN = ("admin", "pgbouncer")


@pytest.fixture
def console(weir):
    """A raw connection to the console of a pooler that has a pool."""
    pooler = weir()
    pooler.value("select 1")
    with wire.Raw(pooler.port).login(*ADMIN) as raw:
        raw.pooler = pooler
        yield raw


def oids(reply):
    """The types of a RowDescription's columns, and their formats."""
    (count,), at, found = struct.unpack_from("!h", reply.body), 2, []
    for _ in range(count):
        at = reply.body.index(b"\0", at) + 1
        _, _, oid, _, _, form = struct.unpack_from("!ihihih", reply.body, at)
        found.append((oid, form))
        at += 18
    return found


def bind_binary(statement=""):
    """No values, and every column in binary."""
    return wire.message(b"B", wire.cstring("") + wire.cstring(statement) + struct.pack("!hhhh", 0, 0, 1, 1))


def test_parse_bind_describe_execute(console):
    everything = [wire.parse("", "SHOW POOLS"), wire.bind(), wire.describe(b"P"), wire.execute(), wire.SYNC]
    replies = console.ask(*everything)
    assert wire.kinds(replies).replace("D", "") == "12TCZ"
    simple = console.ask(wire.query("SHOW POOLS"))
    names = lambda messages: [(reply.kind, reply.row()[:2]) for reply in messages if reply.kind == "D"]
    assert names(replies) == names(simple) and len(names(replies)) == 2
    assert replies[2].body == simple[0].body


def test_a_statement_is_described_before_it_is_bound(console):
    replies = console.ask(wire.parse("s", "SHOW STATS_TOTALS"), wire.describe(b"S", "s"), wire.SYNC)
    assert wire.kinds(replies) == "1tTZ"
    assert replies[1].body == struct.pack("!h", 0)
    assert [oid for oid, _ in oids(replies[2])][:2] == [25, 1700]
    replies = console.ask(wire.parse("r", "RELOAD"), wire.describe(b"S", "r"), wire.SYNC)
    assert wire.kinds(replies) == "1tnZ"
    for _ in range(2):
        assert wire.kinds(console.ask(wire.bind("s"), wire.execute(), wire.SYNC)).replace("D", "") == "2CZ"
    assert wire.kinds(console.ask(wire.close(b"S", "s"), wire.close(b"S", "never"), wire.SYNC)) == "33Z"
    assert wire.errors(console.ask(wire.bind("s"), wire.execute(), wire.SYNC))[0][0] == "26000"


def test_columns_in_binary(console):
    replies = console.ask(wire.parse("", "SHOW DATABASES"), bind_binary(), wire.describe(b"P"), wire.execute(), wire.SYNC)
    assert {form for _, form in oids(replies[2])} == {1}
    rows = {row[0]: row for row in (reply.row() for reply in replies if reply.kind == "D")}
    assert struct.unpack("!q", rows[b"app"][2]) == (console.pooler.postgres.port,)
    replies = console.ask(wire.parse("", "SHOW TOTALS"), bind_binary(), wire.execute(), wire.SYNC)
    assert wire.kinds(replies).count("D") > 10


def test_an_error_is_told_once_and_the_rest_skipped_to_sync(console):
    broken = [wire.parse("", "SHOW NONSENSE"), wire.bind(), wire.execute()]
    fine = [wire.parse("", "SHOW VERSION"), wire.bind(), wire.execute()]
    replies = console.ask(*broken, *fine, wire.query("SHOW VERSION"), wire.SYNC)
    assert wire.kinds(replies) == "12EZ"
    # Whether the rest of the pipeline comes at once or later.
    console.send(*broken, wire.FLUSH)
    assert wire.kinds(console.read_until("E")) == "12E"
    assert wire.kinds(console.ask(*fine, wire.SYNC)) == "Z"
    assert wire.kinds(console.ask(*fine, wire.SYNC)) == "12DCZ"


def test_several_segments_in_one_piece(console):
    one = [wire.parse("", "SHOW VERSION"), wire.bind(), wire.execute(), wire.SYNC]
    console.send(*one, *one, wire.query("SHOW VERSION"), *one)
    heard = [wire.kinds(console.read_until("Z")) for _ in range(4)]
    assert heard == ["12DCZ", "12DCZ", "TDCZ", "12DCZ"]


def test_rows_by_the_handful(console):
    every = wire.kinds(console.ask(wire.query("SHOW CONFIG"))).count("D")
    console.send(wire.parse("", "SHOW CONFIG"), wire.bind(portal="p"), wire.execute("p", 10), wire.FLUSH)
    first = console.read_until("s")
    assert wire.kinds(first) == "12" + "D" * 10 + "s"
    console.send(wire.execute("p", 0), wire.FLUSH)
    assert wire.kinds(console.read_until("C")) == "D" * (every - 10) + "C"
    assert wire.errors(console.ask(wire.execute("p"), wire.SYNC))[0][0] == "55000"
    # The end of the transaction is the end of its portals.
    assert wire.errors(console.ask(wire.execute("p"), wire.SYNC))[0][0] == "34000"


@pytest.mark.parametrize(
    "messages, state",
    [
        ([wire.bind("none")], "26000"),
        ([wire.describe(b"S", "none")], "26000"),
        ([wire.describe(b"P", "none")], "34000"),
        ([wire.execute("none")], "34000"),
        ([wire.message(b"B", b"x")], "08P01"),
        ([wire.message(b"P", b"x")], "08P01"),
        ([wire.message(b"E", b"")], "08P01"),
        ([wire.message(b"D", b"Q\0")], "08P01"),
        ([wire.parse("twice", "SHOW VERSION"), wire.parse("twice", "SHOW VERSION")], "42P05"),
        ([wire.parse("", "KILL_CLIENT $1"), wire.bind(), wire.execute()], "42601"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_wrong_is_told_and_the_session_goes_on(console, messages, state):
    assert wire.errors(console.ask(*messages, wire.SYNC))[0][0] == state
    assert console.simple("SHOW VERSION")


def test_stats_users_have_no_more_rights_than_by_the_simple_protocol(weir):
    with wire.Raw(weir().port).login("stats", "pgbouncer") as raw:
        for messages in ([wire.bind(), wire.execute()], [wire.describe(b"S")]):
            replies = raw.ask(wire.parse("", "RELOAD"), *messages, wire.SYNC)
            assert wire.errors(replies) == [("42501", "admin access needed")]


def test_too_many_statements_are_refused(console):
    big = "x" * 900_000
    states = [wire.errors(console.ask(wire.parse(f"s{number}", big), wire.SYNC)) for number in range(6)]
    assert states[0] == [] and states[-1][0][0] == "54000"
    assert console.simple("SHOW VERSION")


# --- drivers ----------------------------------------------------------------------------------------------------
def test_psycopg_binds_on_the_server(weir):
    pooler = weir()
    victim = pooler.connect(application_name="victim")
    admin = pooler.connect("pgbouncer", "admin", prepare_threshold=0)
    for binary in (False, True, False):
        rows = admin.execute("SHOW CLIENTS", binary=binary).fetchall()
        number = next(row[20] for row in rows if row[18] == "victim")
        assert isinstance(number, int)
    assert admin.execute("KILL_CLIENT %s", [number]).statusmessage == "KILL_CLIENT"
    with pytest.raises(psycopg.OperationalError):
        victim.execute("select 1")
    assert admin.execute("SET default_pool_size = %s", ["7"]).statusmessage == "SET default_pool_size=7"
    total = admin.execute("SHOW STATS", binary=True).fetchall()
    assert all(int(row[1]) == row[1] for row in total)


def test_psycopg_pipelines(weir):
    admin = weir().connect("pgbouncer", "admin")
    with admin.pipeline():
        cursors = [admin.execute(f"SHOW {view}") for view in ("VERSION", "STATE", "LISTS")]
    assert [cursor.fetchone()[0] for cursor in cursors][1:] == ["active", "databases"]


def test_asyncpg(weir):
    """It prepares every statement, describes it and asks for binary."""
    pooler = weir()
    pooler.value("select 1")

    async def ask():
        address = {"host": "127.0.0.1", "port": pooler.port, "user": "stats", "database": "pgbouncer", "ssl": False}
        connection = await asyncpg.connect(**address, timeout=20)
        try:
            stats = await connection.fetch("SHOW STATS")
            pools = await connection.fetch("SHOW POOLS")
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await connection.execute("RELOAD")
            with pytest.raises(asyncpg.PostgresSyntaxError):
                await connection.fetch("SHOW NONSENSE")
            return stats, pools, await connection.fetchval("SHOW VERSION")
        finally:
            await connection.close()

    stats, pools, version = asyncio.run(ask())
    assert {row["database"]: int(row["total_query_count"]) for row in stats}["app"] == 1
    assert {row["database"]: row["sv_idle"] for row in pools}["app"] == 1
    assert version.startswith("PgBouncer 1.")
