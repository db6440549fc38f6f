//! What a file means: validated settings, cheap to read, with PgBouncer's rules of which value wins.
//! Never holds texts still to be understood (those are in `draft.rs`) and never changes once made.

use crate::{Database, Finding, Global, PoolMode, User};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Everything that was configured. Immutable: RELOAD and SET make a new one.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// Section `[pgbouncer]`.
    pub global: Global,
    /// Section `[databases]` by name, without `*`.
    pub databases: BTreeMap<String, Arc<Database>>,
    /// The entry `*`, for names that have no entry.
    pub fallback: Option<Arc<Database>>,
    /// Section `[users]` by name.
    pub users: BTreeMap<String, Arc<User>>,
    /// The file `auth_file`: user to secret, as written (plain, `md5...` or `SCRAM-SHA-256$...`).
    pub secrets: Arc<BTreeMap<String, String>>,
    /// What did not stop loading but should be logged.
    pub warnings: Vec<Finding>,
}

impl Config {
    /// The entry of a name, else the fallback under that name (`auto` is set then).
    pub fn database(&self, name: &str) -> Option<Arc<Database>> {
        if let Some(database) = self.databases.get(name) {
            return Some(database.clone());
        }
        self.fallback.as_ref().map(|fallback| Arc::new(fallback.under(name)))
    }

    /// The entry of a user in `[users]`.
    pub fn user(&self, name: &str) -> Option<&Arc<User>> {
        self.users.get(name)
    }

    /// Server connections of the pool of a user in a database; 0 is no limit.
    pub fn pool_size(&self, database: &Database, user: Option<&User>) -> u32 {
        user.and_then(|user| user.pool_size).or(database.pool_size).unwrap_or(self.global.default_pool_size)
    }

    /// Further server connections of a pool for long waits.
    pub fn reserve_pool_size(&self, database: &Database, user: Option<&User>) -> u32 {
        let of_user = user.and_then(|user| user.reserve_pool_size);
        of_user.or(database.reserve_pool_size).unwrap_or(self.global.reserve_pool_size)
    }

    /// Server connections that a pool keeps open.
    pub fn min_pool_size(&self, database: &Database) -> u32 {
        database.min_pool_size.unwrap_or(self.global.min_pool_size)
    }

    /// When server connections of a pool go back.
    pub fn pool_mode(&self, database: &Database, user: Option<&User>) -> PoolMode {
        user.and_then(|user| user.pool_mode).or(database.pool_mode).unwrap_or(self.global.pool_mode)
    }

    /// Age at which idle server connections are closed; zero is after one use.
    pub fn server_lifetime(&self, database: &Database) -> Duration {
        database.server_lifetime.unwrap_or(self.global.server_lifetime)
    }

    /// Server connections of all users of a database; 0 is no limit.
    pub fn max_db_connections(&self, database: &Database) -> u32 {
        database.max_db_connections.unwrap_or(self.global.max_db_connections)
    }

    /// Client connections of all users of a database; 0 is no limit.
    pub fn max_db_client_connections(&self, database: &Database) -> u32 {
        database.max_db_client_connections.unwrap_or(self.global.max_db_client_connections)
    }

    /// Server connections of a user over all databases; 0 is no limit.
    pub fn max_user_connections(&self, user: Option<&User>) -> u32 {
        user.and_then(|user| user.max_user_connections).unwrap_or(self.global.max_user_connections)
    }

    /// Client connections of a user over all databases; 0 is no limit.
    pub fn max_user_client_connections(&self, user: Option<&User>) -> u32 {
        let of_user = user.and_then(|user| user.max_user_client_connections);
        of_user.unwrap_or(self.global.max_user_client_connections)
    }

    /// Longest wait for a server connection; zero is for ever.
    pub fn query_wait_timeout(&self, database: &Database, user: Option<&User>) -> Duration {
        let of_user = user.and_then(|user| user.query_wait_timeout);
        of_user.or(database.query_wait_timeout).unwrap_or(self.global.query_wait_timeout)
    }

    /// Longest query of a user; zero is no limit.
    pub fn query_timeout(&self, user: Option<&User>) -> Duration {
        user.and_then(|user| user.query_timeout).unwrap_or(self.global.query_timeout)
    }

    /// Longest idleness of a user inside a transaction; zero is no limit.
    pub fn idle_transaction_timeout(&self, user: Option<&User>) -> Duration {
        user.and_then(|user| user.idle_transaction_timeout).unwrap_or(self.global.idle_transaction_timeout)
    }

    /// Longest transaction of a user; zero is no limit.
    pub fn transaction_timeout(&self, user: Option<&User>) -> Duration {
        user.and_then(|user| user.transaction_timeout).unwrap_or(self.global.transaction_timeout)
    }

    /// Longest idleness of a user's client; zero is no limit.
    pub fn client_idle_timeout(&self, user: Option<&User>) -> Duration {
        user.and_then(|user| user.client_idle_timeout).unwrap_or(self.global.client_idle_timeout)
    }
}
