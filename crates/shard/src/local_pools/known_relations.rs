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

/// When a server is asked again that could not answer because of a lock or a timeout.
const RETRY_US: u64 = 1_000_000;

/// Due at once, whenever that is.
const EXPIRED: u64 = 0;

#[derive(Debug)]
pub(crate) struct KnownRelations {
    /// None if there are none. Before the first answer all may be such.
    known: Option<Arc<ChangingRelations>>,
    due_us: u64,
    question: Question,
}

/// Whether a server is asked: one at a time, so that the others serve clients.
#[derive(Debug, PartialEq, Eq)]
enum Question {
    None,
    Asked,
    /// The schema may have changed since.
    Outdated,
}

impl Default for KnownRelations {
    fn default() -> KnownRelations {
        KnownRelations {
            known: Some(Arc::new(ChangingRelations::any())),
            due_us: EXPIRED,
            question: Question::None,
        }
    }
}

impl KnownRelations {
    #[inline(always)]
    pub(crate) fn is_due(&self, now_us: u64) -> bool {
        now_us >= self.due_us
    }

    /// The schema may have changed, or sessions are followed from now on. While a server is asked, the next one is asked behind its answer.
    pub(crate) fn expire(&mut self) {
        let (question, due_us) = match self.question {
            Question::None => (Question::None, EXPIRED),
            Question::Asked | Question::Outdated => (Question::Outdated, self.due_us),
        };
        *self = KnownRelations { due_us, question, ..KnownRelations::default() };
    }

    /// A server is asked now.
    pub(crate) fn asked(&mut self, now_us: u64) {
        self.due_us = now_us.saturating_add(PATIENCE_US);
        self.question = Question::Asked;
    }

    /// Sessions of this pool are not followed.
    pub(crate) fn postpone(&mut self, now_us: u64) {
        self.due_us = now_us.saturating_add(VALID_US);
    }

    /// It cannot be known now: any text may name one until it is.
    pub(crate) fn unanswered(&mut self, now_us: u64) {
        let due_us = now_us.saturating_add(RETRY_US);
        *self = KnownRelations { due_us, ..KnownRelations::default() };
    }

    /// PostgreSQL has answered, or has refused to: None. What has expired since it was asked stays due.
    pub(crate) fn answered(&mut self, rows: Option<Vec<Row>>, now_us: u64) {
        if std::mem::replace(&mut self.question, Question::None) == Question::Outdated {
            self.due_us = EXPIRED;
        }
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
