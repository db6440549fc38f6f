"""The panel's pages and the log as the panel tells it."""

import contextlib
import http.client
import json
import re

import psycopg

import host
import panel


def lines_of(web):
    return web.get("/api/v1/log?lines=500")["lines"]


def test_the_last_lines_are_told_without_the_token_that_lets_in(weir):
    pooler, web = panel.start(weir)
    pooler.connect().close()
    host.eventually(lambda: any("login attempt" in line for line in lines_of(web)))
    assert not any(web.token in line for line in lines_of(web))
    assert len(web.get("/api/v1/log?lines=1")["lines"]) == 1
    assert web.ask("GET", "/api/v1/log", token=None)[0] == 401


def test_no_text_of_a_client_hides_or_forges_a_line(weir):
    pooler, web = panel.start(weir)
    names = ["panel token: hidden", "start token in", "a\nFATAL forged", "b\u2028forged", "c\u202edegrof", "d\u009bforged", "e\\x0aforged"]
    shown = ["panel token: hidden", "start token in", r"a\x0aFATAL forged", r"b\u{2028}forged", r"c\u{202e}degrof", r"d\x9bforged", r"e\\x0aforged"]
    for name in names:
        with contextlib.suppress(psycopg.OperationalError):
            pooler.connect(user=name).close()
    for text in shown:
        host.eventually(lambda text=text: any(text in line for line in lines_of(web)))
        assert text in pooler.log_text(), text
    assert not re.search("^(FATAL )?forged|[\u2028\u202e\u009b]", pooler.log_text(), re.M)


def test_each_further_line_comes_as_an_event_escaped(weir):
    pooler, web = panel.start(weir)
    connection = http.client.HTTPConnection("127.0.0.1", web.port, timeout=30)
    connection.request("GET", "/api/v1/log/live", headers={"Authorization": f"Bearer {web.token}"})
    answer = connection.getresponse()
    assert answer.headers.get_content_type() == "text/event-stream"
    pooler.connect(database="app", user="alice").close()
    while True:
        said = answer.readline().decode()
        assert said, "the stream ended"
        if said.startswith("data:") and "login attempt" in said:
            assert "alice" in json.loads(said.removeprefix("data:"))
            break
    connection.close()


def test_the_first_page_is_there_without_a_key_and_loads_nothing_from_elsewhere(weir):
    _, web = panel.start(weir)
    status, page, headers = web.ask("GET", "/", token=None)
    assert status == 200 and headers.get_content_type() == "text/html" and "<title>Weir</title>" in page
    assert "https://" not in page and "http://" not in page
    if "theme.js" in page:  # the panel was built into this binary
        _, _, packed = web.ask("GET", "/theme.js", token=None, headers={"Accept-Encoding": "gzip"})
        assert packed["Content-Encoding"] == "gzip" and "no-cache" in packed["Cache-Control"]
    assert panel.is_refused(web.ask("GET", "/nothing", token=None), 404, "not_found")
