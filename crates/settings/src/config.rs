//! Validated settings, with PgBouncer's rules of precedence.
//! Immutable; unparsed text is in `raw_config.rs`.

use crate::hba::Hba;
use crate::{
    ConnectionSharing, Database, Finding, FleetPart, FleetPeers, Global, Peer, PinAction, PoolMode, PoolSize,
    Priority, QueueBy, QueueOrder, QueuePriority, SessionState, SizeBounds, TlsFiles, User,
};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Everything that was configured. Immutable: RELOAD and SET make a new one.
#[derive(Clone, Default)]
pub struct Config {
    /// Section `[pgbouncer]`.
    pub global: Global,
    /// Section `[databases]` by name, without `*`.
    pub databases: BTreeMap<String, Arc<Database>>,
    /// The entry `*`, for names that have no entry.
    pub fallback: Option<Arc<Database>>,
    /// The `pools_file` that entries of `databases` were read from; their `at` names it.
    pub pools_from: Option<Arc<str>>,
    /// Which of them are those of all nodes of the fleet.
    pub fleet_part: Arc<FleetPart>,
    /// Section `[users]` by name.
    pub users: BTreeMap<String, Arc<User>>,
    /// Section `[peers]` by number.
    pub peers: BTreeMap<u32, Peer>,
    /// The nodes of the fleet by number, as far as they are known; no file has them.
    pub fleet_peers: Arc<FleetPeers>,
    /// The file `auth_file`: user to secret, as written (plain, `md5...` or `SCRAM-SHA-256$...`).
    pub secrets: Arc<BTreeMap<String, String>>,
    /// The file `auth_hba_file`, with the maps of `auth_ident_file`; read only under `auth_type = hba`.
    pub hba: Arc<Hba>,
    /// The file `quotas_file`: who may use how much.
    pub quotas: Arc<quota::Rules>,
    /// What the settings of TLS name.
    pub tls_files: TlsFiles,
    /// Warnings to log.
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

    /// Whether an entry is one of `pools_file`, which Weir may write; the others are the user's own.
    #[must_use]
    pub fn is_in_pools_file(&self, database: &Database) -> bool {
        self.pools_from.as_ref() == Some(&database.at.file)
    }

    /// The entry of a user in `[users]`.
    pub fn user(&self, name: &str) -> Option<&Arc<User>> {
        self.users.get(name)
    }

    /// The user that `auth_query` runs as; without one it is not used. The console has no entry.
    pub fn auth_user<'a>(&'a self, database: Option<&'a Database>) -> Option<&'a str> {
        let of_database = database.and_then(|database| database.auth_user.as_deref());
        of_database.or(self.global.auth_user.as_deref())
    }

    /// Some database has an `auth_user`, so that servers can be queried for roles and secrets.
    pub fn has_auth_user(&self) -> bool {
        let mut databases = self.databases.values().chain(&self.fallback);
        self.auth_user(None).is_some() || databases.any(|database| self.auth_user(Some(database)).is_some())
    }

    /// The query for the secrets of users who are not in `auth_file`.
    pub fn auth_query<'a>(&'a self, database: Option<&'a Database>) -> &'a str {
        let of_database = database.and_then(|database| database.auth_query.as_deref());
        of_database.or(self.global.auth_query.as_deref()).unwrap_or_default()
    }

    /// The database that `auth_query` runs in; `None` is the one that the client requested.
    pub fn auth_dbname<'a>(&'a self, database: Option<&'a Database>) -> Option<&'a str> {
        let of_database = database.and_then(|database| database.auth_dbname.as_deref());
        of_database.or(self.global.auth_dbname.as_deref())
    }

    /// Server connections that the pool of a user in a database may have. In session pooling a server belongs to its client, however little that asks: no
    /// size is found, and `auto` is the largest.
    pub fn pool_size(&self, database: &Database, user: Option<&User>) -> SizeBounds {
        let own = user.and_then(|user| user.pool_size).or(database.pool_size);
        match own.unwrap_or(self.global.default_pool_size) {
            PoolSize::Fixed(size) => SizeBounds::Fixed(size),
            PoolSize::Auto => {
                let (min, max) = self.auto_pool_size(database);
                match self.pool_mode(database, user) {
                    PoolMode::Session => SizeBounds::Fixed(max),
                    PoolMode::Transaction | PoolMode::Statement => SizeBounds::Auto { min, max },
                }
            }
        }
    }

    /// Bounds of `pool_size = auto` allow a size everywhere.
    pub(crate) fn has_auto_pool_sizes(&self) -> bool {
        let entries = self.databases.values().chain(&self.fallback);
        self.global.auto_pool_size_min <= self.global.auto_pool_size_max
            && entries.map(|database| self.auto_pool_size(database)).all(|(min, max)| min <= max)
    }

    /// The bounds of the size of a database's pools with `pool_size = auto`.
    pub(crate) fn auto_pool_size(&self, database: &Database) -> (u32, u32) {
        let min = database.auto_pool_size_min.unwrap_or(self.global.auto_pool_size_min);
        (min, database.auto_pool_size_max.unwrap_or(self.global.auto_pool_size_max))
    }

    /// Further server connections of a pool for long waits.
    pub fn reserve_pool_size(&self, database: &Database, user: Option<&User>) -> u32 {
        let of_user = user.and_then(|user| user.reserve_pool_size);
        of_user.or(database.reserve_pool_size).unwrap_or(self.global.reserve_pool_size)
    }

    /// Connections to a peer at a time; 0 is no limit.
    pub fn peer_pool_size(&self, peer: &Peer) -> u32 {
        peer.pool_size.unwrap_or(match self.global.default_pool_size {
            PoolSize::Fixed(size) => size,
            PoolSize::Auto => self.global.auto_pool_size_max,
        })
    }

    /// Server connections that a pool keeps open.
    pub fn min_pool_size(&self, database: &Database) -> u32 {
        database.min_pool_size.unwrap_or(self.global.min_pool_size)
    }

    /// When server connections of a pool go back.
    pub fn pool_mode(&self, database: &Database, user: Option<&User>) -> PoolMode {
        user.and_then(|user| user.pool_mode).or(database.pool_mode).unwrap_or(self.global.pool_mode)
    }

    /// Reads of a pool's clients go to standbys, and everything else to their primary.
    pub fn splits_reads(&self, database: &Database, user: Option<&User>) -> bool {
        database.read_write_split
            && database.host.len() > 1
            && self.pool_mode(database, user) != PoolMode::Session
    }

    /// Answers to reads of a pool's clients may be used again.
    pub fn caches_reads(&self, database: &Database, user: Option<&User>) -> bool {
        database.query_cache > 0 && self.follows_sessions(database, user)
    }

    /// Which requests of a pool's clients only read is known, its own connections go to the primary, and its servers are asked how far they are.
    pub fn judges_reads(&self, database: &Database, user: Option<&User>) -> bool {
        self.splits_reads(database, user) || self.caches_reads(database, user)
    }

    /// Clients of a pool keep their session state though they do not keep their server connections.
    pub fn follows_sessions(&self, database: &Database, user: Option<&User>) -> bool {
        let state = user.and_then(|user| user.session_state).or(database.session_state);
        self.pool_mode(database, user) != PoolMode::Session
            && state.unwrap_or(self.global.session_state) == SessionState::Virtual
    }

    /// Clients of a pool that may keep a server because of their sessions; 0 is no limit.
    pub fn max_pinned(&self, database: &Database, user: Option<&User>) -> u32 {
        user.and_then(|user| user.max_pinned).or(database.max_pinned).unwrap_or(self.global.max_pinned)
    }

    /// What becomes of a client while `max_pinned` is reached.
    pub fn max_pinned_action(&self, database: &Database, user: Option<&User>) -> PinAction {
        let action = user.and_then(|user| user.max_pinned_action).or(database.max_pinned_action);
        action.unwrap_or(self.global.max_pinned_action)
    }

    /// Whose server time the queue of a database's clients counts; `None` is first come, first served.
    pub fn fair_queue(&self, database: &Database) -> Option<QueueBy> {
        match database.queue.unwrap_or(self.global.queue) {
            QueueOrder::Fifo => None,
            QueueOrder::Fair => Some(database.queue_by.unwrap_or(self.global.queue_by)),
        }
    }

    /// The class of clients of a pool that wait, and whether they may ask for another one; `None`: they have none.
    pub fn queue_priority(&self, database: &Database, user: Option<&User>) -> Option<(Priority, bool)> {
        let class = user.and_then(|user| user.priority).or(database.priority).unwrap_or_default();
        match database.queue_priority.unwrap_or(self.global.queue_priority) {
            QueuePriority::None => None,
            QueuePriority::Settings => Some((class, false)),
            QueuePriority::Comment => Some((class, true)),
        }
    }

    /// Clients of a pool that may wait for a server; 0 is no limit.
    pub fn queue_limit(&self, database: &Database) -> u32 {
        database.queue_limit.unwrap_or(self.global.queue_limit)
    }

    /// Longest wait in a queue that stays full; zero is any.
    pub fn queue_target(&self, database: &Database) -> Duration {
        database.queue_target.unwrap_or(self.global.queue_target)
    }

    /// Server time that a subject of a fair queue may have saved up.
    pub fn queue_burst(&self, database: &Database) -> Duration {
        database.queue_burst.unwrap_or(self.global.queue_burst)
    }

    /// Clients of a pool get their servers at login.
    pub fn assigns_at_login(&self, database: &Database, user: Option<&User>) -> bool {
        let assigns = user.and_then(|user| user.assign_server_at_login).or(database.assign_server_at_login);
        self.pool_mode(database, user) == PoolMode::Session
            && assigns.unwrap_or(self.global.assign_server_at_login)
    }

    /// Some pool may give its clients their servers at login.
    pub fn may_assign_at_login(&self) -> bool {
        let mut databases = self.databases.values().chain(&self.fallback);
        self.global.assign_server_at_login
            || databases.any(|database| database.assign_server_at_login == Some(true))
            || self.users.values().any(|user| user.assign_server_at_login == Some(true))
    }

    /// A plain BEGIN of clients of a pool is sent with their next request.
    pub fn defers_begin(&self, database: &Database, user: Option<&User>) -> bool {
        let deferred = user.and_then(|user| user.deferred_begin).or(database.deferred_begin);
        self.pool_mode(database, user) == PoolMode::Transaction
            && deferred.unwrap_or(self.global.deferred_begin)
    }

    /// Age at which idle server connections are closed; zero is after one use.
    pub fn server_lifetime(&self, database: &Database) -> Duration {
        database.server_lifetime.unwrap_or(self.global.server_lifetime)
    }

    /// Server connections of all users of a database; 0 is no limit.
    pub fn max_db_connections(&self, database: &Database) -> u32 {
        database.max_db_connections.unwrap_or(self.global.max_db_connections)
    }

    /// How a pool of a database shares the limits of server connections with others.
    pub fn connection_sharing(&self, database: &Database) -> ConnectionSharing {
        database.connection_sharing.unwrap_or(self.global.connection_sharing)
    }

    /// Server connections that a pool gets of a limit that it shares while its clients ask for them.
    pub fn guaranteed_connections(&self, database: &Database, user: Option<&User>) -> u32 {
        let guaranteed =
            user.and_then(|user| user.guaranteed_connections).or(database.guaranteed_connections);
        guaranteed.unwrap_or(self.global.guaranteed_connections)
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

    /// Longest wait while no host of an entry is what is asked for; zero is as long as any wait may be.
    pub fn failover_timeout(&self, database: &Database) -> Duration {
        database.failover_timeout.unwrap_or(self.global.failover_timeout)
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

/// Counts the secrets instead of showing them.
impl fmt::Debug for Config {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Config")
            .field("global", &self.global)
            .field("databases", &self.databases)
            .field("fallback", &self.fallback)
            .field("users", &self.users)
            .field("secrets", &self.secrets.len())
            .field("hba", &self.hba.rules.len())
            .field("warnings", &self.warnings)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::Origin;

    fn database(pool_size: Option<u32>, pool_mode: Option<PoolMode>) -> Database {
        let pool_size = pool_size.map(PoolSize::Fixed);
        Database { pool_size, pool_mode, ..Database::new("app", Origin { file: "w.ini".into(), line: 1 }) }
    }

    #[test]
    fn the_user_wins_over_the_database_and_the_database_over_the_rest() {
        let config = Config::default();
        let (silent, speaking) = (database(None, None), database(Some(7), Some(PoolMode::Statement)));
        let user = User {
            pool_size: Some(PoolSize::Fixed(3)),
            pool_mode: Some(PoolMode::Transaction),
            ..User::default()
        };
        let other = User::default();
        assert_eq!(config.pool_size(&silent, None), SizeBounds::Fixed(20));
        assert_eq!(config.pool_size(&speaking, Some(&other)), SizeBounds::Fixed(7));
        assert_eq!(config.pool_size(&speaking, Some(&user)), SizeBounds::Fixed(3));
        assert_eq!(config.pool_mode(&silent, None), PoolMode::Session);
        assert_eq!(config.pool_mode(&speaking, Some(&other)), PoolMode::Statement);
        assert_eq!(config.pool_mode(&speaking, Some(&user)), PoolMode::Transaction);
    }

    #[test]
    fn who_is_asked_is_the_databases_matter_first() {
        let mut config = Config::default();
        assert_eq!((config.auth_user(None), config.auth_dbname(None)), (None, None));
        assert!(config.auth_query(None).contains("pg_authid"));
        config.global.auth_user = Some("asker".to_owned());
        let own = Database {
            auth_user: Some("own".to_owned()),
            auth_query: Some("select 1".to_owned()),
            auth_dbname: Some("users".to_owned()),
            ..database(None, None)
        };
        assert_eq!(config.auth_user(Some(&database(None, None))), Some("asker"));
        assert_eq!(config.auth_user(Some(&own)), Some("own"));
        assert_eq!(
            (config.auth_query(Some(&own)), config.auth_dbname(Some(&own))),
            ("select 1", Some("users"))
        );
    }

    #[test]
    fn zero_is_a_value_and_not_an_absence() {
        let mut config = Config::default();
        config.global.query_timeout = Duration::from_secs(9);
        let user = User { query_timeout: Some(Duration::ZERO), ..User::default() };
        assert_eq!(config.query_timeout(Some(&user)), Duration::ZERO);
        assert_eq!(config.query_timeout(None), Duration::from_secs(9));
        assert_eq!(config.pool_size(&database(Some(0), None), None), SizeBounds::Fixed(0));
    }

    #[test]
    fn a_name_without_an_entry_leads_to_the_fallback() {
        let mut config = Config::default();
        config.databases.insert("app".to_owned(), Arc::new(database(Some(7), None)));
        assert!(config.database("shop").is_none());
        config.fallback = Some(Arc::new(Database::new("*", Origin { file: "w.ini".into(), line: 2 })));
        let shop = config.database("shop").unwrap();
        assert_eq!((shop.dbname.as_str(), shop.auto), ("shop", true));
        assert!(!config.database("app").unwrap().auto);
    }
}
