"""Who may use the panel: passwords, tokens, scopes, cookies, and what a page elsewhere cannot make a browser do."""

import collections
import contextlib
import http.client
import json
import os
import pty
import re
import ssl
import subprocess
import threading
import time

import pytest

import host
import panel

pytestmark = [pytest.mark.weir_only, pytest.mark.any_driver]

PASSWORD = "correct horse"


def key(pooler, kind, name, scopes, password=PASSWORD):
    """A line of http_auth_file, made by the program itself, and the token if it is one."""
    command = [pooler.program, "panel", kind, name, "--scopes", scopes]
    made = subprocess.run(command, input=f"{password}\n", capture_output=True, text=True, check=True, timeout=60)
    return made.stdout, made.stderr.rsplit(" ", 1)[-1].strip()


def guarded(weir, *users, **settings):
    """A pooler whose panel has these users (name, scopes); the panel has no token."""
    pooler = weir.prepared()
    lines = [key(pooler, "password", *user)[0] for user in users]
    path = pooler.directory / "panel.auth"
    path.write_text("".join(lines))
    host.hand_over(path)
    pooler.write_ini(http_port=host.free_port(), http_auth_file=path, **settings)
    pooler.start()
    return pooler, panel.Panel(pooler, int(pooler.settings["http_port"])).wait_up()


class Browser:
    """One that has logged in: it sends its cookie, and of its own page where the page is from and the session's word."""

    def __init__(self, web, user="ann", password=PASSWORD, **body):
        self.web, self.origin = web, f"http://127.0.0.1:{web.port}"
        self.answer = web.ask("POST", "/api/v1/login", body or {"user": user, "password": password}, token=None)
        status, self.session, headers = self.answer
        assert status == 200, self.session
        self.set_cookie = headers["Set-Cookie"]
        self.cookie = self.set_cookie.split(";")[0]

    def ask(self, method, path, body=None, csrf=True, origin=True, **headers):
        headers["Cookie"] = self.cookie
        if csrf:
            headers["X-Weir-CSRF"] = self.session["csrf"] if csrf is True else csrf
        if origin:
            headers["Origin"] = self.origin if origin is True else origin
        return self.web.ask(method, path, body, headers=headers, token=None)


def test_without_a_key_nothing_is_told(weir):
    pooler, web = panel.start(weir)
    for path in ("/api/v1/session", "/api/v1/clients", "/api/v1/settings", "/api/v1/openapi.json"):
        for token in (None, "weir_0", web.token[:-1], "x"):
            answer = web.ask("GET", path, token=token)
            panel.is_refused(answer, 401, "unauthorized", "Unable to authenticate you.")
            assert "WWW-Authenticate" not in answer[2]
    assert web.ask("GET", "/api/v1/session", headers={"Authorization": f"Basic {web.token}"}, token=None)[0] == 401
    assert web.get("/api/v1/session")["scopes"] == ["read", "operate", "admin", "view_credentials"]


def test_the_start_token_is_in_a_file_of_its_own_that_goes_with_the_process(weir):
    pooler, web = panel.start(weir)
    path = web.token_path()
    found = path.stat()
    assert found.st_mode & 0o777 == 0o600 and path.owner() == host.USER_NAME and path.read_text() == f"{web.token}\n"
    assert web.get("/api/v1/session")["user"] == "token"
    assert web.token not in pooler.log_text() + pooler.output()
    pooler.stop()
    assert not path.exists()


def test_the_start_token_is_in_the_runtime_directory_where_there_is_one(weir):
    pooler = weir.prepared(http_port=host.free_port())
    runtime = host.new_directory(pooler.directory, "run")
    pooler.environment["RUNTIME_DIRECTORY"] = f"{runtime}:/elsewhere"
    pooler.start()
    assert panel.Panel(pooler, 0).token_path().parent == runtime


def test_the_start_token_is_shown_on_a_terminal_and_nowhere_else(weir):
    pooler = weir.prepared(http_port=host.free_port())
    mine, theirs = pty.openpty()
    pooler.process = host.start([pooler.program, pooler.ini], cwd=pooler.directory, stdout=theirs, stderr=theirs)
    os.close(theirs)
    said = ""
    with contextlib.suppress(OSError), open(mine, errors="replace", newline="", closefd=True) as terminal:
        while not (shown := re.search(r"panel token: (\S+)\r?\n", said)):
            said += terminal.read(1)
        web = panel.Panel(pooler, int(pooler.settings["http_port"]), shown[1]).wait_up()
        assert web.get("/api/v1/session")["user"] == "token"
        assert web.token not in pooler.log_text() and "start token" not in pooler.log_text()
        pooler.stop()


@pytest.mark.parametrize("io_driver", ["epoll"])
@pytest.mark.parametrize("after", ["emptied", "unset"])
def test_without_users_the_panel_stays_closed_once_a_file_named_some(weir, after):
    pooler, web = panel.start(weir)
    first, path = web.token, web.token_path()
    keys = pooler.directory / "panel.auth"
    keys.write_text(key(pooler, "token", "reader", "read")[0])
    host.hand_over(keys)
    pooler.reload(http_auth_file=keys)
    host.eventually(lambda: web.ask("GET", "/api/v1/session", token=first)[0] == 401)
    assert not path.exists()
    keys.write_text("")
    pooler.reload(**{"http_auth_file": None} if after == "unset" else {})
    pooler.wait_log("WARNING panel: no http_auth_file names a user or a token: logins fail")
    assert web.ask("GET", "/api/v1/session", token=first)[0] == 401
    assert web.ask("POST", "/api/v1/login", {"token": first}, token=None)[0] == 401
    assert len(re.findall("start token", pooler.log_text())) == 1


def test_an_empty_file_of_users_makes_no_token(weir):
    pooler = weir.prepared()
    keys = pooler.directory / "panel.auth"
    keys.write_text("# nobody yet\n")
    host.hand_over(keys)
    pooler.write_ini(http_port=host.free_port(), http_auth_file=keys)
    pooler.start()
    pooler.wait_log("WARNING panel: no http_auth_file names a user or a token: logins fail")
    assert "start token" not in pooler.log_text()


def test_every_route_of_the_api_needs_a_key(weir):
    _, web = panel.start(weir)
    open_to_all = {"/healthz", "/readyz", "/api/v1/login"}
    paths = web.get("/api/v1/openapi.json")["paths"]
    assert len(paths) > 5
    for path, methods in paths.items():
        for method in methods:
            status = web.ask(method.upper(), path.replace("{", "").replace("}", ""), {}, token=None)[0]
            assert (status == 401) == (path not in open_to_all), (method, path, status)


def test_a_password_and_its_cookie(weir):
    pooler, web = guarded(weir, ("ann", "read,operate"))
    assert "start token" not in pooler.log_text()
    browser = Browser(web)
    assert browser.session["user"] == "ann" and browser.session["scopes"] == ["read", "operate"]
    assert browser.set_cookie.startswith("weir=") and browser.set_cookie.endswith("; Path=/; HttpOnly; SameSite=Strict")
    status, session, _ = browser.ask("GET", "/api/v1/session")
    assert status == 200 and session["csrf"] == browser.session["csrf"]
    assert browser.ask("POST", "/api/v1/databases/app/disable")[0] == 204
    assert browser.ask("POST", "/api/v1/logout")[0] == 204
    assert browser.ask("GET", "/api/v1/session")[0] == 401
    for user, password in (("ann", "wrong"), ("ann", ""), ("nobody", PASSWORD), ("", PASSWORD)):
        answer = web.ask("POST", "/api/v1/login", {"user": user, "password": password}, token=None)
        panel.is_refused(answer, 401, "unauthorized", "Unable to authenticate you.")


def test_a_page_elsewhere_cannot_use_the_cookie(weir):
    _, web = guarded(weir, ("ann", "read,operate"))
    browser = Browser(web)
    path = "/api/v1/databases/app/disable"
    panel.is_refused(browser.ask("POST", path, csrf=False), 403, "forbidden", "CSRF")
    panel.is_refused(browser.ask("POST", path, csrf="0" * 32), 403, "forbidden", "CSRF")
    for origin in (False, "null", "http://evil.test", f"https://127.0.0.1:{web.port}", "http://127.0.0.1"):
        panel.is_refused(browser.ask("POST", path, origin=origin), 403, "forbidden", "own page")
    login = {"user": "ann", "password": PASSWORD}
    answer = web.ask("POST", "/api/v1/login", login, headers={"Origin": "http://evil.test"}, token=None)
    panel.is_refused(answer, 403, "forbidden")
    assert browser.ask("POST", path)[0] == 204


def test_names_that_are_not_the_panels_are_not_answered(weir):
    pooler, web = panel.start(weir)
    for name, status in (("localhost", 200), ("[::1]:1", 200), ("evil.test", 421), ("127.0.0.1.evil.test", 421), ("weir.test", 421)):
        answer = web.ask("GET", "/api/v1/session", headers={"Host": name})
        assert answer[0] == status, name
    pooler.reload(http_allowed_hosts="weir.test, other.test")
    host.eventually(lambda: web.ask("GET", "/api/v1/session", headers={"Host": "weir.test:8000"})[0] == 200)


def test_every_answer_is_sealed(weir):
    _, web = panel.start(weir)
    for path in ("/healthz", "/api/v1/session", "/api/v1/nothing", "/nothing"):
        headers = web.ask("GET", path)[2]
        policy = headers["Content-Security-Policy"]
        assert "default-src 'self'" in policy and "unsafe" not in policy and "frame-ancestors 'none'" in policy
        assert headers["X-Content-Type-Options"] == "nosniff" and headers["Referrer-Policy"] == "no-referrer"
        assert "Access-Control-Allow-Origin" not in headers
    panel.is_refused(web.ask("GET", "/api/v1/nothing"), 404, "not_found")
    panel.is_refused(web.ask("DELETE", "/api/v1/clients"), 405, "method_not_allowed")


def test_scopes(weir):
    pooler, web = panel.start(weir)
    lines, tokens = zip(*(key(pooler, "token", scope, scope) for scope in ("read", "operate")))
    path = pooler.directory / "panel.auth"
    path.write_text("".join(lines))
    host.hand_over(path)
    first = web.token
    pooler.reload(http_auth_file=path)
    host.eventually(lambda: web.ask("GET", "/api/v1/session", token=first)[0] == 401)
    read, operate = tokens
    assert web.ask("GET", "/api/v1/clients", token=read)[0] == 200
    panel.is_refused(web.ask("GET", "/api/v1/clients", token=operate), 403, "forbidden", "scope read is needed")
    for deed in ("pause", "hosts/db2/detach"):
        panel.is_refused(web.ask("POST", f"/api/v1/databases/app/{deed}", token=read), 403, "forbidden", "scope operate is needed")
    assert web.ask("POST", "/api/v1/databases/app/pause", token=operate)[0] == 204
    browser = Browser(web, token=read)
    assert browser.session["scopes"] == ["read"] and browser.session["user"] == "read"
    path.write_text(lines[1])
    pooler.reload()
    host.eventually(lambda: browser.ask("GET", "/api/v1/session")[0] == 401)


def follow(web, path, **headers):
    """An open stream of events: its connection, and its answer to be read on."""
    connection = http.client.HTTPConnection("127.0.0.1", web.port, timeout=20)
    connection.request("GET", path, headers=headers)
    answer = connection.getresponse()
    assert (answer.status, answer.headers.get_content_type()) == (200, "text/event-stream"), answer.read()
    return connection, answer


def rest(stream, seconds=20):
    """What an open stream still says until it ends, which must be soon."""
    connection, answer = stream
    said, until = [], time.monotonic() + seconds
    while line := answer.readline():
        assert time.monotonic() < until, "the stream goes on"
        said.append(line.decode())
    connection.close()
    return "".join(said)


STREAMS = ["/api/v1/log/live", "/api/v1/live"]


@pytest.mark.parametrize("io_driver", ["epoll"])
@pytest.mark.parametrize("path", STREAMS)
def test_an_open_stream_ends_with_the_session(weir, path):
    _, web = guarded(weir, ("ann", "read"), ("bob", "read"))
    ann, bob = Browser(web), Browser(web, "bob")
    streams = [follow(web, path, Cookie=browser.cookie) for browser in (ann, bob)]
    assert ann.ask("POST", "/api/v1/logout")[0] == 204
    assert "/logout" not in rest(streams[0]), "a line that came later"
    bob.ask("POST", "/api/v1/databases/app/pause")
    while "/pause 403" not in (line := streams[1][1].readline().decode()) and path != "/api/v1/live":
        assert line, "the stream of another session ended"
    streams[1][0].close()


@pytest.mark.parametrize("io_driver", ["epoll"])
@pytest.mark.parametrize("path", STREAMS)
@pytest.mark.parametrize("after", ["removed", "narrowed", "off"])
def test_an_open_stream_ends_when_a_reload_takes_the_right_away(weir, path, after):
    pooler, web = guarded(weir, ("ann", "read"))
    (line, token), (kept, other) = key(pooler, "token", "reader", "read"), key(pooler, "token", "other", "read")
    keys = pooler.directory / "panel.auth"
    keys.write_text(line + kept)
    pooler.reload()
    host.eventually(lambda: web.ask("GET", "/api/v1/session", token=token)[0] == 200)
    bearer, stays = ({"Authorization": f"Bearer {one}"} for one in (token, other))
    streams = [follow(web, path, **bearer), follow(web, path, Cookie=Browser(web, token=token).cookie), follow(web, path, **stays)]
    if after == "off":
        pooler.reload(http_port=0)
        for connection, answer in streams:
            with contextlib.suppress(OSError, http.client.HTTPException):
                rest((connection, answer))
        return
    keys.write_text(kept if after == "removed" else line.replace(" read ", " operate ") + kept)
    pooler.reload()
    for stream in streams[:2]:
        rest(stream)
    pooler.connect().close()
    assert streams[2][1].readline(), "another token's stream goes on"
    streams[2][0].close()


def test_a_broken_auth_file_lets_in_who_could_come_in_before(weir):
    pooler, web = guarded(weir, ("ann", "read"))
    browser = Browser(web)
    (pooler.directory / "panel.auth").write_text("user ann read\n")
    pooler.reload()
    pooler.wait_log(r"ERROR panel: http_auth_file .*panel.auth\" line 1: should be `user NAME SCOPES HASH`")
    assert browser.ask("GET", "/api/v1/session")[0] == 200
    other = weir.prepared(http_port=host.free_port(), http_auth_file=pooler.directory / "panel.auth")
    other.launch()
    assert other.wait_end() == 1 and "FATAL http_auth_file" in other.output()


def attempt(web, source="127.0.0.1", **body):
    """A login from an address of this machine: its status, body and headers."""
    connection = http.client.HTTPConnection("127.0.0.1", web.port, timeout=30, source_address=(source, 0))
    try:
        connection.request("POST", "/api/v1/login", json.dumps(body), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read()), answer.headers
    finally:
        connection.close()


@pytest.mark.parametrize("io_driver", ["epoll"])
def test_guessing_is_slow_and_keeps_out_no_one_who_knows_the_password(weir):
    pooler, web = guarded(weir, ("ann", "read"))
    for _ in range(5):
        panel.is_refused(attempt(web, user="ann", password="wrong"), 401, "unauthorized")
    assert attempt(web, source="127.0.0.2", user="ann", password=PASSWORD)[0] == 200
    assert attempt(web, user="ann", password=PASSWORD)[0] == 200  # when its turn has come
    answers = []
    guesses = [threading.Thread(target=lambda: answers.append(attempt(web, user="ann", password="wrong"))) for _ in range(30)]
    for guess in guesses:
        guess.start()
    for guess in guesses:
        guess.join()
    counts = collections.Counter(status for status, _, _ in answers)
    assert counts[401] + counts[429] == 30 and counts[429] >= 10, counts
    for answer in answers:
        if answer[0] == 429:
            panel.is_refused(answer, 429, "too_many_requests", "Too many attempts")
            assert 1 <= int(answer[2]["Retry-After"]) <= 61
    assert attempt(web, source="127.0.0.2", user="ann", password=PASSWORD)[0] == 200


@pytest.mark.parametrize("io_driver", ["epoll"])
def test_the_right_token_always_opens(weir):
    pooler, web = panel.start(weir)
    line, token = key(pooler, "token", "reader", "read")
    for right in (web.token, token):
        statuses = [attempt(web, token=f"weir_{number}")[0] for number in range(8)]
        assert set(statuses) <= {401, 429} and 429 in statuses
        assert attempt(web, token=right)[0] == 200 and web.get("/api/v1/session", token=right)
        path = pooler.directory / "panel.auth"
        path.write_text(line)
        host.hand_over(path)
        pooler.reload(http_auth_file=path)
        host.eventually(lambda: web.ask("GET", "/api/v1/session", token=token)[0] == 200)


def test_what_is_done_is_noted(weir):
    pooler, web = guarded(weir, ("ann", "read,operate"))
    browser = Browser(web)
    web.ask("POST", "/api/v1/login", {"user": "x\ny", "password": "secret of somebody"}, token=None)
    browser.ask("POST", "/api/v1/databases/app/pause?x=1")
    browser.ask("POST", "/api/v1/databases/app/pause")
    browser.ask("GET", "/api/v1/clients")
    assert len(pooler.wait_log(r"LOG panel: ann@127.0.0.1:\d+ POST /api/v1/login 200")) == 1
    pooler.wait_log(r"LOG panel: x\\x0ay@127.0.0.1:\d+ POST /api/v1/login 401")
    pooler.wait_log(r"LOG panel: ann@127.0.0.1:\d+ POST /api/v1/databases/app/pause 422")
    pooler.wait_log(r"LOG panel: ann@127.0.0.1:\d+ POST /api/v1/databases/app/pause 204")
    file = pooler.directory / "audit.log"
    pooler.reload(http_audit_file=file)
    browser.ask("POST", "/api/v1/databases/app/resume")
    host.eventually(lambda: file.exists() and "ann@127.0.0.1" in file.read_text() and "/databases/app/resume 204" in file.read_text())
    assert "/resume" not in pooler.log_text() and "GET /api" not in pooler.log_text() + file.read_text()
    for secret in (PASSWORD, "secret of somebody", browser.session["csrf"]):
        assert secret not in pooler.log_text() + file.read_text()


def test_long_bodies_are_not_read(weir):
    _, web = panel.start(weir)
    connection = http.client.HTTPConnection("127.0.0.1", web.port, timeout=20)
    connection.putrequest("POST", "/api/v1/login")
    connection.putheader("Content-Length", str(10 << 20))
    connection.endheaders(b"x" * 1000)
    answer = connection.getresponse()
    assert answer.status == 413 and json.loads(answer.read())["id"] == "payload_too_large"
    connection.close()
    body = iter([b'{"token": "', *[b"x" * 1000] * 100, b'"}'])
    try:
        status, body, _ = web.ask("POST", "/api/v1/login", body=b"".join(body), token=None, headers={"Content-Type": "application/json"})
        assert status == 413 and body["id"] == "payload_too_large"
    except OSError:
        pass  # the answer was there before all was sent
    json_type = {"Content-Type": "application/json"}
    for body, status in (("{", 400), ("[]", 422), ('{"user": 1}', 422), ('{"user": "ann"}', 422), ("{}", 422)):
        assert web.ask("POST", "/api/v1/login", body, token=None, headers=json_type)[0] == status, body
    assert web.ask("POST", "/api/v1/login", "{}", token=None, headers={"Content-Type": "text/plain"})[0] == 400


def test_tls(weir, authorities):
    authority = authorities[3]
    pooler = weir.prepared()
    path = pooler.directory / "panel.auth"
    path.write_text(key(pooler, "password", "ann", "read")[0])
    host.hand_over(path)
    files = {"http_tls_cert_file": authority.server.cert, "http_tls_key_file": authority.server.key}
    pooler.write_ini(http_port=host.free_port(), http_addr="0.0.0.0", http_auth_file=path, **files)
    pooler.start()
    web = panel.Panel(pooler, int(pooler.settings["http_port"]), tls=ssl.create_default_context(cafile=authority.cert)).wait_up()
    browser = Browser(web)
    assert browser.set_cookie.startswith("__Host-weir=") and "; Secure" in browser.set_cookie
    browser.origin = f"https://127.0.0.1:{web.port}"
    assert browser.ask("POST", "/api/v1/logout")[0] == 204
    assert not panel.Panel(pooler, web.port).is_up()
    pooler.reload(http_tls_key_file=authority.alice.key)
    pooler.wait_log("ERROR panel: TLS setup failed, keeping the old one")
    assert web.is_up()


def test_keys_are_made_of_good_words_only(weir):
    pooler = weir.prepared()
    for words, said in ((["password", "a b"], "without blanks"), (["token", "a", "--scopes", "root"], "scopes are"), (["password", "a", "--scopes", "read"], "at least 8")):
        made = subprocess.run([pooler.program, "panel", *words], input="short\n", capture_output=True, text=True, check=False, timeout=60)
        assert made.returncode == 1 and said in made.stderr and not made.stdout
