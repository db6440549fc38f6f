"""`quotas_file`: what users, groups, databases and application_names may use, on a real PostgreSQL; and `weir quota`."""

import datetime
import errno
import json
import os
import re
import time

import psycopg
import pytest

import host
import panel
import wire
from test_takeover import reboot

pytestmark = pytest.mark.weir_only

LIMIT = psycopg.errors.ConfigurationLimitExceeded


@pytest.fixture(autouse=True)
def no_end_of_an_hour():
    """Figures of an hour begin anew at its end: a test that would run into one waits for it."""
    left = 3600 - time.time() % 3600
    if left < 60:
        time.sleep(left + 1)


def path(pooler):
    return pooler.directory / "quotas"


def write(pooler, text):
    path(pooler).write_text(text)
    host.hand_over(path(pooler))


def limited(weir, text, **settings):
    """A pooler with these quotas."""
    pooler = weir.prepared(**settings)
    pooler.settings["quotas_file"] = path(pooler)
    write(pooler, text)
    pooler.write_ini()
    pooler.start()
    return pooler


def limit(pooler, text):
    write(pooler, text)
    assert pooler.console("RELOAD") == "RELOAD"


def rows(pooler):
    def key(row):
        return " ".join(str(row[column]) for column in ("subject", "name")), "/".join(filter(None, (row["resource"], row["period"])))

    return {key(row): row for row in pooler.console("SHOW QUOTAS")}


def used(pooler, subject, resource):
    return int(rows(pooler)[subject, resource]["used"])


def state(pooler, subject, resource):
    return rows(pooler)[subject, resource]["state"]


def test_connections_are_counted_exactly(weir):
    pooler = limited(weir, "user alice connections soft=2 hard=3\n", threads=2)
    clients = [pooler.connect() for _ in range(3)]
    for _ in range(3):
        with pytest.raises(psycopg.OperationalError, match="quota of user alice exceeded: connections: hard limit 3"):
            pooler.connect()
    assert pooler.value("select 1", user="bob") == 1, "others are not limited"
    assert used(pooler, "user alice", "connections") == 3
    clients.pop().close()
    host.eventually(lambda: used(pooler, "user alice", "connections") == 2)
    pooler.connect()
    assert pooler.console("SHOW ERRORS")[0]["sqlstate"] == "53400"


@pytest.mark.every_version
@pytest.mark.parametrize("prepares", [None, 0])
def test_the_hard_limit_refuses_requests_and_the_client_goes_on(weir, prepares):
    pooler = limited(weir, "user alice queries/hour hard=5\n")
    client = pooler.connect(prepare_threshold=prepares)
    for _ in range(5):
        assert client.execute("select %s::int", (3,)).fetchone() == (3,)
    host.eventually(lambda: state(pooler, "user alice", "queries/hour") == "hard")
    for _ in range(2):
        with pytest.raises(LIMIT, match=r"quota of user alice exceeded: queries/hour: \d+ used, hard limit 5; refused until \d{4}-.* UTC"):
            client.execute("select %s::int", (3,))
    with pytest.raises(LIMIT), client.pipeline() as pipeline:
        client.execute("select 1")
        pipeline.sync()
        client.execute("select 2")
    assert client.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
    pooler.wait_log("quota of user alice exceeded: queries/hour")
    limit(pooler, "user alice queries/hour hard=1000\n")
    assert client.execute("select %s::int", (3,)).fetchone() == (3,)


def test_a_transaction_goes_on_to_its_end(weir):
    pooler = limited(weir, "database app queries/hour hard=2\n")
    client = pooler.connect(autocommit=False)
    for number in range(5):
        assert client.execute("select %s::int", (number,)).fetchone() == (number,)
    client.commit()
    host.eventually(lambda: state(pooler, "database app", "queries/hour") == "hard")
    with pytest.raises(LIMIT):
        client.execute("select 1")


def test_above_the_soft_limit_a_session_is_warned_once(weir):
    pooler = limited(weir, "user alice queries/month soft=1 hard=1000 grace=1h\n")
    client, notices = pooler.connect(), []
    client.add_notice_handler(lambda notice: notices.append((notice.sqlstate, notice.message_primary)))
    client.execute("select 1")
    client.execute("select 2")
    host.eventually(lambda: state(pooler, "user alice", "queries/month") == "soft")
    client.execute("select 3")
    client.execute("select 4")
    assert [code for code, _ in notices] == ["01000"]
    assert "queries/month: 2 used, soft limit 1; grace time ends " in notices[0][1]
    assert rows(pooler)["user alice", "queries/month"]["grace_ends"].endswith("UTC")


def test_when_the_grace_time_is_over_requests_are_refused(weir):
    pooler = limited(weir, "user alice queries/month soft=1 grace=2s\n")
    client = pooler.connect()
    client.execute("select 1")
    client.execute("select 2")
    host.eventually(lambda: state(pooler, "user alice", "queries/month") == "grace")
    with pytest.raises(LIMIT, match="soft limit 1, grace time over; refused until"):
        client.execute("select 3")


def test_server_time_and_bytes_are_counted(weir):
    pooler = limited(weir, "user alice server_seconds/day hard=6\ndatabase app bytes/day hard=10M\n", default_pool_size=2)
    client = pooler.connect()
    assert len(client.execute("select repeat('x', 1000000)").fetchone()[0]) == 1_000_000
    host.eventually(lambda: 1_000_000 < used(pooler, "database app", "bytes/day") < 1_010_000)
    client.execute("select pg_sleep(2)")
    host.eventually(lambda: 2 <= used(pooler, "user alice", "server_seconds/day") <= 4)
    client.execute("select pg_sleep(4)")
    host.eventually(lambda: state(pooler, "user alice", "server_seconds/day") == "hard")
    with pytest.raises(LIMIT, match=r"server_seconds/day: \d used, hard limit 6"):
        client.execute("select 1")


def test_groups_defaults_and_application_names(weir):
    text = "group staff = alice, bob\ngroup staff queries/day hard=1000\nuser default queries/day hard=1000\nuser bob queries/day hard=0\n" \
        "application_name default connections hard=1\n"
    pooler = limited(weir, text)
    alice, bob = pooler.connect(application_name="a"), pooler.connect(user="bob", application_name="b")
    for client in (alice, bob):
        client.execute("select 1")
        client.execute("select 2")
    host.eventually(lambda: used(pooler, "group staff", "queries/day") == 4)
    assert used(pooler, "user alice", "queries/day") == 2
    assert ("user bob", "queries/day") not in rows(pooler), "0 is no limit, and stands before the default"
    with pytest.raises(psycopg.OperationalError, match="quota of application_name b exceeded: connections"):
        pooler.connect(application_name="b")


def test_a_session_that_keeps_its_server_is_closed(weir):
    pooler = limited(weir, "user alice queries/hour hard=2\n", pool_mode="session")
    client = pooler.connect()
    client.execute("select 1")
    client.execute("select 2")
    host.eventually(lambda: state(pooler, "user alice", "queries/hour") == "hard")
    with pytest.raises(psycopg.OperationalError, match="quota of user alice exceeded"):
        client.execute("select 3")
    assert client.closed


def test_administrators_are_not_refused(weir):
    pooler = limited(weir, "user default connections hard=1\nuser default queries/day hard=1\n", databases={"app": "user=alice"})
    clients = [pooler.connect(user="admin") for _ in range(3)]
    for _ in range(3):
        assert [client.execute("select 1").fetchone() for client in clients] == [(1,)] * 3
    host.eventually(lambda: state(pooler, "user admin", "queries/day") == "hard")
    assert clients[0].execute("select 1").fetchone() == (1,)
    assert used(pooler, "user admin", "connections") == 3
    pooler.connect(user="bob")
    with pytest.raises(psycopg.OperationalError, match="quota of user bob exceeded"):
        pooler.connect(user="bob")
    assert pooler.console("SHOW QUOTAS", user="stats")


BROKEN = {
    "user alice queries/day soft=5 hard=3\n": r"quotas:1: soft limit 5 is above the hard limit 3",
    "\nuser alice connections hard=-1\n": r"quotas:3: hard: invalid figure \"-1\"",
    "user alice connections hard=99999999999\n": r"quotas:1: hard: figure \"99999999999\" is too high for connections: at most 1000000",
    "user a connections hard=1\nuser a connections hard=2\n": "quotas:2: user a connections is in line 1 already",
    "group nobody connections hard=1\n": "quotas:1: group nobody has no list of members",
    "role alice connections hard=1\n": r"quotas:1: unknown subject \"role\"",
}


@pytest.mark.parametrize("text", BROKEN)
def test_a_broken_file_is_refused_with_its_line(weir, text):
    pooler = limited(weir, "user alice connections hard=1\n")
    write(pooler, "database app connections hard=7\n" + text if text.startswith("\n") else text)
    with pytest.raises(psycopg.errors.Error, match="RELOAD failed"):
        pooler.console("RELOAD")
    pooler.wait_log(BROKEN[text])
    assert list(rows(pooler)) == [("user alice", "connections")], "the old file is in force, the whole of it"
    pooler.stop()
    pooler.launch()
    assert pooler.process.wait(30) == 1
    assert "quotas:" in pooler.output()


def test_set_quota_writes_one_line(weir):
    pooler = limited(weir, "# ours\nuser alice connections hard=5  # hers\nuser bob connections hard=5\n")
    assert pooler.console("SET QUOTA user alice connections soft=1 hard=2 grace=1d") == "SET"
    assert path(pooler).read_text() == "# ours\nuser alice connections soft=1 hard=2 grace=1d # hers\nuser bob connections hard=5\n"
    row = rows(pooler)["user alice", "connections"]
    assert (int(row["soft"]), int(row["hard"])) == (1, 2)
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="SET QUOTA failed: soft limit 3 is above the hard limit 2"):
        pooler.console("SET QUOTA user alice connections soft=3 hard=2")
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        pooler.console("SET QUOTA user alice connections hard=2", user="stats")
    assert pooler.console("SET QUOTA user bob connections none") == "SET"
    assert ("user bob", "connections") not in rows(pooler)
    second = pooler.directory / "other-quotas"
    second.write_text("user carol connections hard=1\n")
    host.hand_over(second)
    pooler.console(f"SET quotas_file = '{second}'")
    assert list(rows(pooler)) == [("user carol", "connections")]


def spend(pooler, count):
    with pooler.connect(prepare_threshold=None) as client:  # To prepare a statement is a request, too.
        for _ in range(count):
            client.execute("select 1")


def test_usage_survives_a_restart(weir):
    pooler = limited(weir, "user alice queries/hour soft=2 hard=1000\n")
    spend(pooler, 7)
    pooler.stop()
    pooler.start()
    host.eventually(lambda: used(pooler, "user alice", "queries/hour") == 7)
    assert state(pooler, "user alice", "queries/hour") == "soft"


def test_usage_survives_a_kill_but_for_a_second(weir):
    pooler = limited(weir, "user alice queries/hour hard=1000\n")
    spend(pooler, 7)
    host.eventually(lambda: used(pooler, "user alice", "queries/hour") == 7)
    time.sleep(5)  # It is written once a second, and a disk may be busy.
    pooler.process.kill()
    pooler.process.wait(30)
    pooler.start()
    host.eventually(lambda: used(pooler, "user alice", "queries/hour") == 7)


def test_usage_survives_a_takeover_while_clients_stay(weir):
    pooler = limited(weir, "user alice queries/hour hard=1000\nuser alice connections hard=2\n")
    spend(pooler, 5)
    stays = pooler.connect(autocommit=False, prepare_threshold=None)
    stays.execute("select 1")
    old = reboot(pooler, wait=False)
    host.eventually(lambda: used(pooler, "user alice", "queries/hour") >= 5)
    stays.execute("select 2")
    stays.commit()
    stays.execute("select 3")
    stays.commit()
    assert old.wait(30) == 0
    host.eventually(lambda: used(pooler, "user alice", "queries/hour") >= 12)
    assert used(pooler, "user alice", "queries/hour") == 12, "nothing is counted twice: two BEGIN, two COMMIT and three queries"
    host.eventually(lambda: used(pooler, "user alice", "connections") == 1)
    second = pooler.connect()
    with pytest.raises(psycopg.OperationalError, match="quota of user alice exceeded: connections"):
        pooler.connect()
    second.close()
    stays.close()


def test_a_damaged_store_is_put_aside(weir):
    pooler = limited(weir, "user alice queries/hour hard=1000\n")
    spend(pooler, 7)
    pooler.stop()
    usage = pooler.directory / "quotas.usage"
    usage.write_bytes(b"no database at all" * 400)
    host.hand_over(usage)
    pooler.start()
    pooler.wait_log(r"quotas: .*quotas.usage cannot be read .* it is .*quotas.usage.unreadable now")
    spend(pooler, 3)
    host.eventually(lambda: used(pooler, "user alice", "queries/hour") == 3)
    assert (pooler.directory / "quotas.usage.unreadable").read_bytes().startswith(b"no database")


def test_where_nothing_can_be_written_queries_go_on(weir):
    pooler = weir.prepared()
    place = pooler.directory / "full"
    place.mkdir()
    (place / "quotas").write_text("user alice queries/hour hard=5\n")
    (place / "quotas.usage").mkdir()  # No file can be there.
    host.hand_over(place)
    pooler.settings["quotas_file"] = place / "quotas"
    pooler.write_ini()
    pooler.start()
    pooler.wait_log(r"quotas: cannot open .*quotas.usage: .*; usage is counted from memory")
    spend(pooler, 5)
    host.eventually(lambda: state(pooler, "user alice", "queries/hour") == "hard")
    with pytest.raises(LIMIT):
        spend(pooler, 1)


@pytest.mark.needs_root
def test_on_a_full_disk_queries_go_on_and_usage_is_written_when_there_is_room(weir):
    """A filesystem of its own that fills up while there is more and more to be written."""
    pooler = weir.prepared(max_client_conn=100)
    place = pooler.directory / "disk"
    place.mkdir()
    host.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", place], as_user=False)
    try:
        (place / "quotas").write_text("user alice queries/month hard=3000\napplication_name default queries/month hard=100000\n")
        host.hand_over(place)
        pooler.settings["quotas_file"] = place / "quotas"
        pooler.write_ini()
        pooler.start()
        spend(pooler, 5)
        host.eventually(lambda: (place / "quotas.usage").stat().st_size > 0)
        with open(place / "filler", "wb") as filler:
            try:
                while True:
                    os.write(filler.fileno(), bytes(4096))
            except OSError as full:
                assert full.errno == errno.ENOSPC
        done = 5
        for number in range(2_000):
            with wire.Raw(pooler.port) as raw:
                raw.login(application_name=f"{number:0200}")
                assert raw.simple("select 1") == [["1"]], "nobody is refused"
            done += 1
            if number % 100 == 99 and re.search("quotas: cannot write", pooler.log_text()):
                break
        pooler.wait_log(r"quotas: cannot write \S*quotas.usage: .*; usage is counted from memory and written later")
        spend(pooler, 10)
        assert [line for line in pooler.log_text().splitlines() if "cannot write" in line][1:] == [], "it is told once"
        (place / "filler").unlink()
        pooler.wait_log(r"quotas: usage is kept in \S*quotas.usage again")
        host.eventually(lambda: rows(pooler)["user alice", "queries/month"]["used"] == done + 10)
        time.sleep(5)  # It is written once a second.
        pooler.process.kill()
        pooler.wait_end()
        pooler.start()
        host.eventually(lambda: used(pooler, "user alice", "queries/month") == done + 10)
        spend(pooler, 3_000 - done - 10)
        host.eventually(lambda: state(pooler, "user alice", "queries/month") == "hard")
        with pytest.raises(LIMIT):
            spend(pooler, 1)
    finally:
        pooler.stop()
        host.run(["umount", place], as_user=False)


def command(pooler, *words, environment=None, check=None):
    """`weir quota` as the user that the pooler runs as."""
    done = host.run([pooler.program, "quota", *words, "--config", pooler.ini], check=False, env={**os.environ, **(environment or {})})
    if check is None:
        return done
    assert done.returncode == check, done
    return done.stdout


def test_the_command_shows_reports_and_warns(weir):
    pooler = limited(weir, "user alice queries/day soft=2 hard=1000\nuser alice bytes/day hard=1G\nuser bob connections hard=3\n")
    spend(pooler, 4)
    host.eventually(lambda: (state(pooler, "user alice", "queries/day"), used(pooler, "user alice", "queries/day")) == ("soft", 4))
    shown = command(pooler, "--user", "alice", "-s", check=1)
    assert "Quotas of user alice:" in shown and "queries/day    4*     2    1K  " in shown and shown.count("days") == 1, shown
    assert "bob" not in command(pooler, "--all", check=1), "nothing of it was used"
    assert "connections" in command(pooler, "--user", "bob", "-v", check=0)
    assert command(pooler, "--user", "nobody-known", check=0) == "Quotas of user nobody-known: none\n"
    found = {(row["subject"], row["name"], row["resource"]): row for row in json.loads(command(pooler, "--all", "-v", "--json", check=1))}
    row = found["user", "alice", "queries"]
    assert (row["used"], row["soft"], row["hard"], row["state"]) == (4, 2, 1000, "soft")
    ends = datetime.datetime.strptime(row["grace_ends"], "%Y-%m-%d %H:%M:%S UTC").replace(tzinfo=datetime.UTC)
    assert abs(ends.timestamp() - time.time() - 7 * 86400) < 120, "seven days, as with Linux's quotas"
    report = command(pooler, "report", check=0)
    assert "*** Report for user quotas: queries/day" in report, report
    # Whole days that are left: six once a second of them has passed.
    assert re.search(r"alice  \+-     4     2  1000  [67]days", report), report
    assert command(pooler, "warn", check=0).startswith("user alice is above its quotas:\n  queries/day: 4 used, soft limit 2; grace time ends ")
    mailed = pooler.directory / "mail"
    mailed.mkdir(mode=0o777)
    host.hand_over(mailed)
    command(pooler, "warn", "--mail-command", f"cat > {mailed}/$WEIR_QUOTA_NAME", check=0)
    assert (mailed / "alice").read_text().startswith("user alice is above")


def test_the_command_sets_in_the_process_and_in_the_file(weir):
    pooler = limited(weir, "")
    command(pooler, "set", "user", "alice", "queries/day", "10", "20", "3d", check=0)
    assert path(pooler).read_text() == "user alice queries/day soft=10 hard=20 grace=3d\n"
    assert int(rows(pooler)["user alice", "queries/day"]["hard"]) == 20
    refused = command(pooler, "set", "user", "alice", "queries/day", "30", "20")
    assert refused.returncode == 1 and "soft limit 30 is above the hard limit 20" in refused.stderr
    pooler.stop()
    command(pooler, "set", "user", "alice", "connections", "0", "5", check=0)
    assert path(pooler).read_text().endswith("user alice connections soft=0 hard=5\n")
    asked = command(pooler, "report")
    assert asked.returncode == 1 and "cannot use the console of the running process" in asked.stderr


def test_the_command_edits_what_is_valid(weir):
    pooler = limited(weir, "user alice connections hard=5\n")
    edit = {"EDITOR": "sed -i s/hard=5/hard=6/"}
    command(pooler, "edit", environment=edit, check=0)
    assert path(pooler).read_text() == "user alice connections hard=6\n"
    assert int(rows(pooler)["user alice", "connections"]["hard"]) == 6, "the process has it"
    refused = command(pooler, "edit", environment={"EDITOR": "sed -i s/hard/most/"})
    assert refused.returncode == 1 and ':1: unknown limit "most"' in refused.stderr, refused
    assert path(pooler).read_text() == "user alice connections hard=6\n"


def test_metrics(weir):
    pooler, web = panel.start(weir, quotas_file="quotas")
    limit(pooler, "user alice queries/day soft=1 hard=1000\n")
    spend(pooler, 4)
    host.eventually(lambda: (state(pooler, "user alice", "queries/day"), used(pooler, "user alice", "queries/day")) == ("soft", 4))
    _, page, _ = web.ask("GET", "/metrics")
    labels = 'subject="user",name="alice",resource="queries",period="day"'
    for line in (f"weir_quota_used{{{labels}}} 4", f"weir_quota_soft{{{labels}}} 1", f"weir_quota_hard{{{labels}}} 1000", f"weir_quota_state{{{labels}}} 1"):
        assert line in page, page


def test_a_flood_of_refused_requests_is_answered_in_order(weir):
    pooler = limited(weir, "user alice queries/hour hard=1\n")
    spend(pooler, 1)
    host.eventually(lambda: state(pooler, "user alice", "queries/hour") == "hard")
    with wire.Raw(pooler.port).login() as client:
        client.send(*(wire.query(f"select {number}") for number in range(50)))
        assert wire.kinds(client.read_until_ready(50)) == "EZ" * 50
