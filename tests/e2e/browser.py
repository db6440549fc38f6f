"""Plays the journeys of tests/web in a real browser, at the other end of their pipes: what only the test can do to the pooler, it does."""

import json
import os
import shutil
import subprocess

import pytest

import host
import postgres

JOURNEYS = host.REPOSITORY / "tests/web"
OWN_NODE = host.REPOSITORY / "target/node/node_modules/node/bin/node"


def lacking():
    """What is missing for it, if anything."""
    if chromium() is None:
        return "chromium"
    if node() is None:
        return "node"
    return None if (JOURNEYS / "node_modules").is_dir() else "npm packages of tests/web"


def chromium():
    return shutil.which("chromium") or shutil.which("chromium-browser")


def node():
    return str(OWN_NODE) if OWN_NODE.exists() else shutil.which("node")


def play(journey, web, traces, deeds=None, **scene):
    """Runs a journey to its end. `deeds` answers its questions: question → function, or a function of the question."""
    if lacking():
        pytest.skip(f"no {lacking()} on this machine; scripts/prepare-tests says why")
    address = f"http://127.0.0.1:{web.port}"
    programs = postgres.programs("18") or postgres.programs("system")
    facts = {"panel": address, "chromium": chromium(), "bin": str(programs), "traces": str(traces), **scene}
    process = subprocess.Popen(
        [node(), "run.mjs", journey],
        cwd=JOURNEYS,
        env={**os.environ, "WEIR_SCENE": json.dumps(facts)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        for line in process.stdout:
            asked = json.loads(line)["ask"]
            deeds[asked]()
            process.stdin.write("done\n")
            process.stdin.flush()
        said = process.communicate(timeout=60)[1]
    finally:
        process.kill()
    assert process.returncode == 0, f"{journey}\n{said}\nscreenshots: {traces}"
