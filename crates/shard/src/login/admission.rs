//! Admission of an authenticated client to its pool, and its end: the shard that has the pool, the counts, the greeting.
//!
//! Owns what a client is sent before its first query and what is dropped when it disconnects. Never authenticates.

use std::sync::Arc;

use auth::Accepted;
use session::parameters::APPLICATION_NAME;
use settings::AuthType;
use telemetry::Level;
use wire::sqlstate;

use crate::client::login::Login;
use crate::client::{DedicatedRequest, Phase};
use crate::connections::Conn;
use crate::core::CONSOLE;
use crate::effects::TlsRequest;
use crate::link::{client_end, greet, opening};
use crate::login::{client_tls, counting};
use crate::state::ShardState;
use crate::{Action, ClientMove, ConnId, pools};

impl ShardState {
    /// The client is authenticated. Finds its pool and the shard that has it.
    pub(crate) fn authenticated(&mut self, conn: ConnId, accepted: Accepted) {
        if !self.is_still_admitted(conn) {
            return;
        }
        let is_console = matches!(self.core.client(conn).map(|client| &client.phase), Some(Phase::Login(login)) if login.role.is_some());
        if !self.count_in_process(conn, is_console) {
            return;
        }
        let Some(client) = self.core.client(conn) else { return };
        let Phase::Login(login) = std::mem::replace(&mut client.phase, Phase::Idle) else { return };
        let sent = std::mem::take(&mut client.login_bytes);
        self.forget_login_bytes(sent);
        let Login { startup_request, role, found, .. } = *login;
        let startup_request = Arc::unwrap_or_clone(startup_request);
        if let Some(role) = role {
            self.core.outbox.write(conn, |out| out.extend_from_slice(&accepted.send));
            return self.console_opened(conn, role, startup_request.minor);
        }
        let Some(database) = self.core.config.database(&startup_request.database) else {
            self.core.outbox.write(conn, |out| out.extend_from_slice(&accepted.send));
            if self.core.config.global.log_connections {
                let text =
                    format!("login failed: db={} user={}", startup_request.database, startup_request.user);
                self.core.log_client(conn, Level::Log, &text);
            }
            let text = format!("no such database: {}", startup_request.database);
            return client_end::fail_client(&mut self.core, conn, sqlstate::INVALID_CATALOG_NAME, &text);
        };
        if database.auto && self.core.pool_registry.database(&startup_request.database).register() {
            self.core.log_client(
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
        let shared = self.core.pool_registry.pool(&startup_request.database, &user);
        let home = pools::shard_for(&mut self.core, &shared);
        let Some(slot) = self.core.conns.get_mut(conn) else { return };
        let Conn::Client(client) = std::mem::replace(slot, Conn::Reserved) else { return };
        let client_move =
            ClientMove { client, database, pool_user: user, startup_request, accepted, found, session: None };
        if home == self.core.id {
            self.adopt(conn, client_move);
        } else {
            self.core.conns.remove(conn);
            self.core.act(Action::Move { conn, to: home, client: Box::new(client_move) });
        }
    }

    /// Settings may have changed during authentication, and a login can be drawn out: what refuses a connection at
    /// its beginning refuses it at its end. False: the client got the error.
    fn is_still_admitted(&mut self, conn: ConnId) -> bool {
        if client_tls::lacks_tls(&self.core, conn) {
            client_tls::refuse_plain(&mut self.core, conn);
            return false;
        }
        let Some(startup_request) = self.core.startup_request_of(conn) else { return false };
        let role =
            (startup_request.database == CONSOLE).then(|| self.console_right(conn, &startup_request.user));
        if role == Some(None) {
            client_end::fail_client(&mut self.core, conn, sqlstate::INVALID_AUTHORIZATION, "not allowed");
            return false;
        }
        if let Some(Phase::Login(login)) = self.core.client(conn).map(|client| &mut client.phase) {
            login.role = role.flatten();
        }
        let refusal = match self.core.config.global.auth_type {
            AuthType::Hba => self.core.refusal_by_rule(conn, &startup_request),
            _ => None,
        };
        if let Some(refusal) = refusal {
            self.refuse(conn, refusal);
        }
        refusal.is_none()
    }

    /// An authenticated client whose pool is on this shard.
    pub(crate) fn adopt(&mut self, conn: ConnId, client_move: ClientMove) {
        let ClientMove { client, database, pool_user, startup_request, accepted, found, session } =
            client_move;
        self.core.tls_requests.extend(session.map(|session| TlsRequest::Adopt { conn, session }));
        self.core.conns.place(conn, Conn::Client(client));
        let pool_id = pools::local_pool(&mut self.core, &startup_request.database, &pool_user, &database);
        let greets = accepted.send;
        let now_us = self.core.now.mono_us;
        self.core.outbox.write(conn, |out| out.extend_from_slice(&greets));
        if client_end::client_must_disconnect(&mut self.core, conn)
            || !counting::count_in_pool(&mut self.core, conn, pool_id)
        {
            return;
        }
        let Some(local_pool) = self.core.local_pools.get_mut(pool_id) else { return };
        if local_pool.database.user.is_none() {
            local_pool.keys = accepted.keys.or(local_pool.keys.take());
            local_pool.password = accepted.password.or(local_pool.password.take());
            local_pool.found = found.or(local_pool.found.take());
        }
        local_pool.counters.client_login_count += 1;
        local_pool.last_used_us = now_us;
        let position = match &startup_request.replication {
            Some(_) => local_pool.pool.queue.join_dedicated(conn.0, now_us),
            None => local_pool.pool.queue.join(conn.0, now_us),
        };
        let server_greeting = local_pool.server_greeting.is_some() && startup_request.replication.is_none();
        let Some(client) = self.core.conns.client_mut(conn) else { return };
        client.pool = Some(pool_id);
        client.phase = Phase::AwaitingGreeting(position);
        client.dedicated_request =
            startup_request.replication.map(|replication| Box::new(DedicatedRequest::new(replication)));
        client.request_us = now_us;
        let (unsaid, replicates) = (client.parameters.clone(), client.dedicated_request.is_some());
        let asked = startup_request.parameters.iter().map(|(position, value)| (*position, value.as_str()));
        client.parameters.set_each(asked);
        if self.core.config.global.application_name_add_host {
            let named = client.parameters.value(APPLICATION_NAME).map_or("app", |name| name);
            let name = format!("{named} - {}", crate::log_format::peer(client.peer));
            client.parameters.set(APPLICATION_NAME, &name);
        }
        // A dedicated server gets the parameters of its replication client in its startup packet.
        let said_nothing = client.parameters.shared_with(&unsaid) || replicates;
        client.startup = (!said_nothing).then(|| client.parameters.clone());
        self.give_cancel_key(conn, startup_request.minor);
        if server_greeting {
            if let Some(local_pool) = self.core.local_pools.get_mut(pool_id) {
                local_pool.pool.queue.leave(position);
            }
            greet::send_greeting(&mut self.core, conn);
        } else {
            opening::serve_or_open(&mut self.core, pool_id);
        }
    }
}
