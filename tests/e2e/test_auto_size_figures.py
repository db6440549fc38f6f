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
PAIRS = 4 if SECONDS else 1
FOLLOWS = 30 if SECONDS else 1  # seconds in which a size has to be found
SLEEP = "select pg_sleep(0.01);\n"  # as many servers as there are: it uses nothing
# What the clients do, and how many they are. The best size changes with each.
LOADS = [("TPC-B", "tpcb-like", 80), ("sleeps of 10 ms", SLEEP, 80), ("select-only", "select-only", 200)]


@pytest.fixture
def tables(pg):
    # The pool that sizes itself keeps its connections while another one is measured.
    pg.stop()
    pg.start(max_connections="300")
    pg.query("create database sized owner alice")
    host.run([pg.bindir / "pgbench", "-i", "-q", "-s", 50 if SECONDS else 1, f"postgres://alice@127.0.0.1:{pg.port}/sized"], timeout=300)
    yield
    pg.query("drop database sized with (force)")
    pg.stop()
    pg.start()


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


def mean_throughput(pg, pooler, load, seconds, skipped):
    """Without that of the first seconds; run again if pgbench, on a busy machine, had no line for any other."""
    for _ in range(3):
        if measured := throughput(pg, pooler, load, seconds)[skipped:]:
            break
    return statistics.mean(measured)


def sweep(weir, pg, load):
    """What each fixed size gives, by rounds in which all take turns."""
    reached = {size: [] for size in SIZES}
    for number in range(ROUNDS):
        for size in SIZES if number % 2 == 0 else reversed(SIZES):
            pooler = start(weir, size)
            reached[size].append(mean_throughput(pg, pooler, load, (SECONDS or 1) + 1, 1))
            pooler.stop()
    return {size: statistics.median(of_size) for size, of_size in reached.items()}


def pairs(weir, pg, load, best, auto):
    """Pairs of what the best fixed size gives and what `auto` gives behind it or in front of it: what else the machine does concerns both.
    While one is measured the other has no clients, and `auto` holds its size."""
    fixed = start(weir, best)
    found = []
    for number in range(PAIRS):
        of = {}
        for pooler in (fixed, auto) if number % 2 == 0 else (auto, fixed):
            of[pooler] = mean_throughput(pg, pooler, load, 2 * (SECONDS or 1) + 2, 2)
        found.append((of[fixed], of[auto]))
    fixed.stop()
    return found


@pytest.mark.usefixtures("tables")
def test_a_pool_that_sizes_itself_beside_fixed_sizes(weir, pg, capsys):
    auto, lines = start(weir, "auto"), []
    for load in LOADS:
        of_sizes = sweep(weir, pg, load)
        best = max(of_sizes, key=of_sizes.get)
        throughput(pg, auto, load, FOLLOWS)
        found = size_of(auto)["found"]
        measured = pairs(weir, pg, load, best, auto)
        ratio = statistics.median(own / other for other, own in measured)
        lines.append(
            f"{load[0]}, {load[2]} clients: fixed {', '.join(f'{size}: {tps:.0f}/s' for size, tps in of_sizes.items())}; "
            f"auto, {found} after {FOLLOWS} s and {size_of(auto)['found']} at last, beside {best}: "
            f"{', '.join(f'{own:.0f}/{other:.0f}' for other, own in measured)}, median {ratio:.3f}"
        )
        assert ratio > 0, lines
    with capsys.disabled():
        print("", *lines, sep="\n")
