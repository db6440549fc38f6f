"""Pages in docs/: the tests that they name exist, and the counts that they repeat are those of the file."""

import re
import tomllib

import pytest

import proofs

pytestmark = pytest.mark.weir_only
INVARIANT = re.compile(r"\bI(\d+)\b")
COUNT = re.compile(r"^\| `(\w+)`: .* \| ([\d,]+)(?: \([^|]*\))? \|$", re.MULTILINE)


@pytest.fixture(scope="module")
def existing():
    return proofs.end_to_end() | proofs.rust()


@pytest.mark.parametrize("page", proofs.pages(), ids=lambda page: page.stem)
def test_every_test_that_a_page_names_exists(page, existing):
    assert sorted(proofs.named(page) - existing) == []


@pytest.mark.parametrize("page", proofs.pages(), ids=lambda page: page.stem)
def test_every_promise_names_its_test_or_says_that_there_is_none(page):
    assert proofs.unproven(page) == []


def test_the_instruction_counts_of_the_performance_page_are_those_of_the_file():
    file = tomllib.loads((proofs.ROOT / "crates/instructions/instructions.toml").read_text())
    counts = {name: count for name, count in file.items() if isinstance(count, int)}
    page = COUNT.findall((proofs.ROOT / "docs/performance.md").read_text())
    assert {name: int(count.replace(",", "")) for name, count in page} == counts


def test_every_test_with_a_second_try_exists_and_has_a_reason():
    listed = tomllib.loads((proofs.TESTS / "second_tries.toml").read_text())
    assert sorted(listed.keys() - proofs.end_to_end()) == []
    assert all(len(reason.split()) > 3 for reason in listed.values())


def test_invariants_are_cited_by_the_numbers_of_the_table():
    """In the simulator's violations and comments, and in tests."""
    table = re.findall(r"^\| (I\d+) \|", (proofs.ROOT / "ARCHITECTURE.md").read_text(), re.MULTILINE)
    assert table == [f"I{number}" for number in range(1, 24)]
    violations, cited = set(), set()
    for path in (proofs.ROOT / "crates/sim/src").rglob("*.rs"):
        if path.name != "table.rs":
            violations |= set(re.findall(r'\bobject\(\s*"(\w+)"', path.read_text()))
            cited |= {found[0] for found in INVARIANT.finditer(path.read_text())}
    for path in [*proofs.TESTS.glob("*.py"), *(proofs.ROOT / "crates").rglob("probe.rs")]:
        cited |= set(re.findall(r"\b(I\d+) of ARCHITECTURE\.md", path.read_text()))
    assert violations - set(table) <= {"contract", "unfair"}
    assert cited <= set(table)
