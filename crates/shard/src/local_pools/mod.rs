//! The pools of a shard as data: the table, one pool in it, and its limits by the settings.

pub(crate) mod local_pool;
pub(crate) mod table;

use pool::Limits;
use settings::{Config, Database};

use crate::time::micros;

/// The limits of a pool by the settings.
pub(crate) fn limits(config: &Config, database: &Database, user: &str) -> Limits {
    let user = config.user(user).map(|user| &**user);
    Limits {
        mode: config.pool_mode(database, user),
        pool_size: config.pool_size(database, user),
        min_pool_size: config.min_pool_size(database),
        reserve_pool_size: config.reserve_pool_size(database, user),
        reserve_pool_timeout_us: micros(config.global.reserve_pool_timeout),
        max_db_connections: config.max_db_connections(database),
        max_user_connections: config.max_user_connections(user),
        server_login_retry_us: micros(config.global.server_login_retry),
        round_robin: config.global.server_round_robin || config.global.server_shuffle,
    }
}
