"""Plays a script of `session_scripts` on PostgreSQL and through a pooler, and says where the answers part; makes a script that differs smaller.

Each client has a connection of its own; clients whose steps have the same place run side by side. What may differ is named in
`differential.ALLOWED` and in ALLOWED, and nowhere else. A notification may come with any later answer: they are compared in their order, apart
from the answers, and none may come inside of a transaction."""

import itertools
import re
import select
import socket
import struct
import time
from dataclasses import dataclass, field, replace

import differential
import wire
from session_scripts import compact
from session_texts import CONTENTS

SILENCE = 60.0  # seconds without an answer after which a client is taken to hang
# What a notification may come late by, where listening connections are shared.
NOTIFICATIONS_LATE = 3.0

ALLOWED = {
    **differential.ALLOWED,
    "temporary schemas have the numbers of their server processes": lambda kind, body: (kind, re.sub(rb"pg_(toast_)?temp_\d+", b"pg_temp_N", body)),
    "a server process that has had a temporary schema keeps it, empty": lambda kind, body: (kind, b"no pg_temp.f()" if NO_FUNCTION.search(body) else body),
}
NO_FUNCTION = re.compile(rb'\0Mschema "pg_temp" does not exist\0|\0Mfunction pg_temp.f\(\) does not exist\0')
# What a pooler reports of itself.
PARAMETERS_LEFT_OUT = re.compile(r"pgbouncer\..*|in_hot_standby")


@dataclass
class Told:
    """What one client was told: for each step its messages, and the notifications of each of its connections."""

    steps: list = field(default_factory=list)
    notifications: list = field(default_factory=list)  # (whether the connection was cut, its notifications)


class Player:
    """One client: sends a step in one write, and reads until all of it is answered."""

    def __init__(self, port, database, user, steps, holes, awaited):
        self.address, self.database, self.user, self.holes = ("127.0.0.1", port), database, user, holes
        self.steps, self.socket, self.told = list(steps), None, Told()
        self.awaited = awaited  # how many notifications each connection got directly
        self.status = b"I"

    def begin(self, step):
        """Sends the step, on a new connection if it asks for one; False if there is nothing to wait for."""
        self.answers = []
        self.told.steps.append(self.answers)
        if step.startup is not None or self.socket is None:
            self.close(is_cut=True)
            self.connect(step.startup or ())
        if self.socket is None:
            return False
        data = b"".join(call.encode(0) for call in step.calls)
        self.readies, self.heard = _readies(data), time.monotonic()
        try:
            self.socket.sendall(data)
        except OSError:
            pass  # what the other side said before it closed is still to be read
        if step.leaves == "vanishes":
            self.close(is_cut=True)
            return False
        return self.readies > 0

    def connect(self, startup):
        self.socket = socket.create_connection(self.address, timeout=SILENCE)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.buffer, self.parameters, self.notifications, self.inside, self.pid, self.status = b"", {}, [], [], 0, b"I"
        self.readies = 1
        self.socket.sendall(wire.startup(**{"user": self.user, "database": self.database, "client_encoding": "UTF8", **dict(startup)}))
        while self.readies and self.socket:
            self.read()

    def end(self, step):
        """The step is answered."""
        if step.leaves and self.socket:
            self.wait_for_notifications()
            self.socket.sendall(wire.TERMINATE)
            self.close(is_cut=False)

    def wait_for_notifications(self):
        """Where fewer came than directly, some more time."""
        at = len(self.told.notifications)
        missing = self.awaited[at] if at < len(self.awaited) else 0
        deadline = time.monotonic() + NOTIFICATIONS_LATE
        while self.socket and len(self.notifications) < missing and time.monotonic() < deadline:
            if select.select([self.socket], [], [], 0.05)[0]:
                self.read()

    def close(self, is_cut):
        if self.socket:
            self.socket.close()
            self.socket = None
            self.told.notifications.append((is_cut, self.notifications))

    def read(self):
        try:
            data = self.socket.recv(1 << 18)
        except OSError:
            data = b""
        self.heard = time.monotonic()
        if not data:
            self.answers.append(("closed",))
            self.readies = 0
            return self.close(is_cut=True)
        self.buffer += data
        at = 0
        while len(self.buffer) - at >= 5:
            (length,) = struct.unpack_from("!i", self.buffer, at + 1)
            if len(self.buffer) - at < length + 1:
                break
            self.message(chr(self.buffer[at]), self.buffer[at + 5 : at + 1 + length])
            at += length + 1
        self.buffer = self.buffer[at:]

    def message(self, kind, body):
        if kind == "S":
            name, value = body[:-1].split(b"\0")
            self.parameters[name.decode()] = value
        elif kind == "A":
            (pid,) = struct.unpack_from("!i", body)
            own = (pid == self.pid,) if "pid" in self.holes else ()
            if self.status != b"I":
                self.inside.append(len(self.notifications))
            self.notifications.append((*own, body[4:]))
        elif kind == "K":
            (self.pid,) = struct.unpack_from("!i", body)
        elif kind == "Z":
            # Right in front of the ReadyForQuery that ends a transaction is PostgreSQL's place.
            if body != b"I":
                self.note_inside()
            self.inside = []
            self.readies, self.status = self.readies - 1, body
            known = {name: value for name, value in self.parameters.items() if not PARAMETERS_LEFT_OUT.fullmatch(name)}
            self.answers.append(("Z", body, tuple(sorted(known.items()))))
        elif kind != "R":
            for same in ALLOWED.values():
                kind, body = same(kind, body)
            self.answers.append((kind, body))
            self.note_inside()

    def note_inside(self):
        for place in self.inside:
            self.notifications[place] = (*self.notifications[place], b"in a transaction")
        self.inside = []

    def silence(self):
        self.answers.append(("silence",))
        self.readies = 0
        self.close(is_cut=True)


def _readies(data):
    """How many ReadyForQuery these messages ask for."""
    count, at = 0, 0
    while at < len(data):
        count += data[at : at + 1] in (b"Q", b"S", b"F")
        at += 1 + struct.unpack_from("!i", data, at + 1)[0]
    return count


def play(port, database, script, holes=(), awaited=None):
    """Plays a script; what each client was told."""
    awaited = awaited or [[] for _ in script.clients]
    players = [Player(port, database, script.user, steps, holes, counts) for steps, counts in zip(script.clients, awaited)]
    places = {}
    for player in players:
        for step in player.steps:
            places.setdefault(step.at, []).append((player, step))
    try:
        for at in sorted(places):
            for pair in places[at]:
                if pair[1].alone:
                    run([pair])
            run([pair for pair in places[at] if not pair[1].alone])
    finally:
        for player in players:
            player.close(is_cut=True)
    return [player.told for player in players]


def run(pairs):
    """These steps side by side, until all are answered."""
    poll, waiting = select.poll(), {}
    for player, step in pairs:
        if player.begin(step) and player.socket:
            waiting[player.socket.fileno()] = (player, step)
            poll.register(player.socket, select.POLLIN)
        else:
            player.end(step)
    while waiting:
        for number, _ in poll.poll(1000):
            player, step = waiting[number]
            player.read()
            if not player.readies:
                poll.unregister(number)
                del waiting[number]
                player.end(step)
        for number, (player, _) in list(waiting.items()):
            if time.monotonic() - player.heard > SILENCE:
                poll.unregister(number)
                del waiting[number]
                player.silence()


class Model:
    """Plays scripts both ways. `fresh` is called before a script is played through the pooler: while a script is made smaller, nothing that
    an earlier one has left there may play a part."""

    def __init__(self, pg, port, database="app", holes=(), fresh=lambda: None):
        self.pg, self.port, self.database, self.holes, self.fresh = pg, port, database, holes, fresh

    def compare(self, script):
        """Where the answers part, as a list of differences."""
        self.pg.query(CONTENTS, "app")
        expected = play(self.pg.port, "app", script, self.holes)
        self.pg.query(CONTENTS, "app")
        self.fresh()
        counts = [[len(found) for _, found in told.notifications] for told in expected]
        return differences(script, expected, play(self.port, self.database, script, self.holes, counts))


@dataclass(frozen=True)
class Difference:
    client: int
    at: int  # the place of the step
    sort: tuple  # of message and SQLSTATE both ways: what the same script made smaller has to show, too
    text: str


def differences(script, expected, found):
    """One for each client at most: where it is told something else for the first time."""
    return [one for number, steps in enumerate(script.clients) if (one := _difference(number, steps, expected[number], found[number]))]


def _difference(number, steps, direct, pooled):
    for step, one, other in zip(steps, direct.steps, pooled.steps):
        if step.leaves != "vanishes" and one != other:
            place = next((at for at, (left, right) in enumerate(zip(one, other)) if left != right), min(len(one), len(other)))
            lines = [f"c{number} at {step.at}, reply {place} to {', '.join(map(str, step.calls))}"]
            lines += [f"   PostgreSQL {_shown(one, place)}", f"   pooler     {_shown(other, place)}"]
            left, right = (messages[place] if place < len(messages) else ("nothing",) for messages in (one, other))
            names = ()
            if left[0] == right[0] == "Z":
                only = [sorted(set(first[2]) - set(second[2])) for first, second in ((left, right), (right, left))]
                names = tuple(sorted({name for name, _ in only[0] + only[1]}))
                lines.append(f"   parameters: PostgreSQL {only[0]}, pooler {only[1]}")
            return Difference(number, step.at, (_sort(left), _sort(right), names), "\n".join(lines))
    last = max((step.at for step in steps), default=0)
    for (is_cut, one), (_, other) in itertools.zip_longest(direct.notifications, pooled.notifications, fillvalue=(True, [])):
        both = min(len(one), len(other)) if is_cut else max(len(one), len(other))
        if one[:both] != other[:both]:
            return Difference(number, last, ("notifications",), f"c{number} notifications: PostgreSQL {one}, pooler {other}")
    return None


def _sort(message):
    code = re.search(rb"\0C(.....)\0", message[1]) if message[0] == "E" else None
    return message[0], code[1] if code else b""


def _shown(told, place):
    return " ".join(f"{one[0]}{one[1][:200]!r}" if len(one) > 1 else one[0] for one in told[max(0, place - 1) : place + 3]) or "nothing more"


# --- the smallest script that still differs -------------------------------------------------------------------
def minimise(script, first, compare, seconds=60):
    """Leaves out clients, episodes, steps and messages for as long as a client is told something of the same sort otherwise."""
    deadline = time.monotonic() + seconds

    def differs(smaller):
        return any(one.sort == first.sort for one in compare(smaller))

    alone = _only(script, lambda number, step: number == first.client)
    earlier = _only(script, lambda number, step: step.at <= first.at)
    script = next((smaller for smaller in (alone, alone, earlier) if differs(smaller)), script)
    for parts in (_clients, _episodes, _steps, _calls, _steps):
        script = _reduced(script, parts, differs, deadline)
    return compact(script)


def _only(script, is_kept):
    return replace(script, clients=tuple(tuple(step for step in steps if is_kept(number, step)) for number, steps in enumerate(script.clients)))


def _reduced(script, parts, differs, deadline):
    """Delta debugging: leaves out the second half of what there is, a quarter, …, one by one."""
    size = (len(parts(script)) + 1) // 2
    while size:
        at = len(parts(script))
        while at > 0 and time.monotonic() < deadline:
            at -= size
            smaller = _without(script, set(parts(script)[max(at, 0) : at + size]))
            if smaller.count() and differs(smaller):
                script = smaller
        size = 0 if size == 1 or time.monotonic() > deadline else (size + 1) // 2
    return script


def _clients(script):
    return [(number,) for number, steps in enumerate(script.clients) if steps]


def _episodes(script):
    return [(number, episode) for number, steps in enumerate(script.clients) for episode in sorted({step.episode for step in steps})]


def _steps(script):
    return [(number, step.episode, step.at) for number, steps in enumerate(script.clients) for step in steps]


def _calls(script):
    return [
        (number, step.episode, step.at, at) for number, steps in enumerate(script.clients) for step in steps if len(step.calls) > 1 for at in range(len(step.calls))
    ]


def _without(script, gone):
    """Without these clients, episodes, steps or messages."""
    clients = []
    for number, steps in enumerate(script.clients):
        kept = []
        for step in steps if (number,) not in gone else ():
            key = (number, step.episode, step.at)
            if key[:2] in gone or key in gone:
                continue
            calls = tuple(call for at, call in enumerate(step.calls) if (*key, at) not in gone)
            if calls or step.leaves or step.startup is not None:
                kept.append(replace(step, calls=calls))
        clients.append(tuple(kept))
    return replace(script, clients=tuple(clients))

