"""The log: lines that people's scripts look for, in PgBouncer's shape, and what must never stand in it."""

import os
import re
import signal
import socket
import tempfile
from pathlib import Path

import psycopg
import pytest

import host
import panel
import weir as pooler_module
import wire

SIDE = r"[CS]-(0x[0-9a-f]+|\d+)"
PEER = r"(\(nodb\)|[\w-]+)/(\(nouser\)|[\w-]+)@(127\.0\.0\.1|\[::1\]|unix(\(\d+\))?):\d+"
LINE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} \S+ \[\d+\] (LOG|ERROR|WARNING|FATAL|DEBUG|NOISE) .+")


@pytest.mark.weir_only
def test_no_umask_opens_a_file_to_others(weir):
    pooler = weir.prepared(http_port=host.free_port(), unix_socket_mode="0770")
    audit = pooler.directory / "audit.log"
    pooler.write_ini(http_audit_file=audit)
    command = ["sh", "-c", 'umask 0; exec "$@"', "sh", pooler.program, pooler.ini]
    with open(pooler.output_path, "ab") as output:
        pooler.process = host.start(command, cwd=pooler.directory, stdout=output, stderr=output)
    host.eventually(pooler.is_up)
    web = panel.Panel(pooler, int(pooler.settings["http_port"])).wait_up()
    web.ask("POST", "/api/v1/login", {"token": "wrong"}, token=None)
    host.eventually(audit.exists)
    modes = {path: path.stat().st_mode & 0o777 for path in (pooler.log_path, audit, web.token_path(), pooler.pidfile, pooler.socket_path)}
    assert list(modes.values()) == [0o640, 0o640, 0o600, 0o644, 0o770], modes


@pytest.mark.weir_only
def test_a_log_file_that_another_user_has_prepared_is_not_used(weir):
    if not host.USER:
        pytest.skip("only root can play another user")
    pooler = weir.prepared()
    shared = host.new_directory(pooler.directory, "shared")
    shared.chmod(0o1777)
    (shared / "weir.log").touch()
    os.chown(shared / "weir.log", 12345, 12345)
    (shared / "weir.log").chmod(0o666)
    pooler.write_ini(logfile=shared / "weir.log")
    pooler.launch()
    assert pooler.wait_end() == 1
    assert re.search('FATAL cannot open logfile ".*/weir.log": .* belongs to another user', pooler.output())


def test_every_line_has_a_time_a_pid_and_a_level(weir):
    pooler = weir()
    pooler.value("select 1")
    with pytest.raises(psycopg.OperationalError):
        pooler.connect("nowhere")
    lines = pooler.log_text().splitlines()
    assert lines and all(LINE.fullmatch(line) for line in lines), [line for line in lines if not LINE.fullmatch(line)]
    assert all(f" [{pooler.process.pid}] " in line for line in lines)


@pytest.mark.parametrize(
    "pattern",
    [
        rf"LOG {SIDE}: app/alice@127\.0\.0\.1:\d+ login attempt: db=app user=alice tls=no",
        rf"LOG {SIDE}: {PEER} new connection to server \(from 127\.0\.0\.1:\d+\)",
        rf"LOG {SIDE}: {PEER} closing because: client close request \(age=\d+s\)",
        r"LOG listening on 127\.0\.0\.1:\d+",
        r"LOG listening on unix:/\S+/\.s\.PGSQL\.\d+",
        r"LOG process up: PgBouncer 1\.",
    ],
)
def test_lines_of_an_ordinary_client(weir, pattern):
    pooler = weir()
    pooler.value("select 1")
    pooler.wait_log(pattern)


@pytest.mark.parametrize("host_name, place", [("127.0.0.1", r"127\.0\.0\.1"), ("::1", r"\[::1\]")])
def test_a_server_is_called_by_its_address_before_it_is_reached(weir, host_name, place):
    pooler = weir(databases={"app": f"host={host_name} port=1"}, query_wait_timeout=1)
    with pytest.raises(psycopg.OperationalError):
        pooler.connect()
    pooler.wait_log(rf"LOG {SIDE}: app/alice@{place}:1 closing because: connect failed \(age=\d+s\)")


def test_connections_and_disconnections_can_be_left_out(weir):
    pooler = weir(log_connections=0, log_disconnections=0)
    pooler.value("select 1")
    pooler.console("SHOW VERSION")
    text = pooler.log_text()
    assert "login attempt" not in text and "new connection to server" not in text and "closing because" not in text


def test_pooler_errors_can_be_left_out(weir):
    pooler = weir(log_pooler_errors=0)
    with pytest.raises(psycopg.OperationalError):
        pooler.connect("nowhere")
    assert "pooler error" not in pooler.log_text()


def test_pooler_errors_are_logged(weir):
    pooler = weir()
    with pytest.raises(psycopg.OperationalError):
        pooler.connect("nowhere")
    pooler.wait_log("WARNING .*pooler error: no such database: nowhere")


def test_the_line_of_statistics_comes_every_period(weir):
    pooler = weir(stats_period=1)
    with wire.Raw(pooler.port).login() as raw:
        for _ in range(20):
            raw.simple("select 1")
        shape = (
            r"LOG stats: \d+ xacts/s, \d+ queries/s, .*in \d+ B/s, out \d+ B/s,"
            r" xact \d+ us, query \d+ us, wait \d+ us"
        )
        pooler.wait_log(shape, count=3)


def test_statistics_can_be_left_out(weir):
    pooler = weir(stats_period=1, log_stats=0)
    pooler.value("select pg_sleep(1.5)")
    assert "xacts/s" not in pooler.log_text()


def test_the_log_is_appended_to(weir):
    pooler = weir.prepared()
    pooler.log_path.write_text("what was there\n")
    host.hand_over(pooler.log_path)
    pooler.start()
    assert pooler.log_text().startswith("what was there\n")


@pytest.mark.parametrize("how", ["RELOAD", "SIGHUP"])
def test_a_rotated_log_is_opened_anew(weir, how):
    pooler = weir()
    pooler.log_path.rename(pooler.directory / "old.log")
    pooler.console("RELOAD") if how == "RELOAD" else pooler.signal(signal.SIGHUP)

    def written():
        with pytest.raises(psycopg.OperationalError):
            pooler.connect("nowhere")
        return "no such database: nowhere" in pooler.log_text()

    host.eventually(written)


def test_the_pidfile_holds_the_pid_and_goes_with_the_process(weir):
    pooler = weir()
    assert pooler.pidfile.read_text() == f"{pooler.process.pid}\n"
    pooler.signal(signal.SIGINT)
    pooler.wait_end()
    assert not pooler.pidfile.exists()


@pytest.mark.weir_only  # with verbose=2 PgBouncer writes them
def test_secrets_never_stand_in_the_log(weir):
    secret = "hunter2hunter2"
    pooler = weir(auth_type="scram-sha-256", userlist={"alice": secret}, verbose=2)
    with psycopg.connect(**pooler.address(password=secret)) as client:
        client.execute("select 1")
    with pytest.raises(psycopg.OperationalError):
        pooler.connect(password="wrong" + secret)
    with pytest.raises(psycopg.OperationalError):
        pooler.connect(user="mallory", password=secret)
    assert secret not in pooler.log_text() + pooler.output()


def test_what_clients_ask_is_not_in_the_log(weir):
    """Neither the text of a query nor its values, though it fails and everything is logged."""
    marks = ["hunter2", "hunter3", "hunter4"]
    pooler = weir(verbose=2)
    client = pooler.connect()
    for failing in (f"select '{marks[0]}'::int", f"selectt {marks[1]}"):
        with pytest.raises(psycopg.Error):
            client.execute(failing)
    client.execute("select %s", [marks[2]])
    client.close()
    pooler.wait_log("closing because: client close request")
    assert not any(mark in pooler.log_text() + pooler.output() for mark in marks)


@pytest.mark.weir_only
def test_control_characters_do_not_break_lines(weir):
    pooler = weir()
    with wire.Raw(pooler.port) as raw:
        raw.send(wire.startup(user="alice\n2026-01-01 00:00:00.000 UTC [1] FATAL forged", database="app\x1b[31m\r\n"))
        raw.read_to_end()
    host.eventually(lambda: "forged" in pooler.log_text() or "closing because" in pooler.log_text())
    assert "\x1b" not in pooler.log_text()
    assert all(LINE.fullmatch(line) for line in pooler.log_text().splitlines())
    assert not re.search(r"^2026-01-01", pooler.log_text(), re.M)


def test_file_descriptors_are_spoken_of_when_they_cannot_do(weir):
    pooler = weir(max_client_conn=2_000_000)
    pooler.wait_log(r"(limit: \d+ .*max_client_conn: 2000000|limit of open files is \d+, and max_client_conn 2000000)")


# In a name space of its own: a /dev that has all of the other's and our /dev/log; then becomes the unprivileged user.
OVER_DEV_LOG = """
mkdir "$2" && mount --rbind /dev "$2" && mount -t tmpfs none /dev && ln -s "$2"/* /dev/ && ln -sfn "$1" /dev/log &&
shift 2 && exec setpriv --reuid="$1" --regid="$2" --clear-groups "$3" "$4"
"""


@pytest.mark.needs_root
def test_syslog(weir):
    pooler = weir.prepared(syslog=1, syslog_ident="poolers", syslog_facility="local3", verbose=1)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ear, tempfile.TemporaryDirectory(dir="/tmp") as outside:  # of /dev
        path = Path(outside, "log")
        Path(outside).chmod(0o755)
        ear.bind(str(path))
        path.chmod(0o777)
        ear.settimeout(20)
        program = pooler_module.PROGRAM_COPY["path"]
        words = [path, Path(outside, "dev"), host.USER.pw_uid, host.USER.pw_gid, program, pooler.ini]
        command = ["unshare", "-m", "sh", "-c", OVER_DEV_LOG, "sh", *words]
        with open(pooler.output_path, "ab") as output:
            pooler.process = host.start(command, as_user=False, stdout=output, stderr=output)
        lines = [ear.recv(4096).decode()]
        while "process up" not in lines[-1]:
            lines.append(ear.recv(4096).decode())
        pid = pooler.process.pid
        local3, info, warning = 19 << 3, 6, 4
        assert re.search(rf"^<{local3 | info}>.*poolers\[{pid}\]: process up", lines[-1]), lines[-1]
        pooler.write_ini(syslog_ident="others", syslog_facility="daemon")
        pooler.console("RELOAD")
        with pytest.raises(psycopg.OperationalError):
            pooler.value("select 1", database="nosuchdb")
        while "pooler error" not in lines[-1]:
            lines.append(ear.recv(4096).decode())
        daemon = 3 << 3
        assert re.search(rf"^<{daemon | warning}>.*others\[{pid}\]: C-0x\w+: \S+/alice@", lines[-1]), lines[-1]
        pooler.write_ini(syslog=0)
        pooler.console("RELOAD")
        pooler.wait_log("process up")
        ear.settimeout(0.5)
        with pytest.raises(TimeoutError):
            while True:
                lines.append(ear.recv(4096).decode())
        pooler.value("select 1")
        with pytest.raises(TimeoutError):
            ear.recv(4096)
        pooler.wait_log("login attempt")  # the file is written to as well


def test_an_idle_server_that_says_farewell(weir, pg):
    """A restart of PostgreSQL, say: its error has no client, and the log line is that of every such end."""
    pooler = weir(default_pool_size=1)
    pooler.value("select 1")
    pg.query("select pg_terminate_backend(pid) from pg_stat_activity where usename = 'alice'")
    pooler.wait_log(rf"WARNING {SIDE}: {PEER} got packet 'E' from server when not linked")
    pooler.wait_log(rf"LOG {SIDE}: {PEER} closing because: server conn crashed\? \(age=\d+s\)")
    assert pooler.value("select 2") == 2


@pytest.mark.every_driver
def test_the_log_has_the_reason_before_the_client_has_its_error(weir):
    pooler = weir()
    for number in range(20):
        with wire.Raw(pooler.port) as raw:
            raw.send(wire.startup(user="alice", database=f"nowhere{number}"))
            raw.read_until("E")
            assert f"closing because: no such database: nowhere{number}" in pooler.log_text()
