"""What `queue = fair` and `queue_target` are worth: one tenant with many clients beside others with few, and three times the load that the servers can serve.
What fails here is an error; the figures are printed. `make fairness-figures` runs the long form."""

import contextlib
import itertools
import os
import subprocess
import threading
import time

import psycopg
import pytest

import host
from test_fair_queue import jain

pytestmark = [pytest.mark.weir_only, pytest.mark.parametrize("io_driver", ["epoll"])]

# Some seconds each in `make test`, of few clients.
SECONDS = int(os.environ.get("WEIR_FAIRNESS_FIGURES", "0"))
TENANTS, EACH, MANY, SERVERS = (20, 5, 500, 20) if SECONDS else (4, 3, 40, 4)
TURN_MS = 20


def start(weir, servers=SERVERS, **settings):
    names = ["heavy", *(f"tenant{number}" for number in range(TENANTS))]
    users = dict.fromkeys(["alice", "admin", "stats", *names], "")
    databases = {"app": f"user=alice pool_size={servers}"}
    return weir(databases=databases, userlist=users, max_client_conn=2_000, query_wait_timeout=60, **settings)


class Pgbench:
    def __init__(self, pg, pooler, user, clients, options=()):
        self.logs = host.new_directory(pooler.directory, user)
        script = self.logs / "turn.sql"
        script.write_text(f"select pg_sleep({TURN_MS / 1000});\n")
        host.hand_over(script)
        command = [pg.bindir / "pgbench", "-n", "-c", str(clients), "-j", "1", "-T", str(SECONDS or 4), "-f", script]
        command += ["-l", "--log-prefix", self.logs / "log", *options, pooler.uri(user=user)]
        self.process = host.start(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def finish(self):
        """Of each transaction what it took, in milliseconds, and when it ended, in seconds."""
        output, _ = self.process.communicate(timeout=300)
        assert self.process.returncode == 0, output
        lines = [line.split() for path in self.logs.glob("log*") for line in path.read_text().splitlines()]
        return [(int(line[2]) / 1_000, int(line[4]) + int(line[5]) / 1e6) for line in lines if line[2].isdigit()]


def percentile(values, part):
    return sorted(values)[min(len(values) - 1, int(len(values) * part))]


def crowd(pg, pooler, heavy, again=3):
    runs = {f"tenant{number}": Pgbench(pg, pooler, f"tenant{number}", EACH) for number in range(TENANTS)}
    if heavy:
        runs["heavy"] = Pgbench(pg, pooler, "heavy", MANY)
    turns = {name: run.finish() for name, run in runs.items()}
    # While all of them are there: who was started last would have the servers alone at the end.
    begin = max(min(end for _, end in of_one) for of_one in turns.values())
    over = min(max(end for _, end in of_one) for of_one in turns.values())
    if over - begin < 1 and again:  # One of them took its time to log in.
        return crowd(pg, pooler, heavy, again - 1)
    return {name: [took for took, end in of_one if begin <= end <= over] for name, of_one in turns.items()}


def test_one_tenant_with_many_clients(weir, pg, capsys):
    lines = []
    for queue, heavy in (("fair", False), ("fair", True), ("fifo", True)):
        pooler = start(weir, queue=queue)
        took = crowd(pg, pooler, heavy)
        victims = [one for name, times in took.items() if name != "heavy" for one in times]
        shares = [len(times) for times in took.values()]
        lines.append(
            f"{queue}, {'beside' if heavy else 'without'} {MANY} clients of one tenant: Jain's index {jain(shares):.3f}, "
            f"the others' p50 {percentile(victims, 0.5):.0f} ms, p99 {percentile(victims, 0.99):.0f} ms, {len(victims)} turns"
        )
        pooler.stop()
        if queue == "fair":
            assert jain(shares) > 0.9, lines
    with capsys.disabled():
        print("", *lines, sep="\n")


class Offered:
    """Requests at a rate, each by the first of so many connections that is free; who is refused does not ask again."""

    def __init__(self, pooler, rate, connections):
        clients = [pooler.connect(user="heavy") for _ in range(connections)]
        self.rate, self.number, self.began = rate, itertools.count(), time.monotonic()
        self.served, self.refused, self.ends = [], 0, self.began + (SECONDS or 2)
        self.threads = [threading.Thread(target=self._ask, args=(client,)) for client in clients]
        for thread in self.threads:
            thread.start()
        for thread in self.threads:
            thread.join(120)

    def _ask(self, client):
        with contextlib.closing(client):
            while (due := self.began + next(self.number) / self.rate) < self.ends:
                time.sleep(max(0, due - time.monotonic()))
                begun = time.monotonic()
                if begun > self.ends:
                    return
                try:
                    client.execute(f"select pg_sleep({TURN_MS / 1000})")
                    self.served.append((time.monotonic() - begun) * 1_000)
                except psycopg.errors.TooManyConnections:
                    self.refused += 1


def test_three_times_the_load(weir, pg, capsys):
    """As many requests as can be served, and three times as many, whatever becomes of them."""
    most, lines = 4 * 1_000 / TURN_MS, []
    for settings, times in (({}, 0.9), ({}, 3), ({"queue_target": 0.1}, 3)):
        pooler = start(weir, servers=4, **settings)
        run = Offered(pooler, most * times, 200 if SECONDS else 60)
        figures = f"{len(run.served) / (SECONDS or 2):.0f}/s served, p50 {percentile(run.served, 0.5):.0f} ms, p99 {percentile(run.served, 0.99):.0f} ms, {run.refused} refused"
        lines.append(f"{settings or 'no queue_target'}, {most * times:.0f}/s offered of {most:.0f}/s: {figures}")
        assert run.served and bool(run.refused) == bool(settings)
        pooler.stop()
    with capsys.disabled():
        print("", *lines, sep="\n")
