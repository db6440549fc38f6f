"""What PostgreSQL fixes when it parses a statement: constants, the reading of strings, tables. A client gets its own, even if another one prepared the same text."""

import pytest

import wire

pytestmark = [pytest.mark.since("1.21"), pytest.mark.weir_only]

DATE = b"select date '01/02/2003'"


def run_statement(name):
    return wire.bind(name) + wire.execute() + wire.SYNC


def result(replies):
    assert not wire.errors(replies), wire.errors(replies)
    return [reply.row()[0].decode() for reply in replies if reply.kind == "D"][-1]


def parse(name, text):
    return wire.message(b"P", wire.cstring(name) + text + b"\0" + bytes(2))


def prepare(raw, name, text):
    replies = raw.ask(parse(name, text), wire.SYNC)
    assert wire.kinds(replies).lstrip("N") == "1Z", wire.errors(replies)


def answer(raw, name):
    return result(raw.ask(run_statement(name)))


@pytest.mark.every_version
@pytest.mark.parametrize(
    "one, other, text, answers",
    [
        ({"DateStyle": "ISO, MDY"}, {"DateStyle": "ISO, DMY"}, DATE, ["2003-01-02", "2003-02-01"]),
        (
            {"TimeZone": "UTC"},
            {"TimeZone": "Asia/Tokyo"},
            b"select extract(epoch from timestamptz '2000-01-01')::bigint",
            ["946684800", "946652400"],
        ),
        (
            {"IntervalStyle": "postgres"},
            {"IntervalStyle": "sql_standard"},
            b"select extract(epoch from interval '-1 2:00:00')::bigint",
            ["-79200", "-93600"],
        ),
        ({"client_encoding": "LATIN1"}, {"client_encoding": "UTF8"}, "select length('é')".encode(), ["2", "1"]),
        ({"standard_conforming_strings": "off"}, {}, rb"select length('a\\b')", ["3", "4"]),
    ],
    ids=["DateStyle", "TimeZone", "IntervalStyle", "client_encoding", "standard_conforming_strings"],
)
def test_a_text_is_parsed_under_the_settings_of_its_client(weir, one, other, text, answers):
    pooler = weir(default_pool_size=1)
    with wire.Raw(pooler.port).login(**one) as first, wire.Raw(pooler.port).login(**other) as second:
        prepare(first, "s", text)
        prepare(second, "s", text)
        for _ in range(2):
            assert [answer(raw, "s") for raw in (first, second)] == answers


def test_a_statement_is_as_it_was_parsed_when_its_client_changes_its_settings(weir):
    pooler = weir(default_pool_size=1)
    with wire.Raw(pooler.port).login() as raw:
        prepare(raw, "before", DATE)
        raw.simple("set datestyle = 'ISO, DMY'")
        prepare(raw, "behind", DATE)
        assert [answer(raw, name) for name in ("before", "behind")] == ["2003-01-02", "2003-02-01"]


def test_a_set_and_a_parse_in_one_segment(weir):
    pooler = weir(default_pool_size=1)
    with wire.Raw(pooler.port).login() as raw, wire.Raw(pooler.port).login() as other:
        prepare(other, "s", DATE)
        steps = [wire.parse("", "set local datestyle = 'ISO, DMY'"), wire.bind(), wire.execute(), parse("s", DATE)]
        assert result(raw.ask(*steps, run_statement("s"))) == "2003-02-01"
        assert [answer(raw, "s"), answer(other, "s")] == ["2003-02-01", "2003-01-02"]


def test_a_server_that_lacks_a_statement_gets_it_under_the_settings_of_now(weir):
    pooler = weir(default_pool_size=2)
    with wire.Raw(pooler.port).login() as raw, wire.Raw(pooler.port).login() as other:
        prepare(raw, "s", DATE)
        raw.simple("set datestyle = 'ISO, DMY'")
        other.simple("begin")
        assert answer(raw, "s") in ("2003-01-02", "2003-02-01")
        prepare(other, "s", DATE)
        assert answer(other, "s") == "2003-01-02"
        other.simple("rollback")
        with wire.Raw(pooler.port).login() as third, wire.Raw(pooler.port).login() as fourth:
            for one in (third, fourth):
                one.simple("begin")
                prepare(one, "s", DATE)
                assert answer(one, "s") == "2003-01-02"


def test_a_schema_for_each_tenant(weir, pg):
    for schema, columns in (("one", "1 as a"), ("two", "'b' as b, 2 as c")):
        pg.query(f"create schema {schema}; create table {schema}.shape as select {columns}", "app")
        pg.query(f"grant usage on schema {schema} to public; grant select on {schema}.shape to public", "app")
    pooler = weir(default_pool_size=1)
    try:
        tenants = [wire.Raw(pooler.port).login(search_path=schema) for schema in ("one", "two")]
        for raw in tenants:
            prepare(raw, "s", b"select * from shape")
            assert wire.kinds(raw.ask(wire.describe(b"S", "s"), wire.SYNC)) == "tTZ"
        for begin, end in (("select", "select"), ("begin", "rollback")):
            for raw, width in zip(tenants, (1, 2), strict=True):
                raw.simple(begin)
                replies = raw.ask(run_statement("s"))
                assert wire.kinds(replies) == "2DCZ", wire.errors(replies)
                assert len(replies[1].row()) == width
                raw.simple(end)
    finally:
        pg.query("drop schema one cascade; drop schema two cascade", "app")


def test_a_literal_that_stands_for_now_is_read_at_each_parse(weir):
    pooler = weir(default_pool_size=1)
    with wire.Raw(pooler.port).login() as one, wire.Raw(pooler.port).login() as other:
        seen = set()
        for raw in (one, other):
            prepare(raw, "s", b"select 'now'::timestamptz")
            seen.add(answer(raw, "s"))
        assert len(seen) == 2


def test_names_go_on_when_prepared_statements_are_turned_off(weir):
    pooler = weir(default_pool_size=1)
    with wire.Raw(pooler.port).login() as raw:
        prepare(raw, "s", b"select 'kept'")
        raw.simple("begin")
        pooler.console("SET max_prepared_statements = 0")
        assert answer(raw, "s") == "kept"
        raw.simple("commit")
        assert answer(raw, "s") == "kept"


@pytest.mark.parametrize("text", [b";deallocate all", b"-- why\n/* /* */ */ deallocate all"])
def test_deallocate_behind_blanks_and_comments(weir, text):
    pooler = weir(default_pool_size=1)
    with wire.Raw(pooler.port).login() as raw:
        prepare(raw, "s", b"select 1")
        raw.send(parse("", text), wire.bind(), wire.execute(), wire.SYNC, parse("s", b"select 2"), run_statement("s"))
        replies = raw.read_until_ready(2)
        assert result(replies) == "2"


# PostgreSQL analyses a statement anew, under the settings of that moment, once something has invalidated its plan.
INVALIDATING = {
    "discard": "discard plans",
    "analyze": "analyze anew",
    "alter": "alter table anew alter column a set statistics 50",
}
USES = {"execute": run_statement("s"), "describe": wire.describe(b"S", "s") + wire.SYNC}


@pytest.fixture
def table(pg):
    pg.query("create table anew (a int); grant all on anew to public; alter table anew owner to alice", "app")
    yield "anew"
    pg.query("drop table anew", "app")


@pytest.mark.every_version
@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("command", INVALIDATING)
def test_what_is_analysed_anew_for_one_client_is_not_for_others(weir, table, command, use):
    pooler = weir(default_pool_size=1)
    text = f"select (date '01/02/2003')::text from (select count(*) from {table}) t".encode()
    with wire.Raw(pooler.port).login() as one, wire.Raw(pooler.port).login() as other, wire.Raw(pooler.port).login() as third:
        for raw in (one, other):
            prepare(raw, "s", text)
        one.simple(INVALIDATING[command])
        other.simple("begin")
        other.simple("set local datestyle = 'ISO, DMY'")
        other.simple("discard plans")
        assert not wire.errors(other.ask(USES[use]))
        assert answer(other, "s") == "2003-02-01", "as PostgreSQL does"
        other.simple("rollback")
        assert answer(one, "s") == "2003-01-02"
        prepare(third, "s", text)
        assert [answer(raw, "s") for raw in (third, other, one)] == ["2003-01-02"] * 3


def test_what_is_analysed_anew_behind_a_set_in_the_same_write(weir, table):
    pooler = weir(default_pool_size=1)
    text = f"select (date '01/02/2003')::text from (select count(*) from {table}) t".encode()
    with wire.Raw(pooler.port).login() as one, wire.Raw(pooler.port).login() as other:
        for raw in (one, other):
            prepare(raw, "s", text)
        steps = [wire.query(sql) for sql in ("begin", "set local datestyle = 'ISO, DMY'", "discard plans")]
        other.send(*steps, run_statement("s"), wire.query("rollback"))
        assert result(other.read_until_ready(5)) == "2003-02-01"
        assert answer(one, "s") == "2003-01-02"


def test_what_a_function_sets_while_a_statement_is_planned(weir, pg):
    pg.query(
        "create function plans() returns int language plpgsql immutable as"
        " $$begin perform set_config('DateStyle', 'ISO, DMY', true); return 1; end$$",
        "app",
    )
    pooler = weir(default_pool_size=1)
    try:
        with wire.Raw(pooler.port).login() as raw, wire.Raw(pooler.port).login() as other:
            prepare(raw, "p", b"select plans()")
            raw.simple("begin")
            raw.ask(wire.bind("p"), parse("s", DATE), wire.SYNC)
            raw.simple("rollback")
            prepare(other, "s", DATE)
            assert answer(other, "s") == "2003-01-02"
    finally:
        pg.query("drop function plans()", "app")


RUN_OTHER_SQL = {
    "fetch": "fetch {}",
    "execute": "execute {}",
    "escaped": "select U&\"set\\005fconfig\"('datestyle', 'ISO, {}', true)",
    "view": "update pg_settings set setting = 'ISO, {}' where name = 'DateStyle'",
}


@pytest.mark.parametrize("by", RUN_OTHER_SQL)
def test_settings_that_are_set_and_restored_around_a_parse(weir, by):
    """Nothing is reported of them; the command does not name set_config() either."""
    pooler = weir(default_pool_size=1, session_state="off")
    with wire.Raw(pooler.port).login() as one, wire.Raw(pooler.port).login() as other:
        one.simple("begin")
        for order in ("dmy", "mdy"):
            query = f"select set_config('datestyle', 'ISO, {order}', true)"
            one.simple(f"declare {order} cursor for {query}" if by == "fetch" else f"prepare {order} as {query}")
        runs = [parse(order, RUN_OTHER_SQL[by].format(order).encode()) for order in ("dmy", "mdy")]
        first, second = ([run, wire.bind(order), wire.execute()] for run, order in zip(runs, ("dmy", "mdy"), strict=True))
        assert not wire.errors(one.ask(*first, parse("s", DATE), *second, wire.SYNC))
        assert answer(one, "s") == "2003-02-01", "as PostgreSQL does"
        one.simple("rollback")
        prepare(other, "s", DATE)
        assert answer(other, "s") == "2003-01-02"


def test_do_may_prepare_a_statement_under_the_name_of_another(weir):
    pooler = weir(default_pool_size=1, session_state="off")
    with wire.Raw(pooler.port).login() as one, wire.Raw(pooler.port).login() as other:
        prepare(one, "s", b"select 'mine'")
        [[name]] = other.simple("select name from pg_prepared_statements")
        other.simple(f"do $$begin execute 'deallocate \"{name}\"'; execute 'prepare \"{name}\" as select ''other'''; end$$")
        assert answer(one, "s") == "mine"
