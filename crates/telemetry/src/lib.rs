//! What Weir counts and what it says.
//!
//! Owns the ONE table of counters ([`counters`]), the log record with its levels ([`record`]) and the shape of
//! PgBouncer's log line. Never writes anything anywhere: who holds a file or a socket does that.
#![forbid(unsafe_code)]

pub mod counters;
pub mod record;

pub use counters::{COUNTERS, Counter, Counters};
pub use record::{Level, Record, line, printable};
