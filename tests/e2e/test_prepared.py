"""Protocol-level prepared statements in transaction mode: the client's names hold on whatever server it meets."""

import pytest

import host
import wire

pytestmark = pytest.mark.since("1.21")


def run_statement(name, values=()):
    return wire.bind(name, values=values) + wire.execute() + wire.SYNC


def prepare(raw, name, statement):
    assert wire.kinds(raw.ask(wire.parse(name, statement), wire.SYNC)) == "1Z"


def answer(raw, name, values=()):
    replies = raw.ask(run_statement(name, values))
    assert wire.kinds(replies) == "2DCZ", wire.errors(replies)
    return replies[1].row()[0].decode()


def on_the_server(raw):
    """How many statements the server holds that this query happens to meet."""
    return int(raw.simple("select count(*) from pg_prepared_statements")[0][0])


def take(raw):
    raw.simple("begin")
    return int(raw.simple("select pg_backend_pid()")[0][0])


@pytest.fixture
def pooler(weir):
    return weir(default_pool_size=2)


@pytest.fixture
def raw(pooler):
    with wire.Raw(pooler.port).login() as one:
        yield one


def test_a_statement_outlives_its_transaction(raw):
    prepare(raw, "add", "select $1::int + 1")
    assert [answer(raw, "add", [b"%d" % number]) for number in range(3)] == ["1", "2", "3"]


def test_the_same_name_means_different_things_to_different_clients(weir):
    pooler = weir(default_pool_size=1)
    with wire.Raw(pooler.port).login() as one, wire.Raw(pooler.port).login() as two:
        prepare(one, "s", "select 'one'")
        prepare(two, "s", "select 'two'")
        for _ in range(3):
            assert answer(one, "s") == "one"
            assert answer(two, "s") == "two"


def test_the_same_statement_of_many_clients_is_one_on_the_server(weir):
    pooler = weir(default_pool_size=1)
    with wire.Raw(pooler.port).login() as one, wire.Raw(pooler.port).login() as two:
        prepare(one, "mine", "select 'shared'")
        prepare(two, "also_mine", "select 'shared'")
        assert answer(one, "mine") == answer(two, "also_mine") == "shared"
        assert on_the_server(one) == 1


def test_a_statement_is_prepared_again_on_another_server(pooler, raw):
    prepare(raw, "where", "select pg_backend_pid()")
    with wire.Raw(pooler.port).login() as other:

        def holds_home():
            """The other client has the server that the statement was used on last; a second one may be open already."""
            home = int(answer(raw, "where"))
            return home if take(other) == home else other.simple("rollback") and None

        # Whichever server the other client holds, the statement has to work on what is left.
        home = host.eventually(holds_home)
        assert int(answer(raw, "where")) != home
        other.simple("rollback")


def test_describe_of_a_statement_on_another_server(pooler, raw):
    prepare(raw, "described", "select $1::int as number")
    with wire.Raw(pooler.port).login() as other:
        take(other)
        replies = raw.ask(wire.describe(b"S", "described"), wire.SYNC)
        assert wire.kinds(replies) == "tTZ"
        assert b"number" in replies[1].body


def test_lru_counts_are_exact(weir):
    """1, then 5, then the limit; a shrunk limit takes effect with the next Parse."""
    pooler = weir(default_pool_size=1, max_prepared_statements=5)
    with wire.Raw(pooler.port).login() as raw:
        prepare(raw, "s0", "select 0")
        assert on_the_server(raw) == 1
        for number in range(1, 8):
            prepare(raw, f"s{number}", f"select {number}")
        assert on_the_server(raw) == 5
        pooler.console("SET max_prepared_statements = 2")
        prepare(raw, "s8", "select 8")
        assert on_the_server(raw) == 2
        assert [answer(raw, f"s{number}") for number in range(9)] == [str(number) for number in range(9)]
        assert on_the_server(raw) == 2


def test_more_statements_than_the_limit_in_one_pipeline(weir):
    pooler = weir(default_pool_size=1, max_prepared_statements=3)
    with wire.Raw(pooler.port).login() as raw:
        for number in range(20):
            raw.send(wire.parse(f"s{number}", f"select {number}"), wire.bind(f"s{number}"), wire.execute())
        replies = raw.ask(wire.SYNC)
        assert [reply.row()[0] for reply in replies if reply.kind == "D"] == [b"%d" % number for number in range(20)]
        assert wire.kinds(replies) == "12DC" * 20 + "Z"
        assert on_the_server(raw) <= 3


@pytest.mark.parametrize("statement", ["DEALLOCATE ALL", "DISCARD ALL"])
def test_deallocate_all_forgets_the_names(pooler, raw, statement):
    prepare(raw, "gone", "select 1")
    raw.simple(statement)
    # The name is free again, and means what it is given now.
    prepare(raw, "gone", "select 2")
    assert answer(raw, "gone") == "2"


def test_close_frees_the_name(raw):
    prepare(raw, "s", "select 1")
    assert wire.kinds(raw.ask(wire.close(b"S", "s"), wire.SYNC)) == "3Z"
    prepare(raw, "s", "select 2")
    assert answer(raw, "s") == "2"


def test_close_of_an_unknown_name_is_fine(raw):
    assert wire.kinds(raw.ask(wire.close(b"S", "never"), wire.SYNC)) == "3Z"


@pytest.mark.weir_only
@pytest.mark.parametrize("request_bytes", [wire.bind("never"), wire.describe(b"S", "never")], ids=["bind", "describe"])
def test_an_unknown_name_is_refused_in_its_place(raw, request_bytes):
    """PostgreSQL's error behind what was asked before, and the session goes on."""
    raw.send(wire.query("select 1"), request_bytes, wire.SYNC)
    replies = raw.read_until_ready(2)
    assert wire.kinds(replies) == "TDCZEZ"
    assert wire.errors(replies) == [("26000", 'prepared statement "never" does not exist')]
    assert raw.simple("select 2") == [["2"]]


@pytest.mark.weir_only
def test_a_name_taken_twice_is_refused_in_its_place(raw):
    prepare(raw, "twice", "select 1")
    raw.send(wire.query("select 1"), wire.parse("twice", "select 2"), wire.SYNC)
    replies = raw.read_until_ready(2)
    assert wire.kinds(replies) == "TDCZEZ"
    assert wire.errors(replies) == [("42P05", 'prepared statement "twice" already exists')]
    assert wire.errors(raw.ask(wire.parse("twice", "selec"), wire.SYNC))[0][0] == "42601", "the text comes first"
    assert answer(raw, "twice") == "1"


FAILING = (wire.parse("", "select 1/0"), wire.bind(), wire.execute())


@pytest.mark.weir_only
def test_a_pipeline_binds_what_postgresql_would_bind(raw):
    """Behind an error Close and Parse are skipped: the name stands for what it stood for before."""
    prepare(raw, "a", "select 'old'")
    raw.send(*FAILING, wire.close(b"S", "a"), wire.parse("a", "select 'new'"), wire.SYNC, run_statement("a"))
    replies = raw.read_until_ready(2)
    assert [wire.errors(replies)[0][0], wire.rows(replies)] == ["22012", [["old"]]]
    raw.send(*FAILING, wire.parse("b", "select 1"), wire.SYNC, run_statement("b"))
    assert [code for code, _ in wire.errors(raw.read_until_ready(2))] == ["22012", "26000"]


@pytest.mark.weir_only
def test_a_statement_deallocated_in_a_block_is_prepared_again_behind_it(pooler, raw):
    prepare(raw, "a", "select 5")
    raw.simple("begin")
    raw.send(wire.query("deallocate all"), wire.parse("a", "select 5"), run_statement("a"))
    replies = raw.read_until_ready(2)
    assert wire.rows(replies) == [["5"]]
    assert not wire.errors(replies)


@pytest.mark.weir_only
def test_what_sql_prepares_under_a_shared_name_is_never_run_for_another(weir):
    pooler = weir(default_pool_size=1, session_state="off")
    with wire.Raw(pooler.port).login() as one, wire.Raw(pooler.port).login() as other:
        prepare(one, "mine", "select 'mine'")
        (name,) = other.simple("select name from pg_prepared_statements")[0]
        other.simple(f'deallocate "{name}"')
        other.simple(f"prepare \"{name}\" as select 'not mine'")
        assert answer(one, "mine") == "mine"
        other.simple("prepare \"PGBOUNCER_0\" as select 'nothing'")
        assert wire.errors(one.ask(run_statement("unknown")))[0][0] == "26000"


@pytest.mark.weir_only
def test_an_unnamed_statement_is_never_run_for_another(weir):
    pooler = weir(default_pool_size=1, session_state="off")
    with wire.Raw(pooler.port).login() as one, wire.Raw(pooler.port).login() as other:
        one.ask(wire.parse("", "select 'of one'"), wire.SYNC)
        assert wire.errors(other.ask(wire.bind(), wire.execute(), wire.SYNC))[0][0] == "26000"
        assert wire.rows(one.ask(wire.bind(), wire.execute(), wire.SYNC)) == [["of one"]]


@pytest.mark.since("1.25")
def test_a_failed_parse_is_forgotten(raw):
    replies = raw.ask(wire.parse("bad", "select nonsense"), wire.SYNC)
    assert wire.errors(replies)[0][0] == "42703"
    prepare(raw, "bad", "select 1")
    assert answer(raw, "bad") == "1"


def test_an_error_between_parse_and_parse(raw):
    """What was skipped with the error has not been prepared, and nothing is counted that the server does not have."""
    raw.send(wire.parse("a", "select 1"), wire.bind("a"), wire.execute())
    raw.send(wire.parse("", "select 1/0"), wire.bind(), wire.execute())
    replies = raw.ask(wire.parse("b", "select 2"), wire.bind("b"), wire.execute(), wire.SYNC)
    assert wire.kinds(replies) == "12DC1EZ"
    assert answer(raw, "a") == "1"
    prepare(raw, "c", "select 3")
    assert answer(raw, "c") == "3"
    # The same text as the skipped one must now really be prepared.
    prepare(raw, "d", "select 2")
    assert answer(raw, "d") == "2"


def test_zero_passes_everything_through(weir):
    pooler = weir(default_pool_size=1, max_prepared_statements=0)
    with wire.Raw(pooler.port).login() as raw:
        prepare(raw, "plain", "select 1")
        assert raw.simple("select name from pg_prepared_statements") == [["plain"]]
        replies = raw.ask(run_statement("unknown"))
        assert wire.errors(replies)[0][0] == "26000"


def test_long_names_and_long_texts(weir):
    pooler = weir(default_pool_size=2, pkt_buf=4096)
    with wire.Raw(pooler.port).login() as raw, wire.Raw(pooler.port).login() as other:
        name = "n" * 16_384
        prepare(raw, name, f"select $1::text || '{'x' * 40_000}'")
        assert answer(raw, name, [b"y" * 40_000]) == "y" * 40_000 + "x" * 40_000
        take(other)
        assert answer(raw, name, [b"z"]) == "z" + "x" * 40_000


def test_parse_after_sync_keeps_the_server(weir):
    """A request behind the Sync is outstanding too: the server is not given to another client in between."""
    pooler = weir(default_pool_size=1)
    with wire.Raw(pooler.port).login() as raw:
        raw.send(wire.parse("s", "select 1"), wire.bind("s"), wire.execute(), wire.SYNC, wire.parse("t", "select 2"))
        assert wire.kinds(raw.read_until("Z")) == "12DCZ"
        replies = raw.ask(wire.bind("t"), wire.execute(), wire.SYNC)
        assert wire.kinds(replies) == "12DCZ"


def test_psycopg_prepares_by_itself(weir):
    pooler = weir(default_pool_size=3)
    clients = [pooler.connect(prepare_threshold=1) for _ in range(6)]
    for number in range(20):
        for client in clients:
            assert client.execute("select %s::int * 2", (number,)).fetchone() == (number * 2,)


def test_counters_of_prepared_statements(weir):
    pooler = weir(default_pool_size=1)
    with wire.Raw(pooler.port).login() as one, wire.Raw(pooler.port).login() as two:
        prepare(one, "s", "select 1")
        prepare(two, "s", "select 1")
        answer(one, "s")
        host.eventually(lambda: totals(pooler)["total_client_parse_count"] == 2)
        counts = totals(pooler)
    assert (counts["total_server_parse_count"], counts["total_bind_count"]) == (1, 1)


def totals(pooler):
    return next(row for row in pooler.console("SHOW STATS") if row["database"] == "app")


@pytest.mark.since("1.24")
def test_show_counts_prepared_statements(weir):
    """SHOW CLIENTS counts a client's names, SHOW SERVERS what its server holds."""
    pooler = weir(default_pool_size=1)
    with wire.Raw(pooler.port).login() as one, wire.Raw(pooler.port).login() as two:
        for name in ("a", "b", "c"):
            prepare(one, name, f"select '{name}'")
        prepare(two, "d", "select 'a'")
        ask = lambda view: sorted(row["prepared_statements"] for row in pooler.console(f"SHOW {view}") if row["database"] == "app")
        assert (ask("CLIENTS"), ask("SERVERS")) == ([1, 3], [3])
        one.ask(wire.close(b"S", "a"), wire.SYNC)
        assert (ask("CLIENTS"), ask("SERVERS")) == ([1, 2], [3])


def test_statement_mode(weir):
    """Each statement may meet another server; the names hold all the same, and a block is refused by them too."""
    pooler = weir(pool_mode="statement", default_pool_size=2)
    with wire.Raw(pooler.port).login() as raw:
        prepare(raw, "add", "select $1::int + 1")
        assert [answer(raw, "add", [b"%d" % number]) for number in range(3)] == ["1", "2", "3"]
        prepare(raw, "begin", "begin")
        raw.send(wire.bind("begin"), wire.execute(), wire.SYNC)
        raw.read_to_end()
    pooler.wait_log("closing because: transaction blocks not allowed in statement pooling mode")


def test_names_are_bytes(raw):
    """Not only identifiers, and not only UTF-8."""
    for name in ("with blank", "ü", "PGBOUNCER_1", '"quoted"'):
        prepare(raw, name, f"select {len(name)}")
    assert answer(raw, "PGBOUNCER_1") == "11"
    assert answer(raw, "ü") == "1"


def test_an_unnamed_statement_beside_named_ones(raw):
    prepare(raw, "named", "select 'named'")
    assert wire.kinds(raw.ask(wire.parse("", "select 'unnamed'"), wire.SYNC)) == "1Z"
    replies = raw.ask(wire.parse("", "select 'unnamed'"), wire.bind("named"), wire.execute(), wire.bind(""), wire.execute(), wire.SYNC)
    assert [reply.row()[0] for reply in replies if reply.kind == "D"] == [b"named", b"unnamed"]


def test_a_session_has_its_names_on_its_server(weir):
    """Whose server is its own sees its statements in SQL by the names it gave, and what is wrong is the server's to say."""
    pooler = weir(default_pool_size=1, pool_mode="session")
    with wire.Raw(pooler.port).login() as raw:
        prepare(raw, "mine", "select 1")
        assert raw.simple("select name from pg_prepared_statements") == [["mine"]]
        assert raw.simple("execute mine") == [["1"]]
        assert wire.errors(raw.ask(wire.parse("mine", "select 2"), wire.SYNC))[0][0] == "42P05"
        assert wire.errors(raw.ask(run_statement("unknown")))[0][0] == "26000"
        raw.simple("deallocate mine")
        prepare(raw, "mine", "select 2")
        assert answer(raw, "mine") == "2"
    with wire.Raw(pooler.port).login() as raw:
        assert on_the_server(raw) == 0
