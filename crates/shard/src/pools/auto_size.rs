//! `pool_size = auto` on a shard: reports what it has counted, follows the size, and decides it where that is its part.
//!
//! Runs at ticks only. One shard decides for all, the first that has looked; who sees no client of the pool any more ceases to ([`pool::Pool`] is dropped).

use messages::ShardId;
use pool::{SizeChange, SizeChangeKind, SizeController, SizeHold, SizeInterval};
use settings::SizeBounds;
use telemetry::Level;

use crate::core::Core;
use crate::local_pools::local_pool::LocalPool;
use crate::local_pools::sizing::Search;
use crate::local_pools::table::PoolId;

/// Reports, decides and follows.
pub(crate) fn look(core: &mut Core, pool_id: PoolId) {
    let (now_us, id, leaves) = (core.now.mono_us, core.id, core.exporting.is_some());
    let Some(local_pool) = core.local_pools.get_mut(pool_id) else { return };
    let SizeBounds::Auto { min, max } = local_pool.pool.limits.pool_size else {
        if local_pool.sizing.stop() {
            local_pool.pool.shared().sizing().cease(id.0);
        }
        return;
    };
    report(local_pool, now_us);
    let change = decide(local_pool, id, (min, max), leaves, now_us);
    local_pool.pool.follow_size();
    if let Some(change) = change {
        log(core, pool_id, &change);
    }
}

fn report(local_pool: &mut LocalPool, now_us: u64) {
    let stuck = std::mem::take(&mut local_pool.sizing.stuck);
    local_pool.pool.tell_stuck(stuck);
    if let Some(report) = local_pool.sizing.report(&local_pool.counters, now_us) {
        local_pool.pool.shared().sizing().report(&report);
    }
}

fn decide(
    local_pool: &mut LocalPool,
    id: ShardId,
    (min, max): (u32, u32),
    leaves: bool,
    now_us: u64,
) -> Option<SizeChange> {
    let obstacle = obstacle(local_pool, leaves);
    let figures = local_pool.pool.shared().sizing();
    if !figures.decides(id.0) {
        local_pool.sizing.search = None;
        return None;
    }
    let sum = figures.sum();
    let Some(search) = &mut local_pool.sizing.search else {
        let size = figures.target().unwrap_or(min);
        let controller = SizeController::new(min, max, size);
        figures.set_target(controller.size());
        local_pool.sizing.search = Some(Box::new(Search { controller, seen: sum, seen_us: now_us }));
        return None;
    };
    let interval = SizeInterval {
        elapsed_us: now_us.saturating_sub(search.seen_us),
        counted: sum.since(&search.seen),
        reporters: figures.reporters(),
        open: local_pool.pool.shared().servers.taken(),
        reserve: local_pool.pool.limits.reserve_pool_size,
        waiting: local_pool.pool.shared().waiting(),
        stuck: figures.stuck(),
        obstacle,
    };
    (search.seen, search.seen_us) = (sum, now_us);
    let bounds = search.controller.set_bounds(min, max);
    let change = bounds.or_else(|| search.controller.observe(&interval));
    figures.set_target(search.controller.size());
    change
}

/// Why figures say nothing of the size now.
fn obstacle(local_pool: &LocalPool, leaves: bool) -> Option<SizeHold> {
    if local_pool.pool.paused || leaves {
        Some(SizeHold::Paused)
    } else if local_pool.unavailable_since_us().is_some() {
        Some(SizeHold::Failover)
    } else if local_pool.pool.is_failing() {
        Some(SizeHold::LoginFailures)
    } else {
        None
    }
}

fn log(core: &mut Core, pool_id: PoolId, change: &SizeChange) {
    let Some(local_pool) = core.local_pools.get(pool_id) else { return };
    let host = local_pool.host().map(|host| format!(" on {host}")).unwrap_or_default();
    let pool = format!("pool {}/{}{host}: pool_size", local_pool.database_name, local_pool.user);
    let (from, to, reason) = (change.from, change.to, &change.reason);
    let (level, text) = match change.kind {
        SizeChangeKind::Keeps | SizeChangeKind::Bounds => {
            (Level::Log, format!("{pool} {from} -> {to}: {reason}"))
        }
        SizeChangeKind::Tries => (Level::Debug, format!("{pool} {from}: tries {to}")),
        SizeChangeKind::Returns => (Level::Debug, format!("{pool} {from}: back to {to}: {reason}")),
    };
    core.log(level, text);
}
