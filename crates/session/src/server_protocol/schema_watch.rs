//! Whether commands were run that may have changed which functions, views and policies there are, where that decides what reads (`read_write_split`).
//!
//! Owns that a transaction's commands count once it is over. Which commands may is `session_knowledge`'s.

use crate::ServerProtocol;

/// What was seen since the last transaction.
#[derive(Debug, Default)]
pub(crate) struct SchemaWatch {
    is_on: bool,
    has_changed: bool,
}

impl SchemaWatch {
    #[inline(always)]
    pub(crate) fn is_on(&self) -> bool {
        self.is_on
    }

    /// A command ended that may have changed the schema.
    pub(crate) fn note_change(&mut self) {
        self.has_changed = true;
    }
}

impl ServerProtocol {
    /// Commands that may change the schema are noted from here on.
    pub fn watch_schema(&mut self) {
        self.schema_watch.is_on = true;
    }

    /// The schema may have changed since this was asked last.
    pub fn take_watched_change(&mut self) -> bool {
        std::mem::take(&mut self.schema_watch.has_changed)
    }
}
