//! A BEGIN that a client has been answered and no server has been sent (`deferred_begin`).

/// A transaction that the client has begun and no server knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DeferredBegin {
    /// When the client sent BEGIN: its timeouts count from then.
    pub(crate) since_us: u64,
}
