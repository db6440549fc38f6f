//! Unused pools: dropped after `pool_idle_timeout`, `autodb_idle_timeout`, or with their database.
//!
//! Owns when a local pool is dropped and what is kept of it: its counters, as long as its database exists.

use std::sync::Arc;

use telemetry::Level;

use crate::ConnId;
use crate::close_reason::CloseReason;
use crate::core::Core;
use crate::link::server_end;
use crate::local_pools::local_pool::LocalPool;
use crate::local_pools::table::{PoolId, Retired};
use crate::pools::standbys;
use crate::time::{micros, passed};

/// Why a local pool is dropped.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reason {
    /// Its database was removed, or came from `*` and is idle: nothing of it is kept.
    DatabaseGone,
    /// It has been idle for `pool_idle_timeout`.
    Idle,
}

/// Drops a local pool that has no clients any more, once its servers are closed too.
pub(crate) fn forget_unused_pool(core: &mut Core, pool_id: PoolId) {
    let Some(local_pool) = core.local_pools.get(pool_id).filter(|local_pool| local_pool.is_unused()) else {
        return;
    };
    let Some(reason) = reason_to_forget(core, local_pool) else { return };
    if standbys_remain(core, pool_id) {
        return;
    }
    let Some(local_pool) = core.local_pools.get(pool_id) else { return };
    let servers: Vec<ConnId> = local_pool.pool.idle().iter().map(|idle| ConnId(idle.server)).collect();
    if local_pool.pool.open() > 0 {
        return servers
            .into_iter()
            .for_each(|server| server_end::close_server(core, server, CloseReason::PoolIdle));
    }
    if local_pool.pool.listeners() > 0 {
        return; // It is closed once there is no client.
    }
    if local_pool.pool.external() > 0 {
        return; // A process before says when these servers are closed, and of which pool.
    }
    standbys::remove(core, pool_id);
    let Some(local_pool) = core.local_pools.remove(pool_id) else { return };
    local_pool.pool.shared().sizing().cease(core.id.0);
    local_pool.pool.shared().withdraw_permit_request(core.id.0);
    if local_pool.serves.standby().is_some() {
        core.local_pools.retire(&local_pool.database_name, &local_pool.counters, core.now.mono_us);
        drop(local_pool.pool);
        return core.pool_registry.forget_pool(&local_pool.database_name, &local_pool.user);
    }
    let (database, user) = (local_pool.database_name, local_pool.user);
    let has_others = core.local_pools.values().any(|local_pool| local_pool.database_name == database);
    // Of one that came from `*` the first shard says that it goes.
    let goes = reason == Reason::DatabaseGone && !has_others;
    let says_so = goes && (!local_pool.database.auto || local_pool.pool.database().unregister());
    drop(local_pool.pool);
    core.pool_registry.forget_pool(&database, &user);
    if reason == Reason::Idle {
        core.local_pools.retire(&database, &local_pool.counters, core.now.mono_us);
        return core.log(Level::Log, format!("cleaning up idle pool: {database}/{user}"));
    }
    if goes {
        core.local_pools.forget_retired(&database);
        core.statistics.errors.forget(&database);
    }
    if says_so {
        let text =
            format!("dropping database '{database}' as it does not exist anymore or inactive auto-database");
        core.log(Level::Warning, text);
    }
}

/// What idle pools counted is kept as long as their database is there: configured, or in use not long ago.
pub(crate) fn forget_retired(core: &mut Core) {
    let limit_us = micros(core.config.global.autodb_idle_timeout);
    let now_us = core.now.mono_us;
    let (local_pools, config) = (&core.local_pools, &core.config);
    let is_gone = |database: &Arc<str>, retired: &Retired| {
        passed(now_us, retired.since_us, limit_us)
            && !config.databases.contains_key(&**database)
            && !local_pools.iter().any(|(_, local_pool)| local_pool.database_name == *database)
    };
    let gone: Vec<Arc<str>> = local_pools
        .retired()
        .filter(|(name, kept)| is_gone(name, kept))
        .map(|(name, _)| name.clone())
        .collect();
    for database in gone {
        core.local_pools.forget_retired(&database);
        core.statistics.errors.forget(&database);
        core.pool_registry.database(&database).unregister();
        core.pool_registry.forget_database(&database);
    }
}

/// The pools for its reads have servers: these are closed first.
fn standbys_remain(core: &mut Core, pool_id: PoolId) -> bool {
    let split = core.local_pools.get(pool_id).and_then(|local_pool| local_pool.serves.split());
    let standbys = split.map(|split| split.standbys.clone()).unwrap_or_default();
    let mut remain = false;
    for standby in standbys {
        server_end::close_idle_servers(core, standby, CloseReason::PoolIdle);
        remain |= core
            .local_pools
            .get(standby)
            .is_some_and(|local_pool| local_pool.pool.open() + local_pool.pool.external() > 0);
    }
    remain
}

fn reason_to_forget(core: &Core, local_pool: &LocalPool) -> Option<Reason> {
    let (now_us, global) = (core.now.mono_us, &core.config.global);
    // One for reads goes with the one whose reads they are.
    if let Some(standby) = local_pool.serves.standby() {
        return standby.primary.is_none().then_some(Reason::Idle);
    }
    if core.config.database(&local_pool.database_name).is_none() {
        return Some(Reason::DatabaseGone);
    }
    // What min_pool_size keeps open without a client is in use.
    if local_pool.keeps_minimum() {
        return None;
    }
    let is_idle = passed(now_us, local_pool.last_used_us, micros(global.pool_idle_timeout));
    let no_servers = local_pool.pool.open() == 0;
    let outlived = no_servers && passed(now_us, local_pool.last_used_us, micros(global.autodb_idle_timeout));
    // A name that no server has ever accepted was made up by a client.
    let was_never_there =
        no_servers && local_pool.server_greeting.is_none() && now_us >= local_pool.pool.retry_at_us();
    if local_pool.database.auto && (outlived || was_never_there) {
        return Some(Reason::DatabaseGone);
    }
    is_idle.then_some(Reason::Idle)
}
