"""auth_query: users who are in no file are looked up at the server, at every login, as auth_user and with nothing of the client's."""

import concurrent.futures
import signal

import psycopg
import pytest

import conftest
import host
import secret
import wire

PASSWORDS = {"md5user": "md5 secret", "scramuser": "scram secret"}
USERLIST = {"asker": "", "admin": "", "stats": ""}
THREADS = [1] if conftest.PGBOUNCER else [1, 4]
# What PgBouncer asks by default since 1.24; an older one's own question knows nothing of VALID UNTIL.
DEFAULT = (
    "SELECT rolname, CASE WHEN rolvaliduntil < now() THEN NULL ELSE rolpassword END"
    " FROM pg_authid WHERE rolname=$1 AND rolcanlogin"
)
# For one name it takes for ever.
SLOW = "select $1::text, 'pw'::text || case when $1 = 'slow' then pg_sleep(60)::text else '' end"
# What this query answers where the role has the usual search_path and nothing else is set.
PATH_QUERY = "select 'as ' || current_setting('search_path') || current_setting('application_name'), 'pw' where $1 <> ''"
ASKED_PATH = 'as "$user", public' if conftest.PGBOUNCER else 'as pg_catalog, "$user", public, pg_temp'
ROLES = """
drop database if exists users;
drop role if exists asker, newcomer, expired, secretless, mapped;
create role asker superuser login;
create role expired login password 'over' valid until '2001-01-01';
create role secretless login;
create role mapped login;
create database users;
"""


@pytest.fixture(autouse=True)
def roles(pg):
    for statement in ROLES.strip().split(";")[:-1]:
        pg.query(statement)


@pytest.fixture(params=THREADS, ids=lambda count: f"threads={count}")
def threads(request):
    return {} if conftest.PGBOUNCER else {"threads": request.param}


def pooler_with(weir, **settings):
    """A pooler that knows no users but asker and the console's users."""
    chosen = {"auth_type": "md5", "auth_user": "asker", "auth_query": DEFAULT, "userlist": USERLIST, **settings}
    return weir(**chosen)


def refused(pooler, match, **options):
    with pytest.raises(psycopg.OperationalError, match=match) as failure:
        pooler.connect(**options)
    return str(failure.value)


# --- who gets in ----------------------------------------------------------------------------------------------
@pytest.mark.every_version
@pytest.mark.parametrize("auth_type", ["md5", "scram-sha-256", "plain", "trust"])
@pytest.mark.parametrize("user", PASSWORDS)
def test_the_servers_own_secret(weir, threads, auth_type, user):
    """md5 digits and SCRAM verifiers from pg_authid; what the client proves with them opens the server, which asks too."""
    pooler = pooler_with(weir, auth_type=auth_type, **threads)
    if (auth_type, user) == ("scram-sha-256", "md5user"):
        refused(pooler, "SASL authentication failed", user=user, password=PASSWORDS[user])
        return
    if user == "scramuser" and auth_type in ("plain", "trust"):
        # Without a SCRAM exchange there is no key, and a password that was typed only confirms the verifier.
        refused(pooler, "wrong password type|login failed", user=user, password=PASSWORDS[user])
        return
    for _ in range(2):
        assert pooler.value("select current_user", user=user, password=PASSWORDS[user]) == user
    if auth_type != "trust":
        refused(pooler, "authentication failed", user=user, password="wrong")


@pytest.mark.parametrize("auth_type", ["md5", "scram-sha-256", "plain"])
@pytest.mark.parametrize("kind", ["plain", "md5", "scram"])
def test_secrets_of_a_query_of_ones_own(weir, pg, auth_type, kind):
    password = "it's a secret"
    written = {"plain": password, "md5": secret.md5("mapped", password), "scram": secret.scram(password)}[kind]
    query = f"select 'mapped'::text, '{written}'::text where $1::text is not null".replace("it's", "it''s")
    pooler = pooler_with(weir, auth_type=auth_type, auth_query=query)
    if (auth_type, kind) == ("scram-sha-256", "md5"):
        refused(pooler, "authentication failed|wrong password type", user="mapped", password=password)
        return
    assert pooler.value("select current_user", user="mapped", password=password) == "mapped"
    refused(pooler, "authentication failed", user="mapped", password=password + "x")


def test_a_secret_of_64_kib(weir):
    password = "p" * 2000 if conftest.PGBOUNCER else "p" * 65_000
    pooler = pooler_with(weir, auth_type="plain", auth_query=f"select $1::text, repeat('p', {len(password)})")
    assert pooler.value("select current_user", user="mapped", password=password) == "mapped"


def test_the_query_says_who_logs_in(weir):
    """The name in the row is the user of the pool, as with functions that fold or map names."""
    pooler = pooler_with(weir, auth_type="plain", auth_query="select 'mapped'::text, 'pw'::text where $1 = 'ALIAS'")
    assert pooler.value("select current_user", user="ALIAS", password="pw") == "mapped"
    refused(pooler, "no such user", user="mapped", password="pw")


@pytest.mark.parametrize("auth_type", ["md5", "scram-sha-256", "plain", "trust"])
def test_nobody_by_that_name(weir, threads, auth_type):
    pooler = pooler_with(weir, auth_type=auth_type, **threads)
    refused(pooler, "no such user", user="mallory", password="x")
    pooler.wait_log(r"closing because: no such user \(age")
    refused(pooler, "no such user", user="nologin", password="x")


@pytest.mark.parametrize("user", ["expired", "secretless"])
@pytest.mark.parametrize("auth_type", ["md5", "scram-sha-256", "plain"])
def test_a_user_without_a_secret_that_counts(weir, auth_type, user):
    """Expired (the default query gives NULL) or never given one: refused like a wrong password."""
    pooler = pooler_with(weir, auth_type=auth_type)
    refused(pooler, "authentication failed", user=user, password="over")
    refused(pooler, "authentication failed|no password", user=user, password="")


def test_a_name_is_a_value_and_never_a_part_of_the_query(weir, pg):
    pooler = pooler_with(weir)
    for name in ("x' or '1'='1", "x'; drop table t; --", '"', "\\"):
        refused(pooler, "no such user", user=name, password="x")


def test_a_changed_password_counts_at_the_next_login(weir, pg):
    pooler = pooler_with(weir)
    refused(pooler, "no such user", user="newcomer", password="one")
    pg.query("create role newcomer login password 'one'")
    assert pooler.value("select current_user", user="newcomer", password="one") == "newcomer"
    pg.query("alter role newcomer password 'two'")
    refused(pooler, "authentication failed", user="newcomer", password="one")
    assert pooler.value("select current_user", user="newcomer", password="two") == "newcomer"
    pg.query("alter role newcomer valid until '2001-01-01'")
    refused(pooler, "authentication failed", user="newcomer", password="two")


@pytest.mark.since("1.23")
def test_an_entry_in_users_alone_is_no_secret(weir, pg):
    pooler = pooler_with(weir, users={"scramuser": "pool_size=1"})
    assert pooler.value("select current_user", user="scramuser", password=PASSWORDS["scramuser"]) == "scramuser"


def test_the_user_file_comes_first(weir):
    pooler = pooler_with(weir, userlist={**USERLIST, "mapped": "of the file"}, auth_query="select $1, 'asked'")
    assert pooler.value("select current_user", user="mapped", password="of the file") == "mapped"
    refused(pooler, "authentication failed", user="mapped", password="asked")


# --- which server is asked ------------------------------------------------------------------------------------
@pytest.mark.since("1.22")
def test_databases_have_their_own_query_and_user(weir, pg):
    own = "auth_user=postgres auth_query='select $1::text, ''of app''::text'"
    pooler = pooler_with(
        weir, auth_type="plain", databases={"app": own, "other": ""}, auth_query="select $1::text, 'of all'::text"
    )
    assert pooler.value("select 1", user="mapped", password="of app") == 1
    refused(pooler, "authentication failed", user="mapped", password="of all")
    assert pooler.value("select 1", database="other", user="mapped", password="of all") == 1


def test_auth_user_of_a_database_alone(weir):
    pooler = pooler_with(weir, databases={"app": "auth_user=asker", "other": ""}, auth_user=None)
    assert pooler.value("select 1", user="scramuser", password=PASSWORDS["scramuser"]) == 1
    refused(pooler, "authentication failed", database="other", user="scramuser", password=PASSWORDS["scramuser"])


@pytest.mark.since("1.19")
def test_auth_dbname(weir, pg, threads):
    pg.query("drop table if exists secrets", "users")
    pg.query("create table secrets as select 'mapped'::text as name, 'of users'::text as secret", "users")
    query = "select name, secret from secrets where name = $1"
    databases = {"app": "", "other": "auth_dbname=nowhere", "users": "pool_size=1"}
    pooler = pooler_with(
        weir, auth_type="plain", databases=databases, auth_query=query, auth_dbname="users", **threads
    )
    assert pooler.value("select current_database()", user="mapped", password="of users") == "app"
    assert pg.count("datname = 'users' and usename = 'asker'") == 1
    refused(pooler, "bouncer config error", database="other", user="mapped", password="of users")
    pooler.wait_log('authentication database "nowhere" is not configured')


@pytest.mark.since("1.19")
def test_the_console_asks_nobody_without_an_auth_dbname(weir):
    pooler = pooler_with(weir, admin_users="mapped")
    refused(pooler, "bouncer config error", database="pgbouncer", user="mapped", password="x")
    pooler.wait_log(RESERVED)


RESERVED = 'cannot use the reserved "pgbouncer" database as an auth_dbname'


@pytest.mark.since("1.19")
@pytest.mark.parametrize("place", ["global", "database"])
def test_the_console_is_no_auth_dbname(weir, place):
    """Not at start, and a RELOAD or SET that names it changes nothing."""
    pooler = weir(auth_dbname="users", databases={"app": "", "users": ""})
    if place == "global":
        pooler.write_ini(auth_dbname="pgbouncer")
    else:
        pooler.databases["app"] = "auth_dbname=pgbouncer"
        pooler.write_ini()
    console = pooler.connect("pgbouncer", "admin")
    try:
        console.execute("RELOAD")
    except psycopg.Error as error:
        assert "RELOAD failed" in str(error)
    pooler.wait_log(RESERVED)
    with pytest.raises(psycopg.Error, match="SET failed"):
        console.execute("SET auth_dbname = 'pgbouncer'")
    shown = {row[0]: row[1] for row in console.execute("SHOW CONFIG").fetchall()}
    assert shown["auth_dbname"] == "users"
    starting = weir.prepared(databases=pooler.databases, auth_dbname=pooler.settings["auth_dbname"])
    starting.launch()
    assert starting.wait_end() == 1
    assert "cannot load config file" in starting.output()


@pytest.mark.since("1.19")
def test_a_disabled_auth_dbname(weir):
    pooler = pooler_with(weir, auth_dbname="users", databases={"app": "", "users": ""}, auth_type="trust")
    pooler.console("DISABLE users")
    refused(pooler, 'authentication database "users" is disabled', user="mapped")
    pooler.console("ENABLE users")
    assert pooler.value("select current_user", user="mapped") == "mapped"


@pytest.mark.since("1.19")
def test_the_console_asks_in_auth_dbname(weir):
    settings = {"auth_type": "plain", "admin_users": "mapped", "auth_query": "select $1::text, 'pw'::text"}
    pooler = pooler_with(weir, auth_dbname="users", databases={"app": "", "users": ""}, **settings)
    assert pooler.connect("pgbouncer", "mapped", password="pw").execute("show version").fetchone()
    refused(pooler, "authentication failed", database="pgbouncer", user="mapped", password="x")


def test_fallback_databases_ask_too(weir, pg):
    pooler = pooler_with(weir, databases={"*": ""})
    for database in ("app", "other"):
        value = pooler.value(
            "select current_database()", database=database, user="scramuser", password=PASSWORDS["scramuser"]
        )
        assert value == database


def test_a_forced_user_of_a_client_that_was_looked_up(weir):
    pooler = pooler_with(weir, databases={"app": "user=carol"})
    assert pooler.value("select current_user", user="scramuser", password=PASSWORDS["scramuser"]) == "carol"


def test_an_unknown_database_asks_nobody(weir, pg):
    pooler = pooler_with(weir)
    mark = pg.log_mark()
    refused(pooler, "authentication failed|no such", database="nowhere", user="scramuser", password="x")
    assert "user=asker" not in pg.log_since(mark)


def make_role(pg, name):
    """A role whose name is anything."""
    quoted = '"' + name.replace('"', '""') + '"'
    pg.query(f"drop role if exists {quoted}")
    pg.query(f"create role {quoted} login")


def drop_servers(pg):
    """What a role is set to counts at its next connection."""
    pg.query("select pg_terminate_backend(pid) from pg_stat_activity where usename = 'asker'")
    host.eventually(lambda: pg.count("usename = 'asker'") == 0)


# --- nothing of the client's ----------------------------------------------------------------------------------
TRAP = """
drop schema if exists trap cascade;
create schema trap;
create function trap.lower(text) returns text language sql as $$ select 'mapped' $$;
grant usage on schema trap to public;
"""


@pytest.mark.since("1.26")
def test_startup_parameters_do_not_reach_the_query(weir, pg):
    """CVE-2025-12819: a search_path in the startup packet made the query run what the client chose."""
    for statement in TRAP.split(";\n"):
        if statement.strip():
            pg.query(statement, "app")
    make_role(pg, ASKED_PATH)
    pooler = pooler_with(weir, auth_type="plain", auth_query=PATH_QUERY, track_extra_parameters="search_path")
    options = {"options": "-c search_path=trap", "application_name": "evil"}
    for _ in range(2):
        assert pooler.value("select current_user", user="x", password="pw", **options) == ASKED_PATH


# A relation of that name in another schema answers the query with a secret that the attacker knows.
SHADOW = (
    "{} pg_authid as select 'scramuser'::name as rolname, '{}'::text as rolpassword,"
    " null::timestamptz as rolvaliduntil, true as rolcanlogin"
)


@pytest.mark.weir_only
@pytest.mark.parametrize("query", [None, DEFAULT], ids=["default", "own"])
def test_no_object_of_a_client_answers_the_query(weir, pg, query):
    """Whoever may log in as auth_user, or through an entry that forces it, has no say in who else may."""
    userlist = {**USERLIST, "asker": "pw"}
    pooler = pooler_with(weir, auth_query=query, userlist=userlist, default_pool_size=1, auth_dbname="app",
                         admin_users="scramuser", session_state="off")
    pg.query("drop schema if exists evil cascade", "app")
    planter = pooler.connect(user="asker", password="pw")
    planter.execute(SHADOW.format("create temp table", secret.scram("evil")))
    pg.query("create schema evil", "app")
    pg.query(SHADOW.format("create table", secret.scram("evil")).replace("pg_authid", "evil.pg_authid"), "app")
    for statement in ("set search_path = pg_temp, evil, pg_catalog",
                      "alter role asker set search_path = pg_temp, evil, pg_catalog"):
        try:
            planter.execute(statement)
            for database in ("app", "pgbouncer"):
                refused(pooler, "authentication failed", database=database, user="scramuser", password="evil")
            assert pooler.value("select current_user", user="scramuser", password=PASSWORDS["scramuser"]) == "scramuser"
            drop_servers(pg)
        finally:
            pg.query("alter role asker reset search_path")
    pg.query("drop schema evil cascade", "app")


@pytest.mark.weir_only
def test_a_function_of_ones_own_is_found_by_the_roles_search_path(weir, pg):
    """As PgBouncer's users have it: the query names it without a schema."""
    pg.query("drop schema if exists lookups cascade", "app")
    pg.query("create schema lookups", "app")
    pg.query("create function lookups.user_lookup(text) returns table (name text, secret text) language sql as"
             " $$ select $1, 'pw'::text $$", "app")
    query = "select * from user_lookup($1)"
    pooler = pooler_with(weir, auth_type="plain", auth_query=query)
    refused(pooler, "bouncer config error", user="mapped", password="pw")
    for path in ("lookups", "''", "nowhere, lookups"):
        pg.query(f"alter role asker set search_path = {path}")
        drop_servers(pg)
        if path == "''":
            refused(pooler, "bouncer config error", user="mapped", password="pw")
        else:
            assert pooler.value("select current_user", user="mapped", password="pw") == "mapped"
    pg.query("drop schema lookups cascade", "app")


@pytest.mark.weir_only
def test_what_a_client_of_auth_user_set_is_taken_off_before_the_query(weir, pg):
    """auth_user's own clients share its servers; their settings are not in force when it is asked."""
    make_role(pg, ASKED_PATH)
    userlist = {**USERLIST, "asker": "pw"}
    pooler = pooler_with(weir, auth_type="plain", auth_query=PATH_QUERY, userlist=userlist, default_pool_size=1)
    client = pooler.connect(user="asker", password="pw", application_name="mine")
    client.execute("set search_path = pg_temp")
    assert pooler.value("select current_user", user="x", password="pw") == ASKED_PATH
    assert client.execute("show application_name").fetchone()[0] == "mine"


@pytest.mark.weir_only
def test_a_client_of_auth_user_cannot_execute_the_query(weir, pg):
    """Weir parses the unnamed statement on a server that auth_user's client had, and gets again."""
    userlist = {**USERLIST, "asker": "pw"}
    query = "select rolname::text, 'pw'::text from pg_authid where rolname = $1"
    pooler = pooler_with(weir, auth_type="plain", auth_query=query, userlist=userlist, default_pool_size=1)
    run = wire.bind("", values=[b"mapped"]) + wire.execute() + wire.SYNC
    with wire.Raw(pooler.port) as raw:
        raw.send(wire.startup(wire.V3_0, user="asker", database="app"))
        raw.read_until("R")
        raw.ask(wire.message(b"p", wire.cstring("pw")))
        raw.ask(wire.parse("", "select $1::text || ' mine'") + wire.SYNC)
        assert [reply.body[6:] for reply in raw.ask(run) if reply.kind == "D"] == [b"mapped mine"]
        assert pooler.value("select current_user", user="mapped", password="pw") == "mapped"
        assert wire.errors(raw.ask(run))[0][0] == "26000"


def test_the_server_is_clean_for_the_next_one(weir, pg):
    """One server for questions and clients, in turns; each finds its own."""
    userlist = {**USERLIST, "asker": "pw"}
    pooler = pooler_with(weir, auth_type="plain", auth_query="select $1::text, 'pw'::text", userlist=userlist,
                         pool_mode="session", default_pool_size=1)
    for _ in range(3):
        assert pooler.value("select current_user", user="asker", password="pw") == "asker"
        assert pooler.value("select current_user", user="mapped", password="pw") == "mapped"
    assert pg.count("usename = 'asker'") == 1


# --- what goes wrong ------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "query, logged",
    [
        ("select usename, passwd from not_pg_shadow where usename = $1", '"not_pg_shadow" does not exist'),
        ("select $1::text", "expected 2 columns? from auth_query|expected 1 column|bad packet"),
        ("select null::text, $1::text", "auth_query response contained null user name"),
        ("select 1/0, $1::text", "division by zero"),
        ("selectt", "syntax error"),
    ],
)
def test_a_query_that_is_wrong(weir, pg, query, logged):
    pooler = pooler_with(weir, auth_query=query)
    for _ in range(2):
        refused(pooler, "bouncer config error", user="mapped", password="x")
    if not conftest.PGBOUNCER or logged.startswith(("expected", "auth_query")):
        pooler.wait_log(logged)  # PgBouncer 1.18 does not say what the server said
    pooler.write_ini(auth_query="select $1::text, 'pw'::text")
    pooler.signal(1)
    host.eventually(lambda: logs_in(pooler, user="mapped", password="pw"))


def logs_in(pooler, **options):
    try:
        return pooler.value("select true", **options)
    except psycopg.OperationalError:
        return False


@pytest.mark.since("1.20")
def test_auth_user_cannot_log_in(weir, pg):
    """Waiting clients get the server's error at once."""
    pooler = pooler_with(weir, auth_user="nologin")
    refused(pooler, 'role "nologin" is not permitted to log in', user="mapped", password="x")


def test_auth_user_proves_itself_by_the_user_file(weir, pg):
    pg.query("alter role scramuser superuser")
    try:
        userlist = {**USERLIST, "scramuser": PASSWORDS["scramuser"]}
        pooler = pooler_with(weir, auth_user="scramuser", userlist=userlist)
        assert pooler.value("select current_user", user="md5user", password=PASSWORDS["md5user"]) == "md5user"
    finally:
        pg.query("alter role scramuser nosuperuser")


def test_a_server_that_is_down_and_comes_back(weir, pg):
    pooler = pooler_with(weir, server_login_retry=1)
    pg.stop()
    with concurrent.futures.ThreadPoolExecutor(1) as worker:
        waiting = worker.submit(
            pooler.value, "select current_user", user="scramuser", password=PASSWORDS["scramuser"]
        )
        pooler.wait_log("connect failed")
        pg.start()
        # Who waits when the connection fails may be told so (it was the only one), or be served in the end.
        try:
            assert waiting.result(30) == "scramuser"
        except psycopg.OperationalError as failure:
            assert "connect" in str(failure)
    host.eventually(lambda: logs_in(pooler, user="scramuser", password=PASSWORDS["scramuser"]))


def test_the_server_dies_while_it_is_asked(weir, pg):
    pooler = pooler_with(weir, auth_type="plain", auth_query=SLOW)
    with wire.Raw(pooler.port) as raw:
        raw.send(wire.startup(user="slow", database="app"))
        host.eventually(lambda: pg.count("usename = 'asker' and state = 'active' and query like '%pg_sleep%'") == 1)
        pg.query("select pg_terminate_backend(pid) from pg_stat_activity where usename = 'asker'")
        assert raw.read().kind == "E"
    assert pooler.value("select current_user", user="mapped", password="pw") == "mapped"


def test_client_login_timeout_ends_the_wait(weir, pg):
    pooler = pooler_with(weir, auth_query="select $1::text, 'pw'::text || pg_sleep(60)", client_login_timeout=1)
    refused(pooler, "client_login_timeout", user="mapped", password="pw")


def test_query_wait_timeout_ends_the_wait(weir, pg):
    """The only server of auth_user runs another login's query."""
    pooler = pooler_with(weir, auth_query=SLOW, default_pool_size=1)
    with wire.Raw(pooler.port) as raw:
        raw.send(wire.startup(user="slow", database="app"))
        host.eventually(lambda: pg.count("usename = 'asker' and state = 'active'") == 1)
        pooler.write_ini(query_wait_timeout=2)
        pooler.signal(signal.SIGHUP)
        pooler.wait_log("SIGHUP")
        refused(pooler, "query_wait_timeout", user="mapped", password="pw")
        pg.query("select pg_cancel_backend(pid) from pg_stat_activity where usename = 'asker'")


def test_a_client_that_leaves_while_its_question_waits(weir, pg, threads):
    pooler = pooler_with(weir, auth_type="plain", auth_query=SLOW, default_pool_size=1, **threads)
    raws = [wire.Raw(pooler.port) for _ in range(6)]
    raws[0].send(wire.startup(user="slow", database="app"))
    host.eventually(lambda: pg.count("usename = 'asker' and state = 'active'") == 1)
    for raw in raws[1:]:
        raw.send(wire.startup(user="other", database="app"))
    for raw in raws:
        raw.socket.close()
    pg.query("select pg_terminate_backend(pid, 60000) from pg_stat_activity where usename = 'asker'")
    assert pooler.value("select current_user", user="mapped", password="pw") == "mapped"


def test_pause_holds_questions_back(weir, pg):
    pooler = pooler_with(weir, auth_type="trust", userlist={**USERLIST, "alice": ""})
    assert pooler.value("select current_user", user="secretless") == "secretless"
    pooler.console("PAUSE app")
    host.eventually(lambda: pg.count() == 0)
    with concurrent.futures.ThreadPoolExecutor(1) as worker:
        waiting = worker.submit(pooler.value, "select current_user", user="secretless")
        host.eventually(lambda: pooler.pool(user="asker").get("cl_waiting") == 1)
        assert pg.count() == 0
        pooler.console("RESUME app")
        assert waiting.result(30) == "secretless"


def test_shutdown_with_questions_that_wait(weir, pg):
    query = "select $1::text, 'pw'::text || pg_sleep(60)"
    pooler = pooler_with(weir, auth_query=query, default_pool_size=1)
    raws = [wire.Raw(pooler.port) for _ in range(2)]
    for number, raw in enumerate(raws):
        raw.send(wire.startup(user=f"u{number}", database="app"))
    host.eventually(lambda: pg.count("usename = 'asker' and state = 'active'") == 1)
    pooler.signal(2)
    pg.query("select pg_terminate_backend(pid) from pg_stat_activity where usename = 'asker'")
    pooler.wait_end()


# --- many at once ---------------------------------------------------------------------------------------------
def test_a_hundred_unknown_users_at_once(weir, pg, threads):
    pooler = pooler_with(weir, default_pool_size=2, max_client_conn=200, **threads)
    raws = [wire.Raw(pooler.port, timeout=60) for _ in range(100)]
    for number, raw in enumerate(raws):
        raw.send(wire.startup(user=f"unknown{number}", database="app"))
    for raw in raws:
        answer = raw.read()
        assert (answer.kind, b"no such user" in answer.body) == ("E", True)
        raw.socket.close()
    assert pg.count("usename = 'asker'") <= 2
    assert pooler.value("select current_user", user="scramuser", password=PASSWORDS["scramuser"]) == "scramuser"


@pytest.mark.weir_only
def test_a_storm_of_one_name_is_few_questions(weir, pg, threads):
    """Who waits with the same question gets the same answer: the server is not asked once for each."""
    pg.query("create sequence if not exists asked", "app")
    start = pg.value("select nextval('asked')", "app")
    query = "select $1::text, 'pw'::text from (select nextval('asked'), pg_sleep(0.05)) as counted where false"
    pooler = pooler_with(weir, default_pool_size=1, auth_query=query, max_client_conn=200, **threads)
    raws = [wire.Raw(pooler.port, timeout=60) for _ in range(100)]
    for raw in raws:
        raw.send(wire.startup(user="unknown", database="app"))
    for raw in raws:
        assert b"no such user" in raw.read().body
        raw.socket.close()
    assert pg.value("select nextval('asked')", "app") - start < 50


def test_many_logins_of_known_users(weir, pg, threads):
    pooler = pooler_with(weir, default_pool_size=3, **threads)

    def attempt(number):
        user = ("scramuser", "md5user")[number % 2]
        return pooler.value("select current_user", user=user, password=PASSWORDS[user]) == user

    with concurrent.futures.ThreadPoolExecutor(10) as workers:
        assert all(workers.map(attempt, range(40)))
    assert pg.count("usename = 'asker'") <= 3


# --- with other parts of the pooler -----------------------------------------------------------------------------
@pytest.mark.since("1.23")
def test_whoever_replicates_is_looked_up_too(weir, pg, monkeypatch):
    pg.query("create role newcomer login replication password 'one'")
    pooler = pooler_with(weir, default_pool_size=1)
    monkeypatch.setenv("PGPASSWORD", "one")
    told = pooler.psql("-c", "IDENTIFY_SYSTEM", database="app replication=database", user="newcomer")
    assert told.stdout.strip().endswith("|app")
    assert pg.count("usename = 'asker' and backend_type = 'client backend'") == 1


@pytest.mark.weir_only
def test_a_successor_opens_servers_with_what_was_found(weir, pg):
    """Takeover: the md5 digits that auth_query gave go along, so that new servers need no new login of a client."""
    pooler = pooler_with(weir, default_pool_size=2, admin_users="asker", userlist={**USERLIST, "asker": "pw"})
    client = pooler.connect(user="md5user", password=PASSWORDS["md5user"])
    assert client.execute("select current_user").fetchone()[0] == "md5user"
    old = pooler.process
    pooler.start("-R", as_user=True)
    host.eventually(lambda: old.poll() is not None)
    pg.query("select pg_terminate_backend(pid) from pg_stat_activity where usename = 'md5user'")
    host.eventually(lambda: pg.count("usename = 'md5user'") == 0)
    assert client.execute("select current_user").fetchone()[0] == "md5user"


# --- what is shown --------------------------------------------------------------------------------------------
@pytest.mark.since("1.23")
def test_who_is_shown(weir, pg):
    pooler = pooler_with(weir, auth_type="trust")
    assert pooler.value("select current_user", user="secretless") == "secretless"
    refused(pooler, "no such user", user="mallory")
    shown = {row["name"] for row in pooler.console("SHOW USERS")}
    assert {"asker", "secretless"} <= shown
    assert "mallory" not in shown
    pools = {(row["database"], row["user"]) for row in pooler.console("SHOW POOLS")}
    assert {("app", "asker"), ("app", "secretless")} <= pools
    assert not any(user == "mallory" for _, user in pools)


@pytest.mark.since("1.23")
def test_auth_user_has_the_pool_size_of_its_entry(weir, pg):
    pooler = pooler_with(weir, users={"asker": "pool_size=1"}, auth_query="select $1::text, pg_sleep(0.1)::text")
    raws = [wire.Raw(pooler.port) for _ in range(5)]
    for number, raw in enumerate(raws):
        raw.send(wire.startup(user=f"u{number}", database="app"))
    for raw in raws:
        raw.read()
    assert pg.count("usename = 'asker'") == 1
