"""Pools by the panel's API: made, looked at, changed and deleted, with the real file and real clients; and everything that is refused."""

import os
import re
import socket
import subprocess
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime

import psycopg
import pytest

import browser
import host
import panel
from split_cluster import STANDBYS, ready, where
from test_panel_access import key

pytestmark = [pytest.mark.weir_only, pytest.mark.any_driver]

WISH = {"name": "test-pool", "db": "app", "user": None, "mode": "transaction", "size": 5}


def started(weir, **settings):
    """A pooler with its panel and a pools file, before one server."""
    return panel.start(weir, **{"pools_file": "pools.ini", **settings})


def file(pooler):
    return pooler.directory / "pools.ini"


def cluster(web):
    [only] = web.get("/api/v1/clusters")["clusters"]
    return only


def create(web, **changes):
    status, body, _ = web.ask("POST", "/api/v1/pools", {**WISH, **changes})
    assert status == 201, body
    return body["pool"]


def psql(pooler, uri, statement="select current_database()"):
    command = [pooler.postgres.bindir / "psql", "-X", "-A", "-t", "-c", statement, uri]
    return host.run(command, env={**os.environ, "PGUSER": "alice"}).stdout.strip()


def test_a_pool_from_the_form_to_the_client(weir, pg):
    pooler, web = started(weir)
    pool = create(web, db="other", size=1)
    assert (pool["origin"], pool["writable"], pool["size"], pool["mode"]) == ("panel", True, 1, "transaction")
    whole = web.get("/api/v1/pools/test-pool")["pool"]
    assert whole["connection"]["uri"] == f"postgres://127.0.0.1:{pooler.port}/test-pool?sslmode=disable"
    assert psql(pooler, whole["connection"]["uri"]) == "other"
    host.eventually(lambda: web.get("/api/v1/pools/test-pool")["pool"]["live"]["servers_idle"] == 1)
    assert [part["user"] for part in web.get("/api/v1/pools/test-pool")["pool"]["parts"]] == ["alice"]
    assert file(pooler).stat().st_mode & 0o777 == 0o600
    names = {pool["name"]: pool["origin"] for pool in web.get("/api/v1/pools")["pools"]}
    assert names == {"app": "file", "other": "file", "test-pool": "panel"}


def test_it_survives_a_restart(weir, pg):
    pooler, web = started(weir)
    create(web)
    pooler.stop()
    pooler.log_path.unlink()
    pooler.start()
    again = panel.Panel(pooler, web.port).wait_up()
    assert again.get("/api/v1/pools/test-pool")["pool"]["size"] == 5
    assert pooler.value("select 1", database="test-pool") == 1


def test_a_change_drops_nobody(weir, pg):
    pooler, web = started(weir)
    create(web, size=1)
    inside, idle = pooler.connect("test-pool"), pooler.connect("test-pool")
    inside.execute("begin")
    for change in ({"size": 3}, {"mode": "session"}, {"user": "bob"}, {"db": "other"}):
        status, body, _ = web.ask("PUT", "/api/v1/pools/test-pool", {**WISH, "size": 3, **change})
        assert status == 200, body
        assert inside.execute("select current_user").fetchone() == ("alice",), "the transaction keeps its server"
    inside.execute("commit")
    assert idle.execute("select current_database()").fetchone() == ("other",)
    status, _, _ = web.ask("PUT", "/api/v1/pools/test-pool", {**WISH, "user": "bob"})
    assert status == 200
    assert pooler.value("select current_user", database="test-pool") == "bob"


def test_who_waits_gets_the_place_that_a_larger_pool_has(weir, pg):
    pooler, web = started(weir)
    create(web, size=1)
    pooler.connect("test-pool").execute("begin")
    psql_waits = subprocess.Popen(
        [pooler.postgres.bindir / "psql", "-X", "-A", "-t", "-c", "select 7", pooler.uri("test-pool")], stdout=subprocess.PIPE, text=True
    )
    host.eventually(lambda: web.get("/api/v1/pools/test-pool")["pool"]["live"]["clients_waiting"] == 1)
    assert web.ask("PUT", "/api/v1/pools/test-pool", {**WISH, "size": 2})[0] == 200
    assert psql_waits.communicate(timeout=20)[0].strip() == "7"


def test_a_deleted_pool_is_gone(weir, pg):
    pooler, web = started(weir)
    create(web)
    client = pooler.connect("test-pool")
    client.execute("select 1")
    assert web.ask("DELETE", "/api/v1/pools/test-pool")[0] == 204
    with pytest.raises(psycopg.OperationalError, match="database removed"):
        client.execute("select 1")
    with pytest.raises(psycopg.OperationalError, match="no such database"):
        pooler.connect("test-pool")
    panel.is_refused(web.ask("GET", "/api/v1/pools/test-pool"), 404, "not_found")
    panel.is_refused(web.ask("DELETE", "/api/v1/pools/test-pool"), 404, "not_found")
    assert pooler.value("select 1") == 1


def test_a_preview_shows_and_changes_nothing(weir, pg):
    pooler, web = started(weir)
    status, seen, _ = web.ask("POST", "/api/v1/pools?preview=true", WISH)
    assert status == 200, seen
    assert seen["diff"][-1]["before"] is None and seen["diff"][-1]["after"].startswith("test-pool = host=127.0.0.1 ")
    assert not file(pooler).exists()
    panel.is_refused(web.ask("GET", "/api/v1/pools/test-pool"), 404, "not_found")
    create(web)
    status, seen, _ = web.ask("PUT", "/api/v1/pools/test-pool?preview=true", {**WISH, "size": 6})
    [line] = seen["diff"]
    assert "pool_size=5" in line["before"] and "pool_size=6" in line["after"]
    assert web.get("/api/v1/pools/test-pool")["pool"]["size"] == 5


def test_the_budget_is_the_servers(weir, pg):
    limits = {name: int(pg.query(f"show {name}")[0][0]) for name in ("max_connections", "superuser_reserved_connections")}
    pooler, web = started(weir, default_pool_size=2)
    pooler.value("select 1")
    only = cluster(web)
    assert uuid.UUID(only["id"]).version == 8
    assert only["budget"]["known"] and only["budget"]["max_connections"] == limits["max_connections"]
    assert only["budget"]["reserved"] >= limits["superuser_reserved_connections"]
    assert only["budget"]["used_by_pools"] == 4 and {"app", "other", "postgres"} <= set(only["databases"])
    free = only["budget"]["free"]
    told = panel.is_refused(web.ask("POST", "/api/v1/pools", {**WISH, "size": free + 1}), 422, "unprocessable_entity", "more than the")
    assert told["field"] == "size"
    status, seen, _ = web.ask("POST", "/api/v1/pools?preview=true", {**WISH, "size": free})
    assert status == 200 and any("80 %" in warning for warning in seen["warnings"])


def test_a_server_that_cannot_be_asked_is_said_to_be_unknown(weir, pg):
    pooler, web = started(weir, databases={"app": "port=1"})
    assert not cluster(web)["budget"]["known"]
    status, seen, _ = web.ask("POST", "/api/v1/pools?preview=true", {**WISH, "size": 5000})
    assert status == 200 and "could not be queried" in seen["warnings"][0]


REFUSED = [
    ({"name": "ab"}, "name"),
    ({"name": "n" * 64}, "name"),
    ({"name": "a b c"}, "name"),
    ({"name": "<script>alert(1)</script>"}, "name"),
    ({"name": "test\npool = host=evil"}, "name"),
    ({"name": "pgbouncer"}, "name"),
    ({"name": "*"}, "name"),
    ({"name": "größe"}, "name"),
    ({"db": "no-such-database"}, "db"),
    ({"db": ""}, "db"),
    ({"db": "app\npgbouncer = host=evil"}, "db"),
    ({"user": "a\nb"}, "user"),
    ({"user": "u" * 64}, "user"),
    ({"mode": "transactions"}, "mode"),
    ({"mode": ""}, "mode"),
    ({"size": 0}, "size"),
    ({"size": -1}, "size"),
    ({"size": 2**62}, "size"),
    ({"cluster_id": str(uuid.uuid4())}, "cluster_id"),
]


def test_bad_input_names_its_field_and_changes_nothing(weir, pg):
    pooler, web = started(weir)
    pooler.value("select 1")
    for change, field in REFUSED:
        told = panel.is_refused(web.ask("POST", "/api/v1/pools", {**WISH, **change}), 422, "unprocessable_entity")
        assert told["field"] == field, (change, told)
    told = panel.is_refused(web.ask("PUT", "/api/v1/pools/app", {**WISH, "name": "other"}), 422, "unprocessable_entity", "cannot be renamed")
    assert told["field"] == "name"
    for body in ({**WISH, "size": "five"}, {**WISH, "size": 1.5}, {"name": "x"}, []):
        panel.is_refused(web.ask("POST", "/api/v1/pools", body), 422, "unprocessable_entity")
    panel.is_refused(web.ask("POST", "/api/v1/pools", "{", {"Content-Type": "application/json"}), 400, "bad_request")
    assert not file(pooler).exists()
    assert [pool["name"] for pool in web.get("/api/v1/pools")["pools"]] == ["app", "other"]


def test_names_that_are_taken_and_pools_that_are_not_ours(weir, pg):
    pooler, web = started(weir)
    create(web)
    ini = pooler.ini.read_text()
    told = panel.is_refused(web.ask("POST", "/api/v1/pools", WISH), 409, "conflict", r"pools.ini:3")
    assert told["field"] == "name"
    panel.is_refused(web.ask("POST", "/api/v1/pools", {**WISH, "name": "app"}), 409, "conflict", r"weir.ini:2")
    for method, body in (("PUT", {**WISH, "name": "app"}), ("DELETE", None)):
        panel.is_refused(web.ask(method, "/api/v1/pools/app", body), 403, "forbidden", r"weir.ini:2, which Weir does not write")
    assert pooler.ini.read_text() == ini


def test_without_a_pools_file_nothing_is_written(weir, pg):
    pooler, web = panel.start(weir)
    panel.is_refused(web.ask("POST", "/api/v1/pools", WISH), 403, "forbidden", "pools_file")


def test_a_file_that_was_broken_by_hand_stays_as_it_is(weir, pg):
    pooler, web = started(weir)
    create(web)
    broken = file(pooler).read_text() + "half a li\n"
    file(pooler).write_text(broken)
    for method, path, body in (("POST", "/api/v1/pools", {**WISH, "name": "second"}), ("DELETE", "/api/v1/pools/test-pool", None)):
        panel.is_refused(web.ask(method, path, body), 409, "conflict", r"pools.ini:4: syntax error")
    assert file(pooler).read_text() == broken
    assert pooler.value("select 1", database="test-pool") == 1


def test_a_directory_that_cannot_be_written(weir, pg):
    if not host.USER:
        pytest.skip("the files are the tests' own user's, who may always write them")
    pooler, web = started(weir, pools_file="closed/pools.ini", default_pool_size=2)
    closed = pooler.directory / "closed"
    closed.mkdir()
    closed.chmod(0o755)  # root's: the pooler may read, not write
    panel.is_refused(web.ask("POST", "/api/v1/pools", WISH), 500, "server_error", "Permission denied")
    panel.is_refused(web.ask("GET", "/api/v1/pools/test-pool"), 404, "not_found")
    assert list(closed.iterdir()) == []
    assert pooler.value("select 1") == 1


@pytest.mark.needs_root
def test_a_read_only_disk(weir, pg):
    pooler = weir.prepared(pools_file="disk/pools.ini", http_port=host.free_port())
    disk = pooler.directory / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "ro", "tmpfs", disk], capture_output=True, check=False)
    if mounted.returncode:
        disk.chmod(0o555)  # no mounts in this container: a directory of root's says the same but for the word
    try:
        pooler.start()
        web = panel.Panel(pooler, pooler.settings["http_port"]).wait_up()
        reason = "Permission denied" if mounted.returncode else "Read-only file system"
        panel.is_refused(web.ask("POST", "/api/v1/pools", WISH), 500, "server_error", reason)
        assert pooler.value("select 1") == 1
    finally:
        subprocess.run(["umount", disk], capture_output=True, check=False)


def test_two_at_once_do_not_both_win(weir, pg):
    pooler, web = started(weir)
    web.token  # told before the threads ask
    with ThreadPoolExecutor(8) as crowd:
        answers = list(crowd.map(lambda number: web.ask("POST", "/api/v1/pools", WISH)[0], range(8)))
    assert sorted(answers) == [201] + [409] * 7
    with ThreadPoolExecutor(8) as crowd:
        answers = list(crowd.map(lambda number: web.ask("POST", "/api/v1/pools", {**WISH, "name": f"pool-{number}", "size": 1})[0], range(8)))
    assert answers == [201] * 8
    assert file(pooler).read_text().count("pool_mode=transaction") == 9


def test_passwords_are_shown_where_they_are_known(weir, pg):
    users = {"alice": "s3cret/@", "bob": "SCRAM-SHA-256$4096:c2FsdHNhbHQ=$eA==:eA==", "admin": "x"}
    pooler, web = started(weir, auth_type="scram-sha-256", userlist=users)
    create(web, user="alice")
    details = web.get("/api/v1/pools/test-pool")["pool"]["connection"]
    assert details["password"] == "s3cret/@" and "password_reason" not in details
    assert psql(pooler, details["uri"], "select current_user") == "alice"
    create(web, name="bobs-pool", user="bob", size=1)
    details = web.get("/api/v1/pools/bobs-pool")["pool"]["connection"]
    assert details["password"] == "" and "verifier" in details["password_reason"]
    assert "s3cret" not in str(web.get("/api/v1/pools")) + pooler.log_text()


def test_digitaloceans_shapes(weir, pg):
    pooler, web = started(weir)
    status, body, headers = web.ask("GET", "/v2/databases")
    [only] = body["databases"]
    assert status == 200 and only["engine"] == "pg" and "app" in only["db_names"]
    assert headers["ratelimit-limit"] == "5000" and int(headers["ratelimit-remaining"]) < 5000 and int(headers["ratelimit-reset"]) > 0
    base = f"/v2/databases/{only['id']}"
    assert web.get(base)["database"]["id"] == only["id"]
    status, body, _ = web.ask("POST", f"{base}/pools", {"name": "backend-pool", "mode": "transaction", "size": 10, "db": "app", "user": "alice"})
    assert status == 201, body
    pool = body["pool"]
    assert {key: pool[key] for key in ("user", "name", "size", "db", "mode")} == {
        "user": "alice", "name": "backend-pool", "size": 10, "db": "app", "mode": "transaction",
    }
    assert pool["connection"] == {
        "protocol": "postgresql", "uri": f"postgres://alice@127.0.0.1:{pooler.port}/backend-pool?sslmode=disable", "database": "backend-pool",
        "host": "127.0.0.1", "port": pooler.port, "user": "alice", "password": "", "ssl": False,
    }
    assert web.get(f"{base}/pools/backend-pool")["pool"] == pool
    assert [one["name"] for one in web.get(f"{base}/pools")["pools"]] == ["app", "backend-pool", "other"]
    assert all(one["connection"]["uri"] for one in web.get(f"{base}/pools")["pools"])
    for path, key in (("/v2/databases", "databases"), (f"{base}/pools", "pools")):
        assert web.get(f"{path}?page=1&per_page=200") == web.get(path) and web.get(f"{path}?page=2") == {key: []}
        assert panel.is_refused(web.ask("GET", f"{path}?tag_name=x"), 422, "unprocessable_entity")["field"] == "tag_name"
    whole = {**pool, "private_connection": pool["connection"], "standby_connection": None, "mode": "session", "size": 4}
    for change in ({"mode": "session", "size": 4, "db": "app"}, whole):
        status, body, _ = web.ask("PUT", f"{base}/pools/backend-pool", change)
        assert (status, body) == (204, "")
    for change, field in (({"name": "other-pool"}, "name"), ({"host": "elsewhere"}, "host"), ({"version": "16"}, "version")):
        told = panel.is_refused(web.ask("PUT", f"{base}/pools/backend-pool", {**whole, **change}), 422, "unprocessable_entity")
        assert told["field"] == field
    assert web.get(f"{base}/pools/backend-pool")["pool"]["mode"] == "session"
    assert web.ask("DELETE", f"{base}/pools/backend-pool")[:2] == (204, "")
    for path in (f"{base}/pools/backend-pool", f"/v2/databases/{uuid.uuid4()}", f"/v2/databases/{uuid.uuid4()}/pools"):
        panel.is_refused(web.ask("GET", path), 404, "not_found", "could not be found")
    panel.is_refused(web.ask("GET", "/v2/databases", token=None), 401, "unauthorized", "Unable to authenticate you.")


def test_a_certificate_to_check_by(weir, pg, authorities):
    pooler, web = started(weir)
    panel.is_refused(web.ask("GET", "/api/v1/ca.crt"), 404, "not_found")
    assert not web.get("/api/v1/pools/app")["pool"]["connection"]["ca_available"]


def test_a_hanging_server_hangs_no_page(weir, pg):
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        pooler, web = started(weir, databases={"app": "", "hung": f"port={silent.getsockname()[1]}"})
        known = {one["port"]: one["budget"]["known"] for one in web.get("/api/v1/clusters", timeout=30)["clusters"]}
        assert not known[silent.getsockname()[1]]
        assert pooler.value("select 1") == 1
        panel.is_refused(web.ask("POST", "/api/v1/pools", WISH), 422, "unprocessable_entity", "several clusters")


def test_a_server_that_is_down_says_so(weir, pg):
    closed = host.free_port()
    pooler, web = started(weir, databases={"app": "", "away": f"port={closed} user=alice"}, query_wait_timeout=5)
    clusters = lambda: {one["port"]: one for one in web.get("/api/v1/clusters", timeout=30)["clusters"]}  # noqa: E731
    before = time.time()
    with pytest.raises(psycopg.OperationalError):
        pooler.connect("away")
    error = host.eventually(lambda: clusters()[closed].get("server_error"))
    assert re.search("connect failed: .*refused", error["message"], re.I), error
    assert web.get("/api/v1/pools/away")["pool"]["server_error"]["since"] == error["since"]
    assert before - 2 <= datetime.fromisoformat(error["since"]).timestamp() <= datetime.fromisoformat(error["last"]).timestamp()
    assert "server_error" not in web.get("/api/v1/pools/app")["pool"] and "server_error" not in clusters()[pg.port]

    pooler.databases["away"] = f"port={pg.port} dbname=app user=alice"
    pooler.write_ini()
    pooler.console("RELOAD")
    assert pooler.value("select 1", database="away") == 1
    assert "server_error" not in web.get("/api/v1/pools/away")["pool"]


def test_questions_of_the_panel_are_no_waiting_clients(weir, pg):
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        pooler, web = started(weir, databases={"app": "", "hung": f"port={silent.getsockname()[1]} user=alice"})
        with ThreadPoolExecutor(1) as other:
            asked = other.submit(web.get, "/api/v1/clusters", timeout=30)
            rows = lambda: [row for row in pooler.console("SHOW POOLS") if row["database"] == "hung"]  # noqa: E731
            [row] = host.eventually(lambda: [row for row in rows() if row["sv_login"]])
            assert not asked.done()
            assert (row["cl_waiting"], row["maxwait"], row["maxwait_us"]) == (0, 0, 0)


def test_a_forced_user_is_one_of_the_servers(weir, pg):
    _, web = started(weir)
    told = panel.is_refused(web.ask("POST", "/api/v1/pools?preview=true", {**WISH, "user": "nobody-here"}), 422, "unprocessable_entity", "may log in")
    assert told["field"] == "user"
    assert web.ask("POST", "/api/v1/pools?preview=true", {**WISH, "user": "alice"})[0] == 200


def test_queries_are_found_and_go_with_their_pool(weir, pg):
    pooler, web = started(weir, track_queries=1)
    create(web, user="alice")
    pooler.value("select 1 as Needle", database="test-pool")
    pooler.value("select 2 as other", database="test-pool")
    texts = lambda search: [row["text"] for row in web.get(f"/api/v1/queries?database=test-pool&search={search}")["queries"]]  # noqa: E731
    host.eventually(lambda: len(texts("")) == 2)
    [found] = texts("nEEDLE")
    assert "needle" in found.lower() and texts("nothing-has-this") == []
    assert web.ask("DELETE", "/api/v1/pools/test-pool")[0] == 204
    host.eventually(lambda: texts("") == [] and not [row for row in pooler.console("SHOW QUERIES") if row["database"] == "test-pool"])


def servers(cluster):
    """What the settings of a pool say of them."""
    hosts = cluster.servers.values()
    return {"host": ",".join("127.0.0.1" for _ in hosts), "port": ",".join(str(server.port) for server in hosts)}


def test_a_pool_made_here_sends_its_reads_to_standbys(weir, pg, cluster):
    pooler, web = started(weir)
    split = {**servers(cluster), "read_write_split": "1", "max_replica_lag": "10"}
    _, preview, _ = web.ask("POST", "/api/v1/pools?preview=true", {**WISH, "settings": split})
    assert preview["budget"]["used_by_pools"] == 5 and any("read_write_split=1" in line["after"] for line in preview["diff"])
    pool = create(web, settings=split)
    assert pool["settings"] == split and pool["cluster_id"] != web.get("/api/v1/pools/app")["pool"]["cluster_id"]
    client = ready(pooler, cluster, "test-pool")
    assert where(cluster, client, "update t set b = {} where a = 1") == "primary"
    host.eventually(lambda: [row["state"] for row in web.get("/api/v1/hosts?database=test-pool")["hosts"]] == ["primary", "standby", "standby"])

    weights = {"weight": "1,1,0", "max_replica_lag": None}
    status, body, _ = web.ask("PUT", "/api/v1/pools/test-pool", {**WISH, "size": 4, "settings": weights})
    assert (status, body["pool"]["size"]) == (200, 4), body
    assert body["pool"]["settings"] == {**servers(cluster), "read_write_split": "1", "weight": "1,1,0"}
    host.eventually(lambda: {where(cluster, client) for _ in range(4)} == {"standby1"}, timeout=20)
    status, body, _ = web.ask("PUT", "/api/v1/pools/test-pool", {**WISH, "settings": {"read_write_split": "0", "weight": "", "target_session_attrs": "primary"}})
    assert body["pool"]["settings"] == {**servers(cluster), "target_session_attrs": "primary"}
    host.eventually(lambda: where(cluster, client) == "primary")
    line = next(line for line in file(pooler).read_text().splitlines() if line.startswith("test-pool"))
    ports = servers(cluster)
    assert line == f"test-pool = host={ports['host']} port={ports['port']} read_write_split=0 dbname=app pool_size=5 pool_mode=transaction target_session_attrs=primary"


@pytest.mark.parametrize("name, value, says", [
    ("host", "h,i", "port: \"1,2,3\" is not one port, or one for each of 2 hosts"),
    ("weight", "1,2", "weight: \"1,2\" is not one weight, or one for each of 3 hosts"),
    ("read_consistency", "never", "read_consistency: \"never\" is not one of session, database, eventual"),
    ("query_cache", "much", "query_cache: \"much\" is not a size like 16MB"),
    ("target_session_attrs", "standby", "read_write_split sends writes to the primary, and target_session_attrs is standby"),
    ("topology", "patroni", "topology: \"patroni\" is neither probe nor patroni with URLs"),
    ("hosts", "h", "an entry of \\[databases\\] has no such key"),
    ("auth_query", "select 1", "is set in files only"),
    ("connect_query", "select 1", "is set in files only"),
    ("password", "secret", "is set in files only"),
])  # fmt: skip
def test_a_setting_that_cannot_be_is_refused_at_its_field(weir, pg, name, value, says):
    pooler, web = started(weir)
    split = {"host": "h,i,j", "port": "1,2,3", "read_write_split": "1"}
    field = "port" if name == "host" else name
    answer = web.ask("POST", "/api/v1/pools", {**WISH, "settings": {**split, name: value}})
    body = panel.is_refused(answer, 422, "unprocessable_entity", says)
    assert body["field"] == f"settings.{field}" and not file(pooler).exists()


def test_servers_that_no_entry_has_need_the_scope_of_passwords(weir, pg):
    pooler = weir.prepared(pools_file="pools.ini", http_port=host.free_port(), http_auth_file="panel.auth")
    line, token = key(pooler, "token", "maker", "read,admin")
    pooler._write("panel.auth", line)
    pooler.start()
    web = panel.Panel(pooler, int(pooler.settings["http_port"]), token=token).wait_up()
    elsewhere = {**WISH, "settings": {"host": "evil.example", "port": "5432"}}
    panel.is_refused(web.ask("POST", "/api/v1/pools", elsewhere), 403, "forbidden", "view_credentials is needed too")
    patroni = {**WISH, "settings": {"topology": "patroni http://evil.example:8008"}}
    panel.is_refused(web.ask("POST", "/api/v1/pools", patroni), 403, "forbidden", "view_credentials is needed too")
    known = {**WISH, "settings": {"host": "127.0.0.1,127.0.0.1", "port": str(pg.port), "read_write_split": "1"}}
    assert web.ask("POST", "/api/v1/pools", known)[0] == 201
    moved = {**WISH, "settings": {"host": "127.0.0.1,evil.example"}}
    panel.is_refused(web.ask("PUT", "/api/v1/pools/test-pool", moved), 403, "forbidden", "view_credentials is needed too")


def test_passwords_of_patronis_api_are_not_shown(weir, pg):
    pooler, web = started(weir)
    secret = "patroni http://u:s3cret@127.0.0.1:1"
    _, preview, _ = web.ask("POST", "/api/v1/pools?preview=true", {**WISH, "settings": {"topology": secret}})
    pool = create(web, settings={"topology": secret})
    assert pool["settings"] == {"topology": "patroni http://127.0.0.1:1"}
    # What is not sent, stays.
    status, body, _ = web.ask("PUT", "/api/v1/pools/test-pool", {**WISH, "settings": {"read_write_split": "1"}})
    assert status == 200 and "u:s3cret" in file(pooler).read_text()
    assert "s3cret" not in str((preview, body, web.get("/api/v1/pools")))


def test_the_settings_of_a_pool_are_those_of_the_table(weir, pg):
    _, web = started(weir)
    settings = {setting["name"]: setting for setting in web.get("/api/v1/settings/pools")["settings"]}
    wanted = "host port topology target_session_attrs read_write_split read_consistency read_after_write max_replica_lag weight query_cache query_cache_max_staleness query_cache_user"
    assert list(settings)[:12] == wanted.split()
    assert not {"dbname", "user", "password", "pool_size", "pool_mode", "auth_query", "auth_user", "auth_dbname", "connect_query"} & set(settings)
    assert settings["read_consistency"]["choices"] == ["session", "database", "eventual"] and settings["read_write_split"]["choices"] == ["0", "1"]
    assert settings["query_cache"]["default"] == "0" and settings["max_replica_lag"]["doc"]


@pytest.mark.parametrize("io_driver", ["epoll"])
def test_a_pool_with_standbys_is_made_in_the_browser(weir, pg, cluster, scratch):
    pooler, web = started(weir)

    def see_reads_on_standbys():
        client = ready(pooler, cluster, "split-pool")
        host.eventually(lambda: {where(cluster, client) for _ in range(6)} == STANDBYS)
        assert where(cluster, client, "update t set b = {} where a = 1") == "primary"

    def see_no_reads_on_the_last():
        with pooler.connect("split-pool") as client:
            host.eventually(lambda: {where(cluster, client) for _ in range(4)} == {"standby1"}, timeout=20)
        assert "weight=1,1,0" in file(pooler).read_text()

    deeds = {"see reads on standbys": see_reads_on_standbys, "see no reads on the last": see_no_reads_on_the_last}
    browser.play("split", web, scratch, deeds, token=web.token, **servers(cluster))
