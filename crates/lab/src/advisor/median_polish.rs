//! What a size does, apart from what a round does and from chance: Tukey's median polish of the logarithms
//! (size + round + rest). Rounds are interleaved, so what the machine did in one of them goes out of the comparison, and
//! a single run that went wrong moves a median little. The rests say how far runs scatter.

use crate::figures::median;

/// Sweeps over rows and columns; a table of this kind is still after two or three.
const SWEEPS: usize = 10;

/// A table of runs, taken apart. All in logarithms.
#[derive(Clone, Debug, Default)]
pub(super) struct MedianPolish {
    /// What each row (size) does in the middling round; `None` without a run.
    pub(super) rows: Vec<Option<f64>>,
    /// How many runs each row has.
    pub(super) counts: Vec<usize>,
    /// What is left of each run, widened for what the fit has taken out of them.
    pub(super) rests: Vec<f64>,
    /// Rests that are free: runs less what was fitted.
    pub(super) freedom: usize,
}

/// Takes apart a table with a row for each size and a cell for each round; values are above zero.
pub(super) fn polish(table: &[Vec<Option<f64>>]) -> MedianPolish {
    let rounds = table.iter().map(Vec::len).max().unwrap_or_default();
    let mut rests: Vec<Vec<Option<f64>>> = (table.iter())
        .map(|row| (0..rounds).map(|round| row.get(round).copied().flatten().map(f64::ln)).collect())
        .collect();
    let mut row_effects = vec![0.0; table.len()];
    let mut round_effects = vec![0.0; rounds];
    for _ in 0..SWEEPS {
        for (row, effect) in rests.iter_mut().zip(&mut row_effects) {
            *effect += take_median(row.iter_mut());
        }
        for (round, effect) in round_effects.iter_mut().enumerate() {
            *effect += take_median(rests.iter_mut().map(|row| &mut row[round]));
        }
    }
    let middling = median(&round_effects).unwrap_or_default();
    let counts: Vec<usize> = rests.iter().map(|row| row.iter().flatten().count()).collect();
    let rows =
        row_effects.iter().zip(&counts).map(|(effect, count)| (*count > 0).then_some(effect + middling));
    let rows: Vec<Option<f64>> = rows.collect();
    let used_rounds = (0..rounds).filter(|round| rests.iter().any(|row| row[*round].is_some())).count();
    let runs: usize = counts.iter().sum();
    let fitted = rows.iter().flatten().count() + used_rounds.saturating_sub(1);
    let freedom = runs.saturating_sub(fitted);
    let widened = (runs as f64 / freedom.max(1) as f64).sqrt();
    let rests = rests.iter().flatten().flatten().map(|rest| rest * widened).collect();
    MedianPolish { rows, counts, rests, freedom }
}

/// Takes the median out of the values and returns it.
fn take_median<'a>(values: impl Iterator<Item = &'a mut Option<f64>>) -> f64 {
    let mut present: Vec<&mut f64> = values.filter_map(Option::as_mut).collect();
    let copies: Vec<f64> = present.iter().map(|value| **value).collect();
    let middle = median(&copies).unwrap_or_default();
    present.iter_mut().for_each(|value| **value -= middle);
    middle
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(sizes: &[f64], rounds: &[f64]) -> Vec<Vec<Option<f64>>> {
        sizes.iter().map(|size| rounds.iter().map(|round| Some(size * round)).collect()).collect()
    }

    #[test]
    fn a_slow_round_is_no_scatter() {
        let polished = polish(&table(&[1000.0, 2000.0, 3000.0, 2500.0], &[1.0, 0.7, 1.1]));
        let sizes: Vec<f64> = polished.rows.iter().flatten().map(|row| row.exp().round()).collect();
        assert_eq!(sizes, [1000.0, 2000.0, 3000.0, 2500.0]);
        assert!(polished.rests.iter().all(|rest| rest.abs() < 1e-9), "{:?}", polished.rests);
        assert_eq!(polished.freedom, 6);
    }

    #[test]
    fn one_bad_run_stays_in_its_rest() {
        let mut runs = table(&[1000.0, 2000.0, 3000.0], &[1.0, 1.0, 1.0]);
        runs[1][2] = Some(400.0);
        let polished = polish(&runs);
        assert!((polished.rows[1].expect("runs") - 2000_f64.ln()).abs() < 1e-9);
        assert_eq!(polished.rests.iter().filter(|rest| rest.abs() > 0.1).count(), 1);
    }

    #[test]
    fn missing_runs_are_no_zeros() {
        let polished =
            polish(&[vec![Some(100.0), None], vec![None, None], vec![], vec![Some(50.0), Some(50.0)]]);
        assert_eq!(polished.counts, [1, 0, 0, 2]);
        assert!(polished.rows[1].is_none() && polished.rows[2].is_none());
        assert_eq!(polish(&[]).freedom, 0);
    }
}
