//! Since when each sum has been counted, which OTLP wants with cumulative sums.
//!
//! A sum that was not there at the last look, or was greater, began after it. Bounded by what there was at the last two
//! looks. Never keeps a label.

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;

use crate::metrics::Labels;

/// When sums began, in nanoseconds since 1970.
pub(super) struct StartTimes {
    hasher: RandomState,
    /// The last look, or the start of the process.
    last_ns: u64,
    before: HashMap<u64, StartTime>,
    now: HashMap<u64, StartTime>,
}

struct StartTime {
    start_ns: u64,
    value: f64,
}

impl StartTimes {
    /// All that is counted has been since `born_ns`.
    pub(super) fn new(born_ns: u64) -> StartTimes {
        let (before, now) = Default::default();
        StartTimes { hasher: RandomState::new(), last_ns: born_ns, before, now }
    }

    /// Since when this sum has been counted.
    pub(super) fn of(&mut self, name: &str, labels: Labels<'_>, value: f64) -> u64 {
        let key = self.hasher.hash_one((name, labels));
        let known = self.before.get(&key).filter(|known| known.value <= value);
        let start_ns = known.map_or(self.last_ns, |known| known.start_ns);
        self.now.insert(key, StartTime { start_ns, value });
        start_ns
    }

    /// The look at `now_ns` is over: all sums have been named.
    pub(super) fn end_batch(&mut self, now_ns: u64) {
        self.before = std::mem::take(&mut self.now);
        self.last_ns = now_ns;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_begin_with_the_process_or_after_the_look_that_did_not_know_them() {
        let mut starts = StartTimes::new(10);
        assert_eq!(starts.of("a", &[("d", "x")], 5.0), 10);
        starts.end_batch(20);
        assert_eq!(starts.of("a", &[("d", "x")], 5.0), 10);
        assert_eq!(starts.of("a", &[("d", "y")], 5.0), 20);
        assert_eq!(starts.of("b", &[("d", "x")], 1.0), 20);
        starts.end_batch(30);
        assert_eq!(starts.of("a", &[("d", "x")], 4.0), 30, "it was dropped and made again");
        starts.end_batch(40);
        assert_eq!(starts.of("a", &[("d", "x")], 4.5), 30);
        assert_eq!(starts.of("a", &[("d", "y")], 6.0), 40, "it was away for a look");
        assert_eq!((starts.before.len(), starts.now.len()), (1, 2));
    }
}
