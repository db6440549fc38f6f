"""Every way to ask a client, with every form of secret in the user file, before servers that ask in every way: what PgBouncer's
"authentication file format" promises of each cell."""

import psycopg
import pytest

import host
import secret
import wire

# The users of this server, by what it asks them for (see postgres.HBA).
PASSWORDS = {"alice": "any", "plainuser": "plain secret", "md5user": "md5 secret", "scramuser": "scram secret"}
SERVER_ASKS = {"alice": "trust", "plainuser": "password", "md5user": "md5", "scramuser": "scram"}
METHODS = ["trust", "plain", "md5", "scram-sha-256"]
KINDS = ["plain", "md5", "scram"]


def lets_in(method, kind):
    """An md5 secret cannot check SCRAM; everything else can be checked somehow."""
    return (method, kind) != ("scram-sha-256", "md5")


def opens_server(method, kind, server):
    """A plain password opens every server, an md5 secret those that ask for md5. A SCRAM secret opens what asks for SCRAM if the
    client's own exchange was SCRAM, which it is under md5 too."""
    if server == "trust" or kind == "plain":
        return True
    if kind == "md5":
        return server == "md5"
    return server == "scram" and method in ("md5", "scram-sha-256")


def secrets(pg, kind):
    """The secrets of all users in one form; the SCRAM ones are the server's own where it has some."""
    def verifier(user):
        stored = pg.value(f"select rolpassword from pg_authid where rolname = '{user}'")
        return stored if stored and stored.startswith("SCRAM") else secret.scram(PASSWORDS[user])

    forms = {"plain": PASSWORDS.get, "md5": lambda user: secret.md5(user, PASSWORDS[user]), "scram": verifier}
    return {user: forms[kind](user) for user in PASSWORDS}


def outcome(pooler, user):
    """in, or the text of the refusal."""
    try:
        return "in" if pooler.value("select current_user", user=user, password=PASSWORDS[user]) == user else "as another"
    except psycopg.OperationalError as failure:
        return str(failure)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kind", KINDS)
def test_every_cell(weir, pg, method, kind):
    pooler = weir(auth_type=method, userlist=secrets(pg, kind), server_login_retry=1, query_wait_timeout=15)
    for user, server in SERVER_ASKS.items():
        found = outcome(pooler, user)
        if lets_in(method, kind) and opens_server(method, kind, server):
            assert found == "in", f"{user}: {found}"
        elif lets_in(method, kind):
            assert "login failed" in found or "authentication failed" in found or "wrong password type" in found, found
        else:
            assert "SASL authentication failed" in found or "authentication failed" in found, found


@pytest.mark.since("1.20")
@pytest.mark.parametrize("method, kind, user", [
    ("trust", "scram", "scramuser"), ("plain", "scram", "scramuser"), ("md5", "md5", "scramuser"), ("md5", "scram", "md5user"),
])
def test_a_secret_of_the_wrong_form_is_told(weir, pg, method, kind, user):
    pooler = weir(auth_type=method, userlist=secrets(pg, kind), server_login_retry=1, query_wait_timeout=15)
    assert "wrong password type" in outcome(pooler, user)


@pytest.mark.parametrize("server", ["plainuser", "md5user", "scramuser"])
def test_without_a_secret_the_server_says_no(weir, pg, server):
    pooler = weir(auth_type="trust", userlist={server: ""}, server_login_retry=1, query_wait_timeout=15)
    mark = pg.log_mark()
    assert outcome(pooler, server) != "in"
    assert "password authentication failed for user" in pg.log_since(mark) or "empty password" in pg.log_since(mark)


# --- forced users ----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("method", ["plain", "md5", "scram-sha-256"])
@pytest.mark.parametrize("user", ["plainuser", "md5user", "scramuser"])
def test_a_forced_user_has_a_secret_of_its_own(weir, method, user):
    """In the entry, or else in the user file; the client's own password plays no part."""
    userlist = {"alice": "of alice", user: PASSWORDS[user]}
    databases = {"app": f"user={user} password='{PASSWORDS[user]}'", "other": f"user={user}"}
    pooler = weir(auth_type=method, userlist=userlist, databases=databases)
    for database in databases:
        assert pooler.value("select current_user", database=database, user="alice", password="of alice") == user


@pytest.mark.since("1.26")
@pytest.mark.parametrize("method", ["plain", "md5", "scram-sha-256"])
def test_what_a_client_proved_is_never_shown_for_a_forced_user(weir, pg, method):
    """Not even where it would fit: alice's secret is the same text as the forced user's, and the file does not know the latter."""
    verifier = pg.value("select rolpassword from pg_authid where rolname = 'scramuser'")
    pooler = weir(auth_type=method, userlist={"alice": verifier}, databases={"app": "user=scramuser"}, server_login_retry=1,
                  query_wait_timeout=15)
    with pytest.raises(psycopg.OperationalError):
        pooler.value("select 1", user="alice", password=PASSWORDS["scramuser"])


def test_a_forced_user_with_a_scram_secret_cannot_log_in(weir, pg):
    verifier = pg.value("select rolpassword from pg_authid where rolname = 'scramuser'")
    pooler = weir(auth_type="scram-sha-256", userlist={"alice": "of alice", "scramuser": verifier},
                  databases={"app": "user=scramuser"}, server_login_retry=1, query_wait_timeout=15)
    with pytest.raises(psycopg.OperationalError):
        pooler.value("select 1", user="alice", password="of alice")


# --- SCRAM passed through ----------------------------------------------------------------------------------------
def test_a_verifier_of_another_salt_does_not_pass_through(weir):
    pooler = weir(auth_type="scram-sha-256", userlist={"scramuser": secret.scram(PASSWORDS["scramuser"])}, server_login_retry=1,
                  query_wait_timeout=15)
    assert outcome(pooler, "scramuser") != "in"


def test_keys_stay_for_servers_that_are_opened_later(weir, pg):
    pooler = weir(auth_type="scram-sha-256", userlist=secrets(pg, "scram") | {"admin": secret.scram("admin")})
    client = pooler.connect(user="scramuser", password=PASSWORDS["scramuser"])
    assert client.execute("select 1").fetchone() == (1,)
    pg.query("select pg_terminate_backend(pid) from pg_stat_activity where usename = 'scramuser'")
    host.eventually(lambda: pg.count("usename = 'scramuser'") == 0)
    other = pooler.connect(user="scramuser", password=PASSWORDS["scramuser"])
    assert other.execute("select 1").fetchone() == (1,)


# --- long passwords ----------------------------------------------------------------------------------------------
@pytest.mark.since("1.26")
@pytest.mark.parametrize("method", ["plain", "md5", "scram-sha-256"])
def test_a_password_of_64_kib(weir, pg, method):
    password = "p" * 65_530
    pg.query("drop role if exists longuser")
    pg.query("create role longuser login")
    pooler = weir(auth_type=method, userlist={"longuser": password})
    assert pooler.value("select current_user", user="longuser", password=password) == "longuser"
    with pytest.raises(psycopg.OperationalError, match="authentication failed"):
        pooler.connect(user="longuser", password=password[:-1])


# --- who is not there --------------------------------------------------------------------------------------------
@pytest.mark.weir_only
def test_under_md5_an_unknown_user_is_asked_like_most_known_ones(weir):
    """PgBouncer asks known users for SCRAM and unknown ones for MD5 here, which tells them apart."""
    def asked(user):
        with wire.Raw(pooler.port) as raw:
            raw.send(wire.startup(user=user, database="app"))
            return int.from_bytes(raw.read().body[:4], "big")

    scram, md5 = 10, 5
    pooler = weir(auth_type="md5", userlist={"alice": secret.scram("a"), "bob": secret.scram("b"), "admin": secret.scram("c")})
    assert {asked(user) for user in ("alice", "mallory")} == {scram}
    with pytest.raises(psycopg.OperationalError, match="SASL authentication failed"):
        pooler.connect(user="mallory", password="a")
    pooler.write_userlist({"alice": "a", "bob": "b", "admin": secret.scram("c")})
    pooler.signal(1)
    host.eventually(lambda: asked("mallory") == md5)
    assert asked("alice") == md5
