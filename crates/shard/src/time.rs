//! Durations of settings as the shard counts time: in microseconds.

use std::time::Duration;

/// Microseconds of a setting; one too long to count is as long as can be counted.
pub(crate) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
