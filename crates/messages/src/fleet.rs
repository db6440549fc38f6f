//! Rows of what a fleet is and of the limits that its nodes share.

use std::sync::Arc;

/// A node of the fleet, as this one knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FleetNodeRow {
    /// Its id.
    pub node: Arc<str>,
    /// It is this process.
    pub is_own: bool,
    /// One word: up, draining, gone; of the own node joining, alone, taken or leaving, too.
    pub state: &'static str,
    /// Where its peers reach it; empty if nowhere.
    pub address: String,
    /// The version of its program.
    pub version: String,
    /// Its client connections; none of a node that is gone.
    pub clients: Option<u32>,
    /// Its server connections.
    pub servers: Option<u32>,
    /// Slots that it has leased, over all limits, above its floors.
    pub leased: u64,
    /// Slots that it would use.
    pub wanted: u64,
    /// Which revision of the pools of all nodes it has dealt with; none of a node that is gone.
    pub pools: Option<u64>,
    /// What is wrong, and what follows; empty if nothing is.
    pub detail: String,
}

/// A limit of server connections that the nodes share, as this one knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FleetBudgetRow {
    /// `pool`, `database` or `user`.
    pub kind: &'static str,
    /// The entry; empty for a user.
    pub database: Arc<str>,
    /// Empty for a database.
    pub user: Arc<str>,
    /// Of a pool for the reads on one host: that host; else empty.
    pub host: Arc<str>,
    /// The limit, over all nodes.
    pub limit: u32,
    /// What each node may have without asking.
    pub floor: u32,
    /// What is left for leases.
    pub shared: u32,
    /// What this node has leased.
    pub leased: u32,
    /// What all nodes have leased.
    pub leased_total: u32,
    /// What all nodes would lease.
    pub wanted_total: u32,
    /// Leased by nodes that are gone, and not free yet.
    pub orphaned: u32,
    /// What is wrong; empty if nothing is.
    pub detail: String,
}

/// The pools of all nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FleetPools {
    /// Grows with each change; 0 if there are none yet.
    pub revision: u64,
    /// The node that made the change; empty if there are none yet.
    pub by: String,
    /// Entries of a pools file.
    pub text: Arc<[u8]>,
}

/// What this node uses of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FleetPoolsInUse {
    /// Which ones it has dealt with.
    pub revision: u64,
    /// The last one of which all is paused that is to be paused.
    pub paused: u64,
    /// What of that was resumed here since: databases, None for everything.
    pub resumed: Vec<Option<String>>,
    /// It uses none of them.
    pub uses_none: bool,
    /// What it does not use, and why; empty if it uses all.
    pub refused: String,
}

/// What a command for all nodes waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FleetPoolsWait {
    /// Every node has dealt with the revision.
    InUse,
    /// And what it pauses has come to rest: this database, or everything.
    Paused(Option<String>),
}

/// Why the pools of all nodes were not changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FleetPoolsError {
    /// Another node has changed them, which is known by now.
    Superseded,
    /// The store's, or this node's.
    Failed(String),
}

/// A limit of clients that the nodes share, as this one knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FleetLimitRow {
    /// `clients` (`max_client_conn`), `database` (`max_db_client_connections`) or `user` (`max_user_client_connections`).
    pub kind: &'static str,
    /// The entry; empty where the limit is not of one.
    pub database: Arc<str>,
    /// The user; empty where the limit is not of one.
    pub user: Arc<str>,
    /// The limit, over all nodes.
    pub limit: u32,
    /// Clients of this node.
    pub clients: u32,
    /// Clients of the other nodes, as far as they count here.
    pub external: u32,
}
