//! A console client's statement, sent to the control thread, and the typed answer.
//!
//! The console client's socket stays on its shard, which encodes the answer; the statement's meaning is the control
//! thread's. Never bytes of the wire protocol.

use crate::ShardId;

/// The role of a console client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// `stats_users`: read only.
    Stats,
    /// `admin_users`: everything.
    Admin,
}

/// Whether a statement is run or described.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StatementMode {
    /// Run it.
    #[default]
    Run,
    /// Return the number of its parameters and its columns; do not run it.
    Describe,
}

/// Who a console client is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConsoleClient {
    /// The user that it has logged in as.
    pub user: String,
    /// Where it is, as the log has it.
    pub from: String,
}

/// One statement of a console client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdminQuery {
    /// Where the client's socket is.
    pub shard: ShardId,
    /// The client's number on that shard (opaque; comes back in the reply).
    pub client: u32,
    /// The client's `id`, so that a late reply cannot reach a later client with the same number.
    pub client_id: u64,
    /// Who the client is.
    pub sender: ConsoleClient,
    /// The client's role.
    pub role: Role,
    /// The statement, as it was sent.
    pub sql: String,
    /// The values of `$1`, `$2`, ... as text; `None` where none were bound, and they stand for themselves.
    pub parameters: Option<Vec<Option<String>>>,
    /// Run or describe.
    pub mode: StatementMode,
}

/// The answer to an [`AdminQuery`]; the shard adds ReadyForQuery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdminReply {
    /// As in the query.
    pub client: u32,
    /// As in the query.
    pub client_id: u64,
    /// What to send, in order.
    pub parts: Vec<ReplyPart>,
    /// False while more replies to the same query follow.
    pub last: bool,
}

/// A part of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReplyPart {
    /// ParameterDescription, for this many parameters.
    Parameters(usize),
    /// NoData.
    NoColumns,
    /// RowDescription.
    Columns(Vec<Column>),
    /// DataRows.
    Rows(Vec<Vec<Cell>>),
    /// CommandComplete with its tag.
    Complete(&'static str),
    /// CommandComplete with a computed tag.
    CompleteAs(String),
    /// NoticeResponse.
    Notice(String),
    /// NoticeResponse whose second text is its detail.
    NoticeWithDetail(String, String),
    /// ErrorResponse of severity ERROR.
    Error {
        /// Five characters.
        sqlstate: &'static str,
        /// What went wrong, for callers that are not PostgreSQL clients.
        kind: ErrorKind,
        /// The text.
        message: String,
    },
    /// EmptyQueryResponse.
    Empty,
}

/// What kind of error a command ended with. PgBouncer's SQLSTATEs do not tell these apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The named database or client does not exist.
    NotFound,
    /// The role is not allowed to do it.
    Forbidden,
    /// The command is not possible in this state, or not valid.
    Conflict,
    /// A shard did not answer in time.
    Unavailable,
}

/// A column's name and type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    /// As PgBouncer spells it.
    pub name: &'static str,
    /// As PgBouncer types it.
    pub kind: ColumnType,
}

/// The types that the console uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnType {
    /// text (25).
    Text,
    /// int4 (23).
    Int4,
    /// int8 (20).
    Int8,
    /// numeric (1700).
    Numeric,
}

/// A value of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cell {
    /// SQL NULL.
    Null,
    /// Text.
    Text(String),
    /// A number, of type int4 or int8.
    Number(i64),
    /// A number of type numeric.
    Sum(u64),
}

impl From<&str> for Cell {
    fn from(text: &str) -> Cell {
        Cell::Text(text.to_owned())
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Cell {
        Cell::Text(text)
    }
}

impl From<u64> for Cell {
    fn from(number: u64) -> Cell {
        Cell::Number(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

impl From<u32> for Cell {
    fn from(number: u32) -> Cell {
        Cell::Number(i64::from(number))
    }
}
