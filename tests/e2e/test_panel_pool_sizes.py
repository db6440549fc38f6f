"""`pool_size = auto` by the panel: pools made and changed so, what their size is and was, and why; and the same in a real browser."""

import pytest

import browser
import host
import panel
from test_auto_size import SLEEP, crowd
from test_panel_browser import open_with_pools

pytestmark = [pytest.mark.weir_only, pytest.mark.parametrize("io_driver", ["epoll"])]

POOL = {"name": "sized-pool", "db": "app", "user": "alice", "mode": "transaction", "size": "auto", "settings": {"auto_pool_size_min": "2", "auto_pool_size_max": "12"}}


def put(web, **changes):
    return web.ask("PUT", "/api/v1/pools/sized-pool", {**POOL, "settings": {}, **changes})


def pool(web):
    return web.get("/api/v1/pools/sized-pool")["pool"]


def test_a_pool_is_made_and_changed_so(weir):
    _, web, file = open_with_pools(weir)
    status, preview, _ = web.ask("POST", "/api/v1/pools?preview=true", POOL)
    assert status == 200 and "pool_size=auto" in preview["diff"][-1]["after"] and not file.exists()
    before = preview["budget"]["used_by_pools"]
    status, body, _ = web.ask("POST", "/api/v1/pools", POOL)
    assert status == 201 and "auto_pool_size_min=2 auto_pool_size_max=12" in file.read_text()
    made = body["pool"]
    assert (made["size"], made["size_setting"], made["auto_size"]) == (12, "auto", {"min": 2, "max": 12})
    assert (made["settings"]["auto_pool_size_min"], made["settings"]["auto_pool_size_max"]) == ("2", "12")
    for size, setting, bounds in [(12, "auto", {"min": 2, "max": 12}), ("12", "12", None), ("AUTO", "auto", {"min": 2, "max": 12}), (5, "5", None), ("auto", "auto", {"min": 2, "max": 12})]:
        assert put(web, size=size)[0] == 200
        assert (pool(web)["size_setting"], pool(web)["auto_size"]) == (setting, bounds), size
        assert f"pool_size={setting} " in file.read_text() + " "
    assert put(web, settings={"auto_pool_size_max": "20"})[0] == 200
    assert pool(web)["auto_size"] == {"min": 2, "max": 20}
    status, preview, _ = web.ask("PUT", "/api/v1/pools/sized-pool?preview=true", {**POOL, "settings": {"auto_pool_size_max": "21"}})
    assert status == 200 and preview["budget"]["used_by_pools"] == before + 9, "it counts with its largest size"


def test_what_cannot_be_is_told_with_its_field(weir):
    _, web, file = open_with_pools(weir)
    for change, field in [({"size": "many"}, "size"), ({"size": 0}, "size"), ({"size": "0"}, "size"), ({"size": "-1"}, "size"), ({"size": 1.5}, None), ({"size": None}, None),
                          ({"settings": {"auto_pool_size_min": "9", "auto_pool_size_max": "3"}}, "settings.auto_pool_size_min"),
                          ({"settings": {"auto_pool_size_max": "100000"}}, "size"), ({"settings": {"auto_pool_size_max": "0"}}, "settings.auto_pool_size_max"),
                          ({"settings": {"pool_size": "auto"}}, "settings.pool_size")]:
        told = panel.is_refused(web.ask("POST", "/api/v1/pools", {**POOL, **change}), 422, "unprocessable_entity")
        assert told.get("field") == field, (change, told)
    assert not file.exists()
    warnings = web.ask("POST", "/api/v1/pools?preview=true", {**POOL, "mode": "session"})[1]["warnings"]
    assert any("in session pooling no size is found" in warning for warning in warnings)


def test_its_size_bounds_reason_and_past_are_told(weir):
    pooler, web, _ = open_with_pools(weir)
    assert web.ask("POST", "/api/v1/pools", POOL)[0] == 201
    with crowd_of(pooler, 40):
        def found():
            rows = web.get("/api/v1/pool-sizes?database=sized-pool")["pools"]
            return next((row for row in rows if row["changes"] >= 2), None)

        row = host.eventually(found, timeout=90)
        marks = host.eventually(lambda: [mark for mark in web.get("/api/v1/marks?database=sized-pool")["marks"] if mark["kind"] == "pool_size"])
    assert (row["user"], row["host"], row["is_auto"], row["min"], row["max"]) == ("alice", None, True, 2, 12)
    assert 2 <= row["size"] <= 12 and 2 <= row["found"] <= 12 and row["open"] <= 12
    assert "transactions/s instead of" in row["change"] and row["changed_seconds"] is not None
    assert marks[0]["text"].startswith("pool_size of sized-pool/alice: ") and "transactions/s instead of" in marks[0]["text"]
    def marked(address):
        return host.eventually(lambda: next((past for past in [web.get(address)] if any(mark["kind"] == "pool_size" for mark in past["marks"])), None))

    past = marked("/api/v1/pool-sizes/history?database=sized-pool&user=alice&seconds=300")
    sizes = [size for size in past["series"]["size"] if size is not None]
    assert past["step_seconds"] == 1 and min(sizes) >= 2 and max(sizes) <= 12 and len(set(sizes)) > 1
    marked("/api/v1/history?database=sized-pool")  # On the charts of the pool.
    assert not [mark for mark in web.get("/api/v1/marks?database=other")["marks"] if mark["kind"] == "pool_size"]
    status, text, headers = web.ask("GET", "/api/v1/pool-sizes/history?database=sized-pool&user=alice&format=csv")
    assert status == 200 and headers.get_content_type() == "text/csv" and text.startswith("time,found,size\n")
    assert not [one for one in web.get("/api/v1/audit")["entries"] if one["kind"] == "pool_size"], "the trail is for what was done"


def crowd_of(pooler, clients):
    """The crowd of test_auto_size, in the panel's pool."""

    class Named:
        def connect(self):
            return pooler.connect("sized-pool", user="alice")

    return crowd(Named(), clients, SLEEP)


def test_a_pool_that_sizes_itself_in_the_browser(weir, scratch):
    pooler, web, file = open_with_pools(weir)
    clients = {}

    def begin():
        clients["crowd"] = crowd_of(pooler, 30)
        clients["crowd"].__enter__()
        host.eventually(lambda: any(row["changes"] >= 1 for row in web.get("/api/v1/pool-sizes?database=sized-pool")["pools"]), timeout=90)

    def is_auto():
        assert "pool_size=auto" in file.read_text() and "auto_pool_size_min=2 auto_pool_size_max=12" in file.read_text()

    def is_fixed():
        assert "pool_size=12 " in file.read_text() + " " and "pool_size=auto" not in file.read_text()

    try:
        browser.play("pool_sizes", web, scratch, {"it is auto": is_auto, "clients come": begin, "it is fixed": is_fixed}, token=web.token)
    finally:
        if "crowd" in clients:
            clients["crowd"].__exit__(None, None, None)
