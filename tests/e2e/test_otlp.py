"""Metrics by OTLP: the OpenTelemetry Collector's own receiver takes them, and those that misbehave change nothing."""

import http.server
import json
import re
import signal
import socket
import subprocess
import threading
import time

import psycopg
import pytest

import certificates
import drivers
import host
import panel
import wire
from test_metrics import scrape, value

pytestmark = pytest.mark.weir_only

# What changes by itself from one look to the next.
RESTLESS = re.compile(r"process_|weir_shard_busy_ratio|pgbouncer_free_|pgbouncer_pools_client_maxwait_seconds")

# Further names of what goes out by another one.
ALIASES = re.compile(r"pgbouncer_(up|version_info|process_.*|stats_(?!totals_).*)")


@pytest.fixture(scope="module")
def program():
    if lacking := drivers.COLLECTOR.lacking():
        pytest.skip(f"tests/clients/collector lacks {lacking}")
    drivers.COLLECTOR.ensure_built()
    return drivers.COLLECTOR.command()


# What has nothing to do with how bytes are moved.
one_driver = pytest.mark.parametrize("io_driver", ["epoll"])


class Batch:
    """What came in one request: metrics by the names that the Collector gives them in Prometheus."""

    def __init__(self, line):
        self.authorization = line["authorization"]
        [one] = line["data"]["resourceMetrics"]
        self.resource = {each["key"]: each["value"]["stringValue"] for each in one["resource"]["attributes"]}
        [scope] = one["scopeMetrics"]
        self.metrics = {line["names"][metric["name"]]: metric for metric in scope["metrics"]}
        assert len(self.metrics) == len(scope["metrics"])

    def points(self, name):
        """{labels as a sorted tuple: point} of a metric."""
        metric = self.metrics.get(name, {})
        [data] = [metric[kind] for kind in ("sum", "gauge", "histogram") if kind in metric] or [{"dataPoints": []}]
        attributes = lambda point: tuple(sorted((each["key"], each["value"].get("stringValue", "")) for each in point.get("attributes", [])))
        return {attributes(point): point for point in data["dataPoints"]}

    def numbers(self, name):
        """The same with plain values."""
        number = lambda point: float(point["asDouble"] if "asDouble" in point else point["asInt"])
        return {labels: number(point) for labels, point in self.points(name).items()}

    def transactions(self):
        labels = (("database", "app"),)
        return self.numbers("pgbouncer_stats_totals_sql_transactions_pooled_total").get(labels, 0)


class Collector:
    """The Collector's receiver on a port; what it gets is kept."""

    def __init__(self, program, port=None, certificate=None):
        self.port, self.batches, self.spans = port or host.free_port(), [], []
        self.url = f"{'https' if certificate else 'http'}://127.0.0.1:{self.port}"
        files = [certificate.cert, certificate.key] if certificate else []
        command = [*map(str, program), f"127.0.0.1:{self.port}", *map(str, files)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout.readline() == '{"ready": true}\n'
        self.reader = threading.Thread(target=self.read)
        self.reader.start()

    def read(self):
        for line in map(json.loads, self.process.stdout):
            if "resourceSpans" in line:
                self.spans += [span for scope in line["resourceSpans"][0]["scopeSpans"] for span in scope["spans"]]
            else:
                self.batches.append(Batch(line))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait(30)
        self.reader.join(30)

    def wait(self, question=lambda batch: True, timeout=30):
        """The first batch of which the question is true."""
        return host.eventually(lambda: next((batch for batch in list(self.batches) if question(batch)), None), timeout=timeout)


def ask(pooler, *statements):
    with wire.Raw(pooler.port).login() as client:
        for statement in statements:
            client.ask(wire.query(statement))


def test_a_collector_gets_what_prometheus_scrapes(weir, program):
    with Collector(program) as collector:
        born = time.time_ns()
        pooler, web = panel.start(weir, otlp_endpoint=f"{collector.url}/", otlp_interval=1)
        ask(pooler, *["select 1"] * 10, "select pg_sleep(0.2)", "select 1/0")
        counted = time.time_ns()
        host.eventually(lambda: pooler.console("SHOW STATS_TOTALS")[0]["xact_count"] == 12 and not pooler.console("SHOW CLIENTS")[1:])

        def same():
            samples, types = scrape(web)
            batch = collector.wait(lambda batch, count=len(collector.batches) + 1: len(collector.batches) > count and batch is collector.batches[-1])
            if {name for name in types if not ALIASES.fullmatch(name) and any(known.startswith(name) for known, _ in samples)} != set(batch.metrics):
                return None
            for name in batch.metrics:
                if types[name] != "histogram" and not RESTLESS.match(name):
                    scraped = {labels: number for (known, labels), number in samples.items() if known == name}
                    told = {labels: number for labels, number in batch.numbers(name).items()}
                    if scraped != told:
                        return None
            return samples, types, batch

        samples, types, batch = host.eventually(same, timeout=60)
        assert batch.transactions() == 12
        assert batch.resource["service.name"] == "weir" and batch.resource["host.name"] == socket.gethostname()
        assert re.fullmatch(r"[0-9a-f-]{36}", batch.resource["service.instance.id"])
        assert re.fullmatch(r"\d+\.\d+\.\d+.*", batch.resource["service.version"])
        for name, metric in batch.metrics.items():
            assert set(metric) == {"name", "description", "unit", {"counter": "sum"}.get(types[name], types[name])} - ({"unit"} if "unit" not in metric else set())
            if types[name] == "counter":
                assert metric["sum"]["aggregationTemporality"] == 2 and metric["sum"]["isMonotonic"] is True
        units = {name: metric.get("unit", "") for name, metric in batch.metrics.items()}
        assert units["process_resident_memory_bytes"] == "By" and units["weir_shard_busy_ratio"] == "1"
        assert units["weir_query_duration_seconds"] == "s" and units["weir_errors_total"] == "{error}"
        assert batch.numbers("weir_errors_total") == {(("database", "app"), ("sqlstate", "22012")): 1}

        labels = (("database", "app"), ("user", "alice"))
        for measure in ("wait", "transaction", "query"):
            name = f"weir_{measure}_duration_seconds"
            point = batch.points(name)[labels]
            assert batch.metrics[name]["histogram"]["aggregationTemporality"] == 2
            counts, bounds = list(map(int, point["bucketCounts"])), point["explicitBounds"]
            assert len(bounds) == 20 and len(counts) == 21 and bounds == sorted(bounds)
            assert sum(counts) == int(point["count"]) == 12
            assert point["sum"] == value(samples, f"{name}_sum", database="app")
            for index, bound in enumerate(bounds):
                [below] = [number for (known, own), number in samples.items() if known == f"{name}_bucket" and float(dict(own)["le"]) == bound]
                assert sum(counts[: index + 1]) == below, (measure, bound)
            assert born < int(point["startTimeUnixNano"]) < min(counted, int(point["timeUnixNano"]))
        assert batch.points("weir_query_duration_seconds")[labels]["sum"] >= 0.2


def test_metrics_come_again_after_the_interval(weir, program):
    with Collector(program) as collector:
        pooler = weir(otlp_endpoint=collector.url, otlp_interval=3600)
        collector.wait()
        # Other settings end the export that is under way, and its line would be missing.
        pooler.wait_log("LOG otlp: metrics arrive at ")
        assert pooler.console("SHOW VERSION") and len(collector.batches) == 1
        pooler.console("SET otlp_interval = 1")
        host.eventually(lambda: len(collector.batches) >= 4)
        times = [int(next(iter(batch.points("weir_build_info").values()))["timeUnixNano"]) for batch in collector.batches[1:4]]
        # How long after each other is for the tests of otlp/pace.rs: here each waits for a processor, too.
        assert all(later > earlier for earlier, later in zip(times, times[1:])), times
        starts = {point["startTimeUnixNano"] for batch in collector.batches for point in batch.points("weir_shard_transactions_total").values()}
        assert len(starts) == 1
        assert len({batch.resource["service.instance.id"] for batch in collector.batches}) == 1
        arrivals = pooler.wait_log("LOG otlp: metrics arrive at ", count=2)
        assert len(arrivals) == 2, "one for each time that the settings were changed"


def test_no_panel_is_needed_and_reload_applies_at_once(weir, program):
    with Collector(program) as first, Collector(program) as second:
        pooler = weir(otlp_interval=3600)
        pooler.reload(otlp_endpoint=first.url)
        first.wait()
        assert "panel" not in pooler.log_text()
        pooler.reload(otlp_endpoint=second.url)
        second.wait()
        pooler.reload(otlp_endpoint="")
        ask(pooler, "select 1")
        pooler.reload(otlp_endpoint=first.url)
        first.wait(lambda batch: batch.transactions() == 1)
        assert len(second.batches) == 1
        pooler.reload(http_port=(port := host.free_port()))
        web = panel.Panel(pooler, port).wait_up()
        assert web.ask("GET", "/metrics")[0] == 200
        pooler.reload(http_port=0)
        host.eventually(lambda: not web.is_up())


@one_driver
def test_the_last_figures_are_sent_when_the_process_ends(weir, program):
    for end in (signal.SIGQUIT, signal.SIGINT):
        with Collector(program) as collector:
            pooler = weir(otlp_endpoint=collector.url, otlp_interval=3600)
            collector.wait()
            ask(pooler, *["select 1"] * 5)
            pooler.signal(end)
            pooler.wait_end()
            assert collector.wait(lambda batch: batch.transactions() == 5)
            assert len(collector.batches) == 2


def test_headers_are_sent_and_not_shown(weir, program):
    with Collector(program) as collector:
        pooler, web = panel.start(weir, otlp_endpoint=collector.url, otlp_headers="Authorization=Bearer%20s3cret%2C, x-tenant=7")
        assert collector.wait().authorization == ["Bearer s3cret,"]
        shown = {row["key"]: row["value"] for row in pooler.console("SHOW CONFIG")}
        assert shown["otlp_headers"] == "(hidden)" and shown["otlp_endpoint"] == collector.url
        assert "s3cret" not in json.dumps(web.get("/api/v1/settings")) + pooler.log_text()
        pooler.reload(otlp_headers="")
        collector.wait(lambda batch: batch.authorization is None)


def test_a_collector_under_tls_is_checked(weir, program, scratch, io_driver):
    (directory := scratch / f"otlp-{io_driver}").mkdir()
    root, other = (certificates.Authority(host.hand_over(directory), name) for name in ("root", "other"))
    good, wrong = root.issue("good", "c", "IP:127.0.0.1"), root.issue("wrong", "c", "DNS:elsewhere.test")
    with Collector(program, certificate=good) as collector, Collector(program, certificate=wrong) as misnamed:
        pooler = weir(otlp_endpoint=collector.url, otlp_ca_file=root.cert)
        collector.wait()
        for settings in ({"otlp_ca_file": other.cert}, {"otlp_ca_file": ""}, {"otlp_endpoint": misnamed.url}, {"otlp_ca_file": directory / "none.crt"}):
            said = len(re.findall("WARNING otlp: metrics do not arrive", pooler.log_text()))
            pooler.reload(**settings)
            pooler.wait_log("WARNING otlp: metrics do not arrive at https://127.0.0.1:.*(TLS handshake failed|otlp_ca_file: )", count=said + 1)
            pooler.reload(otlp_endpoint=collector.url, otlp_ca_file=root.cert)
        assert not misnamed.batches


@one_driver
def test_one_that_is_away_is_told_of_once_and_found_again(weir, program):
    port = host.free_port()
    pooler = weir(otlp_endpoint=f"http://127.0.0.1:{port}", otlp_interval=1)
    pooler.wait_log("WARNING otlp: metrics do not arrive at http://127.0.0.1:.*/v1/metrics: Connection refused")
    ask(pooler, *["select 1"] * 3)
    with socket.create_server(("127.0.0.1", port)) as deaf:
        for _ in range(2):
            deaf.accept()[0].close()
    with Collector(program, port) as collector:
        collector.wait(lambda batch: batch.transactions() == 3)
        pooler.wait_log("LOG otlp: metrics arrive at ")
        assert len(re.findall("otlp: ", pooler.log_text())) == 2, pooler.log_text()


class Misbehaving:
    """A collector that answers as the test sets it."""

    def __init__(self, answer, status=200, headers=(), after=None):
        self.times, outer = [], self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                outer.times.append(time.monotonic())
                self.rfile.read(int(self.headers["Content-Length"]))
                if after and len(outer.times) > 1:
                    return after.wait(60)
                if status is None:
                    return self.wfile.write(answer)
                self.send_response(status)
                for name, text in headers:
                    self.send_header(name, text)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()


# partial_success { rejected_data_points: 3, error_message: "a\nb" }
PARTIAL = b"\x0a\x07\x08\x03\x12\x03a\nb"


@one_driver
@pytest.mark.parametrize(
    "answer, options, told",
    [
        (b"", {"status": 500}, "the answer is 500 Internal Server Error"),
        (b"no", {"status": 401}, "the answer is 401 Unauthorized"),
        (b"", {"status": 301, "headers": [("Location", "/")]}, "the answer is 301 Moved Permanently"),
        (b"<html>Welcome</html>", {}, "the response is not OTLP"),
        (b"\0" * 200_000, {}, "the response is not OTLP"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", {"status": None}, "no HTTP response: "),
        (PARTIAL, {}, r"3 data points were left out: a\\x0ab"),
    ],
    ids=["500", "401", "301", "a page", "too much", "not HTTP", "partial"],
)
def test_what_is_wrong_is_told_once(weir, answer, options, told):
    with Misbehaving(answer, **options) as server:
        pooler = weir(otlp_endpoint=server.url, otlp_interval=1)
        pooler.wait_log(f"WARNING otlp: metrics do not arrive at {server.url}/v1/metrics: {told}")
        host.eventually(lambda: len(server.times) >= 3)
        ask(pooler, "select 1")
        assert len(re.findall("otlp: ", pooler.log_text())) == 1, pooler.log_text()


@one_driver
def test_one_that_wants_to_be_left_alone_is(weir):
    with Misbehaving(b"", status=429, headers=[("Retry-After", "3")]) as server:
        pooler = weir(otlp_endpoint=server.url, otlp_interval=1)
        pooler.wait_log("the answer is 429 Too Many Requests")
        host.eventually(lambda: len(server.times) >= 2)
        assert server.times[1] - server.times[0] > 2.9


@one_driver
def test_one_that_falls_silent_keeps_nobody_waiting(weir):
    for is_known in (True, False):
        silence = threading.Event()
        with Misbehaving(b"", after=silence) as server:
            if not is_known:
                server.times.append(0)  # Silent from the first request on.
            pooler = weir(otlp_endpoint=server.url, otlp_interval=3600)
            host.eventually(lambda: server.times and (not is_known or "otlp: metrics arrive" in pooler.log_text()))
            ask(pooler, "select 1")
            begun = time.monotonic()
            pooler.signal(signal.SIGQUIT)
            pooler.wait_end()
            assert time.monotonic() - begun < 20, "a second is for the last metrics"
            if is_known:
                host.eventually(lambda: len(server.times) == 2)
            silence.set()


@one_driver
def test_what_is_no_url_is_refused_with_its_line(weir):
    pooler = weir.prepared()
    pooler.write_ini(otlp_endpoint="collector:4318", otlp_headers="s3cret", otlp_interval=0)
    lines = pooler.ini.read_text().splitlines()
    done = subprocess.run([pooler.program, "check", pooler.ini], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and "s3cret" not in done.stdout, done.stdout
    for name, why in (
        ("otlp_endpoint", "is not a URL like http://127.0.0.1:4318: it does not begin with http:// or https://"),
        ("otlp_headers", "is not a list of headers: expected NAME=VALUE"),
        ("otlp_interval", "is not between 1 and"),
    ):
        [line] = [number for number, line in enumerate(lines, 1) if line.startswith(f"{name} ")]
        assert re.search(rf"{re.escape(str(pooler.ini))}:{line}: error: invalid value .* for parameter {name}: {re.escape(why)}", done.stdout), done.stdout
    pooler.write_ini(otlp_endpoint="https://127.0.0.1:1", otlp_headers="", otlp_interval=60, otlp_ca_file="/nowhere.crt")
    done = subprocess.run([pooler.program, "check", pooler.ini], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0
    assert re.search(r":\d+: warning: otlp_ca_file: failed to open /nowhere.crt: No such file", done.stdout), done.stdout


# --- traces ---------------------------------------------------------------------------------------------------
TRACE = "0af7651916cd43dd8448eb211c80319c"


def commented(statement, parent, flags="01"):
    return f"{statement} /*application='shop',traceparent='00-{TRACE}-{parent}-{flags}'*/"


def said(span):
    return {each["key"]: next(iter(each["value"].values())) for each in span["attributes"]}


@one_driver
def test_requests_of_sampled_traces_are_spans(program, weir):
    with Collector(program) as collector:
        pooler = weir(otlp_endpoint=collector.url, otlp_traces=1, otlp_interval=1, databases={"app": "pool_size=1"})
        with pooler.connect(autocommit=False) as holder, pooler.connect() as late:
            holder.execute("select 1")
            waits = threading.Thread(target=late.execute, args=(commented("select 'secret' from pg_sleep(0.1)", "1" * 16),))
            waits.start()
            host.eventually(lambda: pooler.pool()["cl_waiting"] == 1)
            time.sleep(0.3)
            holder.commit()
            waits.join(30)
            with pytest.raises(psycopg.errors.DivisionByZero):
                late.execute(commented("select 1 / %s", "2" * 16), (0,))
            late.execute(commented("select 3", "3" * 16, "00"))
            late.execute("select 4")
        spans = host.eventually(lambda: len(collector.spans) >= 2 and {span["parentSpanId"]: span for span in collector.spans}, timeout=20)
        assert spans.keys() == {"1" * 16, "2" * 16} and {span["traceId"] for span in spans.values()} == {TRACE}
        first, failed = spans["1" * 16], spans["2" * 16]
        took = (int(first["endTimeUnixNano"]) - int(first["startTimeUnixNano"])) / 1e9
        assert first["name"] == "SELECT app" and said(first)["db.query.text"] == "select ? from pg_sleep(?)" and "secret" not in json.dumps(first)
        assert said(first)["weir.wait.queue"] >= 0.15 and took >= 0.1 + said(first)["weir.wait.queue"]
        assert abs(int(first["endTimeUnixNano"]) / 1e9 - time.time()) < 60
        assert failed["status"]["code"] == 2 and not first.get("status") and first["spanId"] != failed["spanId"]
        pooler.wait_log(r"otlp: traces arrive at .*/v1/traces")
        shown = pooler.console("SHOW SPANS")
        assert [row["parent_id"] for row in shown] == ["1" * 16, "2" * 16]
        time.sleep(3)
        assert len(collector.spans) == 2, "each is sent once"


@one_driver
def test_traces_begin_and_end_by_reload(program, weir):
    with Collector(program) as collector:
        pooler = weir(otlp_endpoint=collector.url, otlp_interval=1)
        pooler.value(commented("select 1", "1" * 16))
        pooler.reload(otlp_traces=1)
        pooler.value(commented("select 1", "2" * 16))
        host.eventually(lambda: [span["parentSpanId"] for span in collector.spans] == ["2" * 16], timeout=20)
        pooler.reload(otlp_traces=0)
        pooler.value(commented("select 1", "3" * 16))
        assert not pooler.console("SHOW SPANS")


@one_driver
def test_a_collector_that_takes_no_traces_changes_nothing(weir):
    pooler = weir(otlp_endpoint=f"http://127.0.0.1:{host.free_port()}", otlp_traces=1, otlp_interval=1)
    for _ in range(20):
        assert pooler.value(commented("select 1", "1" * 16)) == 1
    pooler.wait_log("otlp: traces do not arrive at .*: ")
    assert pooler.value("select 2") == 2
