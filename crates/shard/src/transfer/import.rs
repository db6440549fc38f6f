//! Import of what the shards of the process being taken over export: pools, clients, servers, and pairs of both.
//!
//! The opposite of `export`. What comes is in force at once and whatever the limits are, because it was admitted before;
//! from then on it is like any other. Never refuses a client for a field that this version does not know.

use std::sync::Arc;

use auth::ScramKeys;
use messages::Role;
use session::{Catalog, Parameters, ServerInfo, ServerProtocol};
use settings::PoolMode;
use wire::{encode, sqlstate};

use crate::cancel_key::Key;
use crate::client::{self, Client};
use crate::close_reason::CloseReason;
use crate::connections::Conn;
use crate::console_session::ConsoleSession;
use crate::core::Core;
use crate::greeting::ServerGreeting;
use crate::local_pools::local_pool::LocalPool;
use crate::local_pools::table::PoolId;
use crate::server::{self, Server, UsedBy};
use crate::state::ShardState;
use crate::takeover::fields::{Fields, pair};
use crate::takeover::{Export, Import, field};
use crate::transfer::export::target_text;
use crate::{Action, ConnId, Peer};

/// Statement numbers of one shard and one process; the next process counts from the next multiple.
pub(crate) const STATEMENTS_SHIFT: u32 = 32;
/// The same for processes.
pub(crate) const GENERATION_SHIFT: u32 = 40;

impl ShardState {
    pub(crate) fn import(&mut self, what: Import) {
        match what {
            Import::Pool { state } => {
                self.import_pool(&state);
                self.forward_pool(Export::Pool { state });
            }
            Import::ServerOpened { state } => {
                if let Some(local_pool) =
                    self.pool_named(&state).and_then(|local_pool| self.core.local_pools.get_mut(local_pool))
                {
                    local_pool.pool.add_external();
                }
                self.forward_pool(Export::ServerOpened { state });
            }
            Import::ServerClosed { state } => {
                if let Some(local_pool) = self.pool_named(&state) {
                    self.external_closed(local_pool);
                }
            }
            Import::Client { conn, state } => self.import_client(conn, &state),
            Import::Server { conn, state } => {
                if self.import_server(conn, &state).is_some() {
                    if has_partial_reports(&state) {
                        self.core.mark_reported_unknown(conn);
                    }
                    self.internal_query_over(conn);
                }
            }
            Import::Linked { client, client_state, server, server_state } => {
                self.import_pair(client, &client_state, server, &server_state);
            }
            Import::Gone => self.takeover_ended(),
        }
    }

    /// The local pool that a state names, created if it is new here; None if its database is not configured any more.
    fn pool_named(&mut self, state: &[u8]) -> Option<PoolId> {
        let fields = Fields::read(state)?;
        let (name, user) = (fields.text(field::DATABASE)?, fields.text(field::USER)?);
        let database = self.core.config.database(name)?;
        Some(self.local_pool(name, user, &database))
    }

    /// This process is being taken over itself by now.
    fn forward_pool(&mut self, what: Export) {
        if self.exporting.is_some() {
            self.core.act(Action::Export(Box::new(what)));
        }
    }

    fn import_pool(&mut self, state: &[u8]) {
        let (Some(local_pool), Some(fields)) = (self.pool_named(state), Fields::read(state)) else { return };
        let unknown = Parameters::unknown(&self.core.tracked);
        let Some(local_pool) = self.core.local_pools.get_mut(local_pool) else { return };
        for _ in 0..fields.small(field::SERVERS).unwrap_or(0) {
            local_pool.pool.add_external();
        }
        local_pool.keys = read_keys(&fields).or(local_pool.keys.take());
        if let Some(password) = fields.text(field::PASSWORD) {
            local_pool.password = Some(auth::Zeroizing::new(password.to_owned()));
        }
        if let Some(found) = fields.text(field::FOUND) {
            local_pool.found = Some(auth::Zeroizing::new(found.to_owned()));
        }
        let pairs = fields.all(field::HELLO).filter_map(pair);
        let parameters: Vec<_> = pairs.map(|(name, value)| (name.to_vec(), value.to_vec())).collect();
        if !parameters.is_empty() && local_pool.server_greeting.is_none() {
            let info = ServerInfo { parameters, ..ServerInfo::default() };
            local_pool.default_params = info.tracked(&self.core.tracked, unknown);
            local_pool.server_greeting = Some(ServerGreeting::new(info));
        }
    }

    fn external_closed(&mut self, pool_id: PoolId) {
        let Some(local_pool) = self.core.local_pools.get_mut(pool_id) else { return };
        if local_pool.pool.external_closed() {
            self.report_server(pool_id, false);
            self.permit_is_free(pool_id);
            self.paused_progress();
        }
    }

    fn takeover_ended(&mut self) {
        let local_pools: Vec<(PoolId, u32)> = self
            .core
            .local_pools
            .iter()
            .map(|(index, local_pool)| (index, local_pool.pool.external()))
            .collect();
        for (local_pool, count) in local_pools {
            (0..count).for_each(|_| self.external_closed(local_pool));
        }
    }

    /// A client without a server continues in its phase.
    fn import_client(&mut self, conn: ConnId, state: &[u8]) {
        let Some(phase) = self.insert_client(conn, state) else { return };
        self.core.act(Action::LoginComplete { conn });
        self.try_export(conn);
        match &*phase {
            "greeting" => self.greet_or_wait(conn),
            "admin" | "stats" => self.console_goes_on(conn),
            _ => {
                if self.core.client(conn).is_some_and(|client| !client.request.held.is_empty()) {
                    self.idle_client_received_held(conn);
                }
            }
        }
    }

    fn greet_or_wait(&mut self, conn: ConnId) {
        let now_us = self.core.now.mono_us;
        let Some(client) = self.core.conns.client_mut(conn) else { return };
        let Some(pool_id) = client.pool else { return };
        let Some(local_pool) = self.core.local_pools.get_mut(pool_id) else { return };
        if local_pool.server_greeting.is_some() {
            return self.send_greeting(conn);
        }
        client.phase = client::Phase::AwaitingGreeting(local_pool.pool.queue.join(conn.0, now_us));
        self.serve_or_open(pool_id);
    }

    fn import_pair(&mut self, conn: ConnId, state: &[u8], server_conn: ConnId, server_state: &[u8]) {
        if self.import_server(server_conn, server_state).is_none() {
            // Its transaction is lost with its server: the client gets an error.
            if self.insert_client(conn, state).is_some() {
                self.fail_client(conn, sqlstate::ADMIN_SHUTDOWN, "database configuration changed");
            }
            return;
        }
        if self.insert_client(conn, state).is_none() {
            return self.close_server(server_conn, CloseReason::ClientLost);
        }
        self.core.act(Action::LoginComplete { conn });
        let config = Arc::clone(&self.core.config);
        let local_pool = self.core.server(server_conn).map(|server| server.pool);
        let Some(mode) =
            local_pool.and_then(|local_pool| Some(self.core.local_pools.get(local_pool)?.pool.limits.mode))
        else {
            return;
        };
        let Some((client, server)) = self.core.conns.linked(conn, server_conn) else { return };
        client.phase = client::Phase::Linked(server_conn);
        client.server_used_last = Some(server_conn.0);
        client.parameters = server.protocol.parameters.clone();
        if has_partial_reports(server_state) {
            server.close_when_free = Some(CloseReason::ParametersUnknown);
        }
        server.phase = server::Phase::Linked(conn);
        server.names_as_they_are = client.passes_names(&config, mode);
        self.send_held(conn, server_conn);
        self.release(server_conn);
        self.try_export(conn);
        if self.administration.is_suspended()
            && self.core.client(conn).is_some_and(|client| client.server().is_some())
        {
            self.core.pause_client(conn);
            self.core.pause_server(server_conn);
        }
    }

    /// Makes a client of a state, in phase Idle (or Console); the answer is the phase that it was in.
    fn insert_client(&mut self, conn: ConnId, state: &[u8]) -> Option<String> {
        let local_pool = self.pool_named(state);
        let catalog = local_pool
            .and_then(|local_pool| self.core.local_pools.get(local_pool))
            .map(LocalPool::catalog)
            .unwrap_or_default();
        let fields = Fields::read(state);
        let made = fields.and_then(|fields| Some((self.core.client_of(&fields, catalog)?, fields)));
        let Some((mut client, fields)) = made else {
            self.core.act(Action::Close { conn });
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
        self.core.conns.place(conn, Conn::Client(Box::new(client)));
        self.core.keep_cancel_key(conn, key);
        match local_pool {
            Some(local_pool) => self.core.count_imported(conn, local_pool),
            None if !is_console => {
                self.fail_client(conn, sqlstate::ADMIN_SHUTDOWN, "database removed");
                return None;
            }
            None => {}
        }
        Some(phase)
    }

    /// Makes an unlinked server of a state. None if it cannot be used: it gets Terminate and is closed.
    fn import_server(&mut self, conn: ConnId, state: &[u8]) -> Option<()> {
        let pool_id = self.pool_named(state);
        let made = pool_id.and_then(|local_pool| self.core.server_of(local_pool, &Fields::read(state)?));
        let Some(server) = made else {
            self.core.outbox.write(conn, encode::terminate);
            self.core.act(Action::Close { conn });
            return None;
        };
        if let Some(local_pool) = self.core.local_pools.get_mut(server.pool) {
            local_pool.pool.external_imported();
        }
        self.core.conns.place(conn, Conn::Server(Box::new(server)));
        self.core.act(Action::LoginComplete { conn });
        Some(())
    }
}

impl Core {
    fn client_of(&mut self, fields: &Fields<'_>, catalog: Catalog) -> Option<Client> {
        let peer = read_peer(fields.text(field::PEER)?)?;
        let login_user = Arc::from(fields.text(field::LOGIN_USER)?);
        let mut client = Client::new(fields.number(field::ID)?, peer, &self.tracked, login_user, self.now);
        client.parameters = self.read_parameters(fields, field::PARAMETER);
        let startup = self.read_parameters(fields, field::STARTUP);
        client.startup = fields.bytes(field::STARTUP).is_some().then_some(startup);
        let key = fields.bytes(field::LONG_CANCEL_KEY).or(fields.bytes(field::CANCEL_KEY));
        client.cancel_key = Key::of(key?)?;
        client.since_us = fields.number(field::SINCE).unwrap_or(self.now.mono_us);
        client.since_wall_us = fields.number(field::SINCE_WALL).unwrap_or(self.now.wall_us);
        client.request_us = fields.number(field::REQUEST).unwrap_or(self.now.mono_us);
        client.request.held = fields.bytes(field::HELD).unwrap_or_default().to_vec();
        client.request.statements = self.read_client_statements(fields, catalog);
        Some(client)
    }

    fn server_of(&mut self, pool_id: PoolId, fields: &Fields<'_>) -> Option<Server> {
        let status = Server::status_of(fields.number(field::STATUS)?);
        let doubtful = fields.number(field::DOUBTFUL) != Some(0);
        let parameters = self.read_parameters(fields, field::PARAMETER);
        let catalog = self.local_pools.get(pool_id)?.catalog();
        let mut protocol = ServerProtocol::imported(parameters, status, doubtful).with_catalog(catalog);
        self.read_server_statements(fields, catalog, &mut protocol.statements)?;
        if let Some(client) = fields.number(field::UNNAMED) {
            protocol.import_unnamed(client);
        }
        let local_pool = self.local_pools.get(pool_id)?;
        let is_same = fields.text(field::TARGET) == Some(&*target_text(&local_pool.database));
        let is_session = local_pool.pool.limits.mode == PoolMode::Session;
        let mode_differs =
            fields.number(field::SESSION_MODE).is_some_and(|session| session != u64::from(is_session));
        let must_close = !is_same || mode_differs || fields.number(field::CLOSE) != Some(0);
        let (now_us, wall_us) = (self.now.mono_us, self.now.wall_us);
        let time = |number: u16| fields.number(number).unwrap_or(now_us);
        let (remote, local) = match fields.text(field::PEER).and_then(read_peer) {
            Some(Peer::Inet { remote, local }) => (Some(remote), Some(local)),
            _ => (None, None),
        };
        let secret = fields.bytes(field::BACKEND_SECRET).unwrap_or_default().to_vec();
        Some(Server {
            id: fields.number(field::ID)?,
            pool: pool_id,
            phase: server::Phase::AwaitingCancel,
            protocol,
            dedicated: None,
            internal_error: None,
            key: fields.small(field::BACKEND).map(|process_id| (process_id, secret)),
            unsent: false,
            unasked_bytes: 0,
            paused: false,
            send_buffer_full: false,
            cancels: 0,
            used_by: if fields.number(field::LENT) == Some(0) { UsedBy::Nothing } else { UsedBy::Client },
            names_as_they_are: false,
            close_when_free: match must_close {
                true => Some(CloseReason::ConfigurationChanged),
                // Greetings are made from a server's login, and this server logged in to the other process.
                false => local_pool.server_greeting.is_none().then_some(CloseReason::UnknownHere),
            },
            since_us: time(field::SINCE),
            since_wall_us: fields.number(field::SINCE_WALL).unwrap_or(wall_us),
            request_us: time(field::REQUEST),
            query_us: time(field::QUERY),
            transaction_us: time(field::TRANSACTION),
            target: local_pool.first_target(&self.config.global),
            remote,
            local,
            tls: None,
        })
    }

    /// The next client of this server has all its parameters set.
    fn mark_reported_unknown(&mut self, server_conn: ConnId) {
        let Some(server) = self.conns.server_mut(server_conn) else { return };
        let server_greeting =
            self.local_pools.get(server.pool).and_then(|local_pool| local_pool.server_greeting.as_ref());
        let reported =
            server_greeting.into_iter().flat_map(|server_greeting| &server_greeting.info.parameters);
        let named: Vec<usize> = reported.filter_map(|(name, _)| self.tracked.settable(name)).collect();
        let now = &mut server.protocol.parameters;
        for position in (0..self.tracked.count()).filter(|position| !self.tracked.is_read_only(*position)) {
            if now.value(position).is_some() || named.contains(&position) {
                now.doubt(position);
            }
        }
    }

    fn read_parameters(&self, fields: &Fields<'_>, number: u16) -> Parameters {
        let mut parameters = Parameters::unknown(&self.tracked);
        for (name, value) in fields.all(number).filter_map(pair) {
            if let (Some(position), Ok(value)) = (self.tracked.position(name), std::str::from_utf8(value)) {
                parameters.set(position, value);
            }
        }
        parameters
    }
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
