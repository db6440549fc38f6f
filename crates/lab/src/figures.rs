//! Figures as a reader wants them: medians, ratios, thousands marked. Pure arithmetic and text.

/// The middle value, or the mean of the two middle ones; `None` of nothing.
#[must_use]
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted: Vec<f64> = values.iter().copied().filter(|value| value.is_finite()).collect();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        odd if odd % 2 == 1 => Some(sorted[middle]),
        _ => Some((sorted[middle - 1] + sorted[middle]) / 2.0),
    }
}

/// The median of those that have a value.
#[must_use]
pub fn median_of<T>(items: &[T], value: impl Fn(&T) -> Option<f64>) -> Option<f64> {
    median(&items.iter().filter_map(value).collect::<Vec<f64>>())
}

/// A whole number with its thousands marked: `12,345`.
#[must_use]
pub fn whole(value: f64) -> String {
    let digits = format!("{:.0}", value.abs());
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    if value <= -0.5 { format!("-{text}") } else { text }
}

/// About three significant digits: `0.123`, `4.56`, `78.9`, `1,234`.
#[must_use]
pub fn short(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => whole(value),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

/// A figure, or a dash where there is none.
#[must_use]
pub fn or_dash(value: Option<f64>, show: impl Fn(f64) -> String) -> String {
    value.map_or_else(|| "-".to_owned(), show)
}

/// A change in percent with its sign: `+33%`.
#[must_use]
pub fn change(from: f64, to: f64) -> String {
    if from <= 0.0 {
        return "-".to_owned();
    }
    let percent = (to / from - 1.0) * 100.0;
    if percent.abs() < 0.5 { "±0%".to_owned() } else { format!("{percent:+.0}%") }
}

/// A value over a base, as `0.52`; `None` without a base.
#[must_use]
pub fn ratio(value: Option<f64>, base: Option<f64>) -> Option<f64> {
    match (value, base) {
        (Some(value), Some(base)) if base > 0.0 => Some(value / base),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_is_found_in_any_order() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(median(&[f64::NAN, 1.0]), Some(1.0));
        assert_eq!(median(&[]), None);
        assert_eq!(median_of(&[1, 2, 3], |item| (*item > 1).then_some(f64::from(*item))), Some(2.5));
    }

    #[test]
    fn numbers_are_written_for_people() {
        assert_eq!(whole(0.0), "0");
        assert_eq!(whole(999.6), "1,000");
        assert_eq!(whole(1_234_567.0), "1,234,567");
        assert_eq!(whole(-12_345.0), "-12,345");
        assert_eq!(short(0.1234), "0.123");
        assert_eq!(short(4.567), "4.57");
        assert_eq!(short(78.94), "78.9");
        assert_eq!(short(1234.5), "1,234");
        assert_eq!(or_dash(None, whole), "-");
    }

    #[test]
    fn changes_and_ratios_need_a_base() {
        assert_eq!(change(258.0, 344.0), "+33%");
        assert_eq!(change(100.0, 99.8), "±0%");
        assert_eq!(change(0.0, 1.0), "-");
        assert_eq!(ratio(Some(1.0), Some(2.0)), Some(0.5));
        assert_eq!(ratio(Some(1.0), Some(0.0)), None);
        assert_eq!(ratio(None, Some(1.0)), None);
    }
}
