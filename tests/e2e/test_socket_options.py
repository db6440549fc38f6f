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


def ends(pooler, pg, client):
    """Options of the listening socket, of this client's and of its server's."""
    with sockets(pooler) as all_of_them:
        listening = [one for one in all_of_them if one.getsockopt(SOL, socket.SO_ACCEPTCONN)]
        others = [one for one in all_of_them if not one.getsockopt(SOL, socket.SO_ACCEPTCONN)]
        clients = [one for one in others if one.getpeername()[1] == client]
        servers = [one for one in others if one.getpeername()[1] == pg.port]
        assert listening and clients and servers
        for one in others:
            assert one.getsockopt(TCP, socket.TCP_NODELAY)
        return [(options(one), buffers(one), deferred(one)) for one in (listening[0], clients[0], servers[-1])]


def buffers(one):
    """What was asked for; the kernel says twice as much (socket(7))."""
    return one.getsockopt(SOL, socket.SO_RCVBUF) // 2, one.getsockopt(SOL, socket.SO_SNDBUF) // 2


def deferred(one):
    return one.getsockopt(TCP, socket.TCP_DEFER_ACCEPT) > 0


def talk(pooler):
    raw = wire.Raw(pooler.port).login()
    raw.simple("begin")
    return raw, raw.socket.getsockname()[1]


CHOSEN = {"tcp_keepcnt": 3, "tcp_keepidle": 11, "tcp_keepintvl": 7, "tcp_user_timeout": 12345}


def test_options_hold_for_every_socket(weir, pg):
    pooler = weir(**CHOSEN, tcp_socket_buffer=65536)
    raw, port = talk(pooler)
    with raw:
        for said, sizes, _ in ends(pooler, pg, port)[1:]:
            assert said == {"tcp_keepalive": 1, **CHOSEN}
            assert sizes == (65536, 65536)


def test_the_kernels_own_where_nothing_is_said(weir, pg):
    pooler = weir()
    raw, port = talk(pooler)
    with raw:
        for said, _, _ in ends(pooler, pg, port)[1:]:
            assert said == {**kernels_own(), "tcp_keepalive": 1}


def test_reload_changes_options_of_new_connections_and_back(weir, pg):
    pooler = weir()
    first, first_port = talk(pooler)
    with first:
        pooler.reload(**CHOSEN, tcp_socket_buffer=32768, tcp_keepalive=1)
        second, port = talk(pooler)
        with second:
            for said, sizes, _ in ends(pooler, pg, port)[1:]:
                assert said == {"tcp_keepalive": 1, **CHOSEN}
                assert sizes == (32768, 32768)
            assert ends(pooler, pg, first_port)[1][0]["tcp_keepcnt"] == kernels_own()["tcp_keepcnt"]
        pooler.reload(**dict.fromkeys(CHOSEN, 0), tcp_socket_buffer=0, tcp_keepalive=0)
        third, port = talk(pooler)
        with third:
            for said, sizes, _ in ends(pooler, pg, port)[1:2]:
                assert said == {**kernels_own(), "tcp_keepalive": 0}
                assert sizes != (32768, 32768)


def test_defer_accept(weir, pg):
    pooler = weir(tcp_defer_accept=1)
    raw, port = talk(pooler)
    with raw:
        assert ends(pooler, pg, port)[0][2]
        pooler.reload(tcp_defer_accept=0)
        assert not ends(pooler, pg, port)[0][2]


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
