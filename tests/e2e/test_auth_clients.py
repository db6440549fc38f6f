"""How clients prove who they are: every auth_type with every form of secret in the user file.
Holds I12 of ARCHITECTURE.md."""

import psycopg
import pytest

import conftest
import secret
import wire

PASSWORD = "correct horse"
SECRETS = {
    "plain": PASSWORD,
    "md5": secret.md5("alice", PASSWORD),
    "scram": secret.scram(PASSWORD),
}
# A SCRAM exchange cannot be made from an md5 secret; all else can be checked.
IMPOSSIBLE = [("scram-sha-256", "md5")]
TYPES = ["plain", "md5", "scram-sha-256"]
POSSIBLE = [(auth, kind) for auth in TYPES for kind in SECRETS if (auth, kind) not in IMPOSSIBLE]


def pooler_with(weir, auth_type, kind, **settings):
    """Servers are logged in to without a password (`trust` in pg_hba.conf), so that only the client's side counts."""
    userlist = {"alice": SECRETS[kind], "admin": PASSWORD}
    return weir(auth_type=auth_type, userlist=userlist, **settings)


@pytest.mark.parametrize("auth_type, kind", POSSIBLE)
def test_the_right_password(weir, auth_type, kind):
    pooler = pooler_with(weir, auth_type, kind)
    for _ in range(2):
        assert pooler.value("select current_user", password=PASSWORD) == "alice"


@pytest.mark.parametrize("auth_type, kind", POSSIBLE)
@pytest.mark.parametrize("password", ["wrong", "", PASSWORD + " ", PASSWORD[:-1], "x" * 1000])
def test_the_wrong_password(weir, auth_type, kind, password):
    pooler = pooler_with(weir, auth_type, kind)
    with pytest.raises(psycopg.OperationalError, match="(password|SASL) authentication failed|no password supplied"):
        pooler.connect(password=password)
    assert pooler.value("select 1", password=PASSWORD) == 1


@pytest.mark.parametrize("auth_type, kind", IMPOSSIBLE)
def test_a_secret_that_the_method_cannot_use(weir, auth_type, kind):
    pooler = pooler_with(weir, auth_type, kind)
    with pytest.raises(psycopg.OperationalError, match="authentication failed|wrong password type"):
        pooler.connect(password=PASSWORD)


@pytest.mark.parametrize("auth_type", TYPES)
def test_an_unknown_user_is_answered_like_a_wrong_password(weir, auth_type):
    pooler = pooler_with(weir, auth_type, "plain")
    texts = []
    for user in ("alice", "mallory"):
        with pytest.raises(psycopg.OperationalError) as failure:
            pooler.connect(user=user, password="wrong")
        texts.append(str(failure.value).replace(user, "USER"))
    assert texts[0] == texts[1]


@pytest.mark.parametrize("auth_type", ["trust", "any"])
def test_no_password_is_asked(weir, auth_type):
    pooler = weir(auth_type=auth_type, databases={"app": "user=carol"})
    assert pooler.value("select current_user", user="alice") == "carol"


def test_trust_wants_a_known_user(weir):
    pooler = weir(auth_type="trust")
    with pytest.raises(psycopg.OperationalError, match='no such user|"trust" authentication failed'):
        pooler.connect(user="mallory")


def test_any_takes_every_user(weir):
    pooler = weir(auth_type="any", databases={"app": "user=carol"})
    assert pooler.value("select current_user", user="mallory") == "carol"


def test_md5_with_a_scram_secret_uses_scram(weir):
    pooler = pooler_with(weir, "md5", "scram")
    with wire.Raw(pooler.port) as raw:
        raw.send(wire.startup(user="alice", database="app"))
        asked = raw.read()
    assert (asked.kind, asked.body[:4], asked.body[4:]) == ("R", b"\0\0\0\x0a", b"SCRAM-SHA-256\0\0")


@pytest.mark.since("1.25")
def test_scram_iterations_of_a_plain_secret(weir):
    pooler = pooler_with(weir, "scram-sha-256", "plain", scram_iterations=10_000)
    with wire.Raw(pooler.port) as raw:
        raw.send(wire.startup(user="alice", database="app"))
        raw.read()
        first = b"n,,n=,r=clientnonce"
        raw.send(wire.message(b"p", wire.cstring("SCRAM-SHA-256") + len(first).to_bytes(4, "big") + first))
        challenge = raw.read().body[4:].decode()
    assert challenge.startswith("r=clientnonce")
    assert challenge.endswith(",i=10000")


def test_the_console_wants_the_password_too(weir):
    pooler = pooler_with(weir, "scram-sha-256", "plain")
    with pytest.raises(psycopg.OperationalError, match="SASL authentication failed|password"):
        pooler.connect("pgbouncer", "admin", password="wrong")
    assert pooler.connect("pgbouncer", "admin", password=PASSWORD).execute("show version").fetchone()


def test_an_unknown_database(weir):
    pooler = weir()
    with pytest.raises(psycopg.OperationalError, match="no such database: nowhere"):
        pooler.connect("nowhere")
    pooler.wait_log("closing because: no such database: nowhere")


def test_an_unknown_database_is_not_told_before_the_password(weir):
    pooler = pooler_with(weir, "scram-sha-256", "plain")
    with pytest.raises(psycopg.OperationalError, match="authentication failed"):
        pooler.connect("nowhere", password="wrong")


WAYS = ["trust", "plain", "md5", "scram-sha-256", "any", "hba trust", "hba password", "hba md5", "hba scram-sha-256"]
# Where the user of a login is named, beside what the database says: in auth_file, in [users] alone, for auth_query, or nowhere.
NAMED = {"listed": "listed", "section": "section", "queried": "queried", "mallory": "nowhere"}
# Without and with a user of the entry's own, who opens the servers; and the same where auth_query is asked for who is not listed.
DATABASES = {
    "plain": "dbname=app", "forced": "dbname=app user=carol",
    "asked": "dbname=app auth_user=asker", "forced_asked": "dbname=app user=carol auth_user=asker",
}


def who_is_known(way, database, place):
    """With auth_type=any every user is, if the entry names who opens its servers; else who is in auth_file, or found by auth_query."""
    if way == "any":
        return "forced" in database
    return place == "listed" or "asked" in database and place == "queried"


@pytest.mark.since("1.24")
@pytest.mark.parametrize("way", WAYS)
def test_who_is_known_by_each_method_and_place(weir, pg, way):
    for user in ("asker", "listed", "section", "queried"):
        if not pg.query(f"select 1 from pg_roles where rolname = '{user}'"):
            pg.query(f"create role {user} login")
    pooler = weir.prepared(
        auth_type=way.split()[0], databases=DATABASES, users={"section": "pool_mode=session", "asker": ""},
        userlist={"listed": "secret", "asker": ""}, query_wait_timeout=10, **slow_to_nobody(),
        auth_query="select name, secret from (values ('queried', 'secret')) as known (name, secret) where name = $1",
    )
    pooler._write("hba.conf", f"host all all 127.0.0.1/32 {way.split()[-1]}\n")
    pooler.write_ini(auth_hba_file=pooler.directory / "hba.conf")
    pooler.start()
    found, expected = {}, {}
    for database in DATABASES:
        for user, place in NAMED.items():
            expected[database, place] = who_is_known(way, database, place)
            found[database, place] = lets_in(pooler, database=database, user=user, password="secret")
    assert found == expected


def slow_to_nobody():
    return {} if conftest.PGBOUNCER else {"auth_failure_delay": 0}


def lets_in(pooler, **options):
    try:
        return pooler.value("select 1", **options) == 1
    except psycopg.OperationalError as failure:
        assert "authentication failed" in str(failure) or "no such user" in str(failure) or "bouncer config error" in str(failure), failure
        return False


@pytest.mark.since("1.24")
def test_who_is_named_in_the_section_users_alone_is_told_what_any_unknown_user_is(weir):
    pooler = weir(users={"bob": "pool_mode=session"}, userlist={"alice": ""})
    for user in ("bob", "mallory"):
        with pytest.raises(psycopg.OperationalError, match='"trust" authentication failed'):
            pooler.connect(user=user)
        pooler.wait_log(f"no such user: {user}")


def test_a_fallback_database(weir):
    pooler = weir(databases={"*": ""})
    assert pooler.value("select current_database()", database="other") == "other"
    pooler.wait_log("registered new auto-database")


def test_long_and_strange_names_and_passwords(weir, pg):
    password = 'quo"te; \\back\\ ü ' + "p" * 500
    pg.query('drop role if exists "strange, ""name"" ü"')
    pg.query('create role "strange, ""name"" ü" login')
    user = 'strange, "name" ü'
    userlist = {user.replace('"', '""'): password.replace('"', '""')}
    pooler = weir(auth_type="scram-sha-256", userlist=userlist)
    assert pooler.value("select current_user", user=user, password=password) == user
