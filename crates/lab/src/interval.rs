//! How sure a median is: the 95 % percentile bootstrap over the rounds, from a fixed seed, so that the same rounds
//! always give the same interval. And what follows for a bar: reached, not reached, or not to be told.

use crate::figures::median;

/// Fewer rounds than this say nothing about how far they scatter.
const FEWEST: usize = 3;
const RESAMPLES: usize = 10_000;
const SEED: u64 = 0x5eed_0f77_e1e5;

/// Between these two the median lies, with 95 % confidence.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// Two and a half in a hundred resampled medians are below.
    pub low: f64,
    /// As many are above.
    pub high: f64,
}

impl Interval {
    /// Of the median of `values`; `None` of fewer than three.
    pub fn of(values: &[f64]) -> Option<Self> {
        if values.len() < FEWEST {
            return None;
        }
        let mut random = SplitMix(SEED);
        let mut resample = vec![0.0; values.len()];
        let mut medians = Vec::with_capacity(RESAMPLES);
        for _ in 0..RESAMPLES {
            for place in &mut resample {
                *place = values[random.below(values.len())];
            }
            medians.extend(median(&resample));
        }
        medians.sort_by(f64::total_cmp);
        let at = |of_thousand: usize| medians.get(RESAMPLES * of_thousand / 1000).copied();
        Some(Self { low: at(25)?, high: at(975)? })
    }

    /// Whether the difference is not significant: the ratio may be 1.
    pub fn is_tie(self) -> bool {
        self.low <= 1.0 && self.high >= 1.0
    }
}

/// What a figure has to be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Limit {
    /// This or less.
    AtMost(f64),
    /// Less than this.
    Below(f64),
    /// This or more.
    AtLeast(f64),
}

/// Whether it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// The whole interval is on the good side.
    Reached,
    /// The whole interval is on the other.
    NotReached,
    /// The interval holds the bar, or there is none.
    CannotTell,
}

impl Limit {
    /// As a report has it.
    pub fn text(self) -> String {
        match self {
            Self::AtMost(bar) => format!("≤ {bar}"),
            Self::Below(bar) => format!("< {bar}"),
            Self::AtLeast(bar) => format!("≥ {bar}"),
        }
    }

    /// Judges by the whole interval, not by its middle.
    pub fn judge(self, interval: Option<Interval>) -> Comparison {
        let Some(Interval { low, high }) = interval else { return Comparison::CannotTell };
        let (reached, missed) = match self {
            Self::AtMost(bar) => (high <= bar, low > bar),
            Self::Below(bar) => (high < bar, low >= bar),
            Self::AtLeast(bar) => (low >= bar, high < bar),
        };
        match (reached, missed) {
            (true, _) => Comparison::Reached,
            (_, true) => Comparison::NotReached,
            _ => Comparison::CannotTell,
        }
    }
}

impl Comparison {
    /// As a report has it.
    pub fn text(self) -> &'static str {
        match self {
            Self::Reached => "reached",
            Self::NotReached => "NOT reached",
            Self::CannotTell => "can't tell",
        }
    }
}

/// SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014).
#[derive(Clone, Debug)]
pub struct SplitMix(pub u64);

impl SplitMix {
    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`, or 0.
    pub fn below(&mut self, bound: usize) -> usize {
        let wide = u128::from(self.bits()) * bound as u128;
        usize::try_from(wide >> 64).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_is_around_the_median_and_always_the_same() {
        let values = [0.50, 0.52, 0.51, 0.60, 0.49, 0.53, 0.52];
        let interval = Interval::of(&values);
        assert_eq!(interval, Interval::of(&values));
        let Some(Interval { low, high }) = interval else { panic!("no interval") };
        assert!((0.49..=0.52).contains(&low) && (0.52..=0.60).contains(&high), "{low} {high}");
        assert_eq!(Interval::of(&[1.0; 5]), Some(Interval { low: 1.0, high: 1.0 }));
        assert_eq!(Interval::of(&[1.0, 2.0]), None);
    }

    #[test]
    fn a_bar_inside_the_interval_cannot_be_judged() {
        let found = Some(Interval { low: 0.5, high: 0.6 });
        assert_eq!(Limit::AtMost(0.6).judge(found), Comparison::Reached);
        assert_eq!(Limit::AtMost(0.55).judge(found), Comparison::CannotTell);
        assert_eq!(Limit::AtMost(0.49).judge(found), Comparison::NotReached);
        assert_eq!(Limit::Below(0.6).judge(found), Comparison::CannotTell);
        assert_eq!(Limit::AtLeast(0.5).judge(found), Comparison::Reached);
        assert_eq!(Limit::AtLeast(0.7).judge(found), Comparison::NotReached);
        assert_eq!(Limit::AtLeast(0.5).judge(None), Comparison::CannotTell);
        assert!(Interval { low: 0.9, high: 1.1 }.is_tie() && !Interval { low: 0.5, high: 0.6 }.is_tie());
    }

    #[test]
    fn random_numbers_reach_every_place() {
        let mut random = SplitMix(1);
        let mut seen = [0; 5];
        (0..1000).for_each(|_| seen[random.below(5)] += 1);
        assert!(seen.iter().all(|count| *count > 100), "{seen:?}");
        assert_eq!(random.below(0), 0);
    }
}
