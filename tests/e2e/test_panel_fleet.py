"""A fleet by the panel: its metrics, `/api/v1/fleet`, and its page in a real browser."""

import pytest

import browser
import etcd
import host
import panel
from test_fleet import LIMIT, Fleet, crowd, stop

pytestmark = [pytest.mark.weir_only, pytest.mark.parametrize("io_driver", ["epoll"])]

needs_etcd = pytest.mark.skipif(not etcd.ETCD, reason="no etcd; scripts/prepare-tests says why")


@pytest.fixture
def two(weir, pg, scratch):
    """A fleet of the nodes a and b, and the panel of a."""
    store = etcd.Etcd(scratch)
    fleet, port = Fleet(weir, pg, store), host.free_port()
    quotas = host.new_directory(scratch, "quotas") / "quotas"
    quotas.write_text("user alice queries/month hard=100000000\n")
    host.hand_over(quotas)
    limits = {"fleet_limits": "clients, quotas", "max_client_conn": 90, "max_user_client_connections": 40, "quotas_file": quotas}
    web = panel.Panel(fleet.start("a", http_port=port, **limits), port).wait_up()
    fleet.start("b", **limits)
    fleet.joined("a", "b")
    yield fleet, web
    store.close()


def figures(web):
    """The samples of the fleet: name with its labels → value."""
    text = web.ask("GET", "/metrics")[1]
    return {name: int(value) for name, value in (line.rsplit(" ", 1) for line in text.splitlines() if line.startswith("weir_fleet_"))}


def of_app(web):
    """The limit of `app`, or nothing before there is one."""
    return next((one for one in web.get("/api/v1/fleet?database=app")["budgets"] if one["kind"] == "database"), {})


@needs_etcd
def test_nodes_and_limits_are_measured_and_listed(two):
    fleet, web = two
    assert web.get("/api/v1/session")["is_fleet_node"] is True
    assert web.ask("GET", "/api/v1/fleet", token=None)[0] == 401
    # Node a's client has its floor; b's want all that can be leased, and more.
    clients = [*crowd(fleet.nodes["a"], each=1, query="select 1"), *crowd(fleet.nodes["b"], query="select pg_sleep(0.1)")]

    def settled():
        found = of_app(web)
        return found if found and (found["leased"], found["leased_total"]) == (0, 6) and found["wanted_total"] >= 6 else None

    budget = host.eventually(settled, timeout=40)
    assert {name: budget[name] for name in ("database", "user", "host", "limit", "floor", "shared", "orphaned", "detail")} == {
        "database": "app", "user": None, "host": None, "limit": LIMIT, "floor": 1, "shared": 6, "orphaned": 0, "detail": None
    }  # fmt: skip
    answer = web.get("/api/v1/fleet")
    assert answer["node"] == "a" and answer["total"] == len(answer["budgets"]) > 0
    nodes = {one["node"]: one for one in answer["nodes"]}
    assert {name: (one["is_own"], one["state"], one["detail"]) for name, one in nodes.items()} == {"a": (True, "up", None), "b": (False, "up", None)}
    assert all(one["address"].endswith(f":{fleet.nodes[name].port}") and one["version"] for name, one in nodes.items())
    assert nodes["b"]["leased"] > nodes["a"]["leased"]

    # b's clients count at a: all, and those of alice.
    def of_clients():
        return {(one["kind"], one["user"]): (one["limit"], one["clients"], one["external"]) for one in web.get("/api/v1/fleet")["client_limits"]}

    expected = {("clients", None): (90, 1, 8), ("user", "alice"): (40, 1, 8)}
    host.eventually(lambda: of_clients() == expected, timeout=20)
    assert answer["client_limits_total"] == len(answer["client_limits"]) == 2

    def quota():
        return next((row for row in web.get("/api/v1/quotas")["quotas"] if row["name"] == "alice"), {"used": 0, "external": 0})

    host.eventually(lambda: 0 < quota()["external"] < quota()["used"], timeout=20)

    labels = '{kind="database",database="app",user="",host=""}'
    slots = {"limit": LIMIT, "floor": 1, "shared": 6, "leased": 0, "leased_all": 6, "orphaned": 0}
    expected = {f"weir_fleet_slots_{name}{labels}": value for name, value in slots.items()}
    expected |= {"weir_fleet_up": 1, 'weir_fleet_nodes{state="up"}': 2, 'weir_fleet_nodes{state="gone"}': 0, "weir_fleet_nodes_limit": 3}
    # What is leased follows the demand of every moment.
    host.eventually(lambda: expected.items() <= figures(web).items(), timeout=20)
    host.eventually(lambda: figures(web)[f"weir_fleet_slots_wanted{labels}"] >= 6, timeout=20)

    fleet.store.stop()
    host.eventually(lambda: figures(web)["weir_fleet_up"] == 0, timeout=40)
    assert figures(web)['weir_fleet_nodes{state="alone"}'] == 1
    own = next(one for one in web.get("/api/v1/fleet")["nodes"] if one["is_own"])
    assert own["state"] == "alone" and "no lease" in own["detail"]
    assert stop(clients) == []


@needs_etcd
def test_the_page_follows_nodes_and_limits(two, scratch):
    fleet, web = two
    # A node has the limits of the pools that it has itself.
    for node in fleet.nodes.values():
        node.connect().execute("select 1")
    host.eventually(lambda: of_app(web), timeout=40)
    browser.play("fleet", web, scratch, {"stop the store": fleet.store.stop}, token=web.token)


def test_a_process_without_a_fleet_has_none_of_it(weir, scratch):
    _, web = panel.start(weir)
    assert web.get("/api/v1/session")["is_fleet_node"] is False
    assert web.get("/api/v1/fleet") == {"node": None, "nodes": [], "budgets": [], "total": 0, "client_limits": [], "client_limits_total": 0}
    assert figures(web) == {} and "weir_fleet" not in web.ask("GET", "/metrics")[1]
    browser.play("no_fleet", web, scratch, token=web.token)
