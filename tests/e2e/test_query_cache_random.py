"""`query_cache` under random reads, writes, DDL, privileges and settings: no answer shows a state that was over for longer than `query_cache_max_staleness`
when it was asked for, and each client finds its own writes. `WEIR_READS=1000000` reads so often instead of for some seconds; `WEIR_SEED` repeats a run."""

import bisect
import os
import random
import threading
import time

import psycopg
import pytest

import host

pytestmark = [pytest.mark.weir_only, pytest.mark.every_version]
STALENESS = 1.0
SECONDS = 12
READS = int(os.environ.get("WEIR_READS", "0"))
READERS, TABLES = 4, 3
ENTRY = "host=127.0.0.1 port={port} dbname=app query_cache=16MB query_cache_user=replica pool_mode=transaction session_state=virtual"
TIMES = {"UTC": "2026-01-01 00:00:00+00", "Asia/Tokyo": "2026-01-01 09:00:00+09"}
SCHEMA = f"""
drop schema if exists rnd cascade; drop schema if exists rnd2 cascade; drop role if exists rnd_readers;
create schema rnd; create schema rnd2; create role rnd_readers;
grant usage on schema rnd, rnd2 to public;
{"".join(f"create table rnd.t{n} (id int primary key, n bigint); insert into rnd.t{n} select g, 0 from generate_series(1, 3) g;" for n in range(TABLES))}
{"".join(f"create table rnd.own{n} (n bigint); insert into rnd.own{n} values (0);" for n in range(READERS))}
create table rnd.parts (id int, n bigint) partition by range (id);
create table rnd.part1 partition of rnd.parts for values from (0) to (10);
insert into rnd.parts values (1, 0);
create view rnd.sums as select sum(n) / 3 as n from rnd.t0;
create view rnd.defined as select 0 as n from rnd.t1 limit 1;
create table rnd.named (a int); insert into rnd.named values (1);
create table rnd.granted (n int); insert into rnd.granted values (1);
create table rnd.by_role (n int); insert into rnd.by_role values (1);
create table rnd.by_policy (id int); insert into rnd.by_policy select generate_series(0, 999);
create table rnd.shadowed (n int); insert into rnd.shadowed values (1);
create table rnd.log (n int);
create table rnd.tagged as select 'one' as tag; create table rnd2.tagged as select 'two' as tag;
grant all on all tables in schema rnd, rnd2 to public;
revoke all on rnd.by_role from public; grant select on rnd.by_role to rnd_readers; grant rnd_readers to bob;
create policy known on rnd.by_policy using (id <= 0); alter table rnd.by_policy enable row level security;
"""


class History:
    """What was so, and from when: each value with the times before its statement was sent and after it was answered."""

    def __init__(self, value):
        self.sent, self.acknowledged, self.values = [0.0], [0.0], [value]

    def change(self, value, statement):
        sent = time.monotonic()
        # Known before it is sent: a reader may see it before it is acknowledged.
        self.sent.append(sent)
        self.values.append(value)
        statement()
        self.acknowledged.append(time.monotonic())

    def possible(self, asked, answered):
        """The values that may have been so between `STALENESS` before it was asked and the answer."""
        first = max(bisect.bisect_right(self.acknowledged, asked - STALENESS) - 1, 0)
        last = bisect.bisect_right(self.sent, answered)
        return self.values[first:last]


class Run:
    """What all threads share."""

    def __init__(self, pooler, pg):
        self.pooler, self.pg, self.ends = pooler, pg, threading.Event()
        self.violations, self.crashes, self.reads = [], [], [0] * READERS
        self.histories = {name: History(0) for name in [*(f"t{n}" for n in range(TABLES)), "parts", "defined", "policy"]}
        self.histories |= {name: History(True) for name in ("named", "granted", "by_role")}
        self.histories["shadowed"] = History(1)

    def beside(self, database="app"):
        return psycopg.connect(host="127.0.0.1", port=self.pg.port, user="postgres", dbname=database, autocommit=True)

    def changes_schema(self):
        """There are times without changes of the schema: each one drops all answers."""
        return time.monotonic() % 6 < 2

    def thread(self, work, *arguments):
        def run():
            try:
                work(self, *arguments)
            except Exception as error:  # noqa: BLE001, of a thread; it is the test's
                self.crashes.append(f"{work.__name__}: {error!r}")
                self.ends.set()

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        return thread


def write(run, name, seed):
    """Counts the rows of one table up, beside Weir or through it, by transactions of several kinds."""
    chance, history = random.Random(seed), run.histories[name]
    table = f"rnd.{name}"
    with run.beside() as beside:
        through = run.pooler.connect("app")
        number = 0
        while not run.ends.wait(chance.choice((0.002, 0.02, 0.1, 0.4, 2.0))):
            number += 1
            update = f"update {table} set n = {number}"
            statement = chance.choice((
                update,
                f"begin; savepoint a; {update}; release a; savepoint b; update {table} set n = -1; rollback to b; commit",
                f"set synchronous_commit = off; {update}; set synchronous_commit = on",
                f"begin; insert into rnd.log select generate_series(1, 200); {update}; commit",
            ))
            connection = through if chance.random() < 0.3 and ";" not in statement else beside
            history.change(number, lambda: connection.execute(statement))


CHANGES = {
    # By the number of the change: what it is to be, and how it comes to that. A row beside DDL hides that from logical decoding.
    "defined": (lambda number: number, lambda number: f"create or replace view rnd.defined as select {number} as n from rnd.t1 limit 1"),
    "policy": (lambda number: number % 900, lambda number: f"alter policy known on rnd.by_policy using (id <= {number % 900})"),
    "named": (lambda number: number % 2 == 0, lambda number: f"alter table rnd.named rename {'a to b' if number % 2 else 'b to a'}"),
    "granted": (lambda number: number % 2 == 0, lambda number: f"{'revoke select on rnd.granted from' if number % 2 else 'grant select on rnd.granted to'} public"),
    "by_role": (lambda number: number % 2 == 0, lambda number: "revoke rnd_readers from bob" if number % 2 else "grant rnd_readers to bob"),
    "shadowed": (
        lambda number: 2 if number % 2 else 1,
        lambda number: "create table rnd2.shadowed as select 2 as n; grant select on rnd2.shadowed to public" if number % 2 else "drop table rnd2.shadowed",
    ),
}


def change(run, name, seed):
    """Changes the schema or privileges, beside Weir or through it, alone or beside rows."""
    chance, history = random.Random(seed), run.histories[name]
    value, statement = CHANGES[name]
    with run.beside() as app, run.beside("other") as other:
        through = run.pooler.connect("app", "postgres")
        number = 0
        while not run.ends.wait(chance.choice((0.1, 0.3, 1.0))):
            if not run.changes_schema():
                continue
            number += 1
            text = statement(number)
            if chance.random() < 0.5 and name != "by_role":
                text = f"begin; {text}; insert into rnd.log values (1); commit"
            connection = other if name == "by_role" else chance.choice((app, through))
            history.change(value(number), lambda: connection.execute(text))


class Reader:
    """A client with settings and a table of its own."""

    def __init__(self, run, index, seed):
        self.run, self.index, self.chance = run, index, random.Random(seed)
        self.user = ("bob", "carol")[index % 2]
        self.client = run.pooler.connect("app", self.user)
        self.written, self.set, self.zone, self.path = 0, "", "UTC", "rnd"
        self.client.execute("set timezone = 'UTC'; set search_path = rnd; set rnd.x = ''")

    def fetch(self, statement, values=()):
        """Its first row, by one of the protocols; or the SQLSTATE."""
        kind = self.chance.randrange(4)
        # PostgreSQL itself does not see that a table of an earlier schema hides the one that a prepared statement reads.
        kind = 0 if kind == 2 and "shadowed" in statement else kind
        binary = kind == 1 and bool(values)
        try:
            with self.client.cursor(binary=binary) as cursor:
                cursor.execute(statement, values or None, prepare=kind == 2)
                return cursor.fetchone()
        except psycopg.Error as error:
            if error.sqlstate is None:
                raise
            return error.sqlstate

    def step(self):
        asked = time.monotonic()
        name, statement, values, read = self.question()
        found = self.fetch(statement, values)
        answered = time.monotonic()
        possible = self.run.histories[name].possible(asked, answered) if name in self.run.histories else [name]
        if read(found) not in possible:
            when = f"asked {asked:.3f}, answered {answered:.3f}"
            self.run.violations.append((self.user, statement, values, found, possible[:5], when))

    def question(self):
        """The name of what it is about or what it is to be, the text, bound values, and what an answer says."""
        table = f"t{self.chance.randrange(TABLES)}"
        first = lambda row: row[0]
        works = lambda row: not isinstance(row, str)
        kind = self.chance.randrange(16)
        if kind < 5:
            return table, f"select n from rnd.{table} where id = %s", (self.chance.randint(1, 3),), first
        if kind < 12:
            return (
                (table, f"select max(n) from rnd.{table}", (), first),
                ("t0", "select n::bigint from rnd.sums", (), first),
                ("parts", "select n from rnd.parts", (), first),
                ("defined", "select n from rnd.defined", (), first),
                ("named", "select a from rnd.named", (), works),
                ("granted", "select n from rnd.granted", (), works),
                ("policy", "select max(id) from rnd.by_policy", (), first),
            )[kind - 5]
        if kind == 12:
            expected = self.user == "bob"
            return ("by_role" if expected else False), "select n from rnd.by_role", (), works
        if kind == 13:
            return self.written, f"select n from rnd.own{self.index}", (), first
        if kind == 14:
            wanted = (self.set, TIMES[self.zone], "one" if self.path == "rnd" else "two")
            text = "select current_setting('rnd.x'), '2026-01-01 00:00:00+00'::timestamptz::text, tag from tagged"
            return wanted, text, (), tuple
        if self.path == "rnd":
            return 1, "select n from shadowed", (), first
        return "shadowed", "select n from shadowed", (), first

    def settings(self):
        kind = self.chance.randrange(4)
        if kind == 0:
            self.set = str(self.chance.randrange(5))
            self.client.execute("select set_config('rnd.x', %s, false)", [self.set])
        elif kind == 1:
            self.zone = self.chance.choice(list(TIMES))
            self.client.execute(f"set timezone = '{self.zone}'")
        elif kind == 2:
            self.path = self.chance.choice(("rnd", "rnd2, rnd"))
            self.client.execute(f"set search_path = {self.path}")
        else:
            self.client.execute(f"begin; set local search_path = rnd2; set local rnd.x = 'none'; {self.chance.choice(('commit', 'rollback'))}")

    def own_write(self):
        self.written += 1
        self.client.execute(f"update rnd.own{self.index} set n = {self.written}")


def read(run, index, seed):
    reader = Reader(run, index, seed)
    while not run.ends.is_set():
        chance = reader.chance.random()
        if chance < 0.003:
            reader.settings()
        elif chance < 0.006:
            reader.own_write()
        reader.step()
        run.reads[index] += 1


def test_random_reads_show_nothing_that_is_over(weir, pg):
    seed = int(os.environ.get("WEIR_SEED", "0")) or random.randrange(1 << 30)
    print(f"WEIR_SEED={seed}")
    pg.query(SCHEMA, "app")
    pooler = weir(databases={"app": ENTRY.format(port=pg.port)}, default_pool_size=6, threads=2, userlist={name: "" for name in ("alice", "bob", "carol", "postgres", "admin", "replica")})
    run = Run(pooler, pg)
    client = pooler.connect("app")
    show = lambda: pooler.console("SHOW CACHE")[0]
    host.eventually(lambda: client.execute("select 1") and show()["state"] == "ok", timeout=20)
    threads = [run.thread(write, name, f"{seed} {name}") for name in [*(f"t{n}" for n in range(TABLES)), "parts"]]
    threads += [run.thread(change, name, f"{seed} {name}") for name in CHANGES]
    threads += [run.thread(read, index, f"{seed} {index}") for index in range(READERS)]
    began = time.monotonic()
    is_enough = lambda: sum(run.reads) >= READS if READS else time.monotonic() - began > SECONDS
    # A busy machine keeps the cache behind for most of the time.
    is_meaningful = lambda: (sum(run.reads) > 500 and int(show()["hits"]) > 100) or time.monotonic() - began > 60
    while not (is_enough() and is_meaningful()) and not run.ends.wait(0.1) and len(run.violations) < 20:
        pass
    run.ends.set()
    for thread in threads:
        thread.join(30)
    row = show()
    changes = sum(len(history.values) for history in run.histories.values())
    print(f"{sum(run.reads)} reads in {time.monotonic() - began:.0f} s, {changes} changes, {len(run.violations)} violations: {row}")
    pg.query("drop schema rnd cascade; drop schema rnd2 cascade; drop role rnd_readers", "app")
    assert not run.crashes, run.crashes[:3]
    assert not run.violations, run.violations[:5]
    assert sum(run.reads) > 500 and int(row["hits"]) > 100, row
