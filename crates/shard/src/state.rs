//! The core of a shard and the owners beside each other that use it.
//!
//! Owns which owner carries out which effect; the owners do not know each other. Never decides anything.

use std::sync::Arc;

use auth::{Entropy, MockKey, ServerKeyCache};
use messages::ShardId;
use pool::PoolRegistry;
use settings::Config;

use crate::auth_query::AuthQueries;
use crate::cancel::{self, Cancels};
use crate::console::Console;
use crate::core::Core;
use crate::draining;
use crate::effects::Effect;
use crate::link::checkout;
use crate::login::Logins;
use crate::pools::spread::ThreadLoad;
use crate::transfer::export;

/// Derived keys that are remembered at most.
const KEYS_KEPT: usize = 1024;

/// The core, and the owners beside each other that use it.
pub(crate) struct ShardState {
    pub(crate) core: Core,
    pub(crate) cancels: Cancels,
    pub(crate) server_keys: ServerKeyCache,
    pub(crate) load: ThreadLoad,
    pub(crate) next_tick_us: Option<u64>,
    pub(crate) logins: Logins,
    pub(crate) auth_queries: AuthQueries,
    pub(crate) console: Console,
}

impl ShardState {
    pub(crate) fn new(
        id: ShardId,
        config: Arc<Config>,
        pool_registry: Arc<dyn PoolRegistry>,
        entropy: Box<dyn Entropy>,
        mock: Arc<MockKey>,
    ) -> ShardState {
        ShardState {
            cancels: Cancels::default(),
            logins: Logins::new(&mock, &config),
            server_keys: ServerKeyCache::new(KEYS_KEPT),
            load: ThreadLoad::default(),
            next_tick_us: None,
            auth_queries: AuthQueries::default(),
            console: Console::default(),
            core: Core::new(id, config, pool_registry, entropy),
        }
    }

    /// Carries out what the event has left to be done.
    #[inline(never)]
    pub(crate) fn settle(&mut self) {
        loop {
            while let Some(effect) = self.core.effects.pop() {
                self.carry_out(effect);
            }
            checkout::process_released(&mut self.core);
            if !self.core.effects.is_queued() {
                return;
            }
        }
    }

    #[inline(never)]
    fn carry_out(&mut self, effect: Effect) {
        match effect {
            Effect::LoginOver { id, peer, was_unauthenticated, login_bytes } => {
                self.logins.login_over_of(id, peer, was_unauthenticated, login_bytes);
            }
            Effect::CancelWithdrawn(carrier) => self.cancels.withdraw_cancel(&mut self.core, carrier),
            Effect::LeftWithCancels(server) => cancel::drop_unsent(&mut self.core, server),
            Effect::QueryOver { reply_to, result } => {
                self.auth_queries.deliver(&mut self.core, &reply_to, &result)
            }
            Effect::CancelRequest { conn, key } => self.cancels.cancel_request(&mut self.core, conn, &key),
            Effect::ConsoleOpened(conn, role) => self.console.console_opened(&mut self.core, conn, role),
            Effect::FindSecret(conn, needed) => self.auth_queries.find_secret(&mut self.core, conn, needed),
            Effect::QueryRoles(conn) => self.auth_queries.query_roles(&mut self.core, conn),
            Effect::SecretKnown(conn, secret) => {
                self.logins.begin_authentication(&mut self.core, conn, secret.as_ref())
            }
            Effect::UserUnknown(conn) => self.logins.user_unknown(&mut self.core, conn),
            Effect::RolesKnown(conn, roles) => {
                self.logins.require_authentication(&mut self.core, conn, Some(&roles))
            }
            Effect::ConsoleContinues(conn) => {
                if self.core.conns.find_client(conn).is_some() {
                    self.console.console_goes_on(&mut self.core, conn);
                }
            }
            Effect::ClientRested(conn) => draining::end_at_rest(&mut self.core, conn),
            Effect::FirstServerReported(pool) => export::send_reported(&mut self.core, pool),
            Effect::ServerCounted { pool, opened } => export::send_server_count(&mut self.core, pool, opened),
        }
    }
}
