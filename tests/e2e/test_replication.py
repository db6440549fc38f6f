"""Replication connections: a server of its own with all the client's startup parameters, counted like any other, never used again."""

import psycopg
import pytest

import host
import wire
from replicas import DATABASES, clean, replicating, senders
from running import SLEEP, wait_until_runs
from test_cancel import cancel

pytestmark = [pytest.mark.every_version, pytest.mark.since("1.23")]


@pytest.fixture(autouse=True)
def no_trace(pg):
    yield
    clean(pg)


@pytest.fixture
def pooler(weir):
    return weir(databases=DATABASES, default_pool_size=1)


# --- who replicates ---------------------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", ["true", "yes", "on", "1"])
def test_a_physical_connection_takes_commands_and_no_sql(pooler, kind):
    connection = replicating(pooler, kind=kind)
    assert connection.execute("IDENTIFY_SYSTEM").fetchone()[0].isdigit()
    with pytest.raises(psycopg.errors.FeatureNotSupported, match="cannot execute SQL commands in WAL sender for physical"):
        connection.execute("select 1")
    connection.execute("IDENTIFY_SYSTEM")


def test_a_logical_connection_takes_both(pooler):
    connection = replicating(pooler)
    assert connection.execute("IDENTIFY_SYSTEM").fetchone()[3] == "app"
    assert connection.execute("select current_database()").fetchone()[0] == "app"


def test_no_is_an_ordinary_client(pooler, pg):
    replicating(pooler, kind="false").execute("select 1")
    assert senders(pg) == 0


def test_a_word_that_is_neither_is_refused(pooler):
    with pytest.raises(psycopg.OperationalError, match='invalid value for parameter "replication": "perhaps"'):
        replicating(pooler, kind="perhaps")


# --- what it says -----------------------------------------------------------------------------------------------
def test_its_options_reach_its_server(pooler):
    options = "-c geqo=off -c extra_float_digits=0 --search_path=here"
    connection = replicating(pooler, options=options, application_name="copier")
    for name, value in (("geqo", "off"), ("extra_float_digits", "0"), ("search_path", "here")):
        assert connection.execute(f"show {name}").fetchone() == (value,)
    assert connection.info.parameter_status("application_name") == "copier"


def test_its_other_parameters_too(pooler):
    with wire.Raw(pooler.port).login(user="replica", replication="database", geqo="off", DateStyle="German") as raw:
        assert raw.simple("show geqo") == [["off"]]
        assert raw.parameters["DateStyle"] == "German, DMY"
    with pytest.raises(AssertionError, match='unrecognized configuration parameter "no_such_thing"'):
        wire.Raw(pooler.port).login(user="replica", replication="true", no_such_thing="1")


def test_statements_before_a_session_are_for_those_who_take_sql(weir, pg):
    pooler = weir(databases={"app": "connect_query='set geqo to off'"})
    assert replicating(pooler).execute("show geqo").fetchone() == ("off",)
    replicating(pooler, kind="true").execute("IDENTIFY_SYSTEM")


def test_the_log_and_the_console_name_it(pooler):
    physical = replicating(pooler, "other", "true")
    logical = replicating(pooler)
    for connection in (physical, logical):
        connection.execute("IDENTIFY_SYSTEM")
    ordinary = pooler.connect("app", "bob")
    ordinary.execute("begin")
    for view in ("CLIENTS", "SERVERS"):
        rows = {(row["database"], row["user"]): row for row in pooler.console(f"SHOW {view}")}
        assert rows["other", "replica"]["replication"] == "physical"
        assert rows["app", "replica"]["replication"] == "logical"
        assert rows["app", "bob"]["replication"] == "none"
        assert rows["app", "replica"]["state"] == "active"
    assert pooler.pool("app", "replica")["sv_active"] == 1
    pooler.wait_log(r"login attempt: db=other user=replica tls=no replication=yes")
    pooler.wait_log(r"login attempt: db=app user=replica tls=no replication=database")
    pooler.wait_log(r"login attempt: db=app user=bob tls=no replication=no")


# --- its server -------------------------------------------------------------------------------------------------
def test_its_server_goes_with_it(pooler, pg):
    for _ in range(3):
        with replicating(pooler) as connection:
            connection.execute("IDENTIFY_SYSTEM")
            assert senders(pg) == 1
        host.eventually(lambda: senders(pg) == 0)
    pooler.wait_log("closing because: replication client was closed", 3)


def test_an_idle_server_makes_room(pooler, pg):
    pooler.connect(user="replica").execute("select 1")
    assert pg.count("usename = 'replica'") == 1
    connection = replicating(pooler)
    connection.execute("IDENTIFY_SYSTEM")
    pooler.wait_log("closing because: evicted")
    assert (pg.count("usename = 'replica'"), senders(pg)) == (0, 1)


def test_it_waits_its_turn_and_others_wait_for_it(pooler, pg):
    with replicating(pooler) as first:
        first.execute("IDENTIFY_SYSTEM")
        with wire.Raw(pooler.port) as second, wire.Raw(pooler.port) as ordinary:
            second.send(wire.startup(user="replica", database="app", replication="database"))
            host.eventually(lambda: pooler.pool("app", "replica")["cl_waiting"] == 1)
            ordinary.send(wire.startup(user="replica", database="app"), wire.query("select 1"))
            host.eventually(lambda: pooler.pool("app", "replica")["cl_waiting"] == 2)
            assert senders(pg) == 1
            first.close()
            second.read_until("Z")
            host.eventually(lambda: senders(pg) == 1)
            assert ordinary.is_silent(0.5)
            second.send(wire.TERMINATE)
            ordinary.read_until("Z")
            assert wire.kinds(ordinary.read_until("Z")) == "TDCZ"


def test_a_busy_server_is_handed_over_to_whoever_came_first(pooler, pg):
    """The pool's only server becomes free while one who replicates has waited longest: it is closed for it."""
    busy = pooler.connect(user="replica")
    busy.execute("begin")
    with wire.Raw(pooler.port) as waiter:
        waiter.send(wire.startup(user="replica", database="app", replication="database"))
        host.eventually(lambda: pooler.pool("app", "replica")["cl_waiting"] == 1)
        busy.execute("commit")
        waiter.read_until("Z")
        pooler.wait_log("closing because: evicted")


def test_the_wait_ends_like_any_other(weir):
    pooler = weir(databases=DATABASES, default_pool_size=1, query_wait_timeout=5)
    replicating(pooler).execute("IDENTIFY_SYSTEM")
    with pytest.raises(psycopg.OperationalError, match="query_wait_timeout"):
        replicating(pooler).execute("IDENTIFY_SYSTEM")


def test_a_cancel_reaches_it(pooler, pg):
    connection = replicating(pooler)
    with wire.Raw(pooler.port) as raw:
        connection.close()
        raw.login(user="replica", replication="database")
        raw.send(wire.query(SLEEP))
        wait_until_runs(pg)
        cancel(pooler, raw)
        assert wire.errors(raw.read_until("Z"))[0][0] == "57014"


# --- refusals ---------------------------------------------------------------------------------------------------
def test_the_server_refuses_in_its_own_words(pooler):
    with pytest.raises(psycopg.OperationalError, match="no pg_hba.conf entry for replication connection from host"):
        replicating(pooler, kind="true", user="alice").execute("IDENTIFY_SYSTEM")
    pooler.wait_log("server login failed: FATAL no pg_hba.conf entry for replication connection from host")
    pooler.wait_log(r"closing because: login failed \(age")
    with pytest.raises(psycopg.OperationalError, match="(WAL sender|walsender)"):
        replicating(pooler, user="alice").execute("IDENTIFY_SYSTEM")
    assert pooler.value("select 1") == 1, "others are served at once"


def test_a_forced_user_must_be_allowed_itself(pooler):
    assert pooler.value("select current_user", database="forced", user="replica") == "alice"
    for kind in ("true", "database"):
        with pytest.raises(psycopg.OperationalError, match="login failed"):
            replicating(pooler, "forced", kind).execute("IDENTIFY_SYSTEM")
    assert pooler.value("select current_user", database="forced", user="replica") == "alice"


def test_with_a_password(weir):
    pooler = weir(auth_type="scram-sha-256", userlist={"replica": "its secret", "admin": ""})
    replicating(pooler, password="its secret").execute("IDENTIFY_SYSTEM")
    with pytest.raises(psycopg.OperationalError, match="authentication failed"):
        replicating(pooler, password="another")


@pytest.mark.parametrize("kind", ["true", "database"])
def test_a_user_that_only_the_server_knows(weir, pg, kind):
    """auth_query asks on an ordinary server of its own, even where the client wants another kind."""
    pg.query("drop role if exists looker; create role looker superuser login; alter role replica password 'its secret'")
    pooler = weir(auth_type="scram-sha-256", auth_user="looker", userlist={"looker": "", "admin": ""}, default_pool_size=1)
    connection = replicating(pooler, kind=kind, password="its secret")
    connection.execute("IDENTIFY_SYSTEM")
    assert senders(pg) == 1
    with pytest.raises(psycopg.OperationalError, match="authentication failed"):
        replicating(pooler, kind=kind, password="another")


def test_rules_of_its_own(weir, pg):
    """In a file of rules the keyword is for physical replication; a logical connection is one to its database."""
    pooler = weir.prepared(databases=DATABASES, auth_type="hba")
    rules = pooler.directory / "hba.conf"
    rules.write_text("local all all trust\nhost replication replica all trust\nhost all admin all trust\n")
    pooler.write_ini(auth_hba_file=host.hand_over(rules))
    pooler.start()
    replicating(pooler, kind="true").execute("IDENTIFY_SYSTEM")
    for refused in ({"kind": "database"}, {"kind": "true", "user": "alice"}, {"kind": "false"}):
        with pytest.raises(psycopg.OperationalError, match="no pg_hba.conf entry|no authentication method"):
            replicating(pooler, **refused)


# --- commands ---------------------------------------------------------------------------------------------------
def test_pause_waits_for_it_and_reconnect_spares_it(pooler, pg):
    connection = replicating(pooler)
    connection.execute("IDENTIFY_SYSTEM")
    pooler.console("RECONNECT")
    assert connection.execute("select 1").fetchone() == (1,)
    with wire.Raw(pooler.port).login(user="admin", database="pgbouncer") as console:
        console.send(wire.query("PAUSE app"))
        assert console.is_silent(0.5)
        assert connection.execute("select 1").fetchone() == (1,)
        connection.close()
        assert wire.kinds(console.read_until("Z")) == "CZ"
    with wire.Raw(pooler.port) as late:
        late.send(wire.startup(user="replica", database="app", replication="database"))
        host.eventually(lambda: pooler.pool("app", "replica")["cl_waiting"] == 1)
        assert senders(pg) == 0
        pooler.console("RESUME app")
        late.read_until("Z")


def test_kill_ends_it(pooler, pg):
    connection = replicating(pooler)
    connection.execute("IDENTIFY_SYSTEM")
    pooler.console("KILL app")
    with pytest.raises(psycopg.OperationalError):
        connection.execute("IDENTIFY_SYSTEM")
    host.eventually(lambda: senders(pg) == 0)


def test_shutdown_waits_for_it(pooler):
    connection = replicating(pooler)
    connection.execute("IDENTIFY_SYSTEM")
    pooler.console("SHUTDOWN WAIT_FOR_SERVERS")
    assert connection.execute("select 1").fetchone() == (1,)
    assert pooler.is_running()
    connection.close()
    assert pooler.wait_end() == 0
