//! Aggregates the rows of all shards.
//!
//! A pool that several shards have is one row: counts are summed, the longest wait is the maximum.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use messages::{
    CacheRow, ClusterRow, DatabaseRow, DescriptorRow, ErrorRow, FleetBudgetRow, FleetLimitRow, FleetNodeRow,
    HistogramRow, HostRow, ListenerRow, Listing, MemoryRow, PeerPoolRow, PoolRow, PoolSizeRow, QueryRow,
    QueueRow, ShardRow, SocketRow, SpanRow, UserRow, ZoneRow,
};
use quota::QuotaRow;
use settings::QueueBy;
use telemetry::queries::{QueryFingerprint, QueryStats};
use telemetry::{Counters, Histograms, SqlstateCounts};

/// The rows of a listing so far, in the order of the views.
#[derive(Debug, Default)]
pub(crate) struct Aggregate {
    /// By database and user.
    pub(crate) pools: BTreeMap<(String, String), PoolRow>,
    /// Counters of pools that were dropped, by database.
    pub(crate) retired: BTreeMap<String, Counters>,
    /// By name.
    pub(crate) databases: BTreeMap<String, DatabaseRow>,
    /// By name.
    pub(crate) users: BTreeMap<String, UserRow>,
    /// By number.
    pub(crate) shards: BTreeMap<u16, ShardRow>,
    /// In order of arrival.
    pub(crate) sockets: Vec<SocketRow>,
    /// In order of arrival.
    pub(crate) descriptors: Vec<DescriptorRow>,
    /// By kind.
    pub(crate) memory: BTreeMap<&'static str, MemoryRow>,
    /// By number.
    pub(crate) peer_pools: BTreeMap<u32, PeerPoolRow>,
    /// By database and user.
    pub(crate) histograms: BTreeMap<(String, String), Histograms>,
    /// By database.
    pub(crate) errors: BTreeMap<String, SqlstateCounts>,
    /// By database and number of the kind.
    pub(crate) queries: BTreeMap<(String, u64), (Arc<QueryFingerprint>, QueryStats)>,
    /// In order of arrival.
    pub(crate) listeners: Vec<ListenerRow>,
    /// In the order of their names.
    pub(crate) hosts: Vec<HostRow>,
    /// In the order of their names.
    pub(crate) zones: Vec<ZoneRow>,
    /// By database.
    pub(crate) clusters: BTreeMap<String, ClusterRow>,
    /// By database.
    pub(crate) caches: BTreeMap<String, CacheRow>,
    /// Requests of traces.
    pub(crate) spans: Vec<SpanRow>,
    /// By database, user and host.
    pub(crate) pool_sizes: BTreeMap<(String, String, Option<String>), PoolSizeRow>,
    /// By database, user, host, kind and name.
    pub(crate) queues: BTreeMap<(String, String, Option<String>, QueueBy, String), QueueRow>,
    /// In the order of their subjects.
    pub(crate) quotas: Vec<QuotaRow>,
    /// By id.
    pub(crate) fleet_nodes: Vec<FleetNodeRow>,
    /// By name.
    pub(crate) fleet_budgets: Vec<FleetBudgetRow>,
    pub(crate) fleet_limits: Vec<FleetLimitRow>,
}

impl Aggregate {
    /// Adds a slice of one shard.
    pub(crate) fn add(&mut self, listing: Listing) {
        match listing {
            Listing::Sockets(rows) => self.sockets.extend(rows),
            Listing::Pools(rows) => rows.into_iter().for_each(|row| self.add_pool(row)),
            Listing::Databases(rows) => rows.into_iter().for_each(|row| self.add_database(row)),
            Listing::Users(rows) => rows.into_iter().for_each(|row| self.add_user(row)),
            Listing::Shards(rows) => self.shards.extend(rows.into_iter().map(|row| (row.shard, row))),
            Listing::Descriptors(rows) => self.descriptors.extend(rows),
            Listing::Memory(rows) => rows.into_iter().for_each(|row| self.add_memory(&row)),
            Listing::PeerPools(rows) => rows.into_iter().for_each(|row| self.add_peer_pool(&row)),
            Listing::Spans(rows) => self.spans.extend(rows),
            Listing::Histograms(rows) => rows.into_iter().for_each(|row| self.add_histograms(row)),
            Listing::Errors(rows) => rows.into_iter().for_each(|row| self.add_errors(row)),
            Listing::Queries(rows) => rows.into_iter().for_each(|row| self.add_query(row)),
            Listing::Listeners(rows) => self.listeners.extend(rows),
            Listing::Hosts(rows) => self.hosts.extend(rows),
            Listing::Zones(rows) => self.zones.extend(rows),
            Listing::Clusters(rows) => rows.into_iter().for_each(|row| self.add_cluster(row)),
            Listing::PoolSizes(rows) => self.pool_sizes.extend(
                rows.into_iter().map(|row| ((row.database.clone(), row.user.clone(), row.host.clone()), row)),
            ),
            Listing::Queues(rows) => rows.into_iter().for_each(|row| self.add_queue(row)),
            Listing::Quotas(rows) => self.quotas.extend(rows),
            Listing::FleetNodes(rows) => self.fleet_nodes.extend(rows),
            Listing::FleetBudgets(rows) => self.fleet_budgets.extend(rows),
            Listing::FleetLimits(rows) => self.fleet_limits.extend(rows),
            Listing::Caches(rows) => rows.into_iter().for_each(|row| self.add_cache(row)),
        }
    }

    /// The counters of all pools of each database.
    pub(crate) fn counters(&self) -> BTreeMap<String, Counters> {
        let mut sums = self.retired.clone();
        for ((database, _), pool) in &self.pools {
            sums.entry(database.clone()).or_default().add(&pool.counters);
        }
        sums
    }

    fn add_pool(&mut self, row: PoolRow) {
        if row.retired {
            return self.retired.entry(row.database).or_default().add(&row.counters);
        }
        let sum = self.pools.entry((row.database.clone(), row.user.clone())).or_default();
        sum.client_active += row.client_active;
        sum.client_waiting += row.client_waiting;
        sum.client_active_cancel += row.client_active_cancel;
        sum.client_waiting_cancel += row.client_waiting_cancel;
        sum.server_active += row.server_active;
        sum.server_active_cancel += row.server_active_cancel;
        sum.server_being_cancelled += row.server_being_cancelled;
        sum.server_idle += row.server_idle;
        sum.server_used += row.server_used;
        sum.server_tested += row.server_tested;
        sum.server_login += row.server_login;
        sum.max_wait_us = sum.max_wait_us.max(row.max_wait_us);
        sum.mode = row.mode.or(sum.mode);
        sum.server_error = match (sum.server_error.take(), row.server_error) {
            (Some(one), Some(other)) => Some(one.merged(other)),
            (one, other) => one.or(other),
        };
        sum.pinned += row.pinned;
        for (reason, clients) in row.pinned_by_reason {
            *sum.pinned_by_reason.entry(reason).or_default() += clients;
        }
        sum.pinned_us += row.pinned_us;
        sum.waiting_for_pin += row.waiting_for_pin;
        sum.pins.add(&row.pins);
        sum.counters.add(&row.counters);
    }

    fn add_database(&mut self, row: DatabaseRow) {
        let sum = self.databases.entry(row.name.clone()).or_default();
        sum.servers += row.servers;
        sum.clients += row.clients;
        sum.paused |= row.paused;
        sum.auto |= row.auto;
    }

    fn add_memory(&mut self, row: &MemoryRow) {
        let sum = self.memory.entry(row.name).or_insert(MemoryRow { used: 0, free: 0, ..row.clone() });
        sum.used += row.used;
        sum.free += row.free;
    }

    fn add_peer_pool(&mut self, row: &PeerPoolRow) {
        let sum = self.peer_pools.entry(row.peer_id).or_default();
        sum.peer_id = row.peer_id;
        sum.client_active_cancel += row.client_active_cancel;
        sum.client_waiting_cancel += row.client_waiting_cancel;
        sum.server_active_cancel += row.server_active_cancel;
        sum.server_login += row.server_login;
    }

    fn add_histograms(&mut self, row: HistogramRow) {
        self.histograms.entry((row.database, row.user)).or_default().merge(&row.histograms);
    }

    fn add_errors(&mut self, row: ErrorRow) {
        self.errors.entry(row.database).or_default().merge(&row.errors);
    }

    fn add_query(&mut self, row: QueryRow) {
        let key = (row.database, row.shape.number);
        let (_, sum) = self.queries.entry(key).or_insert_with(|| (row.shape, QueryStats::default()));
        sum.merge(&row.figures);
    }

    fn add_cluster(&mut self, row: ClusterRow) {
        let empty = || ClusterRow { database: row.database.clone(), ..ClusterRow::default() };
        self.clusters.entry(row.database.clone()).or_insert_with(empty).add(row);
    }

    fn add_cache(&mut self, row: CacheRow) {
        let empty = || CacheRow { database: row.database.clone(), ..CacheRow::default() };
        self.caches.entry(row.database.clone()).or_insert_with(empty).add(row);
    }

    fn add_queue(&mut self, row: QueueRow) {
        let pool = (row.database.clone(), row.user.clone(), row.host.clone());
        let key = (pool.0, pool.1, pool.2, row.by, row.subject.clone());
        match self.queues.entry(key) {
            Entry::Occupied(mut sum) => sum.get_mut().add(&row),
            Entry::Vacant(first) => _ = first.insert(row),
        }
    }

    fn add_user(&mut self, row: UserRow) {
        let sum = self.users.entry(row.name.clone()).or_default();
        sum.servers += row.servers;
        sum.clients += row.clients;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_pool_are_one_pool() {
        let part = |client_active, max_wait_us, xact_count| PoolRow {
            database: "d".into(),
            user: "u".into(),
            client_active,
            max_wait_us,
            counters: Counters { xact_count, ..Counters::default() },
            ..PoolRow::default()
        };
        let mut aggregate = Aggregate::default();
        aggregate.add(Listing::Pools(vec![part(2, 9, 1)]));
        aggregate.add(Listing::Pools(vec![part(3, 4, 5)]));
        let pool = &aggregate.pools[&("d".to_owned(), "u".to_owned())];
        assert_eq!((pool.client_active, pool.max_wait_us), (5, 9));
        aggregate.add(Listing::Pools(vec![PoolRow { retired: true, ..part(0, 0, 4) }]));
        assert_eq!(aggregate.pools.len(), 1);
        assert_eq!(aggregate.counters()["d"].xact_count, 10);
    }

    #[test]
    fn durations_and_errors_of_all_shards_are_added_up() {
        let mut aggregate = Aggregate::default();
        for us in [5, 90] {
            let mut row = HistogramRow { database: "d".into(), user: "u".into(), ..HistogramRow::default() };
            row.histograms.wait.add(us);
            aggregate.add(Listing::Histograms(vec![row]));
            let mut row = ErrorRow { database: "d".into(), ..ErrorRow::default() };
            row.errors.count(b"23505");
            aggregate.add(Listing::Errors(vec![row]));
        }
        assert_eq!(aggregate.histograms[&("d".to_owned(), "u".to_owned())].wait.to_string(), "5:1 80:1");
        assert_eq!(aggregate.errors["d"].iter().collect::<Vec<_>>(), [("23505", 2)]);
    }
}
