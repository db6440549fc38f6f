"""`weir bench sweep` on a primary and its standbys: reads are measured where they are served, and the size is said for each server."""

import pytest

import host
from test_lab_cli import Bench, short, whole

pytestmark = pytest.mark.weir_only

SWEEP = ["--pool-sizes", "1,2,3,4", "--clients", 4, "--scale", 1, *short(rounds=2)]


class ClusterBench(Bench):
    """The lab on a database of a primary with two standbys, which are named in an order of their own."""

    def __init__(self, cluster, directory):
        self.cluster = cluster
        super().__init__(cluster.primary, directory)
        # Every statement is logged otherwise.
        self.pg.query("alter role alice reset log_statement")
        there = f"select count(*) from pg_database where datname = '{self.database}'"
        for standby in cluster.standbys:
            host.eventually(lambda: standby.value(there) == 1)

    def uri(self, user="alice", password=None):
        first, second = self.cluster.standbys
        places = ",".join(f"127.0.0.1:{server.port}" for server in (first, self.pg, second))
        return f"postgresql://{user}@{places}/{self.database}"


@pytest.fixture
def bench(cluster, tmp_path):
    return ClusterBench(cluster, tmp_path)


def placements(record, workload):
    return [run["placement"] for point, run in whole(record) if point["workload"] == workload and point["target"] == "weir"]


def test_a_sweep_says_the_size_of_the_primary_and_of_each_standby(bench, cluster):
    done = bench.run("sweep", *SWEEP, "--workload", "select-only,simple-update", "--server", bench.uri(), "--out", bench.out)
    assert done.returncode in (0, 3), done.stdout + done.stderr
    record = bench.record()
    labels = sorted(f"127.0.0.1:{standby.port}" for standby in cluster.standbys)
    assert record["complete"] and sorted(record["server"]["standbys"]) == labels
    assert record["server"]["place"] == f"alice@127.0.0.1:{cluster.primary.port}/{bench.database}"
    reads, writes = placements(record, "select-only"), placements(record, "simple-update")
    assert len(reads) == len(writes) == 8
    for placement in reads:
        assert sorted(placement["reads"]) == labels and min(placement["reads"].values()) > 0
        assert sum(placement["reads"].values()) >= 0.9 * placement["queries"] > 0, placement
    assert all(sum(placement["reads"].values()) <= 0.5 * placement["queries"] for placement in writes), writes
    for standby in cluster.standbys:
        question = f"select xact_commit from pg_stat_database where datname = '{bench.database}'"
        host.eventually(lambda: standby.value(question) > 100)
    assert "• each of 2 standbys: " in done.stdout and "(select-only)" in done.stdout, done.stdout
    assert "pool_size counts for each server by itself" in done.stdout
    again = bench.run("report", bench.out)
    assert "• each of 2 standbys: " in again.stdout and "served by the 2 standbys" in again.stdout, again.stdout + again.stderr
    page = (bench.out / "index.html").read_text()
    assert "each of 2 standbys: " in page


def test_a_private_postgresql_may_have_standbys(bench):
    done = bench.run("sweep", *SWEEP, "--workload", "select-only", "--standbys", 1, "--out", bench.out)
    assert done.returncode in (0, 3), done.stdout + done.stderr
    record = bench.record()
    assert record["server"]["embedded"] and len(record["server"]["standbys"]) == 1
    assert all(sum(placement["reads"].values()) >= 0.9 * placement["queries"] for placement in placements(record, "select-only"))
    assert "• the standby: " in done.stdout


def test_what_is_no_cluster_is_refused_beforehand(bench, cluster):
    two = f"postgresql://alice@127.0.0.1:{cluster.primary.port},127.0.0.1:{cluster.primary.port}/{bench.database}"
    done = bench.run("sweep", *SWEEP, "--server", two, "--out", bench.out)
    assert done.returncode == 1 and "2 of these servers are primaries" in done.stderr, done.stderr
    cluster.standbys[1].stop()
    done = bench.run("sweep", *SWEEP, "--server", bench.uri(), "--out", bench.out)
    assert done.returncode == 1 and f":{cluster.standbys[1].port}" in done.stderr, done.stderr
    done = bench.run("sweep", *SWEEP, "--through", f"x={bench.uri()}", "--out", bench.out)
    assert done.returncode == 2 and "a pooler has one address" in done.stderr, done.stderr
    assert not bench.out.exists()
