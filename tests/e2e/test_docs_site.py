"""`make docs`: every page is in the site, its links lead to pages and headings of the site, and its search finds them. No other site is needed."""

import os
import re
import subprocess
from html.parser import HTMLParser
from urllib.parse import unquote, urldefrag, urljoin

import pytest

import pages
from proofs import ROOT

pytestmark = pytest.mark.weir_only
MDBOOK = ROOT / "target/dist-tools/bin/mdbook"


class Page(HTMLParser):
    """Identifiers of a page, where its links lead, and what it loads."""

    def __init__(self, text):
        super().__init__()
        self.ids, self.links, self.loads = set(), [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        if "id" in given:
            self.ids.add(given["id"])
        if tag == "a" and given.get("href"):
            self.links.append(given["href"])
        if given.get("src"):
            self.loads.append(given["src"])
        if tag == "link" and given.get("href"):
            self.loads.append(given["href"])


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    if not MDBOOK.exists():
        pytest.skip("mdBook is not here; scripts/prepare-tests says why")
    directory = tmp_path_factory.mktemp("site")
    done = subprocess.run([MDBOOK, "build", "--dest-dir", directory], cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "WARN" not in done.stderr and "ERROR" not in done.stderr, done.stderr
    return directory


@pytest.fixture(scope="module")
def html(site):
    """Pages of the site by their paths, those left out that repeat others (for printing) or are for the server (404)."""
    files = {str(path.relative_to(site)): Page(path.read_text()) for path in site.rglob("*.html")}
    return {path: page for path, page in files.items() if path not in ("print.html", "404.html", "toc.html")}


def test_every_page_of_the_index_is_in_the_site(site, html):
    expected = set()
    for target in pages.links(pages.read("docs/SUMMARY.md")):
        path = target.removeprefix("../")
        expected.add(re.sub(r"README\.md$", "index.md", path).removesuffix(".md") + ".html")
    assert set(html) == expected
    assert "Weir is a connection pooler for PostgreSQL" in (site / "index.html").read_text()


def test_links_between_pages_of_the_repository_are_links_of_the_site(html):
    """A page beside docs/ and one in it find each other, and what is no page is none."""
    assert {"moving-from-pgbouncer.html", "ARCHITECTURE.html", "pool-sizing.html"} <= set(html["index.html"].links)
    assert "pictures/panel.png" in html["index.html"].loads
    assert "../ARCHITECTURE.html" in html["decisions/index.html"].links
    assert "index.html" in html["install.html"].links and "SECURITY.html" in html["security.html"].links
    # As many as there are in the sources, those to other files left out.
    sources = [target for target in pages.links(pages.read("README.md")) if re.match(r"[^:#]+\.md", target) and "SUMMARY" not in target]
    assert len(sources) > 30
    from_readme = [link for link in html["index.html"].links if ".html" in link]
    assert len(from_readme) >= len(sources)


def test_every_link_of_the_site_leads_to_a_page_and_a_heading(site, html):
    faults = []
    for path, page in html.items():
        for link in page.links:
            if re.match(r"[a-z]+:", link):
                continue
            target, anchor = urldefrag(urljoin(f"/{path}", link))
            target = unquote(target).lstrip("/") or "index.html"
            if target.endswith("/"):
                target += "index.html"
            if not (site / target).exists():
                faults.append(f"{path}: {link}: no such page")
            elif anchor and target in html and unquote(anchor) not in html[target].ids:
                faults.append(f"{path}: {link}: no such heading")
    assert faults == []


def test_pictures_and_scripts_are_the_sites_own(site, html):
    pictures = 0
    for path, page in html.items():
        for name in page.loads:
            assert not re.match(r"(?:[a-z]+:)?//", name), f"{path} loads {name}"
            assert (site / os.path.normpath(os.path.join(os.path.dirname(path), name.partition("?")[0]))).exists(), f"{path}: {name}"
            pictures += name.endswith((".png", ".svg")) and "pictures/" in name
    assert pictures >= 4


def test_the_search_index_has_the_words_of_all_pages(site):
    [index] = site.glob("searchindex*.js")
    text = index.read_text()
    for word in ("troubleshooting.html", "query_wait_timeout", "max_prepared_statements", "glossary.html"):
        assert word in text, word
