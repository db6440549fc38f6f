"""Weir's image as CloudNativePG's Pooler runs PgBouncer's: the instance manager is the first process, writes its files below /controller, starts
/usr/bin/pgbouncer as user 998 with a read-only root, asks the console by the unix socket for its metrics, reloads changed files, pauses, resumes,
and ends it by SIGINT. The manager's part is done here; its files have the form of those of CloudNativePG 1.28."""

import os
import re
import signal
import time

import psycopg
import pytest

import certificates
import host
import oci
import postgres
import test_image

pytestmark = [pytest.mark.weir_only, pytest.mark.needs_root, pytest.mark.any_driver]

USER, GROUP = 998, 996
AUTH_USER = "cnpg_pooler_pgbouncer"
SERVICE = "shop-rw"
# What the operator makes in each cluster, and its rules for PostgreSQL.
FUNCTION = f"""
create role {AUTH_USER} login;
create function public.user_search(uname text) returns table (usename name, passwd text) language sql security definer as
  'select usename, passwd from pg_catalog.pg_shadow where usename = $1';
revoke all on function public.user_search(text) from public;
grant execute on function public.user_search(text) to {AUTH_USER};
"""
HBA = f"""
local all all trust
hostssl postgres {AUTH_USER} all cert
host all postgres all trust
hostssl all all all scram-sha-256
"""
# The rows that the manager's exporter knows of SHOW LISTS, and the columns of SHOW POOLS and SHOW STATS.
LISTS = set("databases users pools free_clients used_clients login_clients free_servers used_servers dns_names dns_zones dns_queries dns_pending".split())
POOLS = """database user cl_active cl_waiting cl_active_cancel_req cl_waiting_cancel_req sv_active sv_active_cancel sv_being_canceled sv_idle sv_used sv_tested
    sv_login maxwait maxwait_us pool_mode load_balance_hosts""".split()
STATS = """database total_server_assignment_count total_xact_count total_query_count total_received total_sent total_xact_time total_query_time total_wait_time""".split()


@pytest.fixture(scope="module")
def cluster(scratch):
    """A PostgreSQL with TLS that knows the pooler by its certificate."""
    programs = postgres.reachable_programs("system", scratch)
    if programs is None:
        pytest.skip("no PostgreSQL on this machine")
    directory = host.new_directory(scratch, "cnpg-server")
    authority = certificates.Authority(directory, "shop-ca")
    certificate = authority.issue("server", SERVICE, f"DNS:{SERVICE}", rsa=True)
    server = postgres.Postgres(programs, directory)
    server.query(FUNCTION)
    server.stop()
    host.hand_over(postgres._write(server.data / "pg_hba.conf", HBA))
    server.start(ssl="on", ssl_cert_file=certificate.cert, ssl_key_file=certificate.key, ssl_ca_file=authority.cert)
    server.authority, server.certificate = authority, certificate
    server.of_auth_user = authority.issue("auth-user", AUTH_USER)
    yield server
    server.stop()


class Manager:
    """What the instance manager writes, starts and asks."""

    def __init__(self, image, cluster, directory):
        self.cluster, self.port = cluster, host.free_port()
        self.controller = directory / "controller"
        self.configs, self.run = self.controller / "configs", self.controller / "run"
        for place in (self.controller, self.configs, self.run, *(self.configs / name for name in ("server-tls", "client-tls", "client-ca", "authUser"))):
            place.mkdir()
        self.parameters = {"default_pool_size": "5"}
        self.pool_mode = "transaction"
        self.write()
        for path in [self.controller, *self.controller.rglob("*")]:
            path.chmod(0o700 if path.is_dir() else 0o600)
            os.chown(path, USER, GROUP)
        hosts = directory / "hosts"
        hosts.write_text(f"127.0.0.1 localhost {SERVICE}\n")
        self.container = oci.Running(image, directory, {"NAMESPACE": "default", "POOLER_NAME": "pooler-shop-rw"}, user=f"{USER}:{GROUP}", words=["/controller/configs/pgbouncer.ini"])
        self.container.change(lambda spec: self.mounted(spec, hosts))

    def mounted(self, spec, hosts):
        """The volume scratch-data, and the program that the manager starts, which is no shell's."""
        spec["process"]["args"][0] = "/usr/bin/pgbouncer"
        for mount in spec["mounts"]:
            if mount["destination"] == "/etc/hosts":
                mount["source"] = str(hosts)
        spec["mounts"].append({"destination": "/controller", "type": "bind", "source": str(self.controller), "options": ["bind", "rw"]})

    def write(self):
        """The files of the Pooler; a real one has port 5432, which the tests' PostgreSQL and pooler have not."""
        parameters = {
            "auth_hba_file": "/controller/configs/pg_hba.conf",
            "auth_type": "hba",
            "admin_users": "pgbouncer",
            "client_tls_ca_file": "/controller/configs/client-ca/ca.crt",
            "client_tls_cert_file": "/controller/configs/client-tls/tls.crt",
            "client_tls_key_file": "/controller/configs/client-tls/tls.key",
            "client_tls_sslmode": "prefer",
            "ignore_startup_parameters": "extra_float_digits,options",
            "listen_addr": "*",
            "listen_port": str(self.port),
            "log_stats": "0",
            "server_tls_ca_file": "/controller/configs/server-tls/ca.crt",
            "server_tls_cert_file": "/controller/configs/authUser/tls.crt",
            "server_tls_key_file": "/controller/configs/authUser/tls.key",
            "server_tls_sslmode": "verify-ca",
            "unix_socket_dir": "/controller/run",
            **self.parameters,
        }
        lines = ["[databases]", f"* = host={SERVICE} port={self.cluster.port}", "", "[pgbouncer]", f"pool_mode = {self.pool_mode}", f"auth_user = {AUTH_USER}"]
        lines += ["auth_query = SELECT usename, passwd FROM public.user_search($1)", "auth_dbname = postgres", ""]
        lines += [f"{name} = {parameters[name]}" for name in sorted(parameters)]
        rules = ["local pgbouncer pgbouncer peer", "", "host all all 0.0.0.0/0 md5", "host all all ::/0 md5", ""]
        self.put("pgbouncer.ini", "\n".join(lines) + "\n")
        self.put("pg_hba.conf", "\n".join(rules))
        self.put("server-tls/ca.crt", self.cluster.authority.cert.read_text())
        self.put("client-ca/ca.crt", self.cluster.authority.cert.read_text())
        self.put("client-tls/tls.crt", self.cluster.certificate.cert.read_text())
        self.put("client-tls/tls.key", self.cluster.certificate.key.read_text())
        self.put("authUser/tls.crt", self.cluster.of_auth_user.cert.read_text())
        self.put("authUser/tls.key", self.cluster.of_auth_user.key.read_text())

    def put(self, name, text):
        """As the manager does: a new file takes the place of the old one."""
        path = self.configs / name
        new = path.with_name(path.name + ".new")
        new.write_text(text)
        new.chmod(0o600)
        os.chown(new, USER, GROUP)
        new.rename(path)

    def console(self):
        """As user 998 by the socket, without a password; prepared statements are the driver's."""
        os.setegid(GROUP)
        os.seteuid(USER)
        try:
            address = {"host": self.run, "port": self.port, "user": "pgbouncer", "dbname": "pgbouncer", "sslmode": "disable"}
            return psycopg.connect(**address, autocommit=True, connect_timeout=30)
        finally:
            os.seteuid(0)
            os.setegid(0)

    def connect(self, database="app", **options):
        address = {"host": "127.0.0.1", "port": self.port, "dbname": database, "user": "scramuser", "password": test_image.SECRET, "connect_timeout": 30, **options}
        return psycopg.connect(**address, autocommit=True)


@pytest.fixture
def manager(image, cluster, scratch):
    directory = host.new_directory(scratch, "pooler")
    directory.chmod(0o755)
    made = Manager(image, cluster, directory)
    made.container.start()
    yield made
    made.container.stop()
    assert "panicked" not in made.container.log_text()


def test_clients_log_in_by_the_clusters_own_secrets(manager, cluster):
    with manager.connect() as client:
        assert client.execute("select current_user, current_database()").fetchone() == ("scramuser", "app")
        ssl, = client.execute("select ssl from pg_stat_ssl where pid = pg_backend_pid()").fetchone()
        assert ssl, "verify-ca"
    with manager.connect(sslmode="require", options="-c geqo=off") as client:
        assert client.pgconn.ssl_in_use and client.execute("select 1").fetchone() == (1,)
    with pytest.raises(psycopg.OperationalError, match="password authentication failed|authentication failed"):
        manager.connect(password="wrong")
    assert cluster.value(f"select count(*) from pg_stat_activity where usename = '{AUTH_USER}'") <= 5


def test_the_readiness_probe_and_the_log_are_as_the_manager_expects(manager):
    assert host.is_listening(manager.port, "/none")
    for line in manager.container.log_text().splitlines():
        assert re.match(r"(?s)^.* \[[0-9]+\] [A-Z]+ .+$", line), f"the manager cannot take it apart: {line}"


def test_its_exporter_finds_what_it_asks_for(manager):
    with manager.connect() as client, manager.console() as console:
        client.execute("select 1")
        lists = dict(console.execute("SHOW LISTS;").fetchall())
        assert set(lists) >= LISTS and all(isinstance(value, int) for value in lists.values())
        pools = console.execute("SHOW POOLS;")
        assert [column.name for column in pools.description] == POOLS
        [row] = [dict(zip(POOLS, row)) for row in pools.fetchall() if row[0] == "app"]
        assert row["user"] == "scramuser" and row["pool_mode"] == "transaction"
        assert all(isinstance(row[name], int) for name in POOLS if name not in ("database", "user", "pool_mode", "load_balance_hosts"))
        stats = console.execute("SHOW STATS;")
        names = [column.name for column in stats.description]
        assert names[: len(STATS)] == STATS and len(names) == 25, "those of PgBouncer 1.25"
        assert {row[0] for row in stats.fetchall()} >= {"app", "pgbouncer"}


def test_changed_files_are_reloaded(manager):
    with manager.connect() as client, manager.console() as console:
        client.execute("select 1")
        manager.parameters, manager.pool_mode = {"default_pool_size": "2", "max_client_conn": "77"}, "session"
        manager.write()
        console.execute("RELOAD")
        shown = {row[0]: row[1] for row in console.execute("SHOW CONFIG").fetchall()}
        assert (shown["default_pool_size"], shown["max_client_conn"], shown["pool_mode"]) == ("2", "77", "session")
        assert client.execute("select 1").fetchone() == (1,)


def test_a_paused_pooler_lets_clients_wait(manager):
    with manager.connect() as client, manager.console() as console:
        client.execute("select 1")
        console.execute("PAUSE")
        client.pgconn.send_query(b"select 2")
        time.sleep(0.5)
        client.pgconn.consume_input()
        assert client.pgconn.is_busy(), "it waits"
        console.execute("RESUME")
        assert client.pgconn.get_result().get_value(0, 0) == b"2"
        while client.pgconn.get_result():
            pass


def test_the_end_of_a_pod_interrupts_no_transaction(manager):
    """The manager passes SIGINT on and waits."""
    client, idle = manager.connect(), manager.connect()
    client.execute("begin")
    manager.container.kill(signal.SIGINT)
    manager.container.wait_log("got SIGINT, shutting down")
    assert client.execute("select 1").fetchone() == (1,)
    client.execute("commit")
    assert manager.container.wait_end() == 0
    with pytest.raises(psycopg.OperationalError):
        idle.execute("select 1")


def test_a_preparation_that_is_wrong_ends_with_a_status(image, cluster, scratch):
    directory = host.new_directory(scratch, "pooler")
    made = Manager(image, cluster, directory)
    made.put("pgbouncer.ini", "[pgbouncer]\npool_mode = sometimes\n")
    done = made.container.once()
    assert done.returncode == 1 and "sometimes" in done.stderr
