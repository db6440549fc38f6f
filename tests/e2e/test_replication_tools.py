"""PostgreSQL's own tools of replication through the pooler: base backups, streams of WAL, logical slots, subscriptions."""

import os
import time

import pytest

import host
import wire
from replicas import DATABASES, Background, clean, command, read_wal, replicating, senders

pytestmark = [pytest.mark.every_version, pytest.mark.since("1.23")]

# None of these may end a stream.
SHORT_TIMEOUTS = {"query_timeout": 2, "transaction_timeout": 2, "idle_transaction_timeout": 2, "client_idle_timeout": 2}


@pytest.fixture(autouse=True)
def no_trace(pg):
    yield
    clean(pg)


@pytest.fixture
def pooler(weir):
    return weir(databases=DATABASES, default_pool_size=3, **SHORT_TIMEOUTS)


@pytest.fixture
def patient(weir):
    """For ordinary queries too, which those timeouts end on a busy machine."""
    return weir(databases=DATABASES, default_pool_size=3)


@pytest.fixture
def table(pg):
    pg.query("drop table if exists tracked; create table tracked (number int primary key); grant all on tracked to public", "app")
    yield "tracked"
    pg.query("drop table tracked", "app")


def write(pg, first, last):
    pg.query(f"insert into tracked select generate_series({first}, {last})", "app")


# --- physical ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("method", ["fetch", "stream"])
def test_a_base_backup_is_whole(pooler, pg, method):
    target = pooler.directory / "backup"
    host.run(command(pooler, "pg_basebackup", "-D", target, "-X", method, "-c", "fast", "--no-sync"), timeout=120)
    host.run([pg.bindir / "pg_verifybackup", target], timeout=120)
    assert (target / "PG_VERSION").exists()
    pooler.wait_log("closing because: replication client was closed", 1 if method == "fetch" else 2)


def test_a_base_backup_nobody_reads_takes_no_memory(patient, pg):
    raw = wire.Raw(patient.port).login(user="replica", database="replication", replication="true")
    raw.send(wire.query("BASE_BACKUP (LABEL 'unread', CHECKPOINT 'fast')"))
    raw.read_until("d")  # it has begun
    with wire.Raw(patient.port).login() as quick:
        for number in range(200):
            assert quick.simple(f"select {number}") == [[str(number)]]
    resident = int(open(f"/proc/{patient.process.pid}/status").read().split("VmRSS:")[1].split()[0])
    assert resident < 60_000, f"{resident} KiB for a backup that nobody reads"
    raw.socket.close()
    host.eventually(lambda: senders(pg) == 0)


def test_wal_is_received_until_it_is_interrupted(pooler, pg, table):
    target = host.hand_over(_directory(pooler.directory / "wal"))
    with Background(pooler, "pg_receivewal", "-D", target, "--no-loop", "--no-sync", "-v") as receiver:
        host.eventually(lambda: senders(pg) == 1)
        for round in range(3):
            time.sleep(0.8)  # longer, all in all, than any of the timeouts
            write(pg, round * 10, round * 10 + 9)
            segment = pg.value("select pg_walfile_name(pg_current_wal_lsn())")
            pg.query("select pg_switch_wal()")
            host.eventually(lambda: segment in os.listdir(target))
        assert receiver.interrupt() == 0, receiver.output()
    host.eventually(lambda: senders(pg) == 0)


def test_a_synchronous_standby_confirms_through_it(pooler, pg, table):
    """What the client says while the server streams reaches the server: the commit waits for it."""
    target = host.hand_over(_directory(pooler.directory / "wal"))
    slot = ("--slot", "confirmed")
    host.run(command(pooler, "pg_receivewal", "--create-slot", *slot))
    with Background(pooler, "pg_receivewal", "-D", target, "--no-loop", "--synchronous", *slot) as receiver:
        flushed = "select flush_lsn >= pg_current_wal_flush_lsn() from pg_stat_replication"
        write(pg, 1, 10)
        host.eventually(lambda: pg.query(flushed) == [(True,)])
        assert receiver.interrupt() == 0, receiver.output()


def test_the_end_of_the_server_ends_the_stream(patient, pg):
    target = host.hand_over(_directory(patient.directory / "wal"))
    with Background(patient, "pg_receivewal", "-D", target, "--no-loop", "--no-sync") as receiver:
        host.eventually(lambda: senders(pg) == 1)
        pg.stop()
        assert receiver.process.wait(30) == 1
    pg.start()
    host.eventually(lambda: patient.value("select 1") == 1)


def test_a_receiver_that_dies_leaves_nothing(pooler, pg):
    target = host.hand_over(_directory(pooler.directory / "wal"))
    with Background(pooler, "pg_receivewal", "-D", target, "--no-loop", "--no-sync") as receiver:
        host.eventually(lambda: senders(pg) == 1)
        receiver.process.kill()
        host.eventually(lambda: senders(pg) == 0)
    host.eventually(lambda: not [row for row in pooler.console("SHOW SERVERS") if row["user"] == "replica"])


def test_a_stream_is_whole_while_both_sides_talk(pooler, pg, table):
    begin = pg.value("select pg_current_wal_flush_lsn()::text")
    write(pg, 1, 200_000)
    with wire.Raw(pooler.port).login(user="replica", database="replication", replication="true") as raw:
        read_wal(raw, begin, pg.value("select pg_current_wal_flush_lsn()::text"))


# --- logical ----------------------------------------------------------------------------------------------------
def test_a_logical_slot_is_read_until_it_is_interrupted(pooler, pg, table):
    slot = ("-d", "app", "-S", "decoded")
    host.run(command(pooler, "pg_recvlogical", *slot, "--create-slot", "-P", "test_decoding"))
    with Background(pooler, "pg_recvlogical", *slot, "--start", "-f", "-", "-s", "1", "-F", "0") as reader:
        for round in range(3):
            time.sleep(0.8)
            write(pg, round, round)
            host.eventually(lambda: f"table public.tracked: INSERT: number[integer]:{round}" in reader.output())
        assert reader.interrupt() == 0, reader.output()
    host.run(command(pooler, "pg_recvlogical", *slot, "--drop-slot"))


def test_a_large_transaction_is_decoded_whole(pooler, pg, table):
    slot = ("-d", "app", "-S", "large")
    host.run(command(pooler, "pg_recvlogical", *slot, "--create-slot", "-P", "test_decoding"))
    write(pg, 1, 200_000)
    end = pg.value("select pg_current_wal_lsn()", "app")
    done = host.run(command(pooler, "pg_recvlogical", *slot, "--start", "-f", "-", "--endpos", end, "--no-loop"), timeout=120)
    lines = done.stdout.splitlines()
    assert lines[0].startswith("BEGIN") and lines[-1].startswith("COMMIT")
    assert len(lines) == 200_002
    assert lines[200_000].endswith("number[integer]:200000")


def test_a_snapshot_of_a_slot_is_the_state_it_begins_with(weir, pg, table):
    pooler = weir(databases=DATABASES, default_pool_size=3)  # reading the snapshot takes long
    write(pg, 1, 3)
    slot = replicating(pooler)
    row = slot.execute("CREATE_REPLICATION_SLOT snapped TEMPORARY LOGICAL test_decoding EXPORT_SNAPSHOT").fetchone()
    write(pg, 4, 4)
    with pooler.connect(autocommit=False) as reader:
        reader.execute("set transaction isolation level repeatable read")
        reader.execute(f"set transaction snapshot '{row[2]}'")
        assert reader.execute("select count(*) from tracked").fetchone() == (3,)


def test_a_subscription_of_another_server(pooler, pg, table, servers, server_version):
    """The other version subscribes, in both directions: the first copy of the table, and what is written later."""
    other = servers("18" if server_version == "system" else "system")
    other.ensure_running()
    write(pg, 1, 1000)
    pg.query("create publication everything for table tracked", "app")
    other.query("create table tracked (number int primary key)", "app")
    source = f"host=127.0.0.1 port={pooler.port} dbname=app user=replica sslmode=disable"
    try:
        other.query(f"create subscription mirror connection '{source}' publication everything", "app")
        counted = lambda: other.value("select count(*) from tracked", "app")
        host.eventually(lambda: counted() == 1000, timeout=60)
        for round in range(3):
            time.sleep(0.8)
            write(pg, 2000 + round * 100, 2099 + round * 100)
            host.eventually(lambda: counted() == 1100 + round * 100)
        pg.query("update tracked set number = -number where number <= 10; delete from tracked where number = 11", "app")
        host.eventually(lambda: other.value("select count(*) from tracked where number < 0", "app") == 10)
    finally:
        other.query("drop subscription if exists mirror", "app")
        other.query("drop table tracked", "app")
        pg.query("drop publication everything", "app")


def _directory(path):
    path.mkdir()
    return path
