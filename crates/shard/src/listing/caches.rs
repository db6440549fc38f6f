//! The query caches of entries, as rows for SHOW CACHE.

use messages::{CacheRow, CacheState};

use crate::core::Core;
use crate::query_cache::State;
use crate::time::micros;

pub(crate) fn rows(core: &Core) -> Vec<CacheRow> {
    let now_us = core.now.mono_us;
    core.query_caches
        .iter()
        .map(|(database, cache)| {
            let entry = core.config.database(database);
            let most_us = entry.map_or(0, |entry| micros(entry.query_cache_max_staleness));
            let state = match cache.state(most_us, now_us) {
                State::Current => CacheState::Current,
                State::Starting => CacheState::Starting,
                State::Behind => CacheState::Behind,
                State::OtherPrimary => CacheState::OtherPrimary,
                State::Lost(why) => CacheState::Lost(why.to_owned()),
            };
            let ((answers, bytes), counters) = (cache.size(), cache.counters);
            CacheRow {
                database: database.to_string(),
                state,
                staleness_us: cache.staleness_us(now_us),
                answers: answers as u64,
                bytes,
                hits: counters.hits,
                misses: counters.misses,
                invalidations: counters.invalidations,
                evictions: counters.evictions,
            }
        })
        .collect()
}
