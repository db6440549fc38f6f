//! Simulates a fleet: real nodes (crate `fleet`) with model poolers against a model store and a model PostgreSQL, all from one seed.
//!
//! [`run`] is one seed. The server connections that the model PostgreSQL has are compared with the limit after every step; at the end, when all faults have
//! stopped, it is checked that demand is served as the fair division says, that unused slots come back and that nothing is written at rest.
#![forbid(unsafe_code)]

mod clock;
mod fault;
mod faults;
mod network;
mod pool_changes;
mod pooler;
mod pools;
mod postgres;
mod prng;
mod process;
mod queue;
mod scenario;
mod shared;
mod stage;
mod store;
mod verdict;
mod watcher;
mod world;

pub use stage::Violation;
pub use world::{Report, run};
