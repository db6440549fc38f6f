"""Startup parameters of a client: each keeps its own, on any server, after any other client.
Holds I4 of ARCHITECTURE.md."""

import struct

import psycopg
import pytest

import host
import wire

TRACKED = {
    "application_name": ("one's app", "two's \"app\""),
    "client_encoding": ("UTF8", "LATIN1"),
    "DateStyle": ("ISO, DMY", "German, DMY"),
    "TimeZone": ("Asia/Tokyo", "America/New_York"),
    "standard_conforming_strings": ("on", "off"),
    "IntervalStyle": ("iso_8601", "sql_standard"),
}


def show(raw, name):
    return raw.simple(f"show {name}")[0][0]


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.since("1.20" if name == "IntervalStyle" else "1.0")) for name in TRACKED]
)
def test_each_client_has_its_own(weir, name):
    pooler = weir(default_pool_size=1)
    ours, theirs = TRACKED[name]
    with wire.Raw(pooler.port).login(**{name: ours}) as one, wire.Raw(pooler.port).login(**{name: theirs}) as two:
        for _ in range(3):
            assert show(one, name) == ours
            assert show(two, name) == theirs


@pytest.mark.since("1.20")  # an empty application_name
def test_a_change_made_by_set_stays_with_the_client(weir):
    pooler = weir(default_pool_size=1)
    one, two = pooler.connect(), pooler.connect()
    one.execute("set application_name to 'changed'")
    one.execute("set timezone to 'Asia/Tokyo'")
    assert two.execute("show timezone").fetchone() != ("Asia/Tokyo",)
    assert one.execute("show timezone").fetchone() == ("Asia/Tokyo",)
    assert one.execute("show application_name").fetchone() == ("changed",)
    assert two.execute("show application_name").fetchone() == ("",)


def test_the_login_reports_what_the_client_asked_for(weir):
    pooler = weir()
    asked = {"application_name": "reported", "TimeZone": "Asia/Tokyo", "client_encoding": "LATIN1"}
    pooler.value("select 1")
    with wire.Raw(pooler.port).login(**asked) as raw:
        assert {name: raw.parameters[name] for name in asked} == asked
        assert raw.parameters["server_version"] == pooler.value("show server_version")
        assert raw.parameters["integer_datetimes"] == "on"


@pytest.mark.weir_only
@pytest.mark.every_version
@pytest.mark.parametrize("asked", ["'utf-8'", "UNICODE", "unicode", "iso-8859-15", "Windows-1252", "sql_ascii", "koi8", "win932"])
def test_the_login_reports_client_encoding_by_postgresqls_own_name(weir, pg, asked):
    """For any spelling of it. PgBouncer repeats the client's spelling."""
    pooler = weir()
    for _ in range(2):
        with wire.Raw(pg.port).login(client_encoding=asked) as ours, wire.Raw(pooler.port).login(client_encoding=asked) as theirs:
            assert theirs.parameters["client_encoding"] == ours.parameters["client_encoding"]
            assert show(theirs, "client_encoding") == show(ours, "client_encoding")


@pytest.mark.since("1.20")  # an empty application_name
def test_values_are_quoted(weir):
    """What a client writes into a parameter is never taken for SQL."""
    pooler = weir(default_pool_size=1)
    nasty = "'; drop table x; -- \\' \" $$"
    with wire.Raw(pooler.port).login(application_name=nasty) as one, wire.Raw(pooler.port).login() as two:
        for _ in range(2):
            assert show(one, "application_name") == nasty
            assert show(two, "application_name") == ""


def test_a_bad_value_hurts_only_its_own_client(weir):
    pooler = weir(default_pool_size=1)
    other = pooler.connect()
    with wire.Raw(pooler.port) as raw:
        raw.send(wire.startup(user="alice", database="app", TimeZone="Nowhere/Land"), wire.query("select 1"), wire.TERMINATE)
        raw.read_to_end()
    pooler.wait_log('invalid value for parameter "TimeZone": "Nowhere/Land"')
    assert other.execute("select 1").fetchone() == (1,)


def test_unknown_parameters_are_refused(weir):
    pooler = weir(session_state="off")
    with wire.Raw(pooler.port) as raw:
        raw.send(wire.startup(user="alice", database="app", enable_seqscan="off"))
        ((_, text),) = wire.errors(raw.read_to_end())
    assert text == "unsupported startup parameter: enable_seqscan"


def test_unknown_parameters_can_be_ignored(weir):
    pooler = weir(ignore_startup_parameters="enable_seqscan, extra_float_digits")
    with wire.Raw(pooler.port).login(enable_seqscan="off", extra_float_digits="3") as raw:
        assert show(raw, "enable_seqscan") == "on"


@pytest.mark.since("1.20")
@pytest.mark.parametrize(
    "options",
    ["-c timezone=Asia/Tokyo", "-ctimezone=Asia/Tokyo", "--timezone=Asia/Tokyo", "  -c   TimeZone=Asia/Tokyo"],
)
def test_options_carry_tracked_parameters(weir, options):
    pooler = weir()
    with wire.Raw(pooler.port).login(options=options) as raw:
        assert show(raw, "timezone") == "Asia/Tokyo"


@pytest.mark.since("1.20")
def test_options_with_escaped_blanks(weir):
    pooler = weir()
    with wire.Raw(pooler.port).login(options="-c application_name=two\\ words\\\\") as raw:
        assert show(raw, "application_name") == "two words\\"


@pytest.mark.since("1.20")
@pytest.mark.parametrize(
    "options, text",
    [
        ("-c enable_seqscan=off", "unsupported startup parameter in options: enable_seqscan"),
        ("-f", "unsupported options startup parameter: only '-c config=val' and '--config=val' are allowed"),
    ],
)
def test_other_options_are_refused(weir, options, text):
    pooler = weir(session_state="off")
    with pytest.raises(psycopg.OperationalError, match=text):
        pooler.connect(options=options)


@pytest.mark.since("1.20")
def test_ignored_options_still_carry_the_tracked_ones(weir):
    pooler = weir(ignore_startup_parameters="options")
    with wire.Raw(pooler.port).login(options="-c enable_seqscan=off -c timezone=Asia/Tokyo") as raw:
        assert show(raw, "timezone") == "Asia/Tokyo"
        assert show(raw, "enable_seqscan") == "on"


@pytest.mark.since("1.20")
@pytest.mark.since("1.26.1")
@pytest.mark.parametrize("ignored", ["extra_float_digits", "options"])
@pytest.mark.parametrize("options", ["-c=", "-c =", "--=", "-c", "--", "-c=1 -c=2", "\\", "-c geqo=off -c="])
def test_options_without_a_name_come_to_an_end(weir, ignored, options):
    """CVE-2026-107349: an empty name made the process spin before any login."""
    pooler = weir(ignore_startup_parameters=ignored)
    with wire.Raw(pooler.port) as raw:
        raw.send(wire.startup(user="alice", database="app", options=options))
        raw.read_until("ZE")
    assert pooler.value("select 1") == 1


def test_track_extra_parameters(weir, pg):
    if int(pg.value("show server_version_num")) < 180000:
        # Before 18 PostgreSQL does not report search_path: a parameter that it reports stands in.
        name, values = "default_transaction_read_only", ("on", "off")
    else:
        name, values = "search_path", ("pg_catalog", "public")
    pooler = weir(default_pool_size=1, track_extra_parameters=name)
    with wire.Raw(pooler.port).login(**{name: values[0]}) as one, wire.Raw(pooler.port).login(**{name: values[1]}) as two:
        for _ in range(2):
            assert [show(one, name), show(two, name)] == list(values)


@pytest.mark.since("1.26")
def test_track_extra_parameters_that_the_server_does_not_report(weir):
    """Each client has the value of its startup packet, or the server's own, whichever client used the same server before."""
    pooler = weir(default_pool_size=1, track_extra_parameters="Statement_Timeout, geqo")
    login = lambda **parameters: wire.Raw(pooler.port).login(**parameters)
    with login(statement_timeout="7s") as one, login(options="-c STATEMENT_TIMEOUT=8s -c geqo=off") as two, login() as without:
        for _ in range(3):
            shown = {name: [show(raw, name) for raw in (one, two, without)] for name in ("statement_timeout", "geqo")}
            assert shown == {"statement_timeout": ["7s", "8s", "0"], "geqo": ["on", "off", "on"]}


def test_application_name_add_host(weir):
    pooler = weir(application_name_add_host=1)
    with wire.Raw(pooler.port).login(application_name="me") as raw:
        port = raw.socket.getsockname()[1]
        assert show(raw, "application_name") == f"me - 127.0.0.1:{port}"


def test_database_entries_set_parameters(weir):
    """client_encoding, datestyle, timezone and application_name of a [databases] entry are what its servers start with."""
    pooler = weir(databases={"app": "timezone=Asia/Tokyo datestyle=German client_encoding=LATIN1 application_name=shop"})
    with wire.Raw(pooler.port).login() as raw:
        shown = [show(raw, name) for name in ("timezone", "datestyle", "client_encoding", "application_name")]
    assert shown == ["Asia/Tokyo", "German, DMY", "LATIN1", "shop"]


def test_connect_query_runs_on_every_new_server(weir):
    pooler = weir(databases={"app": "connect_query='set search_path to pg_catalog'"}, default_pool_size=2)
    clients = [pooler.connect() for _ in range(2)]
    for client in clients:
        client.execute("begin")
        assert client.execute("show search_path").fetchone() == ("pg_catalog",)


def test_errors_of_connect_query_are_logged_and_no_more(weir):
    pooler = weir(databases={"app": "connect_query='select 1/0'", "other": "connect_query='set work_mem=999 nonsense'"})
    assert [pooler.value("select 1", database=name) for name in ("app", "other")] == [1, 1]
    pooler.wait_log("ERROR S.* error while executing .*: ERROR: division by zero")
    pooler.wait_log("ERROR S.* error while executing .*: ERROR: syntax error")


# --- what PostgreSQL reports, and what it does not ------------------------------------------------------------
@pytest.mark.since("1.22")
def test_a_canonical_value_is_set_once(weir):
    """PostgreSQL does not report a SET that changes nothing: the client takes over the server's spelling."""
    pooler = weir(verbose=2, default_pool_size=1)
    with wire.Raw(pooler.port).login(DateStyle="ISO") as raw:
        for _ in range(3):
            assert show(raw, "DateStyle") == "ISO, MDY"
    applied = pooler.wait_log("varcache_apply: .*SET DateStyle='ISO'")
    canonical = pooler.wait_log("varcache_set_canonical: setting DateStyle to its canonical version ISO -> ISO, MDY")
    assert (len(applied), len(canonical)) == (1, 1)


def test_an_equal_value_is_not_set_at_all(weir):
    pooler = weir(verbose=2, default_pool_size=1)
    for _ in range(2):
        with wire.Raw(pooler.port).login(DateStyle="ISO, MDY", client_encoding="UTF8") as raw:
            assert show(raw, "DateStyle") == "ISO, MDY"
    assert "varcache_apply" not in pooler.log_text()


@pytest.mark.since("1.26")
def test_default_transaction_read_only_stays_with_its_client(weir):
    pooler = weir(default_pool_size=1)
    one, two = pooler.connect(), pooler.connect()
    one.execute("set default_transaction_read_only to on")
    assert two.execute("show default_transaction_read_only").fetchone() == ("off",)
    assert one.execute("show default_transaction_read_only").fetchone() == ("on",)


@pytest.mark.since("1.26")
@pytest.mark.every_version
def test_search_path_of_a_startup_packet_stays_with_its_client(weir):
    """Also where PostgreSQL (before 18) does not report it."""
    pooler = weir(default_pool_size=1)
    with wire.Raw(pooler.port).login(search_path="pg_catalog") as one, wire.Raw(pooler.port).login() as two:
        for _ in range(2):
            assert show(one, "search_path") == "pg_catalog"
            assert show(two, "search_path") == '"$user", public'


@pytest.mark.since("1.26")
@pytest.mark.every_version
def test_search_path_after_discard_all(weir):
    pooler = weir(default_pool_size=1, pool_mode="session")
    for _ in range(2):
        with wire.Raw(pooler.port).login(search_path="pg_catalog") as raw:
            assert show(raw, "search_path") == "pg_catalog"
        with wire.Raw(pooler.port).login() as raw:
            assert show(raw, "search_path") == '"$user", public'


@pytest.mark.weir_only
@pytest.mark.every_version
@pytest.mark.parametrize("query", ["DEALLOCATE ALL", "SELECT pg_advisory_unlock_all()"])
def test_search_path_after_another_reset_query(weir, query):
    """It is not taken for DISCARD ALL."""
    pooler = weir(default_pool_size=1, pool_mode="session", server_reset_query=query)
    for _ in range(2):
        with wire.Raw(pooler.port).login(search_path="pg_catalog") as raw:
            assert show(raw, "search_path") == "pg_catalog"
        with wire.Raw(pooler.port).login() as raw:
            assert show(raw, "search_path") == '"$user", public'


# Values of a startup packet; `options` carries the last one, as drivers send it.
OWN = {"TimeZone": "Asia/Tokyo", "application_name": "mine", "options": "-c search_path=pg_catalog"}
SHOW_OWN = "select current_setting('TimeZone'), current_setting('application_name'), current_setting('search_path')"
OTHERS = "set timezone to 'Europe/Paris'; set application_name to 'another'; set search_path to public"

RESETS = {
    "nothing else": ["reset timezone"],
    "reset": [OTHERS, "reset TimeZone", "reset application_name", "reset search_path"],
    "time zone": [OTHERS, "reset time zone"],
    "reset all": [OTHERS, "RESET ALL;"],
    "discard all": [OTHERS, "discard all"],
    "to default": [OTHERS, "set timezone to default", "SET SESSION application_name = DEFAULT", "set search_path to default"],
    "set to the server's default": ["set timezone to 'Etc/UTC'; set application_name to ''", "reset all"],
    "another parameter": ["set application_name to ''", "reset datestyle"],
    "commit": [OTHERS, "begin", "reset timezone", SHOW_OWN, "reset all", SHOW_OWN, "commit"],
    "rollback": [OTHERS, "begin", "reset all", SHOW_OWN, "rollback"],
    "rollback of own values": ["begin", "reset all", OTHERS, "rollback"],
    "failed block": ["set timezone to 'Europe/Paris'", "begin", "reset timezone", "select 1/0", "rollback"],
    "savepoint": ["set timezone to 'Europe/Paris'", "begin", "savepoint a", "reset timezone", SHOW_OWN, "rollback to a", SHOW_OWN, "end"],
    "local": ["set timezone to 'Europe/Paris'", "begin", "set local timezone to default", SHOW_OWN, "commit"],
    "local outside of a block": ["set timezone to 'Europe/Paris'", "set local timezone to default"],
    "a query string": [OTHERS.rpartition(";")[0], "select 1; reset timezone; select 2"],
    "all in a query string": [OTHERS, "select 1; reset all; select 2"],
    "a failed query string": ["set timezone to 'Europe/Paris'", "reset timezone; select 1/0"],
}


def answers(raw, requests, extended, pipelined):
    """The rows and errors of all requests; the parameters that the client was told are kept in `raw.parameters`."""

    def message(text):
        if extended and ";" not in text.rstrip(";"):
            return wire.parse("", text) + wire.bind() + wire.execute() + wire.SYNC
        return wire.query(text)

    replies = []
    if pipelined:
        raw.send(*map(message, requests))
    for text in requests:
        replies += raw.read_until("Z") if pipelined else raw.ask(message(text))
    told = [reply.body[:-1].decode().split("\0") for reply in replies if reply.kind == "S"]
    raw.parameters.update(told)
    return wire.rows(replies), wire.errors(replies)


@pytest.mark.weir_only
@pytest.mark.every_version
@pytest.mark.parametrize("pipelined", [False, True], ids=["one by one", "pipelined"])
@pytest.mark.parametrize("extended", [False, True], ids=["simple", "extended"])
@pytest.mark.parametrize("mode", ["transaction", "session"])
def test_a_reset_goes_back_to_the_startup_packet_as_in_postgresql(weir, pg, mode, extended, pipelined):
    """PgBouncer's clients get what a server has that was told nothing."""
    pooler = weir(default_pool_size=1, pool_mode=mode)
    for case, requests in RESETS.items():
        if mode == "session" and case == "all in a query string":
            continue  # a session's own SET is not to be lost by what may be another RESET
        # What follows in a pipeline on a query string with a RESET in it may be sent before that is known.
        asked = [*requests, SHOW_OWN]
        together = pipelined and case not in ("a query string", "all in a query string")
        with wire.Raw(pg.port).login(**OWN) as ours, wire.Raw(pooler.port).login(**OWN) as theirs:
            expected = answers(ours, asked, extended, together)
            assert answers(theirs, asked, extended, together) == expected, case
            assert {name: theirs.parameters[name] for name in ("TimeZone", "application_name")} == {
                name: ours.parameters[name] for name in ("TimeZone", "application_name")
            }, case
        with wire.Raw(pooler.port).login() as raw:
            assert raw.simple(SHOW_OWN) == [["Etc/UTC", "", '"$user", public']], case


@pytest.mark.weir_only
@pytest.mark.every_version
@pytest.mark.parametrize(
    "own",
    [
        {"search_path": "pg_catalog, public"},
        {"search_path": '"$user",  "it\'s" ,Public, "a ""b"""'},
        {"search_path": "", "application_name": "it's \\ all"},
    ],
    ids=["list", "quoted", "backslash"],
)
def test_a_reset_in_a_block_leaves_the_isolation_level_to_choose(weir, pg, own):
    """What is set again behind it is no query, behind which PostgreSQL refuses to change the level (25001)."""
    schemas = "select current_schemas(false)::text, current_setting('application_name')"
    pg.query('drop schema if exists "it\'s" cascade; create schema "it\'s"; grant usage on schema "it\'s" to public', "app")
    pooler = weir(default_pool_size=1)
    try:
        for reset in ("reset all", "reset search_path"):
            with wire.Raw(pg.port).login(**own) as ours, wire.Raw(pooler.port).login(**own) as theirs:
                for raw in (ours, theirs):
                    raw.simple("begin")
                    raw.simple("set search_path to pg_catalog")
                    raw.simple(reset)
                    raw.simple("set transaction isolation level serializable")
                    raw.simple("set transaction read only")
                assert theirs.simple(schemas) == ours.simple(schemas)
                assert theirs.simple("show transaction_isolation") == [["serializable"]]
                for raw in (ours, theirs):
                    raw.simple("commit")
                assert theirs.simple(schemas) == ours.simple(schemas)
    finally:
        pg.query('drop schema "it\'s" cascade', "app")


@pytest.mark.weir_only
def test_prepared_statements_that_reset(weir):
    pooler = weir(default_pool_size=1)
    with wire.Raw(pooler.port).login(**OWN) as raw, wire.Raw(pooler.port).login() as other:
        raw.ask(wire.parse("r", "reset all"), wire.SYNC)
        for _ in range(2):
            raw.simple(OTHERS)
            run = wire.bind("r") + wire.execute() + wire.SYNC
            show_own = wire.query(SHOW_OWN)
            raw.send(run, show_own)
            assert wire.rows(raw.read_until_ready(2)) == [["Asia/Tokyo", "mine", "pg_catalog"]]
            assert other.simple(SHOW_OWN) == [["Etc/UTC", "", '"$user", public']]


@pytest.mark.since("1.26")
@pytest.mark.parametrize("server_version", ["18"], scope="session")
def test_search_path_that_is_set_later(weir):
    """PostgreSQL reports search_path since 18, so that the pooler hears of a change."""
    pooler = weir(default_pool_size=1)
    one, two = pooler.connect(), pooler.connect()
    one.execute("set search_path to pg_catalog")
    assert two.execute("show search_path").fetchone() == ('"$user", public',)
    assert one.execute("show search_path").fetchone() == ("pg_catalog",)


@pytest.mark.since("1.26")
def test_session_authorization_is_given_back(weir, pg):
    """SET SESSION AUTHORIZATION of a superuser concerns its own session alone."""
    pg.query("drop role if exists chief; create role chief superuser login")
    pooler = weir(default_pool_size=1, userlist={"chief": "", "admin": ""})
    one, two = pooler.connect(user="chief"), pooler.connect(user="chief")
    one.execute("set session authorization alice")
    assert two.execute("select current_user").fetchone() == ("chief",)
    assert one.execute("select current_user").fetchone() == ("alice",)


@pytest.mark.since("1.20")
def test_names_are_compared_without_case(weir):
    pooler = weir(default_pool_size=1, track_extra_parameters="lc_messages, INTERVALSTYLE")
    with wire.Raw(pooler.port).login(intervalstyle="iso_8601", dateSTYLE="German", APPLICATION_NAME="x") as raw:
        shown = [show(raw, name) for name in ("IntervalStyle", "DateStyle", "application_name")]
    assert shown == ["iso_8601", "German, DMY", "x"]


# --- what the pooler says of itself ---------------------------------------------------------------------------
@pytest.mark.since("1.26")
@pytest.mark.parametrize("mode", ["session", "transaction", "statement"])
def test_the_pooler_reports_what_it_is(weir, mode):
    pooler = weir(pool_mode=mode, max_prepared_statements=17)
    with wire.Raw(pooler.port).login() as raw:
        own = {name: value for name, value in raw.parameters.items() if name.startswith("pgbouncer.")}
    assert own == {
        "pgbouncer.version": "1.25.2",
        "pgbouncer.pool_mode": mode,
        "pgbouncer.max_prepared_statements": "17",
    }


@pytest.mark.since("1.26")
def test_login_notify_message(weir):
    pooler = weir(login_notify_message="mind the weir")
    assert pooler.psql("-c", "select 1").stderr == "NOTICE:  mind the weir\n"
    pooler.reload(login_notify_message="")
    assert pooler.psql("-c", "select 1").stderr == ""


def test_disable_pqexec(weir):
    pooler = weir(disable_pqexec=1)
    with wire.Raw(pooler.port).login() as raw:
        assert wire.kinds(raw.ask(wire.parse("", "select 1"), wire.bind(), wire.execute(), wire.SYNC)) == "12DCZ"
        raw.send(wire.query("select 1; select 2"))
        ((_, text),) = wire.errors(raw.read_to_end())
    assert text == "PQexec disallowed"
    pooler.wait_log("client used 'Q' packet type")
    pooler.wait_log("closing because: PQexec disallowed")


# --- encodings ------------------------------------------------------------------------------------------------
@pytest.mark.weir_only
@pytest.mark.parametrize("encoding", ["LATIN1", "BIG5", "SJIS"])
def test_values_are_read_the_same_whatever_encoding_the_last_client_had(weir, pg, encoding):
    """PostgreSQL converts a query from the client_encoding that is in force when it comes."""
    pg.query('create schema if not exists "schem\u00e4"', "app")
    pooler = weir(default_pool_size=1)
    other = pooler.connect(client_encoding=encoding)
    other.execute("set standard_conforming_strings = off")
    other.execute("set backslash_quote = on")
    client = pooler.connect(options="-c search_path=schem\u00e4")
    for _ in range(2):
        assert client.execute("select current_setting('search_path')").fetchone()[0] == "schem\u00e4"
        assert other.execute("show client_encoding").fetchone()[0] == encoding
    name = "\u4f65\\'; create table public.injected (number int); --"
    third = pooler.connect(application_name=name)
    assert "create table" in third.execute("show application_name").fetchone()[0]
    assert pg.query("select to_regclass('public.injected')::text", "app") == [(None,)]


@pytest.mark.weir_only  # PgBouncer keeps the bytes and sets them under whatever encoding is in force
@pytest.mark.parametrize("zone", [b"<\xfc\xfcX>-03", "<X\u00e4>-03".encode()])
def test_a_value_that_is_not_ascii_stays_with_its_client(weir, zone):
    """The server reports it in client_encoding; the second value is valid UTF-8, and other text there."""
    pooler = weir(default_pool_size=1)
    zone_bytes = "select current_setting('timezone')::bytea::text"
    with wire.Raw(pooler.port).login(client_encoding="LATIN1") as one, wire.Raw(pooler.port).login() as two:
        usual = two.simple(zone_bytes)
        replies = one.ask(wire.message(b"Q", b"set timezone = '" + zone + b"'\0"))
        assert b"TimeZone\0" + zone + b"\0" in [reply.body for reply in replies if reply.kind == "S"]
        own = [["\\x" + zone.decode("latin1").encode().hex()]]
        for _ in range(2):
            assert two.simple(zone_bytes) == usual
            assert one.simple(zone_bytes) == own


@pytest.mark.weir_only
def test_a_role_whose_name_is_not_ascii_stays_with_its_client(weir, pg):
    pg.query("drop role if exists chief; create role chief superuser login")
    pg.query('drop role if exists "r\u00f6lle"; create role "r\u00f6lle" login')
    pooler = weir(default_pool_size=1, userlist={"chief": "", "admin": ""})
    user_bytes = "select session_user::bytea::text"
    with wire.Raw(pooler.port).login(user="chief", client_encoding="LATIN1") as one:
        one.ask(wire.message(b"Q", b'set session authorization "r\xf6lle"\0'))
        with wire.Raw(pooler.port).login(user="chief") as two:
            assert two.simple(user_bytes) == [["\\x" + b"chief".hex()]]
        assert one.simple(user_bytes) == [["\\x" + "r\u00f6lle".encode().hex()]]


@pytest.mark.weir_only
def test_a_client_whose_value_is_not_known_does_not_run_under_another(weir):
    """In SJIS and similar encodings several characters are the same bytes."""
    pooler = weir(default_pool_size=1)
    with wire.Raw(pooler.port).login(client_encoding="SJIS") as one, wire.Raw(pooler.port).login() as two:
        usual = show(two, "timezone")
        one.ask(wire.message(b"Q", b"set timezone = '<\x83\x65\x83\x58\x83\x67>-03'\0"))
        one.simple("select 1")
        assert show(two, "timezone") == usual
        one.send(wire.query("select 2"))
        assert wire.errors(one.read_to_end())[0][0] == "0A000"
        assert show(two, "timezone") == usual


# --- newer protocols ------------------------------------------------------------------------------------------
@pytest.mark.weir_only
def test_a_newer_protocol_is_negotiated_once(weir):
    pooler = weir()
    with wire.Raw(pooler.port) as raw:
        raw.send(wire.startup(wire.V3_2 + 1, user="alice", database="app", **{"_pq_.unheard_of": "1"}))
        replies = raw.read_until("Z")
    negotiations = [reply for reply in replies if reply.kind == "v"]
    assert len(negotiations) == 1
    assert negotiations[0].body == struct.pack("!ii", wire.V3_2, 1) + b"_pq_.unheard_of\0"


@pytest.mark.since("1.23")
def test_libpq_18_asks_for_protocol_3_2(weir, servers):
    pooler = weir()
    psql = servers("18").bindir / "psql"
    address = f"host=127.0.0.1 port={pooler.port} dbname=app user=alice sslmode=disable max_protocol_version=3.2"
    done = host.run([psql, "-X", "-A", "-t", "-c", "select 6 * 7", address])
    assert done.stdout == "42\n"


@pytest.mark.since("1.23")
def test_a_newer_protocol_is_negotiated_once_with_auth_query_too(weir):
    query = "select usename, 'pw' from pg_user where usename = $1"
    pooler = weir(auth_type="plain", auth_user="bob", auth_query=query, userlist={"bob": "", "admin": ""})
    with wire.Raw(pooler.port) as raw:
        raw.send(wire.startup(wire.V3_2 + 1, user="alice", database="app"))
        asked = raw.read_until("R")
        raw.send(wire.message(b"p", wire.cstring("pw")))
        replies = [*asked, *raw.read_until("ZE")]
    assert replies[-1].kind == "Z"
    assert wire.kinds(replies).count("v") == 1
