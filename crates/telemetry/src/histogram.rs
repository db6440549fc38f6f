//! How long something took, counted in buckets of a fixed log-linear scale.
//!
//! Each octave of microseconds has four buckets, so that a figure read from them is off by an eighth at most; what takes
//! longer than [`LONGEST_US`] is counted in the last one. Adding to one is a plain add: no lock, no allocation, no clock of
//! its own. Sums are not kept here: the counters have them exactly ([`crate::Counters`]).

use std::fmt;
use std::str::FromStr;

use crate::{ServerWaits, Waits};

/// Buckets of an octave, as a power of two.
const SUB_BUCKET_BITS: u32 = 2;

/// How many buckets there are: 1 KiB of them.
pub const BUCKETS: usize = 128;

/// The lower bound of the last bucket, in microseconds: two hours.
pub const LONGEST_US: u64 = lower_us(BUCKETS - 1);

/// A distribution of durations in whole microseconds (what is beyond the last whole one is cut off).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Histogram {
    counts: [u64; BUCKETS],
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram { counts: [0; BUCKETS] }
    }
}

/// The bucket of a duration.
#[inline]
fn bucket(us: u64) -> usize {
    let fine = us | (1 << SUB_BUCKET_BITS); // Below one octave of buckets each microsecond has its own.
    let octave = 63 - fine.leading_zeros() - SUB_BUCKET_BITS;
    let index = (octave << SUB_BUCKET_BITS) as usize + usize::try_from(us >> octave).unwrap_or(BUCKETS);
    index.min(BUCKETS - 1)
}

/// The least duration that is counted in a bucket.
#[must_use]
pub const fn lower_us(bucket: usize) -> u64 {
    let linear = 1 << SUB_BUCKET_BITS;
    if bucket < 2 * linear {
        return bucket as u64;
    }
    let octave = (bucket >> SUB_BUCKET_BITS) - 1;
    ((linear + bucket % linear) as u64) << octave
}

impl Histogram {
    /// Adds a duration.
    #[inline]
    pub fn add(&mut self, us: u64) {
        self.counts[bucket(us)] += 1;
    }

    /// Adds `count` durations with a total of `us`, each with an even share.
    #[inline]
    pub fn add_shares(&mut self, us: u64, count: u32) {
        if count == 1 {
            return self.add(us);
        }
        if let Some(share) = us.checked_div(u64::from(count)) {
            self.counts[bucket(share)] += u64::from(count);
        }
    }

    /// Adds another distribution to this one.
    pub fn merge(&mut self, other: &Histogram) {
        for (count, other) in self.counts.iter_mut().zip(&other.counts) {
            *count += other;
        }
    }

    /// What was added since `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Histogram) -> Histogram {
        let mut grown = self.clone();
        for (count, before) in grown.counts.iter_mut().zip(&earlier.counts) {
            *count = count.saturating_sub(*before);
        }
        grown
    }

    /// The number of durations.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// How many took less than `us`; exact where `us` is a power of two (and below [`LONGEST_US`]).
    #[must_use]
    pub fn below(&self, us: u64) -> u64 {
        self.counts[..bucket(us)].iter().sum()
    }

    /// The quantile in per mille, in microseconds, interpolated within its bucket; `None` if empty.
    #[must_use]
    pub fn quantile_us(&self, per_mille: u64) -> Option<u64> {
        let count = self.count();
        if count == 0 {
            return None;
        }
        let wanted = mul_div(count, per_mille.min(1_000), 1_000).max(1);
        let mut before = 0;
        for (index, &here) in self.counts.iter().enumerate() {
            if here > 0 && before + here >= wanted {
                let from = lower_us(index);
                let width = lower_us((index + 1).min(BUCKETS - 1)).saturating_sub(from + 1);
                return Some(from + mul_div(width, wanted - before, here));
            }
            before += here;
        }
        Some(LONGEST_US)
    }

    /// The buckets that hold anything: the least duration of each, and its count.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> + use<'_> {
        let filled = self.counts.iter().enumerate().filter(|(_, count)| **count > 0);
        filled.map(|(index, count)| (lower_us(index), *count))
    }
}

/// `FROM_US:COUNT` of each bucket that holds anything, with blanks between them.
impl fmt::Display for Histogram {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (from, count)) in self.buckets().enumerate() {
            let blank = if index == 0 { "" } else { " " };
            write!(out, "{blank}{from}:{count}")?;
        }
        Ok(())
    }
}

/// A text is not a histogram of this scale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParseHistogramError;

/// Reads what Display writes.
impl FromStr for Histogram {
    type Err = ParseHistogramError;

    fn from_str(text: &str) -> Result<Histogram, ParseHistogramError> {
        let mut histogram = Histogram::default();
        for word in text.split_ascii_whitespace() {
            let (from, count) = word.split_once(':').ok_or(ParseHistogramError)?;
            let from: u64 = from.parse().map_err(|_| ParseHistogramError)?;
            let index = bucket(from);
            if lower_us(index) != from {
                return Err(ParseHistogramError);
            }
            let sum = histogram.counts[index].checked_add(count.parse().map_err(|_| ParseHistogramError)?);
            histogram.counts[index] = sum.ok_or(ParseHistogramError)?;
        }
        Ok(histogram)
    }
}

/// The durations of a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Histograms {
    /// How long clients waited for a server, also those that had not to; as often as `server_assignment_count` says.
    pub wait: Histogram,
    /// Transactions, as often as `xact_count` says.
    pub transaction: Histogram,
    /// Queries, as often as `query_count` says. Those that were answered in one go share their time evenly.
    pub query: Histogram,
    /// What clients have waited for.
    pub waits: Waits,
    /// What their servers were found waiting for in their queries.
    pub server_waits: ServerWaits,
}

impl Histograms {
    /// Adds another shard's (or pool's).
    pub fn merge(&mut self, other: &Histograms) {
        self.wait.merge(&other.wait);
        self.transaction.merge(&other.transaction);
        self.query.merge(&other.query);
        self.waits.merge(&other.waits);
        self.server_waits.merge(&other.server_waits);
    }
}

/// The middle and the slow end of a distribution, in microseconds; `None` where nothing was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Percentiles {
    /// Half took less.
    pub p50_us: Option<u64>,
    /// 95 of 100 took less.
    pub p95_us: Option<u64>,
    /// 99 of 100 took less.
    pub p99_us: Option<u64>,
}

impl Percentiles {
    /// Percentiles of the interval since `earlier`; of the whole histogram if that is `None`.
    #[must_use]
    pub fn between(earlier: Option<&Histogram>, now: &Histogram) -> Percentiles {
        let grown = earlier.map_or_else(|| now.clone(), |earlier| now.since(earlier));
        let [p50_us, p95_us, p99_us] = [500, 950, 990].map(|per_mille| grown.quantile_us(per_mille));
        Percentiles { p50_us, p95_us, p99_us }
    }
}

/// `amount * times / by`, rounded up.
fn mul_div(amount: u64, times: u64, by: u64) -> u64 {
    let exact = (u128::from(amount) * u128::from(times)).div_ceil(u128::from(by.max(1)));
    u64::try_from(exact).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_bucket_begins_where_the_one_before_it_ends() {
        for index in 0..BUCKETS - 1 {
            let (from, to) = (lower_us(index), lower_us(index + 1));
            assert!(from < to);
            assert_eq!((bucket(from), bucket(to - 1)), (index, index), "{from}..{to}");
        }
        assert_eq!(LONGEST_US, 7 << 30);
        for us in [LONGEST_US, u64::MAX] {
            assert_eq!(bucket(us), BUCKETS - 1);
        }
        assert!(size_of::<Histogram>() <= 1024);
    }

    #[test]
    fn what_is_below_a_power_of_two_is_counted_exactly() {
        let mut histogram = Histogram::default();
        (0..1 << 12).for_each(|us| histogram.add(us));
        for octave in 0..12 {
            assert_eq!(histogram.below(1 << octave), 1 << octave);
        }
        assert_eq!(histogram.count(), 1 << 12);
    }

    #[test]
    fn quantiles_are_off_by_an_eighth_at_most() {
        let mut histogram = Histogram::default();
        assert_eq!(histogram.quantile_us(500), None);
        (1..=10_000).for_each(|us| histogram.add(us));
        for per_mille in [10, 500, 950, 990, 1_000] {
            let (found, truth) = (histogram.quantile_us(per_mille).expect("a value"), per_mille * 10);
            assert!(found.abs_diff(truth) <= truth / 8, "{per_mille}: {found} for {truth}");
        }
        let mut one = Histogram::default();
        one.add(700);
        assert!((640..768).contains(&one.quantile_us(500).expect("a value")));
    }

    #[test]
    fn what_comes_between_two_looks_has_percentiles_of_its_own() {
        let mut histogram = Histogram::default();
        (0..1_000).for_each(|_| histogram.add(1_000_000));
        let earlier = histogram.clone();
        assert_eq!(Percentiles::between(Some(&earlier), &histogram), Percentiles::default());
        (0..100).for_each(|_| histogram.add(10));
        let found = Percentiles::between(Some(&earlier), &histogram);
        assert!(found.p99_us.is_some_and(|us| (10..12).contains(&us)), "{found:?}");
        assert!(Percentiles::between(None, &histogram).p50_us > Some(500_000));
    }

    #[test]
    fn answers_that_came_together_share_their_time() {
        let mut histogram = Histogram::default();
        histogram.add_shares(300, 3);
        histogram.add_shares(7, 0);
        assert_eq!((histogram.count(), histogram.below(64), histogram.below(128)), (3, 0, 3));
    }

    #[test]
    fn a_histogram_can_be_told_as_text() {
        let mut histogram = Histogram::default();
        assert_eq!(histogram.to_string(), "");
        [0, 5, 5, 900, u64::MAX].into_iter().for_each(|us| histogram.add(us));
        assert_eq!(histogram.to_string(), format!("0:1 5:2 896:1 {LONGEST_US}:1"));
        let mut told: Histogram = histogram.to_string().parse().expect("a histogram");
        assert_eq!(told, histogram);
        told.merge(&histogram);
        assert_eq!(told.count(), 10);
        for text in ["5", "5:", ":5", "9:1", "5:-1", "5:1,6:1", "5:18446744073709551615 5:1"] {
            assert_eq!(text.parse::<Histogram>(), Err(ParseHistogramError), "{text}");
        }
    }
}
