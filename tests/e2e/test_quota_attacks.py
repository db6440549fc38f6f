"""`quotas_file` against clients that evade it, names that clients choose, and what operators do meanwhile, on a real PostgreSQL."""

import contextlib
import os
import pathlib
import stat
import time

import psycopg
import pytest

import host
import wire
from test_quotas import LIMIT, command, limit, limited, no_end_of_an_hour, path, rows, state, used  # noqa: F401
from test_takeover import reboot

pytestmark = pytest.mark.weir_only

ALICE = ("user alice", "queries/hour")


def exhausted(weir, **settings):
    """A pooler whose user alice has reached the hard limit."""
    pooler = limited(weir, "user alice queries/hour hard=2\n", **settings)
    with wire.Raw(pooler.port).login() as client:
        for _ in range(2):
            client.send(wire.query("select 1"))
            client.read_until("Z")
    host.eventually(lambda: state(pooler, *ALICE) == "hard")
    return pooler


def extended(statement, name=""):
    return wire.parse(name, statement) + wire.bind(name) + wire.execute() + wire.SYNC


def test_a_close_in_front_does_not_carry_a_request_past_the_limit(weir):
    pooler = limited(weir, "user alice queries/hour hard=2\n")
    with wire.Raw(pooler.port).login() as client:
        for name in ("kept", "closed"):
            client.send(extended("select 1", name))
            assert wire.kinds(client.read_until("Z")) == "12DCZ"
        host.eventually(lambda: state(pooler, *ALICE) == "hard")
        for name in ("none", "closed", ""):
            for kind in (b"S", b"P"):
                client.send(wire.close(kind, name) + extended("select 1"))
                assert wire.kinds(client.read_until("Z")) == "3EZ"
        client.send(wire.close(b"S", "none"), wire.FLUSH)
        assert client.read().kind == "3"
        client.send(extended("select 1"))
        assert wire.kinds(client.read_until("Z")) == "EZ"
        assert used(pooler, *ALICE) == 2
        limit(pooler, "user alice queries/hour hard=1000\n")
        client.send(wire.bind("kept") + wire.execute() + wire.SYNC)
        assert wire.kinds(client.read_until("Z")) == "2DCZ"
        client.send(wire.bind("closed") + wire.execute() + wire.SYNC)
        assert wire.kinds(client.read_until("Z")) == "EZ", "it was closed"
        client.send(extended("select 1", "closed"))
        assert wire.kinds(client.read_until("Z")) == "12DCZ", "its name is free"


def test_requests_that_overlap_do_not_pass_the_limit(weir):
    pooler = limited(weir, "user alice queries/hour hard=5\n")
    with wire.Raw(pooler.port).login() as client:
        client.send(wire.query("select pg_sleep(0.2)"))
        answered = 0
        while answered < 60:
            client.send(wire.query("select pg_sleep(0.1)"))
            if "E" in wire.kinds(client.read_until("Z")):
                break
            answered += 1
        assert 5 <= answered < 20
        assert wire.kinds(client.read_until("Z")) == "EZ", "each has its answer"
        client.send(wire.query("select 1"))
        assert wire.kinds(client.read_until("Z")) == "EZ"


@pytest.mark.parametrize("kind", ["database", "true"])
def test_replication_counts_as_connections_only(weir, kind):
    pooler = limited(weir, "user replica queries/hour hard=2\nuser replica server_seconds/hour hard=1\nuser replica connections hard=1\n")
    client = pooler.connect("app", "replica", replication=kind, prepare_threshold=None)
    for _ in range(6):
        client.execute("IDENTIFY_SYSTEM")
        time.sleep(0.5)
    assert [used(pooler, "user replica", resource) for resource in ("queries/hour", "server_seconds/hour", "connections")] == [0, 0, 1]
    with pytest.raises(psycopg.OperationalError, match="quota of user replica exceeded: connections"):
        pooler.connect("app", "replica", replication=kind)


def test_what_set_says_later_does_not_count(weir):
    pooler = limited(weir, "application_name nightly queries/hour hard=1000\n")
    nightly = ("application_name nightly", "queries/hour")
    client = pooler.connect(application_name="nightly", prepare_threshold=None)
    client.execute("set application_name = 'other'")
    host.eventually(lambda: used(pooler, *nightly) == 1)
    limit(pooler, "application_name nightly queries/hour hard=2000\n")
    client.execute("select 1")
    host.eventually(lambda: used(pooler, *nightly) == 2)
    limit(pooler, "")
    limit(pooler, "application_name nightly queries/hour hard=2000\n")
    before = used(pooler, *nightly)
    client.execute("select 1")
    host.eventually(lambda: used(pooler, *nightly) == before + 1)
    assert reboot(pooler).wait(30) == 0
    client.execute("select 1")
    host.eventually(lambda: used(pooler, *nightly) == before + 2)


def test_the_name_of_a_host_is_no_part_of_the_application(weir):
    pooler = limited(weir, "application_name nightly connections hard=1\n", application_name_add_host=1)
    pooler.connect(application_name="nightly")
    with pytest.raises(psycopg.OperationalError, match="quota of application_name nightly"):
        pooler.connect(application_name="nightly")


def test_a_client_that_is_refused_is_not_idle(weir):
    pooler = exhausted(weir, client_idle_timeout=6)
    client = pooler.connect(prepare_threshold=None)
    for _ in range(16):
        with pytest.raises(LIMIT):
            client.execute("select 1")
        time.sleep(0.5)


def test_a_name_with_lines_counts_for_nobody_else(weir):
    """What a process counts after a takeover is in a file of lines, which names that clients choose must not add to."""
    pooler = limited(weir, "user alice queries/hour hard=1000\napplication_name default queries/hour hard=1000\n")
    hour = int(time.time() // 3600 * 3600)
    name = f'x" queries/hour\n{hour} 999999 user alice queries/hour\n{hour} 3 user "y'
    stays = pooler.connect(user="bob", autocommit=False, application_name=name, prepare_threshold=None)
    stays.execute("select 1")
    old = reboot(pooler, wait=False)
    for _ in range(5):
        stays.execute("select 1")
        time.sleep(0.5)
    stays.commit()
    assert old.wait(30) == 0
    # The server spells the name otherwise, by which the client is known after the takeover. The file is read once in a while.
    mine = lambda: sum(int(row["used"]) for row in rows(pooler).values() if "999999" in row["name"])  # noqa: E731
    host.eventually(lambda: mine() == 8)  # BEGIN, six queries and COMMIT.
    assert used(pooler, *ALICE) == 0


def test_control_characters_are_not_printed(weir):
    pooler = limited(weir, "application_name default queries/hour soft=1 hard=1000\n")
    client = pooler.connect(application_name="a\x1b]0;x\x07\nFORGED", prepare_threshold=None)
    client.execute("select 1")
    client.execute("select 1")
    host.eventually(lambda: any(row["state"] == "soft" for row in rows(pooler).values()))
    for words in (["report"], ["--all"], ["warn"]):
        shown = command(pooler, *words).stdout
        assert "a?]0;x??FORGED" in shown and "\x1b" not in shown, shown
    assert "\nFORGED" not in pooler.output() and "\x1b" not in pooler.output()


def test_administrators_are_those_of_the_last_reload(weir):
    pooler = exhausted(weir)
    client = pooler.connect(prepare_threshold=None)
    with pytest.raises(LIMIT):
        client.execute("select 1")
    pooler.console("SET stats_users = 'stats, alice'")
    client.execute("select 1")
    pooler.console("SET stats_users = 'stats'")
    with pytest.raises(LIMIT):
        client.execute("select 1")


def test_a_link_to_the_file_stays_one(weir):
    pooler = weir.prepared()
    real = pooler.directory / "real-quotas"
    real.write_text("user alice connections hard=5\n")
    host.hand_over(real)
    real.chmod(0o640)
    path(pooler).symlink_to(real)
    pooler.settings["quotas_file"] = path(pooler)
    pooler.write_ini()
    pooler.start()
    assert pooler.console("SET QUOTA user alice connections hard=6") == "SET"
    assert path(pooler).is_symlink()
    assert real.read_text() == "user alice connections soft=0 hard=6\n"
    assert stat.S_IMODE(real.stat().st_mode) == 0o640


def test_odd_names_are_set(weir):
    pooler = limited(weir, "")
    names = ["a;b", "a'b", "a--b", "a/*b", 'a"b', "a#b", "ä", "a b;", "$1", "%s", "a\\b", "none", "to"]
    for name in names:
        command(pooler, "set", "user", name, "connections", "0", "5", check=0)
    assert {name for name, _ in rows(pooler)} == {f"user {name}" for name in names}
    refused = command(pooler, "set", "user", "a\nb", "connections", "0", "5")
    assert refused.returncode == 1 and "more than one line" in refused.stderr


def misbehave(pooler, way):
    with contextlib.suppress(OSError, wire.Closed, AssertionError), wire.Raw(pooler.port) as client:
        client.send(wire.startup(user="alice", database="app"))
        if way == 0:
            return
        client.read_until("ZE")
        match way:
            case 1:
                client.send(wire.query("select pg_sleep(0.05)"))
            case 2:
                client.send(b"Q\0\0")
            case 3:
                client.send(b"p\0\0\0\1")
                client.read_to_end()
            case 4:
                client.send(wire.query("begin"))
                client.read_until("Z")
            case _:
                client.send(wire.TERMINATE)


def test_connections_are_exact_after_all_that_ends_them(weir):
    pooler = limited(weir, "user alice connections hard=100\n", threads=2)
    for number in range(120):
        misbehave(pooler, number % 6)
        if number % 15 == 7:
            limit(pooler, f"user alice connections hard={100 + number}\n" if number % 2 else "")
        if number == 60:
            held = [pooler.connect() for _ in range(3)]
            pooler.console("KILL app")
            with contextlib.suppress(psycopg.Error):
                pooler.console("RESUME app")
        if number == 90:
            pooler.console("SUSPEND")
            with contextlib.suppress(psycopg.Error):  # The end of a connection may have resumed it.
                pooler.console("RESUME")
    del held
    stays = pooler.connect()
    limit(pooler, "user alice connections hard=100\n")
    host.eventually(lambda: used(pooler, "user alice", "connections") == 1)
    assert reboot(pooler).wait(30) == 0
    assert stays.execute("select 1").fetchone() == (1,)
    host.eventually(lambda: used(pooler, "user alice", "connections") == 1)
    stays.close()
    host.eventually(lambda: used(pooler, "user alice", "connections") == 0)


def test_every_message_of_a_refused_client_is_answered_as_postgresql_would(weir):
    pooler = exhausted(weir)
    with wire.Raw(pooler.port).login() as client:
        cases = [
            (wire.function_call(1598, []), "EZ"),
            (wire.query("copy t from stdin") + wire.copy_data(b"1\n") + wire.COPY_DONE, "EZ"),
            (wire.SYNC, "Z"),
            (wire.FLUSH * 3 + wire.SYNC * 3, "ZZZ"),
            (wire.close(b"P") * 50 + wire.SYNC, "3" * 50 + "Z"),
            (wire.parse("", "select 1") + wire.close(b"S") + wire.query("select 2") + wire.SYNC, "EZ"),
            (wire.describe(b"S", "x") + wire.SYNC + wire.query("select 1"), "EZEZ"),
        ]
        for sent, kinds in cases:
            for whole in (True, False):
                for piece in [sent] if whole else [sent[at : at + 1] for at in range(len(sent))]:
                    client.send(piece)
                assert wire.kinds(client.read_until_ready(kinds.count("Z"))) == kinds, sent
        limit(pooler, "")
        client.send(wire.query("select 5"))
        assert wire.kinds(client.read_until("Z")) == "TDCZ"


def test_long_names_do_not_fill_the_memory(weir):
    pooler = limited(weir, "application_name default queries/hour hard=1000\n")

    def resident():
        return int(pathlib.Path(f"/proc/{pooler.process.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    before = resident()
    for number in range(2_000):
        with wire.Raw(pooler.port) as client:
            client.send(wire.startup(user="alice", database="app", application_name=f"{number:06}" + "x" * 9_000))
            client.read_until("ZE")
            client.send(wire.query("select 1"))
            client.read_until("Z")
    assert resident() - before < 14 << 20, "2,000 names of 9,000 bytes are 18 MB"
