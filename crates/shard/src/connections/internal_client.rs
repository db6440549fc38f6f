//! An internal client: a query of Weir's own that waits for a server of a pool.
//!
//! It has an id among the connections and waits in the pool's queue like clients, without a socket. Data only; the logic
//! is in `auth_query`.

use messages::{ServerQuery, ShardId};
use pool::QueuePosition;

use crate::local_pools::table::PoolId;

/// One query and all that wait for its result.
pub(crate) struct InternalClient {
    pub(crate) local_pool: PoolId,
    pub(crate) query: ServerQuery,
    /// Where the result goes. Empty when all of them have disconnected while the query ran.
    pub(crate) reply_to: Vec<ReplyTo>,
    /// Its place in the queue; None once a server has the question.
    pub(crate) position: Option<QueuePosition>,
    pub(crate) since_us: u64,
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
