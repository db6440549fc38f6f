//! The store in a real etcd, whose members run on loopback for each test.
#![allow(clippy::unwrap_used, missing_docs)]

mod access;
mod cluster;
mod single;
mod support;
