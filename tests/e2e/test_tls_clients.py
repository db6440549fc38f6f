"""TLS between clients and the pooler: every client_tls_sslmode, certificates of both kinds, direct TLS, versions and ciphers."""

import re
import socket
import ssl
import struct

import psycopg
import pytest

import host
import wire
from running import cancel_by_psycopg

SUMMARY = "TLSv1.3/TLS_AES_256_GCM_SHA384"


@pytest.fixture(params=[1, 3], ids=["v1", "v3"])
def root(authorities, request):
    return authorities[request.param]


def settings(root, mode="require", **more):
    chosen = {"client_tls_sslmode": mode, "client_tls_cert_file": root.server.cert, "client_tls_key_file": root.server.key}
    if mode.startswith("verify"):
        chosen["client_tls_ca_file"] = root.cert
    return {**chosen, **more}


def secure(root, **more):
    return {"sslmode": "verify-full", "sslrootcert": root.cert, "host": "localhost", "hostaddr": "127.0.0.1", **more}


def tls_of(pooler):
    """The column `tls` of the clients of app."""
    return [row["tls"] for row in pooler.console("SHOW CLIENTS") if row["database"] == "app"]


@pytest.mark.parametrize("mode", ["allow", "prefer", "require"])
def test_clients_that_ask_get_tls(weir, root, mode):
    pooler = weir(**settings(root, mode))
    client = pooler.connect(**secure(root))
    assert client.execute("select 1").fetchone() == (1,)
    console = pooler.address("pgbouncer", "admin", **secure(root))
    with psycopg.connect(**console, autocommit=True, row_factory=psycopg.rows.dict_row) as admin:
        rows = admin.execute("SHOW CLIENTS").fetchall()
    assert [row["tls"] for row in rows if row["database"] == "app"] == [SUMMARY]
    pooler.wait_log(rf"login attempt: db=app user=alice tls={re.escape(SUMMARY)}")


@pytest.mark.parametrize("mode", ["disable", "allow", "prefer"])
def test_clients_that_do_not_ask_stay_plain(weir, authorities, mode):
    pooler = weir(**settings(authorities[3], mode))
    assert pooler.value("select 1") == 1
    pooler.wait_log("login attempt: db=app user=alice tls=no")


def test_without_tls_those_who_insist_are_refused(weir, authorities):
    pooler = weir(**settings(authorities[3], "disable"))
    with pytest.raises(psycopg.OperationalError, match="server does not support SSL"):
        pooler.connect(sslmode="require")


@pytest.mark.parametrize("mode", ["require", "verify-ca", "verify-full"])
def test_plain_clients_are_refused_but_on_the_unix_socket(weir, authorities, mode):
    pooler = weir(**settings(authorities[3], mode))
    with pytest.raises(psycopg.OperationalError, match="SSL required"):
        pooler.connect(sslmode="disable")
    assert pooler.value("select 1", host=str(pooler.directory), sslmode="prefer") == 1


@pytest.mark.parametrize("mode", ["verify-ca", "verify-full"])
def test_a_client_certificate_is_demanded_and_checked(weir, root, authorities, mode):
    pooler = weir(**settings(root, mode))
    good = pooler.connect(**secure(root, sslcert=root.alice.cert, sslkey=root.alice.key))
    assert good.execute("select 1").fetchone() == (1,)
    with pytest.raises(psycopg.OperationalError):
        pooler.connect(**secure(root, sslcert="/nonexistent"))
    other = authorities[3 if root.version == 1 else 1].alice
    with pytest.raises(psycopg.OperationalError):
        pooler.connect(**secure(root, sslcert=other.cert, sslkey=other.key))
    pooler.wait_log("TLS handshake error: handshake failed: ", count=2)
    pooler.wait_log("certificate verify failed|alert unknown ca|peer did not return a certificate", count=2)


def test_an_expired_client_certificate_is_refused(weir, authorities):
    root = authorities[3]
    expired = root.issue("expired", "alice", days=-1)
    pooler = weir(**settings(root, "verify-full"))
    with pytest.raises(psycopg.OperationalError):
        pooler.connect(**secure(root, sslcert=expired.cert, sslkey=expired.key))
    pooler.wait_log("certificate verify failed")


def test_a_server_certificate_is_no_clients(weir, authorities):
    root = authorities[3]
    wrong = root.issue("wrong", "alice", extensions="extendedKeyUsage=serverAuth\n")
    pooler = weir(**settings(root, "verify-full"))
    with pytest.raises(psycopg.OperationalError):
        pooler.connect(**secure(root, sslcert=wrong.cert, sslkey=wrong.key))
    pooler.wait_log("certificate verify failed")


def test_the_certificate_says_who_the_client_is(weir, root):
    pooler = weir(auth_type="cert", **settings(root, "verify-full"))
    mine = secure(root, sslcert=root.alice.cert, sslkey=root.alice.key)
    assert pooler.connect(**mine).execute("select current_user").fetchone() == ("alice",)
    with pytest.raises(psycopg.OperationalError, match="TLS certificate name mismatch|certificate authentication failed"):
        pooler.connect(user="bob", **mine)
    pooler.wait_log("TLS certificate name mismatch")


@pytest.mark.since("1.23")
def test_rules_know_who_uses_tls(weir, authorities):
    root = authorities[3]
    rules = "hostnossl all alice all reject\nhostssl all alice all trust\nhostssl all bob all cert map=m\nhostssl all carol all cert\n"
    pooler = weir.prepared(auth_type="hba", **settings(root, "verify-full"))
    pooler._write("hba.conf", rules)
    pooler._write("ident.conf", "m alice bob\n")
    pooler.write_ini(auth_hba_file=pooler.directory / "hba.conf", auth_ident_file=pooler.directory / "ident.conf")
    pooler.start()
    mine = secure(root, sslcert=root.alice.cert, sslkey=root.alice.key)
    assert [pooler.connect(user=user, **mine).execute("select 1").fetchone() for user in ("alice", "bob")] == [(1,), (1,)]
    with pytest.raises(psycopg.OperationalError):
        pooler.connect(user="carol", **mine)
    with pytest.raises(psycopg.OperationalError, match="SSL encryption|login rejected|no authentication method"):
        pooler.connect(user="logged", **mine)


@pytest.mark.parametrize("mode", ["allow", "prefer", "require"])
def test_rules_may_ask_for_a_certificate_that_the_mode_does_not_demand(weir, authorities, mode):
    """Who has none may still come by another rule; one that is shown is checked."""
    root, other = authorities[3], authorities[1]
    pooler = weir.prepared(auth_type="hba", **settings(root, mode, client_tls_ca_file=root.cert))
    pooler._write("hba.conf", "hostssl all alice 0.0.0.0/0 cert\nhostssl all bob 0.0.0.0/0 trust\n")
    pooler.write_ini(auth_hba_file=pooler.directory / "hba.conf")
    pooler.start()
    mine = secure(root, sslcert=root.alice.cert, sslkey=root.alice.key)
    assert pooler.value("select current_user", **mine) == "alice"
    assert pooler.value("select current_user", user="bob", **secure(root)) == "bob"
    with pytest.raises(psycopg.OperationalError, match="certificate authentication failed"):
        pooler.connect(**secure(root))
    with pytest.raises(psycopg.OperationalError, match="unknown ca"):
        pooler.connect(user="bob", **secure(root, sslcert=other.alice.cert, sslkey=other.alice.key))


def test_certificates_need_to_be_asked_for(weir, authorities):
    pooler = weir.prepared(auth_type="cert", **settings(authorities[3], "require"))
    pooler.launch()
    assert pooler.process.wait(30) == 1
    assert "auth_type=cert requires client_tls_sslmode" in pooler.output() + pooler.log_text()


@pytest.mark.weir_only
@pytest.mark.parametrize("auth_type, secret", [("scram-sha-256", "plain"), ("md5", "verifier")])
def test_scram_is_bound_to_the_channel(weir, pg, root, auth_type, secret):
    """`channel_binding=require` is for a client that refuses a man in the middle."""
    verifier = pg.value("select rolpassword from pg_authid where rolname = 'scramuser'")
    userlist = {"scramuser": "scram secret" if secret == "plain" else verifier}
    pooler = weir(auth_type=auth_type, userlist=userlist, **settings(root, "allow"))
    mine = {"user": "scramuser", "password": "scram secret", "channel_binding": "require"}
    assert pooler.connect(**secure(root, **mine)).execute("select current_user").fetchone() == ("scramuser",)
    assert pooler.connect(**{**secure(root, **mine), "channel_binding": "disable"}).execute("select 1").fetchone() == (1,)
    with pytest.raises(psycopg.OperationalError, match="channel binding"):
        pooler.connect(**{**mine, "sslmode": "disable"})
    with pytest.raises(psycopg.OperationalError):
        pooler.connect(**secure(root, **{**mine, "password": "wrong"}))


@pytest.mark.weir_only
def test_a_client_that_was_told_of_no_channel_binding_is_refused(weir, authorities):
    """It says so in its first SCRAM message; an attacker on the path has taken our offer away (RFC 5802, section 6)."""
    root = authorities[3]
    pooler = weir(auth_type="scram-sha-256", userlist={"alice": "secret"}, **settings(root, "allow"))
    first = {"y": b"y,,n=,r=abcdefgh", "n": b"n,,n=,r=abcdefgh"}
    for flag, kind in (("y", "E"), ("n", "R")):
        with wire.Raw(pooler.port) as raw:
            raw.send(SSL_REQUEST)
            assert raw.read_bytes(1) == b"S"
            raw.socket = context(root).wrap_socket(raw.socket, server_hostname="localhost")
            raw.send(wire.startup(user="alice", database="app"))
            assert b"SCRAM-SHA-256-PLUS" in raw.read().body
            message = wire.cstring("SCRAM-SHA-256") + struct.pack("!i", len(first[flag])) + first[flag]
            raw.send(wire.message(b"p", message))
            assert raw.read().kind == kind, flag


# --- the bytes before and after the handshake ------------------------------------------------------------------------
SSL_REQUEST = struct.pack("!II", 8, 80877103)


def context(root, alpn=True):
    chosen = ssl.create_default_context(cafile=str(root.cert))
    if alpn:
        chosen.set_alpn_protocols(["postgresql"])
    return chosen


def tcp(pooler):
    plain = socket.create_connection(("127.0.0.1", pooler.port), timeout=20)
    return plain


def startup(user="alice", database="app"):
    body = struct.pack("!I", 196608) + b"".join(f"{k}\0{v}\0".encode() for k, v in [("user", user), ("database", database)]) + b"\0"
    return struct.pack("!I", len(body) + 4) + body


@pytest.mark.since("1.25")
def test_direct_tls(weir, authorities):
    pooler = weir(**settings(authorities[3]))
    with context(authorities[3]).wrap_socket(tcp(pooler), server_hostname="localhost") as client:
        assert client.selected_alpn_protocol() == "postgresql"
        client.sendall(startup())
        assert client.recv(1) == b"R"
    pooler.wait_log(rf"tls={re.escape(SUMMARY)}")


@pytest.mark.since("1.25")
def test_direct_tls_needs_alpn(weir, authorities):
    pooler = weir(**settings(authorities[3]))
    with pytest.raises(OSError), context(authorities[3], alpn=False).wrap_socket(tcp(pooler), server_hostname="localhost") as client:
        client.sendall(startup())
        if not client.recv(1):
            raise OSError("closed")
    pooler.wait_log("ALPN")


def test_nothing_may_come_behind_the_ssl_request(weir, authorities):
    """I13 of ARCHITECTURE.md. Bytes that an attacker put before the handshake would else count as the client's own."""
    pooler = weir(**settings(authorities[3], "allow"))
    with tcp(pooler) as client:
        client.sendall(SSL_REQUEST + startup())
        answer = b""
        while more := client.recv(4096):
            answer += more
    assert b"R" not in answer[:1] and not answer.startswith(b"S"), answer
    assert not re.search("login attempt", pooler.log_text())


def test_a_second_ssl_request_inside_tls_is_refused(weir, authorities):
    pooler = weir(**settings(authorities[3]))
    with tcp(pooler) as plain:
        plain.sendall(SSL_REQUEST)
        assert plain.recv(1) == b"S"
        with context(authorities[3]).wrap_socket(plain, server_hostname="localhost") as client:
            client.sendall(SSL_REQUEST)
            assert client.recv(1) in (b"E", b"")


def test_a_broken_handshake_hurts_nobody_else(weir, authorities):
    pooler = weir(**settings(authorities[3]))
    client = pooler.connect(**secure(authorities[3]))
    with tcp(pooler) as plain:
        plain.sendall(SSL_REQUEST)
        assert plain.recv(1) == b"S"
        plain.sendall(b"\x16\x03\x01\x00\x05garbage, no client hello at all")
        try:
            while plain.recv(4096):
                pass
        except ConnectionResetError:
            pass
    assert client.execute("select 1").fetchone() == (1,)


def test_a_connection_that_just_ends_is_no_tls_error(weir, authorities):
    pooler = weir(**settings(authorities[3]))
    with tcp(pooler) as plain:
        plain.sendall(SSL_REQUEST)
        assert plain.recv(1) == b"S"
        client = context(authorities[3]).wrap_socket(plain, server_hostname="localhost")
        client.sendall(startup())
        assert client.recv(1) == b"R"
        socket.socket(fileno=client.detach()).close()
    pooler.connect(**secure(authorities[3]))
    host.eventually(lambda: re.search("closing because: client unexpected eof", pooler.log_text()))
    assert "unexpected eof while reading" not in pooler.log_text()


def test_a_handshake_has_the_time_of_a_login(weir, authorities):
    pooler = weir(**settings(authorities[3]), client_login_timeout=1)
    with tcp(pooler) as plain:
        plain.sendall(SSL_REQUEST)
        assert plain.recv(1) == b"S"
        assert plain.recv(100) == b"", "no word in clear after S"
    pooler.wait_log("closing because: client_login_timeout")


# --- versions and ciphers ---------------------------------------------------------------------------------------------
def agreed(pooler, root, **more):
    with psycopg.connect(**pooler.address(**secure(root, **more))):
        return pooler.wait_log(r"login attempt: db=app user=alice tls=(\S+)")[-1]


def test_versions(weir, authorities):
    root = authorities[3]
    pooler = weir(**settings(root, client_tls_protocols="tlsv1.2"))
    assert re.match(r"TLSv1.2/ECDHE-RSA-[A-Z0-9-]+/ECDH=X25519$", agreed(pooler, root))
    with pytest.raises(psycopg.OperationalError):
        pooler.connect(**secure(root, ssl_min_protocol_version="TLSv1.3"))


def test_ciphers_of_1_2(weir, authorities):
    root = authorities[3]
    pooler = weir(**settings(root, client_tls_ciphers="ECDHE+AESGCM:!AES256", client_tls_protocols="tlsv1.2,tlsv1.3"))
    assert agreed(pooler, root, ssl_max_protocol_version="TLSv1.2").startswith("TLSv1.2/ECDHE-RSA-AES128-GCM-SHA256")


@pytest.mark.since("1.25")
def test_ciphers_of_1_3(weir, authorities):
    root = authorities[3]
    pooler = weir(**settings(root, client_tls13_ciphers="TLS_CHACHA20_POLY1305_SHA256"))
    assert agreed(pooler, root) == "TLSv1.3/TLS_CHACHA20_POLY1305_SHA256"


def test_a_curve(weir, authorities):
    root = authorities[3]
    # The log names the curve of TLS 1.2.
    curve = {"client_tls_ecdhcurve": "secp384r1", "client_tls_dheparams": "none"}
    pooler = weir(**settings(root, client_tls_protocols="tlsv1.2", **curve))
    assert agreed(pooler, root).endswith("/ECDH=secp384r1")


@pytest.mark.weir_only
def test_what_rustls_lacks_is_warned_of(weir, authorities):
    root = authorities[3]
    pooler = weir(**settings(root, client_tls_ciphers="AES256-SHA:HIGH", client_tls_protocols="tlsv1.1,tlsv1.2"))
    pooler.wait_log('WARNING client_tls_ciphers: "AES256-SHA" is not supported')
    pooler.wait_log("WARNING client_tls_protocols: TLS below 1.2 is not supported")


# --- traffic ----------------------------------------------------------------------------------------------------------
def test_cancel_over_tls(weir, pg, authorities):
    pooler = weir(**settings(authorities[3]))
    client = pooler.connect(**secure(authorities[3]))
    cancel_by_psycopg(pg, client)


def test_large_results_and_large_requests(weir, authorities):
    pooler = weir(**settings(authorities[3]))
    client = pooler.connect(**secure(authorities[3]))
    with client.cursor() as cursor, cursor.copy("copy (select repeat('x', 1000) from generate_series(1, 50000)) to stdout") as copy:
        assert sum(len(piece) for piece in copy) == 50_000 * 1001
    text = "y" * 5_000_000
    assert client.execute("select length(%s::text)", (text,)).fetchone() == (5_000_000,)


def test_a_slow_reader_gets_everything(weir, authorities):
    """Far more than fits into every buffer is on its way while nothing is read."""
    pooler = weir(**settings(authorities[3]))
    slow, other = (pooler.connect(**secure(authorities[3])) for _ in range(2))
    slow.pgconn.send_query(b"select repeat('x', 1000) from generate_series(1, 40000)")
    slow.pgconn.flush()
    for _ in range(20):
        assert other.execute("select 1").fetchone() == (1,)
    result = slow.pgconn.get_result()
    assert result.ntuples == 40_000


def test_pgbench(weir, authorities, pg):
    pooler = weir(**settings(authorities[3]), default_pool_size=4)
    script = pooler.directory / "bench.sql"
    script.write_text("select 1;\n")
    host.hand_over(script)
    environment = {"PGSSLMODE": "require", "PATH": "/usr/bin:/bin"}
    for protocol in ("simple", "extended", "prepared"):
        command = [pg.bindir / "pgbench", "-n", "-f", script, "-c", "8", "-t", "50", "-M", protocol, "-h", "127.0.0.1"]
        done = host.run([*command, "-p", str(pooler.port), "-U", "alice", "app"], env=environment)
        assert "number of failed transactions: 0" in done.stdout, done.stdout
