"""An OCI archive unpacked, and run by crun as a container's runtime runs it: the image's user, a read-only root, no capabilities, the machine's network.
What Docker or the kubelet add is added here: /etc/hosts and /etc/resolv.conf, and something to write to for each VOLUME."""

import hashlib
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import tarfile
from pathlib import Path

import psycopg
import pytest

import host

_names = itertools.count(1)


def build(directory, program):
    """The archive that scripts/image makes of a program, in a directory."""
    missing = [name for name in ("buildah", "crun", "mmdebstrap") if not shutil.which(name)]
    if missing:
        pytest.skip(f"{', '.join(missing)} missing; scripts/prepare-tests says why")
    environment = {**os.environ, "WEIR_DIST": str(directory), "WEIR_IMAGE_PROGRAM": str(program)}
    done = subprocess.run([host.REPOSITORY / "scripts/image"], env=environment, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    [archive] = directory.glob("weir-*.oci.tar")
    return archive


class Image:
    """What is in the archive; every blob is what its name says."""

    def __init__(self, archive, directory):
        self.archive = archive
        self.rootfs = directory / "rootfs"
        layout = directory / "layout"
        with tarfile.open(archive) as tar:
            tar.extractall(layout, filter="data")
        for blob in (layout / "blobs/sha256").iterdir():
            assert hashlib.sha256(blob.read_bytes()).hexdigest() == blob.name, blob
        self.read = lambda descriptor: (layout / "blobs" / descriptor["digest"].replace(":", "/", 1)).read_bytes()
        [self.descriptor] = json.loads((layout / "index.json").read_text())["manifests"]
        self.manifest = json.loads(self.read(self.descriptor))
        description = json.loads(self.read(self.manifest["config"]))
        self.architecture, self.config = description["architecture"], description["config"]
        for layer in self.manifest["layers"]:
            path = layout / "layer"
            path.write_bytes(self.read(layer))
            with tarfile.open(path) as tar:
                assert not [name for name in tar.getnames() if Path(name).name.startswith(".wh.")], "layers over one another are not unpacked here"
                self.entries = tar.getmembers()
                tar.extractall(self.rootfs, filter=lambda entry, _: entry, numeric_owner=True)
        shutil.rmtree(layout)

    @property
    def compressed(self):
        return sum(layer["size"] for layer in self.manifest["layers"])

    @property
    def unpacked(self):
        return sum(entry.size for entry in self.entries)


class Running:
    """A container of the image; its root is shared with all others, as it is read-only."""

    def __init__(self, image, directory, environment, user=None, words=None, mounts=()):
        self.image, self.directory = image, directory
        self.name = f"weir-e2e-{os.getpid()}-{next(_names)}"
        self.state = directory / "state"
        self.log_path = directory / "log"
        self.process = None
        self.user = user or image.config["User"]
        uid, _, gid = self.user.partition(":")
        command = [*image.config["Entrypoint"], *(image.config["Cmd"] if words is None else words)]
        environment = [*image.config.get("Env", []), *(f"{name}={value}" for name, value in environment.items())]
        spec = self.spec(command, environment, int(uid), int(gid or 0), mounts)
        (directory / "config.json").write_text(json.dumps(spec))

    def spec(self, command, environment, uid, gid, mounts):
        def bind(source, target):
            return {"destination": target, "type": "bind", "source": str(source), "options": ["bind", "ro"]}

        volumes = [
            {"destination": place, "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "nodev", "noexec", "mode=1777", "size=1m"]}
            for place in self.image.config.get("Volumes", {})
        ]
        return {
            "ociVersion": "1.0.2",
            "process": {
                "user": {"uid": uid, "gid": gid},
                "args": command,
                "env": environment,
                "cwd": self.image.config.get("WorkingDir") or "/",
                "capabilities": {},
                "noNewPrivileges": True,
            },
            "root": {"path": str(self.image.rootfs), "readonly": True},
            "mounts": [
                {"destination": "/proc", "type": "proc", "source": "proc"},
                {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755", "size=65536k"]},
                *volumes,
                bind("/etc/hosts", "/etc/hosts"),
                bind("/etc/resolv.conf", "/etc/resolv.conf"),
                *(bind(source, target) for source, target in mounts),
            ],
            "linux": {"namespaces": [{"type": kind} for kind in ("pid", "mount", "ipc", "uts")]},
        }

    def change(self, edit):
        """Before it is started."""
        file = self.directory / "config.json"
        spec = json.loads(file.read_text())
        edit(spec)
        file.write_text(json.dumps(spec))

    def crun(self, *words):
        """Without control groups, whichever of their versions this machine has mounted."""
        hide = 'mount -t tmpfs none /sys/fs/cgroup 2>/dev/null; exec "$@"'
        return ["unshare", "--mount", "--propagation", "slave", "sh", "-c", hide, "hide", "crun", "--cgroup-manager=disabled", "--root", self.state, *words]

    def start(self):
        with open(self.log_path, "wb") as log:
            command = self.crun("run", "--bundle", self.directory, self.name)
            self.process = host.start(command, as_user=False, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        host.eventually(self.is_up, timeout=60)
        return self

    def is_up(self):
        assert self.process.poll() is None, f"it ended at start:\n{self.log_text()}"
        return "process up" in self.log_text()

    def once(self, timeout=60):
        return host.run(self.crun("run", "--bundle", self.directory, self.name), as_user=False, check=False, timeout=timeout)

    def exec(self, *words, timeout=60):
        """As `docker exec` and a kubelet's probes and hooks, as the user of the container."""
        return host.run(self.crun("exec", "--user", self.user, self.name, *words), as_user=False, check=False, timeout=timeout)

    def begin(self, *words):
        return host.start(self.crun("exec", "--user", self.user, self.name, *words), as_user=False, stdin=subprocess.DEVNULL)

    def kill(self, number):
        host.run(self.crun("kill", self.name, signal.Signals(number).name), as_user=False)

    def wait_end(self, timeout=30):
        """The exit status of the container's first process."""
        return self.process.wait(timeout)

    def log_text(self):
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def wait_log(self, pattern):
        host.eventually(lambda: re.search(pattern, self.log_text()))

    def stop(self):
        if self.process and self.process.poll() is None:
            host.run(self.crun("delete", "--force", self.name), as_user=False, check=False)
            host.stop(self.process)

    def connect(self, port, database="app", user="scramuser", **options):
        address = {"host": "127.0.0.1", "port": port, "dbname": database, "user": user, "connect_timeout": 30, "sslmode": "disable", **options}
        return psycopg.connect(**address, autocommit=True)
