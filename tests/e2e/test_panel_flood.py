"""The control panel under floods: too many requests are refused with a reason, what is stored for them is bounded, and neither
queries nor the console notice."""

import contextlib
import http.client
import itertools
import json
import re
import selectors
import signal
import socket
import threading
import time
from pathlib import Path

import psycopg
import pytest

import host
import panel
from test_panel_access import attempt

pytestmark = [pytest.mark.weir_only, pytest.mark.any_driver]

LARGE = 10_000_000


def status_kib(pooler, field):
    status = Path(f"/proc/{pooler.process.pid}/status").read_text()
    return int(status.split(f"{field}:")[1].split()[0])


def open_files(pooler):
    return len(list(Path(f"/proc/{pooler.process.pid}/fd").iterdir()))


def head(web, method="GET", path="/api/v1/live", *further):
    lines = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1", f"Authorization: Bearer {web.token}", "Content-Type: application/json"]
    return "\r\n".join([*lines, *further, "", ""]).encode()


def refusal(data):
    """The status and body of an answer that is whole."""
    first, _, body = data.partition(b"\r\n\r\n")
    return int(first.split()[1]), json.loads(body)


@contextlib.contextmanager
def crowd(web, count, words):
    """A number of connections from some addresses of this machine, each of which has sent these bytes; the reply to each is in `.told`."""
    with contextlib.ExitStack() as stack:
        selector = stack.enter_context(selectors.DefaultSelector())
        guests = []
        for number in range(count):
            guest = socket.socket()
            stack.callback(guest.close)
            guest.bind((f"127.0.0.{2 + number % 5}", 0))
            guest.settimeout(20)
            guest.connect(("127.0.0.1", web.port))
            with contextlib.suppress(ConnectionError):
                guest.sendall(words)
            guest.setblocking(False)
            guests.append(Guest(guest))
            selector.register(guest, selectors.EVENT_READ, guests[-1])
        yield Crowd(selector, guests)


class Guest:
    def __init__(self, connection):
        self.socket, self.told, self.has_ended, self.fault = connection, b"", False, None

    def listen(self):
        try:
            data = self.socket.recv(4096)
        except ConnectionError as fault:
            data, self.fault = b"", fault
        self.told += data
        self.has_ended = not data


class Crowd:
    def __init__(self, selector, guests):
        self.selector, self.guests = selector, guests

    def listen(self, enough=lambda guest: False):
        """Takes in what there is; a guest who has heard enough or is hung up on is listened to no more."""
        for key, _ in self.selector.select(0.05):
            key.data.listen()
            if key.data.has_ended or enough(key.data):
                self.selector.unregister(key.fileobj)
        return self.guests

    def ended(self):
        return [guest for guest in self.guests if guest.has_ended]


def others_are_served(pooler, web, client):
    """A query, a new client, the console's orders, and the panel itself."""
    assert client.execute("select 1").fetchone() == (1,)
    assert pooler.value("select 2") == 2
    assert pooler.console("PAUSE app") == "PAUSE"
    assert pooler.pool()["sv_active"] == 0
    assert pooler.console("RESUME app") == "RESUME"
    assert client.execute("select 3").fetchone() == (3,)
    assert web.get("/api/v1/session")


def test_a_thousand_event_streams(weir):
    pooler, web = panel.start(weir)
    client = pooler.connect()
    others_are_served(pooler, web, client)
    files, resident = open_files(pooler), status_kib(pooler, "VmRSS")
    with crowd(web, 1_000, head(web)) as streams:
        is_stream = lambda guest: guest.told.startswith(b"HTTP/1.1 200") and b"event: sample" in guest.told  # noqa: E731
        host.eventually(lambda: all(guest.has_ended or is_stream(guest) for guest in streams.listen(is_stream)))
        assert len(streams.ended()) == 800
        for guest in streams.ended():
            status, body = refusal(guest.told)
            assert (status, body["id"]) == (503, "service_unavailable") and body["message"], guest.told
        others_are_served(pooler, web, client)
        assert status_kib(pooler, "VmRSS") - resident < 64 << 10
    host.eventually(lambda: open_files(pooler) <= files)
    with crowd(web, 300, head(web)):
        with contextlib.suppress(psycopg.OperationalError):  # it ends before it answers
            pooler.console("SHUTDOWN")
        assert pooler.wait_end() == 0


@pytest.mark.parametrize("io_driver", ["epoll"])
def test_bodies_of_ten_megabytes(weir):
    pooler, web = panel.start(weir)
    paths = ["/api/v1/pools", "/api/v1/login", "/v2/databases/x/pools", "/nowhere"]
    for path in paths:
        web.ask("POST", path, {})
    most = status_kib(pooler, "VmHWM")
    for path in paths:
        declared = web.ask("POST", path, b"x" * LARGE)
        panel.is_refused(declared, 413, "payload_too_large", "65536 bytes")
        chunks = itertools.repeat(b"x" * 100_000, LARGE // 100_000)
        connection = http.client.HTTPConnection("127.0.0.1", web.port, timeout=20)
        headers = {"Authorization": f"Bearer {web.token}", "Content-Type": "application/json"}
        connection.request("POST", path, chunks, headers, encode_chunked=True)
        answer = connection.getresponse()
        body = json.loads(answer.read())
        assert (answer.status, body["id"]) in ((413, "payload_too_large"), (404, "not_found")), (path, answer.status, body)
        connection.close()
    assert status_kib(pooler, "VmHWM") - most < 8 << 10
    assert pooler.value("select 1") == 1 and web.get("/api/v1/session")


@pytest.mark.parametrize("io_driver", ["epoll"])
def test_who_is_slow_is_not_waited_for(weir):
    """Heads that never end and a body that never comes, from more connections than there may be."""
    pooler, web = panel.start(weir)
    client = pooler.connect()
    files, resident = open_files(pooler), status_kib(pooler, "VmRSS")
    begun = time.monotonic()
    with crowd(web, 1, head(web, "POST", "/api/v1/pools", "Content-Length: 1000") + b"{") as slow_bodies:
        with crowd(web, 600, b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: ") as slow_heads:
            host.eventually(lambda: slow_heads.listen() and len(slow_heads.ended()) >= 600 - 256)
            for guest in slow_heads.ended():
                assert refusal(guest.told)[1]["id"] == "service_unavailable"
            assert web.ask("GET", "/healthz", token=None)[0] == 200 and web.get("/api/v1/session")
            assert client.execute("select 1").fetchone() == (1,)
            assert pooler.value("select 2") == 2 and pooler.console("PAUSE") and pooler.console("RESUME")
            assert status_kib(pooler, "VmRSS") - resident < 32 << 10

            def all_have_ended():
                for guest in slow_heads.listen():
                    if not guest.has_ended:
                        with contextlib.suppress(OSError):
                            guest.socket.send(b"x")
                return len(slow_heads.ended()) == 600

            host.eventually(all_have_ended, timeout=40, interval=0.5)
        host.eventually(lambda: slow_bodies.listen() and slow_bodies.ended(), timeout=40)
        status, body = refusal(slow_bodies.guests[0].told)
        assert (status, body["message"]) == (400, "the body was not complete in time")
    assert time.monotonic() - begun > 9
    others_are_served(pooler, web, client)
    host.eventually(lambda: open_files(pooler) <= files)


@pytest.mark.parametrize("io_driver", ["epoll"])
def test_requests_that_come_at_once_do_not_push_each_other_out(weir):
    """More connections of one address than may be without authentication, all of them there before the first is accepted."""
    pooler, web = panel.start(weir)
    request = head(web, "GET", "/api/v1/session")
    with contextlib.ExitStack() as stack:
        pooler.process.send_signal(signal.SIGSTOP)
        try:
            guests = [stack.enter_context(socket.create_connection(("127.0.0.1", web.port), timeout=30)) for _ in range(100)]
            for guest in guests:
                guest.sendall(request)
        finally:
            pooler.process.send_signal(signal.SIGCONT)
        assert [guest.recv(12) for guest in guests] == [b"HTTP/1.1 200"] * len(guests)


@pytest.mark.parametrize("io_driver", ["epoll"])
@pytest.mark.parametrize(
    "words",
    [b"", b"GET /healthz HTTP/1.1\r\nX: ", b"POST /api/v1/login HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 60000\r\n\r\n{"],
    ids=["nothing", "half a head", "half a body"],
)
def test_half_open_connections_silence_nobody(weir, words):
    """From one address and from several, the operator's own among them."""
    _, web = panel.start(weir)
    browser = http.client.HTTPConnection("127.0.0.1", web.port, timeout=20)

    def browse():
        browser.request("GET", "/api/v1/session", headers={"Authorization": f"Bearer {web.token}"})
        answer = browser.getresponse()
        return answer.status, bool(answer.read())

    assert browse() == (200, True)
    with contextlib.ExitStack() as stack:
        for number in range(560):
            guest = socket.socket()
            stack.callback(guest.close)
            guest.bind(("127.0.0.1" if number % 2 else f"127.0.0.{2 + number % 5}", 0))
            guest.connect(("127.0.0.1", web.port))
            with contextlib.suppress(ConnectionError):
                guest.sendall(words)
            if number % 40 == 0:
                assert web.ask("GET", "/healthz", token=None)[:2] == (200, "ok\n")
                assert browse() == (200, True)
        assert web.ask("GET", "/healthz", token=None)[:2] == (200, "ok\n")
        assert attempt(web, token=web.token)[0] == 200
        assert browse() == (200, True)


def test_two_hundred_requests_a_second_beside_queries(weir):
    pooler, web = panel.start(weir)
    client = pooler.connect()
    others_are_served(pooler, web, client)
    assert web.get("/v2/databases") and web.token
    files, over = open_files(pooler), threading.Event()
    answers, faults = [], []

    def ask(paths, pace=0.04, count=75):
        connection = http.client.HTTPConnection("127.0.0.1", web.port, timeout=30)
        due = time.monotonic()
        for path in itertools.islice(itertools.cycle(paths), count):
            connection.request("GET", path, headers={"Authorization": f"Bearer {web.token}"})
            answer = connection.getresponse()
            answers.append((answer.status, answer.read()))
            due += pace
            time.sleep(max(0.0, due - time.monotonic()))
        connection.close()

    def query():
        while not over.is_set():
            try:
                assert client.execute("select 1").fetchone() == (1,)
            except Exception as fault:  # noqa: BLE001
                return faults.append(fault)

    paths = ["/api/v1/pools", "/metrics", "/api/v1/clients", "/api/v1/history?database=app", "/v2/databases", "/readyz", "/"]
    querying = threading.Thread(target=query)
    asking = [threading.Thread(target=ask, args=(paths[turn:] + paths[:turn],)) for turn in range(len(paths) + 1)]
    for thread in [querying, *asking]:
        thread.start()
    for thread in asking:
        thread.join()
    over.set()
    querying.join()
    assert not faults
    assert len(answers) == 600
    refused = [json.loads(body) for status, body in answers if status != 200]
    assert all(body["id"] == "service_unavailable" for body in refused), refused
    others_are_served(pooler, web, client)
    host.eventually(lambda: open_files(pooler) <= files)


def test_a_bug_of_the_panel_is_the_panels_alone(weir):
    """Without room for one thread more, the library that starts it panics: the request ends with that, and nothing else."""
    pooler, web = panel.start(weir)
    pooler.may_panic = True
    client = pooler.connect()
    # A thread that is left from the start would do the work: it ends after some seconds without any.
    host.eventually(lambda: panel_threads(pooler) == 1, timeout=60)
    with no_more_memory(pooler), pytest.raises((OSError, http.client.HTTPException)):
        web.ask("GET", "/metrics")
    assert client.execute("select 1").fetchone() == (1,)
    assert pooler.console("SHOW VERSION")
    pooler.wait_log("bug in weir-panel: .*thread")
    assert re.search("^weir_panel_panics_total 1$", web.ask("GET", "/metrics")[1], re.M)


def panel_threads(pooler):
    count = 0
    for name in Path(f"/proc/{pooler.process.pid}/task").glob("*/comm"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # a thread that has just ended
            count += name.read_text() == "weir-panel\n"
    return count


@contextlib.contextmanager
def no_more_memory(pooler):
    """The process may map less than a thread's stack more."""
    def limit(soft):
        host.run(["prlimit", f"--pid={pooler.process.pid}", f"--as={soft}:"])

    limit(1024 * (status_kib(pooler, "VmSize") + 1024))
    try:
        yield
    finally:
        limit("unlimited")
