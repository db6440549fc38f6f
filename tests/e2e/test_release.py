"""What `make dist` has made (the directory in WEIR_RELEASE; `make dist-check` makes it and runs this): its programs run on older systems and on the
other processor, its sums are right, and nothing of the machine that built it is in it."""

import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

import host

pytestmark = [pytest.mark.weir_only, pytest.mark.needs_release]

RELEASE = Path(os.environ.get("WEIR_RELEASE", "."))
MACHINES = ["x86_64", "aarch64"]
PROGRAMS = ["weir", "weir-bench"]
GLIBC = (2, 31)
# What programs may be linked with: parts of glibc, and its loader.
LIBRARIES = re.compile(r"^(lib(c|m|dl|rt|pthread|util|resolv)\.so\.\d|ld-linux-.*\.so\.\d)$")
OLDEST = host.REPOSITORY / "target/bullseye-root"
# Where Debian's cross package has the other machine's libraries.
FOREIGN = {"aarch64": ["qemu-aarch64", "-L", "/usr/aarch64-linux-gnu"], "x86_64": []}


@pytest.fixture(scope="module")
def unpacked(scratch):
    """`unpacked(machine)`: the directory of a tarball's files."""
    directory = host.new_directory(scratch, "release")

    def of(machine):
        [archive] = RELEASE.glob(f"weir-*-linux-{machine}.tar.gz")
        with tarfile.open(archive) as tar:
            tar.extractall(directory, filter="data")
        return directory / archive.name.removesuffix(".tar.gz")

    return of


def version():
    [name] = (path.name for path in RELEASE.glob("weir-*-linux-x86_64.tar.gz"))
    return name.removeprefix("weir-").removesuffix("-linux-x86_64.tar.gz")


def program_version():
    """What the programs say: without the commit, which names of a commit after a release have."""
    return version().partition("+")[0]


def test_all_of_it_is_there_and_its_sums_are_right():
    number = version()
    wanted = {f"weir-{number}-linux-{machine}.tar.gz" for machine in MACHINES}
    wanted |= {f"{name}-{number}-{machine}.cdx.json" for name in PROGRAMS for machine in MACHINES}
    wanted |= {f"{name}_{number}-1_{machine}.deb" for name in PROGRAMS for machine in ("amd64", "arm64")} | {f"weir-pgbouncer_{number}-1_all.deb"}
    wanted |= {f"{name}-{number}-1.{machine}.rpm" for name in PROGRAMS for machine in MACHINES} | {f"weir-pgbouncer-{number}-1.noarch.rpm"}
    sums = dict(reversed(line.split("  ")) for line in (RELEASE / "SHA256SUMS").read_text().splitlines())
    assert sums.keys() == wanted
    assert {path.name for path in RELEASE.iterdir()} == wanted | {"SHA256SUMS"}
    assert {name: hashlib.sha256((RELEASE / name).read_bytes()).hexdigest() for name in wanted} == sums


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_needs_no_more_than_an_old_glibc(unpacked, machine, name):
    program = unpacked(machine) / "bin" / name
    needed = re.findall(r"\(NEEDED\).*\[(.*)\]", host.run(["readelf", "-d", program]).stdout)
    assert needed and all(LIBRARIES.match(library) for library in needed), needed
    symbols = host.run(["readelf", "-V", program]).stdout
    versions = {tuple(map(int, found.split("."))) for found in re.findall(r"GLIBC_([\d.]+)", symbols)}
    assert versions and max(versions) <= GLIBC, sorted(versions)


@pytest.mark.needs_root
@pytest.mark.skipif(not OLDEST.exists(), reason="no bare Debian 11: scripts/check-dist makes it")
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_runs_on_the_oldest_system(unpacked, name):
    program = unpacked("x86_64") / "bin" / name
    shutil.copy(program, OLDEST / "srv")
    said = host.run(["chroot", OLDEST, f"/srv/{name}", "--version"], as_user=False).stdout
    assert program_version() in said and "2.31" in host.run(["chroot", OLDEST, "ldd", "--version"], as_user=False).stdout


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("name", PROGRAMS)
def test_nothing_of_the_building_machine_is_in_a_program(unpacked, machine, name):
    data = (unpacked(machine) / "bin" / name).read_bytes()
    for path in (host.REPOSITORY, Path.home() / ".cargo", Path.home() / ".rustup"):
        assert str(path).encode() not in data, path


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("machine", MACHINES)
def test_the_list_of_parts_names_all_libraries(unpacked, machine, name):
    parts = json.loads((RELEASE / f"{name}-{version()}-{machine}.cdx.json").read_text())
    assert parts["bomFormat"] == "CycloneDX" and parts["metadata"]["component"]["version"] == program_version()
    # Weir's own crates have its licence.
    names = {part["name"] for part in parts["components"] if not part["name"].startswith("weir-")}
    assert {"libc", "rustls", "serde"} <= names, sorted(names)
    licences = host.run(["zcat", unpacked(machine) / f"share/weir/{name}.third-party.gz"]).stdout
    assert [part for part in names if part not in licences] == []


@pytest.mark.parametrize("io_driver", ["epoll"])  # what an emulator of another processor has, too
@pytest.mark.parametrize("machine", MACHINES)
def test_the_pooler_of_a_tarball_serves(unpacked, machine, weir, pg, scratch):
    programs = unpacked(machine) / "bin"
    for name in PROGRAMS:
        said = host.run([*FOREIGN[machine], programs / name, "--version"]).stdout
        assert program_version() in said
    program = host.new_directory(scratch, "wrapper") / "weir"
    program.write_text(f"#!/bin/sh\nexec {shlex.join([*FOREIGN[machine], str(programs / 'weir')])} \"$@\"\n")
    program.chmod(0o755)
    pooler = weir(program=program)
    host.run([pg.bindir / "pgbench", "-i", "-q", "-s", 1, f"postgres://alice@127.0.0.1:{pg.port}/app"])
    command = [pg.bindir / "pgbench", "-n", "-b", "tpcb-like", "-c", 8, "-j", 2, "-t", 50, "-M", "prepared", pooler.uri()]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0 and "number of transactions actually processed: 400/400" in done.stdout, done.stdout + done.stderr
    assert pooler.console("SHOW VERSION")
