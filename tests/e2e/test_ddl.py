"""DDL under a statement that Weir prepares again on another server: the client gets PostgreSQL's own reply.

Each scenario runs against PostgreSQL itself too (`direct`), with the same expectations: there, the statement stays on one server."""

import struct

import pytest

import wire

# PgBouncer prepares the text again and compares nothing.
pytestmark = [pytest.mark.weir_only, pytest.mark.every_version]

CHANGED = [("0A000", "cached plan must not change result type")]
SELECT = "select * from ddl"


def bind(name, values=(), formats=()):
    encoded = b"".join(struct.pack("!i", len(value)) + value for value in values)
    head = struct.pack("!h", len(formats)) + b"".join(struct.pack("!h", code) for code in formats)
    body = wire.cstring("") + wire.cstring(name) + head + struct.pack("!h", len(values)) + encoded + struct.pack("!h", 0)
    return wire.message(b"B", body)


def run(name, values=(), formats=(), between=b""):
    return bind(name, values, formats) + between + wire.execute() + wire.SYNC


def prepare(raw, name, statement, described=True):
    """The description; empty where none is asked for."""
    replies = raw.ask(wire.parse(name, statement), wire.describe(b"S", name) if described else b"", wire.SYNC)
    assert not wire.errors(replies), wire.errors(replies)
    return replies[1:3] if described else []


def width(replies):
    assert not wire.errors(replies), wire.errors(replies)
    return [len(reply.row()) for reply in replies if reply.kind == "D"]


class Stage:
    """A client, and a second one that holds the first one's server, so that the first gets another."""

    def __init__(self, port, elsewhere):
        self.port, self.elsewhere, self.open = port, elsewhere, []

    def client(self, database="app"):
        self.open.append(wire.Raw(self.port).login(database=database))
        return self.open[-1]

    def move(self):
        """Takes the server that was used last; what comes next runs on another."""
        if self.elsewhere:
            self.client().simple("begin")

    def close(self):
        for raw in self.open:
            raw.socket.close()


@pytest.fixture
def table(pg):
    def make(columns, database="app"):
        pg.query(f"drop table if exists ddl; create table ddl ({columns}); grant all on ddl to public", database)

    make("a int")
    pg.query("insert into ddl values (1)", "app")
    pg.make_table = make
    return pg


@pytest.fixture(params=["direct", "weir"])
def stage(request, table, weir):
    direct = request.param == "direct"
    one = Stage(table.port if direct else weir(default_pool_size=10, threads=1).port, not direct)
    yield one
    one.close()


@pytest.fixture
def pooled(table, weir):
    one = Stage(weir(default_pool_size=10, threads=1).port, True)
    yield one
    one.close()


# --- results ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("change", ["add column b int", "alter column a type bigint", "rename column a to c"])
@pytest.mark.parametrize("in_block", [False, True], ids=["alone", "in_block"])
def test_a_client_that_holds_a_description_is_refused(stage, table, change, in_block):
    raw = stage.client()
    prepare(raw, "s", SELECT)
    table.query(f"alter table ddl {change}", "app")
    stage.move()
    if in_block:
        raw.simple("begin")
    assert wire.errors(raw.ask(run("s"))) == CHANGED
    if in_block:
        raw.simple("rollback")
    # It prepares anew, as drivers do.
    prepare(raw, "again", SELECT)
    assert len(width(raw.ask(run("again")))) == 1


def test_what_it_refuses_is_not_executed(stage, table):
    raw = stage.client()
    prepare(raw, "s", "insert into ddl (a) values (2) returning *")
    table.query("alter table ddl add column b int", "app")
    stage.move()
    assert wire.errors(raw.ask(run("s"))) == CHANGED
    assert raw.simple("select count(*) from ddl") == [["1"]]


def test_ddl_that_leaves_the_result_as_it_is_refuses_nothing(stage, table):
    raw = stage.client()
    prepare(raw, "s", "select a from ddl")
    table.query("alter table ddl add column b int", "app")
    stage.move()
    assert width(raw.ask(run("s"))) == [1]
    table.query("drop table ddl; create table ddl (x text, a int); grant all on ddl to public; insert into ddl values ('x', 1)", "app")
    stage.move()
    assert width(raw.ask(run("s"))) == [1]


def test_ddl_that_is_undone_refuses_nothing(stage, table):
    raw = stage.client()
    prepare(raw, "s", SELECT)
    table.query("alter table ddl add column b int", "app")
    stage.move()
    assert wire.errors(raw.ask(run("s"))) == CHANGED
    table.query("alter table ddl drop column b", "app")
    stage.move()
    assert width(raw.ask(run("s"))) == [1]


def test_a_portal_is_described_and_the_description_kept(stage, table):
    """As pgjdbc does."""
    raw = stage.client()
    prepare(raw, "s", SELECT, described=False)
    assert width(raw.ask(run("s", between=wire.describe(b"P")))) == [1]
    table.query("alter table ddl add column b int", "app")
    stage.move()
    assert wire.errors(raw.ask(run("s"))) == CHANGED


def test_who_reads_no_description_or_a_new_one_goes_on(pooled, table):
    """PostgreSQL would refuse both; neither can misread anything."""
    never, always = pooled.client(), pooled.client()
    for raw in (never, always):
        prepare(raw, "s", SELECT, described=False)
    for wide in (2, 3):
        table.query(f"alter table ddl add column c{wide} int", "app")
        pooled.move()
        pooled.move()
        assert width(never.ask(run("s"))) == [wide]
        assert width(always.ask(run("s", between=wire.describe(b"P")))) == [wide]
    before = never.simple("select count(*) from pg_prepared_statements")
    for _ in range(3):
        assert width(never.ask(run("s"))) == [3]
    assert never.simple("select count(*) from pg_prepared_statements") == before


def test_a_new_description_is_what_the_client_reads_by(pooled, table):
    raw = pooled.client()
    prepare(raw, "s", SELECT)
    table.query("alter table ddl add column b int", "app")
    pooled.move()
    replies = raw.ask(wire.describe(b"S", "s"), wire.SYNC)
    assert wire.kinds(replies) == "tTZ" and b"b\0" in replies[1].body
    for _ in range(2):
        assert width(raw.ask(run("s"))) == [2]
    pooled.move()
    assert width(raw.ask(run("s"))) == [2]


def test_a_client_that_prepares_later_does_not_change_what_others_hold(pooled, table):
    old, new = pooled.client(), pooled.client()
    prepare(old, "s", SELECT)
    table.query("alter table ddl add column b int", "app")
    pooled.move()
    prepare(new, "s", SELECT)
    assert width(new.ask(run("s"))) == [2]
    assert wire.errors(old.ask(run("s"))) == CHANGED
    assert width(new.ask(run("s"))) == [2]
    pooled.move()
    assert width(new.ask(run("s"))) == [2]
    assert wire.errors(old.ask(run("s"))) == CHANGED


def test_a_pipeline_is_refused_in_its_place(stage, table):
    raw = stage.client()
    prepare(raw, "s", SELECT)
    prepare(raw, "one", "select 1")
    table.query("alter table ddl add column b int", "app")
    stage.move()
    raw.send(bind("one") + wire.execute() + bind("s") + wire.execute() + bind("one") + wire.execute(), wire.SYNC, run("one"))
    replies = raw.read_until_ready(2)
    assert wire.kinds(replies) == "2DCEZ2DCZ"
    assert wire.errors(replies) == CHANGED


@pytest.mark.parametrize("moves", [False, True], ids=["here", "elsewhere"])
def test_who_describes_something_else_holds_what_it_has(stage, table, moves):
    raw = stage.client()
    prepare(raw, "s", SELECT)
    prepare(raw, "one", "select 1")
    table.query("alter table ddl add column b int", "app")
    if moves:
        stage.move()
    other = bind("one") + wire.describe(b"P") + wire.execute()
    assert wire.errors(raw.ask(bind("s") + wire.execute() + other, wire.SYNC)) == CHANGED


def test_a_description_that_does_not_come_leaves_the_client_with_its_own(stage, table):
    text = "select * from ddl where a <> $1"
    raw = stage.client()
    prepare(raw, "s", text)
    table.query("alter table ddl alter column a type text using 'x'", "app")
    stage.move()
    for _ in range(2):
        assert [code for code, _ in wire.errors(raw.ask(wire.describe(b"S", "s"), wire.SYNC))] == ["42883"]
    table.query("alter table ddl alter column a type int using 1, add column b int", "app")
    stage.move()
    # Neither does a portal's, if it cannot be bound.
    assert [code for code, _ in wire.errors(raw.ask(run("s", [b"no number"], between=wire.describe(b"P"))))] == ["22P02"]
    assert wire.errors(raw.ask(run("s", [b"0"]))) == CHANGED


def test_names_of_one_text_are_described_one_by_one(pooled, table):
    raw = pooled.client()
    for name in ("s", "t"):
        prepare(raw, name, SELECT)
    table.query("alter table ddl add column b int", "app")
    pooled.move()
    replies = raw.ask(wire.describe(b"S", "s"), wire.SYNC)
    assert wire.kinds(replies) == "tTZ" and b"b\0" in replies[1].body
    assert wire.errors(raw.ask(run("t"))) == CHANGED
    assert width(raw.ask(run("s"))) == [2]
    table.query("alter table ddl drop column b", "app")
    pooled.move()
    assert width(raw.ask(run("t"))) == [1]
    assert wire.errors(raw.ask(run("s"))) == CHANGED


# --- parameters ------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", ["bigint", "real", "numeric"])
@pytest.mark.parametrize("described", [True, False], ids=["described", "known"])
def test_parameters_keep_the_types_they_were_parsed_with(stage, table, kind, described):
    """A binary value of four bytes, which a float is too."""
    raw = stage.client()
    prepare(raw, "s", "insert into ddl (a) values ($1)", described)
    table.query(f"alter table ddl alter column a type {kind}", "app")
    stage.move()
    assert not wire.errors(raw.ask(run("s", [struct.pack("!i", 5)], [1])))
    assert raw.simple("select a from ddl order by a") == [["1"], ["5"]]


def test_a_type_that_does_not_fit_any_more_is_postgresqls_to_refuse(stage, table):
    raw = stage.client()
    prepare(raw, "s", "insert into ddl (a) values ($1)")
    table.query("alter table ddl alter column a type date using date '2000-01-01'", "app")
    stage.move()
    assert [code for code, _ in wire.errors(raw.ask(run("s", [b"5"])))] == ["42804"]
    # Prepared anew it has the new type, wherever.
    for name in ("one", "two", "three"):
        (parameters, _) = prepare(raw, name, "insert into ddl (a) values ($1)")
        assert struct.unpack("!hi", parameters.body) == (1, 1082)
        assert not wire.errors(raw.ask(run(name, [b"2001-02-03"])))
        stage.move()


def test_a_client_that_prepares_later_has_the_types_of_then(pooled, table):
    old, new = pooled.client(), pooled.client()
    text = "insert into ddl (a) values ($1)"
    prepare(old, "s", text)
    table.query("alter table ddl alter column a type double precision", "app")
    pooled.move()
    (parameters, _) = prepare(new, "s", text)
    assert struct.unpack("!hi", parameters.body) == (1, 701)
    for _ in range(3):
        assert not wire.errors(new.ask(run("s", [struct.pack("!d", 2.5)], [1])))
        assert not wire.errors(old.ask(run("s", [struct.pack("!i", 7)], [1])))
        pooled.move()
    assert old.simple("select a, count(*) from ddl group by a order by a") == [["1", "1"], ["2.5", "3"], ["7", "3"]]


def test_a_type_that_was_made_anew(pooled, table):
    """What is left of it in a plan is a number that means nothing: the driver has to ask again."""
    table.query("drop type if exists mood cascade; create type mood as enum ('low', 'high')", "app")
    table.make_table("a mood")
    text = "insert into ddl (a) values ($1) returning a"
    describing, plain = pooled.client(), pooled.client()
    prepare(describing, "s", text)
    prepare(plain, "s", text, described=False)
    table.query("drop table ddl; drop type mood; create type mood as enum ('low', 'high'); create table ddl (a mood); "
                "grant all on ddl to public", "app")
    pooled.move()
    pooled.move()
    assert wire.errors(describing.ask(run("s", [b"low"]))) == CHANGED
    prepare(describing, "t", text)
    assert width(describing.ask(run("t", [b"low"]))) == [1]
    assert width(plain.ask(run("s", [b"high"]))) == [1]


# --- whose statement it is -------------------------------------------------------------------------------------
def test_another_database_has_other_tables(pooled, table):
    """The same text in two databases is two statements: a change in one is none in the other."""
    table.make_table("a int, b int, c int", "other")
    here, there = pooled.client(), pooled.client("other")
    for raw in (here, there):
        prepare(raw, "s", SELECT)
    table.query("alter table ddl add column d int", "other")
    assert wire.errors(there.ask(run("s"))) == CHANGED
    assert width(here.ask(run("s"))) == [1]
    pooled.move()
    assert width(here.ask(run("s"))) == [1]
    prepare(there, "t", SELECT)
    assert wire.kinds(there.ask(run("t"))) == "2CZ"
    table.query("drop table ddl", "other")


def test_users_whose_search_path_names_their_own_schema(pooled, table):
    for user, columns in (("alice", "a int"), ("bob", "a int, b int")):
        table.query(f"drop schema if exists {user} cascade; create schema {user} authorization {user}; "
                    f"create table {user}.own ({columns}); grant all on {user}.own to {user}", "app")
    try:
        raws = {user: wire.Raw(pooled.port).login(user=user) for user in ("alice", "bob")}
        pooled.open.extend(raws.values())
        for raw in raws.values():
            prepare(raw, "s", "select * from own")
        for _ in range(2):
            for raw in raws.values():
                assert wire.kinds(raw.ask(run("s"))) == "2CZ"
            for user in raws:
                pooled.open.append(wire.Raw(pooled.port).login(user=user))
                pooled.open[-1].simple("begin")
    finally:
        table.query("drop schema alice cascade; drop schema bob cascade", "app")
