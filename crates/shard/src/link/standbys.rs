//! What a server's login, or its failure, says of its host (`read_write_split`).
//!
//! Owns that reads which wait for a server that is none, or not a standby any more, become the primary's.

use session::Parameters;

use crate::ConnId;
use crate::close_reason::CloseReason;
use crate::connections::Conn;
use crate::core::Core;
use crate::link::{routing, server_end};
use crate::local_pools::cluster::HostState;
use crate::local_pools::hosts::NOT_STANDBY;
use crate::local_pools::serves::Serves;
use crate::local_pools::table::PoolId;
use crate::server::Server;

/// Idle servers of a pool for reads go now, the others when they are free.
pub(crate) fn close_servers(core: &mut Core, standby: PoolId, reason: CloseReason<'static>) {
    routing::move_waiters(core, standby);
    for conn in core.servers_of(standby) {
        if let Some(server) = core.server(conn) {
            server.close_when_free.set(reason);
        }
    }
    server_end::close_idle_servers(core, standby, reason);
}

/// A server has logged in: its host is what the pool has connections to.
pub(crate) fn note_login(core: &mut Core, conn: ConnId) {
    let now_us = core.now.mono_us;
    let Some(server) = core.conns.server(conn) else { return };
    let (pool_id, timeline) = (server.pool, server.timeline());
    let place = place_of(core, server);
    let Some((local_pool, cluster)) = core.local_pools.with_cluster(pool_id) else { return };
    match (&local_pool.serves, place) {
        (Serves::Standby(standby), _) => {
            cluster.note_state(standby.place, HostState::Standby, now_us);
            // The host may have crashed, and be back with less than it had, while what was known of it came by connections that only seem to live.
            if let Some(server) = core.conns.server_mut(conn) {
                server.position_unknown = true;
            }
        }
        (_, Some(place)) => {
            cluster.note_primary(place, now_us);
            cluster.note_timeline(timeline.unwrap_or_default());
        }
        (_, None) => {}
    }
}

/// What a server of a standby reports of itself is not its clients' to know: they have connections to the primary, as far as they are told.
pub(crate) fn as_of_primary(core: &Core, pool_id: PoolId, mut reported: Parameters) -> Parameters {
    let standby = core.local_pools.get(pool_id).and_then(|local_pool| local_pool.serves.standby());
    let primary = standby.and_then(|standby| core.local_pools.of(standby.primary));
    let Some(primary) = primary else { return reported };
    if let Some(position) = core.tracked.position(b"in_hot_standby") {
        reported.set(position, "off");
    }
    for position in (0..core.tracked.count()).filter(|position| core.tracked.is_read_only(*position)) {
        if let Some(value) = primary.default_params.value(position) {
            reported.set(position, value);
        }
    }
    reported
}

/// No connection, or no login: reads that wait for this server are the primary's. A host that is a primary says so by refusing to be a standby.
pub(crate) fn note_failure(core: &mut Core, conn: ConnId) {
    let now_us = core.now.mono_us;
    let Some(server) = core.conns.server(conn) else { return };
    let pool_id = server.pool;
    let place = place_of(core, server);
    let Some((local_pool, cluster)) = core.local_pools.with_cluster(pool_id) else { return };
    let text = local_pool.server_error.as_ref().map(|error| error.message.clone()).unwrap_or_default();
    match &local_pool.serves {
        Serves::Standby(standby) => {
            let place = standby.place;
            let state = if text == NOT_STANDBY { HostState::Primary } else { HostState::Down(text) };
            // One login that fails says nothing of a host to which others have connections.
            if !has_live_server(core, pool_id, place, conn)
                && let Some((_, cluster)) = core.local_pools.with_cluster(pool_id)
            {
                cluster.note_state(place, state, now_us);
            }
            routing::move_waiters(core, pool_id);
        }
        Serves::Primary(_) => {
            let is_last = !local_pool.has_live_server();
            if let Some(place) = place.filter(|place| is_last && cluster.is_primary(*place)) {
                cluster.note_state(place, HostState::Down(text), now_us);
            }
        }
        Serves::All => {}
    }
}

/// A server of a standby is gone: if it was the last of its host, that may have been started again, and how far it is is not known any more.
pub(crate) fn note_end(core: &mut Core, conn: ConnId, pool_id: PoolId) {
    let Some(place) =
        core.local_pools.get(pool_id).and_then(|pool| pool.serves.standby()).map(|standby| standby.place)
    else {
        return;
    };
    if !has_live_server(core, pool_id, place, conn)
        && let Some((_, cluster)) = core.local_pools.with_cluster(pool_id)
    {
        cluster.forget_position(place);
    }
}

/// A connection to a standby has ended without a word. The host may have crashed and be back with less than it had replayed, while other connections to it only seem to live:
/// how far it is is not known any more. The answer is the pools whose clients were to be served by what it was.
#[cold]
pub(crate) fn forget_crashed(core: &mut Core, conn: ConnId) -> Vec<PoolId> {
    let crashed = core.conns.server(conn).filter(|server| server.is_live() && !has_said_why(server));
    let Some(pool_id) = crashed.map(|server| server.pool) else { return Vec::new() };
    let Some((local_pool, cluster)) = core.local_pools.with_cluster(pool_id) else { return Vec::new() };
    let Some(place) = local_pool.serves.standby().map(|standby| standby.place) else { return Vec::new() };
    cluster.note_crash(place);
    pools_of_host(core, pool_id, place)
}

/// This host may have less than was known of it: the reads that wait for it, which were to be served by that, are the primary's.
#[cold]
pub(crate) fn move_waiters_of_host(core: &mut Core, pool_id: PoolId, place: usize) {
    pools_of_host(core, pool_id, place).into_iter().for_each(|pool| routing::move_waiters(core, pool));
}

fn pools_of_host(core: &Core, pool_id: PoolId, place: usize) -> Vec<PoolId> {
    let pools = core.local_pools.iter().map(|(pool, _)| pool);
    pools.filter(|pool| is_of_host(core, *pool, pool_id, place)).collect()
}

/// An error has announced the end of this connection, which is that of one session, or of a server that is shut down: what a crash ends says nothing, or a warning.
fn has_said_why(server: &Server) -> bool {
    server.close_when_free.reason() == Some(CloseReason::SentFatal)
        || server.internal_error.as_deref().is_some_and(server_end::ends_connection)
}

/// A pool for reads on this host has a server, besides this one.
fn has_live_server(core: &Core, pool_id: PoolId, place: usize, but: ConnId) -> bool {
    core.conns.iter().any(|(conn, other)| {
        matches!(other, Conn::Server(server) if conn != but && server.is_pooled() && is_of_host(core, server.pool, pool_id, place))
    })
}

/// This pool is for reads on the host in this place of the list that another pool's entry has.
fn is_of_host(core: &Core, pool: PoolId, of: PoolId, place: usize) -> bool {
    let serves = |pool| core.local_pools.get(pool).map(|local_pool| &local_pool.serves);
    serves(pool).zip(serves(of)).is_some_and(|(serves, other)| {
        serves.cluster() == other.cluster() && serves.standby().is_some_and(|standby| standby.place == place)
    })
}

/// The place of a server's host in the list of the entry.
pub(crate) fn place_of(core: &Core, server: &Server) -> Option<usize> {
    let local_pool = core.local_pools.get(server.pool)?;
    match &local_pool.serves {
        Serves::Standby(standby) => Some(standby.place),
        _ => local_pool.place_of(&server.target, &core.config.global),
    }
}
