"""Users and tokens of the panel, made, changed and removed by the API, and the audit trail that notes it."""

import pytest

import host
import panel
from test_panel_access import key

pytestmark = [pytest.mark.weir_only, pytest.mark.any_driver]

ADMIN = "read,operate,admin"
NEW = {"name": "bob", "password": "long enough", "scopes": ["read"]}


@pytest.fixture
def kept(weir):
    """A panel with an admin's token, a reader's token, and a file that the test may look at."""
    pooler = weir.prepared(http_port=host.free_port(), http_auth_file="panel.auth")
    (admin_line, admin), (reader_line, reader) = (key(pooler, "token", name, scopes) for name, scopes in [("root", ADMIN), ("ro", "read")])
    pooler._write("panel.auth", f"# ours\n{admin_line}\n{reader_line}\n")
    pooler.start()
    web = panel.Panel(pooler, int(pooler.settings["http_port"]), token=admin).wait_up()
    return pooler, web, reader


def listed(web):
    return {(one["kind"], one["name"]): one["scopes"] for one in web.get("/api/v1/users")["users"]}


def login(web, password, user="bob"):
    return web.ask("POST", "/api/v1/login", {"user": user, "password": password}, token=None)


def test_a_user_from_the_making_to_the_end(kept):
    pooler, web, _ = kept
    assert web.ask("POST", "/api/v1/users", NEW)[0] == 204
    assert listed(web)["user", "bob"] == ["read"]
    assert login(web, "wrong enough")[0] == 401
    status, body, headers = login(web, "long enough")
    assert status == 200 and body["scopes"] == ["read"]
    session = {"Cookie": headers["Set-Cookie"].split(";")[0]}
    assert web.ask("GET", "/api/v1/session", headers=session, token=None)[0] == 200
    panel.is_refused(web.ask("POST", "/api/v1/users", NEW), 409, "conflict", "exists")
    assert web.ask("PUT", "/api/v1/users/bob", {"scopes": ["read", "operate"]})[0] == 204
    assert listed(web)["user", "bob"] == ["read", "operate"]
    assert web.ask("GET", "/api/v1/session", headers=session, token=None)[0] == 401, "a changed line ends its sessions"
    assert web.ask("PUT", "/api/v1/users/bob", {"password": "another one"})[0] == 204
    assert login(web, "long enough")[0] == 401 and login(web, "another one")[0] == 200
    assert web.ask("DELETE", "/api/v1/users/bob")[0] == 204
    assert login(web, "another one")[0] == 401
    panel.is_refused(web.ask("DELETE", "/api/v1/users/bob"), 404, "not_found")
    text = (pooler.directory / "panel.auth").read_text()
    assert text.startswith("# ours\ntoken root ") and "bob" not in text
    noted = [(one["user"], one["text"], one["status"]) for one in web.get("/api/v1/audit")["entries"]]
    assert ("root", "POST /api/v1/users", 204) in noted and ("bob", "POST /api/v1/login", 401) in noted
    assert "long enough" not in str(noted) + pooler.log_text()


def test_a_token_is_told_once_and_ends_with_its_line(kept):
    _, web, _ = kept
    status, body, _ = web.ask("POST", "/api/v1/tokens", {"name": "ci", "scopes": ["read"]})
    assert status == 201
    assert web.ask("GET", "/api/v1/pools", token=body["token"])[0] == 200
    assert body["token"] not in str(web.get("/api/v1/users"))
    assert web.ask("DELETE", "/api/v1/tokens/ci")[0] == 204
    assert web.ask("GET", "/api/v1/pools", token=body["token"])[0] == 401


def test_only_an_admin_may_and_never_more_than_their_own(kept):
    _, web, reader = kept
    for method, path, body in [
        ("GET", "/api/v1/users", None), ("POST", "/api/v1/users", NEW), ("PUT", "/api/v1/users/bob", {"scopes": ["read"]}),
        ("DELETE", "/api/v1/users/bob", None), ("POST", "/api/v1/tokens", {"name": "t", "scopes": ["read"]}),
        ("DELETE", "/api/v1/tokens/root", None), ("GET", "/api/v1/audit", None),
    ]:
        panel.is_refused(web.ask(method, path, body, token=reader), 403, "forbidden", "scope admin")
    panel.is_refused(web.ask("POST", "/api/v1/users", {**NEW, "scopes": ["view_credentials"]}), 403, "forbidden", "do not have")
    assert set(listed(web)) == {("token", "root"), ("token", "ro")}


def test_the_last_admin_stays(kept):
    _, web, _ = kept
    panel.is_refused(web.ask("DELETE", "/api/v1/tokens/root"), 409, "conflict", "last user or token with scope admin")
    assert web.ask("POST", "/api/v1/users", {**NEW, "scopes": ADMIN.split(",")})[0] == 204
    panel.is_refused(web.ask("PUT", "/api/v1/users/bob", {"scopes": ["root"]}), 422, "unprocessable_entity", "scopes are")
    assert web.ask("DELETE", "/api/v1/tokens/root")[0] == 204
    assert web.ask("GET", "/api/v1/users")[0] == 401


def test_what_cannot_be_is_told_with_its_field(kept):
    _, web, _ = kept
    for change, field in [({"name": "a b"}, "name"), ({"password": "short"}, "password"), ({"scopes": []}, "scopes"), ({"more": 1}, "more")]:
        body = panel.is_refused(web.ask("POST", "/api/v1/users", {**NEW, **change}), 422, "unprocessable_entity")
        assert body["field"] == field


def test_without_a_file_there_is_nobody_to_change(weir):
    _, web = panel.start(weir)
    assert web.get("/api/v1/users") == {"writable": False, "users": []}
    panel.is_refused(web.ask("POST", "/api/v1/users", NEW), 409, "conflict", "http_auth_file names no file")
