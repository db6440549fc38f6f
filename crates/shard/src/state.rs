//! The state of one shard: the core, and the owners that use it.
//!
//! Owns the parts; never decides anything.

use std::sync::Arc;

use auth::{Entropy, MockKey, ServerKeyCache};
use messages::ShardId;
use pool::PoolRegistry;
use settings::Config;
use telemetry::Counters;

use crate::auth_query::AuthQueries;
use crate::cancel::Cancels;
use crate::core::Core;
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
    /// The console counts like a pool.
    pub(crate) console: Counters,
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
            cancels: Cancels::new(&mock),
            logins: Logins::new(&mock, &config),
            server_keys: ServerKeyCache::new(KEYS_KEPT),
            load: ThreadLoad::default(),
            next_tick_us: None,
            auth_queries: AuthQueries::default(),
            console: Counters::default(),
            core: Core::new(id, config, pool_registry, entropy),
        }
    }

    /// Carries out what the event has left to be done.
    #[inline(never)]
    pub(crate) fn settle(&mut self) {
        loop {
            if let Some(effect) = self.core.effects.pop() {
                self.carry_out(effect);
            } else if !self.core.effects.is_empty() {
                checkout::process_released(&mut self.core);
            } else {
                return;
            }
        }
    }

    #[inline(never)]
    fn carry_out(&mut self, effect: Effect) {
        match effect {
            Effect::LoginOver { id, peer, was_unauthenticated, login_bytes } => {
                self.login_over_of(id, peer, was_unauthenticated, login_bytes);
            }
            Effect::CancelWithdrawn(carrier) => self.withdraw_cancel(carrier),
            Effect::QueryOver { reply_to, result } => self.deliver(&reply_to, &result),
            Effect::ConsoleContinues(conn) => {
                if self.core.conns.find_client(conn).is_some() {
                    self.console_goes_on(conn);
                }
            }
            Effect::ServerCounted { pool, opened } => export::send_server_count(&mut self.core, pool, opened),
        }
    }
}
