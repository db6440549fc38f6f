"""A Django application with server-side cursors and persistent connections: check.py SCENARIO URI runs it and prints what its
users got, which is the same whichever way it has to PostgreSQL. Started by tests/e2e/test_applications.py.

Each of its threads has a connection of its own (CONN_MAX_AGE), with settings given at startup, and serves requests by WSGI."""

import io
import json
import sys
import threading
import time
from urllib.parse import urlsplit

import django
from django.conf import settings
from django.core.handlers.wsgi import WSGIHandler
from django.core.management import call_command
from django.db import DatabaseError, connection, connections
from django.db.migrations.recorder import MigrationRecorder

SCENARIOS = "migrate serve export settings".split()
THREADS = 8


def database(address, **options):
    startup = "-c search_path=django_shop,public -c statement_timeout=40s"
    return {
        "ENGINE": "django.db.backends.postgresql",
        "HOST": address.hostname,
        "PORT": address.port,
        "NAME": address.path[1:],
        "USER": address.username,
        "CONN_MAX_AGE": 600,
        "CONN_HEALTH_CHECKS": True,
        "TIME_ZONE": options.pop("TIME_ZONE", "UTC"),
        "OPTIONS": {"options": startup, "sslmode": "disable", **options},
    }


def configure(uri):
    address = urlsplit(uri)
    settings.configure(
        ALLOWED_HOSTS=["*"],
        DATABASES={
            "default": database(address),
            "tokyo": database(address, TIME_ZONE="Asia/Tokyo", server_side_binding=True),
            "bob": database(address, assume_role="bob"),
        },
        DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
        INSTALLED_APPS=["shop"],
        ROOT_URLCONF="shop.views",
        SECRET_KEY="none",
        USE_TZ=True,
    )
    django.setup()


def serve(path, query="", body=None):
    """One request as a WSGI server makes it: closing the response is what ends it for Django."""
    content = json.dumps(body).encode() if body is not None else b""
    environment = {
        "REQUEST_METHOD": "POST" if content else "GET",
        "PATH_INFO": f"/{path}",
        "QUERY_STRING": query,
        "CONTENT_LENGTH": str(len(content)),
        "SERVER_NAME": "shop",
        "SERVER_PORT": "80",
        "wsgi.input": io.BytesIO(content),
        "wsgi.errors": sys.stderr,
        "wsgi.url_scheme": "http",
    }
    status = []
    response = HANDLER(environment, lambda line, headers: status.append(line))
    try:
        text = b"".join(response).decode()
    finally:
        response.close()
    assert status == ["200 OK"], (path, status, text[:500])
    return text


def in_threads(work, count=THREADS):
    failures = []

    def run(number):
        try:
            work(number)
        except BaseException as failure:  # told after the others have ended
            failures.append(failure)
        finally:
            connections.close_all()

    threads = [threading.Thread(target=run, args=[number]) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


# --- the scenarios ----------------------------------------------------------------------------------------------
def migrate():
    with connection.cursor() as cursor:
        cursor.execute("DROP SCHEMA IF EXISTS django_shop CASCADE")
        cursor.execute("CREATE SCHEMA django_shop")
        cursor.execute("GRANT USAGE ON SCHEMA django_shop TO bob")
    out = io.StringIO()
    call_command("migrate", stdout=out, no_color=True)
    print(out.getvalue())
    print(sorted(MigrationRecorder(connection).applied_migrations()))
    from shop.models import Product

    print(Product.objects.count(), Product.objects.order_by("-price").first().name)


def mixed(thread, turn):
    """A request of a usual mix: of forty, one exports the whole list, six order, two ask for a report, and the others read a page."""
    kind = (thread * 7 + turn) % 40
    if kind == 0:
        text = serve("export")
        assert text.count("product") == 300 and text.count("cheaper") == 3, text[:500]
    elif kind < 7:
        wanted = [f"product {(thread * 31 + turn * 7 + line) % 300:03}" for line in range(3)]
        assert json.loads(serve("order", body={"customer": f"customer {thread}", "products": wanted})) == {"lines": 3}
    elif kind < 9:
        about = json.loads(serve("report"))
        assert (about["first"], about["last"], about["count"]) == ("product 000", "product 299", 300), about
    else:
        page = json.loads(serve("products", f"first={turn}"))
        assert page["products"][0] == f"product {turn:03}" and page["count"] == 300, page


def serve_all():
    """As many requests of the mix as a user of each thread makes in turn."""
    began = time.monotonic()
    in_threads(lambda thread: [mixed(thread, turn) for turn in range(100)])
    from shop.views import totals

    print(totals())
    print(f"{THREADS * 100 / (time.monotonic() - began):.0f} requests/s", file=sys.stderr)


def export():
    """All at once, so that there are more cursors than servers."""

    def work(thread):
        serve("order", body={"customer": f"exporter {thread}", "products": ["product 001"]})
        for _ in range(3):
            assert serve("export").count("product") == 300
            results.append(serve("slow", f"customer=exporter%20{thread}"))

    results = []
    in_threads(work)
    print(len(results), *sorted(set(results)))


def settings_of_connections():
    for alias in ("default", "tokyo", "bob"):
        for _ in range(3):
            with connections[alias].cursor() as cursor:
                asked = []
                for question in ("SHOW timezone", "SELECT current_user", "SHOW search_path", "SHOW statement_timeout"):
                    cursor.execute(question)
                    asked.append(cursor.fetchone()[0])
                print(alias, *asked)
    try:
        with connections["bob"].cursor() as cursor:
            cursor.execute("SELECT * FROM shop_product")
    except DatabaseError as error:
        print(str(error).splitlines()[0])
    with connections["bob"].cursor() as cursor:
        cursor.execute("SET TIME ZONE 'America/Caracas'")
        cursor.execute("SHOW timezone")
        print(*cursor.fetchone())


RUN = {"migrate": migrate, "serve": serve_all, "export": export, "settings": settings_of_connections}

if sys.argv[1:] == ["--list"]:
    print(*SCENARIOS, sep="\n")
else:
    *names, uri = sys.argv[1:]
    configure(uri)
    HANDLER = WSGIHandler()
    for name in names or SCENARIOS:
        print(f"--- {name}")
        RUN[name]()
