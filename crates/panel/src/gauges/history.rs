//! The past of figures that are looked at again and again, by key: the last one of each step of time.
//! Owns how much is kept: the number of points of each step, and of keys. Never knows what the figures are.

use std::collections::{BTreeMap, VecDeque};

use crate::live::TimeSpan;

/// The seconds of a step, and how many are kept.
pub(super) type Tier = (u64, usize);

/// The clock may go back by so much without the past being another one.
const CLOCK_STEP: u64 = 60;

/// A key without figures for this many seconds makes room for another.
const IDLE: u64 = 600;

/// The figures of all keys.
pub(super) struct GaugeHistory<K, const N: usize> {
    /// The finest first.
    tiers: &'static [Tier],
    most_keys: usize,
    /// The second of the newest figures.
    newest: u64,
    gauges: BTreeMap<K, Gauge<N>>,
}

/// The figures of one key, by tier: the number of the step since 1970, and what was seen last in it.
struct Gauge<const N: usize> {
    seen: u64,
    tiers: Vec<VecDeque<(u64, [f64; N])>>,
}

/// A span of one key's past.
pub(super) struct GaugeSpan<const N: usize> {
    pub(super) step: u64,
    /// The first second.
    pub(super) from: u64,
    /// A number for each step; none where nothing was seen.
    pub(super) columns: [Vec<Option<f64>>; N],
}

impl<K: Ord, const N: usize> GaugeHistory<K, N> {
    pub(super) fn new(tiers: &'static [Tier], most_keys: usize) -> GaugeHistory<K, N> {
        GaugeHistory { tiers, most_keys, newest: 0, gauges: BTreeMap::new() }
    }

    /// Keeps what was seen in a second, the most important first: where there is no room for a further key, it is left out.
    pub(super) fn add(&mut self, second: u64, figures: impl IntoIterator<Item = (K, [f64; N])>) {
        if second + CLOCK_STEP < self.newest {
            // The clock was set back: what is newer than now would stay for ever.
            self.gauges.clear();
        } else if second < self.newest {
            return;
        }
        self.newest = second;
        let mut has_made_room = false;
        for (key, numbers) in figures {
            if self.gauges.len() >= self.most_keys && !self.gauges.contains_key(&key) {
                if !has_made_room {
                    self.gauges.retain(|_, gauge| gauge.seen + IDLE >= second);
                    has_made_room = true;
                }
                if self.gauges.len() >= self.most_keys {
                    continue;
                }
            }
            let empty =
                || Gauge { seen: second, tiers: self.tiers.iter().map(|_| VecDeque::new()).collect() };
            self.gauges.entry(key).or_insert_with(empty).add(self.tiers, second, numbers);
        }
    }

    /// A key's past, in the finest steps that reach back so far.
    pub(super) fn span(&self, key: &K, span: TimeSpan) -> GaugeSpan<N> {
        let reach = |(step, most): Tier| step * most as u64;
        let longest = self.tiers.iter().map(|tier| reach(*tier)).max().unwrap_or(0);
        let oldest = (self.newest + 1).saturating_sub(longest).min(self.newest);
        let to = span.to.clamp(oldest, self.newest);
        let from = span.from.clamp(oldest, to);
        let reaches = |(_, tier): &(usize, &Tier)| from + reach(**tier) > self.newest;
        let found = self.tiers.iter().enumerate().find(reaches).or(self.tiers.iter().enumerate().next_back());
        let (place, (step, most)) = found.map_or((0, (1, 0)), |(place, tier)| (place, *tier));
        let first = from / step;
        let length = usize::try_from(to / step - first + 1).unwrap_or(0).min(most + 1);
        let mut columns = [(); N].map(|()| vec![None; length]);
        let points = self.gauges.get(key).and_then(|gauge| gauge.tiers.get(place)).into_iter().flatten();
        for (at, numbers) in points.filter(|(at, _)| *at >= first) {
            let at = usize::try_from(at - first).unwrap_or(length);
            for (column, number) in columns.iter_mut().zip(numbers) {
                if let Some(cell) = column.get_mut(at) {
                    *cell = Some(*number);
                }
            }
        }
        GaugeSpan { step, from: first * step, columns }
    }

    /// The second of the newest figures; 0 before the first.
    pub(super) fn newest(&self) -> u64 {
        self.newest
    }
}

impl<const N: usize> Gauge<N> {
    fn add(&mut self, tiers: &[Tier], second: u64, numbers: [f64; N]) {
        self.seen = second;
        for (points, (step, most)) in self.tiers.iter_mut().zip(tiers) {
            let at = second / step;
            if points.back().is_some_and(|(last, _)| *last == at) {
                points.pop_back();
            }
            points.push_back((at, numbers));
            while points.front().is_some_and(|(first, _)| first + *most as u64 <= at) {
                points.pop_front();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIERS: &[Tier] = &[(1, 60), (10, 60)];

    fn span(
        history: &GaugeHistory<&str, 1>,
        key: &'static str,
        from: u64,
        to: u64,
    ) -> (u64, u64, Vec<Option<f64>>) {
        let GaugeSpan { step, from, columns: [column] } = history.span(&key, TimeSpan { from, to });
        (step, from, column)
    }

    #[test]
    fn a_span_comes_in_the_finest_steps_that_reach_so_far() {
        let mut history = GaugeHistory::new(TIERS, 2);
        for second in 1_000..1_200 {
            let only_b = (second >= 1_198).then_some(("b", [7.0]));
            history.add(
                second,
                [("a", [f64::from(u32::try_from(second).unwrap_or(0))])].into_iter().chain(only_b),
            );
        }
        assert_eq!(
            span(&history, "a", 1_197, 9_999),
            (1, 1_197, vec![Some(1_197.0), Some(1_198.0), Some(1_199.0)])
        );
        assert_eq!(span(&history, "b", 1_197, 9_999).2, [None, Some(7.0), Some(7.0)]);
        let (step, from, column) = span(&history, "a", 985, 1_199);
        assert_eq!((step, from, column.len()), (10, 980, 22));
        assert_eq!(column[..4], [None, None, Some(1_009.0), Some(1_019.0)], "the last of each step");
        assert_eq!(span(&history, "a", 0, 3).2, [None], "before all that is kept");
        assert!(span(&history, "c", 1_190, 1_199).2.iter().all(Option::is_none));
        assert_eq!(span(&GaugeHistory::new(TIERS, 2), "a", 5, 9).2, [None]);
    }

    #[test]
    fn keys_are_bounded_and_idle_ones_make_room() {
        let mut history = GaugeHistory::new(TIERS, 2);
        history.add(1_000, [("a", [1.0]), ("b", [1.0]), ("c", [1.0])]);
        assert!(
            span(&history, "c", 1_000, 1_000).2 == [None]
                && span(&history, "b", 1_000, 1_000).2 == [Some(1.0)]
        );
        history.add(1_000 + IDLE + 1, [("a", [2.0]), ("c", [2.0])]);
        let now = 1_000 + IDLE + 1;
        assert_eq!(span(&history, "c", now, now).2, [Some(2.0)]);
        assert_eq!(history.gauges.len(), 2);
    }

    #[test]
    fn a_clock_that_is_set_back_begins_anew() {
        let mut history = GaugeHistory::new(TIERS, 2);
        history.add(5_000, [("a", [1.0])]);
        history.add(4_990, [("a", [2.0])]);
        assert_eq!(span(&history, "a", 5_000, 5_000).2, [Some(1.0)], "a little earlier: left out");
        history.add(3_000, [("a", [3.0])]);
        assert_eq!((history.newest(), span(&history, "a", 3_000, 6_000).2), (3_000, vec![Some(3.0)]));
    }
}
