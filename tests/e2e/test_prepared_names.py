"""`session_state = virtual`: statements that SQL and the protocol have prepared are in one name space, as in PostgreSQL, and follow their client
over shuffled servers. Each script is answered as by a direct connection."""

import psycopg
import pytest

import panel
import wire
from test_pinned import become
from test_session_state import virtual  # noqa: F401 (a fixture)
from test_takeover import reboot

pytestmark = pytest.mark.weir_only

Q = wire.query


def P(name, text, types=()):
    return wire.parse(name, text, types) + wire.SYNC


def B(name, *values):
    return wire.bind(name, values=values) + wire.describe(b"P") + wire.execute() + wire.SYNC


def D(name):
    return wire.describe(b"S", name) + wire.SYNC


def C(name):
    return wire.close(b"S", name) + wire.SYNC


def X(text):
    """By the extended protocol, without a name."""
    return wire.parse("", text) + wire.bind() + wire.describe(b"P") + wire.execute() + wire.SYNC


SCRIPTS = {
    "sql alone": [Q("prepare p as select 7"), Q("execute p"), Q("execute p"), Q("deallocate p"), Q("execute p")],
    "by the extended protocol": [X("prepare p as select 7"), X("execute p"), X("execute p"), X("deallocate p"), X("execute p")],
    "types and values": [Q("prepare p (int, text) as select $1 + 1, $2"), Q("execute p (1, 'a')"), Q("execute p ('x', 'a')"), Q("execute p (1)")],
    "prepared twice": [Q("prepare p as select 1"), Q("prepare p as select 2"), Q("execute p"), Q("deallocate p"), Q("prepare p as select 3"), Q("execute p")],
    "rolled back": [Q("begin"), Q("prepare p as select 1"), Q("rollback"), Q("execute p"), Q("begin; deallocate p; rollback"), Q("execute p")],
    "in a failed block": [
        Q("prepare p as select 1"), Q("begin"), Q("select 1/0"), Q("execute p"), Q("deallocate p"), B("p"), Q("rollback"), Q("execute p"), B("p"),
    ],
    "several in one": [Q("prepare p as select 1; prepare q as select 2"), Q("execute p; execute q"), Q("deallocate p; deallocate q"), Q("execute p")],
    "names in quotes": [Q('prepare "P q" as select 1'), Q('execute "P q"'), Q("execute p"), Q('deallocate "P q"'), Q('execute "P q"')],
    "deallocate of the protocol's": [P("b", "select 8"), B("b"), Q("deallocate b"), B("b"), P("b", "select 9"), B("b"), Q("deallocate prepare b"), Q("deallocate b")],
    "deallocate, extended": [P("b", "select 8"), X("deallocate b"), B("b"), P("b", "select 9"), B("b"), P("d", "deallocate b"), B("d"), B("b"), B("d")],
    "deallocate and what follows, in one write": [P("b", "select 8") + Q("deallocate b") + B("b"), P("b", "select 9") + B("b") + Q("deallocate b") + P("b", "select 10") + B("b"), B("b")],
    "deallocate in a block": [P("b", "select 8"), Q("begin"), Q("deallocate b"), B("b"), Q("rollback"), B("b"), Q("begin"), P("b", "select 9"), Q("commit"), B("b")],
    "deallocate in a failed block": [P("b", "select 8"), Q("begin"), Q("select 1/0"), Q("deallocate b"), Q("rollback"), B("b"), Q("deallocate b"), B("b")],
    "execute of the protocol's": [P("b", "select $1::int + 1"), Q("execute b (4)"), B("b", b"5"), Q("explain (costs off) execute b (4)"), Q("execute b"), Q("deallocate b"), B("b", b"5")],
    "a table of the protocol's": [P("b", "select 1 as a"), Q("create temp table made as execute b"), Q("select * from made"), Q("drop table made"), C("b"), Q("execute b")],
    "prepare of the protocol's": [P("b", "select 8"), Q("prepare b as select 9"), B("b"), Q("execute b"), C("b"), Q("prepare b as select 9"), Q("execute b"), B("b")],
    "bind of sql's": [Q("prepare p (int) as select $1 + 1"), B("p", b"4"), D("p"), B("p", b"5"), C("p"), B("p", b"6"), Q("execute p (1)"), C("p")],
    "bind of sql's in one block": [Q("begin"), Q("prepare p as select 1"), B("p"), D("p"), Q("commit"), B("p")],
    "bind of sql's in one write": [Q("prepare p as select 1") + B("p") + Q("deallocate p") + B("p")],
    "parse of sql's": [Q("prepare p as select 1"), P("p", "select 2"), B("p"), Q("deallocate p"), P("p", "select 2"), B("p"), Q("execute p"), Q("deallocate p"), B("p")],
    "discard all": [Q("prepare p as select 1"), P("b", "select 2"), Q("discard all"), Q("execute p"), B("b"), B("p"), Q("prepare p as select 3"), B("p"), P("b", "select 4"), B("b")],
    "deallocate all": [Q("prepare p as select 1"), P("b", "select 2"), Q("deallocate all"), Q("execute p"), B("b"), P("p", "select 3"), B("p"), X("deallocate all"), B("p")],
    "other discards": [
        Q("prepare p as select 1"), P("b", "select 2"), Q("discard plans"), Q("execute p"), B("b"), Q("create temp table t (a int)"), Q("discard temp"),
        Q("select * from t"), Q("discard sequences"), Q("execute p"), B("b"),
    ],
    "settings it is read by": [
        Q("set datestyle = 'ISO, DMY'"), Q("prepare p as select '01/02/2024'::date"), Q("set datestyle = 'ISO, MDY'"), Q("execute p"), Q("execute p"),
        Q("prepare q as select '01/02/2024'::date"), Q("execute q"), Q("execute p"),
    ],
    "a path": [
        Q("create schema own; create table own.only_here (a int)"), Q("set search_path = own"), Q("prepare p as select * from only_here"),
        Q("execute p"), Q("set search_path = public"), Q("execute p"), Q("set search_path = own"), Q("execute p"), Q("deallocate p"), Q("drop schema own cascade"),
    ],
    "now": [Q("prepare p as select 'now'::timestamptz < now(), 'x'"), Q("select pg_sleep(0.01)"), Q("execute p"), Q("execute p")],
    "a table that is gone": [
        Q("create table gone (a int)"), Q("prepare p as select * from gone"), Q("prepare q as select 1"), Q("execute p"), Q("drop table gone"), Q("execute q"), Q("execute p"), B("p"),
        Q("begin"), Q("execute q"), Q("execute p"), Q("rollback"), Q("create table gone (a int)"), Q("execute p"), Q("drop table gone"), Q("select 1"), Q("deallocate p"), Q("execute p"), Q("execute q"),
    ],
    "prepared anew after a change": [
        Q("create table changed (a int)"), Q("prepare p as select * from changed"), Q("execute p"), Q("execute p"), Q("alter table changed add b text"),
        Q("deallocate p"), Q("prepare p as select * from changed"), Q("execute p"), Q("execute p"), Q("execute p"), Q("execute p"), Q("drop table changed"),
    ],
    "in a function": [Q("do $$ begin execute 'prepare p as select 5'; end $$"), Q("execute p"), Q("execute p"), B("p"), Q("do $$ begin execute 'deallocate p'; end $$"), Q("execute p")],
    "names of the pooler's own": [P("b", "select 1"), Q('execute "PGBOUNCER_78"'), B("PGBOUNCER_78"), Q('prepare "PGBOUNCER_77" as select 1'), Q('execute "PGBOUNCER_77"'), Q('deallocate "PGBOUNCER_77"'), B("b")],
    "psycopg": [P("_pg3_0", "select $1::int"), B("_pg3_0", b"1"), X("DEALLOCATE _pg3_0"), P("_pg3_1", "select 2"), B("_pg3_1"), X("DEALLOCATE ALL"), P("_pg3_0", "select 3"), B("_pg3_0")],
    "asyncpg": [P("__asyncpg_stmt_1__", "select 1") , D("__asyncpg_stmt_1__"), B("__asyncpg_stmt_1__"), C("__asyncpg_stmt_1__"), Q("DEALLOCATE ALL"), B("__asyncpg_stmt_1__")],
    "jdbc": [
        wire.parse("S_1", "BEGIN") + wire.bind("S_1") + wire.execute() + wire.parse("S_2", "select 1") + wire.bind("S_2") + wire.describe(b"P") + wire.execute() + wire.SYNC,
        wire.bind("S_2") + wire.execute() + wire.SYNC, wire.bind("S_1") + wire.execute() + wire.SYNC, X("COMMIT"), X("DISCARD ALL"), wire.bind("S_2") + wire.execute() + wire.SYNC,
    ],
    "rails": [P("a1", "select $1::int"), B("a1", b"1"), P("a2", "select 2"), Q("DEALLOCATE a1"), B("a2"), P("a1", "select 3"), B("a1"), Q("DEALLOCATE a2"), Q("DEALLOCATE a1"), B("a1")],
    "malformed": [Q("prepare"), Q("prepare p as"), Q("prepare p as select ("), Q("execute"), Q("deallocate"), P("b", "selec"), Q("deallocate b"), Q("execute p(("), Q("prepare p as select 1"), Q("execute p")],
    "a long text": [Q(f"prepare p as select '{'x' * 40000}'"), Q("execute p"), Q("execute p"), Q(f"execute p -- {'y' * 70000}"), Q("deallocate p"), Q("execute p")],
    "many": [*[Q(f"prepare p{number} as select {number}") for number in range(12)], *[Q(f"execute p{number}") for number in range(12)], Q("deallocate all"), Q("execute p3")],
}


def play(port, script, **parameters):
    """What the client is told, request by request; of errors what a client shows of them."""
    told = []
    with wire.Raw(port).login(**parameters) as raw:
        for request in script:
            raw.send(request)
            replies = raw.read_until_ready(readies(request))
            told.append([shown(reply) for reply in replies if reply.kind not in "SN"])
    return told


def readies(request):
    """How many ReadyForQuery a request asks for."""
    count, at = 0, 0
    while at < len(request):
        count += request[at : at + 1] in (b"Q", b"S")
        at += 1 + int.from_bytes(request[at + 1 : at + 5], "big")
    return count


def shown(reply):
    if reply.kind == "T":  # Without the numbers of tables, which are made anew each time.
        return reply.kind, columns(reply.body)
    if reply.kind != "E":
        return reply.kind, reply.body
    fields = reply.fields()
    return "E", fields["C"], fields["M"]


def columns(body):
    """Name, type and format of each column of a RowDescription."""
    found, at = [], 2
    while at < len(body):
        end = body.index(b"\0", at)
        found.append((body[at:end], body[end + 7 : end + 19]))
        at = end + 19
    return found


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS)
def test_names_mean_what_they_mean_directly(virtual, pg, script, count):  # noqa: F811
    pooler = virtual(default_pool_size=count, min_pool_size=count)
    pg.query("grant create on database app to alice", "app")
    for _ in range(2):  # What the first client has left is not the second one's.
        assert play(pooler.port, script) == play(pg.port, script)


def test_cut_anywhere_it_is_the_same(virtual, pg):  # noqa: F811
    pooler = virtual()
    request = P("b", "select 8") + Q("execute b") + X("deallocate b") + B("b")
    expected = play(pg.port, [request])
    for cut in range(1, len(request), 7):
        with wire.Raw(pooler.port).login() as raw:
            raw.send(request[:cut])
            raw.is_silent(0.005)
            raw.send(request[cut:])
            assert [[shown(reply) for reply in raw.read_until_ready(4)]] == expected, cut


def test_clients_with_the_same_names_have_their_own(virtual):  # noqa: F811
    pooler = virtual(default_pool_size=2, min_pool_size=2)
    clients = [wire.Raw(pooler.port).login() for _ in range(5)]
    for number, raw in enumerate(clients):
        raw.simple(f"prepare p as select {number}")
        raw.ask(P("b", f"select {number} + 100"))
    for _ in range(4):
        for number, raw in enumerate(clients):
            assert raw.simple("execute p") == [[str(number)]]
            assert wire.rows(raw.ask(B("p"))) == [[str(number)]]
            assert wire.rows(raw.ask(B("b"))) == [[str(number + 100)]]
    bare = wire.Raw(pooler.port).login()
    for _ in range(4):
        assert wire.errors(bare.ask(Q("execute p"))) == [("26000", 'prepared statement "p" does not exist')]
        assert bare.simple("select name from pg_prepared_statements where from_sql") == []


def test_one_that_follows_its_client_keeps_no_server(virtual):  # noqa: F811
    pooler, web = panel.start(virtual)
    connection = pooler.connect()
    for statement, *reasons in [
        ("prepare p as select 1",), ("execute p",), ("prepare q as select 'now'::timestamptz", "prepared"), ("deallocate q",),
        ("set search_path = s1", "prepared"), ("reset search_path",), ("deallocate p",),
    ]:
        connection.execute(statement)
        become(web, *reasons)


def test_a_new_process_takes_them_over(virtual, pg):  # noqa: F811
    pooler = virtual()
    clients = [pooler.connect() for _ in range(4)]
    for number, connection in enumerate(clients):
        connection.execute(f"prepare p as select {number}")
        connection.execute("prepare q as select 'now'::timestamptz" if number == 0 else "select 1")
    reboot(pooler)
    for _ in range(3):
        for number, connection in enumerate(clients):
            assert connection.execute("execute p").fetchone() == (number,)
    clients[0].execute("execute q")
    with pytest.raises(psycopg.errors.InvalidSqlStatementName):
        clients[1].execute("execute q")


def test_a_cached_plan_of_another_client_changes_no_result(virtual, pg):  # noqa: F811
    """One client has prepared a text before DDL, another the same text after it, and they share the servers."""
    pooler = virtual(default_pool_size=2, min_pool_size=2)
    pg.query("drop table if exists shared; create table shared (a int); grant select on shared to public", "app")
    older, newer = wire.Raw(pooler.port).login(), wire.Raw(pooler.port).login()
    older.simple("prepare p as select * from shared")
    for _ in range(3):
        older.simple("execute p")
    pg.query("alter table shared add b int", "app")
    newer.simple("prepare p as select * from shared")
    for _ in range(4):
        assert wire.errors(newer.ask(Q("execute p"))) == []
        assert {code for code, _ in wire.errors(older.ask(Q("execute p")))} <= {"0A000"}


def test_a_path_of_one_transaction_is_not_the_next_ones(virtual, pg):  # noqa: F811
    """A text that was parsed under another search_path is parsed again, so that its error is that of Parse."""
    pooler = virtual(default_pool_size=1, min_pool_size=1, server_shuffle=0)
    pg.query("create schema if not exists s1; create table if not exists s1.only_in_s1 (a int); grant usage on schema s1 to public; grant select on s1.only_in_s1 to public", "app")
    script = [
        Q("begin"), Q("set local search_path = s1"), P("b", "select * from only_in_s1"), B("b"), Q("commit"), P("c", "select * from only_in_s1"), B("c"),
        Q("set search_path = s1"), P("f", "select * from only_in_s1"), B("f"), Q("begin"), Q("set local search_path = public"), P("g", "select * from only_in_s1"),
        Q("rollback"), Q("begin"), Q("select set_config('search_path', 'public', true)"), P("h", "select * from only_in_s1"), Q("rollback"), B("f"), Q("reset search_path"),
        Q("begin"), Q("select set_config('search_path', 's1', true)"), P("d", "select * from only_in_s1"), B("d"), Q("rollback"), P("e", "select * from only_in_s1"),
    ]
    for _ in range(2):
        assert play(pooler.port, script) == play(pg.port, script)


def test_a_client_is_warned_once(virtual):  # noqa: F811
    pooler = virtual()
    with wire.Raw(pooler.port).login() as raw:
        raw.simple("set standard_conforming_strings = off")
        raw.simple("set escape_string_warning = on")
        assert wire.kinds(raw.ask(P("b", "select '\\101'"))).count("N") == 1
        for _ in range(4):
            assert "N" not in wire.kinds(raw.ask(B("b")))
