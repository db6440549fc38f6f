"""`weir import`: a configuration of pgpool-II becomes one of Weir's that starts, and clients work through it on a primary with two standbys."""

import stat

import psycopg
import pytest

import host
import postgres
import weir as pooler_module

pytestmark = pytest.mark.weir_only

CONF = """
# - a cluster as the documentation of pgpool-II sets it up -
backend_clustering_mode = 'streaming_replication'
listen_addresses = '127.0.0.1'
port = {port}                       # the clients'
unix_socket_directories = '{directory}'
pcp_listen_addresses = '*'
pcp_port = 9898

backend_hostname0 = '127.0.0.1'
backend_port0 = {ports[0]}
backend_weight0 = 1
backend_data_directory0 = '/var/lib/postgresql/data'
backend_flag0 = 'ALLOW_TO_FAILOVER'
backend_application_name0 = 'server0'
backend_hostname1 = '127.0.0.1'
backend_port1 = {ports[1]}
backend_weight1 = 1
backend_flag1 = 'ALLOW_TO_FAILOVER'
backend_hostname2 = '127.0.0.1'
backend_port2 = {ports[2]}
backend_weight2 = 1

enable_pool_hba = on
pool_passwd = 'pool_passwd'
authentication_timeout = 1min
num_init_children = 8
max_pool = 2
client_idle_limit = 0
log_connections = on
logging_collector = on
log_directory = '{directory}'
pid_file_name = 'pgpool.pid'
reset_query_list = 'ABORT; DISCARD ALL'

load_balance_mode = on
disable_load_balance_on_write = 'transaction'
sr_check_period = 10
sr_check_user = 'pgpool'
sr_check_password = 'never shown'
delay_threshold = 10MB
health_check_period = 5
health_check_timeout = 30
health_check_period0 = 10
failover_command = '/etc/pgpool2/failover.sh %d %h %p %D %m %H %M %P %r %R %N %S'
follow_primary_command = '/etc/pgpool2/follow_primary.sh %d'
use_watchdog = on
delegate_ip = '192.0.2.1'
hostname0 = 'server1'
wd_port0 = 9000
heartbeat_hostname0 = 'server1'
memory_cache_enabled = on
memqcache_total_size = 64MB
no_such_setting = 1
"""
HBA = """
# TYPE  DATABASE  USER      ADDRESS        METHOD
local   all       all                      trust
host    all       mallory   127.0.0.1/32   pam
host    all       scramuser 127.0.0.1/32   scram-sha-256
host    all       all       127.0.0.1/32   scram-sha-256
"""
PASSWD = """scramuser:TEXTscram secret
mallory:TEXTmallory
md5user:md5a231fcdb710d73268c4f44283487ba22
lost:AESjglid1QRgiCl/vfhHUDyVA==
"""


@pytest.fixture
def cluster(pg, scratch):
    """A primary and two standbys."""
    primary = postgres.Postgres(pg.bindir, host.new_directory(scratch, "primary"))
    standbys = [postgres.Standby(primary, host.new_directory(scratch, name)) for name in ("standby1", "standby2")]
    yield primary, *standbys
    for server in (*standbys, primary):
        server.remove()


def written(directory, conf, *arguments, check=True):
    """Runs `weir import` as a person would, with the files of `directory`."""
    for name, text in {"pgpool.conf": conf, "pool_hba.conf": HBA, "pool_passwd": PASSWD}.items():
        (directory / name).write_text(text)
    command = [pooler_module.PROGRAM_COPY["path"], "import", "pgpool.conf", *arguments]
    return host.run(command, check=check, cwd=directory, timeout=60)


ALL = ("--output", "weir.ini", "--pool-hba", "pool_hba.conf", "--pool-passwd", "pool_passwd")


def test_a_cluster_of_pgpool_becomes_one_of_weir(weir, cluster):
    pooler = weir.prepared()
    directory, (primary, *standbys) = pooler.directory, cluster
    ports = [standbys[0].port, primary.port, standbys[1].port]
    pooler.ini.unlink()
    (directory / "userlist.txt").unlink()
    done = written(directory, CONF.format(port=pooler.port, directory=directory, ports=ports), *ALL)

    # The list has each setting with its line, and no secret.
    lines = CONF.splitlines()
    line = lambda name: next(number for number, text in enumerate(lines, 1) if text.startswith(f"{name} "))
    for name, words in {
        "port": "listen_port", "failover_command": "Patroni", "health_check_period0": "Patroni", "delegate_ip": "keepalived",
        "memory_cache_enabled": "query_cache_user", "no_such_setting": "not known", "pcp_port": "console",
    }.items():
        said = next(text for text in done.stdout.splitlines() if f"pgpool.conf:{line(name)}: {name}: " in text)
        assert words in said
    assert "pool_hba.conf:4: " in done.stdout and "pool_passwd:4: encrypted (AES)" in done.stdout
    assert not any(secret in done.stdout + done.stderr for secret in ("never shown", "scram secret", "jglid1"))
    assert stat.S_IMODE((directory / "userlist.txt").stat().st_mode) == 0o600
    assert "never shown" not in pooler.ini.read_text()

    # Weir takes it, and serves clients with it: on the primary, though it is not the first.
    checked = host.run([pooler_module.PROGRAM_COPY["path"], "check", pooler.ini], check=False, cwd=directory)
    warnings = [line for line in checked.stdout.splitlines() if ": warning: " in line]
    assert checked.returncode == 0 and " 0 errors, 1 warning" in checked.stdout, checked.stdout
    assert warnings[0].endswith("read_write_split has no effect in session pooling"), "pgpool-II pools sessions: the list says so"
    for path in directory.iterdir():
        host.hand_over(path)
    pooler.io_driver = None
    pooler.start()
    login = {"user": "scramuser", "password": "scram secret"}
    with pooler.connect("app", **login) as client:
        client.execute("create temp table t as select 1 as a")
        assert client.execute("select a, pg_is_in_recovery() from t").fetchone() == (1, False), "one session, on the primary"
    assert pooler.value("select current_database()", database="other", **login) == "other", "any database"
    with pytest.raises(psycopg.OperationalError):
        pooler.value("select 1", user="scramuser", password="wrong")
    with pytest.raises(psycopg.OperationalError, match="reject"):
        pooler.value("select 1", user="mallory", password="mallory")


@pytest.fixture
def directory(pg, scratch):
    return host.new_directory(scratch, "import")


def test_without_output_the_configuration_is_printed(directory):
    conf = CONF.format(port=9999, directory="/run", ports=[5432, 5432, 5432])
    done = written(directory, conf)
    assert "\n* = host=127.0.0.1,127.0.0.1,127.0.0.1 port=5432 target_session_attrs=primary" in done.stdout
    assert "failover_command: Patroni" in done.stderr and "Patroni" not in done.stdout
    assert not (directory / "weir.ini").exists()


def test_what_is_there_already_is_kept(directory):
    conf = CONF.format(port=9999, directory="/run", ports=[5432, 5433, 5434])
    for name in ("userlist.txt", "weir_hba.conf", "weir.ini"):
        (directory / name).write_text("mine")
        done = written(directory, conf, *ALL, check=False)
        assert done.returncode == 1 and f"{name}: it is there already" in done.stderr
        assert (directory / name).read_text() == "mine"
        assert sum((directory / other).exists() for other in ("userlist.txt", "weir_hba.conf", "weir.ini")) == 1, "nothing is written"
        (directory / name).unlink()
    (directory / "userlist.txt").write_text("mine")
    (directory / "userlist.txt").chmod(0o644)
    written(directory, conf, *ALL, "--force")
    assert stat.S_IMODE((directory / "userlist.txt").stat().st_mode) == 0o600
    assert '"scramuser" "scram secret"' in (directory / "userlist.txt").read_text()


@pytest.mark.parametrize(
    "line, said",
    [
        (b"backend_hostname0 = 'open", "pgpool.conf:2: syntax error: the quoted value does not end"),
        (b"backend_hostname0 = \xff", "pgpool.conf:2: syntax error: not UTF-8"),
        (b"port = 9999", "no backend"),
        (b"include 'gone.conf'", "pgpool.conf:2: could not load file"),
    ],
)
def test_a_file_that_cannot_be_read_is_named_with_its_line(directory, line, said):
    (directory / "pgpool.conf").write_bytes(b"# x\n" + line + b"\n")
    command = [pooler_module.PROGRAM_COPY["path"], "import", "pgpool.conf", "--output", "weir.ini"]
    done = host.run(command, check=False, cwd=directory, timeout=60)
    assert done.returncode == 1 and said in done.stderr, done.stderr
    assert not (directory / "weir.ini").exists()


def test_a_file_that_is_not_there_is_named(directory):
    done = host.run([pooler_module.PROGRAM_COPY["path"], "import", directory / "gone.conf"], check=False)
    assert done.returncode == 1 and "gone.conf" in done.stderr
