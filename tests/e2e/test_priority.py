"""`queue_priority` and `priority`: in which order clients of several classes are served, on a real PostgreSQL."""

import contextlib
import threading

import pytest

import host
from test_fair_queue import Crowd, jain, subjects

pytestmark = pytest.mark.weir_only


class Order:
    """The pool's only server is in a transaction; those that come meanwhile, on one thread, are served one after the other."""

    def __init__(self, pooler):
        self.pooler, self.served, self.threads = pooler, [], []
        self.holder = pooler.connect(autocommit=False)
        self.holder.execute("select 1")

    def ask(self, name, comment="", **options):
        client = self.pooler.connect(prepare_threshold=None, **options)

        def run():
            with contextlib.closing(client):
                (served_at, _) = client.execute(f"{comment} select clock_timestamp(), pg_sleep(0.02)::text").fetchone()
                self.served.append((served_at, name))

        before = self.pooler.pool()["cl_waiting"]
        self.threads.append(threading.Thread(target=run))
        self.threads[-1].start()
        host.eventually(lambda: self.pooler.pool()["cl_waiting"] == before + 1)

    def finish(self):
        self.holder.commit()
        for thread in self.threads:
            thread.join(30)
        self.holder.close()
        return [name for _, name in sorted(self.served)]


CLASSES = [("low", "/* weir: priority=low */"), ("plain", ""), ("high", "/* weir: priority=high */")]


@pytest.mark.every_version
@pytest.mark.parametrize("setting, expected", [("none", ["low", "plain", "high"]), ("settings", ["low", "plain", "high"]), ("comment", ["high", "plain", "low"])])
def test_comments_count_only_where_the_operator_says_so(weir, setting, expected):
    order = Order(weir(databases={"app": "pool_size=1"}, queue_priority=setting, threads=1))
    for name, comment in CLASSES:
        order.ask(name, comment)
    assert order.finish() == expected


def test_users_and_entries_have_classes(weir):
    """The clients of one pool log in as themselves; theirs is the class of the pool's user."""
    pooler = weir(databases={"app": "pool_size=1 priority=low queue_priority=comment"}, threads=1)
    order = Order(pooler)
    order.ask("entry")
    order.ask("normal", "/* weir: priority=normal */")
    assert order.finish() == ["normal", "entry"]
    pooler.users["alice"] = "priority=high"
    pooler.reload()
    order = Order(pooler)
    order.ask("normal", "/* weir: priority=normal */")
    order.ask("user")
    assert order.finish() == ["user", "normal"]


def test_a_session_has_its_own(weir):
    pooler = weir(databases={"app": "pool_size=1"}, queue_priority="comment", session_state="virtual", threads=1)
    order = Order(pooler)
    order.ask("plain")
    order.ask("session", options="-c weir.priority=high")
    assert order.finish() == ["session", "plain"]


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
    order.ask("first", "/* weir: priority=low */")
    pooler.reload(queue_priority="comment")
    order.ask("low", "/* weir: priority=low */")
    order.ask("high", "/* weir: priority=high */")
    assert order.finish() == ["high", "first", "low"]
