"""auth_type = ldap with a real directory: plain binds, searches, TLS, and what happens when it says no or nothing."""

import contextlib
import socket
import threading

import psycopg
import pytest

import host
import slapd
import wire
from slapd import AWAY, BASE, LONG_PASSWORD, MANAGER, MANAGER_PASSWORD, PEOPLE
from test_takeover import reboot

pytestmark = [
    pytest.mark.since("1.25"),
    pytest.mark.skipif(not slapd.is_here(), reason="no slapd on this machine: apt-get install slapd"),
]

PASSWORD = "s3cret"
ODD = 'o"dd, (x)*+\\'
REFUSED = "LDAP authentication failed"


def people():
    yield slapd.person("alice", PASSWORD, mail="alice@example.net")
    yield slapd.person("scramuser", "scram secret")
    yield slapd.person("admin", PASSWORD)
    yield slapd.person("bob", LONG_PASSWORD)
    yield slapd.person("carol", PASSWORD, f"ou=closed,{BASE}")
    yield slapd.person(ODD, PASSWORD)
    yield slapd.person("dora", PASSWORD, mail="alice@example.net")
    deep = f"ou={slapd.LONG_UNIT[:60]},{BASE}"
    for number in range(8):
        yield slapd.unit(f"{number}{slapd.LONG_UNIT[:60]}", deep)
        deep = f"ou={number}{slapd.LONG_UNIT[:60]},{deep}"
    yield slapd.person("logged", PASSWORD, deep)


@pytest.fixture(scope="module")
def directory(scratch):
    running = slapd.Slapd(scratch, people())
    yield running
    running.stop()


@pytest.fixture
def by_ldap(weir, directory, monkeypatch):
    """`by_ldap("ldapprefix=… ")` starts a pooler that asks the directory; the server is added where none is named."""
    monkeypatch.setenv("PGPASSWORD", PASSWORD)  # for the console
    monkeypatch.setenv("LDAPTLS_CACERT", str(directory.ca))

    def start(options, start=True, **settings):
        if "ldapserver" not in options and "ldapurl" not in options:
            options = f"ldapserver=127.0.0.1 ldapport={directory.port} {options}"
        settings = {"auth_type": "ldap", "auth_ldap_options": options, "userlist": {}, **settings}
        return weir(**settings) if start else weir.prepared(**settings)

    return start


def name_of(pooler, user="alice", password=PASSWORD):
    return pooler.value("select current_user", user=user, password=password)


def refused(pooler, user="alice", password=PASSWORD):
    with pytest.raises(psycopg.OperationalError, match=REFUSED):
        name_of(pooler, user, password)


BIND = f'ldapprefix="uid=" ldapsuffix=",{PEOPLE}"'
SEARCH = f'ldapbasedn="{BASE}"'
WAYS = [BIND, SEARCH]


# --- who gets in ----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("way", WAYS)
def test_the_directory_decides(by_ldap, way):
    pooler = by_ldap(way)
    assert name_of(pooler) == "alice"
    refused(pooler, password="wrong")
    refused(pooler, user="mallory")
    assert name_of(pooler) == "alice"
    pooler.wait_log(f"closing because: {REFUSED} \\(age")


@pytest.mark.parametrize("way", WAYS)
def test_the_user_file_does_not_count(by_ldap, way):
    pooler = by_ldap(way, userlist={"alice": "of the file", "carol": PASSWORD})
    refused(pooler, password="of the file")
    assert name_of(pooler) == "alice"


def test_servers_are_logged_in_to_with_the_same_password(by_ldap):
    """The user file has another one: what the directory has accepted is what counts."""
    pooler = by_ldap(BIND, userlist={"scramuser": "stale"})
    assert name_of(pooler, "scramuser", "scram secret") == "scramuser"


def test_a_process_that_takes_over_knows_the_password_too(by_ldap, pg):
    """The client gives it once; servers are opened with it whenever there is need."""
    pooler = by_ldap(BIND)
    client = pooler.connect(user="scramuser", password="scram secret")
    assert client.execute("select 1").fetchone() == (1,)
    reboot(pooler)
    pg.query("select pg_terminate_backend(pid) from pg_stat_activity where usename = 'scramuser'")
    host.eventually(lambda: pg.count() == 0)
    assert client.execute("select 2").fetchone() == (2,)


def test_a_forced_user_is_not_given_the_password_of_another(by_ldap):
    pooler = by_ldap(BIND, databases={"app": "user=scramuser"}, userlist={"scramuser": "scram secret"})
    assert name_of(pooler) == "scramuser"


def test_the_console_asks_the_directory_too(by_ldap):
    pooler = by_ldap(BIND)
    assert pooler.console("show version")
    with pytest.raises(psycopg.OperationalError, match=REFUSED):
        pooler.connect("pgbouncer", "admin", password="wrong")


@pytest.mark.parametrize("way", WAYS)
def test_a_password_is_no_more_than_a_password(by_ldap, way):
    """Nothing at all would be an anonymous bind, which succeeds; what is behind a NUL would be lost on the way."""
    pooler = by_ldap(way)
    for body, code in ((b"\0", "28000"), (PASSWORD.encode() + b"\0x\0", "08P01"), (b"", "08P01"), (b"\0\0", "08P01")):
        with wire.Raw(pooler.port) as raw:
            raw.send(wire.startup(user="alice", database="app"))
            assert raw.read().body == b"\0\0\0\x03"
            raw.send(wire.message(b"p", body))
            assert [found[0] for found in wire.errors(raw.read_to_end())] == [code], body
    assert name_of(pooler, "bob", LONG_PASSWORD) == "bob"
    refused(pooler, "bob", LONG_PASSWORD[:-1])
    refused(pooler, "bob", "x" * 65_000)


# --- what a name may do ---------------------------------------------------------------------------------------
@pytest.mark.parametrize("way", [*WAYS, f'ldapbasedn="{BASE}" ldapsearchfilter="(&(objectClass=person)(uid=$username))"'])
def test_any_name_is_a_name(by_ldap, pg, way):
    quoted = '"' + ODD.replace('"', '""') + '"'
    pg.query(f"drop role if exists {quoted}")
    pg.query(f"create role {quoted} login")
    assert name_of(by_ldap(way), ODD) == ODD


@pytest.mark.parametrize("user", ["*", "ali*", "alice)(uid=*", "*)(|(uid=*", "alice,ou=people", "alice\\2a", ")", "\\"])
def test_a_name_is_nothing_more(by_ldap, user):
    """Each would match alice, or all users, if it were taken for a piece of a filter or of a distinguished name."""
    refused(by_ldap(SEARCH), user)
    refused(by_ldap(f'ldapprefix="uid=" ldapsuffix=",{BASE}"'), user)


# --- how it is asked ------------------------------------------------------------------------------------------
def test_a_search_by_somebody(by_ldap):
    base = f'ldapbasedn="ou=closed,{BASE}"'
    refused(by_ldap(base), "carol")
    somebody = f'ldapbinddn="{MANAGER}" ldapbindpasswd='
    password = '"' + MANAGER_PASSWORD.replace('"', '""') + '"'
    assert name_of(by_ldap(f"{base} {somebody}{password}"), "carol") == "carol"
    pooler = by_ldap(f"{base} {somebody}wrong")
    refused(pooler, "carol")
    pooler.wait_log(f'could not perform initial LDAP bind for ldapbinddn "{MANAGER}" on server "127.0.0.1": Invalid')


def test_a_search_by_another_attribute(by_ldap, pg):
    pg.query('drop role if exists "alice@example.net"')
    pg.query('create role "alice@example.net" login')
    pooler = by_ldap(f"{SEARCH} ldapsearchfilter=(&(uid=alice)(mail=$username))")
    assert name_of(pooler, "alice@example.net") == "alice@example.net"
    pooler = by_ldap(f"{SEARCH} ldapsearchattribute=mail")
    refused(pooler, "alice@example.net")
    pooler.wait_log('LDAP user "alice@example.net" is not unique')
    refused(pooler, "nobody@example.net")
    pooler.wait_log('LDAP user "nobody@example.net" does not exist')


@pytest.mark.parametrize(
    "path, gets_in",
    [
        (f"{BASE}?uid?sub", True),
        (f"{BASE}??sub?(uid=$username)", True),
        (f"{PEOPLE}?uid?one", True),
        (f"{PEOPLE.replace(',', '%2C')}?uid,cn?one", True),
        (f"{BASE}?uid?one", False),
        (f"{BASE}?uid", False),
    ],
)
def test_a_url(by_ldap, directory, path, gets_in):
    pooler = by_ldap(f'ldapurl="ldap://127.0.0.1:{directory.port}/{path}"')
    assert name_of(pooler) == "alice" if gets_in else refused(pooler) is None


@pytest.mark.parametrize(
    "options",
    [
        '"ldapserver"=127.0.0.1,"ldapport"={port},"ldapbasedn"="{base}","ldapsearchfilter"="uid=$username"',
        'ldapserver=127.0.0.1   "ldapport"={port} , ldapbasedn="{base}" ,ldapsearchfilter="(uid=$username)"',
        '"ldapserver=127.0.0.1" "ldapport={port}" "ldapbasedn={base}"',
        'ldapserver="127.0.0.1:{port}" ldapbasedn="{base}"',
        'ldapbasedn="{base}" ldapserver=localhost ldapport={port}',
    ],
)
def test_options_in_every_style(by_ldap, directory, options):
    assert name_of(by_ldap(options.format(port=directory.port, base=BASE))) == "alice"


def test_a_very_long_name(by_ldap):
    assert name_of(by_ldap(SEARCH), "logged") == "logged"


def test_the_next_of_several_servers(by_ldap, directory):
    down = host.free_port()
    pooler = by_ldap(f'ldapserver="127.0.0.1:{down} 127.0.0.1" ldapport={directory.port} {BIND}')
    assert name_of(pooler) == "alice"
    refused(pooler, password="wrong")


def test_a_referral_is_followed(by_ldap):
    assert name_of(by_ldap(f'ldapbasedn="{AWAY}"')) == "alice"


def test_directories_of_hba_rules(by_ldap, directory):
    """Each rule has a directory of its own, and other users prove themselves otherwise."""
    pooler = by_ldap("", auth_type="hba", auth_hba_file="hba.conf", userlist={"bob": PASSWORD}, start=False)
    where = f'ldapserver=127.0.0.1 "ldapport"={directory.port}'
    rules = [
        f"host all alice 127.0.0.1/32 ldap {where} {BIND}  # by name",
        f'host all scramuser 127.0.0.1/32 ldap {where}, ldapbasedn="{BASE}" ,ldapsearchfilter="uid=$username"',
        f"host all carol all ldap {where}",
        f"host all admin all ldap {where} {BIND}",
        "host all bob all md5",
    ]
    pooler._write("hba.conf", "\n".join(rules) + "\n")
    pooler.start()
    assert [name_of(pooler), name_of(pooler, "scramuser", "scram secret"), name_of(pooler, "bob")] == ["alice", "scramuser", "bob"]
    refused(pooler, password="wrong")
    refused(pooler, "carol")
    pooler.wait_log('hba line 3: authentication method "ldap" requires argument')


# --- TLS ------------------------------------------------------------------------------------------------------
def over_tls(directory, how, name="127.0.0.1"):
    if how == "url":
        return f'ldapurl="ldaps://{name}:{directory.tls_port}/{BASE}?uid?sub"'
    where = f"ldapport={directory.tls_port} ldapscheme=ldaps" if how == "ldaps" else f"ldapport={directory.port} ldaptls=1"
    return f"ldapserver={name} {where} {BIND}"


@pytest.mark.parametrize("how", ["ldaps", "start_tls", "url"])
def test_over_tls(by_ldap, directory, how):
    pooler = by_ldap(over_tls(directory, how))
    assert name_of(pooler) == "alice"
    refused(pooler, password="wrong")


@pytest.mark.parametrize("how", ["ldaps", "start_tls"])
def test_a_certificate_of_a_stranger_is_not_trusted(by_ldap, directory, how, monkeypatch):
    monkeypatch.delenv("LDAPTLS_CACERT")
    pooler = by_ldap(over_tls(directory, how))
    refused(pooler)
    pooler.wait_log("WARNING C-0x.*(Can.t contact LDAP server|could not start LDAP TLS session)")


def test_ldap_conf_decides_whether_certificates_are_checked(by_ldap, directory, monkeypatch):
    path = directory.directory / "ldap.conf"
    path.write_text("TLS_REQCERT never\n")
    monkeypatch.delenv("LDAPTLS_CACERT")
    monkeypatch.setenv("LDAPCONF", str(host.hand_over(path)))
    assert name_of(by_ldap(over_tls(directory, "start_tls"))) == "alice"


# --- when it goes wrong ---------------------------------------------------------------------------------------
def test_a_directory_that_is_down(by_ldap):
    pooler = by_ldap(f"ldapserver=127.0.0.1 ldapport={host.free_port()} {BIND}")
    refused(pooler)
    pooler.wait_log("WARNING C-0x[0-9a-f]+: app/alice@127.0.0.1:\\d+ LDAP login failed for user .*Can't contact LDAP server")


def test_a_directory_that_comes_back(by_ldap, directory):
    pooler = by_ldap(BIND)
    directory.stop()
    try:
        refused(pooler)
    finally:
        directory.start()
    assert name_of(pooler) == "alice"


@contextlib.contextmanager
def silent_listener(port=None, silent=10**9):
    """Takes connections and says nothing; those after the first few are led on to `port`."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        taken = []

        def take():
            with contextlib.suppress(OSError):
                while True:
                    taken.append(listener.accept()[0])
                    if len(taken) > silent:
                        lead_on(taken[-1], socket.create_connection(("127.0.0.1", port)))

        threading.Thread(target=take, daemon=True).start()
        yield listener.getsockname()[1], taken
        for connection in taken:
            connection.close()


def lead_on(one, other):
    def pump(source, target):
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)

    for pair in ((one, other), (other, one)):
        threading.Thread(target=pump, args=pair, daemon=True).start()


@contextlib.contextmanager
def waiting_login(pooler):
    """A client that has sent its password."""
    with wire.Raw(pooler.port) as raw:
        raw.send(wire.startup(user="alice", database="app"))
        assert raw.read().kind == "R"
        raw.send(wire.message(b"p", wire.cstring(PASSWORD)))
        yield raw


@pytest.mark.parametrize("more", ["ldapscheme=ldaps", "ldaptls=1", ""])
def test_a_directory_that_does_not_greet(by_ldap, directory, more):
    """It is given up by itself, long before client_login_timeout, and the next server is asked."""
    if more == "ldapscheme=ldaps":
        options = f'ldapserver="127.0.0.1 127.0.0.1:{directory.tls_port}" {more} {BIND}'
    else:
        options = f'ldapserver="127.0.0.1 127.0.0.1:{directory.port}" {more} {BIND}'
    with silent_listener() as (port, _):
        assert name_of(by_ldap(f"{options} ldapport={port}")) == "alice"


def test_a_directory_that_does_not_answer(by_ldap):
    """The client is let go in time, whatever the directory does."""
    with silent_listener() as (port, taken):
        pooler = by_ldap(f"ldapserver=127.0.0.1 ldapport={port} {BIND}", client_login_timeout=2)
        with pytest.raises(psycopg.OperationalError, match="client_login_timeout"):
            name_of(pooler)
        host.eventually(lambda: len(taken) == 1)


def test_a_directory_that_does_not_answer_is_a_part_of_the_slow_login(by_ldap):
    with silent_listener() as (port, _):
        pooler = by_ldap(f"ldapserver=127.0.0.1 ldapport={port} {BIND}", client_login_timeout=2, log_slow_queries=1)
        with pytest.raises(psycopg.OperationalError, match="client_login_timeout"):
            name_of(pooler)
        [(who, waited)] = pooler.wait_log(r"(\S+)@\S+ slow login: [\d.]+ ms \(ldap ([\d.]+), client [\d.]+; failed\)")
    assert who == "app/alice" and float(waited) >= 1000


def test_logins_that_wait_stop_no_other(by_ldap, directory):
    """The directory is silent to the first 20; one after another, they would take longer than the last one's patience."""
    with silent_listener(directory.port, silent=20) as (port, taken), contextlib.ExitStack() as clients:
        pooler = by_ldap(f"ldapserver=127.0.0.1 ldapport={port} {BIND}")
        for _ in range(20):
            clients.enter_context(waiting_login(pooler))
        host.eventually(lambda: len(taken) == 20)
        assert name_of(pooler) == "alice"


def test_a_client_that_leaves_is_forgotten(by_ldap, directory):
    """The answer for it finds no client, and is not taken for that of the next who has its place."""
    with silent_listener(directory.port, silent=1) as (port, taken):
        pooler = by_ldap(f"ldapserver=127.0.0.1 ldapport={port} {BIND}")
        with waiting_login(pooler):
            host.eventually(lambda: len(taken) == 1)
        host.eventually(lambda: {row["user"] for row in pooler.console("SHOW CLIENTS")} == {"admin"})
        taken[0].close()
        refused(pooler, password="wrong")
        assert name_of(pooler) == "alice"


def gets_in(pooler):
    with contextlib.suppress(psycopg.OperationalError):
        return name_of(pooler) == "alice"


@pytest.mark.parametrize("options, told", [("ldapserver=127.0.0.1", "requires argument"), ("ldapserver=h ldapprefix=x colour=1", "colour")])
def test_options_without_meaning_let_nobody_in(by_ldap, directory, options, told):
    """As in PgBouncer, the pooler starts; the log says why logins fail, and a RELOAD mends it."""
    pooler = by_ldap(options)
    pooler.wait_log(f"WARNING .*weir.ini:\\d+: auth_ldap_options: .*{told}")
    refused(pooler)
    pooler.wait_log(f"WARNING C-0x.*{told}")
    pooler.write_ini(auth_ldap_options=f"ldapserver=127.0.0.1 ldapport={directory.port} {BIND}")
    pooler.signal(1)
    host.eventually(lambda: gets_in(pooler))


def test_no_password_is_ever_logged(by_ldap):
    pooler = by_ldap(f'{SEARCH} ldapbinddn="{MANAGER}" ldapbindpasswd=hidden1', verbose=3)
    refused(pooler, password="hidden2")
    assert "hidden" not in pooler.log_text() + pooler.output()


@pytest.mark.weir_only
def test_the_password_is_not_shown(weir):
    options = f'ldapserver=127.0.0.1 ldapbasedn="dc=example" ldapbinddn="{MANAGER}"'
    pooler = weir(auth_ldap_options=f"{options} ldapbindpasswd=secret1")
    shown = {row["key"]: row["value"] for row in pooler.console("SHOW CONFIG")}["auth_ldap_options"]
    assert shown == f'ldapserver="127.0.0.1" ldapbasedn="dc=example" ldapbinddn="{MANAGER}" ldapbindpasswd=(hidden)'
