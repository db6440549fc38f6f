"""docs/reliability.md names tests that are there."""

import re
from pathlib import Path

import host

PAGE = (host.REPOSITORY / "docs/reliability.md").read_text()


def test_every_test_that_it_names_is_there():
    named = set(re.findall(r"`([a-z_0-9]+)::([a-z_0-9]+)`", PAGE))
    assert named
    here = Path(__file__).parent
    missing = []
    for file, test in sorted(named):
        path = here / f"test_{file}.py"
        if not path.exists() or f"def test_{test}(" not in path.read_text():
            missing.append(f"{file}::{test}")
    assert not missing, missing
