"""TLS settings and files that change while the pooler runs: RELOAD, SIGHUP and SET, no client dropped, nothing half applied."""

import re
import shutil
import signal

import psycopg
import pytest

import host
import wire
from test_tls_clients import secure, settings


def issuer(pooler, root):
    """Whose certificate a new client is shown: it is accepted under this root."""
    with psycopg.connect(**pooler.address(**secure(root))) as client:
        return client.execute("select 1").fetchone() == (1,)


@pytest.mark.parametrize("how", ["RELOAD", "SIGHUP"])
def test_files_change_under_the_same_names(weir, authorities, how):
    old, new = authorities[1], authorities[3]
    pooler = weir.prepared(threads=1)  # Each has the new files at a moment of its own.
    copies = {name: pooler.directory / name for name in ("server.crt", "server.key")}

    def put(root):
        for name, path in copies.items():
            shutil.copy(root.server.cert.parent / name, path)
            host.hand_over(path)

    put(old)
    files = {"client_tls_cert_file": copies["server.crt"], "client_tls_key_file": copies["server.key"]}
    pooler.write_ini(client_tls_sslmode="allow", **files)
    pooler.start()
    before = pooler.connect(**secure(old))
    put(new)
    if how == "RELOAD":
        pooler.console("RELOAD")
    else:
        pooler.signal(signal.SIGHUP)
    host.eventually(lambda: accepts(pooler, new))
    assert not accepts(pooler, old)
    assert before.execute("select 1").fetchone() == (1,), "who was there stays"


def accepts(pooler, root):
    try:
        return issuer(pooler, root)
    except psycopg.OperationalError:
        return False


@pytest.mark.weir_only
def test_a_login_begun_in_clear_does_not_outlive_the_demand_for_tls(weir, authorities):
    """However long it is drawn out: who must use TLS is asked again when the client is let in."""
    pooler = weir(**settings(authorities[1], "allow"), auth_type="plain", userlist={"alice": "pw", "admin": ""}, threads=1)
    with wire.Raw(pooler.port) as begun, wire.Raw(pooler.port) as silent:
        begun.send(wire.startup(user="alice", database="app"))
        assert begun.read().kind == "R"
        pooler.write_ini(client_tls_sslmode="require")
        pooler.signal(signal.SIGHUP)
        host.eventually(lambda: refuses_plain(pooler))
        begun.send(wire.message(b"p", b"pw\0"))
        silent.send(wire.startup(user="alice", database="app"))
        assert b"SSL required" in begun.read().body
        assert b"SSL required" in silent.read().body


def refuses_plain(pooler):
    with wire.Raw(pooler.port) as raw:
        raw.send(wire.startup(user="alice", database="app"))
        return raw.read().kind == "E"


@pytest.mark.since("1.25")
def test_set_takes_one_setting_at_a_time(weir, authorities):
    """In between, key and certificate do not fit each other: the old ones stay in force."""
    old, new = authorities[1], authorities[3]
    pooler = weir(**settings(old, "allow"))
    before = pooler.connect(**secure(old))
    assert pooler.console(f"SET client_tls_key_file = '{new.server.key}'").startswith("SET")
    pooler.wait_log("TLS setup failed: ")
    assert accepts(pooler, old)
    assert pooler.console(f"SET client_tls_cert_file = '{new.server.cert}'").startswith("SET")
    host.eventually(lambda: accepts(pooler, new))
    assert before.execute("select 1").fetchone() == (1,)


@pytest.mark.since("1.25")
def test_set_of_modes_and_ciphers(weir, authorities):
    root = authorities[3]
    pooler = weir(**settings(root, "allow"))
    pooler.console("SET client_tls13_ciphers = 'TLS_CHACHA20_POLY1305_SHA256'")
    host.eventually(lambda: issuer(pooler, root) and "tls=TLSv1.3/TLS_CHACHA20_POLY1305_SHA256" in pooler.log_text())
    assert pooler.console("SET client_tls13_ciphers = 'NO_SUCH_CIPHER'").startswith("SET")
    pooler.wait_log("failed to set the TLSv1.3 cipher suites")
    assert accepts(pooler, root)
    assert pooler.console("SET client_tls13_ciphers = ''").startswith("SET")
    assert pooler.console("SET client_tls_sslmode = 'require'").startswith("SET")
    host.eventually(lambda: refuses_plain(pooler))
    assert accepts(pooler, root)


def refuses_plain(pooler):
    try:
        pooler.value("select 1")
        return False
    except psycopg.OperationalError as error:
        return "SSL required" in str(error)


@pytest.mark.since("1.24")
@pytest.mark.parametrize("how", ["SET", "RELOAD"])
def test_servers_are_renewed_when_their_terms_change(weir, how):
    pooler = weir(default_pool_size=1)
    client = pooler.connect()
    backend = client.execute("select pg_backend_pid()").fetchone()
    pooler.console("RELOAD")
    assert client.execute("select pg_backend_pid()").fetchone() == backend, "nothing has changed"
    if how == "SET":
        pooler.console("SET server_tls_protocols = 'tlsv1.2'")
    else:
        pooler.reload(server_tls_protocols="tlsv1.2")
    host.eventually(lambda: client.execute("select pg_backend_pid()").fetchone() != backend)
    pooler.wait_log(r"S-.*app.*(database configuration changed|obsolete connection)")


@pytest.mark.parametrize("setting", ["client_tls_key_file", "client_tls_cert_file", "client_tls_ca_file"])
def test_a_missing_file_ends_the_start(weir, authorities, setting):
    pooler = weir.prepared(**{**settings(authorities[3], "verify-ca"), setting: "/nonexistent/file"})
    pooler.launch()
    assert pooler.process.wait(30) == 1
    assert re.search(r"ERROR TLS setup failed:[^\n]*No such file or directory", pooler.log_text() + pooler.output())


@pytest.mark.weir_only
def test_a_wrong_key_ends_the_start(weir, authorities):
    root = authorities[3]
    pooler = weir.prepared(**settings(root, client_tls_key_file=root.alice.key))
    pooler.launch()
    assert pooler.process.wait(30) == 1
    assert "TLS setup failed: key values mismatch" in pooler.log_text() + pooler.output()
