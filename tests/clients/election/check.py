"""The election of a leader by an advisory lock of the session, on psycopg: check.py URI prints what came of it, which is the same
whichever way it has to PostgreSQL. Started by tests/e2e/test_applications.py.

Candidates try the lock again and again. The one that gets it leads for a while; then it unlocks, closes its connection, or
dies: its server process is terminated, and what it asks next fails."""

import collections
import random
import sys
import threading
import time

import psycopg

CANDIDATES, TERMS, KEY = 10, 18, 4711
ENDS = ["unlocks", "disconnects", "dies"]
HELD = "select count(*) from pg_locks where locktype = 'advisory' and objid = %s and granted"


class Office:
    """What the candidates know of each other without PostgreSQL: whether there ever were two leaders."""

    def __init__(self):
        self.lock = threading.Lock()
        self.leaders, self.terms, self.overlaps = set(), 0, 0
        self.ends = collections.Counter()
        self.led = set()

    def enter(self, name):
        """The number of the term, or None when there have been enough."""
        with self.lock:
            self.overlaps += bool(self.leaders)
            self.leaders.add(name)
            self.led.add(name)
            self.terms += 1
            return self.terms - 1

    def leave(self, name):
        with self.lock:
            self.leaders.discard(name)

    def is_over(self):
        return self.terms >= TERMS


class Candidate(threading.Thread):
    def __init__(self, uri, office, number):
        super().__init__()
        self.uri, self.office, self.number = uri, office, number
        self.chance = random.Random(number)
        self.failure = None

    def run(self):
        try:
            self.connection = self.connect()
            while not self.office.is_over():
                if self.value("select pg_try_advisory_lock(%s)", KEY):
                    self.lead()
                time.sleep(self.chance.random() / 20)
            self.connection.close()
        except BaseException as failure:  # told when all have ended
            self.failure = failure
            self.office.terms = TERMS

    def connect(self):
        return psycopg.connect(self.uri, autocommit=True)

    def value(self, question, *values):
        return self.connection.execute(question, values).fetchone()[0]

    def lead(self):
        """A leader holds the only lock there is, in every transaction of its term."""
        term = self.office.enter(self.number)
        for _ in range(3):
            with self.connection.transaction():
                self.connection.execute("update election.state set term = greatest(term, %s)", [term + 1])
            held = self.value(HELD, KEY)
            assert held == 1, f"{held} locks are held"
            time.sleep(0.005)
        end = ENDS[term % len(ENDS)]
        self.office.ends[getattr(self, end)()] += 1

    def unlocks(self):
        self.office.leave(self.number)
        unlocked = self.value("select pg_advisory_unlock(%s)", KEY)
        return f"unlocked: {unlocked}"

    def disconnects(self):
        self.office.leave(self.number)
        self.connection.close()
        self.connection = self.connect()
        return "disconnected"

    def dies(self):
        process = self.value("select pg_backend_pid()")
        self.office.leave(self.number)
        with self.connect() as other:
            other.execute("select pg_terminate_backend(%s)", [process])
        try:
            while True:  # the signal is on its way
                self.connection.execute("select 1")
                time.sleep(0.01)
        except psycopg.OperationalError as error:
            end = f"{error.sqlstate} {self.connection.closed}"
        self.connection = self.connect()
        return end


def main(uri):
    with psycopg.connect(uri, autocommit=True) as owner:
        owner.execute("drop schema if exists election cascade")
        owner.execute("create schema election")
        owner.execute("create table election.state (term integer)")
        owner.execute("insert into election.state values (0)")
    office = Office()
    candidates = [Candidate(uri, office, number) for number in range(CANDIDATES)]
    for candidate in candidates:
        candidate.start()
    for candidate in candidates:
        candidate.join()
    for candidate in candidates:
        if candidate.failure:
            raise candidate.failure
    with psycopg.connect(uri, autocommit=True) as owner:
        assert owner.execute("select term from election.state").fetchone()[0] >= TERMS
        while owner.execute(HELD, [KEY]).fetchone()[0]:  # a server process ends a moment after its client
            time.sleep(0.05)
    assert len(office.led) > 1, "the same one every time"
    print(f"overlaps: {office.overlaps}")
    first = {end: min(count, TERMS // len(ENDS)) for end, count in office.ends.items()}  # two may end the last one at once
    print(first)


main(*sys.argv[1:])
