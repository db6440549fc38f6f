"""make install: what lands where, and that it never writes over an existing configuration."""

import subprocess

import pytest

import conftest
import host
import weir as pooler

pytestmark = pytest.mark.weir_only


@pytest.fixture
def installed(tmp_path):
    """`make install` into a directory; the program must have been built, as the other tests need it too."""
    assert not conftest.PGBOUNCER

    def install(target="install"):
        command = ["make", "-s", target, f"BUILT={pooler.PROGRAM.parent}", f"DESTDIR={tmp_path}", "PREFIX=/usr"]
        subprocess.run(command, cwd=host.REPOSITORY, check=True, capture_output=True, text=True)
        return tmp_path

    return install


def test_everything_has_its_place(installed):
    root = installed()
    assert subprocess.run([root / "usr/bin/weir", "-V"], check=True, capture_output=True).stdout.startswith(b"PgBouncer")
    bench = subprocess.run([root / "usr/bin/weir", "bench", "--version"], check=True, capture_output=True, env={"PATH": "/nonexistent"})
    assert bench.stdout.startswith(b"weir-bench "), "it is beside weir"
    assert ".TH WEIR 1" in (root / "usr/share/man/man1/weir.1").read_text().replace('"', "")
    assert ".TH WEIR-BENCH 1" in (root / "usr/share/man/man1/weir-bench.1").read_text().replace('"', "").replace("\\", "")
    for program in ("weir", "weir-bench"):
        for place, begin in ((f"bash-completion/completions/{program}", "_weir"), (f"zsh/site-functions/_{program}", f"#compdef {program}\n"), (f"fish/vendor_completions.d/{program}.fish", "# ")):
            completions = root / "usr/share" / place
            assert completions.read_text().startswith(begin) and completions.stat().st_mode & 0o777 == 0o644, place
    unit = (root / "usr/lib/systemd/system/weir.service").read_text()
    assert "ExecStart=/usr/bin/weir /etc/weir/weir.ini" in unit and "ExecReload=/usr/lib/weir/reload $MAINPID /usr/bin/weir /etc/weir/weir.ini" in unit
    assert "@BINDIR@" not in unit and "@LIBDIR@" not in unit and (root / "usr/lib/weir/reload").stat().st_mode & 0o777 == 0o755
    for place in ("lib/systemd/system/weir.socket", "share/weir/grafana/weir.json", "share/weir/prometheus/weir-rules.yml", "share/doc/weir/LICENSE-APACHE", "share/doc/weir/LICENSE-MIT"):
        assert (root / "usr" / place).exists(), place
    assert (root / "usr/lib/sysusers.d/weir.conf").exists()
    # It may hold passwords.
    assert (root / "etc/weir/weir.ini").stat().st_mode & 0o777 == 0o640


def test_the_unit_leaves_the_process_what_it_needs_and_no_more(installed):
    """What docs/security.md promises of a process that was broken into."""
    lines = (installed() / "usr/lib/systemd/system/weir.service").read_text().splitlines()
    for wanted in (
        "User=weir", "UMask=0077", "LimitCORE=0", "NoNewPrivileges=yes", "CapabilityBoundingSet=", "AmbientCapabilities=",
        "ProtectSystem=strict", "ProtectHome=yes", "ProtectProc=invisible", "ProtectKernelTunables=yes", "ProtectControlGroups=yes",
        "PrivateTmp=yes", "PrivateDevices=yes", "RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX AF_NETLINK", "RestrictNamespaces=yes",
        "RestrictSUIDSGID=yes", "LockPersonality=yes", "MemoryDenyWriteExecute=yes", "SystemCallFilter=@system-service",
    ):
        assert wanted in lines, wanted


def test_a_configuration_is_kept(installed):
    ini = installed() / "etc/weir/weir.ini"
    ini.write_text("mine")
    installed()
    assert ini.read_text() == "mine"
    assert (ini.parent / "weir.ini.sample").read_text() != "mine"


def test_the_installed_configuration_can_be_reached_under_systemd(installed):
    """The unit's /tmp is private: the socket has to be in the directory that the unit makes."""
    root = installed()
    unit = (root / "usr/lib/systemd/system/weir.service").read_text()
    assert "PrivateTmp=yes" in unit and "RuntimeDirectory=weir\n" in unit
    assert "\nunix_socket_dir = /run/weir\n" in (root / "etc/weir/weir.ini").read_text()


def test_uninstall_removes_everything(installed):
    root = installed()
    installed("uninstall")
    assert [path for path in root.rglob("*") if not path.is_dir()] == []
    assert not (root / "etc/weir").exists()


def test_uninstall_keeps_an_edited_configuration(installed):
    root = installed()
    (root / "etc/weir/weir.ini").write_text("mine")
    installed("uninstall")
    assert [path for path in root.rglob("*") if not path.is_dir()] == [root / "etc/weir/weir.ini"]
