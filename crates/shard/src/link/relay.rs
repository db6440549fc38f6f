//! The hot path: bytes between a client and the server it is linked to.
//!
//! Owns the two directions and the outcome of each step. Checkout and release are `checkout`'s; pausing reads is
//! `backpressure`'s.

use session::{
    ClientFault, ErrorSeen, ReplyContext, ReplyOutcome, RequestContext, RequestOutcome, ServerFault,
    ServerProtocol,
};
use telemetry::Level;
use wire::sqlstate;

use crate::ConnId;
use crate::attempt::Answer;
use crate::client::{Client, Phase};
use crate::close_reason::CloseReason;
use crate::core::Core;
use crate::link::{
    backpressure, cached, checkout, client_end, deferred_begin, first_message, internal_query,
    leading_settings, left_behind, notify, parameters, quotas, repeat, routing, sequences, server_end,
    startup_values, storage,
};
use crate::local_pools::local_pool::LocalPool;
use crate::outbox::Sides;
use crate::queries::TrackedAnswer;
use crate::server::Server;
use crate::time::micros;

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

impl Input<'_> {
    /// All of it, and what of it is in the event's buffer.
    #[inline(always)]
    fn bytes(&self) -> (&[u8], &[u8]) {
        match self {
            Input::Received(bytes) => (bytes, bytes),
            Input::Held(bytes) => (bytes, &[]),
        }
    }

    /// Keeps all of it for later.
    fn hold(self, held: &mut Vec<u8>) {
        match self {
            Input::Received(bytes) => held.extend_from_slice(bytes),
            Input::Held(bytes) => *held = bytes,
        }
    }
}

/// Bytes from a client that has a server.
#[inline]
pub(crate) fn linked_client_received(core: &mut Core, conn: ConnId, server: ConnId, bytes: &[u8]) {
    if core.has_quotas && quotas::stops_linked(core, conn, server, bytes) {
        return;
    }
    forward_to_server(core, conn, server, Input::Received(bytes));
}

/// Bytes from a client without a request.
#[inline]
pub(crate) fn idle_client_input(core: &mut Core, conn: ConnId, bytes: &[u8]) {
    if let Some(server) = first_message::idle_client_received(core, conn, bytes) {
        forward_to_server(core, conn, server, Input::Received(bytes));
    }
}

/// Bytes from a server for its client.
#[inline]
pub(crate) fn linked_server_received(core: &mut Core, conn: ConnId, client: ConnId, bytes: &[u8]) {
    forward_to_client(core, conn, Some(client), bytes, bytes);
}

/// Bytes from a server whose client's request the primary may run instead: the answer is passed on as soon as it says something. Or they are stored.
#[inline(never)]
pub(crate) fn attempt_answered(core: &mut Core, conn: ConnId, client: ConnId, bytes: &[u8]) {
    let now_us = core.now.mono_us;
    let Some(server) = core.conns.server_mut(conn) else { return };
    server.heard_us = now_us;
    if server.attempt.passes_at_once(bytes) {
        return answer(core, conn, Some(client), bytes, bytes);
    }
    match server.attempt.answered(bytes) {
        Answer::Open => {}
        Answer::Passed(None) => cached::pass_answer(core, conn, client, bytes, bytes),
        Answer::Passed(Some(joined)) => cached::pass_answer(core, conn, client, &joined, &[]),
        Answer::Refused(refusal, answer) => repeat::refused(core, conn, client, refusal, &answer),
        Answer::Dropped => repeat::drop_answer(core, conn, client, bytes),
    }
}

pub(crate) fn hold_while_awaiting_greeting(core: &mut Core, conn: ConnId, bytes: &[u8]) {
    let Some(client) = core.client(conn) else { return };
    client.request.held.extend_from_slice(bytes);
    if client.request.held.len() > HELD_WHILE_LOGGING_IN {
        client_end::fail_client(
            core,
            conn,
            sqlstate::PROTOCOL_VIOLATION,
            "too much sent before login was complete",
        );
    }
}

/// Passes on what a client sent before it had its server.
#[inline(never)]
pub(crate) fn send_held(core: &mut Core, conn: ConnId, server: ConnId) {
    let Some(client) = core.client(conn) else { return };
    let held = std::mem::take(&mut client.request.held);
    if !held.is_empty() {
        forward_to_server(core, conn, server, Input::Held(held));
    }
}

/// Bytes behind those that a linked client has sent and that could not be judged.
pub(crate) fn send_more(core: &mut Core, conn: ConnId, server: ConnId, bytes: &[u8]) {
    let Some(client) = core.client(conn) else { return };
    let little = client.request.needs_more_than(bytes.len());
    client.request.held.extend_from_slice(bytes);
    if !little {
        send_held(core, conn, server);
    }
}

/// One step client to server.
#[inline(always)]
fn forward_to_server(core: &mut Core, client_conn: ConnId, server_conn: ConnId, input: Input<'_>) {
    let (bytes, received) = input.bytes();
    let (now_us, global) = (core.now.mono_us, &core.config.global);
    let Some((client, server)) = core.conns.linked(client_conn, server_conn) else { return };
    let begins = begins_request(&server.protocol);
    if server.timeline().is_some() {
        left_behind::end_requests_if_old(server, &core.local_pools, now_us);
    }
    if client.deferred_begin.is_some() {
        let is_left_behind = server.protocol.ends_requests() && server.protocol.is_quiet();
        if is_left_behind || deferred_begin::waits_for_sequences(client, server, &core.registry, bytes) {
            input.hold(&mut client.request.held);
            return held_back(core, client_conn, server_conn);
        }
        deferred_begin::send(client, server, &mut core.outbox, server_conn);
    }
    let local_pool = core.local_pools.get_mut(server.pool);
    let has_quotas = (core.has_quotas, core.has_storage_quotas);
    let (one_at_a_time, guard) = quotas::bounds(has_quotas, &mut client.quota, server);
    let mut context = RequestContext {
        registry: &mut core.registry,
        statements_max: statements_max(global, server),
        frame_bytes_max: global.max_packet_size,
        resets: client.startup.is_some().then_some(&core.tracked),
        refuses_simple: global.disable_pqexec,
        one_at_a_time,
        guard,
        client: client.id,
        parsed: 0,
        parsed_on_server: 0,
        bound: 0,
    };
    let mut sides = Sides::to_server(&mut core.outbox, received, client_conn, server_conn);
    let is_watched = client.routed.is_watched();
    let allowed = if is_watched { client.routed.allowed(bytes) } else { bytes.len() };
    let (outcome, done) =
        client.request.pass(&mut server.protocol, &mut context, &bytes[..allowed], &mut sides);
    if is_watched && client.routed.sent(done) {
        let leading_replies = server.protocol.leading_replies();
        server.attempt.begin(&bytes[..done], leading_replies, || server.protocol.take_unread());
    }
    let done = if matches!(outcome, RequestOutcome::All) { done } else { bytes.len() };
    // A request that came in pieces has been running since the first of them.
    if begins && !received.is_empty() {
        (client.request_us, server.query_us) = (now_us, now_us);
    }
    let has_statements = client.request.statements.is_some();
    if let Some(local_pool) = local_pool {
        count_request(local_pool, &mut client.used_bytes, has_statements, done, &context);
    }
    if is_watched && client.recording.is_some() {
        cached::sent((client, server), &core.local_pools, &mut core.query_caches, &bytes[..done]);
    }
    if let Some(tracking) = &mut core.statistics.tracking {
        tracking.heard(
            &mut client.query_tracker,
            client.request.statements.as_deref(),
            &core.registry,
            &bytes[..done],
            begins,
        );
    }
    let outcome = match input {
        Input::Received(bytes) => client.request.keep(outcome, &bytes[done..]),
        Input::Held(bytes) => client.request.keep_held(outcome, bytes, done),
    };
    let kept = !client.request.held.is_empty() && (waits(server) || client.routed.waits());
    let asked_nothing = server.protocol.is_quiet();
    step_ended(core, client_conn, server_conn, &outcome, kept, asked_nothing);
}

/// What the client sends next is the beginning of a request.
#[inline(always)]
fn begins_request(protocol: &ServerProtocol) -> bool {
    (!protocol.is_busy() || protocol.awaits_request()) && protocol.boundary().is_some()
}

/// Counts what a client has sent, and what it has prepared, if it has any statements.
#[inline(always)]
fn count_request(
    local_pool: &mut LocalPool,
    used_bytes: &mut u64,
    has_statements: bool,
    bytes: usize,
    sent: &RequestContext<'_>,
) {
    *used_bytes += bytes as u64;
    local_pool.counters.bytes_received += bytes as u64;
    if has_statements {
        local_pool.prepared(sent.parsed, sent.parsed_on_server, sent.bound);
    }
}

/// A step client to server is over: what comes of it.
#[inline(always)]
fn step_ended(
    core: &mut Core,
    client_conn: ConnId,
    server_conn: ConnId,
    outcome: &RequestOutcome,
    kept: bool,
    asked_nothing: bool,
) {
    match outcome {
        RequestOutcome::All if kept => held_back(core, client_conn, server_conn),
        RequestOutcome::All if asked_nothing => {
            first_message::release_without_request(core, client_conn, server_conn)
        }
        RequestOutcome::All => {}
        RequestOutcome::Terminate | RequestOutcome::Fault(_) => requests_ended(core, client_conn, outcome),
    }
}

/// What the client has sent waits for something.
#[inline]
fn waits(server: &Server) -> bool {
    server.protocol.blocks_requests() || server.protocol.holds_for_sequences()
}

/// What the client has sent waits.
#[cold]
#[inline(never)]
fn held_back(core: &mut Core, client_conn: ConnId, server_conn: ConnId) {
    if sequences::settle(core, client_conn, server_conn) {
        return;
    }
    backpressure::pause_client(core, client_conn);
    if left_behind::is_to_be_left(core, server_conn) {
        left_behind::leave(core, server_conn, client_conn, false);
    }
}

/// The client's requests are over: it says so, or has broken the protocol.
#[cold]
fn requests_ended(core: &mut Core, client_conn: ConnId, outcome: &RequestOutcome) {
    match outcome {
        RequestOutcome::Fault(fault) if **fault == ClientFault::ReadOnly => {
            storage::refuse(core, client_conn)
        }
        RequestOutcome::Fault(fault) => client_end::client_fault(core, client_conn, fault),
        _ => client_end::disconnect_client(core, client_conn, "client close request"),
    }
}

/// How many statements a server keeps for its client; none if names go as they are.
#[inline(always)]
fn statements_max(global: &settings::Global, server: &Server) -> usize {
    match global.max_prepared_statements as usize {
        _ if server.names_as_they_are => 0,
        0 => STATEMENTS_WHILE_OFF,
        most => most,
    }
}

/// [`forward_to_client`] where that is rare.
#[inline(never)]
pub(crate) fn answer(
    core: &mut Core,
    server_conn: ConnId,
    client_conn: Option<ConnId>,
    bytes: &[u8],
    received: &[u8],
) {
    forward_to_client(core, server_conn, client_conn, bytes, received);
}

/// One step server to client. Without a client, all of it answers a query of Weir's own. `received` is the event's buffer if
/// `bytes` are of it.
#[inline(always)]
fn forward_to_client(
    core: &mut Core,
    server_conn: ConnId,
    client_conn: Option<ConnId>,
    bytes: &[u8],
    received: &[u8],
) {
    let (outcome, took) = match client_conn {
        Some(client_conn) => step_to_client(core, server_conn, client_conn, bytes, received),
        None => (internal_query::step_internal_query(core, server_conn, bytes), (0, false)),
    };
    if let Some(fault) = outcome.fault {
        if let (ServerFault::SettingRefused, Some(client_conn)) = (fault, client_conn) {
            return leading_settings::refused(core, server_conn, client_conn);
        }
        return server_end::server_fault(core, server_conn, &fault.message());
    }
    if outcome.parameters_changed {
        parameters::update_read_only(core, server_conn);
    }
    if outcome.discarded {
        parameters::forget_unreported(core, server_conn);
    }
    if outcome.internal_done.is_some() {
        if outcome.fatal && internal_query::ended_behind_answer(core, server_conn) {
            return;
        }
        return internal_query::internal_query_done(core, server_conn);
    }
    if let (true, Some(client_conn)) = (outcome.block_refused, client_conn) {
        return refuse_block(core, server_conn, client_conn);
    }
    if let (true, Some(client_conn)) = (outcome.ready > 0, client_conn) {
        requests_answered(core, server_conn, client_conn, outcome, took);
    } else if let (true, Some(client_conn)) = (outcome.unblocked, client_conn) {
        send_blocked_requests(core, server_conn, client_conn);
    } else if let Some(client_conn) = client_conn {
        unsolicited_message_ended(core, server_conn, client_conn);
    }
}

/// An unsolicited message was cut behind the last ReadyForQuery; now it is whole, and the server quiet.
#[inline]
fn unsolicited_message_ended(core: &mut Core, server_conn: ConnId, client_conn: ConnId) {
    if sequences::settle_late(core, client_conn, server_conn) {
        return;
    }
    let Some(server) = core.server(server_conn) else { return };
    if server.protocol.holds_requests() {
        return startup_values::restore_late(core, server_conn, client_conn);
    }
    if !server.protocol.is_quiet() {
        return;
    }
    checkout::release(core, server_conn);
    if core.exporting.is_some() {
        core.try_export(client_conn);
    }
}

/// Sends what the client sent behind a request that might have been replayed.
pub(crate) fn send_blocked_requests(core: &mut Core, server_conn: ConnId, client_conn: ConnId) {
    send_held(core, client_conn, server_conn);
    backpressure::resume_client(core, client_conn);
}

/// Passes on what a server has sent. Returns what came of it, how long the query took that was answered, if one was, and whether [`routing::answered`] is to hear of
/// the answer.
#[inline(always)]
fn step_to_client(
    core: &mut Core,
    server_conn: ConnId,
    client_conn: ConnId,
    bytes: &[u8],
    received: &[u8],
) -> (ReplyOutcome, (u64, bool)) {
    let now_us = core.now.mono_us;
    let linked = core.conns.linked(client_conn, server_conn);
    let Some((client, server)) = linked else { return (ReplyOutcome::default(), (0, false)) };
    server.heard_us = now_us;
    if let Some(listening) = client.listening.as_deref_mut().filter(|_| server.protocol.is_busy()) {
        notify::give_ready(&mut core.outbox, client_conn, listening);
    }
    let local_pool = core.local_pools.get_mut(server.pool);
    let mode = server.mode_in(local_pool.as_deref());
    let body_max = body_max(&core.config.global);
    let mut context = ReplyContext {
        registry: &mut core.registry,
        tracked: &core.tracked,
        names: client.request.statements.as_deref_mut(),
        internal_error: &mut server.internal_error,
        errors_seen: core.statistics.errors.seen(),
        startup: client.startup.as_ref(),
        default_params: local_pool.as_deref().map(|local_pool| &local_pool.default_params),
        listening: client.listening.as_deref_mut(),
        has_client: true,
        releases_between_transactions: mode != Some(settings::PoolMode::Session),
        refuses_blocks: mode == Some(settings::PoolMode::Statement),
        body_max,
    };
    let mut sides = Sides {
        outbox: &mut core.outbox,
        received,
        forward_to: client_conn,
        client: client_conn,
        server: server_conn,
        forwarded: 0,
    };
    let (outcome, forwarded) = (server.protocol.step(&mut context, bytes, &mut sides), sides.forwarded);
    if outcome.parameters_changed {
        client.parameters.take_over_settings(&server.protocol.parameters);
    }
    // What the server reports before it has them does not change that the client has them.
    if outcome.lost || outcome.parameters_changed && server.protocol.holds_requests() {
        let default_params = local_pool.as_deref().map(|local_pool| &local_pool.default_params);
        client.restore_client_startup_values(&server.protocol, default_params);
    }
    if outcome.fatal {
        server.note_fatal(outcome.ends_client);
    }
    let took_us = now_us.saturating_sub(server.query_us);
    let needs_answer = client.routed.needs_answer(outcome.idle > 0);
    client.used_bytes += forwarded;
    client.used_queries += u64::from(outcome.ready);
    if let Some(local_pool) = local_pool {
        let transaction_us = now_us.saturating_sub(server.transaction_us);
        count_step(local_pool, &outcome, forwarded, (took_us, transaction_us));
    }
    if is_answer(&outcome) {
        server.note_answer(now_us, outcome.idle > 0);
        if !server.protocol.is_busy() {
            client.request_us = now_us;
        }
    }
    if core.statistics.errors.has_seen() {
        count_server_errors(core, server_conn);
    }
    (outcome, (took_us, needs_answer))
}

#[inline(always)]
fn count_step(
    local_pool: &mut LocalPool,
    outcome: &ReplyOutcome,
    forwarded: u64,
    (took_us, transaction_us): (u64, u64),
) {
    local_pool.counters.server_parse_count += u64::from(outcome.replayed);
    local_pool.counters.bytes_sent += forwarded;
    if !is_answer(outcome) {
        return;
    }
    local_pool.answered(outcome.ready, took_us);
    if outcome.idle > 0 {
        local_pool.transacted(outcome.idle, transaction_us);
    }
}

/// A server's errors went to its client.
#[cold]
fn count_server_errors(core: &mut Core, server_conn: ConnId) {
    let Some(server) = core.conns.server(server_conn) else { return };
    let local_pool = core.local_pools.get(server.pool);
    let database =
        local_pool.map(|local_pool| std::sync::Arc::clone(&local_pool.database_name)).unwrap_or_default();
    let errors_seen = core.statistics.errors.take_seen(&database);
    track_failed(core, server_conn, &errors_seen);
}

/// ReadyForQuery went to a client.
#[cold]
fn track_answered(core: &mut Core, server: ConnId, client_conn: ConnId, outcome: ReplyOutcome, took_us: u64) {
    let (now_us, least_us) = (core.now.wall_us, micros(core.config.global.log_slow_queries));
    let Some(tracking) = &mut core.statistics.tracking else { return };
    let Some((client, server)) = core.conns.linked(client_conn, server) else { return };
    let local_pool = core.local_pools.get(server.pool);
    let (Some(query_tracker), Some(local_pool)) = (&mut client.query_tracker, local_pool) else { return };
    let answer = TrackedAnswer {
        database: &local_pool.database_name,
        user: &client.login_user,
        count: outcome.ready,
        took_us,
        is_all: !server.protocol.is_busy(),
        slow_us: (least_us > 0).then_some(least_us),
        keeps_spans: core.config.global.otlp_traces,
        now_us,
    };
    for line in tracking.answered(query_tracker, &answer) {
        core.log_client(client_conn, Level::Log, &line);
    }
}

/// ReadyForQuery went to the client: releases the server if its conditions hold.
#[inline(always)]
fn requests_answered(
    core: &mut Core,
    server_conn: ConnId,
    client_conn: ConnId,
    outcome: ReplyOutcome,
    (took_us, needs_answer): (u64, bool),
) {
    if core.statistics.tracking.is_some() {
        track_answered(core, server_conn, client_conn, outcome, took_us);
    }
    let is_judged =
        core.has_quotas && outcome.unblocked && quotas::refuses_next(core, client_conn, server_conn);
    if outcome.unblocked && !outcome.lost && !is_judged {
        if left_behind::is_to_be_left(core, server_conn) {
            return left_behind::leave(core, server_conn, client_conn, needs_answer);
        }
        send_blocked_requests(core, server_conn, client_conn);
    }
    if needs_answer {
        routing::answered(core, client_conn, server_conn, outcome.idle > 0);
    }
    // In a transaction block the server stays linked; held requests that are sent now release it themselves.
    if outcome.idle > 0 {
        checkout::release(core, server_conn);
    }
    let is_linked = |client: &Client| matches!(client.phase, Phase::Linked(server) if server == server_conn);
    if is_judged && core.conns.client(client_conn).is_some_and(is_linked) {
        if quotas::stops_linked(core, client_conn, server_conn, &[]) {
            return;
        }
        send_blocked_requests(core, server_conn, client_conn);
    }
    if outcome.lost {
        startup_values::restore_startup_values(core, server_conn, client_conn);
    }
    if core.exporting.is_some() {
        core.try_export(client_conn);
    }
}

fn refuse_block(core: &mut Core, server_conn: ConnId, client_conn: ConnId) {
    let text = "transaction blocks not allowed in statement pooling mode";
    server_end::close_server(core, server_conn, CloseReason::Message(text));
    client_end::fail_client(core, client_conn, sqlstate::PROTOCOL_VIOLATION, text);
}

/// ReadyForQuery went to the client, and it was right.
#[inline(always)]
fn is_answer(outcome: &ReplyOutcome) -> bool {
    outcome.ready > 0 && outcome.fault.is_none() && outcome.internal_done.is_none() && !outcome.block_refused
}

/// The longest body that a server's frame may have by `max_packet_size`, which counts tag and length too.
pub(crate) fn body_max(global: &settings::Global) -> u32 {
    const HEADER_BYTES: u32 = 5;
    global.max_packet_size.min(i32::MAX.unsigned_abs()).saturating_sub(HEADER_BYTES)
}

/// Errors went to the client of a server.
fn track_failed(core: &mut Core, server: ConnId, errors_seen: &[ErrorSeen]) {
    let Some(server) = core.conns.server(server) else { return };
    let Some(client) = server.client() else { return };
    if let Some(query_tracker) = core.client(client).and_then(|client| client.query_tracker.as_mut()) {
        errors_seen.iter().for_each(|seen| query_tracker.failed(seen.behind as usize));
    }
}
