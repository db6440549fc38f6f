//! What a node asks of the store, and what it hears from it: the smallest part of etcd and of the Kubernetes API that both have.
//!
//! A store has *nodes*, of which each vanishes by itself when it is not renewed for a lease time, and *objects*, each with a revision that changes with
//! every write. An object is only ever written by [`Request::Swap`]: compare and swap.

use std::sync::Arc;

/// The revision of an object. [`Revision::ABSENT`] is that of one that does not exist; others are compared for equality, and a later write of the same object has
/// a greater one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision(pub u64);

impl Revision {
    /// There is no such object.
    pub const ABSENT: Revision = Revision(0);
}

/// One request among those that are not answered yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId(pub u64);

/// The id of a node (`fleet_node`): letters, digits, `.`, `_` and `-`.
pub type NodeId = Arc<str>;

/// One life of a node: a random number, drawn anew whenever the node joins. A node that was not renewed in time, and one that restarts, join with another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub u64);

/// What a node says of itself, and all others see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeRecord {
    /// Which of its lives this is.
    pub session: SessionId,
    /// Where its peers reach it, `host:port`; empty if nowhere.
    pub address: String,
    /// The program's version.
    pub version: String,
    /// Seconds since 1970, by its own clock; for people only.
    pub started_s: u64,
    /// Client connections that it has.
    pub clients: u32,
    /// Server connections that it has.
    pub servers: u32,
    /// It takes no new clients (`weir fleet drain`).
    pub is_draining: bool,
    /// The pools of all nodes, as far as it uses them.
    pub pools: PoolsInUse,
}

/// What a node uses of the pools of all nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolsInUse {
    /// Which ones: [`crate::FleetPools::revision`].
    pub revision: u64,
    /// The last one of which all is paused that is to be paused.
    pub paused: u64,
    /// What of that was resumed on this node since: databases, None for everything.
    pub resumed: Vec<Option<String>>,
    /// The node uses none of it.
    pub uses_none: bool,
    /// What of it the node does not use, and why; empty if it uses all.
    pub refused: String,
}

/// The name of an object under the fleet's prefix: parts of which each may be any text; the adapter of a store escapes what it must.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectName(pub Vec<String>);

/// What the node wants of the store. Requests are independent of each other and may be carried out in any order, each once at most.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Joins: creates the node with a lease, if there is none of that id. Answers: [`Event::Renewed`], [`Event::IdTaken`], [`Event::Unanswered`].
    Join { call: CallId, record: NodeRecord },
    /// Renews the lease of this session, and writes the record if it differs from the one written last. Answers: [`Event::Renewed`],
    /// [`Event::Expired`], [`Event::Unanswered`].
    Renew { call: CallId, record: NodeRecord },
    /// Removes the node if its record is of this session; otherwise nothing has to be done. Answers: [`Event::Left`], [`Event::Unanswered`].
    Leave { call: CallId, session: SessionId },
    /// Reads everything, and watches from there. Answers: [`Event::Snapshot`], then [`Event::Changed`]s, until [`Event::WatchLost`].
    Watch { call: CallId },
    /// Writes an object if its revision is this one (creates it, if that is [`Revision::ABSENT`]); no contents remove it. Answers: [`Event::Swapped`],
    /// [`Event::Conflict`], [`Event::Unanswered`].
    Swap { call: CallId, name: ObjectName, expected: Revision, contents: Option<Vec<u8>> },
    /// Asks PostgreSQL which client backends there are on each server on which any of these budgets count. Answer: [`Event::Backends`].
    ListBackends { call: CallId, budgets: Vec<crate::BudgetName> },
}

/// One object as the store has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    pub name: ObjectName,
    pub revision: Revision,
    /// None: it was removed, at that revision.
    pub contents: Option<Vec<u8>>,
}

/// What the node hears. Every request is answered, if only with [`Event::Unanswered`] (a [`Request::ListBackends`] with no budgets in its answer, a
/// [`Request::Watch`] with [`Event::WatchLost`]); an answer to a request of an earlier process is not delivered.
///
/// Order: a session joins before it writes an object. The node must hear of the session (Snapshot, NodeSeen) before, or with, the first object that this
/// session wrote; a store whose nodes and objects are watched apart has to read the nodes again where it cannot know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The lease runs for `lease_us` from a moment that is not before the request was given out by [`crate::Node::poll`].
    Renewed { call: CallId, lease_us: u64 },
    /// Another session has the node's id.
    IdTaken { call: CallId, by: NodeRecord },
    /// The store knows no lease of this session any more.
    Expired { call: CallId },
    /// The node is removed.
    Left { call: CallId },
    /// Everything there is; objects as of this revision: those written later have higher ones.
    Snapshot { call: CallId, revision: Revision, nodes: Vec<(NodeId, NodeRecord)>, objects: Vec<Object> },
    /// A node has come, or its record has changed.
    NodeSeen { watch: CallId, id: NodeId, record: NodeRecord },
    /// A node's lease is over, or it has left.
    NodeGone { watch: CallId, id: NodeId },
    /// An object has been written or removed. Changes of one object come in their order; some may be left out where a later one comes.
    Changed { watch: CallId, object: Object },
    /// The watch is over, or never began; nothing of it follows.
    WatchLost { watch: CallId, why: String },
    /// Written, with this revision.
    Swapped { call: CallId, revision: Revision },
    /// Not written: the object has another revision. The watch tells which.
    Conflict { call: CallId },
    /// Not known: the store may have carried it out, or may do so later.
    Unanswered { call: CallId, why: String },
    /// The client backends that there are, of budgets that could be asked for everywhere they count; the others are left out.
    Backends { call: CallId, budgets: Vec<(crate::BudgetName, Vec<Backend>)> },
    /// Something under the prefix is not this fleet's, or not of a version that this one reads.
    Foreign { what: String },
}

/// A backend of a PostgreSQL server: which server (as configured, `host:port`), and its process id there.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Backend {
    pub server: Arc<str>,
    pub pid: u32,
}
