"""`topology = patroni …`: hosts that are Patroni's members, planned switchovers by the console's SWITCHOVER under writers that account for each
transaction, and an API that is down or lies. Patroni, etcd and the three servers are real ones; WEIR_SWITCHOVERS is how many switchovers each of
the two tests of them makes."""

import itertools
import os
import re
import threading
import time

import psycopg
import pytest

import host
import patroni_cluster
from patroni_cluster import LyingApi, member_row

pytestmark = [
    pytest.mark.weir_only,
    pytest.mark.skipif(not patroni_cluster.is_here(), reason="no etcd, or no Patroni; scripts/prepare-tests says why"),
    pytest.mark.parametrize("io_driver", ["epoll"]),
    pytest.mark.xdist_group("patroni"),
]

SWITCHOVERS = int(os.environ.get("WEIR_SWITCHOVERS", "1"))
# Of the test that takes longest: each of them in the long form alone.
VERSIONS = ["system", "18"] if "WEIR_SWITCHOVERS" in os.environ else ["system"]
WRITERS, THINKERS = 10, 10
NUMBERS = itertools.count(1)


@pytest.fixture(scope="module")
def patroni(servers, scratch, server_version, authorities):
    """A cluster for this file. That of PostgreSQL 18 has its API under TLS, and asks for a password where something is to be changed."""
    root = authorities[3] if server_version == "18" else None
    cluster = patroni_cluster.PatroniCluster(servers(server_version).bindir, scratch, root)
    yield cluster
    cluster.stop()


@pytest.fixture
def lying():
    """An API that is not Patroni's: `lying(answer)`."""
    started = []

    def start(answer):
        started.append(LyingApi(answer))
        return started[-1]

    yield start
    for one in started:
        one.stop()


@pytest.fixture
def following(weir, patroni):
    """A pooler before the cluster: `following(**entries)`, each the options of an entry without hosts."""

    def start(urls=None, root=patroni.root, **entries):
        entries = entries or {"app": "target_session_attrs=primary"}
        databases = {name: patroni.entry(more, urls) for name, more in entries.items()}
        roots = {"otlp_ca_file": root.cert} if root else {}
        # Nothing but `topology` says where the servers are.
        pooler = weir.prepared(databases=databases, default_pool_size=20, log_disconnections=1, **roots)
        pooler.target = lambda _, options: options
        pooler.write_ini()
        return pooler.start()

    return start


def clusters(pooler):
    return {row["database"]: row for row in pooler.console("SHOW CLUSTERS")}


def topology(pooler, database="app"):
    return clusters(pooler)[database]["topology_state"]


def switch_over(pooler, patroni, to=None):
    """By the console; returns what it says, when the old primary follows the new one."""
    said = []
    with psycopg.connect(**pooler.address("pgbouncer", "admin"), autocommit=True) as console:
        console.add_notice_handler(lambda notice: said.append(notice.message_primary))
        console.execute(f"SWITCHOVER app{f' TO {to}' if to else ''}")
    patroni.settled()
    return said


# --- members --------------------------------------------------------------------------------------------------------
@pytest.mark.every_version
def test_an_entry_without_hosts_has_those_of_patroni(following, patroni):
    pooler = following(app="target_session_attrs=primary", reads="target_session_attrs=standby", split="read_write_split=1")
    leader = patroni.settled()
    assert pooler.value("select inet_server_port()") == leader.port
    ports = {member.port for member in patroni.members.values()}
    assert pooler.value("select inet_server_port()", database="reads") in ports - {leader.port}
    client = pooler.connect("split")
    assert client.execute("select 1").fetchone() == (1,)
    host.eventually(lambda: clusters(pooler)["split"]["standbys"] == 2)
    assert clusters(pooler)["split"]["state"] == "ok"
    hosts = {row["port"]: row["state"] for row in pooler.console("SHOW HOSTS") if row["database"] == "split"}
    assert hosts == {port: "primary" if port == leader.port else "standby" for port in ports}
    rows = clusters(pooler)
    assert {(row["topology"], row["topology_state"], row["hosts"]) for row in rows.values()} == {("patroni", "ok", 3)}
    pooler.wait_log(r"patroni https?://.*: members are m1 \(127.0.0.1:\d+.*m3")


def test_members_come_and_go_and_no_client_notices(following, patroni, lying):
    leader = patroni.settled()
    others = [member for member in patroni.members.values() if member is not leader]
    row = lambda member, role="replica": member_row(member.name, member.port, role, timeline=7)
    api = lying({"members": [row(leader, "leader"), row(others[0])]})
    pooler = following(api.url, app="read_write_split=1")
    client, again = pooler.connect(), pooler.connect()
    assert client.execute("select inet_server_port()").fetchone()
    server = lambda connection: connection.execute("select pg_backend_pid(), txid_current()").fetchone()[0]
    again.execute("begin")
    held = server(again)
    before = server(client)
    assert held != before
    host.eventually(lambda: clusters(pooler)["app"]["state"] == "ok")
    api.answer = {"members": [row(leader, "leader"), *map(row, others)]}
    host.eventually(lambda: clusters(pooler)["app"]["hosts"] == 3)
    # Which of the connections a transaction gets is free, as one more may have been opened to ask its server.
    assert server(client) != held and host.lives(before), "a connection to a host that stays is kept"
    host.eventually(lambda: clusters(pooler)["app"]["standbys"] == 2)
    api.answer = {"members": [row(leader, "leader"), row(others[1]), member_row("x", 1, "replica", "creating replica")]}
    host.eventually(lambda: clusters(pooler)["app"]["hosts"] == 2)
    ports = {row["port"] for row in pooler.console("SHOW HOSTS")}
    assert ports == {leader.port, others[1].port}
    assert server(again) == held
    again.execute("commit")
    assert server(client) and host.lives(before) and host.lives(held), "both are kept"
    assert {client.execute("select inet_server_port()").fetchone()[0] for _ in range(4)} <= ports
    api.answer = {"members": [row(leader, "leader"), {**row(others[1]), "tags": {"noloadbalance": True}}]}
    host.eventually(lambda: {row["state"] for row in pooler.console("SHOW HOSTS")} == {"primary", "noloadbalance"})
    assert {client.execute("select inet_server_port()").fetchone()[0] for _ in range(4)} == {leader.port}


def test_clients_wait_until_there_are_members(following, patroni, lying):
    api = lying({"members": []})
    pooler = following(api.url)
    got = []
    waiting = threading.Thread(target=lambda: got.append(pooler.value("select 1")))
    waiting.start()
    host.eventually(lambda: topology(pooler) == "invalid")
    pooler.wait_log("no members are known, clients of entries without host wait")
    assert not got and waiting.is_alive()
    leader = patroni.settled()
    api.answer = {"members": [member_row(leader.name, leader.port, "leader", "running")]}
    waiting.join(20)
    assert got == [1]


# --- switchover -----------------------------------------------------------------------------------------------------
class Writer(threading.Thread):
    """Inserts one number after another, each in a transaction of its own, and notes what becomes of it."""

    def __init__(self, pooler, pause):
        super().__init__(daemon=True)
        self.pooler, self.pause = pooler, pause
        self.acknowledged, self.errors, self.stalls = [], [], []
        self.ends = threading.Event()

    def run(self):
        client = self.pooler.connect()
        while not self.ends.is_set():
            number, begun = next(NUMBERS), time.monotonic()
            try:
                client.execute("insert into ledger values (%s)", (number,))
                self.acknowledged.append(number)
            except psycopg.Error as error:
                self.errors.append((error.sqlstate, str(error).splitlines()[0], time.monotonic() - begun))
                client.close()
                client = self.pooler.connect()
            self.stalls.append((time.monotonic() - begun, time.time()))
            self.ends.wait(self.pause)
        client.close()


@pytest.mark.every_version
def test_planned_switchovers_lose_nothing(following, patroni, capsys):
    patroni.settled().query("create table if not exists ledger (number bigint); truncate ledger; grant all on ledger to public", "app")
    pooler = following()
    writers = [Writer(pooler, 0.002) for _ in range(WRITERS)] + [Writer(pooler, 0.5) for _ in range(THINKERS)]
    for writer in writers:
        writer.start()
    gaps, said = [], []
    for _ in range(SWITCHOVERS):
        time.sleep(1)
        old = patroni.settled()
        begun = time.time()
        said += switch_over(pooler, patroni)
        new = patroni.settled()
        assert new is not old
        gaps.append(outage(old, new, begun))
        served = time.monotonic()
        host.eventually(lambda: all(writer.acknowledged and writer.stalls[-1][1] > begun + 3 for writer in writers), timeout=30)
        assert time.monotonic() - served < 20
    for writer in writers:
        writer.ends.set()
    for writer in writers:
        writer.join(30)
    assert all("witched over" in words for words in said) and len(said) == SWITCHOVERS, said
    numbers = [number for (number,) in patroni.settled().query("select number from ledger", "app")]
    acknowledged = [number for writer in writers for number in writer.acknowledged]
    lost, doubled = set(acknowledged) - set(numbers), len(numbers) - len(set(numbers))
    in_flight = [error for writer in writers[:WRITERS] for error in writer.errors]
    idle = [error for writer in writers[WRITERS:] for error in writer.errors]
    stall = max(stall for writer in writers for stall, _ in writer.stalls)
    with capsys.disabled():
        print(
            f"\n{SWITCHOVERS} switchovers: {len(acknowledged)} transactions acknowledged, {len(lost)} lost, {doubled} doubled; errors of clients "
            f"that write all the time {len(in_flight)}, of clients that mostly wait {len(idle)}; longest stall {stall:.2f} s, longest time without "
            f"a primary {max(gaps):.2f} s; {sorted({error[:2] for error in in_flight + idle})}"
        )
    assert not lost and not doubled
    assert not idle
    assert len(in_flight) <= WRITERS * SWITCHOVERS
    # That they go on, not how soon on a busy machine: the line above has the figure.
    assert stall <= max(gaps) + 15


PGBENCH_SCRIPT = "\\set n :n + 1\ninsert into counted values (:client_id, :n);\n\\sleep 100 ms\n"


@pytest.mark.parametrize("server_version", VERSIONS, scope="session")
def test_switchovers_under_pgbench(following, patroni, capsys):
    """The same number of switchovers under 50 clients: each counts its transactions, and the table has each of them once."""
    switchovers = SWITCHOVERS
    patroni.settled().query("create table if not exists counted (client int, n int); truncate counted; grant all on counted to public", "app")
    pooler = following()
    script = pooler.directory / "counted.sql"
    script.write_text(PGBENCH_SCRIPT)
    host.hand_over(script)
    seconds = 9 * switchovers + 6
    command = [patroni.bindir / "pgbench", "-n", "-h", "127.0.0.1", "-p", pooler.port, "-U", "alice", "-c", 50, "-j", 2, "-T", seconds, "-D", "n=0", "-f", script]
    command += ["-l", "--aggregate-interval=1", "--log-prefix", pooler.directory / "latency", "app"]
    gaps, output_path = [], pooler.directory / "pgbench.output"
    with open(output_path, "wb") as output:
        bench = host.start(command, cwd=pooler.directory, stdout=output, stderr=output)
    for _ in range(switchovers):
        time.sleep(0.3)
        old, begun = patroni.settled(), time.time()
        switch_over(pooler, patroni)
        gaps.append(outage(old, patroni.settled(), begun))
    bench.wait(seconds + 60)
    output = output_path.read_text()
    (processed,) = re.findall(r"transactions actually processed: (\d+)", output)
    lines = (line.split() for path in pooler.directory.glob("latency.*") for line in path.read_text().splitlines())
    stall = max(int(fields[5]) for fields in lines) / 1e6 - 0.1  # less the script's own pause
    rows = patroni.settled().query("select count(*), count(distinct (client, n)) from counted", "app")
    with capsys.disabled():
        print(f"\n{switchovers} switchovers under 50 clients: {processed} transactions; longest stall {stall:.2f} s, longest time without a primary {max(gaps):.2f} s")
    assert "number of failed transactions: 0" in output and "aborted" not in output, output
    assert rows == [(int(processed), int(processed))]


def outage(old, new, since):
    """How long there was no primary: from when the old one was told to end until the new one accepts writes, by their logs."""

    def moment(member, text):
        lines = [line for line in member.log_path.read_text(errors="replace").splitlines() if text in line]
        stamps = [line.split(" UTC")[0] for line in lines if " UTC" in line]
        times = [time.mktime(time.strptime(stamp.split(".")[0], "%Y-%m-%d %H:%M:%S")) - time.timezone + float(f"0.{stamp.split('.')[1]}") for stamp in stamps]
        return min((at for at in times if at >= since - 0.001), default=None)

    ended, accepts = moment(old, "received fast shutdown request"), moment(new, "archive recovery complete")
    assert ended and accepts, (ended, accepts)
    return accepts - ended


def test_switchover_is_patronis_to_refuse(following, patroni, lying, weir):
    leader = patroni.settled()
    pooler = following()
    host.eventually(lambda: topology(pooler) == "ok")
    with pytest.raises(psycopg.Error, match="Patroni has not switched over: Switchover target and source are the same .400"):
        pooler.console(f"SWITCHOVER app TO {leader.name}")
    with pytest.raises(psycopg.Error, match="no such host of database app: m9"):
        pooler.console("SWITCHOVER app TO m9")
    with pytest.raises(psycopg.Error, match="admin access needed"):
        pooler.console("SWITCHOVER app", user="stats")
    assert patroni.settled() is leader
    api = lying({"members": [member_row("a", 1, "leader"), member_row("b", 2)]})
    pooler = following(api.url.replace("//", "//me:s%3Acret@"))
    host.eventually(lambda: topology(pooler) == "ok")
    with pytest.raises(psycopg.Error, match="there is no such cluster .412"):
        pooler.console("SWITCHOVER app TO 127.0.0.1:2")
    assert api.posts == [("/switchover", "Basic bWU6czpjcmV0", {"leader": "a", "candidate": "b"})]
    assert "s%3Acret" not in pooler.log_text()
    plain = weir(databases={"app": ""})
    with pytest.raises(psycopg.Error, match="database app does not use topology=patroni"):
        plain.console("SWITCHOVER app")


# --- an API with certificates ------------------------------------------------------------------------------------
@pytest.mark.parametrize("server_version", ["18"], scope="session")
def test_an_api_with_a_certificate_is_checked(following, patroni, authorities):
    """By the CA; a planned switchover by such an API is test_planned_switchovers_lose_nothing."""
    leader = patroni.settled()
    pooler = following(root=authorities[1])
    host.eventually(lambda: topology(pooler) == "untrusted")
    words = f"{leader.url}: TLS handshake failed: certificate verify failed: unable to get local issuer certificate"
    remedy = "no members are known, clients of entries without host wait: see that otlp_ca_file has the CA of Patroni's REST API"
    for text in (clusters(pooler)["app"]["topology_detail"], pooler.log_text()):
        assert words in text and remedy in text, text
    waiting = threading.Thread(target=lambda: served.append(pooler.value("select inet_server_port()")))
    served = []
    waiting.start()
    pooler.databases = {"app": patroni.entry(urls=leader.url)}
    host.eventually(lambda: pooler.pool()["cl_waiting"] == 1)
    assert not served
    pooler.reload(otlp_ca_file=patroni.root.cert)
    waiting.join(20)
    assert served == [leader.port]
    host.eventually(lambda: topology(pooler) == "ok")
    # Who may look may not change anything.
    with pytest.raises(psycopg.Error, match="Patroni has not switched over: no auth header received .401"):
        pooler.console("SWITCHOVER app")
    pooler.databases = {"app": patroni.entry(urls=leader.url.replace("//", "//weir:wrong@"))}
    pooler.reload()
    host.eventually(lambda: topology(pooler) == "ok")
    with pytest.raises(psycopg.Error, match="Patroni has not switched over: not authenticated .401"):
        pooler.console("SWITCHOVER app")
    assert patroni.settled() is leader and "wrong@" not in pooler.log_text()


# --- an API that is of no use ---------------------------------------------------------------------------------------
def test_clients_are_served_while_the_api_is_down(following, patroni, lying):
    leader = patroni.settled()
    rows = [member_row(member.name, member.port, "leader" if member is leader else "replica") for member in patroni.members.values()]
    api = lying({"members": rows})
    pooler = following(api.url)
    assert pooler.value("select inet_server_port()") == leader.port
    for broken, state in [({"status": 503}, "unreachable"), ({"answer": "<html>"}, "invalid"), ({"answer": {"members": "all"}}, "invalid")]:
        vars(api).update(broken)
        host.eventually(lambda: topology(pooler) == state)
        pooler.console("RECONNECT")
        assert pooler.value("select inet_server_port()") == leader.port
        vars(api).update(answer={"members": rows}, status=200)
        host.eventually(lambda: topology(pooler) == "ok")
    api.stop()
    host.eventually(lambda: topology(pooler) == "unreachable")
    pooler.reload()
    pooler.console("RECONNECT")
    assert pooler.value("select inet_server_port()") == leader.port
    assert clusters(pooler)["app"]["hosts"] == 3
    pooler.wait_log("the last known members stay: see that", 4)
    assert pooler.log_text().count("the last known members stay") == 4, "one line each time that it begins"
    assert pooler.log_text().count("answers again") == 3
    with pytest.raises(psycopg.Error, match="Patroni does not answer: "):
        pooler.console("SWITCHOVER app")


def test_a_standby_that_is_called_the_leader_gets_no_writes(following, patroni, lying):
    leader = patroni.settled()
    liar = next(member for member in patroni.members.values() if member is not leader)
    rows = [member_row(member.name, member.port, "leader" if member is liar else "replica") for member in patroni.members.values()]
    pooler = following(lying({"members": rows}).url, app="read_write_split=1", primary="target_session_attrs=primary")
    leader.query("create table if not exists lies (a int); grant all on lies to public", "app")
    for database in ("app", "primary"):
        for _ in range(5):
            client = pooler.connect(database)
            client.execute("insert into lies values (1)")
            assert client.execute("insert into lies values (2) returning inet_server_port()").fetchone()[0] == leader.port
            pooler.console(f"RECONNECT {database}")
    host.eventually(lambda: topology(pooler) == "leader is a standby")
    assert "is in recovery" in clusters(pooler)["app"]["topology_detail"]
    assert "cannot execute INSERT in a read-only transaction" not in liar.log_path.read_text(errors="replace")


def test_urls_that_lead_nowhere_are_named(following, patroni):
    nowhere = f"http://127.0.0.1:{host.free_port()}"
    pooler = following(nowhere)
    host.eventually(lambda: topology(pooler) == "unreachable")
    assert nowhere in clusters(pooler)["app"]["topology_detail"]
    pooler.wait_log("see that Patroni runs and its REST API can be reached")
    pooler.databases = {"app": patroni.entry(urls=f"{nowhere},{patroni.urls()}")}
    pooler.reload()
    assert pooler.value("select 1") == 1
    assert topology(pooler) == "ok"


@pytest.mark.parametrize("wrong", ["consul http://h", "patroni", "patroni h:8008", "patroni http://h:8008 http://h"])
def test_what_is_no_topology_is_refused(weir, wrong):
    pooler = weir.prepared(databases={"app": f"topology='{wrong}'"})
    checked = host.run([pooler.program, "check", pooler.ini], check=False)
    assert checked.returncode != 0 and "topology" in checked.stdout + checked.stderr


def test_members_are_known_to_the_process_that_takes_over(following, patroni, lying):
    from test_takeover import reboot

    leader = patroni.settled()
    rows = [member_row(member.name, member.port, "leader" if member is leader else "replica") for member in patroni.members.values()]
    api = lying({"members": rows})
    pooler = following(api.url)
    client = pooler.connect()
    (server,) = client.execute("select pg_backend_pid()").fetchone()
    api.stop()
    host.eventually(lambda: topology(pooler) == "unreachable")
    reboot(pooler)
    # A transaction may get another one, opened because the new process asks this one for what it has to know.
    assert client.execute("select inet_server_port()").fetchone() == (leader.port,)
    host.eventually(lambda: server in [row["remote_pid"] for row in pooler.console("SHOW SERVERS")])  # It was kept.
    assert pooler.value("select inet_server_port()") == leader.port
