"""`pools_file`: entries of [databases] in a file of their own, which the panel and the API write; here written by hand and reloaded."""

import os
import re

import psycopg
import pytest

import host

pytestmark = pytest.mark.weir_only  # PgBouncer has no such setting


def pooled(weir, text="", **settings):
    """A pooler whose pools file holds this text."""
    pooler = weir.prepared(**settings)
    pooler.settings["pools_file"] = path(pooler)
    write(pooler, text)
    pooler.write_ini()
    return pooler


def path(pooler):
    return pooler.directory / "pools.ini"


def write(pooler, text):
    path(pooler).write_text(text.replace("SERVER", f"host=127.0.0.1 port={pooler.postgres.port}"))
    host.hand_over(path(pooler))


def test_its_pools_are_served(weir):
    pooler = weir(pools_file="pools.ini")  # relative to where the pooler was started
    write(pooler, "; by hand\n[databases]\ntest-pool = SERVER dbname=other pool_size=3\n")
    assert pooler.console("RELOAD") == "RELOAD"
    assert pooler.value("select current_database()", database="test-pool") == "other"
    row = next(row for row in pooler.console("SHOW DATABASES") if row["name"] == "test-pool")
    assert row["pool_size"] == 3


def test_a_missing_file_is_an_empty_one(weir):
    pooler = pooled(weir)
    path(pooler).unlink()
    pooler.start()
    assert pooler.value("select 1") == 1
    write(pooler, "[databases]\nlate = SERVER dbname=app\n")
    assert pooler.console("RELOAD") == "RELOAD"
    assert pooler.value("select current_database()", database="late") == "app"
    path(pooler).unlink()
    assert pooler.console("RELOAD") == "RELOAD"
    with pytest.raises(psycopg.OperationalError, match="no such database"):
        pooler.value("select 1", database="late")


BROKEN = {
    "[databases]\napp = SERVER\n": 'pools.ini:2: database "app" is defined in .*weir.ini:2 too',
    "[databases]\na = SERVER\n\na = SERVER\n": 'pools.ini:4: database "a" is defined in .*pools.ini:2 too',
    "[pgbouncer]\nlisten_port = 1\n": r"pools.ini:1: section \[pgbouncer\] in pools_file, where only \[databases\] may be",
    "a = SERVER\n": 'pools.ini:1: "a" is before the first section',
    "[databases]\n%include /etc/passwd\n": "pools.ini:2: %include in pools_file",
    "[databases]\na = pool_size=many\n": 'pools.ini:2: database a: pool_size: "many" is not a whole number',
    "[databases]\nhalf a li": 'pools.ini:2: syntax error: expected "=" after the name',
}


@pytest.mark.parametrize("text, told", BROKEN.items())
def test_a_broken_file_ends_the_start(weir, text, told):
    pooler = pooled(weir, text)
    pooler.launch()
    assert pooler.wait_end() == 1
    assert re.search(told, pooler.output() + pooler.log_text())


@pytest.mark.parametrize("text, told", BROKEN.items())
def test_a_broken_file_is_no_reload(weir, text, told):
    pooler = pooled(weir, "[databases]\nmade = SERVER dbname=app\n").start()
    client = pooler.connect("made")
    write(pooler, text)
    broken = path(pooler).read_text()
    with pytest.raises(psycopg.errors.ConfigFileError):
        pooler.console("RELOAD")
    pooler.wait_log(told)
    assert client.execute("select 1").fetchone() == (1,)
    assert pooler.value("select 1", database="made") == 1
    assert path(pooler).read_text() == broken


def test_a_name_in_two_files(weir):
    pooler = pooled(weir, "[databases]\nmine = SERVER dbname=other\n").start()
    pooler.databases["mine"] = "dbname=app"
    with pytest.raises(psycopg.errors.ConfigFileError):
        pooler.reload()
    pooler.wait_log(r'pools.ini:2: database "mine" is defined in \S*weir.ini:4 too')
    assert pooler.value("select current_database()", database="mine") == "other"


def test_set_takes_another_file(weir):
    pooler = pooled(weir, "[databases]\nold = SERVER dbname=app\n").start()
    second = pooler.directory / "second.ini"
    second.write_text(f"[databases]\nnew = host=127.0.0.1 port={pooler.postgres.port} dbname=app\n")
    pooler.console(f"SET pools_file = '{second}'")
    assert pooler.value("select 1", database="new") == 1
    with pytest.raises(psycopg.OperationalError, match="no such database"):
        pooler.value("select 1", database="old")
    pooler.console("RELOAD")
    assert pooler.value("select 1", database="old") == 1


def test_check_reads_it_too(weir):
    pooler = pooled(weir, "[databases]\napp = SERVER\n")
    said = host.run([pooler.program, "check", pooler.ini], check=False)
    assert said.returncode == 1
    assert 'pools.ini:2: error: database "app" is defined in' in said.stdout


def test_an_unreadable_file_is_no_empty_one(weir):
    pooler = pooled(weir, "[databases]\nmade = SERVER dbname=app\n").start()
    os.chown(path(pooler), 0, 0) if host.USER else None
    path(pooler).chmod(0)
    with pytest.raises(psycopg.errors.ConfigFileError):
        pooler.console("RELOAD")
    pooler.wait_log(r'could not load file "\S*pools.ini": Permission denied')
    assert pooler.value("select 1", database="made") == 1
