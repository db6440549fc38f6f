"""`currval` and `lastval` with `session_state = virtual`: a client finds what its own session has left, or PostgreSQL's error, and never another client's.
Holds I4 of ARCHITECTURE.md."""

import concurrent.futures
import random
import time

import pytest

import host
import panel
import wire
from test_pinned import become
from test_takeover import reboot

pytestmark = pytest.mark.weir_only

UNDEFINED = "55000"
VALUES = ["select lastval()", "select currval('item_id_seq')", "SELECT pg_catalog.currval('item_id_seq'::regclass) AS id"]


MADE = """drop table if exists item; drop sequence if exists other; drop function if exists calls;
    create table item (id serial primary key, who text); create sequence other; grant all on item, item_id_seq, other to public;
    create function calls() returns bigint language plpgsql as $$ begin return nextval('other'); end $$"""


@pytest.fixture
def virtual(weir, pg):
    pg.query(MADE, "app")

    def start(size=3, **settings):
        return weir(**{"session_state": "virtual", "server_shuffle": 1, "default_pool_size": size, "min_pool_size": size, **settings})

    return start


class Client:
    """A client by one of the ways to ask; `ask` returns the first value or the error's code."""

    def __init__(self, pooler, how, who):
        self.raw = wire.Raw(pooler.port).login(application_name=who)
        self.how, self.who, self.prepared = how, who, {}

    def ask(self, sql):
        if self.how == "simple":
            return self.answer(self.raw.ask(wire.query(sql)))
        if self.how == "extended":
            return self.answer(self.raw.ask(wire.parse("", sql), wire.bind(), wire.describe(b"P"), wire.execute(), wire.message(b"S")))
        name, parse = self.prepared.get(sql), []
        if name is None:
            name = self.prepared[sql] = f"s{len(self.prepared)}"
            parse = [wire.parse(name, sql)]
        return self.answer(self.raw.ask(*parse, wire.bind(name), wire.execute(), wire.message(b"S")))

    @staticmethod
    def answer(messages):
        failed, found = wire.errors(messages), wire.rows(messages)
        if failed:
            return failed[0][0]
        return found[0][0] if found else None

    def insert(self):
        """A row by the sequence of its column; its number, which no answer has shown."""
        assert self.ask(f"insert into item (who) values ('{self.who}')") is None

    def close(self):
        self.raw.__exit__()


def own(pg, client):
    return str(pg.query(f"select max(id) from item where who = '{client.who}'", "app")[0][0])


def pinned(pooler):
    return {row["application_name"]: row["reasons"] for row in pooler.console("show pins") if row["database"] == "app"}


def all_are_idle(pooler, size):
    """None is being opened or asked about its tables, so that no client waits."""
    host.eventually(lambda: [row["state"] for row in pooler.console("show servers") if row["database"] == "app"] == ["idle"] * size)


@pytest.mark.parametrize("how", ["simple", "extended", "prepared"])
@pytest.mark.parametrize("shuffle", [0, 1])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_the_first_to_ask_gets_the_server_that_has_its_value(virtual, pg, how, size, shuffle):
    pooler = virtual(size, server_shuffle=shuffle)
    one, two = Client(pooler, how, "one"), Client(pooler, how, "two")
    two.ask("select 1")
    all_are_idle(pooler, size)
    for _ in range(3):
        two.ask("select 1")
        one.insert()
    if not shuffle:
        two.ask("select 2")  # a server that it used last would be closed
    assert one.ask("select lastval()") == own(pg, one)
    for value in VALUES:
        one.insert()
        if size > 1:
            two.ask("select 1")
        assert one.ask(value) == own(pg, one)
    host.eventually(lambda: pinned(pooler) == {"one": "sequence"})


@pytest.mark.parametrize("how", ["simple", "extended", "prepared"])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_what_another_client_has_left_is_no_value(virtual, pg, how, size):
    pooler = virtual(size)
    one, two = Client(pooler, how, "one"), Client(pooler, how, "two")
    one.insert()
    two.insert()
    assert one.ask("select lastval()") in {own(pg, one), UNDEFINED}
    for value in VALUES:
        one.insert()
        assert one.ask(value) == own(pg, one)
        assert one.ask("discard sequences") is None
        assert one.ask(value) == UNDEFINED
        two.insert()
        assert two.ask(value) == own(pg, two)
        assert two.ask("discard sequences") is None
    host.eventually(lambda: pinned(pooler) == {})


@pytest.mark.parametrize("how", ["simple", "extended", "prepared"])
def test_one_that_has_called_nothing_gets_the_error(virtual, how):
    pooler = virtual(1, server_shuffle=0)
    one, two, three = (Client(pooler, how, who) for who in ("one", "two", "three"))
    one.insert()
    assert two.ask("select lastval()") == UNDEFINED
    assert three.ask("select currval('item_id_seq')") == UNDEFINED
    assert pinned(pooler) == {}


@pytest.mark.parametrize("how", ["simple", "extended"])
def test_with_names_as_they_are(virtual, pg, how):
    pooler = virtual(1, server_shuffle=0, max_prepared_statements=0)
    one, two = Client(pooler, how, "one"), Client(pooler, how, "two")
    one.insert()
    assert two.ask("select lastval()") == UNDEFINED


@pytest.mark.parametrize("how", ["simple", "extended", "prepared"])
def test_in_a_transaction_block(virtual, pg, how):
    pooler = virtual(1, server_shuffle=0)
    one, two = Client(pooler, how, "one"), Client(pooler, how, "two")
    one.insert()
    two.ask("begin")
    two.insert()
    assert two.ask("select lastval()") == own_in_block(two)
    two.ask("commit")
    assert pinned(pooler) == {} and pins_begun(pooler) == 0, "the value of its own transaction"
    one.ask("begin")
    one.ask("set local timezone = 'Asia/Tokyo'")
    assert one.ask("select lastval()") == UNDEFINED
    one.ask("rollback")
    assert one.ask("show timezone") != "Asia/Tokyo"


def own_in_block(client):
    return client.ask(f"select max(id) from item where who = '{client.who}'")


def pins_begun(pooler):
    (row,) = [row for row in pooler.console("show pin_totals") if row["database"] == "app"]
    return row["pins"] if "pins" in row else row["begun"]


def test_one_query_string_with_both(virtual, pg):
    pooler = virtual(1, server_shuffle=0)
    one, two = Client(pooler, "simple", "one"), Client(pooler, "simple", "two")
    two.insert()
    assert one.ask("insert into item (who) values ('one'); select lastval()") == own(pg, one) and pinned(pooler) == {}


def test_a_pool_that_asks_for_no_earlier_value_pins_nobody(virtual):
    pooler = virtual(2)
    for how in "simple", "extended", "prepared":
        clients = [Client(pooler, how, f"{how}{number}") for number in range(3)]
        for client in clients * 3:
            client.insert()
            assert client.ask("select nextval('other')").isdigit()
            assert client.ask("insert into item (who) values ('x') returning id").isdigit()
            client.ask("begin")
            client.insert()
            assert client.ask("select lastval()") == own_in_block(client)
            client.ask("commit")
    assert pinned(pooler) == {} and pins_begun(pooler) == 0


def test_the_panel_shows_why_and_a_client_that_leaves_gives_its_server_back(virtual, pg):
    pooler, web = panel.start(virtual, size=1, server_shuffle=0)
    one = Client(pooler, "simple", "one")
    one.ask("select lastval()")
    one.ask("select nextval('other')")
    become(web, "sequence")
    process_id = one.ask("select pg_backend_pid()")
    one.close()
    become(web)
    two = Client(pooler, "simple", "two")
    assert two.ask("select currval('other')") == UNDEFINED
    assert two.ask("select pg_backend_pid()") == process_id


@pytest.mark.parametrize("statement", ["discard sequences", "discard all"])
def test_discard_gives_the_server_back(virtual, statement):
    pooler = virtual(2)
    one = Client(pooler, "simple", "one")
    one.ask("select lastval()")
    one.insert()
    host.eventually(lambda: pinned(pooler) == {"one": "sequence"})
    assert one.ask(statement) is None
    host.eventually(lambda: pinned(pooler) == {})
    assert one.ask("select lastval()") == UNDEFINED


def test_over_budget_a_client_has_no_value_and_no_other_disadvantage(virtual, pg):
    pooler = virtual(3, max_pinned=1, server_shuffle=0)
    one, two = Client(pooler, "simple", "one"), Client(pooler, "simple", "two")
    two.ask("select 1")
    all_are_idle(pooler, 3)
    one.ask("select lastval()")
    for client in one, two:
        client.insert()
    host.eventually(lambda: pinned(pooler) == {"one": "sequence"})
    assert one.ask("select lastval()") == own(pg, one)
    assert two.ask("select lastval()") in {own(pg, two), UNDEFINED}


def test_clients_that_insert_keep_no_others_waiting(virtual, pg):
    """More clients than servers, all busy: some insert and ask for the value, some insert only, some read."""
    pooler = virtual(2)
    assert Client(pooler, "simple", "first").ask("select lastval()") == UNDEFINED
    found, over = {}, time.monotonic() + 6

    def work(number):
        kind, client = number % 3, Client(pooler, ("simple", "prepared")[number % 2], f"c{number}")
        answers = found[number] = []
        while time.monotonic() < over:
            if kind < 2:
                value = client.ask("insert into item (who) values ('x') returning id" if client.how == "simple" else "select nextval('item_id_seq')")
            answers.append([client.ask("select lastval()"), value] if kind == 0 else client.ask("select 1"))

    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        for one in [pool.submit(work, number) for number in range(12)]:
            one.result(60)
    assert min(map(len, found.values())) > 2, {number: len(answers) for number, answers in found.items()}
    pairs = [pair for number in range(0, 12, 3) for pair in found[number]]
    right = [got == value for got, value in pairs]
    assert all(got in (value, UNDEFINED) for got, value in pairs)
    assert sum(right) > 0.8 * len(right), "a busy machine may need long from one request to the next"


@pytest.mark.parametrize(
    "calls",
    [
        "select calls()",
        "do $$ begin perform nextval('other'); end $$",
        "select nextval('other') / 0",
        "insert into item (id) values (nextval('other') / 0)",
        "update item set id = nextval('other') where false",
        "create table made as select nextval('other'); drop table made",
    ],
)
def test_what_functions_and_failed_statements_have_called_is_no_other_clients(virtual, calls):
    pooler = virtual(1, server_shuffle=0)
    one, two = Client(pooler, "simple", "one"), Client(pooler, "simple", "two")
    one.ask(calls)
    assert two.ask("select currval('other')") == UNDEFINED


def test_random_clients_never_find_another_ones_value(virtual, pg):
    pooler = virtual(6, query_wait_timeout=30)  # one for each: who waits is given a server that keeps another one's value
    chance = random.Random(7)
    clients = [Client(pooler, how, f"{how}{number}") for number in range(2) for how in ("simple", "prepared")]
    last = {}
    for step in range(400):
        client = chance.choice(clients)
        what = chance.randrange(5)
        if what == 0:
            client.insert()
            last[client] = own(pg, client)
        elif what == 1 and step > 100:
            client.ask("discard sequences")
            last.pop(client, None)
        elif what == 2:
            client.ask("select 1")
        else:
            found = client.ask(chance.choice(VALUES))
            assert found == UNDEFINED or found == last.get(client), step
            if step > 100 and found == UNDEFINED:
                assert client not in last or client.seen < 100, step
        client.seen = step if what == 0 else getattr(client, "seen", 0)


def test_a_takeover_returns_no_other_clients_value(virtual, pg):
    pooler = virtual(2, server_shuffle=0)
    one, two = Client(pooler, "simple", "one"), Client(pooler, "simple", "two")
    one.insert()
    two.insert()
    reboot(pooler)
    assert one.ask("select lastval()") in {own(pg, one), UNDEFINED}
    one.insert()
    assert one.ask("select lastval()") == own(pg, one)
    reboot(pooler)
    assert one.ask("select lastval()") == own(pg, one)
    host.eventually(lambda: pinned(pooler) == {"one": "sequence"})
    assert two.ask("select lastval()") in {own(pg, two), UNDEFINED}


def test_off_it_is_as_before(virtual, pg):
    pooler = virtual(1, session_state="off", server_shuffle=0)
    one, two = Client(pooler, "simple", "one"), Client(pooler, "simple", "two")
    one.insert()
    assert two.ask("select lastval()") == own(pg, one)


def test_sessions_that_were_not_followed_before_a_reload_are_not_trusted(virtual):
    pooler = virtual(1, session_state="off", server_shuffle=0)
    one, two = Client(pooler, "simple", "one"), Client(pooler, "simple", "two")
    one.insert()
    pooler.reload(session_state="virtual")
    assert two.ask("select lastval()") == UNDEFINED


def test_behind_a_deferred_begin(virtual, pg):
    pooler = virtual(1, deferred_begin=1, server_shuffle=0)
    one, two = Client(pooler, "simple", "one"), Client(pooler, "simple", "two")
    one.insert()
    two.ask("begin")
    assert two.ask("select lastval()") == UNDEFINED
    two.ask("rollback")
    one.ask("begin")
    one.insert()
    assert one.ask("select lastval()") == own_in_block(one)
    one.ask("commit")
