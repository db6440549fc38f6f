//! Alerts: what an operator should look at, since when, and when it was over.
//!
//! Owns which conditions there are and how one that comes and goes is one alert. Never acts on one but by telling: log, metrics, API,
//! panel, webhook (`hook`).

mod conditions;
mod webhook;

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::Serialize;
use tokio::sync::Notify;
use utoipa::ToSchema;

pub(crate) use conditions::run_alert_checks;
pub(crate) use webhook::run_webhook;

use crate::time::us_rfc3339;

/// A condition is over when it has not held for so long.
const CLEAR_AFTER_US: u64 = 10_000_000;

/// The most alerts at once; further ones are left out.
const MAX_ACTIVE: usize = 1_000;

/// The number of past alerts that are kept.
const MAX_CLEARED: usize = 200;

/// Alerts that wait for the webhook; the oldest is dropped for a further one.
const MAX_UNSENT: usize = 100;

/// What is wrong.
#[derive(Clone, Copy, Debug, Serialize, ToSchema, PartialEq, Eq, PartialOrd, Ord)]
#[serde(rename_all = "snake_case")]
pub(crate) enum AlertKind {
    /// A client has waited for a server for longer than `alert_wait`.
    Waiting,
    /// Logins to a server fail.
    ServerDown,
    /// Pools may use more than `alert_budget` of a server's connections.
    Budget,
    /// Clients receive more errors a second than `alert_errors`.
    Errors,
}

impl AlertKind {
    /// As the API and metrics have it.
    pub(crate) fn word(self) -> &'static str {
        match self {
            AlertKind::Waiting => "waiting",
            AlertKind::ServerDown => "server_down",
            AlertKind::Budget => "budget",
            AlertKind::Errors => "errors",
        }
    }
}

/// Something that is wrong now.
#[derive(Clone, Debug)]
pub(crate) struct Condition {
    pub(crate) kind: AlertKind,
    /// The pool or the server.
    pub(crate) subject: String,
    /// In a sentence.
    pub(crate) text: String,
}

/// Whether the condition holds.
#[derive(Clone, Copy, Debug, Serialize, ToSchema, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub(crate) enum AlertState {
    Firing,
    Cleared,
}

/// Whether the condition holds.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct Alert {
    alert: AlertKind,
    /// firing or cleared.
    state: AlertState,
    /// The pool or the server.
    subject: String,
    /// In a sentence, as it was last.
    text: String,
    /// RFC 3339.
    since: String,
    /// RFC 3339; null as long as it holds.
    #[schema(required)]
    cleared: Option<String>,
}

/// The alerts that hold, and those that were over last.
#[derive(Default)]
pub(crate) struct AlertRegistry {
    locked: Mutex<Alerts>,
    changes: Notify,
}

#[derive(Default)]
struct Alerts {
    active: BTreeMap<(AlertKind, String), Active>,
    cleared: VecDeque<Alert>,
    unsent: VecDeque<Alert>,
}

struct Active {
    text: String,
    since_us: u64,
    last_us: u64,
}

impl Active {
    fn alert(&self, (kind, subject): &(AlertKind, String), cleared_us: Option<u64>) -> Alert {
        Alert {
            alert: *kind,
            state: if cleared_us.is_some() { AlertState::Cleared } else { AlertState::Firing },
            subject: subject.clone(),
            text: self.text.clone(),
            since: us_rfc3339(self.since_us),
            cleared: cleared_us.map(us_rfc3339),
        }
    }
}

impl AlertRegistry {
    /// These conditions hold now, and no others of these kinds; gives the alerts that are new or over.
    fn observe(&self, kinds: &[AlertKind], conditions: Vec<Condition>, now_us: u64) -> Vec<Alert> {
        let mut locked = self.locked();
        let mut changes = Vec::new();
        for Condition { kind, subject, text } in conditions {
            let key = (kind, subject);
            if let Some(active) = locked.active.get_mut(&key) {
                (active.last_us, active.text) = (now_us, text);
            } else if locked.active.len() < MAX_ACTIVE {
                let active = Active { text, since_us: now_us, last_us: now_us };
                changes.push(active.alert(&key, None));
                locked.active.insert(key, active);
            }
        }
        let is_exiting = |key: &(AlertKind, String), active: &Active| {
            kinds.contains(&key.0) && now_us.saturating_sub(active.last_us) >= CLEAR_AFTER_US
        };
        let over: Vec<_> = locked.active.extract_if(.., |key, active| is_exiting(key, active)).collect();
        for (key, active) in over {
            let alert = active.alert(&key, Some(now_us));
            locked.cleared.push_front(alert.clone());
            locked.cleared.truncate(MAX_CLEARED);
            changes.push(alert);
        }
        changes
    }

    /// Puts alerts where the webhook finds them.
    fn enqueue(&self, changes: Vec<Alert>) {
        let mut locked = self.locked();
        locked.unsent.extend(changes);
        let over = locked.unsent.len().saturating_sub(MAX_UNSENT);
        locked.unsent.drain(..over);
        self.changes.notify_one();
    }

    /// The next one for the webhook.
    async fn next_unsent(&self) -> Alert {
        loop {
            let next = self.locked().unsent.pop_front();
            match next {
                Some(alert) => return alert,
                None => self.changes.notified().await,
            }
        }
    }

    /// Those that hold, then those that are over, each the newest first.
    pub(crate) fn all(&self) -> Vec<Alert> {
        let locked = self.locked();
        let mut active: Vec<Alert> =
            locked.active.iter().map(|(key, active)| active.alert(key, None)).collect();
        active.sort_by(|one, other| other.since.cmp(&one.since));
        active.extend(locked.cleared.iter().cloned());
        active
    }

    /// What holds: kind and subject.
    pub(crate) fn active(&self) -> Vec<(&'static str, String)> {
        self.locked().active.keys().map(|(kind, subject)| (kind.word(), subject.clone())).collect()
    }

    fn locked(&self) -> MutexGuard<'_, Alerts> {
        self.locked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waits(subject: &str) -> Vec<Condition> {
        vec![Condition { kind: AlertKind::Waiting, subject: subject.to_owned(), text: "waits".to_owned() }]
    }

    fn states(changes: &[Alert]) -> Vec<(&str, AlertState)> {
        changes.iter().map(|alert| (alert.subject.as_str(), alert.state)).collect()
    }

    #[test]
    fn a_condition_that_comes_and_goes_is_one_alert() {
        let (board, kinds, second) = (AlertRegistry::default(), [AlertKind::Waiting], 1_000_000);
        assert_eq!(states(&board.observe(&kinds, waits("app"), second)), [("app", AlertState::Firing)]);
        assert!(board.observe(&kinds, Vec::new(), 5 * second).is_empty(), "not calm yet");
        assert!(board.observe(&kinds, waits("app"), 9 * second).is_empty(), "the same alert");
        assert!(
            board.observe(&[AlertKind::Errors], Vec::new(), 60 * second).is_empty(),
            "other kinds say nothing"
        );
        assert_eq!(board.active(), [("waiting", "app".to_owned())]);
        assert_eq!(states(&board.observe(&kinds, Vec::new(), 61 * second)), [("app", AlertState::Cleared)]);
        let all = board.all();
        assert_eq!((all.len(), all[0].since.as_str()), (1, "1970-01-01T00:00:01Z"));
        assert_eq!(all[0].cleared.as_deref(), Some("1970-01-01T00:01:01Z"));
        assert!(board.active().is_empty());
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let (board, kinds) = (AlertRegistry::default(), [AlertKind::Waiting]);
        for number in 0..MAX_ACTIVE + 10 {
            let changes = board.observe(&kinds, waits(&number.to_string()), 1);
            board.enqueue(changes);
        }
        assert_eq!((board.active().len(), board.locked().unsent.len()), (MAX_ACTIVE, MAX_UNSENT));
        board.observe(&kinds, Vec::new(), 2 * CLEAR_AFTER_US);
        assert_eq!(board.all().len(), MAX_CLEARED);
    }
}
