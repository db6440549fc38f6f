//! What a client has prepared by SQL, on the server that it gets (`session_state = virtual`): the server has it under the client's names, and
//! nothing of other clients.
//!
//! Owns when it is sent. What is sent, and which statements can follow their client, is `session`'s.

use crate::core::Core;
use crate::link::{backpressure, checkout};
use crate::server::InternalQuery;
use crate::{ConnId, client, server};

/// Prepares the client's statements on its server; false if the server has them. `prepared` continues.
pub(crate) fn prepare(core: &mut Core, client_conn: ConnId, server_conn: ConnId) -> bool {
    let now_us = core.now.mono_us;
    let Some((client, server)) = core.conns.linked(client_conn, server_conn) else { return false };
    let (wanted, protocol) = (client.parameters.prepared(), &mut server.protocol);
    if wanted == protocol.parameters.prepared() {
        protocol.prepared_as_wanted();
        return false;
    }
    let (wanted, mut is_sent) = (wanted.clone(), false);
    if let Some(at) = protocol.boundary() {
        core.outbox.write(server_conn, |out| is_sent = protocol.send_prepared(at, out, &wanted));
    }
    if is_sent {
        client.phase = client::Phase::Preparing(server_conn);
        server.phase = server::Phase::InternalQuery(InternalQuery::Statements(client_conn));
        server.query_us = now_us;
        server.protocol.collect_notifications(true);
        backpressure::pause_client(core, client_conn);
    }
    is_sent
}

/// PostgreSQL has answered all of them.
pub(crate) fn prepare_ended(core: &mut Core, server_conn: ConnId, client_conn: ConnId) {
    if let Some(server) = core.server(server_conn) {
        server.protocol.preparing_ended();
    }
    checkout::prepared(core, server_conn, client_conn);
}
