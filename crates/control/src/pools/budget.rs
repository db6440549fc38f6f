//! The connection budget of a cluster's server. `rules.rs` enforces it.

use settings::{Config, Database};

use super::{Cluster, ServerInfo};

/// The connections of a cluster's server. Without an answer of the server only the pools are known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Budget {
    /// What the server has in all.
    pub max_connections: Option<u32>,
    /// What it keeps for superusers and for roles with `pg_use_reserved_connections`.
    pub reserved: Option<u32>,
    /// What all pools together may use. Each entry counts once, although one without a forced user makes a pool per user;
    /// `*` does not count.
    pub used_by_pools: u32,
}

impl Budget {
    /// The budget of a cluster under a configuration.
    #[must_use]
    pub fn of(config: &Config, cluster: &Cluster, server: Option<&ServerInfo>) -> Budget {
        let here = |database: &&std::sync::Arc<Database>| {
            database.host == cluster.host && database.port == cluster.port
        };
        let taken = config.databases.values().filter(here).map(|database| taken_by(config, database));
        Budget {
            max_connections: server.map(|server| server.max_connections),
            reserved: server.map(|server| server.reserved),
            used_by_pools: taken.fold(0, u32::saturating_add),
        }
    }

    /// What pools may take in all, if the server has said.
    #[must_use]
    pub fn usable(&self) -> Option<u32> {
        Some(self.max_connections?.saturating_sub(self.reserved?))
    }

    /// What no pool takes, if the server has said.
    #[must_use]
    pub fn free(&self) -> Option<u32> {
        Some(self.usable()?.saturating_sub(self.used_by_pools))
    }
}

/// The most server connections that an entry takes for one user; 0 where there is no limit.
pub(super) fn taken_by(config: &Config, database: &Database) -> u32 {
    let user = database.user.as_deref().and_then(|user| config.user(user)).map(|user| &**user);
    let size =
        config.pool_size(database, user).largest().saturating_add(config.reserve_pool_size(database, user));
    match config.max_db_connections(database) {
        0 => size,
        limit => size.min(limit),
    }
}
