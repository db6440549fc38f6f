"""`assign_server_at_login`: a client has its server connection from login on, and the process ID that it is told is that server's."""

import psycopg
import pytest

import host
import wire
from running import SLEEP, cancel_by_psycopg, wait_until_runs
from test_cancel import cancel
from test_takeover import reboot

pytestmark = pytest.mark.weir_only


@pytest.fixture
def assigning(weir):
    return lambda **settings: weir(**{"pool_mode": "session", "assign_server_at_login": 1, "default_pool_size": 2, **settings})


def own_id(client):
    return client.execute("select pg_backend_pid()").fetchone()[0]


def row_of(pooler, view):
    (row,) = [row for row in pooler.console(f"show {view}") if row["database"] == "app"]
    return row


@pytest.mark.every_version
@pytest.mark.every_driver
def test_the_process_id_is_that_of_the_server(assigning):
    pooler = assigning()
    for _ in range(3):
        with pooler.connect() as client:
            assert client.info.backend_pid == own_id(client)


def test_without_it_the_process_id_is_weirs(weir):
    with weir(pool_mode="session").connect() as client:
        assert client.info.backend_pid != own_id(client)


def test_in_transaction_pooling_it_has_no_effect(assigning):
    pooler = assigning(pool_mode="transaction", default_pool_size=1)
    with pooler.connect() as client, pooler.connect() as other:
        assert client.info.backend_pid != own_id(client)
        assert other.execute("select 1").fetchone() == (1,)


def test_a_client_that_has_asked_nothing_has_its_server(assigning, pg):
    pooler = assigning()
    with pooler.connect() as client:
        assert pg.count(f"pid = {client.info.backend_pid}") == 1
        pool = pooler.pool()
        assert (pool["cl_active"], pool["sv_active"], pool["sv_idle"]) == (1, 1, 0)
        of_client, of_server = row_of(pooler, "clients"), row_of(pooler, "servers")
        assert (of_client["state"], of_server["state"]) == ("active", "active")
        assert (of_client["link"], of_server["link"]) == (of_server["ptr"], of_client["ptr"])
        assert of_server["remote_pid"] == client.info.backend_pid


def test_pg_terminate_backend_ends_the_client_in_postgresqls_words(assigning, pg):
    pooler = assigning()
    for asks_before in (False, True):
        client = pooler.connect()
        if asks_before:
            client.execute("select 1")
        pg.query(f"select pg_terminate_backend({client.info.backend_pid})")
        host.eventually(lambda: pooler.pool()["cl_active"] == 0)
        with pytest.raises(psycopg.errors.AdminShutdown, match="terminating connection due to administrator command"):
            client.execute("select 1")


def test_pg_cancel_backend_cancels_its_query(assigning, pg):
    with wire.Raw(assigning().port).login() as raw:
        raw.send(wire.query(SLEEP))
        wait_until_runs(pg)
        pg.query(f"select pg_cancel_backend({raw.pid})")
        assert wire.errors(raw.read_until("Z"))[0][0] == "57014"


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("version", [wire.V3_0, wire.V3_2], ids=["3.0", "3.2"])
def test_a_cancel_reaches_the_client_whose_secret_it_has(assigning, pg, threads, version):
    pooler = assigning(threads=threads)
    with wire.Raw(pooler.port).login(version=version) as raw, wire.Raw(pooler.port).login() as other:
        assert len(raw.secret) == (4 if version == wire.V3_0 else 32)
        raw.send(wire.query(SLEEP))
        wait_until_runs(pg)
        for pid, secret in [(other.pid, raw.secret), (raw.pid, other.secret), (raw.pid, bytes(len(raw.secret)))]:
            with wire.Raw(pooler.port) as request:
                request.send(wire.cancel(pid, secret))
                assert request.read_to_end() == []
        assert raw.is_silent(0.3)
        cancel(pooler, raw)
        assert wire.errors(raw.read_until("Z"))[0][0] == "57014"
        assert other.simple("select 1") == [["1"]]


def test_a_cancel_by_psycopg(assigning, pg):
    cancel_by_psycopg(pg, assigning().connect())


def test_the_key_of_an_earlier_client_of_the_server_cancels_nothing(assigning, pg):
    pooler = assigning(default_pool_size=1)
    with wire.Raw(pooler.port).login() as raw:
        pid, secret = raw.pid, raw.secret
    with wire.Raw(pooler.port).login() as raw:
        assert raw.pid == pid and raw.secret != secret
        raw.send(wire.query(SLEEP))
        wait_until_runs(pg)
        with wire.Raw(pooler.port) as request:
            request.send(wire.cancel(pid, secret))
            assert request.read_to_end() == []
        assert raw.is_silent(0.3)


def test_a_login_waits_for_a_server_and_gets_the_one_that_is_released(assigning, pg):
    pooler = assigning(default_pool_size=1)
    first = pooler.connect()
    first.execute("set application_name = 'first'")
    pid = first.info.backend_pid
    with wire.Raw(pooler.port) as second:
        second.send(wire.startup(user="alice", database="app"))
        host.eventually(lambda: pooler.pool()["cl_waiting"] == 1)
        first.close()
        replies = second.read_until("Z")
        (key,) = [reply for reply in replies if reply.kind == "K"]
        assert int.from_bytes(key.body[:4], "big") == pid
        assert second.simple("show application_name") == [[""]], "what the first one has left is reset"


def test_the_wait_ends_with_query_wait_timeout(assigning):
    pooler = assigning(default_pool_size=1, query_wait_timeout=5)
    with pooler.connect():
        with pytest.raises(psycopg.OperationalError, match="query_wait_timeout"):
            pooler.connect()


def test_a_client_that_leaves_while_it_waits_takes_nobodys_server(assigning):
    pooler = assigning(default_pool_size=1)
    first = pooler.connect()
    with wire.Raw(pooler.port) as second:
        second.send(wire.startup(user="alice", database="app"))
        host.eventually(lambda: pooler.pool()["cl_waiting"] == 1)
    host.eventually(lambda: pooler.pool()["cl_waiting"] == 0)
    first.close()
    with pooler.connect() as third:
        assert third.info.backend_pid == own_id(third)


def test_a_login_that_the_server_refuses_has_postgresqls_words(assigning, pg):
    pooler = assigning(databases={"app": "", "missing": ""})
    with pytest.raises(psycopg.OperationalError, match='database "missing" does not exist'):
        pooler.connect("missing")


def test_startup_parameters_are_in_force_and_reported(assigning):
    pooler = assigning(default_pool_size=1)
    for _ in range(2):
        with wire.Raw(pooler.port) as raw:
            raw.send(wire.startup(user="alice", database="app", datestyle="german", application_name="mine"))
            reported = dict(reply.body[:-1].split(b"\0") for reply in raw.read_until("Z") if reply.kind == "S")
            assert (reported[b"DateStyle"], reported[b"application_name"]) == (b"German, DMY", b"mine")
            assert raw.simple("show datestyle") == [["German, DMY"]]
    with wire.Raw(pooler.port) as raw:
        raw.send(wire.startup(user="alice", database="app", datestyle="nonsense"))
        assert "invalid value for parameter" in wire.errors(raw.read_to_end())[0][1]


def test_own_notifications_are_recognised(assigning):
    with assigning().connect() as client:
        client.execute("listen c")
        client.execute("notify c, 'mine'")
        (note,) = client.notifies(timeout=5, stop_after=1)
        assert note.pid == client.info.backend_pid


@pytest.mark.parametrize("place", ["databases", "users"])
def test_a_database_or_a_user_has_its_own(weir, place):
    entry = {"databases": {"app": "assign_server_at_login=1"}, "users": {"alice": "assign_server_at_login=1"}}[place]
    with weir(**{place: entry}, pool_mode="session").connect() as client:
        assert client.info.backend_pid == own_id(client)


def test_reload_turns_it_on_and_off(weir):
    pooler = weir(pool_mode="session")
    with pooler.connect() as before:
        pooler.reload(assign_server_at_login=1)
        with pooler.connect() as client:
            assert client.info.backend_pid == own_id(client)
            pooler.reload(assign_server_at_login=0)
            assert client.info.backend_pid == own_id(client), "it keeps its server"
        with pooler.connect() as later:
            assert later.info.backend_pid != own_id(later)
        assert before.info.backend_pid != own_id(before)


@pytest.mark.every_driver
def test_it_moves_with_its_client_to_the_next_process(assigning, pg):
    pooler = assigning(default_pool_size=1)
    with wire.Raw(pooler.port) as waiting, wire.Raw(pooler.port).login() as raw:
        waiting.send(wire.startup(user="alice", database="app"))
        host.eventually(lambda: pooler.pool()["cl_waiting"] == 1)
        reboot(pooler)
        assert raw.simple("select pg_backend_pid()") == [[str(raw.pid)]]
        raw.send(wire.query(SLEEP))
        wait_until_runs(pg)
        cancel(pooler, raw)
        assert wire.errors(raw.read_until("Z"))[0][0] == "57014"
        assert waiting.is_silent(0.2)
        raw.socket.close()
        replies = waiting.read_until("Z")
        (key,) = [reply for reply in replies if reply.kind == "K"]
        assert waiting.simple("select pg_backend_pid()") == [[str(int.from_bytes(key.body[:4], "big"))]]
