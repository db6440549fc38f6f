//! The audit trail: logins, changes and commands in the panel, by the API and on the console, and what happened to the process.
//! Owns how much of it is kept ([`MAX_ENTRIES`]), and which entries a chart is marked with. Never keeps a body, a password or a token.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use control::{Operation, OperationKind};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::time::{now_us, us_rfc3339};

/// Entries that are kept; a further one replaces the oldest.
pub(crate) const MAX_ENTRIES: usize = 2_000;

/// What kind of thing was done.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, ToSchema, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub(crate) enum AuditKind {
    /// A login to the panel, good or not.
    Login,
    /// A change of pools, users or settings.
    #[default]
    Edit,
    /// PAUSE, RESUME, RECONNECT, KILL and their like.
    Operation,
    /// The lab.
    Lab,
    /// The configuration was read again.
    Reload,
    /// The process was started.
    Start,
    /// The process took over from another.
    Takeover,
    /// A pool that sizes itself has another size: of marks only.
    PoolSize,
}

/// One thing that was done.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub(crate) struct AuditEntry {
    /// Grows with every entry.
    pub(crate) number: u64,
    /// Microseconds since 1970.
    pub(crate) time_us: u64,
    pub(crate) kind: AuditKind,
    /// The user or the token's name, or the user of the console; empty for signals, and for what the panel has had done, of which its request has an entry.
    #[serde(default)]
    pub(crate) user: String,
    /// Address and port.
    #[serde(default)]
    pub(crate) from: String,
    /// What was done: method and path, or the command.
    pub(crate) text: String,
    /// The pool that it was done to, where it was one.
    #[serde(default)]
    #[schema(required)]
    pub(crate) pool: Option<String>,
    /// Of HTTP; 0 where there was none.
    #[serde(default)]
    pub(crate) status: u16,
}

/// An entry as the API shows it.
#[derive(Serialize, ToSchema)]
pub(crate) struct AuditEntryView {
    /// RFC 3339.
    time: String,
    #[serde(flatten)]
    entry: AuditEntry,
}

/// A mark on a chart: what changed what is drawn.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct Mark {
    /// Seconds since 1970.
    pub(crate) t: f64,
    pub(crate) kind: AuditKind,
    pub(crate) text: String,
    pub(crate) user: String,
}

/// The entries that are kept.
#[derive(Default)]
pub(crate) struct AuditTrail(Mutex<Entries>);

#[derive(Default)]
struct Entries {
    entries: VecDeque<AuditEntry>,
    /// Of the next entry.
    next: u64,
    /// Entries from this number on are not stored yet.
    unsaved: u64,
}

impl AuditTrail {
    /// Notes something now.
    pub(crate) fn record(&self, entry: AuditEntry) {
        let mut locked = self.locked();
        let entry = AuditEntry { number: locked.next, time_us: now_us(), ..entry };
        locked.next += 1;
        locked.entries.push_back(entry);
        if locked.entries.len() > MAX_ENTRIES {
            locked.entries.pop_front();
        }
    }

    /// Notes what an operator has had done.
    pub(crate) fn record_operation(&self, operation: Operation) {
        let Operation { user, from, command, argument, database, kind } = operation;
        let kind = match kind {
            OperationKind::Command => AuditKind::Operation,
            OperationKind::Edit => AuditKind::Edit,
            OperationKind::Reload => AuditKind::Reload,
        };
        let text = argument.as_ref().map_or_else(|| command.clone(), |name| format!("{command} {name}"));
        self.record(AuditEntry { kind, user, from, text, pool: database, ..AuditEntry::default() });
    }

    /// The newest first, from before number `before` on.
    pub(crate) fn newest(&self, before: Option<u64>, most: usize) -> Vec<AuditEntryView> {
        let locked = self.locked();
        let known = locked.entries.iter().rev();
        let asked = known.filter(|entry| before.is_none_or(|before| entry.number < before));
        asked
            .take(most)
            .map(|entry| AuditEntryView { time: us_rfc3339(entry.time_us), entry: entry.clone() })
            .collect()
    }

    /// What changed something between two seconds: of all, or of one pool.
    #[expect(clippy::cast_precision_loss)]
    pub(crate) fn marks(&self, pool: Option<&str>, from: u64, to: u64) -> Vec<Mark> {
        let is_in = |entry: &&AuditEntry| (from..=to).contains(&(entry.time_us / 1_000_000));
        let concerns =
            |entry: &&AuditEntry| pool.is_none() || entry.pool.is_none() || entry.pool.as_deref() == pool;
        let is_done = |entry: &&AuditEntry| {
            entry.status < 300 && !matches!(entry.kind, AuditKind::Login | AuditKind::Lab)
        };
        let locked = self.locked();
        let marks = locked.entries.iter().filter(is_in).filter(concerns).filter(is_done).map(|entry| Mark {
            t: entry.time_us as f64 / 1e6,
            kind: entry.kind,
            text: entry.text.clone(),
            user: entry.user.clone(),
        });
        marks.collect()
    }

    /// Entries that were not given by this before.
    pub(crate) fn unsaved(&self) -> Vec<AuditEntry> {
        let mut locked = self.locked();
        let (from, next) = (locked.unsaved, locked.next);
        locked.unsaved = next;
        locked.entries.iter().filter(|entry| entry.number >= from).cloned().collect()
    }

    /// They were not stored after all.
    pub(crate) fn mark_unsaved(&self) {
        self.locked().unsaved = 0;
    }

    /// Puts what another process has stored before what is here.
    pub(crate) fn restore(&self, stored: Vec<AuditEntry>) {
        let mut locked = self.locked();
        let own = std::mem::take(&mut locked.entries);
        locked.next = stored.last().map_or(0, |last| last.number + 1);
        locked.unsaved = locked.next;
        // A file that was closed and is opened again has what is here.
        let known: Vec<u64> = stored.iter().map(|entry| entry.time_us).collect();
        locked.entries.extend(stored);
        for entry in own.into_iter().filter(|entry| known.binary_search(&entry.time_us).is_err()) {
            let number = locked.next;
            locked.entries.push_back(AuditEntry { number, ..entry });
            locked.next += 1;
        }
        let over = locked.entries.len().saturating_sub(MAX_ENTRIES);
        locked.entries.drain(..over);
    }

    fn locked(&self) -> MutexGuard<'_, Entries> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a request does, by its address; the pool where it is one's.
pub(crate) fn classify_request(method: &str, path: &str) -> (AuditKind, Option<String>) {
    let words: Vec<&str> = path.trim_start_matches("/api/v1/").split('/').collect();
    let name = |place: usize| words.get(place).map(|word| unescaped(word));
    match words[..] {
        ["login" | "logout", ..] => (AuditKind::Login, None),
        ["lab", ..] => (AuditKind::Lab, None),
        ["databases", _, ..] if method == "POST" => (AuditKind::Operation, name(1)),
        ["pools", ..] => (AuditKind::Edit, name(1)),
        ["clients" | "servers" | "queries", ..] => (AuditKind::Operation, None),
        _ => (AuditKind::Edit, path.split_once("/pools/").map(|(_, name)| unescaped(name))),
    }
}

/// A word of a path, whatever its percent signs hide.
fn unescaped(word: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = word.as_bytes();
    while let Some((&byte, behind)) = rest.split_first() {
        let hidden = behind.first_chunk::<2>().and_then(|digits| str::from_utf8(digits).ok());
        let hidden = hidden.filter(|_| byte == b'%').and_then(|digits| u8::from_str_radix(digits, 16).ok());
        bytes.push(hidden.unwrap_or(byte));
        rest = if hidden.is_some() { &behind[2..] } else { behind };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn an_operation_is_an_entry_of_its_pool() {
        let audit_trail = AuditTrail::default();
        let operation = |command: &str, argument: Option<&str>, kind| Operation {
            user: "boss".to_owned(),
            from: "127.0.0.1:5".to_owned(),
            command: command.to_owned(),
            argument: argument.map(str::to_owned),
            database: argument.and_then(|words| words.split(' ').next()).map(str::to_owned),
            kind,
        };
        audit_trail.record_operation(operation("PAUSE", Some("app"), OperationKind::Command));
        audit_trail.record_operation(operation("DETACH", Some("app h:1"), OperationKind::Command));
        audit_trail.record_operation(operation("SIGHUP", None, OperationKind::Reload));
        let newest = audit_trail.newest(None, 3).into_iter().map(|view| view.entry);
        let noted: Vec<_> = newest.map(|entry| (entry.kind, entry.text, entry.pool)).collect();
        let of_app = |text: &str| (AuditKind::Operation, text.to_owned(), Some("app".to_owned()));
        let reload = (AuditKind::Reload, "SIGHUP".to_owned(), None);
        assert_eq!(noted, [reload, of_app("DETACH app h:1"), of_app("PAUSE app")]);
    }

    #[test]
    fn a_request_is_of_a_kind_and_of_a_pool() {
        let pool = |name: &str| Some(name.to_owned());
        assert_eq!(classify_request("PUT", "/api/v1/pools/a%20b"), (AuditKind::Edit, pool("a b")));
        assert_eq!(
            classify_request("POST", "/api/v1/databases/app/pause"),
            (AuditKind::Operation, pool("app"))
        );
        let detach = classify_request("POST", "/api/v1/databases/app/hosts/db2%3A5433/detach");
        assert_eq!(detach, (AuditKind::Operation, pool("app")));
        assert_eq!(classify_request("POST", "/api/v1/login"), (AuditKind::Login, None));
        assert_eq!(classify_request("DELETE", "/v2/databases/x/pools/app"), (AuditKind::Edit, pool("app")));
    }

    #[test]
    fn entries_go_on_behind_those_that_are_stored_and_are_bounded() {
        let (audit_trail, pool) = (AuditTrail::default(), Some("app".to_owned()));
        audit_trail.record(AuditEntry { text: "own".into(), pool, ..AuditEntry::default() });
        let stored = (7..10).map(|number| AuditEntry { number, ..AuditEntry::default() }).collect();
        audit_trail.restore(stored);
        assert_eq!(audit_trail.unsaved().iter().map(|entry| entry.number).collect::<Vec<_>>(), [10]);
        assert!(audit_trail.unsaved().is_empty());
        let now = now_us() / 1_000_000;
        assert_eq!(audit_trail.marks(Some("app"), now - 60, now + 1).len(), 1);
        assert!(audit_trail.marks(Some("other"), now - 60, now + 1).is_empty());
        (0..MAX_ENTRIES + 5).for_each(|_| audit_trail.record(AuditEntry::default()));
        assert_eq!(audit_trail.newest(None, usize::MAX).len(), MAX_ENTRIES);
        let page = audit_trail.newest(Some(100), 2);
        assert_eq!(page.iter().map(|view| view.entry.number).collect::<Vec<_>>(), [99, 98]);
    }
}
