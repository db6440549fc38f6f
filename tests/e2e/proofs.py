"""Tests by the names that pages and proofs.toml give them: which there are, which did not pass, which a page in docs/ names.

`FILE::NAME` is tests/e2e/test_FILE.py::test_NAME. `crate::module::NAME` is a Rust test: by its path in the crate's src or tests, without
`mod` and `tests`. A table whose last column is called `test` has one or more in each row, or says "no test yet"."""

import ast
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TESTS = ROOT / "tests/e2e"
REPORT = ROOT / "target/e2e.xml"
NAME = re.compile(r"`([a-z0-9_]+(?:::[a-z0-9_]+)+)`")
RUST_TEST = re.compile(r"#\[test\]\s*(?:#\[[^\]]*\]\s*)*fn (\w+)")
NONE_YET = "no test yet"


def end_to_end():
    """Every test of tests/e2e, as FILE::NAME."""
    names = set()
    for path in TESTS.glob("test_*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                names.add(f"{path.stem.removeprefix('test_')}::{node.name.removeprefix('test_')}")
    return names


def rust():
    """Every Rust test, as crate::module::NAME."""
    names = set()
    crates = {path.name: path for path in (ROOT / "crates").iterdir()} | {"weir": ROOT, "xtask": ROOT / "xtask"}
    for crate, home in crates.items():
        for folder in ("src", "tests") if home != ROOT else ("src",):
            for path in (home / folder).rglob("*.rs"):
                parts = path.relative_to(home / folder).with_suffix("").parts
                modules = [part for part in parts if part not in ("lib", "main", "mod", "tests", "in_memory")]
                names |= {"::".join([crate, *modules, name]) for name in RUST_TEST.findall(path.read_text())}
    return names


def not_passed():
    """End-to-end tests of the last run that have a case that did not pass, as FILE::NAME."""
    if not REPORT.exists():
        return set()
    bad = set()
    for case in ElementTree.parse(REPORT).iter("testcase"):
        if any(case.find(word) is not None for word in ("skipped", "failure", "error")):
            file = case.get("classname").rsplit(".", 1)[-1].removeprefix("test_")
            bad.add(f"{file}::{case.get('name').split('[')[0].removeprefix('test_')}")
    return bad


def pages():
    return sorted((ROOT / "docs").glob("*.md"))


def named(page):
    """The tests that a page names."""
    return set(NAME.findall(page.read_text()))


def unproven(page):
    """Rows of a page's tables with a column `test` that name none and do not say so."""
    rows, has_tests = [], False
    for line in page.read_text().splitlines():
        if not line.startswith("|"):
            has_tests = False
            continue
        last = line.rstrip(" |").rpartition("|")[2].strip()
        if last == "test":
            has_tests = True
        elif has_tests and set(line) - set("|-: ") and NONE_YET not in last and not NAME.search(last):
            rows.append(line)
    return rows
