"""`target_session_attrs`: a primary and its standby in one entry, and which of them the connections go to, by libpq's words; what clients
see of a failover."""

import threading
import time

import psycopg
import pytest

import host
import postgres
from test_takeover import reboot

pytestmark = [pytest.mark.weir_only, pytest.mark.every_version]

WORDS = {
    "any": {"primary", "standby"}, "read-write": {"primary"}, "primary": {"primary"}, "read-only": {"standby"}, "standby": {"standby"},
    "prefer-standby": {"standby"},
}


@pytest.fixture
def pair(pg, scratch):
    """A primary and a streaming standby of their own, which a test may stop and promote."""
    primary = postgres.Postgres(pg.bindir, host.new_directory(scratch, "primary"))
    standby = postgres.Standby(primary, host.new_directory(scratch, "standby"))
    yield primary, standby
    for server in (standby, primary):
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
        assert places(pooler, pair, word.replace("-", "_")) == expected, word
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
    assert places(pooler, pair, "app") == {"standby"}
    standby.stop()
    see_it_end(pooler, standby)
    clients = held(pooler, "app", 2)
    assert places(pooler, pair, "app") == {"primary"}
    assert clients[0].execute("select pg_is_in_recovery()").fetchone() == (False,)


class Writer(threading.Thread):
    """Inserts rows, one a transaction, and keeps which were committed and what it was told where one was not."""

    def __init__(self, pooler, number):
        super().__init__(daemon=True)
        self.pooler, self.number = pooler, number
        self.committed, self.errors, self.over = [], [], threading.Event()

    def run(self):
        connection, value = self.pooler.connect(), 0
        while not self.over.is_set():
            value += 1
            try:
                connection.execute("insert into written values (%s, %s)", (self.number, value))
                self.committed.append((time.monotonic(), value))
            except psycopg.Error as error:
                self.errors.append(str(error))
                connection = self.pooler.connect()


def test_a_failover_costs_the_transactions_in_flight_and_no_others(weir, pair):
    primary, standby = pair
    primary.query("create table written (who int, value int); grant all on written to public", "app")
    primary.query("alter system set synchronous_standby_names = '*'")
    primary.query("select pg_reload_conf()")
    pooler = weir(databases={"app": entry(pair, "target_session_attrs=primary")}, default_pool_size=4)
    idle = pooler.connect()
    idle.execute("select 1")
    writers = [Writer(pooler, number) for number in range(12)]
    for writer in writers:
        writer.start()
    host.eventually(lambda: all(len(writer.committed) > 5 for writer in writers))
    primary.kill()
    time.sleep(1)
    standby.query("alter system set synchronous_standby_names = ''")
    standby.promote()
    promoted = time.monotonic()
    host.eventually(lambda: all(writer.committed[-1][0] > promoted for writer in writers))
    for writer in writers:
        writer.over.set()
    for writer in writers:
        writer.join(30)
    # No more than had a server: the others have waited.
    errors = [error for writer in writers for error in writer.errors]
    assert len(errors) <= 4, errors
    first = min(at for writer in writers for at, _ in writer.committed if at > promoted)
    print(f"the first commit {first - promoted:.2f} s after the promotion, {len(errors)} errors")
    assert first - promoted < 5, "a busy machine; it takes half a second at most"
    assert idle.execute("select pg_is_in_recovery()").fetchone() == (False,), "it has noticed nothing"
    assert places(pooler, pair, "app") == {"standby"}, "which is the primary now"
    stored = {tuple(row) for row in standby.query("select who, value from written", "app")}
    acknowledged = {(writer.number, value) for writer in writers for _, value in writer.committed}
    assert acknowledged <= stored and len(stored - acknowledged) <= len(errors)


def test_a_promoted_standby_leaves_an_entry_of_standbys(weir, pair):
    primary, standby = pair
    pooler = weir(databases={"app": entry(pair, "target_session_attrs=standby")}, query_wait_timeout=3)
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
    pooler = weir(databases={"app": entry(pair, "target_session_attrs=primary")}, query_wait_timeout=4)
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
    assert places(pooler, pair, "app") == {"standby"}
    standby.stop()
    see_it_end(pooler, standby)
    primary.start()  # as it was: what is written there, the new primary does not have
    with pytest.raises(psycopg.OperationalError, match="query_wait_timeout"):
        client.execute("create table lost (a int)")
    pooler.wait_log("it is on timeline 1 and there has been a primary on timeline 2")
    assert primary.query("select to_regclass('lost')", "app") == [(None,)]
    standby.start()
    assert pooler.connect().execute("select timeline_id from pg_control_checkpoint()").fetchone() == (2,)
    assert "denied" not in pooler.log_text(), "everybody may ask which cluster it is"


def test_a_server_of_another_cluster_is_used_only_if_told_so(weir, pair, pg):
    primary, _ = pair
    hosts = f"host=127.0.0.1,127.0.0.1 port={primary.port},{pg.port} target_session_attrs=primary"
    pooler = weir(databases={"app": hosts}, query_wait_timeout=4)
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
