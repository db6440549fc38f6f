//! What one shard's part of a pool tells of itself for the division of the budgets that it draws on (`connection_sharing`).
//!
//! Owns when clients that wait are a claim on what others have. The division is [`crate::share_out`].

use crate::shares::{ShareReport, TENURE_US};
use crate::{Budget, Pool, SlotCounter};

/// A pool claims more when this many checks in a row have found clients waiting.
const LOOKS: u8 = 2;

impl Pool {
    /// Its clients have waited at every look for a while; `is_look`: this is one of the looks, three times a second. `stuck`: how many of its servers will not be
    /// released soon, if that was counted.
    pub fn tell_share(&mut self, shard: u16, stuck: Option<u32>, is_look: bool, now_us: u64) {
        let Some(sharing) = self.limits.sharing else { return };
        let waiting = self.waiting_to_open(now_us);
        if is_look {
            self.looks_waiting = if waiting > 0 { self.looks_waiting.saturating_add(1) } else { 0 };
        }
        let stuck = stuck.map_or(self.told_share.stuck, |stuck| stuck.saturating_add(self.external()));
        let unused = self.idle().iter().filter(|idle| now_us.saturating_sub(idle.since_us) >= TENURE_US);
        let idle = u32::try_from(unused.count()).unwrap_or(u32::MAX);
        self.tell(ShareReport { waiting, idle, stuck });
        let claims = sharing.by_demand && self.looks_waiting >= LOOKS;
        self.shared().share().set_claim(shard, claims);
    }

    /// The settings have changed: what it has told is told anew.
    pub fn sharing_changed(&mut self, shard: u16) {
        let share = self.shared().share();
        share.set(self.limits.sharing, self.limits.most_servers());
        let limits = [
            (Budget::Database, self.limits.max_db_connections),
            (Budget::User, self.limits.max_user_connections),
        ];
        limits.iter().filter(|(_, limit)| *limit == 0).for_each(|(budget, _)| share.end_limit(*budget));
        if self.limits.sharing.is_none() {
            self.tell(ShareReport::default());
            self.shared().share().set_claim(shard, false);
        }
    }

    /// How many connections of a budget are shared out (0: it has no limit). Those that listen for the clients of a whole pool count in it, and in no pool.
    #[must_use]
    pub fn left_to_share(&self, budget: Budget, now_us: u64) -> u32 {
        let (limit, counts) = match budget {
            Budget::Database => (self.limits.max_db_connections, self.database()),
            Budget::User => (self.limits.max_user_connections, self.user()),
        };
        match limit {
            0 => 0,
            limit => {
                let leased = counts.servers.leased(now_us).unwrap_or(limit);
                limit.min(leased).saturating_sub(counts.listeners.taken()).max(1)
            }
        }
    }

    /// It has more connections than it may have of a budget that it shares.
    #[must_use]
    pub fn is_over_allowance(&self) -> bool {
        self.limits.sharing.is_some()
            && self.shared().share().exceeded(self.shared().servers.staying()).is_some()
    }

    /// It takes no part in sharing, or has more than it may have: an idle server of it may be closed for another pool.
    #[must_use]
    pub fn may_give_idle(&self) -> bool {
        self.limits.sharing.is_none() || self.is_over_allowance()
    }

    /// A server of it is being closed: it counts until its socket is gone.
    pub fn server_leaves(&self) {
        self.counters().into_iter().for_each(SlotCounter::leaves);
    }

    /// Its socket is gone, and [`Pool::closed`] follows.
    pub fn server_has_left(&self) {
        self.counters().into_iter().for_each(SlotCounter::has_left);
    }

    fn tell(&mut self, report: ShareReport) {
        let told = std::mem::replace(&mut self.told_share, report);
        self.shared().share().change(told, report);
    }

    /// For how many of those that wait a connection would be opened. While logins fail that is one, once the next is due: none is tried without a place.
    fn waiting_to_open(&self, now_us: u64) -> u32 {
        if self.paused || self.is_failing() && now_us < self.retry_at_us() {
            return 0;
        }
        let waiting = self.unserved(now_us) + usize::from(self.queue.front_dedicated().is_some());
        let room = match self.size() {
            0 => u32::MAX,
            size => (size + self.reserve_open(now_us)).saturating_sub(self.shared().servers.taken()),
        };
        let room = if self.is_failing() { room.min(1) } else { room };
        u32::try_from(waiting).unwrap_or(u32::MAX).saturating_sub(self.logging_in()).min(room)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::pool::tests::limits;
    use crate::{ConnectionCounts, Limits, OpenFor, Permit, SharedPool, Sharing, share_out};

    /// Two pools of a database that has this many connections.
    fn two(budget: u32, guaranteed: [u32; 2], by_demand: bool) -> ([Pool; 2], [Arc<SharedPool>; 2]) {
        let database = Arc::<ConnectionCounts>::default();
        let shared = [Arc::new(SharedPool::on(0)), Arc::new(SharedPool::on(0))];
        let pools = [0, 1].map(|place: usize| {
            let sharing = Some(Sharing { guaranteed: guaranteed[place], by_demand });
            let limits = Limits { max_db_connections: budget, sharing, ..limits(20) };
            Pool::new(limits, Arc::clone(&shared[place]), Arc::clone(&database), Arc::default())
        });
        (pools, shared)
    }

    fn open(pool: &mut Pool) -> bool {
        let is_open = matches!(pool.take_permit(OpenFor::Any, 0), Permit::Taken { .. });
        if is_open {
            pool.logged_in(OpenFor::Any, true, 0);
        }
        is_open
    }

    fn look(pools: &mut [Pool; 2], shared: &[Arc<SharedPool>; 2], budget: u32) {
        pools.iter_mut().for_each(|pool| pool.tell_share(0, Some(0), true, 0));
        share_out(Budget::Database, budget, shared);
    }

    #[test]
    fn a_place_that_is_given_up_is_not_taken_back() {
        let (mut pools, shared) = two(3, [0, 2], false);
        (0..3).for_each(|_| assert!(open(&mut pools[0])));
        pools.iter_mut().for_each(|pool| {
            (0..5).for_each(|client| {
                pool.queue.join(client, 0);
            })
        });
        assert!(!open(&mut pools[1]));
        look(&mut pools, &shared, 3);
        assert!(pools[0].is_over_allowance() && !pools[1].is_over_allowance());
        pools[0].server_leaves();
        pools[0].server_leaves();
        assert!(!pools[0].is_over_allowance(), "no more than that");
        pools[0].server_has_left();
        pools[0].closed();
        assert!(!open(&mut pools[0]), "it is not for those who wait there");
        assert!(pools[1].has_room(0) && open(&mut pools[1]));
    }

    #[test]
    fn a_connection_that_listens_is_not_shared_out() {
        let (mut pools, shared) = two(2, [0, 0], true);
        assert!(open(&mut pools[0]) && open(&mut pools[1]));
        let _unit = pools[1].take_listener();
        pools[1].begin_listening();
        pools[0].return_idle(7, 0);
        pools[1].queue.join(1, 0);
        for _ in 0..LOOKS {
            pools.iter_mut().for_each(|pool| pool.tell_share(0, Some(0), true, TENURE_US));
            let left = pools[1].left_to_share(Budget::Database, TENURE_US);
            share_out(Budget::Database, left, &shared);
        }
        assert!(pools[0].is_over_allowance(), "one of the two listens, and the other pool has waited");
        pools[0].server_leaves();
        pools[0].server_has_left();
        pools[0].closed();
        assert!(open(&mut pools[1]));
    }

    #[test]
    fn clients_have_to_wait_for_a_while_before_they_claim_what_others_use() {
        let (mut pools, shared) = two(4, [0, 0], true);
        (0..4).for_each(|_| assert!(open(&mut pools[0])));
        pools[0].queue.join(1, 0);
        pools[1].queue.join(2, 0);
        look(&mut pools, &shared, 4);
        assert!(!pools[0].is_over_allowance());
        look(&mut pools, &shared, 4);
        assert!(pools[0].is_over_allowance());
    }

    #[test]
    fn who_is_paused_or_cannot_log_in_wants_nothing_and_who_is_gone_neither() {
        let (mut pools, shared) = two(4, [0, 4], true);
        (0..4).for_each(|_| assert!(open(&mut pools[0])));
        pools[1].queue.join(1, 0);
        let claims = |pools: &mut [Pool; 2]| {
            look(pools, &shared, 4);
            shared[0].share().is_bounded()
        };
        assert!(claims(&mut pools));
        pools[1].paused = true;
        assert!(!claims(&mut pools));
        pools[1].paused = false;
        pools[1].logins.of(OpenFor::Any).begin();
        assert!(!claims(&mut pools), "one is being opened for it");
        pools[1].logged_in(OpenFor::Any, false, 0);
        assert!(!claims(&mut pools), "logins fail");
        pools[1].queue.join(2, 0);
        let retry_us = pools[1].retry_at_us();
        pools.iter_mut().for_each(|pool| pool.tell_share(0, Some(0), true, retry_us));
        share_out(Budget::Database, 4, &shared);
        assert_eq!(shared[0].share().allowed(Budget::Database), Some(3), "one place for the next attempt");
        pools[1].forget_failure();
        assert!(claims(&mut pools));
        drop(pools);
        share_out(Budget::Database, 4, &shared);
        assert!(!shared[0].share().is_bounded());
    }
}
