//! A query that Weir itself runs on a server (`auth_query`, for example), and its result: plain types.
//!
//! They are sent between shards, because a pool's servers may be on another shard than the client that logs in. A
//! result may hold secrets, so `Debug` shows none of it.

use std::fmt;

/// A statement of one command with its values.
#[derive(Clone, PartialEq, Eq)]
pub struct ServerQuery {
    /// The database to run it in, as clients name it.
    pub database: String,
    /// The user to run it as.
    pub user: String,
    /// The statement; `$1` and so on stand for the values, and nothing is ever written into it.
    pub sql: String,
    /// The values, as text.
    pub values: Vec<String>,
    /// Sent as a simple query, without values, because EXPLAIN then accepts a statement whose parameters have none. Only for
    /// text without a semicolon, which cannot be two statements.
    pub simple: bool,
}

/// A row by column; NULL is None.
pub type ServerQueryRow = Vec<Option<Vec<u8>>>;

/// The result of a [`ServerQuery`].
#[derive(Clone, PartialEq, Eq)]
pub enum ServerQueryResult {
    /// The rows, in the server's order.
    Rows(Vec<ServerQueryRow>),
    /// The query failed; the waiting client gets this error.
    Failed {
        /// The SQLSTATE.
        sqlstate: String,
        /// The text.
        text: String,
    },
}

impl fmt::Debug for ServerQuery {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "ServerQuery({}/{})", self.database, self.user)
    }
}

impl fmt::Debug for ServerQueryResult {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ServerQueryResult::Rows(rows) => write!(formatter, "Rows({})", rows.len()),
            ServerQueryResult::Failed { text, .. } => write!(formatter, "None({text})"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_shows_no_secret() {
        let answer = ServerQueryResult::Rows(vec![vec![Some(b"hidden".to_vec())]]);
        assert_eq!(format!("{answer:?}"), "Rows(1)");
    }
}
