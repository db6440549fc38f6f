//! The end of a client: what it is told, what becomes of its server, and what it no longer counts in.
//!
//! Owns that each end is logged once and that nothing of a client is left. What only an owner above the core keeps of it is left to
//! that by an effect.

use std::sync::Arc;

use messages::{ShardMessage, ShutdownMode};
use session::ClientFault;
use telemetry::Level;
use wire::{encode, sqlstate};

use crate::client::Phase;
use crate::client::counted::Counted;
use crate::client::login::PendingAuthQuery;
use crate::close_reason::CloseReason;
use crate::connections::Conn;
use crate::core::Core;
use crate::effects::Effect;
use crate::link::{checkout, fair, internal_query, listener, opening, pins, quotas, server_end, slow_login};
use crate::local_pools::table::PoolId;
use crate::server::InternalQuery;
use crate::{Action, ConnId, server};

/// Whether the cancel request that this connection carries has not had its turn.
pub(crate) fn waits_for_turn(core: &Core, carrier: ConnId) -> bool {
    match core.conns.get(carrier) {
        Some(Conn::Cancel(cancel_conn)) => !cancel_conn.has_turn(),
        Some(Conn::PeerCancel(peer_cancel_conn)) => {
            peer_cancel_conn.turn.is_none() || peer_cancel_conn.is_one_of_many
        }
        _ => false,
    }
}

/// The canceling client has closed its side and need not wait, but its request counts until it is done. False: it
/// does not count.
fn outlives_its_client(core: &Core, conn: ConnId) -> bool {
    match core.conns.get(conn) {
        Some(Conn::Client(client)) => {
            matches!(client.phase, Phase::CancelRequest(Some(carrier)) if waits_for_turn(core, carrier))
        }
        _ => false,
    }
}

/// The client broke the protocol.
pub(crate) fn client_fault(core: &mut Core, conn: ConnId, fault: &ClientFault) {
    if *fault == ClientFault::SimpleQuery {
        core.log_client(conn, Level::Error, "client used 'Q' packet type");
    }
    fail_client(core, conn, fault.sqlstate(), &fault.message());
}

/// Disconnects a client without a message to it.
pub(crate) fn disconnect_client(core: &mut Core, conn: ConnId, reason: &str) {
    let Some(client) = core.client(conn) else { return };
    if matches!(client.phase, Phase::Closing) {
        return;
    }
    log_client_disconnect(core, conn, reason);
    dismiss_client(core, conn);
}

/// The client has disconnected. Before the end of a login that is not logged, as in PgBouncer: load balancers check
/// this way, and drivers that find out that they need a password.
pub(crate) fn client_disconnected(core: &mut Core, conn: ConnId) {
    let Some(client) = core.client(conn) else { return };
    if client.is_settled() {
        return disconnect_client(core, conn, "client unexpected eof");
    }
    if !matches!(client.phase, Phase::Closing) && !outlives_its_client(core, conn) {
        slow_login::failed(core, conn);
        core.log_client(conn, Level::Debug, "client unexpected eof before login");
        dismiss_client(core, conn);
    }
}

/// Ends it without a line in the log; what was written to it is sent first.
pub(crate) fn dismiss_client(core: &mut Core, conn: ConnId) {
    detach_from_server(core, conn);
    forget_client(core, conn);
    core.act(Action::Close { conn });
}

/// Releases or closes the server of a client that disconnects.
fn detach_from_server(core: &mut Core, conn: ConnId) {
    let Some(client) = core.client(conn) else { return };
    match client.phase {
        Phase::Linked(server) => {
            // The values are no other client's, but the server can be: they are discarded then.
            let at_boundary = core.server(server).is_some_and(|server| {
                server.protocol.unpin_sequences();
                server.protocol.boundary().is_some()
            });
            checkout::unlink(core, server);
            if at_boundary {
                checkout::release_or_close(core, server);
            } else {
                server_end::close_server_that(core, false, server, CloseReason::ClientLeft);
            }
        }
        // It gets the parameters of a client that is gone; any known parameters will do, once the answer is in.
        Phase::Preparing(server) => {
            let now_us = core.now.mono_us;
            let Some(preparing) = core.conns.server_mut(server) else { return };
            fair::end(preparing, &mut core.local_pools, now_us);
            match preparing.phase {
                server::Phase::InternalQuery(
                    InternalQuery::Restore(_)
                    | InternalQuery::Sequences(_)
                    | InternalQuery::Statements(_)
                    | InternalQuery::Identity(_)
                    | InternalQuery::HandOver(_),
                ) => {
                    server_end::close_server(core, server, CloseReason::ClientLeft);
                }
                server::Phase::InternalQuery(InternalQuery::SessionState { failed, .. }) => {
                    preparing.phase =
                        server::Phase::InternalQuery(InternalQuery::SessionState { client: None, failed });
                }
                server::Phase::InternalQuery(_) => {
                    preparing.protocol.forget_session();
                    preparing.protocol.distrust_sequences();
                    preparing.phase = server::Phase::InternalQuery(InternalQuery::Check)
                }
                _ => {} // It is being closed.
            }
        }
        Phase::Waiting(position) | Phase::AwaitingGreeting(position) => {
            let pool = client.served_by();
            if let Some(local_pool) = core.local_pools.of_mut(pool) {
                local_pool.pool.queue.leave(position);
                local_pool.pool.note_left(core.now.mono_us);
            }
            opening::dedicated_request_ended(core, conn);
        }
        _ => {}
    }
}

/// Sends a client the reason (FATAL) and closes it.
pub(crate) fn fail_client(core: &mut Core, conn: ConnId, sqlstate: &str, text: &str) {
    fail_client_because(core, conn, sqlstate, text, text);
}

/// The same where the log gives another reason for the end than the client gets.
pub(crate) fn fail_client_because(core: &mut Core, conn: ConnId, sqlstate: &str, text: &str, reason: &str) {
    let Some(client) = core.client(conn) else { return };
    if matches!(client.phase, Phase::Closing) {
        return;
    }
    let server = client.server();
    core.count_error(conn, sqlstate);
    // The lines are written before the error is sent: a script that has read the error finds them.
    log_client_disconnect(core, conn, reason);
    if core.config.global.log_pooler_errors {
        core.log_client(conn, Level::Warning, &format!("pooler error: {text}"));
    }
    // No error can be sent in the middle of a server's message.
    let is_mid_reply =
        server.and_then(|server| core.server(server)).is_some_and(|server| server.protocol.is_mid_reply());
    if !is_mid_reply {
        core.outbox.write(conn, |out| encode::error(out, "FATAL", sqlstate, text));
    }
    dismiss_client(core, conn);
}

pub(crate) fn log_client_disconnect(core: &mut Core, conn: ConnId, reason: &str) {
    slow_login::failed(core, conn);
    let Some(since_us) = core.client(conn).map(|client| client.since_us) else { return };
    if core.config.global.log_disconnections {
        let age = core.age_s(since_us);
        core.log_client(conn, Level::Log, &format!("closing because: {reason} (age={age}s)"));
    }
}

/// A client disconnects: its place in every limit is released.
fn uncount(core: &mut Core, conn: ConnId) {
    let Some(client) = core.conns.client_mut(conn) else { return };
    let counted = std::mem::take(&mut client.counted);
    client.quota = None;
    if counted.process {
        core.process.clients.release();
    }
    for counts in [counted.database, counted.user].into_iter().flatten() {
        counts.clients.release();
    }
    if let (true, Some(local_pool)) = (counted.local_pool, core.local_pools.of_mut(client.pool)) {
        local_pool.remove_client();
        local_pool.last_used_us = core.now.mono_us;
    }
}

/// A client that another process admitted: it is counted whatever the limits are.
pub(crate) fn count_imported(core: &mut Core, conn: ConnId, pool_id: PoolId) {
    let now_us = core.now.mono_us;
    let (Some(Conn::Client(client)), Some(local_pool)) =
        (core.conns.get_mut(conn), core.local_pools.get_mut(pool_id))
    else {
        return;
    };
    let counts = [Arc::clone(local_pool.pool.database()), core.pool_registry.user(&client.login_user)];
    core.process.clients.take(0);
    for connection_counts in &counts {
        connection_counts.clients.take(0);
    }
    let [database, user] = counts.map(Some);
    client.counted = Counted { unauthenticated: false, process: true, database, user, local_pool: true };
    client.pool = Some(pool_id);
    local_pool.add_client();
    local_pool.last_used_us = now_us;
}

/// A client is not counted any more, and its names are forgotten.
pub(crate) fn forget_client(core: &mut Core, conn: ConnId) {
    if core.has_quotas {
        quotas::leave(core, conn);
    }
    pins::release(core, conn);
    listener::client_left(core, conn);
    let Some(client) = core.conns.client_mut(conn) else { return };
    let (id, peer) = (client.id, client.peer);
    let phase = std::mem::replace(&mut client.phase, Phase::Closing);
    let was_console = matches!(phase, Phase::Console(_));
    client.request.held = Vec::new();
    let login_bytes = std::mem::take(&mut client.login_bytes);
    let was_unauthenticated = std::mem::take(&mut client.counted.unauthenticated);
    if let Some(mut statements) = client.request.statements.take() {
        statements.forget_all(&mut core.registry);
    }
    if let Some(prefix) = client.cancel_key_prefix.take() {
        core.pool_registry.forget_cancel_key(prefix);
    }
    if was_console {
        core.report(messages::Report::ConsoleLeft);
    }
    uncount(core, conn);
    if was_unauthenticated {
        core.process.logins.release();
    }
    if was_unauthenticated || login_bytes > 0 {
        core.effects.push(Effect::LoginOver { id, peer, was_unauthenticated, login_bytes });
    }
    match phase {
        Phase::Login(login) => login.asks.into_iter().for_each(|asks| withdraw_query(core, asks, id)),
        Phase::CancelRequest(Some(carrier)) if waits_for_turn(core, carrier) => {
            core.effects.push(Effect::CancelWithdrawn(carrier));
        }
        _ => {}
    }
}

/// A client that waited for a query has disconnected.
fn withdraw_query(core: &mut Core, asks: PendingAuthQuery, id: u64) {
    let from = core.id;
    if asks.home == from {
        return internal_query::withdrawn(core, from, id);
    }
    core.send_to_shard(asks.home, ShardMessage::WithdrawServerQuery { from, id });
}

/// A client that asks for a server, or has just logged in, is closed if the shutdown waits for servers only.
pub(crate) fn client_must_disconnect(core: &mut Core, conn: ConnId) -> bool {
    if core.administration.shutdown() == Some(ShutdownMode::WaitForServers) {
        fail_client(core, conn, sqlstate::ADMIN_SHUTDOWN, "server shutting down");
        return true;
    }
    false
}

/// Refuses a client whose database is disabled; true if it was.
pub(crate) fn refuse_if_disabled(core: &mut Core, conn: ConnId, database: &str) -> bool {
    let refuse = core.administration.is_disabled(database);
    if refuse {
        let text = format!("database \"{database}\" is disabled");
        fail_client(core, conn, sqlstate::OBJECT_NOT_IN_PREREQUISITE_STATE, &text);
    }
    refuse
}
