"""The control panel's thread: where it listens, which events it receives, what it shows."""

import contextlib
import http.client
import json
import socket
import threading
import time
from pathlib import Path

import psycopg
import pytest

import host
import panel

pytestmark = [pytest.mark.weir_only, pytest.mark.any_driver]


def test_off_unless_asked_for(weir):
    pooler = weir()
    listening = {line.split()[3] for line in host.run(["ss", "-Htlnp"], as_user=False).stdout.splitlines() if f"pid={pooler.process.pid}," in line}
    assert listening == {f"127.0.0.1:{pooler.port}"}
    assert "panel" not in pooler.log_text()


def test_it_gets_less_of_the_processors_than_who_serves_queries(weir):
    pooler, web = panel.start(weir)
    web.ask("GET", "/metrics")  # starts one of those that wait for files in its stead
    niceness = {}
    for task in Path(f"/proc/{pooler.process.pid}/task").iterdir():
        fields = (task / "stat").read_text().rpartition(")")[2].split()
        niceness.setdefault((task / "comm").read_text().strip() == "weir-panel", set()).add(int(fields[16]))
    (others,) = niceness[False]
    assert niceness[True] == {others + 10}


def test_clients_and_servers_a_page_at_a_time(weir):
    pooler, web = panel.start(weir)
    names = [f"<b>{number}" for number in range(5)]
    for name in names:
        pooler.connect(application_name=name).execute("select 1")
    first = web.get("/api/v1/clients?database=app&limit=3")
    second = web.get(f"/api/v1/clients?database=app&limit=3&cursor={first['next_cursor']}")
    assert [row["application_name"] for row in first["clients"] + second["clients"]] == names
    assert "next_cursor" not in second
    row = first["clients"][0]
    assert row["user"] == "alice" and row["state"] in ("active", "idle") and row["connect_time"].endswith("Z")
    assert [row["application_name"] for row in web.get("/api/v1/clients?application=b%3E4")["clients"]] == ["<b>4"]
    assert web.get("/api/v1/clients?user=nobody") == {"clients": []}
    servers = web.get("/api/v1/servers?database=app")["servers"]
    assert servers and servers[0]["remote_pid"] > 0


def test_live_and_ready(weir):
    pooler, web = panel.start(weir)
    assert web.ask("GET", "/healthz", token=None)[:2] == (200, "ok\n")
    assert web.ask("GET", "/readyz", token=None)[:2] == (200, "ready\n")
    client = pooler.connect()
    client.execute("select 1")
    pooler.console("SHUTDOWN WAIT_FOR_CLIENTS")
    panel.is_refused(web.ask("GET", "/readyz", token=None), 503, "service_unavailable", "shutting down")
    assert web.ask("GET", "/healthz", token=None)[0] == 200
    client.close()
    assert pooler.wait_end() == 0


def test_reload_opens_moves_and_closes_it(weir):
    pooler = weir()
    ports = [host.free_port(), host.free_port()]
    for port in ports:
        pooler.reload(http_port=port)
        panel.Panel(pooler, port).wait_up()
    assert not panel.Panel(pooler, ports[0]).is_up()
    pooler.reload(http_port=0)
    host.eventually(lambda: not panel.Panel(pooler, ports[1]).is_up())
    pooler.reload(http_port=pooler.port)
    pooler.wait_log("WARNING panel: cannot listen")
    pooler.reload(http_port=ports[0])
    panel.Panel(pooler, ports[0]).wait_up()


def test_a_port_that_is_taken_stops_the_start(weir):
    pooler = weir()
    other = weir.prepared(http_port=pooler.port)
    other.launch()
    assert other.wait_end() == 1
    assert "FATAL cannot listen for the panel on 127.0.0.1" in other.output()


def test_others_than_loopback_need_a_password(weir):
    pooler = weir.prepared(http_port=host.free_port(), http_addr="0.0.0.0")
    pooler.launch()
    assert pooler.wait_end() == 1
    assert "FATAL http_addr 0.0.0.0 is not a loopback address" in pooler.output()


def test_the_process_that_takes_over_has_the_panel_too(weir):
    pooler, web = panel.start(weir)
    client = pooler.connect()
    client.execute("select 1")
    old, token, before = pooler.process, web.token, web.token_path()
    pooler.launch("--reboot")
    assert old.wait(30) == 0
    again = panel.Panel(pooler, web.port).wait_up()
    assert not before.exists()
    new = again.token_path(count=2).read_text().strip()
    assert token != new
    clients = lambda: again.get("/api/v1/clients?database=app", token=new)["clients"]
    host.eventually(lambda: [row["user"] for row in clients()] == ["alice"])
    assert client.execute("select 2").fetchone() == (2,)


@pytest.mark.parametrize("http_addr", ["127.0.0.1", "::1"])
def test_the_port_is_never_free_while_another_process_takes_over(weir, http_addr):
    family = socket.AF_INET6 if ":" in http_addr else socket.AF_INET
    pooler = weir(http_port=host.free_port(), http_addr=http_addr)
    address = (http_addr, int(pooler.settings["http_port"]))
    pooler.wait_log("panel: http://")
    stolen, refused, over = [], [], threading.Event()

    def steal():
        while not over.is_set():
            with socket.socket(family) as thief, contextlib.suppress(OSError):
                thief.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                thief.bind(address)
                thief.listen()
                stolen.append(address)

    def visit():
        while not over.is_set():
            try:
                socket.create_connection(address, timeout=5).close()
            except OSError as why:
                refused.append(why)
            time.sleep(0.002)

    threads = [threading.Thread(target=steal), threading.Thread(target=visit)]
    for thread in threads:
        thread.start()
    try:
        for count in (2, 3):
            old = pooler.process
            pooler.launch("--reboot")
            assert old.wait(30) == 0
            pooler.wait_log("panel: http://", count=count)
    finally:
        over.set()
        for thread in threads:
            thread.join()
    assert not stolen and not refused


def test_a_process_that_takes_over_may_have_its_panel_elsewhere(weir):
    pooler, web = panel.start(weir)
    old, port = pooler.process, host.free_port()
    pooler.write_ini(http_port=port)
    pooler.launch("--reboot")
    assert old.wait(30) == 0
    panel.Panel(pooler, port).wait_up()
    assert not panel.Panel(pooler, web.port).is_up()


def test_settings_are_the_table_and_what_is_in_force(weir):
    pooler, web = panel.start(weir, default_pool_size=7, auth_ldap_options="ldapserver=x ldapbindpasswd=geheim")
    rows = {row["name"]: row for row in web.get("/api/v1/settings")["settings"]}
    assert set(rows) == {row["key"] for row in pooler.console("SHOW CONFIG")}
    size = rows["default_pool_size"]
    assert (size["value"], size["default"], size["changed"], size["reloadable"], size["effect"]) == ("7", "20", True, True, "reload")
    assert size["doc"] and size["type"] == "auto or number"
    assert rows["listen_port"]["effect"] == "restart" and rows["query_wait_timeout"]["unit"] == "s"
    assert rows["auth_ldap_options"]["value"] == "(hidden)", "it means nothing, and may hold a password anywhere"
    assert rows["pkt_buf"]["effect"] == "none" and rows["pool_mode"]["changed"]


def test_databases_are_paused_resumed_and_killed(weir):
    pooler, web = panel.start(weir)
    client = pooler.connect()
    client.execute("select 1")
    act = lambda verb, body=None, name="app": web.ask("POST", f"/api/v1/databases/{name}/{verb}", body)  # noqa: E731
    assert act("pause")[0] == 204
    assert {row["name"]: row["paused"] for row in pooler.console("SHOW DATABASES")}["app"] == 1
    assert act("resume")[0] == 204
    panel.is_refused(act("resume"), 409, "conflict", "database app is not paused")
    panel.is_refused(act("pause", name="nothing"), 404, "not_found", "no such database: nothing")
    panel.is_refused(act("explode"), 404, "not_found")
    assert act("reconnect")[0] == 204
    assert panel.is_refused(act("kill", {"confirm": "ap"}), 422, "unprocessable_entity")["field"] == "confirm"
    client.execute("select 1")
    assert act("kill", {"confirm": "app"})[0] == 204
    with pytest.raises(psycopg.OperationalError):
        client.execute("select 1")
    assert act("resume")[0] == 204
    other = pooler.connect()
    other.execute("select 1")
    client_id = web.get("/api/v1/clients?database=app")["clients"][0]["id"]
    assert web.ask("POST", f"/api/v1/clients/{client_id}/kill")[0] == 204
    with pytest.raises(psycopg.OperationalError):
        other.execute("select 1")
    panel.is_refused(web.ask("POST", f"/api/v1/clients/{client_id}/kill"), 404, "not_found", "client not found")


def test_a_pause_that_waits_says_so(weir):
    pooler, web = panel.start(weir)
    client = pooler.connect()
    with client.transaction():
        client.execute("select 1")
        assert web.ask("POST", "/api/v1/databases/app/pause")[0] == 202
        assert web.get("/api/v1/clients?database=app")["clients"]
    host.eventually(lambda: pooler.pool()["sv_active"] == 0)
    assert web.ask("POST", "/api/v1/databases/app/resume")[0] == 204


def samples(web, count, path="/api/v1/live"):
    """The first events of the stream."""
    connection = http.client.HTTPConnection("127.0.0.1", web.port, timeout=20)
    connection.request("GET", path, headers={"Authorization": f"Bearer {web.token}"})
    answer = connection.getresponse()
    assert (answer.status, answer.headers.get_content_type()) == (200, "text/event-stream")
    found = []
    while len(found) < count:
        line = answer.readline().decode()
        assert line, "the stream ended"
        if line.startswith("data:"):
            found.append(json.loads(line[5:]))
    connection.close()
    return found


def test_live_figures_and_their_past(weir):
    pooler, web = panel.start(weir)
    clients = [pooler.connect() for _ in range(3)]

    def work():
        for client in clients:
            client.execute("select 1")
        sample = samples(web, 1, "/api/v1/live?database=app")[0]
        assert {one["database"] for one in sample["databases"]} == {"app"}
        return sample if sample["databases"][0]["xact_rate"] > 0 else None

    sample = host.eventually(work, timeout=30)
    database = sample["databases"][0]
    assert database["xact_us"]["p50"] > 0 and database["query_rate"] > 0 and database["errors_rate"] == 0
    assert sample["pools"][0]["user"] == "alice" and sample["pools"][0]["cl_active"] == 3
    assert sample["totals"]["clients"] >= 3 and sample["totals"]["rss_bytes"] > 1 << 20
    past = web.get("/api/v1/history?database=app&seconds=600")
    assert past["step_seconds"] == 1 and {len(series) for series in past["series"].values()} == {600}
    assert any(rate for rate in past["series"]["xact_rate"]) and past["series"]["cl_active"][-1] == 3
    assert "clients" in web.get("/api/v1/history?seconds=5")["series"]
    every = samples(web, 2)
    assert every[1]["t"] > every[0]["t"]


def test_more_streams_than_allowed_are_told_so(weir):
    _, web = panel.start(weir)
    head = f"GET /api/v1/live HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {web.token}\r\n\r\n".encode()
    streams = []
    try:
        statuses = []
        for _ in range(210):
            streams.append(socket.create_connection(("127.0.0.1", web.port), timeout=20))
            streams[-1].sendall(head)
            statuses.append(streams[-1].recv(200).split()[1])
        assert statuses.count(b"200") == 200 and statuses.count(b"503") == 10
        assert web.get("/api/v1/session")
    finally:
        for stream in streams:
            stream.close()

    def has_room():
        """Those that were closed may count for a moment."""
        with contextlib.suppress(AssertionError):
            return samples(web, 1)

    host.eventually(has_room)


@pytest.mark.parametrize("io_driver", ["epoll"])
def test_no_operation_leaves_out_of_account_what_it_does_not_know(weir):
    """Each operation of the API, with a parameter and a field that it does not have."""
    _, web = panel.start(weir)
    paths = web.get("/api/v1/openapi.json")["paths"]
    for path, methods in paths.items():
        if not path.startswith(("/api/v1/", "/v2/")):
            continue
        for method, operation in methods.items():
            address = path.replace("{verb}", "pause").replace("{id}", "1").replace("{name}", "app")
            refused = lambda *asked: panel.is_refused(web.ask(method.upper(), *asked), 422, "unprocessable_entity")["field"]  # noqa: B023, E731
            assert refused(f"{address}?no%20such=1") == "no such", (method, path)
            if "requestBody" in operation:
                assert operation["requestBody"]["content"]["application/json"]["schema"], path
            assert refused(address, {"no such": 1}) == "no such", (method, path)
    for name in ("host", "cluster"):
        wish = {"name": "new-pool", "db": "app", "user": None, "mode": "transaction", "size": 2, name: "elsewhere"}
        for method, path in (("POST", "/api/v1/pools"), ("PUT", "/api/v1/pools/app"), ("POST", "/api/v1/pools?preview=true")):
            assert panel.is_refused(web.ask(method, path, wish), 422, "unprocessable_entity", name)["field"] == name
    assert web.ask("POST", "/api/v1/databases/app/reconnect", {})[0] == 204
    panel.is_refused(web.ask("POST", "/api/v1/databases/app/reconnect", "now"), 422, "unprocessable_entity", "takes no body")
    assert web.ask("GET", "/healthz?probe=1", token=None)[0] == 200


def test_parameters_that_make_no_sense_are_refused(weir):
    _, web = panel.start(weir)
    for address in ("clients?shard=x", "servers?limit=-1", "pools?limit=many", "queries?limit=x"):
        panel.is_refused(web.ask("GET", f"/api/v1/{address}"), 400, "bad_request")
