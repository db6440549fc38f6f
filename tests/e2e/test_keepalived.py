"""A virtual address that keepalived moves between two hosts by `/readyz`, as docs/fleet.md has it: real VRRP between network namespaces on one Ethernet."""

import re
import shutil
import signal
import subprocess
from pathlib import Path

import psycopg
import pytest
from psycopg.rows import dict_row

import host
import network

KEEPALIVED, CURL = (shutil.which(name, path="/usr/sbin:/usr/bin:/sbin:/bin") for name in ("keepalived", "curl"))
SHARED = "10.77.0.100"
DOCUMENT = Path(__file__).parents[2] / "docs/fleet.md"

pytestmark = [
    pytest.mark.weir_only,
    pytest.mark.any_driver,
    pytest.mark.needs_network,
    pytest.mark.skipif(not (KEEPALIVED and CURL), reason="no keepalived with curl; scripts/prepare-tests says why"),
]


class Node:
    """A pooler on a host of its own, and keepalived beside it; both reach PostgreSQL by its socket."""

    def __init__(self, weir, pg, at, name, priority, port):
        self.at, self.http_port = at, 8432
        databases = {"app": f"host={pg.directory}", f"on_{name}": f"host={pg.directory} dbname=app"}
        self.pooler = weir.prepared(databases=databases, listen_addr="*", pool_mode="transaction", http_port=self.http_port)
        self.pooler.port = port
        self.pooler.socket_path = self.pooler.directory / f".s.PGSQL.{port}"
        self.pooler.write_ini()
        self.start()
        self.keepalived = self._keepalived(priority)

    def start(self):
        with open(self.pooler.output_path, "ab") as output:
            command = self.at.inside(self.pooler.program, self.pooler.ini, as_user=True)
            self.pooler.process = host.start(command, as_user=False, cwd=self.pooler.directory, stdout=output, stderr=output)
        host.eventually(self.is_ready)

    def is_ready(self):
        return self.at.run(CURL, "-fsS", f"http://127.0.0.1:{self.http_port}/readyz", check=False).returncode == 0

    def _keepalived(self, priority):
        """By the example of the documentation, with less patience."""
        example = re.search(r"^```\n(vrrp_script .*?)^```$", DOCUMENT.read_text(), re.DOTALL | re.MULTILINE)[1]
        example = example.replace("/usr/bin/curl", CURL).replace("10.0.0.100", SHARED).replace("fall 10", "fall 6").replace("priority 100", f"priority {priority}")
        assert SHARED in example and "fall 6" in example and f":{self.http_port}/readyz" in example
        directory = self.pooler.directory
        config = directory / "keepalived.conf"
        config.write_text("global_defs {\n    enable_script_security\n    script_user root\n}\n" + example)
        files = ["--pid", directory / "keepalived.pid", "--vrrp_pid", directory / "vrrp.pid"]
        command = self.at.inside(KEEPALIVED, "--dont-fork", "--vrrp", "--log-console", "--use-file", config, *files)
        with open(directory / "keepalived.log", "ab") as log:
            return host.start(command, as_user=False, stdout=log, stderr=log)

    def console(self, command):
        """By the socket, which is a file."""
        address = {"host": str(self.pooler.directory), "port": self.pooler.port, "dbname": "pgbouncer", "user": "admin"}
        with psycopg.connect(**address, autocommit=True, row_factory=dict_row) as connection:
            cursor = connection.execute(command)
            return cursor.fetchall() if cursor.description else cursor.statusmessage

    def has_address(self):
        return self.at.has(SHARED)


@pytest.fixture
def nodes(weir, pg):
    """a and b, of which a has the address first."""
    net, port = network.Network("ab"), host.free_port()
    made = {name: Node(weir, pg, at, name, priority, port) for (name, at), priority in zip(net.hosts.items(), (100, 90))}
    made["client"] = net.middle
    yield made
    for name in "ab":
        host.stop(made[name].keepalived, signal.SIGTERM)
        host.stop(made[name].pooler.process, signal.SIGTERM)
    net.close()


def answers_at(nodes, name, pg):
    """Whether the address leads to this node: it alone has the database."""
    words = [pg.bindir / "psql", "-X", "-A", "-t", "-d", f"host={SHARED} port={nodes[name].pooler.port} dbname=on_{name} user=alice connect_timeout=2"]
    return nodes["client"].run(*words, "-c", "select 1", check=False).stdout.strip() == "1"


def test_the_address_leaves_a_node_that_drains_and_comes_back(nodes, pg):
    a, b = nodes["a"], nodes["b"]
    host.eventually(lambda: a.has_address() and not b.has_address(), timeout=40)
    host.eventually(lambda: answers_at(nodes, "a", pg), timeout=40)
    # A client of the address is in a transaction while its node is drained: it ends there, before the address moves.
    uri = f"host={SHARED} port={a.pooler.port} dbname=app user=alice"
    words = [pg.bindir / "psql", "-X", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-d", uri]
    script = "begin;\nselect pg_sleep(1);\nselect 7;\ncommit;\n"
    client = host.start(nodes["client"].inside(*words), as_user=False, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    client.stdin.write(script)
    client.stdin.flush()
    host.eventually(lambda: any(row["database"] == "app" and row["cl_active"] == 1 for row in a.console("SHOW POOLS")))
    a.console("DRAIN END_CLIENTS")
    host.eventually(lambda: b.has_address() and not a.has_address(), timeout=40)
    host.eventually(lambda: answers_at(nodes, "b", pg), timeout=40)
    assert "7\nCOMMIT" in client.communicate(timeout=20)[0]
    # The node is upgraded: its process ends and another one begins, which is ready.
    assert not a.is_ready()
    host.stop(a.pooler.process, signal.SIGTERM)
    a.start()
    host.eventually(lambda: a.has_address() and not b.has_address(), timeout=40)
    host.eventually(lambda: answers_at(nodes, "a", pg), timeout=40)
    # One that is killed is not ready either.
    a.pooler.process.kill()
    a.pooler.process.wait()
    host.eventually(lambda: answers_at(nodes, "b", pg), timeout=40)
