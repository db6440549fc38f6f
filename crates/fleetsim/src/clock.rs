//! Monotonic clocks that run at different rates and begin anywhere.

/// A clock: `offset` at the true time 0, and its drift in microseconds per second.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Clock {
    pub(crate) offset_us: u64,
    pub(crate) ppm: i64,
}

impl Clock {
    /// What it shows at a true time.
    pub(crate) fn shows(&self, true_us: u64) -> u64 {
        let drift = i64::try_from(true_us).unwrap_or(i64::MAX).saturating_mul(self.ppm) / 1_000_000;
        self.offset_us.saturating_add(true_us).saturating_add_signed(drift)
    }

    /// The true time at which it shows this, or a little later.
    pub(crate) fn reaches(&self, shown_us: u64) -> u64 {
        let since = i128::from(shown_us.saturating_sub(self.offset_us));
        let true_us = since * 1_000_000 / (1_000_000 + i128::from(self.ppm)) + 2;
        u64::try_from(true_us).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_reached_when_the_clock_shows_it() {
        for ppm in [-5_000, 0, 17, 5_000] {
            let clock = Clock { offset_us: 123_456_789, ppm };
            for true_us in [0, 1, 999_999, 1_000_000, 77_777_777] {
                let shown = clock.shows(true_us);
                let reached = clock.reaches(shown);
                assert!(reached >= true_us && reached <= true_us + 4, "{ppm} {true_us} {reached}");
                assert!(clock.shows(reached) >= shown);
            }
        }
    }
}
