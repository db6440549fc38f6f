"""Queries that run for as long as a test wants, and how they are cancelled. Knows PostgreSQL only: a pooler that says
that a server is taken has passed the query on, and PostgreSQL drops a cancel that comes before it has begun one."""

import concurrent.futures

import psycopg
import pytest

import host

SLEEP = "select pg_sleep(60)"


def wait_until_runs(pg, count=1, statement=SLEEP):
    """Waits until PostgreSQL runs this statement in that many sessions: from then on a cancel meets it."""
    host.eventually(lambda: how_many_run(pg, statement) == count)


def how_many_run(pg, statement=SLEEP):
    return pg.value(f"select count(*) from pg_stat_activity where state = 'active' and query = '{statement}' and usename <> 'postgres'")


def cancel_by_psycopg(pg, client):
    """Cancels what this client runs, by the library's own means."""
    with concurrent.futures.ThreadPoolExecutor(1) as worker:
        asleep = worker.submit(client.execute, SLEEP)
        wait_until_runs(pg)
        client.cancel_safe(timeout=30)
        with pytest.raises(psycopg.errors.QueryCanceled, match="due to user request"):
            asleep.result(30)


class Latch:
    """`with Latch(pg) as latch`: a query `Latch.QUERY` runs until `latch.open()`, however long that takes."""

    QUERY = "select pg_advisory_xact_lock_shared(4711)"

    def __init__(self, pg, database="app"):
        self.pg = pg
        address = {"host": "127.0.0.1", "port": pg.port, "user": "postgres", "dbname": database}
        self.holder = psycopg.connect(**address, autocommit=True, connect_timeout=60)
        self.holder.execute("select pg_advisory_lock(4711)")

    def __enter__(self):
        return self

    def __exit__(self, *failure):
        self.holder.close()

    def wait_for(self, count=1):
        """Waits until that many sessions wait before it."""
        host.eventually(lambda: self.pg.count("wait_event_type = 'Lock' and wait_event = 'advisory'") == count)

    def open(self):
        self.holder.execute("select pg_advisory_unlock(4711)")
