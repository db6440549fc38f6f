//! Server connections from the socket to the end of their login, and what a failure means for waiting clients.
//!
//! Owns the steps of a server's login and what its outcome does to the pool. Never queries anything for credentials: all that is known
//! is known when the server is opened, and one user's credentials never serve another. When one is opened or closed is `link`'s.

pub(crate) mod hosts;

use auth::{Credentials, Secret, ServerKeyCache};
use pool::OpenFor;
use session::{LoginContext, LoginStep, Parameters, ServerInfo, ServerLogin, ServerProtocol};
use settings::{SslMode, TargetSessionAttrs};
use telemetry::Level;
use wire::{encode, sqlstate};

use crate::close_reason::CloseReason;
use crate::core::Core;
use crate::effects::{Effect, TlsRequest};
use crate::greeting::ServerGreeting;
use crate::link::{
    checkout, dedicated, greet, internal_query, left_behind, opening, routing, server_end, standbys,
};
use crate::local_pools::local_pool::LocalPool;
use crate::log_format::excerpt;
use crate::server::{Phase, Server};
use crate::time::micros;
use crate::{Action, ConnId, ConnectFault};

/// How long a server may take to close after Terminate.
const GOODBYE_US: u64 = 1_000_000;

/// The socket is connected: request TLS, or send the startup packet.
pub(crate) fn server_connected(
    core: &mut Core,
    conn: ConnId,
    remote: Option<std::net::SocketAddr>,
    local: Option<std::net::SocketAddr>,
) {
    let Some(server) = core.server(conn) else { return };
    (server.remote, server.local) = (remote, local);
    if core.config.global.log_connections {
        let from = local.map_or_else(|| "unix socket".to_owned(), |local| local.to_string());
        core.log_server(conn, Level::Log, &format!("new connection to server (from {from})"));
    }
    if !asks_for_tls(core, conn) {
        begin_server_login(core, conn);
    }
}

/// Bytes of a server's login.
pub(crate) fn server_login_received(core: &mut Core, keys: &mut ServerKeyCache, conn: ConnId, bytes: &[u8]) {
    let Some(server) = core.conns.server_mut(conn) else { return };
    let Phase::Login(login) = &mut server.phase else { return };
    let mut context = LoginContext { entropy: &mut *core.entropy, keys };
    let step = login.receive(bytes, &mut context);
    server_login_goes_on(core, conn, step);
}

/// The answer to a server login's [`Action::Ask`].
pub(crate) fn server_login_answered(
    core: &mut Core,
    keys: &mut ServerKeyCache,
    conn: ConnId,
    answer: auth::TaskResult,
) {
    let Some(server) = core.conns.server_mut(conn) else { return };
    let Phase::Login(login) = &mut server.phase else { return };
    let mut context = LoginContext { entropy: &mut *core.entropy, keys };
    let step = login.answer(answer, &mut context);
    server_login_goes_on(core, conn, step);
}

fn server_login_goes_on(core: &mut Core, conn: ConnId, step: LoginStep) {
    match step {
        LoginStep::Send(bytes) => core.outbox.write(conn, |out| out.extend_from_slice(&bytes)),
        LoginStep::Ask(question) => core.act(Action::Ask { conn, question: Box::new(question) }),
        LoginStep::Identified => server_identified(core, conn),
        LoginStep::Ready(info, behind) => server_ready(core, conn, *info, &behind),
        LoginStep::Refused(body) => server_refused(core, conn, &body),
        LoginStep::Auth(fault) => {
            let text = format!("server login failed: {}", fault.message());
            core.log_server(conn, Level::Warning, &text);
            login_failed(core, conn, &text);
            if dedicated::dedicated_refused(core, conn, fault.sqlstate(), &text) {
                return;
            }
            fail_waiters(core, conn, fault.sqlstate(), &text);
            server_end::close_server(core, conn, CloseReason::LoginFailed);
        }
        // It would not read Terminate, because it is sending.
        LoginStep::Fault(fault) => {
            login_failed(core, conn, &fault.message());
            server_end::close_server(core, conn, CloseReason::Message(&fault.message()));
            server_end::let_go(core, conn);
        }
    }
}

/// The first ReadyForQuery: clients can get their greeting, and this server can be checked out.
fn server_ready(core: &mut Core, conn: ConnId, mut info: ServerInfo, behind: &[u8]) {
    let now = core.now;
    if let Some(body) = info.connect_query_error.take() {
        // PgBouncer's line has connect_query's older name.
        internal_query::log_query_error(core, conn, "exec_on_query", &body);
    }
    // A physical replication connection takes no query.
    if core.server(conn).is_some_and(|server| !server.takes_sql()) && closes_unwanted(core, conn, Some(&info))
    {
        return;
    }
    let Some(server) = core.conns.server_mut(conn) else { return };
    server.identity = info.identity;
    let Some(local_pool) = core.local_pools.get_mut(server.pool) else { return };
    // Another login may have found a newer primary while this one ran `connect_query`, or RECONNECT may have come.
    let left = server.identity.and_then(|identity| local_pool.reason_to_leave(identity));
    if let Some(reason) = left {
        server.close_when_free.set(reason);
    }
    if server.dedicated.is_some() {
        return dedicated::dedicated_ready(core, conn, &info, behind);
    }
    let says_of_entry = left.is_none() && !server.close_when_free.is_obsolete();
    let unknown = Parameters::unknown(&core.tracked);
    let default_params = info.tracked(&core.tracked, unknown);
    let pool_id = server.pool;
    let default_params = standbys::as_of_primary(core, pool_id, default_params);
    let Some(server) = core.conns.server_mut(conn) else { return };
    let Some(local_pool) = core.local_pools.get_mut(pool_id) else { return };
    if !local_pool.default_params.same(&default_params) {
        local_pool.default_params = default_params;
    }
    server.key.clone_from(&info.key);
    server.protocol =
        ServerProtocol::new(local_pool.default_params.clone()).with_catalog(local_pool.catalog());
    server.phase = Phase::AwaitingCancel;
    server.request_us = now.mono_us;
    if local_pool.pool.limits.assigns_at_login {
        server.keep_info(&info);
    }
    let backend = info.key.as_ref().map_or(0, |key| key.0);
    let is_first = local_pool.server_greeting.replace(ServerGreeting::new(info)).is_none();
    if local_pool.server_error.take().is_some() || !local_pool.has_live_server() {
        local_pool.pool.is_able_since(now.mono_us);
    }
    local_pool.pool.logged_in(OpenFor::Any, true, now.mono_us);
    if says_of_entry {
        standbys::note_login(core, conn);
    }
    core.log_server(conn, Level::Debug, &format!("login ok, backend {backend}"));
    if is_first && core.exporting.is_some() {
        core.effects.push(Effect::FirstServerReported(pool_id));
    }
    left_behind::leave_old_primary(core, pool_id);
    greet::send_greetings(core, pool_id);
    if !behind.is_empty() {
        internal_query::unlinked_server_received(core, conn, behind);
    }
    // A new server needs no reset.
    checkout::internal_query_over(core, conn);
    opening::serve_or_open(core, pool_id);
}

/// The server has said which cluster it belongs to: the login goes on if it is one that the entry's connections go to.
fn server_identified(core: &mut Core, conn: ConnId) {
    let Some(server) = core.server(conn) else { return };
    let Phase::Login(login) = &server.phase else { return };
    if let Some(body) = login.info().identity_error.clone() {
        internal_query::log_query_error(core, conn, "query for the system identifier", &body);
    }
    if closes_unwanted(core, conn, None) {
        return;
    }
    let Some(server) = core.server(conn) else { return };
    let Phase::Login(login) = &mut server.phase else { return };
    let step = login.identified();
    server_login_goes_on(core, conn, step);
}

/// The server is none that the entry's connections go to: it is closed, true, and the next host is tried. `info` is what it has reported, where its login
/// does not have that any more. One that closes anyway tells what it is all the same, unless it is of the time before RECONNECT.
fn closes_unwanted(core: &mut Core, conn: ConnId, info: Option<&ServerInfo>) -> bool {
    let now_us = core.now.mono_us;
    let Some(server) = core.conns.server(conn) else { return false };
    let Some(local_pool) = core.local_pools.get_mut(server.pool) else { return false };
    if server.close_when_free.is_before_reconnect() && local_pool.seeks_role() {
        server_end::close_server(core, conn, CloseReason::ClusterForgotten);
        return true;
    }
    let info = match (&server.phase, info) {
        (_, Some(info)) => info,
        (Phase::Login(login), None) => login.info(),
        _ => return false,
    };
    let global = &core.config.global;
    let Some(text) = local_pool.refuses((info, server.takes_sql()), &server.target, global, now_us) else {
        return false;
    };
    let pool_id = server.pool;
    login_failed(core, conn, &text);
    server_end::close_server(core, conn, CloseReason::Message(&text));
    // It may be the next primary, which a pool for reads has no use for.
    left_behind::leave_old_primary(core, pool_id);
    true
}

/// The server refused the login with an error.
fn server_refused(core: &mut Core, conn: ConnId, body: &[u8]) {
    let fields = wire::error::parse(body);
    let text = |field: Option<&[u8]>| String::from_utf8_lossy(field.unwrap_or_default()).into_owned();
    let (code, message) = (text(fields.code()), excerpt(text(fields.message())));
    let severity = excerpt(text(fields.severity()));
    let own_text = format!("server login failed: {severity} {message}");
    core.log_server(conn, Level::Warning, &own_text);
    login_failed(core, conn, &own_text);
    // A server that is starting, stopping or full will accept logins soon: waiting clients keep waiting.
    let passing = [sqlstate::CANNOT_CONNECT_NOW, sqlstate::TOO_MANY_CONNECTIONS, sqlstate::ADMIN_SHUTDOWN];
    if !passing.contains(&&*code) {
        let code = if code.is_empty() { sqlstate::CONNECTION_FAILURE.to_owned() } else { code };
        if dedicated::dedicated_refused(core, conn, &code, &own_text) {
            return;
        }
        fail_waiters(core, conn, &code, &message);
    }
    server_end::close_server(core, conn, CloseReason::Message(&message));
}

/// Every client that waits for a server of this pool gets the same error, unless another host is tried next.
fn fail_waiters(core: &mut Core, conn: ConnId, code: &str, text: &str) {
    let Some(server) = core.server(conn) else { return };
    let (local_pool, is_obsolete) = (server.pool, server.close_when_free.is_obsolete());
    routing::move_waiters(core, local_pool);
    if is_obsolete {
        return; // They wait for another.
    }
    if let Some(local_pool) = core.local_pools.get_mut(local_pool) {
        local_pool.note_refusal();
        if local_pool.has_untried_host() {
            return;
        }
    }
    // One that closes when its client is done with it (RECONNECT, a changed database) will serve none of them.
    let may_serve = |server: &mut Server| server.is_pooled() && !server.close_when_free.is_set();
    let servers = core.servers_of(local_pool);
    if servers.into_iter().any(|other| other != conn && core.server(other).is_some_and(may_serve)) {
        return;
    }
    let Some(local_pool) = core.local_pools.get(local_pool) else { return };
    let waiting: Vec<ConnId> = local_pool.waiting().collect();
    for waiter in waiting {
        internal_query::fail_waiter(core, waiter, code, text);
    }
}

/// The startup packet, in clear or inside TLS.
pub(crate) fn begin_server_login(core: &mut Core, conn: ConnId) {
    let own = dedicated::dedicated_parameters(core, conn);
    let Some(server) = core.conns.server_mut(conn) else { return };
    let Some(local_pool) = core.local_pools.get(server.pool) else { return };
    // What clients have shown of their passwords is kept where they log in to.
    let logged_in_to = local_pool.serves.standby().and_then(|standby| core.local_pools.of(standby.primary));
    let shown = logged_in_to.unwrap_or(local_pool);
    let stored = core.config.secrets.get(settings::truncate_identifier(&shown.user)).map(String::as_str);
    let stored = stored.or(shown.found.as_ref().map(|text| text.as_str()));
    let credentials = credentials(shown, stored.map(Secret::parse).as_ref());
    let connect_query = local_pool.database.connect_query.clone().filter(|_| server.takes_sql());
    let end_point = server.tls.as_ref().and_then(|tls| tls.end_point.clone());
    let asks = local_pool.database.target_session_attrs != TargetSessionAttrs::Any && server.takes_sql();
    let login = ServerLogin::new(&local_pool.user, &credentials, connect_query);
    let login = login.bound_to(end_point).asking_identity(asks);
    let packet = startup_packet(local_pool, &own);
    server.phase = Phase::Login(Box::new(login));
    core.outbox.write(conn, |out| out.extend_from_slice(&packet));
}

/// The socket could not be connected.
pub(crate) fn connect_failed(core: &mut Core, conn: ConnId, fault: &ConnectFault) {
    let (reason, detail) = match fault {
        ConnectFault::Lookup(detail) => ("server DNS lookup failed", detail),
        ConnectFault::Refused(detail) => ("connect failed", detail),
    };
    let text = format!("{reason}: {detail}");
    core.log_server(conn, Level::Warning, &text);
    login_failed(core, conn, &text);
    server_end::login_over(core, conn);
    let age = core.server(conn).map_or(0, |server| server.since_us);
    let age = core.age_s(age);
    if core.config.global.log_disconnections {
        core.log_server(conn, Level::Log, &format!("closing because: {reason} (age={age}s)"));
    }
    let Some(server) = core.conns.server_mut(conn) else { return };
    server.phase = Phase::Closing;
    if let Some(local_pool) = core.local_pools.get(server.pool) {
        server.leaves = true;
        local_pool.pool.server_leaves();
    }
}

/// The entry's parameters, and then those for this one connection: of two the server takes the later.
fn startup_packet(local_pool: &LocalPool, own: &[(String, String)]) -> Vec<u8> {
    let database = &local_pool.database;
    let mut parameters: Vec<(&[u8], &[u8])> =
        vec![(b"user", local_pool.user.as_bytes()), (b"database", database.dbname.as_bytes())];
    let optional = [
        ("client_encoding", &database.client_encoding),
        ("datestyle", &database.datestyle),
        ("timezone", &database.timezone),
        ("application_name", &database.application_name),
    ];
    for (name, value) in optional {
        if let Some(value) = value {
            parameters.push((name.as_bytes(), value.as_bytes()));
        }
    }
    parameters.extend(own.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes())));
    ServerLogin::startup(&parameters)
}

/// The socket to a server is connected: whether TLS is requested first.
fn asks_for_tls(core: &mut Core, conn: ConnId) -> bool {
    let asks = core.tls.settings.servers.mode != SslMode::Disable;
    let Some(server) = core.server(conn).filter(|server| asks && server.host().is_some()) else {
        return false;
    };
    server.phase = Phase::AskedTls;
    core.outbox.write(conn, encode::ssl_request);
    true
}

/// A server's answer to SSLRequest: one byte, and nothing may come behind it in clear.
pub(crate) fn server_answers_tls(core: &mut Core, conn: ConnId, bytes: &[u8]) {
    match bytes {
        [b'S'] => {
            let Some(server) = core.server(conn) else { return };
            let host = server.host().map(ToString::to_string).unwrap_or_default();
            server.phase = Phase::Handshake;
            core.tls.requests.push(TlsRequest::Connect { conn, host, is_node: false });
        }
        [b'N'] if core.tls.settings.servers.mode < SslMode::Require => begin_server_login(core, conn),
        [b'N'] => server_end::close_server(core, conn, CloseReason::TlsRefused),
        [b'S' | b'N', ..] => {
            server_end::close_server(core, conn, CloseReason::PlainBehindTls);
        }
        _ => server_end::close_server(core, conn, CloseReason::TlsAnswerUnexpected),
    }
}

/// Notes the reason; the first failure in a row counts as the beginning.
pub(crate) fn login_failed(core: &mut Core, conn: ConnId, text: &str) {
    let now_us = core.now.wall_us;
    let Some(local_pool) = core.server(conn).map(|server| server.pool) else { return };
    let Some(local_pool) = core.local_pools.get_mut(local_pool) else { return };
    let since_us = local_pool.server_error.as_ref().map_or(now_us, |error| error.since_us);
    let error = messages::ServerError { message: text.to_owned(), since_us, last_us: now_us };
    local_pool.server_error = Some(Box::new(error));
}

/// The entry's own password, a password that a directory confirmed, or the stored secret of the pool's user (`stored`),
/// which for SCRAM needs the keys of a client's exchange.
///
/// Where the entry forces a user, clients are other users: their credentials are not that user's, and sending them to the
/// server would reveal them. The `auth_user` of such an entry has a pool of its own.
fn credentials(local_pool: &LocalPool, stored: Option<&Secret>) -> Credentials {
    if local_pool.is_forced() {
        let own = local_pool.database.password.as_deref().map(Secret::parse);
        return Credentials::from_secret(own.as_ref().or(stored), None);
    }
    match &local_pool.password {
        Some(password) => Credentials::Plain(password.clone()),
        None => Credentials::from_secret(stored, local_pool.keys.as_ref()),
    }
}

/// Servers that take too long to close after Terminate, and logins that take too long.
pub(crate) fn check_server_deadline(core: &mut Core, conn: ConnId) {
    let (now_us, global) = (core.now.mono_us, &core.config.global);
    let connect_timeout_us = micros(global.server_connect_timeout);
    let Some(server) = core.conns.server(conn) else { return };
    let local_pool = core.local_pools.get(server.pool);
    let connect_us = local_pool.map_or(connect_timeout_us, |pool| pool.connect_limit_us(connect_timeout_us));
    let age_us = now_us.saturating_sub(server.since_us);
    let (cancels, unsettled_us) = (server.cancels, now_us.saturating_sub(server.request_us));
    match server.phase {
        Phase::Leaving { since_us } if now_us.saturating_sub(since_us) >= GOODBYE_US => {
            server_end::let_go(core, conn)
        }
        // It stopped in the middle of a notice: it can never be checked out again.
        Phase::AwaitingCancel
            if cancels == 0 && connect_timeout_us > 0 && unsettled_us >= connect_timeout_us =>
        {
            server_end::close_server(core, conn, CloseReason::Unclean);
            server_end::let_go(core, conn);
        }
        // PgBouncer's words: a timeout is what the login runs into, once there is a connection.
        Phase::Connecting if connect_us > 0 && age_us >= connect_us => {
            server_end::close_server(core, conn, CloseReason::ConnectFailed);
        }
        Phase::AskedTls | Phase::Handshake | Phase::Login(_)
            if connect_timeout_us > 0 && age_us >= connect_timeout_us =>
        {
            login_failed(core, conn, "connect timeout");
            server_end::close_server(core, conn, CloseReason::ConnectTimeout);
            server_end::let_go(core, conn);
        }
        _ => {}
    }
}
