"""Runs one scenario of asyncpg against a pooler and exits with 0 where all was right: check.py SCENARIO URI.

asyncpg names and caches every statement, and pipelines in executemany. Started by tests/e2e/test_drivers.py, which also
starts the pooler; --list names the scenarios."""

import asyncio
import io
import sys

import asyncpg

SCENARIOS = ["simple", "prepared", "transactions", "failures", "copy", "cancel", "crowd", "large", "notices", "parameters", "console"]


async def simple(uri):
    one = await asyncpg.connect(uri)
    for number in range(50):
        assert await one.execute(f"select {number}") == "SELECT 1"
    await one.execute("select 1; select 2; select 3")
    await one.close()


async def prepared(uri):
    one, two = await asyncpg.connect(uri), await asyncpg.connect(uri)
    statement = await one.prepare("select $1::int4 * 2, $2::text")
    for number in range(100):
        assert tuple(await statement.fetchrow(number, "ü")) == (number * 2, "ü")
        assert await two.fetchval("select $1::text || '!'", "ü") == "ü!"
    few = await asyncpg.connect(uri, statement_cache_size=5)
    for turn in range(3):
        for number in range(30):
            assert await few.fetchval(f"select $1::int4 + {number}", turn) == turn + number
    none = await asyncpg.connect(uri, statement_cache_size=0)
    for number in range(30):
        assert await none.fetchval("select $1::int4", number) == number
    for connection in (one, two, few, none):
        await connection.close()


async def transactions(uri):
    one, two = await asyncpg.connect(uri), await asyncpg.connect(uri)
    await one.execute("drop table if exists asyncpg_kept; create table asyncpg_kept (number int4)")
    begun = one.transaction()
    await begun.start()
    await one.execute("insert into asyncpg_kept values ($1)", 0)
    await begun.rollback()
    async with one.transaction():
        await one.execute("insert into asyncpg_kept values ($1)", 1)
        inner = one.transaction()  # a savepoint
        await inner.start()
        await one.execute("insert into asyncpg_kept values (99)")
        await inner.rollback()
    assert [row["number"] for row in await two.fetch("select * from asyncpg_kept")] == [1]
    await one.close()
    await two.close()


async def failures(uri):
    one = await asyncpg.connect(uri)
    await one.execute("drop table if exists asyncpg_unique; create table asyncpg_unique (number int4 unique)")
    for turn in range(20):
        await refused(asyncpg.DivisionByZeroError, one.fetchval("select 100 / $1::int4", 0))
        rows = [(number,) for number in (1, 2, 1, 3)]
        insert = "insert into asyncpg_unique values ($1)"
        await refused(asyncpg.UniqueViolationError, one.executemany(insert, rows))
        assert await one.fetchval("select count(*) from asyncpg_unique") == 0
        assert await one.fetchval("select $1::int4", turn) == turn
    await refused(asyncpg.UndefinedTableError, one.fetch("select nonsense from nowhere"))
    begun = one.transaction()
    await begun.start()
    await refused(asyncpg.DivisionByZeroError, one.fetchval("select 100 / $1::int4", 0))
    await refused(asyncpg.InFailedSQLTransactionError, one.execute("select 1"))
    await begun.rollback()
    assert await one.fetchval("select 1") == 1
    await one.close()


async def refused(kind, request):
    try:
        await request
    except kind:
        return
    raise AssertionError(f"no {kind.__name__}")


async def copy(uri):
    one = await asyncpg.connect(uri)
    await one.execute("drop table if exists asyncpg_copied; create table asyncpg_copied (number int4, word text)")
    rows = [(number, "w" * (number % 100)) for number in range(20_000)]
    assert await one.copy_records_to_table("asyncpg_copied", records=rows) == "COPY 20000"
    out = io.BytesIO()
    assert await one.copy_from_query("select * from asyncpg_copied order by 1", output=out) == "COPY 20000"
    assert out.getvalue() == b"".join(f"{number}\t{word}\n".encode() for number, word in rows)
    bad = one.copy_to_table("asyncpg_copied", source=io.BytesIO(b"no number\tx\n"))
    await refused(asyncpg.InvalidTextRepresentationError, bad)
    assert await one.fetchval("select count(*) from asyncpg_copied") == 20_000
    await one.close()


async def cancel(uri):
    one, other = await asyncpg.connect(uri), await asyncpg.connect(uri)
    asked = asyncio.create_task(one.execute("select pg_sleep(60) /* asyncpg */"))
    running = "select count(*) from pg_stat_activity where query like '%/* asyncpg */' and wait_event = 'PgSleep'"
    while await other.fetchval(running) == 0:
        await asyncio.sleep(0.02)
    asked.cancel()
    await refused(asyncio.CancelledError, asked)
    assert await one.fetchval("select 1") == 1, "it waits for its cancel request, then goes on"
    while await other.fetchval(running) > 0:
        await asyncio.sleep(0.02)
    await one.close()
    await other.close()


async def crowd(uri):
    """Far more clients than servers, all with statements of the same generated names; what its pool does in between, too."""

    async def work(client):
        for turn in range(10):
            async with pool.acquire() as connection, connection.transaction():
                assert await connection.fetchval(f"select $1::int4 + {client}", turn) == turn + client

    async with asyncpg.create_pool(uri, min_size=30, max_size=30) as pool:
        await asyncio.gather(*(work(client) for client in range(60)))


async def large(uri):
    one = await asyncpg.connect(uri)
    text = "ü" * 5_000_000
    assert await one.fetchval("select $1::text", text) == text
    count = 0
    async with one.transaction():
        async for row in one.cursor("select repeat('x', 1000) from generate_series(1, $1::int4)", 20_000, prefetch=700):
            count += len(row[0]) == 1000
    assert count == 20_000
    await one.close()


async def notices(uri):
    one, heard = await asyncpg.connect(uri), []
    one.add_log_listener(lambda _, message: heard.append(message.message))
    await one.execute("do $$ begin raise notice 'one'; raise warning 'two'; end $$")
    assert heard == ["one", "two"], heard
    await one.close()


async def parameters(uri):
    """What a client sets of itself follows it, and no other client."""
    one = await asyncpg.connect(uri, server_settings={"application_name": "first"})
    two = await asyncpg.connect(uri, server_settings={"application_name": "second"})
    await two.execute("set timezone to 'Asia/Tokyo'")
    for _ in range(10):
        assert await one.fetchval("select current_setting('application_name')") == "first"
        assert await two.fetchval("select current_setting('application_name')") == "second"
        assert await two.fetchval("select current_setting('timezone')") == "Asia/Tokyo"
    await one.execute("set application_name to 'renamed'")
    assert one.get_settings().application_name == "renamed"
    assert await two.fetchval("select current_setting('application_name')") == "second"
    assert await one.fetchval("select current_setting('application_name')") == "renamed"
    assert await one.fetchval("select current_setting('timezone')") != "Asia/Tokyo"
    await one.close()
    await two.close()


async def console(uri):
    """What exporters ask of the console; asyncpg has no other protocol for what returns rows than the extended one."""
    one = await asyncpg.connect(uri)
    for view in "STATS POOLS DATABASES LISTS CONFIG CLIENTS USERS TOTALS STATE VERSION".split():
        assert await one.fetch(f"SHOW {view}"), view
        statement = await one.prepare(f"SHOW {view}")
        assert len(await statement.fetch()) == len(await one.fetch(f"SHOW {view}"))
    await refused(asyncpg.PostgresSyntaxError, one.fetch("SHOW NONSENSE"))
    assert (await one.fetchval("SHOW VERSION")).startswith("PgBouncer")
    await one.close()


async def main(arguments):
    if arguments == ["--list"]:
        print(*SCENARIOS, sep="\n")
        return
    name, uri = arguments
    assert name in SCENARIOS
    await asyncio.wait_for(globals()[name](uri), 60)


asyncio.run(main(sys.argv[1:]))
