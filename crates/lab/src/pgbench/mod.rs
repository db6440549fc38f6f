//! pgbench: how it is called, what it prints, and what its log of transactions says. PostgreSQL's own program
//! makes every load that it can: one database, transactions. (`full` has small clients of its own for the others.)

#[cfg(test)]
mod captured;
mod figures;
mod fill;
mod harness;
mod load;
mod parse;
mod tally;

pub use figures::figures;
pub(crate) use figures::{Window, is_for_want_of_room};
pub use fill::fill;
pub use harness::{Load, Outcome, Workload};
pub use load::Loader;
pub(crate) use load::{file_name, limit};
pub use parse::{Progress, Summary, initialised, progress, summary};
pub(crate) use tally::{Tally, whole};
