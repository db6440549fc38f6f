//! Quotas: who may use how much of what per hour, day or month, in the words of `quota(1)`.
//!
//! Owns the file of limits ([`Rules`], [`QuotasText`]), what was used and what follows from that ([`Book`]), and the counters that the shards' threads add to
//! ([`Meter`]). Time is an argument; what is kept beyond the process, and where, is the caller's ([`StoredUsage`]).

#![forbid(unsafe_code)]

mod account;
mod book;
mod calendar;
mod clock;
mod external;
mod limit;
mod line;
mod meter;
pub mod probe;
mod resource;
mod row;
mod rules;
mod subject;
mod text;

pub use account::{StoredUsage, Verdict};
pub use book::{Book, Change, Refused};
pub use calendar::{seconds_of_utc, utc};
pub use clock::Instant;
pub use external::{ExternalQuota, SharedQuota};
pub use limit::{DEFAULT_GRACE_S, Limit};
pub use line::RoleQuestion;
pub use meter::{ClientMeters, Meter, Standing, StorageStanding};
pub use resource::{Measure, Period, Resource};
pub use row::{QuotaRow, State};
pub use rules::{QuotaError, RoleMembers, Rules};
pub use subject::{Subject, SubjectKind};
pub use text::QuotasText;
