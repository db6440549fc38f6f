//! The time of handshakes: set by the owner before each, read by rustls to verify certificates.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustls::pki_types::UnixTime;
use rustls::time_provider::TimeProvider;

/// Seconds since 1970, as last set.
#[derive(Clone, Debug, Default)]
pub(crate) struct Clock(Arc<AtomicU64>);

impl Clock {
    /// Sets the current time.
    pub(crate) fn set(&self, unix_s: u64) {
        self.0.store(unix_s, Ordering::Relaxed);
    }
}

impl TimeProvider for Clock {
    fn current_time(&self) -> Option<UnixTime> {
        let told = std::time::Duration::from_secs(self.0.load(Ordering::Relaxed));
        Some(UnixTime::since_unix_epoch(told))
    }
}
