"""`query_cache`: reads are answered again without a server until the primary's changes say otherwise, and never older than they may be."""

import contextlib
import threading
import time

import psycopg
import pytest

import browser
import host
import panel
import postgres
import weir as weir_program
from test_takeover import reboot

pytestmark = [pytest.mark.weir_only, pytest.mark.every_version]

ENTRY = "host=127.0.0.1 port={port} dbname={dbname} query_cache=16MB query_cache_user=replica pool_mode=transaction session_state=virtual"
SCHEMA = """
drop schema if exists cache cascade;
create schema cache;
create table cache.items (id int primary key, value int);
insert into cache.items select n, 0 from generate_series(1, 100) n;
create table cache.log (n int);
create view cache.sums as select sum(value) from cache.items;
create table cache.parts (id int, value int) partition by range (id);
create table cache.part1 partition of cache.parts for values from (0) to (100);
insert into cache.parts values (1, 0);
create index item_value on cache.items (value);
create table cache.indexes (i regclass);
insert into cache.indexes values ('cache.item_value');
create unlogged table cache.unlogged (value int);
insert into cache.unlogged values (0);
create materialized view cache.stored as select max(value) from cache.items;
create function cache.total() returns bigint stable language sql as 'select sum(value) from cache.items';
create view cache.by_function as select cache.total();
grant usage on schema cache to public;
grant all on all tables in schema cache to public;
"""
STALENESS = 1.0


@pytest.fixture
def cached(weir, pg):
    pg.query(SCHEMA, "app")

    def start(more="", **settings):
        entry = ENTRY.format(port=pg.port, dbname="app") + " " + more
        pooler = weir(databases={"app": entry}, **{"default_pool_size": 4, **settings})
        with pooler.connect("app") as client:
            client.execute("select 1")
        host.eventually(lambda: show(pooler)["state"] == "ok", timeout=20)
        return pooler

    yield start
    pg.query("drop schema cache cascade", "app")


def show(pooler):
    (row,) = pooler.console("SHOW CACHE")
    return row


def settles(pooler, client, statement, expected=None):
    """Until the statement is answered from the cache."""

    def hits():
        before = show(pooler)["hits"]
        row = client.execute(statement).fetchone()
        assert expected is None or row == expected
        return int(show(pooler)["hits"]) > int(before)

    host.eventually(hits, timeout=20)


def is_told(is_new):
    """Asks until the answer shows a change that has just been made: whoever asks later than STALENESS behind it has to see it."""
    changed = time.monotonic()
    asked = changed
    while not is_new():
        assert asked - changed <= STALENESS, f"old {asked - changed:.2f} s behind the change"
        time.sleep(0.02)
        asked = time.monotonic()


def test_an_answer_is_used_again_until_the_table_changes(cached, pg):
    pooler = cached()
    client = pooler.connect("app")
    read = "select value from cache.items where id = 7"
    settles(pooler, client, read, (0,))

    def twenty():
        before = int(show(pooler)["hits"])
        for _ in range(20):
            assert client.execute(read).fetchone() == (0,)
        # But for the one that the driver prepares, and the first one behind it.
        return int(show(pooler)["hits"]) >= before + 17

    host.eventually(twenty)
    # A change of another table is none of it; one beside Weir is told.
    pg.query("insert into cache.log values (1)", "app")
    settles(pooler, client, read, (0,))
    pg.query("update cache.items set value = 1 where id = 7", "app")
    host.eventually(lambda: client.execute(read).fetchone() == (1,), timeout=5)
    settles(pooler, client, read, (1,))
    assert int(show(pooler)["invalidations"]) > 0


@pytest.mark.parametrize("prepare", [True, False])
def test_clients_share_answers_and_bound_values_tell_them_apart(cached, prepare):
    pooler = cached()
    one, other = pooler.connect("app"), pooler.connect("app")
    read = "select id, value from cache.items where id = %s"

    def sixty():
        before = show(pooler)
        for client in (one, other):
            for number in (1, 2, 3) * 5:
                assert client.execute(read, [number], prepare=prepare).fetchone() == (number, 0)
                with client.cursor(binary=True) as cursor:
                    assert cursor.execute(read, [number], prepare=prepare).fetchone() == (number, 0)
        return int(show(pooler)["hits"]) >= int(before["hits"]) + 60

    host.eventually(sixty)
    assert int(show(pooler)["misses"]) >= 6
    for number in (1, 2, 3):
        one.execute("update cache.items set value = %s where id = %s", [number * 10, number])
        assert one.execute(read, [number], prepare=prepare).fetchone() == (number, number * 10)


def test_a_client_sees_what_it_has_written(cached):
    pooler = cached()
    client = pooler.connect("app")
    deadline, number = time.monotonic() + 4, 0
    while time.monotonic() < deadline:
        number += 1
        client.execute("update cache.items set value = %s where id = 1", [number])
        for _ in range(3):
            assert client.execute("select value from cache.items where id = 1").fetchone() == (number,)
    host.eventually(lambda: settles(pooler, client, "select value from cache.items where id = 1", (number,)) is None)


class Writer(threading.Thread):
    """Counts one row up beside Weir, and notes when each number was committed."""

    def __init__(self, pg):
        super().__init__(daemon=True)
        self.pg, self.committed, self.ends = pg, [(time.monotonic(), 0)], threading.Event()

    def run(self):
        address = {"host": "127.0.0.1", "port": self.pg.port, "user": "postgres", "dbname": "app"}
        with psycopg.connect(**address, autocommit=True) as connection:
            number = 0
            while not self.ends.wait(0.02):
                number += 1
                connection.execute("update cache.items set value = %s where id = 5", [number])
                self.committed.append((time.monotonic(), number))

    def least(self, since):
        """What was committed then."""
        return max((number for at, number in self.committed if at <= since), default=0)


def test_no_answer_is_older_than_it_may_be(cached, pg):
    pooler = cached()
    writer = Writer(pg)
    writer.start()
    failures, reads = [], []

    def reader(statement):
        client = pooler.connect("app")
        while not writer.ends.is_set():
            asked = time.monotonic()
            (found,) = client.execute(statement).fetchone()
            reads.append(found)
            least = writer.least(asked - STALENESS)
            if found < least:
                failures.append((statement, found, least))

    statements = ["select value from cache.items where id = 5", "select sum from cache.sums", "select max(value) from cache.items"]
    readers = [threading.Thread(target=reader, args=[statement]) for statement in statements]
    for thread in readers:
        thread.start()
    time.sleep(5)
    is_enough = lambda: len(reads) > 100 and int(show(pooler)["hits"]) > 0
    with contextlib.suppress(AssertionError):  # told below
        host.eventually(lambda: failures or is_enough())
    writer.ends.set()
    for thread in [*readers, writer]:
        thread.join(20)
    assert not failures, failures[:3]
    assert len(reads) > 100 and int(show(pooler)["hits"]) > 0


CHANGES = {
    # What happens beside Weir, a read, and what it comes to then: a row, or the SQLSTATE of an error.
    "column": ("alter table cache.items rename value to other", "select value from cache.items where id = 3", "42703"),
    "migration": (
        "begin; alter table cache.items rename value to other; insert into cache.log values (1); commit",
        "select value from cache.items where id = 3",
        "42703",
    ),
    "view": ("begin; create or replace view cache.sums as select -1::bigint as sum; insert into cache.log values (1); commit", "select sum from cache.sums", (-1,)),
    "revoke": ("begin; revoke select on cache.items from public; insert into cache.log values (1); commit", "select value from cache.items where id = 3", "42501"),
    "revoke beside a message": (
        "begin; select pg_logical_emit_message(true, 'weir_cache', ''); revoke select on cache.items from public; commit",
        "select value from cache.items where id = 3",
        "42501",
    ),
    "index": ("begin; alter index cache.item_value rename to renamed; insert into cache.log values (1); commit", "select i::text from cache.indexes", ("cache.renamed",)),
    "policy": ("begin; alter table cache.items enable row level security; insert into cache.log values (1); commit", "select value from cache.items where id = 3", None),
    "owner of schema": ("revoke usage on schema cache from public", "select value from cache.items where id = 3", "42501"),
    "drop": ("drop table cache.log", "select n from cache.log", "42P01"),
    "truncate": ("truncate cache.items", "select value from cache.items where id = 3", None),
    "partition": ("update cache.part1 set value = 9", "select value from cache.parts", (9,)),
    "attach": ("alter table cache.parts detach partition cache.part1", "select value from cache.parts", None),
}


@pytest.mark.parametrize("change", CHANGES)
def test_changes_of_the_schema_beside_weir_are_told(cached, pg, change):
    done, read, expected = CHANGES[change]
    pooler = cached()
    client = pooler.connect("app")
    settles(pooler, client, read) if change != "drop" else client.execute(read)
    with psycopg.connect(host="127.0.0.1", port=pg.port, user="postgres", dbname="app", autocommit=True) as beside:
        beside.execute(done)

    def is_new():
        try:
            return client.execute(read).fetchone() == expected
        except psycopg.Error as error:
            return error.sqlstate == expected

    is_told(is_new)


def test_membership_in_a_role_is_told(cached, pg):
    pg.query("drop role if exists readers; create role readers; revoke select on cache.items from public; grant select on cache.items to readers; grant readers to alice", "app")
    try:
        pooler = cached()
        client = pooler.connect("app", "alice")
        settles(pooler, client, "select value from cache.items where id = 3")
        pg.query("revoke readers from alice", "other")

        def is_refused():
            try:
                client.execute("select value from cache.items where id = 3")
            except psycopg.errors.InsufficientPrivilege:
                return True
            return False

        is_told(is_refused)
    finally:
        pg.query("drop owned by readers; drop role readers", "app")


def test_what_decoding_does_not_tell_is_not_kept(cached, pg):
    pooler = cached()
    client = pooler.connect("app")
    settles(pooler, client, "select value from cache.items where id = 4")
    for read in (
        "select value from cache.unlogged",
        "select max from cache.stored",
        "select total from cache.by_function",
        "select cache.total() from cache.items limit 1",
        "select value from cache.items where now() > '2020-01-01' and id = 4",
        "select relname from pg_class where relname = 'items'",
    ):
        before = show(pooler)
        for _ in range(5):
            client.execute(read)
            time.sleep(0.03)
        after = show(pooler)
        assert after["hits"] == before["hits"] and after["answers"] <= before["answers"], read
    # In a transaction everything is the server's.
    before = show(pooler)["hits"]
    with client.transaction():
        client.execute("select value from cache.items where id = 4")
    assert show(pooler)["hits"] == before


NOW = """
drop schema if exists name cascade;
create table cache.texts (a text, x xml, j jsonb); insert into cache.texts values ('now', '<d>now</d>', '{"d": "now"}'), (null, null, null);
create table cache.pair (d timestamptz); grant all on cache.texts to public;
create domain cache.moment as timestamptz; create domain cache.moments as timestamptz[]; create type cache.two as (n int, d timestamptz); create domain cache.of_two as cache.two;
create type cache.span as range (subtype = timestamptz);
create view cache.arrays as select ('{' || a || '}')::timestamptz[] as d from cache.texts;
create view cache.pairs as select a::cache.pair as d from (select '(' || a || ')' as a from cache.texts) t;
create view cache.ranges as select ('[' || a || ',)')::tstzrange as d from cache.texts;
create view cache.xml as select y.d from cache.texts, xmltable('/d' passing x columns d timestamptz path '.') y;
create view cache.plain as select a::varchar(3) as d from cache.texts;
grant select on all tables in schema cache to public;
create function cache.state(int, text) returns int volatile language plpgsql as 'begin return (select n from cache.log); end';
create aggregate cache.sum(text) (sfunc = cache.state, stype = int, initcond = '0');
create function cache.logged(text) returns int volatile language plpgsql as 'begin return (select n from cache.log); end';
create function cache.scalar(int) returns int stable language plpgsql as 'begin return (select n from cache.log); end';
create function cache.several(variadic cache.items[]) returns int stable language plpgsql as 'begin return (select n from cache.log); end';
create function cache.escape(int) returns int stable language plpgsql as 'begin return (select n from cache.log); end';
create function cache.json_array(int) returns int stable language plpgsql as 'begin return (select n from cache.log); end';
create function cache.asked(int, int) returns int stable language plpgsql as 'begin return (select n from cache.log); end';
create operator cache.? (leftarg = int, rightarg = int, function = cache.asked);
create type cache.wrapped as (n int);
create function cache.wrap(int) returns cache.wrapped stable language plpgsql as 'begin return row((select n from cache.log)); end';
create cast (int as cache.wrapped) with function cache.wrap(int);
create domain cache.of_wrapped as cache.wrapped;
create domain cache.int8 as timestamptz;
create schema name; create domain name.moment as timestamptz; grant usage on schema name to public;
"""


def test_texts_that_mean_the_time_and_functions_that_no_call_shows_are_not_kept(cached, pg):
    pg.query(NOW, "app")
    reads = [
        "select a::cache.moment from cache.texts",
        "select cast(a as moment) from cache.texts",
        'select a::"timestamptz" from cache.texts',
        "select (a).moment from cache.texts",
        "select (a).timestamptz from cache.texts",
        "select ('[' || a || ',)')::tstzrange from cache.texts",
        "select tstzrange('[' || a || ',)') from cache.texts",
        "select ('(' || a || ')')::pair from cache.texts",
        "select y.d from cache.texts, xmltable('/d' passing x columns d timestamptz path '.') y",
        *(f"select d from cache.{view}" for view in ("arrays", "pairs", "ranges", "xml")),
        # What these read is in none of the names of the text.
        "select sum(a) from cache.texts",
        "select (a).logged from cache.texts",
        "select g.scalar from generate_series(1, 1) g, cache.texts",
        "select i.several from cache.items i where id = 1",
        "select cache.escape(id), escape(id) from cache.items where id = 1",
        "select cache.json_array(id) from cache.items where id = 1",
        "select id ? value from cache.items where id = 1",
        "select 5::cache.of_wrapped from cache.items where id = 1",
        "select a::int8 from cache.texts",
        "select cast(a as name.moment) from cache.texts",
        "select g.timestamptz from cache.texts, unnest(array[a]) g",
        "select g.moment from cache.texts, unnest(array[a]) g",
        "select g.span from cache.texts, unnest(array['[' || a || ',)']) g",
        "select g.moments from cache.texts, unnest(array['{' || a || '}']) g",
        "select g._moment from cache.texts, unnest(array['{' || a || '}']) g",
        "select g.of_two from cache.texts, unnest(array['(1,' || a || ')']) g",
        "select xmax, ctid from cache.items where id = 1",
    ]
    if pg.value("select current_setting('server_version_num')::int") >= 170000:
        pg.query("create view cache.json as select json_value(j, '$.d' returning timestamptz) as d from cache.texts; grant select on cache.json to public", "app")
        reads += ["select d from cache.json", "select json_query(j, '$.d' returning timestamptz) from cache.texts"]
    pooler = cached()
    client = pooler.connect("app")
    client.execute("set search_path = cache, pg_catalog")
    kept = []
    for read in reads:
        settles(pooler, client, "select d from cache.plain order by 1 limit 1")
        before = int(show(pooler)["hits"])
        for _ in range(4):
            client.execute(read, prepare=False)
            time.sleep(0.02)
        kept += [read] if int(show(pooler)["hits"]) > before else []
    # A text whose length is a letter, where it stands in the bytes of a Bind.
    for bytes_of_text in (65, 100):
        before = int(show(pooler)["hits"])
        for _ in range(4):
            client.execute("select %s::timestamptz from cache.texts", ["now".ljust(bytes_of_text)], prepare=True)
            time.sleep(0.02)
        kept += [bytes_of_text] if int(show(pooler)["hits"]) > before else []
    pg.query("drop schema name cascade", "app")
    assert not kept


@pytest.mark.parametrize("made", [
    "create operator cache.= (leftarg = int, rightarg = text, function = cache.same)",
    "create cast (text as timestamptz) with inout as implicit",
    "create type cache.odd as (n int); create function cache.less(cache.odd, cache.odd) returns bool stable language plpgsql as 'begin return (select n from cache.log) > 0; end';"
    "create operator cache.<< (leftarg = cache.odd, rightarg = cache.odd, function = cache.less);"
    "create operator class cache.odd_order for type cache.odd using btree as operator 1 cache.<<, function 1 btrecordcmp(record, record)",
], ids=["operator", "cast", "operator class"])
def test_nothing_is_kept_where_no_text_shows_what_it_runs(cached, pg, made):
    pg.query("create function cache.same(int, text) returns bool stable language plpgsql as 'begin return (select n from cache.log) = $1; end'", "app")
    pg.query(made, "app")
    try:
        pooler = cached()
        client = pooler.connect("app")
        # Until long after answers could be stored.
        host.eventually(lambda: show(pooler)["state"] == "ok", timeout=20)
        for _ in range(60):
            client.execute("select value from cache.items where id = 3")
            time.sleep(0.02)
        host.eventually(lambda: show(pooler)["state"] == "ok", timeout=20)
        assert int(show(pooler)["hits"]) == 0
    finally:
        pg.query("drop cast if exists (text as timestamptz)", "app")


def test_after_reconnect_answers_are_of_sessions_with_the_new_defaults(cached, pg):
    pooler = cached()
    client = pooler.connect("app")
    read = "select convert_to(n::text, 'UTF8')::text from cache.log"
    pg.query("insert into cache.log values (7)", "app")
    settles(pooler, client, read, ("\\x37",))
    pg.query(f"alter role {client.info.user} set bytea_output = 'escape'", "app")
    try:
        settles(pooler, client, read)
        pooler.console("RECONNECT app")
        settles(pooler, pooler.connect("app"), read, ("7",))
    finally:
        pg.query(f"alter role {client.info.user} reset bytea_output", "app")


def test_row_level_security_keeps_users_and_roles_apart(cached, pg):
    pg.query(
        "alter table cache.items enable row level security;"
        "create policy own on cache.items using (value = 0 and current_user = 'alice');"
        "grant bob to alice",
        "app",
    )
    try:
        pooler = cached()
        alice, bob = pooler.connect("app", "alice"), pooler.connect("app", "bob")
        read = "select count(*) from cache.items"
        settles(pooler, alice, read, (100,))
        settles(pooler, bob, read, (0,))
        alice.execute("set role bob")
        settles(pooler, alice, read, (0,))
        alice.execute("reset role")
        for _ in range(5):
            assert (alice.execute(read).fetchone(), bob.execute(read).fetchone()) == ((100,), (0,))
    finally:
        pg.query("revoke bob from alice")


@pytest.mark.parametrize(
    "user, words", [("alice", "REPLICATION"), ("absent", "absent")], ids=["no-replication", "no-such-role"]
)
def test_without_the_changes_nothing_is_kept_and_the_state_says_why(weir, pg, user, words):
    pg.query(SCHEMA, "app")
    entry = ENTRY.format(port=pg.port, dbname="app").replace("replica", user)
    pooler = weir(databases={"app": entry}, default_pool_size=4)
    client = pooler.connect("app")
    host.eventually(lambda: client.execute("select 1") and show(pooler)["state"] == "lost", timeout=20)
    assert words in show(pooler)["detail"], show(pooler)
    for _ in range(3):
        assert client.execute("select value from cache.items where id = 1").fetchone() == (0,)
    assert int(show(pooler)["hits"]) == 0
    pg.query("drop schema cache cascade", "app")


def test_a_lost_stream_is_followed_again(cached, pg):
    pooler = cached()
    client = pooler.connect("app")
    read = "select value from cache.items where id = 7"
    settles(pooler, client, read, (0,))
    pg.query("select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'weir query cache'")
    pg.query("update cache.items set value = 5 where id = 7", "app")
    is_told(lambda: client.execute(read).fetchone() == (5,))
    host.eventually(lambda: show(pooler)["state"] == "ok", timeout=20)
    settles(pooler, client, read, (5,))
    host.eventually(lambda: pg.value("select count(*) from pg_replication_slots where slot_name like 'weir%'") == 1)


def test_reload_turns_it_on_and_off(cached, pg):
    pooler = cached()
    client = pooler.connect("app")
    settles(pooler, client, "select value from cache.items where id = 7")
    pooler.databases["app"] = f"host=127.0.0.1 port={pg.port} dbname=app"
    pooler.reload()
    client.execute("select value from cache.items where id = 7")
    assert pooler.console("SHOW CACHE") == []
    host.eventually(lambda: pg.value("select count(*) from pg_replication_slots where slot_name like 'weir%'") == 0)


@pytest.mark.parametrize("server_version", ["system"])
def test_with_tls_on_both_sides_and_a_password(weir, scratch, authorities, server_version):
    root = authorities[3]
    server = postgres.Postgres(postgres.reachable_programs(server_version, scratch), host.new_directory(scratch, "tls-cache"))
    try:
        server.stop()
        server.start(ssl="on", ssl_cert_file=root.server.cert, ssl_key_file=root.server.key)
        server.query(SCHEMA, "app")
        server.query("alter role scramuser replication")
        entry = ENTRY.format(port=server.port, dbname="app").replace("127.0.0.1", "localhost").replace("=replica", "=scramuser")
        tls = {"client_tls_sslmode": "require", "client_tls_cert_file": root.server.cert, "client_tls_key_file": root.server.key}
        users = {**weir_program.USERLIST, "scramuser": "scram secret"}
        pooler = weir(databases={"app": entry}, userlist=users, server_tls_sslmode="verify-full", server_tls_ca_file=root.cert, **tls)
        client = pooler.connect("app", sslmode="require")
        client.execute("select 1")
        is_secure = "select bool_and(ssl), count(*) from pg_stat_ssl join pg_stat_activity using (pid) where application_name = 'weir query cache'"
        host.eventually(lambda: server.query(is_secure) == [(True, 2)], timeout=20)
        tls_console = lambda: psycopg.connect(**pooler.address("pgbouncer", "admin", sslmode="require"), autocommit=True)
        with tls_console() as console:
            hits = lambda: console.execute("show cache").fetchone()[7]
            read = "select value from cache.items where id = 7"

            def is_hit():
                before = hits()
                assert client.execute(read).fetchone() == (0,)
                return hits() > before

            host.eventually(is_hit, timeout=20)
        server.query("update cache.items set value = 1 where id = 7", "app")
        host.eventually(lambda: client.execute(read).fetchone() == (1,), timeout=5)
        client.close()
    finally:
        server.remove()


def test_pause_kill_and_reconnect_count_for_cached_reads_too(cached):
    pooler = cached()
    client = pooler.connect("app")
    read = "select value from cache.items where id = 7"
    settles(pooler, client, read, (0,))
    pooler.console("PAUSE app")
    got = []
    waiting = threading.Thread(target=lambda: got.append(client.execute(read).fetchone()))
    waiting.start()
    time.sleep(0.3)
    assert got == []
    pooler.console("RESUME app")
    waiting.join(20)
    assert got == [(0,)]
    pooler.console("RECONNECT app")
    settles(pooler, client, read, (0,))
    pooler.console("KILL app")
    with pytest.raises(psycopg.OperationalError):
        client.execute(read)
    pooler.console("RESUME app")
    settles(pooler, pooler.connect("app"), read, (0,))


def test_a_process_that_takes_over_begins_with_an_empty_cache(cached, pg):
    pooler = cached()
    client = pooler.connect("app")
    read = "select value from cache.items where id = 7"
    settles(pooler, client, read, (0,))
    client.execute("update cache.items set value = 1 where id = 7")
    reboot(pooler)
    for _ in range(20):
        assert client.execute(read).fetchone() == (1,)
    settles(pooler, client, read, (1,))
    pg.query("update cache.items set value = 2 where id = 7", "app")
    is_told(lambda: client.execute(read).fetchone() == (2,))
    host.eventually(lambda: pg.value("select count(*) from pg_replication_slots where slot_name like 'weir%'") == 1)


@pytest.fixture
def with_panel(weir, pg):
    """A pooler whose cache has answered, its client, and its panel."""
    pg.query(SCHEMA, "app")
    pooler, web = panel.start(weir, databases={"app": ENTRY.format(port=pg.port, dbname="app"), "other": ""}, default_pool_size=4)
    client = pooler.connect("app")
    client.execute("select 1")
    host.eventually(lambda: show(pooler)["state"] == "ok", timeout=20)
    settles(pooler, client, "select value from cache.items where id = 7")
    yield web
    pg.query("drop schema cache cascade", "app")


def test_the_panel_and_metrics_have_caches(with_panel):
    web = with_panel
    (cache,) = web.get("/api/v1/caches")["caches"]
    assert (cache["database"], cache["max_bytes"]) == ("app", 16 << 20)
    # Two answers where psycopg has prepared the statement before the first hit: one each for its two forms.
    assert cache["state"] in ("ok", "behind", "starting") and cache["hits"] > 0 and cache["answers"] <= 2 and cache["bytes"] < 2000
    assert web.get("/api/v1/caches?database=other") == {"caches": []}
    _, text, _ = web.ask("GET", "/metrics")
    lines = dict(line.rsplit(" ", 1) for line in text.splitlines() if line.startswith("weir_cache_"))
    assert lines['weir_cache_usable{database="app"}'] in "01" and float(lines['weir_cache_hits_total{database="app"}']) > 0


@pytest.mark.parametrize("io_driver", ["epoll"])
def test_the_panel_shows_caches(with_panel, scratch):
    browser.play("cache", with_panel, scratch, {}, token=with_panel.token)
