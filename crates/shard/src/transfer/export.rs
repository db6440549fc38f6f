//! Export of all connections to the shards of another process: when a connection may be sent, and with which state.
//!
//! A connection is exported only at rest: nothing is owed, no frame is half read or half passed on. So no half-parsed
//! state is sent; a running query is answered here first. A linked client and server (an open transaction, a session)
//! are exported together. TLS sessions cannot be exported: such connections are served here until they end.

use auth::ScramKeys;
use settings::{Database, PoolMode, TargetSessionAttrs};
use wire::backend::Status;
use wire::sqlstate;

use crate::close_reason::CloseReason;
use crate::connections::Conn;
use crate::console_session::PendingStatement;
use crate::core::Core;
use crate::link::{client_end, opening, pins, server_end, storage};
use crate::local_pools::local_pool::LocalPool;
use crate::local_pools::table::PoolId;
use crate::pools::standbys;
use crate::server::UsedBy;
use crate::takeover::fields::{FieldsOut, paired};
use crate::takeover::{Export, ExportState, cluster_text, field};
use crate::transfer::statements;
use crate::{Action, ConnId, Peer, client, pending, server, suspension};

/// How long a server that cannot be exported is kept for clients that cannot be exported either.
const SPARED_US: u64 = 1_000_000;

/// A process takes over (or asks again whether anything is left).
pub(crate) fn begin_export(core: &mut Core, round: u32) {
    if let Some(exporting) = &mut core.exporting {
        exporting.round = round;
        return;
    }
    core.exporting = Some(ExportState { round, ..ExportState::default() });
    standbys::keep_none(core);
    // RESUME goes to the other process, which is not suspended: running requests would never end here.
    let stood_still = suspension::end_suspension(core);
    let states: Vec<_> = core.local_pools.values().map(|local_pool| pool_state(local_pool, true)).collect();
    for state in states {
        send_export(core, Export::Pool { state });
    }
    export_all(core);
    if stood_still {
        // Connections that cannot be exported are served here.
        let local_pools = core.local_pools.ids();
        local_pools.into_iter().for_each(|index| opening::serve_or_open(core, index));
    }
}

/// The other process has died before it had everything: what is left is served here again.
pub(crate) fn abort_export(core: &mut Core) {
    let sockets = core.exporting.take().map_or(0, |exporting| exporting.sockets);
    core.act(Action::Export(Box::new(Export::Kept { sockets })));
}

/// At the end of every event: exports connections that are at rest.
pub(crate) fn export_idle(core: &mut Core) {
    let Some(exporting) = &mut core.exporting else { return };
    for conn in std::mem::take(&mut exporting.rested) {
        export_client(core, conn);
    }
    let idle =
        |local_pool: &LocalPool| local_pool.pool.queue.is_empty() && !local_pool.pool.idle().is_empty();
    let local_pools = core.local_pools.iter().filter(|(_, local_pool)| idle(local_pool));
    let servers: Vec<u32> =
        local_pools.flat_map(|(_, local_pool)| local_pool.pool.idle()).map(|idle| idle.server).collect();
    for server in servers {
        export_idle_server(core, ConnId(server));
    }
    report_if_empty(core);
}

/// Looks at every connection: at the beginning, and at every tick for those that nothing else shows.
pub(crate) fn export_all(core: &mut Core) {
    for local_pool in core.local_pools.values_mut() {
        local_pool.pool.limits.min_pool_size = 0; // The minimum is the next process's to keep.
    }
    for conn in core.conns.ids(|conn| matches!(conn, Conn::Client(_))) {
        export_client(core, conn);
    }
}

fn report_if_empty(core: &mut Core) {
    let Some(exporting) = &mut core.exporting else { return };
    let (round, sockets) = (exporting.round, exporting.sockets);
    if core.conns.is_empty() && exporting.told_empty != Some((round, sockets)) {
        exporting.told_empty = Some((round, sockets));
        send_export(core, Export::Empty { round, sockets });
    }
}

/// A server was opened, or has gone, while its permit counts in the next process.
pub(crate) fn send_server_count(core: &mut Core, local_pool: PoolId, opened: bool) {
    let Some(local_pool) = core.local_pools.get(local_pool) else { return };
    let state = pool_state(local_pool, false);
    send_export(core, if opened { Export::ServerOpened { state } } else { Export::ServerClosed { state } });
}

/// The first server of a pool has logged in since the pool was exported: the next process has to know what servers report,
/// which is what RESET goes back to.
pub(crate) fn send_reported(core: &mut Core, local_pool: PoolId) {
    let Some(local_pool) = core.local_pools.get(local_pool) else { return };
    let mut out = FieldsOut::new();
    out.text(field::DATABASE, &local_pool.database_name);
    out.text(field::USER, &local_pool.user);
    put_host(&mut out, local_pool);
    put_reported(&mut out, local_pool);
    send_export(core, Export::Pool { state: out.into_bytes() });
}

/// Exports a client if it is at rest, with its server if it has one.
fn export_client(core: &mut Core, conn: ConnId) {
    // It may have disconnected since it was noted.
    let Some(client) = core.conns.find_client(conn) else { return };
    if client.tls.is_some()
        || client.dedicated_request.is_some()
        || client.send_buffer_full
        || client.ignored_bytes > 0
        || client.refusal.is_some()
        || client.request.statements.as_ref().is_some_and(|names| !names.is_settled())
    {
        return;
    }
    let phase = match &client.phase {
        client::Phase::Idle => Some("idle"),
        client::Phase::Waiting(_) => Some("waiting"),
        client::Phase::AwaitingGreeting(_) => Some("greeting"),
        client::Phase::Console(session) if session.has_state() => return end_console(core, conn),
        client::Phase::Console(session) if session.role == messages::Role::Admin => Some("admin"),
        client::Phase::Console(_) => Some("stats"),
        client::Phase::PinRefused(_) => return pins::end_refused(core, conn),
        client::Phase::Linked(server) => return export_pair(core, conn, *server),
        _ => None,
    };
    let Some(phase) = phase else { return };
    let Some(state) = client_state(core, conn, phase) else { return };
    let Some(client) = core.conns.client(conn) else { return };
    if let client::Phase::Waiting(position) | client::Phase::AwaitingGreeting(position) = client.phase
        && let Some(local_pool) = core.local_pools.of_mut(client.served_by())
    {
        local_pool.pool.queue.leave(position);
    }
    client_end::forget_client(core, conn);
    export_conn(core, conn, state, None, false);
}

/// A console client that waits for an answer gets it first; one that has prepared statements is closed.
fn end_console(core: &mut Core, conn: ConnId) {
    let Some(client) = core.conns.client(conn) else { return };
    if let client::Phase::Console(session) = &client.phase
        && matches!(session.asked, PendingStatement::Nothing)
    {
        client_end::fail_client(core, conn, sqlstate::ADMIN_SHUTDOWN, "another process has taken over");
    }
}

fn export_pair(core: &mut Core, conn: ConnId, server_conn: ConnId) {
    let Some((_, server)) = core.conns.linked(conn, server_conn) else { return };
    if server.protocol.boundary().is_none() || server.send_buffer_full || server.unsent || server.cancels > 0
    {
        return;
    }
    if server.dedicated.is_some() || server.tls.is_some() || !server.protocol.is_exportable() {
        return;
    }
    let Some(client_state) = client_state(core, conn, "linked") else { return };
    let Some(server_state) = server_state(core, server_conn) else { return };
    let link = core.exporting.as_mut().map(|exporting| {
        exporting.links += 1;
        exporting.links
    });
    client_end::forget_client(core, conn);
    export_conn(core, conn, client_state, link, false);
    export_server(core, server_conn, server_state, link);
}

fn export_idle_server(core: &mut Core, conn: ConnId) {
    let Some(server) = core.conns.server(conn) else { return };
    if server.tls.is_some() {
        // It serves clients that stay here. Its permit counts in the next process too, where clients may wait for it.
        let is_idle = core.now.mono_us.saturating_sub(server.request_us) >= SPARED_US;
        if is_idle || core.local_pools.get(server.pool).is_none_or(|local_pool| local_pool.clients == 0) {
            server_end::close_server(core, conn, CloseReason::TakenOver);
        }
        return;
    }
    let Some(state) = server_state(core, conn) else { return };
    if let Some(server) = core.conns.server(conn)
        && let Some(local_pool) = core.local_pools.get_mut(server.pool)
    {
        local_pool.pool.remove_idle(conn.0);
    }
    export_server(core, conn, state, None);
}

fn export_server(core: &mut Core, conn: ConnId, state: Vec<u8>, link: Option<u64>) {
    let Some(server) = core.conns.server(conn) else { return };
    let local_pool = server.pool;
    export_conn(core, conn, state, link, true);
    if let Some(local_pool) = core.local_pools.get_mut(local_pool) {
        local_pool.pool.closed();
    }
    pending::paused_progress(core);
}

fn export_conn(core: &mut Core, conn: ConnId, state: Vec<u8>, link: Option<u64>, is_server: bool) {
    if let Some(Conn::Client(client)) = core.conns.remove(conn)
        && let Some(prefix) = client.cancel_key_prefix
    {
        core.pool_registry.forget_cancel_key(prefix);
    }
    if let Some(exporting) = &mut core.exporting {
        exporting.sockets += 1;
    }
    send_export(core, Export::Socket { conn, state, link, is_server });
}

fn send_export(core: &mut Core, what: Export) {
    core.act(Action::Export(Box::new(what)));
}

fn client_state(core: &mut Core, conn: ConnId, phase: &str) -> Option<Vec<u8>> {
    if core.has_storage_quotas {
        storage::give_back(core, conn);
    }
    let core = &*core;
    let client = core.conns.client(conn)?;
    let mut out = FieldsOut::new();
    if let Some(local_pool) = core.local_pools.of(client.pool) {
        out.text(field::DATABASE, &local_pool.database_name);
        out.text(field::USER, &local_pool.user);
    }
    out.number(field::ID, client.id);
    out.text(field::LOGIN_USER, &client.login_user);
    out.text(field::PHASE, phase);
    out.text(field::PEER, &peer_text(client.peer));
    put_parameters(core, &mut out, field::PARAMETER, &client.parameters);
    statements::put_sql_statements(core, &mut out, &client.parameters);
    if let Some(startup) = &client.startup {
        put_parameters(core, &mut out, field::STARTUP, startup);
    }
    if let Some(names) = &client.request.statements {
        statements::put_client_statements(core, &mut out, names);
    }
    out.bytes(field::CANCEL_KEY, &client.cancel_key.short());
    out.bytes(field::LONG_CANCEL_KEY, client.cancel_key.bytes());
    out.number(field::SINCE, client.since_us);
    out.number(field::SINCE_WALL, client.since_wall_us);
    out.number(field::REQUEST, client.request_us);
    out.bytes(field::HELD, &client.request.held);
    if let Some(listening) = &client.listening {
        listening.channels().for_each(|channel| out.text(field::LISTENING, channel));
        out.bytes(field::NOTIFICATIONS, listening.queued());
    }
    out.number(field::SEQUENCES, client.sequences_at);
    out.number(field::WROTE, u64::from(client.routed.has_written()));
    if let Some(begin) = client.deferred_begin {
        out.number(field::DEFERRED_BEGIN, begin.since_us);
    }
    if let Some(since_us) = client.pin.as_ref().and_then(|pin| pin.since_us()) {
        out.number(field::PINNED, since_us);
    }
    Some(out.into_bytes())
}

fn put_parameters(core: &Core, out: &mut FieldsOut, number: u16, parameters: &session::Parameters) {
    for position in 0..core.tracked.count() {
        if let Some(value) = parameters.value(position) {
            let name = core.tracked.name(position).as_bytes();
            out.bytes(number, &paired(name, value.as_bytes()));
        }
    }
    for (name, value) in parameters.others().iter() {
        out.bytes(number, &paired(name.as_bytes(), value.as_bytes()));
    }
}

fn server_state(core: &Core, conn: ConnId) -> Option<Vec<u8>> {
    let server = core.conns.server(conn)?;
    let local_pool = core.local_pools.get(server.pool)?;
    let mut out = FieldsOut::new();
    out.text(field::DATABASE, &local_pool.database_name);
    out.text(field::USER, &local_pool.user);
    put_host(&mut out, local_pool);
    out.text(field::TARGET, &target_text(&local_pool.database));
    if let (Some(remote), Some(local)) = (server.remote, server.local) {
        out.text(field::PEER, &peer_text(Peer::Inet { remote, local }));
    }
    out.number(field::ID, server.id);
    put_parameters(core, &mut out, field::PARAMETER, &server.protocol.parameters);
    statements::put_sql_statements(core, &mut out, &server.protocol.parameters);
    statements::put_named_statements(&mut out, &server.protocol);
    out.number(field::NON_ASCII, 1);
    out.number(field::SESSION_UNKNOWN, server.protocol.keeps_client().into());
    out.number(field::UNKNOWN_SETTINGS, server.protocol.has_unknown_settings().into());
    out.number(field::UNLISTED_SETTINGS, server.protocol.has_unlisted_settings().into());
    if let Some(client) = server.protocol.sequences_owner() {
        out.number(field::SEQUENCES, client);
    }
    out.number(field::KEEPS_SEQUENCES, local_pool.keeps_sequences.into());
    out.number(field::CALLS_SEQUENCES, server.protocol.has_settled_sequences().into());
    if let Some(identity) = server.identity {
        out.number(field::OWN_SYSTEM, identity.system);
    }
    if let Some(timeline) = server.timeline() {
        out.number(field::TIMELINE, timeline.into());
    }
    if let Some(place) = local_pool.place_of(&server.target, &core.config.global) {
        out.number(field::PLACE, place as u64);
    }
    put_cluster(&mut out, local_pool);
    out.number(field::KEPT_BY_SEQUENCES, server.protocol.session_pins().has(session::Pin::Sequences).into());
    statements::put_server_statements(core, &mut out, &server.protocol.statements);
    if let Some(client) = server.protocol.unnamed_owner() {
        out.number(field::UNNAMED, client);
    }
    if let Some((process_id, secret)) = &server.key {
        out.number(field::BACKEND, (*process_id).into());
        out.bytes(field::BACKEND_SECRET, secret);
    }
    out.number(field::SINCE, server.since_us);
    out.number(field::SINCE_WALL, server.since_wall_us);
    out.number(field::REQUEST, server.request_us);
    out.number(field::QUERY, server.query_us);
    out.number(field::TRANSACTION, server.transaction_us);
    out.number(field::STATUS, status_number(server.protocol.status()?));
    out.number(field::LENT, u64::from(server.used_by != UsedBy::Nothing));
    out.number(
        field::DOUBTFUL,
        (server.protocol.is_tainted() || server.protocol.has_query_in_pipeline()).into(),
    );
    out.number(field::SESSION_MODE, (local_pool.pool.limits.mode == PoolMode::Session).into());
    out.number(field::CLOSE, server.close_when_free.is_set().into());
    Some(out.into_bytes())
}

/// What new servers of a pool need; with `whole`, all of it.
fn pool_state(local_pool: &LocalPool, whole: bool) -> Vec<u8> {
    let mut out = FieldsOut::new();
    out.text(field::DATABASE, &local_pool.database_name);
    out.text(field::USER, &local_pool.user);
    put_host(&mut out, local_pool);
    if whole {
        out.number(field::SERVERS, (local_pool.pool.open() + local_pool.pool.external()).into());
        if let Some(keys) = &local_pool.keys {
            put_keys(&mut out, keys);
        }
        if let Some(password) = &local_pool.password {
            out.text(field::PASSWORD, password);
        }
        if let Some(found) = &local_pool.found {
            out.text(field::FOUND, found);
        }
        if let Some(size) = local_pool.pool.shared().sizing().target() {
            out.number(field::POOL_SIZE, size.into());
        }
        put_reported(&mut out, local_pool);
        put_cluster(&mut out, local_pool);
        out.text(field::TARGET, &target_text(&local_pool.database));
    }
    out.into_bytes()
}

/// The host of a pool for reads.
fn put_host(out: &mut FieldsOut, local_pool: &LocalPool) {
    if let Some(host) = local_pool.host() {
        out.text(field::HOST, host);
    }
}

/// Which cluster the servers of a pool belong to, as far as that is known.
fn put_cluster(out: &mut FieldsOut, local_pool: &LocalPool) {
    if let Some((system, timeline)) = local_pool.pool.database().cluster.known() {
        out.number(field::SYSTEM, system);
        out.number(field::NEWEST_TIMELINE, timeline.into());
        out.text(field::CLUSTER, &cluster_text(&local_pool.database));
    }
}

/// What the servers of a pool report at login.
fn put_reported(out: &mut FieldsOut, local_pool: &LocalPool) {
    let reported = local_pool.server_greeting.iter().flat_map(|greeting| &greeting.info.parameters);
    for (name, value) in reported {
        out.bytes(field::HELLO, &paired(name, value));
    }
}

fn put_keys(out: &mut FieldsOut, keys: &ScramKeys) {
    out.bytes(field::CLIENT_KEY, &keys.client_key);
    out.bytes(field::SERVER_KEY, &keys.server_key);
    out.bytes(field::SALT, &keys.salt);
    out.number(field::ITERATIONS, keys.iterations.into());
}

/// The host, database and user of an entry's servers: servers with another text do not belong to it.
pub(crate) fn target_text(database: &Database) -> String {
    let Database { host, port, dbname, user, connect_query, .. } = database;
    let target = database.target_session_attrs;
    // An older process compares the same text where there is neither a list of ports nor a target.
    match target {
        TargetSessionAttrs::Any => format!("({host:?}, {port}, {dbname:?}, {user:?}, {connect_query:?})"),
        target => format!("({host:?}, {port}, {dbname:?}, {user:?}, {connect_query:?}, {target:?})"),
    }
}

fn peer_text(peer: Peer) -> String {
    match peer {
        Peer::Inet { remote, local } => format!("inet {remote} {local}"),
        Peer::Unix { process_id, user_id, port } => format!("unix {process_id} {user_id} {port}"),
    }
}

fn status_number(status: Status) -> u64 {
    match status {
        Status::Idle => 0,
        Status::InTransaction => 1,
        Status::Failed => 2,
    }
}

impl server::Server {
    /// What a status number stands for.
    pub(crate) fn status_of(number: u64) -> Status {
        match number {
            0 => Status::Idle,
            1 => Status::InTransaction,
            _ => Status::Failed,
        }
    }
}
