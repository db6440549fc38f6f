"""The command line: flags, exit codes, and what a bad file says before anything starts."""

import json
import os
import pty
import re
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


@pytest.mark.weir_only
@pytest.mark.parametrize(
    "words",
    [["check"], ["check", "a", "b"], ["quota", "frob"], ["quota", "--no-such-flag"], ["import"], ["panel"], ["help", "frob"], ["bench", "frob"], ["--color", "never", "check"]],
)
def test_commands_exit_with_2_where_their_command_line_is_wrong(scratch, words):
    done = host.run([program(), *words], check=False)
    assert (done.returncode, done.stdout) == (2, "") and "Usage: weir" in done.stderr, done


@pytest.mark.weir_only
def test_the_statuses_are_in_the_manuals(scratch):
    for path in (program(), program().with_name(pooler_module.BENCH.name)):
        page = host.run([path, "--generate", "man"]).stdout
        section = page.partition('.SH "EXIT STATUS"\n')[2].partition("\n.SH ")[0]
        assert re.findall(r"^\\fB(\d+)\\fR$", section, re.M) == ["0", "1", "2", "3", "130"], page


@pytest.mark.weir_only
@pytest.mark.parametrize(
    "words, status, told",
    [
        (["chekc"], 1, "tip: a similar command exists: 'check'"),
        (["chekc", "x.ini"], 1, "tip: a similar command exists: 'check'"),
        (["improt", "pgpool.conf"], 1, "tip: a similar command exists: 'import'"),
        (["--verbsoe", "x.ini"], 1, "tip: a similar argument exists: '--verbose'"),
        (["check", "--jsno", "x.ini"], 2, "tip: a similar argument exists: '--json'"),
        (["quota", "reprot"], 2, "tip: a similar subcommand exists: 'report'"),
        (["help", "quoat"], 2, "tip: a similar command exists: 'quota'"),
        (["bench", "swep"], 2, "tip: a similar subcommand exists: 'sweep'"),
        (["bench", "sweep", "--pool-size", "x"], 2, "'--pool-sizes'"),
    ],
)
def test_what_is_misspelt_gets_a_suggestion(scratch, words, status, told):
    done = host.run([program(), *words], check=False, cwd=scratch)
    assert done.returncode == status and told in done.stderr, done


@pytest.mark.weir_only
def test_a_file_with_the_name_of_a_misspelt_command_is_a_file(weir):
    """PgBouncer's command line takes any file."""
    pooler = weir.prepared()
    pooler.ini = pooler.ini.rename(pooler.directory / "chekc")
    pooler.start()
    assert pooler.value("select 1") == 1
    (pooler.directory / "helpp").write_text("nonsense")
    done = host.run([program(), "helpp"], check=False, cwd=pooler.directory)
    assert done.returncode == 1 and "tip:" not in done.stderr and "helpp:1" in done.stderr, done


def at_terminal(*words, **variables):
    """What a command writes to a terminal."""
    mine, theirs = pty.openpty()
    environment = {"PATH": os.environ["PATH"], "TERM": "xterm", **variables}
    command = [str(word) for word in (program(), *words)]
    process = subprocess.Popen(command, stdout=theirs, stderr=theirs, env=environment, cwd="/", **host.CREDENTIALS)
    os.close(theirs)
    said = b""
    try:
        while some := os.read(mine, 65536):
            said += some
    except OSError:
        pass  # the other end is closed
    os.close(mine)
    process.wait(60)
    return said.decode()


@pytest.mark.weir_only
def test_colours_are_for_terminals_and_can_be_chosen(weir):
    bad = weir.prepared(extra="frob = 1").ini
    for words in (["help"], ["check", bad], ["check", "--frob"], ["bench", "--help"]):
        command = [*words, "--color"] if words[0] != "help" else None
        piped = host.run([program(), *words], check=False)
        assert "\x1b" not in piped.stdout + piped.stderr, "no terminal"
        assert "\x1b[" in at_terminal(*words)
        for variables in ({"NO_COLOR": "1"}, {"NO_COLOR": "1", "CLICOLOR_FORCE": "1"}, {"TERM": "dumb"}, {"CLICOLOR": "0"}):
            assert "\x1b" not in at_terminal(*words, **variables), variables
        assert "\x1b[" in at_terminal(*words, NO_COLOR="")
        environment = {"PATH": os.environ["PATH"], "CLICOLOR_FORCE": "1"}
        forced = host.run([program(), *words], check=False, env=environment)
        assert "\x1b[" in forced.stdout + forced.stderr
        if command:
            assert "\x1b" not in at_terminal(*command, "never")
            always = host.run([program(), *command, "always"], check=False, env={**environment, "NO_COLOR": "1"})
            assert "\x1b[" in always.stdout + always.stderr, always
    before = host.run([program(), "--color=always", "check", bad], check=False)
    assert before.returncode == 1 and "\x1b[1m\x1b[31merror\x1b[0m: unknown parameter" in before.stdout, before


@pytest.mark.weir_only
def test_check_for_programs(weir):
    pooler = weir.prepared(extra="frob = 1", pkt_buf=75)
    done = host.run([program(), "check", "--json", pooler.ini], check=False)
    told = json.loads(done.stdout)
    lines = pooler.ini.read_text().splitlines()
    number = next(number for number, line in enumerate(lines, 1) if line.startswith("pkt_buf"))
    assert done.returncode == 1 and (told["file"], told["errors"]) == (str(pooler.ini), 1)
    found = {(one["severity"], one["line"], one["file"]): one["text"] for one in told["findings"]}
    assert "unknown parameter" in found["error", lines.index("frob = 1") + 1, str(pooler.ini)]
    assert found["difference", number, str(pooler.ini)].startswith("pkt_buf: ")
    assert told["differences"] == sum(severity == "difference" for severity, *_ in found)
    gone = host.run([program(), "check", "--json", "/nonexistent.ini"], check=False)
    (finding,) = json.loads(gone.stdout)["findings"]
    assert gone.returncode == 1 and finding["line"] is None and finding["severity"] == "error", gone


@pytest.mark.weir_only
@pytest.mark.parametrize(
    "line, found",
    [
        ("weir ch", {"check"}),
        ("weir --verb", {"--verbose"}),
        ("weir quota rep", {"report"}),
        ("weir check --js", {"--json"}),
        ("weir-bench sweep --pool-s", {"--pool-sizes"}),
        ("weir-bench compare --color a", {"auto", "always"}),
        ("weir --gen", set()),
    ],
)
def test_bash_completes_commands_options_and_values(scratch, line, found):
    words = line.split()
    generated = host.run([program().with_name(words[0]), "--generate", "completions-bash"]).stdout
    (function, name), (other, _) = re.findall(r"^ +complete -F (\S+) .* (\S+)$", generated, re.M)
    assert name == words[0] and function == other
    quoted = " ".join(f"'{word}'" for word in words)
    script = f"{generated}\nCOMP_WORDS=({quoted}) COMP_CWORD={len(words) - 1}\n{function} {words[0]} '{words[-1]}' '{words[-2]}'\nprintf '%s\\n' \"${{COMPREPLY[@]}}\""
    done = host.run(["bash", "-c", script])
    assert set(done.stdout.split()) == found and not done.stderr, done


@pytest.mark.weir_only
@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_can_read_their_completions(scratch, shell):
    if not shutil.which(shell):
        pytest.skip(f"{shell} is not installed")
    for name in ("weir", "weir-bench"):
        path = scratch / f"{name}.{shell}"
        path.write_text(host.run([program().with_name(name), "--generate", f"completions-{shell}"]).stdout)
        host.run([shell, "-n", path])


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
    one = {"default_pool_size": 1}  # A second server would have lines of its own.
    plain, verbose = weir(**one), weir("-v", "-v", **one) if how == "-v" else weir(verbose=2, **one)
    plain.value("select 1")
    verbose.value("select 1")
    for pooler in (plain, verbose):
        pooler.wait_log("closing because: client close request")
    assert len(verbose.log_text()) > len(plain.log_text())


def test_daemon(weir):
    pooler = weir.prepared()
    host.run([program(), "-d", pooler.ini], cwd=pooler.directory)
    host.eventually(lambda: pooler.pidfile.exists() and pooler.pidfile.read_text())
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
