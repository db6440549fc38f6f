"""Slow logins in the log (`log_slow_queries`): what each part of a login of a real client took. Weir's own."""

import re
import socket
import ssl
import threading
import time

import psycopg
import pytest

import host
import wire

pytestmark = pytest.mark.weir_only

SLOW = r"({}\S+)@\S+ slow login: ([\d.]+) ms \(([^;)]*)((?:; failed)?)\)"
# Half a second for one name.
QUERY = "select $1::text, 'pw'::text || case when $1 = 'late' then pg_sleep(0.6)::text else '' end"


def parts(text):
    return {name: float(ms) for name, ms in (part.rsplit(" ", 1) for part in text.split(", "))}


def logged(pooler, count=1, database="app"):
    """(who, ms, parts, whether it failed) of each line; the parts add up. On a busy machine the console's logins are slow, too."""
    lines = pooler.wait_log(SLOW.format(f"{database}/"), count)
    found = [(who, float(ms), parts(of), bool(failed)) for who, ms, of, failed in lines]
    assert all(abs(ms - sum(of.values())) < 0.1 * len(of) for _, ms, of, _ in found), found
    assert len(found) == count, found
    return found


@pytest.mark.parametrize("threads", [1, 4])
def test_a_slow_auth_query(weir, pg, threads):
    pg.query("drop role if exists late; create role late login")
    settings = {"auth_type": "plain", "auth_user": "bob", "auth_query": QUERY, "threads": threads, "userlist": {"bob": "", "admin": ""}}
    pooler = weir(log_slow_queries=0.4, **settings)
    with psycopg.connect(**pooler.address(user="late", password="pw")) as client:
        assert client.execute("select current_user").fetchone() == ("late",)
    [(who, ms, of, failed)] = logged(pooler)
    assert (who, failed) == ("app/late", False) and of["auth_query"] >= 500 and ms < 5000 and "client" in of
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(**pooler.address(user="late", password="wrong"))
    _, (who, _, of, failed) = logged(pooler, 2)
    assert (who, failed) == ("app/late", True) and of["auth_query"] >= 500
    assert "pw" not in re.search("slow login.*", pooler.log_text())[0]


def test_a_server_that_is_given_at_login(weir):
    pooler = weir(pool_mode="session", assign_server_at_login=1, default_pool_size=1)
    first, clients = pooler.connect(), []
    pooler.reload(log_slow_queries=0.4)
    thread = threading.Thread(target=lambda: clients.append(pooler.connect()))
    thread.start()
    host.eventually(lambda: pooler.pool()["cl_waiting"] == 1)
    time.sleep(0.5)
    first.close()
    thread.join(30)
    [(who, _, of, failed)] = logged(pooler)
    assert (who, failed) == ("app/alice", False) and of["server"] >= 400 > of["client"]


def test_the_first_server_of_a_pool(weir):
    pooler = weir(databases={"app": "pool_size=1 connect_query='select pg_sleep(0.6)'"}, log_slow_queries=0.4)
    client = pooler.connect()
    [(_, _, of, _)] = logged(pooler)
    assert of["server"] >= 500
    host.eventually(lambda: pooler.pool()["sv_idle"] == 1)  # It is asked for its relations first.
    client.execute("select 1")
    pooler.console("RECONNECT app")
    host.eventually(lambda: pooler.pool()["sv_idle"] == 0)
    client.execute("select 2")
    # The login of a server connection that a query has waited for is a part of that query.
    line = pooler.wait_log(r"slow query: [\d.]+ ms \(([^)]*connect[^)]*)\): select \?")
    assert len(line) == 1 and parts(line[0])["connect"] >= 500
    assert len(re.findall("app/.* slow login", pooler.log_text())) == 1


def test_a_slow_handshake_of_tls_and_a_client_that_takes_its_time(weir, authorities):
    root = authorities[3]
    files = {"client_tls_cert_file": root.server.cert, "client_tls_key_file": root.server.key}
    pooler = weir(log_slow_queries=0.4, client_tls_sslmode="allow", **files)
    context = ssl.create_default_context(cafile=str(root.cert))
    with socket.create_connection(("127.0.0.1", pooler.port), timeout=30) as plain:
        plain.sendall(wire.request(80877103))
        assert plain.recv(1) == b"S"
        time.sleep(0.5)
        with context.wrap_socket(plain, server_hostname="localhost") as secured:
            time.sleep(0.3)
            secured.sendall(wire.startup(user="alice", database="app"))
            assert secured.recv(1) == b"R"
            [(who, _, of, failed)] = logged(pooler)
    assert (who, failed) == ("app/alice", False) and of["tls"] >= 450 and of["client"] >= 250


def slowly(raw, **who):
    """Half a second passes within the startup packet: before its first byte the kernel keeps the connection to itself (tcp_defer_accept)."""
    packet = wire.startup(**who)
    raw.send(packet[:5])
    time.sleep(0.5)
    raw.send(packet[5:])
    raw.read_until("Z")


def test_who_does_not_say_who_it_is_is_no_slow_login_and_off_logs_none(weir):
    pooler = weir(log_slow_queries=0.2)
    with wire.Raw(pooler.port) as silent:
        silent.send(wire.startup(user="alice", database="app")[:20])
        time.sleep(0.5)
    pooler.reload(log_slow_queries=0)
    with wire.Raw(pooler.port) as slow:
        slowly(slow, user="alice", database="app")
    assert not re.search("app/.* slow login", pooler.log_text())
    pooler.reload(log_slow_queries=0.2)
    with wire.Raw(pooler.port) as slow:
        slowly(slow, user="alice", database="app")
        [(who, _, of, _)] = logged(pooler)
    assert who == "app/alice" and of["client"] >= 400


def test_the_console_too(weir):
    pooler = weir(log_slow_queries=0.3)
    with wire.Raw(pooler.port) as slow:
        slowly(slow, user="admin", database="pgbouncer")
        [(who, *_)] = logged(pooler, database="pgbouncer")
    assert who == "pgbouncer/admin"
