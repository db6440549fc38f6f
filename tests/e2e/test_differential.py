"""Debian's PgBouncer and Weir under the same configuration: the same answers, the same log lines, its columns a named subset.

What Weir does otherwise on purpose is named in INTENDED and nowhere else. What only a newer PgBouncer does is not compared here."""

import difflib
import re
from pathlib import Path

import psycopg
import pytest

import host
import weir as pooler_module
import wire

ORIGINAL = Path("/usr/sbin/pgbouncer")
SECRETS = {
    "alice": "right",
    "md5user": "md5a1de28fc5b4e1c9db7c96ae9ce2bde4b",
    "admin": "admin",
    "stats": "stats",
}
# One configuration of each kind that PgBouncer's documentation describes.
KINDS = {
    "session": {"pool_mode": "session"},
    "transaction": {"pool_mode": "transaction"},
    "statement": {"pool_mode": "statement"},
    "fallback": {"databases": {"*": ""}},
    "forced_user": {"databases": {"app": "user=bob", "other": "user=carol password=none"}},
    "renamed": {"databases": {"app": "dbname=other", "other": "dbname=app connect_query='set work_mem=999'"}},
    "database_parameters": {"databases": {"app": "client_encoding=LATIN1 datestyle=German timezone=Asia/Tokyo", "other": ""}},
    "missing_target": {"databases": {"app": "", "other": "dbname=no_such_database"}},
    "any": {"auth_type": "any", "databases": {"app": "user=bob", "other": "user=bob"}},
    "plain": {"auth_type": "plain", "userlist": SECRETS},
    "md5": {"auth_type": "md5", "userlist": SECRETS},
    "scram": {"auth_type": "scram-sha-256", "userlist": SECRETS},
    "small": {"max_client_conn": 3, "default_pool_size": 1},
    "quiet": {"log_connections": 0, "log_disconnections": 0},
    "ignored_parameters": {"ignore_startup_parameters": "extra_float_digits, options"},
    "hba": {"auth_type": "hba", "userlist": SECRETS, "auth_hba_file": "{files}/hba"},
    "auth_query": {"auth_type": "md5", "userlist": SECRETS, "auth_user": "alice",
                   "auth_query": "select 'bob', 'bob' where $1 = 'bob'"},
    "tls": {"client_tls_sslmode": "allow", "client_tls_key_file": "{pki}/server.key", "client_tls_cert_file": "{pki}/server.crt"},
    "tls_required": {"client_tls_sslmode": "require", "client_tls_key_file": "{pki}/server.key", "client_tls_cert_file": "{pki}/server.crt",
                     "server_tls_sslmode": "require", "query_wait_timeout": 3},  # a login waits in vain: PostgreSQL has no TLS
    "tls_verified": {"client_tls_sslmode": "verify-full", "client_tls_key_file": "{pki}/server.key", "auth_type": "cert",
                     "client_tls_cert_file": "{pki}/server.crt", "client_tls_ca_file": "{pki}/root3.crt"},
    "reset_always": {"server_reset_query_always": 1, "server_reset_query": "DISCARD ALL"},
}
# Those that ask for a password, or for TLS.
ASKING = ["plain", "md5", "scram", "hba", "auth_query", "tls_required", "tls_verified"]
# Files that configurations name.
FILES = {
    "hba": """
# TYPE  DATABASE      USER    ADDRESS        METHOD
local   all           all                    trust
host    "other"       alice   127.0.0.1/32   reject
host    app,pgbouncer all     127.0.0.1/32   md5
host    all           all     0.0.0.0/0      plain
""",
}
# What stands in the log otherwise, on purpose: which lines of either are not compared, and why.
INTENDED = [
    r"login attempt: ",  # its shape is that of a newer PgBouncer
    r"unknown parameter: ",  # what SET could not do stands in one line
    r"server login failed: ",  # ours says which server
    r"new connection to server|S-.* closing because",  # when servers are opened and closed is each pooler's own affair
    r"^LOG stats: |process up|listening on|kernel file descriptor|libevent|io driver|descriptor",
]


@pytest.fixture
def pair(weir, pg, scratch, authorities):
    """`pair(kind)`: both poolers, started with the same settings."""
    originals = []

    def start(kind):
        if not ORIGINAL.exists():
            pytest.skip("PgBouncer is not on this machine: apt-get install pgbouncer")
        directory = host.new_directory(scratch, "original")
        for name, text in FILES.items():
            (directory / name).write_text(text)
        places = {"files": directory, "pki": authorities[3].directory}
        filled = lambda value: value.format(**places) if isinstance(value, str) and "{" in value else value
        settings = {name: filled(value) for name, value in KINDS[kind].items()}
        original = pooler_module.Weir(pg, directory, None, program=ORIGINAL, **settings)
        originals.append(original)
        return weir(**settings), original.start()

    yield start
    for original in originals:
        original.stop()


# --- scripts: from a pooler to what can be observed of it -----------------------------------------------------
def said(messages):
    """Messages without what differs from run to run (keys, and where in the server's source an error arose) and without the
    parameters by which a newer PgBouncer tells of itself."""
    def text(message):
        if message.kind in "EN":
            return {letter: value for letter, value in message.fields().items() if letter in "SCMDH"}
        return None if message.kind == "K" else message.body
    told = [(message.kind, text(message)) for message in messages]
    return [one for one in told if not (one[0] == "S" and one[1].startswith(b"pgbouncer."))]


def conversation(pooler):
    """Simple, extended and pipelined queries, errors, COPY, an unknown statement's Close, as raw messages."""
    steps = [
        [wire.query("select 1 as a, 'x'::text as b")],
        [wire.query("select 1; select 2; nonsense; select 3")],
        [wire.query("")],
        [wire.parse("", "select 5"), wire.bind(), wire.describe(b"P"), wire.execute(), wire.SYNC],
        [wire.parse("", "nonsense"), wire.bind(), wire.execute(), wire.SYNC],
        [wire.query("select 1/0"), wire.query("select 7")],
        [wire.close(b"S", "never"), wire.SYNC],
        [wire.query("copy (select generate_series(1, 3)) to stdout")],
        [wire.query("do $$ begin raise notice 'hello'; end $$")],
        [wire.query("set application_name = 'other'; show application_name")],
    ]
    heard = []
    with wire.Raw(pooler.port) as raw:
        raw.send(wire.startup(user="alice", database="app", application_name="differential"))
        heard.append(sorted(said(raw.read_until("ZE")), key=str))  # parameters come in no order
        for step in steps:
            raw.send(*step)
            ready = sum(part[:1] in b"QS" for part in step)
            for _ in range(ready):
                heard.append(said(raw.read_until("Z")))
        raw.send(wire.TERMINATE)
    return heard


def refusals(pooler):
    """Who is let in and who is not, in which words."""
    attempts = [
        {"user": "alice", "password": "right"},
        {"user": "alice", "password": "wrong"},
        {"user": "alice", "password": ""},
        {"user": "nobody", "password": "x"},
        {"user": "bob", "password": "bob"},
        {"user": "bob", "password": "wrong"},
        {"user": "alice", "password": "right", "database": "nowhere"},
        {"user": "alice", "password": "right", "database": "other"},
        {"user": "stats", "password": "stats", "database": "pgbouncer"},
        {"user": "alice", "password": "right", "database": "pgbouncer"},
    ]
    attempts += [{**options, "sslmode": "require"} for options in attempts[:3]]
    return [attempt(pooler, **options) for options in attempts]


def attempt(pooler, database="app", **options):
    try:
        with psycopg.connect(**pooler.address(database, **options), prepare_threshold=None, autocommit=True) as connection:
            return connection.execute("show datestyle" if database != "pgbouncer" else "show version") is not None
    except psycopg.Error as refusal:
        words = re.sub(r"port \d+", "port N", str(refusal).strip())
        # A newer PgBouncer says which rule, and names the user.
        words = words.split("\nDETAIL")[0].replace("no authentication method is found", "login rejected")
        return re.sub(r'authentication failed for user ".*"', "authentication failed", words)


def commands(pooler):
    """What the console says to commands, right and wrong."""
    words = ["RELOAD", "PAUSE app", "PAUSE app", "RESUME app", "RESUME app", "PAUSE", "RESUME", "RESUME", "RECONNECT", "RECONNECT app",
             "PAUSE nowhere", "RESUME nowhere", "KILL nowhere", "DISABLE app", "ENABLE app", "DISABLE nowhere", "WAIT_CLOSE app",
             "SET query_timeout = 5", "SET query_timeout = 'many'", "SET nonsense = 1", "SHOW nonsense", "nonsense", "SHOW",
             "SHOW DNS_HOSTS", "SHOW FDS", "SHUTDOWN nonsense"]
    return [f"{word}: {command(pooler, word)}" for word in words]


def command(pooler, word):
    try:
        with psycopg.connect(**pooler.address("pgbouncer", "admin", password="admin"), autocommit=True) as connection:
            cursor = connection.execute(word)
            return "rows" if cursor.description else cursor.statusmessage
    except psycopg.Error as refusal:
        return f"ERROR {plain(refusal.diag.message_primary)}"


def plain(text):
    """Without what Weir adds: why SET failed."""
    return re.sub(r"SET failed: .*", "SET failed", text)


def log_lines(pooler):
    """Lines about clients and commands, each once, without what differs from run to run, in the order of the alphabet."""
    lines = set()
    for line in pooler.log_text().splitlines():
        shape = re.match(r"\S+ \S+ \S+ \[\d+\] (.*)", line)
        if not shape or any(re.search(pattern, shape[1]) for pattern in INTENDED):
            continue
        text = re.sub(r"C-0x[0-9a-f]+", "C-0xN", plain(shape[1]))
        text = re.sub(r":\d+|\(\d+\)|age=\d+s", ":N", text)
        # A newer PgBouncer names the user, and knows its database sooner.
        text = re.sub(r'authentication failed for user "\w+"', "authentication failed", text)
        text = re.sub("app/(nobody|bob)@", r"(nodb)/\1@", text)
        text = re.sub(r"\(nouser\)(@\S+ no such user: (\w+))", r"\2\1", text)
        lines.add(text.replace(str(pooler.directory), "DIRECTORY"))
    return sorted(lines)


# --- comparisons ----------------------------------------------------------------------------------------------
def differences(pair, script):
    """What the script observed otherwise, a line each: ours after `+`, the original's after `-`."""
    ours, theirs = [[str(one) for one in script(pooler)] for pooler in pair]
    return [line for line in difflib.ndiff(theirs, ours) if line[0] in "+-"]


def agree(pair, script):
    found = differences(pair, script)
    assert not found, "\n".join(found)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ASKING and kind != "statement"])
def test_conversations_are_the_same(pair, kind):
    agree(pair(kind), conversation)


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_are_refused_in_the_same_words(pair, kind):
    agree(pair(kind), refusals)


@pytest.mark.parametrize("kind", ["transaction", "session"])
def test_commands_are_answered_alike(pair, kind):
    agree(pair(kind), commands)


@pytest.mark.parametrize("kind", ["transaction", "md5", "quiet", "missing_target"])
def test_the_log_says_the_same(pair, kind):
    poolers = pair(kind)
    for pooler in poolers:
        refusals(pooler)
        commands(pooler)
    agree(poolers, log_lines)


def test_its_columns_are_a_subset_of_ours(pair):
    """Tools read columns by name: each of the original's is there, with its type."""
    poolers = pair("transaction")
    for pooler in poolers:
        pooler.value("select 1")
    missing = [line for line in differences(poolers, columns) if line.startswith("-")]
    assert not missing, "\n".join(missing)


def columns(pooler):
    views = ["CLIENTS", "SERVERS", "POOLS", "DATABASES", "LISTS", "USERS", "CONFIG", "STATS", "STATS_TOTALS", "STATS_AVERAGES", "TOTALS",
             "SOCKETS", "ACTIVE_SOCKETS", "MEM", "DNS_HOSTS", "DNS_ZONES", "VERSION"]
    with psycopg.connect(**pooler.address("pgbouncer", "admin"), autocommit=True) as connection:
        for view in views:
            try:
                description = connection.execute(f"SHOW {view}").description
            except psycopg.Error:
                continue  # one that the other has shows as missing then
            description = [column for column in description if column.name != "reserve_pool"]  # has a longer name since 1.24
            # Whole numbers are int8 in a newer PgBouncer.
            yield from (f"{view}.{column.name}: {20 if column.type_code == 23 else column.type_code}" for column in description)
