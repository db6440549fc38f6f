"""`-R`: a new process takes over from the running one, and connected clients do not notice.
Holds I15 of ARCHITECTURE.md."""

import os
import signal
import socket
import struct
import threading

import psycopg
import pytest

import host
import replicas
import weir as pooler_module
import wire
from running import SLEEP, Latch, wait_until_runs

pytestmark = [
    pytest.mark.weir_only,  # what two processes say to each other is their own; PgBouncer 1.26 has dropped it
    pytest.mark.every_driver,
]


def reboot(pooler, *flags, wait=True):
    """Starts a second process that takes over; the old one is returned when it has ended by itself."""
    old = pooler.process
    pooler.launch("--reboot", *flags)
    host.eventually(lambda: new_process_is_up(pooler))
    if wait:
        assert old.wait(30) == 0
    return old


def new_process_is_up(pooler):
    assert pooler.process.poll() is None, f"the new process ended at start:\n{pooler.output()}"
    return f"[{pooler.process.pid}] LOG process up" in pooler.log_text()


def in_threads(work, count):
    failures, threads = [], []

    def run(number):
        try:
            work(number)
        except Exception as error:  # noqa: BLE001 (whatever it is, the test says it)
            failures.append(error)

    for number in range(count):
        threads.append(threading.Thread(target=run, args=(number,)))
        threads[-1].start()
    return threads, failures


@pytest.mark.parametrize("mode", ["transaction", "session"])
@pytest.mark.parametrize("threads", [1, 4])
def test_queries_and_sessions_outlive_three_takeovers(weir, pg, mode, threads):
    pooler = weir(pool_mode=mode, threads=threads, default_pool_size=8)
    idle = pooler.connect()
    backend = idle.execute("select 1, pg_backend_pid()").fetchone()[1]
    block = pooler.connect()
    block.execute("begin")
    in_block = block.execute("select pg_backend_pid()").fetchone()
    prepared = pooler.connect(prepare_threshold=0)
    assert prepared.execute("select %s::int + 1", (1,)).fetchone() == (2,)
    sleepers, failures = in_threads(lambda _: pooler.value("select 1 from pg_sleep(2)"), 3)
    for _ in range(3):
        reboot(pooler)
        assert idle.execute("select 2").fetchone() == (2,)
        assert block.execute("select pg_backend_pid()").fetchone() == in_block
        assert prepared.execute("select %s::int + 1", (2,)).fetchone() == (3,)
        assert pooler.value("select 3") == 3
    for sleeper in sleepers:
        sleeper.join(30)
    assert not failures
    block.execute("commit")
    if mode == "session":
        assert idle.execute("select pg_backend_pid()").fetchone() == (backend,)
    assert pg.count() <= 8
    assert pooler.pidfile.read_text() == f"{pooler.process.pid}\n"
    assert pooler.socket_path.exists()


# pgbench prepares while it waits for nothing else: in transactions it would stop itself wherever clients share servers.
SCRIPTS = {
    "simple": "begin;\nselect pg_sleep(0.005);\nselect 1;\ncommit;\n",
    "prepared": "select pg_sleep(0.005);\nselect 1;\n",
}


@pytest.mark.parametrize("protocol, threads", [("simple", 1), ("simple", 4), ("prepared", 4)])
def test_load_notices_nothing(weir, pg, protocol, threads):
    pooler = weir(default_pool_size=5, threads=threads)
    script = pooler.directory / "script.sql"
    script.write_text(SCRIPTS[protocol])
    address = ["-h", "127.0.0.1", "-p", pooler.port, "-U", "alice"]
    load = ["-n", "-c", "20", "-j", "2", "-T", "5", "-f", script, "-M", protocol]
    with open(pooler.directory / "pgbench.out", "w+") as output:
        bench = host.start([pg.bindir / "pgbench", *address, *load, "app"], stdout=output, stderr=output, cwd="/")
        host.eventually(lambda: pooler.pool().get("sv_active", 0) > 0)
        for _ in range(3):
            reboot(pooler)
            assert pg.count() <= 5
        status = bench.wait(60)
        output.seek(0)
        said = output.read()
    assert status == 0 and not any(word in said for word in ("error", "ERROR", "FATAL", "abort")), said


def test_a_scram_client_opens_new_servers_afterwards(weir, pg):
    """The user file holds a verifier: only the client's own proof opens servers, and the client gives it once."""
    verifier = pg.value("select rolpassword from pg_authid where rolname = 'scramuser'")
    pooler = weir(auth_type="scram-sha-256", userlist={"scramuser": verifier, "admin": ""})
    client = pooler.connect(user="scramuser", password="scram secret")
    assert client.execute("select 1").fetchone() == (1,)
    for _ in range(2):
        reboot(pooler)
        pg.query("select pg_terminate_backend(pid) from pg_stat_activity where usename = 'scramuser'")
        host.eventually(lambda: pg.count() == 0)
        assert client.execute("select 2").fetchone() == (2,)


@pytest.mark.parametrize("when", ["still there", "moved"])
def test_cancel_keys_given_before_still_work(weir, pg, when):
    pooler = weir()
    client = pooler.connect()
    client.execute("select 1")
    failures = []

    def sleep():
        try:
            client.execute(SLEEP)
        except psycopg.errors.QueryCanceled as error:
            failures.append(error)

    sleeper = threading.Thread(target=sleep)
    if when == "still there":
        sleeper.start()
        wait_until_runs(pg)
        old = reboot(pooler, wait=False)
    else:
        reboot(pooler)
        sleeper.start()
        wait_until_runs(pg)

    def cancelled():
        client.cancel()
        sleeper.join(0.5)
        return not sleeper.is_alive()

    host.eventually(cancelled)
    assert len(failures) == 1
    assert client.execute("select 2").fetchone() == (2,)
    if when == "still there":
        assert old.wait(30) == 0


def test_the_unnamed_statement_of_a_transaction_goes_along(weir):
    pooler = weir()
    run = wire.bind("") + wire.execute() + wire.SYNC
    with wire.Raw(pooler.port).login() as raw:
        raw.simple("begin")
        raw.ask(wire.parse("", "select 'mine'") + wire.SYNC)
        reboot(pooler)
        assert [reply.body[6:] for reply in raw.ask(run) if reply.kind == "D"] == [b"mine"]
        raw.simple("commit")
        with wire.Raw(pooler.port).login() as other:
            assert wire.errors(other.ask(run))[0][0] == "26000", "it is not for others"


def test_a_statement_that_sql_has_replaced_is_not_trusted_by_the_next_process(weir):
    pooler = weir(default_pool_size=1, session_state="off")
    run = wire.bind("mine") + wire.execute() + wire.SYNC
    with wire.Raw(pooler.port).login() as raw, wire.Raw(pooler.port).login() as other:
        raw.ask(wire.parse("mine", "select 'mine'") + run)
        find = "select name from pg_prepared_statements where statement like '%mine%' and name <> ''"
        ((name,),) = other.simple(find)
        other.simple(f"deallocate \"{name}\"; prepare \"{name}\" as select 'other'")
        reboot(pooler)
        assert [reply.body[6:] for reply in raw.ask(run) if reply.kind == "D"] == [b"mine"]


def test_a_portal_that_was_bound_before_may_change_settings(weir):
    pooler = weir(default_pool_size=1)
    text = "select '01/02/03'::date::text as portal_takeover"
    run = wire.parse("date", text) + wire.bind("date") + wire.execute() + wire.SYNC
    with wire.Raw(pooler.port).login() as raw, wire.Raw(pooler.port).login() as other:
        raw.simple("begin")
        raw.ask(wire.parse("set", "set local datestyle = 'ISO, DMY'") + wire.bind("set", "portal") + wire.SYNC)
        reboot(pooler)
        dates = [reply.body[6:] for reply in raw.ask(wire.execute("portal") + run) if reply.kind == "D"]
        assert dates == [b"2003-02-01"]
        raw.simple("commit")
        dates = [reply.body[6:] for reply in other.ask(run) if reply.kind == "D"]
        assert dates == [b"2003-01-02"], "parsed under another DateStyle"


def test_long_cancel_keys_too(weir, pg):
    pooler = weir()
    with wire.Raw(pooler.port).login(version=wire.V3_2) as raw:
        raw.simple("select 1")
        reboot(pooler)
        raw.send(wire.query(SLEEP))
        wait_until_runs(pg)
        with wire.Raw(pooler.port) as request:
            request.send(wire.cancel(raw.pid, raw.secret))
            request.read_to_end()
        assert wire.errors(raw.read_until("Z"))[0][0] == "57014"


def test_the_next_process_may_have_other_threads_and_the_other_driver(weir, pg):
    pooler = weir(threads=4, default_pool_size=4)
    clients = [pooler.connect(database, prepare_threshold=0) for database in ("app", "other") for _ in range(10)]
    blocks = [pooler.connect() for _ in range(3)]
    for client in (*clients, *blocks):
        assert client.execute("select %s::int", (1,)).fetchone() == (1,)
    for block in blocks:
        block.execute("begin")
        block.execute("create temp table kept (n int) on commit drop")
    for driver, threads in (("io_uring", 1), ("epoll", 3), ("io_uring", 2), ("epoll", 1)):
        pooler.write_ini(io_driver=driver, threads=threads)
        reboot(pooler)
        for client in clients:
            assert client.execute("select %s::int", (threads,)).fetchone() == (threads,)
        for block in blocks:
            block.execute("insert into kept values (%s)", (threads,))
        assert pg.count("datname = 'app'") <= 4 and pg.count("datname = 'other'") <= 4
    for block in blocks:
        assert block.execute("select count(*) from kept").fetchone() == (4,)
        block.execute("commit")


def test_every_one_of_many_idle_clients_moves(weir, pg):
    pooler = weir(max_client_conn=400, default_pool_size=3)
    crowd = [wire.Raw(pooler.port).login() for _ in range(300)]
    try:
        reboot(pooler)
        host.eventually(lambda: pooler.pool()["cl_active"] == 300)
        for client in crowd[::30]:
            assert client.simple("select 1") == [["1"]]
        ids = [row["id"] for row in pooler.console("SHOW CLIENTS")]
        assert len(set(ids)) == len(ids) == 301
    finally:
        for client in crowd:
            client.socket.close()


def test_what_was_paused_stays_paused(weir, pg):
    pooler = weir()
    client = pooler.connect()
    client.execute("select 1")
    pooler.console("PAUSE app")
    reboot(pooler)
    (row,) = [row for row in pooler.console("SHOW DATABASES") if row["name"] == "app"]
    assert row["paused"] == 1
    done, failures = in_threads(lambda _: client.execute("select 2"), 1)
    host.eventually(lambda: pooler.pool().get("cl_waiting") == 1)
    pooler.console("RESUME app")
    done[0].join(20)
    assert not failures


def test_who_waits_in_the_old_process_is_resumed_too(weir, pg):
    """A client that replicates stays there, and the console is the new one's."""
    pooler = weir()
    pooler.value("select 1")
    pooler.console("PAUSE app")
    done, failures = in_threads(lambda _: replicas.replicating(pooler).close(), 1)
    host.eventually(lambda: pooler.pool(user="replica").get("cl_waiting") == 1)
    old = reboot(pooler, wait=False)
    pooler.console("RESUME app")
    done[0].join(20)
    assert not done[0].is_alive() and not failures
    assert old.wait(30) == 0


def test_without_an_old_process_it_starts_as_always(weir):
    pooler = weir.prepared()
    pooler.start("--reboot")
    assert pooler.value("select 1") == 1
    pooler.wait_log("old process not found, try to continue normally")


def test_without_a_unix_socket_it_starts_as_always_too(weir):
    pooler = weir.prepared(unix_socket_dir="")
    pooler.start("-R")
    assert pooler.value("select 1") == 1
    pooler.wait_log("old process not found, try to continue normally")


def test_a_new_process_that_cannot_start_changes_nothing(weir):
    pooler = weir()
    client = pooler.connect()
    good = pooler.settings["listen_addr"]
    pooler.write_ini(listen_addr="192.0.2.1")
    done = host.run([pooler_module.PROGRAM_COPY["path"], "-R", pooler.ini], check=False, timeout=30)
    assert done.returncode == 1 and "192.0.2.1" in done.stderr
    pooler.wait_log("takeover failed, continuing as before")
    assert client.execute("select 1").fetchone() == (1,)
    assert pooler.value("select 2") == 2
    assert pooler.socket_path.exists()
    assert pooler.pidfile.read_text() == f"{pooler.process.pid}\n"
    pooler.write_ini(listen_addr=good)
    reboot(pooler)
    assert pooler.value("select 3") == 3


def test_nobody_else_gets_anything(weir):
    """A user who may use the console may not therefore receive sockets."""
    pooler = weir()
    assert pooler.console('TAKEOVER "nobody-listens-here"') == "TAKEOVER"
    pooler.wait_log("takeover failed, continuing as before")
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        pooler.console('TAKEOVER "x"', user="stats")
    assert pooler.value("select 1") == 1


@pytest.fixture
def impostor(weir):
    """A pooler that does not run, and a socket where the one before it would be."""
    pooler = weir.prepared(suspend_timeout=1)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(pooler.socket_path))
        pooler.socket_path.chmod(0o777)
        yield pooler, listener


def fails_to_take_over(pooler):
    done = host.run([pooler_module.PROGRAM_COPY["path"], "-R", pooler.ini], check=False, timeout=60)
    assert done.returncode == 1
    return done.stderr


STRANGER = 12345


@pytest.mark.needs_root
def test_a_socket_of_another_user_is_not_asked(impostor):
    pooler, listener = impostor
    os.seteuid(STRANGER)  # SO_PEERCRED tells who listens
    try:
        listener.listen()
    finally:
        os.seteuid(0)
    assert f"belongs to another user (user id {STRANGER})" in fails_to_take_over(pooler)
    listener.setblocking(False)
    taken, _ = listener.accept()
    assert taken.recv(100) == b"", "it was told nothing"


@pytest.mark.needs_root
def test_nor_one_whose_file_is_another_users(impostor):
    pooler, listener = impostor
    os.chown(pooler.socket_path, STRANGER, -1)
    with host.as_the_user():
        listener.listen()
    assert f"belongs to another user (user id {STRANGER})" in fails_to_take_over(pooler)


def test_one_that_speaks_and_never_hands_over_is_not_waited_for(impostor):
    pooler, listener = impostor
    with host.as_the_user():
        listener.listen()
    over = threading.Event()

    def speak():
        taken, _ = listener.accept()
        with taken:
            while not over.wait(0.3):
                try:
                    taken.sendall(wire.message(b"N", b"\0"))
                except OSError:
                    return

    speaker = threading.Thread(target=speak)
    speaker.start()
    try:
        assert "takeover failed: the old process does not hand over: timed out" in fails_to_take_over(pooler)
    finally:
        over.set()
        speaker.join()


def test_one_that_lets_nobody_in_is_not_waited_for(impostor):
    pooler, listener = impostor
    with host.as_the_user():
        listener.listen(0)
    queued = []
    while len(queued) < 50:
        client = socket.socket(socket.AF_UNIX)
        client.setblocking(False)
        queued.append(client)
        try:
            client.connect(str(pooler.socket_path))
        except BlockingIOError:
            break
    assert "takeover failed: the old process does not hand over: timed out" in fails_to_take_over(pooler)
    for client in queued:
        client.close()


def test_the_old_process_ends_at_once_when_it_is_told_twice(weir):
    pooler = weir()
    client, beside = pooler.connect(), pooler.connect()
    beside.execute("begin")
    started, failures = in_threads(lambda _: client.execute("select pg_sleep(60)"), 1)
    host.eventually(lambda: pooler.pool().get("sv_active") == 2)
    old = reboot(pooler, wait=False)
    pooler.wait_log("another process has taken over, handing over")
    old.send_signal(signal.SIGTERM)
    pooler.wait_log("got SIGTERM, another process has taken over")
    assert beside.execute("select 1").fetchone() == (1,) and old.poll() is None
    old.send_signal(signal.SIGTERM)
    assert old.wait(30) == 0
    started[0].join(20)
    assert failures
    assert pooler.value("select 1") == 1


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
def test_the_old_process_outlives_a_new_one_that_ends_too_soon(weir, pg, end):
    """Whatever ends the new process, a query that the old one still runs is answered, and then the old one ends or goes on."""
    pooler = weir()
    client = pooler.connect()
    with Latch(pg) as latch:
        started, failures = in_threads(lambda _: client.execute(latch.QUERY), 1)
        latch.wait_for()
        old = reboot(pooler, wait=False)
        pooler.process.send_signal(end)
        pooler.process.wait(30)
        latch.open()
        started[0].join(30)
    assert not failures
    assert client.execute("select 2").fetchone() == (2,)
    if end == signal.SIGKILL:
        pooler.wait_log("takeover failed, continuing as before")
        assert pooler.value("select 3") == 3
        old.send_signal(signal.SIGTERM)
    client.close()
    assert old.wait(30) == 0


@pytest.mark.parametrize("in_transaction", [False, True])
def test_who_could_not_be_sent_any_more_stays(weir, pg, in_transaction):
    """The new process dies while a client leaves for it: neither process has noticed yet, and the client must not either."""
    pooler = weir(default_pool_size=1)
    client = pooler.connect(autocommit=not in_transaction)
    backend = client.execute("select pg_backend_pid()").fetchone()
    with Latch(pg) as latch, Successor(pooler) as successor:
        started, failures = in_threads(lambda _: client.execute(latch.QUERY), 1)
        latch.wait_for()
        successor.gets_ready()
        successor.hears_no_more()
        latch.open()
        started[0].join(30)
    pooler.wait_log("takeover failed, continuing as before")
    assert not failures
    if not in_transaction:  # a server without a client may still be on its way back, and a request would not wait for it
        host.eventually(lambda: pooler.pool()["sv_idle"] == 1)
    assert client.execute("select pg_backend_pid()").fetchone() == backend
    client.close()
    host.eventually(lambda: pooler.pool()["cl_active"] == 0)
    assert pooler.value("select 1") == 1
    reboot(pooler)
    assert pooler.value("select 2") == 2


class Successor:
    """What a process that takes over says to the old one, until it is ready."""

    LISTENERS_END, GATES_REST, POOL = 3, 4, 10
    REST_GATES, READY = 20, 21

    def __init__(self, pooler):
        name = f"weir-successor-{os.getpid()}-{id(self):x}"
        with socket.socket(socket.AF_UNIX) as door:
            door.settimeout(20)
            door.bind(f"\0{name}")
            with host.as_the_user():  # other users get no handover
                door.listen()
            assert pooler.console(f'TAKEOVER "{name}"') == "TAKEOVER"
            self.line, _ = door.accept()
        self.line.settimeout(20)

    def __enter__(self):
        return self

    def __exit__(self, *failure):
        self.line.close()

    def gets_ready(self):
        self._hears(self.LISTENERS_END)
        self._says(self.REST_GATES)
        self._hears(self.GATES_REST)
        self._says(self.READY)
        self._hears(self.POOL)  # the old process sends what rests, from now on

    def hears_no_more(self):
        """Whatever is sent is refused from now on, as if this process had died, but its line is not closed yet."""
        self.line.shutdown(socket.SHUT_RD)

    def _says(self, kind):
        self.line.sendall(struct.pack("!BI", kind, 0))

    def _hears(self, kind):
        got = None
        while got != kind:
            got, length = struct.unpack("!BI", self._exactly(5))
            self._exactly(length)

    def _exactly(self, length):
        data = b""
        while len(data) < length:
            more, sockets, _, _ = socket.recv_fds(self.line, length - len(data), 2)
            for one in sockets:
                os.close(one)
            assert more, "the old process hung up"
            data += more
        return data


def test_in_the_background(weir):
    pooler = weir()
    client = pooler.connect()
    client.execute("select 1")
    old = pooler.process
    host.run([pooler_module.PROGRAM_COPY["path"], "-d", "-R", pooler.ini], cwd=pooler.directory)
    assert old.wait(30) == 0
    pid = int(pooler.pidfile.read_text())
    try:
        assert pid != old.pid
        assert client.execute("select 2").fetchone() == (2,)
        assert pooler.value("select 3") == 3
    finally:
        os.kill(pid, signal.SIGQUIT)
        host.eventually(lambda: not pooler.pidfile.exists())


def test_who_replicates_stays_and_ends_the_old_process_by_leaving(weir, pg):
    """A stream is never at rest: it goes on in the process that it began in."""
    pooler = weir()
    streaming = replicas.replicating(pooler)
    streaming.execute("IDENTIFY_SYSTEM")
    idle = pooler.connect()
    old = reboot(pooler, wait=False)
    assert idle.execute("select 1").fetchone() == (1,)
    assert streaming.execute("select 2").fetchone() == (2,)
    assert old.poll() is None
    streaming.close()
    assert old.wait(30) == 0
    assert pooler.value("select 3") == 3
    assert replicas.replicating(pooler).execute("IDENTIFY_SYSTEM").fetchone()[3] == "app"
