//! When a server is asked for something that its catalog says: before the first client, when a client may have changed the schema, and from time to time,
//! because others may have.
//!
//! Owns the times, and which answers count. What is asked, and what the answer is, are the owner's.

/// How long an answer is relied on, if no client of the pool changes the schema.
pub(crate) const VALID_US: u64 = 300_000_000;
/// When the next server is asked, if one has not answered.
pub(crate) const PATIENCE_US: u64 = 5_000_000;
/// When a server is asked again that could not answer because of a lock or a timeout.
pub(crate) const RETRY_US: u64 = 1_000_000;

/// Due at once, whenever that is.
const EXPIRED: u64 = 0;

#[derive(Debug)]
pub(crate) struct Refresh {
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

impl Default for Refresh {
    fn default() -> Refresh {
        Refresh { due_us: EXPIRED, question: Question::None }
    }
}

impl Refresh {
    #[inline(always)]
    pub(crate) fn is_due(&self, now_us: u64) -> bool {
        now_us >= self.due_us
    }

    /// The schema may have changed, or it begins to matter. While a server is asked, the next one is asked behind its answer.
    pub(crate) fn expire(&mut self) {
        match self.question {
            Question::None => self.due_us = EXPIRED,
            Question::Asked | Question::Outdated => self.question = Question::Outdated,
        }
    }

    /// A server is asked now.
    pub(crate) fn asked(&mut self, now_us: u64) {
        self.due_us = now_us.saturating_add(PATIENCE_US);
        self.question = Question::Asked;
    }

    /// It does not matter now.
    pub(crate) fn postpone(&mut self, now_us: u64) {
        self.due_us = now_us.saturating_add(VALID_US);
    }

    /// It cannot be known now.
    pub(crate) fn unanswered(&mut self, now_us: u64) {
        (self.due_us, self.question) = (now_us.saturating_add(RETRY_US), Question::None);
    }

    /// PostgreSQL has answered. False if the answer does not count, because the schema may have changed since it was asked: that stays due.
    pub(crate) fn answered(&mut self, now_us: u64) -> bool {
        if std::mem::replace(&mut self.question, Question::None) == Question::Outdated {
            self.due_us = EXPIRED;
        }
        if self.due_us == EXPIRED {
            return false;
        }
        self.due_us = now_us.saturating_add(VALID_US);
        true
    }
}
