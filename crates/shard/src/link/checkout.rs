//! Checkout and release: a client gets a server, and the server is returned. Both happen here and nowhere else.
//!
//! Owns the one release point ([`ShardState::release`]): a server leaves its client only when nothing is owed, the last
//! ReadyForQuery said idle, no frame is half sent either way, nothing is unsent, no COPY runs and no cancel is on its
//! way. Everything else ends with the connection closed.

use settings::PoolMode;
use telemetry::Level;
use wire::encode;

use crate::client;
use crate::close_reason::CloseReason;
use crate::core::Core;
use crate::link::freed::Next;
use crate::local_pools::local_pool::LocalPool;
use crate::local_pools::table::PoolId;
use crate::server::{self, InternalQuery, UsedBy};
use crate::state::ShardState;
use crate::time::micros;
use crate::{Action, ConnId};

impl ShardState {
    /// A server for an idle client, ready to be talked to; None if it has to wait (it is queued, or its server is being
    /// prepared: `prepared` continues).
    #[inline]
    pub(crate) fn checkout(&mut self, conn: ConnId) -> Option<ConnId> {
        let now_us = self.core.now.mono_us;
        let client = self.core.conns.client_mut(conn)?;
        client.request_us = now_us;
        let (pool_id, used_last) = (client.pool?, client.server_used_last);
        let local_pool = self.core.local_pools.get_mut(pool_id)?;
        if local_pool.pool.queue.shared_len() == 0
            && let Some(idle) = local_pool.pool.checkout(used_last, now_us)
        {
            let server = ConnId(idle.server);
            if !self.core.needs_check(idle.since_us) {
                return self.link_or_prepare(conn, server);
            }
            self.core.enqueue(conn);
            self.core.check(server);
            return None;
        }
        if self.client_must_disconnect(conn) {
            return None;
        }
        self.core.enqueue(conn);
        if !self.try_export(conn) {
            self.serve_or_open(pool_id);
        }
        None
    }

    /// Links the two, or first makes the server like the client.
    #[inline]
    fn link_or_prepare(&mut self, client_conn: ConnId, server_conn: ConnId) -> Option<ConnId> {
        if self.core.config.global.server_shuffle && self.refuse_last_server(client_conn, server_conn) {
            return None;
        }
        let now_us = self.core.now.mono_us;
        let (client, server) = self.core.conns.linked(client_conn, server_conn)?;
        let has_moved = client.server_used_last.replace(server_conn.0) != Some(server_conn.0);
        if has_moved {
            server.protocol.forget_unnamed_of(client.id);
        }
        server.used_by = UsedBy::Client;
        server.unasked_bytes = 0;
        server.request_us = now_us;
        server.query_us = now_us;
        server.transaction_us = now_us;
        let is_alike = client.parameters.shared_with(&server.protocol.parameters);
        if !is_alike
            && let Some(position) =
                client.parameters.unrestorable(&server.protocol.parameters, &self.core.tracked)
        {
            self.refuse_to_link(client_conn, server_conn, position);
            return None;
        }
        let wait_us = now_us.saturating_sub(client.request_us);
        client.request_us = now_us;
        if let Some(local_pool) = self.core.local_pools.get_mut(server.pool) {
            local_pool.assigned(wait_us);
            local_pool.last_used_us = now_us;
            server.names_as_they_are = client.passes_names(&self.core.config, local_pool.pool.limits.mode);
        }
        if !is_alike {
            return self.core.link_unlike(client_conn, server_conn);
        }
        client.phase = client::Phase::Linked(server_conn);
        server.phase = server::Phase::Linked(client_conn);
        Some(server_conn)
    }

    /// The server has its client's parameters now.
    pub(crate) fn prepared(&mut self, server_conn: ConnId, client_conn: ConnId) {
        let now_us = self.core.now.mono_us;
        self.core.note_unreported(client_conn, server_conn);
        self.core.share_parameters(client_conn, server_conn);
        let Some((client, server)) = self.core.conns.linked(client_conn, server_conn) else { return };
        client.phase = client::Phase::Linked(server_conn);
        server.phase = server::Phase::Linked(client_conn);
        (client.request_us, server.query_us) = (now_us, now_us);
        let wants_nothing = client.request.held.is_empty();
        self.resume_client(client_conn);
        self.send_held(client_conn, server_conn);
        // After a reset its values are set again although it has not asked for more.
        if wants_nothing {
            self.release(server_conn);
        }
    }

    /// THE release point: if all conditions hold, the server leaves its client. Called whenever one of them may have become
    /// true: a reply is whole (`answer`), the client's message is (`forward_to_server`), output is sent
    /// (`send_buffer_empty`), the pool's mode has changed (`configure`).
    pub(crate) fn release(&mut self, server_conn: ConnId) {
        let now_us = self.core.now.mono_us;
        let Some(server) = self.core.conns.server_mut(server_conn) else { return };
        let server::Phase::Linked(client_conn) = server.phase else {
            return self.check_cancels_done(server_conn);
        };
        if !server.protocol.is_quiet() || server.unsent {
            return;
        }
        server.protocol.mark_quiet();
        if server.mode(&self.core.local_pools) == Some(PoolMode::Session) {
            return;
        }
        server.unlink();
        let paused = server.paused;
        if server.await_cancels(now_us) {
            self.freed.server(server_conn);
        }
        if paused {
            self.resume_server(server_conn);
        }
        let Some(client) = self.core.client(client_conn) else { return };
        client.phase = client::Phase::Idle;
        let (paused, holds) = (client.paused, !client.request.held.is_empty());
        if paused {
            self.resume_client(client_conn);
        }
        if holds {
            self.idle_client_received_held(client_conn);
        }
    }

    /// Takes a server from its client, whatever state it is in. The caller decides what becomes of it.
    pub(crate) fn unlink(&mut self, server_conn: ConnId) {
        let Some(server) = self.core.server(server_conn) else { return };
        server.unlink();
        self.resume_server(server_conn);
    }

    /// An unlinked server: wait for its cancels, else let it be used again.
    pub(crate) fn release_or_close(&mut self, server_conn: ConnId) {
        let now_us = self.core.now.mono_us;
        let Some(server) = self.core.server(server_conn).filter(|server| server.is_live()) else { return };
        if server.dedicated.is_some() {
            return self.end_dedicated(server_conn);
        }
        if !server.protocol.is_quiet() || server.unsent {
            return self.close_server(server_conn, CloseReason::Unclean);
        }
        if server.await_cancels(now_us) {
            self.freed.server(server_conn);
        }
    }

    /// A cancel request of an unlinked server has ended, or its half notice is whole.
    pub(crate) fn check_cancels_done(&mut self, server_conn: ConnId) {
        let Some(server) = self.core.server(server_conn) else { return };
        let awaiting_cancel = matches!(server.phase, server::Phase::AwaitingCancel);
        let settled = awaiting_cancel && server.cancels == 0 && server.protocol.is_quiet() && !server.unsent;
        if settled {
            self.freed.server_once(server_conn);
        }
    }

    /// Handles the servers that were released in this event, and the pools whose waiting client lost its server.
    pub(crate) fn process_released(&mut self) {
        while let Some(next) = self.freed.next() {
            match next {
                Next::Server(server_conn) => self.process_released_server(server_conn),
                Next::Pool(pool_id) => self.serve_or_open(pool_id),
            }
        }
    }

    /// A released server: reset it, close it, check it out for the next waiting client, or return it to the idle list.
    #[inline]
    fn process_released_server(&mut self, server_conn: ConnId) {
        let core = &self.core;
        let Some(server) = core.conns.server(server_conn) else { return };
        if !matches!(server.phase, server::Phase::AwaitingCancel) {
            return;
        }
        let Some(local_pool) = core.local_pools.get(server.pool) else { return };
        if let Some(reason) = core.reason_to_close_in(server, local_pool) {
            self.close_server(server_conn, reason);
        } else if core.needs_reset(local_pool) {
            // Only DISCARD ALL is known to leave nothing behind, and its command tag shows it.
            self.core.mark_unreported_unknown(server_conn, None);
            self.core.run_internal_query(server_conn, InternalQuery::Reset);
        } else {
            self.serve_next(server_conn);
        }
    }

    /// A check or a reset went well, or a login.
    pub(crate) fn internal_query_over(&mut self, server_conn: ConnId) {
        let now_us = self.core.now.mono_us;
        let Some(server) = self.core.server(server_conn).filter(|server| server.is_live()) else { return };
        if !server.protocol.is_quiet() || server.unsent {
            server.request_us = now_us;
            server.phase = server::Phase::AwaitingCancel; // Half a notice has come behind the answer.
            return;
        }
        match self.core.reason_to_close(server_conn) {
            Some(reason) => self.close_server(server_conn, reason),
            None => self.serve_next(server_conn),
        }
    }

    /// A server is free: the client that has waited longest gets it, or it becomes idle.
    #[inline(always)]
    pub(crate) fn serve_next(&mut self, server_conn: ConnId) {
        let now_us = self.core.now.mono_us;
        let Some(pool_id) = self.core.server(server_conn).map(|server| server.pool) else { return };
        let Some(local_pool) = self.core.local_pools.get(pool_id) else { return };
        if local_pool.pool.lacks_room(now_us) && self.goes_for_dedicated(server_conn) {
            return;
        }
        let Some(local_pool) = self.core.local_pools.get_mut(pool_id) else { return };
        local_pool.pool.end_check(server_conn.0);
        if local_pool.pool.paused || local_pool.pool.queue.shared_len() == 0 {
            self.core.return_idle(server_conn);
        } else {
            self.serve_oldest(pool_id, server_conn);
        }
        if !self.administration.pending().is_empty() {
            self.paused_progress();
        }
    }

    /// Checks idle servers out for waiting clients, as long as there are both: no client waits beside an idle server.
    /// Called whenever a server becomes idle, a client begins to wait or a pool is resumed, and at every tick.
    #[inline]
    pub(crate) fn serve_waiters(&mut self, pool_id: PoolId) {
        let now_us = self.core.now.mono_us;
        while let Some(local_pool) = self.core.local_pools.get_mut(pool_id)
            && let Some(idle) = local_pool.pool.checkout_for_waiter(now_us)
        {
            let server = ConnId(idle.server);
            if self.core.needs_check(idle.since_us) {
                self.core.check(server);
            } else {
                self.serve_oldest(pool_id, server);
            }
        }
    }

    /// Gives a server to the client that has waited longest; if none waits, it becomes idle.
    #[inline]
    fn serve_oldest(&mut self, pool_id: PoolId, server_conn: ConnId) {
        while let Some(local_pool) = self.core.local_pools.get_mut(pool_id)
            && let Some(waiter) = local_pool.pool.queue.serve()
        {
            let client_conn = ConnId(waiter.client);
            if self.core.conns.find_internal_client(client_conn).is_some() {
                return self.serve_internal_client(client_conn, server_conn);
            }
            match self.core.client(client_conn).map(|client| &client.phase) {
                Some(client::Phase::AwaitingGreeting(_)) => self.send_greeting(client_conn),
                Some(client::Phase::Waiting(_)) => {
                    return self.serve(client_conn, server_conn, waiter.since_us);
                }
                _ => {}
            }
        }
        self.core.return_idle(server_conn);
    }

    fn serve(&mut self, client_conn: ConnId, server_conn: ConnId, since_us: u64) {
        if let Some(client) = self.core.client(client_conn) {
            client.phase = client::Phase::Idle;
            client.request_us = since_us;
        }
        if let Some(server) = self.link_or_prepare(client_conn, server_conn) {
            self.resume_client(client_conn);
            self.send_held(client_conn, server);
        }
    }

    /// Disconnects a client without a message to it.
    pub(crate) fn disconnect_client(&mut self, conn: ConnId, reason: &str) {
        let Some(client) = self.core.client(conn) else { return };
        if matches!(client.phase, client::Phase::Closing) {
            return;
        }
        self.core.log_client_disconnect(conn, reason);
        self.dismiss_client(conn);
    }

    /// The client has disconnected. Before the end of a login that is not logged, as in PgBouncer: load balancers check
    /// this way, and drivers that find out that they need a password.
    pub(crate) fn client_disconnected(&mut self, conn: ConnId) {
        let Some(client) = self.core.client(conn) else { return };
        if client.is_settled() {
            return self.disconnect_client(conn, "client unexpected eof");
        }
        if !matches!(client.phase, client::Phase::Closing) && !self.core.outlives_its_client(conn) {
            self.core.log_client(conn, Level::Debug, "client unexpected eof before login");
            self.dismiss_client(conn);
        }
    }

    /// Ends it without a line in the log; what was written to it is sent first.
    pub(crate) fn dismiss_client(&mut self, conn: ConnId) {
        self.detach_from_server(conn);
        self.forget_client(conn);
        self.core.act(Action::Close { conn });
    }

    /// Releases or closes the server of a client that disconnects.
    fn detach_from_server(&mut self, conn: ConnId) {
        let Some(client) = self.core.client(conn) else { return };
        match client.phase {
            client::Phase::Linked(server) => {
                let at_boundary =
                    self.core.server(server).is_some_and(|server| server.protocol.boundary().is_some());
                self.unlink(server);
                if at_boundary {
                    self.release_or_close(server);
                } else {
                    self.close_server_that(false, server, CloseReason::ClientLeft);
                }
            }
            // It gets the parameters of a client that is gone; any known parameters will do, once the answer is in.
            client::Phase::Preparing(server) => {
                let Some(preparing) = self.core.conns.server_mut(server) else { return };
                match preparing.phase {
                    server::Phase::InternalQuery(InternalQuery::Restore(_)) => {
                        self.close_server(server, CloseReason::ClientLeft);
                    }
                    server::Phase::InternalQuery(_) => {
                        preparing.phase = server::Phase::InternalQuery(InternalQuery::Check)
                    }
                    _ => {} // It is being closed.
                }
            }
            client::Phase::Waiting(position) | client::Phase::AwaitingGreeting(position) => {
                let pool = client.pool;
                if let Some(local_pool) = self.core.local_pools.of_mut(pool) {
                    local_pool.pool.queue.leave(position);
                }
                self.dedicated_request_ended(conn);
            }
            _ => {}
        }
    }

    /// Sends a client the reason (FATAL) and closes it.
    pub(crate) fn fail_client(&mut self, conn: ConnId, sqlstate: &str, text: &str) {
        self.fail_client_because(conn, sqlstate, text, text);
    }

    /// The same where the log gives another reason for the end than the client gets.
    pub(crate) fn fail_client_because(&mut self, conn: ConnId, sqlstate: &str, text: &str, reason: &str) {
        let Some(client) = self.core.client(conn) else { return };
        if matches!(client.phase, client::Phase::Closing) {
            return;
        }
        let server = client.server();
        self.count_error(conn, sqlstate);
        // The lines are written before the error is sent: a script that has read the error finds them.
        self.core.log_client_disconnect(conn, reason);
        if self.core.config.global.log_pooler_errors {
            self.core.log_client(conn, Level::Warning, &format!("pooler error: {text}"));
        }
        // No error can be sent in the middle of a server's message.
        let is_mid_reply = server
            .and_then(|server| self.core.server(server))
            .is_some_and(|server| server.protocol.is_mid_reply());
        if !is_mid_reply {
            self.core.outbox.write(conn, |out| encode::error(out, "FATAL", sqlstate, text));
        }
        self.dismiss_client(conn);
    }
}

impl Core {
    /// The client waits for a server: it is not read any further.
    pub(crate) fn enqueue(&mut self, conn: ConnId) {
        let now_us = self.now.mono_us;
        let Some(client) = self.conns.client_mut(conn) else { return };
        let Some(local_pool) = self.local_pools.of_mut(client.pool) else { return };
        client.phase = client::Phase::Waiting(local_pool.pool.queue.join(conn.0, now_us));
        client.wait_noted = false;
        client.request_us = now_us;
        self.pause_client(conn);
    }

    /// Makes a server like its client, which waits for that.
    pub(crate) fn prepare(
        &mut self,
        client_conn: ConnId,
        server_conn: ConnId,
        internal_query: InternalQuery,
        sets: &str,
    ) {
        let now_us = self.now.mono_us;
        let Some((client, server)) = self.conns.linked(client_conn, server_conn) else { return };
        client.phase = client::Phase::Preparing(server_conn);
        server.phase = server::Phase::InternalQuery(internal_query);
        server.query_us = now_us;
        let (protocol, wanted) = (&mut server.protocol, client.parameters.clone());
        if let Some(at) = protocol.boundary() {
            self.outbox.write(server_conn, |out| protocol.send_internal_query(at, out, sets));
        }
        // The client may be gone when the answer comes, and the answer may be no.
        self.mark_unreported_unknown(server_conn, Some(&wanted));
        self.log_server(server_conn, Level::Noise, &format!("varcache_apply: {sets}"));
        self.pause_client(client_conn);
    }

    /// Session mode (and `server_reset_query_always`) reset a server before another client gets it.
    #[inline(always)]
    fn needs_reset(&self, local_pool: &LocalPool) -> bool {
        let global = &self.config.global;
        global.server_reset_query.is_some()
            && (local_pool.pool.limits.mode == PoolMode::Session || global.server_reset_query_always)
    }

    #[inline(always)]
    fn return_idle(&mut self, server_conn: ConnId) {
        let now_us = self.now.mono_us;
        let Some(server) = self.conns.server_mut(server_conn) else { return };
        let Some(local_pool) = self.local_pools.get_mut(server.pool) else { return };
        server.phase = server::Phase::Idle;
        local_pool.pool.return_idle(server_conn.0, now_us);
    }

    /// Idle so long that it is checked before use (`server_check_delay`).
    pub(crate) fn needs_check(&self, idle_since_us: u64) -> bool {
        let global = &self.config.global;
        let delay_us = micros(global.server_check_delay);
        global.server_check_query.is_some() && self.now.mono_us.saturating_sub(idle_since_us) > delay_us
    }

    fn check(&mut self, server_conn: ConnId) {
        let now_us = self.now.mono_us;
        let local_pool = self.server(server_conn).map(|server| server.pool);
        if let Some(local_pool) = local_pool.and_then(|local_pool| self.local_pools.get_mut(local_pool)) {
            local_pool.pool.begin_check(server_conn.0, now_us);
        }
        self.run_internal_query(server_conn, InternalQuery::Check);
    }

    /// Has a server run a query of Weir's own.
    fn run_internal_query(&mut self, server_conn: ConnId, internal_query: InternalQuery) {
        let global = &self.config.global;
        let sql = match internal_query {
            InternalQuery::Check => global.server_check_query.clone(),
            InternalQuery::Reset => global.server_reset_query.clone(),
            InternalQuery::Apply(_)
            | InternalQuery::Restore(_)
            | InternalQuery::Freshen(_)
            | InternalQuery::ConnectQuery(_)
            | InternalQuery::Ask(_) => None,
        };
        let now_us = self.now.mono_us;
        let Some(server) = self.conns.server_mut(server_conn) else { return };
        server.phase = server::Phase::InternalQuery(internal_query);
        server.query_us = now_us;
        let protocol = &mut server.protocol;
        if let Some(at) = protocol.boundary() {
            self.outbox
                .write(server_conn, |out| protocol.send_internal_query(at, out, &sql.unwrap_or_default()));
        }
    }

    pub(crate) fn log_client_disconnect(&mut self, conn: ConnId, reason: &str) {
        let Some(since_us) = self.client(conn).map(|client| client.since_us) else { return };
        if self.config.global.log_disconnections {
            let age = self.age_s(since_us);
            self.log_client(conn, Level::Log, &format!("closing because: {reason} (age={age}s)"));
        }
    }
}
