//! What clients are pointed at: any PostgreSQL or pooler by its URI, what the lab finds there before it begins, and
//! what it makes of pgbench's tables. Never drops or refills what holds rows unless it was told to.

mod address;
mod inspection;
mod passfile;
mod psql;
mod secret;
mod started;
mod tables;
mod uri;

pub use address::Address;
pub use inspection::{Behind, Inspection};
pub use psql::Psql;
pub use secret::Secret;
pub use started::{Papers, PoolSizing, Started};
pub use tables::{Found, Tables};
