//! DRAIN: clients go to another process. New ones are refused, and connected ones ended where that is wanted.
//!
//! Owns when a client is at rest: outside of a transaction, with nothing asked and nothing owed. Replication clients never are.

use messages::Drain;
use wire::sqlstate;

use crate::client::Phase;
use crate::connections::Conn;
use crate::core::Core;
use crate::link::{client_end, pins};
use crate::{ConnId, client};

/// Follows the order from now on.
pub(crate) fn drain(core: &mut Core, drain: Drain) {
    core.administration.set_drain(drain);
    end_all_at_rest(core);
}

/// Refuses a client that logs in to a database; true if it was. libpq tries the next of its hosts then.
pub(crate) fn refuse_new_client(core: &mut Core, conn: ConnId) -> bool {
    let refuse = core.administration.drain() != Drain::Off;
    if refuse {
        let text = "the pooler is draining: connect to another node";
        client_end::fail_client(core, conn, sqlstate::CANNOT_CONNECT_NOW, text);
    }
    refuse
}

/// Ends all clients that are at rest, if that is the order; the others as soon as they are.
pub(crate) fn end_all_at_rest(core: &mut Core) {
    if !core.administration.ends_clients() {
        return;
    }
    for conn in core.conns.ids(|conn| matches!(conn, Conn::Client(client) if client.is_settled())) {
        end_at_rest(core, conn);
    }
}

/// Ends this client if it is at rest and that is the order.
pub(crate) fn end_at_rest(core: &mut Core, conn: ConnId) {
    if !core.administration.ends_clients() {
        return;
    }
    pins::end_refused(core, conn);
    if is_at_rest(core, conn) {
        let text = "terminating connection because the pooler is draining";
        client_end::fail_client(core, conn, sqlstate::ADMIN_SHUTDOWN, text);
    }
}

/// A part of a request does not count: nothing of it has been executed, and its end may never come.
fn is_at_rest(core: &Core, conn: ConnId) -> bool {
    let Some(client) = core.conns.find_client(conn) else { return false };
    match client.phase {
        Phase::Idle => client.deferred_begin.is_none(),
        Phase::Linked(server) => is_session_at_rest(core, client, server),
        _ => false,
    }
}

/// A client that keeps its server between transactions.
fn is_session_at_rest(core: &Core, client: &client::Client, server: ConnId) -> bool {
    client.dedicated_request.is_none()
        && core.conns.find_server(server).is_some_and(|server| {
            server.protocol.boundary().is_some() && server.protocol.is_quiet() && !server.unsent
        })
}
