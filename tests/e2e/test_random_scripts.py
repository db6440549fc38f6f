"""Random scripts of the protocol, played to PostgreSQL and through Weir: every client gets the same messages, and the tables
hold the same afterwards. `make differential SCRIPTS=10000` plays more; a failure prints the seed and the smallest script that still differs."""

import os
import time

import pytest

import differential
import host
import random_scripts

pytestmark = [pytest.mark.every_driver, pytest.mark.every_version, pytest.mark.weir_only]

SCRIPTS = int(os.environ.get("WEIR_SCRIPTS", "200"))
SEED = int(os.environ.get("WEIR_SEED", "1"))
# Each way through the pooler is a database of it: how servers are pooled, and how many there are.
WAYS = {
    "transaction": {"t1": "dbname=app pool_mode=transaction pool_size=1", "t20": "dbname=app pool_mode=transaction pool_size=20"},
    "session": {"s1": "dbname=app pool_mode=session pool_size=1", "s20": "dbname=app pool_mode=session pool_size=20"},
}
FEW_STATEMENTS = {"transaction": {"few": "dbname=app pool_mode=transaction pool_size=2"}}


@pytest.fixture
def direct(pg):
    pg.query("drop table if exists kept, mine", "app")  # temporary ones of the scripts; not what another test has left
    pg.query(f"set role alice; {random_scripts.TABLES}", "app")
    playing = differential.Direct(pg.port)
    yield playing
    playing.close()


def play_all(direct, ways, session, seeds):
    """Plays each script directly once and then every way; (how many plays, how many are left aside, the first differences
    found, as text)."""
    plays, left_aside, found = 0, 0, []
    for seed in seeds:
        script = differential.draw(seed, session)
        expected = direct.play(script)
        for pooler, database in ways:
            plays += 1
            result = direct.play(script, pooler.port, database)
            left_aside += differential.is_left_aside(expected, result)
            if lines := differential.parts(expected, result):
                found.append(explain(direct, script, pooler, database, session, lines))
                print(found[-1], flush=True)
                if len(found) >= int(os.environ.get("WEIR_DIFFERENCES", "3")):
                    return plays, left_aside, found
    return plays, left_aside, found


def explain(direct, script, pooler, database, session, lines):
    """The smallest script, and where the answers to it part; a script that differs only sometimes is shown as it was."""
    def differs(smaller):
        return random_scripts.keeps_to_the_rules(smaller, session) and bool(differential.compare(direct, smaller, pooler.port, database))

    head = f"--- {database}, {pooler.io_driver}"
    if not any(differs(script) for _ in range(3)):
        return "\n".join([head, "not the next three times:", differential.describe(script), *lines])
    smallest = differential.minimise(script, differs)
    lines = differential.compare(direct, smallest, pooler.port, database) or [*lines, "(before it was made smaller)"]
    return "\n".join([head, differential.describe(smallest), *lines])


@pytest.mark.parametrize("mode", ["transaction", "session"])
def test_every_client_is_told_what_postgresql_tells(weir, pg, direct, mode):
    pooler = weir(databases=WAYS[mode], server_reset_query="DISCARD ALL", max_prepared_statements=200)
    few = weir(databases=FEW_STATEMENTS[mode], max_prepared_statements=2) if mode in FEW_STATEMENTS else None
    ways = [(pooler, database) for database in WAYS[mode]] + [(few, "few")] * (few is not None)
    started = time.monotonic()
    plays, left_aside, found = play_all(direct, ways, mode == "session", range(SEED, SEED + SCRIPTS))
    print(f"{plays} plays, {left_aside} left aside, {len(found)} differences, {time.monotonic() - started:.0f} s")
    if found:
        pytest.fail("\n".join(["", *found]), pytrace=False)
    for used, _ in ways:
        host.eventually(lambda: all(row["cl_active"] == 0 for row in used.console("show pools") if row["database"] != "pgbouncer"))
