//! One pool on several shards: which shards have it, where clients go, how permits move.
//!
//! Owns spreading pools and moving permits between shards. Sockets never move for it: a shard that can spare a server
//! closes it, and the shard that needs one opens its own.

use messages::{LimitOf, ShardId, ShardMessage};
use pool::SharedPool;
use settings::PoolMode;

use crate::ConnId;
use crate::close_reason::CloseReason;
use crate::core::Core;
use crate::local_pools::local_pool::LocalPool;
use crate::local_pools::table::PoolId;
use crate::state::ShardState;
use crate::time::passed;

/// After this wait a client gets the permit of a server that is idle on another shard, fair share or not.
const LONG_WAIT_US: u64 = 300_000;

/// A pool spreads when its shard has been busy for this many reports (one a second).
const BUSY_SECONDS: u32 = 1;

/// How busy this shard's thread is.
#[derive(Default)]
pub(crate) struct ThreadLoad {
    percent: u32,
    /// Reports in a row that were over the limit.
    busy_seconds: u32,
}

impl ThreadLoad {
    pub(crate) fn percent(&self) -> u32 {
        self.percent
    }

    fn note(&mut self, percent: u32, limit: u32) {
        self.percent = percent;
        self.busy_seconds = if percent >= limit { self.busy_seconds + 1 } else { 0 };
    }
}

impl ShardState {
    /// How busy the thread was: a busy shard spreads its largest pool to the least busy one.
    pub(crate) fn busy(&mut self, percent: u32) {
        self.core.pool_registry.set_busy_percent(self.core.id.0, percent);
        let limit = self.core.config.global.spread_busy_percent;
        self.load.note(percent, limit);
        if self.load.busy_seconds >= BUSY_SECONDS && self.core.pool_registry.shards() > 1 {
            self.spread_largest();
        }
    }

    fn spread_largest(&mut self) {
        let least = self.core.config.global.spread_min_servers;
        let largest = self.core.local_pools.values().max_by_key(|local_pool| local_pool.pool.open());
        let Some(local_pool) = largest.filter(|local_pool| local_pool.pool.open() >= least) else { return };
        let shared = local_pool.pool.shared();
        let mine = self.core.pool_registry.busy_percent(self.core.id.0);
        let idlest = (0..self.core.pool_registry.shards())
            .filter(|shard| shared.shards() & (1 << shard) == 0)
            .min_by_key(|shard| self.core.pool_registry.busy_percent(*shard));
        if let Some(shard) = idlest.filter(|shard| self.core.pool_registry.busy_percent(*shard) < mine) {
            shared.spread_to(shard);
            self.load.busy_seconds = 0;
        }
    }

    /// Another shard asks: close the server that has been idle longest of those that hold a permit of that limit.
    pub(crate) fn permit_requested(&mut self, limit: LimitOf, database: &str, user: &str) {
        let same = |local_pool: &LocalPool| match limit {
            LimitOf::Pool => &*local_pool.database_name == database && &*local_pool.user == user,
            LimitOf::Database => &*local_pool.database_name == database,
            LimitOf::User => &*local_pool.user == user,
        };
        let idle = self.core.local_pools.iter().filter(|(_, local_pool)| same(local_pool));
        let longest = idle
            .filter_map(|(_, local_pool)| local_pool.pool.idle().first())
            .min_by_key(|idle| idle.since_us);
        if let Some(server) = longest.map(|idle| ConnId(idle.server)) {
            self.close_server(server, CloseReason::Evicted);
        }
    }

    /// A permit is free: this shard tries first if a client waits here, and the requesting shards are notified.
    pub(crate) fn permit_is_free(&mut self, pool_id: PoolId) {
        let Some(local_pool) = self.core.local_pools.get(pool_id) else { return };
        let wanting = local_pool.pool.shared().permit_requests() & !(1 << self.core.id.0);
        let (database, user) = (local_pool.database_name.to_string(), local_pool.user.to_string());
        for shard in (0..self.core.pool_registry.shards()).filter(|shard| wanting & (1 << shard) != 0) {
            let message = ShardMessage::PermitFreed { database: database.clone(), user: user.clone() };
            self.core.send_to_shard(ShardId(shard), message);
        }
        let related = self
            .core
            .local_pools
            .ids_of(|local_pool| *local_pool.database_name == *database || *local_pool.user == *user);
        if wanting == 0 {
            related.into_iter().for_each(|index| self.serve_or_open(index));
        }
    }

    /// A requested permit is free.
    pub(crate) fn permit_freed(&mut self, database: &str, user: &str) {
        let key = (database.into(), user.into());
        let Some(pool_id) = self.core.local_pools.find(&key) else { return };
        if let Some(local_pool) = self.core.local_pools.get(pool_id) {
            local_pool.pool.shared().withdraw_permit_request(self.core.id.0);
        }
        self.serve_or_open(pool_id);
    }

    /// A limit of the database or the user is reached: the pool that matches and has idle servers gives one.
    pub(crate) fn evict(&mut self, pool_id: PoolId, limit: LimitOf) {
        let related = |local_pool: &LocalPool, wanted: &LocalPool| match limit {
            LimitOf::Pool => false,
            LimitOf::Database => local_pool.database_name == wanted.database_name,
            LimitOf::User => local_pool.user == wanted.user,
        };
        let Some(wanted) = self.core.local_pools.get(pool_id) else { return };
        if wanted.pool.queue.is_empty() {
            return; // The minimum alone evicts no server.
        }
        let victim = self
            .core
            .local_pools
            .iter()
            .filter(|(index, local_pool)| *index != pool_id && related(local_pool, wanted))
            .filter_map(|(_, local_pool)| local_pool.pool.idle().first())
            .min_by_key(|idle| idle.since_us)
            .map(|idle| ConnId(idle.server));
        match victim {
            Some(server) => self.close_server(server, CloseReason::Evicted),
            None if self.core.pool_registry.shards() > 1 => {
                self.core.request_permit_from_shards(pool_id, limit)
            }
            None => {}
        }
    }
}

impl Core {
    /// The shard that a new client of this pool goes to: one that has a local pool; in turn if several have.
    pub(crate) fn shard_for(&mut self, shared: &SharedPool) -> ShardId {
        let shards = shared.shards();
        if shards & (1 << self.id.0) != 0 && shards.count_ones() == 1 {
            return self.id;
        }
        let turn = self.random_u32() % shards.count_ones().max(1);
        let mut bits = shards;
        for _ in 0..turn {
            bits &= bits.wrapping_sub(1);
        }
        ShardId(u16::try_from(bits.trailing_zeros()).unwrap_or(0))
    }

    /// Every permit of the pool is taken, but not all by this shard: request one from the others. With less than its share
    /// this shard gets the next that is released there, otherwise one that is idle there when the message arrives.
    pub(crate) fn request_permit(&mut self, pool_id: PoolId) {
        let now_us = self.now.mono_us;
        let Some(local_pool) = self.local_pools.get(pool_id) else { return };
        let shared = local_pool.pool.shared();
        let Some(oldest) = local_pool.pool.queue.front() else { return };
        if local_pool.pool.open() >= shared.servers.taken() {
            return;
        }
        // Servers that stay with their clients are not released because another client waits.
        let lasting = local_pool.pool.next_is_dedicated() || local_pool.pool.limits.mode == PoolMode::Session;
        if lasting || self.has_less_than_its_share(local_pool) {
            shared.request_permit(self.id.0);
            return self.request_permit_from_shards(pool_id, LimitOf::Pool);
        }
        let waited = passed(now_us, oldest.since_us, LONG_WAIT_US);
        if waited && passed(now_us, local_pool.permit_requested_us, LONG_WAIT_US) {
            self.request_permit_from_shards(pool_id, LimitOf::Pool);
        }
    }

    fn request_permit_from_shards(&mut self, pool_id: PoolId, limit: LimitOf) {
        let Some(local_pool) = self.local_pools.get_mut(pool_id) else { return };
        local_pool.permit_requested_us = self.now.mono_us;
        let message = ShardMessage::RequestPermit {
            from: self.id,
            limit,
            database: local_pool.database_name.to_string(),
            user: local_pool.user.to_string(),
        };
        let me = self.id.0;
        for shard in (0..self.pool_registry.shards()).filter(|shard| *shard != me) {
            self.send_to_shard(ShardId(shard), message.clone());
        }
    }

    /// Fewer servers than an even split would give this shard.
    fn has_less_than_its_share(&self, local_pool: &LocalPool) -> bool {
        let shared = local_pool.pool.shared();
        local_pool.pool.open() < shared.servers.taken().div_ceil(shared.shards().count_ones().max(1))
    }

    /// Another shard needs one of this pool's permits and this one has more than its share: read when a server is free.
    pub(crate) fn is_permit_requested(&self, local_pool: &LocalPool) -> bool {
        let shared = local_pool.pool.shared();
        let others = shared.permit_requests() & !(1 << self.id.0);
        others != 0
            && (local_pool.pool.queue.is_empty()
                || !self.has_less_than_its_share(local_pool) && local_pool.pool.open() > 1)
    }
}
