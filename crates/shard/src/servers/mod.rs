//! Server connections: opening, logging in, closing, and what a failure means for waiting clients.
//!
//! Owns when a connection attempt is made and what its end does to the pool. Checkout is `checkout`'s.

pub(crate) mod credentials;
pub(crate) mod dedicated;
mod errors;
pub(crate) mod hosts;
pub(crate) mod unsolicited;

use auth::Secret;
use messages::LimitOf;
use pool::{OpenFor, Permit};
use session::{LoginContext, LoginStep, Parameters, ServerInfo, ServerLogin, ServerProtocol};
use telemetry::Level;
use wire::{encode, sqlstate};

use crate::close_reason::CloseReason;
use crate::connections::Conn;
use crate::core::Core;
use crate::greeting::ServerGreeting;
use crate::local_pools::local_pool::LocalPool;
use crate::local_pools::table::PoolId;
use crate::log_format::excerpt;
use crate::server::{InternalQuery, Phase, Server, UsedBy};
use crate::servers::credentials::credentials;
use crate::state::ShardState;
use crate::time::micros;
use crate::{Action, ConnId, ConnectFault};

/// How long a server may take to close after Terminate.
const GOODBYE_US: u64 = 1_000_000;

impl ShardState {
    /// Idle servers go to waiting clients; for the others one is opened, if every limit allows it.
    pub(crate) fn serve_or_open(&mut self, pool_id: PoolId) {
        let now_us = self.core.now.mono_us;
        self.serve_waiters(pool_id);
        // Both kinds of connection may be opened at a time; the older waiter's comes first.
        for _ in 0..2 {
            let Some(local_pool) = self.core.local_pools.get_mut(pool_id) else { return };
            let keeps_minimum = local_pool.keeps_minimum();
            let Some(open_for) = local_pool.pool.next_to_open(now_us, keeps_minimum) else { return };
            match local_pool.pool.take_permit(open_for, now_us) {
                Permit::Taken { reserve } => self.open(pool_id, open_for, reserve),
                _ if self.make_room(pool_id) => return,
                Permit::PoolFull => return self.core.request_permit(pool_id),
                Permit::DatabaseFull => return self.evict(pool_id, LimitOf::Database),
                Permit::UserFull => return self.evict(pool_id, LimitOf::User),
            }
        }
    }

    /// The permit is taken: connect.
    fn open(&mut self, pool_id: PoolId, open_for: OpenFor, reserve: bool) {
        let conn = self.core.conns.reserve();
        let now = self.core.now;
        let tracked = &self.core.tracked;
        let Some(local_pool) = self.core.local_pools.get_mut(pool_id) else { return };
        let target = local_pool.next_target(&self.core.config.global);
        let server = Server {
            id: self.core.process.next_id(),
            pool: pool_id,
            phase: Phase::Connecting,
            protocol: ServerProtocol::new(Parameters::unknown(tracked)),
            dedicated: None,
            internal_error: None,
            key: None,
            unsent: false,
            unasked_bytes: 0,
            paused: false,
            send_buffer_full: false,
            cancels: 0,
            used_by: UsedBy::Nothing,
            names_as_they_are: false,
            close_when_free: None,
            since_us: now.mono_us,
            since_wall_us: now.wall_us,
            request_us: now.mono_us,
            query_us: now.mono_us,
            transaction_us: now.mono_us,
            target: target.clone(),
            remote: None,
            local: None,
            tls: None,
        };
        self.core.conns.place(conn, Conn::Server(Box::new(server)));
        if open_for == OpenFor::Dedicated {
            self.core.dedicate(conn);
        }
        if reserve {
            self.core.log_server(conn, Level::Log, "taking connection from reserve_pool");
        }
        self.core.connect(conn, target);
        self.report_server(pool_id, true);
    }

    /// The socket is connected: request TLS, or send the startup packet.
    pub(crate) fn server_connected(
        &mut self,
        conn: ConnId,
        remote: Option<std::net::SocketAddr>,
        local: Option<std::net::SocketAddr>,
    ) {
        let Some(server) = self.core.server(conn) else { return };
        (server.remote, server.local) = (remote, local);
        if self.core.config.global.log_connections {
            let from = local.map_or_else(|| "unix socket".to_owned(), |local| local.to_string());
            self.core.log_server(conn, Level::Log, &format!("new connection to server (from {from})"));
        }
        if !self.asks_for_tls(conn) {
            self.core.begin_server_login(conn);
        }
    }

    /// Bytes of a server's login.
    pub(crate) fn server_login_received(&mut self, conn: ConnId, bytes: &[u8]) {
        let Some(server) = self.core.conns.server_mut(conn) else { return };
        let Phase::Login(login) = &mut server.phase else { return };
        let mut context = LoginContext { entropy: &mut *self.core.entropy, keys: &mut self.server_keys };
        let step = login.receive(bytes, &mut context);
        self.server_login_goes_on(conn, step);
    }

    /// The answer to a server login's [`Action::Ask`].
    pub(crate) fn server_login_answered(&mut self, conn: ConnId, answer: auth::TaskResult) {
        let Some(server) = self.core.conns.server_mut(conn) else { return };
        let Phase::Login(login) = &mut server.phase else { return };
        let mut context = LoginContext { entropy: &mut *self.core.entropy, keys: &mut self.server_keys };
        let step = login.answer(answer, &mut context);
        self.server_login_goes_on(conn, step);
    }

    fn server_login_goes_on(&mut self, conn: ConnId, step: LoginStep) {
        match step {
            LoginStep::Send(bytes) => self.core.outbox.write(conn, |out| out.extend_from_slice(&bytes)),
            LoginStep::Ask(question) => self.core.act(Action::Ask { conn, question: Box::new(question) }),
            LoginStep::Ready(info, behind) => self.server_ready(conn, *info, &behind),
            LoginStep::Refused(body) => self.server_refused(conn, &body),
            LoginStep::Auth(fault) => {
                let text = format!("server login failed: {}", fault.message());
                self.core.log_server(conn, Level::Warning, &text);
                self.core.login_failed(conn, &text);
                if self.dedicated_refused(conn, fault.sqlstate(), &text) {
                    return;
                }
                self.fail_waiters(conn, fault.sqlstate(), &text);
                self.close_server(conn, CloseReason::LoginFailed);
            }
            // It would not read Terminate, because it is sending.
            LoginStep::Fault(fault) => {
                self.core.login_failed(conn, &fault.message());
                self.close_server(conn, CloseReason::Message(&fault.message()));
                self.core.let_go(conn);
            }
        }
    }

    /// The first ReadyForQuery: clients can get their greeting, and this server can be checked out.
    fn server_ready(&mut self, conn: ConnId, mut info: ServerInfo, behind: &[u8]) {
        let now = self.core.now;
        if let Some(body) = info.connect_query_error.take() {
            // PgBouncer's line has connect_query's older name.
            self.core.log_query_error(conn, "exec_on_query", &body);
        }
        let Some(server) = self.core.conns.server_mut(conn) else { return };
        if server.dedicated.is_some() {
            return self.dedicated_ready(conn, &info, behind);
        }
        let Some(local_pool) = self.core.local_pools.get_mut(server.pool) else { return };
        let unknown = Parameters::unknown(&self.core.tracked);
        let default_params = info.tracked(&self.core.tracked, unknown);
        if !local_pool.default_params.same(&default_params) {
            local_pool.default_params = default_params;
        }
        server.key.clone_from(&info.key);
        server.protocol =
            ServerProtocol::new(local_pool.default_params.clone()).with_catalog(local_pool.catalog());
        server.phase = Phase::AwaitingCancel;
        server.request_us = now.mono_us;
        let backend = info.key.as_ref().map_or(0, |key| key.0);
        local_pool.server_greeting = Some(ServerGreeting::new(info));
        local_pool.server_error = None;
        local_pool.pool.logged_in(OpenFor::Any, true, now.mono_us);
        let pool_id = server.pool;
        self.core.log_server(conn, Level::Debug, &format!("login ok, backend {backend}"));
        self.send_greetings(pool_id);
        if !behind.is_empty() {
            self.server_received(conn, behind, false);
        }
        // A new server needs no reset.
        self.internal_query_over(conn);
        self.serve_or_open(pool_id);
    }

    /// The server refused the login with an error.
    fn server_refused(&mut self, conn: ConnId, body: &[u8]) {
        let fields = wire::error::parse(body);
        let text = |field: Option<&[u8]>| String::from_utf8_lossy(field.unwrap_or_default()).into_owned();
        let (code, message) = (text(fields.code()), excerpt(text(fields.message())));
        let severity = excerpt(text(fields.severity()));
        let own_text = format!("server login failed: {severity} {message}");
        self.core.log_server(conn, Level::Warning, &own_text);
        self.core.login_failed(conn, &own_text);
        // A server that is starting, stopping or full will accept logins soon: waiting clients keep waiting.
        let passing =
            [sqlstate::CANNOT_CONNECT_NOW, sqlstate::TOO_MANY_CONNECTIONS, sqlstate::ADMIN_SHUTDOWN];
        if !passing.contains(&&*code) {
            let code = if code.is_empty() { sqlstate::CONNECTION_FAILURE.to_owned() } else { code };
            if self.dedicated_refused(conn, &code, &own_text) {
                return;
            }
            self.fail_waiters(conn, &code, &message);
        }
        self.close_server(conn, CloseReason::Message(&message));
    }

    /// Every client that waits for a server of this pool gets the same error.
    fn fail_waiters(&mut self, conn: ConnId, code: &str, text: &str) {
        let Some(local_pool) = self.core.server(conn).map(|server| server.pool) else { return };
        // One that closes when its client is done with it (RECONNECT, a changed database) will serve none of them.
        let may_serve = |server: &mut Server| server.is_pooled() && server.close_when_free.is_none();
        let servers = self.core.servers_of(local_pool);
        if servers.into_iter().any(|other| other != conn && self.core.server(other).is_some_and(may_serve)) {
            return;
        }
        let Some(local_pool) = self.core.local_pools.get(local_pool) else { return };
        let waiting: Vec<ConnId> = ordinary(local_pool).collect();
        for waiter in waiting {
            self.fail_waiter(waiter, code, text);
        }
    }

    /// Closes a server connection in any phase. An idle one gets Terminate first, and its end of file is awaited, so
    /// that its backend is gone before another takes its place.
    pub(crate) fn close_server(&mut self, conn: ConnId, reason: CloseReason<'_>) {
        let Some(server) = self.core.server(conn) else { return };
        let is_free =
            server.protocol.status().is_some() || matches!(server.phase, Phase::Connecting | Phase::Login(_));
        // In the middle of its client's message Terminate would be read as a part of that.
        let at_boundary = server.protocol.boundary().is_some();
        self.close_server_that(is_free && at_boundary, conn, reason);
    }

    /// The same where the caller knows whether the server would read Terminate.
    pub(crate) fn close_server_that(&mut self, listens: bool, conn: ConnId, reason: CloseReason<'_>) {
        let Some(server) = self.core.server(conn) else { return };
        if matches!(server.phase, Phase::Leaving { .. } | Phase::Closing) {
            return;
        }
        let (since_us, pool_id) = (server.since_us, server.pool);
        let idle = matches!(server.phase, Phase::Idle);
        let can_hear = !matches!(server.phase, Phase::Connecting | Phase::AskedTls | Phase::Handshake);
        let internal_client = match server.phase {
            Phase::InternalQuery(
                InternalQuery::Ask(internal_client)
                | InternalQuery::Freshen(internal_client)
                | InternalQuery::ConnectQuery(internal_client),
            ) => Some(internal_client),
            _ => None,
        };
        let age = self.core.age_s(since_us);
        if self.core.config.global.log_disconnections {
            self.core.log_server(conn, Level::Log, &format!("closing because: {reason} (age={age}s)"));
        }
        self.core.login_over(conn, false);
        if let Some(local_pool) = self.core.local_pools.get_mut(pool_id) {
            if idle {
                local_pool.pool.remove_idle(conn.0);
            }
            if local_pool.pool.end_check(conn.0) {
                self.freed.pool(pool_id);
            }
        }
        let now_us = self.core.now.mono_us;
        let Some(server) = self.core.server(conn) else { return };
        if can_hear && listens {
            server.phase = Phase::Leaving { since_us: now_us };
            self.resume_server(conn);
            self.core.outbox.write(conn, encode::terminate);
        } else {
            server.phase = Phase::Closing;
            self.core.act(Action::Close { conn });
        }
        if let Some(internal_client) = internal_client {
            self.query_lost(internal_client);
        }
    }

    /// The server's end of file: expected, or the end of its client too.
    pub(crate) fn server_hung_up(&mut self, conn: ConnId) {
        let Some(server) = self.core.server(conn) else { return };
        match server.phase {
            Phase::Leaving { .. } => {
                server.phase = Phase::Closing;
                self.core.act(Action::Close { conn });
            }
            Phase::Closing => {}
            _ => self.server_fault(conn, "server conn crashed?"),
        }
    }

    /// The socket is gone: its permits are free.
    pub(crate) fn server_closed(&mut self, pool_id: PoolId) {
        if let Some(local_pool) = self.core.local_pools.get_mut(pool_id) {
            local_pool.pool.closed();
        }
        self.permit_is_free(pool_id);
        self.paused_progress();
    }

    /// Servers that take too long to close after Terminate, and logins that take too long.
    pub(crate) fn check_server_deadline(&mut self, conn: ConnId) {
        let (now_us, global) = (self.core.now.mono_us, &self.core.config.global);
        let connect_timeout_us = micros(global.server_connect_timeout);
        let Some(server) = self.core.server(conn) else { return };
        let age_us = now_us.saturating_sub(server.since_us);
        let (cancels, unsettled_us) = (server.cancels, now_us.saturating_sub(server.request_us));
        match server.phase {
            Phase::Leaving { since_us } if now_us.saturating_sub(since_us) >= GOODBYE_US => {
                self.core.let_go(conn)
            }
            // It stopped in the middle of a notice: it can never be checked out again.
            Phase::AwaitingCancel
                if cancels == 0 && connect_timeout_us > 0 && unsettled_us >= connect_timeout_us =>
            {
                self.close_server(conn, CloseReason::Unclean);
                self.core.let_go(conn);
            }
            // PgBouncer's words: a timeout is what the login runs into, once there is a connection.
            Phase::Connecting if connect_timeout_us > 0 && age_us >= connect_timeout_us => {
                self.close_server(conn, CloseReason::ConnectFailed);
            }
            Phase::AskedTls | Phase::Handshake | Phase::Login(_)
                if connect_timeout_us > 0 && age_us >= connect_timeout_us =>
            {
                self.core.login_failed(conn, "connect timeout");
                self.close_server(conn, CloseReason::ConnectTimeout);
                self.core.let_go(conn);
            }
            _ => {}
        }
    }
}

impl Core {
    /// The startup packet, in clear or inside TLS.
    pub(crate) fn begin_server_login(&mut self, conn: ConnId) {
        let own = self.dedicated_parameters(conn);
        let Some(server) = self.conns.server_mut(conn) else { return };
        let Some(local_pool) = self.local_pools.get(server.pool) else { return };
        let stored =
            self.config.secrets.get(settings::truncate_identifier(&local_pool.user)).map(String::as_str);
        let stored = stored.or(local_pool.found.as_ref().map(|text| text.as_str()));
        let credentials = credentials(local_pool, stored.map(Secret::parse).as_ref());
        let connect_query = local_pool.database.connect_query.clone().filter(|_| server.takes_sql());
        let end_point = server.tls.as_ref().and_then(|tls| tls.end_point.clone());
        let login = ServerLogin::new(&local_pool.user, &credentials, connect_query).bound_to(end_point);
        let packet = startup_packet(local_pool, &own);
        server.phase = Phase::Login(Box::new(login));
        self.outbox.write(conn, |out| out.extend_from_slice(&packet));
    }

    /// The socket could not be connected.
    pub(crate) fn connect_failed(&mut self, conn: ConnId, fault: &ConnectFault) {
        let (reason, detail) = match fault {
            ConnectFault::Lookup(detail) => ("server DNS lookup failed", detail),
            ConnectFault::Refused(detail) => ("connect failed", detail),
        };
        let text = format!("{reason}: {detail}");
        self.log_server(conn, Level::Warning, &text);
        self.login_failed(conn, &text);
        self.login_over(conn, false);
        let age = self.server(conn).map_or(0, |server| server.since_us);
        let age = self.age_s(age);
        if self.config.global.log_disconnections {
            self.log_server(conn, Level::Log, &format!("closing because: {reason} (age={age}s)"));
        }
        if let Some(server) = self.server(conn) {
            server.phase = Phase::Closing;
        }
    }

    /// A query of the settings met an error that is no reason to close.
    pub(crate) fn log_query_error(&mut self, conn: ConnId, query: &str, body: &[u8]) {
        let fields = wire::error::parse(body);
        let text = |field: Option<&[u8]>| String::from_utf8_lossy(field.unwrap_or_default()).into_owned();
        let (severity, message) = (excerpt(text(fields.severity())), excerpt(text(fields.message())));
        let line = format!("error while executing {query}: {severity}: {message}");
        self.log_server(conn, Level::Error, &line);
    }

    /// A login ended; the pool decides when the next is tried.
    fn login_over(&mut self, conn: ConnId, well: bool) {
        let now_us = self.now.mono_us;
        let Some(server) = self.conns.server_mut(conn) else { return };
        if !server.is_logging_in() {
            return;
        }
        let open_for = server.opened_for();
        if let Some(local_pool) = self.local_pools.get_mut(server.pool) {
            local_pool.pool.logged_in(open_for, well, now_us);
            if !well {
                local_pool.leave_failing_host();
            }
        }
        self.unbind(conn);
    }

    /// The end of file of a server that is closing has come: close the socket now.
    pub(crate) fn let_go(&mut self, conn: ConnId) {
        let Some(server) = self.server(conn) else { return };
        if matches!(server.phase, Phase::Leaving { .. }) {
            server.phase = Phase::Closing;
            self.act(Action::Close { conn });
        }
    }

    /// Why a free server should not be used any more.
    pub(crate) fn reason_to_close(&self, conn: ConnId) -> Option<CloseReason<'static>> {
        let server = self.conns.server(conn)?;
        self.reason_to_close_in(server, self.local_pools.get(server.pool)?)
    }

    /// The same where the server and its pool are at hand.
    #[inline(always)]
    pub(crate) fn reason_to_close_in(
        &self,
        server: &Server,
        local_pool: &LocalPool,
    ) -> Option<CloseReason<'static>> {
        if server.close_when_free.is_some() {
            return server.close_when_free;
        }
        if server.protocol.is_tainted() {
            return Some(CloseReason::StateUnknown);
        }
        let lifetime_us = micros(self.config.server_lifetime(&local_pool.database));
        let age_us = self.now.mono_us.saturating_sub(server.since_us);
        // An unused server serves the client that waits for it, however short its lifetime.
        let may_go = server.used_by != UsedBy::Nothing || lifetime_us > 0 && local_pool.pool.queue.is_empty();
        if age_us >= lifetime_us && may_go {
            return Some(CloseReason::LifetimeOver);
        }
        let oversized = local_pool.pool.is_oversized(0) && local_pool.pool.queue.is_empty();
        if oversized && local_pool.pool.is_oversized(self.leaving_servers(server.pool)) {
            return Some(CloseReason::PoolTooLarge);
        }
        if self.is_permit_requested(local_pool) {
            return Some(CloseReason::Evicted);
        }
        local_pool.pool.paused.then_some(CloseReason::Paused)
    }
}

impl Core {
    /// How many servers of this pool are closing and still have their permit. Looks at every connection.
    pub(crate) fn leaving_servers(&self, pool_id: PoolId) -> u32 {
        let leaving = |conn: &Conn| matches!(conn, Conn::Server(server) if server.pool == pool_id && matches!(server.phase, Phase::Leaving { .. } | Phase::Closing));
        u32::try_from(self.conns.iter().filter(|(_, conn)| leaving(conn)).count()).unwrap_or(u32::MAX)
    }
}

/// The clients that wait for any server of the pool.
pub(crate) fn ordinary(local_pool: &LocalPool) -> impl Iterator<Item = ConnId> + '_ {
    local_pool.pool.queue.shared().map(|waiter| ConnId(waiter.client))
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
