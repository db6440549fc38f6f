//! I/O by completion: the kernel is entered once for a whole batch of connections.
//!
//! Completions are handled, the shard's actions are noted, and their requests are submitted together. Received buffers are
//! forwarded without a copy.

mod backend;
mod buffers;
mod conn;
mod kernel;
mod leave;
mod outbox;
mod receive;
mod ring;

pub(crate) use backend::Uring;
pub use buffers::ReceiveBuffers;
pub(crate) use kernel::Kernel;
pub use ring::RingSize;
