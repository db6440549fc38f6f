"""docs/troubleshooting.md has every message that Weir sends to clients or gives when it does not start, and none that it does not have.

The messages are read from the sources: every text in the files that make them has to be on the page, or be named below as something else."""

import functools
import re

import pytest

from proofs import ROOT

pytestmark = pytest.mark.weir_only
PAGE = (ROOT / "docs/troubleshooting.md").read_text()
# A text in Rust, lines joined; letters and raw text are none.
RUST_TEXT = re.compile(r"""b?'(?:\\.|[^'\\])'|r#*".*?"#*|b?"((?:[^"\\]|\\.)*)\"""", re.DOTALL)
COMMENT = re.compile(r"^\s*//.*$", re.MULTILINE)
PLACEHOLDER = re.compile(r"\{[^{}]*\}")
# Files of the shard that send errors or give reasons.
SENDS = re.compile(r"\bfail_client(_because)?\(|\bfail_login\(|encode::error\w*\(|\bserver_fault\(|\blogin_failed\(|CloseReason::\w+ => \"|SPENT: &str")
ALWAYS = """
    crates/auth/src/fault.rs crates/control/src/command_error.rs crates/driver/src/listen.rs crates/driver/src/process.rs
    crates/driver/src/takeover/receiver.rs crates/driver/src/engine.rs crates/fleetagent/src/lib.rs crates/fleetagent/src/rows.rs
    crates/panel/src/listen_socket.rs crates/quota/src/book.rs crates/settings/src/etcd_url.rs crates/settings/src/fleet_check.rs
    crates/settings/src/kubernetes_url.rs crates/settings/src/store_endpoint.rs
    crates/securefs/src/directory.rs crates/securefs/src/file.rs crates/securefs/src/lib.rs crates/securefs/src/socket.rs
    crates/session/src/fault.rs crates/session/src/reply/error.rs crates/settings/src/check.rs crates/settings/src/collector.rs
    crates/settings/src/connstr.rs crates/settings/src/guarantees.rs crates/settings/src/hba/mod.rs crates/settings/src/hba/names.rs
    crates/settings/src/ident.rs crates/settings/src/ini.rs crates/settings/src/ldap/fault.rs crates/settings/src/ldap/url.rs
    crates/settings/src/queue_weights.rs crates/settings/src/quotas_file.rs crates/settings/src/raw_config.rs
    crates/settings/src/raw_config/pools_file.rs crates/settings/src/resolver.rs crates/settings/src/resolver/assignment.rs
    crates/settings/src/resolver/pools.rs crates/settings/src/show.rs crates/settings/src/tls_files.rs crates/settings/src/topology.rs
    crates/settings/src/userlist.rs crates/settings/src/value.rs crates/shard/src/local_pools/hosts.rs crates/shard/src/console_session/mod.rs
    crates/tls/src/config.rs crates/tls/src/fault.rs crates/tls/src/keys.rs crates/tls/src/panel.rs src/boot.rs src/takeover.rs src/tls.rs
""".split()
# Texts in these files that are no message of the page: lines of the log about what goes well, queries, details, parts of others.
OTHERS = {
    *"""
    TAKEOVER "{name}"
    takeover finished: the old process has given everything
    takeover: the old process is ready to hand over
    a mailbox
    a thread
    io driver: {driver}
    io driver: {driver} (io_uring: {why})
    cannot listen on {place}: {}(): {}
    no such user: {name}
    no such user: {}
    quota of {}: {}: {} used, within limits
    pool_mode: session_state is 'virtual' unless set to 'off': what clients leave in their sessions is kept for them, and any startup parameter is accepted
    an unknown parameter
    after the value of {last}
    command line
    PemFiles {{ ca: {}, cert: {}, key: {} }}
    patroni {urls}
    patroni {}
    port, or one for each host
    number, or one for each host
    seconds, decimals allowed
    bytes with a unit
    seconds, or bytes with a unit
    whole seconds
    file mode
    text, never shown
    comma-separated list
    probe, or patroni with URLs
    none, kubernetes, or a URL
    without an address
    the password
    auto or number
    login failed: db={database}
    login failed: db={} user={}
    client used 'Q' packet type
    closing because: {reason} (age={age}s)
    closing because: {REFUSED} (max_login_conn)
    login ok, dedicated to a replication client
    login ok, backend {backend}
    LISTEN {MARKERS};NOTIFY {MARKERS},'{marker}'
    UNLISTEN {MARKERS}
    UNLISTEN *
    DISCARD ALL
    got packet 'E' from server when not linked
    error while executing {query}: {severity}: {message}
    own query failed: {severity} {message}
    RESET SESSION AUTHORIZATION;RESET ROLE;RESET ALL;
    listening for the clients of the pool
    listening connection lost ({reason}): {clients} clients miss notifications until another one listens
    {name}: listening connection is opened anew after a takeover: clients miss notifications until it listens
    varcache_set_canonical: setting {name} to its canonical version {old} -> {new}
    a standby does not run a read, the primary does
    {text}; the primary runs what was asked of it
    {text}; its client has cancelled what was asked of it
    registered new auto-database: db={}
    SSL encryption
    no encryption
    host "{host}", user "{user}", {encryption}
    host "{host}", user "{user}", database "{database}", {encryption}
    replication connection from
    pooler error: {text} ({detail})
    HBA Line {line} is matched
    pgbouncer access from unix socket
    C-0x{id:x}: {database}/{user}@{peer} login attempt: db={database} user={user} tls={tls} replication={replication}
    GSSAPI encryption
    unix socket
    new connection to server (from {from})
    query for the system identifier
    a second session on one connection
    SSL established: {}
    TLS error:
    cancel request: {text}
    inet {remote} {local}
    sockets passed by the service manager: listen_addr and unix_socket_dir are not listened on
    kernel file descriptor limit: {file_limit} (hard: {file_limit}); max_client_conn: {clients}, max expected fd use: {needed}
    listening on {name}
    process up: {}, {shards} threads, io driver {io_driver}
    """.strip().split("\n    ")
}


def plain(text):
    """Without the difference between quotes, which code in Markdown cannot have."""
    return re.sub(r"\s+", " ", text.replace("`", "'")).strip()


def without_tests(text):
    """The source without its tests and comments."""
    return COMMENT.sub("", re.split(r"^#\[cfg\(test\)\]\s*(?:#\[[^\]]*\]\s*)*(?:pub(?:\(crate\))? )?mod \w+ \{", text, flags=re.MULTILINE)[0])


def texts(path):
    """Texts of a source file that have a word in them beside their places, as they are written there."""
    found = []
    for match in RUST_TEXT.finditer(without_tests(path.read_text())):
        text = re.sub(r"\\\n\s*", "", match[1] or "").replace('\\"', '"').replace("\\\\", "\\")
        if len(re.findall(r"[A-Za-z]", PLACEHOLDER.sub("", text))) > 3:
            found.append(plain(text))
    return found


def is_message(text):
    """Several words, or the name of a timeout, as the error is that it causes."""
    return " " in text or text.endswith("_timeout")


def is_test(path):
    return "tests" in path.parts or path.stem.endswith(("_tests", "tests")) or path.stem in ("probe", "example", "harness")


def pattern(text):
    """What matches this text with anything in its places."""
    return re.compile(".*".join(re.escape(part) for part in PLACEHOLDER.split(text)))


@functools.cache
def sources():
    """Every text of Weir's own sources, as what matches it."""
    files = [path for folder in ("src", "crates") for path in (ROOT / folder).rglob("*.rs") if not is_test(path)]
    return [pattern(text) for text in sorted({text for path in files for text in texts(path)})]


def spans():
    """Every piece of code on the page."""
    return {plain(span) for span in re.findall(r"`([^`]+)`", PAGE)}


def rows():
    """The first cells of its tables of messages and reasons, and their SQLSTATE if the table has it."""
    found, has_codes = [], None
    for line in PAGE.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if not line.startswith("|"):
            has_codes = None
        elif cells[0].strip() in ("message", "reason"):
            has_codes = "SQLSTATE" in line
        elif has_codes is not None and cells[0].startswith("`"):
            found.append((plain(cells[0].strip("`")), cells[1] if has_codes else None))
    return found


def messages():
    """Texts of the files that make messages, by file."""
    files = {ROOT / name for name in ALWAYS}
    files |= {path for path in (ROOT / "crates/shard/src").rglob("*.rs") if not is_test(path) and SENDS.search(without_tests(path.read_text()))}
    return {path.relative_to(ROOT): texts(path) for path in sorted(files)}


def test_every_message_of_the_sources_is_on_the_page():
    there = spans()
    missing, used = [], set()
    for path, found in messages().items():
        for text in found:
            if not is_message(text):
                continue
            if text in OTHERS:
                used.add(text)
            elif not re.match(r"SELECT |WITH RECURSIVE ", text) and not any(pattern(text).fullmatch(span) for span in there):
                missing.append(f"{path}: {text}")
    assert missing == []
    assert sorted(OTHERS - used) == [], "these are in no source any more"


def test_every_message_of_the_page_is_in_the_sources():
    listed = [message for message, _ in rows() if re.search(r"[a-z]", message)]
    assert len(listed) > 250
    assert [message for message in listed if not any(source.fullmatch(message) for source in sources())] == []


def test_its_sqlstates_are_those_of_the_sources():
    """Where a call has both beside each other."""
    codes = dict(re.findall(r"^\s+([A-Z_]+)\s+\"(\w{5})\"", (ROOT / "crates/wire/src/sqlstate.rs").read_text(), re.MULTILINE))
    given = {}
    for path in (ROOT / "crates/shard/src").rglob("*.rs"):
        for name, text in re.findall(r"sqlstate::([A-Z_]+),\s*\"([^\"]+)\"", without_tests(path.read_text())):
            given.setdefault(plain(text), set()).add(codes[name])
    listed = [(message, code) for message, code in rows() if code is not None and message in given]
    assert len(listed) > 10
    on_page = {}
    for message, code in listed:
        on_page.setdefault(message, set()).add(code)
    assert {message: codes for message, codes in on_page.items() if not given[message] <= codes} == {}
