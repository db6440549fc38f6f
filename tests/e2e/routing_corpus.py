"""The statements of routing_corpus.txt with what they are, the database that they are meant for, and the query for its catalog."""

from pathlib import Path

import host

CORPUS = Path(__file__).parent / "routing_corpus.txt"
LISTS = ("ddl", "readers", "primary only", "operators")
ROUTING = host.REPOSITORY / "crates/sql/src/routing"
QUERY = host.REPOSITORY / "crates/session/src/routing_catalog.sql"
# As in routing_catalog.rs.
MAX_BYTES, MAX_READER_BYTES = 160_000, 60_000


class Corpus:
    """`lists` by their names, and `cases`: group, class and text of each statement."""

    def __init__(self):
        self.lists = {name: [] for name in LISTS}
        self.cases = []
        section = None
        for line in CORPUS.read_text().splitlines():
            if line.startswith("[") and line.endswith("]"):
                section = line[1:-1]
            elif section in LISTS and line:
                self.lists[section].append(line)
            elif line and not line.startswith("#"):
                kind, text = line.split(" ", 1)
                self.cases.append((section, kind, text.replace("\u2424", "\n")))

    @property
    def ddl(self):
        return "\n".join(self.lists["ddl"])


def query(max_bytes=MAX_BYTES):
    """The text that routing_catalog.rs makes."""

    def array(name):
        return "'{" + ",".join((ROUTING / name).read_text().split()) + "}'::pg_catalog.text[]"

    lines = [line.strip() for line in QUERY.read_text().splitlines() if not line.lstrip().startswith("--")]
    text = " ".join(lines).replace("{PRIMARY_ONLY}", array("primary_only.txt")).replace("{REPLICATED}", array("replicated.txt"))
    return text.replace("{BYTES}", str(max_bytes)).replace("{READER_BYTES}", str(MAX_READER_BYTES))


def names(rows):
    """The answer to it, by kind: readers `r`, primary only `p`, operators `o`; and what else there is."""

    def decoded(name):
        return bytes.fromhex(name[1:]).decode() if name.startswith("=") else name

    found = {}
    for kind, names in rows:
        found.setdefault(kind, []).extend(decoded(name) for name in names.split(",") if name)
    return {kind: sorted(names) for kind, names in found.items()}
