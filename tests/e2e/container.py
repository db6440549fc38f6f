"""`weir container` as a container's runtime starts it: with this environment and nothing else, and without the configuration files of this
machine, which would be taken for mounted ones. What a health check or a preStop hook runs is run beside it, in the same mount namespace."""

import contextlib
import itertools
import os
import re
import signal
from pathlib import Path

import psycopg
import pytest

import host
import weir as pooler

# Where it looks for a mounted configuration.
MOUNTED = ("/etc/weir", "/etc/pgbouncer", "/bitnami/pgbouncer/conf", "/opt/bitnami/pgbouncer/conf")
HIDE = 'for place in $HIDDEN; do mount -t tmpfs none "$place" || exit 125; done; unset HIDDEN; exec "$@"'

_runs = itertools.count(1)


class Container:
    def __init__(self, directory, environment, mounted=None, io_driver=None):
        """`mounted` is the text of a file that is there as /etc/pgbouncer/pgbouncer.ini."""
        self.directory = directory
        self.port = host.free_port()
        self.http_port = host.free_port()
        own = {"LISTEN_PORT": self.port, "HTTP_PORT": self.http_port, "UNIX_SOCKET_DIR": directory, "IO_DRIVER": io_driver or ""}
        given = {**own, **environment} if mounted is None else environment
        self.environment = {name: str(value) for name, value in given.items() if value is not None}
        self.mounted = mounted
        self.log_path = directory / "log"
        self.process = None

    # --- the runtime's part -----------------------------------------------------------------------------------
    def command(self, *words):
        """The program in a mount namespace without the machine's own files, or with one that is mounted."""
        program = [pooler.PROGRAM_COPY["path"], "container", *words]
        hidden = [place for place in MOUNTED if Path(place).is_dir()]
        if self.mounted is None and not hidden:
            return program, True
        if not host.USER:
            pytest.skip(f"{', '.join(hidden) or 'a mounted file'}: only root can hide or mount a configuration")
        script = HIDE
        if self.mounted is not None:
            if not Path("/etc/pgbouncer").is_dir():
                pytest.skip("/etc/pgbouncer is not there, in which a file would be mounted")
            file = self.directory / "pgbouncer.ini"
            file.write_text(self.mounted)
            host.hand_over(file)
            script = HIDE.replace("unset HIDDEN", f"cp -p {file} /etc/pgbouncer/pgbouncer.ini && chmod 755 /etc/pgbouncer || exit 125; unset HIDDEN")
        unshare = ["unshare", "--mount", "--propagation", "private", "env", f"HIDDEN={' '.join(hidden)}", "sh", "-c", script, "hide"]
        return [*unshare, *self.as_user(), *program], False

    def as_user(self):
        user = [f"--reuid={host.USER.pw_uid}", f"--regid={host.USER.pw_gid}", "--clear-groups", "--no-new-privs"]
        return ["setpriv", "--pdeathsig", "KILL", *user, "env", "-i", *(f"{name}={value}" for name, value in self.environment.items())]

    def launch(self):
        command, as_user = self.command()
        environment = self.environment if as_user else os.environ
        with open(self.log_path, "ab") as log:
            self.process = host.start(command, as_user, env=environment, cwd="/", stdout=log, stderr=log)
        return self

    def start(self):
        self.launch()
        host.eventually(self.is_up, timeout=60)
        return self

    def is_up(self):
        assert self.process.poll() is None, f"it ended at start:\n{self.log_text()}"
        return re.search(r"process up", self.log_text()) and host.is_listening(self.port, "/none")

    def once(self, *words, timeout=60):
        """A run that ends by itself, in a container of its own."""
        command, as_user = self.command(*words)
        return host.run(command, as_user, check=False, timeout=timeout, env=self.environment if as_user else os.environ)

    def beside(self, *words):
        """The words of a second process in the same container, and whether it has to be started as the user."""
        program = [pooler.PROGRAM_COPY["path"], "container", *words]
        if self.process.args[0] != "unshare":
            return program, True
        return ["nsenter", "--target", str(self.process.pid), "--mount", "--", *self.as_user(), *program], False

    def exec(self, *words, timeout=60):
        command, as_user = self.beside(*words)
        return host.run(command, as_user, check=False, timeout=timeout, env=self.environment if as_user else os.environ)

    def begin(self, *words):
        """Starts a second process and does not wait for it."""
        command, as_user = self.beside(*words)
        output = open(self.directory / f"beside-{next(_runs)}", "w+", encoding="utf-8")
        environment = self.environment if as_user else os.environ
        process = host.start(command, as_user, env=environment, cwd="/", stdout=output, stderr=output)
        process.said = lambda: Path(output.name).read_text()
        return process

    def add_to_mounted(self, line):
        """The mounted file changes under the process, as a ConfigMap's does."""
        edit = ["sh", "-c", 'echo "$1" >>/etc/pgbouncer/pgbouncer.ini', "edit", line]
        host.run(["nsenter", "--target", str(self.process.pid), "--mount", "--", *edit], as_user=False)

    def log_text(self):
        return self.log_path.read_text(errors="replace")

    def wait_log(self, pattern, timeout=30):
        host.eventually(lambda: re.search(pattern, self.log_text()), timeout)

    def wait_end(self, timeout=30):
        return self.process.wait(timeout)

    def stop(self):
        if self.process and self.process.poll() is None:
            host.stop(self.process, signal.SIGQUIT)

    # --- clients ----------------------------------------------------------------------------------------------
    def connect(self, database="app", user="alice", **options):
        address = {"host": "127.0.0.1", "port": self.port, "dbname": database, "user": user, "connect_timeout": 30, "sslmode": "disable", **options}
        return psycopg.connect(**address, autocommit=True)

    def refuses(self):
        with contextlib.suppress(psycopg.OperationalError):
            self.connect(password="x").close()
            return False
        return not host.is_listening(self.port, "/none")
