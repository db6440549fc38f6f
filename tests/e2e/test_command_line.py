"""The command line: flags, exit codes, and what a bad file says before anything starts."""

import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

import host
import weir as pooler_module


def program():
    return pooler_module.PROGRAM_COPY["path"]


def test_version(scratch):
    for flag in ("-V", "--version"):
        said = host.run([program(), flag]).stdout
        assert said.startswith("PgBouncer 1.")


@pytest.mark.since("1.20")
def test_version_is_what_the_console_says(weir):
    first = host.run([program(), "--version"]).stdout.splitlines()[0]
    assert weir().console("SHOW VERSION") == [{"version": first}]


def test_help(scratch):
    for flag in ("-h", "--help"):
        said = host.run([program(), flag]).stdout
        assert all(option in said for option in ("-d", "-q", "-v", "-u", "-V", "-h"))


@pytest.mark.weir_only
@pytest.mark.parametrize("words, told", [(["help"], "--daemon"), (["help", "check"], "FILE.ini"), (["bench", "help", "sweep"], "--pool-sizes"), (["help", "bench", "sweep"], "--pool-sizes")])
def test_help_is_a_word_too(scratch, words, told):
    done = host.run([program(), *words])
    assert told in done.stdout and not done.stderr


@pytest.mark.parametrize("arguments", [[], ["--no-such-flag", "x.ini"], ["/nonexistent/weir.ini"], ["-u"]])
def test_bad_command_lines_exit_with_1_and_say_why(scratch, arguments):
    done = host.run([program(), *arguments], check=False)
    assert done.returncode == 1
    assert done.stderr.strip()


@pytest.mark.parametrize(
    "line",
    ["no_such_setting = 1", "default_pool_size = many", "pool_mode = sideways", "auth_type = nonsense"],
)
def test_a_bad_setting_ends_the_start(weir, line):
    pooler = weir.prepared(extra=line)
    done = host.run([program(), pooler.ini], check=False, timeout=60)
    assert done.returncode == 1
    name = line.split()[0]
    assert name in done.stderr


@pytest.mark.weir_only
@pytest.mark.parametrize(
    "line", ["no_such_setting = 1", "default_pool_size = many", "pool_mode = sideways", "[no_such_section]", "no equals sign"]
)
def test_a_bad_setting_is_named_with_file_and_line(weir, line):
    pooler = weir.prepared(extra=line)
    number = pooler.ini.read_text().splitlines().index(line) + 1
    done = host.run([program(), pooler.ini], check=False, timeout=60)
    assert done.returncode == 1
    assert f"{pooler.ini}:{number}" in done.stderr
    assert f'cannot load config file "{pooler.ini}"' in done.stderr


@pytest.mark.weir_only
def test_a_configuration_file_that_is_not_there_is_named(scratch):
    missing = scratch / "missing.ini"
    done = host.run([program(), missing], check=False, timeout=60)
    assert done.returncode == 1
    assert f'cannot load config file "{missing}"' in done.stderr


@pytest.mark.weir_only
@pytest.mark.parametrize("entry", ["nonsense_key=1", "pool_size=many", "pool_mode=sideways", "port=70000", "host='open"])
def test_a_bad_database_entry_is_named_with_file_and_line(weir, entry):
    pooler = weir.prepared(databases={"app": entry})
    done = host.run([program(), pooler.ini], check=False, timeout=60)
    assert done.returncode == 1
    assert f"{pooler.ini}:2" in done.stderr


@pytest.mark.weir_only
def test_check_says_what_is_wrong_and_what_differs(weir):
    """`weir check`: every finding with its line, the differences from PgBouncer, and a status for CI."""
    good = weir.prepared(pkt_buf=75, threads=1)
    done = host.run([program(), "check", good.ini], check=False, timeout=60)
    number = next(n for n, line in enumerate(good.ini.read_text().splitlines(), 1) if line.startswith("pkt_buf"))
    assert done.returncode == 0, done.stdout
    assert f"{good.ini}:{number}: differs from PgBouncer: pkt_buf: " in done.stdout
    assert "differs from PgBouncer: pool_mode: session_state is `virtual` unless set to `off`" in done.stdout
    assert "2 differences from PgBouncer" in done.stdout and "threads" not in done.stdout
    bad = weir.prepared(extra="frob = 1")
    done = host.run([program(), "check", bad.ini], check=False, timeout=60)
    number = bad.ini.read_text().splitlines().index("frob = 1") + 1
    assert done.returncode == 1
    assert f"{bad.ini}:{number}: error: unknown parameter" in done.stdout
    assert "1 error" in done.stdout.splitlines()[-1]


@pytest.mark.weir_only
def test_check_starts_nothing(weir):
    pooler = weir()
    done = host.run([program(), "check", pooler.ini], check=False, timeout=60)
    assert done.returncode == 0, done.stdout
    assert pooler.value("select 1") == 1


def test_quiet_says_nothing_on_the_terminal(weir):
    pooler = weir("-q")
    pooler.value("select 1")
    pooler.wait_log("login attempt")
    assert pooler.output() == ""


def test_without_quiet_the_log_goes_to_the_terminal_too(weir):
    pooler = weir()
    pooler.value("select 1")
    host.eventually(lambda: "login attempt" in pooler.output())


@pytest.mark.parametrize("how", ["-v", "setting"])
def test_verbose_says_more(weir, how):
    plain, verbose = weir(), weir("-v", "-v") if how == "-v" else weir(verbose=2)
    plain.value("select 1")
    verbose.value("select 1")
    for pooler in (plain, verbose):
        pooler.wait_log("closing because: client close request")
    assert len(verbose.log_text()) > len(plain.log_text())


def test_daemon(weir):
    pooler = weir.prepared()
    host.run([program(), "-d", pooler.ini], cwd=pooler.directory)
    host.eventually(pooler.pidfile.exists)
    pid = int(pooler.pidfile.read_text())
    try:
        host.eventually(lambda: host.is_listening(pooler.port, pooler.socket_path))
        assert pooler.value("select 1") == 1
        status = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        parent, session = int(status[1]), int(status[3])
        assert parent != os.getpid() and session != os.getsid(0)
    finally:
        os.kill(pid, signal.SIGQUIT)
        host.eventually(lambda: not Path(f"/proc/{pid}").exists())


def test_daemon_needs_a_log_and_a_pidfile(weir):
    pooler = weir.prepared(pidfile=None)
    done = host.run([program(), "-d", pooler.ini], check=False, timeout=60)
    assert done.returncode == 1
    assert "pidfile" in done.stderr


def test_a_pidfile_of_a_live_process_ends_the_start(weir):
    pooler = weir()
    done = host.run([program(), pooler.ini], check=False, timeout=60)
    assert done.returncode == 1
    assert pooler.value("select 1") == 1
    assert pooler.pidfile.read_text() == f"{pooler.process.pid}\n"


def test_a_stale_pidfile_does_not(weir):
    pooler = weir.prepared()
    pooler.pidfile.write_text("999999999\n")
    host.hand_over(pooler.pidfile)
    pooler.start()
    assert pooler.value("select 1") == 1


def root_command(*command):
    """The command as root: directly, or as the root of a user namespace of our own."""
    if os.geteuid() == 0:
        return list(command)
    if shutil.which("unshare") and subprocess.run(["unshare", "-r", "true"], capture_output=True, check=False).returncode == 0:
        return ["unshare", "-r", *command]
    pytest.skip("neither root nor allowed to make a user namespace")


def test_root_is_refused(weir):
    pooler = weir.prepared()
    done = host.run(root_command(program(), pooler.ini), as_user=False, check=False, timeout=60)
    assert done.returncode == 1
    assert "should not run as root" in done.stderr
    assert not pooler.pidfile.exists()


@pytest.mark.needs_root
@pytest.mark.parametrize("where", ["flag", "setting"])
def test_user_drops_root(weir, where):
    pooler = weir.prepared(**({"user": host.USER_NAME} if where == "setting" else {}))
    flags = ["-u", host.USER_NAME] if where == "flag" else []
    pooler.start(*flags, as_user=False)
    owner = Path(f"/proc/{pooler.process.pid}").stat().st_uid
    assert owner == host.USER.pw_uid
    assert pooler.value("select 1") == 1
