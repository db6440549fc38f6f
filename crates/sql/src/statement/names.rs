//! The prepared statements that a text names (PREPARE, EXECUTE, DEALLOCATE), wherever the words stand in it.
//!
//! Owns the quick answer for texts that name none. In doubt a name is among them: `GRANT EXECUTE ON` names `on`.

use super::cursor::{Tokens, name_of, split};
use super::{ANALYSED_BYTES, Command, Target, statements};
use crate::lexer::{Backslash, Kind, Lexer, Token};

/// The prepared statements that a text names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StatementNames {
    /// Those that it prepares.
    pub prepared: Vec<String>,
    /// Those that it executes.
    pub executed: Vec<String>,
    /// Those that it deallocates.
    pub deallocated: Vec<String>,
    /// It may name others, which it does not show.
    pub is_unclear: bool,
}

impl StatementNames {
    /// All of them.
    pub fn all(&self) -> impl Iterator<Item = &String> {
        self.prepared.iter().chain(&self.executed).chain(&self.deallocated)
    }
}

/// The text, up to a NUL, may name prepared statements.
#[must_use]
pub fn may_name_statements(text: &[u8]) -> bool {
    let has = |word: &[u8]| text.windows(word.len()).any(|part| part.eq_ignore_ascii_case(word));
    has(b"prepare") || has(b"execute") || has(b"deallocate")
}

/// The prepared statements that a text, up to a NUL, names.
///
/// ```
/// let names = sql::statement_names(b"DEALLOCATE \"A\"; EXPLAIN EXECUTE b(1)");
/// assert_eq!(names.deallocated, ["A"]);
/// assert_eq!(names.executed, ["b"]);
/// ```
#[must_use]
pub fn statement_names(text: &[u8]) -> StatementNames {
    let text = text.split(|byte| *byte == 0).next().unwrap_or_default();
    let mut found = StatementNames { is_unclear: text.len() > ANALYSED_BYTES, ..StatementNames::default() };
    let seen = String::from_utf8_lossy(&text[..text.len().min(ANALYSED_BYTES)]);
    let readings = [Backslash::Literal, Backslash::Escape];
    for backslash in &readings[..if text.contains(&b'\\') { 2 } else { 1 }] {
        let tokens: Vec<Token<'_>> = Lexer::reading(&seen, *backslash).collect();
        for statement in split(&tokens) {
            found.add(Tokens::new(statement));
        }
    }
    found
}

impl StatementNames {
    fn add(&mut self, mut tokens: Tokens<'_>) {
        while let Some(token) = tokens.next() {
            let is = |word: &str| token.kind == Kind::Word && token.text.eq_ignore_ascii_case(word);
            let names = if is("prepare") {
                &mut self.prepared
            } else if is("execute") {
                &mut self.executed
            } else if is("deallocate") {
                // PREPARE may follow, which is a name as well.
                if tokens.rest().len() > 1 {
                    tokens.takes("prepare");
                }
                &mut self.deallocated
            } else {
                continue;
            };
            let Some(next) = tokens.peek().filter(|next| matches!(next.kind, Kind::Word | Kind::Quoted))
            else {
                continue;
            };
            match name_of(next) {
                Some(name) if names.contains(&name) => {}
                Some(name) => names.push(name),
                None => self.is_unclear = true,
            }
        }
    }
}

/// The text is one PREPARE of this name, and nothing else.
#[must_use]
pub fn is_prepare_of(text: &[u8], name: &str) -> bool {
    is_one(text, |command| matches!(command, Command::Prepare(Some(found), _) if found == name))
}

/// The text, up to a NUL, is one DEALLOCATE of a statement, and nothing else.
#[must_use]
pub fn is_deallocate(text: &[u8]) -> bool {
    let text = text.split(|byte| *byte == 0).next().unwrap_or_default();
    is_one(text, |command| matches!(command, Command::Deallocate(Target::One(_))))
}

fn is_one(text: &[u8], is: impl Fn(&Command) -> bool) -> bool {
    let is_it = |backslash| {
        let found = statements(text, backslash);
        matches!(found.as_slice(), [statement] if is(&statement.command))
    };
    is_it(Backslash::Literal) && (!text.contains(&b'\\') || is_it(Backslash::Escape))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_where_they_stand() {
        let names = statement_names(
            b"prepare a(int) as select 1; execute B (1); explain (costs off) execute \"C d\"; create table t as execute e; \
              deallocate prepare f; deallocate \"g\"; Deallocate prepare; DEALLOCATE ALL\0 execute z",
        );
        assert_eq!(names.prepared, ["a"]);
        assert_eq!(names.executed, ["b", "C d", "e"]);
        assert_eq!(names.deallocated, ["f", "g", "prepare", "all"]);
        assert!(!names.is_unclear && names.all().count() == 8);
        assert!(statement_names(b"execute u&\"a\"").is_unclear);
        assert_eq!(
            statement_names(b"select 'execute a', \"execute b\" -- execute c"),
            StatementNames::default()
        );
        assert_eq!(statement_names(b"select '\\'; execute a; select '").executed, ["a"]);
    }

    #[test]
    fn texts_without_the_words_name_none() {
        assert!(!may_name_statements(b"select exec, prepar, 'dealloc' from t"));
        for text in ["EXECUTE a", "x; Deallocate b", "\tpRepare c as select 1"] {
            assert!(may_name_statements(text.as_bytes()), "{text}");
        }
    }

    #[test]
    fn one_deallocate_is_known() {
        for (text, is) in [
            (&b"deallocate a;\0rest"[..], true),
            (b"DEALLOCATE PREPARE \"A\" -- x", true),
            (b"deallocate all", false),
            (b"deallocate a; select 1", false),
            (b"explain execute a", false),
        ] {
            assert_eq!(is_deallocate(text), is, "{}", String::from_utf8_lossy(text));
        }
    }

    #[test]
    fn one_prepare_is_known() {
        for (text, is) in [
            ("PREPARE a AS SELECT 1;", true),
            ("prepare A (int) as select $1 -- x", true),
            ("prepare b as select 1", false),
            ("select 1; prepare a as select 1", false),
            ("prepare a as select 1; select 2", false),
            ("prepare a as select '\\'; select '", false),
        ] {
            assert_eq!(is_prepare_of(text.as_bytes(), "a"), is, "{text}");
        }
    }
}
