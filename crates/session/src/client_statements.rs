//! One client's names for prepared statements, as PostgreSQL would have them at each place of the client's stream.
//!
//! Owns which statement a name stands for, what is taken back by an error, and how much one client may keep. The texts are
//! the [`StatementRegistry`]'s. Never sees a byte of the protocol.

mod describes;

use std::collections::{BTreeMap, VecDeque};

pub(crate) use describes::DescribeHistory;

use crate::parse_settings::ParseSettings;
use crate::{StatementId, StatementRegistry};

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
    Unresolved,
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
}

/// A Parse or Close of a name that was sent and is unanswered.
#[derive(Debug)]
struct Change {
    name: Box<[u8]>,
    to: Option<StatementId>,
}

/// Which of the names that stand for a statement.
#[derive(Clone, Copy, Debug)]
pub(crate) enum NameSelector<'a> {
    All,
    /// That of the Parse which was answered last.
    Latest,
    Only(&'a [u8]),
}

/// One client's names. Made only when the client prepares its first named statement.
#[derive(Debug, Default)]
pub struct ClientStatements {
    names: BTreeMap<Box<[u8]>, Name>,
    /// In the order of the stream.
    unanswered: VecDeque<Change>,
    /// What the client keeps of its [`CLIENT_BYTES`].
    bytes: usize,
    /// The name of the Parse or Close that the stream has reached last.
    latest: Box<[u8]>,
    /// Describes that are unanswered.
    describes: describes::PendingDescribes,
    /// Whether it reads results by a description.
    pub(crate) describe_history: DescribeHistory,
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
            Some(entry) if entry.unanswered > 0 && entry.segment != segment => Lookup::Unresolved,
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
        settings: Option<&ParseSettings>,
        segment: u64,
        registry: &mut StatementRegistry,
    ) -> Option<StatementId> {
        let most = rest.len() + settings.map_or(0, ParseSettings::bytes);
        if self.bytes + cost(name, most) > CLIENT_BYTES {
            return None;
        }
        let statement = registry.intern(rest, settings);
        self.bytes += cost(name, registry.bytes(statement));
        self.change(name, Some(statement), segment);
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

    /// The name is given to the server's own statement: it stands for none here, once that is answered.
    pub(crate) fn give_up(&mut self, name: &[u8], segment: u64) {
        self.change(name, None, segment);
    }

    fn change(&mut self, name: &[u8], to: Option<StatementId>, segment: u64) {
        let entry = self.names.entry(name.into()).or_default();
        (entry.expected, entry.segment) = (to, segment);
        entry.unanswered += 1;
        self.unanswered.push_back(Change { name: name.into(), to });
    }

    /// The name's statement cannot be prepared where the client uses it next, because other settings are in force there than when it
    /// was parsed: from here on the name stands for the same text under these ([`StatementRegistry::intern_under`]). None if there is no such name.
    pub(crate) fn parse_again(
        &mut self,
        name: &[u8],
        settings: Option<&ParseSettings>,
        is_read_by: bool,
        registry: &mut StatementRegistry,
    ) -> Option<StatementId> {
        let entry = self.names.get_mut(name)?;
        let old = entry.expected?;
        let slot = match entry.unanswered {
            0 => &mut entry.answered,
            _ => &mut self.unanswered.iter_mut().rfind(|change| *change.name == *name)?.to,
        };
        let new = registry.intern_under(old, settings, is_read_by)?;
        (*slot, entry.expected) = (Some(new), Some(new));
        self.bytes = (self.bytes + registry.bytes(new)).saturating_sub(registry.bytes(old));
        registry.release(old);
        Some(new)
    }

    /// The names of these stand for another statement from here on, of the same text.
    pub(crate) fn replace(
        &mut self,
        old: StatementId,
        new: StatementId,
        selector: NameSelector<'_>,
        registry: &mut StatementRegistry,
    ) {
        let is_meant = |name: &[u8], latest: &[u8]| match selector {
            NameSelector::All => true,
            NameSelector::Latest => *name == *latest,
            NameSelector::Only(this) => *name == *this,
        };
        let mut slots = 0;
        for (name, entry) in self.names.iter_mut().filter(|(name, _)| is_meant(name, &self.latest)) {
            if entry.answered == Some(old) {
                entry.answered = Some(new);
                slots += 1;
            }
            if entry.expected == Some(old) {
                entry.expected = Some(new);
            }
            let changes = self.unanswered.iter_mut().filter(|change| change.name == *name);
            for change in changes.filter(|change| change.to == Some(old)) {
                change.to = Some(new);
                slots += 1;
            }
        }
        for _ in 0..slots {
            self.bytes = (self.bytes + registry.bytes(new)).saturating_sub(registry.bytes(old));
            registry.hold(new);
            registry.release(old);
        }
    }

    /// The stream reached the oldest unanswered Parse or Close.
    pub fn confirm(&mut self, registry: &mut StatementRegistry) {
        let Some(Change { name, to }) = self.unanswered.pop_front() else { return };
        let Some(entry) = self.names.get_mut(&name) else { return };
        entry.unanswered = entry.unanswered.saturating_sub(1);
        let before = std::mem::replace(&mut entry.answered, to);
        self.settle(&name, before, registry);
        self.latest = name;
    }

    /// The server skipped, or failed, the oldest unanswered Parse or Close.
    pub fn undo(&mut self, registry: &mut StatementRegistry) {
        let Some(Change { name, to }) = self.unanswered.pop_front() else { return };
        let Some(entry) = self.names.get_mut(&name) else { return };
        entry.unanswered = entry.unanswered.saturating_sub(1);
        if entry.unanswered == 0 {
            entry.expected = entry.answered;
        }
        self.settle(&name, to, registry);
    }

    /// The name does not stand for `gone` any more, or never came to.
    fn settle(&mut self, name: &[u8], gone: Option<StatementId>, registry: &mut StatementRegistry) {
        if let Some(id) = gone {
            self.bytes = self.bytes.saturating_sub(cost(name, registry.bytes(id)));
            registry.release(id);
        }
        if self.names.get(name).is_some_and(|entry| entry.unanswered == 0 && entry.answered.is_none()) {
            self.names.remove(name);
        }
    }

    /// DEALLOCATE ALL or DISCARD ALL was run. What is unanswered stays: it comes later in the stream.
    pub fn clear(&mut self, registry: &mut StatementRegistry) {
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

/// What a name of a statement of this size costs of [`CLIENT_BYTES`].
fn cost(name: &[u8], statement_bytes: usize) -> usize {
    name.len() + statement_bytes + NAME_BYTES
}

/// What another process needs to know of a client whose requests are all answered.
impl ClientStatements {
    /// The server has reached every Parse and Close.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.unanswered.is_empty()
    }

    /// The client has got the description of the statement that a name stands for.
    pub fn note_description(&mut self) {
        self.describe_history.describes = true;
    }

    /// Names with what they stand for.
    pub fn names(&self) -> impl Iterator<Item = (&[u8], StatementId)> {
        self.names.iter().filter_map(|(name, entry)| entry.answered.map(|id| (&**name, id)))
    }

    /// Whether the client has ever asked for a description: it may read rows by that.
    #[must_use]
    pub fn describes(&self) -> bool {
        self.describe_history.describes
    }

    /// A name that the client has already, of a statement that the registry has. If it has asked for descriptions, it may hold this
    /// one's.
    pub fn import(
        &mut self,
        name: &[u8],
        statement: StatementId,
        has_described: bool,
        registry: &mut StatementRegistry,
    ) {
        self.describe_history.describes |= has_described;
        registry.hold(statement);
        self.bytes += cost(name, registry.bytes(statement));
        let statement = Some(statement);
        let entry = Name { answered: statement, expected: statement, ..Name::default() };
        if let Some(before) = self.names.insert(name.into(), entry).and_then(|entry| entry.answered) {
            registry.release(before);
        }
    }

    /// The server that was to answer is gone, and the request, which prepares and closes nothing, is repeated by another one.
    pub fn request_repeats(&mut self, registry: &mut StatementRegistry) {
        self.drop_all_describes(registry);
    }

    /// The client has disconnected.
    pub fn forget_all(&mut self, registry: &mut StatementRegistry) {
        self.drop_all_describes(registry);
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
    use crate::{Catalog, Parameters, Tracked};

    fn settings(registry: &mut StatementRegistry) -> ParseSettings {
        registry.settings(None, &Parameters::unknown(&Tracked::new([])), Catalog::default())
    }

    /// A client with this name, its Parse answered.
    pub(super) fn with(name: &[u8], registry: &mut StatementRegistry) -> ClientStatements {
        let mut client = ClientStatements::default();
        client.parse(name, b"x", Some(&settings(registry)), 0, registry).unwrap();
        client.confirm(registry);
        client
    }

    #[test]
    fn names_come_to_stand_for_a_successor() {
        let mut registry = StatementRegistry::default();
        let now = settings(&mut registry);
        let mut client = with(b"a", &mut registry);
        let (old, bytes) = (client.expected(b"a").unwrap(), client.bytes);
        let successor = |registry: &mut StatementRegistry| {
            registry.retire(old);
            registry.successor(old, None, true).unwrap()
        };
        client.parse(b"b", b"x", Some(&now), 1, &mut registry).unwrap();
        client.close(b"a", 1);
        let new = successor(&mut registry);
        client.confirm(&mut registry);
        client.replace(old, new, NameSelector::Latest, &mut registry);
        assert_eq!((client.find(b"b", 2), client.expected(b"a")), (Lookup::Is(new), None));
        client.undo(&mut registry);
        assert_eq!(client.find(b"a", 2), Lookup::Is(old), "its Close was skipped");
        client.replace(old, new, NameSelector::Only(b"a"), &mut registry);
        assert!(registry.rest(old).is_none() && client.find(b"a", 2) == Lookup::Is(new));
        client.close(b"b", 3);
        client.confirm(&mut registry);
        assert_eq!(client.bytes, bytes);
        client.forget_all(&mut registry);
        assert!(registry.is_unused(new));
    }

    #[test]
    fn names_from_another_process_are_settled() {
        let mut registry = StatementRegistry::default();
        let now = settings(&mut registry);
        let mut client = ClientStatements::default();
        let id = registry.intern(b"x", Some(&now));
        client.import(b"a", id, true, &mut registry);
        assert_eq!(client.names().collect::<Vec<_>>(), [(&b"a"[..], id)]);
        assert!(client.is_settled() && client.describe_history.describes);
    }

    #[test]
    fn a_failed_parse_is_forgotten() {
        let mut registry = StatementRegistry::default();
        let now = settings(&mut registry);
        let mut client = ClientStatements::default();
        let id = client.parse(b"a", b"x", Some(&now), 0, &mut registry).unwrap();
        assert_eq!(client.find(b"a", 0), Lookup::Is(id), "what follows in its segment is skipped with it");
        assert_eq!(client.find(b"a", 1), Lookup::Unresolved);
        client.undo(&mut registry);
        assert_eq!((client.find(b"a", 1), client.bytes), (Lookup::Unknown, 0));
    }

    #[test]
    fn an_error_takes_back_a_close_and_the_parse_behind_it() {
        let mut registry = StatementRegistry::default();
        let now = settings(&mut registry);
        let mut client = with(b"a", &mut registry);
        let (old, bytes) = (client.expected(b"a").unwrap(), client.bytes);
        assert!(client.close(b"a", 1));
        assert_eq!(client.find(b"a", 1), Lookup::Unknown);
        let new = client.parse(b"a", b"y", Some(&now), 1, &mut registry).unwrap();
        assert_eq!((client.find(b"a", 1), client.find(b"a", 2)), (Lookup::Is(new), Lookup::Unresolved));
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
        let mut registry = StatementRegistry::default();
        let now = settings(&mut registry);
        let mut client = with(b"a", &mut registry);
        client.close(b"a", 1);
        client.parse(b"a", b"y", Some(&now), 1, &mut registry).unwrap();
        client.confirm(&mut registry);
        client.undo(&mut registry);
        assert_eq!((client.find(b"a", 2), client.bytes, client.count()), (Lookup::Unknown, 0, 0));
    }

    #[test]
    fn a_name_comes_to_stand_for_the_same_text_under_other_settings() {
        let tracked = Tracked::new([]);
        let mut registry = StatementRegistry::default();
        let mut client = with(b"a", &mut registry);
        let old = client.expected(b"a").unwrap();
        let mut parameters = Parameters::unknown(&tracked);
        parameters.set(tracked.position(b"TimeZone").unwrap(), "Asia/Tokyo");
        let tokyo = registry.settings(None, &parameters, Catalog::default());
        let new = client.parse_again(b"a", Some(&tokyo), false, &mut registry).unwrap();
        assert_ne!(old, new);
        assert!(registry.is_unused(old) && registry.rest(old) == registry.rest(new));
        assert_eq!((client.find(b"a", 1), client.names().count()), (Lookup::Is(new), 1));
        // In the segment of its Parse, too.
        let text = client.parse(b"b", b"x", Some(&tokyo), 1, &mut registry).unwrap();
        let own = client.parse_again(b"b", None, false, &mut registry).unwrap();
        assert_eq!((text, client.find(b"b", 1)), (new, Lookup::Is(own)));
        client.undo(&mut registry);
        assert!(registry.is_unused(own) && client.find(b"b", 2) == Lookup::Unknown);
        client.clear(&mut registry);
        assert_eq!(client.bytes, 0);
        assert!(registry.is_unused(new));
        assert_eq!(client.parse_again(b"a", None, true, &mut registry), None);
    }

    #[test]
    fn clearing_keeps_what_comes_later_in_the_stream() {
        let mut registry = StatementRegistry::default();
        let now = settings(&mut registry);
        let mut client = with(b"old", &mut registry);
        client.parse(b"new", b"y", Some(&now), 1, &mut registry).unwrap();
        client.clear(&mut registry);
        assert_eq!((client.count(), client.find(b"old", 1)), (1, Lookup::Unknown));
        client.confirm(&mut registry);
        assert!(matches!(client.find(b"new", 2), Lookup::Is(_)));
    }

    #[test]
    fn what_a_client_keeps_has_a_bound_however_small_the_pieces_are() {
        let mut registry = StatementRegistry::default();
        let now = settings(&mut registry);
        let mut client = ClientStatements::default();
        let most = CLIENT_BYTES / NAME_BYTES;
        let kept = (0..2 * most)
            .take_while(|number| {
                let name = number.to_be_bytes();
                let kept = client.parse(&name, b"", Some(&now), 0, &mut registry).is_some();
                client.confirm(&mut registry);
                kept
            })
            .count();
        assert!(kept < most, "{kept} of {most}");
        client.clear(&mut registry);
        assert_eq!(client.bytes, 0);
    }
}
