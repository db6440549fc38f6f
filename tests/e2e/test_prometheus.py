"""Debian's Prometheus scrapes Weir: the dashboard's queries have series, the alerts are sound, and so is the format."""

import json
import shutil
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

import pytest

import etcd
import host
import panel
import wire
from test_fleet import fleet, store  # noqa: F401 (fixtures)

PACKAGING = Path(__file__).resolve().parents[2] / "packaging"
RULES, DASHBOARD = PACKAGING / "prometheus/weir-rules.yml", PACKAGING / "grafana/weir.json"

# What Grafana's pgbouncer dashboards (14022, and the mixin's overview) ask of pgbouncer_exporter.
EXPORTER = """
    pgbouncer_up
    sum(pgbouncer_pools_client_waiting_connections)
    sum(pgbouncer_pools_client_active_connections)
    sum(pgbouncer_pools_server_active_connections)
    pgbouncer_pools_server_idle_connections
    pgbouncer_pools_server_used_connections
    pgbouncer_pools_server_testing_connections
    pgbouncer_pools_server_login_connections
    pgbouncer_pools_client_maxwait_seconds
    pgbouncer_databases_max_connections
    pgbouncer_databases_current_connections
    pgbouncer_config_max_client_connections
    pgbouncer_config_max_user_connections
    rate(pgbouncer_stats_queries_pooled_total[30s])
    rate(pgbouncer_stats_queries_duration_seconds_total[30s])
    rate(pgbouncer_stats_received_bytes_total[30s])
    rate(pgbouncer_stats_sent_bytes_total[30s])
    rate(pgbouncer_stats_sql_transactions_pooled_total[30s])
    rate(pgbouncer_stats_server_in_transaction_seconds_total[30s])
    rate(pgbouncer_stats_client_wait_seconds_total[30s])
    rate(pgbouncer_stats_totals_queries_pooled_total[30s])
    pgbouncer_process_resident_memory_bytes
"""

pytestmark = [
    pytest.mark.weir_only,
    pytest.mark.skipif(not shutil.which("prometheus") or not shutil.which("promtool"), reason="needs Debian's prometheus"),
]


def promtool(*arguments, text=None):
    done = subprocess.run(["promtool", *map(str, arguments)], input=text, capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout + done.stderr


def test_the_alerts_are_sound():
    code, output = promtool("check", "rules", RULES)
    assert code == 0 and "14 rules found" in output, output


# A fleet of four nodes where three may be, of which b has no lease, with slots of a node that is gone and too few of them.
OF_FLEET = """
    weir_fleet_up{instance="a"} 1
    weir_fleet_up{instance="b"} 0
    weir_fleet_nodes{instance="a",state="up"} 4
    weir_fleet_nodes{instance="b",state="up"} 3
    weir_fleet_nodes{instance="b",state="gone"} 1
    weir_fleet_nodes_limit{instance="a"} 3
    weir_fleet_nodes_limit{instance="b"} 3
    weir_fleet_slots_orphaned{instance="a",kind="database",database="lost"} 2
    weir_fleet_slots_orphaned{instance="b",kind="database",database="lost"} 2
    weir_fleet_slots_orphaned{instance="a",kind="database",database="short"} 0
    weir_fleet_slots_wanted{instance="a",kind="database",database="short"} 7
    weir_fleet_slots_shared{instance="a",kind="database",database="short"} 6
    weir_fleet_slots_wanted{instance="a",kind="database",database="lost"} 6
    weir_fleet_slots_shared{instance="a",kind="database",database="lost"} 6
"""


def test_the_alerts_of_a_fleet_fire_where_they_should(tmp_path):
    samples = [line.strip().rsplit(" ", 1) for line in OF_FLEET.strip().splitlines()]
    fired = [
        'alertname="WeirFleetNoLease",instance="b"',
        'alertname="WeirFleetTooManyNodes",instance="a"',
        'alertname="WeirFleetSlotsOrphaned",database="lost"',
        'alertname="WeirFleetLimitShort",database="short"',
    ]
    expected = {
        "expr": 'count by (alertname, instance, database) (ALERTS{alertname=~"WeirFleet.*",alertstate="firing"})',
        "eval_time": "20m",
        "exp_samples": [{"labels": f"{{{labels}}}", "value": 1} for labels in fired],
    }
    series = [{"series": name.replace("{", '{job="weir",'), "values": f"{value}x30"} for name, value in samples]
    test = {"interval": "1m", "input_series": series, "promql_expr_test": [expected]}
    file = tmp_path / "tests.yml"
    file.write_text(json.dumps({"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": [test]}))
    code, output = promtool("test", "rules", file)
    assert code == 0, output


def test_the_format_is_prometheus_own(weir):
    """promtool parses it; what it says of style concerns names that are pgbouncer_exporter's."""
    pooler, web = panel.start(weir, track_queries=1)
    pooler.connect(application_name='"\\ x').execute("select 1")
    _, text, _ = web.ask("GET", "/metrics")
    code, output = promtool("check", "metrics", text=text)
    assert code in (0, 3), output
    assert "error while" not in output and not [line for line in output.splitlines() if line.startswith("weir_")], output


# Nodes of a fleet alone have such series.
OF_FLEETS = "weir_fleet_"


class Prometheus:
    """One that scrapes a panel every second, on a port of its own."""

    def __init__(self, directory, web):
        self.port = host.free_port()
        directory.mkdir(parents=True, exist_ok=True)
        config = directory / "prometheus.yml"
        config.write_text(
            "global: {scrape_interval: 1s, evaluation_interval: 1s}\n"
            f"rule_files: [{json.dumps(str(RULES))}]\n"
            "scrape_configs:\n  - job_name: weir\n"
            f"    authorization: {{credentials: {web.token}}}\n"
            f"    static_configs: [{{targets: ['127.0.0.1:{web.port}']}}]\n"
        )
        command = ["prometheus", f"--config.file={config}", f"--storage.tsdb.path={directory / 'data'}"]
        self.log = open(directory / "prometheus.log", "w")
        command.append(f"--web.listen-address=127.0.0.1:{self.port}")
        self.process = subprocess.Popen(command, stdout=self.log, stderr=self.log)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(30)
        self.log.close()

    def ask(self, path, **arguments):
        url = f"http://127.0.0.1:{self.port}/api/v1/{path}?{urllib.parse.urlencode(arguments)}"
        try:
            with urllib.request.urlopen(url, timeout=20) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            if error.code == 503:
                return None  # It is still starting.
            raise AssertionError(f"{arguments}: {error.read()}") from error
        except OSError:
            return None

    def series(self, query):
        found = self.ask("query", query=query)
        return found["result"] if found else []


def dashboard_queries():
    """Every expression of the dashboard, its variables filled in as Grafana does for All."""
    values = {"$instance": ".*", "$database": ".*", "$__rate_interval": "30s"}
    for one in json.loads(DASHBOARD.read_text())["panels"]:
        for target in one["targets"]:
            query = target["expr"]
            for variable, value in values.items():
                query = query.replace(variable, value)
            yield query


def test_every_query_of_the_dashboards_has_series(weir, tmp_path):
    pooler, web = panel.start(weir)
    with Prometheus(tmp_path / "prometheus", web) as prometheus, wire.Raw(pooler.port).login() as client:
        of_all = (query for query in dashboard_queries() if OF_FLEETS not in query)
        queries = [*of_all, *filter(None, map(str.strip, EXPORTER.splitlines()))]
        assert len(queries) > 40

        def lacking():
            client.simple("select 1")
            client.ask(wire.query("select 1/0"))
            return [query for query in queries if not any(row["value"][1] != "NaN" for row in prometheus.series(query))]

        host.eventually(lambda: not lacking(), timeout=120)
        groups = prometheus.ask("rules")["groups"]
        assert all(rule["health"] in ("ok", "unknown") for group in groups for rule in group["rules"]), groups
        assert not prometheus.series('ALERTS{alertstate="firing"}')


@pytest.mark.parametrize("io_driver", ["epoll"])
@pytest.mark.skipif(not etcd.ETCD, reason="no etcd; scripts/prepare-tests says why")
def test_every_query_of_a_fleet_has_series_at_a_node(fleet, tmp_path):  # noqa: F811
    port = host.free_port()
    node = fleet.start("a", http_port=port, fleet_limits="clients")
    web = panel.Panel(node, port).wait_up()
    with Prometheus(tmp_path / "prometheus", web) as prometheus, wire.Raw(node.port).login() as client:
        client.simple("select 1")
        queries = [query for query in dashboard_queries() if OF_FLEETS in query]
        assert len(queries) == 5
        host.eventually(lambda: all(map(prometheus.series, queries)), timeout=120)
