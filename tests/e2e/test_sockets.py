"""Where Weir listens and where it connects to: TCP, IPv6, lists, unix sockets both ways."""

import socket

import psycopg
import pytest

import host
import wire
from running import SLEEP, wait_until_runs


def test_unix_socket_for_clients(weir):
    pooler = weir()
    with wire.Raw(pooler.port, path=pooler.socket_path).login() as raw:
        assert raw.simple("select 1") == [["1"]]
    pooler.wait_log(r"app/alice@unix\(\d+\):\d+ login attempt")


def test_unix_socket_only(weir):
    pooler = weir(listen_addr=None)
    assert pooler.psql("-c", "select 1", host_name=pooler.directory).stdout.strip() == "1"
    with pytest.raises(ConnectionRefusedError):
        wire.Raw(pooler.port)


def test_no_unix_socket(weir):
    pooler = weir(unix_socket_dir="")
    assert pooler.value("select 1") == 1
    assert not pooler.socket_path.exists()


def test_unix_socket_mode(weir):
    pooler = weir(unix_socket_mode="0700")
    assert pooler.socket_path.stat().st_mode & 0o777 == 0o700


def test_a_stale_socket_is_replaced(weir):
    pooler = weir.prepared()
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(pooler.socket_path))
    host.hand_over(pooler.socket_path)
    pooler.start()
    with wire.Raw(pooler.port, path=pooler.socket_path).login() as raw:
        assert raw.simple("select 1") == [["1"]]


def test_unix_socket_to_the_server(weir, pg):
    pooler = weir(databases={"app": f"host={pg.directory}"})
    client = pooler.connect()
    assert client.execute("select inet_server_addr() is null").fetchone() == (True,)
    # On a busy machine a second one is opened while the first is asked which relations change a session.
    assert {server["addr"] for server in pooler.console("SHOW SERVERS")} == {"unix"}


WAY = "select coalesce(host(inet_server_addr()), 'socket')"


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost"])
def test_a_server_of_this_machine_through_its_socket(weir, pg, name):
    databases = {"app": f"host={name} port={pg.port} dbname=app"}
    pooler = weir(databases=databases, server_socket_dir=pg.directory)
    assert pooler.value(WAY) == "socket"
    with wire.Raw(pooler.port).login() as raw:
        raw.send(wire.query(SLEEP))
        wait_until_runs(pg)
        with wire.Raw(pooler.port) as request:
            request.send(wire.cancel(raw.pid, raw.secret))
            request.read_to_end()
        assert wire.errors(raw.read_until("Z"))[0][0] == "57014"


def test_by_its_address_where_there_is_no_socket(weir, pg, tmp_path):
    databases = {"app": f"host=127.0.0.1 port={pg.port} dbname=app"}
    assert weir(databases=databases, server_socket_dir=tmp_path).value(WAY) == "127.0.0.1"


def test_ipv6_both_ways(weir, pg):
    pooler = weir(listen_addr="::1", databases={"app": "host=::1"})
    with psycopg.connect(**pooler.address(host="::1"), autocommit=True) as client:
        assert client.execute("select host(inet_server_addr())").fetchone() == ("::1",)
        rows = pooler_rows(pooler)
    assert {row["addr"] for row in rows} == {"::1"}
    pooler.wait_log(r"app/alice@\[::1\]:\d+ login attempt")
    with pytest.raises(ConnectionRefusedError):
        wire.Raw(pooler.port)


def pooler_rows(pooler):
    with psycopg.connect(**pooler.address("pgbouncer", "admin", host="::1"), autocommit=True) as console:
        cursor = console.cursor(row_factory=psycopg.rows.dict_row)
        return cursor.execute("SHOW CLIENTS").fetchall() + cursor.execute("SHOW SERVERS").fetchall()


@pytest.mark.parametrize("listen", ["127.0.0.1, ::1", "127.0.0.1,::1", "*"])
def test_lists_of_addresses(weir, listen):
    pooler = weir(listen_addr=listen)
    for address in ("127.0.0.1", "::1"):
        with wire.Raw(pooler.port, host=address).login() as raw:
            assert raw.simple("select 1") == [["1"]]


def test_a_host_name(weir):
    pooler = weir(databases={"app": "host=localhost"})
    assert pooler.value("select 1") == 1


@pytest.mark.since("1.24")
def test_a_list_of_hosts(weir, pg):
    pooler = weir(databases={"app": f"host=localhost,127.0.0.1,{pg.directory}"}, default_pool_size=6)
    clients = [pooler.connect() for _ in range(6)]
    for client in clients:
        client.execute("begin")
        assert client.execute("select 1").fetchone() == (1,)


@pytest.mark.since("1.24")
@pytest.mark.parametrize("choice", ["round-robin", "disable"])
def test_load_balance_hosts(weir, choice):
    """Connections go to the hosts of a list in turn, or all to the first that works."""
    pooler = weir(databases={"app": f"host=127.0.0.1,::1 load_balance_hosts={choice}"}, default_pool_size=4)
    clients = [pooler.connect() for _ in range(4)]
    for client in clients:
        client.execute("begin")
    addresses = sorted(row["addr"] for row in pooler.console("SHOW SERVERS"))
    assert addresses == (["127.0.0.1"] * 4 if choice == "disable" else ["127.0.0.1"] * 2 + ["::1"] * 2)
    assert choice in [row["load_balance_hosts"] for row in pooler.console("SHOW DATABASES")]


def test_listen_backlog(weir):
    """The queue of the listening socket is as long as was asked, as far as the system lets it."""
    pooler = weir(listen_backlog=7)
    listening = host.run(["ss", "-Hltn", f"sport = :{pooler.port}"]).stdout.split()
    assert listening[2] == "7"


def test_a_host_name_that_does_not_resolve(weir):
    pooler = weir(databases={"app": "host=no-such-host.invalid"}, query_wait_timeout=3, server_login_retry=1)
    with pytest.raises(psycopg.OperationalError):
        pooler.value("select 1")
    pooler.wait_log("server DNS lookup failed")


def test_reuse_port_is_accepted(weir):
    pooler = weir(so_reuseport=1)
    assert pooler.value("select 1") == 1


@pytest.mark.since("1.20")
@pytest.mark.since("1.19")
def test_a_port_in_use_ends_the_start(weir):
    taken = weir()
    other = weir.prepared()
    other.port = taken.port
    other.write_ini()
    other.launch()
    assert other.wait_end() != 0
    assert taken.value("select 1") == 1


def test_one_address_that_cannot_be_had_does_not_end_the_start(weir):
    pooler = weir(listen_addr="192.0.2.1, 127.0.0.1")
    assert pooler.value("select 1") == 1
    pooler.wait_log(r"WARNING cannot listen on 192.0.2.1:\d+: bind\(\): Cannot assign requested address")


def test_a_unix_socket_that_cannot_be_had_does_not_end_the_start_either(weir):
    pooler = weir(unix_socket_dir="/nonexistent")
    assert pooler.value("select 1") == 1
    pooler.wait_log(r"WARNING cannot listen on unix:/nonexistent/.*: bind\(\): No such file or directory")
    nowhere = weir.prepared(unix_socket_dir="/nonexistent", listen_addr="")
    nowhere.launch()
    assert nowhere.wait_end() != 0
    assert "nowhere to listen on" in nowhere.output()
