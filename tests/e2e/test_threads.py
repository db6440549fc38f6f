"""More threads than one: the busy pool is shared between them, and no limit gets loose. Weir's own; PgBouncer has one thread."""

import time

import pytest

import host
from running import cancel_by_psycopg
from test_limits import Census

pytestmark = pytest.mark.weir_only


def load(pooler, clients, seconds):
    """pgbench with statements short enough to keep the pooler itself busy."""
    program, script = pooler.postgres.bindir / "pgbench", pooler.directory / "one.sql"
    script.write_text("select 1;\n")
    command = [program, "-n", "-f", script, "-c", clients, "-j", 2, "-T", seconds, pooler.uri()]
    with open(pooler.directory / "pgbench.log", "a") as log:
        return host.start(command, stdout=log, stderr=log)


def test_all_threads_take_clients(weir):
    """Every limit and every answer is the same with four threads as with one."""
    pooler = weir(threads=4, default_pool_size=2)
    clients = [pooler.connect() for _ in range(20)]
    for number in range(5):
        for client in clients:
            assert client.execute("select %s::int", (number,)).fetchone() == (number,)


def test_one_busy_pool_spreads_over_shards(weir, pg):
    """One pool, four threads, enough load: at least two shards relay, and never one server connection too many."""
    pooler = weir(threads=4, default_pool_size=16, spread_busy_percent=1)

    def spreads():
        first = load(pooler, clients=30, seconds=6)
        time.sleep(2.5)  # a pool gets a further shard after a busy second; clients that come then go to either
        later = load(pooler, clients=30, seconds=3)
        assert first.wait(60) == later.wait(60) == 0
        relayed = {row["shard"]: row["transactions"] for row in pooler.console("SHOW SHARDS")}
        assert len(relayed) == 4
        return sum(count > 100 for count in relayed.values()) >= 2

    with Census(pg) as census:
        host.eventually(spreads)  # again where the machine had no such second for it
    assert census.most <= 16


def test_a_small_pool_stays_on_its_shard(weir):
    """Fewer servers than spread_min_servers are not worth a second shard, however busy the first is."""
    pooler = weir(threads=4, default_pool_size=8, spread_busy_percent=1, spread_min_servers=9)
    first = load(pooler, clients=20, seconds=4)
    time.sleep(2.5)  # a busy second is over by then
    later = load(pooler, clients=20, seconds=1)
    assert first.wait(60) == later.wait(60) == 0
    relayed = [row["transactions"] for row in pooler.console("SHOW SHARDS")]
    assert sum(count > 0 for count in relayed) == 1, f"transactions of each shard: {relayed}"


def test_cancel_reaches_a_client_of_any_thread(weir, pg):
    pooler = weir(threads=4, default_pool_size=8)
    for _ in range(8):
        client = pooler.connect()
        done = pooler.psql("-c", "select 1")  # another client, most likely on another thread
        assert done.stdout.strip() == "1"
        cancel_by_psycopg(pg, client)
