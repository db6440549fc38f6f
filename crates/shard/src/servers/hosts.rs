//! Closing servers whose host name has moved.
//!
//! Owns which they are. Which host a connection goes to is `local_pools`' to choose. Never looks a name up.

use std::net::IpAddr;

use crate::close_reason::CloseReason;
use crate::connections::Conn;
use crate::core::Core;
use crate::link::left_behind::close_if_idle;
use crate::link::standbys;
use crate::local_pools::table::PoolId;
use crate::server::{Phase, Server};

/// A name does not stand for these addresses any more: idle servers there go now, the others when they are free.
pub(crate) fn host_moved(core: &mut Core, host: &str, gone: &[IpAddr]) {
    let moved = |local_pool: PoolId| {
        core.local_pools
            .get(local_pool)
            .is_some_and(|local_pool| local_pool.database.host.iter().any(|name| name == host))
    };
    let servers = core.conns.ids(|conn| matches!(conn, Conn::Server(server) if moved(server.pool)));
    for conn in servers {
        let Some(server) = core.server(conn) else { continue };
        // One that is being connected may have been given the old address just before.
        let is_there = match server.remote {
            Some(remote) => gone.contains(&remote.ip()),
            None => matches!(server.phase, Phase::Connecting),
        };
        if is_there {
            server.close_when_free.set(CloseReason::HostMoved);
            close_if_idle(core, conn);
        }
    }
}

/// The entry's hosts are others now (`topology`): connections to those that it does not have any more end as they become free.
pub(crate) fn leave_removed(core: &mut Core, pool_id: PoolId) {
    let global = &core.config.global;
    let Some(local_pool) = core.local_pools.get(pool_id) else { return };
    let is_left =
        |server: &Server| server.pool == pool_id && local_pool.place_of(&server.target, global).is_none();
    let left = core.conns.ids(|conn| matches!(conn, Conn::Server(server) if is_left(server)));
    for conn in left {
        if let Some(server) = core.server(conn) {
            server.close_when_free.set(CloseReason::ConfigurationChanged);
        }
        close_if_idle(core, conn);
    }
}

/// What is known of the hosts is new with their list: the primary that the pool has connections to is one from the beginning.
pub(crate) fn note_known_primary(core: &mut Core, pool_id: PoolId) {
    let servers =
        core.servers_of(pool_id).into_iter().filter_map(|conn| Some((conn, core.conns.server(conn)?)));
    let usable = servers.filter(|(_, server)| server.is_pooled() && !server.close_when_free.is_set());
    let newest = usable.max_by_key(|(_, server)| server.timeline()).map(|(conn, _)| conn);
    if let Some(conn) = newest {
        standbys::note_login(core, conn);
    }
}
