//! What a server connection is opened for: any client, or a single replicating client that gets a dedicated connection.
//!
//! Owns which of the two is opened next, that their logins succeed and fail separately, and when an idle server has to be
//! closed so that a dedicated connection can be opened. That a dedicated server is never checked out again is its owner's.

use crate::{PermitCounter, Pool};

/// After a failed login the first retry comes after this; each further one doubles it, up to `server_login_retry`.
const FIRST_RETRY_US: u64 = 100_000;

/// Which clients a server connection is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenFor {
    /// Any client of the pool, one after another.
    Any,
    /// The client that has waited longest for a dedicated server.
    Dedicated,
}

/// The logins of one kind: one at a time, with exponential backoff after failures.
#[derive(Debug, Default)]
pub(crate) struct LoginBackoff {
    in_progress: u32,
    retry_at_us: u64,
    retry_delay_us: u64,
}

impl LoginBackoff {
    fn may_begin(&self, now_us: u64) -> bool {
        self.in_progress == 0 && now_us >= self.retry_at_us
    }

    pub(crate) fn begin(&mut self) {
        self.in_progress += 1;
    }

    fn end(&mut self, succeeded: bool, now_us: u64, longest_us: u64) {
        self.withdraw();
        if succeeded {
            return self.forget_failure();
        }
        self.retry_delay_us = (self.retry_delay_us * 2).max(FIRST_RETRY_US).min(longest_us);
        self.retry_at_us = now_us + self.retry_delay_us;
    }

    fn withdraw(&mut self) {
        self.in_progress = self.in_progress.saturating_sub(1);
    }

    fn forget_failure(&mut self) {
        (self.retry_at_us, self.retry_delay_us) = (0, 0);
    }
}

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
        let any = (waits || keeps_minimum && self.below_minimum()) && self.shared_logins.may_begin(now_us);
        let dedicated = self.queue.front_dedicated().is_some() && self.dedicated_logins.may_begin(now_us);
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
            && self.dedicated_logins.may_begin(now_us)
            && !self.has_room(now_us)
    }

    fn has_room(&self, now_us: u64) -> bool {
        let limits = &self.limits;
        let below = |permits: &PermitCounter, limit: u32| limit == 0 || permits.taken() < limit;
        let pool_size = match limits.pool_size {
            0 => 0,
            size => size + self.reserve_open(now_us),
        };
        below(&self.shared().servers, pool_size)
            && below(&self.database().servers, limits.max_db_connections)
            && below(&self.user().servers, limits.max_user_connections)
    }

    pub(crate) fn logins(&mut self, open_for: OpenFor) -> &mut LoginBackoff {
        match open_for {
            OpenFor::Any => &mut self.shared_logins,
            OpenFor::Dedicated => &mut self.dedicated_logins,
        }
    }

    /// A login succeeded or failed.
    pub fn logged_in(&mut self, open_for: OpenFor, succeeded: bool, now_us: u64) {
        let longest_us = self.limits.server_login_retry_us;
        self.logins(open_for).end(succeeded, now_us, longest_us);
    }

    /// A login ended for a reason that does not concern the next: its client was refused, or has disconnected.
    pub fn login_withdrawn(&mut self, open_for: OpenFor) {
        self.logins(open_for).withdraw();
    }

    /// Server connections that are logging in.
    #[must_use]
    pub fn logging_in(&self) -> u32 {
        self.shared_logins.in_progress + self.dedicated_logins.in_progress
    }

    /// Logins for any client fail at present.
    #[must_use]
    pub fn is_failing(&self) -> bool {
        self.shared_logins.retry_delay_us > 0
    }

    /// When the next login for any client may be tried after a failure; 0 if there was none.
    #[must_use]
    pub fn retry_at_us(&self) -> u64 {
        self.shared_logins.retry_at_us
    }

    /// Tries again at once (RECONNECT, RESUME, a new configuration).
    pub fn forget_failure(&mut self) {
        self.shared_logins.forget_failure();
        self.dedicated_logins.forget_failure();
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
