//! Up, then down: the least-squares curve with one summit through weighted values (isotonic regression by pooling adjacent
//! violators, Barlow and others, "Statistical Inference under Order Restrictions", 1972; once for each place of the
//! summit). Pure arithmetic; knows nothing of what the values mean.

/// Neighbours that share one level.
#[derive(Clone, Copy, Debug)]
struct Block {
    level: f64,
    weight: f64,
    length: usize,
}

/// The nearest values that rise to one of them and fall behind it. `weights` are above zero, one for each value.
pub(super) fn unimodal(values: &[f64], weights: &[f64]) -> Vec<f64> {
    let curves = (0..values.len()).map(|summit| with_summit(values, weights, summit));
    let nearest = curves.map(|curve| (distance(&curve, values, weights), curve));
    nearest.min_by(|one, other| one.0.total_cmp(&other.0)).map(|(_, curve)| curve).unwrap_or_default()
}

/// The summit is the last of those that rise.
fn with_summit(values: &[f64], weights: &[f64], summit: usize) -> Vec<f64> {
    let pairs: Vec<(f64, f64)> = values.iter().copied().zip(weights.iter().copied()).collect();
    let (before, behind) = pairs.split_at(summit + 1);
    let mut curve = rising(before.iter().copied());
    let falling = rising(behind.iter().rev().copied());
    curve.extend(falling.into_iter().rev());
    curve
}

/// The nearest values of which none is below the one before it.
fn rising(pairs: impl Iterator<Item = (f64, f64)>) -> Vec<f64> {
    let mut blocks: Vec<Block> = Vec::new();
    for (level, weight) in pairs {
        let mut last = Block { level, weight, length: 1 };
        while let Some(before) = blocks.pop_if(|before| before.level > last.level) {
            last = before.with(last);
        }
        blocks.push(last);
    }
    blocks.iter().flat_map(|block| std::iter::repeat_n(block.level, block.length)).collect()
}

impl Block {
    fn with(self, other: Self) -> Self {
        let weight = self.weight + other.weight;
        let level = (self.level * self.weight + other.level * other.weight) / weight;
        Self { level, weight, length: self.length + other.length }
    }
}

fn distance(curve: &[f64], values: &[f64], weights: &[f64]) -> f64 {
    let squares =
        curve.iter().zip(values).zip(weights).map(|((at, value), weight)| weight * (at - value).powi(2));
    squares.sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interval::SplitMix;

    fn plain(values: &[f64]) -> Vec<f64> {
        unimodal(values, &vec![1.0; values.len()])
    }

    #[test]
    fn one_summit_stays_as_it_is() {
        for values in
            [&[1.0, 2.0, 4.0, 3.0, 0.5][..], &[1.0, 2.0, 3.0], &[3.0, 2.0, 1.0], &[2.0, 2.0], &[7.0], &[]]
        {
            assert_eq!(plain(values), values);
        }
    }

    #[test]
    fn a_dip_is_shared_with_its_neighbours() {
        assert_eq!(plain(&[1.0, 4.0, 3.0, 5.0, 2.0]), [1.0, 3.5, 3.5, 5.0, 2.0]);
        assert_eq!(plain(&[5.0, 2.0, 3.0, 1.0]), [5.0, 2.5, 2.5, 1.0]);
        let heavy = unimodal(&[1.0, 4.0, 3.0, 5.0], &[1.0, 3.0, 1.0, 1.0]);
        assert_eq!(heavy, [1.0, 3.75, 3.75, 5.0]);
    }

    #[test]
    fn no_other_curve_with_one_summit_is_nearer() {
        let mut random = SplitMix(5);
        for _ in 0..200 {
            let mut draw = || random.below(1000) as f64 / 100.0;
            let values: Vec<f64> = (0..6).map(|_| draw()).collect();
            let other: Vec<f64> = (0..6).map(|_| draw()).collect();
            let weights = vec![1.0; 6];
            let curve = plain(&values);
            let summit =
                curve.iter().position(|at| *at >= curve.iter().copied().fold(0.0, f64::max)).expect("one");
            assert!(curve[..=summit].is_sorted() && curve[summit..].is_sorted_by(|one, other| one >= other));
            let other = unimodal(&other, &weights);
            assert!(distance(&curve, &values, &weights) <= distance(&other, &values, &weights) + 1e-9);
        }
    }
}
