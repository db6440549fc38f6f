//! Connections that carry one cancel request: to a server, or to a peer.
//!
//! Data only; the logic is in `cancel`.

use std::sync::Arc;

use messages::ShardId;

use crate::ConnId;
use crate::cancel_key::Key;
use crate::local_pools::table::PoolId;

/// A connection that carries one cancel request to a server.
pub(crate) struct CancelConn {
    pub(crate) id: u64,
    pub(crate) local_pool: PoolId,
    /// The server whose query is to be cancelled, and its id: by the end of this, its connection number may be reused.
    pub(crate) server: (ConnId, u64),
    /// Process id and secret of its backend.
    pub(crate) key: (u32, Vec<u8>),
    /// The client that sent the request, to be closed when it is over: a connection here, or one on another shard.
    pub(crate) requester: CancelRequester,
    pub(crate) since_us: u64,
    /// Its turn has come.
    pub(crate) sent: bool,
    /// It has run into `cancel_wait_timeout`.
    pub(crate) timed_out: bool,
    /// Whether it goes through TLS.
    pub(crate) tls: CancelTls,
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
    /// It has run into `cancel_wait_timeout`.
    pub(crate) timed_out: bool,
    /// Its turn has come; true once it is connected.
    pub(crate) turn: Option<bool>,
}
