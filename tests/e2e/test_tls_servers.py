"""TLS between the pooler and its servers: every server_tls_sslmode, names of hosts, certificates shown to servers, cancels."""

import re
import socket
import threading
from pathlib import Path

import psycopg
import pytest

import certificates
import fake_server
import host
import postgres
from running import cancel_by_psycopg

SUMMARY = "TLSv1.3/TLS_AES_256_GCM_SHA384"
HBA = """
local all all trust
hostssl all bob all cert
hostssl all carol all trust
hostssl all scramuser all scram-sha-256
host all all all trust
"""


@pytest.fixture(scope="session", params=[1, 3], ids=["v1", "v3"])
def secure(scratch, request):
    """A PostgreSQL with TLS whose certificate is for localhost, the root of it, and a certificate for bob."""
    version = request.param
    programs = postgres.reachable_programs("system", scratch)
    if programs is None:
        pytest.skip("no PostgreSQL on this machine")
    directory = host.new_directory(scratch, "tls-server")
    root = certificates.Authority(directory, f"root{version}", version)
    root.server = root.issue("server", "localhost", "DNS:localhost" if version == 3 else "", rsa=True)
    root.bob = root.issue("bob", "bob")
    root.stranger = certificates.Authority(directory, "stranger", version)
    server = postgres.Postgres(programs, directory)
    server.root = root
    server.stop()
    host.hand_over(postgres._write(server.data / "pg_hba.conf", HBA))
    server.start(ssl="on", ssl_cert_file=root.server.cert, ssl_key_file=root.server.key, ssl_ca_file=root.cert)
    yield server
    server.stop()


def databases(secure, name="localhost", extra=""):
    return {"app": f"host={name} port={secure.port} dbname=app {extra}", "other": f"host={name} port={secure.port}"}


def ssl_of(client):
    """What PostgreSQL says of the connection that serves this client."""
    return client.execute("select ssl, version, client_dn from pg_stat_ssl where pid = pg_backend_pid()").fetchone()


def refused(pooler, **options):
    with pytest.raises(psycopg.OperationalError):
        pooler.connect(**options)


@pytest.mark.parametrize("mode", ["prefer", "require"])
def test_who_must_encrypt_is_not_led_around_tls(weir, secure, mode):
    """server_socket_dir is a short cut only where TLS is a wish."""
    pooler = weir(databases=databases(secure), server_tls_sslmode=mode, server_socket_dir=secure.directory)
    assert ssl_of(pooler.connect())[0] is (mode == "require")


@pytest.mark.parametrize("mode", ["disable", "allow", "prefer", "require", "verify-ca", "verify-full", None])
def test_modes(weir, secure, mode):
    files = {"server_tls_ca_file": secure.root.cert} if mode and mode.startswith("verify") else {}
    pooler = weir(databases=databases(secure), server_tls_sslmode=mode, default_pool_size=1, **files)
    client = pooler.connect()
    assert ssl_of(client)[0] is (mode != "disable")
    [row] = [row for row in pooler.console("SHOW SERVERS") if row["database"] == "app"]
    assert re.fullmatch("" if mode == "disable" else rf"{SUMMARY}(/ECDH=\w+)?", row["tls"])
    if mode == "disable":
        assert "SSL established" not in pooler.log_text()
    else:
        pooler.wait_log(rf"SSL established: {re.escape(SUMMARY)}")


@pytest.mark.parametrize("mode", ["allow", "prefer"])
def test_a_server_without_tls_will_do(weir, mode):
    pooler = weir(server_tls_sslmode=mode)
    assert pooler.value("select ssl from pg_stat_ssl where pid = pg_backend_pid()") is False


@pytest.mark.parametrize("mode", ["require", "verify-full"])
def test_a_server_without_tls_will_not_do(weir, secure, mode):
    pooler = weir(server_tls_sslmode=mode, server_tls_ca_file=secure.root.cert, query_wait_timeout=1)
    refused(pooler)
    pooler.wait_log("closing because: server refused SSL")


@pytest.mark.weir_only
@pytest.mark.parametrize("answer", [b"S", b"N"])
def test_nothing_may_come_behind_the_answer_to_the_ssl_request(weir, answer):
    """I13 of ARCHITECTURE.md. What an attacker on the path has put there would else count as the server's (CVE-2021-23222)."""
    forged = fake_server.error("forged on the path", C="28000")

    def serve(listener):
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                connection.recv(8)
                connection.sendall(answer + forged)
                connection.recv(100)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=serve, args=(listener,), daemon=True).start()
        pooler = weir(databases={"app": f"port={listener.getsockname()[1]}"}, server_tls_sslmode="prefer", query_wait_timeout=1)
        with pytest.raises(psycopg.OperationalError) as failure:
            pooler.connect()
        assert "forged" not in str(failure.value)
        pooler.wait_log("received unencrypted data after SSL response")
        listener.shutdown(socket.SHUT_RDWR)


def test_unix_sockets_have_no_tls(weir, secure):
    options = f"host={secure.directory} port={secure.port} dbname=app"
    pooler = weir(databases={"app": options}, server_tls_sslmode="verify-full", server_tls_ca_file=secure.root.cert)
    assert ssl_of(pooler.connect())[0] is False


@pytest.mark.parametrize("mode", ["verify-ca", "verify-full"])
def test_a_certificate_of_an_unknown_root(weir, secure, mode):
    stranger = secure.root.stranger.cert
    pooler = weir(databases=databases(secure), server_tls_sslmode=mode, server_tls_ca_file=stranger, query_wait_timeout=1)
    refused(pooler)
    pooler.wait_log("certificate verify failed")


def test_the_systems_roots_count_where_none_are_named(weir, secure):
    """They do not know the root of the tests; that the pooler starts and says so shows that they were read."""
    if not Path("/etc/ssl/certs/ca-certificates.crt").exists():
        pytest.skip("this machine trusts nobody: apt-get install ca-certificates")
    pooler = weir(databases=databases(secure), server_tls_sslmode="verify-full", query_wait_timeout=1)
    refused(pooler)
    pooler.wait_log("certificate verify failed")


def test_a_certificate_for_another_name(weir, secure):
    """The certificate is for localhost; 127.0.0.1 is the same machine and not the same name."""
    files = {"server_tls_ca_file": secure.root.cert}
    named = weir(databases=databases(secure, "127.0.0.1"), server_tls_sslmode="verify-full", query_wait_timeout=1, **files)
    refused(named)
    named.wait_log("TLS handshake error: ")
    unnamed = weir(databases=databases(secure, "127.0.0.1"), server_tls_sslmode="verify-ca", **files)
    assert ssl_of(unnamed.connect())[0] is True


@pytest.mark.since("1.24")
def test_a_list_of_hosts_is_checked_one_by_one(weir, secure):
    """Whichever host of a list is tried, its own name counts."""
    files = {"server_tls_ca_file": secure.root.cert}
    settings = {"server_tls_sslmode": "verify-full", "server_login_retry": 0.2, "query_wait_timeout": 10, **files}
    pooler = weir(databases=databases(secure, "127.0.0.1,localhost"), **settings)
    assert ssl_of(pooler.connect())[0] is True
    pooler.wait_log("certificate verify failed")


def test_a_certificate_of_our_own(weir, secure):
    own = {"server_tls_cert_file": secure.root.bob.cert, "server_tls_key_file": secure.root.bob.key}
    pooler = weir(databases=databases(secure), server_tls_sslmode="require", **own)
    encrypted, version, name = ssl_of(pooler.connect(user="bob"))
    assert (encrypted, version) == (True, "TLSv1.3") and "bob" in name
    without = weir(databases=databases(secure), server_tls_sslmode="require")
    refused(without, user="bob")


def test_a_server_that_wants_tls_gets_it_by_default(weir, secure):
    pooler = weir(databases=databases(secure))
    assert ssl_of(pooler.connect(user="carol"))[0] is True


def test_versions_and_ciphers(weir, secure):
    pooler = weir(databases=databases(secure), server_tls_protocols="tlsv1.2", server_tls_ciphers="ECDHE+AES128+AESGCM")
    assert ssl_of(pooler.connect())[1] == "TLSv1.2"
    pooler.wait_log("SSL established: TLSv1.2/ECDHE-RSA-AES128-GCM-SHA256")


@pytest.mark.since("1.25")
def test_ciphers_of_1_3(weir, secure):
    pooler = weir(databases=databases(secure), server_tls13_ciphers="TLS_CHACHA20_POLY1305_SHA256")
    pooler.connect()
    pooler.wait_log("SSL established: TLSv1.3/TLS_CHACHA20_POLY1305_SHA256")


@pytest.mark.parametrize("mode", ["prefer", "verify-full"])
def test_a_cancel_goes_the_same_way(weir, secure, mode):
    pooler = weir(databases=databases(secure), server_tls_sslmode=mode, server_tls_ca_file=secure.root.cert)
    client = pooler.connect()
    cancel_by_psycopg(secure, client)
    assert client.execute("select 1").fetchone() == (1,)


def test_much_data_both_ways(weir, secure):
    """Plain clients, servers with TLS: COPY in and out, and results that do not fit any buffer."""
    pooler = weir(databases=databases(secure))
    client = pooler.connect(autocommit=False)
    client.execute("create temp table t (a text)")
    with client.cursor() as cursor, cursor.copy("copy t from stdin") as copy:
        for _ in range(500):
            copy.write("x" * 19_999 + "\n")
    with client.cursor() as cursor, cursor.copy("copy t to stdout") as copy:
        assert sum(len(piece) for piece in copy) == 500 * 20_000
    assert client.execute("select sum(length(a)) from t").fetchone() == (500 * 19_999,)


def test_tls_on_both_sides_under_load(weir, secure, pg):
    root = secure.root
    tls = {"client_tls_sslmode": "require", "client_tls_cert_file": root.server.cert, "client_tls_key_file": root.server.key}
    pooler = weir(databases=databases(secure), default_pool_size=3, **tls)
    script = pooler.directory / "bench.sql"
    script.write_text("select repeat('z', 20000);\n")
    host.hand_over(script)
    environment = {"PGSSLMODE": "require", "PATH": "/usr/bin:/bin"}
    command = [pg.bindir / "pgbench", "-n", "-f", script, "-c", "8", "-t", "40", "-h", "127.0.0.1"]
    done = host.run([*command, "-p", str(pooler.port), "-U", "alice", "app"], env=environment)
    assert "number of failed transactions: 0" in done.stdout, done.stdout


@pytest.mark.parametrize("where", ["ini", "client"])
def test_scram_towards_servers_is_bound_to_the_channel(weir, secure, where):
    """A server that offers SCRAM-SHA-256-PLUS refuses a client that claims that it does not: a login shows that Weir binds."""
    if where == "ini":
        pooler = weir(databases=databases(secure, extra="user=scramuser password='scram secret'"))
        assert pooler.value("select current_user") == "scramuser"
        return
    verifier = secure.value("select rolpassword from pg_authid where rolname = 'scramuser'")
    pooler = weir(databases=databases(secure), auth_type="scram-sha-256", userlist={"scramuser": verifier})
    assert pooler.value("select current_user", user="scramuser", password="scram secret") == "scramuser"
