//! `server_shuffle`, a testing aid: no client gets the server connection that it used last.
//!
//! Owns the refusal of such a server, which is closed so that the client gets another one even in a pool of one. Not on the
//! path of a query unless the setting is on.

use crate::ConnId;
use crate::close_reason::CloseReason;
use crate::core::Core;
use crate::link::{checkout, opening, server_end};

/// Closes the server and queues the client for another one if the client used this one last.
#[cold]
pub(crate) fn refuse_last_server(
    core: &mut Core,
    client_conn: ConnId,
    server_conn: ConnId,
    request: &[u8],
) -> bool {
    let Some((client, server)) = core.conns.linked(client_conn, server_conn) else { return false };
    if client.sequences_at == server.id && server.protocol.has_sequences_of(client.id) {
        let request = if request.is_empty() { &client.request.held } else { request };
        let names = client.request.statements.as_deref();
        if session::asks_for_sequence_values(request, names, &core.registry) {
            return false; // Only this one has them.
        }
    }
    // Taken, not read: a later server may get the number of the one that is closed here.
    if client.server_used_last.take() != Some(server_conn.0) {
        return false;
    }
    let pool = client.served_by();
    server_end::close_server(core, server_conn, CloseReason::Shuffled);
    checkout::enqueue(core, client_conn, core.now.mono_us);
    if let Some(pool_id) = pool {
        opening::serve_or_open(core, pool_id);
    }
    true
}
