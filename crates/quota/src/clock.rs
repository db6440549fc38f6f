//! Tells a change of the wall clock from time that has passed.

/// What both clocks show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instant {
    /// Seconds since 1970.
    pub wall_s: u64,
    /// Microseconds of a clock that is never set.
    pub mono_us: u64,
}

/// The two clocks may drift apart by so much between two looks at them.
const DRIFT_S: u64 = 5;

/// What the clocks showed last.
#[derive(Debug, Default)]
pub(crate) struct WallClock(Option<Instant>);

impl WallClock {
    /// How far the wall clock was set, in seconds, since the last look: a grace time that runs goes on as if it had not been.
    pub(crate) fn look(&mut self, now: Instant) -> i64 {
        let Some(last) = self.0.replace(now) else { return 0 };
        let passed = now.mono_us.saturating_sub(last.mono_us) / 1_000_000;
        let expected = last.wall_s.saturating_add(passed);
        if now.wall_s.abs_diff(expected) <= DRIFT_S {
            return 0;
        }
        let far = i64::try_from(now.wall_s.abs_diff(expected)).unwrap_or(i64::MAX);
        if now.wall_s > expected { far } else { -far }
    }
}
