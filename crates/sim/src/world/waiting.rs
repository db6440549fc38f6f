//! Nobody waits beside a server that is idle: not on one shard, and not for long where the two are on different ones.

use super::World;
use crate::clock::SECOND_US;
use crate::pooler::Pooler;

/// How long a check of an idle server may keep others from being tried, and then a tick to come.
const CHECK_US: u64 = SECOND_US;
/// How long a client may wait on one shard while a server is idle on another: the shards ask each other by ticks, and
/// what is closed has to be opened anew.
const ACROSS_US: u64 = 5 * SECOND_US;

impl<P: Pooler> World<P> {
    /// After every event of a shard.
    pub(super) fn expect_idle_servers_lent(&mut self, shard: usize) {
        if self.clock.now_us() < self.excused_until_us {
            return;
        }
        let as_of_us = self.clock.now_us().saturating_sub(CHECK_US);
        let pools = self.shards[shard].pooler.pools();
        let found = pools.iter().find(|state| state.pool.waits_beside_idle(as_of_us));
        let text = found.map(|state| {
            format!(
                "on shard {shard} somebody waits beside an idle server ({} on {})",
                state.user, state.database
            )
        });
        if let Some(text) = text {
            self.checker.object("I8", text);
        }
    }

    /// Every second.
    pub(super) fn expect_idle_servers_given_up(&mut self) {
        let now_us = self.clock.now_us();
        if now_us < self.excused_until_us {
            return;
        }
        let long = |since_us: u64| now_us.saturating_sub(since_us) > ACROSS_US;
        let pools: Vec<_> = self.current_shards().map(|shard| self.shards[shard].pooler.pools()).collect();
        let waits = pools.iter().flatten().find(|state| {
            // One that cannot be opened for another reason is not to be had by closing one elsewhere.
            let hindered = state.pool.paused || state.pool.logging_in() > 0 || state.pool.is_failing();
            let idle_elsewhere = |other: &&shard::PoolState<'_>| {
                (other.database, other.user) == (state.database, state.user)
                    && other.pool.idle().first().is_some_and(|idle| long(idle.since_us))
            };
            !hindered
                && state.pool.queue.front_shared().is_some_and(|waiter| long(waiter.since_us))
                && pools.iter().flatten().any(|other| idle_elsewhere(&other))
        });
        let text = waits.map(|state| {
            format!(
                "somebody waits for {} on {} beside a server that is idle elsewhere",
                state.user, state.database
            )
        });
        if let Some(text) = text {
            self.checker.object("I8", text);
        }
    }
}
