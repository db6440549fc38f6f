//! Connections that are neither clients nor servers: those that carry one cancel request, to a server or to a peer, and internal
//! clients, which wait in a pool's queue with a query of Weir's own, without a socket.
//!
//! Data only; the logic is in `cancel` and `link`.

use std::sync::Arc;

use messages::{ServerQuery, ShardId};
use pool::QueuePosition;

use crate::ConnId;
use crate::cancel_key::Key;
use crate::local_pools::table::PoolId;

/// A connection that carries one cancel request to a server.
pub(crate) struct CancelConn {
    pub(crate) id: u64,
    pub(crate) local_pool: PoolId,
    /// The server whose query is to be cancelled, and its id: by the end of this, its connection number may be reused.
    pub(crate) server: (ConnId, u64),
    /// The number of the newest reply that the server owed when the request came: what it runs later is not to be cancelled. The highest number where its client
    /// had sent more than it had got.
    pub(crate) newest_reply: u64,
    /// Process id and secret of its backend.
    pub(crate) key: (u32, Vec<u8>),
    /// The client that sent the request, to be closed when it is over: a connection here, or one on another shard.
    pub(crate) requester: CancelRequester,
    pub(crate) since_us: u64,
    pub(crate) stage: CancelStage,
    /// It is being closed.
    pub(crate) closes: bool,
    /// Whether it goes through TLS.
    pub(crate) tls: CancelTls,
}

impl CancelConn {
    /// There is a connection for it, or will be.
    pub(crate) fn has_turn(&self) -> bool {
        self.stage != CancelStage::Waits
    }
}

/// How far a cancel request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CancelStage {
    /// Nothing was done yet.
    Waits,
    /// Its connection is opened, or secured.
    Connects,
    /// The request is sent: until PostgreSQL ends the connection it may still be carried out.
    Sent,
}

/// A cancel goes through TLS where its server does.
pub(crate) enum CancelTls {
    None,
    /// With the server's name as configured.
    Wanted(Arc<str>),
    /// The server has answered.
    Begun,
}

/// Who waits for the end of a cancel.
#[derive(Clone, Copy)]
pub(crate) enum CancelRequester {
    /// With the client's id: by then its connection number may be reused.
    Local(ConnId, u64),
    Remote(ShardId, u32, u64),
    /// CANCEL_CLIENT: no connection waits.
    Operator,
}

/// A connection that takes one cancel request to a peer.
pub(crate) struct PeerCancelConn {
    pub(crate) peer_id: u32,
    pub(crate) key: Key,
    /// The client to close when it is over, with its id: by then its connection number may be reused.
    pub(crate) requester: (ConnId, u64),
    pub(crate) since_us: u64,
    /// It is being closed.
    pub(crate) closes: bool,
    /// Its turn has come; true once it is connected.
    pub(crate) turn: Option<bool>,
    /// Others carry the same request to other peers.
    pub(crate) is_one_of_many: bool,
    /// Whether it goes through TLS.
    pub(crate) tls: PeerTls,
}

/// A cancel request goes to another node of the fleet through TLS where that offers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PeerTls {
    /// In plain text: the peer is not of a fleet, or TLS has failed and need not be.
    None,
    /// The node is asked for it once it is connected.
    Wanted,
    /// The node has answered.
    Begun,
    /// It has failed: the next connection goes without.
    Failed,
}

/// One query and all that wait for its result.
pub(crate) struct InternalClient {
    pub(crate) local_pool: PoolId,
    pub(crate) query: ServerQuery,
    /// Where the result goes. Empty when all of them have disconnected while the query ran.
    pub(crate) reply_to: Vec<ReplyTo>,
    /// Its place in the queue; None once a server has the question.
    pub(crate) position: Option<QueuePosition>,
    pub(crate) since_us: u64,
    /// It asks for a server that is to listen for the pool's clients; there is no question.
    pub(crate) listens: bool,
}

impl InternalClient {
    /// The clients among them; the control thread runs queries too.
    pub(crate) fn clients(&self) -> impl Iterator<Item = &ReplyTo> {
        self.reply_to.iter().filter(|reply_to| reply_to.shard != ShardId::CONTROL)
    }
}

/// A client that logs in, on whichever shard: where it is, its connection and its `id`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ReplyTo {
    pub(crate) shard: ShardId,
    pub(crate) id: u64,
    pub(crate) conn: u32,
}
