"""A private PostgreSQL server for the tests: where its programs are, how it starts, dies and is asked.
The harness itself is the superuser `postgres`, which no test uses through the pooler: what others do can be counted."""

import contextlib
import glob
import os
import re
import shutil
import signal
from pathlib import Path

import psycopg

import host

ROLES = """
create role alice login;
create role bob login;
create role carol login;
create role logged login;
alter role logged set log_statement = 'all';
set password_encryption = 'md5';
create role md5user login password 'md5 secret';
set password_encryption = 'scram-sha-256';
create role scramuser login password 'scram secret';
create role plainuser login password 'plain secret';
create role nologin;
create role replica login replication;
"""
HBA = """
local all all trust
host all md5user all md5
host all scramuser all scram-sha-256
host all plainuser all password
host all all all trust
host replication replica all trust
"""
SETTINGS = {
    "max_connections": "100",
    "max_prepared_transactions": "10",
    "superuser_reserved_connections": "3",
    "fsync": "off",
    "wal_level": "logical",
    "log_connections": "on",
    "log_line_prefix": "%p %u ",
    "listen_addresses": "127.0.0.1,::1",
    # A query whose client has gone ends soon, and not with the next test.
    "client_connection_check_interval": "100ms",
}

# The harness's own are not among them.
CLIENT_SESSIONS = "backend_type = 'client backend' and usename <> 'postgres'"


def programs(version):
    """The directory of PostgreSQL's programs: `system` is the newest installed by the system, `18` the wheel's. None if absent."""
    if version == "18":
        found = host.REPOSITORY / "target/pg18/bin"
        return found if (found / "initdb").exists() else None
    major = lambda path: int(re.search(r"/(\d+)/bin$", path)[1])
    installed = sorted(glob.glob("/usr/lib/postgresql/[0-9]*/bin"), key=major)
    if installed:
        return Path(installed[-1])
    initdb = shutil.which("initdb")
    return Path(os.path.realpath(initdb)).parent if initdb else None


def reachable_programs(version, scratch):
    """The same directory where the servers' user can get at it: a checkout in root's home is closed to others."""
    found = programs(version)
    if found is None or version == "system" or not host.USER:
        return found
    copy = scratch / f"pg{version}"
    if not copy.exists():
        shutil.copytree(found.parent, copy, symlinks=True)
    return copy / "bin"


class Postgres:
    """One server in one directory. `port` stays the same over restarts, and so do the settings that are given here.
    `copy_of` is the data directory of a server that was stopped in order, to begin with instead of a new one."""

    def __init__(self, bindir, directory, port=None, copy_of=None, **settings):
        self.bindir = bindir
        self.directory = directory
        self.data = directory / "data"
        self.log_path = directory / "postgres.log"
        self.port = port or host.free_port()
        self.settings = settings
        self.process = None
        if copy_of:
            self._copy(copy_of)
            self.start()
        else:
            self._create()

    def _copy(self, data):
        host.run(["cp", "-a", data, self.data])

    def _create(self):
        initdb = [self.bindir / "initdb", "-D", self.data, "-U", "postgres", "-A", "trust", "-E", "UTF8"]
        # Segments of 1 MB: ones of 16 are written whole, again for each copy and standby.
        host.run([*initdb, "--locale=C.UTF-8", "--no-sync", "--wal-segsize=1"])
        host.hand_over(_write(self.data / "pg_hba.conf", HBA))
        try:
            self._furnish()
        except BaseException:
            host.stop(self.process, signal.SIGQUIT)
            raise

    def _furnish(self):
        self.start()
        self.query(ROLES)
        for database in ("app", "other"):
            self.query(f"create database {database}")
            self.query("grant all on schema public to public", database)

    # --- life and death ---------------------------------------------------------------------------------------
    def start(self, wait=True, **settings):
        """Starts the server; keywords are settings for this life only (`max_connections=\"5\"`)."""
        chosen = {**SETTINGS, "port": self.port, "unix_socket_directories": self.directory, **self.settings, **settings}
        options = [word for name, value in chosen.items() for word in ("-c", f"{name}={value}")]
        with open(self.log_path, "ab") as log:
            command = [self.bindir / "postgres", "-D", self.data, *options]
            # SIGQUIT is PostgreSQL's own "immediate" stop: its children go with it.
            self.process = host.start(command, die_with=signal.SIGQUIT, cwd=self.directory, stdout=log, stderr=log)
        if wait:
            host.eventually(self.is_up, timeout=60)

    def is_up(self):
        assert self.process.poll() is None, f"PostgreSQL ended:\n{self.log_text()[-2000:]}"
        try:
            return self.query("select true")[0][0]
        except psycopg.OperationalError:
            return False

    def stop(self, mode=signal.SIGINT):
        """Stops the server; SIGINT is PostgreSQL's "fast", SIGQUIT its "immediate" stop."""
        host.stop(self.process, mode, signal.SIGQUIT, timeout=30)

    def remove(self):
        """Stops it and removes its files: some 100 MB each, of which a whole run would fill the disk."""
        self.stop(signal.SIGQUIT)
        if not os.environ.get("WEIR_KEEP"):
            shutil.rmtree(self.directory, ignore_errors=True)

    def kill(self):
        """kill -9 of the postmaster and of every process it has started, each by its id."""
        family = [*host.children(self.process.pid), self.process.pid]
        self.process.send_signal(signal.SIGSTOP)  # so that it starts no further child meanwhile
        family = {*family, *host.children(self.process.pid)}
        for pid in family:
            with contextlib.suppress(ProcessLookupError):  # it has ended meanwhile
                os.kill(pid, signal.SIGKILL)
        self.process.wait()
        # The next server refuses to start while one of them still has the shared memory.
        host.eventually(lambda: not any(host.lives(pid) for pid in family))

    def ensure_running(self):
        """For the next test, whatever the last one did."""
        if self.process.poll() is not None:
            self.start()

    # --- questions --------------------------------------------------------------------------------------------
    def query(self, statement, database="postgres"):
        """Runs a statement as the superuser, on a connection of its own, past every pooler."""
        address = {"host": "127.0.0.1", "port": self.port, "user": "postgres", "dbname": database}
        with psycopg.connect(**address, autocommit=True, connect_timeout=60) as connection:
            cursor = connection.execute(statement)
            while cursor.nextset():
                pass
            return cursor.fetchall() if cursor.description else []

    def value(self, statement, database="postgres"):
        return self.query(statement, database)[0][0]

    def count(self, where="true"):
        """How many client connections this server has, the harness's own not counted."""
        return self.value(f"select count(*) from pg_stat_activity where {CLIENT_SESSIONS} and {where}")

    def await_no_session(self):
        """For the next test. Sessions that stay are named and ended: they fail this test, and not all that follow."""
        try:
            host.eventually(lambda: self.process.poll() is not None or self.count() == 0)
        except AssertionError:
            what = "usename, application_name, client_port, state, query, pg_terminate_backend(pid)"
            left = self.query(f"select {what} from pg_stat_activity where {CLIENT_SESSIONS}")
            raise AssertionError(f"these sessions outlived their test: {left}") from None

    def log_text(self):
        return self.log_path.read_text(errors="replace")

    def log_mark(self):
        """A place in the log: `log_since(mark)` is what was written after it."""
        return self.log_path.stat().st_size

    def wait_restarted(self, mark):
        """Waits until the server has taken itself down and up again since then, as it does when a backend was killed."""
        host.eventually(lambda: "database system is ready to accept connections" in self.log_since(mark), timeout=60)

    def log_since(self, mark):
        with open(self.log_path, "rb") as log:
            log.seek(mark)
            return log.read().decode(errors="replace")


class Standby(Postgres):
    """A streaming standby of another server, until it is promoted."""

    def __init__(self, primary, directory, port=None, copy_of=None, **settings):
        self.primary = primary
        super().__init__(primary.bindir, directory, port, copy_of, **settings)

    def _copy(self, data):
        super()._copy(data)
        host.hand_over(_write(self.data / "standby.signal", ""))

    def _create(self):
        source = ["-h", "127.0.0.1", "-p", self.primary.port, "-U", "replica", "--no-password"]
        host.run([self.bindir / "pg_basebackup", *source, "-D", self.data, "-R", "--checkpoint=fast", "--no-sync"])
        self.start()

    def start(self, wait=True, **settings):
        # In place of what pg_basebackup has written: the server may have an older libpq than that.
        conninfo = f"host=127.0.0.1 port={self.primary.port} user=replica"
        super().start(wait, **{"primary_conninfo": conninfo, **settings})

    def promote(self):
        """Returns when it accepts writes."""
        assert self.value("select pg_promote(true, 60)")


def _write(path, text):
    path.write_text(text)
    return path
