//! Whether a query may change its session without the command tag of the answer showing it: by functions that it calls, by
//! EXECUTE, or by SELECT INTO a temporary table.
//!
//! Owns the answer by the text's tokens; the quick one, for texts that plainly call nothing, is `plain`'s. In doubt the answer is yes.

use crate::lexer::{Kind, Lexer, Token};
use crate::plain::{has_into, names_settings, plainly_hides_nothing};
use crate::settings_set::{SettingsSet, settings_set};
use crate::statement::{Command, is_word, name_of};
use crate::{Backslash, Changes, SetCommand, Statement, statements};

/// What PostgreSQL's command tag does not show. Triggers are not among it: no text shows them.
const HIDDEN: Changes = Changes::SETTINGS
    .and(Changes::PREPARED)
    .and(Changes::CURSORS)
    .and(Changes::TEMPORARY)
    .and(Changes::LOCKS)
    .and(Changes::CHANNELS)
    .and(Changes::LIBRARIES)
    .and(Changes::FUNCTIONS)
    .and(Changes::ANYTHING);

/// What running a query string may change in its session without the command tag of the answer showing what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HiddenEffect {
    /// Nothing, or a command tag shows it.
    None,
    /// Settings, to values that stand in the text, are bound, or are what the session began with.
    Settings,
    /// Advisory locks of the session.
    Locks,
    /// Anything.
    Anything,
}

impl HiddenEffect {
    /// What two statements together may change.
    #[must_use]
    fn and(self, other: HiddenEffect) -> HiddenEffect {
        match (self, other) {
            (HiddenEffect::None, effect) | (effect, HiddenEffect::None) => effect,
            (one, other) if one == other => one,
            _ => HiddenEffect::Anything,
        }
    }
}

/// What running this query string (up to a NUL, if it has one) may change unseen.
///
/// ```
/// use sql::{HiddenEffect, hidden_effect};
///
/// assert_eq!(hidden_effect(b"SELECT abalance FROM pgbench_accounts WHERE aid = 1"), HiddenEffect::None);
/// assert_eq!(hidden_effect(b"SELECT count(*) FROM t"), HiddenEffect::None);
/// assert_eq!(hidden_effect(b"SELECT set_config('a.b', 'c', false)"), HiddenEffect::Settings);
/// assert_eq!(hidden_effect(b"SELECT mine()"), HiddenEffect::Anything);
/// ```
#[inline]
#[must_use]
pub fn hidden_effect(text: &[u8]) -> HiddenEffect {
    if plainly_hides_nothing(text) { HiddenEffect::None } else { judged_effect(text).effect }
}

/// What was found in a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JudgedEffect {
    /// What it may change unseen.
    pub effect: HiddenEffect,
    /// It calls `nextval` or `setval`, or asks for what they have left and changes rows, whose defaults may call them.
    pub calls_nextval: bool,
    /// It asks for what `nextval` has left in the session, by `currval` or `lastval`.
    pub asks_for_values: bool,
    /// All texts of its [`crate::shape`] do the same: the values in it do not matter.
    pub is_of_shape: bool,
}

/// The same as [`hidden_effect`], by all of the text's tokens, and whether that can be remembered.
#[inline(never)]
#[must_use]
pub fn judged_effect(text: &[u8]) -> JudgedEffect {
    let text = text.split(|byte| *byte == 0).next().unwrap_or_default();
    let makes_table = has_into(text);
    let (mut calls_nextval, mut writes, mut asks_for_values) = (false, false, false);
    let mut effect = |backslash| {
        let found = statements(text, backslash);
        let effects = found.iter().map(|statement| {
            calls_nextval |= calls(statement, &["nextval", "setval"]);
            asks_for_values |= calls(statement, &["currval", "lastval"]);
            writes |= matches!(statement.command, Command::Modify | Command::Copy);
            effect_of(statement, makes_table)
        });
        effects.fold(HiddenEffect::None, HiddenEffect::and)
    };
    let literal = effect(Backslash::Literal);
    let found = if text.contains(&b'\\') { literal.and(effect(Backslash::Escape)) } else { literal };
    let found = if updates_settings(text) { HiddenEffect::Anything } else { found };
    // What ends with its transaction leaves nothing in the session.
    let is_local = found == HiddenEffect::Settings && settings_set(text) == SettingsSet::Local;
    JudgedEffect {
        effect: if is_local { HiddenEffect::None } else { found },
        calls_nextval: calls_nextval || asks_for_values && writes,
        asks_for_values,
        is_of_shape: found != HiddenEffect::Settings,
    }
}

/// It may update the view pg_settings, which sets parameters by a rule (PostgreSQL: System Views).
fn updates_settings(text: &[u8]) -> bool {
    let hides_names = || memchr::memchr_iter(b'&', text).any(|at| text.get(at + 1) == Some(&b'"'));
    if !names_settings(text) && !hides_names() {
        return false;
    }
    let text = String::from_utf8_lossy(text);
    [Backslash::Literal, Backslash::Escape].into_iter().any(|backslash| {
        let tokens: Vec<Token<'_>> = Lexer::reading(&text, backslash).collect();
        (0..tokens.len()).any(|at| updates_settings_at(&tokens[at..]))
    })
}

/// UPDATE or MERGE INTO, perhaps ONLY, perhaps with a parenthesis, and a name whose last part is that of the view, or is not shown.
fn updates_settings_at(tokens: &[Token<'_>]) -> bool {
    let behind = match tokens {
        [update, behind @ ..] if is_word(*update, "update") => behind,
        [merge, into, behind @ ..] if is_word(*merge, "merge") && is_word(*into, "into") => behind,
        _ => return false,
    };
    let mut name = match behind {
        [only, open, name @ ..] if is_word(*only, "only") && open.kind == Kind::Open => name,
        [only, name @ ..] if is_word(*only, "only") => name,
        name => name,
    };
    while let [_, dot, last @ ..] = name
        && dot.kind == Kind::Dot
    {
        name = last;
    }
    let is_settings = |token: &Token<'_>| {
        matches!(token.kind, Kind::Word | Kind::Quoted)
            && name_of(*token).is_none_or(|name| name.eq_ignore_ascii_case("pg_settings"))
    };
    name.first().is_some_and(is_settings)
}

/// It calls one of these functions of PostgreSQL.
fn calls(statement: &Statement, names: &[&str]) -> bool {
    let is_postgresqls = |schema: Option<&str>| schema.is_none_or(|schema| schema == "pg_catalog");
    statement.calls.iter().any(|call| names.contains(&&*call.name) && is_postgresqls(call.schema.as_deref()))
}

/// With `makes_table` the word INTO stands in the text: the table is a temporary one if search_path begins with pg_temp.
fn effect_of(statement: &Statement, makes_table: bool) -> HiddenEffect {
    match &statement.command {
        // The tag shows these, but for what they evaluate.
        Command::Begin { .. }
        | Command::Commit { .. }
        | Command::Rollback { .. }
        | Command::Savepoint(_)
        | Command::Release(_)
        | Command::RollbackTo(_)
        | Command::Show
        | Command::Empty => HiddenEffect::None,
        Command::Set(SetCommand::Other) => HiddenEffect::Anything,
        Command::Set(_) | Command::SetConfig(_) => HiddenEffect::Settings,
        // CREATE TABLE AS has the tag of SELECT.
        Command::Utility => HiddenEffect::Anything,
        Command::Select if makes_table => HiddenEffect::Anything,
        // Their tags show what they change besides what they call.
        Command::Listen(_)
        | Command::Unlisten(_)
        | Command::Prepare(..)
        | Command::Deallocate(_)
        | Command::Declare { .. }
        | Command::Close(_)
        | Command::Discard(_)
        | Command::Load => {
            let calls = statement.changes.any(Changes::FUNCTIONS.and(Changes::ANYTHING).and(Changes::LOCKS));
            if calls { HiddenEffect::Anything } else { HiddenEffect::None }
        }
        _ => match statement.changes.common(HIDDEN) {
            Changes::NONE => HiddenEffect::None,
            Changes::LOCKS => HiddenEffect::Locks,
            _ => HiddenEffect::Anything,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_calls_nothing_hides_nothing() {
        for text in [
            "SELECT abalance FROM pgbench_accounts WHERE aid = 12345;",
            "select 1",
            "SELECT a FROM t WHERE b IN (1, 2)",
            "SELECT count(*), max(a) FROM t",
            "UPDATE pgbench_accounts SET abalance = abalance + 5 WHERE aid = 1",
            "INSERT INTO pgbench_history (tid, bid, aid, delta, mtime) VALUES (1, 2, 3, 4, CURRENT_TIMESTAMP)",
            "DELETE FROM t WHERE a = 'x('",
            "BEGIN",
            "COMMIT",
            "LISTEN a",
            "SET TRANSACTION READ ONLY",
            "SET LOCAL search_path TO a, 'b'",
            "select set_config('a.b', $1, true)",
            "PREPARE p AS SELECT mine()",
            "DEALLOCATE ALL",
            "DECLARE c CURSOR WITH HOLD FOR SELECT count(*) FROM t",
            "",
            "\0",
        ] {
            assert_eq!(hidden_effect(text.as_bytes()), HiddenEffect::None, "{text}");
        }
    }

    #[test]
    fn what_runs_other_code_hides_it() {
        for text in [
            "SELECT mine(1)",
            "DECLARE c CURSOR WITH HOLD FOR SELECT mine()",
            "SELECT set_config('a.b', mine(), false)",
            "SELECT set_config('a.b', current_user, false)",
            "SELECT set_config('a.b', c, false) FROM t",
            "SELECT 1; SELECT mine(1)",
            "SELECT a INTO TEMP u FROM t",
            "select a\ninto temporary table u from t",
            "select a into u from t",
            "create table u as select 1",
            "EXECUTE e",
            "SELECT U&\"\\006dine\"()",
            "UPDATE t SET a = mine(1)",
            "DO $$ begin end $$",
            "CALL p()",
            "SELECT 'it\\'s', mine(1), ''",
            "update pg_settings set setting = 'b' where name = 'search_path'",
            "WITH a AS (UPDATE pg_catalog.\"pg_settings\" SET setting = 'b' WHERE name = 'c') SELECT 1",
            "update U&\"pg\\005fsettings\" set setting = 'b'",
            "update app.pg_catalog.pg_settings set setting = 'b'",
            "update only (pg_settings) set setting = 'b'",
            "update only (U&\"pg\\005fsettings\") set setting = 'b'",
            "merge into only pg_settings using t on true when matched then update set setting = 'b'",
            "SELECT (5::bigint).abs.mine",
            "SELECT a[1].upper . mine FROM t",
            "SELECT (1).mine",
            "SELECT ('abc'::text) . \"Mine\"",
            "SELECT a[1].mine FROM t",
            "SELECT $1.mine",
            "SELECT x.ts_stat FROM unnest(a) x",
            "EXECUTE p ((1).mine)",
            "UPDATE t SET a = (b).mine",
            "SELECT E'a'\n'b\\' ', '\\', mine(4712) --'",
        ] {
            assert_eq!(hidden_effect(text.as_bytes()), HiddenEffect::Anything, "{text}");
        }
    }

    #[test]
    fn locks_are_known_as_such_where_nothing_else_is_called() {
        let effect = |text: &str| hidden_effect(text.as_bytes());
        assert_eq!(effect("SELECT pg_advisory_lock(1), now()"), HiddenEffect::Locks);
        assert_eq!(effect("SELECT pg_advisory_lock(1); SELECT 1"), HiddenEffect::Locks);
        assert_eq!(effect("SELECT (4713::bigint).pg_advisory_lock"), HiddenEffect::Locks);
        assert_eq!(effect("SELECT E'a'\n'b\\' ', '\\', pg_advisory_lock(1) --'"), HiddenEffect::Locks);
        assert_eq!(effect("SELECT (5::bigint).abs.pg_advisory_lock"), HiddenEffect::Locks);
        assert_eq!(effect("SELECT x.pg_advisory_lock FROM generate_series(5, 5) x"), HiddenEffect::Locks);
        assert_eq!(effect("SELECT ('abc'::text).length, a[1].upper, $1.lower"), HiddenEffect::None);
        assert_eq!(effect("SELECT pg_advisory_lock(mine())"), HiddenEffect::Anything);
        assert_eq!(effect("SELECT pg_advisory_lock(1); SET a = 1"), HiddenEffect::Anything);
    }

    #[test]
    fn sequences_are_seen_beside_anything_else() {
        for text in [
            "select lastval() /* update pg_settings */",
            "select lastval(), 'update pg_settings'",
            "update pg_settings set setting = lastval()",
            "select ('s'::text).to_regclass.currval",
            "select x.currval from unnest(array['s'::regclass]) x",
        ] {
            assert!(judged_effect(text.as_bytes()).asks_for_values, "{text}");
        }
        assert!(judged_effect(b"select ('s'::text).to_regclass.nextval").calls_nextval);
        for text in [
            "select 1 /* update pg_settings */",
            "select name update from pg_settings",
            "update t set a = pg_settings.b",
        ] {
            assert_eq!(hidden_effect(text.as_bytes()), HiddenEffect::None, "{text}");
        }
    }

    #[test]
    fn settings_to_values_that_stand_there_are_known_as_such() {
        for text in [
            "SET a = 1",
            "BEGIN; SET a = 1; SELECT count(*) FROM t; COMMIT",
            "select set_config('a.b', $1, false)",
            "SELECT pg_catalog.set_config('a.b', $1::text, true) AS x, set_config('c', 'd', $2)",
            "SET LOCAL ROLE bob",
            "SET ROLE bob",
            "SET a = DEFAULT",
            "RESET ALL",
        ] {
            assert_eq!(hidden_effect(text.as_bytes()), HiddenEffect::Settings, "{text}");
        }
    }
}
