//! How far a standby may be behind its primary, in time or in bytes of WAL.
//!
//! Owns the spelling and the comparison.

use std::time::Duration;

use crate::codec::Seconds;
use crate::size;
use crate::value::{BadValue, Codec, ValueKind};

/// The most lag of a standby that serves reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReplicaLag {
    /// Any.
    #[default]
    Unlimited,
    /// What was written before this time has been replayed.
    Time(Duration),
    /// The bytes of WAL that have not been replayed.
    Bytes(u64),
}

impl ReplicaLag {
    /// A standby that is this many bytes and this long behind may serve reads; one whose lag is not known may if there is no limit.
    #[must_use]
    pub fn allows(self, lag: Option<(u64, Duration)>) -> bool {
        match (self, lag) {
            (ReplicaLag::Unlimited, _) => true,
            (_, None) => false,
            (ReplicaLag::Time(most), Some((_, time))) => time <= most,
            (ReplicaLag::Bytes(most), Some((bytes, _))) => bytes <= most,
        }
    }
}

impl Codec for ReplicaLag {
    type Value = ReplicaLag;
    const KIND: ValueKind = ValueKind::Lag;

    fn read(text: &str) -> Result<ReplicaLag, BadValue> {
        if let Some(bytes) = size::parse(text) {
            return bytes.map(|bytes| limit(bytes, ReplicaLag::Bytes(bytes))).map_err(|_| BadValue::NotALag);
        }
        let lower = text.trim().to_ascii_lowercase();
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
            ReplicaLag::Bytes(bytes) => size::show(*bytes),
        })
    }
}

/// 0 is no limit.
fn limit(value: u64, lag: ReplicaLag) -> ReplicaLag {
    if value == 0 { ReplicaLag::Unlimited } else { lag }
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
