//! Errors of console commands: one variant per reason, with PgBouncer's text and an SQLSTATE.
//!
//! Texts are PgBouncer's where it has one. The code is PgBouncer's 08P01 unless PostgreSQL has a more precise one.

use messages::{ErrorKind, ReplyPart};
use settings::SetError;

/// Why a statement failed, and on which side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommandError {
    /// The client's: no such statement. Carries it.
    InvalidCommand(String),
    /// The client's: its role is read-only.
    AdminNeeded,
    /// The client's: PAUSE or KILL while all is paused.
    AlreadyPaused,
    /// The client's: RESUME while nothing is paused.
    NotPaused,
    /// The client's: RESUME of a database that is not paused.
    DatabaseNotPaused(String),
    /// The client's: SUSPEND while a database is paused.
    DatabasesPaused,
    /// The client's: DISABLE and ENABLE need a name.
    DatabaseNeeded,
    /// The client's: no entry has this name.
    NoSuchDatabase(String),
    /// The client's: DETACH and ATTACH need a host.
    HostNeeded,
    /// The client's: the entry has no such host.
    NoSuchHost {
        /// The entry.
        database: String,
        /// As it was written.
        host: String,
    },
    /// The client's: the entry has this host with several ports, these.
    SeveralHosts {
        /// As it was written.
        host: String,
        /// With their ports.
        labels: String,
    },
    /// The client's: the entry sends no reads to its hosts.
    NotSplit(String),
    /// The client's: the entry does not follow Patroni.
    NotPatroni(String),
    /// Patroni's: it does not answer, for this reason; or has not yet.
    PatroniSilent(Option<String>),
    /// Patroni's: none of its members leads.
    NoLeader,
    /// Patroni's: it has not switched over, in its words.
    Switchover(String),
    /// The client's: the console itself cannot be paused, killed or reconnected.
    ConsoleDatabase {
        /// The command, in lower case.
        verb: &'static str,
    },
    /// The client's: KILL_CLIENT without a number.
    BadClientId,
    /// The client's: no client has this id.
    ClientNotFound,
    /// The client's: CANCEL_CLIENT of a client that is not connected, or runs no query.
    NothingToCancel,
    /// The operator's or the store's: what concerns other nodes of the fleet could not be done, for this reason.
    Fleet(String),
    /// The client's: RESUME during a shutdown.
    ShuttingDown,
    /// The configuration file's: details are in the log.
    ReloadFailed,
    /// The client's: SET of something else than a setting that may change, to one of its values.
    Setting {
        /// The setting, as it was written.
        key: String,
        /// What is wrong.
        fault: SetError,
    },
    /// The client's, or the file's: SET QUOTA of a line that cannot be put into the file.
    Quota(String),
    /// The operator's: `quotas_file` names no file.
    NoQuotasFile,
    /// Another console client's: it resumed what this one was waiting for.
    Interrupted,
    /// Its own: it sent a cancel request.
    Cancelled,
    /// Weir's: a shard did not answer in time.
    TimedOut,
}

impl CommandError {
    /// Five characters (PostgreSQL, appendix A).
    #[must_use]
    pub fn sqlstate(&self) -> &'static str {
        match self {
            CommandError::InvalidCommand(_) => "42601",
            CommandError::AdminNeeded => "42501",
            CommandError::ReloadFailed => "F0000",
            CommandError::Setting { fault: SetError::Unknown, .. } => "42704",
            CommandError::Setting { fault: SetError::Fixed, .. } => "55P02",
            CommandError::Setting { fault: SetError::Bad(_) | SetError::Whole(_), .. }
            | CommandError::Quota(_) => "22023",
            CommandError::NoQuotasFile | CommandError::Fleet(_) => "55000",
            CommandError::Interrupted | CommandError::Cancelled => "57014",
            CommandError::TimedOut | CommandError::Switchover(_) => "58000",
            _ => "08P01",
        }
    }

    /// The text that the client gets and the log repeats.
    #[must_use]
    pub fn message(&self) -> String {
        match self {
            CommandError::InvalidCommand(sql) => {
                format!("invalid command '{}', use SHOW HELP;", truncated(sql))
            }
            CommandError::AdminNeeded => "admin access needed".to_owned(),
            CommandError::AlreadyPaused => "already suspended/paused".to_owned(),
            CommandError::NotPaused => "pooler is not paused/suspended".to_owned(),
            CommandError::DatabaseNotPaused(name) => format!("database {name} is not paused"),
            CommandError::DatabasesPaused => "cannot suspend with paused databases".to_owned(),
            CommandError::DatabaseNeeded => "a database is required".to_owned(),
            CommandError::NoSuchDatabase(name) => format!("no such database: {name}"),
            CommandError::HostNeeded => "a host is required".to_owned(),
            CommandError::NoSuchHost { database, host } => {
                format!("no such host of database {database}: {host}")
            }
            CommandError::SeveralHosts { host, labels } => {
                format!("{host} has several ports, name one: {labels}")
            }
            CommandError::NotSplit(name) => format!("database {name} does not use read_write_split"),
            CommandError::NotPatroni(name) => format!("database {name} does not use topology=patroni"),
            CommandError::PatroniSilent(None) => "Patroni has not answered yet".to_owned(),
            CommandError::PatroniSilent(Some(why)) => format!("Patroni does not answer: {why}"),
            CommandError::NoLeader => "Patroni knows no leader".to_owned(),
            CommandError::Switchover(why) => format!("Patroni has not switched over: {why}"),
            CommandError::ConsoleDatabase { verb } => format!("cannot {verb} admin db: {}", crate::CONSOLE),
            CommandError::NothingToCancel => "client not found, or not running a query".to_owned(),
            CommandError::BadClientId => "invalid client pointer supplied".to_owned(),
            CommandError::ClientNotFound => "client not found".to_owned(),
            CommandError::Fleet(why) => why.clone(),
            CommandError::ShuttingDown => "pooler is shutting down".to_owned(),
            CommandError::ReloadFailed => "RELOAD failed, see logs for additional details".to_owned(),
            CommandError::Setting { key, fault } => format!("SET failed: {key} {fault}"),
            CommandError::Quota(why) => format!("SET QUOTA failed: {why}"),
            CommandError::NoQuotasFile => {
                "SET QUOTA failed: the setting quotas_file does not name a file to keep quotas in".to_owned()
            }
            CommandError::Interrupted => "cancelled by a RESUME".to_owned(),
            CommandError::Cancelled => "canceling statement due to user request".to_owned(),
            CommandError::TimedOut => "a thread of the pooler did not answer in time".to_owned(),
        }
    }

    /// As callers other than PostgreSQL clients tell errors apart.
    fn kind(&self) -> ErrorKind {
        match self {
            CommandError::NoSuchDatabase(_)
            | CommandError::NoSuchHost { .. }
            | CommandError::ClientNotFound => ErrorKind::NotFound,
            CommandError::AdminNeeded => ErrorKind::Forbidden,
            CommandError::TimedOut | CommandError::PatroniSilent(_) => ErrorKind::Unavailable,
            _ => ErrorKind::Conflict,
        }
    }

    /// As it goes to the client.
    #[must_use]
    pub fn part(&self) -> ReplyPart {
        ReplyPart::Error { sqlstate: self.sqlstate(), kind: self.kind(), message: self.message() }
    }
}

/// A statement as far as it fits into a message and a log line.
fn truncated(sql: &str) -> String {
    const LONGEST: usize = 1_000;
    sql.chars().take(LONGEST).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_that_scripts_match_are_pgbouncers() {
        let text = |refusal: CommandError| (refusal.sqlstate(), refusal.message());
        assert_eq!(
            text(CommandError::NoSuchDatabase("dne".into())),
            ("08P01", "no such database: dne".into())
        );
        assert_eq!(text(CommandError::ShuttingDown), ("08P01", "pooler is shutting down".into()));
        assert_eq!(text(CommandError::ClientNotFound), ("08P01", "client not found".into()));
        assert_eq!(text(CommandError::BadClientId), ("08P01", "invalid client pointer supplied".into()));
        assert_eq!(text(CommandError::AdminNeeded), ("42501", "admin access needed".into()));
        let invalid = text(CommandError::InvalidCommand("SHOW x".into()));
        assert_eq!(invalid, ("42601", "invalid command 'SHOW x', use SHOW HELP;".into()));
    }

    #[test]
    fn an_immense_statement_makes_a_short_message() {
        assert!(CommandError::InvalidCommand("é".repeat(1_000_000)).message().len() < 2_100);
    }
}
