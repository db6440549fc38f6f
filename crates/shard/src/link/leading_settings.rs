//! A client's settings in front of its request, in the same write (`session_state = virtual`).
//!
//! Owns for which clients that is done. For others the server is made like the client first (`checkout::prepare`): they wait for a round
//! trip.

use session::Parameters;
use telemetry::Level;

use crate::client::Client;
use crate::core::Core;
use crate::link::{internal_query, parameters, sequences};
use crate::server::Server;
use crate::{ConnId, client, server};

/// More is sent by itself: each statement takes three messages.
const MAX_STATEMENTS: usize = 32;

/// The server can have these settings with the client's next request. By its first request the client is told how the server spells its
/// values, and what it has prepared by SQL is prepared behind its settings.
///
/// A client that may get another server for its request is not sent anything before that is known.
pub(crate) fn may_lead(core: &Core, client_conn: ConnId, server_conn: ConnId, sets: &str) -> bool {
    let pair = core.conns.find_client(client_conn).zip(core.conns.find_server(server_conn));
    pair.is_some_and(|(client, server)| are_alike_enough(client, server, sets))
        && !sequences::has_idle_server(core, client_conn)
}

fn are_alike_enough(client: &Client, server: &Server, sets: &str) -> bool {
    let is_text = |position: usize| {
        client.parameters.text(position).is_some() && server.protocol.parameters.text(position).is_some()
    };
    server.protocol.follows_session()
        && client.is_spelled
        && client.routed.may_be_led()
        && client.parameters.differing(&server.protocol.parameters).all(is_text)
        && client.parameters.prepared() == server.protocol.parameters.prepared()
        && Parameters::statements(sets).nth(MAX_STATEMENTS).is_none()
}

/// Links the two, and sends the settings; the client's request follows.
pub(crate) fn link(core: &mut Core, client_conn: ConnId, server_conn: ConnId, sets: &str) -> Option<ConnId> {
    let (client, server) = core.conns.linked(client_conn, server_conn)?;
    let local_pool = core.local_pools.get(server.pool)?;
    let at = server.protocol.boundary()?;
    let protocol = &mut server.protocol;
    protocol.prepared_as_wanted();
    let known = (&core.tracked, &local_pool.default_params);
    core.outbox.write(server_conn, |out| {
        protocol.send_leading_settings(at, out, Parameters::statements(sets), &client.parameters, known);
    });
    client.phase = client::Phase::Linked(server_conn);
    server.phase = server::Phase::Linked(client_conn);
    core.log_server(server_conn, Level::Noise, &format!("varcache_apply: {sets}"));
    parameters::share_parameters(core, client_conn, server_conn);
    Some(server_conn)
}

/// The server has refused one of them, and skips the request: the client gets the server's error.
#[cold]
pub(crate) fn refused(core: &mut Core, server_conn: ConnId, client_conn: ConnId) {
    let error = core.server(server_conn).and_then(|server| server.internal_error.take());
    internal_query::refused_parameters(core, server_conn, client_conn, &error.unwrap_or_default());
}
