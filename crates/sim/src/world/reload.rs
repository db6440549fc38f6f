//! RELOAD: which settings change, and what is to be expected of the next configuration.

use std::sync::Arc;
use std::time::Duration;

use messages::Command;
use settings::{AuthType, Config, PoolMode, QueueBy, QueueOrder};

use super::World;
use super::operator::Undo;
use crate::clock::SECOND_US;
use crate::pooler::Pooler;
use crate::secret::{PASSWORD, VERIFIER};
use crate::setup;

/// What `server_reset_query` may be: all that clean, one that does not, one that fails, and none.
const RESETS: &[Option<&str>] = &[Some("DISCARD ALL"), Some("DISCARD ALL"), Some("NO SUCH STATEMENT"), None];
/// What `server_check_query` may be: an empty query, a real one, one that fails, and none.
const CHECKS: &[Option<&str>] = &[Some(""), Some("SELECT 1"), Some("NO SUCH STATEMENT"), None];

/// One kind of change to a configuration, perhaps of one database.
type Change<P> = fn(&mut World<P>, &mut Config, &str);

impl<P: Pooler> World<P> {
    /// RELOAD with another pool size, or with one of the settings that may change here.
    pub(super) fn reload(&mut self, only_size: bool, database: &str, for_us: u64) {
        let mut config = (*self.config).clone();
        let reloads = self.swarm.pooling.reloads.clone();
        let mut kinds: Vec<Change<P>> = vec![Self::resize];
        if !only_size {
            let possible: [(bool, Change<P>); 8] = [
                (reloads.pool_mode, Self::change_mode),
                (self.swarm.pooling.max_prepared_statements > 0, Self::change_statements),
                (reloads.reset_query, Self::change_reset_query),
                (reloads.check_query, Self::change_check_query),
                (reloads.timeouts, Self::change_timeouts),
                (reloads.auth, Self::change_auth),
                (reloads.hosts, Self::change_host),
                (self.swarm.pooling.queueing.fair.is_some(), Self::change_queue),
            ];
            kinds.extend(possible.iter().filter(|(possible, _)| *possible).map(|(_, kind)| *kind));
        }
        let kind = self.prng.pick(&kinds);
        kind(self, &mut config, database);
        if !only_size && reloads.entries && self.prng.chance(300_000) {
            self.operator.removed.insert(database.to_owned());
            self.disturb(Some(database), true);
            self.clock.after(for_us, super::What::Undo(Undo::Restore(database.to_owned())));
        }
        self.config = Arc::new(config);
        self.configure_again();
    }

    /// Puts the configuration in force, without the entries that are removed.
    pub(super) fn configure_again(&mut self) {
        let mut config = (*self.config).clone();
        config.databases.retain(|name, _| !self.operator.removed.contains(name));
        self.command(&Command::Configure(Arc::new(config)));
    }

    fn resize(&mut self, config: &mut Config, _: &str) {
        let most = u64::from(self.swarm.pooling.pool_size);
        let size = u32::try_from(self.prng.between(1, most)).unwrap_or(1);
        config.global.default_pool_size = settings::PoolSize::Fixed(size);
        if self.swarm.pooling.auto_size && !size.is_multiple_of(2) {
            config.global.default_pool_size = settings::PoolSize::Auto;
            (config.global.auto_pool_size_min, config.global.auto_pool_size_max) = (1, size);
        }
    }

    fn change_mode(&mut self, config: &mut Config, database: &str) {
        if self.swarm.pooling.assign_at_login {
            config.global.assign_server_at_login = self.prng.chance(700_000);
        }
        let mode = self.prng.pick(&[PoolMode::Transaction, PoolMode::Session]);
        match config.databases.get_mut(database).filter(|_| self.prng.chance(500_000)) {
            Some(entry) => Arc::make_mut(entry).pool_mode = Some(mode),
            None => config.global.pool_mode = mode,
        }
    }

    fn change_statements(&mut self, config: &mut Config, _: &str) {
        let pooling = &self.swarm.pooling;
        let (least, most) = (pooling.reloads.statements_least, pooling.max_prepared_statements);
        let count = self.prng.between(least.into(), most.into());
        config.global.max_prepared_statements = u32::try_from(count).unwrap_or(1);
    }

    fn change_reset_query(&mut self, config: &mut Config, _: &str) {
        config.global.server_reset_query = self.prng.pick(RESETS).map(str::to_owned);
        config.global.server_reset_query_always = self.prng.chance(300_000);
    }

    fn change_check_query(&mut self, config: &mut Config, _: &str) {
        config.global.server_check_query = self.prng.pick(CHECKS).map(str::to_owned);
        let delay = self.prng.pick(&[0, 1_000, 30_000]);
        config.global.server_check_delay = Duration::from_millis(delay);
    }

    fn change_timeouts(&mut self, config: &mut Config, _: &str) {
        let global = &mut config.global;
        for timeout in [
            &mut global.query_wait_timeout,
            &mut global.query_timeout,
            &mut global.idle_transaction_timeout,
            &mut global.transaction_timeout,
            &mut global.client_idle_timeout,
            &mut global.server_idle_timeout,
            &mut global.server_lifetime,
            &mut global.cancel_wait_timeout,
            &mut global.client_login_timeout,
        ] {
            let off = self.prng.chance(300_000);
            *timeout =
                if off { Duration::ZERO } else { Duration::from_millis(self.prng.log_between(20, 60_000)) };
        }
    }

    fn change_auth(&mut self, config: &mut Config, _: &str) {
        if config.global.auth_type != AuthType::Trust {
            let types = [AuthType::ScramSha256, AuthType::Md5, AuthType::Plain];
            config.global.auth_type = self.prng.pick(&types);
        }
        let secret = self.prng.pick(&[PASSWORD, VERIFIER]);
        let secrets = config.secrets.keys().map(|name| (name.clone(), secret.to_owned()));
        config.secrets = Arc::new(secrets.collect());
    }

    fn change_queue(&mut self, config: &mut Config, database: &str) {
        let order = self.prng.pick(&[QueueOrder::Fifo, QueueOrder::Fair]);
        let by = self.prng.pick(&[QueueBy::User, QueueBy::ApplicationName, QueueBy::ClientAddr]);
        match config.databases.get_mut(database).filter(|_| self.prng.chance(500_000)) {
            Some(entry) => {
                let entry = Arc::make_mut(entry);
                (entry.queue, entry.queue_by) = (Some(order), Some(by));
            }
            None => (config.global.queue, config.global.queue_by) = (order, by),
        }
    }

    fn change_host(&mut self, config: &mut Config, database: &str) {
        let host = self.prng.pick(setup::HOSTS);
        if let Some(entry) = config.databases.get_mut(database) {
            Arc::make_mut(entry).host = vec![host.to_owned()];
        }
    }

    /// The last configuration: waiting clients must be served, not refused, and there is time enough for it.
    pub(super) fn configure_for_healing(&mut self) {
        let mut config = (*self.config).clone();
        let global = &mut config.global;
        global.query_wait_timeout = Duration::from_micros(120 * SECOND_US);
        global.query_timeout = Duration::ZERO;
        (global.queue_limit, global.queue_target) = (0, Duration::ZERO);
        config.quotas = Arc::default();
        self.quotas.end();
        global.idle_transaction_timeout = Duration::ZERO;
        global.transaction_timeout = Duration::ZERO;
        global.client_idle_timeout = Duration::ZERO;
        global.client_login_timeout = Duration::from_secs(60);
        global.cancel_wait_timeout = Duration::from_secs(10);
        self.config = Arc::new(config);
        self.configure_again();
    }
}
