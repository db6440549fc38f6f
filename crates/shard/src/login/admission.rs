//! Admission of an authenticated client to its pool, and its end: the shard that has the pool, the counts, the greeting.
//!
//! Owns what a client is sent before its first query and what is dropped when it disconnects. Never authenticates.

use std::sync::Arc;

use auth::Accepted;
use messages::Role;
use session::SessionSettings;
use session::parameters::APPLICATION_NAME;
use settings::AuthType;
use telemetry::Level;
use wire::sqlstate;
use wire::startup::Version;

use crate::auth_query::lookup;
use crate::cancel_key::{LONG, secret_length};
use crate::client::login::Login;
use crate::client::login_times::LoginPart;
use crate::client::{DedicatedRequest, Phase};
use crate::connections::Conn;
use crate::core::{CONSOLE, Core};
use crate::effects::{Effect, TlsRequest};
use crate::link::{cancel_keys, client_end, fair, greet, opening, quotas, slow_login};
use crate::login::{Logins, client_tls, counting, method};
use crate::{Action, ClientMove, ConnId, pools};

impl Logins {
    /// The client is authenticated. Finds its pool and the shard that has it.
    pub(crate) fn authenticated(&mut self, core: &mut Core, conn: ConnId, accepted: Accepted) {
        if !self.is_still_admitted(core, conn) {
            return;
        }
        let is_console = matches!(core.client(conn).map(|client| &client.phase), Some(Phase::Login(login)) if login.role.is_some());
        if !self.count_in_process(core, conn, is_console) {
            return;
        }
        let Some(client) = core.client(conn) else { return };
        let Phase::Login(login) = std::mem::replace(&mut client.phase, Phase::Idle) else { return };
        let sent = std::mem::take(&mut client.login_bytes);
        self.forget_login_bytes(sent);
        let Login { startup_request, role, found, .. } = *login;
        let startup_request = Arc::unwrap_or_clone(startup_request);
        if let Some(role) = role {
            core.outbox.write(conn, |out| out.extend_from_slice(&accepted.send));
            return self.open_console(core, conn, role, startup_request.minor);
        }
        let Some(database) = core.config.database(&startup_request.database) else {
            core.outbox.write(conn, |out| out.extend_from_slice(&accepted.send));
            if core.config.global.log_connections {
                let text =
                    format!("login failed: db={} user={}", startup_request.database, startup_request.user);
                core.log_client(conn, Level::Log, &text);
            }
            let text = format!("no such database: {}", startup_request.database);
            return client_end::fail_client(core, conn, sqlstate::INVALID_CATALOG_NAME, &text);
        };
        if database.auto && core.pool_registry.database(&startup_request.database).register() {
            core.log_client(
                conn,
                Level::Log,
                &format!("registered new auto-database: db={}", startup_request.database),
            );
        }
        let (user, found) = match (&database.user, found) {
            (Some(forced), _) => (forced.clone(), None),
            (None, Some(found)) => (found.user, Some(found.secret)),
            (None, None) => (startup_request.user.clone(), None),
        };
        let shared = core.pool_registry.pool(&startup_request.database, &user);
        let home = pools::shard_for(core, &shared);
        let Some(slot) = core.conns.get_mut(conn) else { return };
        let Conn::Client(client) = std::mem::replace(slot, Conn::Reserved) else { return };
        let client_move =
            ClientMove { client, pool_user: user, startup_request, accepted, found, session: None };
        if home == core.id {
            self.adopt(core, conn, client_move);
        } else {
            core.conns.remove(conn);
            core.act(Action::Move { conn, to: home, client: Box::new(client_move) });
        }
    }

    /// The client may use the console, if its limits allow one more.
    pub(crate) fn open_console(&mut self, core: &mut Core, conn: ConnId, role: Role, minor: u16) {
        if counting::count_in_console(core, conn, role) {
            self.give_cancel_key(core, conn, minor);
            core.effects.push(Effect::ConsoleOpened(conn, role));
        }
    }

    /// Creates the cancel key of a client before its greeting; since protocol 3.2 it may be long.
    pub(crate) fn give_cancel_key(&mut self, core: &mut Core, conn: ConnId, minor: u16) {
        let group = core.config.peer_group();
        let mut secret = [0; LONG];
        let secret = &mut secret[..secret_length(group, minor >= Version::V3_2.minor)];
        core.entropy.fill(secret);
        // A process id that is given for the second time, after all others, may still be in use.
        while !cancel_keys::register(
            core,
            conn,
            self.keys.make(group, secret, || core.process.next_cancel_number()),
        ) {}
    }

    /// Settings may have changed during authentication, and a login can be drawn out: what refuses a connection at
    /// its beginning refuses it at its end. False: the client got the error.
    fn is_still_admitted(&mut self, core: &mut Core, conn: ConnId) -> bool {
        if client_tls::lacks_tls(core, conn) {
            client_tls::refuse_plain(core, conn);
            return false;
        }
        let Some(startup_request) = lookup::startup_request_of(core, conn) else { return false };
        let role = (startup_request.database == CONSOLE)
            .then(|| self.console_right(core, conn, &startup_request.user));
        if role == Some(None) {
            client_end::fail_client(core, conn, sqlstate::INVALID_AUTHORIZATION, "not allowed");
            return false;
        }
        if let Some(Phase::Login(login)) = core.client(conn).map(|client| &mut client.phase) {
            login.role = role.flatten();
        }
        let refusal = match core.config.global.auth_type {
            AuthType::Hba => method::refusal_by_rule(core, conn, &startup_request),
            _ => None,
        };
        if let Some(refusal) = refusal {
            self.refuse(core, conn, refusal);
        }
        refusal.is_none()
    }

    /// An authenticated client whose pool is on this shard.
    pub(crate) fn adopt(&mut self, core: &mut Core, conn: ConnId, client_move: ClientMove) {
        let ClientMove { client, pool_user, startup_request, accepted, found, session } = client_move;
        core.tls.requests.extend(session.map(|session| TlsRequest::Adopt { conn, session }));
        core.conns.place(conn, Conn::Client(client));
        // The thread that let it in may have had another configuration still.
        let Some(database) = core.config.database(&startup_request.database) else {
            core.pool_registry.forget_pool(&startup_request.database, &pool_user);
            let text = format!("no such database: {}", startup_request.database);
            return client_end::fail_client(core, conn, sqlstate::INVALID_CATALOG_NAME, &text);
        };
        let pool_id = pools::local_pool(core, &startup_request.database, &pool_user, &database);
        let greets = accepted.send;
        let now_us = core.now.mono_us;
        core.outbox.write(conn, |out| out.extend_from_slice(&greets));
        if client_end::client_must_disconnect(core, conn) || !counting::count_in_pool(core, conn, pool_id) {
            return;
        }
        let Some(local_pool) = core.local_pools.get_mut(pool_id) else { return };
        if local_pool.database.user.is_none() {
            local_pool.keys = accepted.keys.or(local_pool.keys.take());
            local_pool.password = accepted.password.or(local_pool.password.take());
            local_pool.found = found.or(local_pool.found.take());
        }
        local_pool.counters.client_login_count += 1;
        local_pool.last_used_us = now_us;
        let server_greeting = local_pool.server_greeting.is_some()
            && startup_request.replication.is_none()
            && !local_pool.pool.limits.assigns_at_login;
        let Some(client) = core.conns.client_mut(conn) else { return };
        client.pool = Some(pool_id);
        client.dedicated_request =
            startup_request.replication.map(|replication| Box::new(DedicatedRequest::new(replication)));
        client.request_us = now_us;
        let (unsaid, replicates) = (client.parameters.clone(), client.dedicated_request.is_some());
        let asked = startup_request.parameters.iter().map(|(position, value)| (*position, value.as_str()));
        client.parameters.set_each(asked);
        if !startup_request.others.is_empty() {
            client.parameters.set_others(SessionSettings::new(startup_request.others));
        }
        if core.config.global.application_name_add_host {
            let named = client.parameters.value(APPLICATION_NAME).map_or("app", |name| name);
            let name = format!("{named} - {}", crate::log_format::peer(client.peer));
            client.parameters.set(APPLICATION_NAME, &name);
        }
        if !quotas::enter(core, conn) {
            return;
        }
        let Some(client) = core.conns.client_mut(conn) else { return };
        // A dedicated server gets the parameters of its replication client in its startup packet.
        let said_nothing = client.parameters.shared_with(&unsaid) || replicates;
        client.startup = (!said_nothing).then(|| client.parameters.clone());
        let Some(local_pool) = core.local_pools.get_mut(pool_id) else { return };
        let position = match replicates {
            true => local_pool.pool.queue.join_dedicated(conn.0, now_us),
            false => fair::join(client, local_pool, &core.pool_registry, conn, now_us),
        };
        client.phase = Phase::AwaitingGreeting(position);
        slow_login::begins(client, LoginPart::Server, now_us);
        self.give_cancel_key(core, conn, startup_request.minor);
        if server_greeting {
            if let Some(local_pool) = core.local_pools.get_mut(pool_id) {
                local_pool.pool.queue.leave(position);
            }
            greet::send_greeting(core, conn);
        } else {
            opening::serve_or_open(core, pool_id);
        }
    }
}
