"""`read_write_split`: reads go to the standbys of an entry and everything else to its primary."""

import concurrent.futures
import re
import threading
import time

import psycopg
import pytest

import drivers
import host
import routing_corpus
from split_cluster import NUMBERS, STANDBYS, Cluster, knows, ready, where
from test_drivers import ready as prepared_driver
from test_takeover import reboot

pytestmark = [pytest.mark.weir_only, pytest.mark.every_version]


def begin_on_a_standby(cluster, client):
    """Which one: one that answers no probe within a second, on a busy machine, gets no reads until it does."""
    def begins():
        client.execute("begin read only")
        place = where(cluster, client)
        if place == "primary":
            client.execute("rollback")
        return place in STANDBYS and place

    return host.eventually(begins)


def test_reads_go_to_the_standbys_and_writes_to_the_primary(weir, cluster):
    pooler = weir(databases={"app": cluster.entry()}, default_pool_size=4)
    client = ready(pooler, cluster)
    host.eventually(lambda: {where(cluster, client) for _ in range(10)} == STANDBYS)
    with client.transaction():
        assert where(cluster, client) == "primary"
    assert where(cluster, client, "update t set b = {} where a = 1") == "primary"
    number = next(NUMBERS)
    client.execute(f"update t set b = {number} where a = 1")
    assert client.execute("select b from t where a = 1").fetchone() == (number,)
    host.eventually(lambda: where(cluster, client) in STANDBYS)
    place = begin_on_a_standby(cluster, client)
    assert {where(cluster, client) for _ in range(2)} == {place}
    client.execute("commit")


@pytest.mark.parametrize("consistency", ["session", "database"])
def test_reads_see_the_writes_before_them(weir, cluster, consistency):
    """One standby replays with a delay, the other at once; `database` holds for what another client has written, too."""
    cluster.standbys[0].stop()
    cluster.standbys[0].start(recovery_min_apply_delay="400ms")
    pooler = weir(databases={"app": cluster.entry(f"read_consistency={consistency}")}, default_pool_size=4)
    reader = pooler.connect("app")
    host.eventually(lambda: where(cluster, reader) in STANDBYS, timeout=20)
    writer = reader if consistency == "session" else pooler.connect("app")
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        number = next(NUMBERS)
        writer.execute("update t set b = %s where a = 1", [number])
        for _ in range(9):
            assert reader.execute("select b from t where a = 1").fetchone() == (number,)
    host.eventually(lambda: where(cluster, reader) == "standby1", timeout=20)


def test_prepared_statements_follow_to_the_standbys(weir, cluster):
    pooler = weir(databases={"app": cluster.entry()}, default_pool_size=4)
    client = ready(pooler, cluster)
    places = set()

    def both_have_served():
        for number in [next(NUMBERS) for _ in range(6)]:
            assert client.execute("select %s::int, b from t where a = 1", [number], prepare=True).fetchone() == (number, 0)
            places.add(cluster.place_of(f"'{number}'"))
        return places == STANDBYS

    host.eventually(both_have_served)


def test_pgjdbc_reads_on_standbys_and_sees_its_own_writes(weir, cluster):
    """Statements that pgjdbc prepares with their fifth run, setReadOnly, batches: the program fails if a read misses what its connection has written."""
    cluster.primary.query("create table jdbc_reads (number int4 primary key, value int4); grant all on jdbc_reads to public", "app")
    cluster.caught_up()
    pooler = weir(databases={"app": cluster.entry()}, default_pool_size=4, ignore_startup_parameters="extra_float_digits")
    ready(pooler, cluster)
    pgjdbc = prepared_driver(drivers.Java("java"))
    pgjdbc.run("reads", pooler.uri())
    logs = {name: server.log_text() for name, server in cluster.servers.items()}
    standbys = logs["standby1"] + logs["standby2"]
    for kind in ("plain", "own", "transaction", "always", "batch"):
        reads = re.findall(rf"execute (\S+): select .*/\* jdbc {kind} \*/", standbys)
        # How many of them is a matter of time: the standbys of a busy machine are behind for most reads that follow a write.
        assert any(name != "<unnamed>" for name in reads), (kind, reads)
    assert "/* jdbc block */" in logs["primary"] and "/* jdbc block */" not in standbys
    assert not re.search("(insert into|update) jdbc_reads", standbys)
    hosts = [row for row in pooler.console("SHOW HOSTS") if row["state"] == "standby"]
    assert len(hosts) == 2 and all(row["reads"] > 100 for row in hosts), hosts


def test_what_a_client_asks_for_by_a_comment_or_a_setting(weir, cluster):
    split = {word: cluster.entry(f"read_after_write={word}") for word in ("transaction", "session", "always_primary")}
    pooler = weir(databases={"app": cluster.entry(), **split}, default_pool_size=4)
    client = ready(pooler, cluster)
    assert where(cluster, client, "/* weir: primary */ select {}") == "primary"
    always = pooler.connect("always_primary")
    host.eventually(lambda: where(cluster, always, "/* weir: standby */ select {}") in STANDBYS)
    assert where(cluster, always) == "primary"
    # What a function does is not seen, and a standby that is asked for it refuses it.
    with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
        always.execute("/* weir: standby */ update t set b = 1")
    clients = {word: ready(pooler, cluster, word) for word in ("transaction", "session")}
    for client in clients.values():
        client.execute("update t set b = 7 where a = 1")
    host.eventually(lambda: where(cluster, clients["transaction"]) in STANDBYS)
    assert where(cluster, clients["session"]) == "primary"


def test_a_standby_that_is_far_behind_serves_no_reads(weir, cluster):
    cluster.standbys[0].stop()
    cluster.standbys[0].start(recovery_min_apply_delay="30s")
    limits = {"time": "read_consistency=eventual max_replica_lag=1", "bytes": "read_consistency=eventual max_replica_lag=16kB"}
    pooler = weir(databases={name: cluster.entry(more) for name, more in limits.items()}, default_pool_size=4)
    clients = [pooler.connect(name) for name in limits]
    for client in clients:
        host.eventually(lambda: "standby2" in {where(cluster, client), where(cluster, client)}, timeout=20)
        client.execute("update t set b = b + 1 where a = 1")
    cluster.primary.query("create table filler as select generate_series(1, 20000)", "app")
    for client in clients:
        host.eventually(lambda: {where(cluster, client) for _ in range(6)} == {"standby2"}, timeout=20)


def test_new_transactions_wait_for_the_next_primary(weir, pg, scratch):
    cluster = Cluster(pg.bindir, scratch)
    try:
        pooler = weir(databases={"app": cluster.entry()}, default_pool_size=4, failover_timeout=60)
        clients = [ready(pooler, cluster) for _ in range(3)]
        cluster.primary.stop()
        with concurrent.futures.ThreadPoolExecutor(3) as workers:
            waiting = [workers.submit(client.execute, "update t set b = b + 1 where a = 1") for client in clients]
            assert where(cluster, pooler.connect("app")) in STANDBYS  # one that has written nothing goes on reading
            cluster.standbys[0].promote()
            for result in waiting:
                result.result(60)
        assert clients[0].execute("select b from t where a = 1").fetchone() == (3,)
        assert where(cluster, clients[0], "update t set b = {} where a = 1") == "standby1"
    finally:
        cluster.stop()


def test_without_a_primary_clients_wait_as_long_as_they_may(weir, pg, scratch):
    cluster = Cluster(pg.bindir, scratch)
    try:
        entries = {"app": cluster.entry(), "own": cluster.entry("failover_timeout=1")}
        pooler = weir(databases=entries, default_pool_size=4, failover_timeout=12)
        clients = {name: ready(pooler, cluster, name) for name in entries}
        cluster.primary.stop()
        waited = {}
        for name, client in clients.items():
            begun = time.monotonic()
            with pytest.raises(psycopg.OperationalError, match="failover_timeout"):
                client.execute("update t set b = 0")
            waited[name] = time.monotonic() - begun
        assert 1 <= waited["own"] < 12 <= waited["app"] < 60, waited
    finally:
        cluster.stop()


def test_reads_are_the_standbys_again_where_the_next_record_begins_a_page(weir, cluster):
    """As behind archive_timeout on an idle server: the primary's next record begins behind a page's header, which no standby has replayed."""
    pooler = weir(databases={"app": cluster.entry()}, default_pool_size=4)
    client = ready(pooler, cluster)

    def is_read_from_there():
        """Without a further record, which PostgreSQL writes by itself now and then."""
        cluster.primary.query("select pg_switch_wal()")
        position = cluster.primary.value("select pg_current_wal_insert_lsn()")
        client.execute("begin; select 1; commit")  # counts as a write, and makes no record
        host.eventually(lambda: where(cluster, client) in STANDBYS)
        return cluster.primary.value("select pg_current_wal_insert_lsn()") == position

    assert any(is_read_from_there() for _ in range(3))


def test_standbys_get_reads_by_their_weights(weir, cluster):
    pooler = weir(databases={"app": cluster.entry("weight=1,3,1")}, default_pool_size=4)
    client = pooler.connect("app")
    host.eventually(lambda: where(cluster, client) == where(cluster, client) == "standby1")
    host.eventually(lambda: where(cluster, client) == "standby2")
    # A server that is being asked how far it is counts as busy, so that the shares are not exact.
    places = [where(cluster, client) for _ in range(40)]
    assert places.count("primary") == 0 and 22 <= places.count("standby1") <= 34, places
    pooler.databases["app"] = cluster.entry("weight=1,0,1")
    pooler.reload()
    host.eventually(lambda: {where(cluster, client) for _ in range(3)} == {"standby2"})


def test_a_setting_of_the_session_decides(weir, cluster):
    pooler = weir(databases={"app": cluster.entry()}, default_pool_size=4)
    client = ready(pooler, cluster)
    client.execute("set weir.route = 'primary'")
    assert {where(cluster, client) for _ in range(3)} == {"primary"}
    host.eventually(lambda: where(cluster, client, "/* weir: standby */ select {}") in STANDBYS)  # A comment comes first.
    client.execute("set weir.route = 'standby'")
    host.eventually(lambda: where(cluster, client, "select {}, pg_backend_pid()") in STANDBYS)

    def in_a_transaction():
        with client.transaction():
            return where(cluster, client)

    host.eventually(lambda: in_a_transaction() in STANDBYS)
    client.execute("/* weir: primary */ update t set b = 1 where a = 1")
    client.execute("reset weir.route")
    assert where(cluster, client, "select {}, pg_backend_pid()") == "primary"
    report = pooler.connect("app", options="-c weir.route=standby")
    host.eventually(lambda: where(cluster, report, "select {}, pg_backend_pid()") in STANDBYS)
    with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
        report.execute("update t set b = 1 where a = 1")


def test_what_a_standby_refuses_the_primary_runs(weir, cluster):
    """A function that has been made one that writes behind Weir's back, and a role whose transactions are serializable."""
    cluster.primary.query("""
        create or replace function counts() returns int language sql stable as 'select b from t where a = 1';
        create table if not exists calls (n int); grant all on calls to public""", "app")
    cluster.caught_up()
    pooler = weir(databases={"app": cluster.entry()}, default_pool_size=4)
    client = ready(pooler, cluster)
    host.eventually(lambda: where(cluster, client, "select counts(), {}") in STANDBYS)
    cluster.primary.query("""
        create or replace function counts() returns int language plpgsql volatile as 'begin insert into calls values (1); return 7; end';
        truncate calls""", "app")
    cluster.caught_up()
    assert client.execute("select counts()").fetchone() == (7,)
    assert cluster.primary.query("select count(*) from calls", "app") == [(1,)]
    assert pooler.log_text().count("a standby does not run a read") == 1
    cluster.primary.query("alter role bob set default_transaction_isolation = serializable")
    try:
        cluster.caught_up()
        other = pooler.connect("app", user="bob")
        host.eventually(lambda: "cannot use serializable mode in a hot standby" in pooler.log_text() or other.execute("select 1").fetchone() != (1,))
        assert other.execute("select 1").fetchone() == (1,)
    finally:
        cluster.primary.query("alter role bob reset default_transaction_isolation")


def test_readers_do_not_notice_the_end_of_a_standby(weir, pg, scratch):
    cluster = Cluster(pg.bindir, scratch)
    try:
        pooler = weir(databases={"app": cluster.entry()}, default_pool_size=4)
        ready(pooler, cluster)
        is_over, counts = threading.Event(), [0] * 8

        def read(number):
            client = pooler.connect("app")
            while not is_over.is_set():
                assert client.execute("select %s + b from t where a = 1", (number,)).fetchone() == (number,)
                counts[number] += 1

        with concurrent.futures.ThreadPoolExecutor(8) as workers:
            readers = [workers.submit(read, number) for number in range(8)]
            time.sleep(1)
            cluster.standbys[0].kill()
            time.sleep(1)
            cluster.standbys[1].stop()
            time.sleep(1)
            cluster.standbys[0].start()
            try:
                host.eventually(lambda: min(counts) > 20 or any(reader.done() for reader in readers))
            finally:
                is_over.set()
            for reader in readers:
                reader.result(30)
        assert min(counts) > 20
    finally:
        cluster.stop()


def test_reload_turns_it_on_and_off(weir, cluster):
    pooler = weir(databases={"app": cluster.entry()}, default_pool_size=4)
    client = ready(pooler, cluster)
    pooler.databases["app"] = cluster.entry("target_session_attrs=primary").replace("read_write_split=1", "")
    pooler.reload()
    host.eventually(lambda: where(cluster, client) == "primary")
    assert {where(cluster, client) for _ in range(4)} == {"primary"}
    pooler.databases["app"] = cluster.entry()
    pooler.reload()
    knows(cluster, client)


def run(client, text):
    """As one simple query, whatever comes of it."""
    connection = client.pgconn
    result = connection.exec_(text.encode())
    while result and result.status in (psycopg.pq.ExecStatus.COPY_IN, psycopg.pq.ExecStatus.COPY_OUT):
        if result.status == psycopg.pq.ExecStatus.COPY_IN:
            connection.put_copy_end(b"no")
        else:
            while connection.get_copy_data(0)[0] > 0:
                pass
        result = connection.get_result()
    while connection.get_result():
        pass


def test_each_statement_of_the_corpus_goes_where_it_may_run(weir, cluster):
    corpus = routing_corpus.Corpus()
    cluster.primary.query("create database corpus template template0")
    cluster.primary.query(corpus.ddl, "corpus")
    cluster.caught_up()
    pooler = weir(databases={"corpus": cluster.entry("read_consistency=eventual").replace("dbname=app", "")}, default_pool_size=4)
    watcher = ready(pooler, cluster, "corpus")
    reads = {"Read", "ReadOnlyTransaction", "HintStandby"}

    def ask(text):
        number = next(NUMBERS)
        with pooler.connect("corpus") as client:
            run(client, f"/* {number} */ {text}")
        return number

    def logs():
        return {name: server.log_text() for name, server in cluster.servers.items()}

    def places_of(number, logs):
        return {name for name, log in logs.items() if f"/* {number} */" in log}

    marked = []
    for group, kind, text in corpus.cases:
        marked.append((ask(text), group, kind, text))
        if kind == "Write":
            knows(cluster, watcher)  # the schema may have changed
    logged = logs()
    for number, group, kind, text in marked:
        places = places_of(number, logged)
        if kind in reads and places == {"primary"}:  # Both standbys may have been silent for a second, on a busy machine.
            knows(cluster, watcher)
            places = places_of(ask(text), logs())
        assert places or kind == "Session", (group, text)
        # What names a table that there is not is asked of the primary, too.
        assert places & STANDBYS if kind in reads else places <= {"primary"}, (group, kind, text, places)


def test_a_session_is_not_kept_on_a_standby(weir, cluster):
    pooler = weir(databases={"app": cluster.entry()}, default_pool_size=4)
    client = ready(pooler, cluster)
    begin_on_a_standby(cluster, client)
    client.execute("declare c cursor with hold for select 1")
    # The error comes behind the answer to COMMIT: what the client makes of it depends on when it reads.
    with pytest.raises(psycopg.Error):
        client.execute("commit")
        client.execute("select 1")
    host.eventually(lambda: "cannot leave its standby" in pooler.log_text())
    client = ready(pooler, cluster)
    client.execute("/* weir: primary */ begin read only")
    client.execute("declare c cursor with hold for select 7")
    client.execute("commit")
    assert client.execute("fetch c").fetchone() == (7,)
    assert where(cluster, client) == "primary"


def test_a_takeover_keeps_transactions_on_their_standby(weir, cluster):
    pooler = weir(databases={"app": cluster.entry()}, default_pool_size=4)
    client, writer = ready(pooler, cluster), ready(pooler, cluster)
    place = begin_on_a_standby(cluster, client)
    reboot(pooler)
    assert where(cluster, client) == place
    client.execute("commit")
    for number in range(5):
        writer.execute("update t set b = %s where a = 1", [number])
        assert writer.execute("select b from t where a = 1").fetchone() == (number,)
    host.eventually(lambda: where(cluster, writer) in STANDBYS)
    knows(cluster, client)
