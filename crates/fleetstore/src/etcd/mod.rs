//! The store in etcd.

mod options;

pub use options::{EtcdOptions, EtcdTls, OptionsError};
