//! Export errors, and which of them are logged: each change once.
//! Never tries anything again itself.

use std::fmt;
use std::mem::{Discriminant, discriminant};
use std::time::Duration;

use settings::Endpoint;
use telemetry::{Level, Record};
use tokio::time::Instant;

use httpclient::PostError;

/// A different error than the one that was logged is logged after this at the earliest.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The bytes of a collector's message that are logged.
const MAX_MESSAGE_BYTES: usize = 200;

/// Why metrics have not arrived.
#[derive(Debug)]
pub(crate) enum ExportError {
    /// Weir's fault: the control thread did not answer in time.
    NoData,
    /// The request has not arrived.
    Post(PostError),
    /// The server that answered is not an OTLP collector.
    NotOtlp,
    /// The collector has taken some and left some out.
    Partial { rejected: i64, of: &'static str, message: String },
}

impl ExportError {
    /// The same metrics may arrive if they are sent again soon.
    pub(crate) fn is_retryable(&self) -> bool {
        match self {
            ExportError::NoData => true,
            ExportError::Post(error) => error.is_retryable(),
            ExportError::NotOtlp | ExportError::Partial { .. } => false,
        }
    }

    /// How long the collector wants to be left alone.
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        match self {
            ExportError::Post(error) => error.retry_after(),
            _ => None,
        }
    }

    fn kind(&self) -> ErrorKind {
        match self {
            ExportError::Post(error) => {
                let status = if let PostError::Refused { status, .. } = error { status.as_u16() } else { 0 };
                (discriminant(self), Some(discriminant(error)), status)
            }
            _ => (discriminant(self), None, 0),
        }
    }
}

impl From<PostError> for ExportError {
    fn from(error: PostError) -> ExportError {
        match error {
            PostError::Unreadable => ExportError::NotOtlp,
            other => ExportError::Post(other),
        }
    }
}

impl fmt::Display for ExportError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ExportError::NoData => out.write_str("the control thread did not answer in time"),
            ExportError::Post(error) => error.fmt(out),
            ExportError::NotOtlp => out.write_str("the response is not OTLP"),
            ExportError::Partial { rejected, of, message } => {
                let words = &message[..message.floor_char_boundary(MAX_MESSAGE_BYTES)];
                write!(out, "{rejected} {of} were left out: {words}")
            }
        }
    }
}

/// What makes two troubles the same.
type ErrorKind = (Discriminant<ExportError>, Option<Discriminant<PostError>>, u16);

/// How it stands between Weir and the collector, as far as the log knows.
#[derive(Debug)]
pub(super) struct ExportStatus {
    /// What is exported.
    what: &'static str,
    /// The error, or none, and when it was logged.
    logged: Option<(Option<ErrorKind>, Instant)>,
    /// The last export arrived.
    is_good: bool,
}

impl ExportStatus {
    /// Of `metrics`, say.
    pub(super) fn of(what: &'static str) -> ExportStatus {
        ExportStatus { what, logged: None, is_good: false }
    }

    /// The last export arrived.
    pub(super) fn is_good(&self) -> bool {
        self.is_good
    }

    /// The log record for an export: for the first that succeeds or fails, and for an error that differs
    /// from the one logged a while ago.
    pub(super) fn log_record(
        &mut self,
        outcome: &Result<(), ExportError>,
        endpoint: &Endpoint,
        now: Instant,
    ) -> Option<Record> {
        self.is_good = outcome.is_ok();
        let kind = outcome.as_ref().err().map(ExportError::kind);
        let is_news = self.logged.is_none_or(|(logged, at)| {
            logged.is_none() != kind.is_none() || (logged != kind && now.duration_since(at) >= TIMEOUT)
        });
        if !is_news {
            return None;
        }
        self.logged = Some((kind, now));
        let (what, url) = (self.what, endpoint.url());
        Some(match outcome {
            Ok(()) => Record::new(Level::Log, format!("otlp: {what} arrive at {url}")),
            Err(error) => {
                Record::new(Level::Warning, format!("otlp: {what} do not arrive at {url}: {error}"))
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::StatusCode;

    fn endpoint() -> Endpoint {
        let config = settings::set(&settings::Config::default(), "otlp_endpoint", "http://c:1");
        config.ok().and_then(|config| config.global.otlp_endpoint).expect("a URL")
    }

    #[test]
    fn only_a_change_is_told() {
        let (mut status, endpoint, start) = (ExportStatus::of("metrics"), endpoint(), Instant::now());
        let mut log_record = |outcome: Result<(), ExportError>, after_s| {
            let now = start + Duration::from_secs(after_s);
            status.log_record(&outcome, &endpoint, now).map(|record| record.text)
        };
        let refused = |code| {
            let status = StatusCode::from_u16(code).expect("a status");
            Err(PostError::Refused { status, retry_after: None }.into())
        };
        assert_eq!(log_record(Ok(()), 0).as_deref(), Some("otlp: metrics arrive at http://c:1/v1/metrics"));
        assert_eq!(log_record(Ok(()), 60), None);
        let text =
            "otlp: metrics do not arrive at http://c:1/v1/metrics: the answer is 503 Service Unavailable";
        assert_eq!(log_record(refused(503), 61).as_deref(), Some(text));
        assert_eq!(log_record(refused(503), 1_000), None);
        assert!(log_record(refused(401), 1_000).is_some_and(|text| text.ends_with("401 Unauthorized")));
        assert_eq!(log_record(Err(PostError::TimedOut.into()), 1_001), None, "too soon after the other");
        assert!(log_record(Ok(()), 1_002).is_some());
        assert!(log_record(Err(PostError::TimedOut.into()), 1_003).is_some());
    }

    #[test]
    fn of_what_a_collector_says_little_is_told() {
        let logged =
            ExportError::Partial { rejected: 3, of: "data points", message: "ü".repeat(1_000) }.to_string();
        assert!(logged.starts_with("3 data points were left out: ü") && logged.len() < 300, "{logged}");
    }
}
