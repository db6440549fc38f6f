"""Why a client keeps its server outside of a request: what the console and the panel's API say of it."""

import struct

import pytest

import host
import panel
import wire

pytestmark = pytest.mark.weir_only


def pins(web, **wanted):
    """The reasons of clients and of servers, as far as there are some."""
    query = "&".join(f"{name}={value}" for name, value in {"database": "app", **wanted}.items())
    reasons = lambda kind: {row["pinned_reason"] for row in web.get(f"/api/v1/{kind}?{query}")[kind]} - {None}  # noqa: E731
    return reasons("clients"), reasons("servers")


def become(web, *reasons):
    """Waits until both sides say so, and nothing else."""
    host.eventually(lambda: pins(web) == (set(reasons), set(reasons)))


def test_what_pins_a_server_has_a_name(weir):
    pooler, web = panel.start(weir, default_pool_size=2, session_state="off")
    client = wire.Raw(pooler.port).login(application_name="pinned")
    for statement, *reasons in (
        ("listen news; create temp table kept (number int)",),
        ("begin", "transaction"),
        ("select 1/0", "failed_transaction"),
        ("rollback",),
        ("drop table if exists filled; create table filled (number int)",),
    ):
        client.ask(wire.query(statement))
        become(web, *reasons)
    client.send(wire.query("copy filled from stdin"))
    client.read_until("G")
    become(web, "copy")
    assert {row["pinned"] for row in pooler.console("SHOW SHARD_SERVERS") if row["database"] == "app"} == {"copy"}
    client.send(wire.message(b"c"))
    client.read_until("Z")
    become(web)
    client.send(wire.parse("", "select 1"), wire.bind(), wire.execute(), wire.message(b"H"))
    client.read_until("C")
    become(web, "no_sync")
    client.send(wire.message(b"S"))
    client.read_until("Z")
    text = b"select 1 --" + b"x" * 400_000 + b"\0"
    client.send(b"Q" + struct.pack("!i", len(text) + 4) + text[:200_000])
    become(web, "half_request")
    client.send(text[200_000:])
    client.read_until("Z")
    client.send(wire.query("select repeat('x', 1000) from generate_series(1, 200000)"))
    become(web, "slow_reader")


def test_a_session_and_a_stream_keep_theirs(weir):
    pooler, web = panel.start(weir, databases={"app": "pool_mode=session", "other": ""})
    pooler.connect().execute("select 1")
    become(web, "session")
    with wire.Raw(pooler.port).login("replica", "other", replication="database") as stream:
        stream.simple("IDENTIFY_SYSTEM")
        assert pins(web, database="other") == ({"replication"}, {"replication"})
        assert {row["pinned"] for row in pooler.console("SHOW SHARD_CLIENTS")} == {"", "session", "replication"}


def test_clients_are_found_by_what_pins_them_and_by_their_thread(weir):
    pooler, web = panel.start(weir, default_pool_size=4)
    free, held = pooler.connect(application_name="free"), pooler.connect(application_name="held", autocommit=False)
    free.execute("select 1")
    held.execute("select 1")
    names = lambda query: [row["application_name"] for row in web.get(f"/api/v1/clients?database=app&{query}")["clients"]]  # noqa: E731
    assert names("pinned=transaction") == names("pinned=any") == ["held"]
    assert names("pinned=copy") == []
    assert sorted(names("pinned=")) == ["free", "held"]
    shards = {row["shard"] for row in web.get("/api/v1/clients?database=app")["clients"]}
    assert sorted(name for shard in shards for name in names(f"shard={shard}")) == ["free", "held"]
    assert names("shard=63") == []
