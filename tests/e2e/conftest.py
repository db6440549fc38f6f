"""Fixtures: a PostgreSQL for the session, a pooler for each test, and both I/O drivers for every one of them.

A test takes `pg` (the server) and `weir` (a function that starts a pooler); a module that says
`pytestmark = pytest.mark.every_version` runs on PostgreSQL 18 too. With `--one-variant` each test runs once: which driver and
which PostgreSQL, and whether a setting comes at start or by RELOAD, is drawn from its name, so that it is the same in every run."""

import os
import re
import shutil
import tomllib
import zlib
from pathlib import Path

import pytest

import certificates
import host
import neutral
import network
import oci
import postgres
import split_cluster
import weir as pooler

PGBOUNCER = pooler.pgbouncer_version()
DRIVERS = ["pgbouncer"] if PGBOUNCER else ["epoll", "io_uring"]
# The tests that prove a setting have a leg in which RELOAD brings it.
BY_RELOAD = "epoll-by-reload"
# Those that look at the whole log, in which the start and the RELOAD stand too.
ABOUT_A_START = {"log::connections_and_disconnections_can_be_left_out", "command_line::verbose_says_more"}


def proven_by_reload():
    """The tests that prove what RELOAD may change, as FILE::NAME."""
    proofs = tomllib.loads((Path(__file__).parent / "proofs.toml").read_text())
    names = {test for name, tests in proofs["[pgbouncer]"].items() if name not in pooler.RESTART_ONLY for test in tests}
    names |= {test for group in ("[databases]", "[users]") for tests in proofs[group].values() for test in tests}
    return names - ABOUT_A_START


# The poolers that a test has started, and how much of what they said is printed when it fails.
POOLERS = pytest.StashKey()
LOG_LINES = 40
PROVEN_BY_RELOAD = set() if PGBOUNCER else proven_by_reload()


def pytest_addoption(parser):
    parser.addoption("--one-variant", action="store_true", help="each test on one I/O driver and one PostgreSQL only")
    parser.addoption("--second-tries", action="store_true", help="those of second_tries.toml that fail run once more")


def pytest_configure(config):
    neutral.install(pooler.Weir)
    config.addinivalue_line("markers", "every_driver: about what the I/O drivers do differently; on both, whatever else is left out")
    config.addinivalue_line("markers", "every_version: run on the system's PostgreSQL and on 18")
    config.addinivalue_line("markers", "any_driver: about what no I/O driver takes part in; on one of them, drawn from its name")
    config.addinivalue_line("markers", "since(version): what PgBouncer itself has only from that version on")
    config.addinivalue_line("markers", "later: PgBouncer has it and Weir not yet; left out until then")
    config.addinivalue_line("markers", "needs_root: about what root may and others may not; left out elsewhere")
    config.addinivalue_line("markers", "needs_network: on hosts of their own (network.py); left out where none can be made")
    config.addinivalue_line("markers", "needs_release: about what `make dist` has made, in the directory WEIR_RELEASE; left out elsewhere")
    config.addinivalue_line("markers", "weir_only: what PgBouncer does otherwise, by a decision of ours")


def one_of(variants, name, salt):
    """The same one for the same name in every run, whatever tests there are beside it."""
    return [variants[zlib.crc32(f"{salt} {name}".encode()) % len(variants)]]


def parameters_of_its_own(test):
    return {name for mark in test.iter_markers("parametrize") for name in re.split(r",\s*", mark.args[0])}


def pytest_generate_tests(metafunc):
    chosen = parameters_of_its_own(metafunc.definition)
    name = f"{metafunc.module.__name__}::{metafunc.function.__name__}".replace("test_", "")
    one = metafunc.config.getoption("one_variant")
    if "server_version" in metafunc.fixturenames and "server_version" not in chosen:
        versions = ["system", "18"] if metafunc.definition.get_closest_marker("every_version") else ["system"]
        metafunc.parametrize("server_version", one_of(versions, name, "version") if one else versions, scope="session")
    if "io_driver" in metafunc.fixturenames and "io_driver" not in chosen:
        legs = [*DRIVERS, BY_RELOAD] if name in PROVEN_BY_RELOAD else DRIVERS
        if one and not metafunc.definition.get_closest_marker("every_driver"):
            legs = one_of(legs, name, "driver")
        elif metafunc.definition.get_closest_marker("any_driver"):
            legs = [*one_of(DRIVERS, name, "driver"), *(leg for leg in legs if leg == BY_RELOAD)]
        metafunc.parametrize("io_driver", legs)


def pytest_collection_modifyitems(config, items):
    left_out = ["needs_root"] * (host.USER is None) + ["later"] * (PGBOUNCER is None) + ["needs_release"] * ("WEIR_RELEASE" not in os.environ)
    left_out += ["needs_network"] * (not network.can_be_made())
    out = [item for item in items if any(item.get_closest_marker(name) for name in left_out)]
    config.hook.pytest_deselected(items=out)
    gone = set(out)
    items[:] = [item for item in items if item not in gone]
    second = tomllib.loads((Path(__file__).parent / "second_tries.toml").read_text()) if config.getoption("second_tries") else {}
    for item in items:
        module, name = item.module.__name__.removeprefix("test_"), item.function.__name__.removeprefix("test_")
        if second.get(f"{module}::{name}", second.get(f"{module}::*")):
            item.add_marker(pytest.mark.flaky(reruns=1))
        since = item.get_closest_marker("since")
        if PGBOUNCER and since and tuple(map(int, since.args[0].split("."))) > PGBOUNCER:
            item.add_marker(pytest.mark.skip(reason=f"PgBouncer has it since {since.args[0]}"))
        if PGBOUNCER and item.get_closest_marker("weir_only"):
            item.add_marker(pytest.mark.skip(reason="Weir's own, not PgBouncer's"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """What the poolers of a test that failed said last, beside its traceback."""
    report = yield
    if report.failed:
        for number, one in enumerate(item.stash.get(POOLERS, []), 1):
            report.sections.append((f"pooler {number}, the end of its log", "\n".join(one.log_text().splitlines()[-LOG_LINES:])))
    return report


@pytest.fixture(scope="session")
def scratch():
    """One directory for everything, gone at the end; WEIR_KEEP=1 leaves it for a look at the logs."""
    path = host.make_scratch()
    if not pooler.PROGRAM.exists():
        pytest.exit(f"{pooler.PROGRAM} is not there: cargo build --release", returncode=2)
    pooler.PROGRAM_COPY["path"] = host.reachable_copy(pooler.PROGRAM, path)
    yield path
    if not os.environ.get("WEIR_KEEP"):
        shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(scope="session")
def servers(scratch):
    """The PostgreSQL servers of this session, started when first asked for."""
    started = {}

    def server(version):
        if version not in started:
            programs = postgres.reachable_programs(version, scratch)
            if programs is None:
                pytest.skip(f"no PostgreSQL ({version}) on this machine; scripts/prepare-tests says why")
            # One that did not start is tried again, elsewhere, by the next test: it costs one test, not all that follow.
            started[version] = postgres.Postgres(programs, host.new_directory(scratch, f"server-{version}"))
        return started[version]

    yield server
    for one in started.values():
        one.stop()


@pytest.fixture
def pg(servers, server_version):
    server = servers(server_version)
    server.ensure_running()
    return server


@pytest.fixture
def weir(pg, scratch, io_driver, request):
    """`weir(databases={…}, setting=value, …)` starts a pooler before `pg`; all are stopped when the test ends."""
    running = request.node.stash.setdefault(POOLERS, [])
    driver = None if PGBOUNCER else io_driver.removesuffix("-by-reload")

    def prepare(**settings):
        running.append(pooler.Weir(pg, host.new_directory(scratch, "weir"), driver, **settings))
        return running[-1]

    def start(*flags, **settings):
        prepared = prepare(**settings)
        return prepared.start_and_reload(*flags) if io_driver == BY_RELOAD else prepared.start(*flags)

    start.prepared = prepare
    yield start
    for one in running:
        one.stop_predecessors()
        one.stop()
    for one in running:
        assert one.may_panic or "panicked" not in one.log_text() + one.output(), "the pooler panicked"
    pg.await_no_session()


@pytest.fixture(scope="session")
def authorities(scratch):
    """A root of each X.509 version, with a server certificate for localhost and a client certificate for alice."""
    made = {}
    for version in (1, 3):
        directory = host.new_directory(scratch, "pki")
        root = certificates.Authority(directory, f"root{version}", version)
        names = "DNS:localhost,IP:127.0.0.1" if version == 3 else ""
        root.server = root.issue("server", "localhost", names, rsa=True)
        root.alice = root.issue("alice", "alice")
        made[version] = root
    return made


@pytest.fixture(scope="session")
def image(scratch):
    """The image of the program that is tested."""
    directory = host.new_directory(scratch, "image")
    return oci.Image(oci.build(directory, pooler.PROGRAM), directory)


@pytest.fixture
def cluster(pg, scratch):
    """A primary and two standbys of their own, which a test may stop and promote."""
    made = split_cluster.Cluster(pg.bindir, scratch)
    yield made
    made.stop()
