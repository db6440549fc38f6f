"""Faults under a load of transactions that are accounted for: what was acknowledged is there once, and all get on when the fault is over.
Holds I6 of ARCHITECTURE.md."""

import os
import signal
import time

import pytest

import fault_proxy
import host
import wire
from ledger import TABLE, Ledger, connect

pytestmark = [pytest.mark.every_driver, pytest.mark.weir_only]

SETTINGS = {"default_pool_size": 4, "server_login_retry": 1, "query_timeout": 10, "query_wait_timeout": 60}
# How long a writer may take to get on again, on a machine that does much else; docs/reliability.md has what it took.
RECOVERY_SECONDS = 50


# --- faults: each begins, lasts, and is over when it returns --------------------------------------------------
def kill_a_backend(pg, proxy, pooler):
    mark = pg.log_mark()
    os.kill(pg.value("select min(pid) from pg_stat_activity where usename = 'alice'"), signal.SIGKILL)
    pg.wait_restarted(mark)
    host.eventually(pg.is_up)


def kill_the_postmaster(pg, proxy, pooler):
    pg.kill()
    pg.start()


def stop_fast(pg, proxy, pooler):
    pg.stop(signal.SIGINT)
    pg.start()


def stop_immediately(pg, proxy, pooler):
    pg.stop(signal.SIGQUIT)
    pg.start()


def terminate_all(pg, proxy, pooler):
    for _ in range(10):
        pg.query("select pg_terminate_backend(pid) from pg_stat_activity where usename = 'alice'")
        time.sleep(0.05)


def reset_connections(pg, proxy, pooler):
    for _ in range(10):
        proxy.reset_all()
        time.sleep(0.05)


def refuse_connections(pg, proxy, pooler):
    proxy.refuses = True
    proxy.reset_all()
    time.sleep(1)
    proxy.heal()


def lose_packets(pg, proxy, pooler):
    """Nothing comes through any more on the connections that there are: query_timeout finds out."""
    pooler.reload(query_timeout=1, server_connect_timeout=1)
    proxy.silent.set()
    time.sleep(1)
    proxy.heal()


def single_bytes(pg, proxy, pooler):
    proxy.segment = 1
    time.sleep(1)
    proxy.heal()


def latency(pg, proxy, pooler):
    proxy.delay = 0.25  # 500 ms there and back
    time.sleep(3)
    proxy.heal()


def cut_after_each_number_of_bytes(pg, proxy, pooler):
    """200 resets, each a number of bytes behind the one before."""
    for count in range(1, 101):
        for direction in (fault_proxy.TO_SERVER, fault_proxy.TO_CLIENT):
            proxy.cut_after(direction, count)
            deadline = time.monotonic() + 1
            while proxy.left[direction] and time.monotonic() < deadline:
                time.sleep(0.001)
    proxy.heal()


def reloads(pg, proxy, pooler):
    for size in [4, 1, 10, 2] * 25:
        pooler.reload(default_pool_size=size)


def pause_reload_resume(pg, proxy, pooler):
    for size in (1, 4, 2):
        pooler.console("PAUSE")
        pooler.reload(default_pool_size=size)
        pooler.console("RESUME")


def kill_all_clients(pg, proxy, pooler):
    pooler.console("KILL app")
    pooler.console("RESUME app")


def reconnect(pg, proxy, pooler):
    for _ in range(10):
        pooler.console("RECONNECT")
        time.sleep(0.05)


def stop_the_pooler_for_a_while(pg, proxy, pooler):
    pooler.signal(signal.SIGSTOP)
    time.sleep(2)
    pooler.signal(signal.SIGCONT)


FAULTS = [
    kill_a_backend, kill_the_postmaster, stop_fast, stop_immediately, terminate_all, reset_connections, refuse_connections, lose_packets,
    single_bytes, latency, cut_after_each_number_of_bytes, reloads, pause_reload_resume, kill_all_clients, reconnect, stop_the_pooler_for_a_while,
]
# Those in which half a reply may have gone to a client, which TLS cuts into records.
OVER_TLS = [kill_the_postmaster, reset_connections, cut_after_each_number_of_bytes, single_bytes, kill_all_clients]
NOBODY_NOTICES = [single_bytes, latency, reloads, pause_reload_resume, reconnect, stop_the_pooler_for_a_while]


@pytest.fixture
def behind_proxy(weir, pg, authorities):
    """A pooler whose servers are behind a proxy, and that proxy."""
    proxies = []

    def start(tls=False, **settings):
        proxies.append(fault_proxy.Proxy(pg.port))
        key = authorities[3].server
        secure = {"client_tls_sslmode": "allow", "client_tls_cert_file": key.cert, "client_tls_key_file": key.key} if tls else {}
        return weir(databases={"app": f"port={proxies[0].port}"}, **{**SETTINGS, **secure, **settings}), proxies[0]

    yield start
    for proxy in proxies:
        proxy.close()


@pytest.mark.parametrize(
    "fault, tls",
    [(fault, False) for fault in FAULTS] + [(fault, True) for fault in OVER_TLS],
    ids=[fault.__name__ for fault in FAULTS] + [f"{fault.__name__} over TLS" for fault in OVER_TLS],
)
def test_nothing_acknowledged_is_lost_and_nothing_is_done_twice(behind_proxy, pg, fault, tls):
    pooler, proxy = behind_proxy(tls)
    with Ledger(pooler, pg, tls) as ledger:
        before = time.monotonic()
        fault(pg, proxy, pooler)
        ledger.healed()
        assert max(ledger.recoveries[-len(ledger.writers) :]) < RECOVERY_SECONDS
    if fault in NOBODY_NOTICES:
        failed = [outcome for writer in ledger.writers for outcome in writer.outcomes.values() if outcome != "acknowledged"]
        assert not failed, f"{len(failed)} requests failed within {time.monotonic() - before:.0f} s"


# --- one connection, cut at each byte -------------------------------------------------------------------------
def insert(key):
    """(what is sent at once, how many ReadyForQuery answer it): a block that commits."""
    parts = [wire.query("begin"), wire.parse("cut", "insert into ledger values ($1) returning key"), wire.bind("cut", "", [b"%d" % key])]
    return b"".join([*parts, wire.execute(), wire.SYNC, wire.query("commit")]), 3


@pytest.mark.parametrize("direction", [fault_proxy.TO_SERVER, fault_proxy.TO_CLIENT])
def test_a_connection_to_the_server_cut_at_each_byte(behind_proxy, pg, direction):
    """One error and no second; the next request is served, by a connection that nothing is left over from; the ledger is right."""
    pooler, proxy = behind_proxy(default_pool_size=1)
    pg.query(TABLE, "app")
    acknowledged, slowest, count, whole = [], 0.0, 0, False
    while not whole:
        with connect(pooler) as warm:
            warm.simple("select 1")  # the server is there, and has no statement of this name yet
        request, answers = insert(count)
        proxy.cut_after(direction, count)
        with connect(pooler) as raw:
            raw.send(request)
            found = raw.read_to_end() if count == 0 else read_answers(raw, answers)
        whole = proxy.left[direction] > 0
        proxy.heal()
        if not whole:  # behind the last byte the client has its answer before Weir can have seen the end
            host.eventually(lambda: pooler.pool()["sv_active"] + pooler.pool()["sv_idle"] + pooler.pool()["sv_used"] == 0)
        assert len(wire.errors(found)) <= 1, f"cut after {count} bytes: {wire.errors(found)}"
        assert wire.rows(found) in ([], [[str(count)]])
        if wire.kinds(found).count("Z") == answers and not wire.errors(found):
            acknowledged.append(count)
        started = time.monotonic()
        with connect(pooler) as after:
            assert after.simple(f"select {count}") == [[str(count)]]
        slowest = max(slowest, time.monotonic() - started)
        count += 1
    counts = dict(pg.query("select key, count(*) from ledger group by key", "app"))
    print(f"{count} cuts, {len(acknowledged)} acknowledged, slowest recovery {slowest:.2f} s")
    assert count > 60
    assert set(acknowledged) <= set(counts) and set(counts.values()) <= {1}


def read_answers(raw, answers):
    """All up to that many ReadyForQuery, or to the end of the connection."""
    messages = []
    while sum(message.kind == "Z" for message in messages) < answers:
        try:
            messages.append(raw.read())
        except wire.Closed:
            break
    return messages
