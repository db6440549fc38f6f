"""`query_cache`: the thread that follows the changes of a primary by logical decoding. What it tells the shards is in the log with `verbose = 1`."""

import re

import psycopg
import pytest

import host

pytestmark = [pytest.mark.weir_only, pytest.mark.every_version]
ENTRY = "query_cache=1MB query_cache_user=replica"
BEGINS = r"query cache: app: Begins { system: (\d+), timeline: 1 }"
CATALOG = r"query cache: app: Catalog { number: (\d+), uncached: UncachedNames { names: {(.*)}, operators: {(.*)}, everything: (\w+) } }"
CHANGED = r"query cache: app: Changed { number: \d+, lsn: \d+, names: \[(.*)\] }"
SCHEMA = r"query cache: app: SchemaChanged { number: (\d+), lsn: \d+ }"


@pytest.fixture
def schema(pg):
    """A schema of its own, which goes with all that is in it."""
    pg.query("create schema followed", "app")
    yield "followed"
    pg.query("drop schema followed cascade", "app")


@pytest.fixture
def following(weir):
    def start(entry=ENTRY):
        return weir(databases={"app": entry}, verbose=1)

    return start


def last_catalog(pooler):
    """The last one that was told, once it is of the last change of the schema."""
    def found():
        text = pooler.log_text()
        catalogs, schemas = re.findall(CATALOG, text), re.findall(SCHEMA, text)
        is_newest = catalogs and int(catalogs[-1][0]) >= max((int(number) for number in schemas), default=0)
        return catalogs[-1] if is_newest else None
    return host.eventually(found)


def test_rows_are_told_with_the_relations_that_are_made_of_them(following, pg, schema):
    pg.query("create table followed.rows(a int)", "app")
    pg.query('create view followed."Of: Rows, all" as select * from followed.rows', "app")
    pg.query("create table followed.whole(a int) partition by list (a)", "app")
    pg.query("create table followed.part partition of followed.whole for values in (1)", "app")
    pooler = following()
    pooler.wait_log(CATALOG)
    assert pooler.wait_log(BEGINS) == [str(pg.value("select system_identifier from pg_control_system()"))]
    pg.query("insert into followed.rows values (1)", "app")
    pooler.wait_log(CHANGED)
    pg.query("insert into followed.whole values (1)", "app")
    names = pooler.wait_log(CHANGED, count=2)
    assert names == ['"of: rows, all", "rows"', '"part", "whole"']


def test_ddl_is_told_alone_and_beside_rows(following, pg, schema):
    pg.query("create table followed.rows(a int)", "app")
    pooler = following()
    pooler.wait_log(CATALOG)
    pg.query("grant select on followed.rows to public", "app")
    pooler.wait_log(SCHEMA)
    count = len(settled_schemas(pooler))
    with psycopg.connect(host="127.0.0.1", port=pg.port, user="postgres", dbname="app") as direct:
        direct.execute("alter table followed.rows rename a to b")
        direct.execute("insert into followed.rows values (1)")
    pooler.wait_log(SCHEMA, count=count + 1)
    # Of roles, from another database.
    count = len(settled_schemas(pooler))
    pg.query("alter role replica set work_mem = '1MB'", "other")
    try:
        pooler.wait_log(SCHEMA, count=count + 1)
    finally:
        pg.query("alter role replica reset work_mem", "other")


def settled_schemas(pooler):
    """The changes of the schema so far, once each of them has its catalog."""
    last_catalog(pooler)
    return re.findall(SCHEMA, pooler.log_text())


def test_what_is_not_to_be_kept_is_named(following, pg, schema):
    pg.query(
        "set search_path = followed; create unlogged table quick(a int); create sequence numbers; create table rows(a int, b text);"
        "create view timed as select now(); create view above as select * from timed; create view settings as select current_setting('app.x', true), to_char(a, '9') from rows;"
        "create function own() returns int language sql as 'select 1'; create view called as select own(); create materialized view stored as select 1;"
        "create table guarded(a int); alter table guarded enable row level security; create policy p on guarded using (a = own());"
        "create table tenants(a int); alter table tenants enable row level security; create policy p on tenants using (a = current_setting('app.tenant')::int);"
        "create view statistics as select * from pg_stat_activity; create view today as select current_date; create view me as select current_user",
        "app",
    )
    number, names, _, everything = last_catalog(following())
    found = {name for name in re.findall(r'"(\w+)"', names) if not name.startswith("_")}
    expected = {"quick", "numbers", "timed", "above", "called", "stored", "guarded", "statistics", "today"}
    assert expected <= found
    assert not found & {"rows", "settings", "tenants", "me"}
    assert everything == "false"


def test_a_primary_that_ends_is_lost_and_followed_again(following, pg):
    pooler = following()
    pooler.wait_log(CATALOG)
    pg.query("select pg_terminate_backend(pid) from pg_stat_replication where application_name = 'weir query cache'")
    pooler.wait_log(r"WARNING query cache: app: cannot follow the primary's changes: .*terminating connection.*; every query goes to a server")
    pooler.wait_log(BEGINS, count=2)


def test_a_role_that_may_not_replicate_is_told_what_to_do(following, pg):
    pooler = following("query_cache=1MB user=postgres query_cache_user=alice")
    pooler.wait_log(r"WARNING query cache: app: cannot follow .*ALTER ROLE \"alice\" REPLICATION")


def test_slots_leave_nothing_behind(following, pg):
    pooler = following()
    pooler.wait_log(CATALOG)
    slots = "select count(*) from pg_replication_slots where slot_name like 'weir\\_cache\\_%'"
    assert pg.value(slots) >= 1
    pooler.stop()
    host.eventually(lambda: pg.value(slots) == 0)
