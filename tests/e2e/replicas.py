"""Who replicates, for the tests: connections, PostgreSQL's own tools in the background, and what the server has of them."""

import signal
import struct
import subprocess
import time

import host
import wire

# A physical tool names no database of its own, or the one of its connection string; both lead to this server.
DATABASES = {"app": "", "other": "", "replication": "", "forced": "dbname=app user=alice"}


def replicating(pooler, database="app", kind="database", user="replica", **options):
    return pooler.connect(database, user, replication=kind, **options)


def senders(pg):
    """How many WAL senders the server has."""
    return pg.value("select count(*) from pg_stat_activity where backend_type = 'walsender'")


def clean(pg):
    """Waits until no replication runs, and drops the slots that are left."""
    host.eventually(lambda: senders(pg) == 0)
    for (slot,) in pg.query("select slot_name from pg_replication_slots"):
        pg.query(f"select pg_drop_replication_slot('{slot}')")


def command(pooler, name, *arguments, port=None):
    """The command line of one of PostgreSQL's programs, on its way through the pooler."""
    program = pooler.postgres.bindir / name
    return [program, "-h", "127.0.0.1", "-p", port or pooler.port, "-U", "replica", "--no-password", *arguments]


class Background:
    """One of PostgreSQL's tools while it runs; `with` ends it."""

    def __init__(self, pooler, name, *arguments):
        self.output_path = pooler.directory / f"{name}.output"
        with open(self.output_path, "ab") as output:
            self.process = host.start(command(pooler, name, *arguments), cwd=pooler.directory, stdout=output, stderr=output)

    def __enter__(self):
        return self

    def __exit__(self, *failure):
        if self.process.poll() is None:
            host.stop(self.process, signal.SIGINT)

    def output(self):
        return self.output_path.read_text(errors="replace")

    def interrupt(self):
        """Ctrl-C; the tool's exit status."""
        self.process.send_signal(signal.SIGINT)
        try:
            return self.process.wait(60)
        except subprocess.TimeoutExpired as late:
            raise AssertionError(f"it does not end: {self.output()}") from late


# --- the protocol by hand ---------------------------------------------------------------------------------------
def read_wal(raw, begin, end):
    """Reads WAL from one position to another in fits, and says much more than it has to: not a byte is lost or doubled."""
    raw.send(wire.query(f"START_REPLICATION PHYSICAL {begin}"))
    assert raw.read_until("WE")[-1].kind == "W"
    stream, at, messages = raw.socket.makefile("rb"), position(begin), 0
    while at < position(end):
        kind, body = read_message(stream)
        assert kind == b"d", (kind, body)
        if body[:1] == b"w":
            (start,) = struct.unpack_from("!q", body, 1)
            assert start == at, f"{start:X} follows {at:X}"
            at += len(body) - 25
        messages += 1
        raw.send(*[wire.message(b"d", struct.pack("!cqqqqb", b"r", at, at, at, 0, 0))] * 200)
        if messages % 40 == 0:
            time.sleep(0.05)
    raw.send(wire.message(b"c"))
    rest = [read_message(stream)[0]]
    while rest[-1] != b"Z":
        rest.append(read_message(stream)[0])
    assert b"c" in rest and b"E" not in rest, rest
    raw.send(wire.TERMINATE)
    assert stream.read() == b""


def read_message(stream):
    kind, length = struct.unpack("!ci", stream.read(5))
    return kind, stream.read(length - 4)


def position(text):
    """A place in the WAL as a number."""
    high, low = text.split("/")
    return int(high, 16) << 32 | int(low, 16)
