//! The audit trail: logins, changes and commands in the panel, by the API and on the console, and what happened to the process.
//! Owns how much of it is kept ([`MAX_ENTRIES`]), and which entries a chart is marked with. Never keeps a body, a password or a token.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

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
}

/// One thing that was done.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub(crate) struct AuditEntry {
    /// Grows with every entry.
    pub(crate) number: u64,
    /// Microseconds since 1970.
    pub(crate) time_us: u64,
    pub(crate) kind: AuditKind,
    /// The user or the token's name; empty where it was no caller of the panel's.
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

    /// Notes what a line of the log says that was done, if it does.
    pub(crate) fn record_log_line(&self, line: &str) {
        if let Some(entry) = classify_log_line(line) {
            self.record(entry);
        }
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

/// The words of the console's commands and of signals, as the log has them.
fn classify_log_line(line: &str) -> Option<AuditEntry> {
    if line.contains(" got SIGHUP, ") {
        return Some(AuditEntry {
            kind: AuditKind::Reload,
            text: "SIGHUP".to_owned(),
            ..AuditEntry::default()
        });
    }
    let said = line.strip_suffix(" command issued")?;
    let (said, pool) = match said.strip_suffix('\'').and_then(|said| said.rsplit_once(" '")) {
        Some((said, name)) => (said, Some(name.to_owned())),
        None => (said, None),
    };
    let word = said.rsplit_once(" LOG ").map_or(said, |(_, word)| word);
    let word = word
        .rsplit(' ')
        .next()
        .filter(|word| word.chars().all(|sign| sign.is_ascii_uppercase() || sign == '_'))?;
    let kind = if word == "RELOAD" { AuditKind::Reload } else { AuditKind::Operation };
    let text = pool.as_ref().map_or_else(|| word.to_owned(), |pool| format!("{word} {pool}"));
    Some(AuditEntry { kind, text, pool, ..AuditEntry::default() })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn lines_of_commands_are_entries_and_others_are_not() {
        let said = |line: &str| classify_log_line(line).map(|entry| (entry.kind, entry.text, entry.pool));
        let line = "2026-01-31 12:00:00.000 UTC [7] LOG PAUSE 'app' command issued";
        assert_eq!(said(line), Some((AuditKind::Operation, "PAUSE app".into(), Some("app".into()))));
        assert_eq!(said("x LOG RELOAD command issued"), Some((AuditKind::Reload, "RELOAD".into(), None)));
        assert!(said("x LOG got SIGHUP, re-reading config").is_some());
        assert_eq!(said("x LOG C-0x1: app/u@h: no command issued"), None);
        assert_eq!(said("x LOG stats"), None);
    }

    #[test]
    fn a_request_is_of_a_kind_and_of_a_pool() {
        let pool = |name: &str| Some(name.to_owned());
        assert_eq!(classify_request("PUT", "/api/v1/pools/a%20b"), (AuditKind::Edit, pool("a b")));
        assert_eq!(
            classify_request("POST", "/api/v1/databases/app/pause"),
            (AuditKind::Operation, pool("app"))
        );
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
