//! Diagnostics of a file: location, severity, message.
//! [`crate::load`] decides whether loading continues.

use std::fmt;
use std::sync::Arc;

/// A place in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The file as it was named on the command line or after `%include`.
    pub file: Arc<str>,
    /// Its line, from 1 on; 0 where no line can be named.
    pub line: u32,
}

/// Whether a file can be used despite a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// It can; logged.
    Warning,
    /// It cannot.
    Error,
}

/// A diagnostic. Displays as `file:line: message`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The file.
    pub file: Arc<str>,
    /// The line, from 1 on; 0 concerns the whole file.
    pub line: u32,
    /// Whether it stops loading.
    pub severity: Severity,
    /// The message.
    pub message: String,
    /// The key of the entry that it concerns, if it is one.
    pub key: Option<&'static str>,
}

impl Finding {
    /// A finding that stops loading.
    pub fn error(at: &Origin, message: impl Into<String>) -> Self {
        Self {
            file: at.file.clone(),
            line: at.line,
            severity: Severity::Error,
            message: message.into(),
            key: None,
        }
    }

    /// The same, of a key of the entry.
    pub(crate) fn of_key(self, key: Option<&'static str>) -> Self {
        Self { key, ..self }
    }

    /// A finding that does not stop loading.
    pub fn warning(at: &Origin, message: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, ..Self::error(at, message) }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.line == 0 {
            return write!(out, "{}: {}", self.file, self.message);
        }
        write!(out, "{}:{}: {}", self.file, self.line, self.message)
    }
}
