//! What threads say to each other: plain types, no behaviour.
//!
//! A shard hears [`Command`]s and [`Neighbour`] letters and answers with [`Report`]s; the control thread is the other
//! end. This is the only way into a shard or out of it besides its sockets. Nothing here knows a socket, a clock or how
//! an answer is encoded.
#![forbid(unsafe_code)]

pub mod admin;
pub mod command;
pub mod inquiry;
pub mod listing;
pub mod report;

pub use admin::{AdminQuery, AdminReply, Cell, Column, ColumnType, Part, Right, Wanted};
pub use command::{Command, Neighbour, ShutdownMode};
pub use inquiry::{Answer, AnswerRow, Inquiry};
pub use listing::{
    DatabaseRow, DescriptorRow, HostRow, ListenerRow, MemoryRow, PeerPoolRow, PoolRow, SLICE_ROWS, ShardRow,
    SocketRow, Subject, UserRow, ZoneRow,
};
pub use report::{Listing, Report, RequestId};

/// Which shard; shards are numbered from zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShardId(pub u16);
