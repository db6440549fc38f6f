//! What a pool knows of the tables and views of its database whose use may change a session.
//!
//! Owns that any may be such while that is not known. When it is asked for is [`Refresh`]'s.

use std::sync::Arc;

use session::Row;
use session::changing_relations::ChangingRelations;

use crate::local_pools::refresh::Refresh;

#[derive(Debug)]
pub(crate) struct KnownRelations {
    /// None if there are none. Before the first answer all may be such.
    known: Option<Arc<ChangingRelations>>,
    refresh: Refresh,
}

impl Default for KnownRelations {
    fn default() -> KnownRelations {
        KnownRelations { known: Some(Arc::new(ChangingRelations::any())), refresh: Refresh::default() }
    }
}

impl KnownRelations {
    #[inline(always)]
    pub(crate) fn is_due(&self, now_us: u64) -> bool {
        self.refresh.is_due(now_us)
    }

    /// The schema may have changed, or sessions are followed from now on.
    pub(crate) fn expire(&mut self) {
        self.refresh.expire();
        self.known = KnownRelations::default().known;
    }

    /// A server is asked now.
    pub(crate) fn asked(&mut self, now_us: u64) {
        self.refresh.asked(now_us);
    }

    /// What another pool of the same database knows holds for this one, too, which asks for nothing.
    pub(crate) fn follow(&mut self, other: &KnownRelations, now_us: u64) {
        self.known = other.known.clone();
        self.refresh.postpone(now_us);
    }

    /// Sessions of this pool are not followed.
    pub(crate) fn postpone(&mut self, now_us: u64) {
        self.refresh.postpone(now_us);
    }

    /// It cannot be known now: any text may name one until it is.
    pub(crate) fn unanswered(&mut self, now_us: u64) {
        self.refresh.unanswered(now_us);
        self.known = KnownRelations::default().known;
    }

    /// PostgreSQL has answered, or has refused to: None. What has expired since it was asked stays due.
    pub(crate) fn answered(&mut self, rows: Option<Vec<Row>>, now_us: u64) {
        if self.refresh.answered(now_us) {
            self.known = rows.and_then(ChangingRelations::read).map(Arc::new);
        }
    }

    #[inline(always)]
    pub(crate) fn known(&self) -> Option<&Arc<ChangingRelations>> {
        self.known.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::local_pools::refresh::{PATIENCE_US, RETRY_US, VALID_US};

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
    fn one_server_is_asked_at_a_time() {
        let mut relations = KnownRelations::default();
        relations.asked(1);
        relations.expire();
        relations.expire();
        assert!(!relations.is_due(2) && relations.known().is_some());
        relations.answered(Some(Vec::new()), 3);
        assert!(relations.is_due(3) && relations.known().is_some());
        relations.asked(4);
        relations.expire();
        assert!(relations.is_due(4 + PATIENCE_US), "its server may be gone");
    }

    #[test]
    fn what_cannot_be_known_now_may_be_any_and_is_asked_again() {
        let mut relations = KnownRelations::default();
        relations.asked(1);
        relations.answered(Some(Vec::new()), 2);
        relations.asked(3);
        relations.unanswered(4);
        assert!(!relations.is_due(4) && relations.is_due(4 + RETRY_US) && relations.known().is_some());
    }

    #[test]
    fn a_server_that_does_not_answer_is_followed_by_another() {
        let mut relations = KnownRelations::default();
        relations.asked(1);
        assert!(relations.is_due(1 + PATIENCE_US));
    }
}
