"""LISTEN, UNLISTEN and NOTIFY with `session_state = virtual`: clients that listen share one connection of their pool, and keep no server."""

import asyncio
import threading
import time

import asyncpg
import psycopg
import pytest

import host
from test_takeover import reboot

pytestmark = pytest.mark.weir_only

LISTENERS = 50
CHANNELS = 5


@pytest.fixture
def virtual(weir):
    def start(**settings):
        return weir(**{"session_state": "virtual", "default_pool_size": 2, **settings})

    return start


def directly(pg):
    return psycopg.connect(host="127.0.0.1", port=pg.port, user="alice", dbname="app", autocommit=True)


def heard(connection, timeout=0.0, count=None):
    return [(one.channel, one.payload) for one in connection.notifies(timeout=timeout, stop_after=count)]


def listening_backends(pg):
    with directly(pg) as direct:
        rows = direct.execute("select pid from pg_stat_activity where query like '%LISTEN \"weir_handover\"%' and pid <> pg_backend_pid()")
        return [row[0] for row in rows.fetchall()]


def settles(connection, channel, pg):
    """Notifies until the client hears it: from then on another connection listens for it again."""
    with directly(pg) as direct:
        for number in range(100):
            direct.execute(f"notify {channel}, 'again {number}'")
            if heard(connection, timeout=0.2, count=1):
                return
    raise AssertionError("nobody listens any more")


class Listener(threading.Thread):
    """A client that runs queries and transactions while it listens, and keeps what it hears of each channel."""

    def __init__(self, pooler, number):
        super().__init__()
        self.pooler, self.number, self.found, self.failure = pooler, number, {}, None
        self.last = {}  # of each channel, known once all of them were sent
        self.ready, self.over = threading.Event(), threading.Event()

    def run(self):
        try:
            with self.pooler.connect() as connection:
                connection.add_notify_handler(self.note)
                for channel in range(CHANNELS):
                    connection.execute(f"listen news_{(channel + self.number) % CHANNELS}")
                self.ready.set()
                while not self.over.is_set():
                    with connection.transaction():
                        connection.execute("select pg_sleep(0.005)")
                    connection.execute("select 1")
                    time.sleep(0.02)
                deadline = time.monotonic() + 30
                while any(number not in self.found.get(channel, []) for channel, number in self.last.items()) and time.monotonic() < deadline:
                    connection.execute("select pg_sleep(0.05)")
                # One that came twice would come now.
                for _ in range(5):
                    connection.execute("select pg_sleep(0.05)")
        except Exception as error:  # noqa: BLE001 (the test says it)
            self.failure = error
        finally:
            self.ready.set()

    def note(self, one):
        self.found.setdefault(one.channel, []).append(int(one.payload))


def test_each_client_hears_each_notification_once_and_in_order(virtual, pg):
    pooler = virtual()
    clients = [Listener(pooler, number) for number in range(LISTENERS)]
    sent, over = {channel: 0 for channel in range(CHANNELS)}, threading.Event()

    def notify():
        with directly(pg) as direct:
            while not over.is_set():
                for channel in sent:
                    direct.execute(f"notify news_{channel}, '{sent[channel]}'")
                    sent[channel] += 1
                time.sleep(0.005)

    notifier = threading.Thread(target=notify)
    notifier.start()
    for client in clients:
        client.start()
    for client in clients:
        client.ready.wait(60)
    time.sleep(2)
    host.eventually(lambda: sent[0] > 100)
    over.set()
    notifier.join()
    for client in clients:
        client.last = {f"news_{channel}": count - 1 for channel, count in sent.items()}
        client.over.set()
    for client in clients:
        client.join()
        assert client.failure is None, client.failure
        for channel in sent:
            payloads = client.found[f"news_{channel}"]
            # From its LISTEN on, whenever that was, each one to the last.
            assert payloads == list(range(payloads[0], sent[channel])), (client.number, channel)


def test_a_client_that_listens_keeps_no_server(virtual):
    pooler = virtual(default_pool_size=1)
    with pooler.connect() as one, pooler.connect() as other, pooler.connect() as third:
        one.execute("listen a")
        other.execute("listen a")
        third.execute("notify a, 'x'")
        assert [heard(connection, 5, 1) for connection in (one, other)] == [[("a", "x")]] * 2
        states = sorted(row["state"] for row in pooler.console("SHOW SERVERS") if row["database"] == "app")
        assert "listening" in states and len(states) == 2, states
        assert heard(third, 0.2) == []


def test_its_channels_are_its_own(virtual):
    pooler = virtual()
    channels = lambda connection: sorted(row[0] for row in connection.execute("select pg_listening_channels()").fetchall())  # noqa: E731
    with pooler.connect() as one, pooler.connect() as other:
        one.execute("listen a; listen \"B c\"")
        other.execute("listen d")
        assert (channels(one), channels(other)) == (["B c", "a"], ["d"])
        one.execute("begin; unlisten a; rollback")
        assert channels(one) == ["B c", "a"]
        one.execute("unlisten a")
        assert channels(one) == ["B c"]
        other.execute("notify a, '1'; notify \"B c\", '2'")
        assert heard(one, 5, 1) == [("B c", "2")]
        one.execute("discard all")
        other.execute("notify \"B c\", '3'; notify d, '4'")
        assert heard(other, 5, 1) == [("d", "4")]
        assert (channels(one), channels(other), heard(one, 0.2)) == ([], ["d"], [])
        one.execute("begin")
        one.execute("listen e")
        one.execute("rollback")
        other.execute("notify e")
        assert heard(one, 0.3) == [] and channels(one) == []


def test_a_transaction_is_not_disturbed(virtual, pg):
    pooler = virtual(threads=1)
    with pooler.connect() as client, pooler.connect() as other, directly(pg) as direct:
        client.execute("listen a")
        other.execute("listen a")
        client.execute("begin")
        direct.execute("notify a, '1'")
        assert heard(other, 30, 1) == [("a", "1")], "the pooler has it"
        assert heard(client, 0.5) == []
        client.execute("select 1")
        assert heard(client, 0.1) == []
        found = []
        client.add_notify_handler(lambda one: found.append(one.payload))
        client.execute("commit")
        assert found == ["1"], "in front of ReadyForQuery"


def test_its_own_notification_reaches_it_once(virtual):
    pooler = virtual()
    with pooler.connect() as client:
        client.execute("listen a")
        for number in range(20):
            client.execute(f"notify a, '{number}'")
        assert heard(client, 3) == [("a", str(number)) for number in range(20)]


def test_its_own_notification_comes_before_ready_and_has_its_process_id(virtual, pg):
    pooler = virtual()
    with pooler.connect() as client, directly(pg) as direct:
        client.execute("listen a")
        found = []
        client.add_notify_handler(lambda one: found.append((one.payload, one.pid)))
        own = client.info.backend_pid
        for number in range(20):
            direct.execute("notify a, 'of another'")
            client.execute(f"notify a, '{number}'")
            assert (str(number), own) in found, (number, own, found)
            assert found.count((str(number), own)) == 1
        assert ("of another", direct.info.backend_pid) in found
        client.execute("begin; listen b; notify b, 'new'; commit")
        assert ("new", own) in found, found


@pytest.mark.parametrize("kept", ["create temp table kept (a int)", "select pg_advisory_lock(7)"])
def test_one_that_keeps_its_server_hears_each_once(virtual, pg, kept):
    pooler = virtual(default_pool_size=3)
    with pooler.connect() as client, pooler.connect() as other, directly(pg) as direct:
        client.execute("listen a")
        other.execute("listen a")
        client.execute(kept)
        client.execute("listen b")
        for number in range(10):
            direct.execute(f"begin; notify a, 'a{number}'; notify b, 'b{number}'; commit")
        wanted = [(channel, f"{channel}{number}") for number in range(10) for channel in "ab"]
        assert heard(client, 5, 20) == wanted and heard(client, 0.3) == []
        assert [payload for _, payload in heard(other, 5, 10)] == [f"a{number}" for number in range(10)]
        assert sorted(client.execute("select pg_listening_channels()").fetchall()) == [("a",), ("b",)]
        client.execute("discard all")
        direct.execute("notify a, 'late'; notify b, 'late'")
        assert heard(client, 0.5) == []


def test_one_that_does_not_read_is_closed_and_holds_up_no_other(virtual, pg):
    pooler = virtual()
    with pooler.connect() as slow, pooler.connect() as other, directly(pg) as direct:
        slow.execute("listen a")
        other.execute("listen a")
        slow.execute("begin")
        payload = "x" * 7900
        for number in range(200):
            direct.execute(f"notify a, '{number} {payload}'")
        assert len(heard(other, 10, 200)) == 200
        host.eventually(lambda: "too many notifications" in pooler.log_text())
        with pytest.raises(psycopg.OperationalError):
            slow.execute("commit")
            slow.execute("select 1")


def test_clients_of_several_threads_hear_the_same(virtual, pg):
    pooler = virtual(threads=2, spread_busy_percent=1, spread_min_servers=1, default_pool_size=8)
    clients = [Listener(pooler, number) for number in range(12)]
    for client in clients:
        client.start()
    for client in clients:
        client.ready.wait(60)
    with directly(pg) as direct:
        for number in range(200):
            direct.execute(f"notify news_0, '{number}'")
    for client in clients:
        client.last = {"news_0": 199}
        client.over.set()
    for client in clients:
        client.join()
        assert client.failure is None, client.failure
        assert client.found["news_0"] == list(range(200)), client.number


def test_without_it_nothing_listens_for_others(weir, pg):
    pooler = weir(session_state="off", default_pool_size=1)
    with pooler.connect() as client:
        client.execute("listen a")
        client.execute("select 1")
        states = [row["state"] for row in pooler.console("SHOW SERVERS") if row["database"] == "app"]
        assert states and "listening" not in states, states


def test_the_connection_is_opened_again(virtual, pg):
    pooler = virtual()
    with pooler.connect() as client, directly(pg) as direct:
        client.execute("listen a")
        direct.execute("notify a, '1'")
        assert heard(client, 5, 1) == [("a", "1")]
        [backend] = listening_backends(pg)
        direct.execute("select pg_terminate_backend(%s)", [backend])
        host.eventually(lambda: "listening connection lost" in pooler.log_text())
        settles(client, "a", pg)
        direct.execute("notify a, '2'")
        host.eventually(lambda: ("a", "2") in heard(client, 1))
        assert client.execute("select pg_listening_channels()").fetchall() == [("a",)]


def test_pause_and_reconnect_open_another_one(virtual, pg):
    pooler = virtual()
    with pooler.connect() as client:
        client.execute("listen a")
        pooler.console("PAUSE app")
        pooler.console("RESUME app")
        settles(client, "a", pg)
        pooler.console("RECONNECT app")
        pooler.console("WAIT_CLOSE app")
        settles(client, "a", pg)


def test_a_takeover_moves_what_clients_listen_on(virtual, pg):
    pooler = virtual()
    with pooler.connect() as idle, pooler.connect() as busy:
        idle.execute("listen a")
        busy.execute("listen a")
        busy.execute("begin")
        reboot(pooler, wait=False)
        settles(idle, "a", pg)
        busy.execute("commit")
        settles(busy, "a", pg)
        heard(idle, 0.5)
        heard(busy, 0.5)
        with directly(pg) as direct:
            direct.execute("notify a, 'last'")
        for connection in (idle, busy):
            news = []
            host.eventually(lambda: news.extend(heard(connection, 1)) or ("a", "last") in news)
            # What settles() has sent may come late.
            assert [one for one in news if not one[1].startswith("again")] == [("a", "last")]
        assert idle.execute("select pg_listening_channels()").fetchall() == [("a",)]


def test_asyncpg_listens(virtual):
    pooler = virtual(default_pool_size=1)

    async def run():
        connections = [await asyncpg.connect(**{"host": "127.0.0.1", "port": pooler.port, "user": "alice", "database": "app"}) for _ in range(5)]
        found = [[] for _ in connections]
        for connection, own in zip(connections, found):
            await connection.add_listener("jobs", lambda _c, _pid, _channel, payload, own=own: own.append(payload))
        for number in range(10):
            await connections[number % 5].execute("select pg_notify('jobs', $1)", str(number))
        for _ in range(100):
            if all(len(own) == 10 for own in found):
                break
            await asyncio.sleep(0.05)
        for connection in connections:
            await connection.close()
        return found

    assert asyncio.run(run()) == [[str(number) for number in range(10)]] * 5
