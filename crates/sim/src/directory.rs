//! What the shards of a simulated process share, in memory. One thread uses it; the locks are there for its trait only.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use pool::{
    Budget, CancelKeyPrefix, ConnectionCounts, FairPool, FairShare, FairShares, PoolRegistry, ProbedCluster,
    ProcessCounts, SharedPool,
};
use settings::QueueBy;
use shard::audit::Audit;

/// Names and what is counted under them.
#[derive(Debug)]
pub struct Names {
    inner: Mutex<Inner>,
    process: Arc<ProcessCounts>,
    shards: u16,
}

#[derive(Debug, Default)]
struct Inner {
    pools: BTreeMap<(String, String), Arc<SharedPool>>,
    host_pools: BTreeMap<(String, String, String), Arc<SharedPool>>,
    databases: BTreeMap<String, Arc<ConnectionCounts>>,
    probed_clusters: BTreeMap<String, ProbedCluster>,
    users: BTreeMap<String, Arc<ConnectionCounts>>,
    fair_shares: FairShares,
    quotas: quota::Book,
    pools_on: Vec<u32>,
    busy_percent: Vec<u32>,
    cancel_keys: BTreeMap<CancelKeyPrefix, (u16, u32)>,
}

impl Names {
    /// Nothing counted yet, for a number of shards (1..=64).
    #[must_use]
    pub fn new(shards: u16) -> Names {
        let zeros = vec![0; usize::from(shards)];
        let inner = Inner { pools_on: zeros.clone(), busy_percent: zeros, ..Inner::default() };
        Names { inner: Mutex::new(inner), process: Arc::default(), shards }
    }

    /// Server connections that the shards say they have in a pool.
    pub(crate) fn servers(&self, database: &str, user: &str) -> u32 {
        let key = (database.to_owned(), user.to_owned());
        self.with(|inner| {
            let own = inner.pools.get(&key).map_or(0, |shared| shared.servers.taken());
            let is_of_pool = |name: &&(String, String, String)| (&name.0, &name.1) == (&key.0, &key.1);
            let reading = inner.host_pools.iter().filter(|(name, _)| is_of_pool(name));
            own + reading.map(|(_, shared)| shared.servers.taken()).sum::<u32>()
        })
    }

    /// What a process has counted, by the same names as an [`shard::audit::Audit`].
    pub(crate) fn counted(&self) -> Audit {
        let mut counted = Audit { clients: self.process.clients.taken(), ..Audit::default() };
        counted.unauthenticated = self.process.logins.taken();
        self.with(|inner| {
            let clients =
                |(name, both): (&String, &Arc<ConnectionCounts>)| (name.clone(), both.clients.taken());
            counted.clients_of_databases = inner.databases.iter().map(clients).collect();
            counted.clients_of_users = inner.users.iter().map(clients).collect();
            let permits = |(name, shared): (&(String, String), &Arc<SharedPool>)| {
                (name.clone(), shared.servers.taken())
            };
            counted.permits = inner.pools.iter().map(permits).collect();
            for ((database, user, _), shared) in &inner.host_pools {
                *counted.permits.entry((database.clone(), user.clone())).or_default() +=
                    shared.servers.taken();
            }
            let pins =
                |(name, shared): (&(String, String), &Arc<SharedPool>)| (name.clone(), shared.pinned());
            counted.pins = inner.pools.iter().map(pins).collect();
        });
        counted
    }

    /// Twice a second or so: what was used is collected, as the process does.
    pub(crate) fn collect_quotas(&self, now: quota::Instant) {
        self.with(|inner| inner.quotas.tick(now));
    }

    /// Requests of this user are refused, as far as its quota of queries says.
    pub(crate) fn refuses_queries_of(&self, user: &str) -> bool {
        let refuses = |row: &quota::QuotaRow| {
            is_of(row, user)
                && row.measure.resource() == quota::Resource::Queries
                && row.state == quota::State::Hard
        };
        self.with(|inner| inner.quotas.rows().iter().any(refuses))
    }

    /// Connections of this user that its quota counts; none if it has no such quota.
    pub(crate) fn quota_connections_of(&self, user: &str) -> Option<u64> {
        let is_row = |row: &&quota::QuotaRow| {
            is_of(row, user) && row.measure.resource() == quota::Resource::Connections
        };
        self.with(|inner| inner.quotas.rows().iter().find(is_row).map(|row| row.used))
    }

    /// The number that the process gives next.
    pub(crate) fn next_id(&self) -> u64 {
        self.process.upcoming_id()
    }

    /// Goes on counting where a predecessor process has stopped.
    pub(crate) fn continue_ids_at(&self, next: u64) {
        self.process.continue_ids_at(next);
    }

    /// The shard for a part of a pool that a predecessor process had, as in `driver/directory.rs`.
    pub(crate) fn part_for_heir(&self, database: &str, user: &str, is_first: bool) -> u16 {
        let pool = self.pool(database, user);
        let home = u16::try_from(pool.shards().trailing_zeros()).unwrap_or(0);
        if is_first {
            return home;
        }
        let free = (0..self.shards).filter(|shard| pool.shards() & (1 << shard) == 0);
        let shard =
            self.with(|inner| free.min_by_key(|shard| inner.pools_on[usize::from(*shard)])).unwrap_or(home);
        pool.spread_to(shard);
        shard
    }

    /// What the hosts of an entry have answered, as in `driver/process_registry.rs`.
    pub(crate) fn note_probed(&self, entry: &str, probed: ProbedCluster) {
        self.with(|inner| {
            inner.probed_clusters.insert(entry.to_owned(), probed);
            if let Some(counts) = inner.databases.get(entry) {
                counts.cluster.note_probed(probed);
            }
        });
    }

    /// The newest timeline of a primary that is known of the cluster of an entry, if one is.
    pub(crate) fn known_timeline(&self, entry: &str) -> Option<u32> {
        let known = self.with(|inner| inner.databases.get(entry).and_then(|counts| counts.cluster.known()));
        known.map(|(_, timeline)| timeline)
    }

    /// Cancel keys that are known.
    pub(crate) fn cancel_keys(&self) -> usize {
        self.with(|inner| inner.cancel_keys.len())
    }

    fn with<R>(&self, act: impl FnOnce(&mut Inner) -> R) -> R {
        act(&mut self.inner.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn is_of(row: &quota::QuotaRow, user: &str) -> bool {
    row.subject == quota::Subject::named(quota::SubjectKind::User, user)
}

impl PoolRegistry for Names {
    fn host_pool(&self, database: &str, user: &str, host: &str) -> Arc<SharedPool> {
        let key = (database.to_owned(), user.to_owned(), host.to_owned());
        self.with(|inner| Arc::clone(inner.host_pools.entry(key).or_default()))
    }

    fn pool(&self, database: &str, user: &str) -> Arc<SharedPool> {
        self.with(|inner| {
            let key = (database.to_owned(), user.to_owned());
            if let Some(shared) = inner.pools.get(&key) {
                return Arc::clone(shared);
            }
            let least = (0..self.shards).min_by_key(|shard| inner.pools_on[usize::from(*shard)]).unwrap_or(0);
            inner.pools_on[usize::from(least)] += 1;
            let shared = Arc::new(SharedPool::on(least));
            inner.pools.insert(key, Arc::clone(&shared));
            shared
        })
    }

    fn database(&self, name: &str) -> Arc<ConnectionCounts> {
        self.with(|inner| {
            let Inner { databases, probed_clusters, .. } = inner;
            let new = || {
                let counts = Arc::<ConnectionCounts>::default();
                counts.cluster.note_probed(probed_clusters.get(name).copied().unwrap_or_default());
                counts
            };
            Arc::clone(databases.entry(name.to_owned()).or_insert_with(new))
        })
    }

    fn user(&self, name: &str) -> Arc<ConnectionCounts> {
        self.with(|inner| Arc::clone(inner.users.entry(name.to_owned()).or_default()))
    }

    fn pools_of(&self, budget: Budget, name: &str) -> Vec<Arc<SharedPool>> {
        let is_of = |database: &String, user: &String| match budget {
            Budget::Database => database == name,
            Budget::User => user == name,
        };
        self.with(|inner| {
            let pools = inner.pools.iter().filter(|((database, user), _)| is_of(database, user));
            let hosts = inner.host_pools.iter().filter(|((database, user, _), _)| is_of(database, user));
            pools.map(|(_, shared)| shared).chain(hosts.map(|(_, shared)| shared)).cloned().collect()
        })
    }

    fn fair_share(&self, pool: &Arc<FairPool>, by: QueueBy, subject: &str, weight: u32) -> Arc<FairShare> {
        self.with(|inner| inner.fair_shares.share(pool, by, subject, weight))
    }

    fn with_quotas(&self, look: &mut dyn FnMut(&mut quota::Book)) {
        self.with(|inner| look(&mut inner.quotas));
    }

    fn process(&self) -> Arc<ProcessCounts> {
        Arc::clone(&self.process)
    }

    fn shards(&self) -> u16 {
        self.shards
    }

    fn keep_cancel_key(&self, key: CancelKeyPrefix, shard: u16, place: u32) -> bool {
        self.with(|inner| {
            let is_free = !inner.cancel_keys.contains_key(&key);
            if is_free {
                inner.cancel_keys.insert(key, (shard, place));
            }
            is_free
        })
    }

    fn forget_cancel_key(&self, key: CancelKeyPrefix) {
        self.with(|inner| inner.cancel_keys.remove(&key));
    }

    fn find_cancel_key(&self, key: CancelKeyPrefix) -> Option<(u16, u32)> {
        self.with(|inner| inner.cancel_keys.get(&key).copied())
    }

    fn busy_percent(&self, shard: u16) -> u32 {
        self.with(|inner| inner.busy_percent.get(usize::from(shard)).copied().unwrap_or(0))
    }

    fn set_busy_percent(&self, shard: u16, percent: u32) {
        self.with(|inner| {
            if let Some(busy) = inner.busy_percent.get_mut(usize::from(shard)) {
                *busy = percent;
            }
        });
    }
}
