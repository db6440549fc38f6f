"""SHOW HOSTS, SHOW CLUSTERS, DETACH and ATTACH, and the metrics of hosts: entries whose reads go to standbys (`read_write_split`)."""

import threading

import psycopg
import pytest

import browser
import host
import panel
from split_cluster import STANDBYS, ready, where
from test_panel_access import key
from test_takeover import reboot

pytestmark = [pytest.mark.weir_only, pytest.mark.every_version, pytest.mark.any_driver]


def rows(pooler, cluster):
    """SHOW HOSTS by the names of the servers."""
    ports = {server.port: name for name, server in cluster.servers.items()}
    return {ports[row["port"]]: row for row in pooler.console("SHOW HOSTS")}


def states(pooler, cluster):
    return {name: row["state"] for name, row in rows(pooler, cluster).items()}


def summary(pooler):
    (row,) = pooler.console("SHOW CLUSTERS")
    return row


ALL_WELL = {"primary": "primary", "standby1": "standby", "standby2": "standby"}


def start(weir, cluster, **settings):
    pooler = weir(databases={"app": cluster.entry()}, default_pool_size=4, **settings)
    return pooler, ready(pooler, cluster)


def reads(pooler, cluster):
    return {name: row["reads"] for name, row in rows(pooler, cluster).items()}


class Readers:
    """Clients that read without a pause, and what they were told that was no answer."""

    def __init__(self, pooler, count=4):
        self.pooler, self.errors, self.answers, self.over = pooler, [], 0, threading.Event()
        self.threads = [threading.Thread(target=self.run, daemon=True) for _ in range(count)]

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        host.eventually(lambda: self.answers > 50)
        return self

    def __exit__(self, *failure):
        self.over.set()
        for thread in self.threads:
            thread.join(30)

    def run(self):
        try:
            connection = self.pooler.connect()
            while not self.over.is_set():
                assert connection.execute("select b from t where a = 1").fetchone()
                self.answers += 1
        except Exception as error:  # noqa: BLE001 (whatever it is, the test says it)
            self.errors.append(repr(error))

    def more(self, count=100):
        """So many reads have begun and ended since."""
        goal = self.answers + count
        host.eventually(lambda: self.answers >= goal or self.errors)
        assert self.errors == []


def test_hosts_have_states_positions_and_lag(weir, cluster):
    pooler = weir(databases={"app": cluster.entry()}, default_pool_size=4)
    assert set(states(pooler, cluster).values()) == {"unknown"} and summary(pooler)["state"] == "unknown"
    client = ready(pooler, cluster)
    assert states(pooler, cluster) == ALL_WELL
    client.execute("update t set b = 1 where a = 1")
    written = cluster.primary.value("select pg_current_wal_insert_lsn()")

    def has_all(row):
        return row["replay_lsn"] and cluster.primary.value(f"select '{row['replay_lsn']}' >= '{written}'::pg_lsn")

    host.eventually(lambda: all(has_all(row) for row in rows(pooler, cluster).values()))
    host.eventually(lambda: [rows(pooler, cluster)[name]["lag_bytes"] for name in sorted(STANDBYS)] == [0, 0])
    found = rows(pooler, cluster)
    assert all((row["database"], row["host"], row["timeline"], row["detached"]) == ("app", "127.0.0.1", 1, 0) for row in found.values())
    assert all(row["since"] and row["last_error"] is None for row in found.values()), found
    assert found["primary"]["lag_ms"] is None and found["standby1"]["lag_ms"] <= 2_000
    assert all(row["server_active"] + row["server_idle"] >= 1 for row in found.values()), found
    before = reads(pooler, cluster)
    for _ in range(10):
        client.execute("select 1", prepare=False)
    after = reads(pooler, cluster)
    assert sum(after[name] - before[name] for name in STANDBYS) == 10 and after["primary"] == 0
    system = cluster.primary.value("select system_identifier from pg_control_system()")
    assert summary(pooler) == {
        "database": "app", "hosts": 3, "standbys": 2, "primary": f"127.0.0.1:{cluster.primary.port}", "timeline": 1,
        "system_identifier": str(system), "state": "ok", "detail": "Nothing to do.",
        "topology": "probe", "topology_state": None, "topology_detail": None,
    }


def test_a_standby_that_does_not_replay_lags(weir, cluster):
    pooler, client = start(weir, cluster)
    cluster.standbys[0].query("select pg_wal_replay_pause()")
    client.execute("update t set b = 2 where a = 1")
    client.execute("insert into t select generate_series(10, 5000), 0")

    def lags():
        row = rows(pooler, cluster)["standby1"]
        return (row["lag_bytes"] or 0) > 100_000 and (row["lag_ms"] or 0) > 1_500

    host.eventually(lags, timeout=20)
    assert rows(pooler, cluster)["standby2"]["lag_bytes"] == 0
    cluster.standbys[0].query("select pg_wal_replay_resume()")
    host.eventually(lambda: rows(pooler, cluster)["standby1"]["lag_bytes"] == 0, timeout=20)


def test_a_standby_that_is_stopped_is_down_and_comes_back(weir, cluster):
    pooler, client = start(weir, cluster, server_login_retry=1)
    cluster.standbys[0].stop()
    host.eventually(lambda: states(pooler, cluster) == {**ALL_WELL, "standby1": "down"}, timeout=20)
    host.eventually(lambda: "refused" in rows(pooler, cluster)["standby1"]["last_error"])
    assert rows(pooler, cluster)["standby1"]["replay_lsn"] is None
    found = summary(pooler)
    assert (found["state"], found["standbys"]) == ("ok", 1)
    assert f"127.0.0.1:{cluster.standbys[0].port}" in found["detail"]
    assert {where(cluster, client) for _ in range(4)} == {"standby2"}
    cluster.standbys[1].stop()
    host.eventually(lambda: summary(pooler)["state"] == "no standby", timeout=20)
    assert where(cluster, client) == "primary"
    for standby in cluster.standbys:
        standby.start()
    host.eventually(lambda: states(pooler, cluster) == ALL_WELL, timeout=30)
    assert all(row["last_error"] is None for row in rows(pooler, cluster).values())
    host.eventually(lambda: {where(cluster, client), where(cluster, client)} == STANDBYS, timeout=20)


def test_detach_moves_all_reads_away_and_attach_brings_them_back(weir, cluster):
    pooler, _client = start(weir, cluster)
    name = f"127.0.0.1:{cluster.standbys[0].port}"
    with Readers(pooler) as readers:
        assert pooler.console(f"DETACH app {name}") == "DETACH"
        before = reads(pooler, cluster)
        readers.more()
        after = reads(pooler, cluster)
        assert after["standby1"] == before["standby1"] and after["standby2"] > before["standby2"]
        row = rows(pooler, cluster)["standby1"]
        assert (row["state"], row["detached"]) == ("detached", 1) and row["since"]

        def is_left():
            row = rows(pooler, cluster)["standby1"]
            return row["server_active"] + row["server_idle"] + row["server_login"] == 0

        host.eventually(is_left)
        host.eventually(lambda: cluster.standbys[0].value("select count(*) from pg_stat_activity where usename = 'alice'") == 0)
        cluster.standbys[0].stop()
        readers.more()
        cluster.standbys[0].start()
        assert pooler.console(f"ATTACH app {name}") == "ATTACH"
        host.eventually(lambda: states(pooler, cluster) == ALL_WELL)
        before = reads(pooler, cluster)
        readers.more()
        host.eventually(lambda: reads(pooler, cluster)["standby1"] > before["standby1"])
    assert readers.errors == []


def test_without_a_host_that_is_attached_the_primary_serves_reads(weir, cluster):
    pooler, client = start(weir, cluster)
    for server in cluster.servers.values():
        assert pooler.console(f"DETACH app 127.0.0.1:{server.port}") == "DETACH"
    assert where(cluster, client) == "primary"
    assert where(cluster, client, "update t set b = {} where a = 1") == "primary"
    assert states(pooler, cluster) == {"primary": "primary", "standby1": "detached", "standby2": "detached"}
    assert rows(pooler, cluster)["primary"]["detached"] == 1
    found = summary(pooler)
    assert found["state"] == "no standby" and "ATTACH" in found["detail"]


def test_a_host_stays_detached_over_reload_and_takeover(weir, cluster):
    pooler, client = start(weir, cluster)
    pooler.console(f"DETACH app 127.0.0.1:{cluster.standbys[0].port}")
    pooler.reload(default_pool_size=5)
    assert {where(cluster, client) for _ in range(4)} == {"standby2"}
    reboot(pooler)
    assert rows(pooler, cluster)["standby1"]["state"] == "detached"
    assert where(cluster, client, "update t set b = {} where a = 1") == "primary", "the client is the same"
    host.eventually(lambda: where(cluster, client) == "standby2", timeout=20)
    assert {where(cluster, client) for _ in range(4)} == {"standby2"}
    pooler.console(f"ATTACH app 127.0.0.1:{cluster.standbys[0].port}")
    host.eventually(lambda: {where(cluster, client), where(cluster, client)} == STANDBYS, timeout=20)


@pytest.mark.parametrize("command, text", [
    ("DETACH", "a database is required"),
    ("DETACH app", "a host is required"),
    ("DETACH missing h", "no such database: missing"),
    ("DETACH app elsewhere", "no such host of database app: elsewhere"),
    ("ATTACH app 127.0.0.1:1", "no such host of database app: 127.0.0.1:1"),
    ("DETACH app 127.0.0.1", "127.0.0.1 has several ports, name one: 127.0.0.1:1000, 127.0.0.1:1001"),
    ("DETACH other 127.0.0.1", "database other does not use read_write_split"),
])  # fmt: skip
def test_what_is_no_host_is_not_detached(weir, pg, command, text):
    entry = "host=127.0.0.1,127.0.0.1 port=1000,1001 dbname=app read_write_split=1"
    pooler = weir(databases={"app": entry, "other": f"host=127.0.0.1 port={pg.port}"})
    with pytest.raises(psycopg.Error, match=text):
        pooler.console(command)


def test_the_panel_has_hosts(weir, cluster):
    pooler, web = panel.start(weir, databases={"app": cluster.entry(), "other": cluster.entry().replace("read_write_split=1", "")}, default_pool_size=4)
    assert [(row["state"], row["since"]) for row in web.get("/api/v1/hosts")["hosts"]] == [("unknown", None)] * 3
    ready(pooler, cluster)
    pooler.console(f"DETACH app 127.0.0.1:{cluster.standbys[1].port}")
    host.eventually(lambda: rows(pooler, cluster)["standby1"]["lag_bytes"] == 0)
    answer = web.get("/api/v1/hosts?database=app")
    assert [row["state"] for row in answer["hosts"]] == ["primary", "standby", "detached"]
    found = answer["hosts"][1]
    assert (found["database"], found["host"], found["port"], found["timeline"]) == ("app", "127.0.0.1", cluster.standbys[0].port, 1)
    assert found["lag_bytes"] == 0 and found["lag_seconds"] <= 2 and found["reads"] > 0 and found["since"].endswith("Z")
    (entry,) = answer["entries"]
    assert (entry["database"], entry["standbys"], entry["state"]) == ("app", 1, "ok")
    assert web.get("/api/v1/hosts?database=other") == {"entries": [], "hosts": []}


@pytest.mark.parametrize("io_driver", ["epoll"])
def test_the_panel_shows_hosts(weir, cluster, scratch):
    writes = cluster.entry().replace("read_write_split=1", "target_session_attrs=primary user=alice")
    databases = {"app": cluster.entry(), "other": "", "writes": writes}
    pooler = weir.prepared(databases=databases, default_pool_size=4, http_port=host.free_port(), http_auth_file="panel.auth")
    callers = {"operator": "read,operate", "looker": "read"}
    lines, tokens = zip(*(key(pooler, "token", name, scopes) for name, scopes in callers.items()))
    pooler._write("panel.auth", "".join(lines))
    pooler.start()
    web = panel.Panel(pooler, int(pooler.settings["http_port"])).wait_up()
    ready(pooler, cluster)
    names = [f"127.0.0.1:{standby.port}" for standby in cluster.standbys]

    def order(word):
        for name in names:
            pooler.console(f"{word} app {name}")

    def see_detached(wanted):
        found = [f"{row['host']}:{row['port']}" for row in pooler.console("SHOW HOSTS") if row["detached"]]
        assert found == wanted, found

    deeds = {
        "detach": lambda: order("DETACH"),
        "attach": lambda: order("ATTACH"),
        "see that one is detached": lambda: see_detached(names[:1]),
        "see that all are attached": lambda: see_detached([]),
    }
    _, found, _ = web.ask("GET", "/api/v1/hosts", token=tokens[1])
    assert {entry["database"]: entry["read_write_split"] for entry in found["entries"]} == {"app": True, "writes": False}
    browser.play("hosts", web, scratch, deeds, token=tokens[0], looker=tokens[1], standby=names[0])


def past(web, cluster, **query):
    """The history of hosts by the names of the servers: lag in bytes and in seconds as far as it is known, and states one after the other."""
    text = "".join(f"&{name}={value}" for name, value in query.items())
    answer = web.get(f"/api/v1/hosts/history?database=app{text}")
    ports = {f"127.0.0.1:{server.port}": name for name, server in cluster.servers.items()}
    for found in answer["hosts"]:
        assert len(found["lag_bytes"]) == len(found["lag_seconds"]) == len(answer["hosts"][0]["lag_bytes"])
    nothing = {"lag_bytes": [], "lag_seconds": [], "changes": []}  # of what was not sampled yet
    return answer, {name: nothing for name in ports.values()} | {ports[found["host"]]: found for found in answer["hosts"]}


def turns(found):
    return [change["state"] for change in found["changes"]]


def known(column):
    return [value for value in column if value is not None]


def test_the_panel_keeps_lag_and_states_of_hosts(weir, cluster):
    pooler = weir.prepared(databases={"app": cluster.entry("max_replica_lag=2")}, default_pool_size=4, server_login_retry=1, http_port=host.free_port(), state_dir="state")
    pooler.start()
    web = panel.Panel(pooler, int(pooler.settings["http_port"])).wait_up()
    client = ready(pooler, cluster)
    host.eventually(lambda: known(past(web, cluster)[1]["standby1"]["lag_bytes"])[-1:] == [0])
    cluster.standbys[0].query("select pg_wal_replay_pause()")
    client.execute("update t set b = 2 where a = 1")
    client.execute("insert into t select generate_series(10, 5000), 0")

    def has_grown():
        found = past(web, cluster)[1]["standby1"]
        seconds = known(found["lag_seconds"])[-3:]
        return known(found["lag_bytes"])[-1] > 100_000 and seconds == sorted(set(seconds)) and seconds[-1] > 3 and turns(found)[-1] == "lagging"

    host.eventually(has_grown, timeout=20)
    assert next(row for row in web.get("/api/v1/hosts?database=app")["hosts"] if row["port"] == cluster.standbys[0].port)["lagging"]
    cluster.standbys[0].query("select pg_wal_replay_resume()")
    host.eventually(lambda: turns(past(web, cluster)[1]["standby1"])[-2:] == ["lagging", "standby"], timeout=20)
    answer, found = past(web, cluster)
    assert answer["step_seconds"] == 1 and max(known(found["standby2"]["lag_seconds"])) < max(known(found["standby1"]["lag_seconds"]))
    assert known(found["primary"]["lag_bytes"]) == [] and turns(found["primary"])[-1] == "primary" and turns(found["standby2"])[-1] == "standby"

    pooler.console(f"DETACH app 127.0.0.1:{cluster.standbys[1].port}")
    host.eventually(lambda: turns(past(web, cluster)[1]["standby2"])[-2:] == ["standby", "detached"])
    assert any(mark["text"].startswith("DETACH") for mark in past(web, cluster)[0]["marks"])
    pooler.console(f"ATTACH app 127.0.0.1:{cluster.standbys[1].port}")
    host.eventually(lambda: turns(past(web, cluster)[1]["standby2"])[-1] == "standby", timeout=20)
    cluster.standbys[1].stop()
    host.eventually(lambda: turns(past(web, cluster)[1]["standby2"])[-2:] == ["standby", "down"], timeout=20)
    cluster.primary.stop()
    cluster.standbys[0].promote()
    client.execute("update t set b = 3 where a = 1")
    host.eventually(lambda: turns(past(web, cluster)[1]["standby1"])[-1] == "primary", timeout=20)
    host.eventually(lambda: past(web, cluster)[1]["standby1"]["changes"][-1]["timeline"] == 2, timeout=20)

    _, csv, headers = web.ask("GET", "/api/v1/hosts/history?database=app&format=csv")
    assert headers["Content-Type"].startswith("text/csv") and csv.splitlines()[0] == "time,host,state,timeline,lag_bytes,lag_seconds"
    name = f"127.0.0.1:{cluster.standbys[0].port}"
    assert any(f",{name},lagging,1," in line for line in csv.splitlines()), csv
    assert past(web, cluster, seconds=86400)[0]["step_seconds"] == 60
    assert "lagging" in turns(past(web, cluster, seconds=7200)[1]["standby1"])
    panel.is_refused(web.ask("GET", "/api/v1/hosts/history"), 400, "bad_request", "database")

    pooler.stop()
    pooler.start()
    web = panel.Panel(pooler, web.port).wait_up()
    web.first = web.token_path(count=2).read_text().strip()
    host.eventually(lambda: "lagging" in turns(past(web, cluster)[1]["standby1"]), timeout=20)


@pytest.mark.parametrize("io_driver", ["epoll"])
def test_the_panel_charts_the_lag_of_hosts(weir, cluster, scratch):
    databases = {"app": cluster.entry("max_replica_lag=2"), "other": ""}
    pooler, web = panel.start(weir, databases=databases, default_pool_size=4)
    client = ready(pooler, cluster)
    standby = cluster.standbys[0]

    def stop_replay():
        standby.query("select pg_wal_replay_pause()")
        client.execute("insert into t select generate_series(10, 5000), 0")

    deeds = {"stop replay": stop_replay, "resume replay": lambda: standby.query("select pg_wal_replay_resume()")}
    names = {name: f"127.0.0.1:{server.port}" for name, server in cluster.servers.items()}
    browser.play("lag", web, scratch, deeds, token=web.token, **names)


def test_the_api_detaches_and_attaches_hosts(weir, cluster):
    entries = {"app": cluster.entry(), "other": cluster.entry().replace("read_write_split=1", "")}
    pooler, web = panel.start(weir, databases=entries, default_pool_size=4)
    client = ready(pooler, cluster)
    first, second = (f"127.0.0.1:{standby.port}" for standby in cluster.standbys)

    def act(name, verb, database="app"):
        return web.ask("POST", f"/api/v1/databases/{database}/hosts/{name.replace(':', '%3A')}/{verb}")

    assert act(first, "detach")[0] == 204
    assert states(pooler, cluster)["standby1"] == "detached"
    assert {where(cluster, client) for _ in range(4)} == {"standby2"}
    assert act(first, "detach")[0] == 204, "as on the console"
    assert act(second, "detach")[0] == act(first, "attach")[0] == 204
    host.eventually(lambda: {where(cluster, client) for _ in range(4)} == {"standby1"})
    panel.is_refused(act("127.0.0.1", "detach"), 409, "conflict", "127.0.0.1 has several ports, name one:")
    panel.is_refused(act("db9", "detach"), 404, "not_found", "no such host of database app: db9")
    panel.is_refused(act(first, "detach", "other"), 409, "conflict", "database other does not use read_write_split")
    panel.is_refused(act(first, "detach", "nothing"), 404, "not_found", "no such database: nothing")
    panel.is_refused(act(first, "explode"), 404, "not_found")
    newest = web.get("/api/v1/audit")["entries"]
    done = [(entry["kind"], entry["pool"]) for entry in newest if entry["text"].endswith(f"{first.replace(':', '%3A')}/attach")]
    assert done == [("operation", "app")], newest


def test_metrics_of_hosts(weir, cluster):
    pooler, web = panel.start(weir, databases={"app": cluster.entry()}, default_pool_size=4)
    ready(pooler, cluster)
    pooler.console(f"DETACH app 127.0.0.1:{cluster.standbys[1].port}")
    host.eventually(lambda: rows(pooler, cluster)["standby1"]["lag_bytes"] == 0)
    _, text, _ = web.ask("GET", "/metrics")

    def of(name):
        labels = {f'weir_host_{name}{{database="app",host="127.0.0.1:{server.port}"}}': place for place, server in cluster.servers.items()}
        lines = (line.rsplit(" ", 1) for line in text.splitlines())
        return {labels[key]: float(value) for key, value in lines if key in labels}

    assert of("up") == {"primary": 1, "standby1": 1}
    assert of("is_standby") == {"primary": 0, "standby1": 1}
    assert of("detached") == {"primary": 0, "standby1": 0, "standby2": 1}
    assert of("replication_lag_wal_bytes") == {"standby1": 0}
    assert list(of("replication_lag_seconds")) == ["standby1"]
    assert of("reads_total")["primary"] == 0 and of("reads_total")["standby1"] > 0
