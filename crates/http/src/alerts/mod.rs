//! Alerts: what an operator should look at, since when, and when it was over.
//!
//! Owns which conditions there are and how one that comes and goes is one alert. Never acts on one but by telling: log, metrics, API,
//! panel, webhook (`hook`).

mod hook;
mod watching;

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::Serialize;
use tokio::sync::Notify;
use utoipa::ToSchema;

pub(crate) use hook::keep_telling;
pub(crate) use watching::keep_watching;

use crate::time::us_rfc3339;

/// A condition is over when it has not held for so long.
const CALM_US: u64 = 10_000_000;

/// So many alerts hold at once; further ones are left out.
const MOST_ACTIVE: usize = 1_000;

/// So many that are over are remembered.
const MOST_PAST: usize = 200;

/// So many wait for the webhook; with a further one, the oldest goes.
const MOST_UNTOLD: usize = 100;

/// What is wrong.
#[derive(Clone, Copy, Debug, Serialize, ToSchema, PartialEq, Eq, PartialOrd, Ord)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind {
    /// A client has waited for a server for longer than `alert_wait`.
    Waiting,
    /// Logins to a server fail.
    ServerDown,
    /// Pools may use more than `alert_budget` of a server's connections.
    Budget,
    /// Clients are told of more errors a second than `alert_errors`.
    Errors,
}

impl Kind {
    /// As the API and metrics have it.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Kind::Waiting => "waiting",
            Kind::ServerDown => "server_down",
            Kind::Budget => "budget",
            Kind::Errors => "errors",
        }
    }
}

/// Something that is wrong now.
#[derive(Clone, Debug)]
pub(crate) struct Condition {
    pub(crate) kind: Kind,
    /// The pool or the server.
    pub(crate) subject: String,
    /// In a sentence.
    pub(crate) text: String,
}

/// An alert, as the API and the webhook tell it.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct Alert {
    alert: Kind,
    /// firing or cleared.
    state: &'static str,
    /// The pool or the server.
    subject: String,
    /// In a sentence, as it was last.
    text: String,
    /// RFC 3339.
    since: String,
    /// RFC 3339; null as long as it holds.
    cleared: Option<String>,
}

/// The alerts that hold, and those that were over last.
#[derive(Default)]
pub(crate) struct Board {
    kept: Mutex<Kept>,
    news: Notify,
}

#[derive(Default)]
struct Kept {
    active: BTreeMap<(Kind, String), Active>,
    past: VecDeque<Alert>,
    untold: VecDeque<Alert>,
}

struct Active {
    text: String,
    since_us: u64,
    last_us: u64,
}

impl Active {
    fn alert(&self, (kind, subject): &(Kind, String), cleared_us: Option<u64>) -> Alert {
        Alert {
            alert: *kind,
            state: if cleared_us.is_some() { "cleared" } else { "firing" },
            subject: subject.clone(),
            text: self.text.clone(),
            since: us_rfc3339(self.since_us),
            cleared: cleared_us.map(us_rfc3339),
        }
    }
}

impl Board {
    /// These conditions hold now, and no others of these kinds; gives the alerts that are new or over.
    fn observe(&self, kinds: &[Kind], conditions: Vec<Condition>, now_us: u64) -> Vec<Alert> {
        let mut kept = self.kept();
        let mut news = Vec::new();
        for Condition { kind, subject, text } in conditions {
            let key = (kind, subject);
            if let Some(active) = kept.active.get_mut(&key) {
                (active.last_us, active.text) = (now_us, text);
            } else if kept.active.len() < MOST_ACTIVE {
                let active = Active { text, since_us: now_us, last_us: now_us };
                news.push(active.alert(&key, None));
                kept.active.insert(key, active);
            }
        }
        let is_over = |key: &(Kind, String), active: &Active| {
            kinds.contains(&key.0) && now_us.saturating_sub(active.last_us) >= CALM_US
        };
        let over: Vec<_> = kept.active.extract_if(.., |key, active| is_over(key, active)).collect();
        for (key, active) in over {
            let alert = active.alert(&key, Some(now_us));
            kept.past.push_front(alert.clone());
            kept.past.truncate(MOST_PAST);
            news.push(alert);
        }
        news
    }

    /// Puts alerts where the webhook finds them.
    fn tell(&self, news: Vec<Alert>) {
        let mut kept = self.kept();
        kept.untold.extend(news);
        let over = kept.untold.len().saturating_sub(MOST_UNTOLD);
        kept.untold.drain(..over);
        self.news.notify_one();
    }

    /// The next one for the webhook.
    async fn untold(&self) -> Alert {
        loop {
            let next = self.kept().untold.pop_front();
            match next {
                Some(alert) => return alert,
                None => self.news.notified().await,
            }
        }
    }

    /// Those that hold, then those that are over, each the newest first.
    pub(crate) fn all(&self) -> Vec<Alert> {
        let kept = self.kept();
        let mut active: Vec<Alert> =
            kept.active.iter().map(|(key, active)| active.alert(key, None)).collect();
        active.sort_by(|one, other| other.since.cmp(&one.since));
        active.extend(kept.past.iter().cloned());
        active
    }

    /// What holds: kind and subject.
    pub(crate) fn active(&self) -> Vec<(&'static str, String)> {
        self.kept().active.keys().map(|(kind, subject)| (kind.word(), subject.clone())).collect()
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waits(subject: &str) -> Vec<Condition> {
        vec![Condition { kind: Kind::Waiting, subject: subject.to_owned(), text: "waits".to_owned() }]
    }

    fn states(news: &[Alert]) -> Vec<(&str, &str)> {
        news.iter().map(|alert| (alert.subject.as_str(), alert.state)).collect()
    }

    #[test]
    fn a_condition_that_comes_and_goes_is_one_alert() {
        let (board, kinds, second) = (Board::default(), [Kind::Waiting], 1_000_000);
        assert_eq!(states(&board.observe(&kinds, waits("app"), second)), [("app", "firing")]);
        assert!(board.observe(&kinds, Vec::new(), 5 * second).is_empty(), "not calm yet");
        assert!(board.observe(&kinds, waits("app"), 9 * second).is_empty(), "the same alert");
        assert!(
            board.observe(&[Kind::Errors], Vec::new(), 60 * second).is_empty(),
            "other kinds say nothing"
        );
        assert_eq!(board.active(), [("waiting", "app".to_owned())]);
        assert_eq!(states(&board.observe(&kinds, Vec::new(), 61 * second)), [("app", "cleared")]);
        let all = board.all();
        assert_eq!((all.len(), all[0].since.as_str()), (1, "1970-01-01T00:00:01Z"));
        assert_eq!(all[0].cleared.as_deref(), Some("1970-01-01T00:01:01Z"));
        assert!(board.active().is_empty());
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let (board, kinds) = (Board::default(), [Kind::Waiting]);
        for number in 0..MOST_ACTIVE + 10 {
            let news = board.observe(&kinds, waits(&number.to_string()), 1);
            board.tell(news);
        }
        assert_eq!((board.active().len(), board.kept().untold.len()), (MOST_ACTIVE, MOST_UNTOLD));
        board.observe(&kinds, Vec::new(), 2 * CALM_US);
        assert_eq!(board.all().len(), MOST_PAST);
    }
}
