//! How busy this shard's thread is, and spreading its largest pool to a shard that is less busy.

use crate::core::Core;

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

impl ThreadLoad {
    /// How busy the thread was: a busy shard spreads its largest pool to the least busy one.
    pub(crate) fn busy(&mut self, core: &mut Core, percent: u32) {
        core.pool_registry.set_busy_percent(core.id.0, percent);
        let limit = core.config.global.spread_busy_percent;
        self.note(percent, limit);
        if self.busy_seconds >= BUSY_SECONDS && core.pool_registry.shards() > 1 {
            self.spread_largest(core);
        }
    }

    fn spread_largest(&mut self, core: &mut Core) {
        let least = core.config.global.spread_min_servers;
        let largest = core.local_pools.values().max_by_key(|local_pool| local_pool.pool.open());
        let Some(local_pool) = largest.filter(|local_pool| local_pool.pool.open() >= least) else { return };
        let shared = local_pool.pool.shared();
        let mine = core.pool_registry.busy_percent(core.id.0);
        let idlest = (0..core.pool_registry.shards())
            .filter(|shard| shared.shards() & (1 << shard) == 0)
            .min_by_key(|shard| core.pool_registry.busy_percent(*shard));
        if let Some(shard) = idlest.filter(|shard| core.pool_registry.busy_percent(*shard) < mine) {
            shared.spread_to(shard);
            self.busy_seconds = 0;
        }
    }
}
