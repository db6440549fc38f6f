"""Row-level security by a setting for each request, on psycopg: check.py URI prints how many rows of whom its requests saw, which
is the same whichever way it has to PostgreSQL. Started by tests/e2e/test_applications.py.

A request names its tenant for the session, for its transaction, or forgets to: it then has the tenant of its connection's last
request that did, and without one it sees nothing. Requests are drawn by a seed, so that each run of a thread is the same."""

import collections
import random
import sys
import threading

import psycopg

TENANTS, THREADS, REQUESTS = 7, 12, 60
SCHEMA = """
drop schema if exists tenants cascade;
create schema tenants;
create table tenants.invoice (number integer generated always as identity, tenant integer not null);
alter table tenants.invoice enable row level security;
alter table tenants.invoice force row level security;
create policy own on tenants.invoice using (tenant = nullif(current_setting('app.tenant', true), '')::integer);
"""
WHOSE = "select tenant, count(*) from tenants.invoice group by tenant"
SESSION = "select set_config('app.tenant', %s, false)"
TRANSACTION = "select set_config('app.tenant', %s, true)"


class Thread(threading.Thread):
    """One worker of the application, with a connection that it changes now and then."""

    def __init__(self, uri, number):
        super().__init__()
        self.uri, self.chance = uri, random.Random(number)
        self.seen = collections.Counter()
        self.failure = None

    def run(self):
        try:
            self.connect()
            for _ in range(REQUESTS):
                self.request()
            self.connection.close()
        except BaseException as failure:  # told when all have ended
            self.failure = failure

    def connect(self):
        self.connection = psycopg.connect(self.uri, autocommit=True, prepare_threshold=self.chance.choice([0, 5, None]))
        self.tenant = None
        self.look("a new connection")

    def request(self):
        tenant = self.chance.randrange(TENANTS)
        kind = self.chance.choice(["session", "session", "transaction", "rolled back", "failed", "forgotten", "reset", "new"])
        if kind == "session":
            self.connection.execute(SESSION, [str(tenant)])
            self.tenant = tenant
        elif kind == "transaction":
            with self.connection.transaction():
                self.connection.execute(TRANSACTION, [str(tenant)])
                self.look(kind, tenant)
                with self.connection.transaction(force_rollback=True):
                    self.connection.execute(TRANSACTION, [str((tenant + 1) % TENANTS)])
                    self.look(kind, (tenant + 1) % TENANTS)
                self.look(kind, tenant)
        elif kind == "rolled back":
            with self.connection.transaction(force_rollback=True):
                self.connection.execute(SESSION, [str(tenant)])
                self.look(kind, tenant)
        elif kind == "failed":
            self.fail(tenant)
        elif kind == "reset":
            self.connection.execute(self.chance.choice(["RESET app.tenant", "RESET ALL", "DISCARD ALL", "SET app.tenant = ''"]))
            self.tenant = None
        elif kind == "new":
            self.connection.close()
            self.connect()
        self.look(kind)

    def fail(self, tenant):
        """A row of another tenant is refused, and the transaction with it."""
        try:
            with self.connection.transaction():
                self.connection.execute(SESSION, [str(tenant)])
                self.connection.execute("insert into tenants.invoice (tenant) values (%s)", [tenant + 1])
        except psycopg.errors.InsufficientPrivilege:
            self.seen["refused"] += 1

    def look(self, kind, tenant=None):
        """Only the rows of the one whose turn it is."""
        tenant = self.tenant if tenant is None else tenant
        rows = self.connection.execute(WHOSE).fetchall()
        wanted = [] if tenant is None else [(tenant, tenant + 1)]
        assert rows == wanted, f"{kind}: {rows} instead of {wanted}"
        self.seen[kind] += 1
        self.seen["rows"] += sum(count for _, count in rows)


def main(uri):
    with psycopg.connect(uri, autocommit=True) as owner:
        owner.execute(SCHEMA)
        for tenant in range(TENANTS):
            with owner.transaction():
                owner.execute(TRANSACTION, [str(tenant)])
                owner.execute("insert into tenants.invoice (tenant) select %s from generate_series(0, %s)", [tenant, tenant])
    threads = [Thread(uri, number) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for thread in threads:
        if thread.failure:
            raise thread.failure
        print(*sorted(thread.seen.items()))


main(*sys.argv[1:])
