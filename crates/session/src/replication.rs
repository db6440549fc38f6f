//! What a client that wants to replicate asks for in its startup packet.
//!
//! Owns the words of the `replication` parameter (PostgreSQL chapter 55.4) and what is passed on to the server that such
//! a client gets for itself. Never decides whether it may.

use crate::ClientFault;

/// The two kinds of a connection to a WAL sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `replication=database`: it belongs to a database and takes SQL, too.
    Logical,
    /// `replication=true`: it belongs to the whole cluster.
    Physical,
}

impl Kind {
    /// Reads the value of the parameter; None for a value that asks for no replication.
    ///
    /// # Errors
    /// [`ClientFault::ReplicationValue`] for what is neither `database` nor one of PostgreSQL's words for true and false.
    pub fn read(value: &str) -> Result<Option<Kind>, ClientFault> {
        if value == "database" {
            return Ok(Some(Kind::Logical));
        }
        match boolean(value) {
            Some(wanted) => Ok(wanted.then_some(Kind::Physical)),
            None => Err(ClientFault::ReplicationValue(value.to_owned())),
        }
    }

    /// The value that asks for this kind; PgBouncer's log has the same.
    #[must_use]
    pub fn value(self) -> &'static str {
        match self {
            Kind::Logical => "database",
            Kind::Physical => "yes",
        }
    }

    /// Its name in SHOW.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Kind::Logical => "logical",
            Kind::Physical => "physical",
        }
    }
}

/// A client's request to replicate, and what its server is sent beside the tracked parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replication {
    /// What it wants.
    pub kind: Kind,
    /// `options` as it was sent, and parameters that are not tracked: no other client will have this server, so the server
    /// may judge them.
    pub passed: Vec<(String, String)>,
}

impl Replication {
    /// Nothing to be passed on yet.
    #[must_use]
    pub fn new(kind: Kind) -> Replication {
        Replication { kind, passed: Vec::new() }
    }
}

/// PostgreSQL's booleans: `true`, `yes`, `on`, `1` and their opposites, in any case, cut short as long as they are clear.
fn boolean(value: &str) -> Option<bool> {
    let value = value.to_ascii_lowercase();
    let begins = |word: &str, least: usize| value.len() >= least && word.starts_with(&value);
    if begins("true", 1) || begins("yes", 1) || value == "on" || value == "1" {
        return Some(true);
    }
    (begins("false", 1) || begins("no", 1) || begins("off", 2) || value == "0").then_some(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_postgresql() {
        assert_eq!(Kind::read("database"), Ok(Some(Kind::Logical)));
        for yes in ["true", "t", "TRUE", "yes", "y", "on", "1"] {
            assert_eq!(Kind::read(yes), Ok(Some(Kind::Physical)), "{yes}");
        }
        for no in ["false", "F", "no", "n", "off", "of", "0"] {
            assert_eq!(Kind::read(no), Ok(None), "{no}");
        }
        for neither in ["", "o", "2", "truely", "Database", "databas"] {
            assert_eq!(Kind::read(neither), Err(ClientFault::ReplicationValue(neither.to_owned())));
        }
    }
}
