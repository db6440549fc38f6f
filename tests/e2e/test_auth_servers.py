"""How Weir proves itself to PostgreSQL: md5, SCRAM and plain passwords, from the user file, the ini or the client's own exchange."""

import re
import socket

import psycopg
import pytest

import host
import secret
import wire

PASSWORDS = {"md5user": "md5 secret", "scramuser": "scram secret", "plainuser": "plain secret"}


@pytest.mark.parametrize("user", PASSWORDS)
def test_with_a_plain_secret_in_the_user_file(weir, user):
    pooler = weir(auth_type="md5", userlist=PASSWORDS)
    assert pooler.value("select current_user", user=user, password=PASSWORDS[user]) == user


def test_with_an_md5_secret_in_the_user_file(weir):
    userlist = {"md5user": secret.md5("md5user", PASSWORDS["md5user"])}
    pooler = weir(auth_type="md5", userlist=userlist)
    assert pooler.value("select current_user", user="md5user", password=PASSWORDS["md5user"]) == "md5user"


@pytest.mark.parametrize("user", PASSWORDS)
def test_with_a_password_in_the_ini(weir, user):
    pooler = weir(databases={"app": f"user={user} password='{PASSWORDS[user]}'"})
    assert pooler.value("select current_user", user="alice") == user


@pytest.mark.parametrize("auth_type", ["scram-sha-256", "md5"])
def test_scram_passes_through(weir, pg, auth_type):
    """The user file holds PostgreSQL's own verifier; the client's proof is what opens the server."""
    verifier = pg.value("select rolpassword from pg_authid where rolname = 'scramuser'")
    pooler = weir(auth_type=auth_type, userlist={"scramuser": verifier}, default_pool_size=3)
    clients = [pooler.connect(user="scramuser", password=PASSWORDS["scramuser"]) for _ in range(3)]
    for client in clients:
        client.execute("begin")
    assert {client.execute("select current_user").fetchone()[0] for client in clients} == {"scramuser"}


def test_a_wrong_password_for_the_server_reaches_the_client_in_the_servers_words(weir):
    pooler = weir(databases={"app": "user=scramuser password=wrong"}, server_login_retry=1)
    with pytest.raises(psycopg.OperationalError, match='password authentication failed for user "scramuser"|login failed'):
        pooler.value("select 1")


@pytest.mark.parametrize(
    "database, user, text",
    [
        ("app", "nologin", 'role "nologin" is not permitted to log in'),
        ("missing", "alice", 'database "missing" does not exist'),
    ],
)
@pytest.mark.since("1.20")
def test_what_the_server_refuses_reaches_the_client_in_its_words(weir, database, user, text):
    pooler = weir(databases={"app": "", "missing": ""})
    with pytest.raises(psycopg.OperationalError, match=text):
        pooler.value("select 1", database=database, user=user)
    pooler.wait_log(f"server login failed: FATAL {text}")


REFUSALS = [
    ("3D000", 'database "nosuch" does not exist'),
    ("28000", 'role "nologin" is not permitted to log in'),
    ("28000", 'pg_hba.conf rejects connection for host "127.0.0.1", user "alice", database "app", no encryption'),
]


@pytest.mark.since("1.20")
@pytest.mark.parametrize("code, text", REFUSALS, ids=["database", "login", "hba"])
def test_all_who_wait_for_a_refused_login_hear_of_it(weir, code, text):
    """One attempt at the server, and every waiting client gets the server's error at once."""
    refusal = wire.message(b"E", f"SFATAL\0VFATAL\0C{code}\0M{text}\0\0".encode())
    with socket.create_server(("127.0.0.1", 0)) as server:
        databases = {"app": f"port={server.getsockname()[1]}"}
        pooler = weir(databases=databases, server_tls_sslmode="disable", server_login_retry=60)
        clients = [wire.Raw(pooler.port) for _ in range(5)]
        for client in clients:
            client.send(wire.startup(user="alice", database="app"))
        attempt, _ = server.accept()
        host.eventually(lambda: pooler.pool().get("cl_waiting") == len(clients))
        attempt.sendall(refusal)
        for client in clients:
            assert wire.errors(client.read_to_end()) == [(code, text)]
            client.socket.close()
        attempt.close()
        server.settimeout(0.2)
        with pytest.raises(TimeoutError):
            server.accept()
    pooler.wait_log(f"server login failed: FATAL {re.escape(text)}")
    pooler.wait_log(f"C-.* closing because: {re.escape(text)}", count=len(clients))


@pytest.fixture
def locked_out(pg):
    """Takes the right to log in from a role of its own; what is open stays open."""
    pg.query("drop role if exists leaver; create role leaver login")
    yield lambda: pg.query("alter role leaver nologin")
    pg.query("drop role leaver")


NOT_PERMITTED = 'role "leaver" is not permitted to log in'


@pytest.mark.parametrize("change", ["RECONNECT", "RELOAD"])
def test_a_refused_login_is_told_while_an_old_connection_is_in_a_transaction(weir, pg, locked_out, change):
    """The old connection closes with its transaction: it will serve no client, so none waits for it."""
    pooler = weir(userlist={"leaver": "", "admin": ""}, query_wait_timeout=60, default_pool_size=3)
    working = pooler.connect(user="leaver")
    working.execute("begin")
    locked_out()
    if change == "RELOAD":
        pooler.databases["app"] = "connect_query='select 1'"
        pooler.reload()
    else:
        pooler.console(change)
    with pytest.raises(psycopg.OperationalError, match=NOT_PERMITTED):  # not what query_wait_timeout says
        pooler.value("select 1", user="leaver")
    assert working.execute("select 1").fetchone() == (1,)
    working.execute("commit")


@pytest.mark.since("1.22")
def test_a_refused_login_is_told_to_clients_that_were_let_in_before(weir, pg, locked_out):
    pooler = weir(userlist={"leaver": "", "admin": ""}, query_wait_timeout=60, default_pool_size=3)
    working, waiting = pooler.connect(user="leaver"), pooler.connect(user="leaver")
    working.execute("begin")
    locked_out()
    pooler.console("RECONNECT")
    with pytest.raises(psycopg.OperationalError, match=NOT_PERMITTED):  # not what query_wait_timeout says
        waiting.execute("select 1")


@pytest.mark.since("1.24")
def test_the_servers_line_repeats_what_it_refuses_by(weir):
    pooler = weir()
    with pytest.raises(psycopg.OperationalError):
        pooler.value("select 1", user="nologin")
    pooler.wait_log(r'S-.* closing because: role "nologin" is not permitted to log in \(age=\d+s\)')


def test_the_user_file_is_read_again_on_reload(weir, pg):
    pooler = weir(auth_type="md5", userlist={"scramuser": "stale", "admin": ""}, server_login_retry=1)
    with pytest.raises(psycopg.OperationalError):
        pooler.value("select 1", user="scramuser", password="stale")
    pooler.write_userlist({"scramuser": PASSWORDS["scramuser"], "admin": ""})
    pooler.signal(1)
    pooler.wait_log("RELOAD|SIGHUP")
    host.eventually(lambda: works(pooler))


def works(pooler):
    try:
        return pooler.value("select true", user="scramuser", password=PASSWORDS["scramuser"])
    except psycopg.OperationalError:
        return False
