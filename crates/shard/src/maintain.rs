//! Timeouts and maintenance: three times a second, and only while there is something to check.
//!
//! Owns every timeout. A timeout of 0 is off; one fires between its time and a third of a second later.

use telemetry::Level;
use wire::{encode, sqlstate};

use crate::close_reason::CloseReason;
use crate::connections::Conn;
use crate::core::Core;
use crate::deferred_begin::DeferredBegin;
use crate::link::{
    checkout, client_end, fleet, identity, internal_query, listener, opening, overload, pins, quotas,
    sequences, server_end, shares,
};
use crate::local_pools::table::PoolId;
use crate::pools::{auto_size, standbys, unused};
use crate::server::{IdentityCheck, InternalQuery, Server};
use crate::state::ShardState;
use crate::time::{micros, passed};
use crate::transfer::export;
use crate::{ConnId, cancel, client, draining, pending, server, servers, suspension};

/// What clients get that have waited for `failover_timeout`.
const NO_HOST: &str = "no host of this database is what its connections go to (failover_timeout)";

/// What a client gets whose server was left behind and is silent.
const LOST: &str = "the server was left behind and does not answer";

/// Between two looks.
const TICK_US: u64 = 333_000;

impl ShardState {
    /// When the next look is due.
    pub(crate) fn deadline(&self) -> Option<u64> {
        self.next_tick_us
    }

    /// Arms the tick if there is anything to watch.
    pub(crate) fn arm_tick(&mut self) {
        if self.next_tick_us.is_none() && (!self.core.conns.is_empty() || !self.core.local_pools.is_empty()) {
            self.next_tick_us = Some(self.core.now.mono_us + TICK_US);
        }
    }

    /// Looks at everything that has a time, if it is time.
    pub(crate) fn tick(&mut self) {
        if self.next_tick_us.is_some_and(|due| self.core.now.mono_us < due) {
            return;
        }
        self.next_tick_us = None;
        if let Some((place, count)) = self.core.conns.take_missing() {
            let text = format!("internal error: connection missing at {place} ({count} since start)");
            self.core.log(Level::Error, text);
        }
        if self.core.administration.is_suspended() {
            suspension::check_suspend_deadline(&mut self.core);
            return pending::paused_progress(&mut self.core);
        }
        self.check_connections();
        self.check_waiters();
        draining::end_all_at_rest(&mut self.core);
        shares::look(&mut self.core);
        let local_pools = self.core.local_pools.ids();
        for local_pool in local_pools {
            self.check_pool(local_pool);
        }
        unused::forget_retired(&mut self.core);
        self.core.local_pools.forget_unused_clusters();
        pending::paused_progress(&mut self.core);
        if self.core.exporting.is_some() {
            export::export_all(&mut self.core);
        }
    }

    /// Connections in states that end by themselves. Idle clients are only looked at if they have a timeout.
    fn check_connections(&mut self) {
        let watched = self.core.conns.ids(|conn| match conn {
            Conn::Client(client) => match client.phase {
                client::Phase::Idle => client.deferred_begin.is_some(),
                _ => !matches!(client.phase, client::Phase::Closing),
            },
            Conn::Server(server) => !matches!(server.phase, server::Phase::Closing),
            Conn::Cancel(_) | Conn::PeerCancel(_) => true,
            Conn::InternalClient(_) | Conn::Reserved => false,
        });
        for conn in watched {
            match self.core.conns.get(conn) {
                Some(Conn::Client(_)) => self.check_client(conn),
                Some(Conn::Server(_)) => {
                    servers::check_server_deadline(&mut self.core, conn);
                    self.count_stuck(conn);
                    self.check_server(conn);
                }
                Some(Conn::Cancel(_)) => cancel::check_cancel_conn_deadline(&mut self.core, conn),
                Some(Conn::PeerCancel(_)) => {
                    self.cancels.check_peer_cancel_conn_deadline(&mut self.core, conn)
                }
                _ => {}
            }
        }
        self.check_idle_clients();
        self.logins.trim_unauthenticated(&mut self.core);
    }

    fn check_client(&mut self, conn: ConnId) {
        let now_us = self.core.now.mono_us;
        let login_timeout_us = micros(self.core.config.global.client_login_timeout);
        let Some(client) = self.core.conns.client(conn) else { return };
        if let (client::Phase::Idle, Some(begin)) = (&client.phase, client.deferred_begin) {
            return self.check_deferred_begin(conn, begin);
        }
        let server_greeting = self.core.local_pools.of(client.pool).is_some_and(|local_pool| {
            local_pool.server_greeting.is_some() || local_pool.pool.open() > local_pool.pool.logging_in()
        });
        let text = match client.phase {
            client::Phase::Startup { .. } | client::Phase::Handshake { .. } | client::Phase::Login(_) => {
                "client_login_timeout"
            }
            // Not its fault: no server has ever let Weir in.
            client::Phase::AwaitingGreeting(_) if !server_greeting => "client_login_timeout (server down)",
            _ => return,
        };
        if passed(now_us, client.since_us, login_timeout_us) {
            return client_end::fail_client(&mut self.core, conn, sqlstate::PROTOCOL_VIOLATION, text);
        }
        self.logins.check_held_answer(&mut self.core, conn);
    }

    /// A transaction of which no server knows is idle since its BEGIN.
    fn check_deferred_begin(&mut self, conn: ConnId, begin: DeferredBegin) {
        let Some(client) = self.core.conns.client(conn) else { return };
        let Some(local_pool) = self.core.local_pools.of(client.pool) else { return };
        let user = self.core.config.user(&local_pool.user).map(|user| &**user);
        let is_over = |limit| passed(self.core.now.mono_us, begin.since_us, micros(limit));
        let reason = if is_over(self.core.config.idle_transaction_timeout(user)) {
            CloseReason::IdleTransactionTimeout
        } else if is_over(self.core.config.transaction_timeout(user)) {
            CloseReason::TransactionTimeout
        } else {
            return;
        };
        client_end::fail_client(&mut self.core, conn, sqlstate::ADMIN_SHUTDOWN, &reason.to_string());
    }

    fn check_idle_clients(&mut self) {
        let global = &self.core.config.global;
        let any_user = self.core.config.users.values().any(|user| user.client_idle_timeout.is_some());
        if global.client_idle_timeout.is_zero() && !any_user {
            return;
        }
        let idle = self.core.conns.ids(|conn| matches!(conn, Conn::Client(client) if matches!(client.phase, client::Phase::Idle | client::Phase::PinRefused(_) | client::Phase::Linked(_))));
        for conn in idle {
            let Some(client) = self.core.conns.client(conn) else { continue };
            let Some(local_pool) = self.core.local_pools.of(client.pool) else { continue };
            let limit_us = micros(
                self.core
                    .config
                    .client_idle_timeout(self.core.config.user(&local_pool.user).map(|user| &**user)),
            );
            let idle = match client.phase {
                client::Phase::Linked(server) => has_answered(&self.core, server),
                _ => true,
            };
            if idle && passed(self.core.now.mono_us, client.request_us, limit_us) {
                client_end::fail_client(
                    &mut self.core,
                    conn,
                    sqlstate::ADMIN_SHUTDOWN,
                    "client_idle_timeout",
                );
            }
        }
    }

    /// It could not be found out what the session of an idle client holds: it is tried again, so that the client does not keep its server. The same of what the
    /// server is.
    fn ask_session_again(&mut self, conn: ConnId) {
        let Some(server) = self.core.server(conn) else { return };
        if server.identity_check == IdentityCheck::Failed {
            identity::require(server);
        }
        let is_to_be_asked = server.protocol.session_is_to_be_asked() || identity::is_due(server);
        if is_to_be_asked && server.protocol.is_quiet() {
            checkout::release(&mut self.core, conn);
        }
    }

    #[cold]
    fn turn_goes_on(&mut self, conn: ConnId) {
        let now_us = self.core.now.mono_us;
        if let Some(turn) = self.core.conns.server_mut(conn).and_then(|server| server.turn.as_mut()) {
            turn.goes_on(now_us);
        }
    }

    /// A transaction may go on for so long that figures of its pool say nothing of the pool's size.
    fn count_stuck(&mut self, conn: ConnId) {
        let now_us = self.core.now.mono_us;
        let Some(server) = self.core.conns.server(conn) else { return };
        if !matches!(server.phase, server::Phase::Linked(_)) || server.protocol.is_quiet() {
            return;
        }
        let time_us = now_us.saturating_sub(server.transaction_us);
        if let Some(local_pool) = self.core.local_pools.get_mut(server.pool)
            && local_pool.pool.limits.pool_size.is_auto()
            && local_pool.sizing.is_long(time_us)
        {
            local_pool.sizing.stuck += 1;
        }
    }

    /// A server that serves, or should have answered by now.
    fn check_server(&mut self, conn: ConnId) {
        let now_us = self.core.now.mono_us;
        look_at_linked(&mut self.core, conn);
        let Some(server) = self.core.conns.server(conn) else { return };
        if server.turn.is_some() {
            self.turn_goes_on(conn);
        } else if matches!(server.phase, server::Phase::InternalQuery(_)) || is_left_behind(server) {
            overload::excuse_waits(&mut self.core, conn);
        }
        let Some(server) = self.core.conns.server(conn) else { return };
        let Some(local_pool) = self.core.local_pools.get(server.pool) else { return };
        let user = self.core.config.user(&local_pool.user).map(|user| &**user);
        let (query_us, transaction_us) = (server.query_us, server.transaction_us);
        match server.phase {
            server::Phase::Linked(client) => {
                // A request runs from its first byte on, also while its client owes the rest of it.
                let busy = server.protocol.is_busy() || is_sending(&self.core, client);
                let idle_in_block = server.protocol.in_block() && !server.protocol.is_busy();
                let open = busy || server.protocol.in_block();
                let dedicated = server.dedicated.is_some();
                if !dedicated && self.is_lost(server) {
                    return server_end::server_fault(&mut self.core, conn, LOST);
                }
                let session = dedicated || local_pool.pool.limits.mode == settings::PoolMode::Session;
                let reason = server.close_when_free.reason();
                let renewed = reason.filter(|_| session && self.core.config.global.server_fast_close);
                let left_behind =
                    reason.filter(|reason| reason.loses_writes() && !server.protocol.in_block());
                let renewed = renewed.or(left_behind);
                let reason = if let (Some(reason), true) = (renewed, server.protocol.is_quiet()) {
                    (reason, sqlstate::ADMIN_SHUTDOWN)
                } else if busy
                    && !dedicated
                    && passed(now_us, query_us, micros(self.core.config.query_timeout(user)))
                {
                    (CloseReason::QueryTimeout, sqlstate::QUERY_CANCELED)
                } else if idle_in_block
                    && passed(now_us, query_us, micros(self.core.config.idle_transaction_timeout(user)))
                {
                    (CloseReason::IdleTransactionTimeout, sqlstate::ADMIN_SHUTDOWN)
                } else if open
                    && !dedicated
                    && passed(now_us, transaction_us, micros(self.core.config.transaction_timeout(user)))
                {
                    (CloseReason::TransactionTimeout, sqlstate::ADMIN_SHUTDOWN)
                } else {
                    return self.ask_session_again(conn);
                };
                server_end::close_server(&mut self.core, conn, reason.0);
                client_end::fail_client(&mut self.core, client, reason.1, &reason.0.to_string());
            }
            // A question lasts as long as the login that waits for it.
            server::Phase::InternalQuery(InternalQuery::Ask(internal_client))
                if internal_query::is_awaited(&self.core, internal_client) => {}
            // If a server does not answer an internal query, the client that waits for it is closed too.
            server::Phase::InternalQuery(_) => {
                let limit_us = micros(self.core.config.global.server_connect_timeout);
                if passed(now_us, query_us, limit_us) {
                    server_end::server_fault(&mut self.core, conn, "test query timeout");
                }
            }
            _ => {}
        }
    }

    /// It is left behind, and has said nothing for so long that its host counts as gone: while it holds a place of the pool, no client of that gets to the next
    /// primary.
    fn is_lost(&self, server: &Server) -> bool {
        let limit_us = micros(self.core.config.global.server_connect_timeout);
        is_left_behind(server)
            && owes_answer(server)
            && passed(self.core.now.mono_us, server.heard_us.max(server.query_us), limit_us)
    }

    /// Clients that wait for a server: they get one notice, and an error after too long a wait.
    fn check_waiters(&mut self) {
        let now_us = self.core.now.mono_us;
        let notify_us = micros(self.core.config.global.query_wait_notify);
        let mut late = Vec::new();
        let mut told = Vec::new();
        let mut refused = Vec::new();
        for local_pool in self.core.local_pools.values() {
            if local_pool.pool.queue.is_empty() && local_pool.pool.queue.pins().next().is_none() {
                continue;
            }
            let user = self.core.config.user(&local_pool.user).map(|user| &**user);
            let limit_us = micros(self.core.config.query_wait_timeout(&local_pool.database, user));
            let query_us = micros(self.core.config.query_timeout(user));
            let failover_us = micros(self.core.config.failover_timeout(&local_pool.database));
            let unavailable_us = local_pool.unavailable_since_us();
            let may_be_late =
                !local_pool.pool.paused && local_pool.has_live_server() && unavailable_us.is_none();
            let queue = &local_pool.pool.queue;
            let for_servers = queue.shared().chain(queue.dedicated()).map(|waiter| (waiter, may_be_late));
            for (waiter, may_be_late) in for_servers.chain(queue.pins().map(|waiter| (waiter, false))) {
                if passed(now_us, waiter.since_us, query_us) {
                    late.push((ConnId(waiter.client), sqlstate::QUERY_CANCELED, "query_timeout"));
                } else if passed(now_us, waiter.since_us, limit_us) {
                    late.push((ConnId(waiter.client), sqlstate::TOO_MANY_CONNECTIONS, "query_wait_timeout"));
                } else if unavailable_us
                    .is_some_and(|us| passed(now_us, us.max(waiter.since_us), failover_us))
                {
                    late.push((ConnId(waiter.client), sqlstate::CANNOT_CONNECT_NOW, NO_HOST));
                } else if may_be_late && overload::is_late(local_pool, waiter.since_us, now_us) {
                    refused.push(ConnId(waiter.client));
                } else if passed(now_us, waiter.since_us, notify_us) {
                    told.push(ConnId(waiter.client));
                }
            }
        }
        for (conn, code, text) in late {
            internal_query::fail_waiter(&mut self.core, conn, code, text);
        }
        for conn in refused {
            overload::refuse_late(&mut self.core, conn);
        }
        for conn in told {
            notify_waiter(&mut self.core, conn);
        }
    }

    /// A pool's idle servers, its minimum, and the retry after a failure.
    fn check_pool(&mut self, pool_id: PoolId) {
        crate::link::left_behind::leave_old_primary(&mut self.core, pool_id);
        self.close_stale_servers(pool_id);
        fleet::close_surplus(&mut self.core, pool_id);
        pins::serve(&mut self.core, pool_id);
        sequences::yield_to_waiters(&mut self.core, pool_id);
        if let Some(local_pool) = self.core.local_pools.get_mut(pool_id) {
            local_pool.pool.tell_waiting(self.core.now.mono_us);
            local_pool.pool.tell_unused(self.core.now.mono_us);
            local_pool.pool.queue.look_again();
        }
        auto_size::look(&mut self.core, pool_id);
        opening::serve_or_open(&mut self.core, pool_id);
        listener::check(&mut self.core, pool_id);
        standbys::check(&mut self.core, pool_id);
        unused::forget_unused_pool(&mut self.core, pool_id);
    }

    fn close_stale_servers(&mut self, pool_id: PoolId) {
        let Some(local_pool) = self.core.local_pools.get(pool_id) else { return };
        let idle_timeout_us = micros(self.core.config.global.server_idle_timeout);
        let idle: Vec<_> = local_pool.pool.idle().to_vec();
        for idle in idle {
            let conn = ConnId(idle.server);
            if let Some(reason) = server_end::reason_to_close_idle(&self.core, conn) {
                server_end::close_server(&mut self.core, conn, reason);
            } else if passed(self.core.now.mono_us, idle.since_us, idle_timeout_us)
                && is_above_minimum(&self.core, pool_id)
            {
                server_end::close_server(&mut self.core, conn, CloseReason::IdleTimeout);
            }
        }
    }
}

/// Clients of its pool wait for a failover, and not for the load.
fn is_left_behind(server: &Server) -> bool {
    server.close_when_free.reason().is_some_and(CloseReason::loses_writes)
}

/// The time that counts until a server is lost begins with its turn; and what its client uses is counted.
fn look_at_linked(core: &mut Core, conn: ConnId) {
    let now_us = core.now.mono_us;
    let Some(server) = core.conns.server_mut(conn) else { return };
    if !matches!(server.phase, server::Phase::Linked(_)) {
        return;
    }
    if !owes_answer(server) {
        server.heard_us = now_us;
    }
    if core.has_quotas {
        quotas::settle_linked(core, conn);
    }
}

/// It is the server's turn, and not its client's, to read or to say something.
fn owes_answer(server: &Server) -> bool {
    let is_whole = server.protocol.owes_answer() && server.protocol.boundary().is_some();
    !server.paused && (is_whole || server.send_buffer_full)
}

/// It has stopped in the middle of a message, or is still sending it.
fn is_sending(core: &Core, conn: ConnId) -> bool {
    let Some(client) = core.conns.client(conn) else { return false };
    let half_sent = client.server().is_some_and(|server| {
        core.conns.find_server(server).is_some_and(|server| server.protocol.boundary().is_none())
    });
    half_sent || !client.request.held.is_empty()
}

fn has_answered(core: &Core, conn: ConnId) -> bool {
    core.conns.find_server(conn).is_some_and(|server| server.protocol.has_answered())
}

/// What waits may be Weir itself, which is not notified.
fn notify_waiter(core: &mut Core, conn: ConnId) {
    let Some(client) = core.conns.client_mut(conn) else { return };
    let client::Phase::Waiting(position) = client.phase else { return };
    if !std::mem::replace(&mut client.wait_noted, true) {
        let text = match position.is_for_pin() {
            true => "max_pinned reached, client being queued",
            false => "No server connection available in postgres backend, client being queued",
        };
        core.outbox.write(conn, |out| encode::notice(out, "NOTICE", "00000", text));
    }
}

/// The pool can do without one more; what is on its way out does not count any more.
fn is_above_minimum(core: &Core, pool_id: PoolId) -> bool {
    let local_pool = core.local_pools.get(pool_id);
    local_pool.is_some_and(|local_pool| {
        local_pool.pool.is_above_minimum(0)
            && local_pool.pool.is_above_minimum(server_end::leaving_servers(core, pool_id))
    })
}
