"""`weir-bench` with every load generator it knows, on an existing PostgreSQL: pgbench 14 to 18, sysbench, JMeter;
through Weir, another pooler that is started, one that runs. What is somebody's stays; passwords are shown nowhere."""

import json
import os
import subprocess
import time
from pathlib import Path

import pytest

import host
import postgres
from host import REPOSITORY
from weir import BENCH, Weir

pytestmark = pytest.mark.weir_only

PGBOUNCER = Path("/usr/sbin/pgbouncer")
JMETER = REPOSITORY / "target/jmeter"
SHORT = "--clients 3 --seconds 1 --warm-up 1 --rounds 1 --no-open-loop --progress none".split()
# For who takes its time until the first transaction, or has few of them in a second.
LONGER = [*SHORT[:3], "3", *SHORT[4:]]


def pgbenches():
    """The directories of pgbench by version."""
    of = {version: REPOSITORY / f"target/pgbench-{version}/bin" for version in (14, 15, 16, 17)}
    return {**of, 18: REPOSITORY / "target/pg18/bin"}


@pytest.fixture
def database(pg, request):
    """A new database of alice's, and its address."""
    name = f"lab_{abs(hash(request.node.name)) % 10**9}"
    pg.query(f"create database {name} owner alice")
    yield f"postgresql://alice@127.0.0.1:{pg.port}/{name}"
    pg.query(f"drop database {name} with (force)")


@pytest.fixture
def bench(tmp_path):
    """`bench("compare", …)` runs to its end; `.record` is the result."""

    def run(question, *words, status=0, **environment):
        statuses = status if isinstance(status, tuple) else (status,)
        out = tmp_path / f"result{len(list(tmp_path.iterdir()))}"
        around = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
        command = [str(word) for word in (BENCH, question, *words, "--out", out)]
        options = {"capture_output": True, "text": True, "timeout": 500, "check": False, "cwd": "/tmp"}
        done = subprocess.run(command, env={**around, **environment}, **options)
        assert done.returncode in statuses, f"{' '.join(command)}\n{done.stdout}\n{done.stderr}"
        done.out = out
        done.record = json.loads((out / "result.json").read_text()) if (out / "result.json").exists() else None
        return done

    return run


def runs(record):
    return {(point["target"], point["workload"]): point["runs"] for point in record["points"]}


def assert_whole(record, targets, workloads):
    """Every combination was run once, and every figure comes from its log."""
    found = runs(record)
    assert found.keys() == {(target, workload) for target in targets for workload in workloads}
    for name, (run,) in found.items():
        assert run["ended"] == "whole" and run["failed"] == 0 and run["refused"] == 0, (name, run)
        count = run["latency_us"]["count"]
        # pgbench logs a sample where there are many transactions; the others have figures of all.
        sampled = run.get("sampling", 1) < 1 and count == pytest.approx(run["transactions"] * run["sampling"], rel=0.05)
        assert count > 0 and (sampled or count == run["transactions"]), (name, run)
        assert 0 < run["latency_us"]["percentiles"]["p50"] <= run["latency_us"]["max"], (name, run)


@pytest.mark.parametrize("version", pgbenches())
def test_pgbench_of_every_version(bench, database, version):
    programs = pgbenches()[version]
    if not (programs / "pgbench").exists():
        pytest.skip(f"no pgbench {version}: scripts/prepare-tests says why")
    words = ["--server", database, "--pg-bin", programs, "--workload", "select-only", "--scale", 1]
    done = bench("compare", *words, "--pool-size", 2, *LONGER)
    assert f"pgbench (PostgreSQL) {version}." in done.record["generator"]["version"]
    assert_whole(done.record, ["direct", "weir"], ["select-only"])


def test_every_workload_runs(bench, database):
    names = "tpcb-like simple-update select-only point-read read-write connect-storm idle-heavy slow-mix".split()
    done = bench("compare", "--server", database, "--workload", ",".join(names), "--scale", 1, "--no-direct", *LONGER)
    assert_whole(done.record, ["weir"], names)
    (idle,) = runs(done.record)["weir", "idle-heavy"]
    assert idle["latency_us"]["percentiles"]["p50"] < 150_000, "what a client thinks is no latency"


def test_an_open_loop_says_how_late_it_was(bench, database):
    words = ["--server", database, "--workload", "select-only", "--scale", 1, "--no-direct"]
    done = bench("compare", *words, *(word for word in LONGER if word != "--no-open-loop"))
    offered = [point for point in done.record["points"] if point["offered"]]
    assert [point["offered"]["percent_of_peak"] for point in offered] == [50, 70, 80, 90]
    assert all(point["runs"][0]["lag_us"]["mean"] >= 0 for point in offered)


@pytest.fixture
def running(pg, scratch):
    """`running(databases={…})` starts a Weir that the lab knows nothing of."""
    started = []

    def start(**settings):
        started.append(Weir(pg, host.new_directory(scratch, "weir"), "epoll", **settings))
        return started[-1].start()

    yield start
    for one in started:
        one.stop()


def test_poolers_side_by_side(bench, database, pg, running):
    name = database.rsplit("/", 1)[1]
    running = running(databases={name: f"host=127.0.0.1 port={pg.port} dbname={name}"}, auth_type="trust")
    words = ["--server", database, "--through", f"running=postgresql://alice@127.0.0.1:{running.port}/{name}"]
    targets = ["direct", "weir", "running"]
    if PGBOUNCER.exists():
        words += ["--pooler", f"pgbouncer={PGBOUNCER}"]
        targets.append("pgbouncer")
    done = bench("compare", *words, "--workload", "select-only", "--scale", 1, *LONGER)
    assert_whole(done.record, targets, ["select-only"])
    # Whoever may see its process accounts for a pooler that was there before.
    (run,) = runs(done.record)["running", "select-only"]
    assert run["cpu_us"]["pooler"] > 0
    kinds = {target["name"]: target["kind"] for target in done.record["targets"]}
    assert (kinds["direct"], kinds["weir"], kinds["running"]) == ("direct", "started", "running")


@pytest.mark.skipif(not PGBOUNCER.exists(), reason="no PgBouncer to put beside Weir")
def test_a_sweep_through_another_pooler_beside_weir(bench, database):
    """Each has its own curve and its own line to paste (or "can't tell": such short runs may say that)."""
    words = ["--server", database, "--no-direct", "--pooler", f"pgbouncer={PGBOUNCER}", "--pool-sizes", "1,2,3,4"]
    words += ["--workload", "select-only", "--scale", 1, "--clients", 6, "--seconds", 1, "--warm-up", 0, "--rounds", 2]
    done = bench("sweep", *words, "--no-open-loop", "--progress", "none", status=(0, 3))
    swept = {(point["target"], point["pool_size"]): point["runs"] for point in done.record["points"]}
    assert swept.keys() == {(target, size) for target in ("weir", "pgbouncer") for size in (1, 2, 3, 4)}
    assert all(run["ended"] == "whole" and run["transactions"] > 0 for runs in swept.values() for run in runs)
    for target in ("weir", "pgbouncer"):
        assert f"select-only through {target}, 6 clients: " in done.stdout, done.stdout
    assert list((done.out / "pictures").glob("*size.svg"))


def test_a_server_that_wants_tls(bench, scratch, authorities, tmp_path):
    programs = postgres.reachable_programs("system", scratch)
    server = postgres.Postgres(programs, host.new_directory(scratch, "lab-tls"))
    try:
        server.stop()
        (server.data / "pg_hba.conf").write_text("local all all trust\nhostssl all all all trust\nhost all postgres all trust\n")
        root = authorities[3]
        server.start(ssl="on", ssl_cert_file=root.server.cert, ssl_key_file=root.server.key)
        script = tmp_path / "encrypted.sql"
        script.write_text("SELECT 1 / ssl::int FROM pg_stat_ssl WHERE pid = pg_backend_pid();\n")
        uri = f"postgresql://alice@localhost:{server.port}/app?sslmode=verify-full&sslrootcert={root.cert}"
        done = bench("replay", script, "--server", uri, "--pool-sizes", 2, *LONGER)
    finally:
        server.stop()
    assert_whole(done.record, ["direct", "weir"], ["encrypted"])


def test_a_server_by_its_unix_socket(bench, pg, database, tmp_path):
    script = tmp_path / "by_socket.sql"
    script.write_text("SELECT 1 / (client_addr IS NULL)::int FROM pg_stat_activity WHERE pid = pg_backend_pid();\n")
    uri = f"postgresql://alice@/{database.rsplit('/', 1)[1]}?host={pg.directory}&port={pg.port}"
    done = bench("replay", script, "--server", uri, "--pool-sizes", 2, *LONGER)
    assert_whole(done.record, ["direct", "weir"], ["by_socket"])


def test_a_pooler_before_another_database_is_refused(bench, database, pg, running):
    running = running(databases={"app": f"host=127.0.0.1 port={pg.port} dbname=app"}, auth_type="trust")
    words = ["--server", database, "--through", f"running=postgresql://alice@127.0.0.1:{running.port}/app"]
    done = bench("compare", *words, "--scale", 1, *SHORT, status=1)
    assert "another server or database" in done.stderr


def test_a_password_is_shown_nowhere(bench, pg, database):
    secret = "scram secret"
    name = database.rsplit("/", 1)[1]
    pg.query(f"alter database {name} owner to scramuser")
    seen = []
    uri = f"postgresql://scramuser@127.0.0.1:{pg.port}/{name}"
    with Watch(secret, seen):
        words = ["--server", uri, "--workload", "select-only", "--scale", 1, *LONGER]
        done = bench("compare", *words, PGPASSWORD=secret)
    assert_whole(done.record, ["direct", "weir"], ["select-only"])
    assert seen == []
    texts = [done.stdout, done.stderr, *(path.read_bytes().decode(errors="replace") for path in files(done.out))]
    assert not any(secret in text for text in texts)


class Watch:
    """Looks into every command line of this machine for a text, again and again."""

    def __init__(self, text, seen):
        self.code = (
            "import pathlib, sys, time\n"
            "while True:\n"
            "    for path in pathlib.Path('/proc').glob('[0-9]*/cmdline'):\n"
            "        try:\n"
            "            words = path.read_bytes()\n"
            "        except OSError:\n"
            "            continue\n"
            f"        if {text.encode()!r} in words and b'pathlib' not in words:\n"
            "            print(words, flush=True)\n"
            "    time.sleep(0.02)\n"
        )
        self.seen = seen

    def __enter__(self):
        self.process = host.start([os.sys.executable, "-c", self.code], as_user=False, stdout=subprocess.PIPE, text=True)
        return self

    def __exit__(self, *_):
        time.sleep(0.1)
        self.process.kill()
        self.seen += self.process.communicate()[0].splitlines()


def files(directory):
    return [path for path in directory.rglob("*") if path.is_file()]


def test_tables_with_rows_are_used_and_never_dropped(bench, pg, database):
    name = database.rsplit("/", 1)[1]
    words = ["--server", database, "--workload", "select-only", "--no-direct", *SHORT]
    bench("compare", *words, "--scale", 2)
    pg.query("insert into pgbench_history (tid, filler) values (1, 'mine')", name)
    mine = lambda: pg.value("select count(*) from pgbench_history where filler like 'mine%'", name)

    done = bench("compare", *words)
    assert done.record["server"]["database"]["scale"] == 2 and not done.record["server"]["database"]["made"]
    # What writes leaves its rows beside those that were there.
    bench("compare", "--server", database, "--workload", "tpcb-like", "--no-direct", *LONGER)
    assert mine() == 1 and pg.value("select count(*) from pgbench_history", name) > 1

    refused = bench("compare", *words, "--scale", 3, status=1)
    assert "scale 2" in refused.stderr and "--force" in refused.stderr
    assert mine() == 1
    done = bench("compare", *words, "--scale", 1, "--force")
    assert done.record["server"]["database"]["scale"] == 1 and mine() == 0


def test_tables_that_only_have_the_names_are_left_alone(bench, pg, database):
    name = database.rsplit("/", 1)[1]
    pg.query("create table pgbench_accounts as select 'precious' as word", name)
    refused = bench("compare", "--server", database, "--workload", "select-only", "--scale", 1, *SHORT, status=1)
    assert "--force" in refused.stderr
    assert pg.value("select word from pgbench_accounts", name) == "precious"


def test_too_few_connections_are_said_beforehand(bench, pg, database):
    pg.query("alter role bob connection limit 2")
    name = database.rsplit("/", 1)[1]
    pg.query(f"alter database {name} owner to bob")
    try:
        words = ["--server", database.replace("alice", "bob"), "--workload", "select-only", "--scale", 1, "--pool-size", 1]
        done = bench("compare", *words, *(word if word != "none" else "plain" for word in SHORT))
    finally:
        pg.query("alter role bob connection limit -1")
    assert "room for 2" in done.stderr
    assert runs(done.record)["weir", "select-only"][0]["ended"] == "whole"
    assert "refused" in runs(done.record)["direct", "select-only"][0]["ended"]


def test_sysbench(bench, pg, database):
    words = ["--server", database, "--driver", "sysbench", "--tables", 2, "--pool-size", 2, *SHORT]
    small = ["--table-size", 500]
    done = bench("compare", *words, *small, "--workload", "oltp_read_only,oltp_point_select")
    assert done.record["generator"]["version"].startswith("sysbench 1.")
    assert_whole(done.record, ["direct", "weir"], ["oltp_read_only", "oltp_point_select"])
    done = bench("compare", *words, *small, "--workload", "oltp_read_only", "--query-mode", "prepared", "--no-direct")
    assert_whole(done.record, ["weir"], ["oltp_read_only"])
    refused = bench("compare", *words, "--table-size", 600, "--workload", "oltp_read_only", status=1)
    assert "--force" in refused.stderr
    assert pg.value("select count(*) from sbtest1", database.rsplit("/", 1)[1]) == 500


def test_a_directory_of_sysbench_scripts(bench, database, tmp_path):
    """As sysbench-tpcc is made: several files, options of their own, a `prepare`."""
    (tmp_path / "tpcc").mkdir()
    (tmp_path / "tpcc/tpcc_common.lua").write_text(
        "sysbench.cmdline.options = { scale = {'', 1}, tables = {'', 1}, use_fk = {'', 1}, trx_level = {'', 'RR'} }\n"
        "function open() connection = sysbench.sql.driver():connect() end\n"
    )
    (tmp_path / "tpcc/tpcc.lua").write_text(
        "require('tpcc_common')\n"
        "function thread_init() open() end\n"
        "function event() connection:query('SELECT count(*) FROM warehouse1') end\n"
        "function prepare()\n"
        "   open()\n"
        "   connection:query('CREATE TABLE warehouse1 AS SELECT generate_series(1, ' .. sysbench.opt.scale .. ')')\n"
        "end\n"
    )
    words = ["--driver", "sysbench", "--workload", tmp_path / "tpcc", "--warehouses", 3, "--no-direct", *SHORT]
    done = bench("compare", "--server", database, *words)
    assert_whole(done.record, ["weir"], ["tpcc"])


@pytest.mark.skipif(not JMETER.exists(), reason="no JMeter: scripts/prepare-tests says why")
def test_jmeter(bench, database):
    words = ["--server", database, "--driver", "jmeter", "--scale", 1, "--pool-size", 2, *LONGER]
    done = bench("compare", *words, "--workload", "tpcb-like", JMETER_HOME=str(JMETER))
    assert "JMeter 5" in done.record["generator"]["version"] and "pgjdbc 42" in done.record["generator"]["version"]
    assert_whole(done.record, ["direct", "weir"], ["tpcb-like"])
    bench_report = subprocess.run([BENCH, "report", done.out], capture_output=True, text=True, check=False)
    assert bench_report.returncode == 0, bench_report.stderr


@pytest.mark.skipif(not JMETER.exists(), reason="no JMeter: scripts/prepare-tests says why")
def test_a_plan_of_ones_own_runs_in_jmeter(bench, pg, database, tmp_path):
    """It has its own tables and statements, and pgbench's are not made for it."""
    name = database.rsplit("/", 1)[1]
    pg.query("create table mine as select 1 as id, 7 as weight; grant select on mine to public", name)
    plan = (REPOSITORY / "crates/lab/src/generator/jmeter/plan.jmx").read_text()
    plan = plan.replace("${__P(weir.workload,select-only)}", "select-only")
    plan = plan.replace("SELECT abalance FROM pgbench_accounts WHERE aid = ?", "SELECT weight FROM mine WHERE id &lt;= ?")
    (tmp_path / "own.jmx").write_text(plan)
    words = ["--driver", "jmeter", "--jmeter-plan", tmp_path / "own.jmx", "--workload", "weights", "--pool-size", 2, *LONGER]
    done = bench("compare", "--server", database, *words, JMETER_HOME=str(JMETER))
    assert_whole(done.record, ["direct", "weir"], ["weights"])
    assert pg.value("select count(*) from pg_class where relname like 'pgbench%'", name) == 0
    lacking = bench("compare", "--server", database, *(word if word != tmp_path / "own.jmx" else "/nowhere.jmx" for word in words), status=1, JMETER_HOME=str(JMETER))
    assert "/nowhere.jmx" in lacking.stderr


def test_what_is_missing_is_named_with_its_package(bench, database):
    words = ["--server", database, *SHORT]
    lacking = bench("compare", *words, "--driver", "jmeter", status=1, JMETER_HOME="/nowhere")
    assert "bin/ApacheJMeter.jar in /nowhere" in lacking.stderr
    lacking = bench("compare", *words, "--driver", "sysbench", "--sysbench", "/nowhere/sysbench", status=1)
    assert "apt-get install sysbench" in lacking.stderr
    strange = bench("compare", *words, "--driver", "sysbench", "--scale", 1, status=2)
    assert "sysbench has no use for --scale" in strange.stderr
