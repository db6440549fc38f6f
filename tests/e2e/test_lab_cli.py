"""`weir-bench` as a user types it: what it leaves behind, how it ends, and what it says of bad input. No figure is looked at."""

import fcntl
import json
import os
import pty
import re
import shlex
import shutil
import signal
import struct
import subprocess
import termios
import uuid

import pytest

import host
from weir import BENCH, PROGRAM

pytestmark = pytest.mark.weir_only


def short(rounds=1, seconds=1):
    """Runs that count for a second and take two."""
    return ["--seconds", seconds, "--warm-up", 0, "--rounds", rounds, "--no-open-loop"]


SHORT = short()
SCRIPT = "\\set n random(1, 9)\nSELECT :n;\n"


class Bench:
    """The lab on one database of the tests' server."""

    def __init__(self, pg, directory):
        self.pg = pg
        self.directory = directory
        self.out = directory / "result"
        self.database = f"lab_{uuid.uuid4().hex[:8]}"
        pg.query(f"create database {self.database} owner alice")
        pg.query("grant all on schema public to public", self.database)
        (directory / "own.sql").write_text(SCRIPT)

    def uri(self, user="alice", password=None):
        login = f"{user}:{password}" if password else user
        return f"postgresql://{login}@127.0.0.1:{self.pg.port}/{self.database}"

    def start(self, *words, **options):
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
        environment["WEIR_PG_BIN"] = str(self.pg.bindir)
        command = [BENCH, *map(str, words)]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **options}
        return subprocess.Popen(command, cwd=self.directory, env=environment, **pipes)

    def run(self, *words):
        process = self.start(*words)
        stdout, stderr = process.communicate(timeout=480)
        return subprocess.CompletedProcess(process.args, process.returncode, stdout, stderr)

    def measure(self, task, *words, status=0, uri=None):
        done = self.run(task, *words, "--server", uri or self.uri(), "--out", self.out)
        assert done.returncode == status, done.stdout + done.stderr
        return done

    def record(self):
        return json.loads((self.out / "result.json").read_text())


@pytest.fixture
def bench(pg, tmp_path):
    lab = Bench(pg, tmp_path)
    yield lab
    pg.query(f"drop database if exists {lab.database} with (force)")


def runs(record):
    return [(point, run) for point in record["points"] for run in point["runs"]]


def whole(record):
    return [(point, run) for point, run in runs(record) if run["ended"] == "whole"]


def test_a_script_is_run_direct_and_pooled_and_its_figures_come_from_raw_logs(bench):
    uri = bench.uri("scramuser", "scram secret").replace(" ", "%20")
    done = bench.measure("replay", "own.sql", "--clients", 4, "--pool-sizes", 2, *SHORT, uri=uri)
    record = bench.record()
    assert record["complete"] and {point["target"] for point, _ in whole(record)} == {"direct", "weir"}
    for _, run in runs(record):
        assert run["transactions"] > 0 and run["failed"] == 0 and run["latency_us"]["percentiles"]["p99"] > 0
        assert {log["kind"] for log in run["raw"]} >= {"transactions", "progress", "summary", "accounting"}
        assert all((bench.out / log["path"]).stat().st_size == log["bytes"] for log in run["raw"])
    assert "fsync is off" in " ".join(warning["text"] for warning in record["warnings"])
    # The command repeats it; the password stands nowhere.
    assert "--seed" in record["command"] and "own.sql" in record["command"]
    texts = [path.read_text(errors="replace") for path in bench.out.rglob("*") if path.is_file()]
    assert not any("scram secret" in text or "scram%20secret" in text for text in [*texts, done.stdout, done.stderr])


def test_the_result_for_programs_is_one_object(bench):
    done = bench.measure("replay", "own.sql", "--clients", 2, "--pool-sizes", 2, "--json", *SHORT)
    told = json.loads(done.stdout)
    assert told["record"] == bench.record() and told["directory"] == str(bench.out)
    assert (told["status"], told["complete"], told["report"], told["advice"]) == (0, True, True, [])
    assert "round 1" in done.stderr, "what goes on is told beside it"
    again = bench.run("report", "--json", bench.out)
    assert again.returncode == 0 and json.loads(again.stdout)["record"]["points"] == told["record"]["points"]
    refused = bench.run("compare", "--json", "--progress", "plain")
    assert refused.returncode == 2 and "--progress" in refused.stderr


def test_the_report_is_coloured_where_that_is_asked_for(bench):
    done = bench.measure("replay", "own.sql", "--clients", 2, "--no-weir", *SHORT)
    assert "\x1b" not in done.stdout
    colored = bench.run("report", bench.out, "--color", "always")
    assert "\x1b[1mown\x1b[0m\n" in colored.stdout and "\x1b" not in (bench.out / "report.txt").read_text()
    assert re.sub(r"\x1b\[\d*m", "", colored.stdout) == bench.run("report", bench.out).stdout


def test_a_report_needs_every_raw_log(bench):
    bench.measure("replay", "own.sql", "--clients", 2, "--no-weir", *SHORT)
    done = bench.run("report", bench.out)
    assert done.returncode == 0 and "own" in done.stdout, done.stderr
    (_, run), = whole(bench.record())
    (log,) = [log["path"] for log in run["raw"] if log["kind"] == "transactions"][:1]
    text = (bench.out / log).read_text()
    (bench.out / log).write_text(text[: len(text) // 2])
    done = bench.run("report", bench.out)
    assert done.returncode == 1 and log in done.stderr and "has been cut" in done.stderr, done.stderr
    (bench.out / log).unlink()
    done = bench.run("report", bench.out)
    assert done.returncode == 1 and log in done.stderr and "is gone" in done.stderr, done.stderr
    done = bench.run("report", bench.directory / "nothing")
    assert done.returncode == 1 and "result.json" in done.stderr


def test_a_report_notices_a_record_that_was_edited(bench):
    bench.measure("replay", "own.sql", "--clients", 2, "--no-weir", *SHORT)
    record = bench.record()
    record["points"][0]["runs"][0]["transactions"] += 1000
    (bench.out / "result.json").write_text(json.dumps(record))
    done = bench.run("report", bench.out)
    assert done.returncode == 1 and "does not agree" in done.stderr, done.stderr


def test_sums_are_understood_too(bench):
    bench.measure("replay", "own.sql", "--clients", 2, "--no-weir", *short(seconds=2), "--aggregate-interval", 1)
    (_, run), = whole(bench.record())
    assert run["latency_us"]["percentiles"] is None and run["latency_us"]["mean"] > 0 and run["transactions"] > 0
    assert bench.run("report", bench.out).returncode == 0


def test_a_fixed_number_of_transactions_is_made_by_each_client(bench):
    words = ["--clients", 4, "--pool-sizes", 2, "--transactions", 50, "--rounds", 1, "--no-open-loop", "--min-pool-size"]
    done = bench.measure("replay", "own.sql", *words)
    record = bench.record()
    assert {point["target"] for point, _ in whole(record)} == {"direct", "weir"}
    for _, run in whole(record):
        assert run["transactions"] == 200 and run["tps"] > 0 and run["latency_us"]["count"] == 200
        connecting = run["connecting"]
        assert connecting["ms"] > 0 and 0 < connecting["tps_including"] < connecting["tps_excluding"]
    assert record["plan"]["transactions"] == 50 and record["plan"]["min_pool_size"]
    assert "all of 50 transactions of each client count; min_pool_size is the pool size" in " ".join(done.stdout.split())
    assert bench.run("report", bench.out).returncode == 0


def test_seconds_and_transactions_exclude_each_other(bench):
    done = bench.run("compare", "--transactions", 5, "--seconds", 1)
    assert done.returncode == 2 and "--transactions" in done.stderr
    done = bench.run("compare", "--transactions", 5, "--driver", "sysbench")
    assert done.returncode == 2 and "sysbench has no use for --transactions" in done.stderr


def test_a_sweep_of_a_private_postgresql_says_something_about_the_size(bench):
    words = ["--pool-sizes", "1,2,3,4", "--clients", 4, "--workload", "select-only", "--scale", 1, *short(rounds=2)]
    done = bench.run("sweep", *words, "--out", bench.out)
    assert done.returncode in (0, 3), done.stdout + done.stderr
    record = bench.record()
    assert record["server"]["embedded"] and record["complete"] and record["plan"]["pool_sizes"] == [1, 2, 3, 4]
    assert sorted({point["pool_size"] or 0 for point, _ in whole(record)}) == [0, 1, 2, 3, 4]
    pooled = [run for point, run in whole(record) if point["pool_size"]]
    assert all(run["cpu_us"]["pooler"] > 0 and run["cpu_us"]["server"] > 0 for run in pooled)
    assert done.returncode == 0 or "can't tell" in done.stdout
    assert "TPS per added connection" in done.stdout and "connecting ms" in done.stdout


def test_a_sweep_measures_a_pool_that_sizes_itself_beside_the_sizes(bench):
    words = ["--pool-sizes", "1,2,3,4", "--clients", 8, "--workload", "select-only", "--scale", 1, *short(rounds=2)]
    done = bench.run("sweep", *words, "--no-direct", "--auto", "--settle", 4, "--out", bench.out)
    assert done.returncode in (0, 3), done.stdout + done.stderr
    record = bench.record()
    assert {target["name"]: target["kind"] for target in record["targets"]} == {"weir": "started", "weir-auto": "self_sized"}
    own = [run for point, run in whole(record) if point["target"] == "weir-auto"]
    assert len(own) == 2 and all(run["transactions"] > 0 for run in own)
    assert all(1 <= run["found_size"] <= 4 for run in own)
    assert not list(bench.out.glob("raw/*/settling")), "what came before the run is no figure"
    assert "auto: " in done.stdout
    again = bench.run("report", bench.out)
    for said in (done.stdout, again.stdout):
        words = " ".join(said.split())
        assert "the pool that sizes itself has found" in words and "of the best size of the sweep" in words, said


def test_an_open_loop_stays_below_the_peak(bench):
    words = ["--seconds", "1", "--warm-up", "0", "--rounds", "1", "--clients", 2, "--no-weir"]
    bench.measure("replay", "own.sql", *words)
    record = bench.record()
    (peak,) = [run["tps"] for point, run in whole(record) if not point["offered"]]
    opened = [(point["offered"], run) for point, run in whole(record) if point["offered"]]
    assert sorted(offered["percent_of_peak"] for offered, _ in opened) == [50, 70, 80, 90]
    for offered, run in opened:
        assert abs(offered["tps"] - peak * offered["percent_of_peak"] / 100) < 1
        assert run["lag_us"]["max"] >= run["lag_us"]["mean"] >= 0


def test_clients_that_the_server_refuses_are_counted(bench):
    bench.pg.query("create role cramped login connection limit 3")
    try:
        bench.measure("replay", "own.sql", "--clients", 5, "--no-weir", *SHORT, uri=bench.uri("cramped"))
    finally:
        bench.pg.query("drop role cramped")
    record = bench.record()
    ends = [run["ended"] for _, run in runs(record)]
    assert any("refused" in end for end in ends if isinstance(end, dict)), ends
    (_, run), = whole(record)
    assert run["refused"] == 2 and run["transactions"] > 0
    assert any("2 of 5 clients were refused" in warning["text"] for warning in record["warnings"])


def test_progress_can_be_read_by_a_program(bench):
    done = bench.measure("replay", "own.sql", "--clients", 2, "--no-weir", *SHORT, "--progress", "json")
    events = [json.loads(line) for line in done.stdout.splitlines()]
    names = [event["event"] for event in events]
    assert names.count("ran") == 1 and "second" in names and names.index("begin") < names.index("run")
    assert names[-1] == "end" and events[-1]["status"] == 0 and events[-1]["complete"], events[-1]
    assert events[-1]["advice"] == [] and events[-1]["report"] and events[-1]["directory"] == str(bench.out)
    fields = {event["event"]: event.keys() - {"event"} for event in events}
    assert fields["begin"] == {"runs", "directory"} and fields["run"] == {"round", "order", "left_s", "point"}
    assert fields["second"] == {"second"} and fields["ran"] == {"done", "runs", "point", "run"}
    assert done.stderr == ""


def read_to_end(terminal):
    """All that is written to a terminal until its other side is closed, which Linux tells as an error."""
    text = b""
    while True:
        try:
            text += os.read(terminal, 65536)
        except OSError:
            return text.decode()


def test_a_terminal_shows_a_table_that_grows(bench):
    terminal, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))
    words = ["replay", "own.sql", "--clients", "2,3", "--no-weir", *short(seconds=2), "--server", bench.uri(), "--out", bench.out]
    process = bench.start(*words, stdout=subprocess.DEVNULL, stderr=theirs)
    os.close(theirs)
    text = read_to_end(terminal)
    os.close(terminal)
    assert process.wait(timeout=60) == 0, text
    drawings = [drawing for drawing in text.split("\x1b[J") if "direct, own, 2 clients" in drawing and "direct, own, 3 clients" in drawing]
    assert any("p99 ms" in drawing and " left " in drawing and "█" in drawing for drawing in drawings), text
    lines = [line for drawing in text.split("\x1b[J") for line in drawing.replace("\r", "\n").split("\n")]
    assert max(len(line) for line in lines if "postgresql" not in line and "kept in" not in line) <= 100, lines


def test_a_running_poolers_cpu_time_is_seen(bench, weir):
    pooler = weir(databases={bench.database: "pool_size=2"})
    through = f"mine=postgresql://alice@127.0.0.1:{pooler.port}/{bench.database}"
    bench.measure("replay", "own.sql", "--clients", 4, "--no-weir", "--no-direct", "--through", through, *short(seconds=2))
    (point, run), = whole(bench.record())
    assert (point["target"], point["pool_size"]) == ("mine", None)
    assert run["cpu_us"]["pooler"] > 0 and run["cpu_us"]["server"] > 0 and run["cpu_us"]["generator"] > 0, run["cpu_us"]


def test_ctrl_c_keeps_what_is_measured(bench):
    words = ["replay", "own.sql", "--clients", 2, "--no-weir", *short(rounds=500), "--server", bench.uri(), "--out", bench.out]
    process = bench.start(*words)
    host.eventually(lambda: (bench.out / "result.json").exists() and whole(bench.record()), timeout=480)
    children = host.children(process.pid)
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=240)
    assert process.returncode == 130, stdout + stderr
    record = bench.record()
    assert not record["complete"] and whole(record)
    assert any(warning["kind"] == "interrupted" for warning in record["warnings"])
    assert "interrupted" in stdout, stdout
    assert not [child for child in children if os.path.exists(f"/proc/{child}")]
    done = bench.run("report", bench.out)
    assert done.returncode == 0 and "interrupted" in done.stdout, done.stderr


def test_a_result_is_never_overwritten(bench):
    bench.out.mkdir()
    (bench.out / "mine").write_text("x")
    done = bench.measure("replay", "own.sql", *SHORT, status=1)
    assert "never overwritten" in done.stderr
    assert [path.name for path in bench.out.iterdir()] == ["mine"]


def test_what_cannot_end_well_is_refused_before_a_server_is_started(bench):
    bench.out.mkdir()
    (bench.out / "mine").write_text("x")
    small = ["--workload", "select-only", "--scale", 1]
    missing = bench.directory / "missing"
    for words, status, said in (
        (["compare", *small, *SHORT, "--out", bench.out], 1, "never overwritten"),
        (["compare", *small, *SHORT, "--pooler", f"odd={missing}"], 1, f"{missing} is not there"),
        (["sweep", *small, *short(rounds=2), "--pool-sizes", "10,20"], 2, "4 different pool sizes"),
        (["sweep", *small, *SHORT], 2, "--rounds 2"),
    ):
        done = bench.run(*words)
        assert done.returncode == status and said in done.stderr, done.stdout + done.stderr
        assert "starting a private" not in done.stderr, done.stderr
    assert [path.name for path in bench.out.iterdir()] == ["mine"]


def test_the_command_that_repeats_a_result_can_be_run_as_it_is(bench):
    done = bench.measure("replay", "own.sql", "--clients", 2, "--no-weir", *SHORT)
    again = next(line for line in done.stdout.splitlines() if line.startswith("Again: "))
    program, *words = shlex.split(again.removeprefix("Again: "))
    assert program.endswith("weir-bench"), again
    repeated = bench.run(*words)
    assert repeated.returncode == 0, repeated.stdout + repeated.stderr
    (result,) = bench.directory.glob("weir-bench-*/result.json")
    assert json.loads(result.read_text())["command"] == bench.record()["command"]


def named(path, words):
    """A program that prints its arguments, its process id and what it is told of Weir, and ends as it is told to."""
    path.write_text(f"#!/bin/sh\necho {words} $$ $WEIR_PROGRAM \"$@\"\nexit 3\n")
    path.chmod(0o755)


def test_weir_bench_becomes_the_program_beside_it_or_in_path(bench):
    """`weir bench WORDS` is `weir-bench WORDS`, in the same process, with its status; beside weir comes before PATH."""
    alone, path = bench.directory / "alone", bench.directory / "path"
    alone.mkdir(), path.mkdir()
    weir = shutil.copy(PROGRAM, alone)

    def run(*words, **environment):
        process = subprocess.Popen([weir, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={"PATH": f".:{path}", **environment}, cwd=path)
        stdout, stderr = process.communicate(timeout=60)
        return process, stdout, stderr

    for words in (["bench", "sweep", "--quick"], ["bench", "--help"], ["bench"]):
        process, stdout, stderr = run(*words)
        assert process.returncode == 1 and not stdout, stderr
        assert "weir-bench is not installed" in stderr and str(alone) in stderr and "Install the program weir-bench" in stderr, stderr
    process, stdout, stderr = run("help", "bench")
    assert process.returncode == 0 and "weir-bench" in stdout, "what it is can be read all the same"
    # A relative directory of PATH is no place to look in.
    assert run("bench", PATH=".")[0].returncode == 1
    named(path / "weir-bench", "of PATH")
    assert run("bench", PATH=".")[0].returncode == 1
    for words, passed in ((["bench", "sweep", "-x", "a b"], "sweep -x a b"), (["help", "bench", "sweep"], "help sweep"), (["bench", "--help"], "--help")):
        process, stdout, _ = run(*words)
        assert (process.returncode, stdout) == (3, f"of PATH {process.pid} {weir} {passed}\n")
    named(alone / "weir-bench", "beside")
    process, stdout, _ = run("bench", "-V")
    assert (process.returncode, stdout) == (3, f"beside {process.pid} {weir} -V\n")
    process, stdout, _ = run("bench", WEIR_PROGRAM="/other/weir")
    assert stdout == f"beside {process.pid} /other/weir\n", "what is named stays"


def test_the_weir_that_has_become_the_lab_is_measured_and_named_in_the_command(bench):
    """Not the one beside weir-bench: another build, whose lab is the installed one."""
    weir = shutil.copy(PROGRAM, bench.directory / "weir")
    environment = {**{name: value for name, value in os.environ.items() if not name.startswith("PG")}, "WEIR_PG_BIN": str(bench.pg.bindir)}
    environment["PATH"] = f"{BENCH.parent}:{environment['PATH']}"
    command = [weir, "bench", "replay", "own.sql", "--clients", "2", *map(str, SHORT), "--server", bench.uri(), "--out", bench.out]
    done = subprocess.run(command, cwd=bench.directory, env=environment, capture_output=True, text=True, timeout=480, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    again = bench.record()["command"]
    assert again[again.index("--weir") + 1] == str(weir)


def test_a_weir_that_is_not_there_is_said(bench):
    alone = shutil.copy(BENCH, bench.directory)
    environment = {"PATH": "/nonexistent", "WEIR_PG_BIN": str(bench.pg.bindir)}
    for words, said in (([], "neither beside weir-bench nor in PATH"), (["--weir", "/nonexistent/weir"], "/nonexistent/weir is not there")):
        command = [alone, "replay", "own.sql", *words, *map(str, SHORT), "--server", bench.uri(), "--out", bench.out]
        done = subprocess.run(command, cwd=bench.directory, env=environment, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 1 and said in done.stderr and not bench.out.exists(), done.stderr


def test_a_missing_pgbench_is_named(bench):
    done = bench.measure("compare", "--pg-bin", bench.directory, *SHORT, status=1)
    assert "has no pgbench" in done.stderr and "apt-get install" in done.stderr
    done = bench.run("compare", "--pg-bin", bench.directory, "--out", bench.out)
    assert done.returncode == 1 and "initdb" in done.stderr and not bench.out.exists()


def test_a_server_that_is_not_there_is_said(bench):
    uri = f"postgresql://alice:hush@127.0.0.1:{host.free_port()}/app"
    done = bench.measure("compare", *SHORT, status=1, uri=uri)
    assert "alice@127.0.0.1" in done.stderr and "hush" not in done.stderr and not bench.out.exists()
    wrong = bench.uri("scramuser", "wrong")
    done = bench.measure("compare", *SHORT, status=1, uri=wrong)
    assert "password authentication failed" in done.stderr, done.stderr


def test_tables_with_rows_are_dropped_only_by_leave(bench):
    make = "create table pgbench_accounts (aid int, bid int); insert into pgbench_accounts values (7, 7); alter table pgbench_accounts owner to alice"
    bench.pg.query(make, bench.database)
    small = ["--clients", 2, "--no-weir", "--workload", "select-only", "--scale", 1, *SHORT]
    done = bench.measure("compare", *small, status=1)
    assert "--force" in done.stderr and not bench.out.exists(), done.stderr
    assert bench.pg.query("select * from pgbench_accounts", bench.database) == [(7, 7)]
    bench.measure("compare", *small, "--force")
    assert bench.pg.value("select count(*) from pgbench_accounts", bench.database) == 100_000
    # From now on they are pgbench's, and used as they are.
    bench.out = bench.directory / "again"
    done = bench.measure("compare", *small)
    assert "used as they are" in done.stderr


def test_a_pool_must_fit_into_the_server(bench):
    done = bench.measure("sweep", "--pool-sizes", "4,8,16,500", "--clients", 500, *short(rounds=2), status=1)
    assert "500 connections" in done.stderr and "max_connections 100" in done.stderr and not bench.out.exists()


def test_a_pooler_that_does_not_start_is_found_out_first(bench):
    done = bench.measure("replay", "own.sql", "--no-weir", "--pooler", "odd=/bin/false", *SHORT, status=1)
    assert "odd" in done.stderr and not bench.out.exists(), done.stderr


def test_a_failing_script_ends_the_experiment(bench):
    (bench.directory / "own.sql").write_text("SELECT * FROM nowhere;\n")
    done = bench.measure("replay", "own.sql", "--clients", 2, "--no-weir", *short(rounds=9), status=1)
    assert "nowhere" in done.stderr and "in a row failed" in done.stderr, done.stderr
    record = bench.record()
    assert len(runs(record)) == 3 and not whole(record) and not record["complete"]


@pytest.mark.parametrize(
    "words, said",
    [
        (["compare", "--clients", "0"], "0"),
        (["compare", "--workload", "tpcc"], "tpcc"),
        (["compare", "--server", "mysql://x"], "no address"),
        (["sweep", "--frob"], "--frob"),
        (["replay"], "FILE"),
        (["replay", "nothing.sql"], "nothing.sql"),
        ([], "sweep"),
    ],
)
def test_what_makes_no_sense_has_a_status_of_its_own(bench, words, said):
    done = bench.run(*words)
    assert done.returncode == 2 and said in done.stderr, done.stderr
    assert not list(bench.directory.glob("weir-bench-*"))


@pytest.mark.needs_root
def test_a_full_disk_is_said_beforehand(bench):
    disk = bench.directory / "disk"
    disk.mkdir()
    mounted = f"mount -t tmpfs -o size=2m none {disk} && exec \"$@\""
    words = ["replay", "own.sql", *SHORT, "--server", bench.uri(), "--out", disk / "result", "--pg-bin", bench.pg.bindir]
    command = ["unshare", "-m", "sh", "-c", mounted, "sh", BENCH, *map(str, words)]
    done = subprocess.run(command, cwd=bench.directory, capture_output=True, text=True, timeout=60, check=False)
    if "unshare" in done.stderr or "mount" in done.stderr:
        pytest.skip("nothing can be mounted here")
    assert done.returncode == 1 and "MB free" in done.stderr, done.stdout + done.stderr
