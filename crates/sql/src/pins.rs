//! Whether a text is known to leave in its session what only its server connection has.
//!
//! Owns the commands of which that is plain before they run. In doubt the answer is no: what else pins shows when it has run. SQL's
//! PREPARE and LISTEN are not among them; other parts of Weir give them to other connections.

use crate::lexer::{Backslash, Kind, Lexer, Token};
use crate::statement::{ANALYSED_BYTES, is_word, split};

/// What one of these stands in: most texts need no tokens.
const WORDS: [&[u8]; 4] = [b"temp", b"hold", b"load", b"pg_advisory_lock"];

/// Functions that take a lock of the session, or wait for it. Those that only try may get none.
const LOCKS: [&str; 2] = ["pg_advisory_lock", "pg_advisory_lock_shared"];

/// Running this text, up to a NUL, leaves what keeps its client on the connection, unless it fails.
///
/// ```
/// assert!(sql::plainly_pins(b"CREATE TEMP TABLE t (a int)"));
/// assert!(sql::plainly_pins(b"SELECT pg_advisory_lock(1)"));
/// assert!(!sql::plainly_pins(b"CREATE TEMP TABLE t (a int) ON COMMIT DROP"));
/// assert!(!sql::plainly_pins(b"SELECT pg_try_advisory_lock(1)"));
/// ```
#[must_use]
pub fn plainly_pins(text: &[u8]) -> bool {
    let text = text.split(|byte| *byte == 0).next().unwrap_or_default();
    let text = &text[..text.len().min(ANALYSED_BYTES)];
    if !WORDS.iter().any(|word| text.windows(word.len()).any(|part| part.eq_ignore_ascii_case(word))) {
        return false;
    }
    let seen = String::from_utf8_lossy(text);
    let tokens: Vec<Token<'_>> = Lexer::reading(&seen, Backslash::Literal).collect();
    split(&tokens).any(pins)
}

fn pins(statement: &[Token<'_>]) -> bool {
    let begins = |word| statement.first().is_some_and(|first| is_word(*first, word));
    if begins("create") {
        creates_temporary(statement) && !has(statement, &["on", "commit", "drop"])
    } else if begins("declare") {
        has(statement, &["with", "hold"])
    } else if begins("select") || begins("with") {
        makes_temporary_table(statement) || takes_lock(statement)
    } else {
        begins("load")
    }
}

/// CREATE [OR REPLACE] [GLOBAL | LOCAL] TEMP
fn creates_temporary(statement: &[Token<'_>]) -> bool {
    let is_before = |token: &&Token<'_>| {
        ["create", "or", "replace", "global", "local"].iter().any(|word| is_word(**token, word))
    };
    statement.iter().find(|token| !is_before(token)).is_some_and(is_temporary)
}

fn is_temporary(token: &Token<'_>) -> bool {
    is_word(*token, "temp") || is_word(*token, "temporary")
}

/// These words stand in it, one behind the other.
fn has(statement: &[Token<'_>], words: &[&str]) -> bool {
    statement
        .windows(words.len())
        .any(|tokens| tokens.iter().zip(words).all(|(token, word)| is_word(*token, word)))
}

/// SELECT ... INTO [LOCAL | GLOBAL] TEMP
fn makes_temporary_table(statement: &[Token<'_>]) -> bool {
    let is_into = |tokens: &[Token<'_>]| {
        is_word(tokens[0], "into")
            && (is_temporary(&tokens[1])
                || (is_word(tokens[1], "local") || is_word(tokens[1], "global")) && is_temporary(&tokens[2]))
    };
    statement.windows(3).any(is_into)
}

fn takes_lock(statement: &[Token<'_>]) -> bool {
    let is_call = |tokens: &[Token<'_>]| {
        tokens[1].kind == Kind::Open && LOCKS.iter().any(|name| is_word(tokens[0], name))
    };
    statement.windows(2).any(is_call)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_whose_state_outlives_their_transaction() {
        for text in [
            "create temporary table t as select 1",
            "CREATE LOCAL TEMP TABLE t (a int) ON COMMIT DELETE ROWS",
            "/* x */ CREATE OR REPLACE TEMP VIEW v AS SELECT 1",
            "SELECT 1; CREATE TEMP SEQUENCE s",
            "SELECT a INTO TEMP u FROM t",
            "SELECT a INTO LOCAL TEMPORARY u FROM t",
            "DECLARE c SCROLL CURSOR WITH HOLD FOR SELECT 1",
            "LOAD 'auto_explain'",
            "SELECT pg_catalog.pg_advisory_lock(1, 2)\0",
            "BEGIN; CREATE TEMP TABLE t (a int); COMMIT",
        ] {
            assert!(plainly_pins(text.as_bytes()), "{text}");
        }
    }

    #[test]
    fn what_may_pin_or_not_is_not_known() {
        for text in [
            "SELECT 1",
            "",
            "CREATE TABLE temp (a int)",
            "CREATE TABLE t (a int, b text DEFAULT 'temp', temp int)",
            "CREATE TEMP TABLE t ON COMMIT DROP AS SELECT 1",
            "SELECT 'CREATE TEMP TABLE t ()'",
            "DECLARE c CURSOR WITHOUT HOLD FOR SELECT 1",
            "SELECT pg_try_advisory_lock(1), pg_advisory_unlock(2)",
            "SELECT pg_advisory_xact_lock(1)",
            "SELECT pg_advisory_lock FROM t",
            "LISTEN temp",
            "PREPARE load AS SELECT 1",
            "DROP TABLE temp",
        ] {
            assert!(!plainly_pins(text.as_bytes()), "{text}");
        }
    }
}
