//! What is known of the throughput at each size that a pool may have: ratios between sizes, apart from a level that all have in common.
//!
//! Owns the arithmetic: each measurement is divided between the level (the load or the machine has changed, for every size alike) and the size that was
//! measured, by how uncertain each of them is (a Kalman filter without covariances). What is known grows uncertain with time. Logarithms throughout.

/// Sizes grow by this factor, at least by one.
const STEP: f64 = 1.4;

/// The standard deviation of a size of which nothing is known.
const UNKNOWN: f64 = 0.5;

/// That of one which was known before the load changed: a guess.
const DOUBTFUL: f64 = 0.2;

/// Up to this standard deviation a size counts as known.
const KNOWN: f64 = 0.08;

/// The load has changed if a size gives this much more or less than expected, and by this many standard deviations.
const CHANGED: f64 = 0.09;
const CHANGED_DEVIATIONS: f64 = 3.0;

/// By how much, in a second, the level may drift and a ratio may change (standard deviations).
const LEVEL_DRIFT: f64 = 0.02;
const RATIO_DRIFT: f64 = 0.015;

/// One size.
#[derive(Clone, Copy, Debug)]
struct Estimate {
    size: u32,
    /// The logarithm of its throughput, without the level.
    ratio: f64,
    variance: f64,
}

/// All sizes, from the least to the largest.
#[derive(Clone, Debug)]
pub(super) struct Estimates {
    sizes: Vec<Estimate>,
    /// None before the first measurement.
    level: Option<f64>,
    level_variance: f64,
}

impl Estimates {
    /// Sizes from `min` to `max`, `size` among them. Nothing is known.
    pub(super) fn new(min: u32, max: u32, size: u32) -> Estimates {
        let unknown = |size| Estimate { size, ratio: 0.0, variance: UNKNOWN * UNKNOWN };
        let mut sizes = vec![min];
        let mut next = min;
        while next < max {
            next = larger(next).min(max);
            sizes.push(next);
        }
        if !sizes.contains(&size) {
            sizes.push(size);
            sizes.sort_unstable();
        }
        Estimates { sizes: sizes.into_iter().map(unknown).collect(), level: None, level_variance: 0.0 }
    }

    /// The place of the largest size that is not above this one.
    pub(super) fn place_of(&self, size: u32) -> usize {
        self.sizes.partition_point(|estimate| estimate.size <= size).saturating_sub(1)
    }

    pub(super) fn size(&self, place: usize) -> u32 {
        self.sizes[place].size
    }

    pub(super) fn last(&self) -> usize {
        self.sizes.len() - 1
    }

    /// So much time has passed.
    pub(super) fn pass(&mut self, seconds: f64) {
        self.level_variance += LEVEL_DRIFT * LEVEL_DRIFT * seconds;
        for estimate in &mut self.sizes {
            estimate.variance =
                (estimate.variance + RATIO_DRIFT * RATIO_DRIFT * seconds).min(UNKNOWN * UNKNOWN);
        }
    }

    /// A measurement of one size: the logarithm of its throughput, and its variance. By how many standard deviations, and by how much, it differs
    /// from what was expected; nothing of a size of which nothing was known.
    pub(super) fn measured(&mut self, place: usize, log: f64, variance: f64) -> Surprise {
        let Some(level) = self.level else {
            (self.level, self.level_variance) = (Some(log), variance);
            self.sizes[place].ratio = 0.0;
            self.sizes[place].variance = 0.0;
            return Surprise::default();
        };
        let estimate = &mut self.sizes[place];
        let difference = log - level - estimate.ratio;
        if estimate.variance >= UNKNOWN * UNKNOWN {
            estimate.ratio += difference;
            estimate.variance = variance + self.level_variance;
            return Surprise::default();
        }
        let total = self.level_variance + estimate.variance + variance;
        let (of_ratio, of_level) = (estimate.variance / total, self.level_variance / total);
        estimate.ratio += of_ratio * difference;
        estimate.variance *= 1.0 - of_ratio;
        self.level = Some(level + of_level * difference);
        self.level_variance *= 1.0 - of_level;
        Surprise { difference, deviations: difference.abs() / total.sqrt() }
    }

    /// The load is another one, of which this size was measured: what is known of the others is a guess.
    pub(super) fn shift(&mut self, place: usize, log: f64, variance: f64) {
        self.doubt();
        self.level = Some(log - self.sizes[place].ratio);
        self.level_variance = variance;
        self.sizes[place].variance = 0.0;
    }

    /// One size gives another part than before of what the present one gives: so may all others. `gain` is how much more that is, as a logarithm.
    pub(super) fn bend(&mut self, (place, base): (usize, usize), gain: f64, variance: f64) {
        let kept = self.sizes[base].variance;
        self.doubt();
        self.sizes[base].variance = kept;
        self.sizes[place].ratio = self.sizes[base].ratio + gain;
        self.sizes[place].variance = variance + self.level_variance;
    }

    /// The one before it has turned out better than the one before that: so may this.
    pub(super) fn doubt_one(&mut self, place: usize) {
        if let Some(estimate) = self.sizes.get_mut(place) {
            estimate.variance = estimate.variance.max(DOUBTFUL * DOUBTFUL);
        }
    }

    fn doubt(&mut self) {
        for estimate in &mut self.sizes {
            estimate.variance = estimate.variance.max(DOUBTFUL * DOUBTFUL);
        }
    }

    /// What one size is expected to give, as a logarithm.
    pub(super) fn expected(&self, place: usize) -> Option<f64> {
        self.level.map(|level| level + self.sizes[place].ratio)
    }

    /// By how much the first gives more than the second, and the standard deviation of that.
    pub(super) fn gain(&self, place: usize, over: usize) -> (f64, f64) {
        let (one, other) = (&self.sizes[place], &self.sizes[over]);
        (one.ratio - other.ratio, (one.variance + other.variance).sqrt())
    }

    /// By how much the best size that is known gives more than this one, with some doubt in its favour.
    pub(super) fn loss(&self, place: usize) -> f64 {
        let known = self.sizes.iter().filter(|estimate| estimate.variance < KNOWN * KNOWN);
        let best = known.map(|estimate| estimate.ratio - 0.5 * estimate.variance.sqrt());
        best.fold(0.0, |best: f64, ratio| best.max(ratio - self.sizes[place].ratio))
    }

    /// A size may give so much more than another one, for all that is known.
    pub(super) fn may_gain(&self, place: usize, over: usize, least: f64) -> bool {
        let (gain, deviation) = self.gain(place, over);
        self.is_unknown(place) || gain + 1.5 * deviation > least
    }

    /// Nothing is known of it, or too little since the load has changed.
    pub(super) fn is_unknown(&self, place: usize) -> bool {
        self.sizes[place].variance >= DOUBTFUL * DOUBTFUL
    }

    /// The steps between two sizes, of which each multiplies by 1.4.
    pub(super) fn steps(&self, place: usize, other: usize) -> f64 {
        let ratio = f64::from(self.sizes[place].size) / f64::from(self.sizes[other].size);
        ratio.ln().abs() / STEP.ln()
    }
}

/// How far a measurement is from what was expected.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Surprise {
    pub(super) difference: f64,
    pub(super) deviations: f64,
}

impl Surprise {
    /// The load has changed.
    pub(super) fn is_change(self) -> bool {
        self.difference.abs() > CHANGED && self.deviations > CHANGED_DEVIATIONS
    }
}

/// The next larger size.
fn larger(size: u32) -> u32 {
    let most = f64::from(size) * STEP;
    size.saturating_add(1).max(whole(most))
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // Within the bounds of a pool's size.
fn whole(number: f64) -> u32 {
    number.round().clamp(0.0, f64::from(i32::MAX)) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_grow_by_little_steps_and_end_at_the_bounds() {
        let sizes = |min, max, size| {
            let all = Estimates::new(min, max, size);
            (0..=all.last()).map(|place| all.size(place)).collect::<Vec<_>>()
        };
        assert_eq!(sizes(1, 20, 1), [1, 2, 3, 4, 6, 8, 11, 15, 20]);
        assert_eq!(sizes(2, 5, 5), [2, 3, 4, 5]);
        assert_eq!(sizes(4, 12, 7), [4, 6, 7, 8, 11, 12]);
        assert_eq!(sizes(3, 3, 3), [3]);
        assert_eq!(Estimates::new(1, 20, 1).place_of(7), 4);
    }

    #[test]
    fn what_all_sizes_have_in_common_is_no_difference_between_them() {
        let mut all = Estimates::new(1, 4, 1);
        all.measured(0, 0.0, 0.0004);
        all.measured(1, 0.5, 0.0004);
        // The machine is slower for everyone: measured at one size, expected at the other.
        all.pass(60.0);
        all.measured(1, 0.2, 0.0004);
        assert!((all.gain(1, 0).0 - 0.5).abs() < 0.15, "{:?}", all.gain(1, 0));
        assert!(all.expected(0).is_some_and(|expected| expected < -0.15));
    }

    #[test]
    fn what_is_known_grows_doubtful_with_time() {
        let mut all = Estimates::new(1, 4, 1);
        all.measured(0, 0.0, 0.0004);
        all.measured(1, -0.3, 0.0004);
        assert!(!all.may_gain(1, 0, 0.0));
        all.pass(3_600.0);
        assert!(all.may_gain(1, 0, 0.0));
    }
}
