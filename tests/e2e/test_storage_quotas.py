"""Quotas that PostgreSQL is asked about: groups by role membership, and storage, whose clients may only read when it is full; with clients that try to write all the same."""

import contextlib
import itertools
import time

import psycopg
import pytest

import host
import panel
import wire
from test_quotas import LIMIT, command, limit, limited, rows, state, used
from test_takeover import reboot

pytestmark = pytest.mark.weir_only

READ_ONLY = psycopg.errors.ReadOnlySqlTransaction
INSERT = "insert into filled values (-1, 'x')"
ALICE = ("user alice", "storage")

MODES = {
    "transaction": {"session_state": "off"},
    "virtual": {"session_state": "virtual"},
    "session": {"pool_mode": "session"},
    "statement": {"pool_mode": "statement", "session_state": "off"},
}

FURNITURE = """
create table filled (id int, text text);
alter table filled owner to alice;
create sequence counted;
alter sequence counted owner to alice;
insert into filled select n, repeat(md5(n::text), 60) from generate_series(1, 1000) n;
create function hidden() returns text language sql as $$ select set_config('default_transaction_read_only', 'off', false) $$;
create function writes() returns void language plpgsql as $$ begin insert into filled values (-1, 'function'); end $$;
create procedure commits() language plpgsql as $$ begin commit; set transaction read write; insert into filled values (-1, 'procedure'); commit; end $$;
"""


@pytest.fixture
def filled(pg):
    """A table of alice's with about 2 MB, and functions that try to write."""
    pg.query("drop owned by alice cascade", "app")
    pg.query("grant all on schema public to public", "app")
    pg.query(FURNITURE, "app")
    pg.query("grant all on filled to bob", "app")
    yield pg
    pg.query("drop function if exists hidden, writes; drop procedure if exists commits; drop owned by alice cascade", "app")
    pg.query("grant all on schema public to public", "app")


def asking(weir, text, **settings):
    """A pooler that asks PostgreSQL every second."""
    return limited(weir, text, **{"quota_user": "carol", "quota_query_interval": 1, **settings})


def full(weir, text="user alice storage hard=1M\n", **settings):
    """A pooler whose user alice has too much."""
    pooler = asking(weir, text, **settings)
    host.eventually(lambda: state(pooler, *ALICE) == "hard")
    return pooler


def written(pg):
    """What was written in spite of the quota."""
    tables = pg.query("select relname::text from pg_class where relname like 'stolen%'", "app")
    return pg.query("select id, text from filled where id < 0", "app") + tables + pg.query("select oid from pg_largeobject_metadata", "app")


@pytest.mark.every_version
@pytest.mark.parametrize("mode", MODES)
def test_above_the_limit_clients_read_and_do_not_write_until_storage_is_freed(weir, filled, mode):
    pooler = asking(weir, "user alice storage hard=1T\n", **MODES[mode])
    client = pooler.connect()
    client.execute("insert into filled values (0, 'before')")
    limit(pooler, "user alice storage hard=1M\n")
    host.eventually(lambda: state(pooler, *ALICE) == "hard")
    assert used(pooler, *ALICE) >= filled.query("select pg_total_relation_size('filled')", "app")[0][0]
    for _ in range(2):
        with pytest.raises((LIMIT, READ_ONLY)) as refused:
            client.execute(INSERT)
        if mode != "session":
            assert "quota of user alice exceeded: storage" in str(refused.value) and "hard limit 1048576; read-only until storage is freed" in str(refused.value)
        assert client.execute("select count(*) from filled where id = 0").fetchone() == (1,)
    if mode != "statement":
        with pytest.raises(READ_ONLY), client.transaction():
            client.execute("select 1")
            client.execute(INSERT)
    assert pooler.connect(user="bob").execute("insert into filled values (2000, 'of another')").rowcount == 1
    assert not written(filled)
    filled.query("truncate filled", "app")
    host.eventually(lambda: state(pooler, *ALICE) == "within")
    assert client.execute("insert into filled values (1, 'after')").rowcount == 1, "without another login"
    client.execute("create table mine (a int)")


@pytest.mark.parametrize("mode", MODES)
def test_the_state_stays_with_its_client_on_a_shared_server(weir, filled, mode):
    settings = {**MODES[mode], "default_pool_size": 1, "databases": {"app": "user=alice", "other": ""}}
    pooler = full(weir, **settings)
    alice = pooler.connect(user="alice")
    for number in range(3):
        with pytest.raises((LIMIT, READ_ONLY)):
            alice.execute(INSERT)
        assert alice.execute("show default_transaction_read_only").fetchone() == ("on",)
        if mode == "session":
            alice.close()
        with pooler.connect(user="bob") as bob:
            assert bob.execute("show default_transaction_read_only").fetchone() == ("off",)
            assert bob.execute("insert into filled values (%s, 'bob')", (5000 + number,)).rowcount == 1
        if mode == "session":
            alice = pooler.connect(user="alice")
    assert not written(filled)


def simple(*statements):
    return [wire.query(statement) for statement in statements]


def segment(*statements):
    return [b"".join(wire.parse("", text) + wire.bind("") + wire.execute() for text in statements) + wire.SYNC]


def named(*statements):
    parsed = b"".join(wire.parse(f"s{number}", text) for number, text in enumerate(statements))
    bound = b"".join(wire.bind(f"s{number}") + wire.execute() for number in range(len(statements)))
    return [parsed + wire.SYNC, bound + wire.SYNC]


ATTACKS = {
    "set default": simple("set default_transaction_read_only = off", INSERT),
    "characteristics": simple("set session characteristics as transaction read write", INSERT),
    "begin read write": simple("begin read write", INSERT, "commit"),
    "start isolation": simple("start transaction isolation level serializable, read/**/write", INSERT, "commit"),
    "set transaction": simple("begin", "set transaction read write", INSERT, "commit"),
    "set transaction setting": simple("begin", 'set local "Transaction_Read_Only" to off', INSERT, "commit"),
    "escaped name": simple("begin", 'set local U&"transaction\\005fread_only" to off', INSERT, "commit"),
    "reset": simple("begin", "reset transaction_read_only", INSERT, "commit"),
    "one string": simple(f"begin; set transaction read write; {INSERT}; commit"),
    "implicit": simple(f"set transaction_read_only = off; {INSERT}"),
    "set_config": simple(f"select set_config('transaction_read_only', 'off', false); {INSERT}"),
    "set_config first": simple("begin", "select set_config('transaction_read_only', 'off', true)", INSERT, "commit"),
    "set_config default": simple("select set_config('default_transaction_read_only', 'off', false)", INSERT),
    "hidden": simple("select hidden()", INSERT, "select hidden()", "select writes()"),
    "hidden and commit": simple(f"select hidden(); commit; {INSERT}"),
    "hidden in a transaction": simple("begin", "select hidden()", "commit", "select writes()"),
    "hidden and chain": simple("begin", "select hidden()", "commit and chain", "select writes()", "commit"),
    "hidden and vacuum": segment("select hidden()", "vacuum filled", "select writes()"),
    "do": simple(f"do $$ begin commit; set transaction read write; {INSERT}; commit; end $$"),
    "call": simple("call commits()"),
    "call in comments": simple("/* a */ -- b\n call commits()"),
    "call behind": simple("select 1; call commits()"),
    "backslash": simple("set standard_conforming_strings = off", "select '\\'; call commits(); --'", "select '\\''; call commits(); --'"),
    "function": simple("select writes()", "begin", "select writes()", "commit"),
    "segment": segment("set transaction read write", INSERT),
    "segment of a function": segment("set transaction read write", "select writes()"),
    "segment of hidden": segment("select hidden()", "commit", INSERT),
    "segment of hidden function": segment("begin", "select hidden()", "commit", "select writes()"),
    "segment of call": segment("select 1", "call commits()"),
    "named": named("set transaction read write", "select writes()"),
    "named commit": named("select hidden()", "commit", "select writes()"),
    "named call": named("call commits()"),
    "segment and query": [segment("set transaction read write")[0][: -len(wire.SYNC)] + wire.query(INSERT)],
    "savepoint": simple("begin", "savepoint a", "set local transaction_read_only = off", "select writes()", "rollback to a", "set transaction read write", "select writes()", "commit"),
    "released": simple("begin", "savepoint a", "release a", "select writes()", "commit"),
    "copy": [wire.query("copy filled from stdin") + wire.copy_data(b"-1\tcopy\n") + wire.COPY_DONE, wire.query("select 1")],
    "words": simple(
        "with a as (insert into filled values (-1, 'with') returning *) select * from a",
        "select * into stolen from filled",
        "create table stolen2 as select 1",
        f"explain analyze {INSERT}",
        f"prepare p as {INSERT}",
        "execute p",
        "select * from query_to_xml('insert into filled values (-1, ''xml'')', true, true, '')",
        "update filled set id = -1 where id = 1",
        "merge into filled using (values (1)) v (a) on id = a when matched then update set id = -1",
    ),
    "resets": simple("reset all", INSERT, "discard all", INSERT, "reset default_transaction_read_only", INSERT, "set default_transaction_read_only to default", "select writes()"),
    "fast path": [wire.function_call(2078, (b"default_transaction_read_only", b"off", b"f")), wire.query("select writes()")],
    "cursor": simple("begin", "declare c cursor with hold for select writes()", "commit", "fetch c"),
    "large object": simple("begin", "set transaction read write", "select lo_from_bytea(0, 'x')", "commit"),
}


def attack(pooler, messages, waits, **parameters):
    with contextlib.suppress(wire.Closed, OSError), wire.Raw(pooler.port, timeout=3).login(**parameters) as client:
        if not waits:
            client.send(b"".join(messages))
        for message in messages:
            if waits:
                client.send(message)
            client.read_until("Z")


@pytest.mark.every_version
@pytest.mark.parametrize("mode", MODES)
def test_no_client_gets_around_it(weir, filled, mode):
    pooler = full(weir, default_pool_size=2, **MODES[mode])
    for name, waits in itertools.product(ATTACKS, (True, False)):
        attack(pooler, ATTACKS[name], waits)
        assert not written(filled), f"{name} has written"
    for options in ("-c default_transaction_read_only=off", ""):
        attack(pooler, simple(INSERT, "select writes()"), True, options=options)
    assert not written(filled)
    assert pooler.value("select count(*) from filled") == 1000, "it goes on"


@pytest.mark.parametrize("mode", ["transaction", "virtual", "session"])
def test_what_was_prepared_and_begun_before_the_limit_does_not_write_behind_it(weir, filled, mode):
    pooler = asking(weir, "user alice storage hard=1T\n", **MODES[mode])
    raw = wire.Raw(pooler.port).login()
    raw.send(wire.parse("mode", "set transaction read write") + wire.parse("write", "select writes()") + wire.parse("call", "call commits()") + wire.parse("read", "select 7") + wire.SYNC)
    raw.read_until("Z")
    writes, reads = (pooler.connect(autocommit=False) for _ in range(2))
    for client in (writes, reads):
        client.execute("insert into filled values (3000, 'before the limit')")
    limit(pooler, "user alice storage hard=1M\n")
    host.eventually(lambda: state(pooler, *ALICE) == "hard")
    with pytest.raises(psycopg.OperationalError, match="quota of user alice exceeded: storage"):
        writes.execute(INSERT)
    assert writes.closed
    assert reads.execute("select count(*) from filled where id = 3000").fetchone() == (1,)
    reads.commit()
    raw.send(wire.bind("read") + wire.execute() + wire.SYNC)
    assert wire.kinds(raw.read_until("Z")).endswith("2DCZ"), "statements that read are known"
    with contextlib.suppress(wire.Closed, OSError):
        raw.send(wire.bind("mode") + wire.execute() + wire.bind("write") + wire.execute() + wire.SYNC)
        raw.read_until("Z")
    raw.__exit__(None, None, None)
    assert not written(filled)


@pytest.mark.every_version
@pytest.mark.parametrize("mode", ["transaction", "session"])
def test_deleting_is_allowed_where_the_line_says_so(weir, filled, mode):
    pooler = full(weir, "user alice storage hard=1M allow=delete\n", **MODES[mode])
    client = pooler.connect()
    assert client.execute("delete from filled where id <= 10").rowcount == 10
    with pytest.raises(psycopg.Error, match="quota of user alice exceeded: storage"):
        client.execute(INSERT)
    client = pooler.connect()
    with client.transaction():
        client.execute("delete from filled where id <= 20")
    with pytest.raises(psycopg.OperationalError, match="quota of user alice exceeded: storage"), client.transaction():
        client.execute("select 1")
        client.execute(INSERT)
    assert not written(filled)
    client = pooler.connect()
    client.execute("truncate filled")
    host.eventually(lambda: state(pooler, *ALICE) == "within")
    assert client.execute("insert into filled values (1, 'after')").rowcount == 1


def test_a_clients_own_setting_is_its_own_again(weir, filled):
    pooler = full(weir, session_state="off", default_pool_size=1)
    on, off = pooler.connect(), pooler.connect()
    limit(pooler, "user alice storage hard=1T\n")
    on.execute("set default_transaction_read_only = on")
    limit(pooler, "user alice storage hard=1M\n")
    host.eventually(lambda: state(pooler, *ALICE) == "hard")
    for client in (on, off):
        assert client.execute("show default_transaction_read_only").fetchone() == ("on",)
        assert client.info.parameter_status("default_transaction_read_only") == "on"
    limit(pooler, "")
    for client, value in ((on, "on"), (off, "off")):
        assert client.execute("show default_transaction_read_only").fetchone() == (value,)
        assert client.info.parameter_status("default_transaction_read_only") == value


def test_the_soft_limit_warns_and_the_grace_time_ends_it(weir, filled):
    pooler = asking(weir, "user alice storage soft=1M hard=1T grace=10s\n")
    client, notices = pooler.connect(), []
    client.add_notice_handler(lambda notice: notices.append((notice.sqlstate, notice.message_primary)))
    host.eventually(lambda: state(pooler, *ALICE) == "soft")
    client.execute("select 1")
    client.execute("insert into filled values (4000, 'in the grace time')")
    host.eventually(lambda: len(notices) == 1)
    assert notices[0][0] == "01000" and "quota of user alice exceeded: storage" in notices[0][1] and "grace time ends" in notices[0][1]
    host.eventually(lambda: state(pooler, *ALICE) == "grace")
    with pytest.raises(LIMIT, match="soft limit 1048576, grace time over; read-only until storage is freed"):
        client.execute(INSERT)
    pooler.wait_log("quota of user alice exceeded: storage: .*grace time over; read-only")


def test_a_database_has_what_postgresql_says(weir, pg):
    pooler = asking(weir, "database other storage soft=1 hard=1T\ndatabase default storage hard=1T\n")
    host.eventually(lambda: state(pooler, "database other", "storage") == "soft")
    size = pg.query("select pg_database_size('other')")[0][0]
    assert abs(used(pooler, "database other", "storage") - size) < size / 10
    pooler.connect(database="app")
    host.eventually(lambda: used(pooler, "database app", "storage") > 1_000_000)


def test_the_state_survives_takeovers_and_restarts_before_it_is_measured_again(weir, filled):
    pooler = full(weir, default_pool_size=1, session_state="off")
    stays = pooler.connect()
    with pytest.raises(LIMIT):
        stays.execute(INSERT)
    old = reboot(pooler, wait=False)
    assert old.wait(30) == 0
    host.eventually(lambda: state(pooler, *ALICE) == "hard")
    with pytest.raises((LIMIT, READ_ONLY)):
        stays.execute(INSERT)
    assert stays.execute("select 1").fetchone() == (1,)
    limit(pooler, "user alice storage hard=1T\n")
    host.eventually(lambda: state(pooler, *ALICE) == "within")
    assert stays.execute("insert into filled values (1, 'after')").rowcount == 1
    limit(pooler, "user alice storage hard=1M\n")
    host.eventually(lambda: state(pooler, *ALICE) == "hard")
    time.sleep(5)  # It is written once a second, and a disk may be busy.
    pooler.stop()
    pooler.settings["quota_user"] = "nobody_asks"
    pooler.write_ini()
    pooler.start()
    host.eventually(lambda: state(pooler, *ALICE) == "hard")
    with pytest.raises(LIMIT):
        pooler.connect().execute(INSERT)
    pooler.wait_log("quotas: database app cannot be asked: .*nobody_asks.*stay as they were known", count=1)
    assert not written(filled)


def test_a_session_that_keeps_its_server_writes_again_after_a_takeover(weir, filled):
    pooler = full(weir, pool_mode="session")
    stays = pooler.connect()
    with pytest.raises(LIMIT):
        stays.execute(INSERT)
    stays.execute("select 1")
    with pytest.raises(READ_ONLY):  # With a server of its own the error is PostgreSQL's.
        stays.execute(INSERT)
    assert reboot(pooler, wait=False).wait(30) == 0
    host.eventually(lambda: state(pooler, *ALICE) == "hard")
    with pytest.raises(READ_ONLY):
        stays.execute(INSERT)
    limit(pooler, "user alice storage hard=1T\n")
    host.eventually(lambda: state(pooler, *ALICE) == "within")
    assert stays.execute("insert into filled values (1, 'after')").rowcount == 1


def test_the_command_and_metrics_know_storage(weir, filled):
    pooler, web = panel.start(weir, quotas_file="quotas", quota_user="carol", quota_query_interval=1)
    limit(pooler, "user alice storage hard=1M\n")
    host.eventually(lambda: state(pooler, *ALICE) == "hard")
    _, page, _ = web.ask("GET", "/metrics")
    assert 'weir_quota_state{subject="user",name="alice",resource="storage",period=""} 3' in page
    assert pooler.console("SET QUOTA user alice storage soft=1M hard=2T grace=1h allow=delete") == "SET"
    host.eventually(lambda: state(pooler, *ALICE) == "soft")
    assert command(pooler, "set", "user", "alice", "storage", "0", "1M", "--allow", "delete").returncode == 0
    assert (pooler.directory / "quotas").read_text() == "user alice storage soft=0 hard=1048576 allow=delete\n"
    host.eventually(lambda: state(pooler, *ALICE) == "hard")
    assert "*** Report for user quotas: storage" in command(pooler, "report").stdout
    assert "hard limit 1048576 reached; read-only" in command(pooler, "warn").stdout


BROKEN = {
    "group staff = role a b\n": 'quotas:1: unexpected "b"',
    "group staff = role a in\n": "quotas:1: in: a database is expected",
    "group staff = role\ngroup staff storage hard=1G\n": "quotas:2: group staff: storage is limited for a user or a database only",
    "database app storage hard=1P\n": "quotas:1: hard: invalid figure",
    "database app storage soft=2G hard=1G\n": "quotas:1: soft limit 2147483648 is above the hard limit",
    "database app storage/day hard=1G\n": "quotas:1: storage has no period",
    "database app storage hard=1G allow=everything\n": "quotas:1: allow: \"everything\" is not one of none, delete",
    "group staff = alice\ngroup staff temp_files hard=1G\n": "quotas:2: group staff: temp_files are limited for a user or a database only",
    "user alice temp_files/hour hard=1G\n": "quotas:1: temp_files have no period",
    "user alice temp_files hard=1G allow=delete\n": "quotas:1: allow: is for storage only",
    "user alice bytes/day hard=1G allow=delete\n": "quotas:1: allow: is for storage only",
}


@pytest.mark.parametrize("text", BROKEN)
def test_a_line_that_is_wrong_changes_nothing(weir, text):
    pooler = limited(weir, "user alice connections hard=1\n")
    (pooler.directory / "quotas").write_text(text)
    with pytest.raises(psycopg.errors.Error, match="RELOAD failed"):
        pooler.console("RELOAD")
    pooler.wait_log(BROKEN[text])
    assert list(rows(pooler)) == [("user alice", "connections")]


@pytest.fixture
def analysts(pg):
    """A role with a member of a member."""
    for statement in ("create role analysts", "create role juniors", "grant analysts to juniors", "grant juniors to alice"):
        pg.query(statement)
    yield pg
    for statement in ("drop role if exists analysts", "drop role if exists retired", "drop role juniors"):
        pg.query(statement)


STAFF = ("group staff", "connections")


def members(pooler):
    return rows(pooler)[STAFF]["members"]


@pytest.mark.every_version
def test_members_of_a_role_are_a_group(weir, analysts):
    pooler = asking(weir, "group staff = role analysts in app\ngroup staff connections hard=1\n")
    host.eventually(lambda: str(members(pooler)) == "3")
    client = pooler.connect()
    with pytest.raises(psycopg.OperationalError, match="quota of group staff exceeded: connections: hard limit 1"):
        pooler.connect()
    pooler.connect(user="bob")
    analysts.query("grant analysts to bob")
    host.eventually(lambda: str(members(pooler)) == "4")
    host.eventually(lambda: used(pooler, *STAFF) == 2)  # Clients that are there count from then on.
    analysts.query("revoke analysts from bob")
    analysts.query("revoke juniors from alice")
    host.eventually(lambda: str(members(pooler)) == "2")
    host.eventually(lambda: used(pooler, *STAFF) == 0)
    pooler.connect()
    client.close()


def test_a_role_that_is_renamed_is_told_and_refuses_nobody(weir, analysts):
    pooler = asking(weir, "# ours\ngroup staff = role analysts\ngroup staff connections hard=1\n")
    host.eventually(lambda: str(members(pooler)) == "3")
    client = pooler.connect()
    analysts.query("alter role analysts rename to retired")
    pooler.wait_log(r'quotas:2: role "analysts" does not exist on the server of database app; group staff has no members')
    host.eventually(lambda: str(members(pooler)) == "0")
    pooler.connect()
    time.sleep(2.5)
    assert pooler.log_text().count('role "analysts" does not exist') == 1, "once"
    analysts.query("alter role retired rename to analysts")
    host.eventually(lambda: str(members(pooler)) == "3")
    host.eventually(lambda: used(pooler, "group staff", "connections") >= 1)
    with pytest.raises(psycopg.OperationalError, match="quota of group staff exceeded"):
        pooler.connect()
    client.close()


def test_a_server_that_cannot_be_asked_leaves_members_as_they_were_known(weir, analysts):
    pooler = asking(weir, "group staff = role analysts\ngroup staff connections hard=1\ngroup far = role in away\ngroup far queries/day hard=1\n", databases={"app": "", "away": f"host=127.0.0.1 port={host.free_port()}"})
    host.eventually(lambda: str(members(pooler)) == "3")
    assert rows(pooler)["group far", "queries/day"]["members"] in (None, "")
    pooler.wait_log("quotas: database away cannot be asked: .*members of roles, storage and temporary files stay as they were known")
    client = pooler.connect()
    for _ in range(3):
        assert client.execute("select 1").fetchone() == (1,), "a member of nothing that is not known"
    pooler.console("SET quota_user = nobody_asks")
    pooler.wait_log("quotas: database app cannot be asked: ")
    time.sleep(2.5)
    assert str(members(pooler)) == "3"
    assert pooler.log_text().count("database app cannot be asked") == 1, "once"
    with pytest.raises(psycopg.OperationalError, match="quota of group staff exceeded"):
        pooler.connect()
    assert reboot(pooler, wait=False).wait(30) == 0
    assert str(members(pooler)) == "3", "the process that takes over knows them"
    # Its threads are told a moment later.
    host.eventually(lambda: used(pooler, "group staff", "connections") >= 1)
    with pytest.raises(psycopg.OperationalError, match="quota of group staff exceeded"):
        pooler.connect()
