"""Random scripts of what clients leave in their sessions, drawn from a seed: what each client sends, and in which order of all clients.

Knows SQL and the messages of the protocol; opens no socket. A client touches only its own table, and locks only keys of its own; names of
temporary tables, cursors, prepared statements and channels are the same at all clients, because those are to be told apart. What a
client is answered so depends on nothing but its own script, and on the order of the steps that are marked `alone`."""

import random
from dataclasses import dataclass, replace

from random_scripts import Call
from session_texts import BACKSLASHES, BY_FUNCTION, ERRORS, IN_TWO, NOTICES, PRISTINE, PROBES, READS, ROLES, SAVEPOINTS, SETTINGS, STARTUP, WRITES

CLIENTS = 200
# Clients that have a transaction or state on their server across several steps, at a time: of ten servers, three are left for all others.
HOLDERS = 7
MOST_AT_ONCE = 40  # steps of different clients that run at the same time

# What `session_state = virtual` is not said to follow (docs/session-state.md), or not yet: no script asks for it unless it is named in
# WEIR_MODEL_HOLES.
HOLES = {
    "currval": "currval and lastval of a sequence that is not temporary",
    "unseen": "settings that a trigger, a view or an operator leaves where the text calls no function",
    "pid": "the process ID of a notification",
    "reread": "constants of a statement of the protocol that were read by other settings than those of its use",
    "startup": "startup parameters, behind a RESET that a text hides, or of one that is not tracked in the same request or transaction",
    "encodings": "values that the client_encoding does not have",
}

@dataclass(frozen=True)
class Step:
    """Messages that a client sends in one write; it then waits for as many ReadyForQuery as they ask for."""

    calls: tuple
    at: int = 0  # its place among all clients: steps of one number run at the same time, those that are alone first, one by one
    episode: int = 0  # which steps of the client were drawn together
    alone: bool = False
    holds: bool = False  # the client has something on its server when this step has ended
    startup: tuple | None = None  # a new connection first, with these parameters
    leaves: str = ""  # what ends the connection after the step: Terminate, or the socket is closed before the answer has come


@dataclass(frozen=True)
class Script:
    seed: int
    user: str
    clients: tuple  # of tuples of Step

    def count(self):
        return sum(len(steps) for steps in self.clients)


def describe(script):
    """A script as text, a step a line, in the order in which it is played; then the same for `WEIR_MODEL_SCRIPT`."""
    lines = [f"seed {script.seed}, user {script.user}, {script.count()} steps"]
    steps = [(step.at, not step.alone, name, step) for name, steps in enumerate(script.clients) for step in steps]
    for at, _, name, step in sorted(steps, key=lambda row: row[:3]):
        opens = f"connects with {dict(step.startup)}; " if step.startup is not None else ""
        lines.append(f"  {at:4} c{name} {opens}{shown(step)}{'; ' * bool(step.leaves)}{step.leaves}")
    return "\n".join([*lines, repr(script)])


def shown(step):
    """The messages of a step; those of one statement of the extended protocol are one."""
    calls = ", ".join(str(call).replace("wire.", "") if len(str(call)) < 150 or call.name != "query" else f"query({call.arguments[0]!r:.150}…)" for call in step.calls)
    return calls.replace(", bind('', '', ()), execute(), SYNC", " and so on")


class Writer:
    """Draws the episodes of one client: lists of (calls, what is special about the step)."""

    def __init__(self, rng, number, user, holes):
        self.rng, self.number, self.user, self.holes = rng, number, user, holes

    def episodes(self, length):
        kinds = [
            (self.settings, 6), (self.block, 4), (self.block_in_one, 2), (self.temporary, 2), (self.cursor, 2), (self.sql_prepared, 2), (self.protocol_prepared, 3), (self.mixed_names, 3),
            (self.advisory, 2), (self.shared_lock, 0.7), (self.listen, 2), (self.notify, 1), (self.roles, 1.5), (self.discard, 1), (self.copy, 1),
            (self.malformed, 1.5), (self.encoding, 1), (self.backslashes, 1), (self.vanish, 1.5), (self.reconnect, 1), (self.library, 0.3), (self.procedures, 1),
            (self.paths, 1), (self.unnamed, 0.5), (self.oversized, 0.3), (self.begin_while_held, 1),
        ]
        kinds += [(self.currval, 1)] * ("currval" in self.holes) + [(self.unseen, 1)] * ("unseen" in self.holes)
        found = [[self.opening()]]
        for kind in self.rng.choices([kind for kind, _ in kinds], [weight for _, weight in kinds], k=length):
            found.append(kind())
        found.append([self.step(self.query("rollback"), self.query(self.filled("select * from {m} order by id")), self.query(self.rng.choice(PRISTINE)), leaves="terminates")])
        return found

    # --- parts ------------------------------------------------------------------------------------------------
    def step(self, *calls, **special):
        flat = [part for call in calls for part in (call if isinstance(call, list) else [call])]
        return tuple(flat), special

    def filled(self, text):
        return text.replace("{m}", f"m{self.number}").replace("{n}", str(self.number))

    def query(self, text):
        return Call("query", (self.filled(text),))

    def extended(self, text, values=(), types=()):
        return [Call("parse", ("", self.filled(text), types)), Call("bind", ("", "", values)), Call("execute"), Call("SYNC")]

    def run(self, text):
        """A statement by either protocol."""
        return self.query(text) if self.rng.random() < 0.6 else self.extended(text)

    def pick(self, texts, most=1):
        return [self.rng.choice(texts) for _ in range(self.rng.randint(1, most))]

    def setting(self):
        rng = self.rng
        name = rng.choice(list(SETTINGS))
        value = rng.choice(SETTINGS[name])
        other, text = rng.choice(BY_FUNCTION)
        quoted = text.replace("'", "''")
        plain = value.strip("'").replace("'", "").replace('"', "")
        return rng.choice((
            f"set {name} = {value}", f"set {name} to {value}", f"SET SESSION {name} TO {value}", f"set {name} = default", f"reset {name}", f"set local {name} = {value}",
            f"/* a */ set -- b\n {name} = {value};", f"select set_config('{other}', '{quoted}', false)", f"select set_config('{other}', '{quoted}', true)",
            f"select pg_catalog.set_config('{name.strip(chr(34))}', '{plain}', false), 2", f"select leave('{other}', '{quoted}')", f"select leave_by_sql('{other}', '{quoted}')",
            f"select leave_stable('{other}', '{quoted}')", f"select leave_and_fail('{other}', '{quoted}')", f"select leave_caught('{other}', '{quoted}')",
            f"select leave_locally('{other}', '{quoted}')", f"do $$ begin perform set_config('{other}', '{quoted}', false); end $$",
            f"do $$ begin set {name} = {value}; end $$", f"select run($$set {name} = {value}$$)", "select by_clause()", "reset all",
            f"set {name} = {value}; set lock_timeout = '64s'", f"set work_mem = '8MB'; reset {name}; select 1/0", f"with a as (select leave('{other}', '{quoted}')) select 1",
            f"set {name} = {value}; begin; set work_mem = '2MB'; rollback", "set time zone interval '-08:00' hour to minute", "set names 'UTF8'", "set xml option content",
            "set schema 's1'", "set seed = 0.5",
        ))

    def bound_setting(self):
        name, value = self.rng.choice(BY_FUNCTION)
        text = self.rng.choice(("select set_config($1, $2, false)", "select set_config($1, $2, $3)", f"select set_config('{name}', $1, false)", "select leave($1, $2)"))
        values = {"$3": (name.encode(), value.encode(), self.rng.choice((b"t", b"f"))), "$2": (name.encode(), value.encode()), "$1": (value.encode(),)}
        return self.extended(text, values[next(word for word in values if word in text)])

    def change(self):
        return self.bound_setting() if self.rng.random() < 0.2 else self.run(self.setting())

    def look(self):
        return self.run(self.rng.choice(PROBES + READS))

    def anything(self):
        """For the middle of a transaction or beside state that is held."""
        rng = self.rng
        kind = rng.random()
        if kind < 0.3:
            return self.change()
        return self.run(rng.choice(PROBES if kind < 0.55 else READS if kind < 0.7 else WRITES if kind < 0.8 else SAVEPOINTS if kind < 0.93 else ERRORS))

    def several(self, draw, most):
        return [draw() for _ in range(self.rng.randint(1, most))]

    # --- episodes ---------------------------------------------------------------------------------------------
    def opening(self):
        return self.step(self.query(self.rng.choice(PRISTINE)), startup=self.startup())

    def startup(self):
        rng, found = self.rng, {}
        for name, value in rng.sample(STARTUP if "startup" in self.holes else STARTUP[:0], rng.choice((0, 0, 1, 2, 3)) * ("startup" in self.holes)):
            found[name] = value
        return tuple(found.items())

    def settings(self):
        return [self.step(*self.several(self.rng.choice((self.change, self.look)), 2)) for _ in range(self.rng.randint(1, 4))]

    def block(self):
        rng = self.rng
        begins = self.pick(["begin", "start transaction", "begin isolation level repeatable read", "begin read only", "begin; set local work_mem = '3MB'"])[0]
        steps = [self.step(self.run(begins) if ";" not in begins else self.query(begins), holds=True)]
        steps += [self.step(*self.several(self.anything, 3), holds=True) for _ in range(rng.randint(1, 4))]
        ends = self.pick(["commit", "rollback", "end", "commit and chain", "rollback and chain", "abort"])[0]
        steps.append(self.step(self.run(ends), self.query("commit"), self.look()))
        return steps

    def block_in_one(self):
        """A transaction in one write: as a pipeline, or as one query string."""
        rng = self.rng
        if rng.random() < 0.5:
            inner = [self.anything() for _ in range(rng.randint(1, 4))]
            return [self.step(self.run("begin"), *inner, self.run(rng.choice(("commit", "rollback"))), self.query("rollback")), self.step(self.look())]
        texts = [rng.choice([self.setting(), *READS[:4], *WRITES[:3], *SAVEPOINTS[:3]]) for _ in range(rng.randint(1, 4))]
        return [self.step(self.query("; ".join(["begin", *texts, rng.choice(("commit", "rollback"))])), self.query("rollback")), self.step(self.look())]

    def held(self, begins, middles, ends):
        """Begins with something that stays, goes on with it, and ends it for certain."""
        rng = self.rng
        steps = [self.step(self.run(rng.choice(begins)), holds=True)]
        for _ in range(rng.randint(1, 3)):
            steps.append(self.step(*[self.run(rng.choice(middles)) if rng.random() < 0.6 else self.anything() for _ in range(rng.randint(1, 2))], holds=True))
        own = [self.query(rng.choice(ends))] if rng.random() < 0.7 else []
        steps.append(self.step(self.query("rollback"), *own, self.query(ends[0]), self.look()))
        return steps

    def temporary(self):
        return self.held(
            ["create temp table tmp as select {n} as id", "create temporary table tmp (id int) on commit delete rows", "select {n} as id into temp tmp",
             "create table pg_temp.tmp (id int)", "select run('create temp table tmp (id int)')", "begin; create temp table tmp (id int) on commit drop; commit",
             "create temp sequence tmp_numbers", "create temp view tmp as select {n} as id", "do $$ begin create temp table tmp (id int); end $$",
             "create function pg_temp.f() returns int language sql as 'select {n}'", "begin; create temp table tmp (id int); rollback",
             "set search_path = pg_temp, public; create table tmp (id int); reset search_path"],
            ["insert into tmp values ({n})", "select * from tmp", "select nextval('tmp_numbers')", "select last_value > 0 from tmp_numbers", "select pg_temp.f()", "truncate tmp",
             "begin", "drop table tmp", "alter table tmp add word text", "select is_called from tmp_numbers", "create temp table tmp2 (a int)", "copy tmp to stdout", "discard sequences"],
            ["discard temp", "drop table tmp", "discard all", "drop table if exists tmp, tmp2"])

    def cursor(self):
        return self.held(
            ["declare c cursor with hold for select {n} + i from generate_series(1, 9) i", "declare c scroll cursor with hold for table {m}",
             "begin; declare c cursor with hold for select {n}; commit", "select run('declare c cursor with hold for select {n}')",
             "begin; declare c cursor with hold for select 1; rollback", "begin; declare c cursor for select i from generate_series(1, 9) i",
             "declare \"C\" cursor with hold for select {n}; declare c insensitive cursor with hold for select {n}, 2"],
            ["fetch 2 from c", "move 1 in c", "fetch all from c", "close c", "fetch 1 from \"C\"", "fetch prior from c", "begin", "commit",
             "declare c cursor with hold for select {n}"],
            ["close all", "close c", "discard all"])

    def sql_prepared(self):
        return self.held(
            ["prepare p as select {n} as own", "prepare p (int) as select $1 + {n}", "prepare p as select * from {m} order by id", "select run('prepare p as select {n}')",
             "begin; prepare p as select {n}; rollback", "prepare p as select place from which", "prepare \"P\" as select {n}; prepare p as select set_config('app.tenant', '{n}', false)",
             "prepare p as update {m} set word = 'prepared' where id = 1 returning id"],
            ["execute p", "execute p (1)", "execute p (2)", "execute \"P\"", "deallocate p", "prepare p as select 'again {n}'", "explain (costs off) execute p", "begin", "commit",
             "create temp table tmp as execute p", "set search_path = s2", "discard plans"],
            ["discard all", "deallocate all; discard temp", "deallocate all; discard temp; close all"])

    def protocol_prepared(self):
        rng = self.rng
        texts = [
            ("select {n} as own", ()), ("select $1::int + {n}", (b"4",)), ("select * from {m} order by id", ()), ("select place from which", ()),
            ("select set_config('app.tenant', $1, false)", (b"bound {n}",)), ("update {m} set word = $1 where id = 1 returning word", (b"new",)),
            ("select current_setting('work_mem'), '\\101'%s" % (", '01/02/2024'::date" * ("reread" in self.holes)), ()), ("set lock_timeout = '53s'", ()), ("select leave('work_mem', $1)", (b"14MB",)),
        ]
        steps, name = [], rng.choice(("a", "b", "c"))
        text, values = rng.choice(texts)
        values = tuple(value.replace(b"{n}", str(self.number).encode()) for value in values)
        first = [Call("close", (b"S", name))] if rng.random() < 0.8 else []
        first += [Call("parse", (name, self.filled(text))), *[Call("describe", (b"S", name))] * (rng.random() < 0.4), Call("SYNC")]
        steps.append(self.step(first))
        for _ in range(rng.randint(1, 3)):
            bound = [Call("bind", (name, "", values)), Call("describe", (b"P", "")), Call("execute"), Call("SYNC")]
            between = [self.rng.choice((self.change, self.look))()] if rng.random() < 0.5 else []
            steps.append(self.step(*between, bound, bound if rng.random() < 0.3 else []))
        if rng.random() < 0.6:
            ends = [[Call("close", (b"S", name)), Call("SYNC")], [self.query("deallocate all")], [self.query("discard all")], [self.query(f"deallocate {name}")], self.extended(f"deallocate {name}")]
            steps.append(self.step(rng.choice(ends), [Call("bind", (name, "", values)), Call("execute"), Call("SYNC")]))
        return steps

    def mixed_names(self):
        """The same names by SQL and by the protocol."""
        rng = self.rng
        acts = [
            lambda name: self.run(f"prepare {name} as select {{n}} as own"), lambda name: self.run(f"prepare {name} (int) as select $1 + {{n}}"),
            lambda name: self.run(f"execute {name}"), lambda name: self.run(f"execute {name}"), lambda name: self.run(f"execute {name} (1)"),
            lambda name: self.run(f"deallocate {name}"), lambda name: self.run(f"deallocate prepare {name}"), lambda name: self.query(f"explain (costs off) execute {name}"),
            lambda name: self.query(f"deallocate {name}; prepare {name} as select 'anew'; execute {name}"), lambda name: self.run(rng.choice(("begin", "commit", "rollback", "select 1/0"))),
            lambda name: self.run(rng.choice(("deallocate all", "discard all", "discard plans", "set datestyle = 'German'", "select run('select 1')"))),
            lambda name: [Call("parse", (name, self.filled("select {n} as own, current_setting('datestyle')"))), Call("SYNC")],
            lambda name: [Call("parse", (name, self.filled("select * from {m} order by id"))), Call("describe", (b"S", name)), Call("SYNC")],
            lambda name: [Call("bind", (name, "", ())), Call("describe", (b"P", "")), Call("execute"), Call("SYNC")],
            lambda name: [Call("bind", (name, "", ())), Call("execute"), Call("SYNC")],
            lambda name: [Call("describe", (b"S", name)), Call("SYNC")], lambda name: [Call("close", (b"S", name)), Call("SYNC")],
            lambda name: [Call("parse", (name, "select 1")), Call("bind", (name, "", ())), Call("execute"), Call("close", (b"S", name)), Call("SYNC")],
        ]
        steps = [self.step(*[rng.choice(acts)(rng.choice(("a", "p"))) for _ in range(rng.randint(1, 3))], holds=True) for _ in range(rng.randint(3, 6))]
        return [*steps, self.step(self.query("rollback"), self.query("discard all"), self.look())]

    def advisory(self):
        return self.held(
            ["select pg_advisory_lock({n})", "select pg_advisory_lock_shared({n}), pg_advisory_lock({n}, 7)", "select run('select pg_advisory_lock({n})')",
             "begin; select pg_advisory_lock({n}); rollback", "select pg_advisory_lock({n}), pg_advisory_lock({n})", "begin; select pg_advisory_xact_lock({n}); commit",
             "select pg_advisory_lock({n}) from {m}", "select pg_advisory_lock(1{n}); select 1/0"],
            ["select pg_advisory_unlock({n})", "select pg_advisory_lock({n})", "select pg_advisory_unlock_shared({n})", "select pg_advisory_unlock({n}, 7)",
             PROBES[16], "begin", "select pg_try_advisory_lock_shared({n})"],
            ["select pg_advisory_unlock_all()", "discard all", "select pg_advisory_unlock({n})"])

    def shared_lock(self):
        key = self.rng.randint(100001, 100003)
        return [
            self.step(self.query(f"select pg_try_advisory_lock({key})"), alone=True, holds=True),
            self.step(self.query(PROBES[16]), holds=True),
            self.step(self.query(f"select pg_advisory_unlock({key})"), self.query("select pg_advisory_unlock_all()"), alone=True),
        ]

    def listen(self):
        return self.held(
            ["listen news", "listen news; listen \"More\"", "listen own_{n}", "begin; listen news; commit", "begin; listen news; rollback", "select run('listen news')",
             "do $$ begin listen own_{n}; end $$", "begin; listen news; notify own_{n}, 'early'; commit"],
            ["notify own_{n}, 'mine'", PROBES[17], "select pg_notify('own_{n}', 'by function')", "unlisten own_{n}", "listen own_{n}", "listen own_{n}; notify own_{n}, 'in one'",
             "begin; notify own_{n}, 'rolled back'; rollback", "begin; notify own_{n}, 'a'; notify own_{n}, 'a'; notify own_{n}, 'b'; commit", "begin", "commit",
             "unlisten news", "notify nobody_listens"],
            ["unlisten *", "discard all", "unlisten news"])

    def notify(self):
        texts = ["notify news, 'from {n}'", "select pg_notify('news', 'function {n}')", "begin; notify news, 'block {n}'; select 1; commit",
                 "begin; notify news, 'never {n}'; rollback", "notify \"More\", '{n}'", "notify news"]
        return [self.step(self.query(self.rng.choice(texts)), alone=True)]

    def roles(self):
        return [self.step(self.run(self.rng.choice(ROLES)), *self.several(self.look, 2)) for _ in range(self.rng.randint(1, 3))]

    def discard(self):
        text = self.rng.choice(("discard all", "discard plans", "discard temp", "discard sequences", "deallocate all", "DISCARD TEMPORARY", "close all", "unlisten *", "reset all"))
        return [self.step(self.run(text)), self.step(*self.several(self.look, 2))]

    def copy(self):
        lines = b"".join(self.pick([b"30\tgood\n", b"31\tfine\n", b"x\tbad\n", b"1\ttwice\n"], 3))
        ends = self.rng.choice((Call("COPY_DONE"), Call("COPY_DONE"), Call("copy_fail", ("given up",))))
        text = self.rng.choice(("copy {m} from stdin", "copy {m} (id, word) from stdin with (freeze off)", "set lock_timeout = '57s'; copy {m} from stdin"))
        if self.rng.random() < 0.5:
            return [self.step(self.query(text), Call("copy_data", (lines,)), ends), self.step(self.look())]
        text = self.rng.choice(("copy (select place()) to stdout", "copy {m} to stdout", "copy (select leave('work_mem', '15MB')) to stdout", "copy (select 1) to stdout; select 2"))
        return [self.step(self.query(text)), self.step(self.look())]

    def malformed(self):
        texts = self.pick(ERRORS + NOTICES, 3)
        return [self.step(*[self.run(text) for text in texts], self.query("rollback")), self.step(self.look())]

    def encoding(self):
        raw = lambda data: Call("message", (b"Q", data + b"\0"))
        encoding, letter = self.rng.choice((("LATIN1", b"\xe4"), ("WIN1252", b"\x80"), ("UTF8", "ö€".encode()), ("WIN1251", b"\xc6"), ("LATIN9", b"\xa4"))[:: 1 if "encodings" in self.holes else 9])
        name = self.rng.choice((b"app.tenant", b"application_name", b"app.user"))
        texts = [raw(b"set " + name + b" = '" + letter + b"'"), raw(b"select set_config('" + name + b"', '" + letter + b"!', false)"), raw(b"select '" + letter + b"', $$" + letter + b"$$")]
        steps = [self.step(self.query(self.rng.choice((f"set client_encoding = '{encoding}'", f"set names '{encoding}'", f"select set_config('client_encoding', '{encoding}', false)"))))]
        steps += [self.step(self.rng.choice(texts)), self.step(self.query(PROBES[13]), self.query("show application_name"))]
        if self.rng.random() < 0.6:
            steps.append(self.step(self.query(self.rng.choice(("reset client_encoding", "set client_encoding = 'UTF8'", "discard all"))), self.query(PROBES[13])))
        return steps

    def backslashes(self):
        texts = self.pick(BACKSLASHES, 3)
        first = self.rng.choice(("set standard_conforming_strings = off", "set standard_conforming_strings = off; set backslash_quote = on", "select leave('standard_conforming_strings', 'off')"))
        last = [self.query("reset standard_conforming_strings")] * (self.rng.random() < 0.7)
        return [self.step(self.query(first)), *[self.step(self.query(text)) for text in texts], self.step(*last, self.query(PROBES[20]), self.query(PROBES[13]))]

    def vanish(self):
        """The connection ends with something on the server; nothing of it is left to the next one."""
        rng = self.rng
        begins = ["create temp table tmp as select {n} as id", "prepare p as select {n}", "select pg_advisory_lock({n})", "listen news", "begin; set work_mem = '6MB'",
                  "declare c cursor with hold for select {n}", "set lock_timeout = '66s'", "set role bob", "select leave('app.tenant', 'left')", "begin; update {m} set word = 'lost'",
                  "set session characteristics as transaction read only", "begin; select 1/0"]
        steps = [self.step(*[self.query(text) for text in self.pick(begins, 3)], holds=True)]
        if rng.random() < 0.5:
            steps.append(self.step(self.query(rng.choice(("select pg_sleep(0.05)", "select leave('work_mem', '16MB') from generate_series(1, 1000)", "set lock_timeout = '67s'",
                                                          "copy {m} from stdin"))), holds=True, leaves="vanishes"))
        else:
            steps.append(self.step(self.look(), holds=True, leaves="terminates"))
        return [*steps, self.step(*[self.query(text) for text in rng.sample(PRISTINE, 3)], startup=self.startup())]

    def reconnect(self):
        return [self.step(self.look(), leaves=self.rng.choice(("terminates", "vanishes"))), self.step(*[self.query(text) for text in self.rng.sample(PRISTINE, 2)], startup=self.startup())]

    def library(self):
        names = ["plpgsql"] if self.user == "chief" else ["plpgsql", "$libdir/plugins/none"]
        return [self.step(self.run(f"load '{self.rng.choice(names)}'"), holds=True), self.step(self.look(), holds=True), *self.reconnect()]

    def procedures(self):
        one, two = (self.setting().replace("'", "''") for _ in range(2))
        name = self.rng.choice(("run_committing", "run_rolling_back"))
        return [self.step(self.query(f"call {name}('{one}', '{two}')")), self.step(*self.several(self.look, 2))]

    def paths(self):
        """The same texts under one search_path after the other, by statements that stay."""
        name = self.rng.choice(("x", "y"))
        text = self.rng.choice(("select place from which", "select place()", "select place, $1::int from which"))
        values = (b"1",) if "$1" in text else ()
        steps = [self.step([Call("close", (b"S", name)), Call("SYNC")], self.query("set search_path = s1, public"), [Call("parse", (name, text)), Call("SYNC")])]
        for path in self.pick(IN_TWO, 3):
            steps.append(self.step(self.query(f"set search_path = {path}")))
            steps.append(self.step([Call("bind", (name, "", values)), Call("execute"), Call("SYNC")], self.query(text.replace(", $1::int", ""))))
        return [*steps, self.step(self.query("reset search_path"))]

    def unnamed(self):
        return [
            self.step([Call("parse", ("", "select $1::int + 1")), Call("SYNC")], holds=True),
            self.step([Call("describe", (b"S", "")), Call("SYNC")], holds=True),
            self.step([Call("bind", ("", "", (b"4",))), Call("execute"), Call("SYNC")], self.query("select 'replaced'")),
        ]

    def oversized(self):
        """A value too long to be given to another server."""
        return [self.step(self.query(f"set app.tenant = '{'x' * 9000}'"), holds=True), self.step(self.query("select length(current_setting('app.tenant'))"), holds=True),
                self.step(self.query("set app.tenant = 'short'"), self.query(PROBES[13]))]

    def begin_while_held(self):
        """A block in an error, with commands that it refuses."""
        texts = self.pick(["set work_mem = '5MB'", "show work_mem", "rollback to a", "select 1", "savepoint c", "select leave('app.tenant', 'in vain')"], 3)
        return [
            self.step(self.query("begin"), self.change(), self.query("savepoint a"), self.change(), self.query("select 1/0"), holds=True),
            self.step(*[self.run(text) for text in texts], holds=True),
            self.step(self.query(self.rng.choice(("commit", "rollback"))), self.look()),
        ]

    # --- what is a hole yet -----------------------------------------------------------------------------------
    def currval(self):
        return [self.step(self.query("select nextval('m{n}_numbers')")), self.step(self.query("select currval('m{n}_numbers'), lastval()"))]

    def unseen(self):
        return [self.step(self.query(self.rng.choice(("insert into {m}_triggered values (1)", "select * from leaving")))), self.step(self.query("show lock_timeout"), self.query(PROBES[13]))]


# --- all clients ----------------------------------------------------------------------------------------------
def draw(seed, clients=CLIENTS, length=5, holes=()):
    """The script of this seed."""
    rng = random.Random(f"sessions {seed}")
    user = rng.choice(("alice", "alice", "chief"))
    drawn = [Writer(rng, number, user, holes).episodes(rng.randint(1, 2 * length)) for number in range(clients)]
    return Script(seed, user, schedule(rng, drawn))


def schedule(rng, drawn):
    """Gives each step its place: a client begins an episode that holds a server only if few others do."""
    waiting = {number: [(episode, *step) for episode, steps in enumerate(episodes) for step in steps] for number, episodes in enumerate(drawn)}
    placed, holders, at = {number: [] for number in waiting}, set(), 0
    while waiting:
        ready = [number for number in waiting if number in holders or not waiting[number][0][2].get("holds") or len(holders) < HOLDERS]
        at += 1
        for number in rng.sample(ready, min(len(ready), rng.randint(1, MOST_AT_ONCE))):
            episode, calls, special = waiting[number][0]
            if special.get("holds") and number not in holders and len(holders) >= HOLDERS:
                continue
            placed[number].append(Step(calls, at, episode, **special))
            holders.add(number) if special.get("holds") and not special.get("leaves") else holders.discard(number)
            waiting[number].pop(0)
            if not waiting[number]:
                del waiting[number]
    return tuple(tuple(placed[number]) for number in sorted(placed))


def compact(script):
    """The same without clients that do nothing, its places numbered from one."""
    places = {at: number for number, at in enumerate(sorted({step.at for steps in script.clients for step in steps}), 1)}
    return Script(script.seed, script.user, tuple(tuple(replace(step, at=places[step.at]) for step in steps) for steps in script.clients if steps))
