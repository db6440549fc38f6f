//! Values of pgpool.conf: booleans, whole numbers, times and sizes with their units. Never guesses: what is none of these is `None`.

/// A boolean, or the beginning of one that could be no other.
pub(crate) fn boolean(text: &str) -> Option<bool> {
    const WORDS: [(&str, bool); 6] =
        [("on", true), ("off", false), ("true", true), ("false", false), ("yes", true), ("no", false)];
    let text = text.to_ascii_lowercase();
    match text.as_str() {
        "" | "o" => None,
        "1" => Some(true),
        "0" => Some(false),
        _ => WORDS.iter().find(|(word, _)| word.starts_with(&text)).map(|(_, value)| *value),
    }
}

/// A whole number that is not negative, in decimal, hexadecimal (`0x`) or octal (`0`).
pub(crate) fn whole(text: &str) -> Option<u64> {
    let text = text.trim_ascii();
    let (digits, radix) = match text.as_bytes() {
        [b'0', b'x' | b'X', ..] => (&text[2..], 16),
        [b'0', _, ..] => (&text[1..], 8),
        _ => (text, 10),
    };
    let is_number = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_number.then(|| u64::from_str_radix(digits, radix).ok()).flatten()
}

/// A number with one of these units, in the first of them; without a unit it is in `default`.
fn measured(text: &str, units: &[(&str, f64)], default: f64) -> Option<f64> {
    let text = text.trim_ascii();
    let end = text.find(|letter: char| !(letter.is_ascii_digit() || letter == '.')).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let factor = match unit.trim_ascii() {
        "" => default,
        unit => units.iter().find(|(name, _)| *name == unit)?.1,
    };
    let number: f64 = number.parse().ok()?;
    Some(number * factor).filter(|value| value.is_finite())
}

/// A time in seconds. `default` is the length of a unit that is not written, in seconds.
pub(crate) fn seconds(text: &str, default: f64) -> Option<f64> {
    const UNITS: [(&str, f64); 6] =
        [("us", 1e-6), ("ms", 1e-3), ("s", 1.0), ("min", 60.0), ("h", 3600.0), ("d", 86_400.0)];
    // A time beyond what 32 bits hold in seconds is no time that anybody means.
    measured(text, &UNITS, default).filter(|value| *value <= f64::from(i32::MAX))
}

/// A size in bytes.
pub(crate) fn bytes(text: &str) -> Option<f64> {
    const KIB: f64 = 1024.0;
    const UNITS: [(&str, f64); 5] =
        [("B", 1.0), ("kB", KIB), ("MB", KIB * KIB), ("GB", KIB * KIB * KIB), ("TB", KIB * KIB * KIB * KIB)];
    // Positions in the WAL have 64 bits; beyond 2^53 a number of bytes is not exact.
    measured(text, &UNITS, 1.0).map(f64::round).filter(|value| *value <= 9_007_199_254_740_992.0)
}

/// A share of the reads.
pub(crate) fn weight(text: &str) -> Option<f64> {
    measured(text, &[], 1.0)
}

/// The nearest whole number of one that is not negative.
pub(crate) fn rounded(number: f64) -> u64 {
    format!("{number:.0}").parse().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn booleans_may_be_shortened_as_far_as_they_are_clear() {
        for text in ["on", "ON", "t", "true", "y", "yes", "1"] {
            assert_eq!(boolean(text), Some(true), "{text}");
        }
        for text in ["off", "of", "f", "false", "n", "no", "0"] {
            assert_eq!(boolean(text), Some(false), "{text}");
        }
        for text in ["", "o", "2", "onn", "maybe"] {
            assert_eq!(boolean(text), None, "{text}");
        }
    }

    #[test]
    fn whole_numbers_have_no_sign_and_no_unit() {
        assert_eq!(
            (whole("32"), whole("0x1F"), whole("0777"), whole("0")),
            (Some(32), Some(31), Some(511), Some(0))
        );
        for text in ["", "-1", "+1", "1.5", "many", "08", "0x", "99999999999999999999", "\u{ff11}"] {
            assert_eq!(whole(text), None, "{text}");
        }
    }

    #[test]
    fn times_and_sizes_have_units() {
        for (text, value) in
            [("60", 60.0), ("1min", 60.0), ("500ms", 0.5), ("1.5 h", 5400.0), ("1d", 86_400.0), ("0", 0.0)]
        {
            assert_eq!(seconds(text, 1.0), Some(value), "{text}");
        }
        assert_eq!(seconds("10000", 0.001), Some(10.0));
        for text in ["", "s", "-1", "1 fortnight", "1MB", "1.2.3", "1e9", "inf", "99999999999999"] {
            assert_eq!(seconds(text, 1.0), None, "{text}");
        }
        assert_eq!(
            (bytes("10000000"), bytes("10MB"), bytes("1 kB")),
            (Some(1e7), Some(10_485_760.0), Some(1024.0))
        );
        assert_eq!((bytes("1mb"), bytes("99999999TB"), bytes("")), (None, None, None));
    }
}
