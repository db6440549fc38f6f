//! The messages between threads: plain types, no behaviour.
//!
//! A shard receives [`Command`]s from the control thread and [`ShardMessage`]s from other shards, and answers the control
//! thread with [`Report`]s. This is the only way into a shard or out of it besides its sockets. Nothing here knows a
//! socket, a clock or how an answer is encoded.
#![forbid(unsafe_code)]

pub mod admin;
pub mod cache_news;
mod cache_row;
pub mod command;
mod fleet;
pub mod listing;
pub mod pool_size_row;
pub mod queue_row;
mod report;
pub mod server_query;
mod server_waits;
pub mod signal;

pub use admin::{
    AdminQuery, AdminReply, Cell, Column, ColumnType, ConsoleClient, ErrorKind, ReplyPart, Role,
    StatementMode,
};
pub use cache_news::{CacheNews, CacheNewsKind, UncachedNames};
pub use cache_row::{CacheRow, CacheState};
pub use command::{Command, Drain, LimitOf, ShardMessage, ShutdownMode};
pub use fleet::{
    FleetBudgetRow, FleetLimitRow, FleetNodeRow, FleetPools, FleetPoolsError, FleetPoolsInUse, FleetPoolsWait,
};
pub use listing::{
    ClusterHostRow, ClusterRow, DatabaseRow, DescriptorRow, ErrorRow, HistogramRow, HostLag, HostRole,
    HostRow, ListenerRow, MemoryRow, PeerPoolRow, PinCounters, PoolRow, QueryRow, SLICE_ROWS, ServerError,
    ShardRow, SocketRow, SpanRow, Subject, UserRow, ZoneRow,
};
pub use pool_size_row::PoolSizeRow;
pub use queue_row::QueueRow;
pub use report::{BackendRow, Listing, Report, RequestId};
pub use server_query::{ServerQuery, ServerQueryResult, ServerQueryRow};
pub use server_waits::ServerWaitSample;
pub use signal::Signal;

/// Which shard; shards are numbered from zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShardId(pub u16);

impl ShardId {
    /// The control thread, where an answer may be for a shard or for it.
    pub const CONTROL: ShardId = ShardId(u16::MAX);
}
