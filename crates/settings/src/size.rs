//! Sizes in bytes with their unit, as PostgreSQL's configuration has them (PostgreSQL: Setting Parameters, "Names and Values").
//!
//! Owns the spelling of the units.

use crate::value::{BadValue, Codec, ValueKind};

/// The units, as they are written, and the powers of two that they stand for.
const UNITS: [(&str, u32); 5] = [("TB", 40), ("GB", 30), ("MB", 20), ("kB", 10), ("B", 0)];

/// A number of bytes; None if the text is no whole number with a unit, in any case.
pub(crate) fn parse(text: &str) -> Option<Result<u64, BadValue>> {
    let lower = text.trim().to_ascii_lowercase();
    let with_unit = |(unit, shift): &(&str, u32)| {
        lower.strip_suffix(&unit.to_ascii_lowercase()).map(|number| (number.trim_end().to_owned(), *shift))
    };
    let (number, shift) = UNITS.iter().find_map(with_unit)?;
    let bytes = number
        .parse::<u64>()
        .ok()
        .and_then(|number| number.checked_shl(shift).filter(|bytes| bytes >> shift == number));
    Some(bytes.ok_or(BadValue::NotASize))
}

/// In the largest unit of which it is a whole number.
pub(crate) fn show(bytes: u64) -> String {
    let fits = |(_, shift): &&(&str, u32)| bytes.trailing_zeros() >= *shift;
    let (unit, shift) = UNITS.iter().find(fits).copied().unwrap_or(("B", 0));
    format!("{}{unit}", bytes >> shift)
}

/// A size; 0 needs no unit.
pub(crate) struct Size;

impl Codec for Size {
    type Value = u64;
    const KIND: ValueKind = ValueKind::Size;

    fn read(text: &str) -> Result<u64, BadValue> {
        match parse(text) {
            Some(read) => read,
            None if text.trim().parse() == Ok(0) => Ok(0),
            None => Err(BadValue::NotASize),
        }
    }

    fn show(value: &u64) -> Option<String> {
        Some(if *value == 0 { "0".to_owned() } else { show(*value) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units_and_zero_needs_none() {
        for (text, bytes, shown) in [
            ("0", 0, "0"),
            ("0MB", 0, "0"),
            ("64MB", 64 << 20, "64MB"),
            ("64 mb", 64 << 20, "64MB"),
            ("1536kB", 1536 << 10, "1536kB"),
            ("1025b", 1025, "1025B"),
            ("2TB", 2 << 40, "2TB"),
        ] {
            assert_eq!((Size::read(text), Size::show(&bytes).as_deref()), (Ok(bytes), Some(shown)), "{text}");
        }
        for text in ["", "64", "-1MB", "1.5MB", "64M", "99999999999TB", "MB"] {
            assert_eq!(Size::read(text), Err(BadValue::NotASize), "{text}");
        }
    }
}
