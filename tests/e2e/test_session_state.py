"""`session_state = virtual`: what a client leaves in its session is its own, on whatever server its next transaction runs.
Every pool here is shuffled: no transaction of a client runs on the server of the one before, unless the client keeps it.
Holds I4 of ARCHITECTURE.md."""

import time

import psycopg
import pytest

import panel
import wire
from test_pinned import become
from test_takeover import reboot

pytestmark = pytest.mark.weir_only


@pytest.fixture
def virtual(weir):
    def start(**settings):
        return weir(**{"session_state": "virtual", "server_shuffle": 1, "default_pool_size": 3, "min_pool_size": 3, **settings})

    return start


def answers(port, script):
    """What each statement of the script returns."""
    found = []
    with psycopg.connect(host="127.0.0.1", port=port, user="alice", dbname="app", autocommit=True) as connection:
        for statement in script:
            try:
                cursor = connection.execute(statement)
                found.append(cursor.fetchall() if cursor.description else cursor.statusmessage)
            except psycopg.Error as error:
                found.append((error.sqlstate, str(error)))
    return found


PRISTINE = ["show work_mem", "show lock_timeout", "show statement_timeout", "select current_user", "select pg_listening_channels()"]


SCRIPTS = {
    "set": ["set work_mem = '5MB'", "show work_mem", "show work_mem", "reset work_mem", "show work_mem"],
    "a list": ["set search_path = pg_catalog, \"a, b\", public", "show search_path", "reset search_path", "show search_path"],
    "rolled back": ["begin", "set lock_timeout = '7s'", "rollback", "show lock_timeout"],
    "a savepoint": [
        "begin", "set lock_timeout = '7s'", "savepoint a", "set lock_timeout = '8s'", "rollback to a", "commit", "show lock_timeout",
    ],
    "set local": ["begin", "set local lock_timeout = '7s'", "show lock_timeout", "commit", "show lock_timeout"],
    "an error": ["begin", "set lock_timeout = '7s'", "select 1/0", "commit", "show lock_timeout"],
    "set_config": ["select set_config('lock_timeout', '6s', false)", "show lock_timeout"],
    "a custom setting in quotes": ["do $$ begin set \"App\".\"Mixed\" = 'a'; end $$", "show app.mixed", "set \"App\".other = 'b'", "show app.other"],
    "a custom setting": ["set app.tenant = '42'", "select current_setting('app.tenant')", "set app.tenant = 'it''s \\ ö'", "show app.tenant"],
    "in a function": [
        "do $$ begin perform set_config('statement_timeout', '77777', false); end $$", "show statement_timeout", "show statement_timeout",
    ],
    "two in one": ["set lock_timeout = 1; set work_mem = '3MB'", "show lock_timeout", "show work_mem"],
    "session characteristics": [
        "set session characteristics as transaction isolation level serializable", "show default_transaction_isolation", "show transaction_isolation",
    ],
    "a role": ["set role bob", "select current_user", "select current_user", "reset role", "select current_user = session_user"],
    "a seed": ["set seed = 0.5", "select 1", "select 2"],
    "a role of another user": ["set role bob", "select 1", "set session authorization default", "select current_user = session_user", "select 1"],
    "discard all": ["set work_mem = '5MB'", "create temp table t (a int)", "listen a", "discard all", "show work_mem", "select * from t"],
    "a temporary table": ["create temp table t (a int)", "insert into t values (1)", "select * from t", "drop table t", "select * from t"],
    "select into": ["select 1 as a into temp u", "select * from u", "drop table u"],
    "a temporary function": ["create function pg_temp.f() returns int language sql as 'select 7'", "select pg_temp.f()", "drop function pg_temp.f()"],
    "a cursor": ["declare c cursor with hold for select generate_series(1, 3)", "fetch 1 from c", "fetch 1 from c", "close c", "fetch 1 from c"],
    "prepare": ["prepare p as select 7", "execute p", "execute p", "deallocate p", "execute p"],
    "a lock": [
        "select pg_advisory_lock(5)",
        "select count(*) from pg_locks where locktype = 'advisory' and pid = pg_backend_pid()",
        "select pg_advisory_unlock(5)",
        "select pg_advisory_unlock(5)",
    ],
    "a lock in the notation of a field": [
        "select (5::bigint).pg_advisory_lock",
        "select count(*) from pg_locks where locktype = 'advisory' and pid = pg_backend_pid()",
        "select pg_advisory_unlock(5)",
    ],
    "a lock in the notation of a field of a field": ["select (5::bigint).abs.pg_advisory_lock", "select pg_advisory_unlock(5)"],
    "a lock by the alias of a result": [
        "select x.pg_advisory_lock from generate_series(5::bigint, 5) x", "select pg_advisory_unlock(5)",
    ],
    "a lock of an element": [
        "select a[1].pg_advisory_lock from (values (array[5::bigint])) v(a)",
        "select pg_advisory_unlock(5)",
    ],
    "a lock behind a string in two parts": [
        "select E'a'\n'b\\' ', '\\', pg_advisory_lock(5) --'",
        "select count(*) from pg_locks where locktype = 'advisory' and pid = pg_backend_pid()",
        "select pg_advisory_unlock(5)",
    ],
    "the view of settings in parentheses": ["update only (pg_settings) set setting = '7777' where name = 'lock_timeout'", "show lock_timeout"],
    "the view of settings by its full name": ["update app.pg_catalog.pg_settings set setting = '7777' where name = 'lock_timeout'", "show lock_timeout"],
    "the view of settings": ["update pg_settings set setting = '7777' where name = 'lock_timeout'", "show lock_timeout", "show lock_timeout"],
    "listen": ["listen a", "select pg_listening_channels()", "unlisten a", "select pg_listening_channels()"],
}


@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS)
def test_a_client_cannot_tell_a_pool_from_a_session(virtual, pg, script):
    pooler = virtual()
    pg.query("grant bob to alice")
    assert answers(pooler.port, script) == answers(pg.port, script)
    for _ in range(3):  # Nothing of it is left for others, whichever server they get.
        assert answers(pooler.port, PRISTINE) == answers(pg.port, PRISTINE)


def test_without_it_the_session_stays_behind(weir):
    pooler = weir(session_state="off", server_shuffle=1, default_pool_size=2, min_pool_size=2)
    connection = pooler.connect()
    connection.execute("set lock_timeout = '7s'")
    assert connection.execute("show lock_timeout").fetchone() == ("0",)


@pytest.mark.parametrize("where", ["database", "user"])
def test_a_database_or_a_user_has_its_own(weir, where):
    of = {"database": {"databases": {"app": "session_state=virtual"}}, "user": {"users": {"alice": "session_state=virtual"}}}[where]
    pooler = weir(server_shuffle=1, default_pool_size=2, min_pool_size=2, **of)
    connection = pooler.connect()
    connection.execute("set lock_timeout = '7s'")
    assert connection.execute("show lock_timeout").fetchone() == ("7s",)


def test_settings_travel_and_leave_the_server_free(virtual):
    pooler = virtual(default_pool_size=1, min_pool_size=1, server_shuffle=0)
    clients = [pooler.connect() for _ in range(5)]
    for number, client in enumerate(clients):
        client.execute(f"set app.number = '{number}'")
        client.execute(f"set lock_timeout = {number + 1}")
    for number, client in enumerate(clients):
        assert client.execute("select current_setting('app.number'), current_setting('lock_timeout')").fetchone() == (
            str(number), f"{number + 1}ms",
        )


def test_values_bound_to_set_config(virtual):
    pooler = virtual()
    connection = pooler.connect()
    for value in "one", "two", "three", "four", "five", "six", "seven":  # from the fifth on by a prepared statement
        connection.execute("select set_config('app.user', %s, false)", [value], prepare=True)
        assert connection.execute("select current_setting('app.user')").fetchone() == (value,)


def test_a_setting_that_a_function_makes_under_a_name_of_its_own_reaches_nobody_else(virtual):
    pooler = virtual(default_pool_size=1, min_pool_size=1, server_shuffle=0)
    one, two = pooler.connect(), pooler.connect()
    two.execute("select 1")
    one.execute("do $$ begin perform set_config('app.' || 'hidden', 'secret', false); end $$")
    assert two.execute("select current_setting('app.' || 'hidden', true)").fetchone()[0] in (None, "")


def test_startup_parameters_are_taken_and_reset_returns_to_them(virtual):
    pooler = virtual()
    with wire.Raw(pooler.port).login(lock_timeout="7s", options="-c work_mem=5MB -c app.tenant=a") as raw:
        for _ in range(3):
            assert raw.simple("show lock_timeout")[0] == ["7s"]
            assert raw.simple("show work_mem")[0] == ["5MB"]
            assert raw.simple("show app.tenant")[0] == ["a"]
        raw.simple("set work_mem = '9MB'")
        assert raw.simple("show work_mem")[0] == ["9MB"]
        raw.simple("reset work_mem")
        assert raw.simple("show work_mem")[0] == ["5MB"]


def test_a_client_that_leaves_something_behind_takes_its_server_with_it(virtual):
    pooler = virtual(default_pool_size=1, min_pool_size=1, server_shuffle=0)
    one = pooler.connect()
    one.execute("create temp table t (a int)")
    one.execute("select pg_advisory_lock(6)")
    one.close()
    two = pooler.connect()
    with pytest.raises(psycopg.errors.UndefinedTable):
        two.execute("select * from t")
    assert two.execute("select pg_try_advisory_lock(6)").fetchone() == (True,)


def test_what_keeps_a_client_on_its_server_is_shown(virtual):
    pooler, web = panel.start(virtual)
    connection = pooler.connect()
    for statement, *reasons in [
        ("create temp table t (a int)", "temporary"),
        ("drop table t",),
        ("set client_encoding = 'LATIN1'",),
        ("listen a", "listen"),
        ("unlisten a",),
        ("reset client_encoding",),
        ("prepare p as select 'now'::timestamptz", "prepared"),
        ("deallocate p",),
        ("select pg_advisory_lock(7)", "advisory_lock"),
        ("select pg_advisory_unlock_all()",),
        ("declare c cursor with hold for select 1", "cursor"),
        ("close c",),
    ]:
        connection.execute(statement)
        become(web, *reasons)


def test_a_notification_reaches_the_client_that_listens_and_no_other(virtual):
    pooler = virtual()
    one, two, three = pooler.connect(), pooler.connect(), pooler.connect()
    one.execute("listen a")
    two.execute("select 1")
    for number in range(5):
        three.execute(f"notify a, '{number}'")
    received = []
    for notification in one.notifies(timeout=5, stop_after=5):
        received.append(notification.payload)
    assert received == ["0", "1", "2", "3", "4"]
    assert list(two.notifies(timeout=0.1)) == []


def test_a_statement_without_a_name_is_described_and_bound_in_later_requests(virtual):
    pooler = virtual()
    with wire.Raw(pooler.port).login() as raw:
        raw.send(wire.parse("", "select 7"), wire.SYNC)
        raw.read_until("Z")
        raw.send(wire.describe(b"S"), wire.SYNC)
        assert "E" not in [reply.kind for reply in raw.read_until("Z")]
        raw.send(wire.bind(), wire.execute(), wire.SYNC)
        assert "D" in [reply.kind for reply in raw.read_until("Z")]


def test_a_new_process_takes_it_over(virtual):
    pooler = virtual()
    one, two = pooler.connect(), pooler.connect()
    one.execute("set app.tenant = '7'")
    two.execute("create temp table t as select 8 as a")
    reboot(pooler)
    for _ in range(3):
        assert one.execute("select current_setting('app.tenant')").fetchone() == ("7",)
        assert two.execute("select a from t").fetchone() == (8,)


def test_switched_off_under_way_it_pins_nothing_more(virtual):
    pooler = virtual(default_pool_size=1, min_pool_size=1, server_shuffle=0)
    one, two = pooler.connect(), pooler.connect()
    one.execute("listen a")
    pooler.reload(session_state="off")
    one.execute("select 1")
    assert two.execute("select 1").fetchone() == (1,)


USES = {
    "a trigger": ("create trigger t after insert on used for each row execute function set_by_trigger()", "insert into used values (1)"),
    "a trigger below another": (
        "create function insert_used() returns trigger language plpgsql as 'begin insert into used values (1); return new; end';"
        "create trigger t after insert on used for each row execute function set_by_trigger();"
        "create table above (a int); create trigger t after insert on above for each row execute function insert_used()",
        "insert into above values (1)",
    ),
    "a view": ("create view seen as select set_setting()", "select * from seen"),
    "a view of a view": ("create view seen as select set_setting(); create view again as select * from seen", "select * from again"),
    "a view of PostgreSQL's own function": ("create view seen as select set_config('lock_timeout', '7777', false)", "select * from seen"),
    "a function in the notation of a column": (
        "create function taken_of(used) returns text language sql as 'select set_setting()'; insert into used values (1)", "select used.taken_of from used",
    ),
    "a function by the alias of a result": (
        "create function taken_of(bigint) returns text language sql as 'select set_setting()'", "select n.taken_of from generate_series(1, 1::bigint) n",
    ),
    "a view of the settings": (
        "create view seen as select name, setting from pg_settings", "update seen set setting = '7777' where name = 'lock_timeout'",
    ),
    "a function that updates the settings": (
        "create function taken_of(used) returns void language sql as $$ update pg_settings set setting = '7777' where name = 'lock_timeout' $$;"
        "insert into used values (1)",
        "select used.taken_of from used",
    ),
    "a default": ("alter table used add b text default set_setting(), add c int", "insert into used (c) values (2)"),
}


@pytest.mark.parametrize("how", USES)
@pytest.mark.parametrize("protocol", ["simple", "prepared"])
def test_what_triggers_views_and_defaults_set_is_their_clients_alone(virtual, pg, how, protocol):
    schema, use = USES[how]

    def run(sql):
        pg.query(sql, database="app")

    run(
        "create table used (a int);"
        "create function set_setting() returns text language plpgsql as $$ begin set lock_timeout = '7777ms'; return 'x'; end $$;"
        "create function set_by_trigger() returns trigger language plpgsql as $$ begin perform set_setting(); return new; end $$;"
        f"{schema}; grant all on all tables in schema public to alice"
    )
    pooler = virtual(default_pool_size=2, min_pool_size=2)
    try:
        with pooler.connect() as client, pooler.connect() as other:
            for _ in range(3):
                client.execute(use, prepare=protocol == "prepared")
                assert client.execute("show lock_timeout").fetchone() == ("7777ms",)
                assert other.execute("show lock_timeout").fetchone() == ("0",)
                client.execute("reset lock_timeout")
    finally:
        run("drop table if exists above; drop view if exists again; drop view if exists seen; drop table used cascade;"
            "drop function if exists insert_used; drop function if exists taken_of(bigint); drop function set_by_trigger, set_setting")


@pytest.mark.parametrize("function", [False, True], ids=["views", "functions"])
def test_the_look_up_of_tables_waits_for_no_schema_change_and_deadlocks_with_none(virtual, pg, function):
    """PostgreSQL locks what it deparses: views with their tables, and what functions with parsed bodies name."""
    pg.query("create table used (a int); create view seen as select a from used", database="app")
    try:
        if function:
            pg.query("create function first_seen() returns int begin atomic select s.a from seen s, used; end", database="app")
        with psycopg.connect(host="127.0.0.1", port=pg.port, user="postgres", dbname="app") as owner:
            owner.execute("lock table used in access exclusive mode")
            mark = pg.log_mark()
            pooler = virtual()
            with pooler.connect() as client:
                begun = time.monotonic()
                assert client.execute("select 1").fetchone() == (1,)
                assert time.monotonic() - begun < 20
                time.sleep(1.2)  # PostgreSQL looks for a deadlock after a second of waiting.
                owner.execute("drop view seen cascade")
                owner.rollback()
        assert ("due to lock timeout" in pg.log_since(mark)) == function, "views are read as they are stored"
    finally:
        pg.query("drop table used cascade", database="app")


def test_a_client_whose_kept_server_is_terminated_gets_the_error_of_postgresql(virtual, pg):
    """Between its requests, as it would without a pooler."""
    pooler = virtual()
    with wire.Raw(pooler.port).login() as raw:
        raw.simple("select pg_advisory_lock(8)")
        pid = raw.simple("select pg_backend_pid()")[0][0]
        pg.query(f"select pg_terminate_backend({pid})")
        assert wire.errors(raw.read_to_end()) == [("57P01", "terminating connection due to administrator command")]
