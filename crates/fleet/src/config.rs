//! What a node is started with, and what its caller exchanges with it besides requests and events.

use crate::{BudgetName, NodeId, SessionId};

/// What a node is started with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeConfig {
    /// `fleet_node`.
    pub id: NodeId,
    /// Where its peers reach it, `host:port`; empty if nowhere.
    pub address: String,
    /// The program's version.
    pub version: String,
    /// Seconds since 1970, shown only.
    pub started_s: u64,
    /// `fleet_nodes`: must be the same on all nodes, and at least their number.
    pub nodes: u32,
    /// `fleet_min_servers`: must be the same on all nodes.
    pub min_servers: u32,
}

/// How many server connections of a budget the node may have.
///
/// The thread that opens a connection counts it first (as open) and compares then, with its own monotonic clock: it may go on if the count is at most
/// `slots` and the time is before `until_us`, or the count is at most `floor`; otherwise it takes the count back. A login that lasts longer than a second has to compare
/// again before it sends its last message. Connections above the allowance that are idle or released are closed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allowance {
    /// Connections, the floor included.
    pub slots: u32,
    /// Until when `slots` holds, in microseconds of the clock that `now_us` is of; `floor` holds afterwards.
    pub until_us: u64,
    /// Connections that the node may always have.
    pub floor: u32,
    /// Grows when `slots` falls: see [`Usage::version`].
    pub version: u64,
}

/// What the node's pools use of a budget.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Server connections that are open, being opened or being closed.
    pub open: u32,
    /// Those of them that clients have used in the last half second or so. While slots are short, only these and `waiting` count as wanted.
    pub in_use: u32,
    /// Clients that wait and for which another connection would be opened.
    pub waiting: u32,
    /// [`Allowance::version`] of the allowance that had been published to all threads before `open` was read. Slots are only given back on the word of
    /// a usage that has the present version: a connection that was admitted by an older allowance is counted in it.
    pub version: u64,
}

/// The node has to write down which backends its server connections have: answered by [`crate::Node::set_own_backends`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackendsQuestion {
    /// The number to answer with.
    pub audit: u64,
    /// Backends that count in one of these budgets are left out of the answer.
    pub except: Vec<BudgetName>,
}

/// What the process that takes over needs to go on in place of this one (`-R`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Handover {
    /// The session that goes on.
    pub session: SessionId,
    /// Earlier sessions of this process that may still have slots.
    pub earlier: Vec<SessionId>,
    /// What the lease of `session` is sure until, in microseconds of the clock of `now_us`, which both processes must share.
    pub sure_until_us: u64,
    /// The floors that may be used on.
    pub floors: HeldFloors,
}

/// What a process that takes over knows of its floors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeldFloors {
    /// It holds all.
    All,
    /// Those of these budgets, which have been proven to be free.
    Of(Vec<BudgetName>),
}

/// What a node is to do with its clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DrainOrder {
    /// Take new ones again.
    Resume,
    /// Refuse new ones.
    NewClients,
    /// End those that it has, too, when they are at rest.
    AllClients,
}

/// Why an order to drain another node was not given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DrainError {
    /// This node has no lease, or has not read the store yet.
    NoStore,
    /// No node of that id has a lease.
    NoSuchNode,
    /// Others write the same object all the time.
    Contended,
    /// The store has not answered: the order may have been given.
    Unanswered(String),
}
