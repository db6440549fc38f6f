//! Messages of a shard to the control thread.

use std::sync::Arc;

use crate::{
    AdminQuery, CacheRow, ClusterRow, DatabaseRow, DescriptorRow, ErrorRow, FleetBudgetRow, FleetLimitRow,
    FleetNodeRow, HistogramRow, HostRow, ListenerRow, MemoryRow, PeerPoolRow, PoolRow, PoolSizeRow, QueryRow,
    QueueRow, ServerQueryResult, ShardId, ShardRow, SocketRow, SpanRow, UserRow, ZoneRow,
};

/// Ties an answer to its command; the control thread counts them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RequestId(pub u64);

/// From a shard to the control thread.
#[derive(Clone, Debug)]
pub enum Report {
    /// A console client's statement.
    Query(AdminQuery),
    /// Part of a listing.
    Listing {
        /// From the command.
        request: RequestId,
        /// The listed shard.
        shard: ShardId,
        /// The rows.
        rows: Listing,
        /// True in the last slice of this shard.
        last: bool,
    },
    /// A cancel request for no client of this process; a process that is being taken over may have the client.
    StrayCancel {
        /// As the canceling client sent it: process id and secret.
        key: Box<[u8]>,
    },
    /// A cancel request for a console client.
    ConsoleCancelled {
        /// Where the client is.
        shard: ShardId,
        /// As in [`AdminQuery`].
        client: u32,
        /// As in [`AdminQuery`].
        client_id: u64,
    },
    /// The answer to [`crate::Command::RunServerQuery`].
    ServerQueryDone {
        /// From the command.
        request: RequestId,
        /// The result.
        answer: Box<ServerQueryResult>,
    },
    /// The backends that a shard has connections to.
    Backends {
        /// From the command.
        audit: u64,
        /// The answering shard.
        shard: ShardId,
        /// One for each connection that is logged in.
        backends: Vec<BackendRow>,
    },
    /// A console client has disconnected.
    ConsoleLeft,
    /// A command is complete on this shard.
    Done {
        /// From the command.
        request: RequestId,
        /// The answering shard.
        shard: ShardId,
        /// The number of connections affected, where the command counts them.
        count: u64,
    },
}

/// A backend of a PostgreSQL server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackendRow {
    /// The server as configured, `host:port`.
    pub server: Arc<str>,
    /// Its process id there.
    pub pid: u32,
    /// The entry of its pool.
    pub database: Arc<str>,
    /// The user of its pool.
    pub user: Arc<str>,
    /// The host of a pool for reads.
    pub host: Option<Arc<str>>,
}

/// At most [`crate::SLICE_ROWS`] rows of one subject.
#[derive(Clone, Debug)]
pub enum Listing {
    /// [`crate::Subject::Clients`] or [`crate::Subject::Servers`].
    Sockets(Vec<SocketRow>),
    /// [`crate::Subject::Pools`].
    Pools(Vec<PoolRow>),
    /// [`crate::Subject::Databases`].
    Databases(Vec<DatabaseRow>),
    /// [`crate::Subject::Users`].
    Users(Vec<UserRow>),
    /// [`crate::Subject::Shards`].
    Shards(Vec<ShardRow>),
    /// [`crate::Subject::Descriptors`].
    Descriptors(Vec<DescriptorRow>),
    /// [`crate::Subject::Memory`].
    Memory(Vec<MemoryRow>),
    /// [`crate::Subject::PeerPools`].
    PeerPools(Vec<PeerPoolRow>),
    /// [`crate::Subject::Histograms`].
    Histograms(Vec<HistogramRow>),
    /// [`crate::Subject::Errors`].
    Errors(Vec<ErrorRow>),
    /// [`crate::Subject::Queries`].
    Queries(Vec<QueryRow>),
    /// [`crate::Subject::Listeners`].
    Listeners(Vec<ListenerRow>),
    /// [`crate::Subject::Hosts`].
    Hosts(Vec<HostRow>),
    /// [`crate::Subject::Zones`].
    Zones(Vec<ZoneRow>),
    /// [`crate::Subject::Clusters`].
    Clusters(Vec<ClusterRow>),
    /// [`crate::Subject::Caches`].
    Caches(Vec<CacheRow>),
    /// [`crate::Subject::Queues`].
    Queues(Vec<QueueRow>),
    /// [`crate::Subject::Spans`].
    Spans(Vec<SpanRow>),
    /// [`crate::Subject::FleetNodes`].
    FleetNodes(Vec<FleetNodeRow>),
    /// [`crate::Subject::FleetBudgets`].
    FleetBudgets(Vec<FleetBudgetRow>),
    /// [`crate::Subject::FleetLimits`].
    FleetLimits(Vec<FleetLimitRow>),
    /// [`crate::Subject::Quotas`].
    Quotas(Vec<quota::QuotaRow>),
    /// [`crate::Subject::PoolSizes`].
    PoolSizes(Vec<PoolSizeRow>),
}
