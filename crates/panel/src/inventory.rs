//! What there is: pools and clusters as the API shows them, from the configuration and from what shards have counted.
//! Never changes anything.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use control::{
    Budget, Cluster, DatabaseColumn, PinTotalColumn, PoolColumn, ServerErrorColumn, ServerInfo, cluster_id,
    clusters, is_pool_setting,
};
use serde::Serialize;
use settings::{Config, DATABASE, Database, PoolMode, SizeBounds};
use utoipa::ToSchema;

use crate::table::{ViewRow, ViewTable};
use crate::time::rfc3339;

/// Logins that are tried for one query to a server.
const MAX_LOGIN_CANDIDATES: usize = 4;

/// When a server connection returns to the pool.
#[derive(Clone, Copy, Debug, Serialize, ToSchema, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Mode {
    Session,
    Transaction,
    Statement,
}

impl From<PoolMode> for Mode {
    fn from(mode: PoolMode) -> Mode {
        match mode {
            PoolMode::Session => Mode::Session,
            PoolMode::Transaction => Mode::Transaction,
            PoolMode::Statement => Mode::Statement,
        }
    }
}

/// Where a pool is configured.
#[derive(Clone, Copy, Debug, Serialize, ToSchema, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub(crate) enum PoolOrigin {
    /// In the pools file, which Weir may write.
    Panel,
    /// In another file.
    File,
}

/// A pool: an entry of `[databases]`.
#[derive(Clone, Serialize, ToSchema)]
pub(crate) struct PoolView {
    pub(crate) name: String,
    pub(crate) cluster_id: String,
    /// The database's name on the server.
    pub(crate) db: String,
    /// Null: each client's own user.
    #[schema(required)]
    pub(crate) user: Option<String>,
    pub(crate) mode: Mode,
    /// Server connections; of a pool that sizes itself the largest that it may have.
    pub(crate) size: u32,
    /// `pool_size` as its entry has it, a number or `auto`; null where the entry has none, and `default_pool_size` counts.
    #[schema(required)]
    size_setting: Option<String>,
    /// The bounds of a pool that sizes itself; null where it does not.
    #[schema(required)]
    auto_size: Option<AutoSizeBounds>,
    /// Other keys of its entry that are not the default, as a file has them, without passwords.
    settings: BTreeMap<&'static str, String>,
    /// `panel` or `file`: whether Weir may write the file that it stands in.
    origin: PoolOrigin,
    writable: bool,
    file: String,
    line: u32,
    paused: bool,
    disabled: bool,
    /// Absent where logins succeed, or none was tried yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    server_error: Option<ServerErrorView>,
    live: PoolCounts,
    pins: PoolPins,
}

/// Between what a pool finds its size.
#[derive(Clone, Copy, Debug, Serialize, ToSchema, PartialEq, Eq)]
pub(crate) struct AutoSizeBounds {
    min: u32,
    max: u32,
}

impl AutoSizeBounds {
    fn of(bounds: SizeBounds) -> Option<AutoSizeBounds> {
        match bounds {
            SizeBounds::Fixed(_) => None,
            SizeBounds::Auto { min, max } => Some(AutoSizeBounds { min, max }),
        }
    }
}

/// Clients that keep a server connection because of what their sessions hold (`session_state = virtual`).
#[derive(Clone, Debug, Default, Serialize, ToSchema)]
pub(crate) struct PoolPins {
    /// How many may, of each user; 0 is no limit.
    max_pinned: u32,
    clients: u64,
    /// Clients that wait because of `max_pinned`.
    waiting: u64,
    /// How many sessions hold what; one that holds several kinds of state counts for each.
    by_reason: BTreeMap<String, u64>,
}

impl PoolPins {
    fn add(&mut self, row: ViewRow<'_, PinTotalColumn>) {
        self.clients += row.number(PinTotalColumn::Pinned);
        self.waiting += row.number(PinTotalColumn::Waiting);
        for (reason, clients) in reasons(row) {
            *self.by_reason.entry(reason.to_owned()).or_default() += clients;
        }
    }
}

/// How many sessions of a pool hold what.
pub(crate) fn reasons(row: ViewRow<'_, PinTotalColumn>) -> impl Iterator<Item = (&str, u64)> {
    let text = row.text(PinTotalColumn::Reasons).unwrap_or_default();
    text.split(',')
        .filter_map(|part| part.split_once('='))
        .filter_map(|(reason, clients)| Some((reason, clients.parse().ok()?)))
}

/// Why the server of a pool cannot be logged in to: no login has gone well since.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct ServerErrorView {
    /// The last reason.
    message: String,
    /// Of the first failure, RFC 3339.
    since: String,
    /// Of the last failure, RFC 3339.
    last: String,
}

impl ServerErrorView {
    fn of(row: ViewRow<'_, ServerErrorColumn>) -> ServerErrorView {
        ServerErrorView {
            message: row.text(ServerErrorColumn::Message).unwrap_or_default().to_owned(),
            since: rfc3339(row.text(ServerErrorColumn::Since)),
            last: rfc3339(row.text(ServerErrorColumn::LastTime)),
        }
    }

    /// Of two, since the first, in the words of the last.
    fn merged(self, other: ServerErrorView) -> ServerErrorView {
        let since = self.since.clone().min(other.since.clone());
        let later = if other.last > self.last { other } else { self };
        ServerErrorView { since, ..later }
    }
}

/// What shards have counted.
#[derive(Clone, Copy, Default, Serialize, ToSchema)]
pub(crate) struct PoolCounts {
    clients_active: u64,
    clients_waiting: u64,
    servers_active: u64,
    servers_idle: u64,
    servers_used: u64,
    servers_login: u64,
    /// Of the client that has waited longest.
    maxwait_seconds: f64,
}

/// What an entry has beside the fields of a pool.
fn settings_of(database: &Database) -> BTreeMap<&'static str, String> {
    let default = Database::new(&database.name, database.at.clone());
    let is_own = |name: &str| {
        // Those that Patroni has listed are not the entry's.
        let is_listed = database.follows_members && matches!(name, "host" | "port");
        is_pool_setting(name) && !is_listed
    };
    let rows = DATABASE.iter().filter(|row| is_own(row.info.name));
    let set = rows.filter_map(|row| {
        let value = (row.show)(database)?;
        let is_default = (row.show)(&default).as_deref() == Some(value.as_str());
        // Patroni's URLs may have passwords.
        let shown = if row.info.name == "topology" { database.topology.to_string() } else { value };
        (!is_default).then_some((row.info.name, shown))
    });
    set.collect()
}

/// A part of a pool: that of one user.
#[derive(Serialize, ToSchema)]
pub(crate) struct PoolUser {
    database: String,
    user: String,
    live: PoolCounts,
}

/// A cluster.
#[derive(Serialize, ToSchema)]
pub(crate) struct ClusterView {
    id: String,
    /// Several with commas between them; empty is the unix socket in the default directory.
    host: String,
    port: u16,
    databases: BTreeSet<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    server_version: Option<String>,
    /// Absent where the server answers, or no pool of it has been used.
    #[serde(skip_serializing_if = "Option::is_none")]
    server_error: Option<ServerErrorView>,
    budget: BudgetView,
}

/// The connections of a cluster's server; all but `used_by_pools` are 0 where they are not known.
#[derive(Serialize, ToSchema)]
pub(crate) struct BudgetView {
    max_connections: u32,
    reserved: u32,
    used_by_pools: u32,
    free: u32,
    known: bool,
}

impl ClusterView {
    /// A cluster, and what its server says of itself if it answers.
    pub(crate) fn new(
        config: &Config,
        inventory: &Inventory,
        cluster: Cluster,
        server_info: Option<ServerInfo>,
    ) -> ClusterView {
        // A server that answers is not down, whatever became of a pool's own login.
        let server_error = if server_info.is_some() { None } else { inventory.server_error(&cluster) };
        ClusterView {
            server_error,
            budget: (&Budget::of(config, &cluster, server_info.as_ref())).into(),
            databases: databases(&cluster, server_info.as_ref()),
            server_version: server_info.map(|server_info| server_info.version),
            id: cluster.id,
            host: cluster.host.join(","),
            port: cluster.port.first(),
        }
    }

    /// Pools may use this part of the server's connections, in percent, or more: the server and a sentence.
    pub(crate) fn over_budget(&self, percent: u32) -> Option<(String, String)> {
        let BudgetView { max_connections, reserved, used_by_pools, known, .. } = self.budget;
        let all = u64::from(max_connections.saturating_sub(reserved));
        if !known || u64::from(used_by_pools) * 100 < all * u64::from(percent) {
            return None;
        }
        let server = format!("{}:{}", self.host, self.port);
        let text = format!("pools of {server} may use {used_by_pools} of {all} connections");
        Some((server, text))
    }
}

impl From<&Budget> for BudgetView {
    fn from(budget: &Budget) -> BudgetView {
        BudgetView {
            max_connections: budget.max_connections.unwrap_or(0),
            reserved: budget.reserved.unwrap_or(0),
            used_by_pools: budget.used_by_pools,
            free: budget.free().unwrap_or(0),
            known: budget.max_connections.is_some(),
        }
    }
}

impl PoolCounts {
    #[expect(clippy::cast_precision_loss)]
    fn add(&mut self, row: ViewRow<'_, PoolColumn>) {
        self.clients_active += row.number(PoolColumn::ClActive);
        self.clients_waiting += row.number(PoolColumn::ClWaiting);
        self.servers_active += row.number(PoolColumn::SvActive);
        self.servers_idle += row.number(PoolColumn::SvIdle);
        self.servers_used += row.number(PoolColumn::SvUsed);
        self.servers_login += row.number(PoolColumn::SvLogin);
        let wait = row.number(PoolColumn::Maxwait) as f64 + row.number(PoolColumn::MaxwaitUs) as f64 / 1e6;
        self.maxwait_seconds = self.maxwait_seconds.max(wait);
    }

    /// Servers that have let Weir in.
    fn servers_open(&self) -> u64 {
        self.servers_active + self.servers_idle + self.servers_used
    }
}

/// All that shards and the control thread know of pools at one moment.
pub(crate) struct Inventory {
    live: HashMap<String, PoolCounts>,
    switches: HashMap<String, (bool, bool)>,
    errors: HashMap<String, ServerErrorView>,
    pins: HashMap<String, PoolPins>,
    pools: ViewTable<PoolColumn>,
}

impl Inventory {
    /// What these views say.
    pub(crate) fn new(
        pools: ViewTable<PoolColumn>,
        databases: &ViewTable<DatabaseColumn>,
        failed: &ViewTable<ServerErrorColumn>,
        pinned: &ViewTable<PinTotalColumn>,
    ) -> Inventory {
        let mut errors: HashMap<String, ServerErrorView> = HashMap::new();
        for row in failed.iter() {
            let (name, error) =
                (row.text(ServerErrorColumn::Database).unwrap_or_default(), ServerErrorView::of(row));
            let error = match errors.remove(name) {
                Some(other) => error.merged(other),
                None => error,
            };
            errors.insert(name.to_owned(), error);
        }
        let mut live: HashMap<String, PoolCounts> = HashMap::new();
        for row in pools.iter() {
            live.entry(row.text(PoolColumn::Database).unwrap_or_default().to_owned()).or_default().add(row);
        }
        let switch = |row: ViewRow<'_, DatabaseColumn>| {
            let name = row.text(DatabaseColumn::Name).unwrap_or_default().to_owned();
            (name, (row.number(DatabaseColumn::Paused) > 0, row.number(DatabaseColumn::Disabled) > 0))
        };
        let switches = databases.iter().map(switch).collect();
        let mut pins: HashMap<String, PoolPins> = HashMap::new();
        for row in pinned.iter() {
            let name = row.text(PinTotalColumn::Database).unwrap_or_default().to_owned();
            pins.entry(name).or_default().add(row);
        }
        Inventory { live, switches, errors, pins, pools }
    }

    /// A pool as the API shows it.
    pub(crate) fn pool(&self, config: &Config, database: &Database) -> PoolView {
        let user = database.user.as_deref().and_then(|user| config.user(user)).map(|user| &**user);
        let is_ours = config.is_in_pools_file(database);
        let (paused, disabled) = self.switches.get(&database.name).copied().unwrap_or_default();
        PoolView {
            name: database.name.clone(),
            cluster_id: cluster_id(database),
            db: database.dbname.clone(),
            user: database.user.clone(),
            mode: config.pool_mode(database, user).into(),
            size: config.pool_size(database, user).largest(),
            size_setting: database.pool_size.map(|size| size.to_string()),
            auto_size: AutoSizeBounds::of(config.pool_size(database, user)),
            settings: settings_of(database),
            origin: if is_ours { PoolOrigin::Panel } else { PoolOrigin::File },
            writable: is_ours,
            file: database.at.file.to_string(),
            line: database.at.line,
            paused,
            disabled,
            server_error: self.error_of(&database.name).cloned(),
            live: self.live.get(&database.name).copied().unwrap_or_default(),
            pins: PoolPins {
                max_pinned: config.max_pinned(database, user),
                ..self.pins.get(&database.name).cloned().unwrap_or_default()
            },
        }
    }

    /// Why logins to the server of a cluster fail, by its pools.
    fn server_error(&self, cluster: &Cluster) -> Option<ServerErrorView> {
        let found = cluster.entries.iter().filter_map(|name| self.error_of(name)).cloned();
        found.reduce(ServerErrorView::merged)
    }

    /// Servers to which logins fail, each with the reason; known for pools that have been used.
    pub(crate) fn servers_down(&self, config: &Config) -> Vec<(String, String)> {
        let clusters = clusters(config).into_iter();
        let down = clusters.filter_map(|cluster| Some((self.server_error(&cluster)?, cluster)));
        down.map(|(error, cluster)| {
            let server = format!("{}:{}", cluster.host.join(","), cluster.port);
            let text = format!("logins to server {server} fail since {}: {}", error.since, error.message);
            (server, text)
        })
        .collect()
    }

    /// Why a pool has no server. One user's failed login says nothing of a server that lets others in.
    fn error_of(&self, name: &str) -> Option<&ServerErrorView> {
        let has_servers = self.live.get(name).is_some_and(|live| live.servers_open() > 0);
        self.errors.get(name).filter(|_| !has_servers)
    }

    /// The users of a pool that have connected, each with its counts.
    pub(crate) fn parts(&self, name: &str) -> Vec<PoolUser> {
        let rows = self.pools.iter().filter(|row| row.text(PoolColumn::Database) == Some(name));
        let part = |row: ViewRow<'_, PoolColumn>| {
            let mut live = PoolCounts::default();
            live.add(row);
            PoolUser {
                database: name.to_owned(),
                user: row.text(PoolColumn::User).unwrap_or_default().to_owned(),
                live,
            }
        };
        rows.map(part).collect()
    }

    /// The likeliest user by whom the server of a pool can be asked.
    pub(crate) fn likely_user(&self, config: &Config, cluster: &Cluster, name: &str) -> Option<String> {
        let of_pool = Cluster { entries: std::iter::once(name.to_owned()).collect(), ..cluster.clone() };
        self.login_candidates(config, &of_pool).into_iter().next().map(|(_, user)| user)
    }

    /// Entries and users by which the server of a cluster can be asked, the likeliest first: pools that have servers, users
    /// that entries force, the one of auth_query, users whose passwords are known.
    pub(crate) fn login_candidates(&self, config: &Config, cluster: &Cluster) -> Vec<(String, String)> {
        let mut login_candidates: Vec<(String, String)> = Vec::new();
        let entries: Vec<&Database> = cluster
            .entries
            .iter()
            .filter_map(|name| config.databases.get(name))
            .map(|entry| &**entry)
            .collect();
        for row in self
            .pools
            .iter()
            .filter(|row| row.number(PoolColumn::SvActive) + row.number(PoolColumn::SvIdle) > 0)
        {
            let (Some(database), Some(user)) = (row.text(PoolColumn::Database), row.text(PoolColumn::User))
            else {
                continue;
            };
            if entries.iter().any(|entry| entry.name == database) {
                login_candidates.push((database.to_owned(), user.to_owned()));
            }
        }
        for entry in &entries {
            let of_entry = entry.user.as_deref().or_else(|| config.auth_user(Some(entry)));
            login_candidates.extend(of_entry.map(|user| (entry.name.clone(), user.to_owned())));
        }
        let is_verifier = |secret: &str| secret.starts_with("SCRAM-SHA-256$") || secret.starts_with("md5");
        let mut known: Vec<(bool, &String)> = config
            .secrets
            .iter()
            .filter(|(_, secret)| !is_verifier(secret))
            .map(|(user, secret)| (secret.is_empty(), user))
            .collect();
        known.sort_unstable();
        if let Some(entry) = entries.iter().find(|entry| entry.user.is_none()) {
            login_candidates.extend(known.into_iter().map(|(_, user)| (entry.name.clone(), user.clone())));
        }
        let mut seen = BTreeSet::new();
        login_candidates.retain(|way| seen.insert(way.clone()));
        login_candidates.truncate(MAX_LOGIN_CANDIDATES);
        login_candidates
    }
}

/// The cluster of this id.
pub(crate) fn cluster(config: &Config, id: &str) -> Option<Cluster> {
    clusters(config).into_iter().find(|cluster| cluster.id == id)
}

/// The databases that a cluster is known to have.
pub(crate) fn databases(cluster: &Cluster, server_info: Option<&ServerInfo>) -> BTreeSet<String> {
    let of_server = server_info.iter().flat_map(|server_info| &server_info.databases);
    cluster.databases.iter().chain(of_server).cloned().collect()
}

/// The pools of a cluster, or of all, by name.
pub(crate) fn entries<'a>(config: &'a Config, cluster: Option<&str>) -> BTreeMap<&'a str, &'a Database> {
    let here = |database: &Database| cluster.is_none_or(|id| cluster_id(database) == id);
    let all = config.databases.iter().filter(|(_, database)| here(database));
    all.map(|(name, database)| (name.as_str(), &**database)).collect()
}
