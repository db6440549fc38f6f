"""`target_session_attrs`: a primary and its standby in one entry, and which of them the connections go to, by libpq's words; what clients
see of a failover."""

import os
import shutil
import threading
import time
from collections import Counter
from dataclasses import dataclass

import psycopg
import pytest

import host
import postgres
from test_takeover import reboot

pytestmark = [pytest.mark.weir_only, pytest.mark.every_version]

KILLS = int(os.environ.get("WEIR_KILLS", "1"))
CLIENTS, SERVERS = (12, 4) if KILLS == 1 else (50, 20)
WORDS = {
    "any": {"primary", "standby"}, "read-write": {"primary"}, "primary": {"primary"}, "read-only": {"standby"}, "standby": {"standby"},
    "prefer-standby": {"standby"},
}

# What a primary writes. The control file has it from the first checkpoint after the promotion on only.
TIMELINE = "select ('x' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8))::bit(32)::int"


@pytest.fixture
def pair(pg, scratch):
    """A primary and a streaming standby of their own, which a test may stop and promote."""
    timed = {"log_line_prefix": "%n %p %u "}
    primary = postgres.Postgres(pg.bindir, host.new_directory(scratch, "primary"), **timed)
    made = [primary, postgres.Standby(primary, host.new_directory(scratch, "standby"), **timed)]
    yield made
    for server in reversed(made):
        server.remove()


def entry(pair, more=""):
    """Both, the standby first."""
    return f"host=127.0.0.1,127.0.0.1 port={pair[1].port},{pair[0].port} {more}"


def places(pooler, pair, database):
    names = dict(zip((server.port for server in pair), ("primary", "standby")))
    return {names[row["port"]] for row in pooler.console("SHOW SERVERS") if row["database"] == database}


def held(pooler, database, count=4):
    """So many server connections at the same time."""
    clients = [pooler.connect(database) for _ in range(count)]
    for client in clients:
        client.execute("begin")
        client.execute("select 1")
    return clients


def test_connections_go_to_the_servers_that_libpq_would_take(weir, pair):
    databases = {word.replace("-", "_"): entry(pair, f"dbname=app target_session_attrs={word}") for word in WORDS}
    pooler = weir(databases=databases, default_pool_size=4)
    for word, expected in WORDS.items():
        clients = held(pooler, word.replace("-", "_"))
        host.eventually(lambda name=word.replace("-", "_"), expected=expected: places(pooler, pair, name) == expected)
        recovers = {client.execute("select pg_is_in_recovery()").fetchone()[0] for client in clients}
        assert recovers == {place == "standby" for place in expected}, word
    assert [row["port"] for row in pooler.console("SHOW DATABASES") if row["name"] == "any"] == [pair[1].port]


@pytest.mark.parametrize("port", ["1,2", "1,2,3,4", "5432,", "5432;5433"])
def test_as_many_ports_as_hosts(weir, pg, port):
    pooler = weir.prepared(databases={"app": f"host=a,b,c port={port}"})
    pooler.write_ini()
    checked = host.run([pooler.program, "check", pooler.ini], check=False)
    assert checked.returncode != 0 and "port" in checked.stdout + checked.stderr


def test_without_a_standby_one_that_prefers_them_uses_the_primary(weir, pair):
    primary, standby = pair
    pooler = weir(databases={"app": entry(pair, "target_session_attrs=prefer-standby")}, default_pool_size=4)
    held(pooler, "app", 1)
    # A second connection may have been begun, to the primary, which is closed when it has said what it is.
    host.eventually(lambda: places(pooler, pair, "app") == {"standby"})
    standby.stop()
    see_it_end(pooler, standby)
    clients = held(pooler, "app", 2)
    host.eventually(lambda: places(pooler, pair, "app") == {"primary"})
    assert clients[0].execute("select pg_is_in_recovery()").fetchone() == (False,)


@dataclass
class Failure:
    """A transaction that was not acknowledged. `commits`: what commits it had been sent."""

    value: int
    begun: float
    ended: float
    commits: bool
    text: str


class Writer(threading.Thread):
    """Inserts rows, one a transaction, by one statement and by three in turn, and keeps which were committed and what became of the others."""

    def __init__(self, pooler, number):
        super().__init__(daemon=True)
        self.pooler, self.number = pooler, number
        self.committed, self.failures, self.over = [], [], threading.Event()
        self.commits = False

    def run(self):
        connection, value = self.pooler.connect(), 0
        while not self.over.is_set():
            value += 1
            begun, self.commits = time.time(), False
            try:
                self.write(connection, value)
                self.committed.append((time.time(), value))
            except psycopg.Error as error:
                self.failures.append(Failure(value, begun, time.time(), self.commits, str(error).splitlines()[0]))
                connection.close()
                connection = self.pooler.connect()

    def write(self, connection, value):
        if value % 2:
            self.commits = True
            connection.execute("insert into written values (%s, %s)", (self.number, value))
            return
        connection.execute("begin")
        connection.execute("insert into written values (%s, %s)", (self.number, value))
        self.commits = True
        connection.execute("commit")


@dataclass
class Failover:
    """When the kill of the old primary began, when all of its processes were gone, and when the new one accepted writes, by its log."""

    killed: float
    gone: float
    promoted: float

    def has_met(self, failure):
        return failure.begun < self.gone and failure.ended >= self.killed


def replicate(primary):
    """Each commit waits for the standby: none is lost when the primary dies."""
    primary.query("alter system set synchronous_standby_names = '*'")
    primary.query("select pg_reload_conf()")
    host.eventually(lambda: primary.value("select count(*) from pg_stat_replication where sync_state = 'sync'") == 1)


def fail_over(primary, standby):
    mark, killed = standby.log_mark(), time.time()
    primary.kill()
    gone = time.time()
    time.sleep(1)
    standby.query("alter system set synchronous_standby_names = ''")
    standby.promote()
    (line,) = [line for line in standby.log_since(mark).splitlines() if "archive recovery complete" in line]
    return Failover(killed, gone, float(line.split()[0]))


def rejoin(old, new):
    """The server that was killed, as a standby of the one that was promoted."""
    shutil.rmtree(old.data)
    return postgres.Standby(new, old.directory, old.port, **old.settings)


def account(writers, server, failovers):
    """What became of all transactions, checked."""
    stored = [tuple(row) for row in server.query("select who, value from written", "app")]
    commits = [at for writer in writers for at, _ in writer.committed]
    failures = [failure for writer in writers for failure in writer.failures]
    for failover in failovers:
        met = [failure for failure in failures if failover.has_met(failure)]
        first = min(at for at in commits if at > failover.gone + 0.5) - failover.promoted
        outage, kinds = failover.promoted - failover.gone, dict(Counter(failure.text for failure in met))
        print(f"promoted {outage:.2f} s after the kill, the first commit {first:.2f} s after that; {len(met)} errors: {kinds}")
        # No more than had a server: the others have waited.
        assert len(met) <= SERVERS, met
        assert first < 20, "a busy machine; it takes half a second at most"
    other = [failure for failure in failures if not any(failover.has_met(failure) for failover in failovers)]
    acknowledged = {(writer.number, value) for writer in writers for _, value in writer.committed}
    unknown = {(writer.number, failure.value) for writer in writers for failure in writer.failures if failure.commits}
    lost, doubled = acknowledged - set(stored), len(stored) - len(set(stored))
    wrong = set(stored) - acknowledged - unknown
    print(
        f"{len(acknowledged)} acknowledged, {len(lost)} lost, {doubled} doubled; {len(failures)} errors, {len(other)} of transactions that were not in flight; "
        f"of {len(unknown)} with an unknown outcome {len(unknown & set(stored))} have taken effect, of the others {len(wrong)}"
    )
    assert not lost and not doubled and not wrong and not other, (lost, doubled, wrong, other)


def test_a_failover_costs_the_transactions_in_flight_and_no_others(weir, pair):
    """WEIR_KILLS is how often: the primary that was killed is the standby of the next time."""
    primary, standby = pair
    primary.query("create table written (who int, value int); grant all on written to public", "app")
    pooler = weir(databases={"app": entry(pair, "target_session_attrs=primary")}, default_pool_size=SERVERS)
    idle = pooler.connect()
    idle.execute("select 1")
    writers = [Writer(pooler, number) for number in range(CLIENTS)]
    for writer in writers:
        writer.start()
    failovers = []
    for number in range(KILLS):
        if number:
            pair[:] = primary, standby = standby, rejoin(primary, standby)
        replicate(primary)
        begun = time.time()
        host.eventually(lambda: all(len(writer.committed) > 5 and writer.committed[-5][0] > begun for writer in writers))
        failovers.append(fail_over(primary, standby))
        host.eventually(lambda: all(writer.committed[-1][0] > failovers[-1].promoted for writer in writers))
    for writer in writers:
        writer.over.set()
    for writer in writers:
        writer.join(30)
    account(writers, standby, failovers)
    assert idle.execute("select pg_is_in_recovery()").fetchone() == (False,), "it has noticed nothing"
    host.eventually(lambda: places(pooler, pair, "app") == {"standby"})  # Which is the primary now.


def test_a_promoted_standby_leaves_an_entry_of_standbys(weir, pair):
    primary, standby = pair
    pooler = weir(databases={"app": entry(pair, "target_session_attrs=standby")}, query_wait_timeout=12)
    client = pooler.connect()
    assert client.execute("select pg_is_in_recovery()").fetchone() == (True,)
    primary.stop()
    standby.promote()
    client.execute("select 1")  # by this one's answer PostgreSQL says so
    pooler.wait_log("closing because: server is not in hot standby mode any more")
    with pytest.raises(psycopg.OperationalError, match="query_wait_timeout"):
        client.execute("select 2")
    assert "server is not in hot standby mode" in pooler.log_text()


def test_reload_moves_the_next_transaction(weir, pair):
    pooler = weir(databases={"app": entry(pair, "target_session_attrs=standby")})
    client = pooler.connect()
    assert client.execute("select pg_is_in_recovery()").fetchone() == (True,)
    pooler.databases["app"] = entry(pair, "target_session_attrs=primary")
    pooler.reload()
    host.eventually(lambda: client.execute("select pg_is_in_recovery()").fetchone() == (False,))


def see_it_end(pooler, server, database="app"):
    """Weir has read the end of its connections to a server that has ended: a query that comes in the same instant would meet it."""
    host.eventually(lambda: server.port not in [row["port"] for row in pooler.console("SHOW SERVERS") if row["database"] == database])


def after_failover(weir, pair):
    """A pooler and a client of it that has begun on the primary and goes on on the standby that was promoted."""
    primary, standby = pair
    pooler = weir(databases={"app": entry(pair, "target_session_attrs=primary")}, query_wait_timeout=12)
    client = pooler.connect()
    client.execute("select 1")
    primary.kill()
    see_it_end(pooler, primary)
    standby.promote()
    client.execute("select 1")
    return pooler, client


def test_a_primary_that_was_left_behind_gets_no_transaction(weir, pair):
    primary, standby = pair
    pooler, client = after_failover(weir, pair)
    assert client.execute("select pg_is_in_recovery()").fetchone() == (False,)
    host.eventually(lambda: places(pooler, pair, "app") == {"standby"})
    standby.stop()
    see_it_end(pooler, standby)
    primary.start()  # as it was: what is written there, the new primary does not have
    with pytest.raises(psycopg.OperationalError, match="query_wait_timeout"):
        client.execute("create table lost (a int)")
    pooler.wait_log("it is on timeline 1 and there has been a primary on timeline 2")
    assert primary.query("select to_regclass('lost')", "app") == [(None,)]
    standby.start()
    assert pooler.connect().execute(TIMELINE).fetchone() == (2,)
    assert "denied" not in pooler.log_text(), "everybody may ask which cluster it is"


@pytest.mark.parametrize("is_taken_over", [False, True], ids=["same process", "takeover"])
@pytest.mark.parametrize("idle", [{"autodb_idle_timeout": 1}, {"pool_idle_timeout": 1}], ids=["database", "pool"])
def test_a_primary_that_was_left_behind_stays_so_while_a_database_has_no_pool(weir, pair, idle, is_taken_over):
    primary, standby = pair
    settings = {"query_wait_timeout": 12, "server_idle_timeout": 1, **idle}
    pooler = weir(databases={"*": entry(pair, "target_session_attrs=primary")}, **settings)
    with pooler.connect("app") as client:
        client.execute("select 1")
        primary.kill()
        see_it_end(pooler, primary)
        standby.promote()
        assert client.execute(TIMELINE).fetchone() == (2,)
    pooler.wait_log("dropping database 'app'" if "autodb_idle_timeout" in idle else "cleaning up idle pool: app/alice")
    if is_taken_over:
        reboot(pooler)
    standby.stop()
    primary.start()
    with pytest.raises(psycopg.OperationalError, match="query_wait_timeout|client_login_timeout"):
        pooler.connect("app").execute("create table lost (a int)")
    pooler.wait_log("it is on timeline 1 and there has been a primary on timeline 2")
    assert primary.query("select to_regclass('lost')", "app") == [(None,)]
    pooler.console("RECONNECT")
    assert pooler.connect("app").execute(TIMELINE).fetchone() == (1,)


def test_a_session_from_before_a_reload_with_a_target_is_asked_and_goes_on(weir, pair):
    primary, standby = pair
    more = "pool_mode=session load_balance_hosts=disable"
    pooler = weir(databases={"app": f"host=127.0.0.1 port={primary.port} {more}"})
    client = pooler.connect()
    [[backend]] = client.execute("select pg_backend_pid()")
    client.execute("prepare own as select 7")
    client.execute("create temporary table mine as select 1 as a")
    assert client.pgconn.prepare(b"", b"select 8").error_message == b""
    pooler.databases = {"app": entry(pair, f"target_session_attrs=primary {more}")}
    pooler.reload()
    asked = f"select query like '%pg_control_system%' from pg_stat_activity where pid = {backend}"
    host.eventually(lambda: primary.query(asked, "app") == [(True,)])
    assert client.pgconn.exec_prepared(b"", []).get_value(0, 0) == b"8", "the statement without a name is still there"
    assert client.execute("execute own").fetchone() == (7,)
    assert client.execute("select a from mine").fetchone() == (1,)
    assert client.execute("select name from pg_prepared_statements").fetchall() == [("own",)]
    standby.promote()  # a second primary, on a newer timeline
    assert pooler.connect().execute(TIMELINE).fetchone() == (2,)
    host.eventually(lambda: not is_open(client), 15)


def is_open(client):
    try:
        client.execute("select 1")
    except psycopg.OperationalError as error:
        assert "there is a primary on a newer timeline" in str(error)
        return False
    return True


def test_a_server_of_another_cluster_is_used_only_if_told_so(weir, pair, pg):
    primary, _ = pair
    hosts = f"host=127.0.0.1,127.0.0.1 port={primary.port},{pg.port} target_session_attrs=primary"
    pooler = weir(databases={"app": hosts}, query_wait_timeout=12)
    client = pooler.connect()
    system = client.execute("select system_identifier from pg_control_system()").fetchone()
    primary.stop()
    see_it_end(pooler, primary)
    with pytest.raises(psycopg.OperationalError, match="query_wait_timeout"):
        pooler.connect().execute("select 1")
    pooler.wait_log(f"its system identifier is [0-9]+ and that of the others is {system[0]}: RECONNECT app")
    pooler.console("RECONNECT app")
    assert pooler.connect().execute("select system_identifier from pg_control_system()").fetchone() != system


def test_a_takeover_takes_along_which_primary_was_the_last(weir, pair):
    primary, standby = pair
    pooler, client = after_failover(weir, pair)
    reboot(pooler)
    client.execute("select 1")
    standby.stop()
    see_it_end(pooler, standby)
    primary.start()
    with pytest.raises(psycopg.OperationalError, match="query_wait_timeout"):
        client.execute("select 1")
    pooler.wait_log("it is on timeline 1 and there has been a primary on timeline 2")
