"""A job queue without polling, on asyncpg: workers sleep until a notification wakes them, and take jobs by FOR UPDATE SKIP LOCKED.
check.py URI [PATIENCE] prints what was done and heard, which is the same whichever way it has to PostgreSQL; PATIENCE is how many
seconds it waits for jobs to be done. Started by tests/e2e/test_applications.py.

Two processes of an application share the queue, each with a connection that listens and workers that share a pool. A job that
fails is rolled back and announced again; producers insert in transactions of several jobs, of which some are rolled back."""

import asyncio
import collections
import random
import sys

import asyncpg

PRODUCERS, BATCHES, PROCESSES, WORKERS = 4, 15, 2, 4
SCHEMA = """
drop schema if exists jobs cascade;
create schema jobs;
create table jobs.queue (id bigint generated always as identity, fails integer, done integer default 0);
create function jobs.announce() returns trigger language plpgsql as $$
begin
  perform pg_notify('jobs', new.id::text);
  return null;
end $$;
create trigger announce after insert on jobs.queue for each row execute function jobs.announce();
"""
TAKE = "select id, fails from jobs.queue where done = 0 order by id for update skip locked limit 1"


class Failed(Exception):
    """What the first runs of some jobs end with."""


class Process:
    """One process of the application."""

    def __init__(self, uri, done):
        self.uri, self.done = uri, done
        self.heard = []
        self.wakeups = asyncio.Queue()

    async def start(self):
        self.listener = await asyncpg.connect(self.uri)
        await self.listener.add_listener("jobs", self.hear)
        self.pool = await asyncpg.create_pool(self.uri, min_size=WORKERS, max_size=WORKERS)
        self.workers = [asyncio.create_task(self.work()) for _ in range(WORKERS)]

    def hear(self, _connection, _pid, channel, payload):
        self.heard.append((channel, payload))
        self.wakeups.put_nowait(payload)

    async def work(self):
        """For each notification one look at the queue; the one that another worker has taken is left to it."""
        while True:
            await self.wakeups.get()
            try:
                async with self.pool.acquire() as connection, connection.transaction():
                    job = await connection.fetchrow(TAKE)
                    if job:
                        await self.run(connection, *job)
            except Failed:
                async with self.pool.acquire() as connection:
                    await connection.execute("select pg_notify('jobs', $1)", "again")

    async def run(self, connection, number, fails):
        await connection.execute("update jobs.queue set done = done + 1 where id = $1", number)
        if fails and number not in FAILED:
            FAILED.add(number)
            raise Failed
        self.done.append(number)

    async def stop(self):
        for worker in self.workers:
            worker.cancel()
        await asyncio.gather(*self.workers, return_exceptions=True)
        await self.listener.remove_listener("jobs", self.hear)
        heard = len(self.heard)
        await self.listener.execute("notify jobs, 'after'")
        assert await self.listener.fetchval("select count(*) from pg_listening_channels()") == 0
        assert len(self.heard) == heard
        await self.listener.close()
        await self.pool.close()


FAILED = set()


async def produce(uri, number):
    """Every fifth batch is rolled back: its jobs are never heard of."""
    chance = random.Random(number)
    connection = await asyncpg.connect(uri)
    for batch in range(BATCHES):
        transaction = connection.transaction()
        await transaction.start()
        for _ in range(chance.randint(1, 4)):
            await connection.execute("insert into jobs.queue (fails) values ($1)", int(chance.random() < 0.1))
        await (transaction.rollback() if batch % 5 == 4 else transaction.commit())
    await connection.close()


async def main(uri, patience=60):
    owner = await asyncpg.connect(uri)
    await owner.execute(SCHEMA)
    done = []
    processes = [Process(uri, done) for _ in range(PROCESSES)]
    for process in processes:
        await process.start()
    await asyncio.gather(*(produce(uri, number) for number in range(PRODUCERS)))
    jobs = await owner.fetchval("select count(*) from jobs.queue")
    sent = jobs + await owner.fetchval("select count(*) from jobs.queue where fails > 0")
    left = "select count(*) from jobs.queue where done = 0"
    try:
        async with asyncio.timeout(float(patience)):
            while await owner.fetchval(left) or any(len(process.heard) < sent for process in processes):
                await asyncio.sleep(0.05)
    except TimeoutError:
        sys.exit(f"{len(done)} of {jobs} jobs done, {[len(process.heard) for process in processes]} of {sent} notifications heard")
    heard = [list(process.heard) for process in processes]
    for process in processes:
        await process.stop()
    runs = collections.Counter(done)
    print(f"{len(runs)} of {jobs} jobs done, {max(runs.values())} times at most, {len(FAILED)} after a failure")
    times = collections.Counter(payload for _, payload in heard[0] if payload != "again")
    print(f"{[len(one) for one in heard]} notifications heard of {sent}, of each job {max(times.values())}")
    print("both in the same order:", heard[0] == heard[1])
    await owner.close()


asyncio.run(main(*sys.argv[1:]))
