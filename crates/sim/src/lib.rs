//! The deterministic simulator: the real shard against a model PostgreSQL, model clients, and a network and a clock
//! that misbehave, all from one seed. A seed that fails replays the same, byte for byte.
//!
//! Never a real clock, socket or thread, save in `record`, which asks a real PostgreSQL what the model is compared with.
#![forbid(unsafe_code)]

mod client;
mod clock;
mod cluster_sql;
mod corpus;
mod cut;
mod direct;
mod directory;
mod fault;
mod invariants;
mod model;
mod network;
mod pooler;
mod prng;
mod protocol;
mod random;
mod record;
mod run;
mod secret;
mod sequence_sql;
mod session_sql;
mod setup;
mod shrink;
mod sql;
mod steps;
mod swarm;
mod table;
mod tap;
mod trace;
mod world;

pub use cut::Cut;
pub use directory::Names;
pub use invariants::Violation;
pub use model::replication::HostEvents;
pub use record::{record, record_random};
pub use run::{Report, has_cluster, run, run_cut, run_direct};
pub use shrink::{Shrunk, shrink};
pub use swarm::Length;
pub use table::{INVARIANTS, Invariant, markdown};
