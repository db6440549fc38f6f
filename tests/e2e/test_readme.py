"""The README's way in: its ini, and its command that makes userlist.txt, as they are written there."""

import re

import pytest

import host
import postgres
import weir as pooler

pytestmark = pytest.mark.weir_only
README = (host.REPOSITORY / "README.md").read_text()


def block(language, word):
    """The first block of that language that has the word in it."""
    return next(text for text in re.findall(rf"^```{language}\n(.*?)^```", README, re.M | re.S) if word in text)


def test_its_configuration_lets_a_user_of_the_server_in(pg, weir):
    make_userlist = block("sh", "userlist.txt <<")
    pooler_ = weir.prepared(auth_type="scram-sha-256", auth_file="userlist.txt", userlist={})
    environment = {"PATH": f"{postgres.programs('system')}:/usr/bin:/bin", "PGHOST": "127.0.0.1", "PGPORT": str(pg.port)}
    done = host.run(["sh", "-ec", make_userlist], cwd=pooler_.directory, env=environment)
    assert done.returncode == 0, done.stderr
    assert (pooler_.directory / "userlist.txt").stat().st_mode & 0o777 == 0o600
    pooler_.start()
    assert pooler_.connect(user="scramuser", password="scram secret").execute("select current_user").fetchone() == ("scramuser",)


def test_its_settings_are_good(scratch):
    directory = host.new_directory(scratch, "readme")
    (directory / "weir.ini").write_text(block("ini", "[databases]"))
    (directory / "userlist.txt").write_text('"app" "secret"\n')
    checked = host.run([pooler.PROGRAM_COPY["path"], "check", directory / "weir.ini"], cwd=directory, as_user=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr
