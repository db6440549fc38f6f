//! The control thread without the thread: what an operator asks of the whole process, and what it answers.
//!
//! [`Control`] is told what happened (a report of a shard, a signal, the clock) and says what to do (tell a shard, log,
//! read the file again, exit). Commands and views stand in ONE table each ([`COMMANDS`], [`VIEWS`]). It knows of a
//! shard only what `messages` carries; it holds no socket, reads no clock or file, and never blocks.
#![forbid(unsafe_code)]

mod ask;
mod attendance;
mod commands;
mod configure;
mod control;
mod gathered;
mod pausing;
mod pools;
mod refusal;
mod request;
mod shutdown;
mod signals;
mod statement;
mod statistics;
mod succession;
mod views;

pub use commands::{Argument, COMMANDS, CommandRow};
pub use control::{Control, Facts, Input, Output};
pub use messages::Signal;
pub use pools::{
    Budget, Cluster, PoolChange, PoolOutcome, PoolRefusal, PoolRequest, PoolSpec, ServerFacts, WriteFault,
    cluster_id, clusters,
};
pub use refusal::Refusal;
pub use statement::{Grammar, Misread, Question, Statement};
pub use succession::Succession;
pub use views::{VIEWS, View};

/// The database that is the console, and the name of its user and of its pool.
pub const CONSOLE: &str = "pgbouncer";

/// What SHOW VERSION answers and `--version` prints first.
pub const VERSION: &str = concat!("PgBouncer 1.25.2 (Weir ", env!("CARGO_PKG_VERSION"), ")");

#[cfg(test)]
mod harness;
