"""Random scripts of session state (`session_scripts`), played by 200 clients over ten servers and by 200 clients with connections of their
own: every client gets the same answers. `make sessions SCRIPTS=50 SEED=7` plays more; a failure prints the smallest script that still differs.

WEIR_MODEL_SCRIPT=FILE plays the last line of such a print again, WEIR_MODEL_HOLES=a,b asks for what is not followed yet, and with
WEIR_MODEL_SELF=1 PostgreSQL stands in the pooler's place: a difference then is the model's own fault."""

import os
import time
from pathlib import Path

import pytest

import session_model
import session_scripts
import session_texts
import weir as poolers
from random_scripts import Call
from session_scripts import Script, Step

pytestmark = [pytest.mark.every_driver, pytest.mark.weir_only]

SCRIPTS = int(os.environ.get("WEIR_SCRIPTS", "1"))
SEED = int(os.environ.get("WEIR_SEED", "1"))
HOLES = tuple(filter(None, os.environ.get("WEIR_MODEL_HOLES", "").split(",")))
CLIENTS = int(os.environ.get("WEIR_MODEL_CLIENTS", session_scripts.CLIENTS))
LENGTH = int(os.environ.get("WEIR_MODEL_LENGTH", "2"))  # episodes of a client, on average
DIFFERENCES = int(os.environ.get("WEIR_DIFFERENCES", "1"))  # that are made smaller
SECONDS = int(os.environ.get("WEIR_MODEL_SECONDS", "60"))  # to make a script smaller
USERS = {**poolers.USERLIST, "chief": ""}
SETTINGS = {"server_shuffle": 1, "default_pool_size": 10, "query_wait_timeout": 50, "max_client_conn": 1000}


@pytest.fixture
def roomy(pg):
    """A PostgreSQL with room for as many connections of its own as there are clients."""
    pg.stop()
    pg.start(max_connections=str(CLIENTS + 60))
    pg.query(session_texts.SETUP, "app")
    yield pg
    pg.stop()  # the next test starts it as it was


def the_model(pg, pooler):
    port = pg.port if os.environ.get("WEIR_MODEL_SELF") else pooler.port
    return session_model.Model(pg, port, holes=HOLES, fresh=lambda: None)


def scripts():
    """What is to be played: the script of a file, or those of the seeds."""
    if path := os.environ.get("WEIR_MODEL_SCRIPT"):
        yield eval(Path(path).read_text().splitlines()[-1], {"Script": Script, "Step": Step, "Call": Call})
        return
    for seed in range(SEED, SEED + SCRIPTS):
        yield session_scripts.draw(seed, CLIENTS, LENGTH, HOLES)


def explain(model, pooler, script, found):
    """For the first differences, each of another sort, the smallest script that differs in the same way, and where its answers part."""
    sorts = {one.sort: one for one in reversed(found)}
    texts = [f"{len(found)} clients differ, in {len(sorts)} ways"]
    model.fresh = lambda: pooler.console("RECONNECT")
    for first in list(reversed(sorts.values()))[:DIFFERENCES]:
        started = time.monotonic()
        smallest = session_model.minimise(script, first, model.compare, SECONDS)
        lines = [one.text for one in model.compare(smallest)] or ["which does not differ each time"]
        texts += [first.text, f"{script.count()} steps made {smallest.count()} in {time.monotonic() - started:.0f} s: {session_scripts.describe(smallest)}", *lines]
    model.fresh = lambda: None
    return "\n".join(texts)


def test_two_hundred_clients_over_ten_servers_are_told_what_direct_ones_are(weir, roomy):
    pooler = weir(session_state="virtual", userlist=USERS, **SETTINGS)
    model, started = the_model(roomy, pooler), time.monotonic()
    for script in scripts():
        if found := model.compare(script):
            print(f"seed {script.seed} differs", flush=True)
            pytest.fail(f"\n--- {pooler.io_driver}, seed {script.seed}: {explain(model, pooler, script, found)}", pytrace=False)
        print(f"seed {script.seed}: {script.count()} steps, {time.monotonic() - started:.0f} s so far", flush=True)


def test_it_finds_what_a_plain_transaction_pool_mixes_up(weir, roomy, monkeypatch):
    """The model is worth something only if it sees state that is lost or another client's, and shows it by few steps."""
    pooler = weir(session_state="off", userlist=USERS, ignore_startup_parameters="*", **SETTINGS)
    monkeypatch.setattr(session_model, "SILENCE", 1.0)  # a lock that is left behind is waited for in vain
    model = the_model(roomy, pooler)
    script = session_scripts.draw(SEED, 10, 2)
    found = model.compare(script)
    assert found
    started = time.monotonic()
    smallest = session_model.minimise(script, found[0], model.compare, 10)
    print(f"{len(found)} of 10 clients differ; made {smallest.count()} of {script.count()} steps in {time.monotonic() - started:.0f} s")
    print(session_scripts.describe(smallest))
    assert smallest.count() < script.count() / 2
