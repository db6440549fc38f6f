//! Dedicated servers: a replicating client gets a connection that is opened with its own startup parameters, keeps it
//! until it disconnects, and no other client uses it afterwards.
//!
//! Owns when such a connection is bound to its client and how it ends. Limits are the pool's, and the bytes between the
//! two are the relay's.

use pool::OpenFor;
use session::{Parameters, ServerInfo, ServerProtocol};
use telemetry::Level;

use crate::ConnId;
use crate::client;
use crate::close_reason::CloseReason;
use crate::connections::Conn;
use crate::core::Core;
use crate::local_pools::table::PoolId;
use crate::server;
use crate::server::Dedicated;
use crate::state::ShardState;

impl ShardState {
    /// Its login is over: it meets its client.
    pub(crate) fn dedicated_ready(&mut self, conn: ConnId, info: &ServerInfo, behind: &[u8]) {
        let now_us = self.core.now.mono_us;
        let parameters = info.tracked(&self.core.tracked, Parameters::unknown(&self.core.tracked));
        let Some(server) = self.core.conns.server_mut(conn) else { return };
        let Some(local_pool) = self.core.local_pools.get_mut(server.pool) else { return };
        let Some(Dedicated { client: client_conn, .. }) = server.dedicated else { return };
        local_pool.pool.logged_in(OpenFor::Dedicated, true, now_us);
        server.key.clone_from(&info.key);
        server.protocol = ServerProtocol::new(parameters.clone()).with_catalog(local_pool.catalog());
        server.phase = server::Phase::AwaitingCancel;
        let reason = server.close_when_free.or(local_pool.pool.paused.then_some(CloseReason::Paused));
        self.core.log_server(conn, Level::Debug, "login ok, dedicated to a replication client");
        self.core.unbind(conn);
        if let Some(reason) = reason {
            return self.close_server(conn, reason); // Its client waits on, for another.
        }
        let Some((client, server)) = self.core.conns.linked(client_conn, conn) else { return };
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
        if let Some(local_pool) = self.core.local_pools.get_mut(pool_id) {
            local_pool.pool.queue.leave(position);
            local_pool.assigned(wait_us);
            local_pool.last_used_us = now_us;
        }
        self.core.send_own_greeting(client_conn, info);
        if !behind.is_empty() {
            self.answer(conn, Some(client_conn), behind, &[]);
        }
        self.send_held(client_conn, conn);
        self.serve_or_open(pool_id);
    }

    /// The server refused this one client: it alone gets the error. False if the connection was for any client.
    pub(crate) fn dedicated_refused(&mut self, conn: ConnId, code: &str, text: &str) -> bool {
        let Some(Dedicated { client, .. }) = self.core.server(conn).and_then(|server| server.dedicated)
        else {
            return false;
        };
        self.withdraw(conn, CloseReason::LoginFailed);
        self.fail_client_because(client, code, text, "login failed");
        true
    }

    /// Its client has disconnected, between two messages: a server that streams reads Terminate between them, too.
    pub(crate) fn end_dedicated(&mut self, conn: ConnId) {
        let Some(server) = self.core.server(conn) else { return };
        let listens = server.protocol.status().is_some() || server.protocol.is_copy_both();
        self.close_server_that(listens, conn, CloseReason::ReplicationClientClosed);
    }

    /// The login ends without effect on the backoff of the next one.
    fn withdraw(&mut self, conn: ConnId, reason: CloseReason<'_>) {
        let Some(server) = self.core.conns.server_mut(conn) else { return };
        if let Some(local_pool) = self.core.local_pools.get_mut(server.pool) {
            local_pool.pool.login_withdrawn(OpenFor::Dedicated);
        }
        let listens = matches!(server.phase, server::Phase::Login(_));
        server.phase = server::Phase::AwaitingCancel;
        self.core.unbind(conn);
        self.close_server_that(listens, conn, reason);
    }

    /// A client that waited for its server disconnects: the server is closed in any phase.
    pub(crate) fn dedicated_request_ended(&mut self, conn: ConnId) {
        let server = self
            .core
            .client(conn)
            .and_then(|client| client.dedicated_request.as_mut())
            .and_then(|dedicated_request| dedicated_request.server);
        let Some(server) = server else { return };
        self.withdraw(server, CloseReason::ReplicationClientLeft);
    }

    /// The pool is full and the client that has waited longest needs a dedicated server: the server that has been idle
    /// longest is closed. True if one is closed, or is closing already.
    pub(crate) fn make_room(&mut self, pool_id: PoolId) -> bool {
        let Some(local_pool) =
            self.core.local_pools.get(pool_id).filter(|local_pool| local_pool.pool.next_is_dedicated())
        else {
            return false;
        };
        if self.core.room_is_coming(pool_id) {
            return true;
        }
        let Some(idle) = local_pool.pool.idle().first().map(|idle| ConnId(idle.server)) else { return false };
        self.close_server(idle, CloseReason::Evicted);
        true
    }

    /// A server that just became free is in the way of one that is wanted: it is closed, true.
    pub(crate) fn goes_for_dedicated(&mut self, conn: ConnId) -> bool {
        let now_us = self.core.now.mono_us;
        let Some(pool_id) = self.core.server(conn).map(|server| server.pool) else { return false };
        let lacking =
            self.core.local_pools.get(pool_id).is_some_and(|local_pool| local_pool.pool.lacks_room(now_us));
        if !lacking || self.core.room_is_coming(pool_id) {
            return false;
        }
        self.close_server(conn, CloseReason::Evicted);
        true
    }
}

impl Core {
    /// A connection is being opened for the client that has waited longest for one of its own.
    pub(crate) fn dedicate(&mut self, conn: ConnId) {
        let Some(local_pool) = self.server(conn).map(|server| server.pool) else { return };
        let Some(local_pool) = self.local_pools.get(local_pool) else { return };
        let Some(waiter) = local_pool.pool.queue.front_dedicated() else { return };
        let Some((client, server)) = self.conns.linked(ConnId(waiter.client), conn) else { return };
        let Some(dedicated_request) = client.dedicated_request.as_mut() else { return };
        dedicated_request.server = Some(conn);
        server.dedicated = Some(Dedicated { kind: dedicated_request.kind(), client: ConnId(waiter.client) });
    }

    /// The startup parameters beside the entry's own.
    pub(crate) fn dedicated_parameters(&mut self, conn: ConnId) -> Vec<(String, String)> {
        let dedicated = self.server(conn).and_then(|server| server.dedicated);
        let Some(Dedicated { client, .. }) = dedicated else { return Vec::new() };
        let Some(client) = self.client(client) else { return Vec::new() };
        let Some(dedicated_request) = &client.dedicated_request else { return Vec::new() };
        let (mut own, parameters) = (dedicated_request.replication.passed.clone(), client.parameters.clone());
        own.push(("replication".to_owned(), dedicated_request.kind().value().to_owned()));
        // A WAL sender takes no SET, so that tracked parameters are set here.
        for position in 0..self.tracked.count() {
            if let Some(value) = parameters.text(position) {
                own.push((self.tracked.name(position).to_owned(), value.to_owned()));
            }
        }
        own
    }

    /// The connection is not the one that its client waits for any more.
    pub(crate) fn unbind(&mut self, conn: ConnId) {
        let Some(Dedicated { client, .. }) = self.server(conn).and_then(|server| server.dedicated) else {
            return;
        };
        if let Some(dedicated_request) =
            self.client(client).and_then(|client| client.dedicated_request.as_mut())
        {
            dedicated_request.server = None;
        }
    }

    /// A server of the pool is being closed: its permit is free soon.
    fn room_is_coming(&self, pool_id: PoolId) -> bool {
        self.conns.iter().any(|(_, conn)| {
            matches!(conn, Conn::Server(server) if server.pool == pool_id
                && matches!(server.phase, server::Phase::Leaving { .. } | server::Phase::Closing))
        })
    }
}
