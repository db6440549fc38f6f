//! The stores of a fleet: etcd, and the PostgreSQL servers whose backends are asked for.
#![forbid(unsafe_code)]
