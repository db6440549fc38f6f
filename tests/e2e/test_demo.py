"""`make demo` as a new user has it, but short: what it prints is true, its panel can be used, and nothing outlives it."""

import json
import re
import signal
from pathlib import Path

import pytest

import etcd
import host
import postgres
from demo import LAB, PATIENCE, Demo

pytestmark = [
    pytest.mark.weir_only,
    pytest.mark.skipif(not LAB.exists(), reason="weir-harness is not beside Weir: cargo build -p weir-harness"),
]


def leaves_nothing(demo, family):
    assert family and host.eventually(lambda: not any(host.lives(pid) for pid in family)), demo.said
    directory = re.search(r"both in (\S+)", demo.said)[1]
    assert directory.startswith("/tmp/weir-demo-") and not Path(directory).exists()


def test_the_panel_of_the_demo_can_be_used_until_ctrl_c(tmp_path):
    demo = Demo(tmp_path, at_terminal=True)
    try:
        pool = demo.line(r"pool: (postgres://\S+)")
        web = demo.panel()
        assert demo.line(r"panel: http://127\.0\.0\.1:(\d+)") == str(web.port) and demo.line(r"api token: (\S+)") == web.token
        assert [pool["name"] for pool in web.get("/api/v1/pools")["pools"]] == ["test-pool"]
        wish = {"name": "second", "db": "bench", "user": "bench", "mode": "transaction", "size": 3}
        status, made, _ = web.ask("POST", "/api/v1/pools", wish)
        assert status == 201, made
        psql = postgres.programs("system") / "psql"
        for uri in (pool, web.get("/api/v1/pools/second")["pool"]["connection"]["uri"]):
            asked = host.run([psql, "-X", "-A", "-t", "-c", "select count(*) from pgbench_branches", uri], as_user=False)
            assert asked.stdout.strip() == "1"
        host.eventually(lambda: any("pgbench_branches" in query["text"] for query in web.get("/api/v1/queries")["queries"]))
        assert (tmp_path / "result/index.html").exists() and (tmp_path / "result-sweep/index.html").exists()
        plan = json.loads((tmp_path / "result/result.json").read_text())["plan"]
        assert plan["rounds"] == 3 and plan["pool_sizes"] == [web.get("/api/v1/pools/test-pool")["pool"]["size"]]
        assert "In short:" in demo.said and "150 clients through weir with a pool of" in demo.said, demo.said
        assert "too few rounds" not in demo.said, demo.said
        family = demo.family()
        demo.process.send_signal(signal.SIGINT)
        assert demo.process.wait(60) == 0, demo.said
        leaves_nothing(demo, family)
    finally:
        host.stop(demo.process, signal.SIGTERM)


def test_without_a_terminal_the_demo_comes_to_its_end(tmp_path):
    demo = Demo(tmp_path, at_terminal=False)
    try:
        # The panel is there while it measures, too.
        assert demo.panel().get("/api/v1/session")["user"] == "demo"
        family = demo.family()
        assert demo.process.wait(PATIENCE) == 0, demo.said
        leaves_nothing(demo, family)
    finally:
        host.stop(demo.process, signal.SIGTERM)


def test_the_demo_of_standbys_loses_nothing(tmp_path):
    """A primary is killed under load; the program itself fails if a transaction is lost or doubled, or a read misses a write."""
    for _ in range(3):
        demo = Demo(tmp_path, at_terminal=False, program=["replicas", "--seconds", 1, "--clients", 5])
        try:
            assert demo.process.wait(PATIENCE) == 0, demo.said
        finally:
            host.stop(demo.process, signal.SIGTERM)
        demo.reader.join(30)
        assert re.search(r"^  [\d,]+ acknowledged, 0 lost, 0 doubled; 0 reads did not see", demo.said, re.M), demo.said
        # One that answers no probe within a second, on a busy machine, gets no reads: then the demo runs again.
        reading = re.findall(r"^  127\.0\.0\.1:\d+ standby +[1-9]\d* reads$", demo.said, re.M)
        if len(reading) >= 2:
            break
    assert len(reading) >= 2, demo.said


@pytest.mark.skipif(not etcd.ETCD, reason="no etcd; scripts/prepare-tests says why")
def test_the_demo_of_a_fleet_holds_its_limit(tmp_path):
    """The program itself fails if PostgreSQL has more connections than the limit, or a client has an error whose node was not killed."""
    demo = Demo(tmp_path, at_terminal=False, program=["fleet", "--seconds", 2, "--clients", 6])
    try:
        assert demo.process.wait(PATIENCE) == 0, demo.said
        demo.reader.join(30)
        phases = re.findall(r"^  (\S.*?) {2,}([1-9][\d,]*) +(\d+) +[\d.]+ s +\d+ of 20$", demo.said, re.M)
        assert [(name, int(errors)) for name, _, errors in phases] == [
            ("all five nodes", 0), ("node2 is killed", 6), ("node3 is cut off", 0), ("node4 is upgraded", 0)
        ], demo.said
        assert not Path(re.search(r"in (/tmp/weir-fleet-\S+),", demo.said)[1]).exists()
    finally:
        host.stop(demo.process, signal.SIGTERM)
