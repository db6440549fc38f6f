"""A fleet by way of the API server of Kubernetes: the tests of a fleet with etcd (test_fleet.py) with a double of it, or with a real one (`WEIR_KUBE_APISERVER`), and what is
Kubernetes' own: tokens, the Role, watches that are too old."""

import os
import signal

import pytest

import host
import kubernetes
import kubernetes_double
import test_drain
import test_fleet
import test_fleet_cancel
from test_drain import raw  # noqa: F401 (a fixture)
from test_fleet import Client, Fleet, budget, states, stop

pytestmark = [pytest.mark.weir_only, pytest.mark.any_driver]

only_double = pytest.mark.skipif(bool(kubernetes.PROGRAM), reason="a fault that a real API server does not have at will")


@pytest.fixture
def store(scratch, authorities):
    made = kubernetes.store(scratch, authorities[3])
    yield made
    made.close()


@pytest.fixture
def fleet(weir, pg, store):
    return Fleet(weir, pg, store)


def own(node):
    return next(row for row in node.console("SHOW FLEET") if row["is_own"])


def test_nodes_share_a_limit(fleet, store):
    test_fleet.test_nodes_share_a_limit(fleet)
    assert store.names("leases") == ["weir.a", "weir.b", "weir.c"]
    assert {"weir.peers", "weir.slots.database.app.x.x"} <= set(store.names("configmaps")), store.names("configmaps")


def test_without_a_store_queries_go_on(fleet, store):
    test_fleet.test_without_a_store_queries_go_on(fleet, store)


def test_a_node_that_is_cut_off_goes_on_with_its_floor(fleet, store):
    test_fleet.test_a_node_that_is_cut_off_goes_on_with_its_floor(fleet, store)


def test_connections_of_a_dead_node_count_while_postgres_has_them(fleet):
    test_fleet.test_connections_of_a_dead_node_count_while_postgres_has_them(fleet)


def test_a_node_that_was_stopped_for_long_is_not_robbed_nor_robs(fleet, store):
    test_fleet.test_a_node_that_was_stopped_for_long_is_not_robbed_nor_robs(fleet)
    # It has counted the other's Lease as over while it was stopped, and has not ended it.
    assert "the lease was not renewed" not in fleet.nodes["b"].log_text() and "the store ended the lease" not in fleet.nodes["b"].log_text()


def test_a_second_process_with_the_same_id_stays_on_its_floor(fleet):
    test_fleet.test_a_second_process_with_the_same_id_stays_on_its_floor(fleet)


def test_a_takeover_goes_on_as_the_same_node(fleet):
    test_fleet.test_a_takeover_goes_on_as_the_same_node(fleet)


def test_a_node_that_was_killed_comes_back_alone(fleet, store):
    """No other node ends its Lease: it does so itself when that has not been renewed for as long as it lasts."""
    node = fleet.start("a")
    fleet.joined("a")
    os.kill(node.process.pid, signal.SIGKILL)
    node.process.wait()
    assert store.names("leases") == ["weir.a"]
    node.start()
    fleet.joined("a")
    node.stop()
    assert store.names("leases") == []


def test_a_node_is_drained_from_another_one(fleet, raw):  # noqa: F811
    test_drain.test_a_node_is_drained_and_resumed_from_another_one(fleet, raw)


def test_a_cancel_at_any_node_ends_its_query_and_no_other(weir, pg, store):
    test_fleet_cancel.test_a_cancel_at_any_node_ends_its_query_and_no_other(test_fleet_cancel.Fleet(weir, pg, store), pg)


@only_double
def test_a_watch_that_is_too_old_begins_anew(fleet, store):
    first, second = fleet.start("a"), fleet.start("b")
    fleet.joined("a", "b")
    for _ in range(3):
        lists = store.requests.count(("list", "configmaps"))
        store.expire_watches()
        host.eventually(lambda lists=lists: store.requests.count(("list", "configmaps")) >= lists + 2)
    third = fleet.start("c")
    fleet.joined("a", "b", "c")
    clients = [Client(node) for node in (first, second, third) for _ in range(6)]
    host.eventually(lambda: fleet.connections() == test_fleet.LIMIT, timeout=40)
    assert stop(clients) == []


@only_double
def test_a_watch_of_leases_that_is_late_ends_no_lease_and_hides_no_node(fleet, store):
    """By their own count both nodes see the other's Lease as over, and of a third one they hear by what it writes."""
    nodes = [fleet.start("a"), fleet.start("b")]
    fleet.joined("a", "b")
    sessions = [store.holder("a"), store.holder("b")]
    deletions = store.requests.count(("delete", "leases"))
    store.late = "leases"
    host.eventually(lambda: store.requests.count(("delete", "leases")) >= deletions + 4, timeout=40)
    assert [store.holder("a"), store.holder("b")] == sessions
    fleet.start("c")
    host.eventually(lambda: states(nodes[0]).get("c") == states(nodes[1]).get("c") == "up")
    store.late = None
    fleet.joined("a", "b", "c")
    assert [store.holder("a"), store.holder("b")] == sessions


@only_double
def test_a_token_that_is_not_valid_or_not_allowed_is_named_and_a_new_one_is_read(fleet, store):
    store.write_token("another")
    node = fleet.start("a")
    host.eventually(lambda: states(node) == {"a": "alone"})
    assert "the token is not valid (401 Unauthorized)" in own(node)["detail"]
    store.write_token(kubernetes_double.TOKEN)
    fleet.joined("a")
    # The kubelet writes another one; the old one is not valid any more.
    store.write_token("rotated")
    store.tokens = {"rotated"}
    before = store.requests.count(("update", "leases"))
    host.eventually(lambda: store.requests.count(("update", "leases")) >= before + 3)
    assert states(node) == {"a": "up"}
    store.forbidden = {("update", "leases"), ("create", "leases")}
    host.eventually(lambda: 'User "weir" cannot create resource "leases"' in own(node)["detail"], timeout=40)
    assert "the Role does not allow it (docs/fleet.md" in own(node)["detail"]
    assert node.connect().execute("select 1").fetchone() == (1,), "its floor does not need the store"
    store.forbidden = set()
    fleet.joined("a")


@only_double
def test_a_certificate_stands_for_a_token(fleet, store):
    alice = store.authority.alice
    store.tokens = set()
    node = fleet.start("a", fleet_token_file="", fleet_tls_cert_file=alice.cert, fleet_tls_key_file=alice.key)
    fleet.joined("a")
    without = fleet.start("b")
    host.eventually(lambda: states(without) == {"b": "alone"})
    assert states(node) == {"a": "up"}


@only_double
def test_an_api_server_whose_certificate_is_anothers_is_not_used(fleet, store, authorities):
    node = fleet.start("a", fleet_tls_ca_file=authorities[1].cert)
    host.eventually(lambda: states(node) == {"a": "alone"})
    assert "certificate" in own(node)["detail"] and store.requests == []


@only_double
def test_what_a_watch_may_not_read_and_what_may_not_be_deleted_is_named(fleet, store):
    store.forbidden = {("watch", "configmaps")}
    node = fleet.start("a")
    host.eventually(lambda: 'cannot watch resource "configmaps"' in own(node)["detail"])
    store.forbidden = {("delete", "leases")}
    other = fleet.start("b")
    fleet.joined("a", "b")
    os.kill(other.process.pid, signal.SIGKILL)
    host.eventually(lambda: 'Lease "weir.b" is over, but cannot be deleted' in own(node)["detail"], timeout=40)
    store.forbidden = set()
    host.eventually(lambda: "b" not in states(node), timeout=40)


def test_a_lease_that_is_deleted_by_hand_is_joined_anew(fleet, store):
    nodes = [fleet.start("a"), fleet.start("b")]
    fleet.joined("a", "b")
    clients = [Client(node) for node in nodes for _ in range(8)]
    host.eventually(lambda: fleet.connections() == test_fleet.LIMIT - 1, timeout=40)
    sampler = test_fleet.Sampler(fleet.pg)
    session = store.holder("a")
    store.delete("leases", "weir.a")
    host.eventually(lambda: "weir.a" in store.names("leases"), timeout=40)
    assert store.holder("a") != session, "a renewal would have created it anew"
    fleet.joined("a", "b")
    host.eventually(lambda: {budget(node)["leased"] for node in nodes} == {3}, timeout=40)
    assert stop(clients) == []
    assert sampler.stop() <= test_fleet.LIMIT


@pytest.mark.parametrize(
    "settings, text",
    [
        ({"fleet": "kubernetes"}, "this process is in no pod of Kubernetes"),
        ({"fleet": "kubernetes://h"}, "a namespace is missing"),
        ({"fleet": "kubernetes://h/n"}, "fleet_tls_ca_file: an API server that fleet names needs"),
        ({"fleet": "kubernetes://h/n", "fleet_tls_ca_file": "/etc/hostname"}, "needs fleet_token_file, or fleet_tls_cert_file"),
        ({"fleet": "kubernetes://h/n", "fleet_tls_ca_file": "/etc/hostname", "fleet_token_file": "/t"}, "fleet_tls_ca_file: no certificate"),
        ({"fleet": "kubernetes://h/n", "fleet_tls_cert_file": "/etc/hostname"}, "fleet_tls_cert_file and fleet_tls_key_file need each other"),
    ],
)
def test_what_cannot_be_a_node_does_not_start(weir, settings, text):
    pooler = weir.prepared(fleet_node="a", **settings)
    pooler.write_ini()
    done = host.run([pooler.program, pooler.ini], check=False, timeout=30)
    assert done.returncode != 0 and text in done.stderr + done.stdout, done.stderr
