"""`queue = fair`: what subjects get of the servers' time while they wait for each other, on a real PostgreSQL."""

import contextlib
import random
import threading
import time

import psycopg
import pytest

import browser
import host
import panel
from test_takeover import reboot

pytestmark = pytest.mark.weir_only

SHORT = "select pg_sleep(0.01)"


def subjects(pooler):
    return {row["subject"]: row for row in pooler.console("SHOW QUEUES") if row["database"] == "app"}


@pytest.fixture
def tenants(weir):
    """A pool with few servers, whose clients log in as themselves and use one role."""
    names = ["heavy", *(f"tenant{number}" for number in range(4))]

    def start(entry="", **settings):
        databases = {"app": f"user=alice pool_size=3 {entry}"}
        return weir(databases=databases, userlist=dict.fromkeys(["alice", "admin", "stats", *names], ""), **settings)

    return start


class Crowd:
    """Clients that ask one after the other until it ends: so many of each user, or with further options of their own."""

    def __init__(self, pooler, counts, statement=SHORT, options=lambda name: {"user": name}):
        self.ends, self.waits, self.errors = threading.Event(), {name: [] for name in counts}, []
        everyone = [name for name, count in counts.items() for _ in range(count)]
        random.Random(7).shuffle(everyone)
        self.threads = [threading.Thread(target=self._ask, args=(pooler, name, statement, options(name))) for name in everyone]
        for thread in self.threads:
            thread.start()

    def _ask(self, pooler, name, statement, options):
        try:
            with contextlib.closing(pooler.connect(**options)) as client:
                while not self.ends.is_set():
                    began = time.monotonic()
                    client.execute(statement)
                    self.waits[name].append(time.monotonic() - began)
        except psycopg.Error as error:
            self.errors.append((name, str(error)))

    def __enter__(self):
        return self

    def __exit__(self, *failure):
        self.ends.set()
        for thread in self.threads:
            thread.join(60)


def had(pooler, counts, seconds=3, **more):
    """Server time that each has had within so long, once all of them ask."""
    with Crowd(pooler, counts, **more) as crowd:
        host.eventually(lambda: all(crowd.waits.values()), timeout=60)
        before = {name: row["server_time_us"] for name, row in subjects(pooler).items()}
        began = {name: len(waits) for name, waits in crowd.waits.items()}
        time.sleep(seconds)
        after = {name: row["server_time_us"] for name, row in subjects(pooler).items()}
        ended = {name: len(waits) for name, waits in crowd.waits.items()}
    assert not crowd.errors
    return {name: after[name] - before[name] for name in after}, {name: ended[name] - began[name] for name in ended}


def jain(shares):
    return sum(shares) ** 2 / (len(shares) * sum(share * share for share in shares))


COUNTS = {"heavy": 40, **{f"tenant{number}": 3 for number in range(4)}}


@pytest.mark.every_version
def test_who_comes_with_many_clients_gets_no_more_than_others(tenants):
    pooler = tenants(queue="fair")
    time_us, _ = had(pooler, COUNTS)
    assert set(time_us) == set(COUNTS)
    assert jain(time_us.values()) > 0.95, time_us
    assert all(row["queue_by"] == "user" and row["weight"] == 1 for row in subjects(pooler).values())


def test_first_come_first_served_gives_it_nearly_all(tenants):
    """What the other test shows is the queue's doing."""
    pooler = tenants()
    _, asked = had(pooler, COUNTS)
    assert subjects(pooler) == {}
    assert jain(asked.values()) < 0.6 and asked["heavy"] > sum(asked.values()) / 2, asked


def test_weights_divide_the_time(tenants):
    pooler = tenants(entry="queue_weights='heavy=3,tenant0=1'", queue="fair")
    time_us, _ = had(pooler, {"heavy": 12, "tenant0": 12})
    assert 2.5 < time_us["heavy"] / time_us["tenant0"] < 3.5, time_us
    assert {name: row["weight"] for name, row in subjects(pooler).items()} in ({}, {"heavy": 3, "tenant0": 1})


@pytest.mark.parametrize("burst, most, least", [(2, 4, 0), (0, 99, 6)])
def test_who_was_away_has_something_in_hand(weir, burst, most, least):
    """Of one server: what the one that was always there is given while the other comes ten times."""
    pooler = weir(databases={"app": "pool_size=1"}, queue="fair", queue_by="application_name", queue_burst=burst)
    options = lambda name: {"application_name": name}
    statement = "select pg_sleep(0.05)"
    with Crowd(pooler, {"there": 8}, statement, options) as crowd:
        host.eventually(lambda: subjects(pooler).get("there", {"server_time_us": 0})["server_time_us"] > 2_500_000, timeout=60)
        with Crowd(pooler, {"away": 8}, statement, options) as others:
            host.eventually(lambda: len(others.waits["away"]) >= 8, timeout=30)  # all of them have come
            before, begun = len(crowd.waits["there"]), len(others.waits["away"])
            host.eventually(lambda: len(others.waits["away"]) >= begun + 10, timeout=30)
            given = len(crowd.waits["there"]) - before
    assert not crowd.errors and not others.errors
    assert least <= given <= most


def test_long_turns_cost_more(weir):
    """The one asks for ten times as long each time, and gets its turn ten times less often."""
    pooler = weir(databases={"app": "pool_size=2"}, queue="fair", queue_by="application_name")
    statement = "select pg_sleep(case current_setting('application_name') when 'long' then 0.5 else 0.05 end)"
    options = lambda name: {"application_name": name}
    time_us, asked = had(pooler, {"long": 6, "short": 6}, statement=statement, options=options, seconds=8)
    assert jain(time_us.values()) > 0.95, time_us
    assert asked["short"] > 5 * asked["long"], asked


def test_a_client_that_takes_another_name_is_another_subject(weir):
    pooler = weir(databases={"app": "pool_size=1"}, queue="fair", queue_by="application_name")
    client = pooler.connect(application_name="first")
    client.execute("select pg_sleep(0.1)")
    client.execute("set application_name = 'second'")
    client.execute("select pg_sleep(0.2)")
    row = subjects(pooler)
    assert set(row) == {"second"} and row["second"]["server_time_us"] >= 200_000 and row["second"]["turns"] == 1
    other = pooler.connect(application_name="first")
    other.execute("select 1")
    assert subjects(pooler)["first"]["turns"] >= 3, "what it has had before is remembered while others of it come"


def test_addresses_are_subjects(weir):
    pooler = weir(queue="fair", queue_by="client_addr")
    clients = [pooler.connect(), pooler.connect(host=str(pooler.directory))]
    for client in clients:
        client.execute("select 1")
    assert set(subjects(pooler)) == {"127.0.0.1", "local"}


@pytest.mark.parametrize("name", ['a"b\\c', "a\nb", "d\u00e9j\u00e0 vu", "x" * 5_000, "", "{}", "'; drop table t; --"])
def test_subjects_may_have_any_name(weir, name):
    pooler, web = panel.start(weir, queue="fair", queue_by="application_name")
    clients = [pooler.connect(application_name=name) for _ in range(2)]
    for client in 2 * clients:
        shown = client.execute("select current_setting('application_name')").fetchone()[0]
    (row,) = subjects(pooler).values()
    turns = 4 if shown == name else 2  # What PostgreSQL makes of the name is known with its first answer.
    assert row["subject"] == shown and row["turns"] == turns
    _, text, _ = web.ask("GET", "/metrics")
    label = shown.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    assert f'weir_queue_turns_total{{database="app",user="alice",host="",queue_by="application_name",subject="{label}"}} {turns}\n' in text


def test_an_entry_has_its_own(weir):
    pooler = weir(databases={"app": "queue=fair queue_by=application_name queue_burst=0.5", "other": ""}, queue_by="client_addr")
    clients = [pooler.connect(database, application_name="named") for database in ("app", "other")]
    for client in clients:
        client.execute("select 1")
    shown = lambda: [(row["database"], row["queue_by"], row["subject"]) for row in pooler.console("SHOW QUEUES")]
    assert shown() == [("app", "application_name", "named")]
    pooler.databases["other"] = "queue=fair"
    pooler.reload()
    for client in clients:
        client.execute("select 1")
    assert shown() == [("app", "application_name", "named"), ("other", "client_addr", "127.0.0.1")]


def test_waiting_clients_are_shown_here_and_in_metrics(weir):
    pooler, web = panel.start(weir, databases={"app": "pool_size=1"}, queue="fair")
    holder = pooler.connect(autocommit=False)
    holder.execute("select 1")
    others = [pooler.connect() for _ in range(2)]
    threads = [threading.Thread(target=other.execute, args=("select 2",)) for other in others]
    for thread in threads:
        thread.start()
    host.eventually(lambda: subjects(pooler)["alice"]["waiting"] == 2)
    row = subjects(pooler)["alice"]
    assert row["active"] == 1 and row["maxwait_us"] > 0
    _, text, _ = web.ask("GET", "/metrics")
    label = 'database="app",user="alice",host="",queue_by="user",subject="alice"'
    assert f"weir_queue_waiting{{{label}}} 2" in text and f"weir_queue_active{{{label}}} 1" in text
    holder.commit()
    for thread in threads:
        thread.join(30)
    assert subjects(pooler)["alice"]["turns"] == 3
    assert f"weir_queue_turns_total{{{label}}} 3" in web.ask("GET", "/metrics")[1]


def test_the_panel_has_subjects(weir):
    pooler, web = panel.start(weir, databases={"app": "queue=fair queue_by=application_name queue_weights='heavy=3'", "other": ""})
    clients = [pooler.connect(application_name=name) for name in ("heavy", "light")]
    for client in clients:
        client.execute("select pg_sleep(0.05)")
    answer = web.get("/api/v1/queues?database=app")
    assert answer["total"] == 2
    heavy, light = sorted(answer["subjects"], key=lambda row: row["subject"])
    assert (heavy["weight"], heavy["turns"], heavy["waiting"], heavy["active"], heavy["queue_by"], heavy["host"]) == (3, 1, 0, 0, "application_name", None)
    assert (light["subject"], light["weight"]) == ("light", 1) and 0.05 <= light["server_time_seconds"] < 5
    assert web.get("/api/v1/queues?database=other") == {"subjects": [], "total": 0}
    assert web.ask("GET", "/api/v1/queues", token=None)[0] == 401


@pytest.mark.parametrize("io_driver", ["epoll"])
def test_the_panel_shows_the_queue_in_a_browser(weir, scratch):
    pooler, web = panel.start(weir, databases={"app": "pool_size=1 queue=fair queue_by=application_name", "other": ""})
    holder = pooler.connect(application_name="heavy", autocommit=False)
    holder.execute("select pg_sleep(0.2)")
    holder.commit()
    threads = []

    def wait():
        holder.execute("select 1")
        clients = [pooler.connect(application_name="light") for _ in range(2)]
        threads.extend(threading.Thread(target=client.execute, args=("select 2",)) for client in clients)
        for thread in threads:
            thread.start()

    browser.play("queue", web, scratch, {"wait": wait, "serve": holder.commit}, token=web.token)
    for thread in threads:
        thread.join(30)


def test_the_order_changes_by_reload_while_clients_wait(tenants):
    pooler = tenants(queue="fair")
    with Crowd(pooler, COUNTS) as crowd:
        host.eventually(lambda: all(crowd.waits.values()), timeout=60)
        for order in ("fifo", "fair", "fifo", "fair"):
            pooler.reload(queue=order)
            asked = {name: len(waits) for name, waits in crowd.waits.items()}
            host.eventually(lambda asked=asked: all(len(crowd.waits[name]) > asked[name] for name in asked), timeout=30)
    assert not crowd.errors


def test_a_takeover_keeps_the_queue_fair(tenants):
    pooler = tenants(queue="fair")
    with Crowd(pooler, COUNTS) as crowd:
        host.eventually(lambda: all(crowd.waits.values()), timeout=60)
        reboot(pooler)
        host.eventually(lambda: set(subjects(pooler)) == set(COUNTS), timeout=30)
        before = {name: row["server_time_us"] for name, row in subjects(pooler).items()}
        time.sleep(3)
        after = {name: row["server_time_us"] for name, row in subjects(pooler).items()}
    assert not crowd.errors
    assert jain([after[name] - before[name] for name in COUNTS]) > 0.9


def test_what_cannot_be_is_refused_with_its_line(weir):
    pooler = weir()
    for entry, fault in (
        ("queue=lifo", "is not one of fifo, fair"),
        ("queue=fair queue_by=host", "is not one of user, application_name, client_addr"),
        ("queue=fair queue_weights='alice'", "is not a list like alice=3,bob=2"),
        ("queue=fair queue_weights='alice=0'", "is not between 1 and 1000"),
        ("queue_burst=soon", "is not a time in seconds"),
    ):
        ini = pooler.directory / "wrong.ini"
        ini.write_text(f"[databases]\napp = host=127.0.0.1 {entry}\n")
        done = host.run([pooler.program, "check", ini], check=False)
        assert done.returncode != 0 and fault in done.stdout + done.stderr and "wrong.ini:2" in done.stdout + done.stderr, done
