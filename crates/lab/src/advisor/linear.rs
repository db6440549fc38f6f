//! Linear least squares for a handful of unknowns: the normal equations, each column scaled to length one first, by
//! Gaussian elimination with pivots. Pure arithmetic; knows nothing of what the columns mean.

/// A pivot below this means that the columns do not tell the unknowns apart.
const SINGULAR: f64 = 1e-12;

/// The unknowns for which `rows · unknowns` is nearest to `wanted`; `None` where the rows do not determine them.
pub(super) fn least_squares<const N: usize>(rows: &[[f64; N]], wanted: &[f64]) -> Option<[f64; N]> {
    let lengths: [f64; N] =
        std::array::from_fn(|column| rows.iter().map(|row| row[column].powi(2)).sum::<f64>().sqrt());
    if rows.len() < N || lengths.iter().any(|length| *length <= 0.0 || !length.is_finite()) {
        return None;
    }
    let mut equations = [[0.0; N]; N];
    let mut right = [0.0; N];
    for (row, wanted) in rows.iter().zip(wanted) {
        let scaled: [f64; N] = std::array::from_fn(|column| row[column] / lengths[column]);
        for line in 0..N {
            right[line] += scaled[line] * wanted;
            for column in 0..N {
                equations[line][column] += scaled[line] * scaled[column];
            }
        }
    }
    let solved = eliminate(equations, right)?;
    Some(std::array::from_fn(|column| solved[column] / lengths[column]))
}

fn eliminate<const N: usize>(mut equations: [[f64; N]; N], mut right: [f64; N]) -> Option<[f64; N]> {
    for step in 0..N {
        let pivot = (step..N)
            .max_by(|one, other| equations[*one][step].abs().total_cmp(&equations[*other][step].abs()))?;
        if equations[pivot][step].abs() < SINGULAR {
            return None;
        }
        equations.swap(step, pivot);
        right.swap(step, pivot);
        for line in step + 1..N {
            let above = equations[step];
            let factor = equations[line][step] / above[step];
            for (value, above) in equations[line].iter_mut().zip(above) {
                *value -= factor * above;
            }
            right[line] -= factor * right[step];
        }
    }
    for step in (0..N).rev() {
        let known: f64 = (step + 1..N).map(|column| equations[step][column] * right[column]).sum();
        right[step] = (right[step] - known) / equations[step][step];
    }
    Some(right)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exact_line_is_found_and_an_inexact_one_comes_near() {
        let rows = [[1.0, 0.0], [1.0, 1.0], [1.0, 2.0]];
        let [base, slope] = least_squares(&rows, &[3.0, 5.0, 7.0]).expect("determined");
        assert!((base - 3.0).abs() < 1e-9 && (slope - 2.0).abs() < 1e-9);
        let [base, slope] = least_squares(&rows, &[0.0, 3.0, 0.0]).expect("determined");
        assert!((base - 1.0).abs() < 1e-9 && slope.abs() < 1e-9);
    }

    #[test]
    fn what_is_not_determined_has_no_answer() {
        assert_eq!(least_squares(&[[1.0, 2.0], [2.0, 4.0], [3.0, 6.0]], &[1.0, 2.0, 3.0]), None);
        assert_eq!(least_squares(&[[1.0, 2.0]], &[1.0]), None);
        assert_eq!(least_squares(&[[0.0], [0.0]], &[1.0, 1.0]), None);
        assert_eq!(least_squares::<1>(&[], &[]), None);
    }

    #[test]
    fn columns_of_very_different_length_do_no_harm() {
        let rows: Vec<[f64; 3]> = (1..8).map(|n| [1.0, f64::from(n), f64::from(n).powi(9)]).collect();
        let wanted: Vec<f64> = rows.iter().map(|row| 2.0 + 3.0 * row[1] + 1e-6 * row[2]).collect();
        let [one, two, three] = least_squares(&rows, &wanted).expect("determined");
        assert!((one - 2.0).abs() < 1e-6 && (two - 3.0).abs() < 1e-6 && (three - 1e-6).abs() < 1e-12);
    }
}
