"""`-R` with TLS: sessions cannot move, so such a client stays with the old process until it disconnects."""

import signal

import pytest

import host
from test_tls_clients import secure, settings

pytestmark = pytest.mark.weir_only


@pytest.mark.parametrize("mode", ["transaction", "session"])
def test_clients_with_tls_stay_with_the_old_process(weir, authorities, mode):
    root = authorities[3]
    pooler = weir(pool_mode=mode, **settings(root, "allow"))
    stays, moves = pooler.connect(**secure(root)), pooler.connect()
    assert (stays.execute("select 1").fetchone(), moves.execute("select 1").fetchone()) == ((1,), (1,))
    old = pooler.process
    try:
        pooler.launch("--reboot")
        host.eventually(lambda: f"[{pooler.process.pid}] LOG process up" in pooler.log_text())
        for _ in range(5):
            assert (stays.execute("select 2").fetchone(), moves.execute("select 2").fetchone()) == ((2,), (2,))
        assert pooler.connect(**secure(root)).execute("select 3").fetchone() == (3,)
        assert old.poll() is None
        stays.close()
        assert old.wait(30) == 0
        assert moves.execute("select 4").fetchone() == (4,)
    finally:
        host.stop(old, signal.SIGQUIT)
