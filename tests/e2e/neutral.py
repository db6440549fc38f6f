"""Takes one setting out of all that a test gives the pooler, so that it has its default: a proof of the setting must fail then.

`WEIR_NEUTRAL="[pgbouncer] query_timeout"` names it, `[databases] pool_size` and `[users] pool_size` a key of entries. It is taken
out of every ini that a test writes, and SET of it on the console does nothing. `scripts/prove` runs the proofs so. The pooler itself
knows nothing of this."""

import os
import re
from pathlib import Path

SECTION = re.compile(r"\s*\[(\w+)\]\s*$")


def chosen():
    """(section, setting) that is to have no effect, or None."""
    words = os.environ.get("WEIR_NEUTRAL", "").split()
    return (words[0].strip("[]"), words[1]) if len(words) == 2 else None


def without(text, section, name, first="pgbouncer"):
    """An ini without a setting. An included file may begin inside a section: `first` is that one."""
    lines, current = [], first
    for line in text.splitlines(keepends=True):
        if found := SECTION.match(line):
            current = found[1]
        elif current == section and section == "pgbouncer":
            if re.match(rf"\s*{name}\s*=", line):
                continue
        elif current == section:
            key, equals, value = line.partition("=")
            line = key + equals + re.sub(rf"(^|(?<=\s)){name}\s*=\s*('(?:[^']|'')*'|\S+)", "", value)
        lines.append(line)
    return "".join(lines)


def install(pooler_class):
    """Has every ini that is written, and every SET on the console, go without the chosen setting."""
    if not (setting := chosen()):
        return
    section, name = setting
    write_text, console = Path.write_text, pooler_class.console

    def write(path, text, *rest, **options):
        if path.suffix == ".ini" or "[pgbouncer]" in text or "[databases]" in text:
            text = without(text, section, name)
        return write_text(path, text, *rest, **options)

    def ask(pooler, command, *rest, **options):
        if section == "pgbouncer" and re.match(rf"\s*SET\s+{name}\b", command, re.IGNORECASE):
            return "SET"
        return console(pooler, command, *rest, **options)

    Path.write_text, pooler_class.console = write, ask
