"""One running pooler: writes its ini and user file, starts it, connects to it, asks its console, reads its log.
`WEIR_BIN` may name a PgBouncer instead: the same tests then say what the original does."""

import os
import re
import signal
import subprocess
import time
from pathlib import Path

import psycopg
from psycopg.rows import dict_row

import host

BUILT = host.REPOSITORY / os.environ.get("CARGO_TARGET_DIR", "target") / "release/weir"
PROGRAM = Path(os.environ.get("WEIR_BIN", BUILT)).resolve()
BENCH = PROGRAM.with_name("weir-bench")
DEFAULTS = {
    "listen_addr": "127.0.0.1",
    "auth_type": "trust",
    "admin_users": "admin",
    "stats_users": "stats",
    "pool_mode": "transaction",
    "query_wait_timeout": 30,  # who waits for what never comes fails the test soon, not after PgBouncer's two minutes
}
# What only a start can change; the rest of a test's settings may come by RELOAD as well.
RESTART_ONLY = {
    "disable_pqexec", "fleet", "fleet_address", "fleet_lease_time", "fleet_node", "fleet_tls_ca_file", "fleet_tls_cert_file", "fleet_tls_key_file", "fleet_token_file", "io_driver",
    "job_name", "listen_addr", "listen_backlog", "listen_port", "pidfile", "pkt_buf", "resolv_conf", "so_reuseport", "threads", "track_extra_parameters", "unix_socket_dir", "unix_socket_group", "unix_socket_mode", "user",
}
# Users who may log in by the user file; their secrets matter only to tests that set auth_type.
USERLIST = {name: "" for name in ("alice", "bob", "carol", "logged", "admin", "stats", "nologin", "replica")}


def pgbouncer_version():
    """(1, 18) where WEIR_BIN is PgBouncer itself, None where it is Weir."""
    if not PROGRAM.exists():
        return None
    said = subprocess.run([PROGRAM, "-V"], capture_output=True, text=True, check=False).stdout
    if "weir" in said.lower():
        return None
    found = re.search(r"PgBouncer (\d+)\.(\d+)", said)
    return (int(found[1]), int(found[2])) if found else None


# psycopg prepares by itself what it runs for the sixth time; a PgBouncer before 1.21 cannot follow.
PREPARES = (pgbouncer_version() or (1, 25)) >= (1, 21)
# What only Weir knows, set by tests that PgBouncer has to pass too, to the value that is PgBouncer's behaviour.
OWN = {"session_state"} if pgbouncer_version() else set()


class Weir:
    """A pooler before `postgres`. Databases are given as `name: "pool_size=2 …"`; host, port and dbname are filled in."""

    def __init__(self, postgres, directory, io_driver, databases=None, users=None, userlist=None, extra="", program=None, **settings):
        self.postgres = postgres
        self.program = program or PROGRAM_COPY.get("path", PROGRAM)
        self.directory = host.hand_over(directory)
        self.io_driver = io_driver
        self.port = host.free_port()
        self.ini = directory / "weir.ini"
        self.log_path = directory / "weir.log"
        self.socket_path = directory / f".s.PGSQL.{self.port}"
        self.pidfile = directory / "weir.pid"
        self.output_path = directory / "output"
        self.databases = databases or {"app": "", "other": ""}
        self.users = users or {}
        self.settings = {**DEFAULTS, **settings}
        self.extra = extra
        self.environment = {}  # beside what the harness itself has
        self.may_panic = False  # a test of what a panic costs
        self.process = None
        self.predecessors = []  # processes from which `--reboot` took over
        self.connections = []
        self.userlist_writes, self.secrets = 0, {}
        self.write_userlist(USERLIST if userlist is None else userlist)
        self.write_ini()

    # --- files ------------------------------------------------------------------------------------------------
    def write_userlist(self, secrets):
        self.secrets = secrets
        lines = [f'"{name}" "{secret}"\n' for name, secret in secrets.items()]
        self._write("userlist.txt", "".join(lines))
        # PgBouncer reads the file again when its time has another second; a test changes it faster than that.
        self.userlist_writes += 1
        later = time.time() + self.userlist_writes
        os.utime(self.directory / "userlist.txt", (later, later))

    def write_ini(self, **changes):
        """Writes the ini anew with some settings changed (None takes one out); RELOAD makes them count."""
        self.settings.update(changes)
        fixed = {
            "listen_port": self.port,
            "unix_socket_dir": self.directory,
            "auth_file": self.directory / "userlist.txt",
            "logfile": self.log_path,
            "pidfile": self.pidfile,
            **({"io_driver": self.io_driver} if self.io_driver else {}),
        }
        chosen = {name: value for name, value in {**fixed, **self.settings}.items() if value is not None and name not in OWN}
        lines = ["[databases]"]
        lines += [f"{name} = {self.target(name, options)}" for name, options in self.databases.items()]
        lines += ["[users]", *(f"{name} = {options}" for name, options in self.users.items())]
        lines += ["[pgbouncer]", *(f"{name} = {value}" for name, value in chosen.items()), self.extra]
        self._write("weir.ini", "\n".join(lines) + "\n")

    def target(self, name, options):
        """The connection string of a [databases] entry: what the test says, and else this test's PostgreSQL."""
        defaults = {"host": "127.0.0.1", "port": self.postgres.port, "dbname": "" if name == "*" else name}
        parts = [f"{key}={value}" for key, value in defaults.items() if value and not re.search(rf"\b{key}=", options)]
        return " ".join([*parts, options])

    def _write(self, name, text):
        path = self.directory / name
        path.write_text(text)
        host.hand_over(path)

    # --- life and death ---------------------------------------------------------------------------------------
    def launch(self, *flags, as_user=True):
        """Starts the process and does not wait for it."""
        if self.process and self.process.poll() is not None:
            self.await_free_port()
        elif self.process:
            self.predecessors.append(self.process)
        with open(self.output_path, "ab") as output:
            command = [self.program, *flags, self.ini]
            environment = {**os.environ, **self.environment}
            options = {"cwd": self.directory, "env": environment, "stdout": output, "stderr": output}
            self.process = host.start(command, as_user, **options)

    def await_free_port(self):
        """The kernel closes what a killed process has in an io_uring a moment after its end: that is not to be taken for the next one. Not for long, for another
        process may have the port too."""
        deadline = time.monotonic() + 5
        while host.is_listening(self.port, self.socket_path) and time.monotonic() < deadline:
            time.sleep(0.01)

    def start_with_descriptors(self, limit):
        """Starts with a hard limit of file descriptors, which the pooler cannot raise."""
        with open(self.output_path, "ab") as output:
            command = ["prlimit", f"--nofile={limit}:{limit}", self.program, self.ini]
            self.process = host.start(command, cwd=self.directory, stdout=output, stderr=output)
        host.eventually(self.is_up, timeout=60)
        self.check_driver()

    def start(self, *flags, as_user=True):
        self.launch(*flags, as_user=as_user)
        host.eventually(self.is_up, timeout=60)
        self.check_driver()
        return self

    def start_and_reload(self, *flags):
        """Starts with what only a start can set, and lets RELOAD bring all else."""
        wanted, secrets = (self.settings, self.databases, self.users, self.extra), self.secrets
        self.settings = {**DEFAULTS, **{name: value for name, value in self.settings.items() if name in RESTART_ONLY}}
        self.databases, self.users, self.extra = {"app": "", "other": ""}, {}, ""
        self.write_ini()
        self.write_userlist({**secrets, "admin": ""})
        self.start(*flags)
        self.settings, self.databases, self.users, self.extra = wanted
        self.write_userlist(secrets)
        self.reload()
        return self

    def is_up(self):
        assert self.process.poll() is None, f"the pooler ended at start:\n{self.output()}"
        return host.is_listening(self.port, self.socket_path)

    def check_driver(self):
        """A test that asks for a driver fails where the probe fell back to the other one."""
        if self.io_driver and self.settings.get("logfile", self.log_path) == self.log_path:
            named = self.wait_log(r"io driver: (\w+)")
            assert named[-1] == self.io_driver, f"asked for {self.io_driver}, the log says {named}"

    def output(self):
        """What it wrote to stdout and stderr."""
        return self.output_path.read_text(errors="replace") if self.output_path.exists() else ""

    def stop(self):
        for connection in self.connections:
            connection.close()
        self.connections.clear()
        if self.process and self.process.poll() is None:
            host.stop(self.process, signal.SIGQUIT)

    def stop_predecessors(self):
        """One from which another had not taken over all connections when that one ended serves on."""
        for process in self.predecessors:
            host.stop(process, signal.SIGQUIT)
        self.predecessors.clear()

    def signal(self, number):
        self.process.send_signal(number)

    def wait_end(self, timeout=30):
        return self.process.wait(timeout)

    def is_running(self):
        return self.process.poll() is None

    # --- clients ----------------------------------------------------------------------------------------------
    def address(self, database="app", user="alice", **options):
        address = {"host": "127.0.0.1", "port": self.port, "dbname": database, "user": user, **options}
        return {"connect_timeout": 60, "sslmode": "disable", "gssencmode": "disable", **address}

    def uri(self, database="app", user="alice"):
        return f"postgres://{user}@127.0.0.1:{self.port}/{database}?sslmode=disable"

    def connect(self, database="app", user="alice", autocommit=True, **options):
        """A psycopg connection through the pooler, closed when the test ends."""
        row_factory = options.pop("row_factory", psycopg.rows.tuple_row)
        if not PREPARES:
            options.setdefault("prepare_threshold", None)
        address = self.address(database, user, **options)
        connection = psycopg.connect(**address, autocommit=autocommit, row_factory=row_factory)
        self.connections.append(connection)
        return connection

    def value(self, statement, **options):
        """One value of one statement on a connection of its own."""
        with psycopg.connect(**self.address(**options), autocommit=True) as connection:
            return connection.execute(statement).fetchone()[0]

    def psql(self, *arguments, database="app", user="alice", host_name="127.0.0.1", check=True, **options):
        target = f"host={host_name} port={self.port} dbname={database} user={user} sslmode=disable gssencmode=disable"
        command = [self.postgres.bindir / "psql", "-X", "-A", "-t", "-v", "ON_ERROR_STOP=1", target, *arguments]
        return host.run(command, check=check, **options)

    def console(self, command, user="admin"):
        """Asks the console; rows come as dicts, a command without rows gives its tag."""
        with psycopg.connect(**self.address("pgbouncer", user), autocommit=True, row_factory=dict_row) as connection:
            cursor = connection.execute(command)
            return cursor.fetchall() if cursor.description else cursor.statusmessage

    def pool(self, database="app", user="alice"):
        """The row of SHOW POOLS of one pool, or an empty dict before it exists."""
        rows = self.console("SHOW POOLS")
        return next((row for row in rows if (row["database"], row["user"]) == (database, user)), {})

    def reload(self, **changes):
        self.write_ini(**changes)
        return self.console("RELOAD")

    # --- log --------------------------------------------------------------------------------------------------
    def log_text(self):
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def wait_log(self, pattern, count=1, timeout=30):
        """Waits until the log holds the pattern `count` times; the matches."""
        def matches():
            found = re.findall(pattern, self.log_text())
            return found if len(found) >= count else None
        return host.eventually(matches, timeout)


# Where the servers' user runs the program from; conftest fills it in once a session.
PROGRAM_COPY = {}


class Stopwatch:
    """`with Stopwatch() as watch: …` then `watch.seconds`."""

    def __enter__(self):
        self.started = time.monotonic()
        return self

    def __exit__(self, *failure):
        self.seconds = time.monotonic() - self.started
