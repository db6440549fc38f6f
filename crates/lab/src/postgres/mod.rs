//! PostgreSQL for the lab: its programs, wherever this machine has them, and a private cluster.
//! Never touches a cluster that the lab did not make.

mod cluster;
mod programs;
mod standby;

pub use cluster::{Cluster, SUPERUSER, free_port};
pub use programs::Programs;
pub use standby::Standby;
