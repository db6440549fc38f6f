//! What SHOW FLEET shows: the state of the node, of the other nodes and of the budgets.

use crate::{BudgetName, NodeId, NodeRecord, PoolsInUse, SessionId};

/// Where a node is between its start and its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeState {
    /// Not joined yet, and no attempt has failed.
    Joining,
    /// Its lease is renewed.
    Joined {
        /// The store has been read and is watched; without it slots are neither taken nor given back.
        is_watching: bool,
    },
    /// It has no valid lease: it uses its floors, and goes on trying to join.
    Alone {
        /// Microseconds of the node's clock.
        since_us: u64,
        /// The last failure.
        why: String,
    },
    /// Another process has joined with its id; it uses its floors, and goes on trying to join.
    IdTaken {
        /// The record of that process.
        by: NodeRecord,
    },
    /// It gives its slots back and then leaves.
    Leaving,
    /// It has left.
    Left,
}

/// Another node, or this one, as the store has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeStatus {
    pub id: NodeId,
    pub state: PeerState,
    /// Over all budgets.
    pub slots_leased: u64,
    /// Over all budgets.
    pub slots_wanted: u64,
}

/// Whether a node has a record in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PeerState {
    Up(NodeRecord),
    Draining(NodeRecord),
    /// It has no valid lease, but slots that are not reclaimed yet.
    Gone,
}

/// One budget as this node sees it; all numbers are server connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BudgetStatus {
    pub name: BudgetName,
    pub limit: u32,
    pub floor: u32,
    /// Of the floor, what this process must not use: PostgreSQL may have connections of an earlier one.
    pub withheld: u32,
    /// The part above the floors that all nodes share: the smallest that any of them has configured.
    pub shared: u32,
    /// What this node may have above its floor.
    pub leased_here: u32,
    /// Leased slots over all nodes, those of orphans included.
    pub leased: u32,
    /// Leased slots that all nodes would use.
    pub wanted: u32,
    /// Leased slots of nodes that are gone.
    pub orphaned: u32,
    /// Why only the floor of this budget is used, if its object cannot be read.
    pub foreign: Option<String>,
}

/// The reclaiming of slots of nodes that are gone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ReclaimStatus {
    /// There are no orphaned slots, or another node reclaims them.
    #[default]
    Idle,
    /// A round runs.
    Running,
    /// The last round ended without the backends of these nodes; another one follows.
    Unreported(Vec<NodeId>),
    /// In the last round PostgreSQL did not say which backends there are for this many budgets.
    Unlisted(usize),
    /// The last round found backends that may be those of nodes that are gone.
    StillOpen {
        /// Slots that stay orphaned because of them, over all budgets.
        slots: u64,
    },
}

/// Why the node does not use all of its floors.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FloorStatus {
    /// Budgets of whose floor a part is withheld.
    pub withheld: usize,
    /// As many nodes as there are floors for are live, and this one is not among them.
    pub has_none: bool,
    /// Backends that may be those of processes that were gone before this one.
    pub suspects: usize,
    /// Budgets for which PostgreSQL could not be asked in the last round.
    pub unlisted: usize,
    /// Nodes that have not said in the last round which backends are theirs.
    pub unreported: Vec<NodeId>,
}

/// All of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FleetStatus {
    pub id: NodeId,
    pub session: SessionId,
    pub state: NodeState,
    /// Client connections that this node has.
    pub clients: u32,
    /// Server connections that this node has.
    pub servers: u32,
    /// It takes no new clients.
    pub is_draining: bool,
    /// What it uses of the pools of all nodes.
    pub pools: PoolsInUse,
    /// Until when the lease is certain, in microseconds of the node's clock; 0 if there is none.
    pub sure_until_us: u64,
    /// Why the store could not be read last, or why its watch was lost; none once it has been read again.
    pub unread: Option<String>,
    /// Something under the prefix that this version cannot read: the last such thing.
    pub foreign: Option<String>,
    pub reclaim: ReclaimStatus,
    /// How many figures of clients and quotas other nodes do not learn, for there are too many.
    pub unshared: usize,
    pub floors: FloorStatus,
    /// By id.
    pub nodes: Vec<NodeStatus>,
    /// By name, the configured ones.
    pub budgets: Vec<BudgetStatus>,
}
