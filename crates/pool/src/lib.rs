//! Which client gets which server connection, and when.
//!
//! Owns the queue, the limits, the idle list, lifetimes and pauses as pure decisions. Never sees a byte or a session.
#![forbid(unsafe_code)]

mod dedicated;
pub mod global_limits;
pub mod pool;
pub mod queue;

pub use dedicated::OpenFor;
pub use global_limits::{
    CancelKeyPrefix, ConnectionCounts, PermitCounter, PoolRegistry, ProcessCounts, SharedPool,
};
pub use pool::{IdleServer, Limits, Permit, Pool};
pub use queue::{Queue, QueuePosition, Waiter};
