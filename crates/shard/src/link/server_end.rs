//! The end of a server connection: when it is closed, how, and what that means for its client and its pool.
//!
//! Owns that an idle server gets Terminate and is awaited, so that its backend is gone before another takes its place.

use telemetry::Level;
use wire::{encode, sqlstate};

use crate::close_reason::CloseReason;
use crate::connections::Conn;
use crate::core::Core;
use crate::link::{
    backpressure, client_end, fair, internal_query, listener, opening, permits, repeat, routing, shares,
    standbys,
};
use crate::local_pools::local_pool::LocalPool;
use crate::local_pools::table::PoolId;
use crate::server::{InternalQuery, Phase, Server, UsedBy};
use crate::time::micros;
use crate::{Action, ConnId, pending};

/// The server broke the protocol, or died.
pub(crate) fn server_fault(core: &mut Core, conn: ConnId, text: &str) {
    if repeat::server_lost(core, conn, text) {
        return;
    }
    let Some(server) = core.server(conn) else { return };
    let told = server.close_when_free.reason() == Some(CloseReason::SentFatal);
    let client = server.client();
    let last_error = match server.phase {
        Phase::InternalQuery(_) => server.internal_error.take(),
        _ => None,
    };
    core.log_server(conn, Level::Warning, text);
    close_server(core, conn, CloseReason::Message(text));
    let_go(core, conn);
    let Some(client) = client else { return };
    let (code, message) =
        last_error.as_deref().and_then(fatal).unwrap_or((sqlstate::CONNECTION_FAILURE, text));
    match told {
        true => client_end::disconnect_client(core, client, text),
        false => client_end::fail_client_because(core, client, code, message, text),
    }
}

/// Whether an error ends the connection.
pub(crate) fn ends_connection(error: &[u8]) -> bool {
    matches!(wire::error::parse(error).severity(), Some(b"FATAL" | b"PANIC"))
}

/// Code and message of an error that ends the connection: its client gets them, even if a query of Weir's own met it.
fn fatal(error: &[u8]) -> Option<(&str, &str)> {
    let fields = wire::error::parse(error);
    let text = |field: Option<_>| std::str::from_utf8(field?).ok();
    text(fields.code()).zip(text(fields.message())).filter(|_| ends_connection(error))
}

/// Closes a server connection in any phase. An idle one gets Terminate first, and its end of file is awaited, so
/// that its backend is gone before another takes its place.
pub(crate) fn close_server(core: &mut Core, conn: ConnId, reason: CloseReason<'_>) {
    let Some(server) = core.server(conn) else { return };
    let is_free =
        server.protocol.status().is_some() || matches!(server.phase, Phase::Connecting | Phase::Login(_));
    // In the middle of its client's message Terminate would be read as a part of that.
    let at_boundary = server.protocol.boundary().is_some();
    close_server_that(core, is_free && at_boundary, conn, reason);
}

/// The same where the caller knows whether the server would read Terminate.
pub(crate) fn close_server_that(core: &mut Core, listens: bool, conn: ConnId, reason: CloseReason<'_>) {
    let Some(server) = core.server(conn) else { return };
    if matches!(server.phase, Phase::Leaving { .. } | Phase::Closing) {
        return;
    }
    if server.listens {
        listener::closes(core, conn, reason);
    }
    let Some(server) = core.server(conn) else { return };
    let (since_us, pool_id) = (server.since_us, server.pool);
    let idle = matches!(server.phase, Phase::Idle);
    let can_hear = !matches!(server.phase, Phase::Connecting | Phase::AskedTls | Phase::Handshake);
    let internal_client = match server.phase {
        Phase::InternalQuery(
            InternalQuery::Ask(internal_client)
            | InternalQuery::Freshen(internal_client)
            | InternalQuery::ConnectQuery(internal_client),
        ) => Some(internal_client),
        _ => None,
    };
    let age = core.age_s(since_us);
    if core.config.global.log_disconnections {
        core.log_server(conn, Level::Log, &format!("closing because: {reason} (age={age}s)"));
    }
    login_over(core, conn);
    standbys::note_end(core, conn, pool_id);
    if let Some(local_pool) = core.local_pools.get_mut(pool_id) {
        if idle {
            local_pool.pool.remove_idle(conn.0);
        }
        if local_pool.pool.end_check(conn.0) {
            core.effects.pool(pool_id);
        }
    }
    let now_us = core.now.mono_us;
    let Some(server) = core.conns.server_mut(conn) else { return };
    fair::end(server, &mut core.local_pools, now_us);
    if !server.listens
        && let Some(local_pool) = core.local_pools.get(pool_id)
    {
        server.leaves = true;
        local_pool.pool.server_leaves();
    }
    if can_hear && listens {
        server.phase = Phase::Leaving { since_us: now_us };
        backpressure::resume_server(core, conn);
        core.outbox.write(conn, encode::terminate);
    } else {
        server.phase = Phase::Closing;
        core.act(Action::Close { conn });
    }
    if let Some(internal_client) = internal_client {
        internal_query::refuse_internal_client(
            core,
            internal_client,
            sqlstate::CONNECTION_FAILURE,
            internal_query::CONFIG_ERROR,
        );
    }
}

/// The server's end of file: expected, or the end of its client too.
pub(crate) fn server_hung_up(core: &mut Core, conn: ConnId) {
    let Some(server) = core.server(conn) else { return };
    match server.phase {
        Phase::Leaving { .. } => {
            server.phase = Phase::Closing;
            core.act(Action::Close { conn });
        }
        Phase::Closing => {}
        _ => {
            let crashed = standbys::forget_crashed(core, conn);
            server_fault(core, conn, "server conn crashed?");
            // Behind what becomes of its own client, and of others that it makes room for.
            crashed.into_iter().for_each(|pool| routing::move_waiters(core, pool));
        }
    }
}

/// The socket is gone: its permits are free.
pub(crate) fn server_closed(core: &mut Core, server: &Server) {
    let pool_id = server.pool;
    if let Some(local_pool) = core.local_pools.get_mut(pool_id) {
        if server.leaves {
            local_pool.pool.server_has_left();
        }
        match server.listens {
            true => local_pool.pool.listener_closed(),
            false => local_pool.pool.closed(),
        }
    }
    permits::permit_is_free(core, pool_id);
    pending::paused_progress(core);
}

/// A login ended badly; the pool decides when the next is tried. One to what the entry does not stand for any more says nothing of the next.
pub(crate) fn login_over(core: &mut Core, conn: ConnId) {
    let now_us = core.now.mono_us;
    let Some(server) = core.conns.server_mut(conn) else { return };
    if !server.is_logging_in() {
        return;
    }
    let (open_for, is_withdrawn) = (server.opened_for(), server.close_when_free.is_withdrawn());
    if let Some(local_pool) = core.local_pools.get_mut(server.pool) {
        match is_withdrawn {
            true => local_pool.pool.login_withdrawn(open_for),
            false => local_pool.login_ended_badly(open_for, now_us),
        }
    }
    opening::unbind(core, conn);
    if !is_withdrawn {
        standbys::note_failure(core, conn);
    }
}

/// The end of file of a server that is closing has come: close the socket now.
pub(crate) fn let_go(core: &mut Core, conn: ConnId) {
    let Some(server) = core.server(conn) else { return };
    if matches!(server.phase, Phase::Leaving { .. }) {
        server.phase = Phase::Closing;
        core.act(Action::Close { conn });
    }
}

/// Why a free server should not be used any more.
pub(crate) fn reason_to_close(core: &Core, conn: ConnId) -> Option<CloseReason<'static>> {
    let server = core.conns.server(conn)?;
    reason_to_close_in(core, server, core.local_pools.get(server.pool)?)
}

/// The same where the server and its pool are at hand.
#[inline(always)]
pub(crate) fn reason_to_close_in(
    core: &Core,
    server: &Server,
    local_pool: &LocalPool,
) -> Option<CloseReason<'static>> {
    if let Some(reason) = server.close_when_free.reason() {
        return Some(reason);
    }
    // Another thread may have found the next primary just now.
    if server.timeline().is_some_and(|timeline| local_pool.has_newer_primary(timeline)) {
        return Some(CloseReason::LeftBehind);
    }
    // What a client that is gone has left in its session is no other client's.
    if server.protocol.is_tainted() || server.protocol.keeps_client() {
        return Some(CloseReason::StateUnknown);
    }
    if server.used_by != UsedBy::Nothing && is_lifetime_over(core, server, local_pool) {
        return Some(CloseReason::LifetimeOver);
    }
    let oversized = local_pool.pool.is_oversized(0)
        && (local_pool.pool.queue.is_empty()
            || local_pool.pool.is_to_shrink(leaving_servers(core, server.pool)));
    if oversized && local_pool.pool.is_oversized(leaving_servers(core, server.pool)) {
        return Some(CloseReason::PoolTooLarge);
    }
    if local_pool.pool.is_over_lease(core.now.mono_us) {
        return Some(CloseReason::SlotGivenBack);
    }
    if permits::is_permit_requested(core, local_pool, server)
        || shares::is_to_give_up(local_pool, server, core.now.mono_us)
    {
        return Some(CloseReason::Evicted);
    }
    local_pool.pool.paused.then_some(CloseReason::Paused)
}

#[inline(always)]
fn is_lifetime_over(core: &Core, server: &Server, local_pool: &LocalPool) -> bool {
    let lifetime_us = micros(core.config.server_lifetime(&local_pool.database));
    core.now.mono_us.saturating_sub(server.since_us) >= lifetime_us
}

/// Why an idle server should be closed, which is asked three times a second. One that was never used ends its lifetime only here: it serves the client that waits for
/// it, however short that is, and a pool that keeps a minimum does not log in again without a pause.
pub(crate) fn reason_to_close_idle(core: &Core, conn: ConnId) -> Option<CloseReason<'static>> {
    let reason = reason_to_close(core, conn);
    if reason.is_some() {
        return reason;
    }
    let server = core.conns.server(conn)?;
    let local_pool = core.local_pools.get(server.pool)?;
    let is_single_use = core.config.server_lifetime(&local_pool.database).is_zero();
    let is_over =
        !is_single_use && local_pool.pool.queue.is_empty() && is_lifetime_over(core, server, local_pool);
    is_over.then_some(CloseReason::LifetimeOver)
}

/// How many servers of this pool are closing and still have their permit. Looks at every connection.
pub(crate) fn leaving_servers(core: &Core, pool_id: PoolId) -> u32 {
    let leaving = |conn: &Conn| matches!(conn, Conn::Server(server) if server.pool == pool_id && !server.listens && matches!(server.phase, Phase::Leaving { .. } | Phase::Closing));
    u32::try_from(core.conns.iter().filter(|(_, conn)| leaving(conn)).count()).unwrap_or(u32::MAX)
}

pub(crate) fn close_idle_servers(core: &mut Core, local_pool: PoolId, reason: CloseReason<'_>) {
    let idle: Vec<ConnId> = core
        .local_pools
        .get(local_pool)
        .map(|local_pool| local_pool.pool.idle().iter().map(|idle| ConnId(idle.server)).collect())
        .unwrap_or_default();
    for conn in idle {
        close_server(core, conn, reason);
    }
}
