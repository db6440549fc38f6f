"""etcd, on loopback: one member or several, each a process of its own, and what it has under a key."""

import base64
import json
import shutil
import signal
import ssl
import urllib.request

import host

ETCD = shutil.which("etcd")


class Etcd:
    """A cluster of so many members; `ports` are those for clients. `authority`: they speak TLS with its server's certificate, and want one of it."""

    settings = {}  # those of a node, besides `fleet`

    def __init__(self, scratch, members=1, authority=None):
        self.directory = host.new_directory(scratch, "etcd")
        self.authority, self.scheme = authority, "https" if authority else "http"
        self.names = self.members = [f"m{number}" for number in range(members)]
        self.ports = [host.free_port() for _ in self.names]
        self.peers = {name: f"http://127.0.0.1:{host.free_port()}" for name in self.names}
        self.data = {name: host.new_directory(self.directory, name) for name in self.names}
        self.processes = {}
        for name in self.names:
            self.start(name)
        host.eventually(self.is_healthy, timeout=60)

    def start(self, name):
        client, peer = f"{self.scheme}://127.0.0.1:{self.ports[self.names.index(name)]}", self.peers[name]
        urls = ["--listen-client-urls", client, "--advertise-client-urls", client, "--listen-peer-urls", peer]
        members = ",".join(f"{one}={url}" for one, url in self.peers.items())
        cluster = ["--initial-advertise-peer-urls", peer, "--initial-cluster", members]
        command = [ETCD, "--unsafe-no-fsync", "--name", name, "--data-dir", self.data[name], *urls, *cluster]
        if self.authority:
            server = self.authority.server
            files = {"cert-file": server.cert, "key-file": server.key, "trusted-ca-file": self.authority.cert}
            command += ["--client-cert-auth", *(f"--{option}={path}" for option, path in files.items())]
        with open(self.directory / f"{name}.log", "ab") as log:
            self.processes[name] = host.start(command, cwd=self.directory, stdout=log, stderr=log)

    def stop(self, *names, mode=signal.SIGTERM):
        """Stops these members, or all."""
        for name in names or list(self.processes):
            host.stop(self.processes.pop(name), mode, timeout=10)

    def backup(self):
        """A copy of all data as they are now; the members are restarted."""
        self.stop()
        copy = host.new_directory(self.directory, "backup")
        for name, data in self.data.items():
            shutil.copytree(data, copy / name)
        for name in self.names:
            self.start(name)
        host.eventually(self.is_healthy, timeout=60)
        return copy

    def restore(self, copy):
        """Goes back to these data, with the revisions that there were."""
        self.stop()
        for name, data in self.data.items():
            shutil.rmtree(data)
            shutil.copytree(copy / name, data)
            for path in (data, *data.rglob("*")):
                host.hand_over(path)
        for name in self.names:
            self.start(name)
        host.eventually(self.is_healthy, timeout=60)

    def close(self):
        """Ends it. Its data, 64 MB of empty log for each member, are removed; what the members have said stays."""
        self.stop()
        host.discard(*self.data.values(), *self.directory.glob("backup-*"))

    def is_healthy(self):
        try:
            return self.ask("/v3/maintenance/status").get("leader") not in (None, "0")
        except OSError:
            return False

    def ask(self, path, **what):
        request = urllib.request.Request(f"{self.scheme}://127.0.0.1:{self.ports[0]}{path}", json.dumps(what).encode(), method="POST")
        with urllib.request.urlopen(request, timeout=30, context=self._context()) as answer:
            return json.load(answer)

    def _context(self):
        if not self.authority:
            return None
        context = ssl.create_default_context(cafile=self.authority.cert)
        context.load_cert_chain(self.authority.alice.cert, self.authority.alice.key)
        return context

    def put(self, key, value):
        self.ask("/v3/kv/put", key=_encoded(key), value=_encoded(value))

    def delete(self, key):
        self.ask("/v3/kv/deleterange", key=_encoded(key))

    def under(self, prefix):
        """Keys and values that begin with it."""
        end = prefix[:-1] + chr(ord(prefix[-1]) + 1)
        found = self.ask("/v3/kv/range", key=_encoded(prefix), range_end=_encoded(end)).get("kvs", [])
        return {_decoded(pair["key"]): _decoded(pair.get("value", "")) for pair in found}

    def revision(self):
        """Grows with each write."""
        return int(self.ask("/v3/kv/range", key=_encoded("x"))["header"]["revision"])

    def url(self, prefix="/weir", ports=None):
        return "etcd://" + ",".join(f"127.0.0.1:{port}" for port in ports or self.ports) + prefix


def _encoded(text):
    return base64.b64encode(text.encode()).decode()


def _decoded(text):
    return base64.b64decode(text).decode("utf-8", "replace")
