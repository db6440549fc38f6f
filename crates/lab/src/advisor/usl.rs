//! The Universal Scalability Law (Gunther, "Guerrilla Capacity Planning", 2007): what `n` connections do together is
//! X(n) = λ n / (1 + σ (n − 1) + κ n (n − 1)), where λ is what one does alone, σ what they wait for each other and κ
//! what they cost each other. Fits it to measured points. Never judges whether the fit is good enough.

use crate::advisor::linear::least_squares;

/// Throughput at a size: (connections, transactions a second).
pub(super) type Point = (f64, f64);

/// The law with its three numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Usl {
    /// λ: transactions a second of one connection alone.
    pub lambda: f64,
    /// σ: the part of the work that only one can do at a time, 0 to 1.
    pub sigma: f64,
    /// κ: what each pair of connections costs, 0 or more.
    pub kappa: f64,
}

/// n/X(n) is linear in these: `alone + waiting (n − 1) + crosstalk n (n − 1)`; λ, σ, κ follow from them.
#[derive(Clone, Copy, Debug)]
struct Slopes {
    alone: f64,
    waiting: f64,
    crosstalk: f64,
}

impl Usl {
    /// The law nearest to the points by their relative error, with σ in 0..=1 and κ not below 0. `None` without a
    /// point above zero.
    pub(super) fn fit(points: &[Point]) -> Option<Self> {
        let points: Vec<Point> =
            points.iter().copied().filter(|(size, tps)| *size >= 1.0 && *tps > 0.0).collect();
        let slopes = FACES
            .iter()
            .filter_map(|face| face(&points))
            .filter(|slopes| slopes.is_allowed())
            .min_by(|one, other| squared_error(one, &points).total_cmp(&squared_error(other, &points)))?;
        Some(Self {
            lambda: 1.0 / slopes.alone,
            sigma: slopes.waiting / slopes.alone,
            kappa: slopes.crosstalk / slopes.alone,
        })
    }

    /// Transactions a second that it foretells for `size` connections.
    #[must_use]
    pub fn tps(&self, size: f64) -> f64 {
        self.lambda * size / (1.0 + self.sigma * (size - 1.0) + self.kappa * size * (size - 1.0))
    }

    /// Where throughput is highest; `None` if it never falls again.
    #[must_use]
    pub fn peak_size(&self) -> Option<f64> {
        (self.kappa > 0.0).then(|| ((1.0 - self.sigma) / self.kappa).sqrt().max(1.0))
    }

    /// The highest throughput at sizes from `low` to `high`.
    pub(super) fn highest(&self, low: f64, high: f64) -> f64 {
        self.tps(self.peak_size().unwrap_or(high).clamp(low, high.max(low)))
    }

    /// How far the points are from it: the root of the mean square of the relative errors.
    pub(super) fn error(&self, points: &[Point]) -> f64 {
        let squares = points.iter().map(|(size, tps)| (tps / self.tps(*size) - 1.0).powi(2));
        (squares.sum::<f64>() / points.len().max(1) as f64).sqrt()
    }
}

impl Slopes {
    fn is_allowed(&self) -> bool {
        self.alone > 0.0 && self.waiting >= 0.0 && self.waiting <= self.alone && self.crosstalk >= 0.0
    }
}

/// The best slopes for points with some bounds holding with equality.
type Face = fn(&[Point]) -> Option<Slopes>;

/// The best slopes with none, some or all of the bounds holding with equality: as the problem is convex, the best
/// of those that are allowed is the best of all.
const FACES: [Face; 6] = [
    |points| {
        solve(points, [one, before, pairs]).map(|[alone, waiting, crosstalk]| Slopes {
            alone,
            waiting,
            crosstalk,
        })
    },
    |points| solve(points, [one, before]).map(|[alone, waiting]| Slopes { alone, waiting, crosstalk: 0.0 }),
    |points| solve(points, [one, pairs]).map(|[alone, crosstalk]| Slopes { alone, waiting: 0.0, crosstalk }),
    |points| solve(points, [one]).map(|[alone]| Slopes { alone, waiting: 0.0, crosstalk: 0.0 }),
    |points| {
        solve(points, [itself, pairs]).map(|[alone, crosstalk]| Slopes { alone, waiting: alone, crosstalk })
    },
    |points| solve(points, [itself]).map(|[alone]| Slopes { alone, waiting: alone, crosstalk: 0.0 }),
];

fn one(_: f64) -> f64 {
    1.0
}

fn before(size: f64) -> f64 {
    size - 1.0
}

fn pairs(size: f64) -> f64 {
    size * (size - 1.0)
}

/// Of `alone` where `waiting` is the same.
fn itself(size: f64) -> f64 {
    size
}

/// Each row is divided by the measured n/X, so that it is the relative errors that are made small.
fn solve<const N: usize>(points: &[Point], terms: [fn(f64) -> f64; N]) -> Option<[f64; N]> {
    let rows: Vec<[f64; N]> =
        points.iter().map(|(size, tps)| terms.map(|term| term(*size) * tps / size)).collect();
    least_squares(&rows, &vec![1.0; rows.len()])
}

fn squared_error(slopes: &Slopes, points: &[Point]) -> f64 {
    let foretold = |size: f64| slopes.alone + slopes.waiting * before(size) + slopes.crosstalk * pairs(size);
    points.iter().map(|(size, tps)| (foretold(*size) * tps / size - 1.0).powi(2)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve(law: Usl, sizes: &[f64]) -> Vec<Point> {
        sizes.iter().map(|size| (*size, law.tps(*size))).collect()
    }

    #[test]
    fn the_law_is_found_again_in_its_own_points() {
        for (lambda, sigma, kappa) in [(995.6, 0.0267, 0.000_769), (2000.0, 0.3, 0.01), (500.0, 0.0, 0.0)] {
            let law = Usl { lambda, sigma, kappa };
            let points = curve(law, &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0]);
            let found = Usl::fit(&points).expect("a fit");
            assert!((found.lambda / lambda - 1.0).abs() < 1e-6, "{found:?}");
            assert!((found.sigma - sigma).abs() < 1e-6 && (found.kappa - kappa).abs() < 1e-6, "{found:?}");
            assert!(found.error(&points) < 1e-6);
        }
    }

    #[test]
    fn the_peak_is_where_the_law_says() {
        let law = Usl { lambda: 1000.0, sigma: 0.1, kappa: 0.001 };
        let peak = law.peak_size().expect("a peak");
        assert!((peak - 30.0).abs() < 1e-9);
        assert!(law.tps(29.0) < law.tps(peak) && law.tps(31.0) < law.tps(peak));
        assert_eq!(law.highest(1.0, 64.0), law.tps(30.0));
        assert_eq!(law.highest(1.0, 10.0), law.tps(10.0));
        assert_eq!(Usl { kappa: 0.0, ..law }.peak_size(), None);
    }

    #[test]
    fn a_plateau_from_the_first_size_on_stays_one() {
        let found =
            Usl::fit(&[(10.0, 2500.0), (20.0, 2500.0), (40.0, 2500.0), (80.0, 2500.0)]).expect("a fit");
        assert!(
            (found.tps(15.0) - 2500.0).abs() < 1.0 && (found.tps(80.0) - 2500.0).abs() < 1.0,
            "{found:?}"
        );
    }

    #[test]
    fn what_falls_from_the_beginning_or_rises_too_fast_stays_in_bounds() {
        let falling = Usl::fit(&[(1.0, 100.0), (2.0, 60.0), (4.0, 30.0), (8.0, 12.0)]).expect("a fit");
        assert!(
            falling.sigma <= 1.0 && falling.kappa > 0.0 && falling.peak_size() == Some(1.0),
            "{falling:?}"
        );
        let superlinear = Usl::fit(&[(1.0, 100.0), (2.0, 250.0), (4.0, 600.0)]).expect("a fit");
        assert!(superlinear.sigma == 0.0 && superlinear.kappa == 0.0, "{superlinear:?}");
    }

    #[test]
    fn nothing_and_zeros_give_no_law() {
        assert_eq!(Usl::fit(&[]), None);
        assert_eq!(Usl::fit(&[(1.0, 0.0), (2.0, f64::NAN)]), None);
    }
}
