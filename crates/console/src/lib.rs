//! The console's language: SQL as far as an administrator types it into the database `pgbouncer`.
//!
//! Owns the grammar: text of one simple query in, [`control::Statement`] out. Never knows which commands or settings
//! there are (the tables of `control` do) and never encodes an answer (the shard with the client's socket does).
#![forbid(unsafe_code)]

mod grammar;
mod lexer;
mod probe;

pub use grammar::{LONGEST, parse};
pub use probe::probe;
