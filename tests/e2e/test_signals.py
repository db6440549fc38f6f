"""Signals, as PgBouncer 1.25 takes them: HUP, INT, TERM, QUIT, USR1, USR2.
Holds I20 of ARCHITECTURE.md."""

import signal

import psycopg
import pytest

import host
import wire


@pytest.mark.since("1.23")
def test_quit_ends_at_once(weir):
    pooler = weir()
    pooler.connect().execute("begin")
    pooler.signal(signal.SIGQUIT)
    assert pooler.wait_end() is not None
    assert not pooler.pidfile.exists()


@pytest.mark.since("1.23")
def test_int_lets_transactions_finish_and_closes_idle_clients_when_they_ask(weir):
    pooler = weir()
    admin = pooler.connect("pgbouncer", "admin")
    busy, idle, finished = pooler.connect(), wire.Raw(pooler.port).login(), pooler.connect()
    idle.simple("select 1")
    busy.execute("begin")
    finished.execute("begin")
    pooler.signal(signal.SIGINT)
    host.eventually(lambda: refuses(pooler))
    assert busy.execute("select 1").fetchone() == (1,)
    assert pooler.is_running()
    finished.execute("commit")
    states = [row[4] for row in admin.execute("show clients").fetchall() if row[2] == "app"]
    assert len(states) == 3, "idle clients stay, and so does one whose transaction has ended"
    idle.send(wire.query("select 1"))
    assert [text for _, text in wire.errors(idle.read_to_end())] == ["server shutting down"]
    with pytest.raises(psycopg.OperationalError):
        finished.execute("select 1")
    busy.execute("commit")
    assert pooler.wait_end() == 0


@pytest.mark.since("1.23")
def test_int_says_why_it_closes(weir):
    pooler = weir()
    busy = pooler.connect()
    busy.execute("begin")
    waiting = wire.Raw(pooler.port).login()
    pooler.signal(signal.SIGINT)
    pooler.wait_log("shutting down, waiting for")
    waiting.send(wire.query("select 1"))
    waiting.read_to_end()
    pooler.wait_log("closing because: server shutting down")
    busy.execute("commit")


@pytest.mark.since("1.23")
def test_term_lets_clients_leave(weir):
    pooler = weir()
    client = pooler.connect()
    pooler.signal(signal.SIGTERM)
    host.eventually(lambda: refuses(pooler))
    for _ in range(5):
        assert client.execute("select 1").fetchone() == (1,)
    assert pooler.is_running()
    client.close()
    assert pooler.wait_end() == 0


@pytest.mark.since("1.23")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_second_signal_ends_at_once(weir, number):
    pooler = weir()
    client = pooler.connect()
    client.execute("begin")
    pooler.signal(number)
    pooler.wait_log("shutting down, waiting for")
    assert pooler.is_running()
    pooler.signal(number)
    pooler.wait_end()


@pytest.mark.since("1.25")
def test_the_console_stays_on_the_unix_socket_until_the_last_client_left(weir):
    pooler = weir()
    client = pooler.connect()
    pooler.signal(signal.SIGTERM)
    host.eventually(lambda: refuses(pooler))
    on_socket = {"database": "pgbouncer", "user": "admin", "host_name": pooler.directory}
    assert pooler.psql("-c", "SHOW VERSION", **on_socket).stdout.startswith("PgBouncer")
    refused = pooler.psql("-c", "RESUME", check=False, **on_socket)
    assert "pooler is shutting down" in refused.stderr
    normal = pooler.psql("-c", "select 1", host_name=pooler.directory, check=False)
    assert normal.returncode != 0
    pooler.signal(signal.SIGUSR2)
    pooler.wait_log("got SIGUSR2 while shutting down, ignoring")
    client.close()
    pooler.wait_end()
    assert not pooler.socket_path.exists()


def test_hup_reloads(weir, pg):
    pooler = weir(default_pool_size=1)
    client = pooler.connect()
    client.execute("begin")
    pooler.write_ini(default_pool_size=2)
    pooler.signal(signal.SIGHUP)
    pooler.wait_log("got SIGHUP, re-reading config")
    assert pooler.value("select 1") == 1
    client.execute("commit")


def test_usr1_pauses_and_usr2_resumes(weir, pg):
    pooler = weir()
    pooler.value("select 1")
    pooler.signal(signal.SIGUSR1)
    pooler.wait_log("got SIGUSR1, pausing all activity")
    host.eventually(lambda: pg.count() == 0)
    with wire.Raw(pooler.port).login() as raw:
        raw.send(wire.query("select 1"))
        assert raw.is_silent(0.5)
        pooler.signal(signal.SIGUSR2)
        assert wire.kinds(raw.read_until("Z")) == "TDCZ"
    pooler.wait_log("got SIGUSR2, continuing from PAUSE")


def refuses(pooler):
    try:
        psycopg.connect(**pooler.address()).close()
        return False
    except psycopg.OperationalError:
        return True


@pytest.mark.since("1.23")
@pytest.mark.parametrize("first, second", [(signal.SIGINT, signal.SIGTERM), (signal.SIGTERM, signal.SIGINT)])
def test_a_different_second_signal_ends_at_once_too(weir, first, second):
    pooler = weir()
    client = pooler.connect()
    client.execute("begin")
    pooler.signal(first)
    pooler.wait_log("shutting down, waiting for")
    assert pooler.is_running()
    pooler.signal(second)
    pooler.wait_end()
    pooler.wait_log("while shutting down, fast exit")


@pytest.mark.since("1.25")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_after_the_last_client_the_unix_socket_goes_with_the_process(weir, number):
    pooler = weir()
    client = pooler.connect()
    client.execute("begin")
    pooler.signal(number)
    host.eventually(lambda: refuses(pooler))
    assert pooler.socket_path.exists()
    with wire.Raw(pooler.port, path=pooler.socket_path).login(user="admin", database="pgbouncer") as console:
        assert console.simple("show version")
        with pytest.raises(AssertionError, match="pooler is shutting down"):
            wire.Raw(pooler.port, path=pooler.socket_path).login()
        client.execute("commit")
        client.close()
        assert pooler.wait_end() == 0, "the console's clients keep nobody"
    assert not pooler.socket_path.exists()
    assert not pooler.pidfile.exists()


@pytest.mark.since("1.23")
def test_who_waits_at_int_is_closed(weir, pg):
    pooler = weir(default_pool_size=1)
    busy = pooler.connect()
    busy.execute("begin")
    waiting = wire.Raw(pooler.port).login()
    waiting.send(wire.query("select 1"))
    host.eventually(lambda: pooler.pool().get("cl_waiting") == 1)
    pooler.signal(signal.SIGINT)
    waiting.read_to_end()
    pooler.wait_log("closing because: server shutting down")
    assert busy.execute("select 1").fetchone() == (1,)
    busy.execute("rollback")
    assert pooler.wait_end() == 0


def test_signals_that_mean_nothing_change_nothing(weir):
    pooler = weir.prepared()
    pooler.environment.update(EVENT_NOEPOLL="1", EVENT_SHOW_METHOD="1")
    pooler.start()
    client = pooler.connect()
    pooler.signal(signal.SIGPIPE)
    pooler.signal(signal.SIGUSR2)
    pooler.wait_log("got SIGUSR2, but not paused/suspended")
    assert client.execute("select 1").fetchone() == (1,)


@pytest.mark.weir_only  # PgBouncer resets what it has not accepted, and its code is 08P01
def test_who_has_connected_before_the_listener_closes_is_told_to_go_elsewhere(weir):
    """57P03, as a PostgreSQL that shuts down says it: libpq goes to the next of its hosts then."""
    pooler = weir()
    client = pooler.connect()
    told = []
    for _ in range(10):
        pooler.signal(signal.SIGSTOP)
        waiting = [wire.Raw(pooler.port) for _ in range(20)]
        for raw in waiting:
            raw.send(wire.startup(user="alice", database="app"))
        pooler.signal(signal.SIGTERM)
        pooler.signal(signal.SIGCONT)
        for raw in waiting:
            first = raw.read()
            told += [first.fields()["C"]] if first.kind == "E" else []
            raw.socket.close()
        client.close()
        assert pooler.wait_end() == 0
        pooler.start()
        client = pooler.connect()
    assert set(told) <= {"57P03"}
