"""`host_probe_interval` and `host_probe_user`: what hosts are is known without a client, and a new primary is found while the old one works."""

import contextlib
import os
import signal
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

import host
import panel
import postgres
from test_hosts import states, summary
from test_target_session import entry, pair  # noqa: F401 (a fixture)
from weir import USERLIST

pytestmark = [pytest.mark.weir_only, pytest.mark.every_version]

PROBES = "application_name = 'weir host probe'"
SECRET = "knows-the-way-42"


class Cluster:
    """The pair by the names of its servers."""

    def __init__(self, pair):
        self.servers = dict(zip(("primary", "standby"), pair))


def probing(weir, pair, words="target_session_attrs=primary", **settings):
    """The old primary comes first in the list."""
    primary, standby = pair
    hosts = f"host=127.0.0.1,127.0.0.1 port={primary.port},{standby.port} {words}"
    settings = {"host_probe_user": "watcher", "host_probe_interval": 0.2, "threads": 2, **settings}
    return weir(databases={"app": hosts}, userlist={**USERLIST, "watcher": SECRET}, **settings)


@pytest.fixture
def probed(pair):  # noqa: F811
    """They let the user `watcher` in by its password only."""
    primary, standby = pair
    primary.query(f"create role watcher login password '{SECRET}'")
    host.eventually(lambda: standby.value("select count(*) from pg_roles where rolname = 'watcher'") == 1)
    for server in pair:
        rules = server.data / "pg_hba.conf"
        rules.write_text("host all watcher all scram-sha-256\n" + rules.read_text())
        server.query("select pg_reload_conf()")
    return pair


@contextlib.contextmanager
def stopped(server):
    """Its processes do nothing; their sockets stay."""
    pids = [server.process.pid, *host.children(server.process.pid)]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


def is_on(client, server):
    """No prepared statement, and a transaction of its own."""
    return client.execute("select inet_server_port()", prepare=False).fetchone() == (server.port,)


def all_well(pooler, pair):  # noqa: F811
    host.eventually(lambda: states(pooler, Cluster(pair)) == {"primary": "primary", "standby": "standby"})


def test_hosts_are_known_without_a_client(weir, probed):
    primary, standby = probed
    pooler = probing(weir, probed)
    all_well(pooler, probed)
    primary.query("create table t (a int)", "app")
    by_port = lambda: {row["port"]: row for row in pooler.console("SHOW HOSTS")}
    host.eventually(lambda: by_port()[standby.port]["lag_bytes"] == 0)
    is_whole = lambda row: row["timeline"] == 1 and row["since"] and row["last_error"] is None and row["replay_lsn"]
    host.eventually(lambda: all(is_whole(row) for row in by_port().values()))
    found = summary(pooler)
    system = primary.value("select system_identifier from pg_control_system()")
    assert (found["state"], found["primary"], found["system_identifier"]) == ("ok", f"127.0.0.1:{primary.port}", str(system)), found
    host.eventually(lambda: [server.count(PROBES) for server in probed] == [1, 1])  # which stay
    assert [server.count("datname = 'app'") for server in probed] == [0, 0], "none of them counts in the database"
    pooler.reload(host_probe_interval=0)
    host.eventually(lambda: [server.count(PROBES) for server in probed] == [0, 0])
    host.eventually(lambda: summary(pooler)["state"] == "not watched")


def test_the_panel_keeps_their_lag_without_a_client(weir, probed):
    pooler = probing(weir, probed, http_port=host.free_port())
    web = panel.Panel(pooler, int(pooler.settings["http_port"])).wait_up()
    name = f"127.0.0.1:{probed[1].port}"

    def has_lag():
        hosts = {each["host"]: each for each in web.get("/api/v1/hosts/history?database=app")["hosts"]}
        return any(lag is not None for lag in hosts.get(name, {"lag_bytes": []})["lag_bytes"])

    host.eventually(has_lag, timeout=20)


def test_a_standby_that_stands_still_is_down_and_one_that_does_not_replay_lags(weir, probed):
    primary, standby = probed
    pooler = probing(weir, probed)
    all_well(pooler, probed)
    row = lambda: next(row for row in pooler.console("SHOW HOSTS") if row["port"] == standby.port)
    standby.query("select pg_wal_replay_pause()")
    primary.query("create table t (a int)", "app")
    host.eventually(lambda: (row()["lag_bytes"] or 0) > 0 and row()["lag_ms"] > 0)
    standby.query("select pg_wal_replay_resume()")
    host.eventually(lambda: row()["lag_bytes"] == 0)
    with stopped(standby):
        host.eventually(lambda: row()["state"] == "down")
        assert row()["last_error"] == "no answer in time"
        pooler.wait_log(rf"WARNING host probe: 127\.0\.0\.1:{standby.port} is down: no answer in time")
        assert summary(pooler)["state"] == "ok" and str(standby.port) in summary(pooler)["detail"]
    all_well(pooler, probed)
    pooler.wait_log(rf"host probe: 127\.0\.0\.1:{standby.port} answers again")


def test_a_newer_primary_is_found_while_the_old_one_works(weir, probed):
    primary, standby = probed
    pooler = probing(weir, probed, host_probe_interval=0)
    client, other = pooler.connect(), pooler.connect()
    assert is_on(client, primary) and is_on(other, primary)
    other.autocommit = False
    other.execute("select 1")
    standby.promote()
    assert all(is_on(client, primary) for _ in range(20)), "without the probe nothing says so"
    pooler.reload(host_probe_interval=0.2)
    host.eventually(lambda: is_on(client, standby))
    assert all(is_on(client, standby) for _ in range(20))
    assert is_on(other, primary), "its transaction goes on"
    other.rollback()
    other.autocommit = True
    assert is_on(other, standby)
    host.eventually(lambda: (summary(pooler)["state"], summary(pooler)["timeline"]) == ("two primaries", 2))
    primary.stop()
    host.eventually(lambda: summary(pooler)["state"] == "ok")


def test_clients_get_to_the_next_primary_although_all_connections_wait_for_the_old_one(weir, probed):
    """That one stands still: it is connected, and says nothing."""
    primary, standby = probed
    pooler = probing(weir, probed, default_pool_size=2, server_connect_timeout=4)
    waiting, late = [pooler.connect() for _ in range(2)], pooler.connect()
    for command in ("begin", "select 1", "commit"):
        [client.execute(command) for client in waiting]
    all_well(pooler, probed)
    with stopped(primary), ThreadPoolExecutor(3) as threads:
        lost = [threads.submit(client.execute, "select 1") for client in waiting]
        host.eventually(lambda: sum(row["sv_active"] for row in pooler.console("SHOW POOLS")) == 2)
        served = threads.submit(is_on, late, standby)
        standby.promote()
        for answer in lost:
            with pytest.raises(psycopg.OperationalError, match="the server was left behind and does not answer"):
                answer.result(60)
        assert served.result(60)


def test_reconnect_forgets_a_primary_that_was_thrown_away(weir, probed):
    primary, standby = probed
    pooler = probing(weir, probed, host_probe_interval=3)
    client = pooler.connect()
    all_well(pooler, probed)
    assert is_on(client, primary)
    # The other one is asked after this one, from the second time on.
    standby.query(f"select pg_terminate_backend(pid) from pg_stat_activity where {PROBES}")
    standby.promote()
    host.eventually(lambda: is_on(client, standby))
    host.eventually(lambda: standby.count(PROBES) == 1)
    pooler.reload(host_probe_interval=1000)
    standby.stop()
    pooler.console("RECONNECT")
    row = lambda: next(row for row in pooler.console("SHOW HOSTS") if row["port"] == standby.port)
    assert is_on(client, primary) and row()["state"] == "primary", "it was not asked since"
    pooler.reload(host_probe_interval=0.2)
    host.eventually(lambda: row()["state"] == "down")
    assert all(is_on(client, primary) for _ in range(20)), "what it said before counts for nothing"


def test_a_paused_entry_keeps_no_connection(weir, probed):
    primary, standby = probed
    pooler = probing(weir, probed, host_probe_interval=60)
    all_well(pooler, probed)
    pooler.console("PAUSE app")
    host.eventually(lambda: [server.count(PROBES) for server in probed] == [0, 0])
    pooler.reload(host_probe_interval=0.2)
    row = lambda: next(row for row in pooler.console("SHOW HOSTS") if row["port"] == primary.port)
    primary.stop(signal.SIGTERM)
    host.eventually(lambda: row()["state"] == "down")
    primary.start()
    host.eventually(lambda: row()["state"] == "primary", timeout=30)
    pooler.console("RESUME app")
    # One that stays, where there was one for each question.
    pids = lambda: primary.query(f"select pid from pg_stat_activity where {PROBES}")
    host.eventually(lambda: pids() and pids() == pids())


def test_a_connection_that_ends_does_not_say_that_the_server_is_down(weir, probed):
    primary, _ = probed
    pooler = probing(weir, probed, host_probe_interval=1000)
    all_well(pooler, probed)
    primary.query(f"select pg_terminate_backend(pid) from pg_stat_activity where {PROBES}")
    host.eventually(lambda: primary.count(PROBES) == 0)
    pooler.reload(host_probe_interval=0.2)
    host.eventually(lambda: primary.count(PROBES) == 1)
    assert "is down" not in pooler.log_text() and states(pooler, Cluster(probed))["primary"] == "primary"


def test_a_primary_that_was_left_behind_before_the_first_client_gets_none(weir, probed):
    primary, standby = probed
    standby.promote()
    pooler = probing(weir, probed)
    host.eventually(lambda: summary(pooler)["timeline"] == 2)
    assert is_on(pooler.connect(), standby), "although the other one is the first of the list"


def test_a_user_that_may_not_log_in_says_nothing_of_the_hosts(weir, probed):
    primary, standby = probed
    pooler = probing(weir, probed, host_probe_user="stranger")
    row = lambda: next(row for row in pooler.console("SHOW HOSTS") if row["port"] == standby.port)
    host.eventually(lambda: row()["last_error"])
    assert "stranger" in row()["last_error"] and row()["state"] == "unknown"
    pooler.wait_log(rf"host probe: 127\.0\.0\.1:{standby.port} cannot be asked: .*stranger.*; set host_probe_user")
    assert summary(pooler)["detail"] == "No host says what it is: see last_error in SHOW HOSTS."
    assert is_on(pooler.connect(), primary), "clients do not need it"
    pooler.reload(host_probe_user="watcher")
    all_well(pooler, probed)
    assert row()["last_error"] is None


def test_a_server_of_another_cluster_is_named(weir, pg, probed):
    primary, _ = probed
    entry = f"host=127.0.0.1,127.0.0.1 port={primary.port},{pg.port} target_session_attrs=primary user=alice"
    pooler = weir(databases={"app": entry}, host_probe_interval=0.2)
    host.eventually(lambda: any("system identifier" in (row["last_error"] or "") for row in pooler.console("SHOW HOSTS")))
    assert summary(pooler)["hosts"] == 2


def test_a_standby_of_another_cluster_that_was_used_first_is_left(weir, pg, probed, scratch):
    """Two of three hosts are of one cluster, and the third is first in the list."""
    stray = postgres.Standby(pg, host.new_directory(scratch, "stray"))
    try:
        ports = [stray.port, *(server.port for server in probed)]
        entry = f"host={','.join(['127.0.0.1'] * 3)} port={','.join(map(str, ports))} target_session_attrs=standby"
        pooler = weir(databases={"app": entry}, host_probe_user="alice", host_probe_interval=0, threads=2)
        cluster = "select system_identifier from pg_control_system()"
        client = pooler.connect()
        assert client.execute(cluster).fetchone()[0] == pg.value(cluster)
        pooler.reload(host_probe_interval=0.2)
        host.eventually(lambda: client.execute(cluster).fetchone()[0] == probed[0].value(cluster))
        pooler.wait_log("closing because: most hosts of the entry are of another cluster")
        assert summary(pooler)["system_identifier"] == str(probed[0].value(cluster))
    finally:
        stray.remove()
