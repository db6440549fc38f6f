"""What is asked of the catalog for read/write routing (crates/session/src/routing_catalog.sql), and that what counts as a read is one: the corpus on
real servers, without a pooler."""

import psycopg
import pytest

import host
import postgres
import routing_corpus

pytestmark = [pytest.mark.weir_only, pytest.mark.every_version]

READERS = (routing_corpus.ROUTING / "readers.txt").read_text().split()
REPLICATED = (routing_corpus.ROUTING / "replicated.txt").read_text().split()
PRIMARY_ONLY = (routing_corpus.ROUTING / "primary_only.txt").read_text().split()


def ask(server, user="alice", query=None, before=""):
    """The names, as an ordinary role finds them."""
    address = {"host": "127.0.0.1", "port": server.port, "user": user, "dbname": "corpus"}
    with psycopg.connect(**address, autocommit=True) as connection:
        connection.execute(f"set jit = off; {before}")
        return routing_corpus.names(connection.execute(query or routing_corpus.query()).fetchall())


@pytest.fixture
def corpus(pg):
    found = routing_corpus.Corpus()
    pg.query("drop database if exists corpus with (force)")
    pg.query("create database corpus template template0")
    pg.query(found.ddl, "corpus")
    yield found
    pg.query("drop database if exists corpus with (force)")


@pytest.fixture
def standby(pg, corpus, scratch):
    server = postgres.Standby(pg, host.new_directory(scratch, "standby"))
    yield server
    server.remove()


def test_the_names_are_those_of_the_corpus(pg, corpus):
    expected = {"r": corpus.lists["readers"], "p": corpus.lists["primary only"], "o": corpus.lists["operators"], "end": []}
    assert ask(pg) == expected
    # Whatever the session has set, and where names and operators of its own hide PostgreSQL's.
    pg.query("create schema mine; grant usage on schema mine to public; create table mine.pg_proc (a int)", "corpus")
    for kind in ("oid", "text", "name", '"char"', "boolean"):
        pg.query(f"create function mine.wrong({kind}, {kind}) returns boolean language sql immutable as 'select false'", "corpus")
        pg.query(f"create operator mine.= (leftarg = {kind}, rightarg = {kind}, function = mine.wrong)", "corpus")
    expected["r"] = sorted([*expected["r"], "wrong"])
    assert ask(pg, before="set search_path = mine, pg_catalog; set enable_hashjoin = off; set default_transaction_read_only = on") == expected


def test_a_standby_gives_the_same_answer(pg, corpus, standby):
    assert ask(standby) == ask(pg)


def test_what_no_text_shows_leaves_nothing_known(pg, corpus):
    for made in [
        "create cast (point3 as shade) with function to_shade(point3) as implicit",
        "create cast (point3 as jsonb) with function to_document(point3)",
        "create cast (point3 as int) with function to_int(point3)",
        "create operator class mine for type point3 using btree as operator 1 <, function 1 compare(point3, point3)",
        "create operator class mine for type point3 using btree as operator 1 <, operator 5 +>",
    ]:
        pg.query("drop database if exists corpus with (force)")
        pg.query("create database corpus template template0")
        pg.query(corpus.ddl, "corpus")
        pg.query("create function to_shade(point3) returns shade language plpgsql as 'begin return null; end'", "corpus")
        pg.query("create function to_document(point3) returns jsonb language plpgsql as 'begin return null; end'", "corpus")
        pg.query("create function to_int(point3) returns int language plpgsql as 'begin return 1; end'", "corpus")
        pg.query("create function compare(point3, point3) returns int language plpgsql as 'begin return 0; end'", "corpus")
        pg.query("create function less(point3, point3) returns boolean language sql immutable as 'select false'", "corpus")
        pg.query("create operator < (leftarg = point3, rightarg = point3, function = less)", "corpus")
        pg.query("create function more(point3, point3) returns boolean language plpgsql as 'begin return false; end'", "corpus")
        pg.query("create operator +> (leftarg = point3, rightarg = point3, function = more)", "corpus")
        assert "a" not in ask(pg)
        pg.query(made, "corpus")
        assert "a" in ask(pg), made


def test_an_answer_has_an_end(pg, corpus):
    found = ask(pg, query=routing_corpus.query(max_bytes=500))
    assert found == {"too many p": [], "o": corpus.lists["operators"], "r": corpus.lists["readers"], "end": []}
    pg.query("do $$ begin for i in 1..600 loop execute format('create sequence a_rather_long_name_of_a_sequence_%s', i); end loop; end $$", "corpus")
    assert len(ask(pg)["p"]) == len(corpus.lists["primary only"]) + 600


def test_the_lists_of_what_is_built_in_are_right(pg):
    """No function that is called for harmless is volatile, nor one that a primary alone may answer."""
    volatile = "select distinct proname::text from pg_proc where provolatile = 'v' and oid < 16384"
    assert not {name for (name,) in pg.query(volatile)} & {*READERS, *REPLICATED}
    assert not {*READERS, *REPLICATED} & {*PRIMARY_ONLY}
    # What can be called in the notation of a field is known by its word alone.
    as_field = "pronargs > 0 and pronargs - pronargdefaults <= 1 and prokind <> 'p' and prorettype <> all('{trigger,event_trigger,internal}'::regtype[]) and 'internal'::regtype <> all(proargtypes)"
    found = {name for (name,) in pg.query(f"{volatile} and {as_field}") if not name.startswith(("pg_", "binary_upgrade_"))}
    assert " ".join(sorted(found - {*PRIMARY_ONLY})) == ""
    # A view of the catalog that counts as replicated uses no other that does not, and calls nothing else.
    tree = "select relname::text, ev_action::text from pg_class k join pg_rewrite r on ev_class = k.oid where relname = any(%s)"
    called = f"""select distinct t.relname, coalesce(f.proname, k.relname)::text from ({tree}) t(relname, tree),
        lateral regexp_matches(tree, ':(funcid|aggfnoid|winfnoid|relid) ([0-9]+) ', 'g') m(found)
        left join pg_proc f on found[1] <> 'relid' and f.oid = found[2]::oid left join pg_class k on found[1] = 'relid' and k.oid = found[2]::oid"""
    address = {"host": "127.0.0.1", "port": pg.port, "user": "postgres", "dbname": "postgres"}
    with psycopg.connect(**address) as connection:
        for view, name in connection.execute(called, [REPLICATED]).fetchall():
            assert name not in PRIMARY_ONLY, (view, name)
            assert name is None or not name.startswith("pg_") or name in REPLICATED, (view, name)


def outcome(connection, text):
    """The rows of a text, or the code of its error."""
    try:
        cursor = connection.execute(text)
        return sorted(map(str, cursor.fetchall())) if cursor.description else []
    except psycopg.Error as error:
        return error.sqlstate


# Their answers have costs, times or random figures in them, or need a value.
def has_one_answer(text):
    return not any(word in text.lower() for word in ("explain", "now()", "$1", "plain_matview", "pgbench"))


def test_reads_of_the_corpus_have_the_same_answer_on_a_standby(pg, corpus, standby):
    pg.query("insert into item select n, 'name ' || n, n, '{a,b}', '{\"a\": {\"b\": 1}}', '2024-01-01', n, n from generate_series(1, 5) n", "corpus")
    pg.query("insert into orders (item_id, amount) select n, n from generate_series(1, 5) n; insert into parted values (1, '2024-05-01')", "corpus")
    pg.query("grant select on all tables in schema public to public", "corpus")
    position = pg.value("select pg_current_wal_lsn()")
    host.eventually(lambda: standby.value(f"select pg_last_wal_replay_lsn() >= '{position}'"))
    reads = [(group, text) for group, kind, text in corpus.cases if kind == "Read" and has_one_answer(text)]
    address = {"host": "127.0.0.1", "user": "postgres", "dbname": "corpus", "autocommit": True}
    with psycopg.connect(port=pg.port, **address) as one, psycopg.connect(port=standby.port, **address) as other:
        for group, text in reads:
            expected, found = outcome(one, text), outcome(other, text)
            assert found == expected and isinstance(found, list), (group, text, expected, found)
    assert len(reads) > 140
