//! Whether something was sent whose outcome is not modelled: such a server is closed when its client releases it.
//!
//! Owns the one case that may yet turn out harmless: a Query behind a Bind or Execute, before their Sync.

use wire::backend::Status;

use crate::PendingReply;

/// How far the state of the session is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Taint {
    #[default]
    None,
    /// A Query or FunctionCall was sent behind a Bind or Execute, before its Sync.
    QueryInPipeline,
    /// Something was sent whose outcome is not modelled. Nothing takes that back.
    Tainted,
}

impl Taint {
    /// Of a server that came from another process.
    pub(crate) fn imported(is_tainted: bool) -> Taint {
        if is_tainted { Taint::Tainted } else { Taint::None }
    }

    /// All that was sent is modelled, and its outcome.
    #[inline]
    pub(crate) fn is_none(self) -> bool {
        self == Taint::None
    }

    pub(crate) fn is_tainted(self) -> bool {
        self == Taint::Tainted
    }

    #[inline]
    pub(crate) fn has_query_in_pipeline(self) -> bool {
        self == Taint::QueryInPipeline
    }

    /// What was sent is not modelled, if so.
    #[inline(always)]
    pub(crate) fn set_if(&mut self, is_tainted: bool) {
        if is_tainted {
            *self = Taint::Tainted;
        }
    }

    /// A Query or FunctionCall is sent behind a Bind or Execute, before its Sync.
    #[cold]
    pub(crate) fn note_query_in_pipeline(&mut self) {
        if *self == Taint::None {
            *self = Taint::QueryInPipeline;
        }
    }

    /// ReadyForQuery came, where [`Taint::has_query_in_pipeline`]. PostgreSQL 18 keeps the transaction of a pipeline open beyond a
    /// Query in it. A Sync right behind that says idle and leaves it open for all that (seen in 18.6), and the next command, of any
    /// client, fails with "unexpected state STARTED".
    #[cold]
    #[inline(never)]
    pub(crate) fn ready_behind_query(
        &mut self,
        answered: PendingReply,
        before: Status,
        status: Status,
        owes_more: bool,
    ) {
        let is_sync = answered == PendingReply::Sync;
        if is_sync && before == Status::InTransaction && status == Status::Idle {
            *self = Taint::Tainted;
        } else if !owes_more && (is_sync || status == Status::Idle) {
            // Otherwise it may yet come: in which of the segments that were sent the Query stands is not kept.
            *self = Taint::None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_query() -> Taint {
        let mut taint = Taint::default();
        taint.note_query_in_pipeline();
        assert!(taint.has_query_in_pipeline() && !taint.is_tainted());
        taint
    }

    #[test]
    fn a_sync_that_says_idle_where_a_transaction_was_open_is_not_believed() {
        let mut taint = with_query();
        taint.ready_behind_query(PendingReply::Query, Status::Idle, Status::InTransaction, true);
        assert!(taint.has_query_in_pipeline());
        taint.ready_behind_query(PendingReply::Sync, Status::InTransaction, Status::Idle, false);
        assert!(taint.is_tainted());
        taint.note_query_in_pipeline();
        assert!(taint.is_tainted(), "nothing takes that back");
    }

    #[test]
    fn a_query_that_leaves_no_transaction_open_is_harmless() {
        let mut taint = with_query();
        taint.ready_behind_query(PendingReply::Query, Status::Idle, Status::Idle, true);
        assert!(taint.has_query_in_pipeline(), "the Sync is still to be answered");
        taint.ready_behind_query(PendingReply::Sync, Status::Idle, Status::Idle, false);
        assert_eq!(taint, Taint::None);
    }
}
