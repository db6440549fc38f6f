"""Applications with `session_state = virtual`, in transaction mode: Django, SQLAlchemy, Hibernate with HikariCP, ActiveRecord, a job queue,
the election of a leader and row-level security. Each is a program in tests/clients that keeps state in its sessions, has more
connections than there are servers, and never gets the same server for two transactions unless it keeps it. What it prints is what
it prints directly on PostgreSQL."""

import re
import threading

import pytest

import drivers
import panel

pytestmark = pytest.mark.weir_only
POOL = {"server_shuffle": 1, "default_pool_size": 3, "min_pool_size": 3, "max_client_conn": 100}
# Each on one I/O driver: nothing here is about what the drivers do differently, and an application takes seconds.
ALL = [
    pytest.param(("epoll", "io_uring")[number % 2], application, id=application.name)
    for number, application in enumerate(drivers.APPLICATIONS)
]


def ready(application):
    lacking = application.lacking()
    if lacking:
        pytest.skip(f"no {lacking} on this machine; scripts/prepare-tests says why")
    application.ensure_built()
    return application


@pytest.fixture
def direct(pg):
    """What an application prints without a pooler."""
    pg.query("grant create on database app to alice; grant bob to alice", "app")
    return lambda application, *scenarios: (
        ready(application).run(*scenarios, f"postgres://alice@127.0.0.1:{pg.port}/app?sslmode=disable").stdout
    )


@pytest.mark.parametrize("io_driver, application", ALL)
def test_an_application_gets_what_it_gets_directly(weir, pg, direct, application):
    wanted = direct(application)
    pooler = weir(session_state="virtual", **POOL)
    assert application.run(pooler.uri()).stdout == wanted
    assert pg.count() <= 3 + (application.name == "jobs"), "the pool, and what listens for its clients"


# One scenario of each, and how it ends where the session stays behind on the server.
BROKEN = {
    "django": ("export", r"(cursor|portal) \"_django_curs_\w+\" does not exist"),
    "sqlalchemy": ("temporary", r"relation \"loaded\" (does not|already) exists?"),
    "hibernate": ("tenants", "does not exist|instead of|query_wait_timeout|request timed out"),
    "activerecord": ("settings", "RuntimeError"),
    "jobs": (None, r"\d+ of \d+ jobs done, .* notifications heard"),
    "election": (None, r"overlaps: [1-9]|locks are held"),
    "tenants": (None, "instead of"),
}


@pytest.mark.parametrize("io_driver, application", ALL)
def test_without_it_the_application_breaks(weir, direct, application):
    scenario, pattern = BROKEN[application.name]
    databases = {"app": ""}
    if application.name == "django":
        direct(application, "migrate")
        databases = {"app": "connect_query='set search_path = django_shop, public'"}
    pooler = weir(session_state="off", databases=databases, ignore_startup_parameters="options,extra_float_digits", **POOL)
    words = [*([scenario] if scenario else []), pooler.uri(), *(["2"] if application.name == "jobs" else [])]
    done = ready(application).run(*words, check=False)
    assert re.search(pattern, done.stdout + done.stderr), done.stdout[-2000:] + done.stderr[-2000:]


# What makes a client keep its server between transactions.
PINS = {"temporary", "cursor", "prepared", "advisory_lock", "listen", "sequence", "library", "setting", "unnamed_statement"}


@pytest.mark.parametrize("io_driver", ["epoll"])
def test_django_keeps_servers_for_a_small_part_of_the_time(weir, direct):
    """Of the time of all connections. Of forty requests one exports a table by a cursor WITH HOLD; there is no pause between them."""
    django = drivers.APPLICATIONS[0]
    direct(django, "migrate")
    pooler, web = panel.start(weir, session_state="virtual", **POOL)
    ended, looks = threading.Event(), []

    def serve():
        try:
            django.run("serve", pooler.uri())
        finally:
            ended.set()

    application = threading.Thread(target=serve)
    application.start()
    while not ended.wait(0.02):
        reasons = [client["pinned_reason"] for client in web.get("/api/v1/clients?database=app")["clients"]]
        looks += [reason for reason in reasons if len(reasons) > 3]
    application.join()
    share = sum(reason in PINS for reason in looks) / len(looks)
    in_transactions = looks.count("transaction") / len(looks)
    print(f"{len(looks)} looks at a connection: {share:.1%} keep a server for a cursor, {in_transactions:.1%} in a transaction")
    assert looks.count("cursor") > 0 and share < 0.05
