"""Pages that name the tests of what they promise: those tests exist."""

import pytest

import proofs

pytestmark = pytest.mark.weir_only


@pytest.fixture(scope="module")
def existing():
    return proofs.end_to_end() | proofs.rust()


@pytest.mark.parametrize("page", proofs.pages(), ids=lambda page: page.stem)
def test_every_test_that_a_page_names_exists(page, existing):
    assert sorted(proofs.named(page) - existing) == []


@pytest.mark.parametrize("page", proofs.pages(), ids=lambda page: page.stem)
def test_every_promise_names_its_test_or_says_that_there_is_none(page):
    assert proofs.unproven(page) == []
