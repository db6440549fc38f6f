//! Opening server connections: for the waiting clients of a pool, or for one client alone.
//!
//! Owns when a connection attempt is made, and how room is made for a dedicated server. What comes of the attempt is `servers`'.

use messages::LimitOf;
use pool::{OpenFor, Permit};
use session::{Parameters, ServerProtocol};
use telemetry::Level;

use crate::ConnId;
use crate::attempt::Attempt;
use crate::close_reason::CloseReason;
use crate::close_when_free::CloseWhenFree;
use crate::connections::Conn;
use crate::core::Core;
use crate::link::{checkout, permits, server_end, shares};
use crate::local_pools::table::PoolId;
use crate::server::{Dedicated, IdentityCheck, Phase, Server, UsedBy};

/// Its client has disconnected, between two messages: a server that streams reads Terminate between them, too.
pub(crate) fn end_dedicated(core: &mut Core, conn: ConnId) {
    let Some(server) = core.server(conn) else { return };
    let listens = server.protocol.status().is_some() || server.protocol.is_copy_both();
    server_end::close_server_that(core, listens, conn, CloseReason::ReplicationClientClosed);
}

/// The login ends without effect on the backoff of the next one.
pub(crate) fn withdraw(core: &mut Core, conn: ConnId, reason: CloseReason<'_>) {
    let Some(server) = core.conns.server_mut(conn) else { return };
    if let Some(local_pool) = core.local_pools.get_mut(server.pool) {
        local_pool.pool.login_withdrawn(OpenFor::Dedicated);
    }
    let listens = matches!(server.phase, Phase::Login(_));
    server.phase = Phase::AwaitingCancel;
    unbind(core, conn);
    server_end::close_server_that(core, listens, conn, reason);
}

/// A client that waited for its server disconnects: the server is closed in any phase.
pub(crate) fn dedicated_request_ended(core: &mut Core, conn: ConnId) {
    let server = core
        .client(conn)
        .and_then(|client| client.dedicated_request.as_mut())
        .and_then(|dedicated_request| dedicated_request.server);
    let Some(server) = server else { return };
    withdraw(core, server, CloseReason::ReplicationClientLeft);
}

/// The pool is full and the client that has waited longest needs a dedicated server: the server that has been idle
/// longest is closed. True if one is closed, or is closing already.
fn make_room(core: &mut Core, pool_id: PoolId) -> bool {
    let Some(local_pool) =
        core.local_pools.get(pool_id).filter(|local_pool| local_pool.pool.next_is_dedicated())
    else {
        return false;
    };
    if room_is_coming(core, pool_id) {
        return true;
    }
    let Some(idle) = local_pool.pool.idle().first().map(|idle| ConnId(idle.server)) else { return false };
    server_end::close_server(core, idle, CloseReason::Evicted);
    true
}

/// A server that just became free is in the way of one that is wanted: it is closed, true.
pub(crate) fn goes_for_dedicated(core: &mut Core, conn: ConnId) -> bool {
    let now_us = core.now.mono_us;
    let Some(pool_id) = core.server(conn).map(|server| server.pool) else { return false };
    let lacking = core.local_pools.get(pool_id).is_some_and(|local_pool| local_pool.pool.lacks_room(now_us));
    if !lacking || room_is_coming(core, pool_id) {
        return false;
    }
    server_end::close_server(core, conn, CloseReason::Evicted);
    true
}

/// A connection is being opened for the client that has waited longest for one of its own.
fn dedicate(core: &mut Core, conn: ConnId) {
    let Some(local_pool) = core.server(conn).map(|server| server.pool) else { return };
    let Some(local_pool) = core.local_pools.get(local_pool) else { return };
    let Some(waiter) = local_pool.pool.queue.front_dedicated() else { return };
    let Some((client, server)) = core.conns.linked(ConnId(waiter.client), conn) else { return };
    let Some(dedicated_request) = client.dedicated_request.as_mut() else { return };
    dedicated_request.server = Some(conn);
    server.dedicated = Some(Dedicated { kind: dedicated_request.kind(), client: ConnId(waiter.client) });
}

/// The connection is not the one that its client waits for any more.
pub(crate) fn unbind(core: &mut Core, conn: ConnId) {
    let Some(Dedicated { client, .. }) = core.server(conn).and_then(|server| server.dedicated) else {
        return;
    };
    if let Some(dedicated_request) = core.client(client).and_then(|client| client.dedicated_request.as_mut())
    {
        dedicated_request.server = None;
    }
}

/// A server of the pool is being closed: its permit is free soon.
fn room_is_coming(core: &Core, pool_id: PoolId) -> bool {
    core.conns.iter().any(|(_, conn)| {
        matches!(conn, Conn::Server(server) if server.pool == pool_id
            && matches!(server.phase, Phase::Leaving { .. } | Phase::Closing))
    })
}

/// Idle servers go to waiting clients; for the others one is opened, if every limit allows it.
pub(crate) fn serve_or_open(core: &mut Core, pool_id: PoolId) {
    let now_us = core.now.mono_us;
    checkout::serve_waiters(core, pool_id);
    // Both kinds of connection may be opened at a time; the older waiter's comes first.
    for _ in 0..2 {
        let Some(local_pool) = core.local_pools.get_mut(pool_id) else { return };
        if local_pool.awaits_hosts(now_us) {
            return;
        }
        let keeps_minimum = local_pool.keeps_minimum();
        let Some(open_for) = local_pool.pool.next_to_open(now_us, keeps_minimum) else { return };
        let permit = local_pool.pool.take_permit(open_for, now_us);
        if local_pool.pool.take_lease_shortage() {
            local_pool.pool.tell_waiting(now_us);
            core.pool_registry.want_slots();
        }
        match permit {
            Permit::Taken { reserve } => open(core, pool_id, open_for, reserve),
            _ if make_room(core, pool_id) => return,
            Permit::PoolFull => return permits::request_permit(core, pool_id),
            Permit::DatabaseFull if shares::ask(core, pool_id, LimitOf::Database) => {}
            Permit::UserFull if shares::ask(core, pool_id, LimitOf::User) => {}
            Permit::DatabaseFull => return permits::evict(core, pool_id, LimitOf::Database),
            Permit::UserFull => return permits::evict(core, pool_id, LimitOf::User),
        }
    }
}

/// The permit is taken: connect.
fn open(core: &mut Core, pool_id: PoolId, open_for: OpenFor, reserve: bool) {
    let conn = core.conns.reserve();
    let now = core.now;
    let tracked = &core.tracked;
    let Some(local_pool) = core.local_pools.get_mut(pool_id) else { return };
    let target = local_pool.next_target(&core.config.global);
    let server = Server {
        id: core.process.next_id(),
        pool: pool_id,
        phase: Phase::Connecting,
        protocol: ServerProtocol::new(Parameters::unknown(tracked)),
        listens: false,
        dedicated: None,
        info: None,
        internal_error: None,
        attempt: Attempt::default(),
        key: None,
        identity: None,
        identity_check: IdentityCheck::default(),
        heard_us: 0,
        unsent: false,
        leaves: false,
        was_asked: false,
        position_unknown: false,
        unasked_bytes: 0,
        paused: false,
        reader_since_us: None,
        send_buffer_full: false,
        cancels: 0,
        used_by: UsedBy::Nothing,
        turn: None,
        names_as_they_are: false,
        close_when_free: CloseWhenFree::default(),
        has_ended_client: false,
        since_us: now.mono_us,
        since_wall_us: now.wall_us,
        request_us: now.mono_us,
        query_us: now.mono_us,
        transaction_us: now.mono_us,
        target: target.clone(),
        remote: None,
        local: None,
        tls: None,
    };
    core.conns.place(conn, Conn::Server(Box::new(server)));
    if open_for == OpenFor::Dedicated {
        dedicate(core, conn);
    }
    if reserve {
        core.log_server(conn, Level::Log, "taking connection from reserve_pool");
    }
    core.connect(conn, target);
    core.report_server(pool_id, true);
}
