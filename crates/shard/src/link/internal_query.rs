//! Queries of Weir's own on servers: checks, resets, parameters, and those of internal clients, which wait in the pool's queue
//! like clients.
//!
//! Owns what the end of each leads to, and how much a server may send without a client (nothing of that is kept; it is bounded
//! because each byte costs work). A query for an internal client runs on a server with default state: nothing that a client sent
//! is in force, no object of a client is used by it, and its values are bound, never written into the text. The server is released
//! at the one release point of `checkout`.

use messages::{ServerQueryResult, ShardId};
use pool::QueuePosition;
use session::{ReplyContext, ReplyOutcome, Row};
use telemetry::Level;
use wire::sqlstate;

use crate::ConnId;
use crate::close_reason::CloseReason;
use crate::connections::Conn;
use crate::connections::kinds::InternalClient;
use crate::core::Core;
use crate::effects::Effect;
use crate::link::{
    checkout, client_end, hand_over, identity, listener, overload, parameters, positions, relations, relay,
    repeat, sequences, server_end, session_state, sql_statements,
};
use crate::local_pools::local_pool::LocalPool;
use crate::local_pools::table::PoolId;
use crate::log_format::excerpt;
use crate::outbox::NullOutput;
use crate::server::{InternalQuery, Phase, UsedBy};
use crate::time::micros;

/// The error that clients get when the query or its result is unusable: PgBouncer's text.
pub(crate) const CONFIG_ERROR: &str = "bouncer config error";

/// Makes a server that a client has had as it was after login, temporary tables included; `connect_query` follows.
const AS_FRESH: &str = "DISCARD ALL";

/// Says where names without a schema are looked up while a question is asked: in pg_catalog first, among temporary
/// objects last (without being named they come first), and between the two as the role and the connection have it, for
/// functions and tables of the administrator's own `auth_query`. Nothing here is looked up by that path itself, and no
/// row comes of it.
const SEARCH_PATH: &str = "SELECT WHERE pg_catalog.set_config('search_path', pg_catalog.concat_ws(', ', 'pg_catalog', \
    pg_catalog.substring(pg_catalog.current_setting('search_path'), '[^ ].*'), 'pg_temp'), true) IS NULL";

/// Bytes between two clients, or two queries of Weir's own.
const UNASKED_BYTES: u32 = 16 * 1024 * 1024;

pub(crate) fn step_internal_query(core: &mut Core, server_conn: ConnId, bytes: &[u8]) -> ReplyOutcome {
    let Some(server) = core.conns.server_mut(server_conn) else {
        return ReplyOutcome::default();
    };
    let body_max = relay::body_max(&core.config.global);
    let mut context = ReplyContext {
        registry: &mut core.registry,
        tracked: &core.tracked,
        names: None,
        internal_error: &mut server.internal_error,
        errors_seen: core.statistics.errors.seen(),
        startup: None,
        default_params: None,
        listening: None,
        has_client: false,
        releases_between_transactions: false,
        refuses_blocks: false,
        body_max,
    };
    server.protocol.step(&mut context, bytes, &mut NullOutput)
}

/// An unlinked server sent something: parameters and notices are read, a FATAL closes it. In the middle of a frame it
/// is not checked out.
fn idle_server_received(core: &mut Core, conn: ConnId, bytes: &[u8]) {
    let outcome = step_internal_query(core, conn, bytes);
    if outcome.parameters_changed {
        parameters::update_read_only(core, conn);
    }
    let now_us = core.now.mono_us;
    let Some(server) = core.server(conn) else { return };
    let (quiet, local_pool) = (server.protocol.is_quiet(), server.pool);
    let parked = matches!(server.phase, Phase::Idle);
    if outcome.fatal {
        core.log_server(conn, Level::Warning, "got packet 'E' from server when not linked");
        server_end::close_server(core, conn, CloseReason::Crashed);
    } else if outcome.fault.is_some() {
        server_end::close_server(core, conn, CloseReason::UnexpectedBytes);
    } else if parked && !quiet {
        server.phase = Phase::AwaitingCancel;
        server.request_us = now_us;
        if let Some(local_pool) = core.local_pools.get_mut(local_pool) {
            local_pool.pool.remove_idle(conn.0);
        }
    } else if !parked {
        checkout::check_cancels_done(core, conn);
    }
}

/// In one piece with its answer to a query of Weir's own the server has said that it closes the connection. True if with it its client
/// ends; else the query has its answer, and the server is closed when it is free.
#[cold]
#[inline(never)]
pub(crate) fn ended_behind_answer(core: &mut Core, conn: ConnId) -> bool {
    let Some(server) = core.server(conn) else { return true };
    let has_client = server.client().is_some();
    match has_client {
        true => server_end::server_fault(core, conn, &CloseReason::SentFatal.to_string()),
        false => {
            server.internal_error = None;
            server.close_when_free.set(CloseReason::SentFatal);
        }
    }
    has_client
}

/// A query of Weir's own has been answered.
pub(crate) fn internal_query_done(core: &mut Core, conn: ConnId) {
    let Some(server) = core.server(conn) else { return };
    let Phase::InternalQuery(internal_query) = server.phase else { return };
    overload::excuse_waits(core, conn);
    let Some(server) = core.server(conn) else { return };
    let may_be_several = matches!(
        internal_query,
        InternalQuery::Statements(_) | InternalQuery::Restore(_) | InternalQuery::Identity(_)
    );
    if may_be_several && server.protocol.is_busy() {
        return; // Each statement is a query.
    }
    let failed = server.internal_error.take();
    server.unasked_bytes = 0;
    match (internal_query, failed) {
        (InternalQuery::Apply(client), None) => checkout::settings_applied(core, conn, client),
        (InternalQuery::Statements(client), _) => sql_statements::prepare_ended(core, conn, client),
        (InternalQuery::Restore(client), None) => checkout::prepared(core, conn, client),
        (InternalQuery::Sequences(client), None) => sequences::discarded(core, conn, client),
        (
            InternalQuery::Apply(client) | InternalQuery::Restore(client) | InternalQuery::Sequences(client),
            Some(error),
        ) => refused_parameters(core, conn, client, &error),
        (InternalQuery::SessionState { client, failed: times }, failed) => {
            session_state::answered(core, conn, client, failed.map(|_| times + 1));
        }
        (InternalQuery::HandOver(client), failed) => {
            hand_over::answered(core, conn, client, failed.is_some())
        }
        (InternalQuery::Unlisten, failed) => hand_over::unlistened(core, conn, failed.is_some()),
        (InternalQuery::Relations, failed) => {
            relations::answered(core, conn, failed.as_deref());
            checkout::internal_query_over(core, conn);
        }
        (InternalQuery::Position(sample), failed) => {
            positions::position_answered(core, conn, sample, failed.as_deref());
            checkout::internal_query_over(core, conn);
        }
        (InternalQuery::RoutingNames, failed) => {
            positions::names_answered(core, conn, failed.as_deref());
            checkout::internal_query_over(core, conn);
        }
        (InternalQuery::Identity(client), failed) => {
            identity::answered(core, conn, client, failed.as_deref())
        }
        (InternalQuery::Freshen(internal_client), failed) => {
            discard_all_done(core, internal_client, conn, failed.is_some())
        }
        (InternalQuery::ConnectQuery(internal_client), failed) => {
            connect_query_over(core, internal_client, conn, failed.as_deref())
        }
        (InternalQuery::Ask(internal_client), failed) => {
            query_answered(core, internal_client, conn, failed.as_deref())
        }
        // A server that answers with an error is alive, too.
        (InternalQuery::Check, Some(error)) => {
            log_query_error(core, conn, "server_check_query", &error);
            checkout::internal_query_over(core, conn);
        }
        (InternalQuery::Reset, Some(_)) => server_end::close_server(core, conn, CloseReason::ResetFailed),
        (InternalQuery::Check, None) => checkout::internal_query_over(core, conn),
        (InternalQuery::Reset, None) => checkout::internal_query_over(core, conn),
    }
}

/// The server refused the client's parameters: the client gets the server's error, or the primary for a standby.
pub(crate) fn refused_parameters(core: &mut Core, server: ConnId, client: ConnId, error: &[u8]) {
    if repeat::settings_refused(core, server, client, error) {
        return;
    }
    let fields = wire::error::parse(error);
    let text = String::from_utf8_lossy(fields.message().unwrap_or(b"invalid server parameter")).into_owned();
    checkout::unlink(core, server);
    if let Some(server) = core.server(server) {
        server.protocol.forget_session();
        server.protocol.distrust_sequences();
    }
    client_end::fail_client(core, client, sqlstate::INVALID_PARAMETER, &text);
    checkout::release_or_close(core, server);
}

/// Idle so long that it is checked before use (`server_check_delay`).
pub(crate) fn needs_check(core: &Core, idle_since_us: u64) -> bool {
    let global = &core.config.global;
    let delay_us = micros(global.server_check_delay);
    global.server_check_query.is_some() && core.now.mono_us.saturating_sub(idle_since_us) > delay_us
}

pub(crate) fn check(core: &mut Core, server_conn: ConnId) {
    let now_us = core.now.mono_us;
    let local_pool = core.server(server_conn).map(|server| server.pool);
    if let Some(local_pool) = local_pool.and_then(|local_pool| core.local_pools.get_mut(local_pool)) {
        local_pool.pool.begin_check(server_conn.0, now_us);
    }
    run_internal_query(core, server_conn, InternalQuery::Check);
}

/// Has a server run a query of Weir's own.
pub(crate) fn run_internal_query(core: &mut Core, server_conn: ConnId, internal_query: InternalQuery) {
    let global = &core.config.global;
    let sql = match internal_query {
        InternalQuery::Check => global.server_check_query.clone(),
        InternalQuery::Reset => global.server_reset_query.clone(),
        InternalQuery::Unlisten => Some("UNLISTEN *".to_owned()),
        InternalQuery::Apply(_)
        | InternalQuery::Statements(_)
        | InternalQuery::Restore(_)
        | InternalQuery::Sequences(_)
        | InternalQuery::SessionState { .. }
        | InternalQuery::HandOver(_)
        | InternalQuery::Relations
        | InternalQuery::Position(_)
        | InternalQuery::RoutingNames
        | InternalQuery::Identity(_)
        | InternalQuery::Freshen(_)
        | InternalQuery::ConnectQuery(_)
        | InternalQuery::Ask(_) => None,
    };
    let now_us = core.now.mono_us;
    let Some(server) = core.conns.server_mut(server_conn) else { return };
    server.phase = Phase::InternalQuery(internal_query);
    server.query_us = now_us;
    let protocol = &mut server.protocol;
    if let Some(at) = protocol.boundary() {
        core.outbox.write(server_conn, |out| protocol.send_internal_query(at, out, &sql.unwrap_or_default()));
    }
}

/// Bytes of a server without a client.
pub(crate) fn unlinked_server_received(core: &mut Core, conn: ConnId, bytes: &[u8]) {
    let Some(server) = core.server(conn) else { return };
    let is_asked = matches!(server.phase, Phase::InternalQuery(_));
    let more = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    server.unasked_bytes = server.unasked_bytes.saturating_add(more);
    if server.unasked_bytes > UNASKED_BYTES {
        server_end::server_fault(core, conn, "server sent too much without being asked");
    } else if is_asked {
        relay::answer(core, conn, None, bytes, bytes);
    } else {
        idle_server_received(core, conn, bytes);
    }
}

/// A query of the settings met an error that is no reason to close.
pub(crate) fn log_query_error(core: &mut Core, conn: ConnId, query: &str, body: &[u8]) {
    let fields = wire::error::parse(body);
    let text = |field: Option<&[u8]>| String::from_utf8_lossy(field.unwrap_or_default()).into_owned();
    let (severity, message) = (excerpt(text(fields.severity())), excerpt(text(fields.message())));
    let line = format!("error while executing {query}: {severity}: {message}");
    core.log_server(conn, Level::Error, &line);
}

/// A server for a query: reset first by DISCARD ALL, if a client has used it.
pub(crate) fn serve_internal_client(core: &mut Core, conn: ConnId, server_conn: ConnId) {
    let now_us = core.now.mono_us;
    answer_equal_queries(core, conn);
    let Some(internal_client) = core.conns.internal_client_mut(conn) else { return };
    internal_client.position = None;
    let waited_us = now_us.saturating_sub(internal_client.since_us);
    let Some(local_pool) = core.local_pools.get_mut(internal_client.local_pool) else { return };
    local_pool.assigned(waited_us);
    local_pool.last_used_us = now_us;
    let Some(server) = core.conns.server_mut(server_conn) else { return };
    server.request_us = now_us;
    server.query_us = now_us;
    if server.used_by != UsedBy::Client {
        return send_query(core, conn, server_conn);
    }
    server.phase = Phase::InternalQuery(InternalQuery::Freshen(conn));
    let protocol = &mut server.protocol;
    if let Some(at) = protocol.boundary() {
        core.outbox.write(server_conn, |out| protocol.send_internal_query(at, out, AS_FRESH));
    }
}

/// All that wait for the same query, and so were queued before it ran, get the same result: one query serves a
/// storm of logins, and no login gets a result that is older than itself.
fn answer_equal_queries(core: &mut Core, conn: ConnId) {
    let Some(internal_client) = core.conns.internal_client(conn) else { return };
    let Some(local_pool) = core.local_pools.get(internal_client.local_pool) else { return };
    let alike = |other: &InternalClient| {
        !other.listens && !internal_client.listens && other.query == internal_client.query
    };
    let same = |other: &ConnId| core.conns.find_internal_client(*other).is_some_and(alike);
    let others: Vec<ConnId> =
        local_pool.pool.queue.shared().map(|waiter| ConnId(waiter.client)).filter(same).collect();
    for other in others.into_iter().filter(|other| *other != conn) {
        let Some(gone) = forget_internal_client(core, other) else { continue };
        for reply_to in &gone.reply_to {
            core.conns.await_result(*reply_to, conn);
        }
        if let Some(internal_client) = core.conns.internal_client_mut(conn) {
            internal_client.reply_to.extend(gone.reply_to);
        }
    }
}

/// DISCARD ALL has ended, or failed.
fn discard_all_done(core: &mut Core, conn: ConnId, server_conn: ConnId, failed: bool) {
    if failed {
        return server_end::close_server(core, server_conn, CloseReason::NotFresh);
    }
    parameters::forget_unreported(core, server_conn);
    let Some(server) = core.conns.server_mut(server_conn) else { return };
    let connect_query =
        core.local_pools.get(server.pool).and_then(|local_pool| local_pool.database.connect_query.as_deref());
    let Some(connect_query) = connect_query else { return send_query(core, conn, server_conn) };
    server.phase = Phase::InternalQuery(InternalQuery::ConnectQuery(conn));
    let protocol = &mut server.protocol;
    if let Some(at) = protocol.boundary() {
        core.outbox.write(server_conn, |out| protocol.send_internal_query(at, out, connect_query));
    }
}

/// The server has answered; it is released before the result is delivered.
fn query_answered(core: &mut Core, conn: ConnId, server_conn: ConnId, error: Option<&[u8]>) {
    let Some(server) = core.server(server_conn) else { return };
    let rows: Vec<Row> = server.protocol.take_internal_result().into_rows();
    server.phase = Phase::AwaitingCancel;
    let answer = match error {
        None => ServerQueryResult::Rows(rows),
        Some(error) => {
            let fields = wire::error::parse(error);
            let text = |field: Option<&[u8]>| String::from_utf8_lossy(field.unwrap_or_default()).into_owned();
            let (severity, message) = (excerpt(text(fields.severity())), excerpt(text(fields.message())));
            core.log_server(server_conn, Level::Warning, &format!("own query failed: {severity} {message}"));
            no_answer(sqlstate::CONFIG_FILE_ERROR, &message)
        }
    };
    checkout::release_or_close(core, server_conn);
    if let Some(internal_client) = forget_internal_client(core, conn) {
        // The server's message is for the operator; clients get PgBouncer's text.
        let is_refused = matches!(answer, ServerQueryResult::Failed { .. });
        let (control, clients): (Vec<_>, Vec<_>) =
            internal_client.reply_to.iter().partition(|reply_to| reply_to.shard == ShardId::CONTROL);
        let result = match is_refused {
            true => no_answer(sqlstate::CONFIG_FILE_ERROR, CONFIG_ERROR),
            false => answer.clone(),
        };
        core.effects.push(Effect::QueryOver { reply_to: control, result: answer });
        core.effects.push(Effect::QueryOver { reply_to: clients, result });
    }
}

/// There will be no answer.
pub(crate) fn refuse_internal_client(core: &mut Core, conn: ConnId, code: &str, text: &str) {
    if let Some(internal_client) = forget_internal_client(core, conn) {
        let (reply_to, result) = (internal_client.reply_to, no_answer(code, text));
        core.effects.push(Effect::QueryOver { reply_to, result });
    }
}

/// Refuses a client or an internal client that waits for a server of this pool.
pub(crate) fn fail_waiter(core: &mut Core, conn: ConnId, code: &str, text: &str) {
    match core.conns.get(conn) {
        Some(Conn::InternalClient(_)) => refuse_internal_client(core, conn, code, text),
        _ => client_end::fail_client(core, conn, code, text),
    }
}

/// A queued query is dropped with the last one that waits for it; the result of a running one is dropped.
pub(crate) fn withdrawn(core: &mut Core, from: ShardId, id: u64) {
    let Some(conn) = core.conns.await_no_more(from, id) else { return };
    // It may have ended in the same event.
    let Some(Conn::InternalClient(internal_client)) = core.conns.get_mut(conn) else { return };
    internal_client.reply_to.retain(|login| (login.shard, login.id) != (from, id));
    if internal_client.reply_to.is_empty() && internal_client.position.is_some() {
        forget_internal_client(core, conn);
    }
}

/// No connection that listens is waited for any more. A server that is being made fresh for it goes back to the pool then.
pub(crate) fn withdraw_listener(core: &mut Core, conn: ConnId) {
    let is_queued = |waiting: &InternalClient| waiting.listens && waiting.position.is_some();
    if core.conns.find_internal_client(conn).is_some_and(is_queued) {
        forget_internal_client(core, conn);
    }
}

/// Takes a question out of the tables and the queue.
fn forget_internal_client(core: &mut Core, conn: ConnId) -> Option<Box<InternalClient>> {
    core.conns.find_internal_client(conn)?;
    let Some(Conn::InternalClient(internal_client)) = core.conns.remove(conn) else {
        return None;
    };
    if let (Some(position), Some(local_pool)) =
        (internal_client.position, core.local_pools.get_mut(internal_client.local_pool))
    {
        leave(local_pool, position);
    }
    for reply_to in &internal_client.reply_to {
        core.conns.await_no_more(reply_to.shard, reply_to.id);
    }
    Some(internal_client)
}

pub(crate) fn internal_client_waits(core: &mut Core, conn: ConnId) {
    let now_us = core.now.mono_us;
    let Some(internal_client) = core.conns.internal_client_mut(conn) else { return };
    let Some(local_pool) = core.local_pools.get_mut(internal_client.local_pool) else { return };
    internal_client.position = Some(local_pool.pool.queue.join(conn.0, now_us));
}

fn send_query(core: &mut Core, conn: ConnId, server_conn: ConnId) {
    let Some((internal_client, server)) = core.conns.serving(conn, server_conn) else {
        return;
    };
    if internal_client.listens {
        forget_internal_client(core, conn);
        return listener::attach(core, server_conn);
    }
    server.used_by = UsedBy::InternalQueries;
    server.phase = Phase::InternalQuery(InternalQuery::Ask(conn));
    let (protocol, query) = (&mut server.protocol, &internal_client.query);
    if let Some(at) = protocol.boundary() {
        core.outbox.write(server_conn, |out| {
            if query.simple {
                return protocol.send_internal_simple_query(at, out, SEARCH_PATH, &query.sql);
            }
            protocol.send_internal_select(at, out, SEARCH_PATH, &query.sql, &query.values);
        });
    }
}

/// `connect_query` was run again: as at login, its error is logged and changes nothing else.
fn connect_query_over(core: &mut Core, conn: ConnId, server_conn: ConnId, error: Option<&[u8]>) {
    if let Some(error) = error {
        log_query_error(core, server_conn, "exec_on_query", error);
    }
    send_query(core, conn, server_conn);
}

/// The internal clients that wait for a server of this pool.
pub(crate) fn internal_clients_of(core: &Core, local_pool: PoolId) -> Vec<ConnId> {
    core.conns.ids(
        |conn| matches!(conn, Conn::InternalClient(internal_client) if internal_client.local_pool == local_pool && internal_client.position.is_some()),
    )
}

/// The result of the query that runs on this server is still needed.
pub(crate) fn is_awaited(core: &Core, conn: ConnId) -> bool {
    core.conns.find_internal_client(conn).is_some_and(|internal_client| !internal_client.reply_to.is_empty())
}

fn leave(local_pool: &mut LocalPool, position: QueuePosition) {
    local_pool.pool.queue.leave(position);
}

pub(crate) fn no_answer(sqlstate: &str, text: &str) -> ServerQueryResult {
    ServerQueryResult::Failed { sqlstate: sqlstate.to_owned(), text: text.to_owned() }
}
