"""SHOW: PgBouncer's columns, in its order and with types that its readers expect; rows that say what is so."""

import os
import socket
import threading
import tomllib
from pathlib import Path

import psycopg
import pytest

import conftest
import host
import wire
from running import SLEEP, wait_until_runs

SOCKET = (
    "type user database replication state addr port:int local_addr local_port:int connect_time request_time wait:int"
    " wait_us:int close_needed:int ptr link remote_pid:int tls application_name prepared_statements:int id:int"
)
COUNTED = (
    "server_assignment_count xact_count query_count {received} {sent} xact_time query_time wait_time"
    " {client_parse} {server_parse} {bind} {login}"
)


def stats(prefix, averages=False):
    """The columns of SHOW STATS and its kin: `avg_` names are shorter in one of them, longer in another."""
    long = {"received": "bytes_received", "sent": "bytes_sent"}
    total = {"received": "received", "sent": "sent"}
    average = {"received": "recv", "sent": "sent"}
    counts = {"client_parse": "client_parse_count", "server_parse": "server_parse_count", "bind": "bind_count"}
    counts |= {"login": "client_login_count"}
    if prefix:
        names = COUNTED.format(**(average if prefix == "avg_" else total), **counts).split()
        return " ".join(f"{prefix}{name}:number" for name in names)
    if averages:
        counts = {key: f"avg_{name}" for key, name in counts.items()}
    return " ".join(f"{name}:number" for name in COUNTED.format(**long, **counts).split())


VIEWS = {
    "CLIENTS": SOCKET,
    "SERVERS": SOCKET,
    "SOCKETS": SOCKET
    + " recv_pos:int pkt_pos:int pkt_remain:int send_pos:int send_remain:int pkt_avail:int send_avail:int",
    "ACTIVE_SOCKETS": SOCKET
    + " recv_pos:int pkt_pos:int pkt_remain:int send_pos:int send_remain:int pkt_avail:int send_avail:int",
    "DATABASES": "name host port:int database force_user pool_size:int min_pool_size:int reserve_pool_size:int"
    " server_lifetime:int pool_mode load_balance_hosts max_connections:int current_connections:int"
    " max_client_connections:int current_client_connections:int paused:int disabled:int",
    "POOLS": "database user cl_active:int cl_waiting:int cl_active_cancel_req:int cl_waiting_cancel_req:int sv_active:int"
    " sv_active_cancel:int sv_being_canceled:int sv_idle:int sv_used:int sv_tested:int sv_login:int maxwait:int"
    " maxwait_us:int pool_mode load_balance_hosts",
    "USERS": "name pool_size reserve_pool_size pool_mode max_user_connections:int current_connections:int"
    " max_user_client_connections:int current_client_connections:int",
    "STATS": f"database {stats('total_')} {stats('avg_')}",
    "STATS_TOTALS": f"database {stats('')}",
    "STATS_AVERAGES": f"database {stats('', averages=True)}",
    "TOTALS": "name value:number",
    "LISTS": "list items:int",
    "CONFIG": "key value default changeable",
    "STATE": "key value",
    "VERSION": "version",
    "MEM": "name size:int used:int free:int memtotal:int",
    "FDS": "fd:int task user database addr port:int cancel:int link:int client_encoding std_strings datestyle timezone"
    " password scram_client_key scram_server_key",
    "PEERS": "peer_id:int host port:int pool_size:int",
    "PEER_POOLS": "peer_id:int cl_active_cancel_req:int cl_waiting_cancel_req:int sv_active_cancel:int sv_login:int",
    "DNS_HOSTS": "hostname ttl:int addrs",
    "DNS_ZONES": "zonename serial:int count:int",
}
# pg_type OIDs: text; int4 or int8; int8 or numeric (PgBouncer's sums of counters are numeric).
TYPES = {"text": {25}, "int": {20, 23}, "number": {20, 1700}}
# PgBouncer gives these columns only from some version on; an older one is asked for the rest.
LATER = {"client_login_count": (1, 26)}


def expected(view):
    columns = [(name, kind or "text") for name, _, kind in (word.partition(":") for word in VIEWS[view].split())]
    version = conftest.PGBOUNCER or (9, 9)
    late = {suffix for suffix, since in LATER.items() if since > version}
    return [(name, kind) for name, kind in columns if not any(name.endswith(suffix) for suffix in late)]


@pytest.mark.since("1.24")
@pytest.mark.parametrize("view", VIEWS)
def test_columns_and_types(weir, view):
    pooler = weir()
    pooler.value("select 1")
    described = pooler.connect("pgbouncer", "admin").execute(f"SHOW {view}").description
    assert [column.name for column in described] == [name for name, _ in expected(view)]
    for column, (name, kind) in zip(described, expected(view)):
        assert column.type_code in TYPES[kind], f"{name} has the type {column.type_code}, not {kind}"


def test_pools_count_what_is_there(weir):
    pooler = weir(default_pool_size=2)
    busy = [wire.Raw(pooler.port).login() for _ in range(2)]
    for client in busy:
        client.simple("begin")
    waiting = wire.Raw(pooler.port).login()
    waiting.send(wire.query("select 1"))
    host.eventually(lambda: pooler.pool()["cl_waiting"] == 1)
    row = pooler.pool()
    assert (row["cl_active"], row["sv_active"], row["sv_idle"], row["pool_mode"]) == (2, 2, 0, "transaction")
    host.eventually(lambda: pooler.pool()["maxwait"] * 1_000_000 + pooler.pool()["maxwait_us"] > 100_000)
    busy[0].simple("commit")
    waiting.read_until("Z")
    row = pooler.pool()
    assert (row["sv_active"], row["sv_idle"], row["maxwait"]) == (1, 1, 0)


def test_who_asks_is_counted_in_the_consoles_pool(weir):
    pooler = weir()
    stays = pooler.connect("pgbouncer", "stats")
    assert stays.execute("SHOW VERSION").fetchone()
    assert pooler.pool("pgbouncer", "pgbouncer")["cl_active"] == 2


def test_clients_and_servers(weir, pg):
    pooler = weir(default_pool_size=1)  # A client that waits for long may be given a second server.
    client = pooler.connect(application_name="the app")
    client.execute("begin")
    pid = client.execute("select pg_backend_pid()").fetchone()[0]
    ours = next(row for row in pooler.console("SHOW CLIENTS") if row["user"] == "alice")
    (server,) = pooler.console("SHOW SERVERS")
    assert (ours["type"], ours["database"], ours["state"], ours["addr"]) == ("C", "app", "active", "127.0.0.1")
    assert ours["application_name"] == "the app"
    with socket.socket(fileno=os.dup(client.pgconn.socket)) as own:
        assert ours["port"] == own.getsockname()[1]
    assert (server["type"], server["state"], server["remote_pid"], server["port"]) == ("S", "active", pid, pg.port)
    assert (ours["link"], server["link"]) == (server["ptr"], ours["ptr"])
    client.execute("commit")
    ours = next(row for row in pooler.console("SHOW CLIENTS") if row["user"] == "alice")
    (server,) = pooler.console("SHOW SERVERS")
    assert server["state"] == "idle" and ours["link"] == server["link"] == ""


@pytest.mark.since("1.20")
def test_ids_count_up_over_clients_and_servers(weir):
    pooler = weir()
    pooler.connect().execute("begin")
    pooler.connect().execute("begin")
    rows = pooler.console("SHOW CLIENTS") + pooler.console("SHOW SERVERS")
    identities = [row["id"] for row in rows]
    assert len(set(identities)) == len(identities) and max(identities) <= 8
    assert any(row["database"] == "pgbouncer" for row in rows)


def test_stats_add_up(weir):
    pooler = weir(stats_period=1)
    with wire.Raw(pooler.port).login() as client:
        for statement in (*["select repeat('x', 1000)"] * 10, "begin", "select 1", "commit"):
            client.simple(statement)

    def row():
        found = next(row for row in pooler.console("SHOW STATS") if row["database"] == "app")
        return found if found["total_xact_count"] == 11 else None

    counted = host.eventually(row)
    assert counted["total_query_count"] == 13
    assert counted["total_sent"] > 10_000 and counted["total_received"] > 200
    assert counted["total_query_time"] > 0 and counted["total_xact_time"] >= counted["total_query_time"]
    totals = next(row for row in pooler.console("SHOW STATS_TOTALS") if row["database"] == "app")
    assert (totals["xact_count"], totals["query_count"]) == (11, 13)


def test_wait_time_is_counted(weir):
    pooler = weir(default_pool_size=1)
    holder, waiter = pooler.connect(), wire.Raw(pooler.port).login()
    holder.execute("begin")
    waiter.send(wire.query("select 1"))
    holder.execute("select pg_sleep(0.5)")
    holder.execute("commit")
    waiter.read_until("Z")
    row = next(row for row in pooler.console("SHOW STATS") if row["database"] == "app")
    assert row["total_wait_time"] > 400_000


def test_databases(weir, pg):
    pooler = weir(databases={"app": "pool_size=7 pool_mode=session", "alias": "dbname=other user=bob"})
    pooler.value("select 1", database="alias")
    rows = {row["name"]: row for row in pooler.console("SHOW DATABASES")}
    assert (rows["app"]["pool_size"], rows["app"]["pool_mode"], rows["app"]["database"]) == (7, "session", "app")
    assert (rows["alias"]["database"], rows["alias"]["force_user"], rows["alias"]["port"]) == ("other", "bob", pg.port)
    assert rows["alias"]["current_connections"] == 1
    assert rows["pgbouncer"]["pool_mode"] == "statement" if "pgbouncer" in rows else True


@pytest.mark.since("1.24")
def test_users(weir):
    pooler = weir(users={"bob": "pool_size=1 max_user_connections=9 pool_mode=session"})
    pooler.connect(user="alice").execute("select 1")
    rows = {row["name"]: row for row in pooler.console("SHOW USERS")}
    assert (rows["bob"]["pool_size"].strip(), rows["bob"]["max_user_connections"], rows["bob"]["pool_mode"]) == ("1", 9, "session")
    assert (rows["alice"]["pool_size"], rows["alice"]["current_client_connections"]) == ("", 1)
    assert "mallory" not in rows


@pytest.mark.since("1.24")
def test_users_count_their_connections_to_the_console(weir):
    pooler = weir()
    pooler.connect("pgbouncer", "admin").execute("show version")
    pooler.connect("pgbouncer", "stats").execute("show version")
    count = lambda: {row["name"]: row["current_client_connections"] for row in pooler.console("SHOW USERS")}
    # The one that asks is an admin's, too; those of earlier questions may not be gone yet.
    host.eventually(lambda: (count()["admin"], count()["stats"], count()["alice"]) == (2, 1, 0))


def test_config_names_every_setting(weir, pg):
    pooler = weir(default_pool_size=13)
    rows = {row["key"]: row for row in pooler.console("SHOW CONFIG")}
    assert (rows["default_pool_size"]["value"], rows["default_pool_size"]["changeable"]) == ("13", "yes")
    assert (rows["listen_port"]["value"], rows["listen_port"]["changeable"]) == (str(pooler.port), "no")
    assert (rows["pool_mode"]["value"], rows["pool_mode"]["default"]) == ("transaction", "session")
    assert len(rows) > 70


@pytest.mark.weir_only
def test_settings_without_effect_are_accepted_and_shown(weir):
    """What tunes PgBouncer's own innards is taken, shown and otherwise left alone."""
    said = {"pkt_buf": "75", "sbuf_loopcnt": "3", "job_name": "elsewhere"}
    shown = {row["key"]: row["value"] for row in weir(**said).console("SHOW CONFIG")}
    assert {name: shown[name] for name in said} == said


def test_config_names_the_driver_in_use(weir, io_driver):
    rows = {row["key"]: row["value"] for row in weir().console("SHOW CONFIG")}
    assert rows["io_driver"] == io_driver


@pytest.mark.weir_only
@pytest.mark.parametrize("io_driver", ["epoll"])
def test_a_driver_that_is_set_is_used(weir, io_driver):
    """Without the setting io_uring would be, where the kernel has it."""
    pooler = weir()
    assert pooler.console("SHOW CONFIG")
    assert "io driver: epoll" in pooler.log_text()


def test_lists(weir):
    pooler = weir()
    client = pooler.connect()
    client.execute("select 1")
    items = {row["list"]: row["items"] for row in pooler.console("SHOW LISTS")}
    assert (items["databases"], items["pools"], items["used_clients"], items["used_servers"]) == (3, 2, 2, 1)


@pytest.mark.since("1.19")
def test_state(weir):
    pooler = weir()
    state = lambda: {row["key"]: row["value"] for row in pooler.console("SHOW STATE")}
    assert state()["active"] == "yes"
    pooler.console("PAUSE")
    assert (state()["active"], state()["paused"]) == ("no", "yes")
    pooler.console("RESUME")
    assert (state()["active"], state()["paused"]) == ("yes", "no")


def test_help_is_a_notice(weir):
    client = weir().connect("pgbouncer", "admin")
    heard = []
    client.add_notice_handler(lambda diagnostics: heard.append(f"{diagnostics.message_primary}{diagnostics.message_detail}"))
    client.execute("SHOW HELP")
    assert all(word in heard[0] for word in ("SHOW", "POOLS", "RELOAD", "PAUSE", "SHUTDOWN", "KILL"))


@pytest.mark.parametrize("command", ["show version", "SHOW VERSION", "Show Version;", "  show   version  ;"])
def test_version_however_it_is_written(weir, command):
    (row,) = weir().console(command)
    assert row["version"].startswith("PgBouncer 1.")


def test_a_large_view(weir):
    """Rows by the thousand come whole."""
    pooler = weir(max_client_conn=1200)
    clients = [wire.Raw(pooler.port).login() for _ in range(1000)]
    rows = pooler.console("SHOW CLIENTS")
    assert len(rows) == len(clients) + 1
    assert len({row["port"] for row in rows}) == 1001


@pytest.mark.parametrize("unix", [False, True], ids=["tcp", "unix"])
def test_psql(weir, unix):
    pooler = weir()
    place = pooler.directory if unix else "127.0.0.1"
    done = pooler.psql("-c", "SHOW VERSION", database="pgbouncer", user="admin", host_name=place)
    assert done.stdout.startswith("PgBouncer 1.")


def test_the_owner_needs_no_password_on_the_unix_socket(weir):
    """User `pgbouncer`, same uid: whatever auth_type says, and whether or not admin_users names it."""
    pooler = weir(auth_type="scram-sha-256", admin_users="", userlist={})
    done = pooler.psql("-c", "SHOW VERSION", database="pgbouncer", user="pgbouncer", host_name=pooler.directory)
    assert done.stdout.startswith("PgBouncer 1.")
    pooler.wait_log("pgbouncer access from unix socket")
    over_tcp = pooler.psql("-c", "SHOW VERSION", database="pgbouncer", user="pgbouncer", check=False)
    assert over_tcp.returncode != 0


@pytest.mark.needs_root  # two users
def test_another_uid_is_not_the_owner(weir):
    pooler = weir(auth_type="scram-sha-256", admin_users="", userlist={})
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(host=str(pooler.directory), port=pooler.port, dbname="pgbouncer", user="pgbouncer", password="x")


@pytest.mark.weir_only
def test_no_view_shows_a_secret(weir):
    """Neither to stats users nor to admins."""
    views = [name for name in tomllib.loads((Path(__file__).parent / "proofs.toml").read_text())["console"] if name.startswith("SHOW ")]
    assert len(views) > 20
    word = "hunter2hunter2"
    pooler = weir(
        auth_type="plain",
        userlist={"alice": word, "admin": "a", "stats": "s"},
        databases={"app": f"user=bob password={word} connect_query='select 1 /* {word} */'"},
        auth_ldap_options=f'ldapserver=127.0.0.1 ldapbasedn="dc=x" ldapbinddn="cn=x" ldapbindpasswd="{word}"',
        otlp_endpoint="http://127.0.0.1:9/",
        otlp_headers=f"authorization={word}",
        track_queries=1,
    )
    held = pooler.connect(password=word)
    held.execute("begin")
    for user, password in (("admin", "a"), ("stats", "s")):
        console = pooler.connect("pgbouncer", user, password=password)
        for view in views:
            try:
                cursor = console.execute(view)
            except psycopg.errors.InsufficientPrivilege:
                assert user == "stats"
                continue
            shown = repr(cursor.fetchall()) if cursor.description else ""
            assert word not in shown, (user, view)


# --- views of sockets, descriptors and memory ----------------------------------------------------------------------
def test_sockets_are_clients_and_servers(weir):
    pooler = weir()
    held, idle = pooler.connect(), pooler.connect()
    idle.execute("select 1")
    held.execute("begin")
    sockets = pooler.console("SHOW SOCKETS")
    mine = [row for row in sockets if row["database"] == "app"]
    assert sorted((row["type"], row["state"]) for row in mine if row["user"] == "alice" and row["state"] == "active") == [
        ("C", "active"),
        ("S", "active"),
    ]
    assert all(row["pkt_remain"] == 0 for row in mine)
    active = [row["id"] for row in pooler.console("SHOW ACTIVE_SOCKETS") if row["database"] == "app"]
    assert set(active) <= {row["id"] for row in mine} and len(active) == 3


@pytest.mark.weir_only  # PgBouncer also sends the descriptors themselves, and blocks
def test_descriptors(weir):
    pooler = weir(default_pool_size=1)
    client = pooler.connect(client_encoding="LATIN1")
    client.execute("begin")
    rows = pooler.console("SHOW FDS")
    assert {(row["addr"], row["port"]) for row in rows if row["task"] == "pooler"} == {
        ("127.0.0.1", pooler.port),
        ("unix", pooler.port),
    }
    ours = next(row for row in rows if row["task"] == "client" and row["user"] == "alice")
    (server,) = [row for row in rows if row["task"] == "server"]
    assert (ours["link"], server["link"]) == (server["fd"], ours["fd"])
    assert (ours["client_encoding"], ours["std_strings"], ours["password"]) == ("LATIN1", "on", None)
    assert all(row["fd"] > 2 for row in rows)
    with pytest.raises(psycopg.Error, match="admin access needed"):
        pooler.console("SHOW FDS", user="stats")


def test_memory(weir):
    pooler = weir()
    pooler.value("select 1")
    rows = {row["name"]: row for row in pooler.console("SHOW MEM")}
    for name in ("client_cache", "server_cache", "pool_cache"):
        assert rows[name]["size"] > 0 and rows[name]["used"] > 0, name
        assert rows[name]["memtotal"] >= rows[name]["size"] * rows[name]["used"]


# --- sums and averages ------------------------------------------------------------------------------------------
def by_name(pooler, view, database="app"):
    return next(row for row in pooler.console(f"SHOW {view}") if row["database"] == database)


@pytest.mark.since("1.24")
def test_averages_are_of_the_period(weir):
    """Per second, and times per occurrence; once the period has passed without work they are none."""
    pooler = weir(stats_period=1)
    with wire.Raw(pooler.port).login() as client:
        asked = 0

        def worked():
            nonlocal asked
            client.simple("select pg_sleep(0.01)")
            asked += 1
            row = by_name(pooler, "STATS_AVERAGES")
            return row if row["query_count"] else None

        row = host.eventually(worked, interval=0)
        assert 0 < row["xact_count"] <= asked and row["query_time"] >= 10_000 and row["bytes_received"] > 0
    host.eventually(lambda: by_name(pooler, "STATS_AVERAGES")["query_count"] == 0)
    total = by_name(pooler, "STATS_TOTALS")
    assert (total["query_count"], total["xact_count"], total["server_assignment_count"]) == (asked, asked, asked)
    assert total["query_time"] >= 10_000 * asked
    assert by_name(pooler, "STATS")["total_query_count"] == asked


@pytest.mark.since("1.24")
def test_totals_are_of_all_databases_and_of_the_console(weir):
    pooler = weir()
    pooler.value("select 1")
    pooler.value("select 1", database="other")
    totals = lambda: {row["name"]: int(row["value"]) for row in pooler.console("SHOW TOTALS")}
    before = totals()
    assert before["total_query_count"] >= 2 and before["total_server_assignment_count"] == 2
    # Each look is a login and a statement of its own.
    after = totals()
    assert after["total_query_count"] - before["total_query_count"] >= 1
    if "total_client_login_count" in after:
        assert after["total_client_login_count"] - before["total_client_login_count"] == 1


@pytest.mark.parametrize("view", ["SHOW TOTALS", "SHOW STATS", "SHOW STATS_TOTALS"])
def test_statistics_include_the_command_that_shows_them(weir, view):
    """The first thing that is asked shows itself; nothing but the console has been used."""
    rows = weir().console(view)
    if view == "SHOW TOTALS":
        counted = {row["name"]: row["value"] for row in rows}
    else:
        counted = next(row for row in rows if row["database"] == "pgbouncer")
    prefix = "" if view == "SHOW STATS_TOTALS" else "total_"
    assert (counted[f"{prefix}xact_count"], counted[f"{prefix}query_count"]) == (1, 1)


# --- cancel requests that take their time --------------------------------------------------------------------------
class Holding:
    """A relay before PostgreSQL that passes on everything but cancel requests: those it keeps until it is let go."""

    def __init__(self, port):
        self.port, self.held, self.sockets = port, [], []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            self.sockets.append(client)
            threading.Thread(target=self.serve, args=(client,), daemon=True).start()

    def serve(self, client):
        first = client.recv(16)
        if first[4:8] == wire.CANCEL_REQUEST.to_bytes(4, "big"):
            self.held.append(client)
            return
        server = socket.create_connection(("127.0.0.1", self.port))
        self.sockets.append(server)
        server.sendall(first)
        threading.Thread(target=self.copy, args=(server, client), daemon=True).start()
        self.copy(client, server)

    def copy(self, source, target):
        try:
            while data := source.recv(65536):
                target.sendall(data)
        except OSError:
            pass
        for one in (source, target):
            try:
                one.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def let_go(self):
        while self.held:
            self.held.pop().shutdown(socket.SHUT_RDWR)

    def close(self):
        self.listener.close()
        for one in self.sockets:
            try:
                one.shutdown(socket.SHUT_RDWR)  # a thread that reads it would keep a mere close from being seen
            except OSError:
                pass
            one.close()


@pytest.fixture
def relay(pg):
    relay = Holding(pg.port)
    yield relay
    relay.close()


@pytest.mark.since("1.19")
def test_cancel_requests_on_their_way_are_shown(weir, pg, relay):
    """Two may be on their way at once beside the pool's one server and its like; the others wait for their turn."""
    pooler = weir(databases={"app": f"port={relay.address} pool_size=1"}, cancel_wait_timeout=60)
    with wire.Raw(pooler.port).login() as raw:
        raw.send(wire.query(SLEEP))
        wait_until_runs(pg)
        requests = [wire.Raw(pooler.port) for _ in range(3)]
        for request in requests:
            request.send(wire.cancel(raw.pid, raw.secret))
        host.eventually(lambda: relay.held)
        row = host.eventually(lambda: pooler.pool() if pooler.pool()["cl_waiting_cancel_req"] == 2 else None)
        assert (row["cl_active_cancel_req"], row["sv_active_cancel"]) == (1, 1)
        states = [client["state"] for client in pooler.console("SHOW CLIENTS") if client["database"] == "app"]
        assert sorted(states) == ["active", "active_cancel_req", "waiting_cancel_req", "waiting_cancel_req"]
        servers = {server["state"]: server for server in pooler.console("SHOW SERVERS")}
        assert servers.keys() == {"active", "active_cancel"}
        for _ in requests:
            relay.let_go()
            held = len(relay.held)
            host.eventually(lambda: relay.held or pooler.pool()["cl_active_cancel_req"] == 0)
            assert held <= 1
        for request in requests:
            request.read_to_end()
        assert pooler.pool()["cl_waiting_cancel_req"] == pooler.pool()["cl_active_cancel_req"] == 0


@pytest.mark.since("1.19")
def test_a_cancel_request_that_its_server_does_not_take_says_why_it_ends(weir, pg, relay):
    pooler = weir(databases={"app": f"port={relay.address} pool_size=1"}, cancel_wait_timeout=1)
    with wire.Raw(pooler.port).login() as raw:
        raw.send(wire.query(SLEEP))
        wait_until_runs(pg)
        with wire.Raw(pooler.port) as request:
            request.send(wire.cancel(raw.pid, raw.secret))
            assert request.read_to_end() == []
        # Well before the default of 10 s.
        pooler.wait_log(r"C-.* closing because: cancel_wait_timeout \(age=[1-6]s\)")
