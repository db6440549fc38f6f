"""The nodes of a fleet are upgraded one after the other under load, and no transaction fails: on one host by taking over (`-R`); and where each has an address of
its own, by draining, while clients name all of them."""

import os
import re
import subprocess

import pytest

import etcd
import host
from test_fleet import Fleet, Sampler, weir_fleet
from test_takeover import reboot

pytestmark = [
    pytest.mark.weir_only,
    pytest.mark.any_driver,
    pytest.mark.skipif(not etcd.ETCD, reason="no etcd; scripts/prepare-tests says why"),
]

LIMIT = 20
NODES = ["a", "b", "c", "d", "e"]
# Clients in all; the figure of the fleet is that of 100.
CLIENTS = int(os.environ.get("WEIR_UPGRADE_CLIENTS", "20"))


@pytest.fixture
def fleet(weir, pg, scratch):
    store = etcd.Etcd(scratch)
    made = Fleet(weir, pg, store)
    for name in NODES:
        # Of some seconds more than a busy machine leaves a node without a processor; with longer ones the nodes learn of each other later.
        made.start(name, limit=LIMIT, fleet_nodes=len(NODES), fleet_lease_time=6, max_client_conn=500)
    made.joined(*NODES)
    yield made
    store.close()


@pytest.fixture
def script(pg, scratch):
    """A transaction of two statements, with a pause in between."""
    path = scratch / "upgrade.sql"
    path.write_text("begin;\nselect 1;\n\\sleep 5 ms\nselect 2;\ncommit;\n\\sleep 5 ms\n")
    host.hand_over(path)
    return path


class Load:
    """pgbench until it is stopped: it ends by itself behind the transactions that run."""

    def __init__(self, pg, script, ports, clients, *words):
        hosts = ",".join("127.0.0.1" for _ in ports)
        uri = f"host={hosts} port={','.join(map(str, ports))} user=alice dbname=app"
        command = [pg.bindir / "pgbench", "-n", "-f", script, "-c", clients, "-j", min(clients, 4), "-T", 600, *words, uri]
        self.process = host.start([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def stop(self):
        """What it says at its end."""
        # pgbench ends a run by the timer of -T, which is SIGALRM.
        self.process.send_signal(14)
        return self.process.communicate(timeout=60)[0]


def judge(said):
    """Transactions that were done; none may have failed."""
    assert "aborted" not in said and "error" not in said.replace("number of failed transactions: 0", ""), said
    failed = re.search(r"number of failed transactions: (\d+)", said)
    assert failed is None or failed[1] == "0", said
    return int(re.search(r"number of transactions actually processed: (\d+)", said)[1])


def test_taking_over_fails_no_transaction(fleet, script):
    sampler = Sampler(fleet.pg)
    loads = [Load(fleet.pg, script, [fleet.nodes[name].port], max(CLIENTS // len(NODES), 1)) for name in NODES]
    host.eventually(lambda: fleet.connections() > len(NODES))
    for name in NODES:
        reboot(fleet.nodes[name])
    fleet.joined(*NODES)
    assert all(judge(load.stop()) > 10 for load in loads)
    assert sampler.stop() <= LIMIT


def test_draining_fails_no_transaction_of_clients_that_name_all_nodes(fleet, script):
    """A connection for each transaction, as clients without a pool of their own have it."""
    ports = [fleet.nodes[name].port for name in NODES]
    # Each node is the first of some clients.
    loads = [Load(fleet.pg, script, ports[at:] + ports[:at], max(CLIENTS // len(NODES), 1), "-C") for at in range(len(NODES))]
    is_busy = lambda node: node.pool().get("cl_active", 0) > 0
    for name, other in zip(NODES, NODES[1:] + NODES[:1]):
        node = fleet.nodes[name]
        host.eventually(lambda node=node: is_busy(node))
        weir_fleet(fleet.nodes[other], "drain", name, "--wait", "30")
        node.console("SHUTDOWN WAIT_FOR_CLIENTS")
        assert node.wait_end() == 0
        node.start()
        fleet.joined(*NODES)
    assert all(judge(load.stop()) > 10 for load in loads)
