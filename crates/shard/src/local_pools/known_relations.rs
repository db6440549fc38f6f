//! What a pool knows of the tables and views of its database whose use may change a session.
//!
//! Owns when it has to be asked for: before the first client of the pool gets a server, when a client may have changed the schema, and from time to
//! time, because others may have.

use std::sync::Arc;

use session::Row;
use session::changing_relations::ChangingRelations;

/// How long an answer is relied on, if no client of this pool changes the schema.
const VALID_US: u64 = 300_000_000;
/// When the next server is asked, if one has not answered.
const PATIENCE_US: u64 = 5_000_000;

/// Due at once, whenever that is.
const EXPIRED: u64 = 0;

#[derive(Debug)]
pub(crate) struct KnownRelations {
    /// None if there are none. Before the first answer all may be such.
    known: Option<Arc<ChangingRelations>>,
    due_us: u64,
}

impl Default for KnownRelations {
    fn default() -> KnownRelations {
        KnownRelations { known: Some(Arc::new(ChangingRelations::any())), due_us: EXPIRED }
    }
}

impl KnownRelations {
    #[inline(always)]
    pub(crate) fn is_due(&self, now_us: u64) -> bool {
        now_us >= self.due_us
    }

    /// The schema may have changed, or sessions are followed from now on.
    pub(crate) fn expire(&mut self) {
        *self = KnownRelations::default();
    }

    /// A server is asked now.
    pub(crate) fn asked(&mut self, now_us: u64) {
        self.due_us = now_us.saturating_add(PATIENCE_US);
    }

    /// Sessions of this pool are not followed.
    pub(crate) fn postpone(&mut self, now_us: u64) {
        self.due_us = now_us.saturating_add(VALID_US);
    }

    /// PostgreSQL has answered, or has refused to: None. What has expired since it was asked stays due.
    pub(crate) fn answered(&mut self, rows: Option<Vec<Row>>, now_us: u64) {
        if self.due_us == EXPIRED {
            return;
        }
        self.known = rows.and_then(ChangingRelations::read).map(Arc::new);
        self.due_us = now_us.saturating_add(VALID_US);
    }

    #[inline(always)]
    pub(crate) fn known(&self) -> Option<&Arc<ChangingRelations>> {
        self.known.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_from_before_a_change_of_the_schema_does_not_count() {
        let mut relations = KnownRelations::default();
        assert!(relations.is_due(1) && relations.known().is_some(), "any text may name one");
        relations.asked(1);
        assert!(!relations.is_due(1));
        relations.expire();
        relations.answered(Some(Vec::new()), 2);
        assert!(relations.is_due(2) && relations.known().is_some());
        relations.asked(2);
        relations.answered(Some(Vec::new()), 3);
        assert!(!relations.is_due(3) && relations.known().is_none());
        assert!(relations.is_due(3 + VALID_US));
    }

    #[test]
    fn a_server_that_does_not_answer_is_followed_by_another() {
        let mut relations = KnownRelations::default();
        relations.asked(1);
        assert!(relations.is_due(1 + PATIENCE_US));
    }
}
