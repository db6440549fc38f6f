"""What the pooler asks of the kernel for its TCP sockets: looked at on copies of the sockets themselves."""

import contextlib
import socket

import pytest

import host
import wire

pytestmark = pytest.mark.every_driver

SOL, TCP = socket.SOL_SOCKET, socket.IPPROTO_TCP
TCP_USER_TIMEOUT = 18


@contextlib.contextmanager
def sockets(pooler):
    copies = host.sockets_of(pooler.process.pid)
    try:
        yield [copy for copy in copies if copy.family in (socket.AF_INET, socket.AF_INET6)]
    finally:
        for copy in copies:
            copy.close()


def options(one):
    """As the settings name them."""
    return {
        "tcp_keepalive": one.getsockopt(SOL, socket.SO_KEEPALIVE),
        "tcp_keepcnt": one.getsockopt(TCP, socket.TCP_KEEPCNT),
        "tcp_keepidle": one.getsockopt(TCP, socket.TCP_KEEPIDLE),
        "tcp_keepintvl": one.getsockopt(TCP, socket.TCP_KEEPINTVL),
        "tcp_user_timeout": one.getsockopt(TCP, TCP_USER_TIMEOUT),
    }


def kernels_own():
    with socket.socket() as fresh:
        return options(fresh)


def ends(pooler, pg, ports):
    """Options of the listening socket, of this client's and of its server's; `ports` is what talk() has returned."""
    client, own = ports
    with sockets(pooler) as all_of_them:
        listening = [one for one in all_of_them if one.getsockopt(SOL, socket.SO_ACCEPTCONN)]
        others = [one for one in all_of_them if not one.getsockopt(SOL, socket.SO_ACCEPTCONN)]
        clients = [one for one in others if one.getpeername()[1] == client]
        servers = [one for one in others if (one.getsockname()[1], one.getpeername()[1]) == (own, pg.port)]
        assert listening and clients and servers
        for one in others:
            assert one.getsockopt(TCP, socket.TCP_NODELAY)
        return [(options(one), buffers(one), deferred(one)) for one in (listening[0], clients[0], servers[0])]


def buffers(one):
    """What was asked for; the kernel says twice as much (socket(7))."""
    return one.getsockopt(SOL, socket.SO_RCVBUF) // 2, one.getsockopt(SOL, socket.SO_SNDBUF) // 2


def deferred(one):
    return one.getsockopt(TCP, socket.TCP_DEFER_ACCEPT) > 0


def talk(pooler):
    """A client with a server for itself, and the ports of both: the client's own, and Weir's in front of that server."""
    raw = wire.Raw(pooler.port).login()
    raw.simple("begin")
    [[own]] = raw.simple("select inet_client_port()")
    return raw, (raw.socket.getsockname()[1], int(own))


CHOSEN = {"tcp_keepcnt": 3, "tcp_keepidle": 11, "tcp_keepintvl": 7, "tcp_user_timeout": 12345}


def test_options_hold_for_every_socket(weir, pg):
    pooler = weir(**CHOSEN, tcp_socket_buffer=65536)
    raw, ports = talk(pooler)
    with raw:
        for said, sizes, _ in ends(pooler, pg, ports)[1:]:
            assert said == {"tcp_keepalive": 1, **CHOSEN}
            assert sizes == (65536, 65536)


def test_the_kernels_own_where_nothing_is_said(weir, pg):
    pooler = weir()
    raw, ports = talk(pooler)
    with raw:
        for said, _, _ in ends(pooler, pg, ports)[1:]:
            assert said == {**kernels_own(), "tcp_keepalive": 1}


def test_reload_changes_options_of_new_connections_and_back(weir, pg):
    pooler = weir()
    first, first_ports = talk(pooler)
    with first:
        pooler.reload(**CHOSEN, tcp_socket_buffer=32768, tcp_keepalive=1)
        second, ports = talk(pooler)
        with second:
            for said, sizes, _ in ends(pooler, pg, ports)[1:]:
                assert said == {"tcp_keepalive": 1, **CHOSEN}
                assert sizes == (32768, 32768)
            assert ends(pooler, pg, first_ports)[1][0]["tcp_keepcnt"] == kernels_own()["tcp_keepcnt"]
        pooler.reload(**dict.fromkeys(CHOSEN, 0), tcp_socket_buffer=0, tcp_keepalive=0)
        third, ports = talk(pooler)
        with third:
            for said, sizes, _ in ends(pooler, pg, ports)[1:2]:
                assert said == {**kernels_own(), "tcp_keepalive": 0}
                assert sizes != (32768, 32768)


def test_defer_accept(weir, pg):
    pooler = weir(tcp_defer_accept=1)
    raw, ports = talk(pooler)
    with raw:
        assert ends(pooler, pg, ports)[0][2]
        pooler.reload(tcp_defer_accept=0)
        assert not ends(pooler, pg, ports)[0][2]


def test_a_deferred_client_that_says_nothing_is_seen_all_the_same(weir):
    pooler = weir(tcp_defer_accept=1, client_login_timeout=2)
    with wire.Raw(pooler.port) as raw:
        raw.read_to_end()
    pooler.wait_log("client_login_timeout")


@pytest.mark.parametrize("shape", ["@{name}", "@{name}/deeper"])
def test_abstract_unix_socket(weir, shape):
    pooler = weir.prepared()
    directory = shape.format(name=f"weir-{pooler.port}")
    pooler.write_ini(unix_socket_dir=directory)
    pooler.start()
    path = f"\0{directory[1:]}/.s.PGSQL.{pooler.port}"
    with wire.Raw(pooler.port, path=path).login() as raw:
        assert raw.simple("select 1") == [["1"]]
    assert pooler.psql("-c", "select 2", host_name=directory).stdout.strip() == "2"
    assert not pooler.socket_path.exists()


@pytest.mark.needs_root
def test_unix_socket_group(weir):
    pooler = weir.prepared(unix_socket_group="daemon", unix_socket_mode="0770")
    become = ["setpriv", f"--reuid={host.USER.pw_uid}", f"--regid={host.USER.pw_gid}", "--groups=daemon"]
    with open(pooler.output_path, "ab") as output:
        command = [*become, pooler.program, pooler.ini]
        pooler.process = host.start(command, as_user=False, cwd=pooler.directory, stdout=output, stderr=output)
    pooler.wait_log("process up")
    status = pooler.socket_path.stat()
    assert (status.st_mode & 0o777, pooler.socket_path.group()) == (0o770, "daemon")


def test_a_group_that_is_not_there_ends_the_start(weir):
    pooler = weir.prepared(unix_socket_group="no-such-group")
    pooler.launch()
    assert pooler.wait_end() != 0
    assert "no-such-group" in pooler.output()
