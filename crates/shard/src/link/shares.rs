//! Sharing `max_db_connections` and `max_user_connections` among the pools that draw on them (`connection_sharing`).
//!
//! Owns when the division is made anew, and that who has too many gives one up: an idle server at once, otherwise the next that is released. How many a pool may
//! have is `pool::share_out`'s to say. Nothing here runs on a query's path but a look at the pool's allowance where its server is released, and only where sharing is on.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use messages::{LimitOf, ShardId, ShardMessage};
use pool::{Budget, ConnectionCounts, TENURE_US};
use settings::PoolMode;

use crate::connections::Conn;
use crate::core::Core;
use crate::link::opening;
use crate::local_pools::local_pool::LocalPool;
use crate::local_pools::table::PoolId;
use crate::server::{Phase, Server};
use crate::time::passed;

/// A pool has its budget divided for it no more often than once in so long, and at every look.
const ASK_US: u64 = 10_000;

/// Three times a second: what the pools of this shard hold and want is told, and budgets that they want more of are divided anew.
pub(crate) fn look(core: &mut Core) {
    let sharing = core.local_pools.ids_of(|local_pool| local_pool.pool.limits.sharing.is_some());
    if sharing.is_empty() {
        return;
    }
    let (stuck, now_us, shard) = (stuck_servers(core), core.now.mono_us, core.id.0);
    let mut budgets = BTreeSet::new();
    for pool_id in sharing {
        let Some(local_pool) = core.local_pools.get_mut(pool_id) else { continue };
        let stuck = stuck.get(&pool_id).copied().unwrap_or(0);
        local_pool.pool.tell_share(shard, Some(stuck), true, now_us);
        if local_pool.pool.shared().share().is_bounded() || !local_pool.pool.queue.is_empty() {
            budgets.extend(budgets_of(local_pool, now_us));
        }
    }
    for (budget, name, limit) in budgets {
        pool::share_out(budget, limit, &core.pool_registry.pools_of(budget, &name));
    }
}

/// The limits that a pool shares with others, each with its name and how many connections of it are shared.
fn budgets_of(local_pool: &LocalPool, now_us: u64) -> impl Iterator<Item = (Budget, Arc<str>, u32)> {
    let names = [(Budget::Database, &local_pool.database_name), (Budget::User, &local_pool.user)];
    names
        .map(|(budget, name)| (budget, Arc::clone(name), local_pool.pool.left_to_share(budget, now_us)))
        .into_iter()
        .filter(|(_, _, limit)| *limit > 0)
}

/// How many servers of each pool that shares will not be released soon: they stay with their clients, or have been with them for a while.
fn stuck_servers(core: &Core) -> BTreeMap<PoolId, u32> {
    let mut stuck = BTreeMap::new();
    for (_, conn) in core.conns.iter() {
        if let Conn::Server(server) = conn
            && let Some(local_pool) = core.local_pools.get(server.pool)
            && local_pool.pool.limits.sharing.is_some()
            && is_stuck(server, local_pool, core.now.mono_us)
        {
            *stuck.entry(server.pool).or_default() += 1;
        }
    }
    stuck
}

fn is_stuck(server: &Server, local_pool: &LocalPool, now_us: u64) -> bool {
    match server.phase {
        Phase::Leaving { .. } | Phase::Closing => false,
        _ if server.dedicated.is_some() => true,
        Phase::Linked(_) => {
            local_pool.pool.limits.mode == PoolMode::Session
                || server.protocol.keeps_client()
                || now_us.saturating_sub(server.transaction_us) >= TENURE_US
        }
        _ => false,
    }
}

/// A limit that the pool shares is reached, or its allowance of it: it is divided anew, and the pool is notified when a connection is closed. True: the pool may
/// open one now.
pub(crate) fn ask(core: &mut Core, pool_id: PoolId, limit: LimitOf) -> bool {
    let (now_us, shard) = (core.now.mono_us, core.id.0);
    let Some(local_pool) = core.local_pools.get_mut(pool_id) else { return false };
    if local_pool.pool.limits.sharing.is_none() || local_pool.pool.queue.is_empty() {
        return false;
    }
    if let Some(counts) = counts(local_pool, limit) {
        counts.ask(shard);
    }
    if !passed(now_us, local_pool.share_asked_us, ASK_US) {
        return false;
    }
    local_pool.share_asked_us = now_us;
    local_pool.pool.tell_share(shard, None, false, now_us);
    let budgets: Vec<_> = budgets_of(local_pool, now_us).collect();
    for (budget, name, limit) in budgets {
        pool::share_out(budget, limit, &core.pool_registry.pools_of(budget, &name));
    }
    core.local_pools.get(pool_id).is_some_and(|local_pool| local_pool.pool.has_room(now_us))
}

fn counts(local_pool: &LocalPool, limit: LimitOf) -> Option<&Arc<ConnectionCounts>> {
    match limit {
        LimitOf::Pool => None,
        LimitOf::Database => Some(local_pool.pool.database()),
        LimitOf::User => Some(local_pool.pool.user()),
    }
}

/// A server is free, and another pool is to have its place. One that has just been opened is kept: moving places to and fro would cost a login each time.
#[inline]
pub(crate) fn is_to_give_up(local_pool: &LocalPool, server: &Server, now_us: u64) -> bool {
    local_pool.pool.limits.sharing.is_some() && exceeds(local_pool, server, now_us)
}

#[cold]
#[inline(never)]
fn exceeds(local_pool: &LocalPool, server: &Server, now_us: u64) -> bool {
    now_us.saturating_sub(server.since_us) >= TENURE_US && local_pool.pool.is_over_allowance()
}

/// A connection of the pool's budgets is closed: shards that wait for one try again. `is_left`: another shard has requested it from this pool, which is not to take it back.
pub(crate) fn notify_askers(core: &mut Core, pool_id: PoolId, is_left: bool) {
    for limit in [LimitOf::Database, LimitOf::User] {
        let Some(local_pool) = core.local_pools.get(pool_id) else { return };
        let askers = counts(local_pool, limit).map_or(0, |counts| counts.take_askers());
        if askers == 0 {
            continue;
        }
        let name = match limit {
            LimitOf::User => &local_pool.user,
            _ => &local_pool.database_name,
        }
        .to_string();
        if askers & (1 << core.id.0) != 0 {
            budget_freed(core, limit, &name, is_left.then_some(pool_id));
        }
        let others = askers & !(1 << core.id.0);
        for shard in (0..core.pool_registry.shards()).filter(|shard| others & (1 << shard) != 0) {
            core.send_to_shard(ShardId(shard), ShardMessage::BudgetFreed { limit, name: name.clone() });
        }
    }
}

/// The same, to a shard that waits; `left_by`: the pool that has closed it for its clients on another shard.
pub(crate) fn budget_freed(core: &mut Core, limit: LimitOf, name: &str, left_by: Option<PoolId>) {
    let mut waiting = core.local_pools.ids_of(|local_pool| {
        let is_of_budget = match limit {
            LimitOf::Pool => false,
            LimitOf::Database => &*local_pool.database_name == name,
            LimitOf::User => &*local_pool.user == name,
        };
        is_of_budget && !local_pool.pool.queue.is_empty()
    });
    waiting.retain(|pool_id| Some(*pool_id) != left_by);
    waiting.into_iter().for_each(|pool_id| opening::serve_or_open(core, pool_id));
}
