"""Applications' drivers through the pooler, in transaction mode, over two servers: asyncpg, pgx (Go), pgjdbc (Java) and
node-postgres, each with its own cache of statements, its own pipelines and its own cancel. The scenarios are programs in tests/clients."""

import pytest

import drivers
import host

pytestmark = pytest.mark.since("1.21")  # they prepare everything

ALL = [pytest.param(driver, id=driver.name) for driver in drivers.DRIVERS]
# A session that is made READ ONLY is that client's alone only where its settings follow it.
MARKS = {"console": [pytest.mark.weir_only], "reads": [pytest.mark.weir_only], "replication": [pytest.mark.since("1.23")]}
CASES = [
    pytest.param(driver, scenario, id=f"{driver.name}-{scenario}", marks=MARKS.get(scenario, []))
    for driver in drivers.DRIVERS
    for scenario in driver.scenarios
]


def ready(driver):
    lacking = driver.lacking()
    if lacking:
        pytest.skip(f"no {lacking} on this machine; scripts/prepare-tests says why")
    driver.ensure_built()
    return driver


@pytest.fixture
def pooler(weir):
    return weir(default_pool_size=2, max_client_conn=100, ignore_startup_parameters="extra_float_digits")


@pytest.mark.parametrize("driver", ALL)
def test_all_are_named(driver):
    assert ready(driver).run("--list").stdout.split() == driver.scenarios


@pytest.mark.parametrize("driver, scenario", CASES)
def test_driver(pooler, pg, driver, scenario):
    users = {"replication": ("app", "replica"), "console": ("pgbouncer", "stats")}
    database, user = users.get(scenario, ("app", "alice"))
    pooler.value("select 1")  # so that the console has a pool to tell of
    ready(driver).run(scenario, pooler.uri(database, user))
    assert pg.count() <= 2 * 2, "two servers for alice, and two for whoever replicates"


@pytest.mark.parametrize("driver", ALL)
def test_login_with_scram(weir, driver):
    pooler = weir(auth_type="scram-sha-256", userlist={"alice": "secret", "admin": ""}, ignore_startup_parameters="extra_float_digits")
    ready(driver).run("simple", pooler.uri(user="alice:secret"))
    with pytest.raises(AssertionError, match="authentication failed"):
        ready(driver).run("simple", pooler.uri(user="alice:wrong"))


# What asks for TLS without looking at the certificate, as libpq does; node-postgres has to be told.
SECURE = {"node": "uselibpqcompat=true&sslmode=require"}


@pytest.mark.parametrize("scenario", ["large", "cancel"])
@pytest.mark.parametrize("driver", ALL)
def test_over_tls(weir, authorities, driver, scenario):
    server = authorities[3].server
    tls = {"client_tls_sslmode": "require", "client_tls_cert_file": server.cert, "client_tls_key_file": server.key}
    secrets = {"alice": "secret", "admin": ""}
    more = {"auth_type": "scram-sha-256", "userlist": secrets, "ignore_startup_parameters": "extra_float_digits"}
    pooler = weir(default_pool_size=2, **tls, **more)
    uri = pooler.uri(user="alice:secret").replace("sslmode=disable", SECURE.get(driver.name, "sslmode=require"))
    ready(driver).run(scenario, uri)
    pooler.wait_log("login attempt: db=app user=alice tls=TLSv1.3")


# --- libpq ------------------------------------------------------------------------------------------------------
PIPELINE = "\\startpipeline\nselect 1;\nbegin;\nselect 2;\ncommit;\nselect 100 / 4;\n\\endpipeline\n"


@pytest.mark.every_version
def test_a_dump_is_the_same_as_past_the_pooler(weir, pg):
    pg.query(
        "drop schema if exists dumped cascade; create schema dumped; grant usage on schema dumped to public;"
        "create table dumped.words as select number, 'word ' || number as word from generate_series(1, 5000) as number;"
        "grant select on dumped.words to public",
        "app",
    )
    pooler = weir(default_pool_size=2, ignore_startup_parameters="extra_float_digits")
    dump = [pg.bindir / "pg_dump", "--schema=dumped", "--no-owner"]
    texts = [host.run([*dump, f"postgres://alice@127.0.0.1:{port}/app?sslmode=disable"]).stdout for port in (pg.port, pooler.port)]
    # Newer ones write a random key of one line at both ends.
    direct, pooled = ([line for line in text.splitlines() if "restrict" not in line] for text in texts)
    assert pooled == direct and any("word 5000" in line for line in direct)
    pg.query("drop schema dumped cascade", "app")


@pytest.mark.every_version
@pytest.mark.parametrize("mode", ["extended", "prepared"])
def test_libpq_pipelines(weir, pg, mode):
    """pgbench of the same version as the server: its libpq is 15's or 18's."""
    pooler = weir(default_pool_size=2)
    script = pooler.directory / "pipeline.sql"
    script.write_text(PIPELINE)
    host.hand_over(script)
    done = host.run([pg.bindir / "pgbench", "-n", "-M", mode, "-c", 10, "-j", 10, "-t", 50, "-f", script, pooler.uri()])
    assert "number of transactions actually processed: 500/500" in done.stdout, done.stdout
