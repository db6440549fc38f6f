"""A cluster that Patroni keeps: etcd as one process, and three members with a PostgreSQL each, all on loopback. Also an HTTP server that says of
itself that it is Patroni, and lies."""

import contextlib
import http.server
import importlib.util
import json
import os
import shutil
import signal
import ssl
import sys
import threading
import urllib.request
from pathlib import Path

import psycopg

import host
import postgres

ETCD = shutil.which("etcd")
NAMES = ("m1", "m2", "m3")
# Who may change something by an API with certificates, and how that stands in a URL.
USERNAME, PASSWORD = "weir", "s:cret"
CREDENTIALS = "weir:s%3Acret@"


def packages():
    """The directory that Patroni is installed in: that of the tests, or another one (WEIR_PATRONI)."""
    given = os.environ.get("WEIR_PATRONI")
    found = importlib.util.find_spec("patroni")
    return Path(given) if given else Path(found.origin).parent.parent if found and found.origin else None


def is_here():
    return bool(ETCD and packages())


def python():
    """An interpreter that the servers' user can run: that of the tests may be in root's home."""
    try:
        host.run([sys.executable, "-c", ""])
        return Path(sys.executable)
    except PermissionError:
        return Path("/usr/bin/python3")


def get(url, path="/cluster", root=None):
    """`root` is the Authority of an API with a certificate."""
    context = ssl.create_default_context(cafile=root.cert) if root else None
    with urllib.request.urlopen(f"{url}{path}", timeout=5, context=context) as answer:
        return json.load(answer)


class Member:
    """One Patroni with its PostgreSQL."""

    def __init__(self, cluster, name):
        self.cluster, self.name = cluster, name
        self.directory = host.new_directory(cluster.directory, name)
        self.port, self.api = host.free_port(), host.free_port()
        self.url = f"{'https' if cluster.root else 'http'}://127.0.0.1:{self.api}"
        self.log_path = self.directory / "patroni.log"
        self.process = None
        host.hand_over(self.directory).joinpath("patroni.json").write_text(json.dumps(self.configuration()))

    def configuration(self):
        hba = ["local all all trust", "host all all 127.0.0.1/32 trust", "host replication all 127.0.0.1/32 trust"]
        dcs = {"ttl": 20, "loop_wait": 2, "retry_timeout": 5, "postgresql": {"parameters": {"max_connections": 100}}}
        local = {"fsync": "off", "unix_socket_directories": str(self.directory), "log_line_prefix": "%m %p %u "}
        api = {"restapi": {"listen": f"127.0.0.1:{self.api}", "connect_address": f"127.0.0.1:{self.api}"}}
        if root := self.cluster.root:
            api["restapi"] |= {"certfile": str(root.server.cert), "keyfile": str(root.server.key)}
            api["restapi"]["authentication"] = {"username": USERNAME, "password": PASSWORD}
            api["ctl"] = {"cacert": str(root.cert)}
        return {
            "scope": "demo",
            "name": self.name,
            **api,
            "etcd3": {"host": f"127.0.0.1:{self.cluster.etcd_port}"},
            "bootstrap": {"dcs": dcs, "initdb": [{"encoding": "UTF8"}, {"locale": "C.UTF-8"}, {"wal-segsize": "1"}, "no-sync"]},
            "postgresql": {
                "listen": f"127.0.0.1:{self.port}",
                "connect_address": f"127.0.0.1:{self.port}",
                "data_dir": str(self.directory / "data"),
                "bin_dir": str(self.cluster.bindir),
                "pg_hba": hba,
                "parameters": local,
                "basebackup": [{"checkpoint": "fast"}, "no-sync"],
                "authentication": {"superuser": {"username": "postgres"}, "replication": {"username": "replica"}},
            },
        }

    def start(self):
        environment = {**os.environ, "PYTHONPATH": str(packages()), "PYTHONDONTWRITEBYTECODE": "1", "HOME": str(self.directory)}
        # Of a PostgreSQL that is not the system's, whose standbys would load the system's libpq, which does not know all that Patroni writes.
        if (libraries := self.cluster.bindir.parent / "lib").joinpath("libpq.so.5").exists():
            environment["LD_LIBRARY_PATH"] = str(libraries)
        with open(self.log_path, "ab") as log:
            command = [python(), "-m", "patroni", self.directory / "patroni.json"]
            self.process = host.start(command, die_with=signal.SIGTERM, cwd=self.directory, env=environment, stdout=log, stderr=log)

    def kill(self):
        """Ends both at once. In order it takes seconds: a leader waits for those that would follow it."""
        if not self.process:
            return
        family = host.children(self.process.pid)
        self.process.kill()
        self.process.wait()
        with contextlib.suppress(FileNotFoundError):
            postmaster = int((self.directory / "data/postmaster.pid").read_text().split()[0])
            family += [postmaster, *host.children(postmaster)]
        for pid in family:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        host.eventually(lambda: not any(host.lives(pid) for pid in family))

    def query(self, statement, database="postgres"):
        address = {"host": "127.0.0.1", "port": self.port, "user": "postgres", "dbname": database}
        with psycopg.connect(**address, autocommit=True, connect_timeout=5) as connection:
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def value(self, statement, database="postgres"):
        return self.query(statement, database)[0][0]


class PatroniCluster:
    """With `root`, an Authority that has a certificate `server`, the API is asked by https, and for changes with CREDENTIALS."""

    def __init__(self, bindir, scratch, root=None):
        self.bindir, self.root = bindir, root
        self.directory = host.new_directory(scratch, "patroni")
        self.etcd_port = host.free_port()
        self.etcd = self._start_etcd()
        self.members = {name: Member(self, name) for name in NAMES}
        for member in self.members.values():
            member.start()
        try:
            host.eventually(self.is_complete, timeout=60, interval=0.2)
            self._furnish()
        except BaseException:
            self.stop()
            raise

    def _start_etcd(self):
        client, peer = f"http://127.0.0.1:{self.etcd_port}", f"http://127.0.0.1:{host.free_port()}"
        urls = ["--listen-client-urls", client, "--advertise-client-urls", client, "--listen-peer-urls", peer]
        cluster = ["--initial-advertise-peer-urls", peer, "--initial-cluster", f"default={peer}"]
        with open(self.directory / "etcd.log", "ab") as log:
            command = [ETCD, "--unsafe-no-fsync", "--data-dir", host.new_directory(self.directory, "etcd"), *urls, *cluster]
            return host.start(command, cwd=self.directory, stdout=log, stderr=log)

    def _furnish(self):
        leader = self.leader()
        leader.query("create role alice login; create role bob login; create role admin login")
        leader.query("create database app")
        leader.query("grant all on schema public to public", "app")
        # Clients of standbys find it, too.
        has_it = "select count(*) from pg_database where datname = 'app'"
        host.eventually(lambda: all(member.value(has_it) for member in self.members.values()), timeout=60)

    def listed(self):
        """The members as Patroni has them; whichever answers."""
        for member in self.members.values():
            try:
                return get(member.url, root=self.root)["members"]
            except OSError:
                continue
        return []

    def is_complete(self):
        """One leads and runs, and the others follow it."""
        listed = self.listed()
        leading = [one for one in listed if one["role"] == "leader" and one["state"] == "running"]
        following = [one for one in listed if one["role"] != "leader" and one["state"] == "streaming"]
        timelines = {one.get("timeline") for one in listed}
        return len(leading) == 1 and len(following) == len(NAMES) - 1 and len(timelines) == 1

    def leader(self):
        names = [one["name"] for one in self.listed() if one["role"] == "leader"]
        return self.members[names[0]] if names else None

    def settled(self):
        host.eventually(self.is_complete, timeout=60, interval=0.1)
        return self.leader()

    def urls(self):
        credentials = CREDENTIALS if self.root else ""
        return ",".join(member.url.replace("//", f"//{credentials}") for member in self.members.values())

    def entry(self, more="target_session_attrs=primary", urls=None):
        return f"dbname=app topology='patroni {urls or self.urls()}' {more}"

    def stop(self):
        for member in self.members.values():
            member.kill()
        host.stop(self.etcd, signal.SIGTERM, timeout=10)
        host.discard(*self.directory.glob("etcd-*"))


class LyingApi:
    """An HTTP server in Patroni's place. `answer` is what it says of the cluster: a dictionary, or text that is no JSON."""

    def __init__(self, answer):
        self.answer, self.status, self.posts = answer, 200, []
        lying = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                body = lying.answer if isinstance(lying.answer, str) else json.dumps(lying.answer)
                self.say(lying.status, body)

            def do_POST(self):
                length = int(self.headers.get("content-length", 0))
                lying.posts.append((self.path, self.headers.get("authorization"), json.loads(self.rfile.read(length))))
                self.say(412, "switchover is not possible: there is no such cluster")

            def say(self, status, body):
                self.send_response(status)
                self.send_header("content-length", str(len(body.encode())))
                self.end_headers()
                self.wfile.write(body.encode())

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self.server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def stop(self):
        self.server.shutdown()
        self.server.server_close()


def member_row(name, port, role="replica", state="streaming", **more):
    """A member as GET /cluster lists it."""
    return {"name": name, "role": role, "state": state, "host": "127.0.0.1", "port": port, "timeline": 1, **more}
