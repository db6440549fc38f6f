"""Quotas of temporary files: what sessions have on disk now, as PostgreSQL says, and whose requests are refused because of it."""

import contextlib
import json
import threading
import time

import psycopg
import pytest

import host
import panel
from test_quotas import LIMIT, command, limit, limited, rows, state, used

pytestmark = pytest.mark.weir_only

ALICE = ("user alice", "temp_files")
APP = ("database app", "temp_files")
SECRETS = {name: "" for name in ("alice", "bob", "carol", "admin", "stats", "watcher")}
# Some 20 MB that are sorted with 64 kB; the sorted rows stay in files as long as the cursor is open.
SORT = "declare sorted cursor {} for select n, md5(n::text) || md5(n::text) from generate_series(1, 200000) n order by 2"
EXCEEDED = r"quota of user alice exceeded: temp_files: \d+ used, hard limit 1048576; refused until temporary files are removed"
LISTED = "select coalesce(sum(size), 0) from pg_ls_tmpdir()"
SHARED = "select count(*) from pg_ls_dir('base/pgsql_tmp', true, false) d where d like '%fileset'"
# A hash join by several processes, whose batches wait in files that they share; each row takes its time.
JOIN = """
set max_parallel_workers_per_gather = 2; set parallel_setup_cost = 0; set parallel_tuple_cost = 0; set min_parallel_table_scan_size = 0;
set work_mem = '64kB'; set enable_mergejoin = off; set enable_nestloop = off;
select count(*) from spilled a join spilled b on a.text = b.text where pg_sleep(0.0005 * (a.n + b.n) / (a.n + b.n))::text = ''
"""


@pytest.fixture
def watched(pg):
    pg.query("create role watcher login in role pg_monitor")
    yield pg
    pg.query("drop owned by watcher cascade", "app")
    pg.query("drop role watcher")


def asking(weir, text, **settings):
    return limited(weir, text, **{"quota_user": "watcher", "quota_query_interval": 1, "userlist": SECRETS, **settings})


@contextlib.contextmanager
def sorting(pooler, user="alice", hold=""):
    """A client whose transaction has temporary files."""
    client = pooler.connect(user=user, autocommit=False)
    client.execute("set local work_mem = '64kB'")
    client.execute(SORT.format(hold))
    assert client.execute("fetch 1 from sorted").fetchone()
    yield client


@pytest.mark.every_version
def test_requests_are_refused_while_there_are_too_many_and_transactions_go_on(weir, watched):
    pooler = asking(weir, "user alice temp_files hard=1M\ndatabase app temp_files hard=1G\n")
    other, bob = pooler.connect(), pooler.connect(user="bob")
    with sorting(pooler) as client:
        host.eventually(lambda: state(pooler, *ALICE) == "hard")
        # The server may be writing still when it is asked first.
        host.eventually(lambda: used(pooler, *ALICE) == used(pooler, *APP) == int(watched.value(LISTED)) >= 8 << 20)
        for _ in range(2):
            with pytest.raises(LIMIT, match=EXCEEDED):
                other.execute("select 1")
        pooler.wait_log("quota of user alice exceeded: temp_files")
        assert bob.execute("select 1").fetchone() == (1,), "others go on"
        assert len(client.execute("fetch 1000 from sorted").fetchall()) == 1000
        client.commit()
    host.eventually(lambda: state(pooler, *ALICE) == "within")
    assert used(pooler, *ALICE) == used(pooler, *APP) == 0 and other.execute("select 1").fetchone() == (1,)


@pytest.mark.every_version
def test_the_soft_limit_warns_and_the_grace_time_ends_it(weir, watched):
    pooler = asking(weir, "user default temp_files soft=1G grace=10s\n")
    other, told = pooler.connect(), []
    other.add_notice_handler(lambda diagnostic: told.append(diagnostic.message_primary))
    with sorting(pooler) as client:
        # Now, not while the server sorts: that may take longer than the grace time.
        limit(pooler, "user default temp_files soft=1M grace=10s\n")
        host.eventually(lambda: rows(pooler).get(ALICE, {}).get("state") == "soft")
        assert other.execute("select 1").fetchone() == (1,)
        assert len(told) == 1 and "quota of user alice exceeded: temp_files:" in told[0] and "soft limit 1048576; grace time ends" in told[0]
        host.eventually(lambda: state(pooler, *ALICE) == "grace")
        with pytest.raises(LIMIT, match="soft limit 1048576, grace time over; refused until temporary files are removed"):
            other.execute("select 1")
        client.rollback()
    host.eventually(lambda: state(pooler, *ALICE) == "within")
    assert other.execute("select 1").fetchone() == (1,)


def test_a_database_counts_the_sessions_of_all_users_and_not_those_of_others(weir, watched):
    pooler = asking(weir, "database app temp_files hard=1M\ndatabase other temp_files hard=1M\n")
    with sorting(pooler, user="bob") as client:
        host.eventually(lambda: state(pooler, *APP) == "hard")
        assert used(pooler, "database other", "temp_files") == 0
        with pytest.raises(LIMIT, match="quota of database app exceeded: temp_files"):
            pooler.value("select 1")
        assert pooler.value("select 1", database="other") == 1
        limit(pooler, "database app temp_files hard=1G\n")
        assert pooler.value("select 1") == 1, "another limit counts at once"
        client.rollback()


def test_a_session_that_keeps_them_is_closed_and_they_are_gone(weir, watched):
    pooler = asking(weir, "user alice temp_files hard=1M\n", pool_mode="session")
    with sorting(pooler, hold="with hold") as client:
        client.commit()
        host.eventually(lambda: state(pooler, *ALICE) == "hard")
        with pytest.raises(LIMIT, match=EXCEEDED):
            client.execute("fetch 1 from sorted")
        host.eventually(lambda: state(pooler, *ALICE) == "within")
        assert client.closed and pooler.value("select 1") == 1


@pytest.mark.every_version
def test_who_may_not_see_them_is_told_once_what_to_grant(weir, pg):
    pooler = asking(weir, "user alice temp_files hard=1M\n", quota_user="carol")
    message = r'quotas: database app: its temporary files are not known: permission denied for function pg_ls_tmpdir \(42501\); what was known before stays; GRANT pg_monitor TO "carol"'
    pooler.wait_log(message)
    with sorting(pooler) as client:
        time.sleep(2.5)
        assert pooler.value("select 1") == 1 and state(pooler, *ALICE) == "within"
        assert len(pooler.wait_log(message)) == 1, "once"
        try:
            pg.query("grant pg_monitor to carol")
            host.eventually(lambda: state(pooler, *ALICE) == "hard")
            pooler.wait_log("quotas: database app answers again")
        finally:
            pg.query("revoke pg_monitor from carol")
        client.rollback()


@pytest.mark.every_version
def test_files_that_processes_share_count_where_directories_may_be_listed(weir, watched):
    watched.query("create table spilled as select n, md5(n::text) || md5(n::text) || md5(n::text) as text from generate_series(1, 100000) n; analyze spilled; grant all on spilled to public", "app")
    for function in ("pg_ls_dir(text, boolean, boolean)", "pg_stat_file(text, boolean)"):
        watched.query(f"grant execute on function {function} to watcher", "app")
    try:
        pooler = asking(weir, "user alice temp_files hard=1T\n", pool_mode="session")
        client = pooler.connect()
        thread = threading.Thread(target=run, args=(client,))
        thread.start()
        host.eventually(lambda: watched.value(SHARED) > 0)
        shared = "select sum((pg_stat_file('base/pgsql_tmp/' || d || '/' || f, true)).size) from pg_ls_dir('base/pgsql_tmp', true, false) d, lateral pg_ls_dir('base/pgsql_tmp/' || d, true, false) f where d like '%fileset'"
        host.eventually(lambda: 0 < int(watched.value(shared)) <= used(pooler, *ALICE))
        client.cancel()
        thread.join(30)
        host.eventually(lambda: used(pooler, *ALICE) == 0)
    finally:
        pooler.stop()
        watched.query("drop table spilled", "app")


def run(client):
    with contextlib.suppress(psycopg.Error):
        for statement in JOIN.strip().split(";"):
            client.execute(statement)


def test_tablespaces_count_too(weir, watched):
    directory = host.new_directory(watched.directory, "space")
    watched.query(f"create tablespace space location '{directory}'")
    watched.query("grant create on tablespace space to public")
    try:
        pooler = asking(weir, "user alice temp_files hard=1M\n")
        client = pooler.connect(autocommit=False)
        client.execute("set local temp_tablespaces = 'space'")
        client.execute("set local work_mem = '64kB'")
        client.execute(SORT.format(""))
        client.execute("fetch 1 from sorted")
        assert int(watched.value(LISTED)) == 0
        host.eventually(lambda: state(pooler, *ALICE) == "hard")
        client.rollback()
    finally:
        pooler.stop()
        watched.query("drop tablespace space")


def test_the_command_the_console_the_panel_and_metrics_know_them(weir, watched):
    pooler, web = panel.start(weir, quotas_file="quotas", quota_user="watcher", quota_query_interval=1, userlist=SECRETS)
    assert pooler.console("SET QUOTA user alice temp_files soft=1M hard=1G") == "SET"
    assert command(pooler, "set", "database", "app", "temp_files", "0", "2G", check=0) == ""
    assert web.ask("PUT", "/api/v1/quotas/defaults/user/temp_files", {"hard": "3G"})[0] == 204
    with sorting(pooler) as client:
        host.eventually(lambda: state(pooler, *ALICE) == "soft")
        host.eventually(lambda: used(pooler, *ALICE) == int(watched.value(LISTED)) >= 8 << 20)  # the sort has come to its end
        found = {(one["subject"], one["name"]): one for one in web.get("/api/v1/quotas?resource=temp_files")["quotas"]}
        mine = found["user", "alice"]
        assert (mine["unit"], mine["measure"], mine["soft"], mine["period"]) == ("bytes", "temp_files", 1 << 20, None)
        assert {"measure": "temp_files", "unit": "bytes"} in web.get("/api/v1/quotas/defaults")["measures"]
        _, page, _ = web.ask("GET", "/metrics")
        assert f'weir_quota_used{{subject="user",name="alice",resource="temp_files",period=""}} {mine["used"]}' in page
        shown = command(pooler, "-u", "alice", "-s", check=1)
        assert "temp_files" in shown and "1G" in shown and "1M" in shown, shown
        rows_of = {row["resource"]: row for row in json.loads(command(pooler, "-u", "alice", "--json", check=1))}
        assert rows_of["temp_files"]["state"] == "soft"
        assert command(pooler, "warn", check=0).startswith("user alice is above its quotas:\n  temp_files: ")
        client.rollback()
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="temp_files have no period"):
        pooler.console("SET QUOTA user alice temp_files/day hard=1G")
