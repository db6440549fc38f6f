//! Import of what the shards of the process being taken over export: pools, clients, servers, and pairs of both.
//!
//! The opposite of `export`. What comes is in force at once and whatever the limits are, because it was admitted before;
//! from then on it is like any other. Never refuses a client for a field that this version does not know.

use std::net::SocketAddr;
use std::sync::Arc;

use auth::ScramKeys;
use messages::Role;
use session::{
    Catalog, Listening, Parameters, ServerIdentity, ServerInfo, ServerProtocol, SessionSettings, Tracked,
};
use settings::PoolMode;
use wire::{encode, sqlstate};

use crate::attempt::Attempt;
use crate::cancel_key::Key;
use crate::client::Client;
use crate::close_reason::CloseReason;
use crate::close_when_free::CloseWhenFree;
use crate::connections::Conn;
use crate::console_session::ConsoleSession;
use crate::core::Core;
use crate::deferred_begin::DeferredBegin;
use crate::effects::Effect;
use crate::greeting::ServerGreeting;
use crate::link::{
    backpressure, cancel_keys, checkout, client_end, fair, first_message, greet, listener, opening,
    parameters, permits, pins, quotas, relay, routing, server_end, standbys, storage,
};
use crate::local_pools::local_pool::LocalPool;
use crate::local_pools::table::PoolId;
use crate::server::{IdentityCheck, Server, UsedBy};
use crate::takeover::fields::{Fields, pair};
use crate::takeover::{Export, Import, cluster_text, field};
use crate::transfer::export::target_text;
use crate::transfer::statements;
use crate::{Action, ConnId, Peer, client, pending, pools, server};

/// Statement numbers of one shard and one process; the next process counts from the next multiple.
pub(crate) const STATEMENTS_SHIFT: u32 = 32;
/// The same for processes.
pub(crate) const GENERATION_SHIFT: u32 = 40;

pub(crate) fn import(core: &mut Core, what: Import) {
    match what {
        Import::Pool { state } => {
            import_pool(core, &state);
            forward_pool(core, Export::Pool { state });
        }
        Import::ServerOpened { state } => {
            if let Some(local_pool) =
                pool_named(core, &state).and_then(|local_pool| core.local_pools.get_mut(local_pool))
            {
                local_pool.pool.add_external();
            }
            forward_pool(core, Export::ServerOpened { state });
        }
        Import::ServerClosed { state } => {
            if let Some(local_pool) = pool_named(core, &state) {
                external_closed(core, local_pool);
            }
        }
        Import::Client { conn, state } => import_client(core, conn, &state),
        Import::Server { conn, state } => {
            if import_server(core, conn, &state).is_some() {
                if has_partial_reports(&state) {
                    mark_reported_unknown(core, conn);
                }
                checkout::internal_query_over(core, conn);
            }
        }
        Import::Linked { client, client_state, server, server_state } => {
            import_pair(core, client, &client_state, server, &server_state);
        }
        Import::Gone => takeover_ended(core),
    }
}

/// The local pool that a state names, created if it is new here; None if its database is not configured any more.
fn pool_named(core: &mut Core, state: &[u8]) -> Option<PoolId> {
    let fields = Fields::read(state)?;
    let (name, user) = (fields.text(field::DATABASE)?, fields.text(field::USER)?);
    let database = core.config.database(name)?;
    let pool_id = pools::local_pool(core, name, user, &database);
    match fields.text(field::HOST) {
        None => Some(pool_id),
        host => core.local_pools.find_on(&(name.into(), user.into()), host),
    }
}

/// This process is being taken over itself by now.
fn forward_pool(core: &mut Core, what: Export) {
    if core.exporting.is_some() {
        core.act(Action::Export(Box::new(what)));
    }
}

fn import_pool(core: &mut Core, state: &[u8]) {
    let (Some(pool_id), Some(fields)) = (pool_named(core, state), Fields::read(state)) else { return };
    let unknown = Parameters::unknown(&core.tracked);
    let Some(local_pool) = core.local_pools.get_mut(pool_id) else { return };
    for _ in 0..fields.small(field::SERVERS).unwrap_or(0) {
        local_pool.pool.add_external();
    }
    if let Some(size) = fields.small(field::POOL_SIZE) {
        local_pool.pool.import_size(size);
    }
    local_pool.keys = read_keys(&fields).or(local_pool.keys.take());
    if let Some(password) = fields.text(field::PASSWORD) {
        local_pool.password = Some(auth::Zeroizing::new(password.to_owned()));
    }
    if let Some(found) = fields.text(field::FOUND) {
        local_pool.found = Some(auth::Zeroizing::new(found.to_owned()));
    }
    import_cluster(local_pool, &fields);
    let pairs = fields.all(field::HELLO).filter_map(pair);
    let parameters: Vec<_> = pairs.map(|(name, value)| (name.to_vec(), value.to_vec())).collect();
    if !parameters.is_empty() && local_pool.server_greeting.is_none() {
        let info = ServerInfo { parameters, ..ServerInfo::default() };
        local_pool.default_params = info.tracked(&core.tracked, unknown);
        local_pool.server_greeting = Some(ServerGreeting::new(info));
        greet::send_greetings(core, pool_id);
    }
}

/// Which cluster its servers belong to. What this process has found itself counts.
fn import_cluster(local_pool: &LocalPool, fields: &Fields<'_>) {
    let is_same = match fields.text(field::CLUSTER) {
        Some(text) => text == cluster_text(&local_pool.database),
        None => fields.text(field::TARGET) == Some(&*target_text(&local_pool.database)),
    };
    if let Some(system) = fields.number(field::SYSTEM).filter(|_| is_same) {
        let newest = fields.small(field::NEWEST_TIMELINE).filter(|timeline| *timeline > 0);
        _ = local_pool.pool.database().cluster.remember(system, newest);
    }
}

fn external_closed(core: &mut Core, pool_id: PoolId) {
    let Some(local_pool) = core.local_pools.get_mut(pool_id) else { return };
    if local_pool.pool.external_closed() {
        core.report_server(pool_id, false);
        permits::permit_is_free(core, pool_id);
        pending::paused_progress(core);
    }
}

fn takeover_ended(core: &mut Core) {
    let local_pools: Vec<(PoolId, u32)> =
        core.local_pools.iter().map(|(index, local_pool)| (index, local_pool.pool.external())).collect();
    for (local_pool, count) in local_pools {
        (0..count).for_each(|_| external_closed(core, local_pool));
    }
}

/// A client without a server continues in its phase.
fn import_client(core: &mut Core, conn: ConnId, state: &[u8]) {
    let Some(phase) = insert_client(core, conn, state) else { return };
    core.act(Action::LoginComplete { conn });
    core.try_export(conn);
    match &*phase {
        "greeting" => greet_or_wait(core, conn),
        "admin" | "stats" => core.effects.push(Effect::ConsoleContinues(conn)),
        _ => {
            if core.client(conn).is_some_and(|client| !client.request.held.is_empty()) {
                first_message::idle_client_received_held(core, conn);
            }
        }
    }
}

fn greet_or_wait(core: &mut Core, conn: ConnId) {
    let now_us = core.now.mono_us;
    let Some(client) = core.conns.client_mut(conn) else { return };
    let Some(pool_id) = client.pool else { return };
    let Some(local_pool) = core.local_pools.get_mut(pool_id) else { return };
    if local_pool.server_greeting.is_some() && !local_pool.pool.limits.assigns_at_login {
        return greet::send_greeting(core, conn);
    }
    let position = fair::join(client, local_pool, &core.pool_registry, conn, now_us);
    client.phase = client::Phase::AwaitingGreeting(position);
    opening::serve_or_open(core, pool_id);
}

fn import_pair(core: &mut Core, conn: ConnId, state: &[u8], server_conn: ConnId, server_state: &[u8]) {
    if import_server(core, server_conn, server_state).is_none() {
        // Its transaction is lost with its server: the client gets an error.
        if insert_client(core, conn, state).is_some() {
            client_end::fail_client(core, conn, sqlstate::ADMIN_SHUTDOWN, "database configuration changed");
        }
        return;
    }
    if insert_client(core, conn, state).is_none() {
        return server_end::close_server(core, server_conn, CloseReason::ClientLost);
    }
    core.act(Action::LoginComplete { conn });
    let config = Arc::clone(&core.config);
    let local_pool = core.server(server_conn).map(|server| server.pool);
    let Some(mode) =
        local_pool.and_then(|local_pool| Some(core.local_pools.get(local_pool)?.pool.limits.mode))
    else {
        return;
    };
    let Some((client, server)) = core.conns.linked(conn, server_conn) else { return };
    client.phase = client::Phase::Linked(server_conn);
    client.server_used_last = Some(server_conn.0);
    let own = std::mem::replace(&mut client.parameters, server.protocol.parameters.clone());
    if core.has_storage_quotas {
        storage::keep_own(&core.tracked, &mut client.parameters, &own);
    }
    if let Some(local_pool) = core.local_pools.get_mut(server.pool) {
        fair::begin(client, server, local_pool, &core.pool_registry, core.now.mono_us);
    }
    if has_partial_reports(server_state) {
        server.close_when_free.set(CloseReason::ParametersUnknown);
    }
    server.phase = server::Phase::Linked(conn);
    server.names_as_they_are = client.passes_names(&config, mode);
    let is_split =
        core.local_pools.get(server.pool).is_some_and(|local_pool| local_pool.serves.split().is_some());
    match core.local_pools.get(server.pool).and_then(|local_pool| local_pool.serves.standby()) {
        Some(_) => client.routed.send_to_standby(server.pool, None, false),
        None if is_split => {
            client.routed.keeps_primary();
            server.protocol.watch_schema();
        }
        None => {}
    }
    if let (Some(fields), Some(local_pool)) = (Fields::read(server_state), core.local_pools.get(server.pool))
    {
        let [is_kept, is_settled] = [field::KEPT_BY_SEQUENCES, field::CALLS_SEQUENCES]
            .map(|number| fields.number(number).unwrap_or_default() != 0);
        server.protocol.import_linked_sequences(client.id, local_pool.keeps_sequences, (is_kept, is_settled));
    }
    relay::send_held(core, conn, server_conn);
    checkout::release(core, server_conn);
    core.try_export(conn);
    if core.administration.is_suspended() && core.client(conn).is_some_and(|client| client.server().is_some())
    {
        backpressure::pause_client(core, conn);
        backpressure::pause_server(core, server_conn);
    }
}

/// Makes a client of a state, in phase Idle (or Console); the answer is the phase that it was in.
fn insert_client(core: &mut Core, conn: ConnId, state: &[u8]) -> Option<String> {
    let local_pool = pool_named(core, state);
    let catalog = local_pool
        .and_then(|local_pool| core.local_pools.get(local_pool))
        .map(LocalPool::catalog)
        .unwrap_or_default();
    let fields = Fields::read(state);
    let made = fields.and_then(|fields| Some((client_of(core, &fields, catalog)?, fields)));
    let Some((mut client, fields)) = made else {
        core.act(Action::Close { conn });
        return None;
    };
    let phase = fields.text(field::PHASE).unwrap_or_default().to_owned();
    client.phase = match &*phase {
        "admin" => client::Phase::Console(Box::new(ConsoleSession::new(Role::Admin))),
        "stats" => client::Phase::Console(Box::new(ConsoleSession::new(Role::Stats))),
        _ => client::Phase::Idle,
    };
    let is_console = matches!(client.phase, client::Phase::Console { .. });
    let key = client.cancel_key.clone();
    let pinned = fields.number(field::PINNED);
    let has_written = fields.number(field::WROTE) != Some(0);
    core.conns.place(conn, Conn::Client(Box::new(client)));
    // It cannot be cancelled if a client of this process has such a key by chance.
    cancel_keys::register(core, conn, key);
    match local_pool {
        Some(local_pool) => {
            client_end::count_imported(core, conn, local_pool);
            quotas::enter_anyway(core, conn);
            routing::note_imported(core, conn, has_written);
            if let Some(since_us) = pinned {
                pins::import(core, conn, since_us);
            }
            listener::client_came(core, conn);
        }
        None if !is_console => {
            client_end::fail_client(core, conn, sqlstate::ADMIN_SHUTDOWN, "database removed");
            return None;
        }
        None => {}
    }
    Some(phase)
}

/// Makes an unlinked server of a state. None if it cannot be used: it gets Terminate and is closed.
fn import_server(core: &mut Core, conn: ConnId, state: &[u8]) -> Option<()> {
    let pool_id = pool_named(core, state);
    let made = pool_id.and_then(|local_pool| server_of(core, local_pool, &Fields::read(state)?));
    let Some(server) = made else {
        core.outbox.write(conn, encode::terminate);
        core.act(Action::Close { conn });
        return None;
    };
    if let Some(local_pool) = core.local_pools.get_mut(server.pool) {
        local_pool.pool.external_imported();
    }
    // What is to be closed is of another time, and says nothing of the entry's hosts now.
    let says_of_entry = !server.close_when_free.is_set();
    core.conns.place(conn, Conn::Server(Box::new(server)));
    if says_of_entry {
        standbys::note_login(core, conn);
    }
    core.act(Action::LoginComplete { conn });
    Some(())
}

fn client_of(core: &mut Core, fields: &Fields<'_>, catalog: Catalog) -> Option<Client> {
    let peer = read_peer(fields.text(field::PEER)?)?;
    let login_user = Arc::from(fields.text(field::LOGIN_USER)?);
    let mut client = Client::new(fields.number(field::ID)?, peer, &core.tracked, login_user, core.now);
    client.parameters = read_parameters(core, fields, field::PARAMETER);
    statements::read_sql_statements(core, fields, &mut client.parameters);
    let startup = read_parameters(core, fields, field::STARTUP);
    client.startup = fields.bytes(field::STARTUP).is_some().then_some(startup);
    let key = fields.bytes(field::LONG_CANCEL_KEY).or(fields.bytes(field::CANCEL_KEY));
    client.cancel_key = Key::of(key?)?;
    client.since_us = fields.number(field::SINCE).unwrap_or(core.now.mono_us);
    client.since_wall_us = fields.number(field::SINCE_WALL).unwrap_or(core.now.wall_us);
    client.request_us = fields.number(field::REQUEST).unwrap_or(core.now.mono_us);
    client.request.held = fields.bytes(field::HELD).unwrap_or_default().to_vec();
    client.listening = read_listening(fields);
    client.sequences_at = fields.number(field::SEQUENCES).unwrap_or_default();
    client.deferred_begin = fields.number(field::DEFERRED_BEGIN).map(|since_us| DeferredBegin { since_us });
    client.request.statements = statements::read_client_statements(core, fields, catalog);
    Some(client)
}

/// What the client listened on in the other process, and what it has not been delivered.
fn read_listening(fields: &Fields<'_>) -> Option<Box<Listening>> {
    let mut listening = Listening::default();
    let channels = fields.all(field::LISTENING).filter_map(|channel| std::str::from_utf8(channel).ok());
    channels.for_each(|channel| listening.add(channel));
    // What that process would have kept fits here as well.
    let _ = listening.queue(fields.bytes(field::NOTIFICATIONS).unwrap_or_default());
    (!listening.is_empty()).then(|| Box::new(listening))
}

/// What a server's session may hold.
fn import_session(protocol: &mut ServerProtocol, is_followed: bool, fields: &Fields<'_>) {
    let is_set = |number: u16| fields.number(number).unwrap_or_default() != 0;
    if let Some(client) = fields.number(field::UNNAMED) {
        protocol.import_unnamed(client);
    }
    protocol.follow_session(is_followed);
    protocol.import_sequences(fields.number(field::SEQUENCES));
    if is_set(field::SESSION_UNKNOWN) {
        protocol.forget_session();
    }
    if is_set(field::UNKNOWN_SETTINGS) {
        protocol.import_unknown_settings();
    }
    if is_set(field::UNLISTED_SETTINGS) {
        protocol.import_unlisted_settings();
    }
    statements::read_named_statements(fields, protocol);
}

/// Whether the server is to be closed when it is free: because it is none of the entry's any more, or is something else than the entry says.
fn close_when_free(
    left: Option<CloseReason<'static>>,
    must_close: bool,
    is_unknown: bool,
    local_pool: &LocalPool,
) -> CloseWhenFree {
    match (left, must_close) {
        (Some(reason), _) => reason.into(),
        (None, true) if is_unknown => CloseReason::ClusterForgotten.into(),
        (None, true) => CloseReason::ConfigurationChanged.into(),
        // Greetings are made from a server's login, and this server logged in to the other process.
        (None, false) if local_pool.server_greeting.is_none() => CloseReason::UnknownHere.into(),
        (None, false) => CloseWhenFree::default(),
    }
}

/// What the server was at its login. An older process says of a primary only on which timeline that was.
fn read_identity(fields: &Fields<'_>) -> Option<ServerIdentity> {
    let (system, timeline) = (fields.number(field::OWN_SYSTEM), fields.small(field::TIMELINE));
    let system = system.or(timeline.map(|_| fields.number(field::SYSTEM).unwrap_or_default()));
    system.map(|system| ServerIdentity { system, timeline })
}

fn server_of(core: &mut Core, pool_id: PoolId, fields: &Fields<'_>) -> Option<Server> {
    let status = Server::status_of(fields.number(field::STATUS)?);
    let doubtful = fields.number(field::DOUBTFUL) != Some(0);
    let mut parameters = read_parameters(core, fields, field::PARAMETER);
    statements::read_sql_statements(core, fields, &mut parameters);
    let catalog = core.local_pools.get(pool_id)?.catalog();
    let mut protocol = ServerProtocol::imported(parameters, status, doubtful).with_catalog(catalog);
    statements::read_server_statements(core, fields, catalog, &mut protocol.statements)?;
    let local_pool = core.local_pools.get_mut(pool_id)?;
    local_pool.keeps_sequences |= fields.number(field::KEEPS_SEQUENCES).unwrap_or_default() != 0;
    import_session(&mut protocol, local_pool.pool.limits.follows_sessions, fields);
    let is_same = fields.text(field::TARGET) == Some(&*target_text(&local_pool.database));
    let is_session = u64::from(local_pool.pool.limits.mode == PoolMode::Session);
    let mode_differs = fields.number(field::SESSION_MODE).is_some_and(|session| session != is_session);
    let must_close = !is_same || mode_differs || fields.number(field::CLOSE) != Some(0);
    import_cluster(local_pool, fields);
    let identity = read_identity(fields);
    let left = identity.filter(|_| is_same).and_then(|identity| local_pool.reason_to_leave(identity));
    // One that was to be closed there may be of the time before RECONNECT, which interrupts no session.
    let was_to_close = fields.number(field::CLOSE) != Some(0);
    let left = left.filter(|reason| *reason == CloseReason::LeftBehind || !was_to_close);
    let identity_check =
        identity_check(&core.tracked, local_pool, &protocol.parameters, identity, must_close);
    let is_due = identity_check == IdentityCheck::Due;
    if left.is_some() || is_due {
        protocol.end_requests(); // No client keeps it for its session, or before it has said what it is.
    }
    let time = |number: u16| fields.number(number).unwrap_or(core.now.mono_us);
    let (remote, local) = read_addresses(fields);
    Some(Server {
        id: fields.number(field::ID)?,
        pool: pool_id,
        phase: server::Phase::AwaitingCancel,
        protocol,
        listens: false,
        dedicated: None,
        info: None,
        internal_error: None,
        attempt: Attempt::default(),
        identity,
        identity_check,
        heard_us: core.now.mono_us,
        key: key_of(fields),
        unsent: false,
        leaves: false,
        was_asked: false,
        position_unknown: false,
        unasked_bytes: 0,
        paused: false,
        reader_since_us: None,
        send_buffer_full: false,
        cancels: 0,
        used_by: if fields.number(field::LENT) == Some(0) { UsedBy::Nothing } else { UsedBy::Client },
        turn: None,
        names_as_they_are: false,
        has_ended_client: false,
        close_when_free: close_when_free(left, must_close, is_due && identity.is_none(), local_pool),
        since_us: time(field::SINCE),
        since_wall_us: fields.number(field::SINCE_WALL).unwrap_or(core.now.wall_us),
        request_us: time(field::REQUEST),
        query_us: time(field::QUERY),
        transaction_us: time(field::TRANSACTION),
        target: local_pool.target_of(fields.small(field::PLACE), &core.config.global),
        remote,
        local,
        tls: None,
    })
}

/// What the server is, it says before its next request, if the entry has got a target with the file of this process, or if it was promoted and the other process
/// had no time to ask.
fn identity_check(
    tracked: &Tracked,
    local_pool: &LocalPool,
    reported: &Parameters,
    identity: Option<ServerIdentity>,
    must_close: bool,
) -> IdentityCheck {
    let is_due = match identity {
        None => must_close,
        Some(identity) => {
            identity.timeline.is_none()
                && local_pool.serves.standby().is_none()
                && parameters::is_in_recovery(tracked, reported) == Some(false)
        }
    };
    if is_due && local_pool.seeks_role() { IdentityCheck::Due } else { IdentityCheck::NotNeeded }
}

/// What cancels the server's queries.
fn key_of(fields: &Fields<'_>) -> Option<(u32, Vec<u8>)> {
    let secret = fields.bytes(field::BACKEND_SECRET).unwrap_or_default().to_vec();
    fields.small(field::BACKEND).map(|process_id| (process_id, secret))
}

/// The addresses of both ends; none of a unix socket.
fn read_addresses(fields: &Fields<'_>) -> (Option<SocketAddr>, Option<SocketAddr>) {
    match fields.text(field::PEER).and_then(read_peer) {
        Some(Peer::Inet { remote, local }) => (Some(remote), Some(local)),
        _ => (None, None),
    }
}

/// The next client of this server has all its parameters set.
fn mark_reported_unknown(core: &mut Core, server_conn: ConnId) {
    let Some(server) = core.conns.server_mut(server_conn) else { return };
    let server_greeting =
        core.local_pools.get(server.pool).and_then(|local_pool| local_pool.server_greeting.as_ref());
    let reported = server_greeting.into_iter().flat_map(|server_greeting| &server_greeting.info.parameters);
    let named: Vec<usize> = reported.filter_map(|(name, _)| core.tracked.settable(name)).collect();
    let now = &mut server.protocol.parameters;
    for position in (0..core.tracked.count()).filter(|position| !core.tracked.is_read_only(*position)) {
        if now.value(position).is_some() || named.contains(&position) {
            now.doubt(position);
        }
    }
}

fn read_parameters(core: &Core, fields: &Fields<'_>, number: u16) -> Parameters {
    let mut parameters = Parameters::unknown(&core.tracked);
    let mut others = Vec::new();
    for (name, value) in fields.all(number).filter_map(pair) {
        let Ok(value) = std::str::from_utf8(value) else { continue };
        match (core.tracked.position(name), std::str::from_utf8(name)) {
            (Some(position), _) => parameters.set(position, value),
            (None, Ok(name)) => others.push((name.to_owned(), value.to_owned())),
            (None, Err(_)) => {}
        }
    }
    parameters.set_others(SessionSettings::new(others));
    parameters
}

/// The state of a server is of an older process, which ignored reports in bytes other than ASCII.
fn has_partial_reports(server_state: &[u8]) -> bool {
    Fields::read(server_state).is_none_or(|fields| fields.number(field::NON_ASCII).is_none())
}

fn read_keys(fields: &Fields<'_>) -> Option<ScramKeys> {
    Some(ScramKeys {
        client_key: fields.bytes(field::CLIENT_KEY)?.try_into().ok()?,
        server_key: fields.bytes(field::SERVER_KEY)?.try_into().ok()?,
        salt: fields.bytes(field::SALT)?.to_vec(),
        iterations: fields.small(field::ITERATIONS)?,
    })
}

fn read_peer(text: &str) -> Option<Peer> {
    let mut words = text.split(' ');
    match words.next()? {
        "inet" => {
            Some(Peer::Inet { remote: words.next()?.parse().ok()?, local: words.next()?.parse().ok()? })
        }
        "unix" => Some(Peer::Unix {
            process_id: words.next()?.parse().ok()?,
            user_id: words.next()?.parse().ok()?,
            port: words.next()?.parse().ok()?,
        }),
        _ => None,
    }
}
