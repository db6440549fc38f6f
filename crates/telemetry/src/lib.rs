//! What Weir counts and what it says.
//!
//! Owns the ONE table of counters ([`counters`]), durations in buckets ([`histogram`]), errors by code ([`errors`]), kinds of queries ([`queries`]), the log
//! record with its levels ([`record`]) and the shape of PgBouncer's log line. Never writes anything anywhere: who holds a file or a socket does that.
#![forbid(unsafe_code)]

pub mod counters;
pub mod errors;
pub mod histogram;
pub mod queries;
pub mod record;

pub use counters::{COUNTERS, Counter, Counters};
pub use errors::Errors;
pub use histogram::{Histogram, Histograms, Percentiles};
pub use record::{Level, Lines, Record, printable};
