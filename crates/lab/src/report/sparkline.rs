//! A row of figures as one line of text: eight heights of a block, from zero to the largest. Never longer than asked.

const HEIGHTS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// The figures in at most `width` letters: where there are more figures than letters, a letter is the mean of its
/// share. What is no number is a blank.
#[must_use]
pub fn sparkline(values: &[f64], width: usize) -> String {
    let top = values.iter().copied().filter(|value| value.is_finite()).fold(0.0, f64::max);
    buckets(values, width).map(|value| letter(value, top)).collect()
}

fn buckets(values: &[f64], width: usize) -> impl Iterator<Item = Option<f64>> + '_ {
    let letters = width.min(values.len());
    (0..letters).map(move |place| {
        let share = &values[place * values.len() / letters..(place + 1) * values.len() / letters];
        let known: Vec<f64> = share.iter().copied().filter(|value| value.is_finite()).collect();
        (!known.is_empty()).then(|| known.iter().sum::<f64>() / known.len() as f64)
    })
}

fn letter(value: Option<f64>, top: f64) -> char {
    let Some(value) = value else { return ' ' };
    let part = if top > 0.0 { value / top } else { 0.0 };
    let steps = (0..HEIGHTS.len()).filter(|step| part * 8.0 > *step as f64).count();
    HEIGHTS[steps.saturating_sub(1)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heights_go_from_zero_to_the_largest() {
        assert_eq!(sparkline(&[0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0], 20), "▁▁▂▃▄▅▆▇█");
        assert_eq!(sparkline(&[0.0, 0.0], 5), "▁▁");
        assert_eq!(sparkline(&[f64::NAN, 5.0, -1.0], 5), " █▁");
    }

    #[test]
    fn many_figures_share_a_letter_and_none_is_lost() {
        let rising: Vec<f64> = (1..=100).map(f64::from).collect();
        let line = sparkline(&rising, 10);
        assert_eq!(line.chars().count(), 10);
        assert!(line.starts_with('▁') && line.ends_with('█'), "{line}");
        assert_eq!(sparkline(&rising, 0), "");
        assert_eq!(sparkline(&[], 10), "");
    }
}
