"""/metrics, and what the panel's API says of queries and errors."""

import re

import pytest

import host
import panel
import wire

pytestmark = pytest.mark.weir_only

SAMPLE = re.compile(r'([a-z_]+)(?:\{((?:[a-z_]+="(?:[^"\\\n]|\\["\\n])*",?)*)\})? (\S+)')
LABEL = re.compile(r'([a-z_]+)="((?:[^"\\]|\\.)*)"')


def scrape(web):
    """Samples as {(name, labels as a sorted tuple): value}; families as {name: type}. Every line must be of the format."""
    status, text, headers = web.ask("GET", "/metrics")
    assert status == 200 and headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    samples, types, family = {}, {}, None
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            _, _, family, kind = line.split(" ")
            assert family not in types, f"{family} begins twice"
            types[family] = kind
        elif not line.startswith("# HELP "):
            found = SAMPLE.fullmatch(line)
            assert found, line
            assert found[1] == family or types[family] == "histogram" and found[1].startswith(f"{family}_"), line
            key = (found[1], tuple(sorted(LABEL.findall(found[2] or ""))))
            assert key not in samples, f"{line} is there twice"
            samples[key] = float(found[3])
    return samples, types


def value(samples, name, /, **labels):
    """The value of the one sample that has these labels."""
    found = [value for (known, own), value in samples.items() if known == name and labels.items() <= dict(own).items()]
    assert len(found) == 1, (name, labels, found)
    return found[0]


def scrape_after_eleven_queries(weir):
    """Ten quick ones, and one of 2.5 s."""
    pooler, web = panel.start(weir)
    with wire.Raw(pooler.port).login() as client:
        for statement in (*["select 1"] * 10, "select pg_sleep(2.5)"):
            client.simple(statement)
    host.eventually(lambda: pooler.console("SHOW STATS_TOTALS")[0]["xact_count"] == 11)
    return pooler, *scrape(web)


def test_counters_have_the_exporters_names_and_the_consoles_values(weir):
    pooler, samples, types = scrape_after_eleven_queries(weir)
    row = next(row for row in pooler.console("SHOW STATS_TOTALS") if row["database"] == "app")
    for prefix in ("pgbouncer_stats_totals", "pgbouncer_stats"):
        assert value(samples, f"{prefix}_queries_pooled_total", database="app") == row["query_count"] == 11
        assert value(samples, f"{prefix}_queries_duration_seconds_total", database="app") == float(row["query_time"]) / 1e6
        for name in ("received_bytes", "sent_bytes", "sql_transactions_pooled", "server_assignments", "binds", "client_logins"):
            assert types[f"{prefix}_{name}_total"] == "counter"
    assert value(samples, "pgbouncer_up") == 1
    (row,) = [row for row in pooler.console("SHOW DATABASES") if row["name"] == "app"]
    assert value(samples, "pgbouncer_databases_pool_size", name="app") == row["pool_size"]
    assert value(samples, "weir_pool_size_connections", database="app", user="alice") > 0
    assert value(samples, "pgbouncer_pools_server_idle_connections", database="app") == 1
    assert value(samples, "pgbouncer_used_servers") == 1
    assert value(samples, "process_open_fds") > 5
    assert 0 < value(samples, "pgbouncer_process_resident_memory_bytes") < 1 << 30


def test_histograms_are_whole(weir):
    pooler, samples, types = scrape_after_eleven_queries(weir)
    for measure in ("wait", "transaction", "query"):
        name = f"weir_{measure}_duration_seconds"
        assert types[name] == "histogram"
        buckets = {float(dict(labels)["le"]): count for (known, labels), count in samples.items() if known == f"{name}_bucket"}
        counts = [count for _, count in sorted(buckets.items())]
        assert counts == sorted(counts) and len(counts) == 21
        assert buckets[float("inf")] == value(samples, f"{name}_count", database="app") == 11
    assert value(samples, "weir_query_duration_seconds_sum", database="app") >= 2.5
    assert value(samples, "weir_query_duration_seconds_bucket", database="app", le="2.097152") == 10


def test_what_clients_say_stays_inside_its_quotes(weir):
    pooler, web = panel.start(weir)
    client = pooler.connect(application_name='x"} 1\\ # !')
    client.execute("select 1")
    samples, _ = scrape(web)
    assert value(samples, "pgbouncer_client_connections", application_name=r'x\"} 1\\ # !', user="alice") == 1


def test_nobody_scrapes_without_a_token(weir):
    _, web = panel.start(weir)
    panel.is_refused(web.ask("GET", "/metrics", token=None), 401, "unauthorized")


def test_everybody_may_scrape_if_the_settings_say_so(weir):
    pooler, web = panel.start(weir, http_metrics_open=1)
    for token in (None, "wrong"):
        status, text, _ = web.ask("GET", "/metrics", token=token)
        assert status == 200 and "weir_build_info" in text
        panel.is_refused(web.ask("GET", "/api/v1/queries", token=token), 401, "unauthorized")
    assert web.ask("GET", "/metrics", headers={"Host": "evil.test"}, token=None)[0] == 421
    pooler.reload(http_metrics_open=0)
    host.eventually(lambda: web.ask("GET", "/metrics", token=None)[0] == 401)
    assert web.ask("GET", "/metrics")[0] == 200


def test_errors_and_queries_by_the_api(weir):
    pooler, web = panel.start(weir, track_queries=1)
    with wire.Raw(pooler.port).login() as client:
        # The first query waits for what Weir asks of a new server, too.
        for _ in range(3):
            client.simple("select pg_sleep(1)")
        client.ask(wire.query("select 1/0"))
    found = host.eventually(
        lambda: (answer := web.get("/api/v1/queries")) and sum(row["calls"] for row in answer["queries"]) == 4 and answer
    )
    assert found["tracking"] is True
    assert [row["text"] for row in found["queries"]] == ["select pg_sleep(?)", "select ? / ?"]
    first = found["queries"][0]
    assert first["calls"] == 3 and first["total_seconds"] >= 3 and first["database"] == "app"
    assert abs(first["mean_seconds"] - first["total_seconds"] / 3) < 1e-5 and first["p95_seconds"] >= 0.9
    assert [row["calls"] for row in web.get("/api/v1/queries?sort=calls&limit=1")["queries"]] == [3]
    assert web.get("/api/v1/queries?database=nothing")["queries"] == []
    panel.is_refused(web.ask("GET", "/api/v1/queries?sort=colour"), 422, "unprocessable_entity")
    assert web.get("/api/v1/errors?database=app")["errors"] == [{"sqlstate": "22012", "database": "app", "count": 1}]
    samples, _ = scrape(web)
    assert value(samples, "weir_errors_total", database="app", sqlstate="22012") == 1
