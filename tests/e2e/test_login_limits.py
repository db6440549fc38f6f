"""Connections that have not logged in: they keep no client out, and who guesses passwords waits for the answers."""

import contextlib
import os
import pwd
import socket
import time

import psycopg
import pytest

import host
import wire

pytestmark = pytest.mark.weir_only
USERLIST = {"alice": "right", "admin": ""}
REFUSED = b"too many connections that have not logged in"


def begun(pooler):
    """A login that goes no further than the question for the password."""
    raw = wire.Raw(pooler.port)
    raw.send(wire.startup(user="alice", database="app"))
    assert raw.read().kind == "R"
    return raw


def silent(pooler):
    """A connection with half a length: the system would not have one without a byte accepted (tcp_defer_accept)."""
    raw = wire.Raw(pooler.port)
    raw.send(b"\0")
    return raw


def silent_from(pooler, address):
    """The same from another address of this machine."""
    raw = socket.create_connection(("127.0.0.1", pooler.port), timeout=30, source_address=(address, 0))
    raw.sendall(b"\0")
    return raw


def failed(pooler):
    """A login that has failed; its answer may be held back."""
    raw = begun(pooler)
    raw.send(wire.message(b"p", wire.cstring("wrong")))
    return raw


@contextlib.contextmanager
def as_user(name):
    """What is connected in here belongs to another user of the system."""
    before = os.geteuid()
    os.seteuid(pwd.getpwnam(name).pw_uid)
    try:
        yield
    finally:
        os.seteuid(before)


def gets_in(pooler):
    return pooler.value("select 1", password="right") == 1


@pytest.mark.parametrize("threads", [1, 4])
def test_logins_that_prove_nothing_keep_no_client_out(weir, threads):
    pooler = weir(auth_type="scram-sha-256", userlist=USERLIST, max_client_conn=3, threads=threads)
    waiting = [begun(pooler) for _ in range(100)] + [silent(pooler) for _ in range(50)]
    clients = [pooler.connect(password="right") for _ in range(3)]
    with pytest.raises(psycopg.OperationalError, match="max_client_conn"):
        gets_in(pooler)
    assert all(client.execute("select 1").fetchone() == (1,) for client in clients)
    clients.pop().close()
    for raw in waiting:
        raw.socket.close()


@pytest.mark.parametrize("limit", ["max_login_conn", "max_login_conn_per_address"])
def test_of_too_many_the_one_goes_that_has_waited_longest(weir, limit):
    pooler = weir(auth_type="md5", userlist=USERLIST, threads=1, **{limit: 5})
    older = [silent(pooler), *(begun(pooler) for _ in range(4))]
    time.sleep(1.2)  # who has waited for a second counts as older
    newer = [begun(pooler) for _ in range(2)]
    assert all(REFUSED in raw.read().body for raw in older[:2])
    assert gets_in(pooler)
    assert REFUSED in older[2].read().body
    pooler.wait_log(r"closing because: too many connections that have not logged in \(max_login_conn\)")
    # A crowd is let in as long as none of it has waited for long; there is an end to that, too.
    crowd = [silent(pooler) for _ in range(40)]
    refused = 0
    for raw in crowd:
        raw.socket.settimeout(0.2)
        try:
            refused += REFUSED in raw.read().body
        except (OSError, EOFError, TimeoutError):
            pass
    assert refused > 0
    for raw in [*older, *newer, *crowd]:
        raw.socket.close()
    assert gets_in(pooler)


@pytest.mark.parametrize("limit", ["max_login_conn", "max_login_conn_per_address"])
def test_failed_logins_whose_answer_is_held_back_keep_no_client_out(weir, limit):
    pooler = weir(auth_type="plain", userlist=USERLIST, threads=1, auth_failure_delay=30, **{limit: 5})
    held = [failed(pooler) for _ in range(60)]
    assert gets_in(pooler)
    # Those that made way got the answer that they had waited for, long before its time.
    assert b"password authentication failed" in held[4].read().body
    for raw in held:
        raw.socket.close()


def test_an_address_with_many_connections_makes_way_for_one_with_few(weir):
    pooler = weir(auth_type="plain", userlist=USERLIST, threads=1, max_login_conn=5, max_login_conn_per_address=0)
    crowd = [silent_from(pooler, "127.0.0.2") for _ in range(60)]
    assert gets_in(pooler)
    for raw in crowd:
        raw.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_a_user_of_the_machine_is_limited_like_an_address(weir):
    pooler = weir(auth_type="plain", userlist=USERLIST, threads=1, max_login_conn_per_address=5)
    path = pooler.directory / f".s.PGSQL.{pooler.port}"
    with as_user("nobody"):
        crowd = [wire.Raw(pooler.port, path=path) for _ in range(60)]
    assert gets_in(pooler)
    refused = [raw for raw in crowd[20:] if REFUSED in raw.read().body]
    assert len(refused) == 40
    # The superuser is never refused.
    administrators = [wire.Raw(pooler.port, path=path) for _ in range(60)]
    administrators[-1].send(wire.startup(user="admin", database="pgbouncer"))
    assert administrators[-1].read().kind == "R"
    for raw in crowd + administrators:
        raw.socket.close()


def took(pooler, password):
    """How long the answer to a login takes, and what it says."""
    start = time.monotonic()
    try:
        pooler.value("select 1", password=password)
        text = "in"
    except psycopg.OperationalError as failure:
        text = str(failure)
    return time.monotonic() - start, text


@pytest.mark.parametrize("auth_type", ["scram-sha-256", "plain"])
def test_who_fails_again_and_again_is_answered_late(weir, auth_type):
    pooler = weir(auth_type=auth_type, userlist=USERLIST, auth_failure_delay=10)
    first = [took(pooler, "wrong") for _ in range(4)]
    late, text = took(pooler, "wrong")
    assert "authentication failed" in text and all(text[-30:] == other[-30:] for _, other in first)
    assert late >= 10 > min(seconds for seconds, _ in first)
    right, text = took(pooler, "right")
    assert right < 10 and text == "in", "a right password is never held back"
    pooler.write_ini(auth_failure_delay=0)
    pooler.signal(1)
    pooler.wait_log("RELOAD|reload|SIGHUP")
    host.eventually(lambda: took(pooler, "wrong")[0] < 10, timeout=90)
