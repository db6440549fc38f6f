"""`session_state = virtual`: a client whose settings its server does not have gets them with its request, in one write, and no request runs
without them."""

import itertools

import pytest

import fault_proxy
import wire

pytestmark = pytest.mark.weir_only


class Recorder(fault_proxy.Proxy):
    """A proxy that keeps what each read from the pooler brought, and None for each from the server."""

    def __init__(self, port):
        self.writes = []
        super().__init__(port)

    def take(self, direction, data):
        self.writes.append(bytes(data) if direction == fault_proxy.TO_SERVER else None)
        return super().take(direction, data)


@pytest.fixture
def alternating(weir, pg):
    """Two clients whose settings differ, on the one server connection of a pool behind a recorder."""
    recorder, clients = Recorder(pg.port), []

    def start(first, second, **settings):
        pooler = weir(databases={"app": f"port={recorder.port}"}, session_state="virtual", default_pool_size=1, **settings)
        for statement in (first, second, first, second):  # By its first request each is told how the server spells its values.
            if len(clients) < 2:
                clients.append(wire.Raw(pooler.port, timeout=60).login())
            client = clients[len(clients) - 1] if statement is second or len(clients) == 1 else clients[0]
            ask(client, wire.query(statement))
        return pooler, recorder, *clients

    yield start
    for client in clients:
        client.__exit__(None, None, None)
    recorder.close()


def ask(client, *messages, readies=1):
    client.send(*messages)
    return client.read_until_ready(readies)


def unnamed(sql):
    return wire.parse("", sql) + wire.bind() + wire.execute() + wire.SYNC


def test_settings_and_request_are_one_write(alternating):
    _, recorder, one, other = alternating("set search_path = one; set app.tenant = '1'", "set search_path = other; set app.tenant = '2'")
    ask(one, wire.parse("s", "show search_path") + wire.SYNC)
    ask(other, wire.parse("s", "show search_path") + wire.SYNC)
    for request in [wire.query("show search_path"), unnamed("show search_path"), wire.bind("s") + wire.execute() + wire.SYNC]:
        for client, path, tenant in [(one, "one", "1"), (other, "other", "2")]:
            recorder.writes.clear()
            told = ask(client, request)
            assert (wire.rows(told), wire.errors(told)) == ([[path]], [])
            sent = b"".join(itertools.takewhile(lambda write: write is not None, recorder.writes))
            assert path.encode() in sent and f"'{tenant}'".encode() in sent, sent
            assert not any(recorder.writes[recorder.writes.index(None):]), "all is sent before the server answers"
            assert wire.rows(ask(client, wire.query("show app.tenant"))) == [[tenant]]


def test_what_the_request_does_to_its_transaction_concerns_no_setting(alternating):
    """Errors, blocks that are rolled back, and commands that run in no transaction block."""
    _, _, one, other = alternating("set search_path = one", "set search_path = other")
    requests = [
        [wire.query("select 1/0")], [unnamed("select 1/0")], [wire.query("begin"), wire.query("select 1"), wire.query("rollback")],
        [wire.query("begin; select 1/0"), wire.query("rollback")], [wire.query("vacuum (analyze) pg_catalog.pg_am")],
        [wire.query("begin isolation level serializable; select 1; commit")], [unnamed("select 1") + unnamed("select 1/0")],
        [wire.query("select 1") + wire.query("select 1/0")],
    ]
    for request in requests:
        for client, path in [(one, "one"), (other, "other")]:
            for part in request:
                ask(client, part, readies=2 if part.startswith(b"P") and part.count(wire.SYNC) == 2 or part.count(b"Q\0") == 2 else 1)
        for client, path in [(one, "one"), (other, "other")]:
            assert wire.rows(ask(client, wire.query("show search_path"))) == [[path]]


def test_a_request_whose_settings_are_refused_is_not_executed(alternating, pg):
    pg.query("drop table if exists in_front; create table in_front (a int); grant all on in_front to alice", "app")
    pg.query("drop role if exists in_front_role; create role in_front_role; grant in_front_role to alice", "app")
    pg.query("grant all on in_front to in_front_role", "app")
    _, _, one, other = alternating("set role in_front_role", "select 1")
    pg.query("revoke all on in_front from in_front_role; drop role in_front_role", "app")
    one.send(wire.query("insert into in_front values (1)"))
    error = one.read()
    assert (error.kind, error.fields()["S"]) == ("E", "FATAL")
    assert 'role "in_front_role" does not exist' in error.fields()["M"]
    assert wire.rows(ask(other, wire.query("select count(*) from in_front"))) == [["0"]]


def test_a_client_is_told_what_its_request_sets_back(alternating):
    """The server reports nothing: the value is the one that it had reported before."""
    _, _, one, other = alternating("set timezone = 'Asia/Tokyo'", "set timezone = 'Europe/Vienna'")
    for client, zone in [(one, "Europe/Vienna"), (other, "Asia/Tokyo"), (one, "Asia/Tokyo")]:
        ask(other if client is one else one, wire.query("select 1"))
        told = ask(client, wire.query(f"set timezone = '{zone}'"))
        reports = [reply.body for reply in told if reply.kind == "S"]
        assert reports in ([f"TimeZone\0{zone}\0".encode()], []), reports
        assert wire.rows(ask(client, wire.query("show timezone"))) == [[zone]]
    ask(one, wire.query("set timezone = 'Asia/Tokyo'"))
    ask(other, wire.query("set timezone = 'Europe/Vienna'"))
    told = ask(one, wire.query("set timezone = 'Europe/Vienna'"))
    assert [reply.body for reply in told if reply.kind == "S"] == [b"TimeZone\0Europe/Vienna\0"]


def test_a_client_is_told_nothing_that_it_knows(alternating):
    _, _, one, other = alternating("set timezone = 'Asia/Tokyo'", "set timezone = 'Europe/Vienna'")
    for client in (one, other, one, other):
        assert [reply.kind for reply in ask(client, wire.query("select 1"))] == ["T", "D", "C", "Z"]
