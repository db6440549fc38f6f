//! Which server connection is opened next: one for any client, or one dedicated to a single replicating client.
//!
//! Owns that choice, and when an idle server has to be closed so that a dedicated connection can be opened. That a
//! dedicated server is never checked out again is its owner's.

use crate::{OpenFor, Pool, SlotCounter};

impl Pool {
    /// What to open next, if anything: a client waits (or the minimum is to be kept and is not reached), nothing of the
    /// kind is being opened already, and no backoff is running. One login at a time protects a server that has just started.
    /// Of two kinds, the one whose client has waited longer.
    #[must_use]
    pub fn next_to_open(&self, now_us: u64, keeps_minimum: bool) -> Option<OpenFor> {
        if self.paused {
            return None;
        }
        let waits = self.unserved(now_us) > 0;
        let any = (waits || keeps_minimum && self.below_minimum()) && self.logins.shared.may_begin(now_us);
        let dedicated = self.queue.front_dedicated().is_some() && self.logins.dedicated.may_begin(now_us);
        match (any, dedicated) {
            (true, true) if waits && !self.next_is_dedicated() => Some(OpenFor::Any),
            (_, true) => Some(OpenFor::Dedicated),
            (true, false) => Some(OpenFor::Any),
            (false, false) => None,
        }
    }

    /// The client that has waited longest needs a dedicated server.
    #[inline]
    #[must_use]
    pub fn next_is_dedicated(&self) -> bool {
        self.queue.front().is_some_and(|waiter| waiter.dedicated)
    }

    /// The client that has waited longest needs a dedicated server, and only a limit prevents opening it now: an idle server
    /// has to make room.
    #[inline]
    #[must_use]
    pub fn lacks_room(&self, now_us: u64) -> bool {
        self.next_is_dedicated()
            && !self.paused
            && self.logins.dedicated.may_begin(now_us)
            && !self.has_room(now_us)
    }

    /// No limit prevents one more server now.
    #[must_use]
    pub fn has_room(&self, now_us: u64) -> bool {
        let limits = &self.limits;
        let below = |slots: &SlotCounter, limit: u32| {
            (limit == 0 || slots.taken() < limit) && (!limits.in_fleet || slots.has_room(now_us))
        };
        let pool_size = match self.size() {
            0 => 0,
            size => size + self.reserve_open(now_us),
        };
        let taken = self.shared().servers.taken();
        let is_allowed =
            limits.sharing.is_none() || self.shared().share().exceeded(taken.saturating_add(1)).is_none();
        is_allowed
            && below(&self.shared().servers, pool_size)
            && below(&self.database().servers, limits.max_db_connections)
            && below(&self.user().servers, limits.max_user_connections)
    }

    /// A login succeeded or failed.
    pub fn logged_in(&mut self, open_for: OpenFor, succeeded: bool, now_us: u64) {
        let longest_us = self.limits.server_login_retry_us;
        self.logins.of(open_for).end(succeeded, now_us, longest_us);
    }

    /// A login ended with a server that is not wanted, or that is down: the next is tried after this time at the latest.
    pub fn found_none(&mut self, open_for: OpenFor, now_us: u64, longest_us: u64) {
        let longest_us = longest_us.min(self.limits.server_login_retry_us);
        self.logins.of(open_for).end(false, now_us, longest_us);
    }

    /// A login ended for a reason that does not concern the next: its client was refused, or has disconnected.
    pub fn login_withdrawn(&mut self, open_for: OpenFor) {
        self.logins.of(open_for).withdraw();
    }

    /// Server connections that are logging in.
    #[must_use]
    pub fn logging_in(&self) -> u32 {
        self.logins.in_progress()
    }

    /// Logins for any client fail at present.
    #[must_use]
    pub fn is_failing(&self) -> bool {
        self.logins.shared.is_failing()
    }

    /// When the next login for any client may be tried after a failure; 0 if there was none.
    #[must_use]
    pub fn retry_at_us(&self) -> u64 {
        self.logins.shared.retry_at_us()
    }

    /// Tries again at once (RECONNECT, RESUME, a new configuration).
    pub fn forget_failure(&mut self) {
        self.logins.forget_failures();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::Permit;
    use crate::pool::tests::limits;

    fn pool(limits: crate::Limits) -> Pool {
        Pool::new(limits, Arc::default(), Arc::default(), Arc::default())
    }

    fn open(pool: &mut Pool) {
        assert!(matches!(pool.take_permit(OpenFor::Any, 0), Permit::Taken { .. }));
        pool.logged_in(OpenFor::Any, true, 0);
    }

    #[test]
    fn room_is_needed_only_for_the_first_waiter_and_where_none_is() {
        let mut pool = pool(limits(2));
        open(&mut pool);
        pool.queue.join_dedicated(1, 0);
        assert!(!pool.lacks_room(0), "one more may be opened");
        open(&mut pool);
        assert!(pool.lacks_room(0));
        pool.paused = true;
        assert!(!pool.lacks_room(0), "nothing is opened in a pause");
        pool.paused = false;
        pool.closed();
        assert!(!pool.lacks_room(0));
        assert!(matches!(pool.take_permit(OpenFor::Dedicated, 0), Permit::Taken { .. }));
        assert!(!pool.lacks_room(0), "it is on its way");
        pool.login_withdrawn(OpenFor::Dedicated);
        assert_eq!((pool.logging_in(), pool.is_failing()), (0, false));
    }

    #[test]
    fn other_waiters_in_front_need_no_room() {
        let mut pool = pool(limits(1));
        open(&mut pool);
        pool.queue.join(1, 0);
        pool.queue.join_dedicated(2, 0);
        assert!(!pool.lacks_room(0));
        pool.queue.serve();
        assert!(pool.lacks_room(0));
    }

    #[test]
    fn the_two_kinds_are_opened_by_arrival_and_fail_separately() {
        let mut pool = pool(limits(3));
        pool.queue.join_dedicated(1, 0);
        pool.queue.join(2, 0);
        assert_eq!(pool.next_to_open(0, false), Some(OpenFor::Dedicated));
        pool.take_permit(OpenFor::Dedicated, 0);
        assert_eq!(pool.next_to_open(0, false), Some(OpenFor::Any), "also while that logs in");
        pool.closed();
        pool.logged_in(OpenFor::Dedicated, false, 0);
        assert_eq!(pool.next_to_open(0, false), Some(OpenFor::Any), "the other's failure does not delay it");
        pool.take_permit(OpenFor::Any, 0);
        assert_eq!(pool.next_to_open(99_999, false), None);
        assert_eq!(pool.next_to_open(100_000, false), Some(OpenFor::Dedicated));
        pool.paused = true;
        assert_eq!(pool.next_to_open(100_000, false), None);
    }

    #[test]
    fn the_reserve_and_the_limits_of_database_and_user_count_too() {
        let mut reserve = pool(crate::Limits { reserve_pool_size: 1, ..limits(1) });
        open(&mut reserve);
        reserve.queue.join_dedicated(1, 0);
        assert!(reserve.lacks_room(0));
        assert!(!reserve.lacks_room(5_000_000), "it has waited long enough for the reserve");
        for limits in [
            crate::Limits { max_db_connections: 1, ..limits(5) },
            crate::Limits { max_user_connections: 1, ..limits(5) },
        ] {
            let mut pool = pool(limits);
            open(&mut pool);
            pool.queue.join_dedicated(1, 0);
            assert!(pool.lacks_room(0));
        }
    }
}
