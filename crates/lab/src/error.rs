//! Why a run of the lab ended early, by whose fault: the machine lacks something, a program failed, a peer
//! said no, or the user pressed Ctrl-C. Never ends the process; `main` does.

use std::fmt;
use std::io;
use std::path::PathBuf;

/// What went wrong.
#[derive(Debug)]
pub enum LabError {
    /// Ctrl-C, SIGTERM or SIGHUP.
    Interrupted,
    /// Invalid command line.
    Usage(String),
    /// A missing requirement, and how to meet it.
    Missing {
        /// What is not there.
        what: String,
        /// What the reader can do.
        remedy: String,
    },
    /// The operating system refused.
    System {
        /// What was being done, as "writing /tmp/x".
        doing: String,
        /// Its own error.
        source: io::Error,
    },
    /// A program that was run failed or did not come up.
    Program {
        /// Its name.
        name: String,
        /// How it ended and the last lines it said.
        said: String,
    },
    /// A saved result cannot be used: the file, and why.
    Record {
        /// The file.
        path: PathBuf,
        /// What is wrong with it, as "is no record".
        fault: String,
    },
    /// PostgreSQL or the pooler answered with an error, or with something that is not the protocol.
    Peer(String),
}

impl LabError {
    /// Wraps an error of the operating system with what was being done.
    pub fn system(doing: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let doing = doing.into();
        move |source| Self::System { doing, source }
    }

    /// A program's failure.
    pub fn program(name: &str, said: impl Into<String>) -> Self {
        Self::Program { name: name.to_owned(), said: said.into() }
    }
}

impl fmt::Display for LabError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Interrupted => write!(f, "interrupted"),
            Self::Usage(said) => write!(f, "{said}"),
            Self::Missing { what, remedy } => write!(f, "{what}\n  {remedy}"),
            Self::System { doing, source } => write!(f, "{doing}: {source}"),
            Self::Program { name, said } => write!(f, "{name} failed: {said}"),
            Self::Record { path, fault } => write!(f, "{} {fault}", path.display()),
            Self::Peer(said) => write!(f, "{said}"),
        }
    }
}

impl std::error::Error for LabError {}

/// The lab's result.
pub type Result<T> = std::result::Result<T, LabError>;
