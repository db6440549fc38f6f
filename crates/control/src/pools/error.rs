//! Errors of changes to pools, and the field each concerns.

use std::borrow::Cow;
use std::fmt;

use settings::Finding;

/// Why a change failed; nothing was changed. Displays as a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PoolError {
    /// The requester's: this field cannot have this value.
    Field {
        /// `name`, `db`, `user`, `mode`, `size`, `cluster_id`, or `settings.` and the name of one.
        field: Cow<'static, str>,
        /// Why, as a whole sentence without its end.
        message: String,
    },
    /// The requester's: there is a database of this name.
    Exists {
        /// The name.
        name: String,
        /// Where it is defined.
        file: String,
        /// The line there.
        line: u32,
    },
    /// The requester's: there is no such pool.
    NotFound(String),
    /// The requester's: the entry stands in a file that belongs to the user.
    NotOurs {
        /// The name.
        name: String,
        /// Where it is defined.
        file: String,
        /// The line there.
        line: u32,
    },
    /// The requester's: servers that no entry leads to would get the passwords of users.
    NewServers,
    /// The operator's: `pools_file` names no file.
    NoPoolsFile,
    /// The operator's: a file has errors. It is not overwritten.
    Broken(Vec<Finding>),
    /// The system's: the file cannot be read.
    Unreadable {
        /// Which.
        file: String,
        /// What the system said.
        why: String,
    },
    /// The system's: the file cannot be written.
    Unwritable {
        /// Which.
        file: String,
        /// What the system said.
        why: String,
    },
    /// The operator's: the file was written, and cannot be put into force without other changes of files that a RELOAD is to read.
    NeedsReload(Vec<Finding>),
    /// The store's, or another node's: the pools of all nodes of the fleet could not be changed.
    Fleet(String),
    /// The operator's: the change is made on all nodes of the fleet, and this one cannot use it, for this reason.
    NotHere(String),
    /// Weir's: the process is shutting down, or another one has taken over.
    Ending,
}

impl PoolError {
    /// A value that cannot be.
    pub(crate) fn field(field: &'static str, message: impl Into<String>) -> PoolError {
        PoolError::Field { field: field.into(), message: message.into() }
    }

    /// A setting that cannot be.
    pub(crate) fn setting(name: &str, message: impl Into<String>) -> PoolError {
        PoolError::Field { field: format!("settings.{name}").into(), message: message.into() }
    }

    /// What is wrong with the entry of a pool, in the words of what reads it: of the setting that is to blame, if one is.
    pub(crate) fn of_entry(name: &str, findings: Vec<Finding>) -> PoolError {
        let blamed = findings.iter().find_map(|finding| {
            let message = finding.message.strip_prefix(&format!("database {name}: "))?;
            Some(PoolError::setting(finding.key?, message))
        });
        blamed.unwrap_or(PoolError::Broken(findings))
    }

    /// The field that is concerned, if one is.
    #[must_use]
    pub fn of_field(&self) -> Option<&str> {
        match self {
            PoolError::Field { field, .. } => Some(field),
            PoolError::Exists { .. } => Some("name"),
            _ => None,
        }
    }
}

impl fmt::Display for PoolError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PoolError::Field { message, .. } => out.write_str(message),
            PoolError::Exists { name, file, line } => {
                write!(out, "a database \"{name}\" exists already, defined in {file}:{line}")
            }
            PoolError::NotFound(name) => write!(out, "there is no pool \"{name}\""),
            PoolError::NotOurs { file, line, .. } => {
                write!(out, "pool is defined in {file}:{line}, which Weir does not write")
            }
            PoolError::NewServers => out.write_str(
                "no entry of [databases] leads to these servers: scope view_credentials is needed too, because they get the passwords of users",
            ),
            PoolError::NoPoolsFile => out.write_str(
                "pools cannot be changed here: the setting pools_file does not name a file to keep them in",
            ),
            PoolError::Broken(findings) => {
                out.write_str("nothing was written, because the configuration is broken:")?;
                findings.iter().try_for_each(|finding| write!(out, " {finding};"))
            }
            PoolError::Unreadable { file, why } => write!(out, "cannot read the pools file {file}: {why}"),
            PoolError::Unwritable { file, why } => write!(out, "cannot write the pools file {file}: {why}"),
            PoolError::NeedsReload(findings) => {
                out.write_str("it is written, but not in force before a RELOAD:")?;
                findings.iter().try_for_each(|finding| write!(out, " {finding};"))
            }
            PoolError::Fleet(why) => write!(out, "the pools of the fleet cannot be changed: {why}"),
            PoolError::NotHere(why) => {
                write!(out, "the pools of the fleet are changed, but not on this node yet: {why}")
            }
            PoolError::Ending => out.write_str("the pooler is shutting down"),
        }
    }
}

impl std::error::Error for PoolError {}
