//! Authentication of clients: what a client may try to open, and the exchange that its method needs.
//!
//! Owns the order of these steps and the text of each refusal. Unknown users and databases are distinguished from wrong
//! passwords only where PgBouncer does so (no password requested). Authenticated clients are `admission`'s.

pub(crate) mod admission;
pub(crate) mod budget;
pub(crate) mod client_tls;
pub(crate) mod counting;
pub(crate) mod external;
pub(crate) mod failure;
pub(crate) mod method;
pub(crate) mod startup;
pub(crate) mod unauthenticated;

use std::collections::BTreeSet;
use std::sync::Arc;

use auth::{
    ClientLogin, DerivedCache, Fault, MockKey, PresentedCertificate, Secret, Step, TaskResult, Zeroizing,
};
use messages::Role;
use session::StartupRequest;
use settings::{AuthType, Config};
use telemetry::Level;
use wire::{encode, frame, sqlstate};

use crate::client::Phase;
use crate::client::login::{AuthRequirement, Login, SecretNeeded};
use crate::connections::Conn;
use crate::core::{CONSOLE, Core};
use crate::link::client_end;
use crate::login::budget::{LoginBudget, SPENT};
use crate::login::external::remote;
use crate::login::failure::Failures;
use crate::login::startup::GarbageSeen;
use crate::login::unauthenticated::Unauthenticated;
use crate::state::ShardState;
use crate::{Action, ConnId, Peer};

/// A password message may carry a token of 64 KiB.
const LOGIN_FRAME_BYTES: u32 = 64 * 1024 + 512;

/// Derived keys that are remembered at most.
const KEYS_KEPT: usize = 1024;

/// What a shard keeps of logins.
pub(crate) struct Logins {
    mock: MockKey,
    derived: DerivedCache,
    /// The user of the system that reaches the console over a unix socket without a password.
    unix_user_id: Option<u32>,
    /// The user's name of a client that has given none.
    nobody: Arc<str>,
    garbage: GarbageSeen,
    budget: LoginBudget,
    /// Connections that have not logged in.
    unauthenticated: Unauthenticated,
    /// Logins that have failed lately.
    failures: Failures,
    /// How many files the process may have open.
    files_max: u64,
}

impl Logins {
    pub(crate) fn new(mock: &MockKey, config: &Config) -> Logins {
        Logins {
            mock: mock_of(mock, config),
            derived: DerivedCache::new(KEYS_KEPT),
            unix_user_id: None,
            nobody: Arc::from("(nouser)"),
            garbage: GarbageSeen::default(),
            budget: LoginBudget::default(),
            unauthenticated: Unauthenticated::default(),
            failures: Failures::default(),
            files_max: u64::MAX,
        }
    }

    pub(crate) fn trust_unix_user(&mut self, user_id: u32) {
        self.unix_user_id = Some(user_id);
    }

    pub(crate) fn limit_files(&mut self, files_max: u64) {
        self.files_max = files_max;
    }

    /// The secrets of known users may have changed.
    pub(crate) fn configure(&mut self, config: &Config) {
        self.mock = mock_of(&self.mock, config);
    }

    /// What logins in progress have sent beyond what each may.
    pub(crate) fn bytes_spent(&self) -> u32 {
        self.budget.spent()
    }
}

/// Unknown users look like most of the known ones.
fn mock_of(mock: &MockKey, config: &Config) -> MockKey {
    mock.clone().imitating_most(config.secrets.values().map(String::as_str))
}

/// A list of the settings names this user.
fn lists(names: &[String], user: &str) -> bool {
    names.iter().any(|name| settings::truncate_identifier(name) == user)
}

impl ShardState {
    /// A startup packet that is served: limits, then proof.
    pub(crate) fn startup_request_received(
        &mut self,
        conn: ConnId,
        mut startup_request: StartupRequest,
        rest: &[u8],
    ) {
        let role =
            (startup_request.database == CONSOLE).then(|| self.console_right(conn, &startup_request.user));
        let Some(client) = self.core.client(conn) else { return };
        client.login_user = Arc::from(&*startup_request.user);
        client.request.held = rest.to_vec();
        if client_tls::lacks_tls(&self.core, conn) {
            return client_tls::refuse_plain(&mut self.core, conn);
        }
        if !self.count_login_bytes(conn, rest.len()) {
            return client_end::fail_client(&mut self.core, conn, sqlstate::TOO_MANY_CONNECTIONS, SPENT);
        }
        if self.core.administration.shutdown().is_some() && role != Some(Some(Role::Admin)) {
            return client_end::fail_client(
                &mut self.core,
                conn,
                sqlstate::ADMIN_SHUTDOWN,
                "pooler is shutting down",
            );
        }
        if role.is_none() && self.core.config.global.auth_type == AuthType::Any {
            let forced = self
                .core
                .config
                .database(&startup_request.database)
                .and_then(|database| database.user.clone());
            let Some(user) = forced else {
                self.core.log_client(conn, Level::Error, "auth_type=any requires forced user");
                return client_end::fail_client(
                    &mut self.core,
                    conn,
                    sqlstate::CONFIG_FILE_ERROR,
                    "bouncer config error",
                );
            };
            if let Some(client) = self.core.client(conn) {
                client.login_user = Arc::from(&*user);
            }
            startup_request.user = user;
        }
        self.core.log_attempt(conn, &startup_request);
        if role.is_none() && self.refuse_if_disabled(conn, &startup_request.database) {
            return;
        }
        match role {
            Some(None) => {
                if let Some(client) = self.core.client(conn) {
                    client.phase = Phase::Login(Box::new(Login::new(startup_request, None)));
                }
                client_end::fail_client(&mut self.core, conn, sqlstate::INVALID_AUTHORIZATION, "not allowed");
            }
            Some(Some(role)) if self.is_own_unix_user(conn, &startup_request.user) => {
                self.count_in_process(conn, true);
                self.core.log_client(conn, Level::Log, "pgbouncer access from unix socket");
                self.console_opened(conn, role, startup_request.minor);
            }
            role => self.authenticate(conn, startup_request, role.flatten()),
        }
    }

    pub(crate) fn console_right(&self, conn: ConnId, user: &str) -> Option<Role> {
        let global = &self.core.config.global;
        if self.is_own_unix_user(conn, user) || lists(&global.admin_users, user) {
            return Some(Role::Admin);
        }
        // `any` gives every client the stats role. PgBouncer's manual says "as admin", but it refuses them admin commands.
        let may_look = global.auth_type == AuthType::Any || lists(&global.stats_users, user);
        may_look.then_some(Role::Stats)
    }

    fn is_own_unix_user(&self, conn: ConnId, user: &str) -> bool {
        let user_id = self.core.peer_user_id(conn);
        user == CONSOLE && user_id.is_some() && user_id == self.logins.unix_user_id
    }

    /// Begins the authentication of a client if there is room for it. It counts once it is authenticated.
    fn authenticate(&mut self, conn: ConnId, startup_request: StartupRequest, role: Option<Role>) {
        if !counting::has_room_in_process(&mut self.core, conn, role.is_some()) {
            return;
        }
        if let Some(names) = &startup_request.negotiate {
            let names: Vec<&[u8]> = names.iter().map(String::as_bytes).collect();
            self.core.outbox.write(conn, |out| encode::negotiate(out, startup_request.minor, &names));
        }
        let Some(client) = self.core.client(conn) else { return };
        client.phase = Phase::Login(Box::new(Login::new(startup_request, role)));
        self.require_authentication(conn, None);
    }

    /// Determines what the client has to authenticate with. `roles` are those of its user, if they were queried.
    pub(crate) fn require_authentication(&mut self, conn: ConnId, roles: Option<&BTreeSet<String>>) {
        let Some(startup_request) = self.core.startup_request_of(conn) else { return };
        let requirement = self.core.auth_requirement(conn, &startup_request, roles);
        drop(startup_request); // It is the client's alone again, and need not be copied when the login is over.
        match requirement {
            AuthRequirement::Roles => self.query_roles(conn),
            AuthRequirement::Refusal(refusal) => self.refuse(conn, refusal),
            requirement => {
                let Some(client) = self.core.client(conn) else { return };
                let secret_needed = requirement.secret_needed();
                if let Phase::Login(login) = &mut client.phase {
                    login.requirement = Some(requirement);
                }
                match secret_needed {
                    SecretNeeded::Nothing => self.begin_authentication(conn, None),
                    secret_needed => self.find_secret(conn, secret_needed),
                }
            }
        }
    }

    /// The user's secret is known, or that there is none: begins the exchange that is demanded.
    pub(crate) fn begin_authentication(&mut self, conn: ConnId, secret: Option<&Secret>) {
        let user_id = self.core.peer_user_id(conn);
        let Some(client) = self.core.conns.client_mut(conn) else { return };
        let Phase::Login(login) = &mut client.phase else { return };
        let user = &login.startup_request.user;
        let (exchange, step) = match login.requirement.take() {
            Some(AuthRequirement::Exchange(method)) => ClientLogin::begin_bound(
                method,
                user,
                secret,
                &self.logins.mock,
                &self.logins.derived,
                &mut *self.core.entropy,
                self.core.config.global.scram_iterations,
                client.tls.as_ref().and_then(|tls| tls.end_point.as_deref()),
            ),
            Some(AuthRequirement::Peer(map)) => {
                login.map.clone_from(&map);
                ClientLogin::peer(user, secret.is_some(), user_id, map)
            }
            Some(AuthRequirement::Certificate(map)) => {
                login.map = map;
                let name = client.tls.as_ref().and_then(|tls| tls.peer.as_ref()?.common_name.as_deref());
                // As PgBouncer documents it: the common name and no other.
                let shown = match (&client.tls, &name) {
                    (None, _) => PresentedCertificate::NoTls,
                    (Some(_), None) => PresentedCertificate::NoCertificate,
                    (Some(_), Some(name)) => PresentedCertificate::Names(std::slice::from_ref(name)),
                };
                ClientLogin::certificate(user, secret.is_some(), shown, login.map.as_deref())
            }
            Some(AuthRequirement::External(authority)) => {
                ClientLogin::begin_external(authority, user, &remote(client.peer))
            }
            Some(AuthRequirement::Refusal(refusal)) => return self.refuse(conn, refusal),
            Some(AuthRequirement::Roles) | None => return,
        };
        login.exchange = Some(exchange);
        self.login_step(conn, step);
    }

    /// Bytes of the exchange.
    pub(crate) fn login_message(&mut self, conn: ConnId, bytes: &[u8]) {
        if matches!(self.core.client(conn).map(|client| &client.phase), Some(Phase::Login(login)) if login.held_answer.is_some())
        {
            return; // Nothing that it says changes the answer.
        }
        if !self.count_login_bytes(conn, bytes.len()) {
            return client_end::fail_client(&mut self.core, conn, sqlstate::TOO_MANY_CONNECTIONS, SPENT);
        }
        let Some(client) = self.core.client(conn) else { return };
        client.request.held.extend_from_slice(bytes);
        if client.request.held.len() > LOGIN_FRAME_BYTES as usize {
            let text = "too much sent before login was complete";
            return client_end::fail_client(&mut self.core, conn, sqlstate::PROTOCOL_VIOLATION, text);
        }
        self.login_goes_on(conn);
    }

    fn login_goes_on(&mut self, conn: ConnId) {
        let Some(client) = self.core.client(conn) else { return };
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
            _ => {
                return client_end::fail_client(
                    &mut self.core,
                    conn,
                    sqlstate::PROTOCOL_VIOLATION,
                    "expected a password message",
                );
            }
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

    /// The answer to a client's [`Action::Ask`].
    pub(crate) fn client_login_answered(&mut self, conn: ConnId, answer: TaskResult) {
        external::log_verdict(&mut self.core, conn, &answer);
        let Some(client) = self.core.conns.client_mut(conn) else { return };
        let Phase::Login(login) = &mut client.phase else { return };
        let Some(exchange) = &mut login.exchange else { return };
        login.asks_helper = false;
        let step = exchange.answer(answer, &mut self.logins.derived);
        self.login_step(conn, step);
    }

    pub(crate) fn login_step(&mut self, conn: ConnId, step: Step) {
        match step {
            Step::Send(bytes) => {
                let now_us = self.core.now.mono_us;
                if let Some(client) = self.core.client(conn) {
                    client.request_us = now_us;
                }
                self.core.outbox.write(conn, |out| out.extend_from_slice(&bytes));
                self.login_goes_on(conn);
            }
            Step::Ask(question) => {
                if let Some(Phase::Login(login)) = self.core.client(conn).map(|client| &mut client.phase) {
                    login.asks_helper = true;
                }
                self.core.act(Action::Ask { conn, question: Box::new(question) });
            }
            Step::Accept(accepted) => self.authenticated(conn, accepted),
            Step::Reject(fault) => self.login_refused(conn, fault),
        }
    }

    /// The client did not prove itself.
    pub(crate) fn login_refused(&mut self, conn: ConnId, fault: Fault) {
        if let Some(detail) = self.core.refusal_detail(conn, fault) {
            self.core.log_client(conn, Level::Error, &detail);
        }
        let user = self.core.client(conn).map(|client| Arc::clone(&client.login_user)).unwrap_or_default();
        let text = match fault.message() {
            "password authentication failed" => {
                format!("password authentication failed for user \"{user}\"")
            }
            other => other.to_owned(),
        };
        self.fail_login(conn, fault.sqlstate(), &text);
    }
}

impl Core {
    fn log_attempt(&mut self, conn: ConnId, startup_request: &StartupRequest) {
        if !self.config.global.log_connections {
            return;
        }
        let Some(client) = self.client(conn) else { return };
        let (id, peer) = (client.id, crate::log_format::peer(client.peer));
        let tls = client.tls.as_ref().map_or_else(|| "no".to_owned(), |agreed| agreed.summary());
        let (database, user) = (&startup_request.database, &startup_request.user);
        let replication = startup_request.replication.as_ref().map_or("no", |wanted| wanted.kind.value());
        let text = format!(
            "C-0x{id:x}: {database}/{user}@{peer} login attempt: db={database} user={user} tls={tls} replication={replication}"
        );
        self.log(Level::Log, text);
    }

    /// The system user at the other end of a unix socket.
    fn peer_user_id(&self, conn: ConnId) -> Option<u32> {
        match self.conns.get(conn) {
            Some(Conn::Client(client)) => match client.peer {
                Peer::Unix { user_id, .. } => Some(user_id),
                Peer::Inet { .. } => None,
            },
            _ => None,
        }
    }
}
