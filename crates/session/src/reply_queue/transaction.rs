//! The transaction status of a server connection: what the last ReadyForQuery said, and whether it still holds.
//!
//! Owns when the status is current: only a ReadyForQuery behind which no reply is owed makes it so, and a reply can only be
//! owed once the status has ceased to be current ([`Asked`]).

use wire::backend::Status;

use super::NothingOwed;

/// What the server has said, and whether something was asked since.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TransactionStatus {
    /// None since something was asked; otherwise the same as `last`.
    current: Option<Status>,
    /// What the last ReadyForQuery said, whatever was asked since.
    last: Status,
}

/// Proof that the status does not count as current any more. The queue of replies takes an entry only with it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked(());

impl TransactionStatus {
    /// Of a server that has just said this, and was asked nothing since.
    pub(crate) fn new(status: Status) -> TransactionStatus {
        TransactionStatus { current: Some(status), last: status }
    }

    /// What the last ReadyForQuery said, unless something was asked since.
    #[inline]
    pub(crate) fn current(self) -> Option<Status> {
        self.current
    }

    /// In a transaction block (or a failed one), as the last ReadyForQuery said.
    #[inline]
    pub(crate) fn in_block(self) -> bool {
        self.last != Status::Idle
    }

    #[inline]
    pub(crate) fn in_failed_block(self) -> bool {
        self.last == Status::Failed
    }

    /// The status is current, and idle.
    #[inline]
    pub(crate) fn is_at_rest(self) -> bool {
        self.current == Some(Status::Idle)
    }

    /// Something is sent that may change the status, or that only a later ReadyForQuery answers.
    #[inline(always)]
    pub(crate) fn asked(&mut self) -> Asked {
        self.current = None;
        Asked(())
    }

    /// BEGIN is sent, and a request behind it: what is answered from here on is answered in a transaction block.
    pub(crate) fn begin_block(&mut self) {
        self.last = Status::InTransaction;
    }

    /// ReadyForQuery arrived. Returns what the one before said.
    #[inline(always)]
    pub(crate) fn ready(&mut self, status: Status, nothing_owed: Option<NothingOwed>) -> Status {
        if nothing_owed.is_some() {
            self.current = Some(status);
        }
        std::mem::replace(&mut self.last, status)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{PendingReply, ReplyQueue};

    #[test]
    fn the_status_is_current_behind_the_last_reply_only() {
        let (mut transaction, mut replies) = (TransactionStatus::new(Status::Idle), ReplyQueue::default());
        assert!(transaction.is_at_rest());
        for _ in 0..2 {
            let asked = transaction.asked();
            replies.push(PendingReply::Query, asked);
        }
        replies.pop();
        assert_eq!(transaction.ready(Status::InTransaction, replies.nothing_owed()), Status::Idle);
        assert!(transaction.current().is_none() && transaction.in_block() && !transaction.is_at_rest());
        replies.pop();
        assert_eq!(transaction.ready(Status::Idle, replies.nothing_owed()), Status::InTransaction);
        assert!(transaction.is_at_rest() && !transaction.in_block());
    }

    #[test]
    fn a_block_is_no_rest() {
        for status in [Status::InTransaction, Status::Failed] {
            let transaction = TransactionStatus::new(status);
            assert!(transaction.current() == Some(status) && !transaction.is_at_rest());
            assert_eq!(transaction.in_failed_block(), status == Status::Failed);
        }
    }
}
