"""`queue_priority` and `priority`: in which order clients of several classes are served, on a real PostgreSQL."""

import contextlib
import threading
import time

import pytest
from psycopg.rows import dict_row

import host
from test_fair_queue import Crowd, jain, subjects

pytestmark = pytest.mark.weir_only


class Order:
    """The pool's only server is in a transaction; those that come meanwhile, on one thread, are served one after the other."""

    def __init__(self, pooler):
        self.pooler, self.served, self.threads = pooler, [], []
        self.console = pooler.connect("pgbouncer", "admin", row_factory=dict_row)
        self.holder = pooler.connect(autocommit=False)
        self.holder.execute("select 1")

    def ask(self, *clients):
        """Each is a name, a comment and options; they have logged in before the first of them asks. The seconds between the first and the last."""
        clients = [(name, comment, self.pooler.connect(prepare_threshold=None, **options)) for name, comment, options in clients]
        begun = time.monotonic()
        for one in clients:
            before = len(self.threads)
            self.threads.append(threading.Thread(target=self._run, args=one))
            self.threads[-1].start()
            host.eventually(lambda: self._waiting() == before + 1, interval=0.005)  # noqa: B023
        return time.monotonic() - begun

    def _run(self, name, comment, client):
        with contextlib.closing(client):
            (served_at, _) = client.execute(f"{comment} select clock_timestamp(), pg_sleep(0.02)::text").fetchone()
            self.served.append((served_at, name))

    def _waiting(self):
        return next(row["cl_waiting"] for row in self.console.execute("SHOW POOLS") if row["database"] == "app")

    def finish(self):
        self.holder.commit()
        for thread in self.threads:
            thread.join(30)
        self.holder.close()
        self.console.close()
        return [name for _, name in sorted(self.served)]


def served(pooler, *clients):
    """The names in the order in which the clients are served. A high class is worth one second of waiting: they ask again if a busy machine let as much pass."""
    for _ in range(10):
        order = Order(pooler)
        took = order.ask(*clients)
        names = order.finish()
        if took < 0.8:
            break
    return names


LOW, NORMAL, HIGH = (f"/* weir: priority={name} */" for name in ("low", "normal", "high"))


@pytest.mark.every_version
@pytest.mark.parametrize("setting, expected", [("none", ["low", "plain", "high"]), ("settings", ["low", "plain", "high"]), ("comment", ["high", "plain", "low"])])
def test_comments_count_only_where_the_operator_says_so(weir, setting, expected):
    pooler = weir(databases={"app": "pool_size=1"}, queue_priority=setting, threads=1)
    assert served(pooler, ("low", LOW, {}), ("plain", "", {}), ("high", HIGH, {})) == expected


def test_users_and_entries_have_classes(weir):
    """The clients of one pool log in as themselves; theirs is the class of the pool's user."""
    pooler = weir(databases={"app": "pool_size=1 priority=low queue_priority=comment"}, threads=1)
    assert served(pooler, ("entry", "", {}), ("normal", NORMAL, {})) == ["normal", "entry"]
    pooler.users["alice"] = "priority=high"
    pooler.reload()
    assert served(pooler, ("normal", NORMAL, {}), ("user", "", {})) == ["user", "normal"]


def test_a_session_has_its_own(weir):
    pooler = weir(databases={"app": "pool_size=1"}, queue_priority="comment", session_state="virtual", threads=1)
    assert served(pooler, ("plain", "", {}), ("session", "", {"options": "-c weir.priority=high"})) == ["session", "plain"]


def test_low_clients_are_served_beside_many_high_ones(weir):
    """As if they had come 5 s later: bounded, whatever the others do."""
    pooler = weir(databases={"app": "pool_size=1"}, queue_priority="comment", threads=1)
    with Crowd(pooler, {"high": 10}, "/* weir: priority=high */ select pg_sleep(0.01)", lambda name: {}) as crowd:
        host.eventually(lambda: len(crowd.waits["high"]) > 20, timeout=60)
        with Crowd(pooler, {"low": 1}, "/* weir: priority=low */ select pg_sleep(0.01)", lambda name: {}) as low:
            # One that finds the queue empty, because the machine is busy, is served at once.
            host.eventually(lambda: any(wait > 4 for wait in low.waits["low"]), timeout=60)
    assert not crowd.errors and not low.errors
    assert max(low.waits["low"]) < 20, low.waits


def test_a_subject_gains_nothing_by_calling_itself_high(weir):
    pooler = weir(databases={"app": "pool_size=2"}, queue="fair", queue_by="application_name", queue_priority="comment")
    options = lambda name: {"application_name": name}
    statement = "/* weir: priority=high */ select pg_sleep(0.01)"
    with Crowd(pooler, {"hostile": 40}, statement, options) as hostile, Crowd(pooler, {"good": 10}, "select pg_sleep(0.01)", options) as good:
        host.eventually(lambda: len(good.waits["good"]) > 20, timeout=60)
        before = {name: row["server_time_us"] for name, row in subjects(pooler).items()}
        asked = len(good.waits["good"])
        host.eventually(lambda: len(good.waits["good"]) > asked + 100, timeout=60)
        after = {name: row["server_time_us"] for name, row in subjects(pooler).items()}
    assert not hostile.errors and not good.errors
    assert jain([after[name] - before[name] for name in after]) > 0.95


def test_reload_turns_it_on_while_clients_wait(weir):
    pooler = weir(databases={"app": "pool_size=1"})
    order = Order(pooler)
    order.ask(("first", LOW, {}))
    pooler.reload(queue_priority="comment")
    order.ask(("low", LOW, {}), ("high", HIGH, {}))
    assert order.finish() == ["high", "first", "low"]
