//! Time as the shard counts it: in microseconds, given with each event.

use std::time::Duration;

/// The time of an event batch; read once per batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// Microseconds of a clock that never goes back. All timers use it.
    pub mono_us: u64,
    /// Microseconds since 1970. Only shown, never decided by.
    pub wall_us: u64,
}

/// Microseconds of a setting; one too long to count is as long as can be counted.
pub(crate) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// More than `limit_us` have passed; a limit of 0 never does.
pub(crate) fn passed(now_us: u64, since_us: u64, limit_us: u64) -> bool {
    limit_us > 0 && now_us.saturating_sub(since_us) >= limit_us
}

/// Milliseconds with one decimal, for the log.
pub(crate) fn milliseconds(us: u64) -> String {
    format!("{}.{}", us / 1_000, us % 1_000 / 100)
}
