"""Debian packages in a machine of their own with systemd: installed, used, upgraded under load, removed and purged; and in PgBouncer's place."""

import json
import os
import platform
import re
import shutil
import subprocess
from pathlib import Path

import pytest

import host
import machine
import weir as pooler

pytestmark = [pytest.mark.weir_only, pytest.mark.needs_root]

REPOSITORY = Path(__file__).resolve().parents[2]
ARCHITECTURE = {"x86_64": "amd64", "aarch64": "arm64"}[platform.machine()]
# What installing anything at all leaves: caches, and what dpkg and systemd keep of packages that are gone.
LEFT_BY_ALL = re.compile(r"^/(var/(cache|log|lib/(dpkg|apt|systemd))|run|tmp|proc|sys|dev|root|srv)(/|$)|^/etc/(passwd|group|shadow|gshadow|subuid|subgid)-?$|^/etc/\.pwd\.lock$")

# Directories that the distributions of rpm have in packages of their own (filesystem, fish, zsh).
OF_OTHER_RPMS = {f"/usr/share/{name}" for name in ("licenses", "fish", "fish/vendor_completions.d", "zsh", "zsh/site-functions")}


@pytest.fixture(scope="module")
def packages(tmp_path_factory):
    """`packages(version)`: the directory of the packages of the programs that were built, under this version; by default that of the commit."""
    made = {}

    def of(version=""):
        if version not in made:
            directory = tmp_path_factory.mktemp(f"packages-{version}")
            environment = {**os.environ, "WEIR_DIST_VERSION": version, "WEIR_DIST": str(directory), "WEIR_DIST_PROGRAMS": str(pooler.PROGRAM.parent)}
            done = subprocess.run([REPOSITORY / "scripts/dist", "--native"], env=environment, capture_output=True, text=True, check=False, timeout=600)
            if "nfpm cannot be built" in done.stderr:
                pytest.skip(done.stderr.strip().splitlines()[-1])  # by a Go before 1.21, say: Debian 12 has 1.19
            assert done.returncode == 0, done.stdout + done.stderr
            made[version] = directory
        return made[version]

    yield of
    for directory in made.values():
        shutil.rmtree(directory, ignore_errors=True)


def package(directory, name):
    [file] = directory.glob(f"{name}_*_{'all' if name == 'weir-pgbouncer' else ARCHITECTURE}.deb")
    return file


@pytest.fixture(params=machine.SYSTEMS)
def booted(pg, scratch, request):
    """A machine that reaches PostgreSQL at /srv/postgres."""
    started = machine.Machine(host.new_directory(scratch, "machine"), request.param, [f"{pg.directory}:/srv/postgres"])
    try:
        yield started.boot()
    finally:
        started.stop()


def configure(booted, pg, path):
    """A pool as an administrator makes it, in the file of the package."""
    entry = f"shop = host=/srv/postgres port={pg.port} dbname=app user=alice pool_size=5"
    booted.run(f"""
        sed -i 's|^\\[databases\\]|[databases]\\n{entry}|; s|^auth_type = .*|auth_type = trust|; s|^;*admin_users = .*||; s|^\\[pgbouncer\\]|[pgbouncer]\\nadmin_users = admin|' {path}
        printf '"alice" ""\\n"admin" ""\\n' > {os.path.dirname(path)}/userlist.txt
        grep -q shop {path}
    """)


def pgbench(booted, pg, seconds):
    command = [pg.bindir / "pgbench", "-n", "-S", "-c", 20, "-j", 2, "-T", seconds, "-h", "127.0.0.1", "-p", 6432, "-U", "alice", "shop"]
    return host.start(booted.network(*command), as_user=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def ended_well(run):
    output, _ = run.communicate(timeout=120)
    assert run.returncode == 0 and "number of failed transactions: 0 " in output, output
    return int(re.search(r"actually processed: (\d+)", output)[1])


def console(booted, command):
    """A row of the console, asked from within the machine's network."""
    words = ["psql", "-XAtqc", command, "-h", "127.0.0.1", "-p", "6432", "-U", "admin", "pgbouncer"]
    return host.run(booted.network(*words), as_user=False).stdout.strip()


def check_samehost(booted, path, unit):
    """An HBA rule by the machine's own addresses: the unit lets the process ask for them."""
    booted.run(f"""
        echo 'host all all samehost trust' > /srv/hba.conf
        sed -i 's|^auth_type = .*|auth_type = hba\\nauth_hba_file = /srv/hba.conf|' {path}
        systemctl reload {unit}
    """)
    host.eventually(lambda: "\nauth_type|hba|" in console(booted, "SHOW CONFIG"))
    assert console(booted, "SHOW VERSION").startswith("PgBouncer")


def with_conffile(file, path, text, directory):
    """A package that has this configuration file, too, as an earlier version of it had."""
    tree = directory / "tree"
    host.run(["dpkg-deb", "-R", file, tree], as_user=False)
    conffile = tree / path.lstrip("/")
    conffile.parent.mkdir(parents=True, exist_ok=True)
    conffile.write_text(text)
    (tree / "DEBIAN/conffiles").write_text(f"{path}\n")
    host.run(["dpkg-deb", "--root-owner-group", "-b", tree, directory / file.name], as_user=False)
    return directory / file.name


def is_pgbouncers_own(version):
    return version.startswith("PgBouncer 1.") and "Weir" not in version


def files(booted):
    listed = booted.run("find / -xdev").stdout.splitlines()
    return {path for path in listed if not LEFT_BY_ALL.match(path)}


@pytest.fixture
def tables(pg):
    host.run([pg.bindir / "pgbench", "-i", "-q", "-s", 1, f"postgres://alice@127.0.0.1:{pg.port}/app"])


@pytest.mark.usefixtures("tables")
def test_the_package_is_installed_used_upgraded_under_load_and_purged(booted, pg, packages):
    before = files(booted)
    booted.install(package(packages("0.2.0"), "weir"))
    assert booted.property("weir.service", "ActiveState") == "inactive", "it is configured first"
    booted.run("systemctl enable --now weir")
    assert booted.property("weir.service", "ActiveState") == "active"
    assert booted.run("stat -c '%U:%G %a' /etc/weir/weir.ini /etc/weir/userlist.txt").stdout.split("\n")[:2] == ["root:weir 640"] * 2
    assert booted.run("ps -o user= -p $(systemctl show --property=MainPID --value weir)").stdout.strip() == "weir"
    configure(booted, pg, "/etc/weir/weir.ini")
    booted.run("weir check /etc/weir/weir.ini && systemctl reload weir")
    first = booted.property("weir.service", "MainPID")
    assert console(booted, "SHOW VERSION").startswith("PgBouncer")
    check_samehost(booted, "/etc/weir/weir.ini", "weir")

    run = pgbench(booted, pg, 12)
    host.eventually(lambda: "shop" in console(booted, "SHOW CLIENTS"))
    booted.install(package(packages("0.2.1"), "weir"))
    assert ended_well(run) > 100
    assert booted.property("weir.service", "ActiveState") == "active"
    assert booted.property("weir.service", "MainPID") != first, "the new program has taken over"
    assert booted.property("weir.service", "NRestarts") == "0"
    assert "shop" in booted.run("cat /etc/weir/weir.ini").stdout, "an edited file stays"
    booted.run("systemctl reload weir")  # RELOAD again, as the program is the one that is installed

    booted.run("systemctl restart weir")
    assert booted.property("weir.service", "ActiveState") == "active"
    booted.run("apt-get remove -y weir")
    assert booted.property("weir.service", "ActiveState") == "inactive"
    assert "shop" in booted.run("cat /etc/weir/weir.ini").stdout, "a removal leaves the configuration"
    booted.install(package(packages("0.2.1"), "weir"))
    assert booted.property("weir.service", "ActiveState") == "active", "enabled, and active when it was removed"
    booted.run("apt-get remove -y weir")
    booted.run("apt-get purge -y weir")
    assert sorted(files(booted) - before) == []


@pytest.mark.usefixtures("tables")
def test_systemd_listens_for_it(booted, pg, packages):
    """weir.socket: clients that come while the service is restarted wait, and are served."""
    booted.install(package(packages("0.2.0"), "weir"))
    configure(booted, pg, "/etc/weir/weir.ini")
    booted.run("systemctl enable --now weir")
    booted.run("systemctl stop weir && systemctl enable --now weir.socket && systemctl start weir")
    assert booted.property("weir.socket", "SubState") == "running" and console(booted, "SHOW VERSION").startswith("PgBouncer")
    assert "sockets passed by the service manager" in booted.run("journalctl -u weir").stdout
    booted.run("systemctl stop weir")
    assert booted.property("weir.service", "ActiveState") == "inactive"
    assert console(booted, "SHOW VERSION").startswith("PgBouncer"), "the first client starts it"
    restart = host.start(booted.inside("systemctl", "restart", "weir"), as_user=False)
    for _ in range(20):
        assert console(booted, "SHOW VERSION").startswith("PgBouncer")
    assert restart.wait(60) == 0


@pytest.mark.usefixtures("tables")
def test_it_takes_the_place_of_pgbouncers_package(booted, pg, packages, tmp_path):
    booted.run("apt-get install -y --no-download --no-install-recommends pgbouncer")
    configure(booted, pg, "/etc/pgbouncer/pgbouncer.ini")
    booted.run("systemctl restart pgbouncer")
    assert is_pgbouncers_own(console(booted, "SHOW VERSION")) and ended_well(pgbench(booted, pg, 1)) > 10

    new = packages("0.2.0")
    old_rotation = "/etc/logrotate.d/weir-pgbouncer"
    booted.install(package(new, "weir"), with_conffile(package(new, "weir-pgbouncer"), old_rotation, "/var/log/postgresql/pgbouncer.log {\n}\n", tmp_path))
    assert booted.run("dpkg-query -W -f '${db:Status-Status}' pgbouncer").stdout == "config-files", "PgBouncer is gone, its configuration is not"
    assert booted.property("pgbouncer.service", "ActiveState") == "active"
    assert "Weir" in booted.run("/usr/sbin/pgbouncer -V").stdout
    assert ended_well(pgbench(booted, pg, 1)) > 10, "with PgBouncer's configuration, user and unit"
    assert "duplicate log entry" in booted.run("logrotate --debug /etc/logrotate.conf 2>&1", check=False).stdout
    check_samehost(booted, "/etc/pgbouncer/pgbouncer.ini", "pgbouncer")

    run = pgbench(booted, pg, 12)
    first = booted.property("pgbouncer.service", "MainPID")
    newer = packages("0.2.1")
    booted.install(package(newer, "weir"), package(newer, "weir-pgbouncer"))
    assert ended_well(run) > 100
    assert booted.property("pgbouncer.service", "MainPID") != first
    assert booted.run(f"test ! -e {old_rotation} && logrotate --debug /etc/logrotate.conf 2>&1").stdout.count("error") == 0, "postgresql-common rotates the log"
    assert booted.run("stat -c '%U:%G %a' /var/log/postgresql").stdout.strip() == "root:postgres 1775", "the directory is postgresql-common's"

    booted.run("apt-get purge -y pgbouncer")
    assert "shop" in booted.run("cat /etc/pgbouncer/pgbouncer.ini").stdout, "what PgBouncer's package leaves is not its own any more"
    assert booted.run("systemctl is-enabled pgbouncer").stdout.strip() == "enabled"
    booted.run("apt-get purge -y weir-pgbouncer weir")
    assert "shop" in booted.run("cat /etc/pgbouncer/pgbouncer.ini").stdout, "an administrator's file stays"


@pytest.mark.usefixtures("tables")
def test_the_way_back_is_pgbouncers_package(booted, pg, packages):
    booted.run("apt-get install -y --no-download --no-install-recommends pgbouncer")
    configure(booted, pg, "/etc/pgbouncer/pgbouncer.ini")
    new = packages("0.2.0")
    booted.install(package(new, "weir"), package(new, "weir-pgbouncer"))
    assert "Weir" in console(booted, "SHOW VERSION")
    booted.run("apt-get install -y --no-download --no-install-recommends pgbouncer")
    assert booted.run("dpkg-query -W -f '${db:Status-Status}' weir-pgbouncer", check=False).stdout in ("config-files", "not-installed")
    assert booted.property("pgbouncer.service", "ActiveState") == "active"
    assert is_pgbouncers_own(console(booted, "SHOW VERSION")), "the same configuration, served by PgBouncer again"
    assert ended_well(pgbench(booted, pg, 1)) > 10
    booted.run("apt-get purge -y weir-pgbouncer weir")
    assert booted.run("systemctl is-enabled pgbouncer").stdout.strip() == "enabled", "it starts with the machine, too"
    assert is_pgbouncers_own(console(booted, "SHOW VERSION")) and booted.property("pgbouncer.service", "ActiveState") == "active"


def test_what_weir_pgbouncer_has_made_it_takes_away(booted, packages):
    before = files(booted)
    new = packages("0.2.0")
    booted.install(package(new, "weir"), package(new, "weir-pgbouncer"))
    assert booted.property("pgbouncer.service", "ActiveState") == "active"
    assert booted.run("stat -c '%U:%G %a' /var/log/postgresql").stdout.strip() == "root:postgres 1775"
    # As a purge of PgBouncer's package does it, of which dpkg tells this one.
    booted.run("systemctl disable --now pgbouncer; DPKG_MAINTSCRIPT_PACKAGE=pgbouncer deb-systemd-helper purge pgbouncer.service; dpkg-trigger --by-package=weir /etc/pgbouncer; dpkg --triggers-only --pending")
    assert booted.run("systemctl is-enabled pgbouncer", check=False).stdout.strip() == "disabled", "as the administrator has left it"
    booted.run("apt-get remove -y weir-pgbouncer && rm -r /etc/pgbouncer")
    booted.install(package(new, "weir-pgbouncer"))
    assert booted.property("pgbouncer.service", "ActiveState") == "active", "with new samples"
    booted.run("apt-get purge -y weir-pgbouncer weir")
    assert sorted(files(booted) - before) == []
    booted.run("test ! -e /var/log/postgresql")


@pytest.mark.usefixtures("tables")
def test_the_rpm_package_is_installed_used_upgraded_under_load_and_erased(booted, pg, packages):
    """By Debian's rpm, which knows nothing of what Debian's packages provide: hence --nodeps."""

    def rpm(version, *options):
        [file] = packages(version).glob("weir-0*.rpm")
        shutil.copy(file, booted.tree / "srv" / file.name)
        booted.run(f"rpm {' '.join(options)} --force-debian --nodeps /srv/{file.name}")

    booted.run("rpm --initdb")
    before = files(booted)
    rpm("0.2.0", "-i")
    assert booted.run("stat -c '%U:%G %a' /etc/weir/weir.ini /etc/weir/userlist.txt").stdout.split("\n")[:2] == ["root:weir 640"] * 2
    configure(booted, pg, "/etc/weir/weir.ini")
    booted.run("systemctl enable --now weir")
    run = pgbench(booted, pg, 12)
    first = booted.property("weir.service", "MainPID")
    host.eventually(lambda: "shop" in console(booted, "SHOW CLIENTS"))
    rpm("0.2.1", "-U")
    assert ended_well(run) > 100
    assert booted.property("weir.service", "ActiveState") == "active"
    assert booted.property("weir.service", "MainPID") != first, "the new program has taken over"
    assert "shop" in booted.run("cat /etc/weir/weir.ini").stdout, "an edited file stays"
    booted.run("rpm -e --nodeps weir")
    assert booted.property("weir.service", "ActiveState") == "inactive"
    left = sorted(files(booted) - before - OF_OTHER_RPMS)
    # An erasure is no purge: what an administrator has written stays, and what usage quotas have counted.
    assert left == ["/etc/weir", "/etc/weir/userlist.txt.rpmsave", "/etc/weir/weir.ini.rpmsave", "/var/lib/weir"], left


def tiny_rpm_of_pgbouncer(directory):
    """A package of PgBouncer as to its name and its configuration, which its user alone may read."""
    (directory / "pgbouncer.ini").write_text("[databases]\n\n[pgbouncer]\nlisten_addr = 127.0.0.1\nauth_type = md5\nauth_file = /etc/pgbouncer/userlist.txt\n")
    (directory / "userlist.txt").write_text("")
    contents = [{"src": str(directory / name), "dst": f"/etc/pgbouncer/{name}", "type": "config|noreplace", "file_info": {"mode": 0o600}} for name in ("pgbouncer.ini", "userlist.txt")]
    recipe = {"name": "pgbouncer", "arch": "noarch", "version": "1.24.0", "license": "ISC", "description": "PgBouncer", "contents": contents}
    (directory / "nfpm.yaml").write_text(json.dumps(recipe))
    nfpm = REPOSITORY / "target/dist-tools/nfpm"
    host.run([nfpm, "package", "--config", directory / "nfpm.yaml", "--packager", "rpm", "--target", directory], as_user=False)
    [file] = directory.glob("*.rpm")
    return file


@pytest.mark.usefixtures("tables")
def test_the_rpm_package_takes_pgbouncers_place(booted, pg, packages, tmp_path):
    """Its files are renamed when it is erased, which is behind the scripts of the packages that are installed."""

    def rpm(*packages):
        for file in packages:
            shutil.copy(file, booted.tree / "srv" / file.name)
        booted.run("rpm -U --force-debian --nodeps " + " ".join(f"/srv/{file.name}" for file in packages))

    def of(version):
        return [file for pattern in ("weir-0*.rpm", "weir-pgbouncer-0*.rpm") for file in packages(version).glob(pattern)]

    booted.run("rpm --initdb")
    rpm(tiny_rpm_of_pgbouncer(tmp_path))
    configure(booted, pg, "/etc/pgbouncer/pgbouncer.ini")
    rpm(*of("0.2.0"))
    assert booted.run("rpm -q pgbouncer", check=False).returncode != 0, "it is replaced"
    assert "shop" in booted.run("cat /etc/pgbouncer/pgbouncer.ini").stdout, "the configuration is that of before"
    booted.run("systemctl start pgbouncer")
    assert "Weir" in console(booted, "SHOW VERSION") and ended_well(pgbench(booted, pg, 1)) > 10
    rpm(*of("0.2.1"))
    assert booted.run("stat -c '%U:%G %a' /etc/weir/weir.ini /etc/weir/userlist.txt").stdout.split("\n")[:2] == ["root:weir 640"] * 2, "also after an upgrade"
    assert "shop" in booted.run("cat /etc/pgbouncer/pgbouncer.ini").stdout and booted.property("pgbouncer.service", "ActiveState") == "active"
    booted.run("rpm -e --nodeps weir-pgbouncer && rm -r /etc/pgbouncer && test ! -e /var/log/postgresql")
    rpm(of("0.2.1")[1])
    assert booted.run("stat -c '%U:%G %a' /etc/pgbouncer/*").stdout.split("\n")[:2] == ["postgres:postgres 640"] * 2, "samples"


def test_packages_of_a_commit_after_a_release_are_later_than_it(packages):
    release = re.search(r'^version = "(.*)"', (REPOSITORY / "Cargo.toml").read_text(), re.M)[1]
    unreleased = re.search(r"^## Unreleased$.*?^## \d", (REPOSITORY / "CHANGELOG.md").read_text(), re.M | re.S)[0]
    version = package(packages(), "weir").name.split("_")[1].removesuffix("-1")
    if re.search("^- ", unreleased, re.M):
        assert re.fullmatch(re.escape(release) + r"\+\d{12}\.[0-9a-f]{10}", version)
        host.run(["dpkg", "--compare-versions", version, "gt", release])
        host.run(["dpkg", "--compare-versions", version, "lt", release + ".1"])
        assert any(f"-{version}-1" in file.name for file in packages().glob("weir-bench*.rpm"))
    else:
        assert version == release


def test_lintian_finds_nothing(packages):
    files = sorted(packages("0.2.0").glob("*.deb"))
    assert len(files) == 3
    found = host.run(["lintian", "--fail-on", "error,warning", "--tag-display-limit", "0", *files], as_user=False, check=False)
    assert found.returncode == 0, found.stdout
