"""pgbench with more clients than servers, in its three query modes: not one error. And thousands of clients that only sit there."""

import os
import re

import pytest

import host
import wire

LONG = bool(os.environ.get("WEIR_LONG"))
# How many a second show that all get on, however busy the machine; how fast Weir is, benchmarks say.
ENOUGH = 10
SECONDS = 60 if LONG else int(os.environ.get("WEIR_LOAD_SECONDS", "5"))
IDLE = 5000 if LONG else int(os.environ.get("WEIR_IDLE_CLIENTS", "1000"))


@pytest.fixture(scope="module")
def tables(servers):
    """pgbench's tables, once for all tests of this file."""
    pg = servers("system")
    pg.ensure_running()
    if not pg.query("select from pg_class where relname = 'pgbench_accounts'", database="app"):
        host.run([pg.bindir / "pgbench", "-i", "-q", "-s", 10, pg_uri(pg)], timeout=120)


def pg_uri(pg):
    return f"postgres://alice@127.0.0.1:{pg.port}/app"


def bench(pooler, *options, clients=150, threads=2, seconds=SECONDS):
    """Runs pgbench and returns how many transactions it made; a client that fails ends pgbench with an error."""
    program = pooler.postgres.bindir / "pgbench"
    command = [program, "-n", "-c", clients, "-j", threads, "-T", seconds, "--failures-detailed", *options, pooler.uri()]
    done = host.run(command, timeout=seconds + 120)
    assert "number of failed transactions: 0" in done.stdout, done.stdout
    assert "error" not in done.stderr.lower() and "fatal" not in done.stderr.lower(), done.stderr
    return int(re.search(r"number of transactions actually processed: (\d+)", done.stdout)[1])


@pytest.mark.parametrize("script", ["tpcb-like", "select-only"])
@pytest.mark.parametrize(
    "mode", ["simple", "extended", pytest.param("prepared", marks=pytest.mark.since("1.21"))]
)
def test_150_clients_over_20_servers(weir, pg, tables, mode, script):
    pooler = weir(max_client_conn=200, default_pool_size=20)
    # pgbench waits for each PREPARE with its whole thread. A thread with two clients, of which one waits for a server
    # and the other holds one in its transaction, would wait for itself: so a thread for each client.
    threads = 150 if mode == "prepared" else 2
    done = bench(pooler, "-M", mode, "-b", script, threads=threads)
    assert done > ENOUGH * SECONDS
    assert pg.count() <= 20


def test_session_mode(weir, tables):
    pooler = weir(pool_mode="session", default_pool_size=20)
    assert bench(pooler, "-S", clients=20) > ENOUGH * SECONDS


def test_a_new_connection_for_every_transaction(weir, tables):
    pooler = weir(default_pool_size=5)
    assert bench(pooler, "-S", "-C", clients=20) > 2 * SECONDS


@pytest.mark.since("1.21")
def test_pipelines(weir, tables):
    pooler = weir(default_pool_size=5)
    script = pooler.directory / "pipeline.sql"
    lines = ["\\startpipeline", *["select 1;"] * 20, "\\endpipeline"]
    script.write_text("\n".join(lines) + "\n")
    assert bench(pooler, "-f", script, "-M", "prepared", clients=50) > 2 * SECONDS


def test_pgbench_initialises_through_the_pool(weir, pg):
    pooler = weir(databases={"other": "pool_size=2"})
    host.run([pg.bindir / "pgbench", "-i", "-q", "-s", 1, pooler.uri("other")])
    assert pg.value("select count(*) from pgbench_accounts", database="other") == 100_000


def test_idle_clients_are_held(weir):
    pooler = weir(max_client_conn=IDLE + 10, default_pool_size=10)
    clients = [wire.Raw(pooler.port, timeout=60).login() for _ in range(IDLE)]
    for client in clients:
        client.send(wire.query("select 1"))
    for client in clients:
        assert wire.kinds(client.read_until("Z")) == "TDCZ"
    assert pooler.pool()["cl_active"] == IDLE
    assert pooler.value("select 'quick'") == "quick"
    for client in clients[:: IDLE // 50]:
        assert client.simple("select 2") == [["2"]]
    for client in clients:
        client.socket.close()
    host.eventually(lambda: pooler.pool()["cl_active"] == 0)


def test_a_thousand_clients_wait_their_turn(weir):
    pooler = weir(max_client_conn=1010, default_pool_size=2)
    clients = [wire.Raw(pooler.port, timeout=60).login() for _ in range(1000)]
    for number, client in enumerate(clients):
        client.send(wire.query(f"select {number} from pg_sleep(0.001)"))
    for number, client in enumerate(clients):
        assert client.read_until("Z")[1].row() == [str(number).encode()]


def test_a_slow_reader_stops_only_its_own_server(weir):
    """I18 of ARCHITECTURE.md."""
    pooler = weir(default_pool_size=2)
    slow = wire.Raw(pooler.port).login()
    slow.send(wire.query("select repeat('x', 1000) from generate_series(1, 300000)"))  # 300 MB that are not read
    with wire.Raw(pooler.port).login() as quick:
        for number in range(500):
            assert quick.simple(f"select {number}") == [[str(number)]]
    resident = int(open(f"/proc/{pooler.process.pid}/status").read().split("VmRSS:")[1].split()[0])
    assert resident < 100_000, f"{resident} KiB for a result that nobody reads"
