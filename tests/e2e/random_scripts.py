"""Random scripts of the wire protocol, drawn from a seed: what one to three clients send, and in which pieces. Knows the protocol and
PostgreSQL's SQL; opens no socket. `describe` prints a script as the calls of `wire` that it consists of.

A client has tables of its own (`prepare_tables`), so that what it is answered does not depend on how clients interleave.
What is not drawn is named in LEFT_OUT."""

import copy
import random
from dataclasses import dataclass, replace

import wire

# What no script asks for, and why.
LEFT_OUT = {
    "in transaction mode, but within one block: parameters that are not tracked, SQL PREPARE, temporary tables, cursors WITH HOLD, "
    "session advisory locks": "transaction pooling does not carry them from one transaction to the next, as documented for PgBouncer",
    "in transaction mode: the unnamed statement in a later segment than its Parse": "another transaction may have another server",
    "in session mode: the unnamed statement in a later segment than a RESET": "Weir sets the client's startup values again by a query of its own",
    "RESET without a Sync of its own, among other statements, or by a statement that is executed again later": "what is pipelined behind it runs with the server's defaults",
    "the unnamed portal in a later segment than its Bind": "PostgreSQL 15 crashes where a failed simple query has left it in a failed block",
    "rows in no order, names of objects that differ from run to run": "PostgreSQL itself answers otherwise each time",
}
CLIENTS = ("c0", "c1", "c2")
TABLES = "".join(
    f"create table if not exists {name} (id int primary key, word text);"
    f"create table if not exists {name}_late (id int unique deferrable initially deferred);"
    for name in CLIENTS
)


def prepare_tables():
    """SQL that gives each client's tables the contents that every script begins with."""
    texts = []
    for name in CLIENTS:
        texts.append(f"delete from {name}; delete from {name}_late;")
        texts.append(f"insert into {name} select i, 'word ' || i from generate_series(1, 5) i;")
        texts.append(f"insert into {name}_late values (1);")
    return "".join(texts)


CONTENTS = " union all ".join(
    f"select '{name}', id::text, coalesce(word, 'null') from {name} union all select '{name} late', id::text, '' from {name}_late" for name in CLIENTS
)


@dataclass(frozen=True)
class Call:
    """One message: a function or constant of `wire` and its arguments."""

    name: str
    arguments: tuple = ()
    # Messages of one number belong together: the first may be left out only with all others (a block and what needs it).
    bound: int = 0

    def encode(self, run):
        """`@` in a text becomes the number of the run, for names that must be new on every server."""
        part = getattr(wire, self.name)
        if not callable(part):
            return part
        return part(*(text.replace("@", f"{run:07d}") if isinstance(text, str) else text for text in self.arguments))

    def __str__(self):
        if not callable(getattr(wire, self.name)):
            return f"wire.{self.name}"
        shown = [repr(value) if len(repr(value)) < 200 else f"{value[:1]!r} * {len(value)}" for value in self.arguments]
        return f"wire.{self.name}({', '.join(shown)})"


@dataclass(frozen=True)
class Step:
    """Messages that go out together, cut at these places; then the client goes on at once, or waits for the replies."""

    calls: tuple
    cuts: tuple = ()  # each a part of the whole, 0 to 1
    waits: bool = False


@dataclass(frozen=True)
class Script:
    seed: int
    clients: tuple  # of tuples of Step

    def count(self):
        return sum(len(step.calls) for steps in self.clients for step in steps)


def describe(script):
    """A script as text: what each client sends, a step a line."""
    lines = [f"seed {script.seed}"]
    for name, steps in zip(CLIENTS, script.clients):
        lines.append(f"{name}:")
        for step in steps:
            how = f"in {len(step.cuts) + 1} pieces" if step.cuts else "in one piece"
            lines.append(f"  {how}{', then waits' if step.waits else ''}: " + ", ".join(map(str, step.calls)))
    return "\n".join(lines)


def draw(seed, session):
    """The script of this seed; `session` allows what a session keeps between its transactions."""
    rng = random.Random(f"{seed} {session}")
    clients = rng.choice((1, 1, 1, 2, 3))
    steps = [Writer(rng, name, session).script() for name in CLIENTS[:clients]]
    return Script(seed, tuple(within_the_rules(each, session) for each in steps))


def keeps_to_the_rules(script, session):
    """Whether a script asks for nothing that LEFT_OUT names; scripts are drawn so, and stay so when they are made smaller."""
    for steps in script.clients:
        rules = Rules(session)
        if not all(rules.allow(call) for step in steps for call in step.calls):
            return False
    return True


def within_the_rules(steps, session):
    """With a Parse, or a Bind, before what would use an older one."""
    rules, kept = Rules(session), []
    for step in steps:
        calls = []
        for call in step.calls:
            for missing in (*[Call("SYNC")] * rules.reset, Call("parse", ("", "select 'parsed'")), Call("bind")):
                if not rules.may(call) and rules.allow(missing):
                    calls.append(missing)
            assert rules.allow(call)
            calls.append(call)
        kept.append(replace(step, calls=tuple(calls)))
    return tuple(kept)


class Rules:
    """What a client may use at this place of its script: an unnamed statement, an unnamed portal."""

    def __init__(self, session):
        self.session, self.parsed, self.bound, self.reset = session, session, False, False

    def may(self, call):
        return copy.copy(self).allow(call)

    def allow(self, call):
        """False where the call is against the rules; else it has happened."""
        unnamed = call.arguments[:1] in ((), ("",))
        if self.reset and call.name not in ("bind", "execute", "describe", "SYNC", "FLUSH"):
            return False
        if call.name == "execute" and unnamed and not self.bound:
            return False
        uses = (call.name == "bind" and unnamed) or (call.name, call.arguments) == ("describe", (b"S", ""))
        if uses and not (self.parsed or call.bound):
            return False
        if call.name in ("query", "parse"):
            self.reset = call.name == "parse" and call.arguments[1] in RESETS
            self.parsed |= call.name == "query" or unnamed
        if call.name == "bind" and call.arguments[1:2] in ((), ("",)):
            self.bound = True
        if call.name == "SYNC":
            self.parsed &= self.session and not self.reset
            self.reset = False
        if call.name in ("SYNC", "query"):
            self.bound = False
        return True


READS = [
    "select 1", "select 'b' as b, null::int as nothing", "select * from {t} order by id", "select count(*) from {t}",
    "select i from generate_series(1, 7) i", "select repeat('x', 9000)", "select repeat('y', 500) from generate_series(1, 300)",
    "select word from {t} where id = 3", "values (1, 'a'), (2, 'b')", "", "table {t} order by id desc", "select", "show transaction_isolation",
    "select '03/04/2024'::date, interval '1 day 2 hours', '12:00'::timetz = '12:00'::timetz",
    "/* comment */ select 5 -- end", "explain (costs off) select 1", "select 'ü', E'\\\\', $$it's$$",
]
WRITES = [
    "insert into {t} values (10, 'ten')", "insert into {t} values (11, 'a'), (12, 'b') returning id", "delete from {t} where id < 3",
    "update {t} set word = word || '!' where id = 4 returning *", "insert into {t}_late values (1)", "insert into {t}_late values (7)",
    "with gone as (delete from {t} returning id) select count(*) from gone", "truncate {t}_late", "lock table {t}",
]
ERRORS = [
    "selec 1", "select 1/0", "select 1/(3 - i) from generate_series(1, 6) i", "select * from nowhere", "insert into {t} values (1, 'twice')",
    "select 'x'::int", "insert into {t} values (null)", "select nothing()", "create table {t} (id int)", "select $1", "commit and",
    "do $$ begin raise exception 'told' using errcode = 'P0042', detail = 'more', hint = 'try'; end $$", "set datestyle = 'nonsense'",
]
NOTICES = [
    "do $$ begin raise notice 'one'; raise warning 'two'; end $$", "drop table if exists never_there", "select 1; do $$ begin raise notice 'three'; end $$",
]
SETTINGS = [  # tracked by the pooler: they stay with the client
    "set application_name = 'drawn'", "show application_name", "set datestyle = 'German'", "show datestyle", "set timezone = 'Asia/Tokyo'",
    "show timezone", "set standard_conforming_strings = off", "set client_encoding = 'LATIN1'", "show client_encoding",
    "set local timezone = 'UTC'", "select '\\101'",
    "select set_config('application_name', 'by function', false)", "set intervalstyle = 'iso_8601'", "set session timezone to 'UTC'",
]
RESETS = ["reset all", "reset application_name", "set datestyle to default", "discard all", "reset timezone"]
BLOCK = ["begin", "commit", "rollback", "start transaction isolation level serializable", "begin read only", "end", "abort", "commit and chain",
         "rollback and chain"]
SAVEPOINTS = ["savepoint s", "rollback to s", "release s", "savepoint t", "rollback to savepoint t"]
# Only inside one block in transaction mode; `@` (the run) and {b} (the block) make names new.
BOUND = [
    "set local work_mem = '3MB'", "show work_mem", "set local search_path = pg_catalog", "show search_path", "prepare q@_{b} as select $1::int + 1",
    "execute q@_{b}(4)", "execute q@_{b}(5)", "deallocate q@_{b}", "execute q@_{b}('x')", "create temp table kept (id int) on commit drop",
    "insert into kept values (1)", "select * from kept", "declare walker cursor for select i from generate_series(1, 9) i", "fetch 2 from walker",
    "fetch all from walker", "move 1 in walker", "close walker", "declare walker scroll cursor for table {t} order by id", "fetch prior from walker",
    "select pg_advisory_xact_lock({n})", "set transaction read only", "set constraints all immediate", "copy kept from stdin",
]
# Session mode only; `@` because a lock of the run before may be held for a moment yet.
KEPT = [
    "set work_mem = '5MB'", "show work_mem", "reset work_mem", "prepare q as select 7", "execute q", "deallocate q", "execute a", "deallocate a",
    "create temp table mine (id int)", "insert into mine values (2)", "table mine", "drop table mine",
    "declare holder cursor with hold for select i from generate_series(1, 4) i", "fetch 2 from holder", "close all", "set search_path = pg_catalog",
    "set role bob", "reset role", "discard temp", "discard plans", "select pg_try_advisory_lock(@)", "select pg_advisory_unlock_all()",
    "set default_transaction_read_only = on", "set session characteristics as transaction isolation level serializable",
]
# A statement with parameters, and values that it takes (or not).
PARAMETERS = [
    ("select $1::int", [(b"7",), (b"-1",), (None,), (b"x",), (b"1", b"2"), ()]),
    ("select $1::text || $2::text", [(b"a", b"b"), (b"", None), (b"\xc3\xbc", b"\xff"), (b"x" * 3000, b"y")]),
    ("insert into {t} values ($1, $2) returning id", [(b"20", b"bound"), (b"1", b"twice"), (b"21", None)]),
    ("select i, $1::date from generate_series(1, $2::int) i", [(b"03/04/2024", b"5"), (b"never", b"1"), (b"2024-01-02", b"0")]),
    ("update {t} set word = $2 where id = $1", [(b"2", b"changed"), (b"99", b"none")]),
]
LINES = [b"30\tgood\n", b"31\tfine\n", b"x\tbad\n", b"1\ttwice\n", b"32\n", b"33\t\\N\n", b"34\thalf", b" a line\n", b"\\.\n", b"35\t" + b"z" * 4000 + b"\n"]
NAMES = ["", "", "a", "b", "c"]
PORTALS = ["", "", "", "p", "q"]


class Writer:
    """Draws the steps of one client."""

    def __init__(self, rng, table, session):
        self.rng, self.table, self.session = rng, table, session
        self.bound = 0
        self.parsed = {}  # name to values that its statement takes; what the client believes

    def script(self):
        draws = [self.simple, self.extended, self.extended, self.prepared, self.prepared, self.portal, self.copy_in, self.copy_out, self.block,
                 self.block, self.bound_block, self.bound_block, self.mixed, self.rare]
        steps = []
        for _ in range(self.rng.randint(1, 6)):
            steps += self.rng.choice(draws)()
        return self.in_pieces(steps)

    def in_pieces(self, steps):
        """Several steps in one write, or one in several."""
        pace = self.rng.choice(("pipelined", "waits", "mixed"))
        joined = []
        for step in steps:
            waits = pace == "waits" or (pace == "mixed" and self.rng.random() < 0.5)
            cuts = tuple(sorted(self.rng.random() for _ in range(self.rng.choice((0, 0, 0, 1, 2, 5)))))
            joined.append(replace(step, waits=waits, cuts=cuts))
        return joined

    # --- texts ------------------------------------------------------------------------------------------------
    def text(self, block=False):
        kinds = [(READS, 8), (WRITES, 4), (ERRORS, 3), (NOTICES, 1), (SETTINGS, 2), (SAVEPOINTS, 3 if block else 0.3), (BLOCK, 0.5)]
        kinds += [(KEPT, 4)] * self.session + [(BOUND, 1)] * self.session
        texts, _ = self.rng.choices(kinds, [weight for _, weight in kinds])[0], None
        return self.filled(self.rng.choice(texts[0]))

    def filled(self, text):
        number = CLIENTS.index(self.table)
        return text.replace("{t}", self.table).replace("{n}", str(number)).replace("{b}", f"{number}_{self.bound}")

    def query_text(self):
        """What a simple query may hold: several statements, a block of their own."""
        if self.rng.random() < 0.05:
            return self.rng.choice(RESETS)
        if self.rng.random() < 0.7:
            return self.text()
        parts = [self.text() for _ in range(self.rng.randint(2, 4))]
        if self.rng.random() < 0.3:
            self.bound += 1
            inner = [self.filled(self.rng.choice(BOUND[:-1])) for _ in range(self.rng.randint(1, 3))]
            parts = ["begin", *inner, self.rng.choice(("commit", "rollback"))]
        return "; ".join(parts)

    # --- steps ------------------------------------------------------------------------------------------------
    def simple(self):
        return [Step((Call("query", (self.query_text(),)),)) for _ in range(self.rng.randint(1, 3))]

    def ended(self, calls):
        """Mostly by Sync, else by Flush or nothing."""
        ends = self.rng.choices([("SYNC",), ("FLUSH",), ("FLUSH", "SYNC"), ("SYNC", "SYNC"), ()], [16, 1.5, 3, 1, 1])[0]
        return [Step((*calls, *(Call(end) for end in ends)))]

    def extended(self):
        """Messages of the extended protocol in any order, with names that are there or not."""
        return self.ended([self.any_message() for _ in range(self.rng.randint(1, 8))])

    def any_message(self):
        rng, name, portal = self.rng, self.rng.choice(NAMES), self.rng.choice(PORTALS)
        match rng.choice("PPPBBBBEEEEDDCCH"):
            case "P":
                return self.parse(name)
            case "B":
                return self.bind(name, portal)
            case "E":
                return Call("execute", (portal, rng.choice((0, 0, 0, 1, 2, 5))))
            case "D":
                return Call("describe", rng.choice(((b"S", name), (b"P", portal))))
            case "C":
                return Call("close", rng.choice(((b"S", name), (b"P", portal))))
            case _:
                return Call("FLUSH")

    def parse(self, name):
        if self.rng.random() < 0.4:
            text, values = self.rng.choice(PARAMETERS)
        else:
            text, values = self.text(), [()]
        self.parsed[name] = values
        types = self.rng.choice(((), (), (), (0,))) if values != [()] else ()
        return Call("parse", (name, self.filled(text), types))

    def bind(self, name, portal):
        values = self.rng.choice(self.parsed.get(name, [()]))
        return Call("bind", (name, portal, values, (), self.rng.choice(((), (), (), (0,), (1,)))))

    def prepared(self):
        """As drivers do it: parse, then bind and execute several times, in this segment or later ones."""
        name, portal = self.rng.choice(NAMES), self.rng.choice(PORTALS)
        first = [Call("close", (b"S", name))] if name and self.rng.random() < 0.6 else []
        first.append(self.parse(name))
        first += [Call("describe", (b"S", name))] if self.rng.random() < 0.5 else []
        steps = self.ended(first) if self.rng.random() < 0.5 else []
        again = [] if steps else first
        for _ in range(self.rng.randint(1, 4)):
            run = [self.bind(name, portal)]
            run += [Call("describe", (b"P", portal))] if self.rng.random() < 0.5 else []
            run += [Call("execute", (portal, self.rng.choice((0, 0, 1))))]
            run += [Call("close", (b"P", portal))] if portal or self.rng.random() < 0.2 else []
            steps += self.ended([*again, *run])
            again = []
        return steps

    def portal(self):
        """A portal that is read in parts, in a block or not."""
        name, portal = self.rng.choice(NAMES), self.rng.choice(PORTALS[-2:])
        inside = self.rng.random() < 0.7
        opening = [Call("query", ("begin",))] if inside else []
        text = self.filled(self.rng.choice(("select i from generate_series(1, 7) i", "table {t} order by id", "select 1/(5 - i) from generate_series(1, 6) i")))
        calls = [Call("close", (b"S", name)), Call("parse", (name, text)), Call("bind", (name, portal))]
        self.parsed[name] = [()]
        steps = [Step((*opening, *calls, Call("execute", (portal, 2)), self.separator()))]
        for _ in range(self.rng.randint(1, 4)):
            steps.append(Step((Call("execute", (portal, self.rng.choice((1, 2, 3, 0)))), self.separator())))
        if self.rng.random() < 0.4:
            steps.append(Step((Call("query", (self.text(),)),)))
        steps += self.ended([Call("close", (b"P", portal))])
        return steps + [Step((Call("query", (self.rng.choice(("commit", "rollback")),)),))] * inside

    def separator(self):
        return Call(self.rng.choice(("FLUSH", "SYNC", "SYNC")))

    def copy_in(self):
        """COPY FROM STDIN with good and bad data, Syncs and Flushes among it, ended well, badly or not at all."""
        rng = self.rng
        text = self.filled(rng.choice(("copy {t} from stdin", "copy {t} (id, word) from stdin", "copy {t} from stdin; select 'behind'")))
        if rng.random() < 0.5:
            calls = [Call("query", (text,))]
        else:
            name = rng.choice(NAMES)
            self.parsed[name] = [()]
            calls = [Call("close", (b"S", name)), Call("parse", (name, text.split(";")[0])), Call("bind", (name,)), Call("execute")]
            calls += [Call(rng.choice(("SYNC", "FLUSH")))] if rng.random() < 0.7 else []
        lines = LINES[:2] if rng.random() < 0.5 else LINES
        data = [Call("copy_data", (b"".join(rng.choice(lines) for _ in range(rng.randint(0, 3))),)) for _ in range(rng.randint(0, 4))]
        for _ in range(rng.choice((0, 0, 1, 2))):
            data.insert(rng.randint(0, len(data)), Call(rng.choice(("SYNC", "FLUSH"))))
        end = rng.choices([[Call("COPY_DONE")], [Call("copy_fail", ("given up",))], []], [6, 3, 0.5])[0]
        tail = [Call("SYNC")] if rng.random() < 0.8 else []
        if rng.random() < 0.5:
            return [Step(tuple(calls)), Step((*data, *end, *tail))]
        return [Step((*calls, *data, *end, *tail))]

    def copy_out(self):
        text = self.filled(self.rng.choice(("copy (table {t} order by id) to stdout", "copy (select repeat('o', 2000) from generate_series(1, 50)) to stdout",
                                            "copy (select 1/(4 - i) from generate_series(1, 6) i) to stdout", "copy (values (1), (2)) to stdout; select 1/0")))
        if self.rng.random() < 0.5:
            return [Step((Call("query", (text,)),))]
        return self.ended([Call("parse", ("", text.split(";")[0])), Call("bind"), Call("describe", (b"P", "")), Call("execute")])

    def block(self):
        """A transaction block, with savepoints and errors, opened and closed by either protocol."""
        steps = self.statement("begin")
        for _ in range(self.rng.randint(1, 5)):
            steps += self.statement(self.rng.choice(RESETS) if self.rng.random() < 0.05 else self.text(block=True))
        return steps + self.statement(self.rng.choice(BLOCK[1:]))

    def statement(self, text):
        if self.rng.random() < 0.5:
            return [Step((Call("query", (text,)),))]
        self.parsed[""] = [()]
        return self.ended([Call("parse", ("", text)), Call("bind"), Call("execute")])

    def bound_block(self):
        """A block for what transaction pooling keeps no longer than that: it begins in any case, and ends at its end only."""
        self.bound += 1
        calls = [[Call("SYNC"), Call("query", ("begin",))]]
        for _ in range(self.rng.randint(2, 7)):
            text = self.filled(self.rng.choice(BOUND[:-1] + SAVEPOINTS[:3] + READS[:4]))
            if self.rng.random() < 0.6:
                calls.append([Call("query", (text,))])
            else:
                self.parsed[""] = [()]
                calls.append([Call("parse", ("", text)), Call("bind"), Call("execute"), Call("SYNC")])
        calls.append([Call("query", (self.rng.choice(("commit", "rollback")),))])
        return [Step(tuple(replace(call, bound=self.bound) for call in step)) for step in calls]

    def mixed(self):
        """A simple query among messages of the extended protocol that no Sync has ended."""
        calls = [self.parse(""), self.bind("", ""), Call("execute")]
        calls.insert(self.rng.randint(1, 3), Call("query", (self.text(),)))
        return self.ended(calls)

    def rare(self):
        """What hardly any client sends."""
        return self.rng.choice((
            lambda: [Step((Call("function_call", (177, (b"2", b"3"))),))],  # int4pl
            lambda: [Step((Call("function_call", (177, (b"2", b"x"))),))],
            lambda: [Step((Call("COPY_DONE"), Call("copy_data", (b"outside",)), Call("copy_fail", ("outside",))))],
            lambda: [Step(tuple([Call("query", ("select 1",))] * 40))],
            lambda: [Step(tuple([Call("parse", ("", "select $1::int")), *[Call("bind", ("", "", (b"3",))), Call("execute")] * 30, Call("SYNC")]))],
            lambda: [Step((Call("query", ("deallocate all",)),))],
            lambda: [Step((Call("query", ("select pg_terminate_backend(pg_backend_pid())",)),))],
            lambda: [Step((Call("SYNC"),) * 5)],
        ))()
