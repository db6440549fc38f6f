//! What a statement does to its session and to the data, as far as its text shows.
//!
//! Owns the words of the commands (PostgreSQL documentation, part "SQL Commands"). Reads words, never grammar: what is not
//! recognised is [`Access::Unknown`] and may change anything. Which functions are harmless in a database is its catalog's to say;
//! what a text calls stands in [`Statement::calls`].

pub(crate) mod access;
pub(crate) mod calls;
mod command;
mod cursor;
mod names;
mod set_config;
mod setting;

pub use calls::FunctionName;
pub use names::{StatementNames, is_deallocate, is_prepare_of, may_name_statements, statement_names};
pub use set_config::ConfigCall;
pub use setting::{Scope, SetCommand, SettingValue, Value};

use crate::lexer::{Backslash, Lexer};
pub(crate) use command::analyse;
pub(crate) use cursor::{Tokens, is_word, name_of, split};

/// What is looked at of a text, in bytes; what follows may do anything.
pub(crate) const ANALYSED_BYTES: usize = 64 * 1024;
/// Statements of one text that are told apart; what follows may do anything.
pub(crate) const MAX_STATEMENTS: usize = 256;
/// How deep statements inside of statements (EXPLAIN, PREPARE) are followed.
const MAX_DEPTH: u8 = 4;

/// Whether a statement changes data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Access {
    /// It reads only, if the functions and views that it uses do.
    Reads,
    /// The text does not show it.
    Unknown,
    /// It writes, or takes locks that a standby refuses.
    Writes,
}

/// What a statement may change in its session; a set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Changes(u16);

impl Changes {
    /// Settings of the session or of the transaction (SET, set_config).
    pub const SETTINGS: Changes = Changes(1);
    /// Statements prepared by SQL.
    pub const PREPARED: Changes = Changes(1 << 1);
    /// Cursors that outlive their transaction (WITH HOLD), or the closing of cursors.
    pub const CURSORS: Changes = Changes(1 << 2);
    /// Tables and other objects in `pg_temp`.
    pub const TEMPORARY: Changes = Changes(1 << 3);
    /// Advisory locks of the session.
    pub const LOCKS: Changes = Changes(1 << 4);
    /// Channels that the session listens on.
    pub const CHANNELS: Changes = Changes(1 << 5);
    /// What `currval` and `lastval` return.
    pub const SEQUENCES: Changes = Changes(1 << 6);
    /// Libraries that are loaded into the server process.
    pub const LIBRARIES: Changes = Changes(1 << 7);
    /// A transaction block begins or ends.
    pub const TRANSACTION: Changes = Changes(1 << 8);
    /// Whatever the functions do that it calls and that are not known by name.
    pub const FUNCTIONS: Changes = Changes(1 << 9);
    /// Whatever triggers, rules and defaults of the tables do that it writes to.
    pub const TRIGGERS: Changes = Changes(1 << 10);
    /// Anything: its code, or the statement itself, cannot be read from the text.
    pub const ANYTHING: Changes = Changes(1 << 11);

    /// None of them.
    pub const NONE: Changes = Changes(0);

    /// Both sets together.
    #[must_use]
    pub const fn and(self, other: Changes) -> Changes {
        Changes(self.0 | other.0)
    }

    /// Those of both sets.
    #[must_use]
    pub(crate) const fn common(self, other: Changes) -> Changes {
        Changes(self.0 & other.0)
    }

    /// Any of `others` is among these.
    #[must_use]
    pub const fn any(self, others: Changes) -> bool {
        self.0 & others.0 != 0
    }
}

/// The name of a cursor, statement, savepoint, setting or channel, as PostgreSQL folds it. None where the text does not show it
/// (`U&"..."`).
pub type Name = Option<String>;

/// What a statement is, as far as the session depends on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// BEGIN or START TRANSACTION; plain if it names no mode.
    Begin {
        /// No isolation level, READ ONLY or DEFERRABLE.
        is_plain: bool,
    },
    /// COMMIT or END; `chain` begins the next one at once.
    Commit {
        /// AND CHAIN.
        chain: bool,
    },
    /// ROLLBACK or ABORT.
    Rollback {
        /// AND CHAIN.
        chain: bool,
    },
    /// SAVEPOINT.
    Savepoint(Name),
    /// RELEASE.
    Release(Name),
    /// ROLLBACK TO.
    RollbackTo(Name),
    /// PREPARE TRANSACTION, COMMIT PREPARED or ROLLBACK PREPARED.
    TwoPhase,
    /// SET, RESET and its relatives; `set_config` is a call.
    Set(SetCommand),
    /// SELECT of nothing but `set_config`, with literal or bound arguments.
    SetConfig(Vec<ConfigCall>),
    /// SHOW.
    Show,
    /// PREPARE, with what it prepares.
    Prepare(Name, Box<Statement>),
    /// EXECUTE.
    Execute(Name),
    /// DEALLOCATE; of all without a target.
    Deallocate(Target),
    /// DECLARE; holdable if it outlives the transaction.
    Declare {
        /// The cursor.
        name: Name,
        /// WITH HOLD.
        is_holdable: bool,
    },
    /// CLOSE.
    Close(Target),
    /// FETCH or MOVE.
    Fetch,
    /// LISTEN.
    Listen(Name),
    /// UNLISTEN.
    Unlisten(Target),
    /// NOTIFY.
    Notify,
    /// DISCARD.
    Discard(Discarded),
    /// LOAD.
    Load,
    /// EXPLAIN, with what it explains and whether it runs that.
    Explain {
        /// ANALYZE.
        runs: bool,
        /// What it explains.
        statement: Box<Statement>,
    },
    /// COPY, between a table or query and the client or a file.
    Copy,
    /// SELECT, VALUES, TABLE, or WITH before any of them.
    Select,
    /// INSERT, UPDATE, DELETE or MERGE.
    Modify,
    /// CREATE, ALTER, DROP and other commands for the database.
    Utility,
    /// DO or CALL.
    Code,
    /// Nothing but blanks and comments.
    Empty,
    /// Not recognised.
    Other,
}

/// One, or all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// That of this name.
    One(Name),
    /// ALL, or `*`.
    All,
}

/// What DISCARD discards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Discarded {
    /// ALL.
    All,
    /// PLANS.
    Plans,
    /// SEQUENCES.
    Sequences,
    /// TEMP or TEMPORARY.
    Temporary,
}

/// One statement of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statement {
    /// What it is.
    pub command: Command,
    /// Whether it changes data.
    pub access: Access,
    /// What it may change in the session.
    pub changes: Changes,
    /// The functions that it calls by name, each once.
    pub calls: Vec<FunctionName>,
}

impl Statement {
    /// A statement of which nothing is known.
    fn unknown() -> Statement {
        Statement {
            command: Command::Other,
            access: Access::Unknown,
            changes: Changes::ANYTHING,
            calls: Vec::new(),
        }
    }
}

/// The statements of a query string, in order; of any bytes. What could not be looked at is one statement more, [`Command::Other`].
///
/// ```
/// use sql::{Access, Backslash, Changes, Command, statements};
///
/// let found = statements(b"LISTEN jobs; SELECT count(*) FROM t", Backslash::Literal);
/// assert_eq!(found[0].command, Command::Listen(Some("jobs".into())));
/// assert_eq!(found[0].changes, Changes::CHANNELS);
/// assert_eq!((found[1].access, found[1].changes), (Access::Reads, Changes::NONE));
/// ```
#[must_use]
pub fn statements(text: &[u8], backslash: Backslash) -> Vec<Statement> {
    let is_whole = text.len() <= ANALYSED_BYTES;
    let seen = String::from_utf8_lossy(&text[..text.len().min(ANALYSED_BYTES)]);
    let tokens: Vec<_> = Lexer::reading(&seen, backslash).collect();
    let mut found = Vec::new();
    for part in split(&tokens) {
        if found.len() == MAX_STATEMENTS {
            found.push(Statement::unknown());
            return found;
        }
        found.push(analyse(Tokens::new(part), MAX_DEPTH));
    }
    // The last one may go on behind what was looked at, and others may follow.
    if !is_whole && let Some(last) = found.last_mut() {
        last.changes = last.changes.and(Changes::ANYTHING);
        last.access = last.access.max(Access::Unknown);
        found.push(Statement::unknown());
    }
    found
}

#[cfg(test)]
mod tests;
