//! The time of handshakes: told by the owner before each, read by rustls when it judges a certificate.
//!
//! Never reads a clock.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustls::pki_types::UnixTime;
use rustls::time_provider::TimeProvider;

/// Seconds since 1970 as last told.
#[derive(Clone, Debug, Default)]
pub(crate) struct Clock(Arc<AtomicU64>);

impl Clock {
    /// It is now this late.
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
