//! One limit: soft, hard and grace, as they are written.

use std::fmt;

use crate::resource::Resource;

/// How long a soft limit may be exceeded where a line does not say: seven days, as with Linux's quotas.
pub const DEFAULT_GRACE_S: u64 = 7 * 86_400;

/// The longest grace time: ten years.
const LONGEST_GRACE_S: u64 = 3_650 * 86_400;

/// The limits of one subject for one resource, in the file's units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// May be exceeded for the grace time; 0 is none.
    pub soft: u64,
    /// May not be exceeded; 0 is none.
    pub hard: u64,
    /// How long, in seconds; 0 does not end: the soft limit only warns.
    pub grace_s: u64,
    /// Of storage: DELETE, TRUNCATE and DROP are allowed above the limit, so that it can be freed.
    pub allows_delete: bool,
}

impl Limit {
    /// Whether it limits nothing: what such a line says is that the default does not count.
    #[must_use]
    pub fn is_none(&self) -> bool {
        self.soft == 0 && self.hard == 0
    }

    /// What no limit may be.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn validate(self) -> Result<Limit, String> {
        if self.soft > self.hard && self.hard > 0 {
            return Err(format!("soft limit {} is above the hard limit {}", self.soft, self.hard));
        }
        Ok(self)
    }
}

/// As the file of quotas has it.
impl fmt::Display for Limit {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "soft={} hard={}", self.soft, self.hard)?;
        if self.grace_s != DEFAULT_GRACE_S {
            write!(out, " grace={}", grace(self.grace_s))?;
        }
        if self.allows_delete { out.write_str(" allow=delete") } else { Ok(()) }
    }
}

/// A time in its largest whole unit.
pub(crate) fn grace(seconds: u64) -> String {
    for (unit, length) in [("d", 86_400), ("h", 3_600), ("m", 60)] {
        if seconds > 0 && seconds.is_multiple_of(length) {
            return format!("{}{unit}", seconds / length);
        }
    }
    format!("{seconds}s")
}

/// Reads a figure of a resource: bytes may be in K, M, G or T.
pub(crate) fn figure(text: &str, resource: Resource) -> Result<u64, String> {
    let (digits, factor) = match text.char_indices().next_back() {
        Some((at, unit)) if resource.is_in_bytes() && !unit.is_ascii_digit() => {
            let power = "KMGT".find(unit.to_ascii_uppercase()).and_then(|power| u32::try_from(power).ok());
            (&text[..at], power.map(|power| 1_u64 << (10 * (power + 1))))
        }
        _ => (text, Some(1)),
    };
    let is_number = !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit());
    let (Some(factor), true) = (factor, is_number) else {
        let units = if resource.is_in_bytes() { ", with K, M, G or T behind it or not" } else { "" };
        return Err(format!("invalid figure \"{text}\": must be a whole number of 0 or more{units}"));
    };
    let highest = resource.highest_limit();
    let figure = digits.parse::<u64>().ok().and_then(|figure| figure.checked_mul(factor));
    figure
        .filter(|figure| *figure <= highest)
        .ok_or_else(|| format!("figure \"{text}\" is too high for {}: at most {highest}", resource.word()))
}

/// Reads a grace time: seconds, or a number with s, m, h, d or w behind it.
pub(crate) fn grace_time(text: &str) -> Result<u64, String> {
    let (digits, unit) = match text.char_indices().next_back() {
        Some((at, unit)) if !unit.is_ascii_digit() => {
            let units = [('s', 1), ('m', 60), ('h', 3_600), ('d', 86_400), ('w', 604_800)];
            (&text[..at], units.into_iter().find(|(name, _)| *name == unit).map(|(_, length)| length))
        }
        _ => (text, Some(1)),
    };
    let is_number = !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit());
    let (Some(unit), true) = (unit, is_number) else {
        return Err(format!(
            "invalid grace time \"{text}\": must be a whole number with s, m, h, d or w behind it"
        ));
    };
    let seconds = digits.parse::<u64>().ok().and_then(|number| number.checked_mul(unit));
    seconds
        .filter(|seconds| *seconds <= LONGEST_GRACE_S)
        .ok_or_else(|| format!("grace time \"{text}\" is too long: at most {}", grace(LONGEST_GRACE_S)))
}
