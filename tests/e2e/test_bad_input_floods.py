"""Floods of bad input: cancels without a key, wrong passwords, Flush without Sync, absurd console commands. Others are served meanwhile."""

import concurrent.futures
import time

import psycopg
import pytest

import host
import secret
import wire

pytestmark = pytest.mark.weir_only
SECONDS, MOST = 3, 60


def flood(pooler, attack, enough, threads=4):
    """Attacks from some threads for a while, on a busy machine until there were enough: (how many attacks, how many logins with a query others made meanwhile)."""
    begun = time.monotonic()
    attacks, logins = [0] * threads, 0

    def is_over():
        passed = time.monotonic() - begun
        return passed > MOST or passed > SECONDS and enough(sum(attacks), logins)

    def attacker(thread):
        while not is_over():
            attack(attacks[thread])
            attacks[thread] += 1

    with concurrent.futures.ThreadPoolExecutor(threads) as workers:
        attackers = [workers.submit(attacker, number) for number in range(threads)]
        while not is_over():
            assert pooler.value("select 1", password="right") == 1
            logins += 1
        for one in attackers:
            one.result(60)
        return sum(attacks), logins


def test_a_flood_of_cancels_keeps_no_login_out(weir):
    pooler = weir(max_client_conn=500, log_connections=0, log_disconnections=0)

    def attack(number):
        with wire.Raw(pooler.port) as raw:
            raw.send(wire.cancel(number + 1, b"\0\0\0\1"))
            assert raw.read_everything() == b""

    attacks, logins = flood(pooler, attack, lambda attacks, logins: attacks > 100 and logins > 5)
    print(f"{attacks} cancels, {logins} logins beside them")
    assert attacks > 100 and logins > 5
    host.eventually(lambda: pooler.pool()["cl_active"] == 0)


@pytest.mark.parametrize("auth_type", ["scram-sha-256", "md5", "plain"])
def test_a_flood_of_wrong_passwords_keeps_no_session_from_its_server(weir, auth_type):
    pooler = weir(auth_type=auth_type, userlist={"alice": "right", "bob": secret.md5("bob", "x"), "admin": ""}, max_client_conn=500)
    with wire.Raw(pooler.port) as patient, concurrent.futures.ThreadPoolExecutor(1) as worker:
        with psycopg.connect(**pooler.address(password="right"), autocommit=True) as client:

            def attack(_):
                with wire.Raw(pooler.port) as raw:
                    raw.send(wire.startup(user="bob", database="app"))
                    raw.read()
                    raw.send(wire.message(b"p", b"wrong\0"))

            answers = 0
            attacking = worker.submit(flood, pooler, attack, lambda attacks, logins: attacks > 50 and logins > 1 and answers > 20)
            while not attacking.done():
                assert client.execute("select 7").fetchone() == (7,)
                answers += 1
            attacks, logins = attacking.result()
        patient.socket.close()
    print(f"{attacks} wrong passwords, {logins} logins and {answers} queries beside them")
    assert attacks > 50 and logins > 1 and answers > 20


def test_flush_without_sync_for_ever(weir):
    """What is asked is answered; transaction_timeout ends it (no ReadyForQuery says that it is idle), and its server is free again."""
    pooler = weir(default_pool_size=1, transaction_timeout=20, query_wait_timeout=60)
    with wire.Raw(pooler.port).login() as raw:
        raw.send(wire.parse("", "select 1"), wire.FLUSH)
        assert raw.read().kind == "1"
        for _ in range(500):
            raw.send(wire.bind(), wire.execute(), wire.FLUSH)
            assert wire.kinds([raw.read() for _ in range(3)]) == "2DC"
        assert pooler.value("select 2") == 2  # once its time is over
        assert wire.errors(raw.read_to_end())


@pytest.mark.parametrize(
    "command",
    [
        "SHOW CLIENTS; DROP TABLE t",
        "SHOW '; SHUTDOWN; --",
        "PAUSE app'; SHUTDOWN; --",
        "SET query_timeout = '1'; SHUTDOWN",
        "KILL \u202e\u0000app".replace("\0", ""),
        "SHOW " + "x" * 1_000_000,
        "SHOW \u00fc\U0001f600",
        "RELOAD " * 100_000,
        "'" * 999_999,
    ],
    ids=range(9),
)
def test_absurd_console_commands_are_refused(weir, command):
    pooler = weir()
    with wire.Raw(pooler.port).login(user="admin", database="pgbouncer") as raw:
        replies = raw.ask(wire.query(command))
        assert wire.kinds(replies)[-2:] == "EZ", wire.kinds(replies)
        assert "Z" in wire.kinds(raw.ask(wire.query("SHOW VERSION")))
    assert pooler.is_running() and pooler.value("select 1") == 1
