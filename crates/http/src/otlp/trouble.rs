//! What may keep metrics from arriving, and what the log is told of it: each change once.
//! Never tries anything again itself.

use std::fmt;
use std::io;
use std::mem::{Discriminant, discriminant};
use std::time::Duration;

use axum::http::StatusCode;
use settings::Endpoint;
use telemetry::{Level, Record};
use tokio::time::Instant;

/// Another trouble than the one that was told is told after this at the earliest.
const PATIENCE: Duration = Duration::from_secs(60);

/// Of what a collector says, the log has so many bytes at most.
const WORDS: usize = 200;

/// Why metrics have not arrived.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// Weir's fault: the control thread did not answer in time.
    NoFigures,
    /// The file's: there are no roots to check the collector's certificate by.
    Terms(String),
    /// The network's: there is no such host, or nobody listens there.
    Unreachable(io::Error),
    /// The collector's, or that of the roots: no TLS could be agreed on.
    Handshake(io::Error),
    /// The collector's: it did not answer in time.
    Silent,
    /// The collector's: what it says is not HTTP, or it hung up.
    Broken(hyper::Error),
    /// The collector's, or that of the headers: it says no.
    Refused {
        status: StatusCode,
        /// How long it wants to be left alone.
        retry_after: Option<Duration>,
    },
    /// Whoever answered is no collector: its yes is not OTLP's.
    Garbage,
    /// The collector has taken some and left some out.
    Partial { rejected: i64, message: String },
}

impl Trouble {
    /// The same metrics may arrive if they are sent again soon (OTLP specification, "Retryable Response Codes").
    pub(crate) fn may_pass(&self) -> bool {
        match self {
            Trouble::NoFigures
            | Trouble::Unreachable(_)
            | Trouble::Handshake(_)
            | Trouble::Silent
            | Trouble::Broken(_) => true,
            Trouble::Refused { status, .. } => matches!(status.as_u16(), 429 | 502 | 503 | 504),
            Trouble::Terms(_) | Trouble::Garbage | Trouble::Partial { .. } => false,
        }
    }

    /// How long the collector wants to be left alone.
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        match self {
            Trouble::Refused { retry_after, .. } => *retry_after,
            _ => None,
        }
    }

    fn kind(&self) -> Kind {
        let status = if let Trouble::Refused { status, .. } = self { status.as_u16() } else { 0 };
        (discriminant(self), status)
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Trouble::NoFigures => out.write_str("the pooler was too busy to tell its figures"),
            Trouble::Terms(why) => out.write_str(why),
            Trouble::Unreachable(why) => why.fmt(out),
            Trouble::Handshake(why) => write!(out, "TLS handshake failed: {why}"),
            Trouble::Silent => out.write_str("no answer in time"),
            Trouble::Broken(why) => write!(out, "no answer of HTTP: {why}"),
            Trouble::Refused { status, .. } => write!(out, "the answer is {status}"),
            Trouble::Garbage => out.write_str("what answers there is no collector of OTLP"),
            Trouble::Partial { rejected, message } => {
                let words = &message[..message.floor_char_boundary(WORDS)];
                write!(out, "{rejected} data points were left out: {words}")
            }
        }
    }
}

/// What makes two troubles the same.
type Kind = (Discriminant<Trouble>, u16);

/// How it stands between Weir and the collector, as far as the log knows.
#[derive(Debug, Default)]
pub(super) struct Standing {
    /// The trouble, or none, and when it was told.
    told: Option<(Option<Kind>, Instant)>,
    /// The last export arrived.
    is_good: bool,
}

impl Standing {
    /// The last export arrived.
    pub(super) fn is_good(&self) -> bool {
        self.is_good
    }

    /// What the log is to be told of an export: that it is the first to arrive or not to arrive, or that there is another
    /// reason than was told a while ago.
    pub(super) fn news(
        &mut self,
        outcome: &Result<(), Trouble>,
        endpoint: &Endpoint,
        now: Instant,
    ) -> Option<Record> {
        self.is_good = outcome.is_ok();
        let kind = outcome.as_ref().err().map(Trouble::kind);
        let is_news = self.told.is_none_or(|(told, at)| {
            told.is_none() != kind.is_none() || (told != kind && now.duration_since(at) >= PATIENCE)
        });
        if !is_news {
            return None;
        }
        self.told = Some((kind, now));
        let url = endpoint.url();
        Some(match outcome {
            Ok(()) => Record::new(Level::Log, format!("otlp: metrics arrive at {url}")),
            Err(trouble) => {
                Record::new(Level::Warning, format!("otlp: metrics do not arrive at {url}: {trouble}"))
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint() -> Endpoint {
        let config = settings::set(&settings::Config::default(), "otlp_endpoint", "http://c:1");
        config.ok().and_then(|config| config.global.otlp_endpoint).expect("a URL")
    }

    #[test]
    fn only_a_change_is_told() {
        let (mut standing, endpoint, start) = (Standing::default(), endpoint(), Instant::now());
        let mut news = |outcome: Result<(), Trouble>, after_s| {
            let now = start + Duration::from_secs(after_s);
            standing.news(&outcome, &endpoint, now).map(|record| record.text)
        };
        let refused = |code| {
            let status = StatusCode::from_u16(code).expect("a status");
            Err(Trouble::Refused { status, retry_after: None })
        };
        assert_eq!(news(Ok(()), 0).as_deref(), Some("otlp: metrics arrive at http://c:1/v1/metrics"));
        assert_eq!(news(Ok(()), 60), None);
        let text =
            "otlp: metrics do not arrive at http://c:1/v1/metrics: the answer is 503 Service Unavailable";
        assert_eq!(news(refused(503), 61).as_deref(), Some(text));
        assert_eq!(news(refused(503), 1_000), None);
        assert!(news(refused(401), 1_000).is_some_and(|text| text.ends_with("401 Unauthorized")));
        assert_eq!(news(Err(Trouble::Silent), 1_001), None, "too soon after the other");
        assert!(news(Ok(()), 1_002).is_some());
        assert!(news(Err(Trouble::Silent), 1_003).is_some());
    }

    #[test]
    fn of_what_a_collector_says_little_is_told() {
        let told = Trouble::Partial { rejected: 3, message: "ü".repeat(1_000) }.to_string();
        assert!(told.starts_with("3 data points were left out: ü") && told.len() < 300, "{told}");
    }
}
