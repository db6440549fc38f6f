//! A question that Weir itself asks a server, and what came of it: plain types.
//!
//! They travel between shards, because a pool's servers may be on another shard than the client whose login asks. An
//! answer may hold secrets, so `Debug` shows none of it.

use std::fmt;

/// A question: a statement of one command with its values.
#[derive(Clone, PartialEq, Eq)]
pub struct Inquiry {
    /// The database whose server is asked, as clients name it.
    pub database: String,
    /// As which user.
    pub user: String,
    /// The statement; `$1` and so on stand for the values, and nothing is ever written into it.
    pub sql: String,
    /// The values, as text.
    pub values: Vec<String>,
}

/// A row by column; NULL is None.
pub type AnswerRow = Vec<Option<Vec<u8>>>;

/// What came of an [`Inquiry`].
#[derive(Clone, PartialEq, Eq)]
pub enum Answer {
    /// The rows, in the server's order.
    Rows(Vec<AnswerRow>),
    /// There is no answer, and this is what the client that waits for it is told.
    None {
        /// The SQLSTATE.
        sqlstate: String,
        /// The text.
        text: String,
    },
}

impl fmt::Debug for Inquiry {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Inquiry({}/{})", self.database, self.user)
    }
}

impl fmt::Debug for Answer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Answer::Rows(rows) => write!(formatter, "Rows({})", rows.len()),
            Answer::None { text, .. } => write!(formatter, "None({text})"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_shows_no_secret() {
        let answer = Answer::Rows(vec![vec![Some(b"hidden".to_vec())]]);
        assert_eq!(format!("{answer:?}"), "Rows(1)");
    }
}
