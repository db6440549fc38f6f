"""tokio-postgres through the pooler. The scenarios are Rust, in tests/clients/tokio-postgres; here they are built and given a pooler."""

import os
import shutil
import subprocess

import pytest

import conftest
import host

PACKAGE = host.REPOSITORY / "tests/clients/tokio-postgres"
# Named here too, so that each counts as a test of its own before anything is built; `test_all_are_named` holds the two together.
SCENARIOS = ["prepared", "pipelined", "many_clients", "transactions", "portals", "copy", "cancel", "errors", "simple"]


@pytest.fixture(scope="session")
def program():
    if shutil.which("cargo") is None:
        pytest.skip("no cargo on this machine to build the client with")
    target = host.REPOSITORY / os.environ.get("CARGO_TARGET_DIR", "target") / "tokio-postgres"
    build = ["cargo", "build", "--quiet", "--locked", "--manifest-path", PACKAGE / "Cargo.toml", "--target-dir", target]
    done = subprocess.run(build, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return target / "debug/tokio-check"


def test_all_are_named(program):
    assert host.run([program, "--list"], as_user=False).stdout.split() == SCENARIOS


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_tokio_postgres(weir, program, scenario):
    if conftest.PGBOUNCER and conftest.PGBOUNCER < (1, 21):
        pytest.skip("tokio-postgres prepares everything it runs")
    pooler = weir(default_pool_size=3, max_client_conn=100)
    host.run([program, scenario, pooler.uri()], as_user=False)
