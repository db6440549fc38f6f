//! Asking a server what it is that has not said so at its login, or was a standby then and has been promoted.
//!
//! Owns when it is asked: between two requests, before its next one. So sessions from before a RELOAD that gave their entry `target_session_attrs` are fenced like
//! later ones. What an answer leads to is `left_behind`'s.

use session::ServerIdentity;

use crate::ConnId;
use crate::client;
use crate::close_reason::CloseReason;
use crate::core::Core;
use crate::link::{
    backpressure, checkout, internal_query, left_behind, relay, server_end, session_state, startup_values,
};
use crate::local_pools::hosts;
use crate::local_pools::table::PoolId;
use crate::server::{IdentityCheck, InternalQuery, Phase, Server};

/// The entry seeks a role now: the connections that were opened before, when none was asked, are asked.
pub(crate) fn require_of_all(core: &mut Core, pool_id: PoolId) {
    if !core.local_pools.get(pool_id).is_some_and(|local_pool| local_pool.seeks_role()) {
        return;
    }
    for conn in core.servers_of(pool_id) {
        let Some(server) = core.server(conn) else { continue };
        if server.is_live() && !server.listens && server.identity.is_none() {
            require(server);
        }
    }
}

/// The server says what it is before its next request.
pub(crate) fn require(server: &mut Server) {
    let may_say = match server.identity_check {
        IdentityCheck::NotNeeded | IdentityCheck::Failed => true,
        IdentityCheck::Due => false,
        // It may have been promoted since; one that may not be asked is not asked again.
        IdentityCheck::Done => server.identity.is_some(),
    };
    if !may_say || !server.takes_sql() {
        return;
    }
    server.identity_check = IdentityCheck::Due;
    if server.dedicated.is_none() {
        server.protocol.end_requests();
    }
}

/// It is to be asked.
#[inline(always)]
pub(crate) fn is_due(server: &Server) -> bool {
    server.identity_check == IdentityCheck::Due
}

/// It is to be asked, or asked again, before it gets another client.
#[inline(always)]
pub(crate) fn is_unanswered(server: &Server) -> bool {
    matches!(server.identity_check, IdentityCheck::Due | IdentityCheck::Failed)
}

/// Asks a server, once it is quiet. False if it is not, or if a cancel request that is for its client might meet the question.
#[cold]
#[inline(never)]
pub(crate) fn ask(core: &mut Core, server_conn: ConnId, client_conn: Option<ConnId>) -> bool {
    let now_us = core.now.mono_us;
    let Some(server) = core.conns.server_mut(server_conn) else { return false };
    let Some(at) = server.protocol.boundary() else { return false };
    if !server.protocol.is_quiet() || server.unsent || server.cancels > 0 {
        return false;
    }
    server.phase = Phase::InternalQuery(InternalQuery::Identity(client_conn));
    server.query_us = now_us;
    let is_wal_sender = server.dedicated.is_some();
    let protocol = &mut server.protocol;
    protocol.collect_notifications(client_conn.is_some());
    core.outbox.write(server_conn, |out| match is_wal_sender {
        true => protocol.send_simple_identity_query(at, out),
        false => protocol.send_identity_query(at, out),
    });
    if let Some(client_conn) = client_conn {
        if let Some(client) = core.client(client_conn) {
            client.phase = client::Phase::Preparing(server_conn);
        }
        backpressure::pause_client(core, client_conn);
    }
    true
}

/// The server has said what it is, or refused to.
pub(crate) fn answered(
    core: &mut Core,
    server_conn: ConnId,
    client_conn: Option<ConnId>,
    error: Option<&[u8]>,
) {
    let may_pass = error.is_some_and(hosts::may_pass);
    if let Some(body) = error.filter(|_| !may_pass) {
        internal_query::log_query_error(core, server_conn, "query for the system identifier", body);
    }
    let Some(server) = core.conns.server_mut(server_conn) else { return };
    let rows = server.protocol.take_internal_result().into_rows();
    let identity = rows.first().and_then(ServerIdentity::read).filter(|_| error.is_none());
    server.identity_check = if may_pass { IdentityCheck::Failed } else { IdentityCheck::Done };
    server.identity = identity.or(server.identity);
    server.protocol.collect_notifications(false);
    server.protocol.resume_requests();
    note_identity(core, server_conn);
    match client_conn {
        Some(client_conn) => go_on(core, client_conn, server_conn),
        // The next login tells.
        None if may_pass => server_end::close_server(core, server_conn, CloseReason::StateUnknown),
        None => checkout::internal_query_over(core, server_conn),
    }
}

/// What a server is that was used already: other connections may be left for it, or this one.
fn note_identity(core: &mut Core, server_conn: ConnId) {
    let now_us = core.now.mono_us;
    let Some(server) = core.conns.server_mut(server_conn) else { return };
    let (pool_id, Some(identity)) = (server.pool, server.identity) else { return };
    let Some(local_pool) = core.local_pools.get(pool_id) else { return };
    if let Some(timeline) = identity.timeline {
        local_pool.pool.database().cluster.note_primary(identity.system, timeline);
    }
    if let Some(reason) = local_pool.reason_to_leave(identity) {
        server.close_when_free.set(reason);
    }
    if server.dedicated.is_none() && server.close_when_free.reason().is_some_and(CloseReason::loses_writes) {
        server.heard_us = now_us;
        server.protocol.end_requests();
    }
    left_behind::leave_old_primary(core, pool_id);
}

fn go_on(core: &mut Core, client_conn: ConnId, server_conn: ConnId) {
    let now_us = core.now.mono_us;
    let Some((client, server)) = core.conns.linked(client_conn, server_conn) else { return };
    client.phase = client::Phase::Linked(server_conn);
    server.phase = Phase::Linked(client_conn);
    server.query_us = now_us;
    session_state::deliver_notifications(core, server_conn, client_conn);
    checkout::release(core, server_conn);
    // What its client has reset has not been set again while the server was asked.
    let has_lost = core
        .conns
        .find_server(server_conn)
        .is_some_and(|server| !server.protocol.lost().is_empty() && !server.protocol.is_busy());
    if has_lost {
        startup_values::restore_startup_values(core, server_conn, client_conn);
    }
    let is_kept = core
        .conns
        .find_client(client_conn)
        .is_some_and(|client| matches!(client.phase, client::Phase::Linked(server) if server == server_conn));
    if is_kept {
        backpressure::resume_client(core, client_conn);
        relay::send_held(core, client_conn, server_conn);
    }
}
