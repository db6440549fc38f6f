"""RELOAD under way: what shrinks, what goes, what changes, and what must not happen to those who are connected."""

import psycopg
import pytest

import host
import wire


def test_a_shrunk_pool_closes_what_is_too_many(weir, pg):
    pooler = weir(default_pool_size=6)
    clients = [pooler.connect() for _ in range(6)]
    for client in clients:
        client.execute("begin")
    assert pg.count() == 6
    pooler.reload(default_pool_size=2)
    for client in clients:
        assert client.execute("select 1").fetchone() == (1,)
        client.execute("commit")
    for _ in range(3):
        for client in clients:
            client.execute("begin")
            client.execute("commit")
    host.eventually(lambda: pg.count() <= 2)


def test_a_shrunk_pool_keeps_what_it_may_have(weir, pg):
    pooler = weir(default_pool_size=6)
    clients = [pooler.connect() for _ in range(6)]
    for client in clients:
        client.execute("begin")
    for client in clients:
        client.execute("commit")
    pids = {row[0] for row in pg.query("select pid from pg_stat_activity where usename = 'alice'")}
    pooler.reload(default_pool_size=2)
    host.eventually(lambda: pg.count() == 2)
    assert clients[0].execute("select pg_backend_pid()").fetchone()[0] in pids
    assert len(pooler.wait_log("closing because: too many servers in the pool", count=4)) == 4


def test_a_grown_pool_serves_those_who_wait(weir, pg):
    pooler = weir(default_pool_size=1)
    pooler.connect().execute("begin")
    with wire.Raw(pooler.port).login() as raw:
        raw.send(wire.query("select 1"))
        host.eventually(lambda: pooler.pool()["cl_waiting"] == 1)
        pooler.reload(default_pool_size=2)
        assert wire.kinds(raw.read_until("Z")) == "TDCZ"


def test_a_removed_database(weir, pg):
    pooler = weir()
    client = pooler.connect("other")
    client.execute("select 1")
    del pooler.databases["other"]
    pooler.reload()
    with pytest.raises(psycopg.OperationalError, match="no such database|database removed|server closed the connection"):
        pooler.value("select 1", database="other")
    host.eventually(lambda: pg.count("datname = 'other'") == 0)
    with pytest.raises(psycopg.OperationalError):
        client.execute("select 1")
    assert pooler.value("select 1") == 1


def test_an_added_database(weir):
    pooler = weir()
    pooler.databases["added"] = "dbname=other"
    pooler.reload()
    assert pooler.value("select current_database()", database="added") == "other"


def test_a_changed_target_moves_the_next_transaction(weir, pg):
    pooler = weir(databases={"app": "dbname=app"})
    client = pooler.connect()
    client.execute("begin")
    assert client.execute("select current_database()").fetchone() == ("app",)
    pooler.databases["app"] = "dbname=other"
    pooler.reload()
    assert client.execute("select current_database()").fetchone() == ("app",)
    client.execute("commit")
    assert client.execute("select current_database()").fetchone() == ("other",)
    pooler.wait_log("closing because: (database configuration changed|obsolete connection|close_needed)")


def test_no_change_changes_nothing(weir):
    pooler = weir(default_pool_size=1)
    client = pooler.connect()
    server = client.execute("select pg_backend_pid()").fetchone()
    for _ in range(5):
        pooler.reload()
    assert client.execute("select pg_backend_pid()").fetchone() == server


def test_a_changed_client_password(weir):
    pooler = weir(auth_type="scram-sha-256", userlist={"alice": "old", "admin": ""})
    client = pooler.connect(password="old")
    pooler.write_userlist({"alice": "new", "admin": ""})
    pooler.signal(1)
    host.eventually(lambda: password_works(pooler, "new"))
    assert not password_works(pooler, "old")
    assert client.execute("select 1").fetchone() == (1,)  # who is in, stays


def test_a_changed_server_password(weir, pg):
    pg.query("alter role scramuser password 'first'")
    try:
        pooler = weir(databases={"app": "user=scramuser password=first"}, server_login_retry=1)
        assert pooler.value("select 1") == 1
        pg.query("alter role scramuser password 'second'")
        pooler.databases["app"] = "user=scramuser password=second"
        pooler.reload()
        pooler.console("RECONNECT")
        assert pooler.value("select 1") == 1
    finally:
        pg.query("alter role scramuser password 'scram secret'")


@pytest.mark.since("1.25")
def test_a_bad_value_keeps_the_old_ones(weir):
    pooler = weir(default_pool_size=3)
    pooler.write_ini(default_pool_size="many")
    expect_reload_to_fail(pooler)
    rows = {row["key"]: row["value"] for row in pooler.console("SHOW CONFIG")}
    assert rows["default_pool_size"] == "3"
    assert pooler.value("select 1") == 1
    pooler.reload(default_pool_size=4)


def test_a_missing_file_keeps_everything(weir):
    pooler = weir()
    text = pooler.ini.read_text()
    pooler.ini.unlink()
    expect_reload_to_fail(pooler)
    assert pooler.value("select 1") == 1
    pooler.ini.write_text(text)
    assert pooler.console("RELOAD") == "RELOAD"


def expect_reload_to_fail(pooler):
    """Since 1.25 RELOAD says so, with SQLSTATE F0000; before that only the log did."""
    try:
        pooler.console("RELOAD")
    except psycopg.errors.ConfigFileError as failure:
        assert "RELOAD failed, see logs for additional details" in str(failure)


def test_hundreds_of_databases_and_reloads(weir):
    databases = {f"db{number}": "dbname=app" for number in range(900)}
    pooler = weir(databases=databases)
    client = pooler.connect("db7")
    for _ in range(10):
        pooler.reload()
        assert client.execute("select 1").fetchone() == (1,)
    assert len(pooler.console("SHOW DATABASES")) == 901


def test_pool_size_up_and_down_under_load(weir):
    """Reliability table, fault 23: hundreds of reloads, no client hurt."""
    pooler = weir(default_pool_size=20)
    programs = pooler.postgres.bindir
    bench = host.start(
        [programs / "pgbench", "-n", "-f", script(pooler), "-c", 20, "-j", 2, "-T", 4, pooler.uri()],
        stdout=open(pooler.directory / "pgbench.log", "w"),
        stderr=open(pooler.directory / "pgbench.err", "w"),
    )
    sizes = [20, 1, 10, 2]
    while bench.poll() is None:
        sizes.append(sizes.pop(0))
        pooler.reload(default_pool_size=sizes[0])
    assert bench.returncode == 0, (pooler.directory / "pgbench.err").read_text()
    assert "number of failed transactions: 0" in (pooler.directory / "pgbench.log").read_text()


def script(pooler):
    path = pooler.directory / "one.sql"
    path.write_text("select 1;\n")
    return path


def password_works(pooler, password):
    try:
        psycopg.connect(**pooler.address(password=password)).close()
        return True
    except psycopg.OperationalError:
        return False


def test_includes(weir):
    """%include reads another file in place, relative to where the pooler was started."""
    pooler = weir.prepared(extra="%include more.ini")
    more = pooler.directory / "more.ini"
    more.write_text("default_pool_size = 7\n[databases]\nincluded = dbname=other host=127.0.0.1 port=%d\n" % pooler.postgres.port)
    pooler.start()
    assert pooler.value("select current_database()", database="included") == "other"
    rows = {row["key"]: row["value"] for row in pooler.console("SHOW CONFIG")}
    assert rows["default_pool_size"] == "7"


@pytest.mark.parametrize(
    "line",
    ["    default_pool_size = 5", "default_pool_size=5", "default_pool_size = 4\ndefault_pool_size = 5", "; x\n# y\n\n default_pool_size=5"],
)
def test_the_dialect_of_the_ini(weir, line):
    pooler = weir(extra=line)
    rows = {row["key"]: row["value"] for row in pooler.console("SHOW CONFIG")}
    assert rows["default_pool_size"] == "5"


def test_sections_may_come_again_and_values_may_be_quoted(weir):
    pooler = weir.prepared()
    port = pooler.postgres.port
    again = f"pidfile =\n  [databases]\n    quoted = host='127.0.0.1' port = {port} dbname='app' connect_query='select ''it''''s'''\n"
    pooler.extra = again
    pooler.write_ini()
    pooler.start()
    assert pooler.value("select 1", database="quoted") == 1


@pytest.mark.weir_only
def test_names_quoted_as_in_sql(weir):
    """PgBouncer's manual describes them for databases; its parser calls them a syntax error."""
    pooler = weir(databases={'"Mixed ""Case"" é"': "dbname=app", "plain": "dbname=other"})
    assert pooler.value("select current_database()", database='Mixed "Case" é') == "app"
    assert 'Mixed "Case" é' in [row["name"] for row in pooler.console("SHOW DATABASES")]
    pooler.reload(pool_mode="session")
    assert pooler.value("select current_database()", database='Mixed "Case" é') == "app"
    for command in ("PAUSE", "RESUME", "RECONNECT", "DISABLE", "ENABLE"):
        assert pooler.console(f'{command} "Mixed ""Case"" é"') == command


def test_another_file(weir):
    """conffile names the file of the next RELOAD, whether the console or a file says so."""
    pooler = weir()
    text = pooler.ini.read_text()
    other, third = pooler.directory / "other.ini", pooler.directory / "third.ini"
    third.write_text(f"{text}\ndefault_pool_size = 7\n")
    other.write_text(f"{text}\ndefault_pool_size = 8\nconffile = {third}\n")
    for file, size in ((other, "20"), (third, "8"), (third, "7")):
        if size == "20":
            pooler.console(f"SET conffile = '{other}'")
        else:
            pooler.console("RELOAD")
        rows = {row["key"]: (row["value"], row["changeable"]) for row in pooler.console("SHOW CONFIG")}
        assert (rows["conffile"], rows["default_pool_size"][0]) == ((str(file), "yes"), size)


def test_less_than_nothing_is_no_limit(weir):
    """What PgBouncer's own files may say, and what its code makes of it."""
    names = ("max_db_connections", "max_user_connections", "min_pool_size", "reserve_pool_size")
    pooler = weir(**dict.fromkeys(names, -1), databases={"app": "pool_size=-5 max_db_connections=0 min_pool_size=-2"})
    assert pooler.value("select 1") == 1


def test_a_limit_of_nothing_follows_the_global_one(weir):
    pooler = weir(
        max_db_connections=1,
        max_user_connections=2,
        query_wait_timeout=5,
        databases={"app": "max_db_connections=0", "other": "max_db_connections=5"},
        users={"bob": "max_user_connections=0"},
    )
    clients = [pooler.connect(autocommit=False) for _ in range(2)]
    clients[0].execute("select 1")
    with pytest.raises(psycopg.OperationalError, match="query_wait_timeout"):
        clients[1].execute("select 1")
    clients = [pooler.connect("other", user="bob", autocommit=False) for _ in range(3)]
    for client in clients[:2]:
        client.execute("select 1")
    with pytest.raises(psycopg.OperationalError, match="query_wait_timeout"):
        clients[2].execute("select 1")
