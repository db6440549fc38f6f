//! A fleet: nodes (processes of Weir) that share budgets of server connections by way of a store.
#![forbid(unsafe_code)]

mod budget;
mod store;

pub use budget::{BudgetKind, BudgetName};
pub use store::{
    Backend, CallId, Event, NodeId, NodeRecord, Object, ObjectName, Request, Revision, SessionId,
};
