//! The hot path: bytes between a client and the server it is linked to.
//!
//! Owns the two directions and the outcome of each step. Checkout and release are `checkout`'s; pausing reads is
//! `backpressure`'s.

use session::{ClientFault, ReplyContext, ReplyOutcome, RequestContext, RequestOutcome};
use telemetry::Level;
use wire::sqlstate;

use crate::ConnId;
use crate::client;
use crate::close_reason::CloseReason;
use crate::outbox::{NullOutput, Sides};
use crate::server::{self, InternalQuery};
use crate::state::ShardState;

/// A client that cannot be served yet may leave this much with us; then it is not read any more.
const HELD_WHILE_LOGGING_IN: usize = 64 * 1024;

/// How many statements a server keeps for clients that have names from before `max_prepared_statements` was set to 0.
const STATEMENTS_WHILE_OFF: usize = 200;

/// What a step passes on.
enum Input<'a> {
    /// All of what the event brought.
    Received(&'a [u8]),
    /// What the client had sent before.
    Held(Vec<u8>),
}

impl ShardState {
    /// Bytes from a client.
    #[inline(never)]
    pub(crate) fn client_received(&mut self, conn: ConnId, bytes: &[u8]) {
        let Some(client) = self.core.client(conn) else { return };
        let server = match client.phase {
            client::Phase::Linked(server) if client.request.held.is_empty() => Some(server),
            client::Phase::Idle => self.idle_client_received(conn, bytes),
            _ => return self.client_continues(conn, bytes),
        };
        if let Some(server) = server {
            self.forward_to_server(conn, server, Input::Received(bytes));
        }
    }

    /// Bytes from a client that cannot be passed on as they are.
    #[inline(never)]
    fn client_continues(&mut self, conn: ConnId, bytes: &[u8]) {
        let Some(client) = self.core.client(conn) else { return };
        match client.phase {
            client::Phase::Linked(server) => self.send_more(conn, server, bytes),
            client::Phase::Waiting(_) | client::Phase::Preparing(_) => {
                client.request.held.extend_from_slice(bytes)
            }
            client::Phase::Startup { .. } => self.startup(conn, bytes),
            client::Phase::Login(_) => self.login_message(conn, bytes),
            client::Phase::AwaitingGreeting(_) => self.hold_while_awaiting_greeting(conn, bytes),
            client::Phase::Console { .. } => self.console_received(conn, bytes),
            client::Phase::Handshake { .. }
            | client::Phase::CancelRequest(_)
            | client::Phase::Closing
            | client::Phase::Idle => {}
        }
    }

    fn hold_while_awaiting_greeting(&mut self, conn: ConnId, bytes: &[u8]) {
        let Some(client) = self.core.client(conn) else { return };
        client.request.held.extend_from_slice(bytes);
        if client.request.held.len() > HELD_WHILE_LOGGING_IN {
            self.fail_client(conn, sqlstate::PROTOCOL_VIOLATION, "too much sent before login was complete");
        }
    }

    /// Passes on what a client sent before it had its server.
    #[inline(never)]
    pub(crate) fn send_held(&mut self, conn: ConnId, server: ConnId) {
        let Some(client) = self.core.client(conn) else { return };
        let held = std::mem::take(&mut client.request.held);
        if !held.is_empty() {
            self.forward_to_server(conn, server, Input::Held(held));
        }
    }

    /// Bytes behind those that a linked client has sent and that could not be judged.
    fn send_more(&mut self, conn: ConnId, server: ConnId, bytes: &[u8]) {
        let Some(client) = self.core.client(conn) else { return };
        let little = client.request.needs_more_than(bytes.len());
        client.request.held.extend_from_slice(bytes);
        if !little {
            self.send_held(conn, server);
        }
    }

    /// One step client to server.
    #[inline(always)]
    fn forward_to_server(&mut self, client_conn: ConnId, server_conn: ConnId, input: Input<'_>) {
        let (bytes, received) = match &input {
            Input::Received(bytes) => (*bytes, *bytes),
            Input::Held(bytes) => (&bytes[..], &[][..]),
        };
        let now_us = self.core.now.mono_us;
        let global = &self.core.config.global;
        let Some((client, server)) = self.core.conns.linked(client_conn, server_conn) else {
            return;
        };
        let was_busy = server.protocol.is_busy();
        let default_params = !was_busy && server.protocol.boundary().is_some();
        let local_pool = self.core.local_pools.get_mut(server.pool);
        let statements_max = match global.max_prepared_statements as usize {
            _ if server.names_as_they_are => 0,
            0 => STATEMENTS_WHILE_OFF,
            most => most,
        };
        let mut context = RequestContext {
            registry: &mut self.core.registry,
            statements_max,
            frame_bytes_max: global.max_packet_size,
            resets: client.startup.is_some().then_some(&self.core.tracked),
            refuses_simple: global.disable_pqexec,
            client: client.id,
            parsed: 0,
            parsed_on_server: 0,
            bound: 0,
        };
        let mut sides = Sides {
            outbox: &mut self.core.outbox,
            received,
            forward_to: server_conn,
            client: client_conn,
            server: server_conn,
            forwarded: 0,
        };
        let (outcome, done) = client.request.pass(&mut server.protocol, &mut context, bytes, &mut sides);
        let done = if matches!(outcome, RequestOutcome::All) { done } else { bytes.len() };
        // A request that came in pieces has been running since the first of them.
        if default_params && !received.is_empty() {
            client.request_us = now_us;
            server.query_us = now_us;
        }
        if let Some(local_pool) = local_pool {
            local_pool.counters.bytes_received += done as u64;
            if client.request.statements.is_some() {
                local_pool.counters.client_parse_count += context.parsed;
                local_pool.counters.server_parse_count += context.parsed_on_server;
                local_pool.counters.bind_count += context.bound;
            }
        }
        if let Some(tracking) = &mut self.tracking {
            tracking.heard(client, &self.core.registry, &bytes[..done], default_params);
        }
        let outcome = match input {
            Input::Received(bytes) => client.request.keep(outcome, &bytes[done..]),
            Input::Held(bytes) => client.request.keep_held(outcome, bytes, done),
        };
        let kept = !client.request.held.is_empty() && server.protocol.blocks_requests();
        let asked_nothing = server.protocol.is_quiet();
        match outcome {
            RequestOutcome::All if kept => self.core.pause_client(client_conn),
            RequestOutcome::All if asked_nothing => self.release_without_request(client_conn, server_conn),
            RequestOutcome::All => {}
            RequestOutcome::Terminate => self.disconnect_client(client_conn, "client close request"),
            RequestOutcome::Fault(fault) => self.client_fault(client_conn, &fault),
        }
    }

    /// Bytes from a server.
    #[inline(never)]
    pub(crate) fn server_received(&mut self, conn: ConnId, bytes: &[u8], unsent: bool) {
        let Some(server) = self.core.server(conn) else { return };
        server.unsent |= unsent;
        match server.phase {
            server::Phase::Linked(client) => self.forward_to_client(conn, Some(client), bytes, bytes),
            server::Phase::Login(_) => self.server_login_received(conn, bytes),
            server::Phase::InternalQuery(_) | server::Phase::Idle | server::Phase::AwaitingCancel => {
                self.unlinked_server_received(conn, bytes);
            }
            server::Phase::AskedTls => self.server_answers_tls(conn, bytes),
            server::Phase::Connecting
            | server::Phase::Handshake
            | server::Phase::Leaving { .. }
            | server::Phase::Closing => {}
        }
    }

    /// [`ShardState::forward_to_client`] where that is rare.
    #[inline(never)]
    pub(crate) fn answer(
        &mut self,
        server_conn: ConnId,
        client_conn: Option<ConnId>,
        bytes: &[u8],
        received: &[u8],
    ) {
        self.forward_to_client(server_conn, client_conn, bytes, received);
    }

    /// One step server to client. Without a client, all of it answers a query of Weir's own. `received` is the event's buffer if
    /// `bytes` are of it.
    #[inline(always)]
    fn forward_to_client(
        &mut self,
        server_conn: ConnId,
        client_conn: Option<ConnId>,
        bytes: &[u8],
        received: &[u8],
    ) {
        let (outcome, took_us) = match client_conn {
            Some(client_conn) => self.step_to_client(server_conn, client_conn, bytes, received),
            None => (self.step_internal_query(server_conn, bytes), 0),
        };
        if let Some(fault) = outcome.fault {
            return self.server_fault(server_conn, &fault.message());
        }
        if outcome.parameters_changed {
            self.core.update_read_only(server_conn);
        }
        if outcome.discarded {
            self.core.forget_unreported(server_conn);
        }
        if outcome.internal_done.is_some() {
            return self.internal_query_done(server_conn);
        }
        if let (true, Some(client_conn)) = (outcome.block_refused, client_conn) {
            return self.refuse_block(server_conn, client_conn);
        }
        if let (true, Some(client_conn)) = (outcome.ready > 0, client_conn) {
            self.requests_answered(server_conn, client_conn, outcome, took_us);
        } else if let (true, Some(client_conn)) = (outcome.unblocked, client_conn) {
            self.send_blocked_requests(server_conn, client_conn);
        } else if let Some(client_conn) = client_conn {
            self.unsolicited_message_ended(server_conn, client_conn);
        }
    }

    /// An unsolicited message was cut behind the last ReadyForQuery; now it is whole, and the server quiet.
    #[inline]
    fn unsolicited_message_ended(&mut self, server_conn: ConnId, client_conn: ConnId) {
        let Some(server) = self.core.server(server_conn) else { return };
        if server.protocol.holds_requests() {
            return self.restore_late(server_conn, client_conn);
        }
        if !server.protocol.is_quiet() {
            return;
        }
        self.release(server_conn);
        if self.exporting.is_some() {
            self.try_export(client_conn);
        }
    }

    /// Sends what the client sent behind a request that might have been replayed.
    fn send_blocked_requests(&mut self, server_conn: ConnId, client_conn: ConnId) {
        self.send_held(client_conn, server_conn);
        self.resume_client(client_conn);
    }

    /// Passes on what a server has sent. Returns what came of it, and how long the query took that was answered, if one was.
    #[inline(always)]
    fn step_to_client(
        &mut self,
        server_conn: ConnId,
        client_conn: ConnId,
        bytes: &[u8],
        received: &[u8],
    ) -> (ReplyOutcome, u64) {
        let now_us = self.core.now.mono_us;
        let Some((client, server)) = self.core.conns.linked(client_conn, server_conn) else {
            return (ReplyOutcome::default(), 0);
        };
        let local_pool = self.core.local_pools.get_mut(server.pool);
        let mode = server.mode_in(local_pool.as_deref());
        let refuses_blocks = mode == Some(settings::PoolMode::Statement);
        let body_max = body_max(&self.core.config.global);
        let mut context = ReplyContext {
            registry: &mut self.core.registry,
            tracked: &self.core.tracked,
            names: client.request.statements.as_deref_mut(),
            internal_error: &mut server.internal_error,
            errors_seen: self.errors.seen(),
            startup: client.startup.as_ref(),
            default_params: local_pool.as_deref().map(|local_pool| &local_pool.default_params),
            has_client: true,
            releases_between_transactions: mode != Some(settings::PoolMode::Session),
            refuses_blocks,
            body_max,
        };
        let mut sides = Sides {
            outbox: &mut self.core.outbox,
            received,
            forward_to: client_conn,
            client: client_conn,
            server: server_conn,
            forwarded: 0,
        };
        let outcome = server.protocol.step(&mut context, bytes, &mut sides);
        let forwarded = sides.forwarded;
        if outcome.parameters_changed {
            client.parameters = server.protocol.parameters.clone();
        }
        // What the server reports before it has them does not change that the client has them.
        if outcome.lost || outcome.parameters_changed && server.protocol.holds_requests() {
            client.restore_client_startup_values(&server.protocol);
        }
        if outcome.fatal {
            server.close_when_free = Some(CloseReason::SentFatal);
        }
        let took_us = now_us.saturating_sub(server.query_us);
        if let Some(local_pool) = local_pool {
            local_pool.counters.server_parse_count += u64::from(outcome.replayed);
            local_pool.counters.bytes_sent += forwarded;
            if is_answer(&outcome) {
                local_pool.answered(outcome.ready, took_us);
                if outcome.idle > 0 {
                    local_pool.transacted(outcome.idle, now_us.saturating_sub(server.transaction_us));
                }
            }
        }
        if is_answer(&outcome) {
            server.note_answer(now_us, outcome.idle > 0);
            if !server.protocol.is_busy() {
                client.request_us = now_us;
            }
        }
        if self.errors.has_seen() {
            self.count_server_errors(server_conn);
        }
        (outcome, took_us)
    }

    fn step_internal_query(&mut self, server_conn: ConnId, bytes: &[u8]) -> ReplyOutcome {
        let Some(server) = self.core.conns.server_mut(server_conn) else {
            return ReplyOutcome::default();
        };
        let body_max = body_max(&self.core.config.global);
        let mut context = ReplyContext {
            registry: &mut self.core.registry,
            tracked: &self.core.tracked,
            names: None,
            internal_error: &mut server.internal_error,
            errors_seen: self.errors.seen(),
            startup: None,
            default_params: None,
            has_client: false,
            releases_between_transactions: false,
            refuses_blocks: false,
            body_max,
        };
        server.protocol.step(&mut context, bytes, &mut NullOutput)
    }

    /// ReadyForQuery went to the client: releases the server if its conditions hold.
    #[inline(always)]
    fn requests_answered(
        &mut self,
        server_conn: ConnId,
        client_conn: ConnId,
        outcome: ReplyOutcome,
        took_us: u64,
    ) {
        if self.tracking.is_some() {
            self.track_answered(server_conn, client_conn, outcome, took_us);
        }
        if outcome.unblocked && !outcome.lost {
            self.send_blocked_requests(server_conn, client_conn);
        }
        // In a transaction block the server stays linked; held requests that are sent now release it themselves.
        if outcome.idle > 0 {
            self.release(server_conn);
        }
        if outcome.lost {
            self.restore_startup_values(server_conn, client_conn);
        }
        if self.exporting.is_some() {
            self.try_export(client_conn);
        }
    }

    fn refuse_block(&mut self, server_conn: ConnId, client_conn: ConnId) {
        let text = "transaction blocks not allowed in statement pooling mode";
        self.close_server(server_conn, CloseReason::Message(text));
        self.fail_client(client_conn, sqlstate::PROTOCOL_VIOLATION, text);
    }

    /// An unlinked server sent something: parameters and notices are read, a FATAL closes it. In the middle of a frame it
    /// is not checked out.
    pub(crate) fn idle_server_received(&mut self, conn: ConnId, bytes: &[u8]) {
        let outcome = self.step_internal_query(conn, bytes);
        if outcome.parameters_changed {
            self.core.update_read_only(conn);
        }
        let now_us = self.core.now.mono_us;
        let Some(server) = self.core.server(conn) else { return };
        let (quiet, local_pool) = (server.protocol.is_quiet(), server.pool);
        let parked = matches!(server.phase, server::Phase::Idle);
        if outcome.fatal {
            self.core.log_server(conn, Level::Warning, "got packet 'E' from server when not linked");
            self.close_server(conn, CloseReason::Crashed);
        } else if outcome.fault.is_some() {
            self.close_server(conn, CloseReason::UnexpectedBytes);
        } else if parked && !quiet {
            server.phase = server::Phase::AwaitingCancel;
            server.request_us = now_us;
            if let Some(local_pool) = self.core.local_pools.get_mut(local_pool) {
                local_pool.pool.remove_idle(conn.0);
            }
        } else if !parked {
            self.check_cancels_done(conn);
        }
    }

    /// A query of Weir's own has been answered.
    fn internal_query_done(&mut self, conn: ConnId) {
        let Some(server) = self.core.server(conn) else { return };
        let server::Phase::InternalQuery(internal_query) = server.phase else { return };
        let failed = server.internal_error.take();
        server.unasked_bytes = 0;
        match (internal_query, failed) {
            (InternalQuery::Apply(client) | InternalQuery::Restore(client), None) => {
                self.prepared(conn, client)
            }
            (InternalQuery::Apply(client) | InternalQuery::Restore(client), Some(error)) => {
                self.refused_parameters(conn, client, &error);
            }
            (InternalQuery::Freshen(internal_client), failed) => {
                self.discard_all_done(internal_client, conn, failed.is_some())
            }
            (InternalQuery::ConnectQuery(internal_client), failed) => {
                self.core.connect_query_over(internal_client, conn, failed.as_deref())
            }
            (InternalQuery::Ask(internal_client), failed) => {
                self.query_answered(internal_client, conn, failed.as_deref())
            }
            // A server that answers with an error is alive, too.
            (InternalQuery::Check, Some(error)) => {
                self.core.log_query_error(conn, "server_check_query", &error);
                self.internal_query_over(conn);
            }
            (InternalQuery::Reset, Some(_)) => self.close_server(conn, CloseReason::ResetFailed),
            (InternalQuery::Check, None) => self.internal_query_over(conn),
            (InternalQuery::Reset, None) => self.internal_query_over(conn),
        }
    }

    /// The server refused the client's startup parameters: the client gets the server's error.
    fn refused_parameters(&mut self, server: ConnId, client: ConnId, error: &[u8]) {
        let fields = wire::error::parse(error);
        let text =
            String::from_utf8_lossy(fields.message().unwrap_or(b"invalid server parameter")).into_owned();
        self.unlink(server);
        self.fail_client(client, sqlstate::INVALID_PARAMETER, &text);
        self.release_or_close(server);
    }

    /// The client broke the protocol.
    pub(crate) fn client_fault(&mut self, conn: ConnId, fault: &ClientFault) {
        if *fault == ClientFault::SimpleQuery {
            self.core.log_client(conn, Level::Error, "client used 'Q' packet type");
        }
        self.fail_client(conn, fault.sqlstate(), &fault.message());
    }

    /// The server broke the protocol, or died.
    pub(crate) fn server_fault(&mut self, conn: ConnId, text: &str) {
        let Some(server) = self.core.server(conn) else { return };
        let told = server.close_when_free == Some(CloseReason::SentFatal);
        let client = server.client();
        self.core.log_server(conn, Level::Warning, text);
        self.close_server(conn, CloseReason::Message(text));
        self.core.let_go(conn);
        match client {
            Some(client) if told => self.disconnect_client(client, text),
            Some(client) => self.fail_client(client, sqlstate::CONNECTION_FAILURE, text),
            None => {}
        }
    }
}

/// ReadyForQuery went to the client, and it was right.
#[inline(always)]
fn is_answer(outcome: &ReplyOutcome) -> bool {
    outcome.ready > 0 && outcome.fault.is_none() && outcome.internal_done.is_none() && !outcome.block_refused
}

/// The longest body that a server's frame may have by `max_packet_size`, which counts tag and length too.
fn body_max(global: &settings::Global) -> u32 {
    const HEADER_BYTES: u32 = 5;
    global.max_packet_size.min(i32::MAX.unsigned_abs()).saturating_sub(HEADER_BYTES)
}
