"""Bad input from clients that are logged in: refused or passed on, without effect on other clients."""

import random
import struct

import pytest

import wire
from test_bad_input_login import resident_kib

weir_only = pytest.mark.weir_only


@pytest.fixture
def pooler(weir):
    """One server for all, so that what one client breaks the next one meets."""
    return weir(default_pool_size=1, client_login_timeout=5)


def others_are_fine(pooler):
    with wire.Raw(pooler.port).login() as other:
        assert other.simple("select 'fine'") == [["fine"]]
        replies = other.ask(wire.parse("", "select 'too'"), wire.bind(), wire.execute(), wire.SYNC)
        assert wire.kinds(replies) == "12DCZ"


def frame(kind, length, body=b""):
    """A frame whose length says what it likes."""
    return kind + struct.pack("!i", length) + body


@pytest.mark.parametrize("kind", [b"Q", b"P", b"B", b"d", b"X", b"S"])
@pytest.mark.parametrize("length", [0, 3, -1, -(2**31)])
def test_impossible_lengths_end_the_client(pooler, kind, length):
    with wire.Raw(pooler.port).login() as raw:
        raw.send(frame(kind, length, b"select 1\0"))
        replies = raw.read_to_end()
    assert all(state == "08P01" for state, _ in wire.errors(replies))
    others_are_fine(pooler)


@pytest.mark.since("1.26.1")
@pytest.mark.parametrize("length", [2**31, 2**31 + 16, 2**32 - 1])
def test_no_setting_allows_a_length_above_the_signed_maximum(weir, length):
    """CVE-2026-107348: a buffer that should grow to it never did, and the process span."""
    pooler = weir(max_packet_size=2**32 - 1, client_login_timeout=5)
    declared = struct.pack("!I", length) + b"select 1"
    with wire.Raw(pooler.port).login() as raw:
        raw.send(b"Q" + declared)
        assert all(state == "08P01" for state, _ in wire.errors(raw.read_to_end()))
    with wire.Raw(pooler.port) as raw:
        raw.send(declared)
        raw.read_to_end()
    others_are_fine(pooler)


@pytest.mark.parametrize("length", [2**31 - 1, 2**30])
def test_a_declared_length_is_not_allocated(weir, length):
    pooler = weir(default_pool_size=50, max_client_conn=200)
    pooler.value("select 1")
    before = resident_kib(pooler)
    clients = [wire.Raw(pooler.port).login() for _ in range(40)]
    for client in clients:
        client.send(frame(b"Q", length, b"select 1 -- "))
    assert pooler.value("select 1") == 1
    assert resident_kib(pooler) - before < 20_000
    for client in clients:
        client.socket.close()


@weir_only
def test_max_packet_size(weir):
    pooler = weir(max_packet_size=10_000)
    with wire.Raw(pooler.port).login() as raw:
        raw.send(wire.query("select '" + "x" * 20_000 + "'"))
        assert all(state == "08P01" for state, _ in wire.errors(raw.read_to_end()))
    others_are_fine(pooler)


def test_max_packet_size_of_a_row(weir):
    """One packet is one query or one row, as the page of settings says."""
    pooler = weir(max_packet_size=10_000)
    with wire.Raw(pooler.port).login() as raw:
        raw.send(wire.query("select repeat('x', 5000) from generate_series(1, 10)"))
        assert wire.kinds(raw.read_until("Z")).count("D") == 10
        raw.send(wire.query("select repeat('x', 20000)"))
        assert len(wire.errors(raw.read_to_end())) == 1
    pooler.wait_log(r"S-.* closing because: bad packet length from server|S-.* closing because: bad pkt header")
    others_are_fine(pooler)


@pytest.mark.parametrize("kind", [b"\0", b"?", b"z", b"\xff", b"R", b"K", b"T"])
def test_unknown_types_end_the_client(pooler, kind):
    with wire.Raw(pooler.port).login() as raw:
        raw.send(wire.message(kind, b"whatever\0"))
        replies = raw.read_to_end()
    ((state, _),) = wire.errors(replies)
    assert state == "08P01"
    others_are_fine(pooler)


def test_a_password_after_the_login_ends_the_client(pooler):
    with wire.Raw(pooler.port).login() as raw:
        raw.send(wire.message(b"p", b"secret\0"))
        assert all(state == "08P01" for state, _ in wire.errors(raw.read_to_end()))
    others_are_fine(pooler)


@pytest.mark.parametrize(
    "message",
    [
        wire.message(b"Q", b"select 1"),
        wire.message(b"Q", b""),
        wire.message(b"Q", b"select 1\0select 2\0"),
        wire.message(b"P", b"name"),
        wire.message(b"P", b"name\0select 1"),
        wire.message(b"P", b"name\0select 1\0\0\x05"),
        wire.message(b"P", b"name\0select 1\0\xff\xff"),
        wire.message(b"B", b"\0"),
        wire.message(b"B", b"\0\0\0\0\x7f\xff"),
        wire.message(b"B", b"\0\0\0\0\xff\xff"),
        wire.message(b"B", b"\0\0\0\0\0\1" + struct.pack("!i", 2**31 - 1)),
        wire.message(b"B", b"\0\0\0\0\0\1" + struct.pack("!i", -7)),
        wire.message(b"D", b""),
        wire.message(b"D", b"Xname\0"),
        wire.message(b"D", b"Sno end"),
        wire.message(b"E", b"\0"),
        wire.message(b"E", b""),
        wire.message(b"C", b""),
        wire.message(b"C", b"Xname\0"),
        wire.message(b"F", b"\0\0"),
        wire.message(b"f", b""),
        wire.message(b"H", b"surplus"),
        wire.message(b"S", b"surplus"),
    ],
    ids=range(23),
)
def test_malformed_messages(pooler, message):
    """PostgreSQL's own error, or ours and the end; never a stray answer for the next client."""
    with wire.Raw(pooler.port).login() as raw:
        raw.send(wire.parse("", "select $1::text"), message, wire.SYNC, wire.query("select 1"), wire.TERMINATE)
        replies = raw.read_to_end()
    assert len(wire.errors(replies)) <= 3
    others_are_fine(pooler)


@pytest.mark.parametrize("portal", [wire.execute("no_such_portal"), wire.describe(b"P", "no_such_portal")])
def test_an_unknown_portal_is_the_servers_to_refuse(pooler, portal):
    with wire.Raw(pooler.port).login() as raw:
        replies = raw.ask(portal, wire.SYNC)
        assert wire.kinds(replies) == "EZ"
        assert wire.errors(replies)[0][0] == "34000"
        assert raw.simple("select 1") == [["1"]]


def test_a_portal_taken_twice(pooler):
    with wire.Raw(pooler.port).login() as raw:
        raw.simple("begin")
        replies = raw.ask(wire.parse("", "select 1"), wire.bind(portal="p"), wire.bind(portal="p"), wire.SYNC)
        assert wire.errors(replies)[0][0] == "42P03"
        raw.simple("rollback")


def test_a_wrong_number_of_parameters(pooler):
    with wire.Raw(pooler.port).login() as raw:
        replies = raw.ask(wire.parse("", "select $1::int, $2::int"), wire.bind(values=[b"1"]), wire.execute(), wire.SYNC)
        assert wire.errors(replies)[0][0] == "08P01"
        assert raw.simple("select 1") == [["1"]]


@pytest.mark.parametrize("value", [b"\xff\xfe", b"a\0b", b"\xc0\x80"])
def test_text_that_is_no_text(pooler, value):
    with wire.Raw(pooler.port).login() as raw:
        replies = raw.ask(wire.parse("", "select $1::text"), wire.bind(values=[value]), wire.execute(), wire.SYNC)
        assert wire.errors(replies)[0][0] == "22021"
        assert raw.simple("select 1") == [["1"]]


def test_a_query_during_copy_in(pooler):
    with wire.Raw(pooler.port).login() as raw:
        raw.simple("drop table if exists interrupted; create table interrupted (number int)")
        raw.send(wire.query("copy interrupted from stdin"))
        assert raw.read().kind == "G"
        raw.send(wire.query("select 1"))
        assert wire.errors(raw.read_to_end())[0][0] == "08P01"
    others_are_fine(pooler)


def test_a_flood_of_syncs(pooler):
    count = 50_000
    with wire.Raw(pooler.port, timeout=60).login() as raw:
        raw.socket.setblocking(False)
        sent, received, data = 0, 0, wire.SYNC * count
        while received < 6 * count:
            try:
                sent += raw.socket.send(data[sent : sent + 65536]) if sent < len(data) else 0
            except BlockingIOError:
                pass
            try:
                received += len(raw.socket.recv(65536))
            except BlockingIOError:
                pass
        raw.socket.settimeout(10)
        assert raw.simple("select 1") == [["1"]]


def test_names_of_ten_megabytes(pooler):
    with wire.Raw(pooler.port).login() as raw:
        raw.send(wire.parse("n" * 10_000_000, "select 1"), wire.SYNC, wire.TERMINATE)
        replies = raw.read_to_end()
    assert wire.kinds(replies) in ("1Z", "EZ", "E", "")
    others_are_fine(pooler)


@pytest.mark.since("1.21")
def test_thousands_of_names(weir):
    pooler = weir(default_pool_size=1, max_prepared_statements=10)
    with wire.Raw(pooler.port).login() as raw:
        for number in range(0, 5000, 50):
            raw.send(*(wire.parse(f"name {n}", f"select {n}") for n in range(number, number + 50)), wire.SYNC)
            raw.read_until("Z")
        assert int(raw.simple("select count(*) from pg_prepared_statements")[0][0]) <= 10
    others_are_fine(pooler)


def test_random_messages(weir):
    """Frames that are well formed outside and anything inside; and bytes that are not even that."""
    pooler = weir(default_pool_size=3, query_wait_timeout=30)
    for seed in range(150):
        dice = random.Random(seed)
        messages = [
            wire.message(bytes([dice.choice(b"QPBDECSHFdcfpX?")]), dice.randbytes(dice.randrange(0, 60)))
            for _ in range(dice.randrange(1, 8))
        ]
        with wire.Raw(pooler.port).login() as raw:
            raw.send(*messages, dice.randbytes(50) if seed % 4 == 0 else b"")
    for _ in range(3):
        others_are_fine(pooler)
