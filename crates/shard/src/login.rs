//! A client's way in: startup packet, limits, proof, pool, greeting.
//!
//! Owns the order of these steps and what each refusal says. Unknown users and databases are told apart from wrong
//! passwords only where PgBouncer tells them apart (no password asked).

use std::collections::BTreeSet;
use std::sync::Arc;

use auth::{Accepted, Answer, ClientLogin, Fault, Secret, Shown, Step, Zeroizing};
use mail::Right;
use session::parameters::APPLICATION_NAME;
use session::{Greeting, Hello};
use settings::AuthType;
use telemetry::Level;
use wire::backend::Status;
use wire::frame;
use wire::startup::{First, StartupFault, Version};
use wire::{encode, sqlstate, startup};

use crate::budget::SPENT;
use crate::client::{Client, Login, Phase};
use crate::dedicated::Wish;
use crate::method::Demand;
use crate::records::Secure;
use crate::servers::ordinary;
use crate::state::{Conn, State};
use crate::welcome::About;
use crate::words::CONSOLE;
use crate::{Action, ConnId, Handover, Peer};

/// A password message may carry a token of 64 KiB.
const LOGIN_FRAME_BYTES: u32 = 64 * 1024 + 512;

/// Peers whose garbage is remembered for a second.
const GARBAGE_PEERS: usize = 1024;

/// What a startup packet is told in the log when it is none.
const NO_PACKET: &str = "bad packet header";

impl State {
    pub(crate) fn accepted(&mut self, conn: ConnId, peer: Peer) {
        let client =
            Client::new(self.process.next_id(), peer, &self.tracked, Arc::clone(&self.nobody), self.now);
        if let Some(slot) = self.conns.get_mut(conn.0 as usize) {
            *slot = Conn::Client(Box::new(client));
        }
    }

    /// Bytes before the startup packet is complete.
    pub(crate) fn startup(&mut self, conn: ConnId, bytes: &[u8]) {
        let Some(client) = self.client(conn) else { return };
        if client.request.held.is_empty() && self.begins_with_tls(conn, bytes) {
            return self.accept_direct_tls(conn, bytes);
        }
        let Some(client) = self.client(conn) else { return };
        client.request.held.extend_from_slice(bytes);
        let held = std::mem::take(&mut client.request.held);
        match startup::first(&held) {
            Ok(None) => {
                if let Some(client) = self.client(conn) {
                    client.request.held = held;
                }
            }
            Ok(Some((first, taken))) => self.first_packet(conn, &first, &held[taken..]),
            Err(fault) => self.startup_fault(conn, fault),
        }
    }

    fn startup_fault(&mut self, conn: ConnId, fault: StartupFault) {
        match fault {
            StartupFault::Layout => {
                let text = "invalid startup packet layout: expected terminator as last byte";
                self.fail_client(conn, sqlstate::PROTOCOL_VIOLATION, text);
            }
            StartupFault::Version(version) => self.unsupported_version(conn, version),
            StartupFault::Length(_) | StartupFault::CancelLength => self.garbage(conn),
        }
    }

    /// What came is no startup packet: closed without a word, and with one line a second for each peer.
    fn garbage(&mut self, conn: ConnId) {
        let Some(client) = self.client(conn) else { return };
        let address = match client.peer {
            Peer::Inet { remote, .. } => Some(remote.ip()),
            Peer::Unix { .. } => None,
        };
        let second = self.now.mono_us / 1_000_000;
        if self.garbage_seen.len() >= GARBAGE_PEERS {
            self.garbage_seen.clear();
        }
        if self.garbage_seen.insert(address, second) == Some(second) {
            self.forget_client(conn);
            self.act(Action::Close { conn });
        } else {
            self.client_leaves(conn, NO_PACKET);
        }
    }

    fn unsupported_version(&mut self, conn: ConnId, version: Version) {
        let Version { major, minor } = version;
        let text = format!("unsupported frontend protocol {major}.{minor}: server supports 3.0 to 3.0");
        self.fail_client(conn, sqlstate::FEATURE_NOT_SUPPORTED, &text);
    }

    fn first_packet(&mut self, conn: ConnId, first: &First<'_>, rest: &[u8]) {
        match first {
            First::Ssl => self.ssl_request(conn, rest),
            First::Gss => self.refuse_encryption(conn, false, rest),
            First::Cancel(cancel) => self.cancel_request(conn, cancel.process_id, cancel.secret),
            First::Startup(packet) => {
                match Greeting::read(packet, &self.config.global.ignore_startup_parameters, &self.tracked) {
                    Ok(greeting) => self.greeted(conn, greeting, rest),
                    Err(fault) => self.client_fault(conn, &fault),
                }
            }
        }
    }

    /// SSLRequest and GSSENCRequest are answered N, each once.
    pub(crate) fn refuse_encryption(&mut self, conn: ConnId, is_ssl: bool, rest: &[u8]) {
        let Some(client) = self.client(conn) else { return };
        let Phase::Startup { ssl_refused, gss_refused } = &mut client.phase else { return };
        let again = if is_ssl { ssl_refused } else { gss_refused };
        if std::mem::replace(again, true) {
            return self
                .unsupported_version(conn, Version { major: 1234, minor: if is_ssl { 5679 } else { 5680 } });
        }
        self.outbox.write(conn, |out| out.push(b'N'));
        if !rest.is_empty() {
            let what = if is_ssl { "SSL" } else { "GSSAPI encryption" };
            let text = format!("received unencrypted data after {what} request");
            self.fail_client(conn, sqlstate::PROTOCOL_VIOLATION, &text);
        }
    }

    /// A startup packet that is served: limits, then proof.
    fn greeted(&mut self, conn: ConnId, mut greeting: Greeting, rest: &[u8]) {
        let right = (greeting.database == CONSOLE).then(|| self.console_right(conn, &greeting.user));
        let Some(client) = self.client(conn) else { return };
        client.login_user = Arc::from(&*greeting.user);
        client.request.held = rest.to_vec();
        if self.lacks_tls(conn) {
            return self.refuse_plain(conn);
        }
        if !self.count_login_bytes(conn, rest.len()) {
            return self.fail_client(conn, sqlstate::TOO_MANY_CONNECTIONS, SPENT);
        }
        if self.shutdown.is_some() && right != Some(Some(Right::Admin)) {
            return self.fail_client(conn, sqlstate::ADMIN_SHUTDOWN, "pooler is shutting down");
        }
        if right.is_none() && self.config.global.auth_type == AuthType::Any {
            let forced = self.config.database(&greeting.database).and_then(|database| database.user.clone());
            let Some(user) = forced else {
                self.log_client(conn, Level::Error, "auth_type=any requires forced user");
                return self.fail_client(conn, sqlstate::CONFIG_FILE_ERROR, "bouncer config error");
            };
            if let Some(client) = self.client(conn) {
                client.login_user = Arc::from(&*user);
            }
            greeting.user = user;
        }
        self.log_attempt(conn, &greeting);
        if right.is_none() && self.refuse_if_disabled(conn, &greeting.database) {
            return;
        }
        match right {
            Some(None) => {
                if let Some(client) = self.client(conn) {
                    client.phase = Phase::Login(Box::new(Login::new(greeting, None)));
                }
                self.fail_client(conn, sqlstate::INVALID_AUTHORIZATION, "not allowed");
            }
            Some(Some(right)) if self.is_own_unix_user(conn, &greeting.user) => {
                self.count_in_process(conn, true);
                self.log_client(conn, Level::Log, "pgbouncer access from unix socket");
                self.console_opened(conn, right);
            }
            right => self.prove(conn, greeting, right.flatten()),
        }
    }

    fn log_attempt(&mut self, conn: ConnId, greeting: &Greeting) {
        if !self.config.global.log_connections {
            return;
        }
        let Some(client) = self.client(conn) else { return };
        let (id, peer) = (client.id, crate::words::peer(client.peer));
        let tls = client.tls.as_ref().map_or_else(|| "no".to_owned(), |agreed| agreed.summary());
        let (database, user) = (&greeting.database, &greeting.user);
        let replication = greeting.replication.as_ref().map_or("no", |wanted| wanted.kind.value());
        let text = format!(
            "C-0x{id:x}: {database}/{user}@{peer} login attempt: db={database} user={user} tls={tls} replication={replication}"
        );
        self.log(Level::Log, text);
    }

    fn console_right(&self, conn: ConnId, user: &str) -> Option<Right> {
        let global = &self.config.global;
        if self.is_own_unix_user(conn, user) || global.admin_users.iter().any(|admin| admin == user) {
            return Some(Right::Admin);
        }
        // `any` lets everybody look. PgBouncer's manual says "as admin", but it refuses them what only admins may.
        let may_look =
            global.auth_type == AuthType::Any || global.stats_users.iter().any(|stats| stats == user);
        may_look.then_some(Right::Stats)
    }

    fn is_own_unix_user(&self, conn: ConnId, user: &str) -> bool {
        let user_id = self.peer_user_id(conn);
        user == CONSOLE && user_id.is_some() && user_id == self.unix_user_id
    }

    /// The system user at the other end of a unix socket.
    fn peer_user_id(&self, conn: ConnId) -> Option<u32> {
        match self.conns.get(conn.0 as usize) {
            Some(Conn::Client(client)) => match client.peer {
                Peer::Unix { user_id, .. } => Some(user_id),
                Peer::Inet { .. } => None,
            },
            _ => None,
        }
    }

    /// Counts the client and finds out what it has to prove.
    fn prove(&mut self, conn: ConnId, greeting: Greeting, right: Option<Right>) {
        if !self.count_in_process(conn, right.is_some()) {
            return;
        }
        if let Some(names) = &greeting.negotiate {
            let names: Vec<&[u8]> = names.iter().map(String::as_bytes).collect();
            self.outbox.write(conn, |out| encode::negotiate(out, 0, &names));
        }
        let Some(client) = self.client(conn) else { return };
        client.phase = Phase::Login(Box::new(Login::new(greeting, right)));
        self.demand_proof(conn, None);
    }

    /// Finds out what the client has to prove. `roles` are those of its user, if they were asked for.
    pub(crate) fn demand_proof(&mut self, conn: ConnId, roles: Option<&BTreeSet<String>>) {
        let Some(greeting) = self.greeting_of(conn) else { return };
        match self.demand(conn, &greeting, roles) {
            Demand::Roles => self.seek_roles(conn),
            Demand::Refusal(refusal) => self.refuse(conn, refusal),
            demand => {
                let Some(client) = self.client(conn) else { return };
                let needs_secret = !matches!(demand, Demand::Elsewhere(_));
                if let Phase::Login(login) = &mut client.phase {
                    login.demand = Some(demand);
                }
                if needs_secret { self.seek_secret(conn) } else { self.begin_proof(conn, None) }
            }
        }
    }

    /// The user's secret is known, or that there is none: begins the exchange that is demanded.
    pub(crate) fn begin_proof(&mut self, conn: ConnId, secret: Option<&Secret>) {
        let (user_id, remote) = (self.peer_user_id(conn), self.remote(conn));
        let Some(Conn::Client(client)) = self.conns.get_mut(conn.0 as usize) else { return };
        let Phase::Login(login) = &mut client.phase else { return };
        let user = &login.greeting.user;
        let (exchange, step) = match login.demand.take() {
            Some(Demand::Exchange(method)) => ClientLogin::begin_bound(
                method,
                user,
                secret,
                &self.mock,
                &self.derived,
                &mut *self.entropy,
                self.config.global.scram_iterations,
                client.tls.as_ref().and_then(|tls| tls.end_point.as_deref()),
            ),
            Some(Demand::Peer(map)) => {
                login.map.clone_from(&map);
                ClientLogin::peer(user, secret.is_some(), user_id, map)
            }
            Some(Demand::Certificate(map)) => {
                login.map = map;
                let name = client.tls.as_ref().and_then(|tls| tls.peer.as_ref()?.common_name.as_deref());
                // As PgBouncer documents it: the common name and no other.
                let shown = match (&client.tls, &name) {
                    (None, _) => Shown::NoTls,
                    (Some(_), None) => Shown::NoCertificate,
                    (Some(_), Some(name)) => Shown::Names(std::slice::from_ref(name)),
                };
                ClientLogin::certificate(user, secret.is_some(), shown, login.map.as_deref())
            }
            Some(Demand::Elsewhere(authority)) => ClientLogin::begin_elsewhere(authority, user, &remote),
            Some(Demand::Refusal(refusal)) => return self.refuse(conn, refusal),
            Some(Demand::Roles) | None => return,
        };
        login.exchange = Some(exchange);
        self.login_step(conn, step);
    }

    /// Bytes of the exchange.
    pub(crate) fn login_message(&mut self, conn: ConnId, bytes: &[u8]) {
        if !self.count_login_bytes(conn, bytes.len()) {
            return self.fail_client(conn, sqlstate::TOO_MANY_CONNECTIONS, SPENT);
        }
        let Some(client) = self.client(conn) else { return };
        client.request.held.extend_from_slice(bytes);
        if client.request.held.len() > LOGIN_FRAME_BYTES as usize {
            let text = "too much sent before login was complete";
            return self.fail_client(conn, sqlstate::PROTOCOL_VIOLATION, text);
        }
        self.login_goes_on(conn);
    }

    fn login_goes_on(&mut self, conn: ConnId) {
        let Some(client) = self.client(conn) else { return };
        if matches!(&client.phase, Phase::Login(login) if login.exchange.is_none()) {
            return; // Nothing was asked yet.
        }
        let held = &client.request.held;
        let header = match frame::header(held) {
            Ok(None) => return,
            Ok(Some(header))
                if header.tag == wire::tag::frontend::PASSWORD && header.frame_bytes <= LOGIN_FRAME_BYTES =>
            {
                header
            }
            _ => return self.fail_client(conn, sqlstate::PROTOCOL_VIOLATION, "expected a password message"),
        };
        if held.len() < header.frame_bytes as usize {
            return;
        }
        // What is left has a buffer of its own: an idle client must not keep the room of a long password.
        let rest = client.request.held.split_off(header.frame_bytes as usize);
        let message = Zeroizing::new(std::mem::replace(&mut client.request.held, rest));
        let Phase::Login(login) = &mut client.phase else { return };
        let Some(exchange) = &mut login.exchange else { return };
        let step = exchange.message(message.get(frame::HEADER_BYTES..).unwrap_or_default());
        self.login_step(conn, step);
    }

    /// What a client's login asked is answered.
    pub(crate) fn client_login_answered(&mut self, conn: ConnId, answer: Answer) {
        self.log_verdict(conn, &answer);
        let Some(Conn::Client(client)) = self.conns.get_mut(conn.0 as usize) else { return };
        let Phase::Login(login) = &mut client.phase else { return };
        let Some(exchange) = &mut login.exchange else { return };
        let step = exchange.answer(answer, &mut self.derived);
        self.login_step(conn, step);
    }

    pub(crate) fn login_step(&mut self, conn: ConnId, step: Step) {
        match step {
            Step::Send(bytes) => {
                self.outbox.write(conn, |out| out.extend_from_slice(&bytes));
                self.login_goes_on(conn);
            }
            Step::Ask(question) => self.act(Action::Ask { conn, question }),
            Step::Accept(accepted) => self.proven(conn, accepted),
            Step::Reject(fault) => self.login_refused(conn, fault),
        }
    }

    /// The client did not prove itself.
    pub(crate) fn login_refused(&mut self, conn: ConnId, fault: Fault) {
        if let Some(detail) = self.refusal_detail(conn, fault) {
            self.log_client(conn, Level::Error, &detail);
        }
        let user = self.client(conn).map(|client| Arc::clone(&client.login_user)).unwrap_or_default();
        let text = match fault.message() {
            "password authentication failed" => {
                format!("password authentication failed for user \"{user}\"")
            }
            other => other.to_owned(),
        };
        self.fail_client(conn, fault.sqlstate(), &text);
    }

    /// The client is who it says. Find its pool and the shard that has it.
    fn proven(&mut self, conn: ConnId, accepted: Accepted) {
        let Some(client) = self.client(conn) else { return };
        let Phase::Login(login) = std::mem::replace(&mut client.phase, Phase::Idle) else { return };
        let sent = std::mem::take(&mut client.login_bytes);
        self.forget_login_bytes(sent);
        let Login { greeting, right, found, .. } = *login;
        if let Some(right) = right {
            self.outbox.write(conn, |out| out.extend_from_slice(&accepted.send));
            return self.console_opened(conn, right);
        }
        let database = self.config.database(&greeting.database);
        let any = self.config.global.auth_type == AuthType::Any;
        if any && database.as_ref().is_none_or(|database| database.user.is_none()) {
            // The name that was given is ignored, so somebody else's must be there.
            return self.fail_client(conn, sqlstate::PROTOCOL_VIOLATION, "bouncer config error");
        }
        let Some(database) = database else {
            self.outbox.write(conn, |out| out.extend_from_slice(&accepted.send));
            let text = format!("no such database: {}", greeting.database);
            return self.fail_client(conn, sqlstate::INVALID_CATALOG_NAME, &text);
        };
        if database.auto && self.directory.database(&greeting.database).register() {
            self.log_client(
                conn,
                Level::Log,
                &format!("registered new auto-database: db={}", greeting.database),
            );
        }
        let (user, found) = match (&database.user, found) {
            (Some(forced), _) => (forced.clone(), None),
            (None, Some(found)) => (found.user, Some(found.secret)),
            (None, None) => (greeting.user.clone(), None),
        };
        let shared = self.directory.pool(&greeting.database, &user);
        let home = self.shard_for(&shared);
        let Some(Conn::Client(client)) = self.conns.get_mut(conn.0 as usize) else { return };
        let empty = Client::new(0, client.peer, &self.tracked, Arc::clone(&self.nobody), self.now);
        let client = Box::new(std::mem::replace(&mut **client, empty));
        let handover =
            Handover { client, database, pool_user: user, greeting, accepted, found, session: None };
        if home == self.id {
            self.adopt(conn, handover);
        } else {
            self.conns.try_remove(conn.0 as usize);
            self.act(Action::Move { conn, to: home, client: Box::new(handover) });
        }
    }

    /// A proven client whose pool has a part here.
    pub(crate) fn adopt(&mut self, conn: ConnId, handover: Handover) {
        let Handover { client, database, pool_user, greeting, accepted, found, session } = handover;
        self.secures.extend(session.map(|session| Secure::Adopt { conn, session }));
        if let Some(slot) = self.conns.get_mut(conn.0 as usize) {
            *slot = Conn::Client(client);
        }
        let part_index = self.part(&greeting.database, &pool_user, &database);
        let greets = accepted.send;
        let key = self.new_cancel_key(conn);
        let now_us = self.now.mono_us;
        self.outbox.write(conn, |out| out.extend_from_slice(&greets));
        if self.client_must_go(conn) || !self.count_in_pool(conn, part_index) {
            return;
        }
        let Some(part) = self.parts.get_mut(part_index) else { return };
        if part.database.user.is_none() {
            part.keys = accepted.keys.or(part.keys.take());
            part.password = accepted.password.or(part.password.take());
            part.found = found.or(part.found.take());
        }
        part.counters.client_login_count += 1;
        part.last_used_us = now_us;
        let ticket = match &greeting.replication {
            Some(_) => part.pool.queue.join_dedicated(conn.0, now_us),
            None => part.pool.queue.join(conn.0, now_us),
        };
        let met = part.hello.is_some() && greeting.replication.is_none();
        let Some(Conn::Client(client)) = self.conns.get_mut(conn.0 as usize) else { return };
        client.pool = part_index;
        client.cancel_key = key;
        client.phase = Phase::Greeting(ticket);
        client.wish = greeting.replication.map(|replication| Box::new(Wish::new(replication)));
        client.request_us = now_us;
        for (position, value) in &greeting.parameters {
            client.parameters.set(*position, value);
        }
        if self.config.global.application_name_add_host {
            let named = client.parameters.value(APPLICATION_NAME).map_or("app", |name| name);
            let name = format!("{named} - {}", crate::words::peer(client.peer));
            client.parameters.set(APPLICATION_NAME, &name);
        }
        if met {
            if let Some(part) = self.parts.get_mut(part_index) {
                part.pool.queue.leave(ticket);
            }
            self.greet(conn);
        } else {
            self.open_if_wanted(part_index);
        }
    }

    /// Every client of this part that waits to be greeted.
    pub(crate) fn greet_all(&mut self, part_index: usize) {
        let Some(part) = self.parts.get(part_index) else { return };
        let waiting: Vec<ConnId> = ordinary(part).collect();
        for conn in waiting {
            let Some(client) = self.client(conn) else { continue };
            let Phase::Greeting(ticket) = client.phase else { continue };
            if let Some(part) = self.parts.get_mut(part_index) {
                part.pool.queue.leave(ticket);
            }
            self.greet(conn);
        }
    }

    /// AuthenticationOk, what the servers of this pool say of themselves, the cancel key, ReadyForQuery.
    pub(crate) fn greet(&mut self, conn: ConnId) {
        let Some(Conn::Client(client)) = self.conns.get_mut(conn.0 as usize) else { return };
        let Some(part) = self.parts.get(client.pool) else { return };
        // What the client did not ask for is as on a fresh server.
        let mut parameters = part.fresh.clone();
        for position in 0..self.tracked.count() {
            if let Some(value) = client.parameters.value(position) {
                parameters.set(position, value);
            }
        }
        client.parameters = parameters;
        client.phase = Phase::Idle;
        self.welcome(conn, None);
        if self.client(conn).is_some_and(|client| !client.request.held.is_empty()) {
            self.idle_client_holds(conn);
        }
    }

    /// Says all this, as the pool's servers say it or as one server alone has.
    pub(crate) fn welcome(&mut self, conn: ConnId, own: Option<&Hello>) {
        let Some(Conn::Client(client)) = self.conns.get_mut(conn.0 as usize) else { return };
        let Some(part) = self.parts.get(client.pool) else { return };
        let Some(hello) = own.or(part.hello.as_deref()) else { return };
        let (parameters, key, tracked) = (&client.parameters, client.cancel_key, &self.tracked);
        let pooler = About { global: &self.config.global, mode: part.pool.limits.mode };
        self.outbox.write(conn, |out| {
            encode::authentication_ok(out);
            for (name, value) in &hello.parameters {
                let own = tracked.position(name).and_then(|position| parameters.value(position));
                encode::parameter_status(out, name, own.map_or(value, |own| own.as_bytes()));
            }
            pooler.report(out);
            encode::cancel_key(out, &key);
            pooler.notify(out);
            encode::ready(out, Status::Idle);
        });
        self.act(Action::Settle { conn });
    }

    /// A client is not counted any more, and its names are forgotten.
    pub(crate) fn forget_client(&mut self, conn: ConnId) {
        let Some(Conn::Client(client)) = self.conns.get_mut(conn.0 as usize) else { return };
        let id = client.id;
        let asks = match std::mem::replace(&mut client.phase, Phase::Closing) {
            Phase::Login(login) => login.asks,
            _ => None,
        };
        client.request.held = Vec::new();
        let sent = std::mem::take(&mut client.login_bytes);
        if let Some(mut statements) = client.request.statements.take() {
            statements.forget_all(&mut self.registry);
        }
        if std::mem::take(&mut client.keeps_key) {
            let key = crate::cancel_key::whole(&client.cancel_key, self.config.global.peer_id);
            self.directory.forget_cancel_key(&key);
        }
        self.uncount(conn);
        self.forget_login_bytes(sent);
        if let Some(asks) = asks {
            self.withdraw_inquiry(asks, id);
        }
    }

    pub(crate) fn random_u32(&mut self) -> u32 {
        let mut bytes = [0; 4];
        self.entropy.fill(&mut bytes);
        u32::from_be_bytes(bytes)
    }
}
