//! Who watches the store.

use fleet::CallId;

/// A process that watches the store.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Watcher {
    pub(crate) process: usize,
    pub(crate) call: CallId,
    /// The last event is delivered then.
    pub(crate) last_us: u64,
}
