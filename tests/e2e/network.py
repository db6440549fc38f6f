"""Hosts with network interfaces of their own on one Ethernet: network namespaces with a bridge, which only root can make."""

import functools
import os
import subprocess

import host

BRIDGE = "br0"


@functools.cache
def can_be_made():
    """Some containers give root no network namespaces, or no interfaces in them."""
    words = ["unshare", "--net", "ip", "link", "add", "v0", "type", "veth", "peer", "name", "v1"]
    return host.USER is not None and subprocess.run(words, capture_output=True, check=False).returncode == 0


class Host:
    """A network namespace, which lives as long as the process in it."""

    def __init__(self, address):
        self.address = address
        self.holder = host.start(["unshare", "--net", "sleep", "infinity"], as_user=False)
        self.path = f"/proc/{self.holder.pid}/ns/net"
        host.eventually(lambda: os.readlink(self.path) != os.readlink("/proc/self/ns/net"))
        self.ip("link", "set", "lo", "up")

    def inside(self, *words, as_user=False):
        """The command that runs this one here."""
        user = ["setpriv", f"--reuid={host.USER.pw_uid}", f"--regid={host.USER.pw_gid}", "--clear-groups", "--pdeathsig=KILL"] if as_user else []
        return ["nsenter", f"--net={self.path}", *user, *map(str, words)]

    def run(self, *words, **options):
        return host.run(self.inside(*words), as_user=False, **options)

    def ip(self, *words):
        return self.run("ip", *words).stdout

    def has(self, address):
        return f"inet {address}/" in self.ip("-4", "address", "show")


class Network:
    """So many hosts, with addresses that follow each other, and one more whose bridge connects them."""

    def __init__(self, names, prefix="10.77.0"):
        self.middle = Host(f"{prefix}.1")
        self.middle.ip("link", "add", BRIDGE, "type", "bridge", "mcast_snooping", "0")
        self.middle.ip("address", "add", f"{self.middle.address}/24", "dev", BRIDGE)
        self.middle.ip("link", "set", BRIDGE, "up")
        self.hosts = {name: self._connected(name, f"{prefix}.{number}") for number, name in enumerate(names, 11)}

    def _connected(self, name, address):
        made = Host(address)
        self.middle.ip("link", "add", f"to-{name}", "type", "veth", "peer", "name", "eth0", "netns", str(made.holder.pid))
        self.middle.ip("link", "set", f"to-{name}", "master", BRIDGE, "up")
        made.ip("address", "add", f"{address}/24", "dev", "eth0")
        made.ip("link", "set", "eth0", "up")
        return made

    def close(self):
        for one in [*self.hosts.values(), self.middle]:
            host.stop(one.holder)
