//! Connections on their way to another shard or another process, with everything that their event loop knew of them.
//!
//! Owns nothing but these types. Never decides when a connection moves.

use std::os::fd::OwnedFd;

use messages::ShardId;
use shard::{ClientMove, Import};

/// Where a connection moves.
pub(crate) enum Destination {
    /// To another shard.
    Shard(ShardId, Box<ClientMove>),
    /// To the process that takes over.
    Process(ExportState),
}

/// A socket on its way to another shard.
pub(crate) struct ConnMove {
    pub(crate) fd: OwnedFd,
    pub(crate) client: Box<ClientMove>,
    /// Output that the socket has not taken yet.
    pub(crate) unsent: Vec<u8>,
    /// Input that was read already and that the shard has not seen.
    pub(crate) unread: Vec<u8>,
}

/// What the shard sends along with a socket that leaves the process.
pub(crate) struct ExportState {
    pub(crate) state: Vec<u8>,
    pub(crate) link: Option<u64>,
    pub(crate) is_server: bool,
}

/// A socket that has left its shard for the next process.
pub(crate) struct ExportedConn {
    /// None if it was lost on the way; it counts all the same.
    pub(crate) socket: Option<OwnedFd>,
    pub(crate) export_state: ExportState,
    /// Output that the socket has not taken yet.
    pub(crate) unsent: Vec<u8>,
    /// Input that was read already and that the shard has not seen.
    pub(crate) unread: Vec<u8>,
}

/// A socket that has arrived from the old process.
pub(crate) struct ImportedConn {
    pub(crate) socket: OwnedFd,
    pub(crate) state: Vec<u8>,
    pub(crate) unsent: Vec<u8>,
    pub(crate) unread: Vec<u8>,
}

/// Something for a shard from the old process.
pub(crate) enum Imported {
    /// A message for the shard, without a socket.
    Message(Import),
    /// A client, a server connection, or both, which then belong together.
    Sockets { client: Option<Box<ImportedConn>>, server: Option<Box<ImportedConn>> },
}
