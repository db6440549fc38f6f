"""DigitalOcean's own Go client (under doctl and the provider for Terraform), pointed at Weir: its pools are real ones."""

import json

import pytest

import drivers
import host
import panel

pytestmark = pytest.mark.weir_only


@pytest.fixture(scope="module")
def godo():
    if lacking := drivers.GODO.lacking():
        pytest.skip(f"tests/clients/godo lacks {lacking}")
    drivers.GODO.ensure_built()
    return drivers.GODO


def test_a_pools_life(weir, pg, godo):
    pooler, web = panel.start_for_pools(weir)

    def ask(what, *arguments, token=None, fails=False):
        done = host.run([*godo.command(), f"http://127.0.0.1:{web.port}/", token or web.token, what, *arguments], check=False, as_user=False)
        assert (done.returncode != 0) == fails, done.stderr
        return done.stderr if fails else json.loads(done.stdout) if done.stdout else None

    [cluster] = ask("clusters", "-")
    assert cluster["engine"] == "pg" and "app" in cluster["db_names"]
    id = cluster["id"]
    made = ask("create", id, "backend-pool", "app", "alice", "transaction", "5")
    assert (made["name"], made["size"], made["mode"], made["db"], made["user"]) == ("backend-pool", 5, "transaction", "app", "alice")
    uri = made["connection"]["uri"]
    assert uri == f"postgres://alice:a%20secret%2F%40@127.0.0.1:{pooler.port}/backend-pool?sslmode=disable"
    assert [pool["name"] for pool in ask("list", id)] == ["app", "backend-pool", "other"]

    one = pooler.directory / "one.sql"
    one.write_text("select 1;\n")
    said = host.run([pg.bindir / "pgbench", "-n", "-f", one, "-c", "8", "-t", "20", uri], timeout=120).stdout
    assert "transactions actually processed: 160/160" in said, said

    ask("update", id, "backend-pool", "other", "alice", "session", "4")
    changed = ask("get", id, "backend-pool")
    assert (changed["db"], changed["mode"], changed["size"]) == ("other", "session", 4)
    assert host.run([pg.bindir / "psql", "-X", "-A", "-t", "-c", "select current_database()", uri]).stdout.strip() == "other"

    assert "422" in ask("create", id, "x", "app", "alice", "transaction", "5", fails=True)
    assert "409" in ask("create", id, "backend-pool", "app", "alice", "transaction", "5", fails=True)
    assert "401 Unable to authenticate you." in ask("list", id, token="wrong", fails=True)
    ask("delete", id, "backend-pool")
    assert "404" in ask("get", id, "backend-pool", fails=True)
    assert "404" in ask("delete", id, "backend-pool", fails=True)
