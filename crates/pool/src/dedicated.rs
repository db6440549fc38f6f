//! Servers for one client alone: whoever replicates gets a connection of its own, within the same limits.
//!
//! Owns when a free server has to go so that such a connection can be opened. Who waits is the queue's; that such a
//! server is never lent again is its owner's.

use crate::{Pool, Tally};

impl Pool {
    /// Whoever has waited longest wants a server of its own.
    #[inline]
    #[must_use]
    pub fn next_is_dedicated(&self) -> bool {
        self.queue.front().is_some_and(|waiter| waiter.dedicated)
    }

    /// Whoever has waited longest wants a server of its own, and only a limit stands against opening it now: a free server
    /// has to make room.
    #[must_use]
    pub fn lacks_room(&self, now_us: u64) -> bool {
        self.next_is_dedicated() && self.should_open(now_us) && !self.has_room(now_us)
    }

    fn has_room(&self, now_us: u64) -> bool {
        let limits = &self.limits;
        let below = |tally: &Tally, limit: u32| limit == 0 || tally.taken() < limit;
        let pool_size = match limits.pool_size {
            0 => 0,
            size => size + self.reserve_open(now_us),
        };
        below(&self.shared().servers, pool_size)
            && below(&self.database().servers, limits.max_db_connections)
            && below(&self.user().servers, limits.max_user_connections)
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
        assert!(matches!(pool.take_permit(0), Permit::Taken { .. }));
        pool.logged_in(true, 0);
    }

    #[test]
    fn room_is_wanted_only_for_who_waits_first_and_where_none_is() {
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
        assert!(matches!(pool.take_permit(0), Permit::Taken { .. }));
        assert!(!pool.lacks_room(0), "it is on its way");
        pool.login_withdrawn();
        assert_eq!((pool.logging_in(), pool.is_failing()), (0, false));
    }

    #[test]
    fn others_who_wait_first_want_no_room() {
        let mut pool = pool(limits(1));
        open(&mut pool);
        pool.queue.join(1, 0);
        pool.queue.join_dedicated(2, 0);
        assert!(!pool.lacks_room(0));
        pool.queue.serve();
        assert!(pool.lacks_room(0));
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
