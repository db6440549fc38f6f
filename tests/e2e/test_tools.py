"""scripts/tools.bash on machines that lack things: what it installs, in which order, and what it says. Its apt, rustup and npm are
stand-ins that note how they were called; WEIR_BARE=1 has the real ones, in bare roots."""

import os
import re
import shutil
import subprocess

import pytest

import host

pytestmark = pytest.mark.weir_only

# The programs of a machine that has next to nothing.
PLAIN = "bash cat chmod cut dirname grep head id ln mkdir mktemp rm sed sort tail tee tr env".split()
VERSION = "1.95"


class Machine:
    """A directory of programs that is all of PATH, and a copy of the script beside a Cargo.toml."""

    def __init__(self, directory):
        self.home = directory / "home"
        self.programs = directory / "bin"
        self.work = directory / "clone"
        self.calls_path = directory / "calls"
        for path in (self.home, self.programs, self.work / "scripts"):
            path.mkdir(parents=True)
        self.calls_path.touch()
        shutil.copy(host.REPOSITORY / "scripts/tools.bash", self.work / "scripts")
        (self.work / "Cargo.toml").write_text(f'rust-version = "{VERSION}"\n')
        for name in PLAIN:
            (self.programs / name).symlink_to(shutil.which(name))
        self.program("cc")
        self.candidates = set()
        self.program("apt-get", self.note("apt-get"))
        self.program("apt-cache", 'grep -qx "$2" "$CANDIDATES" && echo "  Candidate: 1.96.0-1"; exit 0')
        # Root would leave its traces in /usr.
        self.program("id", "echo 1000")
        self.program("sudo", 'case "$1" in -n | tee | chmod | mkdir | rm) exit 0 ;; esac; "$@"')

    def program(self, name, text="exit 0", directory=None):
        path = (directory or self.programs) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        path.write_text(f"#!/bin/bash\n{text}\n")
        path.chmod(0o755)
        return path

    def note(self, name):
        return f'echo "{name} $*" >>"$CALLS"\n'

    def rust(self, version, directory=None):
        self.program("cargo", "exit 0", directory)
        self.program("rustc", f"echo 'rustc {version} (0 2026-01-01)'", directory)

    def rustup(self, directory=None, works=True):
        """A rustup whose toolchain is in a directory of its own."""
        self.rust(f"{VERSION}.0", self.home / "toolchain")
        text = self.note("rustup") + f'[ "$1" != which ] || echo "{self.home}/toolchain/cargo"; exit {0 if works else 1}'
        self.program("rustup", text, directory)

    def on_apt_install(self, package, text):
        """Has apt bring programs along with a package."""
        path = self.programs / "apt-get"
        path.write_text(path.read_text() + f'case "$*" in *install*" {package}"*) {text} ;; esac\n')
        self.candidates.add(package)

    def run(self, commands):
        candidates = self.work / "candidates"
        candidates.write_text("".join(f"{name}\n" for name in self.candidates))
        paths = {"PATH": self.programs, "HOME": self.home, "CALLS": self.calls_path, "CANDIDATES": candidates}
        command = ["bash", "-c", f"set -uo pipefail; . scripts/tools.bash; {commands}"]
        options = {"cwd": self.work, "env": {name: str(path) for name, path in paths.items()}, "capture_output": True, "text": True, "check": False}
        return subprocess.run(command, stdin=subprocess.DEVNULL, **options)

    def calls(self):
        return self.calls_path.read_text().splitlines()


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path)


def installs(machine):
    return [call.partition("--no-install-recommends ")[2] for call in machine.calls() if "install" in call and "apt-get" in call]


def test_without_sudo_everything_is_named_at_once(machine):
    (machine.programs / "cc").unlink()
    (machine.programs / "sudo").unlink()
    ended = machine.run("has_postgres() { return 1; }; install_missing cc fetcher postgres node; need_rust")
    assert ended.returncode == 1
    commands = [line for line in (ended.stdout + ended.stderr).splitlines() if "--no-install-recommends" in line]
    packages = "gcc libc6-dev curl ca-certificates postgresql nodejs npm"
    assert [line.partition("recommends ")[2] for line in commands] == [packages]
    assert not any(line.rstrip().endswith(":") for line in ended.stderr.splitlines())
    assert "libc6-dev" in ended.stderr


def test_everything_is_installed_by_one_command(machine):
    (machine.programs / "cc").unlink()
    machine.candidates = {"gcc", "libc6-dev", "curl", "ca-certificates", "postgresql", "nodejs", "npm"}
    machine.on_apt_install("gcc", f"ln -s {shutil.which('true')} {machine.programs}/cc")
    for name in ("curl", "npm", "node"):
        machine.on_apt_install(name, f"ln -s {shutil.which('true')} {machine.programs}/{name}")
    ended = machine.run("has_postgres() { return 1; }; install_missing cc fetcher postgres node; install_missing cc node")
    assert installs(machine) == ["gcc libc6-dev curl ca-certificates postgresql nodejs npm"], ended.stdout
    assert machine.calls().count("apt-get update -q") == 1


def test_how_much_is_installed_is_said(machine):
    machine.candidates = {"nodejs", "npm"}
    machine.on_apt_install("nodejs", "echo '0 upgraded, 415 newly installed, 0 to remove and 3 not upgraded.'")
    said = machine.run("install_missing node").stdout
    assert "installing by apt: nodejs npm\n" in said and "415 packages" in said and re.search(r"installed in \d+ s", said), said


def test_a_package_that_the_distribution_lacks_keeps_no_other_away(machine):
    machine.candidates = {"nodejs"}
    machine.run("install_missing node")
    assert installs(machine) == ["nodejs"]


def test_rust_comes_from_rustup_first(machine):
    machine.rustup(machine.home / "unpacked")
    machine.program("curl", f'echo "mkdir -p {machine.home}/.cargo/bin; cp {machine.home}/unpacked/rustup {machine.home}/.cargo/bin"')
    machine.program("mkdir", f'exec {shutil.which("mkdir")} "$@"')
    for name in ("sh", "cp"):
        (machine.programs / name).symlink_to(shutil.which(name))
    ended = machine.run("need_rust && rustc --version")
    assert "rustc 1.95.0" in ended.stdout, ended.stdout + ended.stderr
    assert any(call.startswith("rustup toolchain install") and "rustfmt" in call and "clippy" in call for call in machine.calls())
    assert installs(machine) == []


def test_curl_is_installed_before_rustup_is_given_up(machine):
    machine.candidates = {"curl", "ca-certificates"}
    machine.run("need_rust")
    assert installs(machine)[0] == "curl ca-certificates"


def test_a_fresh_rustup_comes_before_the_rust_of_the_distribution(machine):
    machine.rust("1.63.0")
    machine.rust(f"{VERSION}.0", machine.home / ".cargo/bin")
    ended = machine.run("need_rust && rustc --version")
    assert "rustc 1.95.0" in ended.stdout and machine.calls() == []


def test_the_ways_to_rust_are_tried_in_order(machine):
    """Each one fails; the last has what is needed."""
    machine.program("curl", "exit 6")
    machine.rustup(machine.home / "unpacked", works=False)
    (machine.programs / "cp").symlink_to(shutil.which("cp"))
    machine.on_apt_install("rustup", f"cp {machine.home}/unpacked/rustup {machine.programs}")
    machine.program("apt-cache", f'[ "$1" != search ] || echo "rustc-1.94 - Rust"; {(machine.programs / "apt-cache").read_text()}')
    machine.candidates |= {"rustc-1.94", "cargo-web", "rustfmt-web"}  # 1.94 is too old
    machine.rust("1.96.0", machine.home / "debian")
    machine.on_apt_install("rustc-web", f"cp {machine.home}/debian/* {machine.programs}")
    ended = machine.run("need_rust && rustc --version")
    assert "rustup cannot be reached" in ended.stdout, ended.stdout + ended.stderr
    assert "rustc 1.96.0" in ended.stdout, ended.stdout + ended.stderr
    assert installs(machine) == ["rustup", "rustc-web cargo-web rustfmt-web"]


def test_the_newest_versioned_rust_is_taken(machine):
    machine.program("curl", "exit 6")
    listed = "printf '%s - Rust\\n' rustc-1.91 rustc-1.100 rustc-1.95"
    machine.program("apt-cache", f'[ "$1" != search ] || {listed}; {(machine.programs / "apt-cache").read_text()}')
    machine.candidates |= {"rustc-1.100", "cargo-1.100", "rust-1.100-clippy", "rustc-web"}
    ended = machine.run("need_rust")
    assert installs(machine)[:1] == ["rustc-1.100 cargo-1.100 rust-1.100-clippy"], ended.stdout + ended.stderr
    assert os.readlink(machine.work / "target/toolchain") == "/usr/lib/rust-1.100/bin"


def test_rustfmt_and_clippy_are_fetched_where_they_are_missing(machine):
    machine.rust("1.96.0")
    machine.program("cargo", '[ "$1" != clippy ] && [ "$1" != fmt ]')
    machine.rustup()
    ended = machine.run("install_rust has_rust_checks && rustc --version")
    assert "rustc 1.95.0" in ended.stdout, ended.stdout + ended.stderr


def test_a_node_that_npm_fetched_is_used_at_once(machine):
    """bash remembers where it found the one that is too old."""
    new = machine.program("node", "exit 0", machine.home / "new")
    machine.program("node", '[ "$1" = --version ] && echo v18.0.0')
    (machine.programs / "cp").symlink_to(shutil.which("cp"))
    machine.program("npm", f"mkdir -p target/node/node_modules/node/bin; cp {new} target/node/node_modules/node/bin")
    ended = machine.run("need_node && type -p node")
    assert ended.returncode == 0 and "target/node/node_modules/node/bin/node" in ended.stdout, ended.stdout + ended.stderr
    assert "v18.0.0 is too old" in ended.stdout
