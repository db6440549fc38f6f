"""Many databases with quotas each: that they start and count, what they cost in memory, and how long SHOW QUOTAS takes. What fails here is an error;
the figures are printed. `make quota-figures` runs the long form."""

import os
import time

import pytest

import crowd
import host
from test_deaths import memory_kb
from test_quotas import limited, rows

pytestmark = [pytest.mark.weir_only, pytest.mark.parametrize("io_driver", ["epoll"])]

# A part of it in `make test`.
DATABASES = 10_000 if os.environ.get("WEIR_QUOTA_FIGURES") else 200
SERVERS = 20


def test_many_databases_with_quotas_each(weir, pg, capsys):
    names = [f"tenant{number}" for number in range(DATABASES)]
    limits = "\n".join(f"database {name} connections soft=1 hard=1\ndatabase {name} queries/day soft=1000 hard=2000" for name in names)
    settings = {"max_client_conn": DATABASES + 100, "listen_backlog": 4096, "log_connections": 0, "log_disconnections": 0}
    began = time.monotonic()
    pooler = limited(
        weir, limits + "\n",
        databases={name: f"host=127.0.0.1 port={pg.port} dbname=app user=alice pool_size=1" for name in names},
        max_user_connections=SERVERS, **settings,
    )
    started = time.monotonic() - began
    clients = []
    began = time.monotonic()
    for name in names:
        clients.append(crowd.Client(pooler.port, "alice", name))
        while not clients[-1].take():
            pass
    logged_in = time.monotonic() - began
    for client in clients[:: DATABASES // 20]:
        assert b"mine" in client.simple("select 'mine'")
    queries = lambda shown: sum(int(shown[f"database {name}", "queries/day"]["used"]) for name in names)  # noqa: E731
    host.eventually(lambda: queries(rows(pooler)) == 20)
    began = time.monotonic()
    shown = rows(pooler)
    took = time.monotonic() - began
    assert len(shown) == 2 * DATABASES
    assert all(int(shown[f"database {name}", "connections"]["used"]) == 1 for name in names)
    assert queries(shown) == 20
    with pytest.raises(AssertionError, match="53400"):
        refused = crowd.Client(pooler.port, "alice", names[7])
        while not refused.take():
            pass
    with capsys.disabled():
        print(
            f"\n{DATABASES} databases with two quotas and a client each: started in {started:.1f} s, clients in after {logged_in:.1f} s, "
            f"{memory_kb(pooler) / 1000:.0f} MB resident, SHOW QUOTAS {took:.2f} s"
        )
    for client in clients:
        client.close()
