"""The causes that scripts/pg-regress names for a file that differs, and its page. Neither a pooler nor a server takes part."""

import pytest

import regression_causes

pytestmark = pytest.mark.weir_only

CASES = {
    "temporary": ("create temp table t (a int);\ninsert into t values (1);", '+ERROR:  relation "t" does not exist', "temporary tables"),
    "settings": ("set enable_seqscan = off;\nexplain select 1;", "- Index Scan using i on t", "SET"),
    "prepared": ("prepare p as select 1;\nexecute p;", '+ERROR:  prepared statement "p" does not exist', "SQL PREPARE"),
    "held": ("declare c cursor with hold for select 1;", '+ERROR:  cursor "c" does not exist', "cursors WITH HOLD"),
    "block": ("set a = 1;\ncreate temp view v as select 1;", '- one\n+ERROR:  relation "v" does not exist', "temporary tables"),
    "messages": ("set client_min_messages = error;\ncreate temp table t ();", '+NOTICE:  role "r" does not exist, skipping', "SET"),
    "unknown": ("select 1;", "-1", "other"),
}


@pytest.mark.parametrize("script, line, cause", CASES.values(), ids=CASES)
def test_the_first_difference_has_its_cause(script, line, cause):
    assert regression_causes.of_file(script, f"--- expected\n+++ result\n{line}\n")[0] == cause


def results(weir):
    return {
        "label": "15-core", "version": "15.0", "suite": "core", "pool_size": 5, "shuffle": True, "parallel": False, "settings": [],
        "poolers": {"weir": "PgBouncer 1.25.2 (Weir 0.1.0)"},
        "outcomes": {"direct": {"a": "pass", "b": "pass", "c": "fail"}, "weir": weir},
        "first_difference": {"direct": {}, "weir": {"b": ["-1"]}},
    }


def test_files_that_fail_directly_do_not_count():
    kept = results({"a": "pass", "b": "fail", "c": "pass"})
    assert list(regression_causes.figures(kept)) == [("direct", 2, 2), ("weir", 1, 2)]
    assert regression_causes.summary(kept, {"weir": {"b": ["SET"]}})[-1] == "excluded, as they fail directly: c"


def test_a_page_gets_only_the_sections_that_it_has_marks_for(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- 15-core -->\nold\n<!-- /15-core -->\nbehind\n")
    kept = results({"a": "pass", "b": "crash", "c": "pass"})
    assert regression_causes.write_page(page, kept, {"weir": {"b": ["SET"]}})
    text = page.read_text()
    assert "old" not in text and text.startswith("before\n") and text.endswith("behind\n") and "| Weir 0.1.0 | 1 | 2 |" in text and "| `b` | ends the pooler | SET |" in text
    assert not regression_causes.write_page(page, {**kept, "label": "18-core"}, {"weir": {}}) and page.read_text() == text


def test_what_was_read_of_sessions_that_are_followed_counts_for_no_other_run(tmp_path, monkeypatch):
    own = tmp_path / "own.toml"
    own.write_text('[core]\nb = ["temporary tables"]\n[core-virtual]\nb = ["setseed"]\n[15-core-parallel]\nb = ["LOAD"]\n')
    monkeypatch.setattr(regression_causes, "OWN", own)
    kept = results({"a": "pass", "b": "fail", "c": "pass"})
    kept["outcomes"]["pgbouncer"] = kept["outcomes"]["weir"]

    def why(**changes):
        return {route: causes["b"] for route, causes in regression_causes.of_run({**kept, **changes}, {}, tmp_path).items()}

    assert why() == {"weir": ["setseed"], "pgbouncer": ["temporary tables"]}
    assert why(label="15-core-parallel")["weir"] == ["LOAD"]
    assert why(settings=["session_state=off"])["weir"] == ["temporary tables"]
