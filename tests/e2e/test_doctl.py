"""doctl, DigitalOcean's command line, pointed at Weir: its pools are real ones."""

import json
import os

import pytest

import drivers
import host
import panel

pytestmark = [pytest.mark.weir_only, pytest.mark.any_driver]


@pytest.fixture
def doctl(weir, scratch):
    """`doctl(words…)`: what it answers, as JSON; with `fails` what it says on its way out."""
    if lacking := drivers.DOCTL.lacking():
        pytest.skip(f"tests/clients/doctl lacks {lacking}")
    drivers.DOCTL.ensure_built()
    pooler, web = panel.start_for_pools(weir)
    home = host.new_directory(scratch, "doctl")
    environment = {"PATH": os.environ["PATH"], "HOME": str(home), "DIGITALOCEAN_API_URL": f"http://127.0.0.1:{web.port}/"}

    def run(*words, fails=False, token=None):
        command = [*drivers.DOCTL.command(), "--output", "json", *words]
        done = host.run(command, env={**environment, "DIGITALOCEAN_ACCESS_TOKEN": token or web.token}, check=False, as_user=False)
        assert (done.returncode != 0) == fails, done.stdout + done.stderr
        return done.stdout + done.stderr if fails else json.loads(done.stdout) if done.stdout.strip() else None

    run.pooler = pooler
    return run


def test_a_pools_life(doctl, pg):
    [cluster] = doctl("databases", "list")
    assert (cluster["name"], cluster["engine"], cluster["status"]) == (f"127.0.0.1:{pg.port}", "pg", "online")
    [got] = doctl("databases", "get", cluster["id"])
    assert got["id"] == cluster["id"] and "app" in got["db_names"]
    connection = doctl("databases", "connection", cluster["id"])
    assert connection["port"] == doctl.pooler.port

    words = ("databases", "pool")
    made = doctl(*words, "create", cluster["id"], "backend-pool", "--db", "app", "--user", "alice", "--size", "5")
    made = made[0] if isinstance(made, list) else made
    assert (made["name"], made["size"], made["mode"], made["db"], made["user"]) == ("backend-pool", 5, "transaction", "app", "alice")
    uri = made["connection"]["uri"]
    assert host.run([pg.bindir / "psql", "-XAtc", "select current_user, current_database()", uri]).stdout.strip() == "alice|app"
    assert "backend-pool" in [pool["name"] for pool in doctl(*words, "list", cluster["id"])]
    [got] = doctl(*words, "get", cluster["id"], "backend-pool")
    assert got["size"] == 5

    # No version that can be built here changes a pool (`pool update` came later; test_godo.py has its request): it is made anew.
    doctl(*words, "delete", cluster["id"], "backend-pool", "--force")
    doctl(*words, "create", cluster["id"], "backend-pool", "--db", "other", "--user", "alice", "--mode", "session", "--size", "4")
    [got] = doctl(*words, "get", cluster["id"], "backend-pool")
    assert (got["db"], got["mode"], got["size"]) == ("other", "session", 4)
    assert host.run([pg.bindir / "psql", "-XAtc", "select current_database()", uri]).stdout.strip() == "other"
    doctl(*words, "delete", cluster["id"], "backend-pool", "--force")
    assert "backend-pool" not in [pool["name"] for pool in doctl(*words, "list", cluster["id"])]


def test_refusals_are_told_in_words(doctl):
    [cluster] = doctl("databases", "list")
    words = ("databases", "pool")
    assert "422" in doctl(*words, "create", cluster["id"], "x", "--db", "app", "--user", "alice", "--size", "5", fails=True)
    assert "404" in doctl(*words, "get", cluster["id"], "nothing", fails=True)
    assert "404" in doctl(*words, "delete", cluster["id"], "nothing", "--force", fails=True)
    assert "401" in doctl("databases", "list", fails=True, token="wrong")
