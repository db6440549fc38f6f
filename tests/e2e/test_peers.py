"""[peers]: processes behind one address; a cancel request that reaches the wrong one gets to the right one."""

import concurrent.futures
import socket

import pytest

import host
import wire
from running import SLEEP, how_many_run, wait_until_runs

pytestmark = pytest.mark.since("1.19")


def group(weir, count, **settings):
    """Processes 1..count that share a TCP port (`so_reuseport`) and know each other by their unix sockets."""
    poolers = [weir.prepared(so_reuseport=1, peer_id=number + 1, **settings) for number in range(count)]
    port = poolers[0].port
    peers = [f"{number + 1} = host={one.directory} port={port}" for number, one in enumerate(poolers)]
    for one in poolers:
        one.port, one.socket_path = port, one.directory / f".s.PGSQL.{port}"
        one.extra = "\n".join(["[peers]", *peers])
        one.write_ini()
        one.start()
        host.eventually(one.socket_path.exists)
    return poolers


def raw(pooler):
    """A connection to this process and no other."""
    return wire.Raw(pooler.port, path=pooler.socket_path)


def ask_to_cancel(pooler, pid, secret):
    with raw(pooler) as request:
        request.send(wire.cancel(pid, secret))
        assert request.read_to_end() == []


def views(pooler, view):
    done = pooler.psql("-c", f"SHOW {view}", database="pgbouncer", user="admin", host_name=pooler.directory)
    return done.stdout.splitlines()


def test_a_cancel_at_any_process_reaches_the_right_one(weir, pg):
    poolers = group(weir, 3)
    for home in poolers:
        for entrance in poolers:
            with raw(home).login() as client:
                client.send(wire.query(SLEEP))
                wait_until_runs(pg)
                ask_to_cancel(entrance, client.pid, client.secret)
                assert wire.errors(client.read_until("Z"))[0][0] == "57014"


@pytest.mark.weir_only
def test_the_process_id_of_a_server_leads_to_the_right_process(weir, pg):
    """It names none: the others are asked for the secret (`assign_server_at_login`)."""
    poolers = group(weir, 3, pool_mode="session", assign_server_at_login=1)
    for home in poolers:
        for entrance in poolers:
            with raw(home).login() as client, raw(home).login() as other:
                assert client.simple("select pg_backend_pid()") == [[str(client.pid)]]
                client.send(wire.query(SLEEP))
                wait_until_runs(pg)
                ask_to_cancel(entrance, client.pid, other.secret)
                assert client.is_silent(0.1)
                ask_to_cancel(entrance, client.pid, client.secret)
                assert wire.errors(client.read_until("Z"))[0][0] == "57014"


def test_a_cancel_over_the_shared_port(weir, pg):
    """Whichever process the kernel chooses, for the session and for each of its cancel requests."""
    pooler = group(weir, 3)[0]
    for _ in range(6):
        with wire.Raw(pooler.port).login() as client:
            client.send(wire.query(SLEEP))
            wait_until_runs(pg)
            with wire.Raw(pooler.port) as request:
                request.send(wire.cancel(client.pid, client.secret))
                assert request.read_to_end() == []
            assert wire.errors(client.read_until("Z"))[0][0] == "57014"


def test_many_cancels_at_once_over_a_small_peer_pool(weir, pg):
    home, entrance = group(weir, 2, default_pool_size=20)
    entrance.extra = entrance.extra.replace(f"1 = host={home.directory}", f"1 = pool_size=1 host={home.directory}")
    entrance.write_ini()
    entrance.psql("-c", "RELOAD", database="pgbouncer", user="admin", host_name=entrance.directory)
    clients = [raw(home).login() for _ in range(20)]
    for client in clients:
        client.send(wire.query(SLEEP))
    wait_until_runs(pg, 20)
    with concurrent.futures.ThreadPoolExecutor(20) as workers:
        done = [workers.submit(ask_to_cancel, entrance, client.pid, client.secret) for client in clients[::2]]
        assert all(one.result() is None for one in done)
    for client in clients[::2]:
        assert wire.errors(client.read_until("Z"))[0][0] == "57014"
    assert how_many_run(pg) == 10


def test_what_was_forwarded_too_often_or_names_nobody_goes_nowhere(weir, pg):
    home, entrance = group(weir, 2)
    with raw(home).login() as client:
        client.send(wire.query(SLEEP))
        wait_until_runs(pg)
        exhausted = client.secret[:3] + bytes([client.secret[3] & ~0x03])
        ask_to_cancel(entrance, client.pid, exhausted)
        entrance.wait_log("failed to forward cancel request because its TTL was exhausted")
        ask_to_cancel(entrance, (client.pid & ~0x00FFFF00) | 0x00090000, client.secret)
        entrance.wait_log("could not find peer to forward request to")
        wrong = bytes([client.secret[0] ^ 1]) + client.secret[1:]
        ask_to_cancel(entrance, client.pid, wrong)
        assert how_many_run(pg) == 1
        ask_to_cancel(entrance, client.pid, client.secret)
        assert wire.errors(client.read_until("Z"))[0][0] == "57014"


def test_a_key_is_laid_out_as_pgbouncers(weir):
    (pooler, _) = group(weir, 2)
    with raw(pooler).login() as client:
        key = client.pid.to_bytes(4, "big", signed=True) + client.secret
        assert key[0] < 0x80 and key[1:3] == b"\x01\x00" and key[7] & 0x03 == 0x03


def test_peers_and_their_pools_are_shown(weir):
    first, second = group(weir, 2)
    assert views(first, "PEERS") == [
        f"1|{first.directory}|{first.port}|20",
        f"2|{second.directory}|{first.port}|20",
    ]
    assert [row.split("|")[0] for row in views(first, "PEER_POOLS")][-1] == "2"
    assert "peers|2" in views(first, "LISTS")


def test_a_peer_that_is_gone_keeps_nobody_waiting(weir):
    first, second = group(weir, 2)
    with raw(second).login() as client:
        pid, secret = client.pid, client.secret
    second.stop()
    ask_to_cancel(first, pid, secret)
    assert views(first, "VERSION")


def test_requests_to_a_silent_peer_take_turns_and_are_given_up(weir):
    """Twice pool_size at a time, as PgBouncer has it; `cancel_wait_timeout` ends the others too."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        pooler = weir.prepared(peer_id=1, cancel_wait_timeout=5)
        pooler.extra = f"[peers]\n2 = host=127.0.0.1 port={silent.getsockname()[1]} pool_size=1"
        pooler.write_ini()
        pooler.start()
        requests = [wire.Raw(pooler.port) for _ in range(3)]
        for request in requests:
            request.send(wire.cancel(0x01020000, b"\1\2\3\3"))
        row = lambda: next(row for row in pooler.console("SHOW PEER_POOLS") if row["peer_id"] == 2)
        columns = ("sv_active_cancel", "cl_active_cancel_req", "cl_waiting_cancel_req", "sv_login")
        host.eventually(lambda: [seen[name] for seen in [row()] for name in columns] == [2, 2, 1, 0])
        for request in requests:
            assert request.read_to_end() == []
        host.eventually(lambda: row()["cl_active_cancel_req"] == 0)
        pooler.wait_log("closing because: cancel_wait_timeout")


@pytest.mark.weir_only
def test_cancel_requests_for_a_process_that_does_not_answer_keep_no_client_out(weir):
    with socket.create_server(("127.0.0.1", 0), backlog=100) as deaf:
        pooler = weir.prepared(peer_id=1, threads=1, default_pool_size=2, max_login_conn=5)
        peers = [f"1 = host=127.0.0.1 port={pooler.port}", f"2 = host=127.0.0.1 port={deaf.getsockname()[1]}"]
        pooler.extra = "\n".join(["[peers]", *peers])
        pooler.write_ini()
        pooler.start()
        requests = []
        for _ in range(100):
            requests.append(wire.Raw(pooler.port))
            requests[-1].send(wire.cancel(0x00020009, b"\1\2\3\xff"))
        assert pooler.value("select 1") == 1
        # Those that made way are closed; those that are left are few.
        waiting = [request for request in requests if request.is_silent(0.01)]
        assert len(waiting) <= 20
        for request in requests:
            request.socket.close()
