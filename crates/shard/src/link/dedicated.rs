//! Dedicated servers: a replicating client gets a connection that is opened with its own startup parameters, keeps it
//! until it disconnects, and no other client uses it afterwards.
//!
//! Owns how such a connection is bound to its client. Limits are the pool's, and the bytes between the two are the relay's.

use pool::OpenFor;
use session::{Parameters, ServerInfo, ServerProtocol};
use telemetry::Level;

use crate::close_reason::CloseReason;
use crate::core::Core;
use crate::link::{cancel_keys, client_end, greet, login_server, opening, relay, server_end};
use crate::server::Dedicated;
use crate::{ConnId, client, server};

/// Its login is over: it meets its client.
pub(crate) fn dedicated_ready(core: &mut Core, conn: ConnId, info: &ServerInfo, behind: &[u8]) {
    let now_us = core.now.mono_us;
    let parameters = info.tracked(&core.tracked, Parameters::unknown(&core.tracked));
    let Some(server) = core.conns.server_mut(conn) else { return };
    let Some(local_pool) = core.local_pools.get_mut(server.pool) else { return };
    let Some(Dedicated { client: client_conn, .. }) = server.dedicated else { return };
    local_pool.pool.logged_in(OpenFor::Dedicated, true, now_us);
    server.key.clone_from(&info.key);
    server.protocol = ServerProtocol::new(parameters.clone()).with_catalog(local_pool.catalog());
    server.phase = server::Phase::AwaitingCancel;
    let reason = server.close_when_free.reason().or(local_pool.pool.paused.then_some(CloseReason::Paused));
    core.log_server(conn, Level::Debug, "login ok, dedicated to a replication client");
    opening::unbind(core, conn);
    if let Some(reason) = reason {
        return server_end::close_server(core, conn, reason); // Its client waits on, for another.
    }
    let Some((client, server)) = core.conns.linked(client_conn, conn) else { return };
    let client::Phase::AwaitingGreeting(position) = client.phase else { return };
    client.parameters = parameters;
    client.phase = client::Phase::Linked(conn);
    server.phase = server::Phase::Linked(client_conn);
    server.used_by = server::UsedBy::Client;
    server.names_as_they_are = true;
    let wait_us = now_us.saturating_sub(client.request_us);
    client.request_us = now_us;
    (server.request_us, server.query_us, server.transaction_us) = (now_us, now_us, now_us);
    let pool_id = server.pool;
    if let Some(local_pool) = core.local_pools.get_mut(pool_id) {
        local_pool.pool.queue.leave(position);
        local_pool.assigned(wait_us);
        local_pool.last_used_us = now_us;
    }
    if login_server::is_on(core, pool_id) {
        cancel_keys::take_process_id(core, client_conn, conn);
    }
    greet::send_own_greeting(core, client_conn, info);
    if !behind.is_empty() {
        relay::answer(core, conn, Some(client_conn), behind, &[]);
    }
    relay::send_held(core, client_conn, conn);
    opening::serve_or_open(core, pool_id);
}

/// The server refused this one client: it alone gets the error. False if the connection was for any client.
pub(crate) fn dedicated_refused(core: &mut Core, conn: ConnId, code: &str, text: &str) -> bool {
    let Some(Dedicated { client, .. }) = core.server(conn).and_then(|server| server.dedicated) else {
        return false;
    };
    opening::withdraw(core, conn, CloseReason::LoginFailed);
    client_end::fail_client_because(core, client, code, text, "login failed");
    true
}

/// The startup parameters beside the entry's own.
pub(crate) fn dedicated_parameters(core: &mut Core, conn: ConnId) -> Vec<(String, String)> {
    let dedicated = core.server(conn).and_then(|server| server.dedicated);
    let Some(Dedicated { client, .. }) = dedicated else { return Vec::new() };
    let Some(client) = core.client(client) else { return Vec::new() };
    let Some(dedicated_request) = &client.dedicated_request else { return Vec::new() };
    let (mut own, parameters) = (dedicated_request.replication.passed.clone(), client.parameters.clone());
    own.push(("replication".to_owned(), dedicated_request.kind().value().to_owned()));
    // A WAL sender takes no SET, so that tracked parameters are set here.
    for position in 0..core.tracked.count() {
        if let Some(value) = parameters.text(position) {
            own.push((core.tracked.name(position).to_owned(), value.to_owned()));
        }
    }
    own
}
