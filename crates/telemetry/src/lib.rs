//! Counters, histograms and log records.
//!
//! Owns the table of counters ([`counters`]), durations in buckets ([`histogram`]), errors by code ([`errors`]), kinds of queries ([`queries`]), what is waited for ([`waits`]), requests of
//! traces ([`spans`]), the log
//! record with its levels ([`record`]) and the shape of PgBouncer's log line. Does no I/O.
#![forbid(unsafe_code)]

pub mod counters;
pub mod errors;
pub mod histogram;
pub mod queries;
pub mod record;
pub mod spans;
pub mod waits;

pub use counters::{COUNTERS, Counter, Counters};
pub use errors::SqlstateCounts;
pub use histogram::{Histogram, Histograms, Percentiles};
pub use record::{Level, LineFormatter, Record, date_time, printable};
pub use waits::{ServerWait, ServerWaits, Wait, Waits};
