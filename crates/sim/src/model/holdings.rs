//! What a session holds that no other server process can be given: temporary tables, cursors WITH HOLD, advisory locks, channels.
//!
//! Owns what of it a transaction or a savepoint takes back. Which statements make it is `session_statement.rs`.

use std::collections::{BTreeMap, BTreeSet};

/// What LISTEN and UNLISTEN do when their transaction commits.
#[derive(Clone, Debug)]
pub(super) enum Listening {
    Begin(String),
    End(String),
    EndAll,
}

/// A cursor WITH HOLD.
#[derive(Clone, Debug)]
struct Cursor {
    /// The number of savepoints where it was declared, if the transaction that runs has done that.
    level: Option<usize>,
}

/// What a savepoint goes back to.
#[derive(Clone, Debug)]
pub(super) struct HeldBefore {
    temporary: BTreeSet<String>,
    listening: usize,
    notifying: usize,
}

/// What one session holds.
#[derive(Clone, Debug, Default)]
pub(super) struct Holdings {
    temporary: BTreeSet<String>,
    /// What to go back to if the transaction fails; None while it has changed nothing.
    saved: Option<BTreeSet<String>>,
    cursors: BTreeMap<String, Cursor>,
    /// How often each is held. Transactions take nothing of them back.
    locks: BTreeMap<u32, u32>,
    channels: BTreeSet<String>,
    listening: Vec<Listening>,
    /// What NOTIFY sends when its transaction commits: channels and payloads.
    notifying: Vec<(String, String)>,
}

impl Holdings {
    /// It holds nothing, and nothing of the transaction that runs would make it hold something.
    pub(super) fn are_none(&self) -> bool {
        self.temporary.is_empty()
            && self.cursors.is_empty()
            && self.locks.is_empty()
            && self.channels.is_empty()
            && self.listening.is_empty()
    }

    /// False if there is one of this name.
    pub(super) fn create_temporary(&mut self, name: &str) -> bool {
        self.save();
        self.temporary.insert(name.to_owned())
    }

    /// False if there is none of this name.
    pub(super) fn drop_temporary(&mut self, name: &str) -> bool {
        self.save();
        self.temporary.remove(name)
    }

    pub(super) fn drop_all_temporary(&mut self) {
        self.save();
        self.temporary.clear();
    }

    pub(super) fn has_temporary(&self, name: &str) -> bool {
        self.temporary.contains(name)
    }

    /// False if there is one of this name.
    pub(super) fn declare(&mut self, name: &str, level: usize) -> bool {
        let is_new = !self.cursors.contains_key(name);
        if is_new {
            self.cursors.insert(name.to_owned(), Cursor { level: Some(level) });
        }
        is_new
    }

    /// False if there is none of this name. No transaction takes it back.
    pub(super) fn close(&mut self, name: &str) -> bool {
        self.cursors.remove(name).is_some()
    }

    pub(super) fn cursors(&self) -> String {
        joined(self.cursors.keys())
    }

    pub(super) fn lock(&mut self, key: u32) {
        *self.locks.entry(key).or_default() += 1;
    }

    /// False if it is not held.
    pub(super) fn unlock(&mut self, key: u32) -> bool {
        let Some(count) = self.locks.get_mut(&key) else { return false };
        *count -= 1;
        if *count == 0 {
            self.locks.remove(&key);
        }
        true
    }

    pub(super) fn unlock_all(&mut self) {
        self.locks.clear();
    }

    pub(super) fn locks(&self) -> usize {
        self.locks.len()
    }

    pub(super) fn listen(&mut self, listening: Listening) {
        self.listening.push(listening);
    }

    /// What is sent twice in a transaction comes once.
    pub(super) fn notify(&mut self, channel: &str, payload: &str) {
        let one = (channel.to_owned(), payload.to_owned());
        if !self.notifying.contains(&one) {
            self.notifying.push(one);
        }
    }

    /// What the transaction that commits has sent.
    pub(super) fn take_notifications(&mut self) -> Vec<(String, String)> {
        std::mem::take(&mut self.notifying)
    }

    /// The channels of transactions that are over.
    pub(super) fn channels(&self) -> &BTreeSet<String> {
        &self.channels
    }

    /// Whether there is something of the kind with this letter in the pooler's question.
    pub(super) fn has_kind(&self, letter: &str) -> bool {
        match letter {
            "t" => !self.temporary.is_empty(),
            "h" => !self.cursors.is_empty(),
            "a" => !self.locks.is_empty(),
            _ => false,
        }
    }

    /// DISCARD ALL.
    pub(super) fn discard(&mut self) {
        *self = Holdings::default();
    }

    /// SAVEPOINT.
    pub(super) fn snapshot(&self) -> HeldBefore {
        HeldBefore {
            temporary: self.temporary.clone(),
            listening: self.listening.len(),
            notifying: self.notifying.len(),
        }
    }

    /// What came behind a savepoint is undone. Cursors stay until ROLLBACK TO ends them.
    pub(super) fn restore(&mut self, before: &HeldBefore) {
        if self.temporary != before.temporary {
            self.save();
            self.temporary.clone_from(&before.temporary);
        }
        self.listening.truncate(before.listening);
        self.notifying.truncate(before.notifying);
    }

    /// ROLLBACK TO the savepoint at this place: cursors that were declared behind it are gone.
    pub(super) fn end_cursors_behind(&mut self, at: usize) {
        self.cursors.retain(|_, cursor| cursor.level.is_none_or(|level| level <= at));
    }

    /// RELEASE of the savepoint at this place.
    pub(super) fn release(&mut self, at: usize) {
        for cursor in self.cursors.values_mut() {
            cursor.level = cursor.level.map(|level| level.min(at));
        }
    }

    /// The transaction ends well.
    pub(super) fn commit(&mut self) {
        self.saved = None;
        self.cursors.values_mut().for_each(|cursor| cursor.level = None);
        for listening in self.listening.drain(..) {
            match listening {
                Listening::Begin(name) => drop(self.channels.insert(name)),
                Listening::End(name) => drop(self.channels.remove(&name)),
                Listening::EndAll => self.channels.clear(),
            }
        }
    }

    /// The transaction has failed. Its cursors are gone once it `is_over`.
    pub(super) fn roll_back(&mut self, is_over: bool) {
        if let Some(saved) = self.saved.take() {
            self.temporary = saved;
        }
        self.listening.clear();
        self.notifying.clear();
        if is_over {
            self.cursors.retain(|_, cursor| cursor.level.is_none());
        }
    }

    fn save(&mut self) {
        if self.saved.is_none() {
            self.saved = Some(self.temporary.clone());
        }
    }
}

pub(super) fn joined<'a>(names: impl Iterator<Item = &'a String>) -> String {
    names.map(String::as_str).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transaction_takes_back_all_but_locks_and_close() {
        let mut held = Holdings::default();
        assert!(held.create_temporary("t") && held.declare("h", 0));
        held.listen(Listening::Begin("c".to_owned()));
        held.notify("c", "x");
        assert!(held.channels().is_empty());
        held.commit();
        assert_eq!(held.take_notifications().len(), 1);
        held.notify("c", "y");
        assert!(held.drop_temporary("t") && held.close("h") && held.declare("h1", 0));
        held.lock(1);
        held.listen(Listening::EndAll);
        held.roll_back(true);
        assert!(held.has_temporary("t"));
        assert!(held.take_notifications().is_empty());
        assert_eq!(
            (held.cursors().as_str(), held.locks(), joined(held.channels().iter())),
            ("", 1, "c".to_owned())
        );
    }

    #[test]
    fn a_savepoint_takes_back_what_came_behind_it() {
        let mut held = Holdings::default();
        held.create_temporary("t0");
        held.declare("h0", 0);
        let before = held.snapshot();
        held.create_temporary("t1");
        held.declare("h1", 1);
        held.restore(&before);
        held.end_cursors_behind(0);
        held.commit();
        assert!(held.has_temporary("t0") && !held.has_temporary("t1"));
        assert_eq!(held.cursors(), "h0");
    }
}
