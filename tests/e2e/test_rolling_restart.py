"""Two processes on one port (`so_reuseport`): the new one starts, the old one is shut down, and no client is cut off."""

import signal
import threading

import psycopg
import pytest

import host
import wire

pytestmark = pytest.mark.since("1.23")


def beside(weir, first):
    """A further process on the same port, with a directory of its own for its unix socket."""
    second = weir.prepared(so_reuseport=1)
    second.port = first.port
    second.socket_path = second.directory / f".s.PGSQL.{first.port}"
    second.write_ini()
    second.launch()
    second.wait_log("process up")
    return second


def test_a_second_process_takes_the_clients_while_the_first_one_drains(weir, pg):
    first = weir(so_reuseport=1)
    old_client = first.connect()
    old_client.execute("begin")
    second = beside(weir, first)
    first.signal(signal.SIGTERM)
    first.wait_log("got SIGTERM, shutting down, waiting for all clients disconnect")
    host.eventually(lambda: all_reach(second))
    assert old_client.execute("select 1").fetchone() == (1,)
    old_client.execute("commit")
    assert old_client.execute("select 2").fetchone() == (2,)
    assert first.is_running()
    old_client.close()
    assert first.wait_end() == 0
    assert not first.socket_path.exists() and second.socket_path.exists()
    assert second.value("select 3") == 3


def all_reach(pooler, count=10):
    """Every one of a number of new clients is served, and by this process."""
    before = pooler.log_text().count("login attempt")
    try:
        values = [pooler.value("select 1") for _ in range(count)]
    except psycopg.OperationalError:
        return False
    return values == [1] * count and pooler.log_text().count("login attempt") >= before + count


def test_new_clients_find_one_of_them_all_the_time(weir, pg):
    """Clients that connect while processes are exchanged are served; one that the closing socket had in its queue may try again."""
    current = weir(so_reuseport=1)
    stop, failures, served = threading.Event(), [], []

    def come_and_go():
        while not stop.is_set():
            for attempt in range(5):
                try:
                    with wire.Raw(current.port).login() as raw:
                        served.append(raw.simple("select 1"))
                    break
                except (OSError, wire.Closed) as failure:
                    if attempt == 4:
                        failures.append(failure)

    visitors = [threading.Thread(target=come_and_go) for _ in range(3)]
    for visitor in visitors:
        visitor.start()
    try:
        for _ in range(3):
            following = beside(weir, current)
            before = len(served)
            current.signal(signal.SIGTERM)
            assert current.wait_end() == 0
            host.eventually(lambda: len(served) > before + 5)
            current = following
    finally:
        stop.set()
        for visitor in visitors:
            visitor.join(30)
    assert not failures
    assert set(map(str, served)) == {"[['1']]"}
