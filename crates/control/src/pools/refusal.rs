//! Why a pool is not made, changed or deleted, and which field of the form that concerns.
//! Never knows how an answer is encoded.

use std::fmt;

use settings::Finding;

/// A change that was not made; everything is as it was. Displays as a sentence for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PoolRefusal {
    /// The asker's: this field cannot have this value.
    Field {
        /// `name`, `db`, `user`, `mode`, `size` or `cluster_id`.
        field: &'static str,
        /// Why, as a whole sentence without its end.
        message: String,
    },
    /// The asker's: there is a database of this name.
    Exists {
        /// The name.
        name: String,
        /// Where it is defined.
        file: String,
        /// The line there.
        line: u32,
    },
    /// The asker's: there is no such pool.
    NotFound(String),
    /// The asker's: the entry stands in a file that belongs to the user.
    NotOurs {
        /// The name.
        name: String,
        /// Where it is defined.
        file: String,
        /// The line there.
        line: u32,
    },
    /// The operator's: `pools_file` names no file.
    NoPoolsFile,
    /// The operator's: somebody broke a file by hand. Nothing is written over it.
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
    /// Weir's: the process is going, or another one has taken over.
    Ending,
}

impl PoolRefusal {
    /// A value that cannot be.
    pub(super) fn field(field: &'static str, message: impl Into<String>) -> PoolRefusal {
        PoolRefusal::Field { field, message: message.into() }
    }

    /// The field that is concerned, if one is.
    #[must_use]
    pub fn of_field(&self) -> Option<&'static str> {
        match self {
            PoolRefusal::Field { field, .. } => Some(field),
            PoolRefusal::Exists { .. } => Some("name"),
            _ => None,
        }
    }
}

impl fmt::Display for PoolRefusal {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PoolRefusal::Field { message, .. } => out.write_str(message),
            PoolRefusal::Exists { name, file, line } => {
                write!(out, "a database \"{name}\" exists already, defined in {file}:{line}")
            }
            PoolRefusal::NotFound(name) => write!(out, "there is no pool \"{name}\""),
            PoolRefusal::NotOurs { file, line, .. } => {
                write!(out, "pool is defined in {file}:{line}, which Weir does not write")
            }
            PoolRefusal::NoPoolsFile => out.write_str(
                "pools cannot be changed here: the setting pools_file does not name a file to keep them in",
            ),
            PoolRefusal::Broken(findings) => {
                out.write_str("nothing was written, because the configuration is broken:")?;
                findings.iter().try_for_each(|finding| write!(out, " {finding};"))
            }
            PoolRefusal::Unreadable { file, why } => write!(out, "cannot read the pools file {file}: {why}"),
            PoolRefusal::Unwritable { file, why } => write!(out, "cannot write the pools file {file}: {why}"),
            PoolRefusal::Ending => out.write_str("the pooler is shutting down"),
        }
    }
}

impl std::error::Error for PoolRefusal {}
