//! One client's names for prepared statements, as PostgreSQL would have them at each place of the client's stream.
//!
//! Owns which statement a name stands for, what is taken back by an error, and how much one client may keep. The texts are
//! the [`Registry`]'s. Never sees a byte of the protocol.

use std::collections::{BTreeMap, VecDeque};

use crate::replay::Habit;
use crate::{Registry, StatementId};

/// What Weir keeps of one client's prepared statements at most: texts, names and [`NAME_BYTES`] for each.
const CLIENT_BYTES: usize = 64 * 1024 * 1024;

/// What a name takes beside its own and its statement's text: entries of three maps and of the registry.
const NAME_BYTES: usize = 320;

/// What a name stands for at a place of the client's stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// Nothing.
    Unknown,
    /// This statement.
    Is(StatementId),
    /// A Parse or Close of it in an earlier segment is unanswered: PostgreSQL may yet skip it.
    InDoubt,
}

/// One name, as the server has answered so far and as it will be once everything sent is executed.
///
/// All unanswered changes of a name belong to one segment (what comes later waits), so that an error takes back all of
/// them that come behind it, and what was answered last holds again.
#[derive(Debug, Default)]
struct Name {
    answered: Option<StatementId>,
    expected: Option<StatementId>,
    unanswered: u32,
    /// The segment of the unanswered changes.
    segment: u64,
    /// The number of the result that the client has a description of; 0 where it has none.
    seen: u32,
}

/// A Parse or Close of a name that was sent and is unanswered.
#[derive(Debug)]
struct Change {
    name: Box<[u8]>,
    to: Option<StatementId>,
}

/// One client's names. Made only when the client prepares its first named statement.
#[derive(Debug, Default)]
pub struct ClientStatements {
    names: BTreeMap<Box<[u8]>, Name>,
    /// In the order of the stream.
    unanswered: VecDeque<Change>,
    /// What the client keeps of its [`CLIENT_BYTES`].
    bytes: usize,
    /// How it reads results.
    pub(crate) habit: Habit,
}

impl ClientStatements {
    /// How many names are in use.
    #[must_use]
    pub fn count(&self) -> usize {
        self.names.values().filter(|name| name.expected.is_some()).count()
    }

    /// What a name stands for in this segment.
    #[inline]
    #[must_use]
    pub fn find(&self, name: &[u8], segment: u64) -> Lookup {
        match self.names.get(name) {
            None => Lookup::Unknown,
            Some(entry) if entry.unanswered > 0 && entry.segment != segment => Lookup::InDoubt,
            Some(entry) => entry.expected.map_or(Lookup::Unknown, Lookup::Is),
        }
    }

    /// The statement that a name stands for, or will.
    #[must_use]
    pub fn expected(&self, name: &[u8]) -> Option<StatementId> {
        self.names.get(name).and_then(|entry| entry.expected)
    }

    /// A Parse of an unknown name is being sent. None if the client keeps too much already.
    #[must_use]
    pub fn parse(
        &mut self,
        name: &[u8],
        rest: &[u8],
        segment: u64,
        registry: &mut Registry,
    ) -> Option<StatementId> {
        if self.bytes + cost(name, rest) > CLIENT_BYTES {
            return None;
        }
        self.bytes += cost(name, rest);
        let statement = registry.intern(rest);
        self.change(name, Some(statement), segment);
        self.described(name, registry.shape(statement));
        Some(statement)
    }

    /// A Close is being sent; false if there is no such name.
    pub fn close(&mut self, name: &[u8], segment: u64) -> bool {
        let known = self.names.get(name).is_some_and(|entry| entry.expected.is_some());
        if known {
            self.change(name, None, segment);
        }
        known
    }

    fn change(&mut self, name: &[u8], to: Option<StatementId>, segment: u64) {
        let entry = self.names.entry(name.into()).or_default();
        (entry.expected, entry.segment) = (to, segment);
        entry.unanswered += 1;
        self.unanswered.push_back(Change { name: name.into(), to });
    }

    /// The client has, or will have before any row, the description of this result.
    pub(crate) fn described(&mut self, name: &[u8], shape: u32) {
        if let Some(entry) = self.names.get_mut(name) {
            entry.seen = shape;
        }
    }

    /// The same under whatever name.
    pub(crate) fn statement_described(&mut self, id: StatementId, shape: u32) {
        for entry in self.names.values_mut().filter(|entry| entry.expected == Some(id)) {
            entry.seen = shape;
        }
    }

    /// Whether it may be given rows of the present result without a new description.
    pub(crate) fn is_current(&self, name: &[u8], shape: u32) -> bool {
        shape == 0 || !self.habit.describes || self.names.get(name).is_some_and(|entry| entry.seen >= shape)
    }

    /// The stream reached the oldest unanswered Parse or Close.
    pub fn confirm(&mut self, registry: &mut Registry) {
        let Some(Change { name, to }) = self.unanswered.pop_front() else { return };
        let Some(entry) = self.names.get_mut(&name) else { return };
        entry.unanswered = entry.unanswered.saturating_sub(1);
        let before = std::mem::replace(&mut entry.answered, to);
        self.settle(&name, before, registry);
    }

    /// The server skipped, or failed, the oldest unanswered Parse or Close.
    pub fn undo(&mut self, registry: &mut Registry) {
        let Some(Change { name, to }) = self.unanswered.pop_front() else { return };
        let Some(entry) = self.names.get_mut(&name) else { return };
        entry.unanswered = entry.unanswered.saturating_sub(1);
        if entry.unanswered == 0 {
            (entry.expected, entry.seen) = (entry.answered, 0);
        }
        self.settle(&name, to, registry);
    }

    /// The name does not stand for `gone` any more, or never came to.
    fn settle(&mut self, name: &[u8], gone: Option<StatementId>, registry: &mut Registry) {
        if let Some(id) = gone {
            let rest = registry.rest(id).map_or(0, |rest| rest.len());
            self.bytes = self.bytes.saturating_sub(name.len() + rest + NAME_BYTES);
            registry.release(id);
        }
        if self.names.get(name).is_some_and(|entry| entry.unanswered == 0 && entry.answered.is_none()) {
            self.names.remove(name);
        }
    }

    /// DEALLOCATE ALL or DISCARD ALL was run. What is unanswered stays: it comes later in the stream.
    pub fn clear(&mut self, registry: &mut Registry) {
        let gone: Vec<(Box<[u8]>, StatementId)> = self
            .names
            .iter_mut()
            .filter_map(|(name, entry)| entry.answered.take().map(|id| (name.clone(), id)))
            .collect();
        for (name, id) in gone {
            self.settle(&name, Some(id), registry);
        }
    }
}

/// What a name costs of [`CLIENT_BYTES`].
fn cost(name: &[u8], rest: &[u8]) -> usize {
    name.len() + rest.len() + NAME_BYTES
}

/// What another process needs to know of a client whose requests are all answered.
impl ClientStatements {
    /// The server has reached every Parse and Close.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.unanswered.is_empty()
    }

    /// Names with what they stand for.
    pub fn names(&self) -> impl Iterator<Item = (&[u8], StatementId)> {
        self.names.iter().filter_map(|(name, entry)| entry.answered.map(|id| (&**name, id)))
    }

    /// A name that the client has already.
    pub fn adopt(&mut self, name: &[u8], rest: &[u8], registry: &mut Registry) {
        // As far as we know, it reads by a description of before every change that was noticed here.
        self.habit.describes = true;
        self.bytes += cost(name, rest);
        let statement = Some(registry.intern(rest));
        let entry = Name { answered: statement, expected: statement, ..Name::default() };
        if let Some(before) = self.names.insert(name.into(), entry).and_then(|entry| entry.answered) {
            registry.release(before);
        }
    }

    /// The client leaves.
    pub fn forget_all(&mut self, registry: &mut Registry) {
        for id in self.unanswered.drain(..).filter_map(|change| change.to) {
            registry.release(id);
        }
        for id in std::mem::take(&mut self.names).into_values().filter_map(|entry| entry.answered) {
            registry.release(id);
        }
        self.bytes = 0;
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// A client with this name, its Parse answered.
    fn with(name: &[u8], registry: &mut Registry) -> ClientStatements {
        let mut client = ClientStatements::default();
        client.parse(name, b"x", 0, registry).unwrap();
        client.confirm(registry);
        client
    }

    #[test]
    fn a_client_that_comes_after_a_change_has_not_seen_it() {
        let mut registry = Registry::default();
        let mut client = ClientStatements::default();
        let id = registry.intern(b"x");
        client.adopt(b"a", b"x", &mut registry);
        assert!(client.is_current(b"a", registry.shape(id)), "nothing has changed");
        registry.reshape(id, 0);
        let mut newcomer = ClientStatements::default();
        newcomer.adopt(b"a", b"x", &mut registry);
        assert!(!newcomer.is_current(b"a", registry.shape(id)));
        assert_eq!(newcomer.names().collect::<Vec<_>>(), [(&b"a"[..], id)]);
        assert!(newcomer.is_settled());
    }

    #[test]
    fn a_failed_parse_is_forgotten() {
        let mut registry = Registry::default();
        let mut client = ClientStatements::default();
        let id = client.parse(b"a", b"x", 0, &mut registry).unwrap();
        assert_eq!(client.find(b"a", 0), Lookup::Is(id), "what follows in its segment is skipped with it");
        assert_eq!(client.find(b"a", 1), Lookup::InDoubt);
        client.undo(&mut registry);
        assert_eq!((client.find(b"a", 1), client.bytes), (Lookup::Unknown, 0));
    }

    #[test]
    fn an_error_takes_back_a_close_and_the_parse_behind_it() {
        let mut registry = Registry::default();
        let mut client = with(b"a", &mut registry);
        let (old, bytes) = (client.expected(b"a").unwrap(), client.bytes);
        assert!(client.close(b"a", 1));
        assert_eq!(client.find(b"a", 1), Lookup::Unknown);
        let new = client.parse(b"a", b"y", 1, &mut registry).unwrap();
        assert_eq!((client.find(b"a", 1), client.find(b"a", 2)), (Lookup::Is(new), Lookup::InDoubt));
        client.undo(&mut registry);
        client.undo(&mut registry);
        assert_eq!((client.find(b"a", 2), client.bytes), (Lookup::Is(old), bytes));
        client.forget_all(&mut registry);
        for id in [old, new] {
            registry.release(id);
            assert!(registry.is_unused(id));
        }
    }

    #[test]
    fn an_error_between_them_takes_back_the_parse_only() {
        let mut registry = Registry::default();
        let mut client = with(b"a", &mut registry);
        client.close(b"a", 1);
        client.parse(b"a", b"y", 1, &mut registry).unwrap();
        client.confirm(&mut registry);
        client.undo(&mut registry);
        assert_eq!((client.find(b"a", 2), client.bytes, client.count()), (Lookup::Unknown, 0, 0));
    }

    #[test]
    fn clearing_keeps_what_comes_later_in_the_stream() {
        let mut registry = Registry::default();
        let mut client = with(b"old", &mut registry);
        client.parse(b"new", b"y", 1, &mut registry).unwrap();
        client.clear(&mut registry);
        assert_eq!((client.count(), client.find(b"old", 1)), (1, Lookup::Unknown));
        client.confirm(&mut registry);
        assert!(matches!(client.find(b"new", 2), Lookup::Is(_)));
    }

    #[test]
    fn what_a_client_keeps_has_a_bound_however_small_the_pieces_are() {
        let mut registry = Registry::default();
        let mut client = ClientStatements::default();
        let most = CLIENT_BYTES / NAME_BYTES;
        let kept = (0..2 * most)
            .take_while(|number| {
                let name = number.to_be_bytes();
                let kept = client.parse(&name, b"", 0, &mut registry).is_some();
                client.confirm(&mut registry);
                kept
            })
            .count();
        assert!(kept < most, "{kept} of {most}");
        client.clear(&mut registry);
        assert_eq!(client.bytes, 0);
    }
}
