"""A Debian or an Ubuntu of its own, started with systemd in name spaces (systemd-nspawn): where packages are installed as their users install them.

The roots are made once by mmdebstrap (`scripts/prepare-tests`); each machine has an overlay over it, so that the next one is bare again."""

import shutil
import subprocess
import time
from pathlib import Path

import host

TARGET = Path(__file__).resolve().parents[2] / "target"
# That of Debian, and what else there is: an Ubuntu where WEIR_BARE_UBUNTU named its archive.
SYSTEMS = ["debian", *(["ubuntu"] if (TARGET / "ubuntu-root/.complete").exists() else [])]


class Machine:
    def __init__(self, directory, system, binds=()):
        self.directory = directory
        self.tree = directory / "root"
        self.process = None
        self.binds = binds
        for name in ("upper", "work", "root"):
            (directory / name).mkdir()
        layers = f"lowerdir={TARGET}/{system}-root,upperdir={directory}/upper,workdir={directory}/work"
        host.run(["mount", "-t", "overlay", "overlay", "-o", layers, self.tree], as_user=False)

    def boot(self):
        """Starts systemd and waits until the machine is up."""
        command = ["systemd-nspawn", "--quiet", "--directory", self.tree, "--register=no", "--keep-unit", "--private-network", "--console=pipe", "--boot"]
        command += [f"--bind={path}" for path in self.binds]
        with open(self.directory / "console", "wb") as console:
            self.process = host.start(command, as_user=False, stdin=subprocess.DEVNULL, stdout=console, stderr=console)
        host.eventually(self.leader, timeout=30)
        host.eventually(lambda: self.run("systemctl is-system-running", check=False).stdout.strip() in ("running", "degraded"), timeout=120)
        return self

    def leader(self):
        """The machine's first process."""
        children = host.children(self.process.pid)
        return children[0] if children else None

    def inside(self, *words):
        return ["nsenter", "--target", str(self.leader()), "--mount", "--uts", "--ipc", "--net", "--pid", "--", *words]

    def run(self, script, check=True, timeout=120):
        return host.run(self.inside("/usr/bin/env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND=noninteractive", "sh", "-ec", script), as_user=False, check=check, timeout=timeout)

    def network(self, *command):
        """A program of this host in the machine's network."""
        return ["nsenter", "--target", str(self.leader()), "--net", "--", *map(str, command)]

    def install(self, *packages):
        """As `apt install ./weir.deb`, without its downloads: what the packages need is in the root."""
        for package in packages:
            shutil.copy(package, self.tree / "srv" / Path(package).name)
        names = " ".join(f"/srv/{Path(package).name}" for package in packages)
        return self.run(f"apt-get install -y -q --no-install-recommends {names} 2>&1")

    def property(self, unit, name):
        return self.run(f"systemctl show --property={name} --value {unit}").stdout.strip()

    def stop(self):
        if self.process:
            leader = self.leader()
            if leader:
                subprocess.run(["kill", "-RTMIN+4", str(leader)], check=False)  # systemd: power off
            deadline = time.monotonic() + 20
            while self.process.poll() is None and time.monotonic() < deadline:
                time.sleep(0.1)
            host.stop(self.process)
        host.run(["umount", self.tree], as_user=False, check=False)
