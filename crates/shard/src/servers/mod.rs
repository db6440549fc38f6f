//! Server connections: opening, logging in, closing, and what a failure means for those who wait.
//!
//! Owns when a connection attempt is made and what its end does to the pool. Who gets a free server is `lend`'s.

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

use crate::log_format::excerpt;
use crate::login::greeting::Met;
use crate::server::{Errand, Lent, Phase, Server};
use crate::servers::credentials::credentials;
use crate::state::{Conn, Part, State};
use crate::time::micros;
use crate::{Action, ConnId, ConnectFault};

/// How long a server that was told goodbye may take to let go.
const GOODBYE_US: u64 = 1_000_000;

impl State {
    /// Idle servers go to those who wait; for those who are left one is opened, if every limit allows it.
    pub(crate) fn serve_or_open(&mut self, part_index: usize) {
        let now_us = self.now.mono_us;
        self.serve_waiters(part_index);
        // Both kinds of connection may be opened at a time; the older waiter's comes first.
        for _ in 0..2 {
            let Some(part) = self.parts.get_mut(part_index) else { return };
            let keeps_minimum = part.keeps_minimum();
            let Some(whom) = part.pool.next_to_open(now_us, keeps_minimum) else { return };
            match part.pool.take_permit(whom, now_us) {
                Permit::Taken { reserve } => self.open(part_index, whom, reserve),
                _ if self.make_room(part_index) => return,
                Permit::PoolFull => return self.want_from_neighbours(part_index),
                Permit::DatabaseFull => return self.evict(part_index, LimitOf::Database),
                Permit::UserFull => return self.evict(part_index, LimitOf::User),
            }
        }
    }

    /// The permit is taken: connect.
    fn open(&mut self, part_index: usize, whom: OpenFor, reserve: bool) {
        let conn = self.reserve();
        let now = self.now;
        let tracked = &self.tracked;
        let Some(part) = self.parts.get_mut(part_index) else { return };
        let target = part.next_target(&self.config.global);
        let server = Server {
            id: self.process.next_id(),
            pool: part_index,
            phase: Phase::Connecting,
            protocol: ServerProtocol::new(Parameters::unknown(tracked)),
            dedicated: None,
            internal_error: None,
            key: None,
            unsent: false,
            unasked_bytes: 0,
            paused: false,
            clogged: false,
            cancels: 0,
            lent: Lent::Never,
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
        if let Some(slot) = self.conns.get_mut(conn.0 as usize) {
            *slot = Conn::Server(Box::new(server));
        }
        if whom == OpenFor::Dedicated {
            self.dedicate(conn);
        }
        if reserve {
            self.log_server(conn, Level::Log, "taking connection from reserve_pool");
        }
        self.connect(conn, target);
        self.tell_of_server(part_index, true);
    }

    /// The socket is connected: ask for TLS, or say who we are.
    pub(crate) fn server_connected(
        &mut self,
        conn: ConnId,
        remote: Option<std::net::SocketAddr>,
        local: Option<std::net::SocketAddr>,
    ) {
        let Some(server) = self.server(conn) else { return };
        (server.remote, server.local) = (remote, local);
        if self.config.global.log_connections {
            let from = local.map_or_else(|| "unix socket".to_owned(), |local| local.to_string());
            self.log_server(conn, Level::Log, &format!("new connection to server (from {from})"));
        }
        if !self.asks_for_tls(conn) {
            self.greet_server(conn);
        }
    }

    /// The startup packet, in clear or inside TLS.
    pub(crate) fn greet_server(&mut self, conn: ConnId) {
        let own = self.dedicated_parameters(conn);
        let Some(Conn::Server(server)) = self.conns.get_mut(conn.0 as usize) else { return };
        let Some(part) = self.parts.get(server.pool) else { return };
        let stored = self.config.secrets.get(settings::cut_name(&part.user)).map(String::as_str);
        let stored = stored.or(part.found.as_ref().map(|text| text.as_str()));
        let credentials = credentials(part, stored.map(Secret::parse).as_ref());
        let connect_query = part.database.connect_query.clone().filter(|_| server.takes_sql());
        let end_point = server.tls.as_ref().and_then(|tls| tls.end_point.clone());
        let login = ServerLogin::new(&part.user, &credentials, connect_query).bound_to(end_point);
        let packet = startup_packet(part, &own);
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

    /// Bytes of a server's login.
    pub(crate) fn server_login_received(&mut self, conn: ConnId, bytes: &[u8]) {
        let Some(Conn::Server(server)) = self.conns.get_mut(conn.0 as usize) else { return };
        let Phase::Login(login) = &mut server.phase else { return };
        let mut context = LoginContext { entropy: &mut *self.entropy, keys: &mut self.server_keys };
        let step = login.receive(bytes, &mut context);
        self.server_login_goes_on(conn, step);
    }

    /// What a server's login asked is answered.
    pub(crate) fn server_login_answered(&mut self, conn: ConnId, answer: auth::Answer) {
        let Some(Conn::Server(server)) = self.conns.get_mut(conn.0 as usize) else { return };
        let Phase::Login(login) = &mut server.phase else { return };
        let mut context = LoginContext { entropy: &mut *self.entropy, keys: &mut self.server_keys };
        let step = login.answer(answer, &mut context);
        self.server_login_goes_on(conn, step);
    }

    fn server_login_goes_on(&mut self, conn: ConnId, step: LoginStep) {
        match step {
            LoginStep::Send(bytes) => self.outbox.write(conn, |out| out.extend_from_slice(&bytes)),
            LoginStep::Ask(question) => self.act(Action::Ask { conn, question: Box::new(question) }),
            LoginStep::Ready(info, behind) => self.server_ready(conn, *info, &behind),
            LoginStep::Refused(body) => self.server_refused(conn, &body),
            LoginStep::Auth(fault) => {
                let text = format!("server login failed: {}", fault.message());
                self.log_server(conn, Level::Warning, &text);
                self.login_failed(conn, &text);
                if self.dedicated_refused(conn, fault.sqlstate(), &text) {
                    return;
                }
                self.fail_those_who_wait(conn, fault.sqlstate(), &text);
                self.close_server(conn, "login failed");
            }
            // It would not hear a goodbye for what it says itself.
            LoginStep::Fault(fault) => {
                self.login_failed(conn, &fault.message());
                self.close_server(conn, &fault.message());
                self.let_go(conn);
            }
        }
    }

    /// The first ReadyForQuery: clients can be greeted, and this server can be lent.
    fn server_ready(&mut self, conn: ConnId, mut info: ServerInfo, behind: &[u8]) {
        let now = self.now;
        if let Some(body) = info.connect_query_error.take() {
            // PgBouncer's line has connect_query's older name.
            self.log_complaint(conn, "exec_on_query", &body);
        }
        let Some(Conn::Server(server)) = self.conns.get_mut(conn.0 as usize) else { return };
        if server.dedicated.is_some() {
            return self.dedicated_ready(conn, &info, behind);
        }
        let Some(part) = self.parts.get_mut(server.pool) else { return };
        let unknown = Parameters::unknown(&self.tracked);
        let fresh = info.tracked(&self.tracked, unknown);
        if !part.fresh.same(&fresh) {
            part.fresh = fresh;
        }
        server.key.clone_from(&info.key);
        server.protocol = ServerProtocol::new(part.fresh.clone()).with_catalog(part.catalog());
        server.phase = Phase::Unsettled;
        server.request_us = now.mono_us;
        let backend = info.key.as_ref().map_or(0, |key| key.0);
        part.met = Some(Met::new(info));
        part.server_error = None;
        part.pool.logged_in(OpenFor::Any, true, now.mono_us);
        let part_index = server.pool;
        self.log_server(conn, Level::Debug, &format!("login ok, backend {backend}"));
        self.greet_all(part_index);
        if !behind.is_empty() {
            self.server_received(conn, behind, false);
        }
        // A fresh server needs no reset.
        self.errand_over(conn);
        self.serve_or_open(part_index);
    }

    /// A query of the settings met an error that is no reason to close.
    pub(crate) fn log_complaint(&mut self, conn: ConnId, query: &str, body: &[u8]) {
        let fields = wire::error::parse(body);
        let text = |field: Option<&[u8]>| String::from_utf8_lossy(field.unwrap_or_default()).into_owned();
        let (severity, message) = (excerpt(text(fields.severity())), excerpt(text(fields.message())));
        let line = format!("error while executing {query}: {severity}: {message}");
        self.log_server(conn, Level::Error, &line);
    }

    /// The server said no, in its own words.
    fn server_refused(&mut self, conn: ConnId, body: &[u8]) {
        let fields = wire::error::parse(body);
        let text = |field: Option<&[u8]>| String::from_utf8_lossy(field.unwrap_or_default()).into_owned();
        let (code, message) = (text(fields.code()), excerpt(text(fields.message())));
        let severity = excerpt(text(fields.severity()));
        let own_text = format!("server login failed: {severity} {message}");
        self.log_server(conn, Level::Warning, &own_text);
        self.login_failed(conn, &own_text);
        // A server that is starting, stopping or full will be better soon: those who wait, wait on.
        let passing =
            [sqlstate::CANNOT_CONNECT_NOW, sqlstate::TOO_MANY_CONNECTIONS, sqlstate::ADMIN_SHUTDOWN];
        if !passing.contains(&&*code) {
            let code = if code.is_empty() { sqlstate::CONNECTION_FAILURE.to_owned() } else { code };
            if self.dedicated_refused(conn, &code, &own_text) {
                return;
            }
            self.fail_those_who_wait(conn, &code, &message);
        }
        self.close_server(conn, &message);
    }

    /// Every client that waits for a server of this pool is told the same.
    fn fail_those_who_wait(&mut self, conn: ConnId, code: &str, text: &str) {
        let Some(part) = self.server(conn).map(|server| server.pool) else { return };
        // One that closes when its client is done with it (RECONNECT, a changed database) will serve none of them.
        let may_serve = |server: &mut Server| server.is_pooled() && server.close_when_free.is_none();
        let servers = self.servers_of(part);
        if servers.into_iter().any(|other| other != conn && self.server(other).is_some_and(may_serve)) {
            return;
        }
        let Some(part) = self.parts.get(part) else { return };
        let waiting: Vec<ConnId> = ordinary(part).collect();
        for waiter in waiting {
            self.fail_waiter(waiter, code, text);
        }
    }

    /// A login ended; the pool decides when the next is tried.
    fn login_over(&mut self, conn: ConnId, well: bool) {
        let now_us = self.now.mono_us;
        let Some(Conn::Server(server)) = self.conns.get_mut(conn.0 as usize) else { return };
        if !server.is_logging_in() {
            return;
        }
        let whom = server.opened_for();
        if let Some(part) = self.parts.get_mut(server.pool) {
            part.pool.logged_in(whom, well, now_us);
            if !well {
                part.leave_failing_host();
            }
        }
        self.unbind(conn);
    }

    /// Closes a server connection in whatever state. A quiet one is told goodbye first, and its end of file awaited, so
    /// that its backend is gone before another takes its place.
    pub(crate) fn close_server(&mut self, conn: ConnId, reason: &str) {
        let Some(server) = self.server(conn) else { return };
        let is_free =
            server.protocol.status().is_some() || matches!(server.phase, Phase::Connecting | Phase::Login(_));
        // In the middle of its client's message a goodbye would be read as a part of that.
        let at_boundary = server.protocol.boundary().is_some();
        self.close_server_that(is_free && at_boundary, conn, reason);
    }

    /// The same where the caller knows whether the server would hear a goodbye.
    pub(crate) fn close_server_that(&mut self, listens: bool, conn: ConnId, reason: &str) {
        let Some(server) = self.server(conn) else { return };
        if matches!(server.phase, Phase::Leaving { .. } | Phase::Closing) {
            return;
        }
        let (since_us, part_index) = (server.since_us, server.pool);
        let idle = matches!(server.phase, Phase::Idle);
        let can_hear = !matches!(server.phase, Phase::Connecting | Phase::AskedTls | Phase::Handshake);
        let asker = match server.phase {
            Phase::Errand(Errand::Ask(asker) | Errand::Freshen(asker) | Errand::ConnectQuery(asker)) => {
                Some(asker)
            }
            _ => None,
        };
        let age = self.age_s(since_us);
        if self.config.global.log_disconnections {
            self.log_server(conn, Level::Log, &format!("closing because: {reason} (age={age}s)"));
        }
        self.login_over(conn, false);
        if let Some(part) = self.parts.get_mut(part_index) {
            if idle {
                part.pool.remove_idle(conn.0);
            }
            if part.pool.end_check(conn.0) {
                self.unserved.push(part_index);
            }
        }
        let now_us = self.now.mono_us;
        let Some(server) = self.server(conn) else { return };
        if can_hear && listens {
            server.phase = Phase::Leaving { since_us: now_us };
            self.resume_server(conn);
            self.outbox.write(conn, encode::terminate);
        } else {
            server.phase = Phase::Closing;
            self.act(Action::Close { conn });
        }
        if let Some(asker) = asker {
            self.question_lost(asker);
        }
    }

    /// The server's end of file: expected, or the death of whoever was served by it.
    pub(crate) fn server_hung_up(&mut self, conn: ConnId) {
        let Some(server) = self.server(conn) else { return };
        match server.phase {
            Phase::Leaving { .. } => {
                server.phase = Phase::Closing;
                self.act(Action::Close { conn });
            }
            Phase::Closing => {}
            _ => self.server_fault(conn, "server conn crashed?"),
        }
    }

    /// A server that is leaving has no more to say: close it now.
    pub(crate) fn let_go(&mut self, conn: ConnId) {
        let Some(server) = self.server(conn) else { return };
        if matches!(server.phase, Phase::Leaving { .. }) {
            server.phase = Phase::Closing;
            self.act(Action::Close { conn });
        }
    }

    /// The socket is gone: its permits are free.
    pub(crate) fn server_closed(&mut self, part_index: usize) {
        if let Some(part) = self.parts.get_mut(part_index).filter(|_| !planted::bug!("permit_lost")) {
            part.pool.closed();
        }
        self.permit_is_free(part_index);
        self.paused_progress();
    }

    /// Servers whose goodbye takes too long, and logins that do.
    pub(crate) fn check_server_deadline(&mut self, conn: ConnId) {
        let (now_us, global) = (self.now.mono_us, &self.config.global);
        let connect_timeout_us = micros(global.server_connect_timeout);
        let Some(server) = self.server(conn) else { return };
        let age_us = now_us.saturating_sub(server.since_us);
        let (cancels, unsettled_us) = (server.cancels, now_us.saturating_sub(server.request_us));
        match server.phase {
            Phase::Leaving { since_us } if now_us.saturating_sub(since_us) >= GOODBYE_US => self.let_go(conn),
            // It stopped in the middle of a notice: nobody will ever get it.
            Phase::Unsettled
                if cancels == 0 && connect_timeout_us > 0 && unsettled_us >= connect_timeout_us =>
            {
                self.close_server(conn, "unclean server");
                self.let_go(conn);
            }
            // PgBouncer's words: a timeout is what the login runs into, once there is a connection.
            Phase::Connecting if connect_timeout_us > 0 && age_us >= connect_timeout_us => {
                self.close_server(conn, "connect failed");
            }
            Phase::AskedTls | Phase::Handshake | Phase::Login(_)
                if connect_timeout_us > 0 && age_us >= connect_timeout_us =>
            {
                self.login_failed(conn, "connect timeout");
                self.close_server(conn, "connect timeout");
                self.let_go(conn);
            }
            _ => {}
        }
    }

    /// Why a free server should not be used any more.
    pub(crate) fn reason_to_close(&self, conn: ConnId) -> Option<&'static str> {
        let Some(Conn::Server(server)) = self.conns.get(conn.0 as usize) else { return None };
        let part = self.parts.get(server.pool)?;
        if server.close_when_free.is_some() {
            return server.close_when_free;
        }
        if server.protocol.is_tainted() {
            return Some("session state unknown");
        }
        let lifetime_us = micros(self.config.server_lifetime(&part.database));
        let age_us = self.now.mono_us.saturating_sub(server.since_us);
        // One that nobody has had yet serves whoever waits for it, however short its life.
        let may_go = server.lent != Lent::Never || lifetime_us > 0 && part.pool.queue.is_empty();
        if age_us >= lifetime_us && may_go {
            return Some("server lifetime over");
        }
        let oversized = part.pool.is_oversized(0) && part.pool.queue.is_empty();
        if oversized && part.pool.is_oversized(self.leaving_servers(server.pool)) {
            return Some("too many servers in the pool");
        }
        if self.a_neighbour_wants(part) {
            return Some("evicted");
        }
        part.pool.paused.then_some("pause")
    }
}

impl State {
    /// How many servers of this part have been told to go and still have their permit. Looks at every connection.
    pub(crate) fn leaving_servers(&self, part_index: usize) -> u32 {
        let leaving = |conn: &Conn| matches!(conn, Conn::Server(server) if server.pool == part_index && matches!(server.phase, Phase::Leaving { .. } | Phase::Closing));
        u32::try_from(self.conns.iter().filter(|(_, conn)| leaving(conn)).count()).unwrap_or(u32::MAX)
    }
}

/// The clients that wait for a server that anybody may have.
pub(crate) fn ordinary(part: &Part) -> impl Iterator<Item = ConnId> + '_ {
    part.pool.queue.shared().map(|waiter| ConnId(waiter.client))
}

/// What the entry says, and then what is for this one connection: of two the server takes the later.
fn startup_packet(part: &Part, own: &[(String, String)]) -> Vec<u8> {
    let database = &part.database;
    let mut parameters: Vec<(&[u8], &[u8])> =
        vec![(b"user", part.user.as_bytes()), (b"database", database.dbname.as_bytes())];
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
