"""Why files of PostgreSQL's regression suites do not pass through a pooler in transaction mode: what they need of one server process over
the end of a transaction. Owns the guess from the difference of the outputs, the ranking, and docs/regression-suites.md."""

import re
import tomllib
from collections import Counter
from pathlib import Path

OWN = Path(__file__).parents[1] / "regression-causes.toml"

TEMPORARY = "temporary tables"
SETTINGS = "SET"
IDENTITY = "SET ROLE, SET SESSION AUTHORIZATION"
PREPARED = "SQL PREPARE"
UNNAMED = "the unnamed statement, prepared and used in two requests"
CURSORS = "cursors WITH HOLD"
LISTENING = "LISTEN"
LOCKS = "session advisory locks"
SEQUENCES = "currval, lastval"
LOADED = "LOAD"
BACKEND = "identity of the backend (PID, statistics)"
OTHER = "other"
CRASH = "the pooler ended, or reported an internal error (out/*/pooler.log)"

SEARCH_PATH = "search_path"  # a name that is not found, if it is no temporary one

STATEMENT = r"(?:^|[{;])\s*"  # of a script or of a step of a specification
# What a file uses, by its text.
USES = {
    TEMPORARY: r"\bcreate\s+(?:or\s+replace\s+)?(?:local\s+|global\s+)?temp(?:orary)?\b|\binto\s+temp(?:orary)?\b|pg_temp",
    SETTINGS: STATEMENT + r"(?:set\s+(?:session\s+(?!authorization|characteristics))?(?!local|role|session|constraints|transaction)\w|reset\s+(?!role|session))"
    r"|set_config\([^;]*false\s*\)|set\s+session\s+characteristics",
    IDENTITY: STATEMENT + r"set\s+(?:session\s+)?role\b|" + STATEMENT + r"(?:set\s+session\s+authorization|reset\s+(?:role|session))",
    PREPARED: STATEMENT + r"prepare\s+(?!transaction)\w|\\parse|\\bind_named",
    UNNAMED: r"\\gdesc|\\parse",
    CURSORS: r"\bwith\s+hold\b",
    LISTENING: STATEMENT + r"listen\b",
    LOCKS: r"pg_(?:try_)?advisory_(?:un)?lock",
    SEQUENCES: r"\b(?:currval|lastval)\s*\(",
    LOADED: STATEMENT + r"load\s+",
    BACKEND: r"pg_backend_pid|pg_stat_force_next_flush|pg_stat_get_backend|pg_stat_clear_snapshot",
}
# What an added or missing line of the output says. The first one that fits counts, if the file uses it.
SAYS = [
    (SETTINGS, r"^\+(?:psql:\S+ )?(?:NOTICE:  .* does not exist, skipping|WARNING:  wal_level is insufficient)"),  # client_min_messages
    (SETTINGS, r"stack depth limit exceeded"),  # max_stack_depth
    (UNNAMED, r"unnamed prepared statement does not exist"),
    (PREPARED, r'prepared statement "[^"]*" (?:does not exist|already exists)'),
    (CURSORS, r'cursor "[^"]*" (?:does not exist|already exists)'),
    (SEQUENCES, r"is not yet defined in this session"),
    (LISTENING, r"Asynchronous notification"),
    (LOCKS, r"advisory|you don't own a lock"),
    (IDENTITY, r"permission denied|must be (?:owner|superuser|member|able)|row-level security|only superuser|current_user|session_user"),
    (TEMPORARY, r'(?:relation|table|view|sequence|type|schema|function|index) "?[^"]*"? (?:does not exist|already exists)|pg_temp'),
    (LOADED, r"could not access file|unrecognized configuration parameter"),
]
GUESSES = (LOCKS, SETTINGS, IDENTITY, TEMPORARY, SEQUENCES, PREPARED, BACKEND)
ERROR = re.compile(r"(?:ERROR|NOTICE|WARNING|FATAL): ")


def uses(script):
    found = {cause for cause, pattern in USES.items() if re.search(pattern, script, re.I | re.M)}
    if re.search(STATEMENT + r"set\s+(?:session\s+)?search_path|set_config\('search_path'", script, re.I | re.M):
        found.add(SEARCH_PATH)
    return found


def temporary_names(script):
    pattern = r"\btemp(?:orary)?\s+(?:table|view|sequence|recursive\s+view)?\s*(?:if\s+not\s+exists\s+)?\"?(\w+)|into\s+temp\w*\s+(?:table\s+)?(\w+)"
    return {name.lower() for pair in re.findall(pattern, script, re.I) for name in pair if name}


def of_line(line, used, temporary):
    """What a differing line tells, or None."""
    for cause, pattern in SAYS:
        if not re.search(pattern, line):
            continue
        if cause == TEMPORARY:
            named = re.search(r'"(?:\w+\.)?(\w+)"', line)
            # Its own name, or that of an index or a type of it.
            known = named and any(named[1].lower() == name or named[1].lower().startswith(f"{name}_") for name in temporary)
            if not known and "pg_temp" not in line:
                continue
        if cause in used:
            return cause
    if SEARCH_PATH in used and re.search(r"ERROR:  .* does not exist", line):
        return SETTINGS
    return None


def blocks(difference):
    """The changed lines that stand together."""
    block = []
    for line in [*difference.splitlines()[2:], " "]:
        if line[:1] in ("+", "-"):
            block.append(line)
        elif block:
            yield block
            block = []


def of_file(script, difference):
    """The causes in the order in which the output shows them, the first difference first."""
    used, temporary = uses(script), temporary_names(script)
    found = []
    for block in blocks(difference):
        causes = [cause for line in block if (cause := of_line(line, used, temporary))]
        if not causes and not found and not any(ERROR.search(line) for line in block):
            # Other rows, another plan or another form of a value, before any error that could be the reason.
            causes = [guess for guess in GUESSES if guess in used][:1]
        found += causes
    return list(dict.fromkeys(found)) or [cause for cause in USES if cause in used][:2] or [OTHER]


def of_run(results, scripts, out):
    """Route to file to causes, of the files that pass directly and not there."""
    direct = results["outcomes"]["direct"]
    causes = {}
    for route, outcomes in results["outcomes"].items():
        if route == "direct":
            continue
        own = _own(results, route)
        place = out / f"{results['label']}-{route}"
        causes[route] = {}
        for file, outcome in outcomes.items():
            if outcome == "pass" or direct.get(file) != "pass":
                continue
            if outcome == "crash":
                causes[route][file] = [CRASH]
            elif file in own:
                causes[route][file] = own[file]
            else:
                causes[route][file] = of_file(scripts[file], (place / f"{file}.diff").read_text(errors="replace"))
    return causes


def _own(results, route):
    """Corrections from reading the differences, file to list. Those of a suite are what shuffling shows, those of a kind of run are Weir's."""
    tables = tomllib.loads(OWN.read_text())
    follows = route == "weir" and "session_state=off" not in results["settings"]
    of_suite = tables.get(f"{results['suite']}-virtual" if follows else results["suite"], {}) if results["shuffle"] else {}
    return {**of_suite, **(tables.get(results["label"], {}) if route == "weir" else {})}


def table(by_file):
    """(cause, files with it, files with it alone, files where it comes first), most files first."""
    anywhere = Counter(cause for causes in by_file.values() for cause in causes)
    alone = Counter(causes[0] for causes in by_file.values() if len(causes) == 1)
    first = Counter(causes[0] for causes in by_file.values())
    return [(cause, count, alone[cause], first[cause]) for cause, count in anywhere.most_common()]


def failing_directly(results):
    return [file for file, outcome in results["outcomes"]["direct"].items() if outcome != "pass"]


def figures(results):
    """(route, files that pass, files it has run) without those that fail directly, which say nothing about a pooler."""
    direct = results["outcomes"]["direct"]
    for route, outcomes in results["outcomes"].items():
        counted = [outcome for file, outcome in outcomes.items() if direct.get(file) == "pass"]
        yield route, sum(outcome == "pass" for outcome in counted), len(counted)


def summary(results, causes):
    """What a run prints at its end: the figures, and each file that differs in one line."""
    lines = [""]
    excluded = failing_directly(results)
    for route, by_file in causes.items():
        lines += [f"{route}: files that pass directly and not there; their causes by their texts, and the first line that differs"]
        for file, names in by_file.items():
            shown = (results["first_difference"][route].get(file) or ["no output differs"])[0]
            lines.append(f"  {file} ({results['outcomes'][route][file]}): {'; '.join(names)} | {shown}")
        lines.append(f"{route}: cause: files, the only cause, the first difference")
        lines += [f"  {cause}: {count}, {alone}, {first}" for cause, count, alone, first in table(by_file)]
    lines += ["", f"{'PostgreSQL ' + results['version'] + ', ' + results['label']:<40}{'passed':>8}{'of':>6}"]
    direct = results["outcomes"]["direct"]
    lines.append(f"{'direct':<40}{len(direct) - len(excluded):>8}{len(direct):>6}")
    for route, passed, counted in figures(results):
        if route != "direct":
            lines.append(f"{route:<40}{passed:>8}{counted:>6}")
    if excluded:
        lines.append(f"excluded, as they fail directly: {' '.join(excluded)}")
    return lines


# --- the page -------------------------------------------------------------------------------------------------
OUTCOMES = {"pass": "pass", "fail": "–", "time": "hangs", "crash": "ends the pooler"}


def section(results, causes):
    routes = list(results["outcomes"])
    direct = results["outcomes"]["direct"]
    excluded = failing_directly(results)
    shuffled = "another server connection for each transaction" if results["shuffle"] else "without server_shuffle"
    together = "the files of a line of the schedule at the same time" if results["parallel"] else "one file after another"
    words = [word for flag, word in ((results["parallel"], " --parallel"), (not results["shuffle"], " --no-shuffle")) if flag]
    words += [f" --setting {setting}" for setting in results["settings"]]
    words += [f" --{route}" for route in routes if routes[1:] != ["weir"] and route != "direct"]
    lines = [f"## {results['suite']}, PostgreSQL {results['version']}{_with(results)}", ""]
    command = f"scripts/pg-regress --version {results['version'].partition('.')[0]} --suite {results['suite']}{''.join(words)}"
    lines += [f"`{command}`: transaction mode, {results['pool_size']} server connections, {shuffled}, {together}.", ""]
    lines += ["| | files that pass | of |", "|---|---|---|"]
    lines.append(f"| directly | {len(direct) - len(excluded)} | {len(direct)} |")
    for route, passed, counted in figures(results):
        if route != "direct":
            version = re.findall(r"\w+ \d[\d.]*", results["poolers"][route])[-1]  # Weir names the PgBouncer it replaces first
            lines.append(f"| {version} | {passed} | {counted} |")
    lines.append("")
    if excluded:
        lines += [f"Excluded, as they do not pass directly: {', '.join(f'`{file}`' for file in excluded)}.", ""]
    if "weir" in causes:
        lines += ["| cause | files | the only cause | the first difference |", "|---|---|---|---|"]
        lines += [f"| {cause} | {count} | {alone} | {first} |" for cause, count, alone, first in table(causes["weir"])]
        lines.append("")
    differing = [file for file in direct if any(file in by_file for by_file in causes.values())]
    if differing:
        lines += [f"| file | {' | '.join(map(_title, routes[1:]))} | why |", f"|{'---|' * (len(routes) + 1)}"]
        for file in differing:
            why = next((causes[route][file] for route in routes if file in causes.get(route, {})), [""])
            outcomes = " | ".join(OUTCOMES[results["outcomes"][route][file]] for route in routes[1:])
            lines.append(f"| `{file}` | {outcomes} | {'; '.join(why)} |")
        lines.append("")
    lines += ["Pass everywhere:", ""]
    return lines + _wrapped([file for file in direct if file not in differing and file not in excluded])


def _with(results):
    words = [*(["parallel"] if results["parallel"] else []), *([] if results["shuffle"] else ["not shuffled"]), *results["settings"]]
    return f", {', '.join(words)}" if words else ""


def _title(route):
    return {"weir": "Weir", "pgbouncer": "PgBouncer"}[route]


def _wrapped(words, width=140):
    lines, line = [], ""
    for word in words:
        if line and len(line) + len(word) + 2 > width:
            lines.append(line)
            line = ""
        line += f"{word}, "
    return [*(text.rstrip() for text in lines), line.rstrip(", ") + "."] if words else []


def write_page(page, results, causes):
    """Replaces the section of this kind of run between its marks, if the page has them."""
    begin, end = f"<!-- {results['label']} -->", f"<!-- /{results['label']} -->"
    text = page.read_text()
    if begin not in text:
        return False
    head, _, rest = text.partition(begin)
    _, _, tail = rest.partition(end)
    page.write_text("\n".join([head + begin, *section(results, causes), end + tail]))
    return True
