//! Servers that clients get at login (`assign_server_at_login`): each waits for one before its greeting.
//!
//! Owns what such a client is told: what its own server reports, and the process id of that server. Which server it gets, and
//! how the two become alike, is `checkout`'s.

use session::Parameters;
use wire::sqlstate;

use crate::client::Phase;
use crate::core::Core;
use crate::link::{backpressure, cancel_keys, checkout, client_end, greet, relay};
use crate::local_pools::table::PoolId;
use crate::{ConnId, server};

/// Clients of this pool get their servers at login.
pub(crate) fn is_on(core: &Core, pool: PoolId) -> bool {
    core.local_pools.get(pool).is_some_and(|local_pool| local_pool.pool.limits.assigns_at_login)
}

/// A client that logs in and has waited since then gets this server, which is made like it first.
pub(crate) fn assign(core: &mut Core, client_conn: ConnId, server_conn: ConnId, since_us: u64) {
    let Some((client, server)) = core.conns.linked(client_conn, server_conn) else { return };
    let Some(local_pool) = core.local_pools.get(server.pool) else { return };
    client.parameters = local_pool.default_params.overlaid_by(&client.parameters);
    client.greeting_due = true;
    client.phase = Phase::Idle;
    client.request_us = since_us;
    if checkout::link_at_login(core, client_conn, server_conn) && greet(core, client_conn, server_conn) {
        relay::send_held(core, client_conn, server_conn);
    }
}

/// The client waits for another server than it was to get: if that was to be at its login, it waits as it did before.
pub(crate) fn await_greeting(core: &mut Core, conn: ConnId) {
    let Some(client) = core.conns.client_mut(conn).filter(|client| client.greeting_due) else { return };
    let Phase::Waiting(position) = client.phase else { return };
    client.greeting_due = false;
    client.phase = Phase::AwaitingGreeting(position);
    // The defaults of the server that it does not get are not what it has asked for.
    client.parameters = client.startup.clone().unwrap_or_else(|| Parameters::unknown(&core.tracked));
    backpressure::resume_client(core, conn);
}

/// The client has its server, which has its parameters: sends the greeting. False: the client has failed.
#[cold]
pub(crate) fn greet(core: &mut Core, client_conn: ConnId, server_conn: ConnId) -> bool {
    let Some((client, server)) = core.conns.linked(client_conn, server_conn) else { return false };
    client.greeting_due = false;
    let local_pool = core.local_pools.get(server.pool);
    let of_pool = || local_pool?.server_greeting.as_ref().map(|server_greeting| &server_greeting.info);
    let info = server.info.as_deref().or_else(of_pool).cloned();
    let pool_id = server.pool;
    let Some(info) = info else {
        // The entry was changed while the server was made like its client.
        let text = "database configuration changed";
        client_end::fail_client(core, client_conn, sqlstate::ADMIN_SHUTDOWN, text);
        return false;
    };
    // The pool's mode may have changed meanwhile: then the client will not keep this server.
    if is_on(core, pool_id) {
        cancel_keys::take_process_id(core, client_conn, server_conn);
    }
    greet::send_own_greeting(core, client_conn, &info);
    true
}

impl server::Server {
    /// What it reported at login is kept for clients that get it at theirs.
    pub(crate) fn keep_info(&mut self, info: &session::ServerInfo) {
        self.info = Some(Box::new(info.clone()));
    }
}
