"""Clients that die, or close, while output for them is stuck: their place and their server are free again at once, however it ends."""

import re
import socket
import ssl
import struct
import time
from pathlib import Path

import pytest

import host
import wire

ROWS = "select repeat('x', 1000) from generate_series(1, 200000)"


def reset(sock):
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


def close(sock):
    sock.close()


def close_one_side(sock):
    sock.shutdown(socket.SHUT_WR)


def say_terminate_and_close(sock):
    sock.setblocking(False)
    sock.send(wire.TERMINATE)
    sock.close()


ENDS = [reset, close, close_one_side, say_terminate_and_close]
REQUESTS = [
    [wire.query(ROWS)],
    [wire.query(f"copy ({ROWS}) to stdout")],
    [wire.query("begin"), wire.query(ROWS)],
]
PIPELINE = [wire.query(ROWS), wire.query("select 1") * 50_000]


def stuck(pooler, requests, raw):
    """Sends these and reads nothing; back when the reply has stopped."""
    raw.socket.settimeout(1)
    try:
        raw.send(*requests)
    except TimeoutError:
        pass
    host.eventually(lambda: pooler.pool()["sv_active"] == 1)
    host.eventually(lambda: is_still(pooler))
    return raw


def slow(pooler):
    raw = wire.Raw(pooler.port)
    raw.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    return raw


def is_still(pooler):
    def sent():
        return sum(row["total_sent"] for row in pooler.console("show stats") if row["database"] == "app")

    before = sent()
    time.sleep(0.1)
    return 0 < before == sent()


@pytest.mark.weir_only
@pytest.mark.parametrize("end", ENDS)
def test_a_client_that_does_not_read_and_ends_gives_all_back(weir, end):
    pooler = weir(default_pool_size=1, query_wait_timeout=20)
    # The end of a side stands behind requests that are not read yet, and cannot be seen before them.
    for requests in REQUESTS + [PIPELINE] * (end is not close_one_side):
        raw = stuck(pooler, requests, slow(pooler).login())
        end(raw.socket)
        assert pooler.value("select 1") == 1
        host.eventually(lambda: pooler.pool()["cl_active"] == 0)
        raw.socket.close()


@pytest.mark.weir_only
@pytest.mark.parametrize("end", [reset, close, close_one_side])
def test_so_does_one_with_tls(weir, authorities, end):
    key = authorities[3].server
    pooler = weir(default_pool_size=1, query_wait_timeout=20, client_tls_sslmode="allow", client_tls_cert_file=key.cert, client_tls_key_file=key.key)
    raw = slow(pooler)
    raw.send(wire.request(wire.SSL_REQUEST))
    assert raw.read_bytes(1) == b"S"
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    raw.socket = context.wrap_socket(raw.socket)
    stuck(pooler, [wire.query(ROWS)], raw.login())
    end(raw.socket)
    assert pooler.value("select 1") == 1
    raw.socket.close()


def memory_kb(pooler):
    status = (Path("/proc") / str(pooler.process.pid) / "status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+)", status)[1])


@pytest.mark.weir_only
def test_memory_of_slow_readers_is_bounded_and_comes_back(weir):
    clients = 16
    pooler = weir(default_pool_size=clients)
    pooler.value("select 1")
    before = memory_kb(pooler)
    raws = [slow(pooler).login() for _ in range(clients)]
    for raw in raws:
        raw.send(wire.query("select repeat('x', 100) from generate_series(1, 2000000)"))
    host.eventually(lambda: is_still(pooler), timeout=60)
    host.eventually(lambda: memory_kb(pooler) < before + 8_000 + clients * 1_024, timeout=60)
    for raw in raws:
        reset(raw.socket)
    host.eventually(lambda: memory_kb(pooler) < before + 10_000, timeout=60)


@pytest.mark.weir_only
def test_a_client_that_takes_nothing_for_tcp_user_timeout_is_gone(weir):
    pooler = weir(default_pool_size=1, query_wait_timeout=20, tcp_user_timeout=500)
    raw = slow(pooler).login()
    raw.send(wire.query(ROWS))
    host.eventually(lambda: pooler.pool()["sv_active"] == 1)
    assert pooler.value("select 1") == 1
    raw.socket.close()
