"""Alerts of the panel: raised, cleared, shown, counted, and posted to a webhook that may fail at first."""

import contextlib
import http.server
import json
import re
import threading

import psycopg
import pytest

import host
import panel

pytestmark = [pytest.mark.weir_only, pytest.mark.any_driver]


class Hook:
    """A server on loopback that keeps what it is posted, and refuses the first `failing` of them."""

    def __init__(self, failing=0):
        hook = self
        self.got, self.refused, self.failing = [], [], failing

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                fails = len(hook.refused) < hook.failing
                (hook.refused if fails else hook.got).append((self.path, self.headers["Content-Type"], json.loads(body)))
                self.send_response(503 if fails else 204)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/hooks/secret-key?x=1"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def alerts(self):
        return [(body["alert"], body["state"], body["subject"]) for _, _, body in self.got]


@pytest.fixture
def hook():
    made = []

    def make(**options):
        made.append(Hook(**options))
        return made[-1]

    yield make
    for one in made:
        one.server.shutdown()


def found(web, alert, state="firing", subject=None):
    all_of = [one for one in web.get("/api/v1/alerts")["alerts"] if one["alert"] == alert and one["state"] == state]
    return [one for one in all_of if subject in (None, one["subject"])]


@contextlib.contextmanager
def waiting(pooler):
    """A client that waits for the only server."""
    first = pooler.connect()
    first.execute("begin")
    second = pooler.connect()
    thread = threading.Thread(target=second.execute, args=("select 1",))
    thread.start()
    try:
        yield
    finally:
        first.execute("commit")
        thread.join()


def test_a_long_wait_is_raised_cleared_and_posted(weir, hook):
    hook = hook()
    pooler, web = panel.start(weir, databases={"app": "pool_size=1"}, alert_wait=5, alert_webhook=hook.url)
    with waiting(pooler):
        (alert,) = host.eventually(lambda: found(web, "waiting"), timeout=40)
        assert alert["subject"] == "app" and alert["cleared"] is None and "has waited" in alert["text"], alert
        host.eventually(lambda: ("waiting", "firing", "app") in hook.alerts(), timeout=40)
        assert 'weir_alert{alert="waiting",subject="app"} 1' in web.ask("GET", "/metrics")[1]
    (cleared,) = host.eventually(lambda: found(web, "waiting", "cleared"), timeout=40)
    assert cleared["since"] == alert["since"] < cleared["cleared"]
    host.eventually(lambda: ("waiting", "cleared", "app") in hook.alerts(), timeout=40)
    assert hook.got[0][:2] == ("/hooks/secret-key?x=1", "application/json")
    assert 'weir_alert{' not in web.ask("GET", "/metrics")[1]
    pooler.wait_log("WARNING panel: alert: waiting: a client of app")
    pooler.wait_log("LOG panel: alert cleared: waiting")
    shown = {row["key"]: row["value"] for row in pooler.console("SHOW CONFIG")}
    assert shown["alert_webhook"] == "(hidden)" and "secret-key" not in pooler.log_text()


def test_a_post_that_fails_is_tried_again(weir, hook):
    hook = hook(failing=2)
    pooler, web = panel.start(weir, databases={"app": "pool_size=1"}, alert_wait=5, alert_webhook=hook.url)
    with waiting(pooler):
        host.eventually(lambda: hook.alerts() == [("waiting", "firing", "app")], timeout=40)
    assert len(hook.refused) == 2 and len({json.dumps(body) for _, _, body in hook.refused + hook.got[:1]}) == 1
    pooler.wait_log(r"WARNING panel: alert not posted to 127.0.0.1:\d+: the answer is 503 .*; trying again")
    assert web.get("/api/v1/alerts")["webhook"] is True


def test_a_server_that_is_down(weir):
    pooler, web = panel.start(weir, databases={"app": "", "gone": f"host=127.0.0.1 port={host.free_port()}"}, server_login_retry=1)
    with contextlib.suppress(psycopg.Error):
        pooler.connect(database="gone", connect_timeout=5).execute("select 1")
    (alert,) = host.eventually(lambda: found(web, "server_down"), timeout=30)
    assert re.match(r"logins to server 127\.0\.0\.1:\d+ fail since ", alert["text"]), alert
    assert not found(web, "waiting", subject="app")


def test_errors_and_budget(weir):
    # 40 of a hundred connections: below the default of 90 %.
    pooler, web = panel.start(weir, databases={"app": "pool_size=40"}, alert_errors=1, alert_budget=20)
    client = pooler.connect()
    for _ in range(60):
        with contextlib.suppress(psycopg.Error):
            client.execute("select 1/0")
    (alert,) = host.eventually(lambda: found(web, "errors"), timeout=20)
    assert alert["subject"] == "app" and "errors a second" in alert["text"]
    client.execute("select 1")
    (alert,) = host.eventually(lambda: found(web, "budget"), timeout=60)
    assert re.search(r"may use \d+ of \d+ connections", alert["text"]), alert


def test_nothing_is_raised_where_all_is_switched_off(weir):
    pooler, web = panel.start(weir, databases={"app": "pool_size=1"}, alert_wait=0, alert_errors=0, alert_budget=0)
    with waiting(pooler):
        # Longer than the default of 5 s.
        host.eventually(lambda: pooler.pool()["maxwait"] >= 8, timeout=30)
        assert web.get("/api/v1/alerts") == {"alerts": [], "webhook": False}
