//! The SQL about sequences: what calls `nextval`, in the open and hidden, and what asks for the values that this leaves in a session.
//!
//! Owns the texts and how they are read. What they do is the model's (`model::sequences`).

use std::fmt;

/// The sequence of the column that [`SequenceStatement::Insert`] has a default for.
pub(crate) const OF_TABLE: &str = "numbered_id_seq";

/// A statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SequenceStatement {
    /// `SELECT nextval('name')`.
    Next(String),
    /// `SELECT next_number('name')`: a function that calls `nextval`.
    NextByFunction(String),
    /// `SELECT 1 / (0 * nextval('name'))`: it fails behind the call, which no transaction takes back.
    NextAndFail(String),
    /// `INSERT INTO numbered VALUES ('value')`: the default of another column calls `nextval` of [`OF_TABLE`].
    Insert(String),
    /// `SELECT currval('name')`.
    Current(String),
    /// `SELECT lastval()`.
    Last,
}

impl fmt::Display for SequenceStatement {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        use SequenceStatement::*;
        match self {
            Next(name) => write!(out, "SELECT nextval('{name}')"),
            NextByFunction(name) => write!(out, "SELECT next_number('{name}')"),
            NextAndFail(name) => write!(out, "SELECT 1 / (0 * nextval('{name}'))"),
            Insert(value) => write!(out, "INSERT INTO numbered VALUES ('{value}')"),
            Current(name) => write!(out, "SELECT currval('{name}')"),
            Last => out.write_str("SELECT lastval()"),
        }
    }
}

impl SequenceStatement {
    /// Reads a statement that begins with this word in capital letters, and goes on with this.
    pub(crate) fn parse(verb: &str, rest: &str) -> Option<SequenceStatement> {
        use SequenceStatement::*;
        if verb == "INSERT" {
            return between(rest, "INTO numbered VALUES ('", "')").map(Insert);
        }
        if verb != "SELECT" {
            return None;
        }
        if rest == "lastval()" {
            return Some(Last);
        }
        between(rest, "nextval('", "')")
            .map(Next)
            .or_else(|| between(rest, "next_number('", "')").map(NextByFunction))
            .or_else(|| between(rest, "1 / (0 * nextval('", "'))").map(NextAndFail))
            .or_else(|| between(rest, "currval('", "')").map(Current))
    }

    /// Whether it has a result with columns.
    pub(crate) fn returns_rows(&self) -> bool {
        !matches!(self, SequenceStatement::Insert(_))
    }

    /// Whether it asks for what an earlier statement has left.
    pub(crate) fn asks(&self) -> bool {
        matches!(self, SequenceStatement::Current(_) | SequenceStatement::Last)
    }

    /// Whether a text may have a statement that does.
    pub(crate) fn may_ask(text: &[u8]) -> bool {
        let has = |word: &[u8]| text.windows(word.len()).any(|part| part == word);
        has(b"currval(") || has(b"lastval(")
    }
}

fn between(text: &str, start: &str, end: &str) -> Option<String> {
    Some(text.strip_prefix(start)?.strip_suffix(end)?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session_sql::SessionStatement;
    use crate::sql::{self, Statement};

    #[test]
    fn what_is_written_is_read_back() {
        use SequenceStatement::*;
        let name = || "sq0".to_owned();
        for statement in [
            Next(name()),
            NextByFunction(name()),
            NextAndFail(name()),
            Insert("c3.17".to_owned()),
            Current(name()),
            Last,
        ] {
            let text = format!("{statement} /*c3.17*/");
            assert_eq!(statement.asks(), SequenceStatement::may_ask(text.as_bytes()), "{text}");
            let read = Statement::Session(SessionStatement::Sequence(statement));
            assert_eq!(sql::parse(text.as_bytes()), [read], "{text}");
        }
    }
}
