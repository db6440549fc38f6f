//! Weir itself as one who waits for a server: the asker of a question, as its shard knows it.
//!
//! It has a place among the connections, as everybody who waits has, but no socket. Data only; what happens to it is
//! told in [`super`].

use messages::{ServerQuery, ShardId};
use pool::QueuePosition;

/// One question and all who wait for its answer.
pub(crate) struct InternalClient {
    pub(crate) local_pool: usize,
    pub(crate) query: ServerQuery,
    /// Who waits. Empty when all of them have left while a server was at it.
    pub(crate) reply_to: Vec<ReplyTo>,
    /// Its place in the queue; None once a server has the question.
    pub(crate) position: Option<QueuePosition>,
    pub(crate) since_us: u64,
}

impl InternalClient {
    /// The clients among those who wait: the control thread asks for itself.
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

/// What a client's login asked a server for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// The secret that it has to prove (`auth_query`).
    Secret,
    /// The roles that its user is a member of.
    Roles,
}

/// A question that a login waits for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PendingAuthQuery {
    /// The shard that has the pool.
    pub(crate) home: ShardId,
    pub(crate) purpose: Purpose,
}
