//! A database that clients may ask for, and the table of the keys of its entry in `[databases]`.
//! Precedence over wider settings is in `config.rs`.

use crate::choice::{
    ConnectionSharing, LoadBalance, PinAction, PoolMode, Priority, QueueBy, QueueOrder, QueuePriority,
    ReadAfterWrite, ReadConsistency, SessionState, TargetSessionAttrs,
};
use crate::codec::{
    AuthDatabase, Boolean, Inherited, InheritedLimit, List, NonEmptyText, Number, Positive, Seconds, Text,
};
use crate::finding::Origin;
use crate::per_host::{PORT, PortList, Ports, WeightList, Weights};
use crate::pool_size::PoolSize;
use crate::queue_weights::QueueWeights;
use crate::replica_lag::ReplicaLag;
use crate::size::Size;
use crate::table::{Row, live_row};
use crate::topology::{PatroniUrls, Topology};
use std::fmt;
use std::time::Duration;

/// An entry of `[databases]`.
#[derive(Clone, PartialEq)]
pub struct Database {
    /// The name that clients ask for; `*` in [`crate::Config::fallback`].
    pub name: String,
    /// The database name on the server; the same as `name` unless the entry sets another.
    pub dbname: String,
    /// Hosts, of which each connection takes one: names, addresses, or directories of unix sockets (`/...`, `@...`).
    /// None is the unix socket in the default directory.
    pub host: Vec<String>,
    /// TCP ports, or the numbers in the names of the unix sockets.
    pub port: Ports,
    /// Where the knowledge of its servers comes from.
    pub topology: Topology,
    /// Its hosts are Patroni's members: the entry names none.
    pub follows_members: bool,
    /// The place of the host that leads, as Patroni has it.
    pub leader: Option<usize>,
    /// The places of the hosts that Patroni wants no reads to go to.
    pub without_reads: Vec<usize>,
    /// Which of the hosts connections go to.
    pub target_session_attrs: TargetSessionAttrs,
    /// Reads go to standbys, everything else to the primary.
    pub read_write_split: bool,
    /// After which writes a standby has to have replayed them before it serves a client's reads.
    pub read_consistency: ReadConsistency,
    /// How long a client that has written reads from the primary only.
    pub read_after_write: ReadAfterWrite,
    /// The most lag of a standby that serves reads.
    pub max_replica_lag: ReplicaLag,
    /// Shares of the reads that the hosts get as standbys.
    pub weight: Weights,
    /// Bytes that answers of the entry may take in the query cache; 0 is none.
    pub query_cache: u64,
    /// The most age of what the primary is known to hold, where an answer is used again.
    pub query_cache_max_staleness: Duration,
    /// The user that follows the primary's changes; `None` is `user`.
    pub query_cache_user: Option<String>,
    /// The user of every server connection, regardless of the client's.
    pub user: Option<String>,
    /// The secret of `user`, in clear.
    pub password: Option<String>,
    /// Server connections per user; `None` follows `default_pool_size`.
    pub pool_size: Option<PoolSize>,
    /// Least size of a pool that sizes itself; `None` follows the global setting.
    pub auto_pool_size_min: Option<u32>,
    /// Largest one.
    pub auto_pool_size_max: Option<u32>,
    /// Server connections kept open; `None` follows the global setting.
    pub min_pool_size: Option<u32>,
    /// Further connections for long waits; `None` follows the global setting.
    pub reserve_pool_size: Option<u32>,
    /// Server connections of all users; `None` follows the global setting.
    pub max_db_connections: Option<u32>,
    /// How its pools share limits of server connections; `None` follows the global setting.
    pub connection_sharing: Option<ConnectionSharing>,
    /// Server connections that each of its pools gets of them when it asks; `None` follows the global setting.
    pub guaranteed_connections: Option<u32>,
    /// Client connections of all users; `None` follows the global setting.
    pub max_db_client_connections: Option<u32>,
    /// Oldest age of an idle server connection; `None` follows the global setting.
    pub server_lifetime: Option<Duration>,
    /// Longest wait while no host is what is asked for; `None` follows the global setting.
    pub failover_timeout: Option<Duration>,
    /// Longest wait for a server connection; `None` follows the global setting.
    pub query_wait_timeout: Option<Duration>,
    /// When server connections are returned; `None` follows the global setting.
    pub pool_mode: Option<PoolMode>,
    /// What becomes of session state; `None` follows the global setting.
    pub session_state: Option<SessionState>,
    /// Whether clients get a server at login; `None` follows the global setting.
    pub assign_server_at_login: Option<bool>,
    /// Whether a plain BEGIN waits for the next request; `None` follows the global setting.
    pub deferred_begin: Option<bool>,
    /// Clients of a pool that may keep a server; `None` follows the global setting.
    pub max_pinned: Option<u32>,
    /// What becomes of more; `None` follows the global setting.
    pub max_pinned_action: Option<PinAction>,
    /// In which order clients that wait get servers; `None` follows the global setting.
    pub queue: Option<QueueOrder>,
    /// Whose server time a fair queue counts; `None` follows the global setting.
    pub queue_by: Option<QueueBy>,
    /// Server time that a subject of a fair queue may have saved up; `None` follows the global setting.
    pub queue_burst: Option<Duration>,
    /// Clients of a pool that may wait; `None` follows the global setting.
    pub queue_limit: Option<u32>,
    /// Longest wait in a queue that stays full; `None` follows the global setting.
    pub queue_target: Option<Duration>,
    /// Whether clients that wait have classes; `None` follows the global setting.
    pub queue_priority: Option<QueuePriority>,
    /// The class of its clients.
    pub priority: Option<Priority>,
    /// Which subjects get more than others.
    pub queue_weights: QueueWeights,
    /// How one of several hosts is chosen.
    pub load_balance_hosts: LoadBalance,
    /// Query that is run on each new server connection.
    pub connect_query: Option<String>,
    /// Startup parameter `client_encoding` of server connections.
    pub client_encoding: Option<String>,
    /// Startup parameter `datestyle` of server connections.
    pub datestyle: Option<String>,
    /// Startup parameter `timezone` of server connections.
    pub timezone: Option<String>,
    /// Startup parameter `application_name` of server connections.
    pub application_name: Option<String>,
    /// Made from `*` for a name that has no entry of its own.
    pub auto: bool,
    /// The user that `auth_query` runs as; `None` follows the global setting.
    pub auth_user: Option<String>,
    /// The query for users without a secret; `None` follows the global setting.
    pub auth_query: Option<String>,
    /// The database that `auth_query` runs in; `None` follows the global setting.
    pub auth_dbname: Option<String>,
    /// The location of the entry.
    pub at: Origin,
}

impl Database {
    /// An entry with defaults only.
    pub fn new(name: &str, at: Origin) -> Self {
        Self {
            name: name.to_owned(),
            dbname: name.to_owned(),
            host: Vec::new(),
            port: Ports::one(PORT),
            topology: Topology::default(),
            follows_members: false,
            leader: None,
            without_reads: Vec::new(),
            target_session_attrs: TargetSessionAttrs::default(),
            read_write_split: false,
            read_consistency: ReadConsistency::default(),
            read_after_write: ReadAfterWrite::default(),
            max_replica_lag: ReplicaLag::default(),
            weight: Weights::one(1),
            query_cache: 0,
            query_cache_max_staleness: Duration::from_secs(1),
            query_cache_user: None,
            user: None,
            password: None,
            pool_size: None,
            auto_pool_size_min: None,
            auto_pool_size_max: None,
            min_pool_size: None,
            reserve_pool_size: None,
            max_db_connections: None,
            connection_sharing: None,
            guaranteed_connections: None,
            max_db_client_connections: None,
            server_lifetime: None,
            failover_timeout: None,
            query_wait_timeout: None,
            pool_mode: None,
            session_state: None,
            assign_server_at_login: None,
            deferred_begin: None,
            max_pinned: None,
            max_pinned_action: None,
            queue: None,
            queue_by: None,
            queue_burst: None,
            queue_limit: None,
            queue_target: None,
            queue_priority: None,
            priority: None,
            queue_weights: QueueWeights::default(),
            load_balance_hosts: LoadBalance::default(),
            connect_query: None,
            client_encoding: None,
            datestyle: None,
            timezone: None,
            application_name: None,
            auto: false,
            auth_user: None,
            auth_query: None,
            auth_dbname: None,
            at,
        }
    }

    /// The APIs of its Patronis.
    #[must_use]
    pub fn patroni(&self) -> Option<&PatroniUrls> {
        match &self.topology {
            Topology::Probe => None,
            Topology::Patroni(urls) => Some(urls),
        }
    }

    /// It has several hosts, or Patroni's, and which of them are primaries and standbys matters.
    #[must_use]
    pub fn has_roles(&self) -> bool {
        let asks_for_role = self.target_session_attrs != TargetSessionAttrs::Any;
        self.patroni().is_some() || (self.host.len() > 1 && (asks_for_role || self.read_write_split))
    }

    /// Its hosts are Patroni's members, and Patroni has not answered yet.
    #[must_use]
    pub fn awaits_members(&self) -> bool {
        self.follows_members && self.host.is_empty()
    }

    /// Why its connections have to go to a primary, where `target_session_attrs` says something else.
    pub(crate) fn primary_is_needed(&self) -> Option<&'static str> {
        use TargetSessionAttrs::{Any, Primary, ReadWrite};
        if matches!(self.target_session_attrs, Any | Primary | ReadWrite) {
            None
        } else if self.read_write_split {
            Some("read_write_split sends writes to the primary")
        } else if self.query_cache > 0 {
            Some("query_cache keeps answers of the primary")
        } else {
            None
        }
    }

    /// The fallback for the requested name: `dbname` is that name unless the entry sets one.
    pub(crate) fn under(&self, name: &str) -> Self {
        let dbname = if self.dbname == self.name { name.to_owned() } else { self.dbname.clone() };
        Self { name: name.to_owned(), dbname, auto: true, ..self.clone() }
    }
}

/// Shows what is set, but never a password: this is printed in logs and failing tests.
impl fmt::Debug for Database {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = out.debug_struct("Database");
        shown.field("name", &self.name).field("auto", &self.auto);
        shown.field("topology", &self.topology);
        let has_secret = |name| matches!(name, "password" | "topology");
        for row in DATABASE.iter().filter(|row| !has_secret(row.info.name)) {
            if let Some(value) = (row.show)(self) {
                shown.field(row.info.name, &value);
            }
        }
        shown.finish_non_exhaustive()
    }
}

/// Rows of one table, each a `live_row`.
macro_rules! rows {
    ($($name:ident: $codec:ty, $default:tt, $when:ident, $doc:literal $(, $compat:ident $($how:literal)?)?;)*) => {
        /// Every key of an entry of `[databases]`. `reserve_pool` is an old name of `reserve_pool_size`.
        pub static DATABASE: &[Row<Database>] = &[
            $(live_row!(Database, Database, $name, $codec, $default, $when, $doc, [$($compat $($how)?)?]),)*
        ];
    };
}

rows! {
    dbname: NonEmptyText, unset, Reconnect, "Name of the database on the server; the entry's own name unless given.";
    host: List, unset, Reconnect, "Host names, addresses or directories of unix sockets, with commas between them; empty uses the unix socket in the default directory.";
    port: PortList, "5432", Reconnect, "Port of the server; where `host` has several, one for all or, with commas between them, one for each.", better "one port for each host";
    topology: Topology, "probe", Reconnect, "Where the knowledge of the servers comes from: `probe` is what they say of themselves; `patroni http://host:8008,http://host2:8008` is also Patroni's REST API, which is asked about once a second. The hosts of an entry without `host` are then Patroni's members.", own;
    target_session_attrs: TargetSessionAttrs, "any", Reconnect, "Which of the hosts connections go to, as libpq has it: Weir looks at what each server reports at login (PostgreSQL 14 or later).", own;
    read_write_split: Boolean, "0", Reload, "Sends reads outside of transactions, and transactions that are declared READ ONLY, to the standbys among the hosts, and everything else to their primary; transaction and statement pooling.", own;
    read_consistency: ReadConsistency, "session", Reload, "Which writes a standby has replayed before it serves a client's reads: those of the client itself, of all clients of the entry, or none.", own;
    read_after_write: ReadAfterWrite, "transaction", Reload, "How long a client that has written reads from the primary only: as long as its transaction, as long as its session, or always.", own;
    max_replica_lag: ReplicaLag, "0", Reload, "A standby that is further behind serves no reads: seconds, or bytes of WAL with a unit (16MB); 0 is no limit.", own;
    weight: WeightList, "1", Reload, "Shares of the reads that the hosts get as standbys: one number for all or, with commas between them, one for each (0 to 1000); 0 is none.", own;
    query_cache: Size, "0", Reload, "Memory for answers to reads that are used again until the primary's changes say otherwise, in bytes with a unit (64MB); 0 is none.", own;
    query_cache_max_staleness: Seconds, "1", Reload, "An answer is used again only if Weir has all changes of the primary up to this many seconds ago.", own;
    query_cache_user: Text, unset, Reload, "User that follows the primary's changes for query_cache: it needs REPLICATION, and its password is in auth_file; unless given, `user`.", own;
    user: Text, unset, Reconnect, "Logs in to the server as this user, regardless of the client's.";
    password: Text, unset, Reconnect, "Password of `user`; unless given, the one in auth_file.";
    pool_size: Inherited<PoolSize>, unset, Reload, "Server connections allowed per user, or `auto`: the pool finds its size itself; unless given, default_pool_size.", better "`auto`";
    auto_pool_size_min: Inherited<Positive>, unset, Reload, "Least size that a pool with pool_size = auto may have; unless given, the global auto_pool_size_min.", own;
    auto_pool_size_max: Inherited<Positive>, unset, Reload, "Largest size that a pool with pool_size = auto may have; unless given, the global auto_pool_size_max.", own;
    min_pool_size: Inherited<Number>, unset, Reload, "Server connections kept open; unless given, the global min_pool_size.";
    reserve_pool_size: Inherited<Number>, unset, Reload, "Further server connections for long waits; unless given, the global reserve_pool_size.";
    max_db_connections: InheritedLimit, unset, Reload, "Server connections of all users together; unless given, the global max_db_connections.", better "exact over all threads, as PostgreSQL counts them";
    connection_sharing: Inherited<ConnectionSharing>, unset, Reload, "How its pools share max_db_connections and max_user_connections with others; unless given, the global connection_sharing.", own;
    guaranteed_connections: Inherited<Number>, unset, Reload, "Server connections that each of its pools gets of a shared limit while its clients ask for them; unless given, the global guaranteed_connections.", own;
    max_db_client_connections: InheritedLimit, unset, Reload, "Client connections of all users together; unless given, the global max_db_client_connections.", better "exact over all threads";
    server_lifetime: Inherited<Seconds>, unset, Reload, "Age at which idle server connections are closed; unless given, the global server_lifetime.";
    failover_timeout: Inherited<Seconds>, unset, Reload, "Longest wait while no host is what target_session_attrs or read_write_split asks for; unless given, the global failover_timeout.", own;
    query_wait_timeout: Inherited<Seconds>, unset, Reload, "Longest wait for a server connection; unless given, the global query_wait_timeout.";
    pool_mode: Inherited<PoolMode>, unset, Reload, "When server connections are returned; unless given, the global pool_mode.";
    session_state: Inherited<SessionState>, unset, Reload, "What becomes of what clients leave in their sessions; unless given, the global session_state.", own;
    assign_server_at_login: Inherited<Boolean>, unset, Reload, "Session pooling: gives clients their server connections at login; unless given, the global assign_server_at_login.", own;
    deferred_begin: Inherited<Boolean>, unset, Reload, "Sends a plain BEGIN with the client's next request; unless given, the global deferred_begin.", own;
    max_pinned: InheritedLimit, unset, Reload, "Clients of a pool that may keep a server connection because of their sessions; unless given, the global max_pinned.", own;
    max_pinned_action: Inherited<PinAction>, unset, Reload, "What becomes of a client while max_pinned is reached; unless given, the global max_pinned_action.", own;
    queue: Inherited<QueueOrder>, unset, Reload, "In which order clients that wait get server connections; unless given, the global queue.", own;
    queue_by: Inherited<QueueBy>, unset, Reload, "Whose server time a fair queue counts; unless given, the global queue_by.", own;
    queue_burst: Inherited<Seconds>, unset, Reload, "Server time that a subject of a fair queue may have saved up; unless given, the global queue_burst.", own;
    queue_limit: InheritedLimit, unset, Reload, "Clients of a pool that may wait for a server connection; unless given, the global queue_limit.", own;
    queue_target: Inherited<Seconds>, unset, Reload, "Longest wait in a queue that stays full; unless given, the global queue_target.", own;
    queue_priority: Inherited<QueuePriority>, unset, Reload, "Whether clients that wait have classes; unless given, the global queue_priority.", own;
    priority: Inherited<Priority>, unset, Reload, "The class of clients that wait, with queue_priority: high, normal or low; unless given, normal.", own;
    queue_weights: QueueWeights, "", Reload, "Shares of the server time that subjects of a fair queue get while they wait: `name=weight` with commas between them (1 to 1000); who is not named has 1.", own;
    load_balance_hosts: LoadBalance, "round-robin", Reload, "How one of several hosts is chosen.";
    connect_query: Text, unset, Reconnect, "Query that is run on each new server connection before clients get it.";
    client_encoding: Text, unset, Reconnect, "Startup parameter of server connections.";
    datestyle: Text, unset, Reconnect, "Startup parameter of server connections.";
    timezone: Text, unset, Reconnect, "Startup parameter of server connections.";
    application_name: Text, unset, Reconnect, "Startup parameter of server connections.";
    auth_user: Text, unset, Reload, "User that auth_query runs as for this database; unless given, the global auth_user.";
    auth_query: Text, unset, Reload, "Query for the secret of a user who is not in auth_file; unless given, the global auth_query.";
    auth_dbname: AuthDatabase, unset, Reload, "Database that auth_query runs in; unless given, the global auth_dbname, else this one.";
}

/// The row of a key of `[databases]`, by its name or by an old one.
pub(crate) fn row(name: &str) -> Option<&'static Row<Database>> {
    let name = if name == "reserve_pool" { "reserve_pool_size" } else { name };
    DATABASE.iter().find(|row| row.info.name == name)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn entry() -> Database {
        Database::new("app", Origin { file: "w.ini".into(), line: 3 })
    }

    #[test]
    fn a_row_writes_its_own_field_and_no_other() {
        for row in DATABASE {
            let mut database = entry();
            let changed = [
                "7",
                "statement",
                "disable",
                "virtual",
                "error",
                "standby",
                "eventual",
                "always_primary",
                "patroni http://h",
                "64MB",
                "fair",
                "demand",
                "comment",
                "high",
                "client_addr",
                "a=2",
            ]
            .iter()
            .any(|word| (row.assign)(&mut database, word).is_ok());
            assert!(changed, "{} takes no value", row.info.name);
            let differing: Vec<&str> = DATABASE
                .iter()
                .filter(|other| !other.same(&database, &entry()))
                .map(|row| row.info.name)
                .collect();
            assert_eq!(differing, [row.info.name]);
        }
    }

    #[test]
    fn the_old_name_of_the_reserve_still_counts() {
        let mut database = entry();
        (row("reserve_pool").unwrap().assign)(&mut database, "3").unwrap();
        assert_eq!(database.reserve_pool_size, Some(3));
    }

    #[test]
    fn the_fallback_takes_the_name_that_was_asked_for() {
        let star = Database::new("*", Origin { file: "w.ini".into(), line: 1 });
        let named = star.under("shop");
        assert_eq!((named.name.as_str(), named.dbname.as_str(), named.auto), ("shop", "shop", true));
        let fixed = Database { dbname: "one".to_owned(), ..star }.under("shop");
        assert_eq!((fixed.name.as_str(), fixed.dbname.as_str()), ("shop", "one"));
    }

    #[test]
    fn a_password_never_shows_in_debug() {
        let database = Database { password: Some("hidden".to_owned()), ..entry() };
        assert!(!format!("{database:?}").contains("hidden"));
    }
}
