"""Quotas by the panel's API: listed by pages, set and removed in `quotas_file`, the caller's own usage; and its page in a real browser."""

import re
import urllib.parse

import psycopg
import pytest

import browser
import host
import panel
from test_panel_access import key
from test_quotas import LIMIT, no_end_of_an_hour, path, write  # noqa: F401 (a fixture)

pytestmark = [pytest.mark.weir_only, pytest.mark.parametrize("io_driver", ["epoll"])]

TOKENS = {"root": "read,operate,admin", "alice": "read"}


def open_panel(weir, text=None, **settings):
    """A pooler with these quotas, and its panel by the start token."""
    port = host.free_port()
    prepared = weir.prepared(http_port=port, **settings)
    if text is not None:
        prepared.settings["quotas_file"] = path(prepared)
        write(prepared, text)
    prepared.write_ini()
    return prepared.start(), panel.Panel(prepared, port).wait_up()


@pytest.fixture
def limited(weir):
    """A pooler with some quotas, and a panel with an admin's token, and a reader's that has a database user's name."""
    port = host.free_port()
    prepared = weir.prepared(http_port=port, http_auth_file="panel.auth")
    keys = {name: key(prepared, "token", name, scopes) for name, scopes in TOKENS.items()}
    prepared._write("panel.auth", "".join(f"{line}\n" for line, _ in keys.values()))
    prepared.settings["quotas_file"] = path(prepared)
    write(prepared, "# ours\nuser default bytes/day hard=1G\nuser alice queries/hour soft=1 hard=1000 grace=2h # few\nuser bob queries/day hard=7\n")
    prepared.write_ini()
    web = panel.Panel(prepared.start(), port, token=keys["root"][1]).wait_up()
    return prepared, web, keys["alice"][1]


def at(*words):
    return "/api/v1/quotas/" + "/".join(urllib.parse.quote(word, safe="") for word in words)


def listed(web, query="", **options):
    return web.get(f"/api/v1/quotas{query}", **options)


def names(web, query):
    return [(one["name"], one["measure"]) for one in listed(web, query)["quotas"]]


def test_usage_and_limits_are_listed(limited):
    pooler, web, _ = limited
    client = pooler.connect()
    client.execute("select 1")
    client.execute("select 2")
    one = host.eventually(lambda: next((row for row in listed(web, "?subject=user&name=alice&resource=queries")["quotas"] if row["state"] == "soft"), None))
    assert (one["subject"], one["name"], one["resource"], one["period"], one["measure"], one["unit"]) == ("user", "alice", "queries", "hour", "queries/hour", "number")
    assert (one["used"], one["soft"], one["hard"], one["grace_seconds"], one["has_own_limits"]) == (2, 1, 1000, 7200, True)
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", one[end]) for end in ("grace_ends", "period_ends"))
    of_default = listed(web, "?name=alice&resource=bytes")["quotas"][0]
    assert (of_default["hard"], of_default["unit"], of_default["grace_ends"], of_default["has_own_limits"]) == (1 << 30, "bytes", None, False)
    shown = {(row["name"], row["resource"]): row for row in pooler.console("SHOW QUOTAS")}
    assert listed(web)["total"] == len(shown) and int(shown["alice", "queries"]["used"]) == 2
    assert listed(web)["file"] == str(path(pooler))
    assert names(web, "?state=over") == [("alice", "queries/hour")] == names(web, "?state=soft")
    assert names(web, "?search=BO&period=day&resource=queries") == [("bob", "queries/day")]
    assert names(web, "?sort=state")[0] == ("alice", "queries/hour")
    assert names(web, "?sort=-state")[-1] == ("alice", "queries/hour")
    assert names(web, "?subject=group") == []
    panel.is_refused(web.ask("GET", "/api/v1/quotas?sort=colour"), 422, "unprocessable_entity", "sort is one of")
    assert panel.is_refused(web.ask("GET", "/api/v1/quotas?colour=red"), 422, "unprocessable_entity")["field"] == "colour"


def test_ten_thousand_rows_come_by_pages(weir):
    lines = "".join(f"user tenant{number:05} queries/day hard={number + 1}\n" for number in range(10_000))
    _, web = open_panel(weir, lines)
    found, cursor, pages = [], "", 0
    while cursor is not None:
        page = listed(web, f"?sort=hard&limit=1000{cursor}")
        assert page["total"] == 10_000
        found += [one["hard"] for one in page["quotas"]]
        pages += 1
        cursor = f"&cursor={page['next_cursor']}" if "next_cursor" in page else None
    assert found == list(range(10_000, 0, -1)) and pages == 10
    assert [one["name"] for one in listed(web, "?limit=1&cursor=4321")["quotas"]] == ["tenant04321"]


def test_a_limit_is_set_changed_and_removed(limited):
    pooler, web, _ = limited
    client = pooler.connect()
    assert web.ask("PUT", at("user", "alice", "queries/hour"), {"soft": 2, "hard": "3", "grace": "1h"})[0] == 204
    assert "user alice queries/hour soft=2 hard=3 grace=1h # few\n" in path(pooler).read_text(), "the comment stays"
    for _ in range(3):
        client.execute("select 1")
    host.eventually(lambda: listed(web, "?state=hard")["total"] == 1)
    with pytest.raises(LIMIT):
        client.execute("select 1")
    assert web.ask("PUT", at("user", "alice", "queries/hour"), {"hard": 1000})[0] == 204
    assert client.execute("select 1").fetchone() == (1,), "in force at once"
    assert web.ask("DELETE", at("user", "alice", "queries/hour"))[0] == 204
    assert "user alice" not in path(pooler).read_text() and path(pooler).read_text().startswith("# ours\n")
    assert names(web, "?name=alice&resource=queries") == []
    panel.is_refused(web.ask("DELETE", at("user", "alice", "queries/hour")), 404, "not_found")
    assert web.ask("PUT", at("application_name", 'a "b"/c', "bytes/month"), {"hard": "5M"})[0] == 204
    assert 'application_name "a ""b""/c" bytes/month soft=0 hard=5242880\n' in path(pooler).read_text()
    noted = [(one["user"], one["text"], one["kind"]) for one in web.get("/api/v1/audit")["entries"]]
    assert ("root", "SET QUOTA user alice queries/hour soft=2 hard=3 grace=1h", "edit") in noted
    assert ("root", "PUT /api/v1/quotas/user/alice/queries%2Fhour", "edit") in noted
    pooler.wait_log("SET QUOTA user alice queries/hour none")


def test_changes_on_the_console_are_in_the_audit_trail_with_who_and_what(limited):
    pooler, web, _ = limited
    with pytest.raises(psycopg.Error):
        pooler.console("SET QUOTA user alice queries/hour soft=9 hard=3")
    pooler.console("SET QUOTA user alice queries/hour soft=2 hard=30 grace=1h")
    pooler.console("SET QUOTA user bob queries/day none")
    pooler.console("SET query_timeout = 77")
    pooler.console("SET otlp_headers = 'authorization=Bearer s3cret'")
    pooler.console("SET application_name = 'no setting'")
    with pytest.raises(psycopg.Error):
        pooler.console("SET query_timeout = never")
    with pytest.raises(psycopg.Error):
        pooler.console("SET QUOTA user alice queries/hour hard=3", user="stats")
    client = pooler.connect()
    [row] = [row for row in pooler.console("SHOW CLIENTS") if row["user"] == "alice"]
    pooler.console("PAUSE other")
    pooler.console("RESUME other")
    pooler.console(f"KILL_CLIENT {row['id']}")
    pooler.console("RESET_QUERIES")
    assert web.ask("PUT", at("user", "carol", "connections"), {"hard": 3})[0] == 204
    entries = web.get("/api/v1/audit")["entries"]
    noted = [(one["kind"], one["text"]) for one in reversed(entries) if one["user"] == "admin"]
    assert noted == [
        ("edit", "SET QUOTA user alice queries/hour soft=2 hard=30 grace=1h"),
        ("edit", "SET QUOTA user bob queries/day none"),
        ("edit", "SET query_timeout = 77"),
        ("edit", "SET otlp_headers = (hidden)"),
        ("operation", "PAUSE other"),
        ("operation", "RESUME other"),
        ("operation", f"KILL_CLIENT {row['id']}"),
        ("operation", "RESET_QUERIES"),
    ]
    assert all(one["from"].startswith("127.0.0.1:") for one in entries if one["user"] == "admin")
    assert [one["user"] for one in entries if "carol" in one["text"]] == ["root", "root"], "the request and its line, once each"
    assert "s3cret" not in str(entries)
    client.close()


def test_defaults_are_listed_set_and_removed(limited):
    pooler, web, reader = limited
    known = web.get("/api/v1/quotas/defaults", token=reader)
    assert known["defaults"] == [{"subject": "user", "measure": "bytes/day", "unit": "bytes", "soft": 0, "hard": 1 << 30, "grace_seconds": 604_800}]
    assert known["file"] == str(path(pooler)) and known["subjects"] == ["user", "group", "database", "application_name"]
    assert {"measure": "server_seconds/month", "unit": "seconds"} in known["measures"]
    assert web.ask("PUT", at("defaults", "database", "connections"), {"hard": 0, "soft": 9, "grace": 60})[0] == 204
    assert "database default connections soft=9 hard=0 grace=1m\n" in path(pooler).read_text()
    assert len(web.get("/api/v1/quotas/defaults")["defaults"]) == 2
    assert web.ask("DELETE", at("defaults", "user", "bytes/day"))[0] == 204
    panel.is_refused(web.ask("DELETE", at("defaults", "user", "bytes/day")), 404, "not_found")
    assert web.ask("PUT", at("user", "default", "connections"), {"hard": 3})[0] == 204
    assert 'user "default" connections soft=0 hard=3\n' in path(pooler).read_text(), "a user of that name is no default"


def test_what_cannot_be_is_told_with_its_field_and_changes_nothing(limited):
    pooler, web, _ = limited
    text = path(pooler).read_text()
    for words, limits, field in [
        (("users", "alice", "connections"), {"hard": 1}, "subject"), (("user", "a\nb", "connections"), {"hard": 1}, "name"),
        (("user", "alice", "queries"), {"hard": 1}, "measure"), (("user", "alice", "frob/day"), {"hard": 1}, "measure"),
        (("user", "alice", "queries/day"), {"soft": 9, "hard": 5}, "soft"), (("user", "alice", "queries/day"), {"hard": "1K"}, "hard"),
        (("user", "alice", "queries/day"), {"hard": "5 grace=0"}, "hard"), (("user", "alice", "queries/day"), {"soft": 1, "grace": "soon"}, "grace"),
        (("user", "alice", "queries/day"), {"firm": 1}, "firm"),
    ]:
        assert panel.is_refused(web.ask("PUT", at(*words), limits), 422, "unprocessable_entity")["field"] == field
    assert web.ask("PUT", at("user", "alice", "queries/day"), {"hard": -1})[0] == 422
    panel.is_refused(web.ask("PUT", at("group", "staff", "connections"), {"hard": 5}), 409, "conflict", "group staff has no list of members")
    assert path(pooler).read_text() == text
    write(pooler, text + "half a li\n")
    panel.is_refused(web.ask("PUT", at("user", "alice", "connections"), {"hard": 5}), 409, "conflict", "half")
    assert path(pooler).read_text() == text + "half a li\n"


def test_only_an_admin_may_change_and_readers_may_look(limited):
    pooler, web, reader = limited
    text = path(pooler).read_text()
    for method, words in [("PUT", ("user", "alice", "connections")), ("PUT", ("defaults", "user", "connections")), ("DELETE", ("user", "alice", "queries/hour")), ("DELETE", ("defaults", "user", "bytes/day"))]:
        body = {"hard": 5} if method == "PUT" else None
        panel.is_refused(web.ask(method, at(*words), body, token=reader), 403, "forbidden", "scope admin")
        assert web.ask(method, at(*words), body, token="weir_wrong")[0] == 401
    assert path(pooler).read_text() == text
    assert listed(web, token=reader)["total"] > 0


def test_own_usage_is_that_of_the_database_user_with_the_same_name(limited):
    pooler, web, reader = limited
    pooler.connect().execute("select 1")
    own = web.get("/api/v1/quotas/own", token=reader)
    assert own["user"] == "alice" and {one["name"] for one in own["quotas"]} == {"alice"}
    assert {one["measure"] for one in own["quotas"]} == {"queries/hour", "bytes/day"}
    assert web.get("/api/v1/quotas/own") == {"user": "root", "quotas": []}


def test_without_a_file_there_are_no_quotas(weir):
    _, web = open_panel(weir)
    assert listed(web) == {"quotas": [], "total": 0, "file": None}
    panel.is_refused(web.ask("PUT", at("user", "alice", "connections"), {"hard": 5}), 409, "conflict", "quotas_file does not name a file")
    panel.is_refused(web.ask("DELETE", at("user", "alice", "connections")), 409, "conflict", "quotas_file does not name a file")


@pytest.mark.parametrize("look", ["wide", "phone"])
def test_quotas_are_seen_and_changed_in_the_browser(weir, scratch, look):
    tenants = "".join(f"user tenant{number:05} queries/day hard=500\n" for number in range(10_000))
    pooler, web = open_panel(weir, f"user alice queries/hour soft=1 hard=1000\ndatabase default bytes/day hard=5G\n{tenants}")
    client = pooler.connect()
    client.execute("select 1")
    client.execute("select 1")
    host.eventually(lambda: listed(web, "?state=soft")["total"] == 1)

    def changed():
        assert "user alice queries/hour soft=10 hard=2000 grace=12h\n" in path(pooler).read_text()

    def removed():
        assert "user alice" not in path(pooler).read_text()

    def defaulted():
        assert "application_name default bytes/hour soft=0 hard=53687091200\n" in path(pooler).read_text()

    deeds = {"the limit is changed": changed, "the limit is removed": removed, "the default is set": defaulted}
    browser.play("quotas", web, scratch, deeds, token=web.token, look=look)


def test_an_empty_page_says_how_quotas_are_set(weir, scratch):
    _, web = open_panel(weir)
    browser.play("no_quotas", web, scratch, token=web.token)


def test_usage_over_time_is_kept(limited):
    pooler, web, reader = limited
    client = pooler.connect()

    def past(query=""):
        return web.get(f"/api/v1/quotas/history?subject=user&name=alice&measure=queries%2Fhour{query}", token=reader)

    for _ in range(3):
        client.execute("select 1")
    known = host.eventually(lambda: [used for used in past()["series"]["used"] if used == 3], timeout=40)
    assert known and past()["step_seconds"] == 10
    assert past("&seconds=86400")["step_seconds"] == 300
    other = web.get("/api/v1/quotas/history?subject=user&name=carol&measure=queries%2Fhour")
    assert set(other["series"]["used"]) == {None}
    status, text, headers = web.ask("GET", "/api/v1/quotas/history?subject=user&name=alice&measure=queries%2Fhour&format=csv")
    assert status == 200 and headers.get_content_type() == "text/csv" and text.startswith("time,used\n") and text.rstrip().endswith(",3")
