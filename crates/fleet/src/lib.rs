//! A fleet: nodes (processes of Weir) that share budgets of server connections by way of a store.
#![forbid(unsafe_code)]

#[allow(missing_docs, reason = "many fields say all by their names")]
mod budget;
mod config;
mod drains;
mod fair;
mod floors;
mod known;
mod ledger;
mod ledgers;
mod membership;
mod node;
mod peers;
mod pools;
pub mod probe;
mod reclaim;
mod reports;
mod shared;
#[allow(missing_docs, reason = "many fields say all by their names")]
mod status;
#[allow(missing_docs, reason = "many fields say all by their names")]
mod store;
mod text;

pub use budget::{BudgetKind, BudgetName, Division};
pub use config::{
    Allowance, BackendsQuestion, DrainError, DrainOrder, Handover, HeldFloors, NodeConfig, Usage,
};
pub use node::Node;
pub use peers::{NumberedNode, PeerNumbers};
pub use pools::{FleetPools, PoolsChange, PoolsError, PoolsResult, PoolsWait};
pub use shared::{ExternalUsage, SharedUsage, UsageFigure, UsageKind, UsageName};
pub use status::{BudgetStatus, FleetStatus, FloorStatus, NodeState, NodeStatus, PeerState, ReclaimStatus};
pub use store::{
    Backend, CallId, Event, NodeId, NodeRecord, Object, ObjectName, PoolsInUse, Request, Revision, SessionId,
};
