//! Closing servers that are the primary no longer, because one on a newer timeline was seen.

use crate::ConnId;
use crate::close_reason::CloseReason;
use crate::connections::Conn;
use crate::core::Core;
use crate::link::{checkout, opening, server_end};
use crate::local_pools::local_pool::LocalPool;
use crate::local_pools::table::PoolId;
use crate::server::{Phase, Server};

/// A primary was seen on a newer timeline: connections to the older one end as they become free, which is now for idle ones.
pub(crate) fn leave_old_primary(core: &mut Core, pool_id: PoolId) {
    let newest = core.local_pools.get_mut(pool_id).and_then(LocalPool::take_newer_timeline);
    let Some(newest) = newest else { return };
    let is_left =
        |server: &Server| server.pool == pool_id && server.timeline.is_some_and(|timeline| timeline < newest);
    let left = core.conns.ids(|conn| matches!(conn, Conn::Server(server) if is_left(server)));
    for conn in left {
        if let Some(server) = core.server(conn) {
            server.close_when_free.set(CloseReason::LeftBehind);
        }
        close_if_idle(core, conn);
    }
}

/// Closes a server of an older primary instead of giving it to this idle client, which waits for another one.
#[cold]
pub(crate) fn refuse(core: &mut Core, client_conn: ConnId, server_conn: ConnId) {
    let Some(client) = core.client(client_conn) else { return };
    let (pool, since_us) = (client.served_by(), client.request_us);
    server_end::close_server(core, server_conn, CloseReason::LeftBehind);
    checkout::enqueue(core, client_conn, since_us);
    if let Some(pool_id) = pool {
        opening::serve_or_open(core, pool_id);
    }
}

/// A server without a client that is to be closed is closed.
pub(crate) fn close_if_idle(core: &mut Core, conn: ConnId) {
    let Some(server) = core.server(conn).filter(|server| matches!(server.phase, Phase::Idle)) else { return };
    if let Some(reason) = server.close_when_free.reason() {
        server_end::close_server(core, conn, reason);
    }
}
