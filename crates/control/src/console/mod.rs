//! The console's language: SQL as far as an administrator types it into the database `pgbouncer`.
//!
//! Owns the grammar: the text of one simple query in, [`Statement`](crate::Statement) out. Never knows which commands or
//! settings there are (their tables do) and never encodes an answer (the shard with the client's socket does).

mod grammar;
mod lexer;
mod probe;

pub use grammar::{LONGEST, parse};
pub use probe::probe;
