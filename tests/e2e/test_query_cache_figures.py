"""What `query_cache` is worth: pgbench's select-only over 10,000 accounts, direct, by a pool, by a pool with a cache, and by pgpool-II with its cache
where that is installed. What fails here is an error; how fast it was is printed. `make cache-figures` runs the long form."""

import os
import re
import statistics

import pytest

import host
from weir import USERLIST

pytestmark = [pytest.mark.weir_only, pytest.mark.parametrize("io_driver", ["epoll"])]

# `make test` runs a number of transactions, as a second may end before the clients of a busy machine are connected.
SECONDS = int(os.environ.get("WEIR_CACHE_FIGURES", "0"))
TRANSACTIONS = 10_000
ROUNDS = 3 if SECONDS else 1
CLIENTS = 20
SHARE = 0.8
PGPOOL = "/usr/sbin/pgpool"
PGPOOL_CONF = """
listen_addresses = '127.0.0.1'
port = {port}
unix_socket_directories = '{directory}'
pcp_socket_dir = '{directory}'
pcp_port = {pcp_port}
backend_clustering_mode = 'streaming_replication'
backend_hostname0 = '127.0.0.1'
backend_port0 = {backend}
backend_flag0 = 'DISALLOW_TO_FAILOVER'
num_init_children = 32
max_pool = 1
pid_file_name = '{directory}/pgpool.pid'
logdir = '{directory}'
load_balance_mode = off
sr_check_period = 0
sr_check_user = 'postgres'
memory_cache_enabled = on
memqcache_method = 'shmem'
memqcache_total_size = 256MB
memqcache_max_num_cache = 1000000
memqcache_expire = 0
memqcache_oiddir = '{directory}/oid'
log_min_messages = warning
"""
SCRIPT = "\\set aid random(1, 10000)\nselect abalance from pgbench_accounts where aid = :aid;\n"


class Subject:
    def __init__(self, name, port, process=None):
        self.name, self.port, self.process = name, port, process

    def cpu_seconds(self):
        """What all of its processes have used."""
        return sum(cpu_seconds(pid) for pid in family(self.process.pid)) if self.process else 0


def family(pid):
    return [pid, *(one for child in host.children(pid) for one in family(child))]


def cpu_seconds(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as stat:
            fields = stat.read().rsplit(")", 1)[1].split()
    except FileNotFoundError:
        return 0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.fixture
def pgpool(pg, scratch):
    """pgpool-II with its cache, in the long form."""
    if not SECONDS or not os.path.exists(PGPOOL):
        yield None
        return
    directory = host.new_directory(scratch, "pgpool")
    facts = {"port": host.free_port(), "pcp_port": host.free_port(), "directory": directory, "backend": pg.port}
    (directory / "pgpool.conf").write_text(PGPOOL_CONF.format(**facts))
    (directory / "oid").mkdir()
    for name in ("pgpool.conf", "oid"):
        host.hand_over(directory / name)
    with open(directory / "log", "wb") as log:
        command = [PGPOOL, "-n", "-f", directory / "pgpool.conf", "-F", directory / "pcp.conf", "-a", directory / "hba"]
        process = host.start(command, cwd=directory, stdout=log, stderr=log)
    host.eventually(lambda: host.is_listening(facts["port"], None))
    yield Subject("pgpool-II, cache", facts["port"], process)
    host.stop(process)


@pytest.fixture
def subjects(pg, weir, pgpool):
    host.run([pg.bindir / "pgbench", "-i", "-q", "-s", "1", "-h", "127.0.0.1", "-p", str(pg.port), "-U", "postgres", "app"])
    entry = f"host=127.0.0.1 port={pg.port} dbname=app pool_mode=transaction session_state=virtual pool_size=8"
    users = {**USERLIST, "postgres": ""}
    plain = weir(databases={"app": entry}, userlist=users)
    cached = weir(databases={"app": f"{entry} query_cache=256MB query_cache_user=replica query_cache_max_staleness=5"}, userlist=users)
    found = [Subject("direct", pg.port), Subject("Weir", plain.port, plain.process), Subject("Weir, cache", cached.port, cached.process)]
    cached.value("select 1", user="postgres")
    host.eventually(lambda: cached.console("SHOW CACHE")[0]["state"] == "ok", timeout=20)
    yield [*found, *([pgpool] if pgpool else [])], cached
    pg.query("drop table pgbench_accounts, pgbench_branches, pgbench_tellers, pgbench_history", "app")


class Bench:
    """pgbench's select-only."""

    def __init__(self, pg, directory):
        self.pg, self.directory = pg, directory
        self.script = directory / "select.sql"
        self.script.write_text(SCRIPT)
        host.hand_over(self.script)

    def run(self, subject, mode, clients, *options, rounds=1):
        """The transactions per second, and how many there were."""
        length = ["-T", str(rounds * SECONDS)] if SECONDS else ["-t", str(rounds * TRANSACTIONS // clients)]
        command = [self.pg.bindir / "pgbench", "-n", "-h", "127.0.0.1", "-p", str(subject.port), "-U", "postgres", "-M", mode, "-f", self.script]
        done = host.run([*command, "-c", str(clients), "-j", str(min(2, clients)), *length, *options, "app"], cwd=self.directory)
        assert "number of failed transactions: 0" in done.stdout and "aborted" not in done.stderr, done.stdout + done.stderr
        rate, count = (re.search(figure, done.stdout)[1] for figure in (r"tps = ([\d.]+)", r"actually processed: (\d+)"))
        return float(rate), int(count)

    def latencies(self, subject, mode, clients=1, rate=None):
        """In microseconds, sorted; of clients that together ask so often a second, from when each request was due."""
        prefix = f"latencies-{mode}-{subject.port}-{clients}"
        self.run(subject, mode, clients, "-l", "--log-prefix", prefix, *(["-R", str(rate)] if rate else []))
        lines = (line for path in self.directory.glob(f"{prefix}.*") for line in path.read_text().splitlines())
        return sorted(int(line.split()[2]) for line in lines)


@pytest.mark.parametrize("mode", ["simple", "prepared"])
def test_what_the_cache_is_worth(pg, subjects, scratch, capsys, mode):
    found, cached = subjects
    bench = Bench(pg, host.new_directory(scratch, "bench"))
    for subject in found:
        bench.run(subject, mode, CLIENTS, rounds=2)  # Fills the caches.
    host.eventually(lambda: cached.console("SHOW CACHE")[0]["state"] == "ok", timeout=20)
    before = cached.console("SHOW CACHE")[0]
    rates, costs = {subject: [] for subject in found}, {subject: [] for subject in found}
    for _ in range(ROUNDS):
        for subject in found:
            begun = subject.cpu_seconds()
            rate, count = bench.run(subject, mode, CLIENTS)
            rates[subject].append(rate)
            costs[subject].append(1e6 * (subject.cpu_seconds() - begun) / count)
    after = cached.console("SHOW CACHE")[0]
    # As often a second as the server can without Weir, nearly: what clients wait for at the same load.
    load = round(SHARE * statistics.median(rates[found[0]]))
    lines = [
        f"{mode}, {CLIENTS} clients, {ROUNDS} rounds of {f'{SECONDS} s' if SECONDS else f'{TRANSACTIONS} transactions'};"
        f" latencies in us, of one client, and of all {CLIENTS} where they ask {load} times a second"
    ]
    for subject in found:
        alone, together = bench.latencies(subject, mode), bench.latencies(subject, mode, CLIENTS, load)
        (p50, p99), (p50_together, p99_together) = (
            (latencies[len(latencies) // 2], latencies[len(latencies) * 99 // 100]) for latencies in (alone, together)
        )
        lines.append(
            f"{subject.name:17} {statistics.median(rates[subject]):9.0f} TPS  {statistics.median(costs[subject]):5.1f} us of its CPU each"
            f"  p50 {p50}  p99 {p99}  at the load p50 {p50_together}  p99 {p99_together}"
        )
    with capsys.disabled():
        print("\n" + "\n".join(lines))
    hits, misses = (int(after[name] - before[name]) for name in ("hits", "misses"))
    assert hits > 1000, (before, after)  # On a machine that is busy the primary's changes may come late for a while.
    assert not SECONDS or hits > misses, (before, after)
