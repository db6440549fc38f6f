"""What a pool that sizes itself (`pool_size = auto`) reaches of the best fixed size, under loads that follow one another in one process.
What fails here is an error; the figures are printed. `make auto-figures` runs the long form."""

import os
import re
import statistics

import pytest

import host
from test_auto_size import size_of

pytestmark = [pytest.mark.weir_only, pytest.mark.parametrize("io_driver", ["epoll"])]

# Seconds that are measured each time; `make test` sees that all of it runs.
SECONDS = int(os.environ.get("WEIR_AUTO_FIGURES", "0"))
SIZES = (2, 4, 8, 16, 32, 64) if SECONDS else (2, 8)
ROUNDS = 2 if SECONDS else 1
FOLLOWS = 30 if SECONDS else 1  # seconds in which a size has to be found
SLEEP = "select pg_sleep(0.01);\n"  # as many servers as there are: it uses nothing
# What the clients do, and how many they are. The best size changes with each.
LOADS = [("TPC-B", "tpcb-like", 80), ("sleeps of 10 ms", SLEEP, 80), ("select-only", "select-only", 200)]


@pytest.fixture
def tables(pg):
    pg.query("create database sized owner alice")
    host.run([pg.bindir / "pgbench", "-i", "-q", "-s", 50 if SECONDS else 1, f"postgres://alice@127.0.0.1:{pg.port}/sized"], timeout=300)
    yield
    pg.query("drop database sized with (force)")


def start(weir, size):
    entry = f"dbname=sized user=alice pool_size={size} auto_pool_size_min={SIZES[0]} auto_pool_size_max={SIZES[-1]}"
    return weir(databases={"app": entry}, max_client_conn=1_000)


def throughput(pg, pooler, load, seconds):
    """Transactions a second of one pgbench, without the time of its logins."""
    _, script, clients = load
    if script == SLEEP:
        file = pooler.directory / "sleep.sql"
        file.write_text(SLEEP)
        host.hand_over(file)
        what = ["-f", file]
    else:
        what = ["-b", script, "-s", 50 if SECONDS else 1]
    command = [pg.bindir / "pgbench", "-n", "-c", clients, "-j", 2, "-T", seconds, "-P", 1, *what, pooler.uri()]
    done = host.run(command, timeout=seconds + 120)
    return [float(tps) for tps in re.findall(r"progress: [\d.]+ s, ([\d.]+) tps", done.stderr)]


def of_fixed_sizes(weir, pg):
    """For each load, the throughput of each size, by rounds; loads and sizes take turns."""
    measured = {(load[0], size): [] for load in LOADS for size in SIZES}
    for _ in range(ROUNDS):
        for size in SIZES:
            pooler = start(weir, size)
            for load in LOADS:
                measured[load[0], size].append(statistics.mean(throughput(pg, pooler, load, (SECONDS or 1) + 2)[1:]))
            pooler.stop()
    return measured


def of_auto(weir, pg):
    """The loads after one another in one process; for each what was reached after the time to follow, and the size then."""
    measured = {load[0]: [] for load in LOADS}
    for _ in range(ROUNDS):
        pooler = start(weir, "auto")
        for load in LOADS:
            seconds = throughput(pg, pooler, load, FOLLOWS + (SECONDS or 1) + 2)
            measured[load[0]].append((statistics.mean(seconds[FOLLOWS:]), size_of(pooler)["size"]))
        pooler.stop()
    return measured


@pytest.mark.usefixtures("tables")
def test_a_pool_that_sizes_itself_beside_fixed_sizes(weir, pg, capsys):
    fixed, auto, lines = of_fixed_sizes(weir, pg), of_auto(weir, pg), []
    for load in LOADS:
        name = load[0]
        medians = {size: statistics.median(fixed[name, size]) for size in SIZES}
        best = max(medians, key=medians.get)
        reached = statistics.median(tps for tps, _ in auto[name])
        lines.append(
            f"{name}, {load[2]} clients: fixed {', '.join(f'{size}: {tps:.0f}/s' for size, tps in medians.items())}; "
            f"auto {reached:.0f}/s at sizes {', '.join(str(size) for _, size in auto[name])} = {reached / medians[best]:.3f} of {best}"
        )
        assert reached > 0, lines
    with capsys.disabled():
        print("", *lines, sep="\n")
