//! Permits of server connections among pools and shards: requested, passed on, and made free by closing an idle server.
//!
//! Owns moving them. Sockets never move for it: a shard that can spare a server closes it, and the shard that needs one opens its own.

use messages::{LimitOf, ShardId, ShardMessage};
use pool::TENURE_US;
use settings::PoolMode;

use crate::ConnId;
use crate::close_reason::CloseReason;
use crate::core::Core;
use crate::link::{opening, pins, sequences, server_end, shares};
use crate::local_pools::local_pool::{LONG_WAIT_US, LocalPool};
use crate::local_pools::table::PoolId;
use crate::server::Server;
use crate::time::passed;

/// Another shard asks: close the server that has been idle longest of those that hold a permit of that limit. If none is idle, one that is kept for
/// sequences' values alone becomes so, for a client that has waited long.
pub(crate) fn permit_requested(
    core: &mut Core,
    limit: LimitOf,
    (database, user, host): (&str, &str, Option<&str>),
    has_waited_long: bool,
) {
    let same = |local_pool: &LocalPool| match limit {
        LimitOf::Pool => {
            &*local_pool.database_name == database && &*local_pool.user == user && local_pool.host() == host
        }
        LimitOf::Database => &*local_pool.database_name == database,
        LimitOf::User => &*local_pool.user == user,
    };
    let gives = |local_pool: &LocalPool| limit == LimitOf::Pool || local_pool.pool.may_give_idle();
    let idle = core.local_pools.iter().filter(|(_, local_pool)| same(local_pool) && gives(local_pool));
    let longest =
        idle.filter_map(|(_, local_pool)| local_pool.pool.idle().first()).min_by_key(|idle| idle.since_us);
    if let Some(server) = longest.map(|idle| ConnId(idle.server)) {
        return server_end::close_server(core, server, CloseReason::Evicted);
    }
    if !has_waited_long {
        return;
    }
    let kept = core.local_pools.ids_of(|local_pool| local_pool.keeps_sequences && same(local_pool));
    kept.into_iter().for_each(|pool_id| sequences::yield_place(core, pool_id));
}

/// A permit is free: this shard tries first if a client waits here, and the requesting shards are notified.
pub(crate) fn permit_is_free(core: &mut Core, pool_id: PoolId) {
    let Some(local_pool) = core.local_pools.get(pool_id) else { return };
    let wanting = local_pool.pool.shared().permit_requests() & !(1 << core.id.0);
    let (database, user) = (local_pool.database_name.to_string(), local_pool.user.to_string());
    let host = local_pool.host().map(str::to_owned);
    for shard in (0..core.pool_registry.shards()).filter(|shard| wanting & (1 << shard) != 0) {
        let message =
            ShardMessage::PermitFreed { database: database.clone(), user: user.clone(), host: host.clone() };
        core.send_to_shard(ShardId(shard), message);
    }
    let related = core
        .local_pools
        .ids_of(|local_pool| *local_pool.database_name == *database || *local_pool.user == *user);
    if wanting == 0 {
        related.into_iter().for_each(|index| opening::serve_or_open(core, index));
    }
    shares::notify_askers(core, pool_id, wanting != 0);
}

/// A requested permit is free, or a pin.
pub(crate) fn permit_freed(core: &mut Core, database: &str, user: &str, host: Option<&str>) {
    let key = (database.into(), user.into());
    let Some(pool_id) = core.local_pools.find_on(&key, host) else { return };
    if let Some(local_pool) = core.local_pools.get(pool_id) {
        local_pool.pool.shared().withdraw_permit_request(core.id.0);
    }
    pins::serve(core, pool_id);
    opening::serve_or_open(core, pool_id);
}

/// A limit of the database or the user is reached: the pool that matches and has idle servers gives one.
pub(crate) fn evict(core: &mut Core, pool_id: PoolId, limit: LimitOf) {
    let related = |local_pool: &LocalPool, wanted: &LocalPool| match limit {
        LimitOf::Pool => false,
        LimitOf::Database => local_pool.database_name == wanted.database_name,
        LimitOf::User => local_pool.user == wanted.user,
    };
    let Some(wanted) = core.local_pools.get(pool_id) else { return };
    if wanted.pool.queue.is_empty() {
        return; // The minimum alone evicts no server.
    }
    let victim = core
        .local_pools
        .iter()
        .filter(|(index, local_pool)| {
            *index != pool_id && related(local_pool, wanted) && local_pool.pool.may_give_idle()
        })
        .filter_map(|(_, local_pool)| local_pool.pool.idle().first())
        .min_by_key(|idle| idle.since_us)
        .map(|idle| ConnId(idle.server));
    if let Some(server) = victim {
        return server_end::close_server(core, server, CloseReason::Evicted);
    }
    let is_late = wanted.has_waited_long(core.now.mono_us);
    let kept = core.local_pools.iter().filter(|(index, local_pool)| {
        is_late && *index != pool_id && local_pool.keeps_sequences && related(local_pool, wanted)
    });
    let kept: Vec<PoolId> = kept.map(|(index, _)| index).collect();
    kept.into_iter().for_each(|pool_id| sequences::yield_place(core, pool_id));
    if core.pool_registry.shards() > 1 {
        request_permit_from_shards(core, pool_id, limit);
        request_share(core, pool_id);
    }
}

/// What a limit of the database or the user leaves to the pool may all be with other shards: as where the pool itself is full, this one gets the next that is
/// released there if it has less than its share.
fn request_share(core: &mut Core, pool_id: PoolId) {
    let Some(local_pool) = core.local_pools.get(pool_id) else { return };
    let shared = local_pool.pool.shared();
    if local_pool.pool.open() < shared.servers.taken() && has_less_than_its_share(local_pool) {
        shared.request_permit(core.id.0);
        request_permit_from_shards(core, pool_id, LimitOf::Pool);
    }
}

/// Every permit of the pool is taken, but not all by this shard: request one from the others. With less than its share
/// this shard gets the next that is released there, otherwise one that is idle there when the message arrives.
pub(crate) fn request_permit(core: &mut Core, pool_id: PoolId) {
    let now_us = core.now.mono_us;
    let Some(local_pool) = core.local_pools.get(pool_id) else { return };
    let shared = local_pool.pool.shared();
    // Of more servers than shards one has several.
    let lacks_own = local_pool.pool.limits.keeps_own
        && local_pool.pool.open() == 0
        && shared.servers.taken() > shared.shards().count_ones();
    if local_pool.pool.queue.is_empty() && !lacks_own || local_pool.pool.open() >= shared.servers.taken() {
        return;
    }
    if lacks_own {
        return request_permit_from_shards(core, pool_id, LimitOf::Pool);
    }
    // Servers that stay with their clients are not released because another client waits.
    let lasting = local_pool.pool.next_is_dedicated() || local_pool.pool.limits.mode == PoolMode::Session;
    if lasting || has_less_than_its_share(local_pool) {
        shared.request_permit(core.id.0);
        return request_permit_from_shards(core, pool_id, LimitOf::Pool);
    }
    if local_pool.has_waited_long(now_us) && passed(now_us, local_pool.permit_requested_us, LONG_WAIT_US) {
        request_permit_from_shards(core, pool_id, LimitOf::Pool);
    }
}

fn request_permit_from_shards(core: &mut Core, pool_id: PoolId, limit: LimitOf) {
    let now_us = core.now.mono_us;
    let Some(local_pool) = core.local_pools.get_mut(pool_id) else { return };
    local_pool.permit_requested_us = now_us;
    let message = ShardMessage::RequestPermit {
        from: core.id,
        has_waited_long: local_pool.has_waited_long(now_us),
        limit,
        database: local_pool.database_name.to_string(),
        user: local_pool.user.to_string(),
        host: local_pool.host().map(str::to_owned),
    };
    let me = core.id.0;
    for shard in (0..core.pool_registry.shards()).filter(|shard| *shard != me) {
        core.send_to_shard(ShardId(shard), message.clone());
    }
}

/// Fewer servers than an even split would give each shard; the rest of that stays where it is.
fn has_less_than_its_share(local_pool: &LocalPool) -> bool {
    let shared = local_pool.pool.shared();
    local_pool.pool.open() < (shared.servers.taken() / shared.shards().count_ones().max(1)).max(1)
}

/// Another shard needs one of this pool's permits and this one has more than its share: read when a server is free. Where there is not one for each shard,
/// they take turns.
pub(crate) fn is_permit_requested(core: &Core, local_pool: &LocalPool, server: &Server) -> bool {
    let shared = local_pool.pool.shared();
    let others = shared.permit_requests() & !(1 << core.id.0);
    if others == 0 {
        return false;
    }
    let is_turn_over = || {
        shared.servers.taken() < shared.shards().count_ones()
            && core.now.mono_us.saturating_sub(server.since_us) >= TENURE_US
    };
    local_pool.pool.queue.is_empty()
        || !has_less_than_its_share(local_pool) && (local_pool.pool.open() > 1 || is_turn_over())
}
