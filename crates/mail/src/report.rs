//! What a shard tells the control thread.

use crate::{
    AdminQuery, DatabaseRow, DescriptorRow, HostRow, ListenerRow, MemoryRow, PeerPoolRow, PoolRow, ShardId,
    ShardRow, SocketRow, UserRow, ZoneRow,
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
        /// Whose part.
        shard: ShardId,
        /// The rows.
        rows: Listing,
        /// True in the last slice of this shard.
        last: bool,
    },
    /// A cancel request for no client of this process; a predecessor that still hands over may have it.
    StrayCancel {
        /// As the asker sent it.
        key: [u8; 8],
    },
    /// What a command asked for is true on this shard.
    Done {
        /// From the command.
        request: RequestId,
        /// Whose answer.
        shard: ShardId,
        /// How many it touched, where that means something.
        count: u64,
    },
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
    /// [`crate::Subject::Listeners`].
    Listeners(Vec<ListenerRow>),
    /// [`crate::Subject::Hosts`].
    Hosts(Vec<HostRow>),
    /// [`crate::Subject::Zones`].
    Zones(Vec<ZoneRow>),
}
