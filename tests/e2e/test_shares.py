"""`connection_sharing` and `guaranteed_connections`: what pools of one database, or of one user, get of the server connections that they share, on a real PostgreSQL."""

import re
import time

import pytest

import host
from test_fair_queue import Crowd
from test_takeover import reboot

pytestmark = pytest.mark.weir_only

USERS = ["alice", "bob"]


def servers(pooler, key="user"):
    return {row[key]: row["sv_active"] + row["sv_idle"] + row["sv_used"] + row["sv_login"] for row in pooler.console("SHOW POOLS") if row["database"] != "pgbouncer"}


def counted(pg, users=USERS):
    """What PostgreSQL itself counts."""
    rows = pg.query("select usename, count(*) from pg_stat_activity where backend_type = 'client backend' group by 1")
    return {name: count for name, count in rows if name in users}


@pytest.fixture
def shared(weir):
    def start(sharing="demand", users=None, limit=8, **settings):
        return weir(databases={"app": f"pool_size=20 max_db_connections={limit} connection_sharing={sharing}"}, users=users, **settings)

    return start


@pytest.mark.every_version
def test_pools_with_demand_get_equal_parts(shared):
    pooler = shared()
    with Crowd(pooler, {"alice": 40}) as first:
        host.eventually(lambda: servers(pooler).get("alice") == 8, timeout=60)
        with Crowd(pooler, {"bob": 40}) as second:
            host.eventually(lambda: servers(pooler) == {"alice": 4, "bob": 4}, timeout=60)
            opened = pooler.log_text().count("closing because: evicted")
            time.sleep(3)
            assert servers(pooler) == {"alice": 4, "bob": 4}
            assert pooler.log_text().count("closing because: evicted") == opened, "nothing is moved to and fro"
        host.eventually(lambda: servers(pooler).get("alice") == 8, timeout=60)
    assert not first.errors and not second.errors


def test_without_sharing_who_came_first_keeps_all(shared):
    """What the other test shows is the sharing's doing."""
    pooler = shared("none", query_wait_timeout=8)
    # Each of alice's waits some 3 s, so that there is always one: a server with no client to go to would be evicted for bob.
    with Crowd(pooler, {"alice": 40}, "select pg_sleep(0.8)") as first:
        host.eventually(lambda: servers(pooler).get("alice") == 8, timeout=60)
        with Crowd(pooler, {"bob": 5}) as second:
            host.eventually(lambda: second.errors, timeout=60)
    assert not first.errors and not second.waits["bob"]


def test_a_guarantee_is_met_and_no_more(shared):
    pooler = shared("guaranteed", users={"bob": "guaranteed_connections=3"})
    with Crowd(pooler, {"alice": 40}) as first:
        host.eventually(lambda: servers(pooler).get("alice") == 8, timeout=60)
        time.sleep(1.2)
        began = time.monotonic()
        with Crowd(pooler, {"bob": 20}) as second:
            host.eventually(lambda: servers(pooler) == {"alice": 5, "bob": 3}, timeout=60)
            assert time.monotonic() - began < 15
            time.sleep(2)
            assert servers(pooler) == {"alice": 5, "bob": 3}
    assert not first.errors and not second.errors


def test_the_budget_is_never_passed(shared, pg):
    """Over several threads, while pools come and go, as PostgreSQL counts its connections."""
    pooler = shared(threads=2, spread_min_servers=2, spread_busy_percent=1, users={"bob": "guaranteed_connections=2"})
    most = 0
    with Crowd(pooler, {"alice": 30}) as first:
        for _ in range(4):
            with Crowd(pooler, {"bob": 15}) as second:
                ends = time.monotonic() + 1.5
                while time.monotonic() < ends:
                    most = max(most, sum(counted(pg).values()))
            assert not second.errors and second.waits["bob"]
    assert not first.errors
    assert 0 < most <= 8


@pytest.mark.parametrize("sharing", ["none", "demand"])
def test_a_pool_that_has_all_it_may_have_serves_its_clients_on_all_threads(shared, sharing):
    """Those on the thread that its pool has spread to come when the other has every connection, and is never idle."""
    pooler = shared(sharing, query_wait_timeout=6, threads=2, spread_min_servers=2, spread_busy_percent=1)
    with Crowd(pooler, {"alice": 30}) as first:
        time.sleep(4)
        with Crowd(pooler, {"alice": 15}) as second:
            time.sleep(8)
    assert not first.errors and not second.errors


def test_transactions_that_last_are_not_cut(shared):
    pooler = shared()
    holders = [pooler.connect(user="alice", autocommit=False) for _ in range(6)]
    for holder in holders:
        holder.execute("select 1")
    with Crowd(pooler, {"alice": 20}) as first:
        host.eventually(lambda: servers(pooler).get("alice") == 8, timeout=60)
        with Crowd(pooler, {"bob": 20}) as second:
            host.eventually(lambda: servers(pooler) == {"alice": 6, "bob": 2}, timeout=60)
            for holder in holders:
                assert holder.execute("select 2").fetchone() == (2,)
                holder.commit()
            host.eventually(lambda: servers(pooler) == {"alice": 4, "bob": 4}, timeout=60)
    assert not first.errors and not second.errors


def test_databases_of_a_user_share_its_limit(weir):
    entry = "pool_size=20 connection_sharing=demand"
    pooler = weir(databases={"app": entry, "other": f"{entry} guaranteed_connections=4"}, users={"alice": "max_user_connections=6"})
    options = lambda name: {"database": name}
    with Crowd(pooler, {"app": 20}, options=options) as first:
        host.eventually(lambda: servers(pooler, "database").get("app") == 6, timeout=60)
        with Crowd(pooler, {"other": 20}, options=options) as second:
            host.eventually(lambda: servers(pooler, "database") == {"app": 2, "other": 4}, timeout=60)
    assert not first.errors and not second.errors


def test_reload_and_takeover_while_pools_share(shared):
    pooler = shared("none")
    with Crowd(pooler, {"alice": 30}) as first:
        host.eventually(lambda: servers(pooler).get("alice") == 8, timeout=60)
        pooler.databases["app"] = "pool_size=20 max_db_connections=8 connection_sharing=demand"
        pooler.reload()
        with Crowd(pooler, {"bob": 30}) as second:
            host.eventually(lambda: servers(pooler) == {"alice": 4, "bob": 4}, timeout=60)
            reboot(pooler)
            asked = {name: len(crowd.waits[name]) for name, crowd in (("alice", first), ("bob", second))}
            host.eventually(lambda: all(len(crowd.waits[name]) > asked[name] + 20 for name, crowd in (("alice", first), ("bob", second))), timeout=60)
            host.eventually(lambda: servers(pooler) == {"alice": 4, "bob": 4}, timeout=60)
    assert not first.errors and not second.errors


def test_guarantees_that_cannot_all_be_met_are_reported(weir):
    pooler = weir(databases={"app": "max_db_connections=8 connection_sharing=demand"}, users={"alice": "guaranteed_connections=5", "bob": "guaranteed_connections=4"})
    why = "guaranteed_connections of 2 users add up to 9, more than max_db_connections (8)"
    done = host.run([pooler.program, "check", pooler.directory / "weir.ini"], check=False)
    assert why in done.stdout + done.stderr, done
    pooler.wait_log(re.escape(why))
    pooler.reload()
    pooler.wait_log(re.escape(why), count=2)
