//! What a client has been counted in, and is removed from when it disconnects.
//!
//! Data only; the limits are `login`'s.

use std::sync::Arc;

use pool::ConnectionCounts;

/// What a client has been counted in.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counted {
    /// Those that have not logged in.
    pub(crate) unauthenticated: bool,
    /// The process.
    pub(crate) process: bool,
    /// Its database.
    pub(crate) database: Option<Arc<ConnectionCounts>>,
    /// The user that it logged in as; a forced user is the servers' matter.
    pub(crate) user: Option<Arc<ConnectionCounts>>,
    /// The local pool that it logged in to.
    pub(crate) local_pool: bool,
}

impl Counted {
    /// It passed every limit, and counts as a client of its user.
    pub(crate) fn is_user(&self) -> bool {
        self.user.is_some()
    }

    /// It counts as a client of the process.
    pub(crate) fn is_in_process(&self) -> bool {
        self.process
    }

    /// It counts as a client of its database.
    pub(crate) fn is_database(&self) -> bool {
        self.database.is_some()
    }

    /// It counts as a client of its pool on this shard.
    pub(crate) fn is_in_pool(&self) -> bool {
        self.local_pool
    }
}
