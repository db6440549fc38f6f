//! Checkout and release: a client gets a server, and the server is returned. Both happen here and nowhere else.
//!
//! Owns the one release point ([`release`]): a server leaves its client only when nothing is owed, the last
//! ReadyForQuery said idle, no frame is half sent either way, nothing is unsent, no COPY runs and no cancel is on its
//! way. Everything else ends with the connection closed.

use session::Parameters;
use settings::PoolMode;
use telemetry::Level;

use crate::close_reason::CloseReason;
use crate::core::Core;
use crate::effects::{Effect, Next};
use crate::link::{
    backpressure, client_end, fair, first_message, greet, identity, internal_query, left_behind,
    login_server, notify, opening, overload, parameters, pins, positions, priority, quotas, relations, relay,
    routing, sequences, server_end, session_state, shuffle, sql_statements, startup_values, waits,
};
use crate::local_pools::local_pool::LocalPool;
use crate::local_pools::table::PoolId;
use crate::server::{InternalQuery, UsedBy};
use crate::{ConnId, client, pending, server};

/// A server for an idle client, ready to be talked to; None if it has to wait (it is queued, or its server is being
/// prepared: `prepared` continues). `request` is what it sends; empty if that is held.
#[inline]
pub(crate) fn checkout(core: &mut Core, conn: ConnId, request: &[u8]) -> Option<ConnId> {
    checkout_since(core, conn, core.now.mono_us, Some(request))
}

/// The same for a client that has waited since then; without a `request` it may have a server for it.
#[inline(always)]
pub(crate) fn checkout_since(
    core: &mut Core,
    conn: ConnId,
    since_us: u64,
    request: Option<&[u8]>,
) -> Option<ConnId> {
    let now_us = core.now.mono_us;
    let client = core.conns.client_mut(conn)?;
    client.request_us = since_us;
    let (mut pool_id, used_last) = (client.pool?, client.server_used_last);
    let mut local_pool = core.local_pools.get_mut(pool_id)?;
    let is_split = local_pool.serves.split().is_some();
    if is_split || client.routed.is_split() {
        pool_id = routing::pool_for(core, conn, pool_id, request);
        local_pool = core.local_pools.get_mut(pool_id)?;
    }
    if let Some(request) = request
        && local_pool.pool.limits.waits_for_pin
        && local_pool.serves.standby().is_none()
    {
        if pins::waits(core, conn, request) {
            return None;
        }
        local_pool = core.local_pools.get_mut(pool_id)?;
    }
    if local_pool.pool.queue.shared_len() == 0
        && let Some(idle) = local_pool.pool.checkout(used_last, now_us)
    {
        let server = ConnId(idle.server);
        if !internal_query::needs_check(core, idle.since_us) {
            return link_or_prepare(core, conn, server, request.unwrap_or_default());
        }
        priority::note(core, conn, request.unwrap_or_default());
        enqueue(core, conn, since_us);
        internal_query::check(core, server);
        return None;
    }
    if client_end::client_must_disconnect(core, conn) {
        return None;
    }
    priority::note(core, conn, request.unwrap_or_default());
    enqueue(core, conn, since_us);
    if !core.try_export(conn) {
        opening::serve_or_open(core, pool_id);
    }
    None
}

/// Links the two, or first makes the server like the client. `request` is what that sends; empty if it is held.
#[inline(always)]
fn link_or_prepare(
    core: &mut Core,
    client_conn: ConnId,
    server_conn: ConnId,
    request: &[u8],
) -> Option<ConnId> {
    if core.config.global.server_shuffle
        && shuffle::refuse_last_server(core, client_conn, server_conn, request)
    {
        return None;
    }
    let now_us = core.now.mono_us;
    let (client, server) = core.conns.linked(client_conn, server_conn)?;
    if let Some(timeline) = server.timeline()
        && matches!(client.phase, client::Phase::Idle)
        && core.local_pools.get(server.pool).is_some_and(|pool| pool.has_newer_primary(timeline))
    {
        left_behind::refuse(core, client_conn, server_conn);
        return None;
    }
    let has_moved = client.server_used_last.replace(server_conn.0) != Some(server_conn.0);
    if has_moved {
        server.protocol.forget_unnamed_of(client.id);
    }
    server.used_by = UsedBy::Client;
    server.was_asked = false;
    server.unasked_bytes = 0;
    server.request_us = now_us;
    server.query_us = now_us;
    server.transaction_us = now_us;
    let mut is_alike =
        client.listening.is_none() && client.parameters.shared_with(&server.protocol.parameters);
    if !is_alike
        && let Some(position) = client.parameters.unrestorable(&server.protocol.parameters, &core.tracked)
    {
        parameters::refuse_to_link(core, client_conn, server_conn, position);
        return None;
    }
    let wait_us = now_us.saturating_sub(client.request_us);
    client.request_us = now_us;
    if let Some(local_pool) = core.local_pools.get_mut(server.pool) {
        local_pool.assigned(wait_us);
        if local_pool.pool.limits.fair.is_some() {
            fair::begin(client, server, local_pool, &core.pool_registry, now_us);
        }
        local_pool.last_used_us = now_us;
        server.names_as_they_are = client.passes_names(&core.config, local_pool.pool.limits.mode);
        server.protocol.follow_session(local_pool.pool.limits.follows_sessions);
        if local_pool.serves.split().is_some() {
            server.protocol.watch_schema();
        }
        if local_pool.pool.limits.follows_sessions {
            if client.pin.is_some() {
                server.protocol.forget_session(); // Asked for in any case, so that it is known whether the pin has begun.
            }
            server.protocol.watch_relations(local_pool.relations.known());
            let is_latest = || client.sequences_at == server.id;
            is_alike &= !server.protocol.link_sequences(client.id, is_latest, local_pool.keeps_sequences);
        }
    }
    if server.protocol.may_have_unknown_settings(client.id) {
        return parameters::reset_and_prepare(core, client_conn, server_conn);
    }
    if !is_alike {
        return parameters::link_unlike(core, client_conn, server_conn);
    }
    client.go_on(client::Phase::Linked(server_conn));
    server.phase = server::Phase::Linked(client_conn);
    Some(server_conn)
}

/// Links a client and an idle server that has its sequences' values. False: it is made like the client first ([`prepared`]), or it has failed.
pub(crate) fn link_own(core: &mut Core, client_conn: ConnId, server_conn: ConnId) -> bool {
    link_or_prepare(core, client_conn, server_conn, &[]).is_some()
}

/// Links a client that logs in. False: its server is made like it first ([`prepared`]), or it has failed.
pub(crate) fn link_at_login(core: &mut Core, client_conn: ConnId, server_conn: ConnId) -> bool {
    link_or_prepare(core, client_conn, server_conn, &[]).is_some()
}

/// The server has its client's settings now.
pub(crate) fn settings_applied(core: &mut Core, server_conn: ConnId, client_conn: ConnId) {
    parameters::note_unreported(core, client_conn, server_conn);
    if !sql_statements::prepare(core, client_conn, server_conn) {
        prepared(core, server_conn, client_conn);
    }
}

/// The server has its client's parameters now.
pub(crate) fn prepared(core: &mut Core, server_conn: ConnId, client_conn: ConnId) {
    let now_us = core.now.mono_us;
    parameters::note_unreported(core, client_conn, server_conn);
    parameters::share_parameters(core, client_conn, server_conn);
    let Some((client, server)) = core.conns.linked(client_conn, server_conn) else { return };
    client.phase = client::Phase::Linked(server_conn);
    server.phase = server::Phase::Linked(client_conn);
    let since_us = std::mem::replace(&mut client.request_us, now_us);
    server.query_us = now_us;
    server.protocol.collect_notifications(false);
    waits::for_settings(core, client_conn, server_conn, since_us);
    session_state::deliver_notifications(core, server_conn, client_conn);
    let Some(client) = core.client(client_conn) else { return };
    if client.greeting_due && !login_server::greet(core, client_conn, server_conn) {
        return;
    }
    let Some(client) = core.client(client_conn) else { return };
    let wants_nothing = client.request.held.is_empty();
    backpressure::resume_client(core, client_conn);
    relay::send_held(core, client_conn, server_conn);
    // After a reset its values are set again although it has not asked for more.
    if wants_nothing {
        release(core, server_conn);
    }
}

/// THE release point: if all conditions hold, the server leaves its client. Called whenever one of them may have become
/// true: a reply is whole (`answer`), the client's message is (`forward_to_server`), output is sent
/// (`send_buffer_empty`), the pool's mode has changed (`configure`).
pub(crate) fn release(core: &mut Core, server_conn: ConnId) {
    let now_us = core.now.mono_us;
    if core.has_quotas {
        quotas::settle_linked(core, server_conn);
    }
    let Some(server) = core.conns.server_mut(server_conn) else { return };
    let server::Phase::Linked(client_conn) = server.phase else {
        return check_cancels_done(core, server_conn);
    };
    if !server.protocol.is_quiet() {
        return;
    }
    if server.unsent {
        if server.protocol.session_is_to_be_asked() {
            startup_values::restore_unsent(core, server_conn, client_conn);
        }
        return;
    }
    server.protocol.mark_quiet();
    if server.mode(&core.local_pools) == Some(PoolMode::Session) {
        let is_dedicated = server.dedicated.is_some();
        if identity::is_due(server) && identity::ask(core, server_conn, Some(client_conn)) {
            return;
        }
        if is_dedicated && left_behind::end_dedicated(core, server_conn, client_conn) {
            return;
        }
        return notify::flush_ready(core, client_conn);
    }
    if server.protocol.keeps_client() {
        return session_state::keep(core, client_conn, server_conn);
    }
    if server.protocol.has_called_sequences() {
        return sequences::note_call(core, client_conn, server_conn);
    }
    if server.has_ended_client {
        return client_end::disconnect_client(core, client_conn, &CloseReason::SentFatal.to_string());
    }
    fair::end(server, &mut core.local_pools, now_us);
    server.unlink();
    let paused = server.paused;
    match server.await_cancels(now_us) {
        true => core.effects.server(server_conn),
        false => core.effects.push(Effect::LeftWithCancels(server_conn)),
    }
    if paused {
        backpressure::resume_server(core, server_conn);
    }
    let Some(client) = core.client(client_conn) else { return };
    client.go_on(client::Phase::Idle);
    if client.listening.is_some() {
        notify::flush_ready(core, client_conn);
    }
    let Some(client) = core.client(client_conn) else { return };
    let (paused, holds) = (client.paused, !client.request.held.is_empty());
    if paused {
        backpressure::resume_client(core, client_conn);
    }
    if holds {
        first_message::idle_client_received_held(core, client_conn);
    } else if core.administration.ends_clients() {
        core.effects.push(Effect::ClientRested(client_conn));
    }
}

/// Takes a server from its client, whatever state it is in. The caller decides what becomes of it.
pub(crate) fn unlink(core: &mut Core, server_conn: ConnId) {
    let now_us = core.now.mono_us;
    if core.has_quotas {
        quotas::settle_linked(core, server_conn);
    }
    let Some(server) = core.conns.server_mut(server_conn) else { return };
    fair::end(server, &mut core.local_pools, now_us);
    server.unlink();
    backpressure::resume_server(core, server_conn);
}

/// An unlinked server: wait for its cancels, else let it be used again.
pub(crate) fn release_or_close(core: &mut Core, server_conn: ConnId) {
    let now_us = core.now.mono_us;
    let Some(server) = core.server(server_conn).filter(|server| server.is_live()) else { return };
    if server.dedicated.is_some() {
        return opening::end_dedicated(core, server_conn);
    }
    if !server.protocol.is_quiet() || server.unsent {
        return server_end::close_server(core, server_conn, CloseReason::Unclean);
    }
    match server.await_cancels(now_us) {
        true => core.effects.server(server_conn),
        false => core.effects.push(Effect::LeftWithCancels(server_conn)),
    }
}

/// A cancel request of an unlinked server has ended, or its half notice is whole.
pub(crate) fn check_cancels_done(core: &mut Core, server_conn: ConnId) {
    let Some(server) = core.server(server_conn) else { return };
    let awaiting_cancel = matches!(server.phase, server::Phase::AwaitingCancel);
    let settled = awaiting_cancel && server.cancels == 0 && server.protocol.is_quiet() && !server.unsent;
    if settled {
        core.effects.server_once(server_conn);
    }
}

/// Handles the servers that were released in this event, and the pools whose waiting client lost its server or may have a pin.
pub(crate) fn process_released(core: &mut Core) {
    while let Some(next) = core.effects.next() {
        match next {
            Next::Server(server_conn) => process_released_server(core, server_conn),
            Next::Pool(pool_id) => {
                pins::serve(core, pool_id);
                opening::serve_or_open(core, pool_id);
            }
        }
    }
}

/// A released server: reset it, close it, check it out for the next waiting client, or return it to the idle list.
#[inline]
fn process_released_server(core: &mut Core, server_conn: ConnId) {
    let Some(server) = core.conns.server(server_conn) else { return };
    if !matches!(server.phase, server::Phase::AwaitingCancel) {
        return;
    }
    let Some(local_pool) = core.local_pools.get(server.pool) else { return };
    if let Some(reason) = server_end::reason_to_close_in(core, server, local_pool) {
        server_end::close_server(core, server_conn, reason);
    } else if needs_reset(core, local_pool) {
        // Only DISCARD ALL is known to leave nothing behind, and its command tag shows it.
        parameters::mark_unreported_unknown(core, server_conn, None);
        internal_query::run_internal_query(core, server_conn, InternalQuery::Reset);
    } else {
        serve_next(core, server_conn);
    }
}

/// A check or a reset went well, or a login.
pub(crate) fn internal_query_over(core: &mut Core, server_conn: ConnId) {
    let now_us = core.now.mono_us;
    let Some(server) = core.server(server_conn).filter(|server| server.is_live()) else { return };
    if !server.protocol.is_quiet() || server.unsent {
        server.request_us = now_us;
        server.phase = server::Phase::AwaitingCancel; // Half a notice has come behind the answer.
        return;
    }
    match server_end::reason_to_close(core, server_conn) {
        Some(reason) => server_end::close_server(core, server_conn, reason),
        None => serve_next(core, server_conn),
    }
}

/// A server is free: the client that has waited longest gets it, or it becomes idle.
#[inline(always)]
fn serve_next(core: &mut Core, server_conn: ConnId) {
    let now_us = core.now.mono_us;
    let Some(server) = core.conns.find_server(server_conn) else { return };
    let pool_id = server.pool;
    if identity::is_unanswered(server) && identity::ask(core, server_conn, None) {
        return;
    }
    let Some(local_pool) = core.local_pools.get(pool_id) else { return };
    let lacks_room = local_pool.pool.lacks_room(now_us);
    // Behind an answer the clients that wait come first.
    let is_followed = local_pool.serves.cluster().is_some()
        && core.conns.find_server(server_conn).is_some_and(|server| !server.was_asked);
    if local_pool.relations.is_due(now_us) && relations::ask(core, server_conn)
        || is_followed
            && positions::is_due_for(core, pool_id, server_conn)
            && positions::ask(core, server_conn)
        || lacks_room && opening::goes_for_dedicated(core, server_conn)
    {
        return;
    }
    let Some(local_pool) = core.local_pools.get_mut(pool_id) else { return };
    local_pool.pool.end_check(server_conn.0);
    if local_pool.pool.paused || local_pool.pool.queue.shared_len() == 0 {
        return_idle(core, server_conn);
    } else {
        serve_oldest(core, pool_id, server_conn);
    }
    if !core.administration.pending().is_empty() {
        pending::paused_progress(core);
    }
}

/// Checks idle servers out for waiting clients, as long as there are both: no client waits beside an idle server.
/// Called whenever a server becomes idle, a client begins to wait or a pool is resumed, and at every tick.
#[inline]
pub(crate) fn serve_waiters(core: &mut Core, pool_id: PoolId) {
    let now_us = core.now.mono_us;
    while let Some(local_pool) = core.local_pools.get_mut(pool_id)
        && let Some(idle) = local_pool.pool.checkout_for_waiter(now_us)
    {
        let server = ConnId(idle.server);
        if internal_query::needs_check(core, idle.since_us) {
            internal_query::check(core, server);
        } else {
            serve_oldest(core, pool_id, server);
        }
    }
}

/// Gives a server to the client that has waited longest; if none waits, it becomes idle.
#[inline]
fn serve_oldest(core: &mut Core, pool_id: PoolId, server_conn: ConnId) {
    while let Some(local_pool) = core.local_pools.get_mut(pool_id)
        && let Some(waiter) = local_pool.pool.queue.serve()
    {
        let now_us = core.now.mono_us;
        local_pool.pool.note_left(now_us);
        let is_late = overload::is_late(local_pool, waiter.since_us, now_us);
        let client_conn = ConnId(waiter.client);
        if core.conns.find_internal_client(client_conn).is_some() {
            return internal_query::serve_internal_client(core, client_conn, server_conn);
        }
        match core.conns.client(client_conn).map(|client| &client.phase) {
            Some(client::Phase::AwaitingGreeting(_)) if login_server::is_on(core, pool_id) => {
                return login_server::assign(core, client_conn, server_conn, waiter.since_us);
            }
            Some(client::Phase::AwaitingGreeting(_)) => greet::send_greeting(core, client_conn),
            Some(client::Phase::Waiting(_)) => {
                if is_late && overload::refuse_late(core, client_conn) {
                    continue;
                }
                return serve(core, client_conn, server_conn, waiter.since_us);
            }
            _ => {}
        }
    }
    return_idle(core, server_conn);
}

fn serve(core: &mut Core, client_conn: ConnId, server_conn: ConnId, since_us: u64) {
    waits::for_server(core, client_conn, server_conn, since_us);
    if let Some(client) = core.client(client_conn) {
        client.go_on(client::Phase::Idle);
        client.request_us = since_us;
    }
    if let Some(server) = link_or_prepare(core, client_conn, server_conn, &[]) {
        backpressure::resume_client(core, client_conn);
        relay::send_held(core, client_conn, server);
    }
}

/// The client waits for a server, since then: it is not read any further.
pub(crate) fn enqueue(core: &mut Core, conn: ConnId, since_us: u64) {
    let now_us = core.now.mono_us;
    let Some(client) = core.conns.client_mut(conn) else { return };
    let Some(local_pool) = core.local_pools.of_mut(client.served_by()) else { return };
    let position = fair::join(client, local_pool, &core.pool_registry, conn, since_us);
    client.go_on(client::Phase::Waiting(position));
    if since_us != now_us {
        local_pool.pool.queue.has_joined(now_us);
    }
    client.wait_noted = false;
    client.request_us = since_us;
    backpressure::pause_client(core, conn);
}

/// Makes a server like its client, which waits for that.
pub(crate) fn prepare(
    core: &mut Core,
    client_conn: ConnId,
    server_conn: ConnId,
    internal_query: InternalQuery,
    sets: &str,
) {
    let now_us = core.now.mono_us;
    let Some((client, server)) = core.conns.linked(client_conn, server_conn) else { return };
    client.phase = client::Phase::Preparing(server_conn);
    server.phase = server::Phase::InternalQuery(internal_query);
    server.query_us = now_us;
    let (protocol, wanted) = (&mut server.protocol, client.parameters.clone());
    protocol.collect_notifications(true);
    // Several statements in one query would end a block that messages without a Sync have begun (PostgreSQL 55.2.4, pipelining).
    let is_in_block = protocol.in_block();
    if let Some(at) = protocol.boundary() {
        core.outbox.write(server_conn, |out| match is_in_block {
            true => Parameters::statements(sets).for_each(|set| {
                protocol.send_internal_query(at, out, &format!("{set};"));
            }),
            false => protocol.send_internal_query(at, out, sets),
        });
    }
    // The client may be gone when the answer comes, and the answer may be no.
    parameters::mark_unreported_unknown(core, server_conn, Some(&wanted));
    core.log_server(server_conn, Level::Noise, &format!("varcache_apply: {sets}"));
    backpressure::pause_client(core, client_conn);
}

/// Session mode (and `server_reset_query_always`) reset a server before another client gets it.
#[inline(always)]
fn needs_reset(core: &Core, local_pool: &LocalPool) -> bool {
    let global = &core.config.global;
    global.server_reset_query.is_some()
        && (local_pool.pool.limits.mode == PoolMode::Session || global.server_reset_query_always)
}

#[inline(always)]
fn return_idle(core: &mut Core, server_conn: ConnId) {
    let now_us = core.now.mono_us;
    let Some(server) = core.conns.server_mut(server_conn) else { return };
    let Some(local_pool) = core.local_pools.get_mut(server.pool) else { return };
    server.phase = server::Phase::Idle;
    local_pool.pool.return_idle(server_conn.0, now_us);
}
