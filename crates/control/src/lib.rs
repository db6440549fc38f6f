//! The control thread as a state machine: commands of operators, and their replies.
//!
//! [`Control`] takes inputs (a report of a shard, a signal, the clock) and returns outputs (a command to a shard, a log
//! line, reading the file again, exit). Commands and views are one table each ([`COMMANDS`], [`VIEWS`]). It knows of a
//! shard only what `messages` carries; it holds no socket, reads no clock or file, and never blocks.
#![forbid(unsafe_code)]

mod aggregate;
mod command_error;
mod commands;
mod configure;
mod console_disconnect;
mod control;
mod dispatch;
mod pause_state;
mod pools;
mod request;
mod shutdown;
mod signals;
mod statement;
mod statistics;
mod takeover;
mod views;

pub use command_error::CommandError;
pub use commands::{Argument, COMMANDS, CommandRow};
pub use control::{Control, Input, Output, ProcessInfo};
pub use messages::Signal;
pub use pools::{
    Budget, Cluster, ExplainOutcome, ExplainRequest, PoolChange, PoolError, PoolOutcome, PoolRequest,
    PoolSpec, ServerInfo, WriteFault, cluster_id, clusters,
};
pub use statement::{Grammar, PanelQuery, ParseError, Statement};
pub use takeover::TakeoverEvent;
pub use views::{VIEWS, View};

/// The database that is the console, and the name of its user and of its pool.
pub const CONSOLE: &str = "pgbouncer";

/// What SHOW VERSION answers and `--version` prints first.
pub const VERSION: &str = concat!("PgBouncer 1.25.2 (Weir ", env!("CARGO_PKG_VERSION"), ")");

#[cfg(test)]
mod harness;
