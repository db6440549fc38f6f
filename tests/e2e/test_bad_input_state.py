"""Bad input where Weir reads statements for what they change (`session_state = virtual`): PostgreSQL's own answer, bounded memory, and
nothing of it for the next client."""

import pytest

import host
import wire
from test_bad_input_login import resident_kib

pytestmark = pytest.mark.weir_only

ODD = [
    "set", "set =", "set x", "set x =", "set x to", "set 1 = 1", "set a.b.c.d.e = 1", "set lock_timeout = '1s", "set lock_timeout = 'a'; select 1",
    "set lock_timeout = $$1s", "set \"lock_timeout", "set lock_timeout = e'\\", "set local", "set session session lock_timeout = 1", "set role",
    "set session authorization", "set time zone", "set transaction", "set session characteristics as", "reset", "reset all all", "reset x y", "discard",
    "discard everything", "select set_config()", "select set_config('a', 'b')", "select set_config('a', 'b', false, 1)", "select set_config(",
    "select set_config('lock_timeout', 'x', false)", "/* set lock_timeout = 1", "/* /* */ set lock_timeout = 1", "-- set lock_timeout = 1",
    "/**/;;/**/;", "listen", "listen 1", "listen a b", "unlisten", "notify", "deallocate", "execute", "prepare", "prepare a as", "declare",
    "declare c cursor with hold", "close", "load", "load 'nothing'", "create temp", "do", "do $$", "do $x$ begin end $y$", "call nothing()", "begin; set x",
    "set lock_timeout = U&'\\00", "select $_$ set lock_timeout = 5", "\N{NO-BREAK SPACE}set lock_timeout = 5", "set lock_timeout = 5\N{NO-BREAK SPACE}",
]  # fmt: skip
LOOK = "select string_agg(name || setting, ',' order by name) from pg_settings where source = 'session' and name <> 'application_name'"


def outcome(raw, text):
    """Rows, command tags and errors, by the simple and by the extended protocol."""
    seen = []
    for request in (wire.query(text),), (wire.parse("", text), wire.bind(), wire.execute(), wire.SYNC):
        replies = raw.ask(*request)
        seen.append((wire.kinds(replies), [reply.body for reply in replies if reply.kind in "DC"], wire.errors(replies)))
        raw.ask(wire.query("rollback"))
    return seen


def test_odd_statements_get_the_answers_of_postgresql(weir, pg):
    pooler = weir(session_state="virtual", server_shuffle=1, default_pool_size=2, min_pool_size=2)
    with wire.Raw(pooler.port).login() as other:
        for text in ODD:
            with wire.Raw(pg.port).login() as direct, wire.Raw(pooler.port).login() as raw:
                assert outcome(raw, text) == outcome(direct, text), text
                assert raw.ask(wire.query(LOOK)) == direct.ask(wire.query(LOOK)), text
            for _ in range(2):
                (reply,) = [reply for reply in other.ask(wire.query(LOOK)) if reply.kind == "D"]
                assert reply.body == b"\0\1\xff\xff\xff\xff", text


def test_a_statement_of_64_megabytes(weir):
    pooler = weir(session_state="virtual", default_pool_size=1)
    with wire.Raw(pooler.port, timeout=60).login() as raw:
        raw.simple("select 1")
        raw.ask(wire.query("x" * 64_000_000))
        before = resident_kib(pooler)
        for text in f"set lock_timeout = '{'x' * 64_000_000}'", f"select length('{'set x = 1;' * 6_400_000}')":
            replies = raw.ask(wire.query(text))
            assert replies[-1].kind == "Z"
            # What a busy thread had not read yet is in its receive buffers, whose memory goes back a moment later.
            host.eventually(lambda: resident_kib(pooler) < before + 8_192)
    with wire.Raw(pooler.port).login() as other:
        assert other.simple(f"select ({LOOK}) is null") == [["t"]]


def test_a_hundred_thousand_kinds_of_statements(weir):
    """What is known of a statement is kept for so many kinds of them only."""
    pooler = weir(session_state="virtual", default_pool_size=1, max_prepared_statements=10)
    with wire.Raw(pooler.port, timeout=60).login() as raw:
        def ask(numbers):
            for first in numbers:
                texts = [f"select 1 as c{number}{'_' * 40}" for number in range(first, first + 250)]
                raw.send(*(wire.query(text) for text in texts[:125]))
                raw.send(*(part for text in texts[125:] for part in (wire.parse("", text), wire.bind(), wire.execute(), wire.SYNC)))
                raw.read_until_ready(250)

        ask(range(0, 20_000, 250))
        before = resident_kib(pooler)
        ask(range(20_000, 100_000, 250))
        assert resident_kib(pooler) < before + 4_096


@pytest.fixture
def beside(weir):
    """A client, what Weir holds in memory before it does anything, and another client of the same shuffled pool."""
    pooler = weir(session_state="virtual", server_shuffle=1, default_pool_size=2, min_pool_size=2)
    with wire.Raw(pooler.port, timeout=60).login() as raw, wire.Raw(pooler.port).login() as other:
        raw.simple("select 1")
        yield pooler, raw, other, resident_kib(pooler)


@pytest.mark.parametrize("at_once", [50, 500])
def test_ten_thousand_settings_of_one_client(beside, at_once):
    pooler, raw, other, before = beside
    for first in range(0, 10_000, at_once):
        raw.simple("".join(f"set app.name{number} = '{number}';" for number in range(first, first + at_once)))
    assert raw.simple("select current_setting('app.name9999'), current_setting('app.name0')") == [["9999", "0"]]
    assert other.simple("select coalesce(current_setting('app.name9999', true), '')") == [[""]]
    assert resident_kib(pooler) < before + 16_384


@pytest.mark.parametrize("setting", ['"\N{LATIN SMALL LETTER A WITH DIAERESIS}pp".tenant', f"app.{'x' * 200}"])
@pytest.mark.parametrize("around", ["{}", "do 'begin end'; {}", "{}" + "; select 1" * 300], ids=["alone", "with-code", "among-many"])
def test_names_that_are_hard_to_ask_for(beside, setting, around):
    _, raw, other, _ = beside
    raw.ask(wire.query(around.format(f"set {setting} = 'mine'")))
    looks = [f"select coalesce(current_setting('{setting.replace(chr(34), '')[:67]}', true), '')"] * 2
    assert [raw.simple(look) for look in looks] == [[["mine"]]] * 2
    assert [other.simple(look) for look in looks] == [[[""]]] * 2


def test_ten_thousand_channels_of_one_client(beside):
    pooler, raw, other, before = beside
    for first in range(0, 10_000, 500):
        raw.simple(";".join(f"listen c{number}" for number in range(first, first + 500)))
    assert raw.simple("select count(*) from pg_listening_channels()") == [["10000"]]
    assert resident_kib(pooler) < before + 8_192
    assert other.simple("select count(*) from pg_listening_channels()") == [["0"]]
    other.simple("notify c9999, 'x'")
    assert raw.read().body[4:] == b"c9999\0x\0"
    raw.simple("unlisten *")
    assert raw.simple("select count(*) from pg_listening_channels()") == [["0"]]


def test_a_client_that_creates_a_thousand_pins(weir):
    """Its server is its own, and closed when it leaves; all others are free."""
    pooler = weir(session_state="virtual", default_pool_size=2)
    with wire.Raw(pooler.port, timeout=60).login() as raw:
        raw.simple("select 1")
        before = resident_kib(pooler)
        raw.simple("".join(f"create temp table t{number} ();" for number in range(250)))
        raw.simple("".join(f"select pg_advisory_lock({number});" for number in range(250)))
        raw.simple("".join(f"declare c{number} cursor with hold for select 1;" for number in range(250)))
        raw.simple("".join(f"prepare p{number} as select 1;" for number in range(250)))
        for _ in range(3):
            with wire.Raw(pooler.port).login() as other:
                assert other.simple("select count(*) from pg_cursors") == [["0"]]
        assert raw.simple("select count(*) from pg_locks where locktype = 'advisory'") == [["250"]]
        assert resident_kib(pooler) < before + 4_096
    with wire.Raw(pooler.port).login() as other:
        host.eventually(lambda: other.simple("select count(*) from pg_locks where locktype = 'advisory'") == [["0"]])
        looks = "select (select count(*) from pg_prepared_statements where from_sql), (select count(*) from pg_locks where locktype = 'advisory')"
        assert [other.simple(looks) for _ in range(4)] == [[["0", "0"]]] * 4
