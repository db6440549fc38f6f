//! Errors that clients got, by database and SQLSTATE: those of servers and of Weir itself.
//!
//! Off the path of a successful query. Never counts an error that no client got (of a request that was replayed, or of an
//! internal query).

use std::collections::BTreeMap;
use std::sync::Arc;

use messages::ErrorRow;
use session::ErrorSeen;
use telemetry::SqlstateCounts;

/// Databases that are counted by themselves; further ones (they come from `*`) together, without a name.
const DATABASES: usize = 1_000;

/// Errors by database; those of clients that named no configured one have no name.
#[derive(Default)]
pub(crate) struct ErrorCounts {
    databases: BTreeMap<Arc<str>, SqlstateCounts>,
    /// Errors of the reply that is being passed on; empty between events.
    seen: Vec<ErrorSeen>,
}

impl ErrorCounts {
    pub(crate) fn count(&mut self, database: &str, code: &[u8]) {
        if let Some(errors) = self.databases.get_mut(database) {
            return errors.count(code);
        }
        let name = if self.databases.len() < DATABASES { database } else { "" };
        self.databases.entry(name.into()).or_default().count(code);
    }

    /// Where the errors of the reply that is being passed on are noted.
    #[inline]
    pub(crate) fn seen(&mut self) -> &mut Vec<ErrorSeen> {
        &mut self.seen
    }

    /// The reply that is being passed on has an error.
    #[inline]
    pub(crate) fn has_seen(&self) -> bool {
        !self.seen.is_empty()
    }

    /// Takes the errors of the reply that is being passed on, and counts them.
    pub(crate) fn take_seen(&mut self, database: &str) -> Vec<ErrorSeen> {
        let errors_seen = std::mem::take(&mut self.seen);
        errors_seen.iter().for_each(|seen| self.count(database, &seen.code));
        errors_seen
    }

    /// The database is gone: its errors count with those that have no name.
    pub(crate) fn forget(&mut self, database: &str) {
        if let Some(errors) = self.databases.remove(database) {
            self.databases.entry(Arc::default()).or_default().merge(&errors);
        }
    }

    pub(crate) fn rows(&self) -> Vec<ErrorRow> {
        let row = |(database, errors): (&Arc<str>, &SqlstateCounts)| ErrorRow {
            database: database.to_string(),
            errors: errors.clone(),
        };
        self.databases.iter().map(row).collect()
    }
}
