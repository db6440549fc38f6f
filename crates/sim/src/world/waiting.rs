//! Nobody waits beside a server that is idle: not on one shard, and not for long where the two are on different ones, or where a client that does
//! nothing keeps it for the values of sequences alone.

use settings::ConnectionSharing;
use shard::ConnId;

use super::{Owner, World};
use crate::client::session::Phase;
use crate::clock::SECOND_US;
use crate::pooler::Pooler;
use crate::tap::Purpose;

/// How long a check of an idle server may keep others from being tried, and then a tick to come.
const CHECK_US: u64 = SECOND_US;
/// How long a client may wait on one shard while a server is idle on another: the shards ask each other by ticks, and
/// what is closed has to be opened anew.
const ACROSS_US: u64 = 5 * SECOND_US;
/// How long a pool below its guarantee may wait while others are served: until the youngest connection is a second old, two looks, a release and a login.
const GUARANTEED_US: u64 = 5 * SECOND_US;

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
                (other.database, other.user, other.host) == (state.database, state.user, state.host)
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
        self.expect_sleepers_not_waited_for();
        self.expect_guarantees_met();
    }

    /// Every second: no pool waits below its guarantee while another one serves clients that have come later with what it has above its own.
    fn expect_guarantees_met(&mut self) {
        let now_us = self.clock.now_us();
        if self.config.global.connection_sharing == ConnectionSharing::None || now_us < self.excused_until_us
        {
            return;
        }
        let pools: Vec<_> =
            self.current_shards().flat_map(|shard| self.shards[shard].pooler.pools()).collect();
        let above = |state: &shard::PoolState<'_>| {
            let guaranteed = state.pool.limits.sharing.map_or(0, |sharing| sharing.guaranteed);
            i64::from(state.pool.shared().servers.taken()) - i64::from(guaranteed)
        };
        let waits = pools.iter().find(|state| {
            let pool = &state.pool;
            let size = i64::from(pool.size()) - i64::from(pool.shared().servers.taken());
            let hindered =
                pool.paused || pool.logging_in() > 0 || pool.is_failing() || pool.limits.sharing.is_none();
            let Some(waiter) = pool.queue.front_shared() else { return false };
            let served_since = |other: &&shard::PoolState<'_>| {
                let oldest = other.pool.queue.front_shared();
                other.database == state.database
                    && above(other) > 0
                    && !other.pool.paused
                    && oldest.is_some_and(|oldest| oldest.since_us > waiter.since_us + GUARANTEED_US)
            };
            !hindered && above(state) < 0 && size > 0 && pools.iter().any(|other| served_since(&other))
        });
        let text =
            waits.map(|state| format!("{} on {} waits below its guarantee", state.user, state.database));
        if let Some(text) = text {
            self.checker.object("I22", text);
        }
    }

    /// Every second.
    fn expect_sleepers_not_waited_for(&mut self) {
        let now_us = self.clock.now_us();
        let long = |since_us: u64| now_us.saturating_sub(since_us) > ACROSS_US;
        let sleepers: Vec<u32> = self
            .clients
            .iter()
            .filter(|client| client.phase == Phase::Open && client.sleeps_since_us.is_some_and(long))
            .map(|client| client.number)
            .collect();
        if sleepers.is_empty() {
            return;
        }
        let pools: Vec<_> = self
            .current_shards()
            .flat_map(|shard| self.shards[shard].pooler.pools().into_iter().map(move |state| (shard, state)))
            .collect();
        let waits = pools.iter().find_map(|(_, state)| {
            let hindered = state.pool.paused || state.pool.logging_in() > 0 || state.pool.is_failing();
            let has_waited = state.pool.queue.front_shared().is_some_and(|waiter| long(waiter.since_us));
            if hindered || !has_waited {
                return None;
            }
            let kept = |(shard, other): &(usize, shard::PoolState<'_>)| {
                (other.database, other.user) == (state.database, state.user)
                    && self.keeps_one_for(*shard, other, &sleepers)
            };
            pools.iter().any(kept).then(|| format!("{} on {}", state.user, state.database))
        });
        if let Some(pool) = waits {
            let text = format!("somebody waits for {pool} beside a server that is kept for values alone");
            self.checker.object("I8", text);
        }
    }

    /// A server of the pool is not idle, and one of these clients had it last.
    fn keeps_one_for(&self, shard: usize, state: &shard::PoolState<'_>, clients: &[u32]) -> bool {
        self.shards[shard].sockets.iter().flatten().any(|socket| {
            let is_of_pool = socket.tap.as_ref().is_some_and(|tap| {
                matches!(&tap.purpose, Purpose::Session { database, user, own: false }
                    if database == state.database && user == state.user)
            });
            let is_idle = state.pool.idle().iter().any(|idle| ConnId(idle.server) == socket.spot.conn);
            let backend = socket.end.map(|end| self.owner(end.peer()));
            let Some(Owner::Backend(number)) = backend.filter(|_| is_of_pool && !is_idle) else {
                return false;
            };
            self.cluster.used_by(number).is_some_and(|client| clients.contains(&client))
        })
    }
}
