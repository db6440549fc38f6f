//! What a number of server connections is a limit of.

use std::sync::Arc;

/// Which of its limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BudgetKind {
    /// `pool_size` and its reserve: of one database and user.
    Pool,
    /// `max_db_connections`.
    Database,
    /// `max_user_connections`.
    User,
}

/// A limit that the nodes of a fleet share.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BudgetName {
    pub kind: BudgetKind,
    /// The entry of `[databases]`; empty for a user.
    pub database: Arc<str>,
    /// Empty for a database.
    pub user: Arc<str>,
    /// Of a pool for the reads on one host (`read_write_split`): that host, `host:port`; else empty.
    pub host: Arc<str>,
}

/// No budget is larger; sums over all entries stay far from overflow.
pub(crate) const MOST_SLOTS: u32 = 1_000_000;

/// A limit divided: the floors of all nodes and the part that they lease from each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Division {
    /// Server connections, over all nodes.
    pub limit: u32,
    /// Connections that each node may always have.
    pub floor: u32,
    /// Connections that nodes may have above their floors, over all nodes.
    pub shared: u32,
    /// Slots are taken and given back in multiples of this where there are enough.
    pub block: u32,
}

impl Division {
    /// Divides a limit between `nodes` nodes (1 if 0), each with `min_servers` connections of its own if the limit allows it.
    #[must_use]
    pub fn new(limit: u32, nodes: u32, min_servers: u32) -> Division {
        let (limit, nodes) = (limit.min(MOST_SLOTS), nodes.max(1));
        let floor = min_servers.min(limit / nodes);
        let shared = limit - floor * nodes;
        Division { limit, floor, shared, block: (shared / nodes.saturating_mul(4)).max(1) }
    }

    /// Leased slots in whole blocks, at most all.
    pub(crate) fn round_up(&self, slots: u32) -> u32 {
        slots.checked_next_multiple_of(self.block).map_or(self.shared, |slots| slots.min(self.shared))
    }
}
