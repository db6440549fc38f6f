//! I/O by readiness: edge-triggered, each socket registered once, output written at once.
//!
//! A short read means that the socket is drained, so a message costs one read and one write.

mod backend;
mod conn;
mod receive;
mod write_batch;

pub(crate) use backend::Epoll;
