"""Host-based rules: which line a login meets, what its method asks, what those hear whom no line lets in."""

import os
import pwd

import psycopg
import pytest

import host
import secret
import wire

PASSWORD = "correct horse"
ME = pwd.getpwuid(os.geteuid()).pw_name
CONSOLE = "host pgbouncer admin 127.0.0.1/32 trust\n"
NOT_FOUND = "no authentication method is found|login rejected"


def rules(weir, text, ident=None, **settings):
    """A pooler with these rules, and one that lets the tests ask the console."""
    userlist = settings.pop("userlist", {"alice": PASSWORD, "bob": PASSWORD, "admin": "", ME: ""})
    settings = {"auth_type": "hba", "auth_hba_file": "hba.conf", "listen_addr": "127.0.0.1,::1", **settings}
    if ident is not None:
        settings["auth_ident_file"] = "ident.conf"
    pooler = weir.prepared(userlist=userlist, **settings)
    pooler._write("hba.conf", CONSOLE + text)
    pooler._write("ident.conf", ident or "")
    return pooler.start()


def asked(pooler, **startup):
    """What a client is asked: trust, plain, md5, scram, or the error's message."""
    with wire.Raw(pooler.port) as raw:
        raw.send(wire.startup(**startup))
        answer = raw.read()
    if answer.kind == "E":
        return next(field[1:].decode() for field in answer.body.split(b"\0") if field[:1] == b"M")
    return {0: "trust", 3: "plain", 5: "md5", 10: "scram"}[int.from_bytes(answer.body[:4], "big")]


# --- which line counts ----------------------------------------------------------------------------------------
@pytest.mark.weir_only
def test_a_rule_for_a_name_counts_for_whatever_is_cut_to_it(weir):
    """PostgreSQL cuts names first; so a longer one leads to the same role, and meets the same rule."""
    name = "r" * 63
    pooler = rules(weir, f"""
        host    all {name}  127.0.0.1/32    reject
        host    {name} all  127.0.0.1/32    reject
        host    all all     127.0.0.1/32    trust
        """, userlist={"admin": "", ME: "", name: "", "alice": ""}, databases={"app": "user=bob", "*": "dbname=app user=bob"})
    assert asked(pooler, user="alice", database="app") == "trust"
    for longer in (name, name + "r", name + "\u00fc" * 10):
        assert "login rejected" in asked(pooler, user=longer, database="app")
        assert "login rejected" in asked(pooler, user="alice", database=longer)


@pytest.mark.weir_only
def test_a_login_that_is_drawn_out_meets_the_rules_of_its_end(weir):
    pooler = rules(weir, "host all all 127.0.0.1/32 password\n")
    with wire.Raw(pooler.port) as raw:
        raw.send(wire.startup(user="alice", database="app"))
        assert raw.read().kind == "R"
        pooler._write("hba.conf", CONSOLE + "host all alice 127.0.0.1/32 reject\nhost all all 127.0.0.1/32 password\n")
        pooler.console("RELOAD")
        raw.send(wire.message(b"p", wire.cstring(PASSWORD)))
        assert b"login rejected" in raw.read().body


def test_the_first_line_that_fits_counts(weir):
    pooler = rules(
        weir,
        """
        # TYPE  DATABASE        USER            ADDRESS                 METHOD
        host    app             alice           127.0.0.1/32            password
        host\tother,"app"\tbob\t127.0.0.0 255.0.0.0\tmd5     # with a comment
          host    sameuser all 127.0.0.1/32 trust
        host    "all"           all             127.0.0.1/32            trust
        host    all             alice , "bob"   127.0.0.1/32            scram-sha-256
        """,
    )
    assert asked(pooler, user="alice", database="app") == "plain"
    assert asked(pooler, user="bob", database="app") == "md5"
    assert asked(pooler, user="bob", database="other") == "md5"
    assert asked(pooler, user="alice", database="other") == "scram"
    assert asked(pooler, user="carol", database="other") in NOT_FOUND
    assert pooler.value("select 1", user="bob", password=PASSWORD) == 1


@pytest.mark.since("1.25")
def test_the_address_may_be_all(weir):
    pooler = rules(weir, "host app alice all md5\nlocal app alice trust\n")
    assert asked(pooler, user="alice", database="app") == "md5"
    with psycopg.connect(**pooler.address(host=str(pooler.directory))) as connection:
        assert connection.execute("select 1").fetchone() == (1,)


def test_ipv6_and_ipv4_keep_apart(weir):
    pooler = rules(weir, "host app alice ::1/128 trust\nhost app alice 127.0.0.1/32 password\n")
    assert asked(pooler, user="alice", database="app") == "plain"
    assert pooler.value("select 1", host="::1") == 1


def test_unix_sockets_have_lines_of_their_own(weir):
    pooler = rules(weir, "local app alice trust\nhost app alice 127.0.0.1/32 reject\n")
    directory = str(pooler.directory)
    with psycopg.connect(**pooler.address(host=directory)) as connection:
        assert connection.execute("select 1").fetchone() == (1,)
    with pytest.raises(psycopg.OperationalError, match="login rejected"):
        pooler.connect()
    with pytest.raises(psycopg.OperationalError, match=NOT_FOUND):
        pooler.connect(host=directory, user="bob")


def test_tls_lines_do_not_fit_without_tls(weir):
    pooler = rules(weir, "hostssl all all 127.0.0.1/32 trust\nhostnossl all all 127.0.0.1/32 md5\n")
    assert asked(pooler, user="alice", database="app") == "md5"


@pytest.mark.weir_only
def test_the_machines_own_addresses(weir):
    pooler = rules(weir, "host app alice samehost md5\nhost app bob samenet trust\n")
    assert asked(pooler, user="alice", database="app") == "md5"
    assert pooler.value("select 1", user="bob", host="::1") == 1


def test_lists_in_files(weir):
    pooler = weir.prepared(auth_type="hba", auth_hba_file="hba.conf", userlist={"alice": "", "bob": "", "admin": ""})
    (pooler.directory / "names").mkdir()
    pooler._write("names/users", "carol, bob\n@more\n")
    pooler._write("names/more", "alice\n")
    pooler._write("hba.conf", CONSOLE + "host app @names/users 127.0.0.1/32 trust\n")
    pooler.start()
    assert pooler.value("select 1", user="alice") == pooler.value("select 1", user="bob") == 1
    with pytest.raises(psycopg.OperationalError, match=NOT_FOUND):
        pooler.connect("other")


GROUPS = """
drop role if exists groupasker, staff, crew, sailor;
create role groupasker login;
create role staff;
create role crew in role staff;
create role sailor login in role crew;
"""


@pytest.mark.weir_only
@pytest.mark.parametrize("threads", [1, 4])
def test_members_of_roles(weir, pg, threads):
    for statement in GROUPS.strip().split(";")[:-1]:
        pg.query(statement)
    text = "host app +staff 127.0.0.1/32 md5\nhost samerole all 127.0.0.1/32 password\nhost app all 127.0.0.1/32 reject\n"
    userlist = {"alice": PASSWORD, "sailor": PASSWORD, "groupasker": "", "admin": ""}
    databases = {"app": "", "crew": "dbname=app", "other": ""}
    pooler = rules(weir, text, userlist=userlist, auth_user="groupasker", databases=databases, threads=threads)
    assert pooler.value("select current_user", user="sailor", password=PASSWORD) == "sailor"
    assert asked(pooler, user="sailor", database="app") == "md5"
    assert asked(pooler, user="sailor", database="crew") == "plain"
    assert "no authentication method" in asked(pooler, user="sailor", database="other")
    for user in ("alice", "mallory", "a'; drop role staff; --"):
        assert asked(pooler, user=user, database="app") == "login rejected"
    pg.query("grant staff to alice")
    try:
        assert asked(pooler, user="alice", database="app") == "md5"
    finally:
        pg.query("revoke staff from alice")


def test_without_somebody_to_ask_a_line_with_roles_is_left_out(weir):
    pooler = rules(weir, "host app +staff 127.0.0.1/32 reject\nhost app alice 127.0.0.1/32 trust\n")
    assert pooler.value("select 1") == 1
    pooler.wait_log("could not parse hba config line 2")


# --- what is asked ---------------------------------------------------------------------------------------------
@pytest.mark.parametrize("method", ["password", "md5", "scram-sha-256"])
def test_every_method_with_a_password(weir, method):
    pooler = rules(weir, f"host all all 127.0.0.1/32 {method}\n")
    assert pooler.value("select current_user", password=PASSWORD) == "alice"
    for user, password in (("alice", "wrong"), ("mallory", PASSWORD)):
        with pytest.raises(psycopg.OperationalError, match="(password|SASL) authentication failed"):
            pooler.connect(user=user, password=password)


def test_md5_means_scram_where_the_secret_is_one(weir):
    pooler = rules(weir, "host all all 127.0.0.1/32 md5\n", userlist={"alice": secret.scram(PASSWORD), "admin": ""})
    assert asked(pooler, user="alice", database="app") == "scram"


def test_trust_wants_a_known_user(weir):
    pooler = rules(weir, "host all all 127.0.0.1/32 trust\n")
    assert pooler.value("select 1") == 1
    with pytest.raises(psycopg.OperationalError, match='"trust" authentication failed'):
        pooler.connect(user="mallory")


# --- who is not let in -----------------------------------------------------------------------------------------
@pytest.mark.since("1.23")
def test_no_line_and_a_line_that_rejects(weir):
    pooler = rules(weir, "host app bob 127.0.0.1/32 reject\n")
    with pytest.raises(psycopg.OperationalError, match="no authentication method is found"):
        pooler.connect()
    with pytest.raises(psycopg.OperationalError, match="login rejected"):
        pooler.connect(user="bob")
    pooler.wait_log(r"closing because: no authentication method is found \(age")
    pooler.wait_log(r"app/bob@127.0.0.1:\d+ closing because: login rejected \(age")


@pytest.mark.since("1.23")
def test_physical_replication_wants_a_line_that_names_it(weir):
    pooler = rules(weir, "host all all 127.0.0.1/32 trust\n")
    assert "no authentication method is found" in asked(pooler, user="alice", database="app", replication="yes")
    assert asked(pooler, user="alice", database="app", replication="database") not in NOT_FOUND
    pooler = rules(weir, "host replication alice 127.0.0.1/32 md5\n")
    assert asked(pooler, user="alice", database="app", replication="yes") == "md5"
    assert "no authentication method is found" in asked(pooler, user="alice", database="app")


@pytest.mark.weir_only
def test_postgresqls_sentence_is_the_detail(weir):
    pooler = rules(weir, "host app bob 127.0.0.1/32 reject\n")
    with pytest.raises(psycopg.OperationalError) as failure:
        pooler.connect()
    sentence = 'no pg_hba.conf entry for host "127.0.0.1", user "alice", database "app", no encryption'
    assert sentence in str(failure.value)
    with pytest.raises(psycopg.OperationalError) as failure:
        pooler.connect(user="bob")
    sentence = 'pg_hba.conf rejects connection for host "127.0.0.1", user "bob", database "app", no encryption'
    assert sentence in str(failure.value)
    with pytest.raises(psycopg.OperationalError, match=r'host "\[local\]", user "alice"'):
        pooler.connect(host=str(pooler.directory))
    with pytest.raises(psycopg.OperationalError, match='replication connection from host "127.0.0.1", user "alice", no enc'):
        pooler.connect(replication="yes")


def test_the_console_has_rules_too_and_the_owner_needs_none(weir):
    pooler = rules(weir, "host pgbouncer stats 127.0.0.1/32 reject\n", userlist={"admin": "", "stats": ""})
    assert pooler.console("show version")
    with pytest.raises(psycopg.OperationalError, match="login rejected"):
        pooler.console("show version", user="stats")
    shown = host.run([
        pooler.postgres.bindir / "psql", "-X", "-A", "-t", "-c", "show version",
        f"host={pooler.directory} port={pooler.port} dbname=pgbouncer user=pgbouncer",
    ])
    assert "PgBouncer" in shown.stdout


# --- the file --------------------------------------------------------------------------------------------------
def test_a_bad_line_is_logged_and_costs_no_other(weir):
    pooler = rules(weir, "nonsense\nhost all all example.org trust\nhost app alice 127.0.0.1/32 trust\n")
    assert pooler.value("select 1") == 1
    pooler.wait_log("hba line 2: unknown type")
    pooler.wait_log("hba line 3: failed to parse address - example.org")
    pooler.wait_log("could not parse hba config line 3")


def test_the_file_is_read_again_on_reload(weir):
    pooler = rules(weir, "host app alice 127.0.0.1/32 reject\n")
    with pytest.raises(psycopg.OperationalError):
        pooler.connect()
    pooler._write("hba.conf", CONSOLE + "host app alice 127.0.0.1/32 trust\n")
    pooler.console("reload")
    client = pooler.connect()
    pooler._write("hba.conf", CONSOLE + "host app alice 127.0.0.1/32 reject\n")
    pooler.console("reload")
    assert client.execute("select 1").fetchone() == (1,), "who is in stays"
    with pytest.raises(psycopg.OperationalError):
        pooler.connect()


def test_without_the_file_nobody_comes_in(weir):
    pooler = rules(weir, "host all all 127.0.0.1/32 trust\n", auth_hba_file="gone.conf")
    with pytest.raises(psycopg.OperationalError, match=NOT_FOUND):
        pooler.connect()
    pooler.wait_log("could not open hba config file gone.conf: No such file or directory")


@pytest.mark.weir_only
def test_set_reads_the_file_that_it_names(weir):
    pooler = rules(weir, "host app alice 127.0.0.1/32 reject\n")
    pooler._write("other.conf", CONSOLE + "host app alice 127.0.0.1/32 trust\n")
    pooler.console("set auth_hba_file = 'other.conf'")
    assert pooler.value("select 1") == 1
    shown = {row["key"]: row["value"] for row in pooler.console("show config")}
    assert (shown["auth_type"], shown["auth_hba_file"]) == ("hba", "other.conf")


# --- peer ------------------------------------------------------------------------------------------------------
def by_socket(pooler, user, **options):
    return pooler.connect(user=user, host=str(pooler.directory), **options)


def test_peer_is_the_name_of_the_system_user(weir):
    pooler = rules(weir, "local all all peer\n", databases={"app": "user=alice"})
    assert by_socket(pooler, ME).execute("select 1").fetchone() == (1,)
    for user in ("alice", "mallory"):
        with pytest.raises(psycopg.OperationalError, match="unix socket login rejected"):
            by_socket(pooler, user)


def test_peer_does_not_fit_tcp(weir):
    pooler = rules(weir, "host all all 127.0.0.1/32 peer\n", databases={"app": "user=alice"})
    with pytest.raises(psycopg.OperationalError, match="unix socket login rejected"):
        pooler.connect(user=ME)


@pytest.mark.since("1.23")
def test_peer_with_a_map(weir):
    ident = f"""
    # map  system  database
    staff  {ME}    alice
    staff  nobody2 bob
    any    "{ME}"  all
    """
    pooler = rules(weir, "local app all peer map=staff\nlocal other all peer map=any\n", ident)
    assert by_socket(pooler, "alice").execute("select current_user").fetchone() == ("alice",)
    assert by_socket(pooler, "bob", database="other").execute("select current_user").fetchone() == ("bob",)
    for user in ("bob", ME, "mallory"):
        with pytest.raises(psycopg.OperationalError, match="unix socket login rejected"):
            by_socket(pooler, user)
    pooler.wait_log(r"ERROR C-.*app/bob@unix\S+ ident map staff cannot be matched")
    with pytest.raises(psycopg.OperationalError, match="unix socket login rejected"):
        by_socket(pooler, "mallory", database="other")


@pytest.mark.since("1.23")
def test_a_map_that_is_not_there_costs_its_line(weir):
    pooler = rules(weir, "local app all peer map=nowhere\nlocal app alice trust\n", "broken line\n")
    assert by_socket(pooler, "alice").execute("select 1").fetchone() == (1,)
    pooler.wait_log("hba line 2: Ident map nowhere is not found in ident config file")
    pooler.wait_log("could not parse ident config line 1")


@pytest.mark.weir_only
def test_peer_for_all(weir):
    pooler = weir(auth_type="peer", userlist={ME: "", "alice": ""}, databases={"app": "user=alice"})
    assert by_socket(pooler, ME).execute("select 1").fetchone() == (1,)
    with pytest.raises(psycopg.OperationalError, match="unix socket login rejected"):
        by_socket(pooler, "alice")


# --- cert ------------------------------------------------------------------------------------------------------
def test_a_certificate_wants_tls(weir):
    pooler = rules(weir, "host all all 127.0.0.1/32 cert\n")
    with pytest.raises(psycopg.OperationalError, match="certificate authentication failed|TLS connection required"):
        pooler.connect()
    pooler.wait_log("TLS connection required")


@pytest.mark.since("1.23")
def test_certificates_with_maps(weir, authorities):
    root = authorities[3]
    boss = root.issue("boss", "The Boss, Ltd")
    text = "hostssl app all 127.0.0.1/32 cert map=staff\nhostssl other all 127.0.0.1/32 cert map=any\nhost app bob 127.0.0.1/32 cert\n"
    pooler = rules(
        weir, text, 'staff "The Boss, Ltd" bob\nstaff alice carol\nany alice all\n', userlist={"bob": "", "carol": "", "admin": ""},
        client_tls_sslmode="verify-full", client_tls_ca_file=root.cert, client_tls_cert_file=root.server.cert,
        client_tls_key_file=root.server.key,
    )

    def comes_in(user, shown, database="app"):
        options = {"sslmode": "require", "sslcert": shown.cert, "sslkey": shown.key}
        return pooler.connect(database, user, **options).execute("select current_user").fetchone()[0] == user

    assert comes_in("bob", boss) and comes_in("carol", root.alice)
    assert comes_in("bob", root.alice, "other") and comes_in("carol", root.alice, "other")
    for user, shown, database in (("carol", boss, "app"), ("bob", root.alice, "app"), ("bob", boss, "other"), ("mallory", root.alice, "other")):
        with pytest.raises(psycopg.OperationalError, match="certificate authentication failed"):
            comes_in(user, shown, database)
    pooler.wait_log("ident map: staff does not have a match", count=2)


@pytest.mark.weir_only
def test_the_detail_says_that_tls_is_in_use(weir, authorities):
    root = authorities[3]
    pooler = rules(
        weir, "hostnossl all all 127.0.0.1/32 trust\n", client_tls_sslmode="allow", client_tls_cert_file=root.server.cert,
        client_tls_key_file=root.server.key,
    )
    assert pooler.value("select 1") == 1
    with pytest.raises(psycopg.OperationalError, match='no pg_hba.conf entry for .*, SSL encryption'):
        pooler.connect(sslmode="require")


# --- any -------------------------------------------------------------------------------------------------------
def test_any_wants_a_forced_user(weir):
    pooler = weir(auth_type="any", databases={"app": "user=carol", "other": ""})
    assert pooler.value("select current_user", user="mallory") == "carol"
    for database in ("other", "nowhere"):
        with pytest.raises(psycopg.OperationalError, match="bouncer config error"):
            pooler.connect(database, user="mallory")
    pooler.wait_log("auth_type=any requires forced user", count=2)


def test_any_lets_everybody_look_at_the_console(weir):
    pooler = weir(auth_type="any", databases={"app": "user=carol"})
    assert pooler.console("show pools", user="mallory")
    for user in ("mallory", "stats"):
        with pytest.raises(psycopg.Error, match="admin access needed"):
            pooler.console("pause app", user=user)
    assert pooler.console("pause app", user="admin") == "PAUSE"
    pooler.console("resume app", user="admin")
