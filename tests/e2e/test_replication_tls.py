"""Replication through the pooler with TLS on both sides: what streams both ways is cut into records, in both directions."""

import ssl

import pytest

import host
import postgres
import wire
from replicas import Background, clean, command, read_wal, replicating

pytestmark = pytest.mark.since("1.23")


@pytest.fixture(scope="module")
def server(scratch, authorities):
    """A PostgreSQL with TLS."""
    programs = postgres.reachable_programs("system", scratch)
    if programs is None:
        pytest.skip("no PostgreSQL on this machine")
    one = postgres.Postgres(programs, host.new_directory(scratch, "tls-replication"))
    one.stop()
    one.start(ssl="on", ssl_cert_file=authorities[3].server.cert, ssl_key_file=authorities[3].server.key)
    one.query("create table tracked (number int); grant all on tracked to public", "app")
    yield one
    one.stop()


@pytest.fixture
def pooler(weir, server, authorities):
    root = authorities[3]
    databases = {name: f"host=localhost port={server.port}" for name in ("app", "replication")}
    tls = {"client_tls_sslmode": "require", "client_tls_cert_file": root.server.cert, "client_tls_key_file": root.server.key}
    one = weir(databases=databases, server_tls_sslmode="verify-full", server_tls_ca_file=root.cert, **tls)
    yield one
    one.stop()
    clean(server)


@pytest.fixture
def secure_tools(monkeypatch):
    monkeypatch.setenv("PGSSLMODE", "require")
    monkeypatch.setenv("HOME", "/nonexistent")  # certificates of the user who runs the tests are not theirs


def test_a_stream_is_whole_while_both_sides_talk(pooler, server):
    begin = server.value("select pg_current_wal_flush_lsn()::text")
    server.query("insert into tracked select generate_series(1, 200000)", "app")
    with wire.Raw(pooler.port) as raw:
        raw.send(wire.request(wire.SSL_REQUEST))
        assert raw.read_bytes(1) == b"S"
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        raw.socket = context.wrap_socket(raw.socket)
        raw.login(user="replica", database="replication", replication="true")
        read_wal(raw, begin, server.value("select pg_current_wal_flush_lsn()::text"))


def test_a_base_backup_and_a_slot(pooler, server, secure_tools):
    target = pooler.directory / "backup"
    host.run(command(pooler, "pg_basebackup", "-D", target, "-X", "stream", "-c", "fast", "--no-sync"), timeout=120)
    host.run([server.bindir / "pg_verifybackup", target], timeout=120)
    slot = ("-d", "app", "-S", "decoded")
    host.run(command(pooler, "pg_recvlogical", *slot, "--create-slot", "-P", "test_decoding"))
    with Background(pooler, "pg_recvlogical", *slot, "--start", "-f", "-", "-s", "1", "-F", "0") as reader:
        server.query("insert into tracked values (-7)", "app")
        host.eventually(lambda: "INSERT: number[integer]:-7" in reader.output())
        assert reader.interrupt() == 0, reader.output()


def test_its_server_is_encrypted(pooler, server):
    connection = replicating(pooler, sslmode="require")
    connection.execute("IDENTIFY_SYSTEM")
    query = "select ssl from pg_stat_ssl join pg_stat_activity using (pid) where backend_type = 'walsender'"
    assert server.query(query) == [(True,)]
