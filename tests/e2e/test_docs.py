"""Pages of the documentation: the tests that they name exist, their links lead somewhere, and the counts that they repeat are those of the file."""

import datetime
import re
import subprocess
import tomllib

import pytest

import pages
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


@pytest.mark.parametrize("page", pages.all_pages())
def test_every_link_leads_to_a_file_and_a_heading(page):
    assert pages.broken_links(page, pages.read(page), pages.read) == []


def test_links_that_lead_nowhere_are_found():
    files = {"docs/b.md": "# The one\n## The *one*\n### `x_y` & z\n```\n# no\n```\n[own](#the-one-1)", "docs/c.ini": ""}
    page = "[1](b.md) [2](b.md#the-one) [3](b.md#the-one-1) [4](b.md#x_y--z) [5](c.ini) [6](https://x/y) `[no](z)` [`in code`](b.md)\n"
    assert pages.broken_links("docs/a.md", page, files.get) == []
    assert pages.broken_links("docs/b.md", files["docs/b.md"], files.get) == []
    for bad in ("[a](z.md)", "[`a`](b.md#no)", "[a](b.md#the-one-2)", "![a](../b.md)", "[a](#the-one)", "[a]: z.md"):
        assert len(pages.broken_links("docs/a.md", bad, files.get)) == 1, bad


def test_every_page_is_in_the_index():
    """docs/SUMMARY.md: what is not in it is in no site."""
    listed = [target for target in pages.links(pages.read("docs/SUMMARY.md"))]
    assert len(listed) == len(set(listed))
    assert {f"docs/{target}" for target in listed if not target.startswith("../")} == {
        page for page in pages.all_pages() if page.startswith("docs/") and page != "docs/SUMMARY.md"
    }


def test_the_instruction_counts_of_the_performance_page_are_those_of_the_file():
    file = tomllib.loads((proofs.ROOT / "crates/instructions/instructions.toml").read_text())
    counts = {name: count for name, count in file.items() if isinstance(count, int)}
    page = COUNT.findall((proofs.ROOT / "docs/performance.md").read_text())
    assert {name: int(count.replace(",", "")) for name, count in page} == counts


def test_the_picture_of_speed_is_that_of_the_readmes_table():
    subprocess.run([proofs.ROOT / "scripts/speed-picture", "--check"], check=True)


def test_every_test_with_a_second_try_exists_and_has_a_reason():
    listed = tomllib.loads((proofs.TESTS / "second_tries.toml").read_text())
    tests = proofs.end_to_end()
    assert sorted(listed.keys() - tests - {f"{test.partition('::')[0]}::*" for test in tests}) == []
    # One that is named beside its file is an exception.
    assert all((reason is False) == (f"{test.partition('::')[0]}::*" in listed) for test, reason in listed.items() if test in tests)
    assert all(len(reason.split()) > 3 for reason in listed.values() if reason is not False)


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


def test_the_version_is_a_release_with_a_date():
    version = tomllib.loads((proofs.ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]
    headings = re.findall(r"^## (.*)$", (proofs.ROOT / "CHANGELOG.md").read_text(), re.M)
    releases = dict(heading.split(" - ") for heading in headings if heading != "Unreleased")
    assert version in releases, headings
    dates = [datetime.date.fromisoformat(date) for date in releases.values()]
    assert dates == sorted(dates, reverse=True), "newest first"
