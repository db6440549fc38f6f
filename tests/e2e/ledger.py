"""Transactions that are accounted for: each writer inserts keys of its own, notes every reply, and read back their own numbers.
After a fault the table says whether all that was acknowledged is there once, and all that was refused is not there."""

import itertools
import ssl
import statistics
import threading
import time

import host
import wire

TABLE = "create table if not exists ledger (key bigint, way text); truncate ledger; grant all on ledger to public"
REFUSED, ACKNOWLEDGED, UNKNOWN = "refused", "acknowledged", "unknown"
_keys = itertools.count(1)


def connect(pooler, tls=False, user="alice", timeout=30):
    raw = wire.Raw(pooler.port, timeout=timeout)
    if tls:
        raw.send(wire.request(wire.SSL_REQUEST))
        assert raw.read_bytes(1) == b"S"
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        raw.socket = context.wrap_socket(raw.socket)
    return raw.login(user=user)


class Unanswered(Exception):
    """The connection ended; `begun` says that the request which commits had been sent."""

    def __init__(self, begun):
        self.begun = begun


def one_query(raw, key):
    """One simple query, which commits by itself."""
    return commits(raw, [wire.query(f"insert into ledger values ({key}, 'one') returning key")], key)


def block(raw, key):
    """A block in three steps."""
    for step in ("begin", f"insert into ledger values ({key}, 'block') returning key"):
        try:
            replies = raw.ask(wire.query(step))
        except (wire.Closed, OSError):
            raise Unanswered(begun=False) from None
        if wire.errors(replies):
            raw.ask(wire.query("rollback"))
            return REFUSED
    assert wire.rows(replies) == [[str(key)]], f"the answer to {key} is {wire.rows(replies)}"
    return commits(raw, [wire.query("commit")])


def pipeline(raw, key):
    """The extended protocol, all in one write."""
    parts = [wire.parse("", "insert into ledger values ($1, 'pipeline') returning key"), wire.bind("", "", [str(key).encode()])]
    return commits(raw, [*parts, wire.execute(), wire.SYNC], key)


def named(raw, key):
    """A prepared statement, parsed anew by each, which the pooler shares among them."""
    parts = [wire.close(b"S", "w"), wire.parse("w", "insert into ledger values ($1, 'named') returning key")]
    return commits(raw, [*parts, wire.bind("w", "", [str(key).encode()]), wire.execute(), wire.SYNC], key)


def commits(raw, request, key=None):
    try:
        replies = raw.ask(*request)
    except (wire.Closed, OSError):
        raise Unanswered(begun=True) from None
    if wire.errors(replies):
        return REFUSED
    if key is not None:
        assert wire.rows(replies) == [[str(key)]], f"the answer to {key} is {wire.rows(replies)}"
    return ACKNOWLEDGED


WAYS = [one_query, block, pipeline, named]


class Writer(threading.Thread):
    """Writes until told to stop; comes again when its connection has ended."""

    def __init__(self, pooler, tls, number):
        super().__init__(daemon=True)
        self.pooler, self.tls, self.number = pooler, tls, number
        self.over = threading.Event()
        self.outcomes, self.successes, self.wrong = {}, [], []
        self.start()

    def run(self):
        while not self.over.is_set():
            try:
                raw = connect(self.pooler, self.tls)
            except (wire.Closed, OSError, AssertionError):
                time.sleep(0.02)
                continue
            with raw:
                self.write_with(raw)

    def write_with(self, raw):
        while not self.over.is_set():
            key = next(_keys)
            way = WAYS[key % len(WAYS)]
            try:
                outcome = way(raw, key)
            except Unanswered as end:
                self.outcomes[key] = UNKNOWN if end.begun else REFUSED
                return
            except AssertionError as answer:
                self.wrong.append(str(answer))
                self.outcomes[key] = UNKNOWN
                return
            except (wire.Closed, OSError):  # at the rollback of what was refused
                self.outcomes[key] = REFUSED
                return
            self.outcomes[key] = outcome
            if outcome == ACKNOWLEDGED:
                self.successes.append(time.monotonic())


class Ledger:
    """`with Ledger(pooler, pg) as ledger: … fault, heal …; ledger.healed()`; at the end all is accounted for."""

    recoveries = []  # seconds from each heal to a writer's next success, over all tests of this process

    def __init__(self, pooler, pg, tls=False, writers=10):
        self.pooler, self.pg = pooler, pg
        pg.query(TABLE, "app")
        self.writers = [Writer(pooler, tls, number) for number in range(writers)]

    def __enter__(self):
        self.wait_for_successes(time.monotonic())
        return self

    def wait_for_successes(self, since):
        """Each writer has written something since then."""
        host.eventually(lambda: all(writer.successes and writer.successes[-1] > since for writer in self.writers), timeout=60)

    def healed(self):
        """The fault is over: waits until each writer gets on, and notes how long that took."""
        now = time.monotonic()
        self.wait_for_successes(now)
        took = [min(moment for moment in writer.successes if moment > now) - now for writer in self.writers]
        self.recoveries += took
        print(f"recovered after {statistics.median(took):.2f} s (median), {max(took):.2f} s (slowest of {len(took)})")

    def __exit__(self, failed, *_):
        for writer in self.writers:
            writer.over.set()
        for writer in self.writers:
            writer.join(60)
            assert not writer.is_alive(), "a writer hangs"
        if not failed:
            self.account()

    def account(self):
        """Nothing acknowledged is lost, nothing is there twice, nothing refused is there, no answer was another's."""
        wrong = [text for writer in self.writers for text in writer.wrong]
        assert not wrong, wrong
        # A server whose client is gone may still be committing.
        host.eventually(lambda: self.pg.count("state <> 'idle'") == 0)
        counts = dict(self.pg.query("select key, count(*) from ledger group by key", "app"))
        outcomes = {key: outcome for writer in self.writers for key, outcome in writer.outcomes.items()}
        lost = [key for key, outcome in outcomes.items() if outcome == ACKNOWLEDGED and key not in counts]
        twice = [key for key, count in counts.items() if count > 1]
        refused = [key for key, outcome in outcomes.items() if outcome == REFUSED and key in counts]
        unknown = sum(outcome == UNKNOWN for outcome in outcomes.values())
        acknowledged = sum(outcome == ACKNOWLEDGED for outcome in outcomes.values())
        print(f"{acknowledged} acknowledged, {len(lost)} lost, {len(twice)} twice, {unknown} unknown, {len(refused)} refused and there")
        assert not lost and not twice and not refused, (lost[:5], twice[:5], refused[:5])
