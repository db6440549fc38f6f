"""Runs a script of `random_scripts` on PostgreSQL and through a pooler, and says where the answers part. Knows sockets and the protocol;
what may differ is named in ALLOWED and nowhere else."""

import itertools
import re
import select
import socket
import struct
import time
from dataclasses import replace

import wire
from random_scripts import CLIENTS, CONTENTS, Script, Step, describe, draw, prepare_tables

__all__ = ["ALLOWED", "Direct", "compare", "describe", "draw", "minimise", "play"]

SILENCE = 20.0  # seconds without a byte after which a client is taken to hang
LONGEST_WAIT = 0.01  # how long a client waits for replies that may never come, as in a COPY
MARKER = b"the end"
# What ends every script: a COPY is given up, a block rolled back, and a row says that nothing more comes.
ENDING = wire.copy_fail("end") + wire.SYNC + wire.query("rollback") + wire.query(f"select '{MARKER.decode()}'")

# --- what may differ: reason to how it is made the same -------------------------------------------------------
# A parameter that the pooler reports of itself, or that it neither tracks nor passes on (PgBouncer's documentation of track_extra_parameters).
PARAMETERS_LEFT_OUT = re.compile(r"pgbouncer\..*|in_hot_standby|default_transaction_read_only|search_path|is_superuser|session_authorization|scram_iterations")
ALLOWED = {
    "process ids and cancel keys are each connection's own": lambda kind, body: (kind, b"") if kind == "K" else (kind, body),
    "temporary tables have new OIDs in every run": lambda kind, body: (kind, _without_new_oids(body)) if kind == "T" else (kind, body),
    "a statement whose name is unknown or taken, or that a failed block refuses, is refused by another place in the server's source": lambda kind, body: (
        (kind, re.sub(rb"\0F[^\0]*\0L[^\0]*\0R[^\0]*", b"", body)) if kind == "E" and re.search(rb"\0C(26000|42P05|25P02)\0", body) else (kind, body)
    ),
    "an error names a statement as the server knows it": lambda kind, body: (
        (kind, re.sub(rb'prepared statement "[^"]*"', b"prepared statement", body)) if kind == "E" else (kind, body)
    ),
    "names made new for every run": lambda kind, body: (kind, re.sub(rb"q\d{7}_", b"q_", body)) if kind in "EN" else (kind, body),
}


def _without_new_oids(body):
    """RowDescription without the OIDs of tables, the column's number among its table's kept."""
    (count,), at, columns = struct.unpack_from("!h", body), 2, []
    for _ in range(count):
        end = body.index(b"\0", at)
        columns.append(body[at : end + 1] + body[end + 5 : end + 19])
        at = end + 19
    return b"".join(columns)


class Conversation:
    """One client that plays its steps: never blocks, reads while it writes, keeps what it was told."""

    def __init__(self, port, database, steps, run):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=SILENCE)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.told, self.parameters, self.ended = [], {}, None
        self.buffer, self.out, self.readies, self.marked = b"", b"", 0, False
        self.pieces = _pieces(steps, run)
        self.socket.sendall(wire.startup(user="alice", database=database, application_name="drawn", client_encoding="UTF8"))
        while not self.readies and not self.ended:
            self._read(self._receive())
        self.told.clear()
        self.readies, self.heard, self.resume = 0, time.monotonic(), 0.0
        self.socket.setblocking(False)

    def wants(self):
        return select.POLLIN | (select.POLLOUT if self.out else 0)

    def turn(self, readable, now):
        """Reads and writes as far as it goes now."""
        if readable:
            self._read(self._receive())
            self.heard = now
        elif now - self.heard > SILENCE:
            self.end("silence")
        while not self.ended:
            if not self.out:
                if not self.pieces or not self._may_go_on(now):
                    return
                self.out, expected = self.pieces.pop(0)
                self.awaited = expected
                self.resume = now + (LONGEST_WAIT if expected else 0)
            try:
                self.out = self.out[self.socket.send(self.out) :]
            except BlockingIOError:
                return
            except OSError:
                self.out, self.pieces = b"", []  # what the other side said before it closed is still to be read
            if self.out:
                return

    def _may_go_on(self, now):
        return now >= self.resume or self.readies >= self.awaited

    awaited = 0

    def patience(self, now):
        """How long nothing has to be done if nothing comes."""
        return max(0.0, min(self.resume - now, 1.0)) if self.pieces and not self.out else 1.0

    def _receive(self):
        try:
            return self.socket.recv(1 << 18)
        except BlockingIOError:
            return None
        except OSError:
            return b""

    def _read(self, data):
        if data == b"":
            return self.end("closed")
        self.buffer += data or b""
        at = 0
        while len(self.buffer) - at >= 5:
            (length,) = struct.unpack_from("!i", self.buffer, at + 1)
            if len(self.buffer) - at < length + 1:
                break
            self._message(chr(self.buffer[at]), self.buffer[at + 5 : at + 1 + length])
            at += length + 1
        self.buffer = self.buffer[at:]

    def _message(self, kind, body):
        if kind == "S":
            name, value = body[:-1].split(b"\0")
            self.parameters[name.decode()] = value
        elif kind == "Z":
            self.readies += 1
            known = {name: value for name, value in self.parameters.items() if not PARAMETERS_LEFT_OUT.fullmatch(name)}
            self.told.append(("Z", body, tuple(sorted(known.items()))))
            if self.marked:
                self.end("all said")
        else:
            for same in ALLOWED.values():
                kind, body = same(kind, body)
            self.told.append((kind, body))
            self.marked = kind == "D" and body.endswith(MARKER) or (self.marked and kind == "C")

    def end(self, how):
        if not self.ended:
            self.ended = how
            self.told.append((how,))
            if how == "all said":
                self.socket.setblocking(True)
                self.socket.send(wire.TERMINATE)
            self.socket.close()


def _pieces(steps, run):
    """(bytes, how many ReadyForQuery to wait for before what follows) of a client's writes; steps that do not wait go out in one."""
    pieces, readies, pending = [], 0, b""
    for step in steps:
        data = b"".join(call.encode(run) for call in step.calls)
        readies += sum(call.name in ("SYNC", "query", "function_call") for call in step.calls)
        places = [round(cut * len(data)) for cut in step.cuts]
        parts = [data[start:end] for start, end in itertools.pairwise([0, *places, len(data)])]
        pieces += [(pending + parts[0], 0), *((part, 0) for part in parts[1:])] if len(parts) > 1 else []
        pending = b"" if len(parts) > 1 else pending + data
        if step.waits:
            last, _ = pieces.pop() if not pending else (pending, 0)
            pieces.append((last, readies))
            pending = b""
    pieces.append((pending + ENDING, 0))
    return [piece for piece in pieces if piece[0]]


_runs = itertools.count(1)


def play(port, database, script):
    """Plays a script; per client what it was told, in order."""
    run = next(_runs)
    clients = [Conversation(port, database, steps, run) for steps in script.clients]
    while any(not client.ended for client in clients):
        poll, open_ones = select.poll(), {}
        for client in clients:
            if not client.ended:
                open_ones[client.socket.fileno()] = client
                poll.register(client.socket, client.wants())
        now = time.monotonic()
        timeout = min(client.patience(now) for client in open_ones.values())
        events = dict(poll.poll(timeout * 1000 + (timeout > 0)))
        now = time.monotonic()
        for number, client in open_ones.items():
            client.turn(bool(events.get(number, 0) & ~select.POLLOUT), now)
    return [client.told for client in clients]


class Direct:
    """PostgreSQL itself: plays scripts without a pooler, and keeps the tables that both ways use."""

    def __init__(self, port):
        self.port = port
        self.keeper = wire.Raw(port).login()
        self.keeper.send(wire.query("set lock_timeout = '20s'"))
        self.keeper.read_until("Z")

    def play(self, script, port=None, database="app"):
        """(what clients were told, what the tables hold afterwards), by the pooler at `port` or directly."""
        self.keeper.simple(prepare_tables())
        told = play(port or self.port, database, script)
        return told, sorted(self.keeper.simple(f"select * from ({CONTENTS}) t") , key=str)

    def close(self):
        self.keeper.socket.close()


def parts(expected, found):
    """Where two results part, as lines; none if they are the same, or they are not compared (ENDED_BY_WEIR, INTERNAL_ERROR)."""
    if is_left_aside(expected, found):
        return []
    lines = []
    for name, direct, pooled in zip(CLIENTS, expected[0], found[0]):
        direct, pooled = _without_what_a_reset_loses(direct, pooled)
        if direct != pooled:
            place = next((at for at, (one, other) in enumerate(zip(direct, pooled)) if one != other), min(len(direct), len(pooled)))
            lines.append(f"{name} reply {place}: PostgreSQL {_shown(direct, place)}")
            lines.append(f"{' ' * len(name)} reply {place}: pooler     {_shown(pooled, place)}")
            if direct[place : place + 1] and pooled[place : place + 1] and direct[place][0] == pooled[place][0] == "Z":
                only = [sorted(set(one[place][2]) - set(other[place][2])) for one, other in ((direct, pooled), (pooled, direct))]
                lines.append(f"parameters: PostgreSQL {only[0]}, pooler {only[1]}")
    if expected[1] != found[1]:
        lines.append(f"tables: PostgreSQL {[row for row in expected[1] if row not in found[1]]}, pooler {[row for row in found[1] if row not in expected[1]]}")
    return lines


def _without_what_a_reset_loses(direct, pooled):
    """Where both connections were ended with requests unread, the kernel may discard what was said last: as much of it as both heard."""
    if direct[-1:] == pooled[-1:] == [("closed",)]:
        both = min(len(direct), len(pooled)) - 1
        return direct[:both], pooled[:both]
    return direct, pooled


# A COPY FROM STDIN with a Sync among its data and requests right behind it: when it fails, PostgreSQL answers that Sync, and executes or skips
# those, by whether it had read the Sync before the bad data, which only its later replies tell. Where Weir would have to know it sooner it
# closes the connection. Where PostgreSQL refuses the request itself, it closes it too.
ENDED_BY_WEIR = b"C08006\0Mserver reply out of step: 0x45\0"


# PostgreSQL 18.6 answers the request behind some simple queries in the middle of an extended segment with this, from any client.
INTERNAL_ERROR = b"\0MStartTransactionCommand: unexpected state STARTED\0"


def is_left_aside(expected, found):
    """Whether Weir ended a client's connection where it may, or PostgreSQL lost its own state."""
    told = [message for result in (expected, found) for client in result[0] for message in client]
    if any(message[0] == "E" and INTERNAL_ERROR in message[1] for message in told):
        return True
    return any(_is_ended(direct, pooled) for direct, pooled in zip(expected[0], found[0]))


def _is_ended(direct, pooled):
    """All up to the COPY's error is the same, and the pooler says this and closes."""
    place = len(pooled) - 2
    return (
        place >= 0
        and pooled[-1] == ("closed",)
        and ENDED_BY_WEIR in pooled[place][1]
        and direct[:place] == pooled[:place]
        and direct[place][0] == "E"
        and any(one[0] == "G" for one in direct[:place])
    )


def _shown(told, place):
    return " ".join(f"{one[0]}{one[1][:160]!r}" if len(one) > 1 else one[0] for one in told[max(0, place - 1) : place + 3])


def compare(direct, script, port, database):
    """Plays it both ways."""
    return parts(direct.play(script), direct.play(script, port, database))


# --- the smallest script that still differs -------------------------------------------------------------------
def minimise(script, differs, seconds=60):
    """Leaves out clients, steps, messages and cuts for as long as it still differs; `differs` knows what a script may be, too."""
    deadline = time.monotonic() + seconds
    for smaller in (_plain, _fewer_clients, _fewer_steps, _joined, _fewer_messages, _plain, _fewer_messages):
        place = 0
        while time.monotonic() < deadline:
            # What was left out before this place need not be tried again.
            candidate = next(itertools.islice(smaller(script), place, None), None)
            if candidate is None:
                break
            if candidate.count() and differs(candidate):
                script = candidate
            else:
                place += 1
    return script


def _fewer_clients(script):
    for number, steps in enumerate(script.clients):
        if steps:
            yield Script(script.seed, tuple(() if at == number else kept for at, kept in enumerate(script.clients)))


def _fewer_steps(script):
    """Without the second half, a quarter, … of a client's steps, from its end."""
    for number, steps in enumerate(script.clients):
        size = (len(steps) + 1) // 2
        while size:
            for at in range(len(steps) - size, -1, -size):
                yield _with(script, number, steps[:at] + steps[at + size :])
            size //= 2


def _fewer_messages(script):
    for number, steps in enumerate(script.clients):
        for at, step in enumerate(steps):
            for which in range(len(step.calls) - 1, -1, -1):
                fewer = replace(step, calls=step.calls[:which] + step.calls[which + 1 :])
                yield _with(script, number, [*steps[:at], fewer, *steps[at + 1 :]])


def _plain(script):
    """With no cuts and no waiting: everywhere, or in one step."""
    if any(step.cuts or step.waits for steps in script.clients for step in steps):
        yield Script(script.seed, tuple(tuple(Step(step.calls) for step in steps) for steps in script.clients))
    for number, steps in enumerate(script.clients):
        for at, step in enumerate(steps):
            if step.cuts or step.waits:
                yield _with(script, number, [*steps[:at], Step(step.calls), *steps[at + 1 :]])


def _joined(script):
    """Two steps as one."""
    for number, steps in enumerate(script.clients):
        for at in range(len(steps) - 1):
            if not (steps[at].waits or steps[at].cuts):
                joined = replace(steps[at + 1], calls=steps[at].calls + steps[at + 1].calls)
                yield _with(script, number, [*steps[:at], joined, *steps[at + 2 :]])


def _with(script, number, steps):
    steps = tuple(step for step in _bound_ones_together(steps) if step.calls)
    return Script(script.seed, tuple(steps if at == number else kept for at, kept in enumerate(script.clients)))


def _bound_ones_together(steps):
    """Without the messages that need a block whose begin, or end, is gone."""
    texts = {}
    for call in (call for step in steps for call in step.calls if call.bound):
        texts.setdefault(call.bound, []).append(call.arguments[0] if call.name == "query" else call.name)
    broken = {number for number, calls in texts.items() if calls[:2] != ["SYNC", "begin"] or calls[-1] not in ("commit", "rollback")}
    return [replace(step, calls=tuple(call for call in step.calls if call.bound not in broken)) for step in steps]
