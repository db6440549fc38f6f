//! The phase of a COPY from the client, and what is in doubt behind one that has failed.
//!
//! PostgreSQL ignores Sync while it reads COPY data (55.2.6), unless the copy has failed before it. Weir does not see where in
//! the stream that was, so it counts these Syncs: each may be answered with ReadyForQuery, or not. Owns that count from the
//! first Sync among the data to the reply that ends the doubt. Never knows which request the copy belongs to.

use std::num::NonZeroU32;

use crate::reply_queue::CopyBegun;

/// Where a COPY from the client is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum CopyPhase {
    /// There is none, or nothing about it is in doubt.
    #[default]
    None,
    /// The server reads COPY data, and these Syncs are among what was sent meanwhile. `is_both`: it sends data too (CopyBoth).
    Reading { is_both: bool, syncs: u32 },
    /// The client has ended it, or its simple query has failed; Syncs were among the data.
    Ended { syncs: NonZeroU32 },
    /// It has failed: ReadyForQuery may come this many times, or fewer. Over at the first other reply, because replies come in
    /// order.
    Failed { possible_readies: NonZeroU32 },
}

impl CopyPhase {
    #[inline]
    pub(crate) fn is_at_rest(self) -> bool {
        matches!(self, CopyPhase::None)
    }

    /// The server reads COPY data.
    #[inline]
    pub(crate) fn is_reading(self) -> bool {
        matches!(self, CopyPhase::Reading { .. })
    }

    /// The server reads and sends COPY data.
    pub(crate) fn is_both(self) -> bool {
        matches!(self, CopyPhase::Reading { is_both: true, .. })
    }

    /// A ReadyForQuery may come that answers no entry of the queue.
    #[inline]
    pub(crate) fn is_in_doubt(self) -> bool {
        matches!(self, CopyPhase::Failed { .. })
    }

    /// Syncs that the server ignores unless the copy has failed before them.
    pub(crate) fn has_syncs(self) -> bool {
        match self {
            CopyPhase::Reading { syncs, .. } => syncs > 0,
            CopyPhase::Ended { .. } => true,
            CopyPhase::None | CopyPhase::Failed { .. } => false,
        }
    }

    /// The server has answered that it reads COPY data.
    pub(crate) fn begin(&mut self, begun: CopyBegun, is_both: bool) {
        *self = if begun.ended {
            CopyPhase::ended(begun.syncs)
        } else {
            CopyPhase::Reading { is_both, syncs: begun.syncs }
        };
    }

    /// The client sends Sync; true if it is among COPY data.
    #[inline]
    pub(crate) fn sync(&mut self) -> bool {
        let CopyPhase::Reading { syncs, .. } = self else { return false };
        *syncs += 1;
        true
    }

    /// The client sends CopyDone or CopyFail; true if that ends a copy which the server reads.
    pub(crate) fn end(&mut self) -> bool {
        let CopyPhase::Reading { syncs, .. } = *self else { return false };
        *self = CopyPhase::ended(syncs);
        true
    }

    /// A reply came to a request, other than an error or ReadyForQuery. `is_complete`: it ends the execution of one, and
    /// if that was the copy, the server has ignored the Syncs among the data.
    #[cold]
    pub(crate) fn reply_came(&mut self, is_complete: bool) {
        match self {
            CopyPhase::Failed { .. } => *self = CopyPhase::None,
            CopyPhase::Reading { syncs, .. } if is_complete => *syncs = 0,
            CopyPhase::Ended { .. } if is_complete => *self = CopyPhase::None,
            CopyPhase::None | CopyPhase::Reading { .. } | CopyPhase::Ended { .. } => {}
        }
    }

    /// An error came. `of_query`: to a simple query, whose own ReadyForQuery comes before those that are in doubt.
    pub(crate) fn fail(&mut self, of_query: bool) {
        *self = match *self {
            CopyPhase::None | CopyPhase::Failed { .. } => CopyPhase::None,
            CopyPhase::Reading { syncs, .. } if of_query => CopyPhase::ended(syncs),
            ended @ CopyPhase::Ended { .. } if of_query => ended,
            CopyPhase::Reading { syncs, .. } => CopyPhase::failed(syncs),
            CopyPhase::Ended { syncs } => CopyPhase::failed(syncs.get()),
        }
    }

    /// ReadyForQuery came that answers no request; true if it is one of those in doubt.
    pub(crate) fn take_possible_ready(&mut self) -> bool {
        let CopyPhase::Failed { possible_readies } = *self else { return false };
        *self = CopyPhase::failed(possible_readies.get() - 1);
        true
    }

    /// ReadyForQuery came that answers a request: with it the copy is over, and Syncs among its data may have been read behind
    /// its failure.
    pub(crate) fn ready(&mut self) {
        *self = match *self {
            CopyPhase::Reading { syncs, .. } => CopyPhase::failed(syncs),
            CopyPhase::Ended { syncs } => CopyPhase::failed(syncs.get()),
            CopyPhase::None | CopyPhase::Failed { .. } => *self,
        }
    }

    fn ended(syncs: u32) -> CopyPhase {
        NonZeroU32::new(syncs).map_or(CopyPhase::None, |syncs| CopyPhase::Ended { syncs })
    }

    fn failed(syncs: u32) -> CopyPhase {
        let syncs = NonZeroU32::new(syncs);
        syncs.map_or(CopyPhase::None, |possible_readies| CopyPhase::Failed { possible_readies })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The server reads data, and the client has sent this many Syncs among it.
    fn reading(syncs: u32) -> CopyPhase {
        let mut copy = CopyPhase::default();
        copy.begin(CopyBegun::default(), false);
        for _ in 0..syncs {
            assert!(copy.sync());
        }
        copy
    }

    #[test]
    fn a_copy_without_syncs_leaves_no_doubt() {
        let ends: [fn(&mut CopyPhase); 3] =
            [|copy| assert!(copy.end()), |copy| copy.fail(false), |copy| copy.fail(true)];
        for end in ends {
            let mut copy = reading(0);
            assert!(copy.is_reading() && !copy.is_at_rest());
            end(&mut copy);
            assert!(copy.is_at_rest());
        }
        assert!(!CopyPhase::None.end() && !CopyPhase::None.sync());
    }

    #[test]
    fn the_server_has_ignored_the_syncs_of_a_copy_that_succeeded() {
        let mut copy = reading(2);
        assert!(copy.end() && !copy.is_at_rest() && copy.has_syncs());
        copy.reply_came(false);
        assert!(copy.has_syncs(), "the reply to an earlier request");
        copy.reply_came(true);
        assert!(copy.is_at_rest());
    }

    #[test]
    fn each_sync_of_a_copy_that_failed_may_be_answered() {
        for is_ended in [false, true] {
            let mut copy = reading(2);
            assert!(!is_ended || copy.end());
            copy.fail(false);
            assert!(copy.is_in_doubt() && !copy.is_at_rest());
            assert!(copy.take_possible_ready() && copy.is_in_doubt());
            assert!(copy.take_possible_ready() && copy.is_at_rest());
            assert!(!copy.take_possible_ready());
        }
    }

    #[test]
    fn the_doubt_ends_with_the_first_other_reply() {
        let replies: [fn(&mut CopyPhase); 2] = [|copy| copy.reply_came(false), |copy| copy.fail(false)];
        for reply in replies {
            let mut copy = reading(3);
            copy.fail(false);
            reply(&mut copy);
            assert!(copy.is_at_rest());
        }
    }

    #[test]
    fn of_a_simple_query_the_doubt_begins_behind_its_own_ready() {
        let mut copy = reading(1);
        copy.fail(true);
        assert!(!copy.is_in_doubt() && !copy.is_at_rest());
        copy.ready();
        assert!(copy.is_in_doubt());
        copy.ready();
        assert!(copy.is_in_doubt(), "another request's ReadyForQuery");
    }

    #[test]
    fn a_copy_both_is_one_until_it_ends() {
        let mut copy = CopyPhase::default();
        copy.begin(CopyBegun::default(), true);
        copy.reply_came(true);
        assert!(copy.is_both() && copy.is_reading());
        copy.ready();
        assert!(!copy.is_both() && copy.is_at_rest());
    }

    #[test]
    fn one_that_was_ended_before_the_server_read_it_is_not_read() {
        let mut copy = CopyPhase::default();
        copy.begin(CopyBegun { ended: true, syncs: 0, refuses: false }, false);
        assert!(copy.is_at_rest());
        copy.begin(CopyBegun { ended: true, syncs: 1, refuses: false }, false);
        assert!(!copy.is_reading() && copy.has_syncs());
    }
}
