//! How long a quick experiment may take: whether there is time for one more round. Pure arithmetic over times that it is
//! given; an experiment without a limit makes all of its rounds.

use std::time::Duration;

/// Fewer rounds have no interval: they are run even if that exceeds the limit.
const FEWEST_ROUNDS: u32 = 3;

/// The time that is left, by the longest round so far.
#[derive(Clone, Debug, Default)]
pub(super) struct TimeLimit {
    limit: Option<Duration>,
    round: u32,
    began: Duration,
    longest: Duration,
}

impl TimeLimit {
    /// All times are since the experiment began; `limit` is when it should be over.
    pub(super) fn new(limit: Option<Duration>, now: Duration) -> Self {
        Self { limit, began: now, ..Self::default() }
    }

    /// Whether a run of `round` may begin. After the last round there is work for `after` rounds' time.
    pub(super) fn allows(&mut self, round: u32, now: Duration, after: f64) -> bool {
        if round == self.round {
            return true;
        }
        self.longest = self.longest.max(now.saturating_sub(self.began));
        (self.round, self.began) = (round, now);
        let end = now + self.longest.mul_f64(1.0 + after);
        round < FEWEST_ROUNDS || self.limit.is_none_or(|limit| end <= limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn rounds_end_in_time_but_never_before_the_third() {
        let mut patience = TimeLimit::new(Some(at(100)), at(10));
        assert!(patience.allows(0, at(10), 0.5) && patience.allows(0, at(25), 0.5));
        assert!(patience.allows(1, at(30), 0.5), "20 s a round");
        assert!(patience.allows(2, at(95), 0.5), "65 s now, but only two rounds");
        let mut quicker = TimeLimit::new(Some(at(100)), at(0));
        let begun =
            (0..10).take_while(|round| quicker.allows(*round, at(u64::from(*round) * 15), 0.5)).count();
        assert_eq!(begun, 6, "the last one begins at 75 s, ends at 90 s, and what follows at 97 s");
    }

    #[test]
    fn without_a_limit_all_rounds_are_made() {
        let mut patience = TimeLimit::new(None, at(0));
        assert!((0..1000).all(|round| patience.allows(round, at(u64::from(round) * 3600), 9.0)));
    }
}
