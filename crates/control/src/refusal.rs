//! Why the console says no: one variant per reason, with PgBouncer's text and an SQLSTATE.
//!
//! Texts are PgBouncer's where it has one. So are the codes (08P01), but where PostgreSQL has a code that says the same
//! more precisely, that one is sent.

use messages::ReplyPart;
use settings::SetError;

/// A statement that is not done, and whose fault that is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The client's: no such statement. Carries it.
    InvalidCommand(String),
    /// The client's: it may look, not touch.
    AdminNeeded,
    /// The client's: PAUSE or KILL while all is paused.
    AlreadyPaused,
    /// The client's: RESUME while nothing is paused.
    NotPaused,
    /// The client's: RESUME of a database that is not paused.
    DatabaseNotPaused(String),
    /// The client's: SUSPEND while a database is paused.
    DatabasesPaused,
    /// The client's: DISABLE and ENABLE want a name.
    DatabaseNeeded,
    /// The client's: no entry has this name.
    NoSuchDatabase(String),
    /// The client's: the console itself cannot be paused, killed or reconnected.
    ConsoleDatabase {
        /// What was asked, in lower case.
        verb: &'static str,
    },
    /// The client's: KILL_CLIENT without a number.
    BadClientId,
    /// The client's: no client has this id.
    ClientNotFound,
    /// The client's: nothing resumes once the process is going.
    ShuttingDown,
    /// Whoever wrote the file: details are in the log.
    ReloadFailed,
    /// The client's: SET of something else than a setting that may change, to one of its values.
    Setting {
        /// The setting, as it was written.
        key: String,
        /// What is wrong.
        fault: SetError,
    },
    /// Another console client's: it resumed what this one was waiting for.
    Interrupted,
    /// Its own: it sent a cancel request.
    Cancelled,
    /// Weir's: a shard did not answer in time.
    TimedOut,
}

impl Refusal {
    /// Five characters (PostgreSQL, appendix A).
    #[must_use]
    pub fn sqlstate(&self) -> &'static str {
        match self {
            Refusal::InvalidCommand(_) => "42601",
            Refusal::AdminNeeded => "42501",
            Refusal::ReloadFailed => "F0000",
            Refusal::Setting { fault: SetError::Unknown, .. } => "42704",
            Refusal::Setting { fault: SetError::Fixed, .. } => "55P02",
            Refusal::Setting { fault: SetError::Bad(_) | SetError::Whole(_), .. } => "22023",
            Refusal::Interrupted | Refusal::Cancelled => "57014",
            Refusal::TimedOut => "58000",
            _ => "08P01",
        }
    }

    /// The text that the client gets and the log repeats.
    #[must_use]
    pub fn message(&self) -> String {
        match self {
            Refusal::InvalidCommand(sql) => format!("invalid command '{}', use SHOW HELP;", shortened(sql)),
            Refusal::AdminNeeded => "admin access needed".to_owned(),
            Refusal::AlreadyPaused => "already suspended/paused".to_owned(),
            Refusal::NotPaused => "pooler is not paused/suspended".to_owned(),
            Refusal::DatabaseNotPaused(name) => format!("database {name} is not paused"),
            Refusal::DatabasesPaused => "cannot suspend with paused databases".to_owned(),
            Refusal::DatabaseNeeded => "a database is required".to_owned(),
            Refusal::NoSuchDatabase(name) => format!("no such database: {name}"),
            Refusal::ConsoleDatabase { verb } => format!("cannot {verb} admin db: {}", crate::CONSOLE),
            Refusal::BadClientId => "invalid client pointer supplied".to_owned(),
            Refusal::ClientNotFound => "client not found".to_owned(),
            Refusal::ShuttingDown => "pooler is shutting down".to_owned(),
            Refusal::ReloadFailed => "RELOAD failed, see logs for additional details".to_owned(),
            Refusal::Setting { key, fault } => format!("SET failed: {key} {fault}"),
            Refusal::Interrupted => "cancelled by a RESUME".to_owned(),
            Refusal::Cancelled => "canceling statement due to user request".to_owned(),
            Refusal::TimedOut => "a thread of the pooler did not answer in time".to_owned(),
        }
    }

    /// As it goes to the client.
    #[must_use]
    pub fn part(&self) -> ReplyPart {
        ReplyPart::Error { sqlstate: self.sqlstate(), message: self.message() }
    }
}

/// A statement as far as it fits into a message and a log line.
fn shortened(sql: &str) -> String {
    const LONGEST: usize = 1_000;
    sql.chars().take(LONGEST).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_that_scripts_match_are_pgbouncers() {
        let text = |refusal: Refusal| (refusal.sqlstate(), refusal.message());
        assert_eq!(text(Refusal::NoSuchDatabase("dne".into())), ("08P01", "no such database: dne".into()));
        assert_eq!(text(Refusal::ShuttingDown), ("08P01", "pooler is shutting down".into()));
        assert_eq!(text(Refusal::ClientNotFound), ("08P01", "client not found".into()));
        assert_eq!(text(Refusal::BadClientId), ("08P01", "invalid client pointer supplied".into()));
        assert_eq!(text(Refusal::AdminNeeded), ("42501", "admin access needed".into()));
        let invalid = text(Refusal::InvalidCommand("SHOW x".into()));
        assert_eq!(invalid, ("42601", "invalid command 'SHOW x', use SHOW HELP;".into()));
    }

    #[test]
    fn an_immense_statement_makes_a_short_message() {
        assert!(Refusal::InvalidCommand("é".repeat(1_000_000)).message().len() < 2_100);
    }
}
