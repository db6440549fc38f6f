"""What a client is told of unknown names, encodings and its own startup values, in session and transaction pooling, is what a direct
connection tells it."""

import pytest

import wire

pytestmark = pytest.mark.weir_only

SYNC = wire.message(b"S")
MODES = ["session", "transaction"]

# Segments that name what is not there; each ends with a Sync.
UNKNOWN = {
    "bind": [wire.bind("none"), wire.execute()],
    "bind of no unnamed statement": [wire.bind(), wire.execute()],
    "describe a statement": [wire.describe(b"S", "none")],
    "describe a portal": [wire.describe(b"P", "none")],
    "describe no unnamed statement": [wire.describe(b"S")],
    "describe no unnamed portal": [wire.describe(b"P")],
    "execute": [wire.execute("none")],
    "execute no unnamed portal": [wire.execute()],
    "close": [wire.close(b"S", "none"), wire.close(b"P", "none")],
    "behind what is there": [wire.parse("", "select 1"), wire.bind(), wire.execute(), wire.bind("none"), wire.execute()],
}


def told(replies):
    fields = [reply.fields() for reply in replies if reply.kind == "E"]
    return wire.kinds(replies), [(field["S"], field["C"], field["M"]) for field in fields], wire.rows(replies)


def answers(port, where):
    """What a client is told for each of the segments, alone, in a pipeline with the others, and in a transaction block."""
    found = {}
    for name, segment in UNKNOWN.items():
        with wire.Raw(port).login() as raw:
            if where == "block":
                raw.simple("begin")
            raw.send(*segment, SYNC, *(segment + [SYNC] if where == "pipeline" else []), wire.query("select 2"))
            replies = raw.read_until_ready(3 if where == "pipeline" else 2)
            if where == "block":
                replies += raw.ask(wire.query("rollback"))
            found[name] = told([*replies, *raw.ask(wire.query("select 3"))])
    return found


@pytest.mark.every_version
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("where", ["alone", "pipeline", "block"])
def test_unknown_statements_and_portals_are_errors_and_the_connection_goes_on(weir, pg, mode, where):
    pooler = weir(pool_mode=mode)
    assert answers(pooler.port, where) == answers(pg.port, where)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("encoding", ["utf8", "UTF-8", "unicode", "latin1", "'latin1'", "sql_ascii"])
def test_client_encoding_is_reported_as_postgresql_spells_it(weir, pg, mode, encoding):
    pooler = weir(pool_mode=mode)
    with wire.Raw(pooler.port).login(client_encoding=encoding) as raw, wire.Raw(pg.port).login(client_encoding=encoding) as direct:
        raw.simple("select 1")
        assert raw.parameters["client_encoding"] == direct.parameters["client_encoding"]
        assert raw.simple("show client_encoding") == direct.simple("show client_encoding")


RESETS = ["reset {name}", "set {name} to default", "reset all", "discard all"]
STARTUP = {"datestyle": ("German", "SQL"), "timezone": ("Asia/Tokyo", "UTC"), "application_name": ("mine", "other")}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", STARTUP)
def test_a_reset_returns_to_the_startup_value(weir, pg, mode, name):
    pooler = weir(pool_mode=mode)
    first, second = STARTUP[name]

    def values(port):
        found = []
        with wire.Raw(port).login(**{name: first}) as raw:
            for reset in RESETS:
                raw.simple(f"set {name} to '{second}'")
                raw.simple(reset.format(name=name))
                found.append(raw.simple(f"show {name}"))
        return found

    assert values(pooler.port) == values(pg.port)
