"""A primary and two streaming standbys in one entry (`read_write_split`), and which of them a statement goes to."""

import functools
import itertools

import host
import postgres

STANDBYS = {"standby1", "standby2"}

TABLE = "create table t (a int primary key, b int); insert into t values (1, 0); grant all on t to public"
# Of nine digits: the logs also tell of positions in the WAL, which have up to eight.
NUMBERS = itertools.count(100_000_000)


@functools.cache
def template(bindir, scratch):
    """The files that the three servers of a cluster begin with: initdb and two base backups take seconds, and dozens of tests have a cluster."""
    server = postgres.Postgres(bindir, host.new_directory(scratch, "template"))
    server.query(f"{TABLE}; alter role alice set log_statement = 'all'", "app")
    server.stop()
    return server.data


class Cluster:
    """A primary and two streaming standbys, which log each statement."""

    def __init__(self, bindir, scratch):
        data = template(bindir, scratch)
        self.primary = postgres.Postgres(bindir, host.new_directory(scratch, "primary"), copy_of=data)
        directories = [host.new_directory(scratch, f"standby{number}") for number in (1, 2)]
        self.standbys = [postgres.Standby(self.primary, directory, copy_of=data) for directory in directories]
        self.servers = {"primary": self.primary, "standby1": self.standbys[0], "standby2": self.standbys[1]}
        self.caught_up()

    def caught_up(self):
        # Behind a commit: where nothing is written, the position for the next record may be one that no standby reaches.
        self.primary.query("select pg_logical_emit_message(true, 'mark', '')")
        position = self.primary.value("select pg_current_wal_flush_lsn()")
        for standby in self.standbys:
            host.eventually(lambda: standby.value(f"select pg_last_wal_replay_lsn() >= '{position}'"), timeout=30)

    def entry(self, more=""):
        ports = ",".join(str(server.port) for server in self.servers.values())
        return f"host=127.0.0.1,127.0.0.1,127.0.0.1 port={ports} dbname=app read_write_split=1 {more}"

    def place_of(self, marker):
        """The server whose log has it."""
        found = [name for name, server in self.servers.items() if marker in server.log_text()]
        assert len(found) == 1, (marker, found)
        return found[0]

    def stop(self):
        for server in (*self.standbys, self.primary):
            server.remove()


def where(cluster, client, statement="select {}"):
    """The server that a statement goes to."""
    number = next(NUMBERS)
    client.execute(statement.format(number))
    return cluster.place_of(str(number))


def ready(pooler, cluster, database="app"):
    """A client of a pool that knows what reads, and where its standbys are."""
    client = pooler.connect(database)
    knows(cluster, client)
    return client


def knows(cluster, client):
    host.eventually(lambda: {where(cluster, client), where(cluster, client)} == STANDBYS, timeout=20)
