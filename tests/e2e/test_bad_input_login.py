"""Bad input before the login is done. The rows of the reliability notes' table, with the outcome written there:
never a panic, never memory by a declared length, and nobody else notices."""

import random
import struct
import time
from pathlib import Path

import pytest

import conftest
import host
import secret
import wire
from weir import Stopwatch

weir_only = pytest.mark.weir_only  # where PgBouncer's own words or codes are others


def startup_bytes(version, body):
    return wire.packet(struct.pack("!i", version) + body)


def answer_to(pooler, data, half_close=False):
    """What the pooler says to these first bytes until it closes."""
    with wire.Raw(pooler.port) as raw:
        raw.send(data)
        if half_close:
            raw.socket.shutdown(1)
        return raw.read_to_end()


def resident_kib(pooler):
    status = Path(f"/proc/{pooler.process.pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0])


@pytest.mark.parametrize(
    "data",
    [
        *(struct.pack("!i", length) for length in range(8)),
        struct.pack("!ii", 7, wire.V3_0),
        struct.pack("!ii", -1, wire.V3_0),
        struct.pack("!ii", -(2**31), wire.V3_0),
        struct.pack("!ii", 2**31 - 1, wire.V3_0),
        struct.pack("!ii", 20_000, wire.V3_0),
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        wire.message(b"p", b"secret\0"),
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(64),
        bytes(64),
        b"\xff" * 64,
    ],
    ids=lambda data: data[:12].hex(),
)
def test_what_is_no_startup_packet_is_closed_without_a_word(weir, data):
    pooler = weir(client_login_timeout=4)
    replies = answer_to(pooler, data)
    # PgBouncer says so to the peer; PostgreSQL and Weir only log it.
    assert wire.kinds(replies) in (("", "E") if conftest.PGBOUNCER else ("",))
    assert pooler.value("select 1") == 1


def test_a_part_of_a_packet_and_an_end(weir):
    pooler = weir()
    whole = wire.startup(user="alice", database="app")
    for length in range(1, len(whole) - 1, 7):
        answer_to(pooler, whole[:length], half_close=True)
    assert pooler.value("select 1") == 1


@weir_only
def test_garbage_is_logged_once_a_second_for_each_peer(weir):
    pooler = weir()
    with Stopwatch() as watch:
        for _ in range(100):
            answer_to(pooler, b"GET / HTTP/1.1\r\n\r\n")
    said = lambda: [line for line in pooler.log_text().splitlines() if "127.0.0.1" in line and "listening" not in line]  # noqa: E731
    host.eventually(said)
    assert len(said()) <= watch.seconds + 2


@weir_only
@pytest.mark.parametrize(
    "body",
    [b"", b"user", b"user\0alice", b"user\0alice\0database\0", b"user\0alice\0database\0app", b"user\0alice\0\0tail"],
)
def test_a_bad_layout(weir, body):
    pooler = weir()
    replies = answer_to(pooler, startup_bytes(wire.V3_0, body))
    ((state, text),) = wire.errors(replies)
    assert state == "08P01" and text.startswith("invalid startup packet layout")


@weir_only
@pytest.mark.parametrize("body", [b"\0", b"database\0app\0\0", b"user\0\0database\0app\0\0"])
def test_no_user(weir, body):
    pooler = weir()
    ((state, _),) = wire.errors(answer_to(pooler, startup_bytes(wire.V3_0, body)))
    assert state == "28000"


@weir_only
@pytest.mark.parametrize("version", [2 << 16, 4 << 16, 1 << 16, 0x7FFF0000])
def test_other_major_versions(weir, version):
    pooler = weir()
    ((state, _),) = wire.errors(answer_to(pooler, startup_bytes(version, b"user\0alice\0\0")))
    assert state == "0A000"


@pytest.mark.since("1.20")
@pytest.mark.parametrize("version", [(3 << 16) | 3, (3 << 16) | 9999])
def test_a_newer_minor_version_is_negotiated(weir, version):
    pooler = weir()
    with wire.Raw(pooler.port).login(version=version) as raw:
        newest, unknown = struct.unpack("!ii", raw.negotiated)
        assert (newest & 0xFFFF, unknown) in [(0, 0), (2, 0)]
        assert raw.simple("select 1") == [["1"]]


@pytest.mark.since("1.23")
def test_unknown_protocol_options_are_named(weir):
    pooler = weir()
    with wire.Raw(pooler.port).login(**{"_pq_.shiny": "on", "_pq_.new": "1"}) as raw:
        newest, unknown = struct.unpack_from("!ii", raw.negotiated)
        assert (newest, unknown) in [(0, 2), (wire.V3_0, 2)]
        assert raw.negotiated[8:] == b"_pq_.shiny\0_pq_.new\0"
        assert raw.simple("select 1") == [["1"]]


@pytest.mark.parametrize("code", [wire.SSL_REQUEST, wire.GSSENC_REQUEST])
def test_encryption_is_refused_and_the_login_goes_on(weir, code):
    pooler = weir()
    with wire.Raw(pooler.port) as raw:
        raw.send(wire.request(code))
        assert raw.read_bytes(1) == b"N"
        assert raw.login().simple("select 1") == [["1"]]


@weir_only
@pytest.mark.parametrize("code", [wire.SSL_REQUEST, wire.GSSENC_REQUEST])
def test_bytes_behind_a_request_for_encryption(weir, code):
    pooler = weir()
    with wire.Raw(pooler.port) as raw:
        raw.send(wire.request(code), wire.startup(user="alice", database="app"))
        answer = raw.read_bytes(1)
        if answer == b"N":
            answer = raw.read_bytes(1)
        assert answer == b"E"
        raw.read_bytes(4)
        fields = wire.Message("E", raw.read_everything()).fields()
    assert fields["C"] == "08P01" and fields["M"].startswith("received unencrypted data after")


def test_many_requests_for_encryption_end_some_time(weir):
    pooler = weir(client_login_timeout=4)
    with wire.Raw(pooler.port) as raw:
        raw.send(wire.request(wire.SSL_REQUEST))
        assert raw.read_bytes(1) == b"N"
        raw.send(wire.request(wire.SSL_REQUEST))
        raw.read_to_end()
    assert pooler.value("select 1") == 1


@pytest.mark.since("1.20")
def test_a_startup_packet_larger_than_pkt_buf(weir):
    pooler = weir(pkt_buf=4096)
    with wire.Raw(pooler.port).login(application_name="x" * 5000) as raw:
        assert raw.simple("select 1") == [["1"]]


@weir_only
def test_names_of_databases_are_cut_at_63_bytes_as_postgresql_does(weir, pg):
    name = "n" * 63
    pg.query(f"drop database if exists {name}")
    pg.query(f"create database {name}")
    pooler = weir(databases={"*": ""})
    for database in (name, name + "more"):
        with wire.Raw(pooler.port).login(database=database) as raw:
            assert raw.simple("select current_database()") == [[name]]
    names = {row["database"] for row in pooler.console("SHOW POOLS")} - {"pgbouncer"}
    pg.query(f"drop database {name} with (force)")
    assert names == {name}


def test_names_of_users_are_cut_as_postgresql_does(weir, pg):
    """Before anything is decided by them: else a longer name passes a rule for its first 63 bytes. Files too."""
    name, wide = "n" * 127, "ü" * 40
    pg.query(f'drop role if exists "{wide}"')
    pg.query(f'create role "{wide}" login')
    pooler = weir(databases={"app": "user=bob", "own": "dbname=app"}, userlist={name: "", wide: "", "admin": ""})
    for user in (name, name[:-1], "n" * 63):
        with wire.Raw(pooler.port).login(user=user) as raw:
            assert raw.simple("select current_user") == [["bob"]]
    with wire.Raw(pooler.port).login(user=wide, database="own") as raw:
        assert raw.simple("select current_user") == [["ü" * 31]]
    pools = {row["user"] for row in pooler.console("SHOW POOLS")}
    assert "ü" * 31 in pools and wide not in pools
    assert wire.errors(answer_to(pooler, wire.startup(user=name + "n", database="app")))
    pooler.wait_log("username too long")


@pytest.mark.parametrize("length", [64, 127, 128, 1000, 5000])
def test_long_names(weir, length):
    pooler = weir()
    for parameters in ({"user": "u" * length, "database": "app"}, {"user": "alice", "database": "d" * length}):
        assert wire.errors(answer_to(pooler, wire.startup(**parameters)))
    assert pooler.value("select 1") == 1


@weir_only
def test_codes_of_refusals(weir):
    pooler = weir(max_client_conn=1)
    ((state, text),) = wire.errors(answer_to(pooler, wire.startup(user="alice", database="nowhere")))
    assert (state, text) == ("3D000", "no such database: nowhere")
    with wire.Raw(pooler.port).login():
        ((state, text),) = wire.errors(answer_to(pooler, wire.startup(user="alice", database="app")))
    assert state == "53300" and "max_client_conn" in text


# --- passwords ------------------------------------------------------------------------------------------------
def login_with(pooler, *messages):
    with wire.Raw(pooler.port) as raw:
        raw.send(wire.startup(user="alice", database="app"))
        assert raw.read().kind == "R"
        raw.send(*messages)
        return raw.read_to_end()


def sasl(mechanism, first, length=None):
    size = struct.pack("!i", len(first) if length is None else length)
    return wire.message(b"p", wire.cstring(mechanism) + size + first)


GOOD_FIRST = b"n,,n=,r=abcdefgh"


@pytest.mark.parametrize(
    "message",
    [
        sasl("SCRAM-SHA-1", GOOD_FIRST),
        sasl("", GOOD_FIRST),
        sasl("SCRAM-SHA-256-PLUS", b"p=tls-server-end-point,,n=,r=abcdefgh"),
        sasl("SCRAM-SHA-256", GOOD_FIRST, length=2**31 - 1),
        pytest.param(sasl("SCRAM-SHA-256", GOOD_FIRST, length=-1), marks=pytest.mark.since("1.26")),  # it ended PgBouncer
        sasl("SCRAM-SHA-256", b""),
        sasl("SCRAM-SHA-256", b"n,,n=,r="),
        sasl("SCRAM-SHA-256", b"y,,n=,r=\xff\xfe"),
        sasl("SCRAM-SHA-256", b"garbage"),
        wire.message(b"p", b"SCRAM-SHA-256"),
        wire.message(b"p"),
        b"p" + struct.pack("!i", 2**31 - 1),
        b"p" + struct.pack("!i", -5),
        b"p" + struct.pack("!i", 3),
        wire.query("select 1"),
        wire.SYNC,
        sasl("SCRAM-SHA-256", GOOD_FIRST) + wire.message(b"p", b"c=biws,r=wrong,p=AAAA"),
        sasl("SCRAM-SHA-256", GOOD_FIRST) + wire.message(b"p", b"c=!!!!,r=abcdefgh,p=!!!!"),
        sasl("SCRAM-SHA-256", GOOD_FIRST) + wire.message(b"p", b""),
        sasl("SCRAM-SHA-256", GOOD_FIRST) + wire.message(b"p", b"c=biws"),
    ],
    ids=range(20),
)
def test_bad_sasl_is_refused(weir, message):
    pooler = weir(auth_type="scram-sha-256", userlist={"alice": secret.scram("right")}, client_login_timeout=4)
    replies = login_with(pooler, message)
    assert "Z" not in wire.kinds(replies)
    assert all(state in ("08P01", "28P01", "28000") for state, _ in wire.errors(replies))
    assert pooler.value("select 1", password="right") == 1


@pytest.mark.parametrize("auth_type", ["plain", "md5"])
@pytest.mark.parametrize(
    "message",
    [wire.message(b"p", b"\0"), wire.message(b"p"), wire.message(b"p", b"x" * 70_000 + b"\0"), wire.message(b"p", b"no end")],
    ids=["empty", "no bytes", "70 KB", "no NUL"],
)
def test_bad_passwords_are_refused(weir, auth_type, message):
    pooler = weir(auth_type=auth_type, userlist={"alice": "right"}, client_login_timeout=4)
    replies = login_with(pooler, message)
    assert "Z" not in wire.kinds(replies)
    assert all(state in ("08P01", "28P01") for state, _ in wire.errors(replies))
    assert pooler.value("select 1", password="right") == 1


@pytest.mark.since("1.26.1")
@pytest.mark.parametrize("database", ["app", "nowhere"])
@pytest.mark.parametrize("begun", [False, True], ids=["first", "in the exchange"])
def test_a_second_startup_packet_is_no_proof(weir, database, begun):
    """CVE-2026-107350: who could log in as one user named another in the middle of SCRAM, and was let in as that one."""
    userlist = {"alice": "known", "admin": "secret"}
    pooler = weir(auth_type="scram-sha-256", userlist=userlist, client_login_timeout=4)
    with wire.Raw(pooler.port) as raw:
        raw.send(wire.startup(user="alice", database=database))
        assert raw.read().kind == "R"
        if begun:
            raw.send(sasl("SCRAM-SHA-256", GOOD_FIRST))
            assert raw.read().kind == "R"
        raw.send(wire.startup(user="admin", database=database))
        replies = raw.read_to_end()
    assert wire.kinds(replies) == "E" and wire.errors(replies)[0][0] == "08P01"
    assert pooler.value("select 1", password="known") == 1


# --- cancel ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "data",
    [
        wire.cancel(1, b"\0\0\0\1"),
        wire.cancel(-1, b"\xff\xff\xff\xff"),
        struct.pack("!ii", 12, wire.CANCEL_REQUEST) + b"\0\0\0\1",
        struct.pack("!ii", 8, wire.CANCEL_REQUEST),
        wire.cancel(1, bytes(500)),
    ],
    ids=["unknown", "ones", "short", "shorter", "long"],
)
def test_a_bad_cancel_is_closed_without_a_word(weir, data):
    pooler = weir(client_login_timeout=4)
    assert answer_to(pooler, data) == []
    assert pooler.value("select 1") == 1


# --- bounds ---------------------------------------------------------------------------------------------------
@weir_only
def test_half_logged_in_clients_cost_no_more_than_16_kib(weir):
    pooler = weir(max_client_conn=1000, client_login_timeout=30, threads=1)
    pooler.value("select 1")
    before = resident_kib(pooler)
    declared = struct.pack("!ii", 15_000, wire.V3_0)
    clients = [wire.Raw(pooler.port) for _ in range(500)]
    for client in clients:
        client.send(declared, b"user\0" + b"x" * 14_000)
    pooler.value("select 1")  # one thread reads in order: what came before this client is read
    assert resident_kib(pooler) - before < 500 * 16 + 2048
    for client in clients:
        client.socket.close()
    assert pooler.value("select 1") == 1


@pytest.mark.since("1.26")
def test_unknown_protocol_options_are_not_kept(weir):
    pooler = weir(log_connections=0, log_disconnections=0)
    options = {f"_pq_.option{number}": "x" * 30 for number in range(150)}  # 8 KB with each login

    def log_in(times):
        for _ in range(times):
            with wire.Raw(pooler.port) as raw:
                raw.login(**options)

    log_in(50)
    before = resident_kib(pooler)
    log_in(600)
    assert resident_kib(pooler) - before < 2048


def test_random_first_bytes(weir):
    """Three hundred peers with something to say that is nothing; seeds make them the same every time."""
    pooler = weir(client_login_timeout=10)
    for seed in range(300):
        dice = random.Random(seed)
        data = dice.randbytes(dice.randrange(1, 300))
        if seed % 3 == 0:  # a good frame around bad content
            data = wire.packet(struct.pack("!i", wire.V3_0) + data)
        with wire.Raw(pooler.port) as raw:
            raw.send(data)
    assert pooler.value("select 1") == 1
