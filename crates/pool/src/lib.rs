//! Who gets which server connection, and when.
//!
//! Owns the queue, the limits, the idle list, lifetimes and pauses as pure decisions. Never sees a byte or a session.
#![forbid(unsafe_code)]

pub mod ledger;

pub use ledger::{Both, Directory, Process, Shared, Tally};
