"""Networks and machines that misbehave: silence at login, segments of one byte, latency, a server of another version at the same address,
a full disk under the log, cancels that race with the end of their query."""

import concurrent.futures
import os
import random
import time

import psycopg
import pytest

import differential
import fault_proxy
import host
import random_scripts
import wire

pytestmark = [pytest.mark.every_driver, pytest.mark.weir_only]

CANCELS = int(os.environ.get("WEIR_CANCELS", "1000"))


@pytest.fixture
def proxied():
    """Proxies before ports, closed when the test ends."""
    proxies = []

    def start(port):
        proxies.append(fault_proxy.Proxy(port))
        return proxies[-1]

    yield start
    for proxy in proxies:
        proxy.close()


def test_a_server_silent_at_login_costs_other_databases_nothing(weir, pg, proxied):
    proxy = proxied(pg.port)
    proxy.silent.set()
    pooler = weir(
        databases={"app": f"port={proxy.port}", "other": ""}, server_connect_timeout=1, server_login_retry=1, query_wait_timeout=60
    )
    with wire.Raw(pooler.port, timeout=60) as raw:
        raw.send(wire.startup(user="alice", database="app"), wire.query("select 'served'"))
        for number in range(20):
            assert pooler.value(f"select {number}", database="other") == number
        pooler.wait_log("closing because: connect timeout", count=1)
        proxy.heal()
        assert wire.rows(raw.read_until_ready(2)) == [["served"]]


@pytest.mark.parametrize("mode", ["transaction", "session"])
def test_segments_of_one_byte_change_no_answer(weir, pg, proxied, mode):
    """Both ways, before the pooler and behind it."""
    pg.query(f"set role alice; {random_scripts.TABLES}", "app")
    server = proxied(pg.port)
    pooler = weir(databases={"app": f"port={server.port} pool_mode={mode} pool_size=2"}, server_reset_query="DISCARD ALL")
    client = proxied(pooler.port)
    server.segment = client.segment = 1
    direct, differing = differential.Direct(pg.port), []
    for seed in range(900, 920):
        script = differential.draw(seed, mode == "session")
        differing += differential.compare(direct, script, client.port, "app")
    direct.close()
    assert not differing, "\n".join(differing)


def test_latency_is_no_failure(weir, pg, proxied):
    """250 ms each way: no client is closed, and no server is opened for want of an answer."""
    proxy = proxied(pg.port)
    proxy.delay = 0.25
    pooler = weir(databases={"app": f"port={proxy.port}"}, default_pool_size=2, server_connect_timeout=10, query_timeout=20)
    with concurrent.futures.ThreadPoolExecutor(6) as workers:
        assert list(workers.map(lambda number: pooler.value(f"select {number}"), range(12))) == list(range(12))
    assert pg.count() <= 2
    assert not [line for line in pooler.log_text().splitlines() if "timeout" in line]


def test_a_server_that_falls_silent_in_a_query_is_given_up(weir, pg, proxied):
    """query_timeout ends what the network never will; the next client gets a new server."""
    proxy = proxied(pg.port)
    pooler = weir(databases={"app": f"port={proxy.port}"}, default_pool_size=1, query_timeout=4, server_connect_timeout=4, query_wait_timeout=60)
    with wire.Raw(pooler.port, timeout=60).login() as raw:
        assert raw.simple("select 1") == [["1"]]
        proxy.silent.set()
        raw.send(wire.query("select 2"))
        assert [text for _, text in wire.errors(raw.read_to_end())] == ["query timeout"]
        proxy.heal()
    with wire.Raw(pooler.port, timeout=60).login() as after:
        assert after.simple("select 3") == [["3"]]


def test_a_server_of_another_version_at_the_same_address(weir, servers, proxied):
    """As after an upgrade: new clients get the new version, and no statement is taken to be prepared there."""
    old, new = servers("system"), servers("18")
    proxy = proxied(old.port)
    pooler = weir(databases={"app": f"port={proxy.port}"}, default_pool_size=1, server_login_retry=1)
    client = pooler.connect()
    version = client.execute("show server_version", prepare=True).fetchone()
    assert pooler.connect().info.parameter_status("server_version") == version[0]
    proxy.target_port = new.port
    proxy.reset_all()
    host.eventually(lambda: pooler.pool()["sv_idle"] == 0)
    changed = client.execute("show server_version", prepare=True).fetchone()
    assert changed != version and changed[0].startswith("18")
    assert pooler.connect().info.parameter_status("server_version") == changed[0]


def test_a_full_disk_under_the_log(weir):
    pooler = weir(logfile="/dev/full", log_connections=1)
    for number in range(50):
        assert pooler.value(f"select {number}") == number
    pooler.reload()
    assert pooler.value("select 'reloaded'") == "reloaded"


def test_cancels_at_the_end_of_their_query_hit_nobody_else(weir):
    """Each cancel is sent when its query is about to end, has ended, or another client has the server."""
    pooler = weir(default_pool_size=5, max_client_conn=200)
    over = []

    def victim(seed):
        dice, cancelled = random.Random(seed), 0
        with wire.Raw(pooler.port).login() as raw:
            for _ in range(CANCELS // 4):
                raw.send(wire.query("select pg_sleep(0.01)"))
                time.sleep(dice.uniform(0.002, 0.02))
                with wire.Raw(pooler.port) as cancel:
                    cancel.send(wire.cancel(raw.pid, raw.secret))
                states = [state for state, _ in wire.errors(raw.read_until("Z"))]
                assert states in ([], ["57014"])
                cancelled += len(states)
        return cancelled

    def bystander(number):
        answers = 0
        with wire.Raw(pooler.port).login() as raw:
            while not over:
                assert raw.simple(f"select {number} from pg_sleep(0.001)") == [[str(number)]]
                answers += 1
        return answers

    with concurrent.futures.ThreadPoolExecutor(20) as workers:
        bystanders = [workers.submit(bystander, number) for number in range(6)]
        victims = [workers.submit(victim, seed) for seed in range(4)]
        try:
            cancelled = sum(one.result(600) for one in victims)
        finally:
            over.append(True)
        assert all(one.result(60) > 0 for one in bystanders)
    print(f"{CANCELS} cancels, {cancelled} queries cancelled, 0 of another client")


def test_a_dropped_client_in_every_state_is_forgotten(weir, pg):
    """1,000 clients reset in login, in a query, in a block, in COPY: no place, no server and no permit stays taken."""
    pooler = weir(default_pool_size=3, max_client_conn=300, query_wait_timeout=60)
    pg.query("drop table if exists dropped; create table dropped (id int); grant all on dropped to public", "app")
    begun = [
        lambda raw: None,
        lambda raw: raw.send(wire.startup(user="alice", database="app")[:12]),
        lambda raw: raw.send(wire.startup(user="alice", database="app"), wire.query("select pg_sleep(0.01)")),
        lambda raw: raw.login().send(wire.query("begin"), wire.parse("d", "select 1")[:9]),
        lambda raw: raw.login().send(wire.query("copy dropped from stdin"), wire.copy_data(b"1\n")[:7]),
        lambda raw: raw.login().send(wire.query("select repeat('x', 100000) from generate_series(1, 200)")),
    ]
    dice = random.Random(7)
    for number in range(1000):
        raw = wire.Raw(pooler.port)
        begun[number % len(begun)](raw)
        if dice.random() < 0.5:
            time.sleep(dice.uniform(0, 0.003))
        fault_proxy.reset(raw.socket)
    for number in range(10):
        assert pooler.value(f"select {number}") == number
    host.eventually(lambda: pooler.pool()["cl_active"] == 0 and pooler.pool()["sv_active"] == 0 and pooler.pool()["cl_waiting"] == 0)
    with pytest.raises(psycopg.errors.Error):
        pooler.value("select 1/0")
    assert pg.value("select count(*) from dropped", "app") == 0
