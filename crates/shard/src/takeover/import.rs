//! Taking over what the shards of a predecessor process hand on: pools, clients, servers, and pairs of both.
//!
//! The opposite of `hand_on`. What comes is in force at once and whatever the limits say, for it was let in before;
//! from then on it is like any other. Never refuses a client for what a newer version did not understand.

use std::sync::Arc;

use auth::ScramKeys;
use messages::Role;
use session::{Catalog, Parameters, ServerInfo, ServerProtocol};
use settings::PoolMode;
use wire::{encode, sqlstate};

use crate::cancel::key::Key;
use crate::client::{self, Client};
use crate::console::console_session::Session;
use crate::login::greeting::Met;
use crate::server::{self, Lent, Server};
use crate::state::{Conn, Part, State};
use crate::takeover::export::target_text;
use crate::takeover::fields::{Fields, pair};
use crate::takeover::{HandOn, Inherit, field};
use crate::{Action, ConnId, Peer};

/// Statement numbers of one shard and one process; the next process counts from the next multiple.
pub(crate) const STATEMENTS_SHIFT: u32 = 32;
/// The same for processes.
pub(crate) const GENERATION_SHIFT: u32 = 40;

impl State {
    pub(crate) fn inherit(&mut self, what: Inherit) {
        match what {
            Inherit::Pool { state } => {
                self.inherit_pool(&state);
                self.pass_on_pool(HandOn::Pool { state });
            }
            Inherit::ServerOpened { state } => {
                if let Some(part) = self.pool_named(&state).and_then(|part| self.parts.get_mut(part)) {
                    part.pool.add_external();
                }
                self.pass_on_pool(HandOn::ServerOpened { state });
            }
            Inherit::ServerClosed { state } => {
                if let Some(part) = self.pool_named(&state) {
                    self.external_closed(part);
                }
            }
            Inherit::Client { conn, state } => self.inherit_client(conn, &state),
            Inherit::Server { conn, state } => {
                if self.inherit_server(conn, &state).is_some() {
                    if has_partial_reports(&state) {
                        self.doubt_reported(conn);
                    }
                    self.errand_over(conn);
                }
            }
            Inherit::Linked { client, client_state, server, server_state } => {
                self.inherit_pair(client, &client_state, server, &server_state);
            }
            Inherit::Gone => self.predecessor_gone(),
        }
    }

    /// The part that a state names, made if it is new here; None if its database is not configured any more.
    fn pool_named(&mut self, state: &[u8]) -> Option<usize> {
        let fields = Fields::read(state)?;
        let (name, user) = (fields.text(field::DATABASE)?, fields.text(field::USER)?);
        let database = self.config.database(name)?;
        Some(self.part(name, user, &database))
    }

    /// This process has a successor itself by now.
    fn pass_on_pool(&mut self, what: HandOn) {
        if self.handing_on.is_some() {
            self.act(Action::HandOn(Box::new(what)));
        }
    }

    fn inherit_pool(&mut self, state: &[u8]) {
        let (Some(part), Some(fields)) = (self.pool_named(state), Fields::read(state)) else { return };
        let unknown = Parameters::unknown(&self.tracked);
        let Some(part) = self.parts.get_mut(part) else { return };
        for _ in 0..fields.small(field::SERVERS).unwrap_or(0) {
            part.pool.add_external();
        }
        part.keys = read_keys(&fields).or(part.keys.take());
        if let Some(password) = fields.text(field::PASSWORD) {
            part.password = Some(auth::Zeroizing::new(password.to_owned()));
        }
        if let Some(found) = fields.text(field::FOUND) {
            part.found = Some(auth::Zeroizing::new(found.to_owned()));
        }
        let pairs = fields.all(field::HELLO).filter_map(pair);
        let parameters: Vec<_> = pairs.map(|(name, value)| (name.to_vec(), value.to_vec())).collect();
        if !parameters.is_empty() && part.met.is_none() {
            let info = ServerInfo { parameters, ..ServerInfo::default() };
            part.fresh = info.tracked(&self.tracked, unknown);
            part.met = Some(Met::new(info));
        }
    }

    fn external_closed(&mut self, part_index: usize) {
        let Some(part) = self.parts.get_mut(part_index) else { return };
        if part.pool.external_closed() {
            self.tell_of_server(part_index, false);
            self.permit_is_free(part_index);
            self.paused_progress();
        }
    }

    fn predecessor_gone(&mut self) {
        let parts: Vec<(usize, u32)> =
            self.parts.iter().map(|(index, part)| (index, part.pool.external())).collect();
        for (part, count) in parts {
            (0..count).for_each(|_| self.external_closed(part));
        }
    }

    /// A client without a server goes on where it was.
    fn inherit_client(&mut self, conn: ConnId, state: &[u8]) {
        let Some(phase) = self.seat_client(conn, state) else { return };
        self.act(Action::Settle { conn });
        self.hands_on(conn);
        match &*phase {
            "greeting" => self.greet_or_wait(conn),
            "admin" | "stats" => self.console_goes_on(conn),
            _ => {
                if self.client(conn).is_some_and(|client| !client.request.held.is_empty()) {
                    self.idle_client_holds(conn);
                }
            }
        }
    }

    fn greet_or_wait(&mut self, conn: ConnId) {
        let now_us = self.now.mono_us;
        let Some(Conn::Client(client)) = self.conns.get_mut(conn.0 as usize) else { return };
        let part_index = client.pool;
        let Some(part) = self.parts.get_mut(part_index) else { return };
        if part.met.is_some() {
            return self.greet(conn);
        }
        client.phase = client::Phase::Greeting(part.pool.queue.join(conn.0, now_us));
        self.serve_or_open(part_index);
    }

    fn inherit_pair(&mut self, conn: ConnId, state: &[u8], server_conn: ConnId, server_state: &[u8]) {
        if self.inherit_server(server_conn, server_state).is_none() {
            // Its transaction is lost with its server: say so rather than pretend.
            if self.seat_client(conn, state).is_some() {
                self.fail_client(conn, sqlstate::ADMIN_SHUTDOWN, "database configuration changed");
            }
            return;
        }
        if self.seat_client(conn, state).is_none() {
            return self.close_server(server_conn, "client was lost");
        }
        self.act(Action::Settle { conn });
        let config = Arc::clone(&self.config);
        let part = self.server(server_conn).map(|server| server.pool);
        let Some(mode) = part.and_then(|part| Some(self.parts.get(part)?.pool.limits.mode)) else { return };
        let Some((client, server)) = self.link(conn, server_conn) else { return };
        client.phase = client::Phase::Linked(server_conn);
        client.server_used_last = Some(server_conn.0);
        client.parameters = server.protocol.parameters.clone();
        if has_partial_reports(server_state) {
            server.close_when_free = Some("reported parameters unknown");
        }
        server.phase = server::Phase::Linked(conn);
        server.names_as_they_are = client.passes_names(&config, mode);
        self.ask_held(conn, server_conn);
        self.give_back(server_conn);
        self.hands_on(conn);
        if self.suspended_since_us.is_some()
            && self.client(conn).is_some_and(|client| client.server().is_some())
        {
            self.pause_client(conn);
            self.pause_server(server_conn);
        }
    }

    /// Makes a client of a state, in phase Idle (or Console); the answer is the phase that it was in.
    fn seat_client(&mut self, conn: ConnId, state: &[u8]) -> Option<String> {
        let part = self.pool_named(state);
        let catalog = part.and_then(|part| self.parts.get(part)).map(Part::catalog).unwrap_or_default();
        let fields = Fields::read(state);
        let made = fields.and_then(|fields| Some((self.client_of(&fields, catalog)?, fields)));
        let Some((mut client, fields)) = made else {
            self.act(Action::Close { conn });
            return None;
        };
        let phase = fields.text(field::PHASE).unwrap_or_default().to_owned();
        client.phase = match &*phase {
            "admin" => client::Phase::Console(Box::new(Session::new(Role::Admin))),
            "stats" => client::Phase::Console(Box::new(Session::new(Role::Stats))),
            _ => client::Phase::Idle,
        };
        let is_console = matches!(client.phase, client::Phase::Console { .. });
        let key = client.cancel_key.clone();
        if let Some(slot) = self.conns.get_mut(conn.0 as usize) {
            *slot = Conn::Client(Box::new(client));
        }
        self.keep_cancel_key(conn, key);
        match part {
            Some(part) => self.count_inherited(conn, part),
            None if !is_console => {
                self.fail_client(conn, sqlstate::ADMIN_SHUTDOWN, "database removed");
                return None;
            }
            None => {}
        }
        Some(phase)
    }

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

    /// Makes a server of a state, linked to nobody. None if it cannot be used: it is told goodbye then.
    fn inherit_server(&mut self, conn: ConnId, state: &[u8]) -> Option<()> {
        let part_index = self.pool_named(state);
        let made = part_index.and_then(|part| self.server_of(part, &Fields::read(state)?));
        let Some(server) = made else {
            self.outbox.write(conn, encode::terminate);
            self.act(Action::Close { conn });
            return None;
        };
        if let Some(part) = self.parts.get_mut(server.pool) {
            part.pool.external_imported();
        }
        if let Some(slot) = self.conns.get_mut(conn.0 as usize) {
            *slot = Conn::Server(Box::new(server));
        }
        self.act(Action::Settle { conn });
        Some(())
    }

    fn server_of(&mut self, part_index: usize, fields: &Fields<'_>) -> Option<Server> {
        let status = Server::status_of(fields.number(field::STATUS)?);
        let doubtful = fields.number(field::DOUBTFUL) != Some(0);
        let parameters = self.read_parameters(fields, field::PARAMETER);
        let catalog = self.parts.get(part_index)?.catalog();
        let mut protocol = ServerProtocol::imported(parameters, status, doubtful).with_catalog(catalog);
        self.read_server_statements(fields, catalog, &mut protocol.statements)?;
        if let Some(client) = fields.number(field::UNNAMED) {
            protocol.import_unnamed(client);
        }
        let part = self.parts.get(part_index)?;
        let is_same = fields.text(field::TARGET) == Some(&*target_text(&part.database));
        let is_session = part.pool.limits.mode == PoolMode::Session;
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
            pool: part_index,
            phase: server::Phase::Unsettled,
            protocol,
            dedicated: None,
            internal_error: None,
            key: fields.small(field::BACKEND).map(|process_id| (process_id, secret)),
            unsent: false,
            unasked_bytes: 0,
            paused: false,
            clogged: false,
            cancels: 0,
            lent: if fields.number(field::LENT) == Some(0) { Lent::Never } else { Lent::ToClient },
            names_as_they_are: false,
            close_when_free: match must_close {
                true => Some("database configuration changed"),
                // Only the login of a server tells what clients are greeted with, and this one's was elsewhere.
                false => part.met.is_none().then_some("unknown to this process"),
            },
            since_us: time(field::SINCE),
            since_wall_us: fields.number(field::SINCE_WALL).unwrap_or(wall_us),
            request_us: time(field::REQUEST),
            query_us: time(field::QUERY),
            transaction_us: time(field::TRANSACTION),
            target: part.first_target(&self.config.global),
            remote,
            local,
            tls: None,
        })
    }

    /// The next client of this server has all its parameters set.
    fn doubt_reported(&mut self, server_conn: ConnId) {
        let Some(Conn::Server(server)) = self.conns.get_mut(server_conn.0 as usize) else { return };
        let met = self.parts.get(server.pool).and_then(|part| part.met.as_ref());
        let reported = met.into_iter().flat_map(|met| &met.info.parameters);
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
