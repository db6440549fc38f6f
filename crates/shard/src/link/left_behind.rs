//! Closing servers that are the primary no longer, because one on a newer timeline was seen.
//!
//! Owns that none of them gets a request behind the one that runs, or behind its transaction, also from a client that sends without waiting for answers.

use std::sync::Arc;

use session::ServerIdentity;
use wire::sqlstate;

use crate::ConnId;
use crate::close_reason::CloseReason;
use crate::connections::Conn;
use crate::core::Core;
use crate::link::{checkout, client_end, identity, login_server, opening, routing, server_end};
use crate::local_pools::local_pool::LocalPool;
use crate::local_pools::table::{LocalPools, PoolId};
use crate::server::{Phase, Server};

/// A primary was seen on a newer timeline: connections to the older one end as they become free, which is now for idle ones. So do those to standbys of another
/// cluster that were used before more was known.
pub(crate) fn leave_old_primary(core: &mut Core, pool_id: PoolId) {
    if !core.local_pools.get_mut(pool_id).is_some_and(LocalPool::take_news_of_cluster) {
        return;
    }
    let Some(entry) = core.local_pools.get(pool_id).map(|local_pool| Arc::clone(local_pool.pool.database()))
    else {
        return;
    };
    // What one pool of the entry has seen holds for the others, too.
    let reason = |core: &Core, server: &Server| {
        let of_entry =
            core.local_pools.get(server.pool).filter(|of| Arc::ptr_eq(of.pool.database(), &entry))?;
        of_entry.reason_to_leave(server.identity?)
    };
    let left = core.conns.ids(|conn| matches!(conn, Conn::Server(server) if reason(core, server).is_some()));
    for conn in left {
        let reason = core.conns.find_server(conn).and_then(|server| reason(core, server));
        let now_us = core.now.mono_us;
        if let (Some(server), Some(reason)) = (core.server(conn), reason) {
            server.close_when_free.set(reason);
            server.heard_us = now_us;
            let is_left = server.close_when_free.reason().is_some_and(CloseReason::loses_writes);
            if is_left && server.dedicated.is_none() {
                server.protocol.end_requests();
            }
        }
        close_if_idle(core, conn);
    }
}

/// A client of this server sends more. If another thread, or the probe of hosts, has found a primary on a newer timeline since, the server gets nothing that begins anew.
#[inline(never)]
pub(crate) fn end_requests_if_old(server: &mut Server, local_pools: &LocalPools, now_us: u64) {
    let is_old = |identity: ServerIdentity| {
        let reason = local_pools.get(server.pool).and_then(|local_pool| local_pool.reason_to_leave(identity));
        reason == Some(CloseReason::LeftBehind)
    };
    if server.dedicated.is_none() && server.identity.is_some_and(is_old) {
        if !server.protocol.ends_requests() {
            server.heard_us = now_us;
        }
        server.close_when_free.set(CloseReason::LeftBehind);
        server.protocol.end_requests();
    }
}

/// Closes a server of an older primary instead of giving it to this idle client, which waits for another one.
#[cold]
pub(crate) fn refuse(core: &mut Core, client_conn: ConnId, server_conn: ConnId) {
    let Some(client) = core.client(client_conn) else { return };
    let (pool, since_us) = (client.served_by(), client.request_us);
    server_end::close_server(core, server_conn, CloseReason::LeftBehind);
    checkout::enqueue(core, client_conn, since_us);
    login_server::await_greeting(core, client_conn);
    if let Some(pool_id) = pool {
        opening::serve_or_open(core, pool_id);
    }
}

/// The server has answered all that it was sent, and no transaction goes on: what its client has sent behind that is for another one.
pub(crate) fn is_to_be_left(core: &Core, server_conn: ConnId) -> bool {
    core.conns
        .find_server(server_conn)
        .is_some_and(|server| server.protocol.ends_requests() && server.protocol.is_quiet())
}

/// The client leaves such a server before what it has sent is looked at. One that keeps it for its session is closed.
#[cold]
#[inline(never)]
pub(crate) fn leave(core: &mut Core, server_conn: ConnId, client_conn: ConnId, needs_answer: bool) {
    if needs_answer {
        routing::answered(core, client_conn, server_conn, true);
    }
    checkout::release(core, server_conn);
    let kept = core.conns.find_server(server_conn).filter(|server| {
        // One that is to say first what it is waits for that.
        matches!(server.phase, Phase::Linked(linked) if linked == client_conn)
            && !server.unsent
            && !identity::is_due(server)
    });
    if let Some(server) = kept {
        let reason = server.close_when_free.reason().unwrap_or(CloseReason::LeftBehind);
        server_end::close_server(core, server_conn, reason);
        return client_end::fail_client(core, client_conn, sqlstate::ADMIN_SHUTDOWN, &reason.to_string());
    }
    if core.exporting.is_some() {
        core.try_export(client_conn);
    }
}

/// The server is one client's own, which may send its next command at once: if it is left behind, and in no transaction, it ends here with its client,
/// true.
pub(crate) fn end_dedicated(core: &mut Core, server_conn: ConnId, client_conn: ConnId) -> bool {
    let Some(server) = core.conns.server(server_conn) else { return false };
    let Some(local_pool) = core.local_pools.get(server.pool) else { return false };
    let mut close_when_free = server.close_when_free;
    if let Some(reason) = server.identity.and_then(|identity| local_pool.reason_to_leave(identity)) {
        close_when_free.set(reason);
    }
    let reason = close_when_free.reason().filter(|reason| reason.loses_writes());
    let Some(reason) = reason.filter(|_| !server.protocol.in_block()) else { return false };
    server_end::close_server(core, server_conn, reason);
    client_end::fail_client(core, client_conn, sqlstate::ADMIN_SHUTDOWN, &reason.to_string());
    true
}

/// A server without a client that is to be closed is closed.
pub(crate) fn close_if_idle(core: &mut Core, conn: ConnId) {
    let Some(server) = core.server(conn).filter(|server| matches!(server.phase, Phase::Idle)) else { return };
    if let Some(reason) = server.close_when_free.reason() {
        server_end::close_server(core, conn, reason);
    }
}
