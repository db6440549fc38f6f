//! Who gets which server connection, and when.
//!
//! Owns the queue, the limits, the idle list, lifetimes and pauses as pure decisions. Never sees a byte or a session.
#![forbid(unsafe_code)]

mod dedicated;
pub mod global_limits;
pub mod pool;
pub mod queue;

pub use dedicated::OpenFor;
pub use global_limits::{Both, CancelKeyPrefix, Directory, Process, Shared, Tally};
pub use pool::{Idle, Limits, Permit, Pool};
pub use queue::{Queue, Ticket, Waiter};
