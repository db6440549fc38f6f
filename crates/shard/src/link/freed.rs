//! What became free during an event and is assigned before the event ends.
//!
//! Owns that each server stands there once. Assigning is [`super::checkout`]'s.

use crate::ConnId;
use crate::local_pools::table::PoolId;

/// Servers and pools to be looked at before the event ends.
#[derive(Default)]
pub(crate) struct Freed {
    /// Servers that are idle and unlinked.
    servers: Vec<ConnId>,
    /// Pools with waiters whose server was closed when it was checked for them.
    unserved: Vec<PoolId>,
}

/// The next thing to look at.
pub(crate) enum Next {
    Server(ConnId),
    Pool(PoolId),
}

impl Freed {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.servers.is_empty() && self.unserved.is_empty()
    }

    /// A server has been released.
    #[inline]
    pub(super) fn server(&mut self, server: ConnId) {
        self.servers.push(server);
    }

    /// The same where it may have been noted before.
    pub(super) fn server_once(&mut self, server: ConnId) {
        if !self.servers.contains(&server) {
            self.servers.push(server);
        }
    }

    /// A client of this pool has lost the server that was checked for it.
    pub(crate) fn pool(&mut self, pool: PoolId) {
        self.unserved.push(pool);
    }

    /// The last server that was released, or else a pool.
    #[inline]
    pub(super) fn next(&mut self) -> Option<Next> {
        self.servers.pop().map(Next::Server).or_else(|| self.unserved.pop().map(Next::Pool))
    }
}
