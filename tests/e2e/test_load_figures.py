"""Loads whose figures docs/reliability.md has: thousands of clients that are idle, active, waiting, logging in, coming and going, not reading.
What fails here is an error or a leak; how fast it was is printed, because a busy machine decides that. `make load` runs the long forms."""

import os
import statistics
import time
from pathlib import Path

import pytest

import crowd
import host
import secret
import wire
from fault_proxy import reset
from test_deaths import memory_kb, slow
from test_load import bench, tables  # noqa: F401  (a fixture)

pytestmark = [pytest.mark.every_driver, pytest.mark.weir_only]

# A part of each load in `make test`; all of it, and for that many seconds, in `make load`.
SECONDS = int(os.environ.get("WEIR_LOAD_FIGURES", "0"))
WHOLE = bool(SECONDS)
IDLE_KB = 80_000  # for 10,000 clients
TEN_SETTINGS = (
    "search_path = app, public", "statement_timeout = '30s'", "lock_timeout = '5s'", "work_mem = '8MB'", "timezone = 'Europe/Vienna'",
    "datestyle = 'ISO, DMY'", "application_name = 'shop'", "idle_in_transaction_session_timeout = '60s'", "intervalstyle = 'iso_8601'",
)
QUIET = {"log_connections": 0, "log_disconnections": 0, "listen_backlog": 4096}


def descriptors(pooler):
    return len(list(Path(f"/proc/{pooler.process.pid}/fd").iterdir()))


def test_idle_clients_cost_little(weir):
    count = 10_000 if WHOLE else 1_000
    pooler = weir(max_client_conn=count + 10, **QUIET)
    pooler.value("select 1")
    before = memory_kb(pooler)
    clients, seconds = crowd.log_in(pooler.port, count)
    for client in clients[:: count // 100]:
        assert b"mine" in client.simple("select 'mine'")
    used = memory_kb(pooler)
    print(f"{count} idle clients: {used / 1000:.1f} MB resident ({(used - before) / count * 1024:.0f} bytes a client), in after {seconds:.1f} s")
    for client in clients:
        client.close()
    assert used < before + IDLE_KB * count // 10_000
    host.eventually(lambda: pooler.pool()["cl_active"] == 0, timeout=60)


def test_settings_of_idle_clients_cost_little(weir):
    """Ten settings each, of which one has a value of its own: 1.5 KiB a client, and 4 MB for what does not grow with them."""
    count = 10_000 if WHOLE else 1_000
    pooler = weir(session_state="virtual", max_client_conn=count + 10, default_pool_size=5, **QUIET)
    shared = "; ".join(f"set {setting}" for setting in TEN_SETTINGS)
    pooler.value("select 1")
    before = memory_kb(pooler)
    clients, _ = crowd.log_in(pooler.port, count)
    for number, client in enumerate(clients):
        client.simple(f"{shared}; set app.tenant = '{number}'")
    used = memory_kb(pooler) - before
    print(f"{count} idle clients with ten settings each: {used / count * 1024:.0f} bytes a client")
    assert clients[7].simple("show app.tenant; show work_mem").count(b"8MB") == 1
    for client in clients:
        client.close()
    assert used < 4_000 + 1.5 * count


def test_active_clients_over_20_servers(weir, pg, tables):  # noqa: F811
    seconds = SECONDS or 5
    pooler = weir(max_client_conn=1100, default_pool_size=20, query_wait_timeout=300, **QUIET)
    clients = 1000 if WHOLE else 200
    done = bench(pooler, "-S", "-M", "extended", clients=clients, seconds=seconds)
    print(f"{clients} active clients over 20 servers, {seconds} s: {done} transactions, 0 errors")
    assert pg.count() <= 20


def test_waiting_clients_are_served_in_order(weir, pg):
    """In the order in which they came to wait, group by group: within one the kernel may tell of them in any order."""
    count, group = (10_000, 100) if WHOLE else (1_000, 50)
    pg.query("drop sequence if exists served; create sequence served; grant all on sequence served to public", "app")
    pooler = weir(max_client_conn=count + 10, default_pool_size=1, query_wait_timeout=600, **QUIET)
    holder = wire.Raw(pooler.port).login()
    holder.simple("begin")
    clients, _ = crowd.log_in(pooler.port, count)
    for first in range(0, count, group):
        for client in clients[first : first + group]:
            client.buffer = b""
            client.socket.sendall(wire.query("select 'n' || nextval('served')"))
        host.eventually(lambda: pooler.pool()["cl_waiting"] == first + group, interval=0.002)
    started = time.monotonic()
    holder.simple("commit")
    crowd.wait_for(clients)
    seconds = time.monotonic() - started
    places = [int(client.buffer.split(b"n", 1)[1].split(b"C", 1)[0].rsplit(b"n", 1)[-1]) for client in clients]
    assert sorted(places) == list(range(1, count + 1))
    wrong = [place for at, place in enumerate(places) if (place - 1) // group != at // group]
    print(f"{count} waiting clients served in {seconds:.1f} s, {len(wrong)} out of the order of their group of {group}")
    for client in clients:
        client.close()
    assert not wrong


@pytest.mark.parametrize("limits", ["none", "defaults"])
def test_scram_logins_at_once(weir, limits):
    """All get in; by the default limits of what has not logged in, those from one address get in or are refused at once, with 53300."""
    count = 5_000 if WHOLE else 500
    unlimited = {"max_login_conn": 0, "max_login_conn_per_address": 0} if limits == "none" else {}
    userlist = {"alice": secret.scram("right"), "admin": ""}
    pooler = weir(
        auth_type="scram-sha-256", userlist=userlist, databases={"app": "user=bob"}, max_client_conn=count + 10, **unlimited, **QUIET
    )
    started = time.monotonic()
    clients = [crowd.Client(pooler.port, "alice", "app", "right") for _ in range(count)]
    connected = time.monotonic() - started
    took, refused = [], []
    crowd.wait_for(clients, lambda _: took.append(time.monotonic() - started), lambda client: refused.append(client.buffer))
    print(f"{count} SCRAM logins at once, limits: {limits}: connected after {connected:.1f} s, {len(took)} in, {len(refused)} refused; ", end="")
    print(f"median {statistics.median(took):.1f} s, all {max(took):.1f} s")
    assert all(b"C53300" in answer for answer in refused if answer), refused[:1]
    assert not refused or limits == "defaults"
    assert pooler.value("select 'in'", password="right") == "in"
    for client in clients:
        client.close()


def test_clients_that_come_and_go_leave_nothing(weir):
    """As near to 1,000 a second as this process gets; descriptors and memory afterwards as after the first seconds."""
    seconds = SECONDS or 5
    pooler = weir(max_client_conn=500, **QUIET)

    def come_and_go(seconds):
        started, count = time.monotonic(), 0
        while (now := time.monotonic()) < started + seconds:
            if count > (now - started) * 1000:
                time.sleep(0.001)
                continue
            for client in [client := crowd.Client(pooler.port, "alice", "app") for _ in range(10)]:
                while not client.take():
                    pass
                client.socket.sendall(wire.TERMINATE)
                client.close()
            count += 10
        return count

    come_and_go(max(2, seconds / 6))
    host.eventually(lambda: pooler.pool()["cl_active"] == 0)
    before = descriptors(pooler), memory_kb(pooler)
    count = come_and_go(seconds)
    host.eventually(lambda: pooler.pool()["cl_active"] == 0)
    host.eventually(lambda: descriptors(pooler) <= before[0] + 2)
    after = descriptors(pooler), memory_kb(pooler)
    print(f"{count} clients came and went, {count / seconds:.0f} a second: descriptors {before[0]} to {after[0]}, {before[1]} to {after[1]} KiB")
    assert after[1] < before[1] * 1.01 + 1024


def test_clients_that_never_read_slow_no_other_down(weir, pg):
    count = 100 if WHOLE else 30
    pg.stop()
    pg.start(max_connections="200")
    pooler = weir(default_pool_size=count + 5, max_client_conn=count + 20, **QUIET)
    before = memory_kb(pooler)

    def p99(seconds):
        took = []
        with wire.Raw(pooler.port).login() as raw:
            over = time.monotonic() + seconds
            while time.monotonic() < over:
                started = time.monotonic()
                assert raw.simple("select 1") == [["1"]]
                took.append(time.monotonic() - started)
        return statistics.quantiles(took, n=100)[98] * 1000, len(took)

    alone, _ = p99(5)
    deaf = [slow(pooler).login() for _ in range(count)]
    for raw in deaf:
        raw.send(wire.query("select repeat('x', 1000) from generate_series(1, 1000000)"))  # 1 GB
    host.eventually(lambda: pooler.pool()["sv_active"] == count, timeout=60)
    time.sleep(2)  # the buffers of those that do not read fill up
    beside, answers = p99(5)
    used = memory_kb(pooler)
    # By io_uring a reader that stops holds what one batch of completions has brought for it.
    bound = before + 8_000 + count * (1_024 if pooler.io_driver == "epoll" else 4_096)
    host.eventually(lambda: memory_kb(pooler) < bound, timeout=60)  # it is a bound of what stays, not of the first moments
    for raw in deaf:
        reset(raw.socket)
    host.eventually(lambda: memory_kb(pooler) < before + 10_000, timeout=60)
    print(
        f"{count} clients that never read 1 GB: p99 of another {alone:.2f} ms before, {beside:.2f} ms beside them; "
        f"{before / 1000:.1f} MB before, {used / 1000:.1f} MB, {memory_kb(pooler) / 1000:.1f} MB afterwards"
    )
    assert answers > 50
    pg.stop()
    pg.start()
