"""Who counts in the limits of clients: as which user, on the console, and after a login that failed."""

import psycopg
import pytest

import conftest
import host
import wire

THREADS = [1] if conftest.PGBOUNCER else [1, 4]
pytestmark = pytest.mark.since("1.24")


@pytest.fixture(params=THREADS, ids=lambda count: f"threads={count}")
def threads(request):
    return {} if conftest.PGBOUNCER else {"threads": request.param}


def refused(pooler, match, **options):
    with pytest.raises(psycopg.OperationalError, match=match):
        pooler.connect(**options)


def clients_of(pooler, user):
    return next(row["current_client_connections"] for row in pooler.console("SHOW USERS") if row["name"] == user)


def test_a_client_counts_as_the_user_it_logged_in_as(weir, threads):
    """A forced user is the servers' matter: its own limit on clients does not hold those who log in as others."""
    users = {"alice": "max_user_client_connections=1", "carol": "max_user_client_connections=1"}
    pooler = weir(databases={"app": "user=carol", "other": ""}, users=users, **threads)
    for user in ("alice", "bob", "bob", "bob"):
        pooler.connect(user=user)
    refused(pooler, "max_user_client_connections", user="alice")
    refused(pooler, "max_user_client_connections", user="alice", database="other")
    assert [clients_of(pooler, user) for user in ("alice", "bob", "carol")] == [1, 3, 0]


@pytest.mark.parametrize("limit", ["max_user_client_connections", "max_db_client_connections"])
def test_admins_are_never_too_many_on_the_console_but_others_are(weir, limit):
    pooler = weir(**{limit: 1})
    pooler.connect("pgbouncer", "stats")
    refused(pooler, limit, database="pgbouncer", user="stats")
    for _ in range(3):
        pooler.connect("pgbouncer", "admin")
    pooler.connections.pop(0).close()
    host.eventually(lambda: looks(pooler))


def looks(pooler):
    try:
        return pooler.console("SHOW VERSION", user="stats")
    except psycopg.OperationalError:
        return False


@pytest.mark.parametrize("limit", ["max_client_conn", "max_user_client_connections", "max_db_client_connections"])
def test_a_failed_login_leaves_nothing_counted(weir, threads, limit):
    pooler = weir(auth_type="plain", userlist={"alice": "right"}, **{limit: 1}, **threads)
    for _ in range(5):
        refused(pooler, "authentication failed", password="wrong")
    with wire.Raw(pooler.port) as raw:
        raw.send(wire.startup(user="alice", database="app"))
        assert raw.read().kind == "R"
    # Who broke off is counted until that is seen.
    host.eventually(lambda: logs_in(pooler))


def logs_in(pooler):
    try:
        return pooler.value("select true", password="right")
    except psycopg.OperationalError as failure:
        assert "more connections" in str(failure) or "exceeded" in str(failure)
        return False


def test_limits_of_a_user_found_by_auth_query(weir, pg, threads):
    users = {"bob": "max_user_client_connections=2 pool_size=1"}
    query = "select $1::text, 'pw'::text"
    pooler = weir(auth_type="plain", auth_user="carol", auth_query=query, userlist={"carol": ""}, users=users, **threads)
    connections = [pooler.connect(user="bob", password="pw") for _ in range(2)]
    refused(pooler, "max_user_client_connections", user="bob", password="pw")
    for connection in connections:
        connection.execute("select 1")
    assert pg.count("usename = 'bob'") == 1
    connections.pop().close()
    host.eventually(lambda: logs_in_as_bob(pooler))


def logs_in_as_bob(pooler):
    try:
        return pooler.value("select true", user="bob", password="pw")
    except psycopg.OperationalError:
        return False
