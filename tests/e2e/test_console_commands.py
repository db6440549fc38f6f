"""The console's commands: what they do, what they answer, and who may give them."""

import threading
import time

import psycopg
import pytest

import conftest
import host
import wire
from weir import Stopwatch

# PgBouncer has one SQLSTATE for all its own errors; Weir says what PostgreSQL would.
STATES = ["08P01"] if conftest.PGBOUNCER else ["08P01", "42601", "42501", "42704", "22023", "55000"]


def server_of(connection):
    return connection.execute("select pg_backend_pid()").fetchone()[0]


def refused(pooler, command, text, user="admin"):
    with pytest.raises(psycopg.Error, match=text) as failure:
        pooler.console(command, user=user)
    assert failure.value.sqlstate in STATES


# --- PAUSE and RESUME -----------------------------------------------------------------------------------------
@pytest.mark.parametrize("target", ["", " app"])
def test_pause_holds_clients_and_resume_lets_them_go(weir, pg, target):
    pooler = weir()
    client = pooler.connect()
    client.execute("select 1")
    assert pooler.console(f"PAUSE{target}") == "PAUSE"
    host.eventually(lambda: pg.count() == 0)
    with wire.Raw(pooler.port) as raw:
        raw.login()
        raw.send(wire.query("select 1"))
        assert raw.is_silent(0.5)
        assert pooler.console(f"RESUME{target}") == "RESUME"
        assert wire.kinds(raw.read_until("Z")) == "TDCZ"
    assert client.execute("select 1").fetchone() == (1,)


def test_pause_waits_for_transactions(weir):
    pooler = weir()
    client = pooler.connect()
    client.execute("begin")
    paused = threading.Thread(target=pooler.console, args=("PAUSE",))
    paused.start()
    paused.join(0.5)
    assert paused.is_alive()
    client.execute("commit")
    paused.join(30)
    assert not paused.is_alive()
    pooler.console("RESUME")
    assert client.execute("select 1").fetchone() == (1,)


def test_pause_of_one_database_leaves_the_others(weir):
    pooler = weir()
    pooler.console("PAUSE app")
    assert pooler.value("select 1", database="other") == 1
    pooler.console("RESUME app")
    assert pooler.value("select 1") == 1


def test_resume_of_all_leaves_what_was_paused_by_its_name(weir):
    pooler = weir()
    assert pooler.value("select 1") == 1
    for one in ("PAUSE app", "PAUSE", "RESUME"):
        pooler.console(one)
    assert pooler.value("select 1", database="other") == 1
    with wire.Raw(pooler.port).login() as raw:
        raw.send(wire.query("select 1"))
        assert raw.is_silent(0.5)
        pooler.console("RESUME app")
        assert wire.kinds(raw.read_until("Z")) == "TDCZ"


def test_resume_of_what_is_not_paused(weir):
    refused(weir(), "RESUME", "pooler is not paused/suspended")


def test_reload_while_paused_strands_nobody(weir):
    """Who waits, waits for a database and a user, not for one pool in memory that a RELOAD replaces."""
    pooler = weir()
    pooler.console("PAUSE")
    clients = [wire.Raw(pooler.port) for _ in range(5)]
    for client in clients:
        client.send(wire.startup(user="alice", database="app"), wire.query("select 1"))
    host.eventually(lambda: pooler.pool()["cl_waiting"] == 5)
    pooler.reload(default_pool_size=2)
    pooler.console("RESUME")
    for client in clients:
        messages = client.read_until("Z")
        assert "D" in wire.kinds(messages + client.read_until("Z"))


# --- DISABLE and ENABLE ---------------------------------------------------------------------------------------
def test_disable_refuses_new_clients_and_enable_takes_them_again(weir):
    pooler = weir()
    client = pooler.connect()
    assert pooler.console("DISABLE app") == "DISABLE"
    with pytest.raises(psycopg.OperationalError, match='database "app" is disabled|does not allow connections'):
        pooler.connect()
    assert {row["name"]: row["disabled"] for row in pooler.console("SHOW DATABASES")}["app"] == 1
    assert pooler.value("select 1", database="other") == 1
    assert client.execute("select 1").fetchone() == (1,)
    assert pooler.console("ENABLE app") == "ENABLE"
    assert pooler.value("select 1") == 1


# --- RECONNECT, KILL, KILL_CLIENT, WAIT_CLOSE ------------------------------------------------------------------
@pytest.mark.parametrize("target", ["", " app"])
def test_reconnect_replaces_servers_after_their_transaction(weir, pg, target):
    pooler = weir(default_pool_size=2)
    idle, busy = pooler.connect(), pooler.connect()
    busy.execute("begin")
    old = {server_of(busy), server_of(idle)}
    assert pooler.console(f"RECONNECT{target}") == "RECONNECT"
    assert server_of(busy) in old
    assert server_of(idle) not in old
    busy.execute("commit")
    assert server_of(busy) not in old
    host.eventually(lambda: pg.count(f"pid in ({', '.join(map(str, old))})") == 0)


def test_wait_close_returns_when_the_old_servers_are_gone(weir, pg):
    pooler = weir(default_pool_size=2)
    busy = pooler.connect()
    busy.execute("begin")
    old = server_of(busy)
    pooler.console("RECONNECT app")
    waiting = threading.Thread(target=pooler.console, args=("WAIT_CLOSE app",))
    waiting.start()
    waiting.join(0.5)
    assert waiting.is_alive()
    busy.execute("commit")
    waiting.join(30)
    assert not waiting.is_alive()
    host.eventually(lambda: pg.count(f"pid = {old}") == 0)


def test_kill_closes_the_clients_of_a_database_at_once(weir, pg):
    pooler = weir()
    ours, theirs = pooler.connect(), pooler.connect("other")
    ours.execute("begin")
    theirs.execute("select 1")
    assert pooler.console("KILL app") == "KILL"
    with pytest.raises(psycopg.OperationalError):
        ours.execute("select 1")
    assert theirs.execute("select 1").fetchone() == (1,)
    host.eventually(lambda: pg.count("datname = 'app'") == 0)
    # A killed database is paused, until RESUME.
    pooler.console("RESUME app")
    assert pooler.value("select 1") == 1


@pytest.mark.since("1.25")
def test_kill_of_all(weir, pg):
    pooler = weir()
    clients = [pooler.connect(), pooler.connect("other")]
    assert pooler.console("KILL") == "KILL"
    for client in clients:
        with pytest.raises(psycopg.OperationalError):
            client.execute("select 1")
    host.eventually(lambda: pg.count() == 0)


@pytest.mark.since("1.24")
def test_kill_client(weir):
    pooler = weir()
    victim, bystander = pooler.connect(application_name="victim"), pooler.connect()
    rows = pooler.console("SHOW CLIENTS")
    number = next(row["id"] for row in rows if row["application_name"] == "victim")
    assert pooler.console(f"KILL_CLIENT {number}") == "KILL_CLIENT"
    with pytest.raises(psycopg.OperationalError):
        victim.execute("select 1")
    assert bystander.execute("select 1").fetchone() == (1,)
    refused(pooler, "KILL_CLIENT 999999", "client not found")
    refused(pooler, "KILL_CLIENT abc", "invalid client pointer supplied")


# --- SET ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("command", ["SET default_pool_size = 3", "set default_pool_size=3", "SET default_pool_size = '3'"])
def test_set_changes_a_setting(weir, pg, command):
    pooler = weir(default_pool_size=1)
    assert pooler.console(command) == "SET default_pool_size=3"
    rows = {row["key"]: row["value"] for row in pooler.console("SHOW CONFIG")}
    assert rows["default_pool_size"] == "3"
    clients = [pooler.connect() for _ in range(3)]
    for client in clients:
        client.execute("begin")
    assert pg.count() == 3


@pytest.mark.parametrize("command", ["SET no_such_setting = 1", "SET pool_mode = 'sideways'"])
def test_set_refuses_nonsense(weir, command):
    refused(weir(), command, "SET failed")


def test_set_of_what_only_a_restart_changes_changes_nothing(weir):
    pooler = weir()
    try:
        pooler.console("SET listen_port = 1")
    except psycopg.Error:
        pass
    rows = {row["key"]: row["value"] for row in pooler.console("SHOW CONFIG")}
    assert rows["listen_port"] == str(pooler.port)


# --- SUSPEND --------------------------------------------------------------------------------------------------
def test_suspend_stands_still_and_resume_goes_on(weir):
    pooler = weir()
    console = pooler.connect("pgbouncer", "admin")
    with wire.Raw(pooler.port).login() as inside, wire.Raw(pooler.port).login() as outside:
        inside.simple("begin")
        console.execute("SUSPEND")
        for raw in (inside, outside):
            raw.send(wire.query("select 1"))
        assert inside.is_silent(0.5) and outside.is_silent(0.1)
        assert ("suspended", "yes") in console.execute("SHOW STATE").fetchall()
        with pytest.raises(psycopg.Error, match="already suspended/paused"):
            console.execute("PAUSE")
        console.execute("RESUME")
        for raw in (inside, outside):
            assert wire.kinds(raw.read_until("Z")) == "TDCZ"
        inside.simple("commit")
        assert ("suspended", "no") in console.execute("SHOW STATE").fetchall()


def test_who_asked_while_suspended_is_served_at_resume(weir):
    """The only server was idle all the time."""
    pooler = weir(default_pool_size=1)
    console = pooler.connect("pgbouncer", "admin")
    with wire.Raw(pooler.port).login() as one, wire.Raw(pooler.port).login() as two:
        one.simple("select 1")
        console.execute("SUSPEND")
        one.send(wire.query("select 2"))
        assert one.is_silent(0.5)
        console.execute("RESUME")
        assert wire.kinds(one.read_until("Z")) == "TDCZ"
        assert two.simple("select 3") == [["3"]]


def test_suspend_is_refused_while_a_database_is_paused(weir):
    pooler = weir()
    pooler.console("PAUSE app")
    refused(pooler, "SUSPEND", "cannot suspend with paused databases")
    pooler.console("RESUME app")


def test_who_does_not_read_is_closed_by_suspend_timeout(weir, pg):
    pooler = weir(suspend_timeout=1)
    with wire.Raw(pooler.port).login() as raw:
        raw.send(wire.query("select repeat('x', 10000) from generate_series(1, 3000)"))
        # Every buffer between the two is full, the pooler's too.
        stuck = lambda: time.sleep(0.1) or pg.count("wait_event = 'ClientWrite'") == 1
        host.eventually(lambda: all(stuck() for _ in range(5)))
        console = pooler.connect("pgbouncer", "admin")
        with Stopwatch() as watch:
            assert console.execute("SUSPEND").statusmessage == "SUSPEND"
            pooler.wait_log("suspend_timeout")
        assert watch.seconds < 8  # the default is 10
        console.execute("RESUME")
    assert pooler.value("select 1") == 1


# --- refusals -------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("command", ["PAUSE", "RESUME", "KILL", "RECONNECT", "DISABLE", "ENABLE", "WAIT_CLOSE"])
def test_commands_on_an_unknown_database(weir, command):
    refused(weir(), f"{command} dne", "no such database: dne")


@pytest.mark.parametrize(
    "command",
    ["nonsense", "SHOW NONSENSE", "select 1", "SHOW", "'", '"', "SHOW POOLS; DROP TABLE x", "PAUSE a b", "é", "\x01"],
)
def test_nonsense_is_an_error_and_the_session_goes_on(weir, command):
    pooler = weir()
    client = pooler.connect("pgbouncer", "admin")
    with pytest.raises(psycopg.Error):
        client.execute(command)
    assert client.execute("SHOW VERSION").fetchone()


def test_a_megabyte_of_console_command(weir):
    pooler = weir()
    with wire.Raw(pooler.port).login("admin", "pgbouncer") as raw:
        raw.send(wire.query("SHOW " + "x" * 1_000_000))
        assert wire.errors(raw.read_until("ZE"))
    assert pooler.console("SHOW VERSION")


@pytest.mark.parametrize(
    "command",
    [
        "RELOAD", "PAUSE", "PAUSE app", "RESUME", "RESUME app", "KILL app", "RECONNECT", "DISABLE app", "ENABLE app",
        "SUSPEND", "WAIT_CLOSE app", "SET verbose = 1", "SHUTDOWN", "SHOW FDS",
        *(pytest.param(own, marks=pytest.mark.weir_only) for own in ("CANCEL_CLIENT 1", "RESET_QUERIES", "DETACH app h", "ATTACH app h")),
        *(pytest.param(newer, marks=pytest.mark.since("1.24")) for newer in
          ("KILL_CLIENT 1", "SHUTDOWN WAIT_FOR_CLIENTS", "SHUTDOWN WAIT_FOR_SERVERS")),
    ],
)
def test_stats_users_may_only_look(weir, command):
    pooler = weir()
    assert pooler.console("SHOW STATS", user="stats") is not None
    assert pooler.console("SHOW CONFIG", user="stats")
    refused(pooler, command, "admin access needed", user="stats")
    assert pooler.value("select 1") == 1


def test_others_may_not_even_look(weir):
    pooler = weir()
    with pytest.raises(psycopg.OperationalError, match="not allowed"):
        pooler.console("SHOW VERSION", user="alice")


# --- SHUTDOWN -------------------------------------------------------------------------------------------------
def test_shutdown_ends_at_once(weir):
    pooler = weir()
    client = pooler.connect()
    client.execute("begin")
    with pytest.raises(psycopg.OperationalError):
        pooler.console("SHUTDOWN")
    assert pooler.wait_end() == 0
    assert not pooler.pidfile.exists()
    with pytest.raises(psycopg.OperationalError):
        client.execute("select 1")


@pytest.mark.since("1.23")
@pytest.mark.parametrize("command", ["SHUTDOWN WAIT_FOR_SERVERS", "shutdown wait_for_servers"])
def test_shutdown_wait_for_servers_lets_transactions_finish(weir, command):
    pooler = weir()
    client = pooler.connect()
    client.execute("begin")
    pooler.console(command)
    assert pooler.is_running()
    with pytest.raises(psycopg.OperationalError, match="refused|shutting down|does not exist"):
        pooler.connect()
    client.execute("select 1")
    client.execute("commit")
    assert pooler.wait_end() == 0


@pytest.mark.since("1.23")
def test_shutdown_wait_for_clients_lets_clients_leave(weir):
    pooler = weir()
    client = pooler.connect()
    pooler.console("SHUTDOWN WAIT_FOR_CLIENTS")
    for _ in range(5):
        assert client.execute("select 1").fetchone() == (1,)
    assert pooler.is_running()
    client.close()
    assert pooler.wait_end() == 0


# --- cancel requests, and who leaves --------------------------------------------------------------------------
@pytest.mark.weir_only  # PgBouncer resumes, too, but leaves the console without an answer
@pytest.mark.parametrize("command", ["PAUSE", "PAUSE app", "WAIT_CLOSE app"])
def test_what_a_console_waits_for_can_be_cancelled(weir, command):
    pooler = weir()
    client = pooler.connect()
    client.execute("begin")
    pooler.console("RECONNECT app")
    console = pooler.connect("pgbouncer", "admin")
    failures = []

    def wait():
        try:
            console.execute(command)
        except psycopg.Error as error:
            failures.append(error.sqlstate)

    waiting = threading.Thread(target=wait)
    waiting.start()
    pooler.wait_log(f"{command.split()[0]}.*command issued")
    console.cancel()
    waiting.join(30)
    assert failures == ["57014"]
    assert pooler.value("select 1") == 1, "another client is served"
    assert client.execute("select 2").fetchone() == (2,)
    assert console.execute("SHOW VERSION").fetchone()


def test_cancelling_a_pause_resumes(weir):
    pooler = weir()
    client = pooler.connect()
    client.execute("begin")
    with wire.Raw(pooler.port).login("admin", "pgbouncer") as console, wire.Raw(pooler.port) as cancel:
        console.send(wire.query("PAUSE"))
        pooler.wait_log("PAUSE command issued")
        cancel.send(wire.cancel(console.pid, console.secret))
        cancel.read_to_end()
        assert pooler.value("select 1") == 1


@pytest.mark.since("1.19")  # SHOW STATE
def test_a_suspended_pooler_goes_on_when_the_last_admin_has_left(weir):
    pooler = weir()
    client = pooler.connect()
    client.execute("select 1")
    stays, leaves = pooler.connect("pgbouncer", "admin"), pooler.connect("pgbouncer", "admin")
    stays.execute("SUSPEND")
    leaves.close()
    assert ("suspended", "yes") in stays.execute("SHOW STATE").fetchall()
    stays.close()
    assert client.execute("select 2").fetchone() == (2,)
    pooler.wait_log("admin disappeared when suspended, doing RESUME")


@pytest.mark.weir_only
@pytest.mark.parametrize("command", ["PAUSE", "WAIT_CLOSE app"])
def test_the_answer_of_a_client_that_has_left_goes_nowhere(weir, command):
    pooler = weir(threads=1)
    client = pooler.connect()
    client.execute("begin")
    pooler.console("RECONNECT app")
    with wire.Raw(pooler.port).login("admin", "pgbouncer") as console:
        console.send(wire.query(command))
        assert console.is_silent(0.3), "it waits for the transaction"
    consoles = lambda: [row for row in pooler.console("SHOW CLIENTS") if row["database"] == "pgbouncer"]
    host.eventually(lambda: len(consoles()) == 1)
    client.execute("commit")
    if command == "PAUSE":
        host.eventually(lambda: pooler.pool()["sv_active"] + pooler.pool()["sv_idle"] == 0)
        pooler.console("RESUME")
    assert pooler.value("select 1") == 1
    assert "internal error" not in pooler.log_text()
