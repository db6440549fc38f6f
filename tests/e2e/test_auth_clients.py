"""How clients prove who they are: every auth_type with every form of secret in the user file."""

import psycopg
import pytest

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


@pytest.mark.parametrize("method", ["trust", "plain", "md5", "scram-sha-256"])
def test_whom_only_the_section_users_names_is_known_and_has_no_password(weir, method):
    pooler = weir(auth_type=method, users={"bob": "pool_mode=session"}, userlist={"alice": "secret"})
    if method == "trust":
        assert pooler.value("select current_user", user="bob") == "bob"
    else:
        with pytest.raises(psycopg.OperationalError, match="authentication failed"):
            pooler.connect(user="bob", password="secret")
    assert "no such user" not in pooler.log_text()


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
