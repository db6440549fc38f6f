//! One thing that is wrong, and where. Every check returns these; `main` prints them.

use std::fmt;

/// A finding, shown as `file:line: what`; line 0 means the file as a whole and is shown as line 1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Finding {
    pub(crate) file: String,
    pub(crate) line: usize,
    pub(crate) what: String,
}

impl Finding {
    /// A finding at a 1-based line.
    pub(crate) fn at(file: &str, line: usize, what: impl Into<String>) -> Self {
        Self { file: file.to_owned(), line, what: what.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file, self.line.max(1), self.what)
    }
}
