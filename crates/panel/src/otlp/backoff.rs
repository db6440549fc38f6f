//! When the next export is: after the interval, or sooner if the last one may be retried.
//! Never waits itself.

use std::time::Duration;

use super::error::ExportError;

/// The first try after a trouble that passes; the next after twice as long, and so on, up to the interval.
const FIRST: Duration = Duration::from_secs(1);

/// A collector that wants to be left alone for longer is believed for so long.
const MAX_DELAY: Duration = Duration::from_secs(3600);

/// How often in a row it went wrong.
#[derive(Debug, Default)]
pub(super) struct ExportBackoff {
    failures: u32,
}

impl ExportBackoff {
    /// How long from the last export to the next one.
    pub(super) fn after(&mut self, error: Option<&ExportError>, interval: Duration) -> Duration {
        let Some(error) = error.filter(|error| error.is_retryable()) else {
            self.failures = 0;
            return interval;
        };
        let doubled = FIRST.saturating_mul(1 << self.failures.min(20));
        self.failures = self.failures.saturating_add(1);
        // Senders that lost the same collector should not all retry at the same moment.
        let pause = doubled.min(interval).mul_f64(0.5 + share() / 2.0);
        error.retry_after().map_or(pause, |wanted| wanted.min(MAX_DELAY).max(pause))
    }
}

/// A random share of a whole; without entropy, none.
fn share() -> f64 {
    getrandom::u32().map_or(0.0, |number| f64::from(number) / f64::from(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::StatusCode;
    use httpclient::PostError;

    const INTERVAL: Duration = Duration::from_secs(60);

    fn refused(status: StatusCode, retry_after_s: Option<u64>) -> ExportError {
        PostError::Refused { status, retry_after: retry_after_s.map(Duration::from_secs) }.into()
    }

    #[test]
    fn what_may_pass_is_tried_sooner_and_sooner_no_more() {
        let mut backoff = ExportBackoff::default();
        for doubled_s in [1, 2, 4, 8, 16, 32, 60, 60] {
            let pause = backoff.after(Some(&ExportError::Post(PostError::TimedOut)), INTERVAL);
            let doubled = Duration::from_secs(doubled_s);
            assert!(pause >= doubled / 2 && pause <= doubled, "{pause:?} of {doubled:?}");
        }
        assert_eq!(backoff.after(None, INTERVAL), INTERVAL);
        assert!(backoff.after(Some(&ExportError::Post(PostError::TimedOut)), INTERVAL) <= FIRST);
        assert!(
            (0..100)
                .all(|_| backoff.after(Some(&ExportError::Post(PostError::TimedOut)), INTERVAL) <= INTERVAL)
        );
    }

    #[test]
    fn who_is_told_when_to_come_again_comes_then() {
        let mut backoff = ExportBackoff::default();
        let mut after = |status, seconds| backoff.after(Some(&refused(status, seconds)), INTERVAL).as_secs();
        assert_eq!(after(StatusCode::TOO_MANY_REQUESTS, Some(90)), 90);
        assert_eq!(after(StatusCode::SERVICE_UNAVAILABLE, Some(1 << 40)), 3600);
        assert_eq!(after(StatusCode::UNAUTHORIZED, None), 60, "the same would be refused again");
    }
}
