"""auth_type = pam with the system's own PAM: a service file in /etc/pam.d while a test runs, and modules of Debian's."""

import concurrent.futures
import contextlib
import ctypes.util
import fcntl
import os
import time
from pathlib import Path

import psycopg
import pytest

import host
import wire

SERVICE = Path("/etc/pam.d/pgbouncer")
OURS = "# made by Weir's tests, and gone after them\n"
PASSWORD = "s3cret"
REFUSED = "PAM authentication failed"

pytestmark = [
    pytest.mark.needs_root,
    pytest.mark.skipif(not ctypes.util.find_library("pam"), reason="no libpam on this machine"),
]

# Who knows which password; asked by pam_exec, which hands over the password and says who asks from where.
AUTHENTICATE = """#!/bin/sh
password=$(tr -d '\\000')
echo "$PAM_SERVICE $PAM_USER $PAM_RHOST $PAM_TYPE" >>{directory}/asked
while [ "$PAM_USER" = bob ] && [ ! -e {directory}/go ]; do sleep 0.05; done
grep -qxF "$PAM_USER:$password" {directory}/passwords
"""
ACCOUNT = """#!/bin/sh
[ "$PAM_USER" != carol ]
"""
PASSWORDS = f"alice:{PASSWORD}\nbob:{PASSWORD}\ncarol:{PASSWORD}\nadmin:{PASSWORD}\nscramuser:scram secret\n"


@pytest.fixture
def service():
    """`service(rules)` writes the service file; one test of all workers has it at a time."""
    directory = os.open(SERVICE.parent, os.O_RDONLY)
    try:
        fcntl.flock(directory, fcntl.LOCK_EX)
        if SERVICE.exists() and not SERVICE.read_text().startswith(OURS):
            pytest.skip(f"{SERVICE} belongs to this machine")
        yield lambda rules: SERVICE.write_text(OURS + rules)
        SERVICE.unlink(missing_ok=True)
    finally:
        os.close(directory)


@pytest.fixture
def by_pam(weir, monkeypatch):
    monkeypatch.setenv("PGPASSWORD", PASSWORD)  # for the console
    return lambda **settings: weir(auth_type="pam", **{"userlist": {}, **settings})


@pytest.fixture
def asking(service, scratch):
    """A directory whose scripts PAM asks."""
    directory = host.new_directory(scratch, "pam")
    for name, text in (("authenticate", AUTHENTICATE), ("account", ACCOUNT), ("passwords", PASSWORDS)):
        path = directory / name
        path.write_text(text.replace("{directory}", str(directory)))
        path.chmod(0o755)
    auth = f"auth required pam_exec.so quiet expose_authtok {directory}/authenticate\n"
    service(f"{auth}account required pam_exec.so quiet {directory}/account\n")
    return directory


def name_of(pooler, user="alice", password=PASSWORD):
    return pooler.value("select current_user", user=user, password=password)


def refused(pooler, user="alice", password=PASSWORD):
    with pytest.raises(psycopg.OperationalError, match=REFUSED):
        name_of(pooler, user, password)


def test_pam_decides(by_pam, asking):
    pooler = by_pam()
    assert name_of(pooler) == "alice"
    refused(pooler, password="wrong")
    refused(pooler, user="mallory")
    assert name_of(pooler) == "alice"
    pooler.wait_log(f"closing because: {REFUSED}")
    assert PASSWORD not in pooler.log_text()


def test_a_slow_module_is_a_part_of_the_slow_login(by_pam, asking):
    pooler = by_pam(log_slow_queries=0.3)
    with concurrent.futures.ThreadPoolExecutor(1) as workers:
        name = workers.submit(name_of, pooler, user="bob")
        host.eventually(lambda: (asking / "asked").exists() and " bob " in (asking / "asked").read_text())
        time.sleep(0.6)
        (asking / "go").touch()
        assert name.result(30) == "bob"
    [(who, waited)] = pooler.wait_log(r"(\S+)@\S+ slow login: [\d.]+ ms \(pam ([\d.]+), .*client [\d.]+\)")
    assert who == "app/bob" and float(waited) >= 400


def test_the_account_must_be_open_too(by_pam, asking):
    refused(by_pam(), user="carol")


def test_modules_are_told_who_asks_and_from_where(by_pam, asking):
    pooler = by_pam()
    name_of(pooler)
    pooler.psql("-c", "select 1", host_name=pooler.directory)
    asked = (asking / "asked").read_text().splitlines()
    assert asked == ["pgbouncer alice 127.0.0.1 auth", "pgbouncer alice unix auth"]


def test_the_user_file_does_not_count(by_pam, asking):
    pooler = by_pam(userlist={"alice": "of the file", "mallory": PASSWORD})
    refused(pooler, password="of the file")
    refused(pooler, user="mallory")
    assert name_of(pooler) == "alice"


def test_servers_are_logged_in_to_with_the_same_password(by_pam, asking):
    assert name_of(by_pam(), "scramuser", "scram secret") == "scramuser"


def test_the_console_asks_pam_too(by_pam, asking):
    assert by_pam().console("show version")


@pytest.mark.weir_only  # PgBouncer asks one at a time
def test_slow_modules_stop_no_other(by_pam, asking):
    """Twelve logins of bob get no answer: alice's must not be delayed."""
    pooler = by_pam()
    with contextlib.ExitStack() as clients:
        waiting = [clients.enter_context(wire.Raw(pooler.port)) for _ in range(12)]
        for raw in waiting:
            raw.send(wire.startup(user="bob", database="app"))
            assert raw.read().kind == "R"
            raw.send(wire.message(b"p", wire.cstring(PASSWORD)))
        host.eventually(lambda: (asking / "asked").exists() and (asking / "asked").read_text().count("bob") == 12)
        assert name_of(pooler) == "alice"
        (asking / "go").touch()
        for raw in waiting:
            assert raw.read_until("ZE")[-1].kind == "Z"


@pytest.mark.weir_only  # PgBouncer leaves that to the modules
def test_an_empty_password_is_refused_even_where_all_pass(by_pam, service):
    service("auth required pam_permit.so\naccount required pam_permit.so\n")
    pooler = by_pam()
    assert name_of(pooler, password="anything") == "alice"
    for body in (b"\0", b"x\0y\0"):
        with wire.Raw(pooler.port) as raw:
            raw.send(wire.startup(user="alice", database="app"))
            raw.read()
            raw.send(wire.message(b"p", body))
            assert not any(reply.kind == "R" for reply in raw.read_to_end()), body


@pytest.mark.since("1.26")
def test_a_very_long_password(by_pam, service):
    service("auth required pam_permit.so\naccount required pam_permit.so\n")
    assert name_of(by_pam(), password="long" * 16_000) == "alice"


@pytest.mark.parametrize(
    "rules",
    [
        "auth required pam_deny.so\naccount required pam_permit.so\n",
        "auth required pam_permit.so\naccount required pam_deny.so\n",
        "auth required pam_no_such_module.so\naccount required pam_permit.so\n",
        "auth required pam_unix.so nodelay\naccount required pam_unix.so\n",
        "nonsense\n",
    ],
)
def test_rules_that_let_nobody_in(by_pam, service, rules):
    service(rules)
    pooler = by_pam()
    refused(pooler)
    pooler.wait_log("WARNING .*pam_\\w+\\(\\) failed: ")
