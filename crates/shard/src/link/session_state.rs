//! What a client leaves in the session of its server (`session_state = virtual`): the server is asked before it is released.
//!
//! Owns the question, and what its answer leads to: settings follow the client, all other state keeps it on this server. What may
//! change a session, and what of it can move, is `session`'s.

use settings::PoolMode;

use crate::core::Core;
use crate::link::{
    backpressure, checkout, hand_over, identity, notify, pins, relay, routing, sequences, sql_statements,
};
use crate::server::InternalQuery;
use crate::{ConnId, client, server};

/// How often the question is repeated at once: a cancel request or a timeout of the client's may meet it.
const ATTEMPTS: u8 = 3;

/// The client of a quiet server keeps it: because of what the session holds, or until that is known.
#[cold]
#[inline(never)]
pub(crate) fn keep(core: &mut Core, client_conn: ConnId, server_conn: ConnId) {
    let is_due = core.conns.find_server(server_conn).is_some_and(identity::is_due);
    if is_due && identity::ask(core, server_conn, Some(client_conn)) {
        return;
    }
    let Some((client, server)) = core.conns.linked(client_conn, server_conn) else { return };
    let Some(local_pool) = core.local_pools.get(server.pool) else { return };
    if local_pool.serves.split().is_some() {
        client.routed.keeps_primary();
    }
    server.protocol.watch_relations(local_pool.relations.known());
    if !server.protocol.session_is_to_be_asked() {
        if routing::refuse_to_keep(core, client_conn, server_conn) {
            return;
        }
        if !sequences::count_kept(core, client_conn, server_conn) {
            return;
        }
        if !hand_over::leave(core, client_conn, server_conn) {
            deliver_notifications(core, server_conn, client_conn);
            notify::flush_ready(core, client_conn);
        }
        return;
    }
    if server.protocol.session_is_learned(
        &core.tracked,
        &local_pool.default_params,
        &local_pool.learned_settings,
    ) {
        return settle(core, client_conn, server_conn, true);
    }
    // A cancel request under way is for the client's query, and must not meet Weir's own.
    if server.cancels > 0 {
        return server.protocol.hold_requests();
    }
    ask(core, client_conn, server_conn, 0);
}

fn ask(core: &mut Core, client_conn: ConnId, server_conn: ConnId, failed: u8) {
    let now_us = core.now.mono_us;
    let Some((client, server)) = core.conns.linked(client_conn, server_conn) else { return };
    client.phase = client::Phase::Preparing(server_conn);
    server.phase =
        server::Phase::InternalQuery(InternalQuery::SessionState { client: Some(client_conn), failed });
    server.query_us = now_us;
    server.protocol.collect_notifications(true);
    send(core, server_conn);
    backpressure::pause_client(core, client_conn);
}

fn send(core: &mut Core, server_conn: ConnId) {
    let Some(server) = core.conns.server_mut(server_conn) else { return };
    let protocol = &mut server.protocol;
    if let Some(at) = protocol.boundary() {
        core.outbox.write(server_conn, |out| protocol.send_session_query(at, out));
    }
}

/// The server has answered; Some of how often that has failed.
pub(crate) fn answered(
    core: &mut Core,
    server_conn: ConnId,
    client_conn: Option<ConnId>,
    failed: Option<u8>,
) {
    let is_known = failed.is_none() && note_answer(core, server_conn);
    if let Some(server) = core.server(server_conn) {
        server.protocol.collect_notifications(false);
    }
    let Some(client_conn) = client_conn else {
        return checkout::internal_query_over(core, server_conn);
    };
    match failed {
        Some(failed) if failed < ATTEMPTS => ask(core, client_conn, server_conn, failed),
        _ => settle(core, client_conn, server_conn, is_known),
    }
}

/// False if the answer cannot be read.
fn note_answer(core: &mut Core, server_conn: ConnId) -> bool {
    let Some(server) = core.conns.server_mut(server_conn) else { return false };
    let Some(local_pool) = core.local_pools.get_mut(server.pool) else { return false };
    if server.protocol.take_schema_change() {
        local_pool.relations.expire();
    }
    let learned = &mut local_pool.learned_settings;
    server.protocol.session_answered(&core.tracked, &local_pool.default_params, learned, &mut core.registry)
}

/// The client has what was found; it leaves the server, unless that holds more. Where nothing could be found out it keeps the
/// server until it is asked again, behind its next request or by `maintain`.
fn settle(core: &mut Core, client_conn: ConnId, server_conn: ConnId, is_known: bool) {
    let Some((client, server)) = core.conns.linked(client_conn, server_conn) else { return };
    let Some(local_pool) = core.local_pools.get_mut(server.pool) else { return };
    client.phase = client::Phase::Linked(server_conn);
    server.phase = server::Phase::Linked(client_conn);
    server.protocol.release_requests();
    if is_known {
        let default_params = &local_pool.default_params;
        client.parameters.note_unreported(default_params, &server.protocol.parameters);
        let prepared = server.protocol.prepared_of_client(client.parameters.prepared());
        client.parameters.set_prepared(prepared);
        if let Some(startup) = &client.startup {
            client.parameters.return_to_startup(startup, default_params);
        }
        if client.parameters.same(&server.protocol.parameters) {
            if !local_pool.last_params.same(&client.parameters) {
                local_pool.last_params = client.parameters.clone();
            }
            client.parameters = local_pool.last_params.clone();
            server.protocol.parameters = local_pool.last_params.clone();
        }
    }
    if is_known && !pins::settle(core, client_conn, server_conn) {
        return notify::flush_ready(core, client_conn);
    }
    let listened = core.conns.find_client(client_conn).is_some_and(|client| client.listening.is_some());
    if is_known {
        hand_over::note_channels(core, client_conn, server_conn);
    }
    let Some((client, server)) = core.conns.linked(client_conn, server_conn) else { return };
    // In session pooling, to which a RELOAD may have changed meanwhile, it has its server in any case, and while output is unsent for now.
    let is_session = server.mode(&core.local_pools) == Some(PoolMode::Session);
    let is_kept = server.protocol.keeps_client() || is_session || server.unsent;
    let is_lacking = is_known && is_kept && server.protocol.lacks_prepared();
    let sets = match is_kept {
        true => client.parameters.sets_from(&server.protocol.parameters, &core.tracked),
        false => None,
    };
    if !server.protocol.is_quiet() && (!is_kept || is_lacking || sets.is_some()) {
        // Half a message behind the answer is the client's, and may be a report: it goes on once that is whole.
        server.protocol.hold_requests();
        deliver_notifications(core, server_conn, client_conn);
        return notify::flush_ready(core, client_conn);
    }
    // With what the shared connection delivers, it goes to the client in the order of commits.
    if !listened {
        deliver_notifications(core, server_conn, client_conn);
    }
    if is_known && hand_over::leave(core, client_conn, server_conn) {
        return;
    }
    deliver_notifications(core, server_conn, client_conn);
    notify::flush_ready(core, client_conn);
    if let Some(sets) = sets {
        let Some(server) = core.conns.server_mut(server_conn) else { return };
        server.protocol.take_lost(); // What was reset gets the client's values now.
        return checkout::prepare(core, client_conn, server_conn, InternalQuery::Apply(client_conn), &sets);
    }
    if !is_kept {
        return checkout::release(core, server_conn);
    }
    // What could not be prepared may be possible by what the client has created.
    if is_known && routing::refuse_to_keep(core, client_conn, server_conn)
        || is_lacking && sql_statements::prepare(core, client_conn, server_conn)
    {
        return;
    }
    backpressure::resume_client(core, client_conn);
    relay::send_held(core, client_conn, server_conn);
}

/// What the client's session was notified of while Weir's own query ran.
pub(crate) fn deliver_notifications(core: &mut Core, server_conn: ConnId, client_conn: ConnId) {
    let Some(server) = core.conns.server_mut(server_conn) else { return };
    let notifications = server.protocol.take_notifications();
    if !notifications.is_empty() {
        notify::deliver_own(core, client_conn, &notifications);
    }
}
