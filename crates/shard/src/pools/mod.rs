//! The local pools of this shard: found or created, spread over shards, and forgotten.

pub(crate) mod spread;
pub(crate) mod unused;

use std::sync::Arc;

use pool::Pool;
use session::Parameters;
use settings::Database;
use telemetry::Counters;

use crate::local_pools::limits;
use crate::local_pools::local_pool::LocalPool;
use crate::local_pools::table::{PoolId, PoolName};
use crate::state::ShardState;

impl ShardState {
    /// The local pool of this pool, created if it is new here.
    pub(crate) fn local_pool(&mut self, database_name: &str, user: &str, database: &Arc<Database>) -> PoolId {
        let name: PoolName = (database_name.into(), user.into());
        if let Some(pool) = self.core.local_pools.find(&name) {
            return pool;
        }
        let pool_registry = &self.core.pool_registry;
        let (shared, counts, user_counts) = (
            pool_registry.pool(database_name, user),
            pool_registry.database(database_name),
            pool_registry.user(user),
        );
        let mut pool = Pool::new(limits(&self.core.config, database, user), shared, counts, user_counts);
        let paused_by_command = self.administration.is_paused(database_name);
        pool.paused = paused_by_command || self.administration.is_suspended();
        let local_pool = LocalPool {
            pool,
            catalog: self.core.local_pools.next_catalog(),
            database_name: name.0,
            user: name.1,
            database: Arc::clone(database),
            keys: None,
            password: None,
            found: None,
            server_greeting: None,
            server_error: None,
            default_params: Parameters::unknown(&self.core.tracked),
            last_params: Parameters::unknown(&self.core.tracked),
            counters: Counters::default(),
            histograms: None,
            clients: 0,
            next_host: 0,
            last_used_us: self.core.now.mono_us,
            permit_requested_us: 0,
            cancels_active: 0,
            cancels_waiting: std::collections::VecDeque::new(),
            paused_by_command,
        };
        self.core.local_pools.insert(local_pool)
    }

    /// Pools with a forced user and a minimum are there before their first client.
    pub(crate) fn make_minimum_pools(&mut self) {
        let config = Arc::clone(&self.core.config);
        for (name, database) in &config.databases {
            let Some(user) = &database.user else { continue };
            let minimum = config.min_pool_size(database);
            if minimum == 0
                || self.core.pool_registry.pool(name, user).shards().trailing_zeros()
                    != u32::from(self.core.id.0)
            {
                continue;
            }
            let local_pool = self.local_pool(name, user, database);
            self.serve_or_open(local_pool);
        }
    }
}
