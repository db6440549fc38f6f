"""The harness of the benchmarks runs: every kind of row once and small, Weir beside no pooler. No figure is looked at."""

import json
import subprocess
from pathlib import Path

import pytest

from weir import PROGRAM

ROOT = Path(__file__).resolve().parents[2]
LAB = PROGRAM.with_name("weir-harness")
ROWS = {
    "simple-50": ["direct", "weir-epoll"],
    "connect-scram": ["weir-epoll"],
    "tls-50": ["weir-epoll"],
    "copy-in": ["direct", "weir-epoll"],
    "idle-tls": ["weir-epoll"],
    "crowd": ["direct", "weir-epoll"],
    "pools-200": ["weir-epoll"],
}


@pytest.mark.weir_only
@pytest.mark.skipif(not LAB.exists(), reason="weir-harness is not beside Weir: cargo build -p weir-harness")
def test_the_full_table_can_be_measured(tmp_path):
    # Long enough that fifty handshakes are over on a machine that has other tests to run.
    command = [LAB, "full", "--quick", "--seconds", "4", "--weir", PROGRAM, "--out", tmp_path, "--rows", ",".join(ROWS)]
    command += ["--subjects", "weir-epoll,direct"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = {row["name"]: row for row in json.loads((tmp_path / "result.json").read_text())["rows"]}
    assert rows.keys() == ROWS.keys()
    for name, subjects in ROWS.items():
        ran = [subject for subject in rows[name]["subjects"] if subject["left_out"] is None]
        assert sorted(subject["name"] for subject in ran) == subjects, name
        for run in (run for subject in ran for run in subject["runs"]):
            assert run["units"] > 0 and run["complaints"] == [], (name, run)
            assert run["logs"] and all((tmp_path / log).stat().st_size > 0 for log in run["logs"]), (name, run)
    assert "## The bars" in (tmp_path / "result.md").read_text()
