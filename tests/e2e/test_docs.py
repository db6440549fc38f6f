"""Pages in docs/: the tests that they name exist, and the counts that they repeat are those of the file."""

import re
import tomllib

import pytest

import proofs

pytestmark = pytest.mark.weir_only
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
    file = tomllib.loads((proofs.ROOT / "bench/instructions.toml").read_text())
    counts = {name: count for name, count in file.items() if isinstance(count, int)}
    page = COUNT.findall((proofs.ROOT / "docs/performance.md").read_text())
    assert {name: int(count.replace(",", "")) for name, count in page} == counts
