"""The image that scripts/image makes, run by crun: an ordinary user, a read-only root, the environments of edoburu's and Bitnami's images,
health check, drain and signals, and how large it is."""

import os
import platform
import signal
import stat
import threading
import time

import pytest

import host
import oci
import weir as pooler

pytestmark = [pytest.mark.weir_only, pytest.mark.needs_root, pytest.mark.any_driver]

SECRET = "scram secret"
MEGABYTE = 1_000_000
# glibc's libraries and the certificate authorities.
BESIDE_THE_PROGRAM = 4 * MEGABYTE


@pytest.fixture
def run(image, scratch):
    """`run(environment)` is a container, not yet started."""
    made = []

    def prepare(environment, **options):
        made.append(oci.Running(image, host.new_directory(scratch, "bundle"), {"THREADS": 2, **environment}, **options))
        return made[-1]

    yield prepare
    for one in made:
        one.stop()
        assert "panicked" not in one.log_text()


def ports():
    return {"LISTEN_PORT": host.free_port(), "HTTP_PORT": host.free_port()}


def edoburu(pg, **others):
    return {"DB_HOST": "localhost", "DB_PORT": pg.port, "DB_NAME": "app", "DB_USER": "scramuser", "DB_PASSWORD": SECRET, "AUTH_TYPE": "scram-sha-256", "POOL_MODE": "transaction", **ports(), **others}


def bitnami(pg, **others):
    server = {"POSTGRESQL_HOST": "127.0.0.1", "POSTGRESQL_PORT": pg.port, "POSTGRESQL_USERNAME": "scramuser", "POSTGRESQL_PASSWORD": SECRET}
    own = {"PGBOUNCER_DATABASE": "front", "POSTGRESQL_DATABASE": "app", "PGBOUNCER_PORT": host.free_port(), "PGBOUNCER_POOL_MODE": "transaction"}
    return {**server, **own, "HTTP_PORT": host.free_port(), **others}


def health(one):
    """What Docker does by the image's HEALTHCHECK."""
    check = one.image.config["Healthcheck"]["Test"]
    assert check[0] == "CMD"
    return one.exec(*check[1:]).returncode


# --- what it is ---------------------------------------------------------------------------------------------------
def test_it_is_small(image):
    program = (image.rootfs / "usr/bin/weir").stat().st_size
    assert image.unpacked - program < BESIDE_THE_PROGRAM, f"{image.unpacked - program} bytes beside the program"
    if pooler.PROGRAM.parent.name == "release":
        assert image.compressed < 10 * MEGABYTE and image.unpacked < 20 * 2**20, f"{image.compressed} bytes, {image.unpacked} unpacked"
    assert image.archive.stat().st_size < image.compressed + 100_000


def test_it_says_how_it_is_run(image):
    config = image.config
    assert (config["User"], config["Entrypoint"], config["Cmd"]) == ("65532:65532", ["/usr/bin/weir"], ["container"])
    assert (config["StopSignal"], config["Volumes"]) == ("SIGINT", {"/run/weir": {}})
    assert set(config["ExposedPorts"]) == {"5432/tcp", "6432/tcp", "8432/tcp"}
    assert config["Healthcheck"]["Test"] == ["CMD", "/usr/bin/weir", "container", "--health"]
    assert config["Healthcheck"]["Interval"] == 10 * 10**9
    assert config["Labels"]["org.opencontainers.image.title"] == "Weir"
    assert image.architecture == {"x86_64": "amd64", "aarch64": "arm64"}[platform.machine()]


def test_nothing_in_it_gives_rights_or_is_a_shell(image):
    for entry in image.entries:
        assert not entry.mode & (stat.S_ISUID | stat.S_ISGID), entry.name
        assert entry.issym() or not entry.mode & stat.S_IWOTH or entry.mode & stat.S_ISVTX, f"{entry.name} may be written by all"
    programs = [entry.name for entry in image.entries if entry.isfile() and entry.mode & 0o111 and ".so" not in entry.name]
    assert programs == ["usr/bin/weir"]
    assert [entry.linkname for entry in image.entries if entry.name == "usr/bin/pgbouncer"] == ["weir"]


def test_licences_are_in_it(image):
    names = {entry.name for entry in image.entries if entry.isfile() and entry.size > 100}
    assert names >= {f"usr/share/doc/{name}" for name in ("weir/third-party.gz", "libc6/copyright", "libgcc-s1/copyright", "ca-certificates/copyright")}


def test_two_builds_are_the_same(image, scratch):
    again = oci.build(host.new_directory(scratch, "again"), pooler.PROGRAM)
    assert again.read_bytes() == image.archive.read_bytes()


# --- how it runs --------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("environment", [edoburu, bitnami])
def test_a_compose_file_goes_on_working(run, pg, environment):
    given = environment(pg)
    one = run(given).start()
    port = given.get("LISTEN_PORT") or given["PGBOUNCER_PORT"]
    database = "front" if environment is bitnami else "app"
    script = one.directory / "select.sql"
    script.write_text("select 1;\n")
    command = [pg.bindir / "pgbench", "-n", "-f", script, "-c", 4, "-t", 50, "-h", "127.0.0.1", "-p", port, "-U", "scramuser", database]
    done = host.run(command, env={"PGPASSWORD": SECRET, "PATH": "/usr/bin:/bin"})
    assert "number of transactions actually processed: 200/200" in done.stdout
    with one.connect(port, database, password=SECRET) as client:
        assert client.execute("select current_database()").fetchone() == ("app",)
    assert health(one) == 0
    assert SECRET not in one.log_text() and not [line for line in one.log_text().splitlines() if " WARNING " in line or " ERROR " in line], one.log_text()


def test_its_process_has_no_rights(run, pg):
    one = run(edoburu(pg)).start()
    [first] = host.children(one.process.pid)
    status = dict(line.split(":\t", 1) for line in open(f"/proc/{first}/status", encoding="utf-8").read().splitlines())
    assert status["Uid"].split() == ["65532"] * 4 and status["Gid"].split() == ["65532"] * 4
    assert int(status["CapEff"], 16) == int(status["CapBnd"], 16) == 0 and status["NoNewPrivs"] == "1"


def test_any_user_will_do(run, pg):
    """As OpenShift has it."""
    given = edoburu(pg)
    one = run(given, user="1000660000:0").start()
    with one.connect(given["LISTEN_PORT"], password=SECRET) as client:
        assert client.execute("select 1").fetchone() == (1,)
    assert health(one) == 0
    assert one.exec("/usr/bin/weir", "container", "--drain", "10").returncode in (0, 137), "or it is ended with the first process"
    assert one.wait_end() == 0


def test_a_drain_cuts_no_transaction(run, pg):
    given = edoburu(pg)
    one = run(given).start()
    client = one.connect(given["LISTEN_PORT"], password=SECRET)
    client.execute("begin")
    client.execute("create temp table kept (x int) on commit drop")
    draining = one.begin("/usr/bin/weir", "container", "--drain", "1")
    one.wait_log("SHUTDOWN WAIT_FOR_SERVERS command issued")
    assert health(one) == 1, "no new clients: not ready"
    client.execute("insert into kept values (1)")
    client.execute("commit")
    assert one.wait_end() == 0
    draining.wait(30)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_between_transactions(run, pg, number):
    given = edoburu(pg)
    one = run(given).start()
    client = one.connect(given["LISTEN_PORT"], password=SECRET)
    client.execute("begin")
    one.kill(number)
    one.wait_log(f"got {signal.Signals(number).name}, shutting down")
    client.execute("select 1")
    client.execute("commit")
    if number == signal.SIGTERM:
        client.execute("select 1")
        client.close()
    assert one.wait_end() == 0


def test_a_hung_process_is_not_healthy(run, pg):
    one = run(edoburu(pg)).start()
    [first] = host.children(one.process.pid)
    os.kill(first, signal.SIGSTOP)
    try:
        assert health(one) == 1
    finally:
        os.kill(first, signal.SIGCONT)
    assert health(one) == 0


def test_a_bad_environment_is_said(run, pg):
    done = run({"DB_HOST": "db", "DB_PASSWORD": "hush", "POOL_MODE": "sometimes"}).once()
    assert done.returncode == 1 and done.stderr.startswith("weir: POOL_MODE: ") and "hush" not in done.stderr
    done = run({}).once()
    assert done.returncode == 1 and done.stderr.startswith("weir: DATABASE_URL: ")


def test_other_words_are_the_programs(run):
    assert "weir" in run({}, words=["--version"]).once().stdout.lower()
    checked = run({}, words=["check", "/nowhere.ini"]).once()
    assert checked.returncode == 1 and "/nowhere.ini" in checked.stdout + checked.stderr


def test_a_mounted_configuration_is_used(run, pg, scratch):
    ini = host.new_directory(scratch, "mounted") / "pgbouncer.ini"
    port = host.free_port()
    ini.write_text(f"[databases]\napp = host=127.0.0.1 port={pg.port} user=alice\n[pgbouncer]\nlisten_addr = *\nlisten_port = {port}\nauth_type = any\nunix_socket_dir = /run/weir\n")
    ini.chmod(0o644)
    one = run({}, mounts=[(ini, "/etc/pgbouncer/pgbouncer.ini")]).start()
    with one.connect(port, user="alice") as client:
        assert client.execute("select 1").fetchone() == (1,)
    assert health(one) == 0
