"""The service manager: notifications to it, and listening sockets that it passes. systemd itself is not needed for either."""

import contextlib
import os
import re
import signal
import socket
import sys

import pytest

import host
import weir as pooler_module
import wire


@pytest.fixture
def manager(scratch):
    """A service manager's ear: what was said, a message each."""
    path = host.new_directory(scratch, "manager") / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ear:
        ear.bind(str(path))
        host.hand_over(path)
        ear.settimeout(20)
        yield path, lambda: ear.recv(4096).decode()


@pytest.mark.since("1.24")
def test_ready_reloading_and_stopping_are_told(weir, manager):
    path, heard = manager
    pooler = weir.prepared()
    pooler.environment["NOTIFY_SOCKET"] = str(path)
    pooler.start()
    assert "READY=1" in heard()
    pooler.signal(signal.SIGHUP)
    reloading = heard()
    assert "RELOADING=1" in reloading
    assert int(re.search(r"MONOTONIC_USEC=(\d+)", reloading)[1]) > 0
    assert "READY=1" in heard()
    pooler.signal(signal.SIGTERM)
    assert "STOPPING=1" in heard()
    assert pooler.wait_end() == 0


@pytest.mark.weir_only
def test_a_bad_reload_is_over_too(weir, manager):
    path, heard = manager
    pooler = weir.prepared()
    pooler.environment["NOTIFY_SOCKET"] = str(path)
    pooler.start()
    assert "READY=1" in heard()
    pooler.write_ini(pool_mode="sideways")
    pooler.signal(signal.SIGHUP)
    assert "RELOADING=1" in heard()
    assert "READY=1" in heard()


@pytest.mark.weir_only
def test_a_process_that_takes_over_is_the_main_one(weir, manager):
    path, heard = manager
    pooler = weir.prepared()
    pooler.environment["NOTIFY_SOCKET"] = str(path)
    pooler.start()
    assert "READY=1" in heard()
    old = pooler.process
    pooler.launch("-R")
    said = heard()
    assert f"MAINPID={pooler.process.pid}\n" in said and "READY=1" in said
    assert old.wait(30) == 0
    pooler.signal(signal.SIGTERM)
    assert "STOPPING=1" in heard(), "the old process says nothing about its end"


# Puts descriptors where a service manager puts them, and says whose they are.
ACTIVATE = """
import fcntl, os, sys
count = int(sys.argv[1])
given = [fcntl.fcntl(int(number), fcntl.F_DUPFD, 100) for number in sys.argv[2:2 + count]]
for place, number in enumerate(given):
    os.dup2(number, 3 + place)
os.environ["LISTEN_FDS"], os.environ["LISTEN_PID"] = str(count), str(os.getpid())
os.execvp(sys.argv[2 + count], sys.argv[2 + count:])
"""


def activate(pooler, *sockets):
    """Starts the pooler as a service manager does that listens for it, and keeps the sockets."""
    become = host.USER and ["setpriv", f"--reuid={host.USER.pw_uid}", f"--regid={host.USER.pw_gid}", "--clear-groups"]
    program = [*(become or []), pooler_module.PROGRAM_COPY["path"], pooler.ini]
    numbers = [one.fileno() for one in sockets]
    command = [sys.executable, "-c", ACTIVATE, len(numbers), *numbers, *program]
    with open(pooler.output_path, "ab") as output:
        options = {"cwd": pooler.directory, "stdout": output, "stderr": output, "pass_fds": numbers}
        pooler.process = host.start(command, as_user=False, **options)


@contextlib.contextmanager
def bound(pooler):
    """A TCP port and a unix socket that somebody else listens on."""
    port, path = host.free_port(), pooler.directory / ".s.PGSQL.7777"
    with socket.socket() as tcp, socket.socket(socket.AF_UNIX) as unix:
        tcp.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        tcp.bind(("127.0.0.1", port))
        unix.bind(str(path))
        path.chmod(0o777)
        for one in (tcp, unix):
            one.listen(16)
        yield port, path, (tcp, unix)


@pytest.mark.since("1.12")
def test_passed_sockets_are_listened_on_and_no_others(weir):
    pooler = weir.prepared(listen_addr="127.0.0.1", listen_backlog=5)
    with bound(pooler) as (port, path, sockets):
        activate(pooler, *sockets)
    pooler.wait_log("process up")
    with wire.Raw(port).login() as raw:
        assert raw.simple("select 1") == [["1"]]
    with wire.Raw(port, path=path).login() as raw:
        assert raw.simple("select 2") == [["2"]]
    with pytest.raises(ConnectionRefusedError):
        wire.Raw(pooler.port)
    assert not pooler.socket_path.exists()
    pooler.signal(signal.SIGTERM)
    assert pooler.wait_end() == 0
    assert path.exists(), "its name is the service manager's"


@pytest.mark.weir_only
@pytest.mark.every_driver
def test_who_comes_between_two_processes_waits_in_the_service_managers_socket(weir):
    pooler = weir.prepared(listen_addr="127.0.0.1")
    with bound(pooler) as (port, path, sockets):
        for number in (1, 2):
            activate(pooler, *sockets)
            pooler.wait_log("process up", count=number)
            with wire.Raw(port).login() as raw:
                assert raw.simple("select 1") == [["1"]]
            pooler.signal(signal.SIGINT)
            assert pooler.wait_end() == 0
        waiting = [wire.Raw(port), wire.Raw(port, path=path)]
        activate(pooler, *sockets)
        for raw in waiting:
            with raw.login():
                assert raw.simple("select 3") == [["3"]]


@pytest.mark.weir_only
@pytest.mark.every_driver
def test_passed_sockets_are_passed_on_in_a_takeover(weir):
    # The new process finds the old one by its unix socket; what else the settings say of listening is of no interest.
    pooler = weir.prepared(listen_addr="127.0.0.2", listen_port=7777)
    with bound(pooler) as (port, path, sockets):
        activate(pooler, *sockets)
        pooler.wait_log("process up")
        for _ in range(2):
            old = pooler.process
            with wire.Raw(port).login() as raw:
                pooler.launch("-R")
                assert old.wait(30) == 0
                assert raw.simple("select 1") == [["1"]]
            with wire.Raw(port, path=path).login() as raw:
                assert raw.simple("select 2") == [["2"]]
        pooler.signal(signal.SIGINT)
        assert pooler.wait_end() == 0
        waiting = wire.Raw(port)
        activate(pooler, *sockets)
        with waiting.login() as raw:
            assert raw.simple("select 4") == [["4"]]


def test_sockets_for_another_process_are_left_alone(weir):
    pooler = weir.prepared()
    pooler.environment.update(LISTEN_FDS="1", LISTEN_PID=str(os.getpid()))
    pooler.start()
    assert pooler.value("select 1") == 1
