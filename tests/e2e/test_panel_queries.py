"""Queries and connections by the panel's API: a query's page, its plan, a reset; one query cancelled; rows sorted."""

import subprocess
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

import host
import panel
from running import wait_until_runs

pytestmark = [pytest.mark.weir_only, pytest.mark.any_driver]


def started(weir, **settings):
    return panel.start(weir, **{"track_queries": 1, "databases": {"app": ""}, **settings})


def listed(web, search="", database="app"):
    return {row["text"]: row for row in web.get(f"/api/v1/queries?database={database}&search={search}")["queries"]}


def wait_listed(web, *texts):
    return host.eventually(lambda: (rows := listed(web)) and all(text in rows for text in texts) and rows)


def explain(web, fingerprint, **options):
    return web.ask("POST", f"/api/v1/queries/{fingerprint}/explain", {"database": "app"}, **options)


def test_a_query_has_a_page(weir):
    pooler, web = started(weir)
    client = pooler.connect()
    # Longer than what a busy machine adds to the other query.
    for _ in range(3):
        client.execute("select pg_sleep(1)")
    client.execute("select 1")
    query = wait_listed(web, "select pg_sleep(?)", "select ?")["select pg_sleep(?)"]
    page = web.get(f"/api/v1/queries/{query['fingerprint']}?database=app")
    assert (page["text"], page["calls"], page["errors"]) == ("select pg_sleep(?)", 3, 0)
    assert 0.5 < page["share"] <= 1 and page["since"].endswith("Z")
    assert page["mean_seconds"] <= page["max_seconds"] and page["p95_seconds"] <= page["max_seconds"]
    # The first sample only says what was counted before; then each interval has its own numbers.
    host.eventually(lambda: client.execute("select pg_sleep(0.02)") and any(history(web, query, "calls_rate")), timeout=40)
    assert all(0.02 <= us / 1e6 <= 10 for us in history(web, query, "p95_us") if us is not None)
    panel.is_refused(web.ask("GET", "/api/v1/queries/0123456789abcdef?database=app"), 404, "not_found")
    panel.is_refused(web.ask("GET", "/api/v1/queries/0123456789abcdef"), 400, "bad_request", "database")


def history(web, query, name):
    return web.get(f"/api/v1/queries/{query['fingerprint']}?database=app")["history"]["series"][name]


def test_a_percentile_is_no_larger_than_the_longest_run(weir):
    pooler, web = started(weir)
    pooler.value("select pg_sleep(0.05)")
    row = wait_listed(web, "select pg_sleep(?)")["select pg_sleep(?)"]
    assert row["p95_seconds"] == row["max_seconds"] == row["total_seconds"]
    [shown] = [row for row in pooler.console("SHOW QUERIES") if row["query"] == "select pg_sleep(?)"]
    assert shown["p95_us"] == shown["max_us"] == shown["total_us"]


@pytest.mark.every_version
def test_a_plan_is_asked_for_without_running_the_query(weir, pg):
    pooler, web = started(weir)
    pg.query("create table if not exists explained (a int primary key, b text)", database="app")
    pg.query("grant all on explained to public", database="app")
    client = pooler.connect()
    client.execute("insert into explained (a, b) values (1, 'one'), (-2, 'two') on conflict do nothing")
    client.execute("delete from explained where a in (1, 2, 3) and b <> 'one'")
    client.execute("select count(*) from explained")
    client.execute("begin").execute("rollback")
    texts = ["insert into explained(a, b) values (?) on conflict do nothing", "delete from explained where a in (?) and b <> ?",
             "select count(*) from explained", "begin"]
    rows = wait_listed(web, *texts)
    is_new = int(pg.value("show server_version_num")) >= 160_000
    before = pg.value("select count(*) from explained", database="app")
    for text in texts[:2]:
        answer = explain(web, rows[text]["fingerprint"])
        if not is_new:
            panel.is_refused(answer, 409, "conflict", "older than PostgreSQL 16")
            continue
        assert answer[0] == 200, answer[1]
        assert answer[1]["generic"] and any("explained" in line for line in answer[1]["lines"]), answer[1]
    assert pg.value("select count(*) from explained", database="app") == before
    status, plan, _ = explain(web, rows["select count(*) from explained"]["fingerprint"])
    assert status == 200 and not plan["generic"] and "Aggregate" in plan["lines"][0], plan
    panel.is_refused(explain(web, rows["begin"]["fingerprint"]), 409, "conflict", "have a plan")
    panel.is_refused(explain(web, "0123456789abcdef"), 404, "not_found")
    pg.query("drop table explained", database="app")
    panel.is_refused(explain(web, rows["select count(*) from explained"]["fingerprint"]), 409, "conflict", 'relation "explained" does not exist')


def test_a_statement_cannot_make_explain_run_it(weir, pg):
    pooler, web = started(weir)
    pg.query("create table if not exists untouched as select 1 as a", database="app")
    pg.query("grant all on untouched to public", database="app")
    client = pooler.connect()
    with pytest.raises(psycopg.Error):
        client.execute("analyze delete from untouched")
    client.execute("select a from untouched; delete from untouched where false")
    rows = wait_listed(web, "analyze delete from untouched", "select a from untouched; delete from untouched where false")
    for text in rows:
        assert explain(web, rows[text]["fingerprint"])[0] == 409, text
    assert pg.value("select count(*) from untouched", database="app") == 1
    pg.query("drop table untouched", database="app")


def test_who_may_only_look_gets_no_plan_and_resets_nothing(weir):
    pooler = weir.prepared(track_queries=1, databases={"app": ""})
    command = [pooler.program, "panel", "token", "reader", "--scopes", "read"]
    made = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    keys = pooler.directory / "panel.auth"
    keys.write_text(made.stdout)
    host.hand_over(keys)
    port = host.free_port()
    pooler.write_ini(http_port=port, http_auth_file=keys)
    web = panel.Panel(pooler.start(), port, token=made.stderr.rsplit(" ", 1)[-1].strip()).wait_up()
    pooler.value("select 1")
    row = wait_listed(web, "select ?")["select ?"]
    panel.is_refused(explain(web, row["fingerprint"]), 403, "forbidden")
    panel.is_refused(web.ask("POST", "/api/v1/queries/reset", {}), 403, "forbidden")
    panel.is_refused(web.ask("POST", "/api/v1/clients/1/cancel"), 403, "forbidden")


def test_counting_begins_anew_after_a_reset(weir):
    pooler, web = started(weir, databases={"app": "", "other": ""})
    pooler.value("select 1 as kept", database="other")
    pooler.value("select 1 as gone")
    wait_listed(web, "select ? as gone")
    assert web.ask("POST", "/api/v1/queries/reset", {"database": "app"})[0] == 204
    assert listed(web) == {} and len(listed(web, database="other")) == 1
    pooler.value("select 1 as gone")
    row = wait_listed(web, "select ? as gone")["select ? as gone"]
    assert row["calls"] == 1
    assert pooler.console("RESET_QUERIES") == "RESET_QUERIES"
    assert pooler.console("SHOW QUERIES") == []
    panel.is_refused(web.ask("POST", "/api/v1/queries/reset", {"database": "dne"}), 404, "not_found")


@pytest.mark.parametrize("way", ["api", "console"])
def test_one_query_is_cancelled_and_its_client_stays(weir, pg, way):
    pooler, web = panel.start(weir)
    client = pooler.connect(application_name="sleeper")
    [number] = [row["id"] for row in web.get("/api/v1/clients?application=sleeper")["clients"]]
    panel.is_refused(web.ask("POST", f"/api/v1/clients/{number}/cancel"), 409, "conflict", "not running a query")
    with ThreadPoolExecutor(1) as workers:
        outcome = workers.submit(client.execute, "select pg_sleep(60)")
        wait_until_runs(pg)
        if way == "api":
            assert web.ask("POST", f"/api/v1/clients/{number}/cancel")[0] == 204
        else:
            assert pooler.console(f"CANCEL_CLIENT {number}") == "CANCEL_CLIENT"
        with pytest.raises(psycopg.errors.QueryCanceled):
            outcome.result(20)
    assert client.execute("select 1").fetchone() == (1,)


def test_connections_are_sorted_and_paged(weir):
    pooler, web = panel.start(weir, default_pool_size=1)
    names = ["b", "d", "a", "c"]
    clients = {name: pooler.connect(application_name=name, autocommit=False) for name in names}
    clients["b"].execute("select 1")

    def rows(query):
        return [row["application_name"] for row in web.get(f"/api/v1/clients?{query}")["clients"]]

    assert rows("sort=application") == sorted(names)
    assert rows("sort=-application") == sorted(names, reverse=True)
    first = web.get("/api/v1/clients?sort=application&limit=3")
    rest = web.get(f"/api/v1/clients?sort=application&limit=3&cursor={first['next_cursor']}")
    assert [row["application_name"] for row in first["clients"] + rest["clients"]] == sorted(names)
    assert "next_cursor" not in rest
    with ThreadPoolExecutor(2) as workers:
        for name in ("c", "a"):
            waiting = workers.submit(clients[name].execute, "select 1")
            host.eventually(lambda name=name: any(row["wait_seconds"] > 0.2 for row in web.get(f"/api/v1/clients?application={name}")["clients"]))
        assert rows("sort=wait")[:2] == ["c", "a"]
        clients["b"].commit()
        host.eventually(lambda: clients["c"].info.transaction_status == psycopg.pq.TransactionStatus.INTRANS)
        clients["c"].commit()
        waiting.result(20)
    panel.is_refused(web.ask("GET", "/api/v1/clients?sort=colour"), 422, "unprocessable_entity", "sort is one of")
    assert web.get("/api/v1/servers?sort=-connected")["servers"]
