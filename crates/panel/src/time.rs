//! Times as the API writes them (RFC 3339, UTC).
//! Never keeps one.

use std::time::{SystemTime, UNIX_EPOCH};

use telemetry::record::date_time;

/// Microseconds since 1970.
pub(crate) fn us(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

/// The present in microseconds since 1970.
pub(crate) fn now_us() -> u64 {
    us(SystemTime::now())
}

/// The present.
pub(crate) fn now_rfc3339() -> String {
    us_rfc3339(now_us())
}

/// Microseconds since 1970 as a time, to the second.
pub(crate) fn us_rfc3339(us: u64) -> String {
    rfc3339(Some(&format!("{} UTC", date_time(us))))
}

/// A time of SHOW, `2026-01-31 12:00:00 UTC`; empty where there is none.
pub(crate) fn rfc3339(shown: Option<&str>) -> String {
    let text = shown.unwrap_or_default();
    text.strip_suffix(" UTC").map(|time| format!("{}Z", time.replacen(' ', "T", 1))).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_of_show_is_one_of_the_api() {
        assert_eq!(rfc3339(Some("2026-01-31 12:00:00 UTC")), "2026-01-31T12:00:00Z");
        assert_eq!((rfc3339(None), rfc3339(Some(""))), (String::new(), String::new()));
    }
}
