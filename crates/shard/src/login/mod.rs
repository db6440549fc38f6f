//! Authentication of clients: what a client may try to open, and the exchange that its method needs.
//!
//! Owns the order of these steps and the text of each refusal. Unknown users and databases are distinguished from wrong
//! passwords only where PgBouncer does so (no password requested). Authenticated clients are `admission`'s.

pub(crate) mod admission;
pub(crate) mod budget;
pub(crate) mod client_tls;
pub(crate) mod counting;
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

use crate::auth_query::lookup;
use crate::cancel_key::KeyMaker;
use crate::client::Phase;
use crate::client::login::{AuthRequirement, Login, SecretNeeded};
use crate::connections::Conn;
use crate::core::{CONSOLE, Core};
use crate::effects::Effect;
use crate::link::{client_end, slow_login};
use crate::login::budget::{LoginBudget, SPENT};
use crate::login::failure::Failures;
use crate::login::method::remote;
use crate::login::startup::GarbageSeen;
use crate::login::unauthenticated::Unauthenticated;
use crate::{Action, ConnId, Peer, draining};

/// A password message may carry a token of 64 KiB.
const LOGIN_FRAME_BYTES: u32 = 64 * 1024 + 512;

/// Derived keys that are remembered at most.
const KEYS_KEPT: usize = 1024;

/// What a shard keeps of logins.
pub(crate) struct Logins {
    mock: MockKey,
    /// Makes the cancel keys that clients get.
    keys: KeyMaker,
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
            keys: KeyMaker::new(mock),
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

impl Logins {
    /// A startup packet that is served: limits, then proof.
    pub(crate) fn startup_request_received(
        &mut self,
        core: &mut Core,
        conn: ConnId,
        mut startup_request: StartupRequest,
        rest: &[u8],
    ) {
        let role = (startup_request.database == CONSOLE)
            .then(|| self.console_right(core, conn, &startup_request.user));
        let Some(client) = core.client(conn) else { return };
        client.login_user = Arc::from(&*startup_request.user);
        client.request.held = rest.to_vec();
        if client_tls::lacks_tls(core, conn) {
            return client_tls::refuse_plain(core, conn);
        }
        if !self.count_login_bytes(core, conn, rest.len()) {
            return client_end::fail_client(core, conn, sqlstate::TOO_MANY_CONNECTIONS, SPENT);
        }
        if core.administration.shutdown().is_some() && role != Some(Some(Role::Admin)) {
            // PostgreSQL's code for the same: libpq tries the next of its hosts.
            return client_end::fail_client(
                core,
                conn,
                sqlstate::CANNOT_CONNECT_NOW,
                "pooler is shutting down",
            );
        }
        if role.is_none() && core.config.global.auth_type == AuthType::Any {
            let forced =
                core.config.database(&startup_request.database).and_then(|database| database.user.clone());
            let Some(user) = forced else {
                core.log_client(conn, Level::Error, "auth_type=any requires forced user");
                return client_end::fail_client(
                    core,
                    conn,
                    sqlstate::CONFIG_FILE_ERROR,
                    "bouncer config error",
                );
            };
            if let Some(client) = core.client(conn) {
                client.login_user = Arc::from(&*user);
            }
            startup_request.user = user;
        }
        log_attempt(core, conn, &startup_request);
        if role.is_none()
            && (draining::refuse_new_client(core, conn)
                || client_end::refuse_if_disabled(core, conn, &startup_request.database))
        {
            return;
        }
        match role {
            Some(None) => {
                if let Some(client) = core.client(conn) {
                    client.phase = Phase::Login(Box::new(Login::new(startup_request, None)));
                }
                client_end::fail_client(core, conn, sqlstate::INVALID_AUTHORIZATION, "not allowed");
            }
            Some(Some(role)) if self.is_own_unix_user(core, conn, &startup_request.user) => {
                self.count_in_process(core, conn, true);
                core.log_client(conn, Level::Log, "pgbouncer access from unix socket");
                self.open_console(core, conn, role, startup_request.minor);
            }
            role => self.authenticate(core, conn, startup_request, role.flatten()),
        }
    }

    pub(crate) fn console_right(&self, core: &Core, conn: ConnId, user: &str) -> Option<Role> {
        let global = &core.config.global;
        if self.is_own_unix_user(core, conn, user) || lists(&global.admin_users, user) {
            return Some(Role::Admin);
        }
        // `any` gives every client the stats role. PgBouncer's manual says "as admin", but it refuses them admin commands.
        let may_look = global.auth_type == AuthType::Any || lists(&global.stats_users, user);
        may_look.then_some(Role::Stats)
    }

    fn is_own_unix_user(&self, core: &Core, conn: ConnId, user: &str) -> bool {
        let user_id = peer_user_id(core, conn);
        user == CONSOLE && user_id.is_some() && user_id == self.unix_user_id
    }

    /// Begins the authentication of a client if there is room for it. It counts once it is authenticated.
    fn authenticate(
        &mut self,
        core: &mut Core,
        conn: ConnId,
        startup_request: StartupRequest,
        role: Option<Role>,
    ) {
        if !counting::has_room_in_process(core, conn, role.is_some()) {
            return;
        }
        if let Some(names) = &startup_request.negotiate {
            let names: Vec<&[u8]> = names.iter().map(String::as_bytes).collect();
            core.outbox.write(conn, |out| encode::negotiate(out, startup_request.minor, &names));
        }
        let Some(client) = core.client(conn) else { return };
        client.phase = Phase::Login(Box::new(Login::new(startup_request, role)));
        self.require_authentication(core, conn, None);
    }

    /// Determines what the client has to authenticate with. `roles` are those of its user, if they were queried.
    pub(crate) fn require_authentication(
        &mut self,
        core: &mut Core,
        conn: ConnId,
        roles: Option<&BTreeSet<String>>,
    ) {
        let Some(startup_request) = lookup::startup_request_of(core, conn) else { return };
        let requirement = method::auth_requirement(core, conn, &startup_request, roles);
        drop(startup_request); // It is the client's alone again, and need not be copied when the login is over.
        match requirement {
            AuthRequirement::Roles => core.effects.push(Effect::QueryRoles(conn)),
            AuthRequirement::Refusal(refusal) => self.refuse(core, conn, refusal),
            requirement => {
                let Some(client) = core.client(conn) else { return };
                let secret_needed = requirement.secret_needed();
                if let Phase::Login(login) = &mut client.phase {
                    login.requirement = Some(requirement);
                }
                match secret_needed {
                    SecretNeeded::Nothing => self.begin_authentication(core, conn, None),
                    secret_needed => core.effects.push(Effect::FindSecret(conn, secret_needed)),
                }
            }
        }
    }

    /// The user's secret is known, or that there is none: begins the exchange that is demanded.
    pub(crate) fn begin_authentication(&mut self, core: &mut Core, conn: ConnId, secret: Option<&Secret>) {
        let user_id = peer_user_id(core, conn);
        let Some(client) = core.conns.client_mut(conn) else { return };
        let Phase::Login(login) = &mut client.phase else { return };
        let user = &login.startup_request.user;
        let (exchange, step) = match login.requirement.take() {
            Some(AuthRequirement::Exchange(method)) => ClientLogin::begin_bound(
                method,
                user,
                secret,
                &self.mock,
                &self.derived,
                &mut *core.entropy,
                core.config.global.scram_iterations,
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
            Some(AuthRequirement::Refusal(refusal)) => return self.refuse(core, conn, refusal),
            Some(AuthRequirement::Roles) | None => return,
        };
        login.exchange = Some(exchange);
        self.login_step(core, conn, step);
    }

    /// Bytes of the exchange.
    pub(crate) fn login_message(&mut self, core: &mut Core, conn: ConnId, bytes: &[u8]) {
        if matches!(core.client(conn).map(|client| &client.phase), Some(Phase::Login(login)) if login.held_answer.is_some())
        {
            return; // Nothing that it says changes the answer.
        }
        if !self.count_login_bytes(core, conn, bytes.len()) {
            return client_end::fail_client(core, conn, sqlstate::TOO_MANY_CONNECTIONS, SPENT);
        }
        let Some(client) = core.client(conn) else { return };
        client.request.held.extend_from_slice(bytes);
        if client.request.held.len() > LOGIN_FRAME_BYTES as usize {
            let text = "too much sent before login was complete";
            return client_end::fail_client(core, conn, sqlstate::PROTOCOL_VIOLATION, text);
        }
        self.login_goes_on(core, conn);
    }

    fn login_goes_on(&mut self, core: &mut Core, conn: ConnId) {
        let Some(client) = core.client(conn) else { return };
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
                    core,
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
        self.login_step(core, conn, step);
    }

    /// The answer to a client's [`Action::Ask`].
    pub(crate) fn client_login_answered(&mut self, core: &mut Core, conn: ConnId, answer: TaskResult) {
        method::log_verdict(core, conn, &answer);
        let Some(client) = core.conns.client_mut(conn) else { return };
        slow_login::ends(client, core.now.mono_us);
        let Phase::Login(login) = &mut client.phase else { return };
        let Some(exchange) = &mut login.exchange else { return };
        login.asks_helper = false;
        let step = exchange.answer(answer, &mut self.derived);
        self.login_step(core, conn, step);
    }

    pub(crate) fn login_step(&mut self, core: &mut Core, conn: ConnId, step: Step) {
        match step {
            Step::Send(bytes) => {
                let now_us = core.now.mono_us;
                if let Some(client) = core.client(conn) {
                    client.request_us = now_us;
                }
                core.outbox.write(conn, |out| out.extend_from_slice(&bytes));
                self.login_goes_on(core, conn);
            }
            Step::Ask(question) => {
                let now_us = core.now.mono_us;
                if let Some(client) = core.client(conn) {
                    slow_login::begins(client, slow_login::part_of(&question), now_us);
                    if let Phase::Login(login) = &mut client.phase {
                        login.asks_helper = true;
                    }
                }
                core.act(Action::Ask { conn, question: Box::new(question) });
            }
            Step::Accept(accepted) => self.authenticated(core, conn, accepted),
            Step::Reject(fault) => self.login_refused(core, conn, fault),
        }
    }

    /// The client did not prove itself.
    pub(crate) fn login_refused(&mut self, core: &mut Core, conn: ConnId, fault: Fault) {
        if let Some(detail) = method::refusal_detail(core, conn, fault) {
            core.log_client(conn, Level::Error, &detail);
        }
        let user = core.client(conn).map(|client| Arc::clone(&client.login_user)).unwrap_or_default();
        let text = match fault.message() {
            "password authentication failed" => {
                format!("password authentication failed for user \"{user}\"")
            }
            other => other.to_owned(),
        };
        self.fail_login(core, conn, fault.sqlstate(), &text);
    }
}

fn log_attempt(core: &mut Core, conn: ConnId, startup_request: &StartupRequest) {
    if !core.config.global.log_connections {
        return;
    }
    let Some(client) = core.client(conn) else { return };
    let (id, peer) = (client.id, crate::log_format::peer(client.peer));
    let tls = client.tls.as_ref().map_or_else(|| "no".to_owned(), |agreed| agreed.summary());
    let (database, user) = (&startup_request.database, &startup_request.user);
    let replication = startup_request.replication.as_ref().map_or("no", |wanted| wanted.kind.value());
    let text = format!(
        "C-0x{id:x}: {database}/{user}@{peer} login attempt: db={database} user={user} tls={tls} replication={replication}"
    );
    core.log(Level::Log, text);
}

/// The system user at the other end of a unix socket.
fn peer_user_id(core: &Core, conn: ConnId) -> Option<u32> {
    match core.conns.get(conn) {
        Some(Conn::Client(client)) => match client.peer {
            Peer::Unix { user_id, .. } => Some(user_id),
            Peer::Inet { .. } => None,
        },
        _ => None,
    }
}
