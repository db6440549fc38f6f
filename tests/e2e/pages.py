"""The Markdown pages of the repository: their headings, the anchors that these get, and where their links lead. Reads files, and never a network."""

import posixpath
import re
import subprocess

from proofs import ROOT

FENCED = re.compile(r"^(```+|~~~+).*?^\1[ \t]*$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"(?<!`)(`+)(?!`).+?(?<!`)\1(?!`)", re.DOTALL)
LINK = re.compile(r"!?\[(?:[^\[\]]|\[[^\]]*\])*\]\(([^()\s]*(?:\([^()\s]*\)[^()\s]*)*)(?:\s+\"[^\"]*\")?\)")
DEFINITION = re.compile(r"^ {0,3}\[[^\]]+\]:[ \t]*(\S+)", re.MULTILINE)
HEADING = re.compile(r"^ {0,3}#{1,6}[ \t]+(.+?)[ \t]*#*[ \t]*$", re.MULTILINE)
HTML_ANCHOR = re.compile(r"<a\s[^>]*\b(?:id|name)=\"([^\"]+)\"")


def all_pages():
    """Paths of every Markdown file, those that git does not ignore."""
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True)
    return sorted(path for path in listed.stdout.split("\n") if path and (ROOT / path).exists())


def slug(heading):
    """The anchor of a heading, as GitHub and mdBook make it."""
    text = re.sub(r"!?\[((?:[^\[\]]|\[[^\]]*\])*)\]\([^)]*\)", r"\1", heading)
    return re.sub(r"[^\w\- ]", "", text.strip().lower()).replace(" ", "-")


def anchors(text):
    """Every anchor of a page; a heading that is there again has its number."""
    found, counts = set(HTML_ANCHOR.findall(text)), {}
    for heading in HEADING.findall(FENCED.sub("", text)):
        name = slug(heading)
        counts[name] = counts.get(name, -1) + 1
        found.add(f"{name}-{counts[name]}" if counts[name] else name)
    return found


def links(text):
    """Targets of a page's links, those in code left out."""
    prose = CODE.sub("", FENCED.sub("", text))
    return LINK.findall(prose) + DEFINITION.findall(prose)


def broken_links(path, text, read):
    """Links of a page that lead to no file of the repository, or to no anchor of its page, as sentences. `read(path)` is the text of a
    file, None where there is none, and "" for what is no page."""
    faults = []
    for target in links(text):
        if re.match(r"[a-z][a-z0-9+.-]*:", target):
            continue
        file, _, anchor = target.partition("#")
        goal = posixpath.normpath(posixpath.join(posixpath.dirname(path), file)) if file else path
        there = read(goal)
        if there is None:
            faults.append(f"{path}: {target}: there is no {goal}")
        elif anchor and anchor not in anchors(there):
            faults.append(f"{path}: {target}: {goal} has no such heading")
    return faults


def read(path):
    file = ROOT / path
    if path.startswith("..") or not file.exists():
        return None
    return file.read_text() if file.suffix == ".md" else ""
