//! The stores of a fleet: carries out [`fleet::Request`]s and yields [`fleet::Event`]s.
//!
//! Owns what a node, an object and a session are in etcd and in the API server of Kubernetes, which member of an etcd cluster is asked, how long an answer may take, and which client backends PostgreSQL
//! servers have. What an event means is the fleet's to decide ([`fleet`]).
#![forbid(unsafe_code)]

mod backends;
mod etcd;
mod kubernetes;
mod record;
mod store;

pub use backends::{BackendQuery, Log};
pub use etcd::{EtcdOptions, EtcdTls, OptionsError};
pub use kubernetes::{KubernetesFiles, KubernetesOptions, pod_address};
pub use store::Store;
