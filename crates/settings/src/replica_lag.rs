//! How far a standby may be behind its primary, in time or in bytes of WAL.
//!
//! Owns the spelling. What is compared with it is `pool`'s.

use std::time::Duration;

use crate::codec::Seconds;
use crate::value::{BadValue, Codec, ValueKind};

/// The units of bytes, as PostgreSQL's configuration has them.
const UNITS: [(&str, u32); 5] = [("tb", 40), ("gb", 30), ("mb", 20), ("kb", 10), ("b", 0)];

/// The most lag of a standby that serves reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReplicaLag {
    /// Any.
    #[default]
    Unlimited,
    /// What was written before this time has been replayed.
    Time(Duration),
    /// So many bytes of WAL have not been replayed.
    Bytes(u64),
}

impl Codec for ReplicaLag {
    type Value = ReplicaLag;
    const KIND: ValueKind = ValueKind::Lag;

    fn read(text: &str) -> Result<ReplicaLag, BadValue> {
        let lower = text.trim().to_ascii_lowercase();
        let with_unit =
            UNITS.iter().find_map(|(unit, shift)| lower.strip_suffix(unit).map(|number| (number, *shift)));
        if let Some((number, shift)) = with_unit {
            let number: u64 = number.trim_end().parse().map_err(|_| BadValue::NotALag)?;
            let bytes = number.checked_shl(shift).filter(|bytes| bytes >> shift == number);
            return bytes.map(|bytes| limit(bytes, ReplicaLag::Bytes(bytes))).ok_or(BadValue::NotALag);
        }
        let (number, parts) = match (lower.strip_suffix("ms"), lower.strip_suffix('s')) {
            (Some(number), _) => (number, 1_000),
            (None, Some(number)) => (number, 1),
            (None, None) => (lower.as_str(), 1),
        };
        let time = Seconds::read(number.trim_end()).map_err(|_| BadValue::NotALag)? / parts;
        Ok(limit(u64::from(!time.is_zero()), ReplicaLag::Time(time)))
    }

    fn show(value: &ReplicaLag) -> Option<String> {
        Some(match value {
            ReplicaLag::Unlimited => "0".to_owned(),
            ReplicaLag::Time(time) => time.as_secs_f64().to_string(),
            ReplicaLag::Bytes(bytes) => {
                let fits = |(_, shift): &&(&str, u32)| bytes.trailing_zeros() >= *shift;
                let (unit, shift) = UNITS.iter().find(fits).copied().unwrap_or(("b", 0));
                format!("{}{}", bytes >> shift, if unit == "b" { "B" } else { unit_word(unit) })
            }
        })
    }
}

/// 0 is no limit.
fn limit(value: u64, lag: ReplicaLag) -> ReplicaLag {
    if value == 0 { ReplicaLag::Unlimited } else { lag }
}

/// As PostgreSQL writes it.
fn unit_word(unit: &str) -> &'static str {
    match unit {
        "kb" => "kB",
        "mb" => "MB",
        "gb" => "GB",
        _ => "TB",
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn times_and_bytes_are_told_by_their_units() {
        let time = |seconds| ReplicaLag::Time(Duration::from_secs_f64(seconds));
        let known = [
            ("0", ReplicaLag::Unlimited, "0"),
            ("0B", ReplicaLag::Unlimited, "0"),
            ("10", time(10.0), "10"),
            ("1.5s", time(1.5), "1.5"),
            ("250 ms", time(0.25), "0.25"),
            ("512B", ReplicaLag::Bytes(512), "512B"),
            ("16MB", ReplicaLag::Bytes(16 << 20), "16MB"),
            ("2048kb", ReplicaLag::Bytes(2 << 20), "2MB"),
            ("1 GB", ReplicaLag::Bytes(1 << 30), "1GB"),
            ("3TB", ReplicaLag::Bytes(3 << 40), "3TB"),
        ];
        for (text, lag, shown) in known {
            assert_eq!(
                (ReplicaLag::read(text), ReplicaLag::show(&lag).as_deref()),
                (Ok(lag), Some(shown)),
                "{text}"
            );
        }
        for text in ["", "many", "-1", "-1MB", "1.5MB", "99999999999TB", "16M", "inf"] {
            assert_eq!(ReplicaLag::read(text), Err(BadValue::NotALag), "{text}");
        }
    }
}
