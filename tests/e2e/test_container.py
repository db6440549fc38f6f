"""`weir container`, the first process of an image: with the environments of edoburu's and Bitnami's PgBouncer images, a mounted configuration,
health checks, and the end of a container that interrupts no transaction."""

import re
import signal
import threading
import time

import psycopg
import pytest

import container
import host

pytestmark = pytest.mark.weir_only
SECRET = "scram secret"


@pytest.fixture
def contained(pg, scratch, io_driver):
    """`contained(environment)` is a container, not yet started, whose own ports and directories are set."""
    made = []

    def prepare(environment=None, **options):
        made.append(container.Container(host.new_directory(scratch, "container"), environment or {}, io_driver=io_driver, **options))
        return made[-1]

    yield prepare
    for one in made:
        one.stop()
        assert "panicked" not in (one.log_text() if one.log_path.exists() else "")
    pg.await_no_session()


def edoburu(pg, **others):
    return {"DATABASE_URL": f"postgres://scramuser:{SECRET.replace(' ', '%20')}@127.0.0.1:{pg.port}/app", "POOL_MODE": "transaction", "AUTH_TYPE": "scram-sha-256", **others}


def open_to_all(pg, **others):
    """Any database and user of the tests' PostgreSQL."""
    server = {"DB_HOST": "127.0.0.1", "DB_PORT": pg.port, "POOL_MODE": "transaction"}
    return {**server, "AUTH_TYPE": "trust", "PGBOUNCER_USERLIST": '"alice" ""\n"bob" ""', **others}


def pgbench(pg, one, *words, user="scramuser", database="app", port=None):
    command = [pg.bindir / "pgbench", "-n", "-h", "127.0.0.1", "-p", port or one.port, "-U", user, *words, database]
    return host.run(command, check=False, env={"PGPASSWORD": SECRET, "PATH": "/usr/bin:/bin"})


SELECT = "select 1;\n"


def is_served(pg, one, database="app"):
    script = one.directory / "select.sql"
    script.write_text(SELECT)
    done = pgbench(pg, one, "-f", script, "-c", 8, "-t", 50, database=database)
    assert done.returncode == 0 and "number of transactions actually processed: 400/400" in done.stdout, done.stdout + done.stderr


# --- environments -------------------------------------------------------------------------------------------------
def test_a_compose_file_of_edoburus_image_goes_on_working(contained, pg):
    one = contained(edoburu(pg, DEFAULT_POOL_SIZE="3", MAX_CLIENT_CONN="50", ADMIN_USERS="scramuser")).start()
    is_served(pg, one)
    assert pg.count("usename = 'scramuser'") <= 3
    with one.connect("pgbouncer", "scramuser", password=SECRET) as console:
        shown = {row[0]: row[1] for row in console.execute("show config").fetchall()}
    assert (shown["default_pool_size"], shown["max_client_conn"], shown["pool_mode"]) == ("3", "50", "transaction")
    with pytest.raises(psycopg.OperationalError, match="SASL authentication failed"):
        one.connect(user="scramuser", password="wrong")


def test_a_compose_file_of_bitnamis_image_goes_on_working(contained, pg):
    # LISTEN_PORT is edoburu's; here the port is Bitnami's own variable, which Kubernetes sets, too.
    one = contained()
    one.environment.pop("LISTEN_PORT")
    one.environment |= {
        "POSTGRESQL_HOST": "127.0.0.1",
        "POSTGRESQL_PORT": str(pg.port),
        "POSTGRESQL_USERNAME": "scramuser",
        "POSTGRESQL_PASSWORD": SECRET,
        "POSTGRESQL_DATABASE": "app",
        "PGBOUNCER_DATABASE": "front",
        "PGBOUNCER_PORT": str(one.port),
        "PGBOUNCER_POOL_MODE": "transaction",
        "PGBOUNCER_DSN_0": f"second=host=127.0.0.1 port={pg.port} dbname=other",
        "PGBOUNCER_EXTRA_FLAGS": "--verbose",
    }
    one.start()
    is_served(pg, one, "front")
    with one.connect("second", "scramuser", password=SECRET) as client:
        assert client.execute("select current_database()").fetchone() == ("other",)
    with pytest.raises(psycopg.OperationalError, match="no such database"):
        one.connect("app", "scramuser", password=SECRET)
    assert "PGBOUNCER_EXTRA_FLAGS has no meaning for Weir" in one.log_text()


def test_a_mounted_configuration_comes_before_the_environment(contained, pg, scratch):
    directory = host.new_directory(scratch, "mounted")
    port = host.free_port()
    ini = f"[databases]\napp = host=127.0.0.1 port={pg.port}\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nauth_type = any\nunix_socket_dir = {directory}\n"
    ini = ini.replace("app = ", "app = user=alice ")
    one = contained({"DATABASE_URL": "nonsense"}, mounted=ini)
    one.port = port
    one.start()
    with one.connect() as client:
        assert client.execute("select current_user").fetchone() == ("alice",)
        assert one.exec("--health").returncode == 0, "without a panel it asks where clients come"
    # The process was started before, and is as well as it was.
    one.add_to_mounted("pool_mod = session")
    assert [one.exec(question).returncode for question in ("--health", "--alive")] == [0, 0]
    done = one.exec("--drain", "20")
    assert (done.returncode, done.stderr, one.wait_end()) == (0, "", 0)


@pytest.mark.parametrize(
    "environment, said",
    [
        ({}, "DATABASE_URL: neither it nor DB_HOST, POSTGRESQL_HOST or PGBOUNCER_DSN_0 says where PostgreSQL is"),
        ({"DB_USER": "web", "DB_PASSWORD": "hush"}, "DATABASE_URL: neither it nor"),
        ({"DATABASE_URL": "mysql://web:hush@db/shop"}, "DATABASE_URL: it does not begin with postgresql://"),
        ({"DATABASE_URL": "postgres://web:hush@[::1/shop"}, "DATABASE_URL: an address in [ has no ]"),
        ({"DATABASE_URL": "postgres://web:hush%0A@db/shop"}, "has a line break"),
        ({"DATABASE_URL_FILE": "/nowhere"}, "DATABASE_URL_FILE: /nowhere cannot be read: No such file"),
        ({"DB_HOST": "db", "DB_PASSWORD": "hush", "POOL_MODE": "sometimes"}, "POOL_MODE: "),
        ({"DB_HOST": "db", "LISTEN_PORT": "70000"}, "LISTEN_PORT: "),
        ({"PGBOUNCER_DSN_0": "shop=host=db password=hush nonsense"}, "database shop: "),
        ({"DB_HOST": "db", "PGBOUNCER_USERLIST_FILE": "/etc"}, "PGBOUNCER_USERLIST_FILE: /etc cannot be read"),
    ],
)
@pytest.mark.any_driver
def test_an_environment_that_cannot_be_used_is_refused(contained, environment, said):
    one = contained(environment)
    one.environment.pop("IO_DRIVER", None)
    if "LISTEN_PORT" not in environment:
        one.environment.pop("LISTEN_PORT")
    done = one.once(timeout=20)
    assert done.returncode == 1 and said in done.stderr and "hush" not in done.stdout + done.stderr, done.stderr
    assert len(done.stderr.splitlines()) <= 3, done.stderr


@pytest.mark.any_driver
def test_what_cannot_be_meant_is_a_wrong_command_line(contained, pg):
    one = contained(open_to_all(pg))
    for words in (["--drain"], ["--drain", "soon"], ["--drain", "-1"], ["--delay", "3"], ["--drain", "1", "--health"], ["nonsense"]):
        done = one.once(*words)
        assert done.returncode == 2 and "--help" in done.stderr, words


@pytest.mark.any_driver
def test_secrets_are_seen_nowhere(contained, pg, scratch):
    file = host.new_directory(scratch, "secrets") / "password"
    file.write_text(SECRET + "\n")
    host.hand_over(file)
    dsn = f"second=host=127.0.0.1 port={pg.port} dbname=other user=scramuser password='{SECRET}'"
    environment = {"DB_HOST": "127.0.0.1", "DB_PORT": pg.port, "DB_NAME": "app", "DB_USER": "scramuser", "DB_PASSWORD_FILE": file}
    one = contained({**environment, "AUTH_TYPE": "scram-sha-256", "PGBOUNCER_DSN_0": dsn, "PGBOUNCER_USERLIST": '"bob" "hush"', "VERBOSE": "2"})
    shown = one.once("--print")
    assert shown.returncode == 0 and "app = host='127.0.0.1'" in shown.stdout and "auth_type = scram-sha-256" in shown.stdout
    one.start()
    is_served(pg, one)
    with pytest.raises(psycopg.OperationalError):
        one.connect(user="bob", password="wrong")
    health = one.exec("--health")
    drained = one.exec("--drain", "0")
    assert (drained.returncode, health.returncode) == (0, 0)
    said = [shown.stdout, shown.stderr, one.log_text(), health.stdout, health.stderr, drained.stdout, drained.stderr]
    assert not [text for text in said if SECRET in text or "hush" in text or "@@" in text]
    assert not list(one.directory.glob("*userlist*")), "it is kept in memory"


# --- health -------------------------------------------------------------------------------------------------------
def test_health_is_that_of_the_process(contained, pg):
    one = contained(open_to_all(pg))
    before = one.once("--health")
    assert before.returncode == 1 and f"127.0.0.1:{one.http_port}: Connection refused" in before.stderr
    one.start()
    assert one.exec("--health").returncode == 0
    with one.connect():
        one.process.send_signal(signal.SIGTERM)
        one.wait_log("shutting down")
        ending = one.exec("--health")
        assert ending.returncode == 1 and "not ready: 503" in ending.stderr
        assert one.exec("--alive").returncode == 0
    assert one.wait_end() == 0


def test_a_process_that_drains_lives_and_is_not_ready(contained, pg):
    """A liveness probe that asked whether it is ready would have its clients cut."""
    one = contained(open_to_all(pg, ADMIN_USERS="bob")).start()
    with one.connect() as client, one.connect("pgbouncer", "bob") as console:
        console.execute("DRAIN")
        assert one.exec("--health").returncode == 1
        assert one.exec("--alive").returncode == 0
        assert client.execute("select 1").fetchone() == (1,)
        console.execute("UNDRAIN")
        assert one.exec("--health").returncode == 0


@pytest.mark.parametrize("question", ["--health", "--alive"])
def test_a_process_that_hangs_is_not_healthy(contained, pg, question):
    one = contained(open_to_all(pg)).start()
    one.process.send_signal(signal.SIGSTOP)
    try:
        done = one.exec(question, timeout=20)
    finally:
        one.process.send_signal(signal.SIGCONT)
    asked = f"127.0.0.1:{one.http_port}: " if question == "--health" else "cannot use the console of the running process"
    assert done.returncode == 1 and asked in done.stderr, done.stderr
    assert one.exec(question).returncode == 0


# --- drain --------------------------------------------------------------------------------------------------------
class Writer(threading.Thread):
    """Transactions one after another until the connection ends: how many were acknowledged, and at which step it ended."""

    def __init__(self, one, number):
        super().__init__(daemon=True)
        self.one, self.number = one, number
        self.acknowledged, self.ended_at, self.why = 0, None, None
        self.start()

    def run(self):
        client = self.one.connect(application_name=f"writer {self.number}")
        while True:
            for step in ("begin", f"insert into drained values ({self.number}, {self.acknowledged})", "select pg_sleep(0.02)", "commit"):
                try:
                    client.execute(step)
                except psycopg.OperationalError as why:
                    self.ended_at, self.why = step, str(why)
                    return
            self.acknowledged += 1


@pytest.fixture
def table(pg):
    pg.query("drop table if exists drained; create table drained (writer int, number int); grant all on drained to public", "app")
    return lambda: pg.value("select count(*) from drained", "app")


def test_a_drain_cuts_no_transaction(contained, pg, table):
    one = contained(open_to_all(pg, DEFAULT_POOL_SIZE="4")).start()
    writers = [Writer(one, number) for number in range(12)]
    host.eventually(lambda: all(writer.acknowledged > 2 for writer in writers))
    done = one.exec("--drain", "1")
    assert (done.returncode, one.wait_end()) == (0, 0), done.stderr
    assert done.stderr == "weir: clients are still connected after 1 s; waiting for transactions in progress\n"
    for writer in writers:
        writer.join(30)
        assert writer.ended_at == "begin", f"{writer.ended_at}: {writer.why}"
    assert table() == sum(writer.acknowledged for writer in writers)
    assert "SHUTDOWN WAIT_FOR_CLIENTS command issued" in one.log_text() and "server connections dropped, exiting" in one.log_text()


def test_clients_may_leave_until_the_deadline(contained, pg):
    one = contained(open_to_all(pg)).start()
    client = one.connect()
    draining = one.begin("--drain", "60")
    host.eventually(one.refuses)
    for number in range(5):
        assert client.execute("select %s", [number]).fetchone() == (number,), "who is connected is served"
    assert draining.poll() is None and one.process.poll() is None
    client.close()
    assert (one.wait_end(), draining.wait(30), draining.said()) == (0, 0, "")


def test_new_clients_are_served_during_the_delay(contained, pg):
    one = contained(open_to_all(pg)).start()
    draining = one.begin("--drain", "30", "--delay", "15")
    begun = time.monotonic()
    while time.monotonic() < begun + 2:
        with one.connect() as client:
            assert client.execute("select 1").fetchone() == (1,)
    host.eventually(one.refuses)
    assert (one.wait_end(), draining.wait(30)) == (0, 0)


def test_who_waits_for_a_server_has_begun_nothing(contained, pg, table):
    one = contained(open_to_all(pg, DEFAULT_POOL_SIZE="1")).start()
    holder, waiting = one.connect(), one.connect()
    holder.execute("begin")
    holder.execute("insert into drained values (1, 1)")
    failures = []

    def wait():
        with pytest.raises(psycopg.OperationalError) as caught:
            waiting.execute("insert into drained values (2, 1)")
        failures.append(str(caught.value))

    thread = threading.Thread(target=wait)
    thread.start()
    draining = one.begin("--drain", "1")
    thread.join(30)
    assert len(failures) == 1 and "server shutting down" in failures[0]
    assert one.process.poll() is None and draining.poll() is None, "a transaction is in progress"
    holder.execute("insert into drained values (1, 2)")
    holder.execute("commit")
    assert (one.wait_end(), draining.wait(30), table()) == (0, 0, 2)


def test_who_waits_is_served_before_the_deadline(contained, pg, table):
    one = contained(open_to_all(pg, DEFAULT_POOL_SIZE="1")).start()
    holder, waiting = one.connect(), one.connect()
    holder.execute("begin")
    thread = threading.Thread(target=lambda: (waiting.execute("insert into drained values (2, 1)"), waiting.close()))
    thread.start()
    draining = one.begin("--drain", "60")
    host.eventually(one.refuses)
    holder.execute("insert into drained values (1, 1)")
    holder.execute("commit")
    holder.close()
    thread.join(30)
    assert (one.wait_end(), draining.wait(30), table()) == (0, 0, 2)


def test_a_copy_goes_on_to_its_end(contained, pg, table):
    one = contained(open_to_all(pg)).start()
    client = one.connect()
    with client.cursor() as cursor, cursor.copy("copy drained from stdin") as copy:
        copy.write_row((1, 0))
        draining = one.begin("--drain", "1")
        host.eventually(lambda: "waiting for transactions" in draining.said())
        for number in range(1, 50_000):
            copy.write_row((1, number))
        assert (one.process.poll(), draining.poll()) == (None, None)
    assert (one.wait_end(), draining.wait(30), table()) == (0, 0, 50_000)


def test_two_drains_are_as_good_as_one(contained, pg, table):
    one = contained(open_to_all(pg)).start()
    busy, idle = one.connect(), one.connect()
    busy.execute("begin")
    busy.execute("insert into drained values (1, 1)")
    first = one.begin("--drain", "1")
    host.eventually(lambda: "waiting for transactions" in first.said())
    second = one.begin("--drain", "60")  # clients are not waited for again: they get no server any more
    host.eventually(lambda: one.log_text().count("SHUTDOWN WAIT_FOR_CLIENTS command issued") == 2)
    with pytest.raises(psycopg.OperationalError, match="server shutting down"):
        idle.execute("select 1")
    assert [process.poll() for process in (first, second, one.process)] == [None, None, None]
    busy.execute("commit")
    assert (one.wait_end(), first.wait(30), second.wait(30), table()) == (0, 0, 0, 1)


def test_a_session_pool_waits_for_its_sessions(contained, pg):
    one = contained(open_to_all(pg, POOL_MODE="session")).start()
    client = one.connect()
    client.execute("create temp table mine (x int)")
    draining = one.begin("--drain", "1")
    host.eventually(lambda: "waiting for transactions" in draining.said())
    assert client.execute("select count(*) from mine").fetchone() == (0,), "a session is not ended in its midst"
    assert (one.process.poll(), draining.poll()) == (None, None)
    client.close()
    assert (one.wait_end(), draining.wait(30)) == (0, 0)


@pytest.mark.any_driver
def test_a_drain_without_a_console_says_so(contained, pg):
    one = contained(open_to_all(pg, UNIX_SOCKET_DIR="/nowhere")).start()
    done = one.exec("--drain", "1")
    assert done.returncode == 1 and "cannot use the console of the running process (/nowhere/.s.PGSQL." in done.stderr
    assert one.process.poll() is None and one.exec("--health").returncode == 0, "nothing was begun"


@pytest.mark.any_driver
def test_an_abstract_socket_is_enough(contained, pg):
    one = contained(open_to_all(pg, UNIX_SOCKET_DIR="@weir-e2e")).start()
    done = one.exec("--drain", "10")
    assert (done.returncode, done.stderr, one.wait_end()) == (0, "", 0)


@pytest.mark.any_driver
def test_a_drain_that_ends_nothing_fails(contained, pg):
    one = contained(open_to_all(pg))
    done = one.once("--drain", "1")
    assert done.returncode == 1 and re.search(r"cannot use the console of the running process .*: No such file", done.stderr)
    one.start()
    client = one.connect()
    draining = one.begin("--drain", "60")
    host.eventually(one.refuses)
    one.process.kill()
    assert draining.wait(30) == 0, "it waits for the end, whatever that was"
    client.close()
