//! Where the shards of this process find what they share.
//!
//! Asked once per shard and name, so one lock is enough. Never touched per transaction.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use messages::ShardId;
use pool::{
    Budget, CancelKeyPrefix, ConnectionCounts, Counted, ExternalClients, FairPool, FairShare, FairShares,
    FleetCounts, Lease, PoolRegistry, ProbedCluster, ProcessCounts, SharedPool, SlotCounter,
};
use quota::Book;
use settings::{Config, Database, HostChange, QueueBy};
use shard::takeover::cluster_text;

use crate::ids::TableId;

/// The most databases without counts whose cluster is remembered. A client adds one only by a name that a server has accepted.
const MAX_LEFT_CLUSTERS: usize = 100_000;

/// Notifies the fleet thread that slots are wanted, or that there is a new limit to be counted.
pub type WantSlots = Arc<dyn Fn() + Send + Sync>;

/// The directory of one process.
pub struct ProcessRegistry {
    names: Mutex<Names>,
    quotas: Arc<Mutex<Book>>,
    /// The shard of each client, by cancel key.
    cancel_keys: Mutex<HashMap<CancelKeyPrefix, (u16, u32)>>,
    process: Arc<ProcessCounts>,
    /// Where the process is a node of a fleet.
    want_slots: Option<WantSlots>,
    busy_percent: Vec<AtomicU32>,
}

/// What a process knows of the servers of a database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HandedCluster {
    pub(crate) database: String,
    /// The hosts that it is known of ([`cluster_text`]).
    pub(crate) hosts: String,
    /// `system_identifier`.
    pub(crate) system: u64,
    /// The newest timeline of a primary; 0 where none was seen.
    pub(crate) timeline: u32,
}

#[derive(Default)]
struct Names {
    pools: BTreeMap<(String, String), Arc<SharedPool>>,
    /// The databases in which each user has a pool.
    databases_of_users: HashMap<String, BTreeSet<String>>,
    /// Pools for reads, by database, user and host.
    host_pools: BTreeMap<(String, String, String), Arc<SharedPool>>,
    databases: HashMap<String, Arc<ConnectionCounts>>,
    /// Of entries whose hosts are asked.
    probed_clusters: HashMap<String, ProbedCluster>,
    /// What was known of the servers of databases that have no counts now: identifier, and newest timeline.
    left_clusters: HashMap<String, (u64, u32)>,
    /// The one in force, to compare the hosts of its entries with those of the next.
    config: Arc<Config>,
    users: HashMap<String, Arc<ConnectionCounts>>,
    fair_shares: FairShares,
    /// What other nodes of the fleet have.
    external: ExternalClients,
    /// How many pools began on each shard.
    pools_begun: Vec<u32>,
}

impl Names {
    /// The pool of a user in a database, and those for its reads.
    fn pools_of<'a>(&'a self, database: &'a str, user: &'a str) -> impl Iterator<Item = &'a Arc<SharedPool>> {
        let first = (database.to_owned(), user.to_owned(), String::new());
        let hosts = self.host_pools.range(first..);
        let hosts = hosts.take_while(move |((of, by, _), _)| (of.as_str(), by.as_str()) == (database, user));
        self.pools
            .get(&(database.to_owned(), user.to_owned()))
            .into_iter()
            .chain(hosts.map(|(_, shared)| shared))
    }
}

impl ProcessRegistry {
    /// A directory for this many shards (1..=64).
    #[must_use]
    pub fn new(shards: u16) -> ProcessRegistry {
        let count = usize::from(shards);
        let names = Names { pools_begun: vec![0; count], ..Names::default() };
        let busy_percent = (0..count).map(|_| AtomicU32::new(0)).collect();
        ProcessRegistry {
            names: Mutex::new(names),
            quotas: Arc::default(),
            cancel_keys: Mutex::default(),
            process: Arc::default(),
            want_slots: None,
            busy_percent,
        }
    }

    /// The same of a process that is a node of a fleet.
    #[must_use]
    pub(crate) fn in_fleet(shards: u16, want_slots: Option<WantSlots>) -> ProcessRegistry {
        ProcessRegistry { want_slots, ..ProcessRegistry::new(shards) }
    }

    /// The shard for a part of a pool that a predecessor process had: the first goes where the pool begins, each further
    /// one to the emptiest shard that has none yet.
    pub(crate) fn part_for_import(&self, database: &str, user: &str, is_first: bool) -> ShardId {
        let pool = self.pool(database, user);
        let home = u16::try_from(pool.shards().trailing_zeros()).unwrap_or(0);
        if is_first {
            return ShardId(home);
        }
        let names = self.names();
        let free = (0..self.shards()).filter(|shard| pool.shards() & (1 << shard) == 0);
        let shard = free.min_by_key(|shard| names.pools_begun[ShardId(*shard).index()]).unwrap_or(home);
        pool.spread_to(shard);
        ShardId(shard)
    }

    /// Takes a new configuration, before any shard does. A second call with the same one does nothing.
    pub(crate) fn configure(&self, config: &Arc<Config>) {
        let names = &mut *self.names();
        let old = std::mem::replace(&mut names.config, Arc::clone(config));
        if Arc::ptr_eq(&old, config) {
            return;
        }
        let is_other = |old: Option<&Arc<Database>>, new: Option<&Arc<Database>>| {
            let hosts = old.zip(new).map(|(old, new)| HostChange::between(old, new));
            hosts.is_none_or(|hosts| hosts == HostChange::Others)
        };
        let fallback_is_other = is_other(old.fallback.as_ref(), config.fallback.as_ref());
        names.forget_clusters_without_pools(|name| {
            match (old.databases.get(name), config.databases.get(name)) {
                (None, None) => fallback_is_other,
                (old_entry, new_entry) => {
                    is_other(old_entry.or(old.fallback.as_ref()), new_entry.or(config.fallback.as_ref()))
                }
            }
        });
    }

    /// RECONNECT of a database, or of all: its servers may belong to another cluster from here on. Shards forget the clusters of their pools themselves.
    pub(crate) fn forget_clusters(&self, database: Option<&str>) {
        self.names().forget_clusters_without_pools(|name| database.is_none_or(|database| name == database));
    }

    /// What is known of the servers of all databases, with pools and without, for the process that takes over.
    pub(crate) fn known_clusters(&self) -> Vec<HandedCluster> {
        let names = &*self.names();
        let counted =
            names.databases.iter().filter_map(|(name, counts)| Some((name, counts.cluster.known()?)));
        let left = names.left_clusters.iter().map(|(name, known)| (name, *known));
        let handed = |(name, (system, timeline)): (&String, (u64, u32))| {
            let hosts = cluster_text(&*names.config.database(name)?);
            Some(HandedCluster { database: name.clone(), hosts, system, timeline })
        };
        left.chain(counted).filter_map(handed).collect()
    }

    /// The process before has known this of a database's servers. What this one has found itself counts, and nothing of other hosts.
    pub(crate) fn import_cluster(&self, handed: HandedCluster) {
        let names = &mut *self.names();
        let HandedCluster { database, hosts, system, timeline } = handed;
        let entry = names.config.database(&database);
        if entry.is_none_or(|entry| cluster_text(&entry) != hosts) {
            return;
        }
        if let Some(counts) = names.databases.get(&database) {
            let _ = counts.cluster.remember(system, Some(timeline));
        } else if names.left_clusters.len() < MAX_LEFT_CLUSTERS {
            let (known, newest) = names.left_clusters.entry(database).or_insert((system, timeline));
            if *known == system {
                *newest = timeline.max(*newest);
            }
        }
    }

    /// The accounts of quotas, which others look at, too.
    pub(crate) fn quotas(&self) -> &Arc<Mutex<Book>> {
        &self.quotas
    }

    fn names(&self) -> MutexGuard<'_, Names> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn cancel_keys(&self) -> MutexGuard<'_, HashMap<CancelKeyPrefix, (u16, u32)>> {
        self.cancel_keys.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new count has no slot before the fleet thread has seen it.
    fn begin_leased(&self, counter: &SlotCounter) {
        if let Some(wake) = &self.want_slots {
            counter.set_lease(Some(Lease { slots: 0, floor: 0, until_us: 0 }));
            wake();
        }
    }

    /// What the hosts of an entry have answered; for its counts, and for those that are made later. For one thread.
    pub(crate) fn note_probed(&self, entry: &str, probed: ProbedCluster) {
        let names = &mut *self.names();
        if probed == ProbedCluster::default() {
            names.probed_clusters.remove(entry);
        } else {
            names.probed_clusters.insert(entry.to_owned(), probed);
        }
        if let Some(counts) = names.databases.get(entry) {
            counts.cluster.note_probed(probed);
        }
    }

    fn new_counts(&self, name: &str, external: Option<&u32>) -> Arc<ConnectionCounts> {
        let counts = Arc::<ConnectionCounts>::default();
        counts.clients.set_external(external.copied().unwrap_or_default());
        // Not those of peers.
        if !name.starts_with('\0') {
            self.begin_leased(&counts.servers);
        }
        counts
    }

    /// The shard with the fewest pools; of several the least busy, then the first.
    fn emptiest(&self, pools_begun: &[u32]) -> u16 {
        let rank = |shard: &u16| (pools_begun[ShardId(*shard).index()], self.busy_percent(*shard));
        (0..self.shards()).min_by_key(rank).unwrap_or(0)
    }
}

/// Forgets counts that have no other holder: nothing is counted in them, and `*` makes as many names as are tried.
fn forget_unheld(
    counts: &mut HashMap<String, Arc<ConnectionCounts>>,
    name: &str,
) -> Option<Arc<ConnectionCounts>> {
    let is_unheld =
        counts.get(name).is_some_and(|held| Arc::strong_count(held) == 1 && !held.is_registered());
    if is_unheld { counts.remove(name) } else { None }
}

impl Names {
    /// Forgets the clusters of these databases, as far as they have no pool.
    fn forget_clusters_without_pools(&mut self, is_one: impl Fn(&str) -> bool) {
        self.left_clusters.retain(|name, _| !is_one(name));
        for (name, counts) in self.databases.iter().filter(|(name, _)| is_one(name)) {
            let mut pools = self.pools.range((name.clone(), String::new())..);
            if pools.next().is_none_or(|((database, _), _)| database != name) {
                counts.cluster.forget();
            }
        }
    }

    /// Forgets the counts of a database that have no other holder, and remembers its cluster: a primary that was left behind must not serve the next client either.
    fn forget_unheld_database(&mut self, name: &str) {
        let Some(counts) = forget_unheld(&mut self.databases, name) else { return };
        if let Some(known) = counts.cluster.known()
            && self.left_clusters.len() < MAX_LEFT_CLUSTERS
        {
            self.left_clusters.insert(name.to_owned(), known);
        }
    }
}

impl PoolRegistry for ProcessRegistry {
    fn pool(&self, database: &str, user: &str) -> Arc<SharedPool> {
        let names = &mut *self.names();
        let emptiest = self.emptiest(&names.pools_begun);
        let entry = names.pools.entry((database.to_owned(), user.to_owned()));
        Arc::clone(entry.or_insert_with(|| {
            names.databases_of_users.entry(user.to_owned()).or_default().insert(database.to_owned());
            names.pools_begun[ShardId(emptiest).index()] += 1;
            let shared = Arc::new(SharedPool::on(emptiest));
            self.begin_leased(&shared.servers);
            shared
        }))
    }

    fn host_pool(&self, database: &str, user: &str, host: &str) -> Arc<SharedPool> {
        let key = (database.to_owned(), user.to_owned(), host.to_owned());
        let new = || {
            let shared = Arc::<SharedPool>::default();
            self.begin_leased(&shared.servers);
            shared
        };
        Arc::clone(self.names().host_pools.entry(key).or_insert_with(new))
    }

    fn forget_pool(&self, database: &str, user: &str) {
        let names = &mut *self.names();
        names.host_pools.retain(|(of, by, _), shared| {
            (of.as_str(), by.as_str()) != (database, user) || Arc::strong_count(shared) > 1
        });
        let key = (database.to_owned(), user.to_owned());
        names.forget_unheld_database(database);
        forget_unheld(&mut names.users, user);
        // Another holder besides this table has a part of it, or is about to make one.
        if names.pools.get(&key).is_none_or(|shared| Arc::strong_count(shared) > 1) {
            return;
        }
        if let Some(databases) = names.databases_of_users.get_mut(user) {
            databases.remove(database);
            if databases.is_empty() {
                names.databases_of_users.remove(user);
            }
        }
        if let Some(shared) = names.pools.remove(&key)
            && let Some(begun) = names.pools_begun.get_mut(shared.shards().trailing_zeros() as usize)
        {
            *begun = begun.saturating_sub(1);
        }
    }

    fn forget_database(&self, name: &str) {
        self.names().forget_unheld_database(name);
    }

    fn database(&self, name: &str) -> Arc<ConnectionCounts> {
        let Names { databases, external, probed_clusters, left_clusters, .. } = &mut *self.names();
        let new = || {
            let counts = self.new_counts(name, external.databases.get(name));
            if let Some((system, timeline)) = left_clusters.remove(name) {
                // It cannot be refused: these counts know of no cluster yet.
                let _ = counts.cluster.remember(system, Some(timeline));
            }
            counts.cluster.note_probed(probed_clusters.get(name).copied().unwrap_or_default());
            counts
        };
        Arc::clone(databases.entry(name.to_owned()).or_insert_with(new))
    }

    fn user(&self, name: &str) -> Arc<ConnectionCounts> {
        let Names { users, external, .. } = &mut *self.names();
        let new = || self.new_counts(name, external.users.get(name));
        Arc::clone(users.entry(name.to_owned()).or_insert_with(new))
    }

    fn pools_of(&self, budget: Budget, name: &str) -> Vec<Arc<SharedPool>> {
        let names = &*self.names();
        match budget {
            Budget::Database => {
                let pools = names.pools.range((name.to_owned(), String::new())..);
                let hosts = names.host_pools.range((name.to_owned(), String::new(), String::new())..);
                let pools = pools.take_while(|((database, _), _)| database == name).map(|(_, shared)| shared);
                let hosts =
                    hosts.take_while(|((database, _, _), _)| database == name).map(|(_, shared)| shared);
                pools.chain(hosts).cloned().collect()
            }
            Budget::User => {
                let databases = names.databases_of_users.get(name).into_iter().flatten();
                databases.flat_map(|database| names.pools_of(database, name)).cloned().collect()
            }
        }
    }

    fn fair_share(&self, pool: &Arc<FairPool>, by: QueueBy, subject: &str, weight: u32) -> Arc<FairShare> {
        self.names().fair_shares.share(pool, by, subject, weight)
    }

    fn with_quotas(&self, look: &mut dyn FnMut(&mut Book)) {
        look(&mut self.quotas.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn process(&self) -> Arc<ProcessCounts> {
        Arc::clone(&self.process)
    }

    fn shards(&self) -> u16 {
        u16::try_from(self.busy_percent.len()).unwrap_or(u16::MAX)
    }

    fn keep_cancel_key(&self, key: CancelKeyPrefix, shard: u16, place: u32) -> bool {
        match self.cancel_keys().entry(key) {
            Entry::Occupied(_) => false,
            Entry::Vacant(free) => {
                free.insert((shard, place));
                true
            }
        }
    }

    fn forget_cancel_key(&self, key: CancelKeyPrefix) {
        self.cancel_keys().remove(&key);
    }

    fn find_cancel_key(&self, key: CancelKeyPrefix) -> Option<(u16, u32)> {
        self.cancel_keys().get(&key).copied()
    }

    fn want_slots(&self) {
        if let Some(wake) = &self.want_slots {
            wake();
        }
    }

    fn busy_percent(&self, shard: u16) -> u32 {
        self.busy_percent.get(ShardId(shard).index()).map_or(0, |percent| percent.load(Ordering::Relaxed))
    }

    fn set_busy_percent(&self, shard: u16, percent: u32) {
        if let Some(slot) = self.busy_percent.get(ShardId(shard).index()) {
            slot.store(percent, Ordering::Relaxed);
        }
    }
}

impl FleetCounts for ProcessRegistry {
    fn clients(&self) -> u32 {
        let names = &*self.names();
        let of_pools = names.databases.iter().filter(|(name, _)| !name.starts_with('\0'));
        of_pools.map(|(_, counts)| counts.clients.taken()).fold(0, u32::saturating_add)
    }

    fn counted_clients(&self) -> u32 {
        self.process.clients.taken()
    }

    fn set_external_clients(&self, external: ExternalClients) {
        self.process.clients.set_external(external.all);
        let names = &mut *self.names();
        for (counts, of) in [(&names.databases, &external.databases), (&names.users, &external.users)] {
            for (name, counts) in counts {
                counts.clients.set_external(of.get(name.as_str()).copied().unwrap_or_default());
            }
        }
        names.external = external;
    }

    fn with_quotas(&self, look: &mut dyn FnMut(&mut Book)) {
        PoolRegistry::with_quotas(self, look);
    }

    fn each(&self, look: &mut dyn FnMut(Counted<'_>)) {
        let names = &*self.names();
        for ((database, user), shared) in &names.pools {
            look(Counted::Pool { database, user, host: None, shared });
        }
        for ((database, user, host), shared) in &names.host_pools {
            look(Counted::Pool { database, user, host: Some(host), shared });
        }
        for (name, counts) in names.databases.iter().filter(|(name, _)| !name.starts_with('\0')) {
            look(Counted::Database { name, counts });
        }
        for (name, counts) in &names.users {
            look(Counted::User { name, counts });
        }
    }
}

#[cfg(test)]
mod tests {
    use pool::Mismatch;
    use settings::{Origin, PoolSize};

    use super::*;

    #[test]
    fn pools_begin_where_the_fewest_are() {
        let directory = ProcessRegistry::new(3);
        directory.set_busy_percent(0, 50);
        let first = |name| directory.pool(name, "u").shards();
        assert_eq!([first("a"), first("b"), first("c"), first("d")], [0b010, 0b100, 0b001, 0b010]);
        assert_eq!(first("a"), 0b010, "a pool stays where it began");
    }

    #[test]
    fn a_pool_without_holders_is_forgotten() {
        let directory = ProcessRegistry::new(2);
        let held = directory.pool("a", "u");
        directory.forget_pool("a", "u");
        assert!(Arc::ptr_eq(&held, &directory.pool("a", "u")));
        drop(held);
        directory.forget_pool("a", "u");
        directory.forget_pool("never", "u");
        assert_eq!(directory.pool("b", "u").shards(), 0b01, "its shard is the emptiest again");
    }

    #[test]
    fn pools_of_a_budget_are_those_of_its_database_or_user() {
        let directory = ProcessRegistry::new(1);
        let names = [("a", "u"), ("a", "v"), ("ab", "u"), ("b", "u")];
        let pools = names.map(|(database, user)| directory.pool(database, user));
        let reads = directory.host_pool("a", "u", "h");
        let found = |budget, name, expected: &[&Arc<SharedPool>]| {
            let found = directory.pools_of(budget, name);
            let has = |pool: &&Arc<SharedPool>| found.iter().any(|one| Arc::ptr_eq(one, pool));
            found.len() == expected.len() && expected.iter().all(has)
        };
        assert!(found(Budget::Database, "a", &[&pools[0], &pools[1], &reads]));
        assert!(found(Budget::User, "u", &[&pools[0], &pools[2], &pools[3], &reads]));
        assert!(found(Budget::User, "w", &[]) && found(Budget::Database, "c", &[]));
        drop(pools);
        drop(reads);
        directory.forget_pool("a", "u");
        directory.forget_pool("b", "u");
        assert_eq!(directory.pools_of(Budget::User, "u").len(), 1);
    }

    #[test]
    fn a_primary_that_was_left_behind_stays_so_for_a_database_without_pools() {
        let config = |hosts: &[&str], pool_size| {
            let origin = Origin { file: "w.ini".into(), line: 1 };
            let host = hosts.iter().map(|host| (*host).to_owned()).collect();
            let entry = Database { host, pool_size, ..Database::new("*", origin) };
            Arc::new(Config { fallback: Some(Arc::new(entry)), ..Config::default() })
        };
        let directory = ProcessRegistry::new(2);
        directory.configure(&config(&["a", "b"], None));
        let older = |name: &str| {
            let answer = directory.database(name).cluster.admit(7, Some(1));
            directory.forget_database(name);
            answer
        };
        let see = |name: &str| {
            directory.forget_clusters(Some(name));
            assert_eq!(directory.database(name).cluster.admit(7, Some(2)), Ok(()));
            directory.forget_database(name);
        };
        see("x");
        see("y");
        assert_eq!(older("x"), Err(Mismatch::OlderTimeline(2)));
        assert_eq!(older("x"), Err(Mismatch::OlderTimeline(2)), "as often as it is asked");
        directory.configure(&config(&["a", "b"], Some(PoolSize::Fixed(3))));
        assert_eq!(older("x"), Err(Mismatch::OlderTimeline(2)));
        directory.forget_clusters(Some("x"));
        assert_eq!((older("x"), older("y")), (Ok(()), Err(Mismatch::OlderTimeline(2))));
        directory.configure(&config(&["a", "c"], None));
        assert_eq!(older("y"), Ok(()), "other hosts may be another cluster's");
        // One whose counts stay, as that of a database of `*` does without its pools.
        let registered = directory.database("z");
        assert!(registered.register());
        assert_eq!(registered.cluster.admit(7, Some(2)), Ok(()));
        directory.configure(&config(&["a", "b"], None));
        assert_eq!(registered.cluster.known(), None);
        let pool = (directory.pool("z", "u"), registered.cluster.admit(7, Some(2)));
        directory.forget_clusters(None);
        assert_eq!(registered.cluster.known(), Some((7, 2)), "the shards that have its pool forget it");
        drop(pool);
        see("x");
        let next = |hosts: &[&str]| {
            let next = ProcessRegistry::new(1);
            next.configure(&config(hosts, None));
            directory.known_clusters().into_iter().for_each(|handed| next.import_cluster(handed));
            next
        };
        for (name, hosts, is_known) in
            [("x", &["a", "b"], true), ("z", &["a", "b"], true), ("x", &["a", "c"], false)]
        {
            let answer = next(hosts).database(name).cluster.admit(7, Some(1));
            assert_eq!(answer.is_err(), is_known, "{name} in the process that takes over");
        }
        let later = next(&["a", "b"]);
        let counts = later.database("x");
        directory.known_clusters().into_iter().for_each(|handed| later.import_cluster(handed));
        assert_eq!(counts.cluster.known(), Some((7, 2)), "it has been used there already");
        directory.configure(&Arc::default());
        assert!(directory.names().left_clusters.is_empty(), "no such databases any more");
    }

    #[test]
    fn counts_go_with_the_last_pool_that_holds_them() {
        let directory = ProcessRegistry::new(2);
        let (pool, database, user) = (directory.pool("a", "u"), directory.database("a"), directory.user("u"));
        assert!(database.register());
        drop((pool, user));
        directory.forget_pool("a", "u");
        assert!(directory.names().databases.contains_key("a") && directory.names().users.is_empty());
        assert!(database.unregister());
        drop(database);
        directory.forget_database("a");
        assert!(directory.names().databases.is_empty());
    }

    #[test]
    fn clients_of_other_nodes_count_in_counts_that_are_made_later_too() {
        let directory = ProcessRegistry::new(1);
        let (before, other) = (directory.user("u"), directory.user("v"));
        let of = |name: &str, clients| HashMap::from([(Arc::from(name), clients)]);
        let external = ExternalClients { all: 7, databases: of("d", 3), users: of("u", 2) };
        directory.set_external_clients(external);
        assert_eq!((before.clients.external(), other.clients.external()), (2, 0));
        assert_eq!(
            (directory.database("d").clients.external(), directory.process().clients.external()),
            (3, 7)
        );
        assert!(!directory.database("d").clients.take(3) && directory.database("e").clients.take(3));
        directory.set_external_clients(ExternalClients::default());
        assert_eq!((before.clients.external(), directory.process().clients.external()), (0, 0));
        assert_eq!(directory.database("d").clients.external(), 0);
    }

    #[test]
    fn all_shards_get_the_same_counts() {
        let directory = ProcessRegistry::new(1);
        assert!(directory.user("u").servers.take(1, 0).is_ok());
        assert!(directory.user("u").servers.take(1, 0).is_err());
        assert!(directory.database("u").servers.take(1, 0).is_ok(), "a database is not a user");
    }
}
