//! Prepared statements under two names: the client's own, and one that all servers share.
//!
//! Owns the registry of texts and each client's names; what each server has is [`crate::kept`]'s. Never parses SQL.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use crate::replay::Habit;

/// A statement's number; never used twice on a shard.
pub type StatementId = u64;

/// Text of one client's prepared statements, names included, that Weir keeps at most.
const CLIENT_BYTES: usize = 64 * 1024 * 1024;

/// Unused texts that are kept for the next client that prepares the same.
const SPARE_STATEMENTS: usize = 4096;

#[derive(Debug)]
struct Statement {
    /// Parse's body after the name: text, NUL, parameter types.
    rest: Arc<[u8]>,
    clients: u32,
}

/// All statements of a shard: the same text and types are one statement.
#[derive(Debug, Default)]
pub struct Registry {
    by_rest: BTreeMap<Arc<[u8]>, StatementId>,
    by_id: BTreeMap<StatementId, Statement>,
    /// How often the result of a statement was seen to change; only of those that did.
    shapes: BTreeMap<StatementId, u32>,
    last_id: StatementId,
    spare: usize,
}

impl Registry {
    /// The statement with this rest of a Parse body, used by one client more.
    pub fn intern(&mut self, rest: &[u8]) -> StatementId {
        let id = match self.by_rest.get(rest) {
            Some(id) => *id,
            None => self.insert(rest),
        };
        if let Some(statement) = self.by_id.get_mut(&id) {
            self.spare -= usize::from(statement.clients == 0);
            statement.clients += 1;
        }
        id
    }

    fn insert(&mut self, rest: &[u8]) -> StatementId {
        self.last_id += 1;
        let rest: Arc<[u8]> = rest.into();
        self.by_rest.insert(Arc::clone(&rest), self.last_id);
        self.by_id.insert(self.last_id, Statement { rest, clients: 0 });
        self.spare += 1;
        self.last_id
    }

    /// One client less uses it.
    pub fn release(&mut self, id: StatementId) {
        let Some(statement) = self.by_id.get_mut(&id) else { return };
        statement.clients = statement.clients.saturating_sub(1);
        if statement.clients == 0 {
            self.spare += 1;
            if self.spare > SPARE_STATEMENTS {
                self.forget_spares();
            }
        }
    }

    fn forget_spares(&mut self) {
        self.by_id.retain(|_, statement| statement.clients > 0);
        let by_id = &self.by_id;
        self.by_rest.retain(|_, id| by_id.contains_key(id));
        self.shapes.retain(|id, _| by_id.contains_key(id));
        self.spare = 0;
    }

    /// Numbers statements from here on, so that no other shard and no earlier process has used a number.
    pub fn number_from(&mut self, base: StatementId) {
        self.last_id = self.last_id.max(base);
    }

    /// A server that came from another process has this statement under this number.
    pub fn adopt(&mut self, id: StatementId, rest: &[u8]) {
        if self.by_rest.contains_key(rest) || self.by_id.contains_key(&id) {
            return;
        }
        let rest: Arc<[u8]> = rest.into();
        self.by_rest.insert(Arc::clone(&rest), id);
        self.by_id.insert(id, Statement { rest, clients: 0 });
        self.spare += 1;
    }

    /// The number of a statement's present result: it counts the changes that were noticed.
    #[must_use]
    pub(crate) fn shape(&self, id: StatementId) -> u32 {
        if self.shapes.is_empty() { 0 } else { self.shapes.get(&id).copied().unwrap_or(0) }
    }

    /// A server that had prepared it at this number says that its result has changed. Others may say so later of the
    /// same change.
    pub(crate) fn reshape(&mut self, id: StatementId, prepared_at: u32) {
        if self.shape(id) == prepared_at {
            self.shapes.insert(id, prepared_at + 1);
        }
    }

    /// Parse's body after the name.
    #[must_use]
    pub fn rest(&self, id: StatementId) -> Option<&Arc<[u8]>> {
        self.by_id.get(&id).map(|statement| &statement.rest)
    }
}

/// The name that a statement has on every server: PgBouncer's, so that what looks for those finds these.
#[must_use]
pub fn server_name(id: StatementId) -> ServerName {
    let mut name = ServerName { bytes: [0; SERVER_NAME_BYTES], start: SERVER_NAME_BYTES };
    let mut rest = id;
    loop {
        name.start -= 1;
        name.bytes[name.start] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    let digits_at = name.start;
    name.start -= SERVER_NAME_HEAD.len();
    name.bytes[name.start..digits_at].copy_from_slice(SERVER_NAME_HEAD);
    name
}

const SERVER_NAME_HEAD: &[u8] = b"PGBOUNCER_";

/// With all digits of the largest number.
const SERVER_NAME_BYTES: usize = SERVER_NAME_HEAD.len() + 20;

/// See [`server_name`]. Every Bind needs one, so it is no allocation.
#[derive(Clone, Copy, Debug)]
pub struct ServerName {
    bytes: [u8; SERVER_NAME_BYTES],
    start: usize,
}

impl std::ops::Deref for ServerName {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[self.start..]
    }
}

#[derive(Debug)]
struct Unconfirmed {
    name: Box<[u8]>,
    statement: StatementId,
    closing: bool,
}

/// One client's names. Made only when the client prepares its first named statement.
#[derive(Debug, Default)]
pub struct ClientStatements {
    names: BTreeMap<Box<[u8]>, StatementId>,
    /// Parses and Closes that the stream has not reached yet, oldest first: an error before them undoes them.
    unconfirmed: VecDeque<Unconfirmed>,
    bytes: usize,
    /// How it reads results.
    pub(crate) habit: Habit,
    /// The number of the result that it has a description of, by name; 0 where there is none.
    seen: BTreeMap<Box<[u8]>, u32>,
}

impl ClientStatements {
    /// How many names are in use.
    #[must_use]
    pub fn count(&self) -> usize {
        self.names.len()
    }

    /// The statement behind a name.
    #[must_use]
    pub fn find(&self, name: &[u8]) -> Option<StatementId> {
        self.names.get(name).copied()
    }

    /// A Parse was sent. False if the client keeps too much text already.
    #[must_use]
    pub fn parse(&mut self, name: &[u8], rest: &[u8], registry: &mut Registry) -> Option<StatementId> {
        self.bytes += name.len() + rest.len();
        if self.bytes > CLIENT_BYTES {
            return None;
        }
        let statement = registry.intern(rest);
        self.names.insert(name.into(), statement);
        self.described(name, registry.shape(statement));
        self.unconfirmed.push_back(Unconfirmed { name: name.into(), statement, closing: false });
        Some(statement)
    }

    /// The client has, or will have before any row, the description of this result.
    pub(crate) fn described(&mut self, name: &[u8], shape: u32) {
        if shape > 0 {
            self.seen.insert(name.into(), shape);
        }
    }

    /// The same under whatever name.
    pub(crate) fn statement_described(&mut self, id: StatementId, shape: u32) {
        let names = self.names.iter().filter(|(_, statement)| **statement == id);
        self.seen.extend(names.map(|(name, _)| (name.clone(), shape)));
    }

    /// Whether it may be given rows of the present result without a new description.
    pub(crate) fn is_current(&self, name: &[u8], shape: u32) -> bool {
        shape == 0 || !self.habit.describes || self.seen.get(name).is_some_and(|seen| *seen >= shape)
    }

    /// A Close was sent; false if there is no such name.
    pub fn close(&mut self, name: &[u8]) -> bool {
        let Some((name, statement)) = self.names.remove_entry(name) else { return false };
        self.seen.remove(&name);
        self.unconfirmed.push_back(Unconfirmed { name, statement, closing: true });
        true
    }

    /// The stream reached the oldest unconfirmed Parse or Close.
    pub fn confirm(&mut self, registry: &mut Registry) {
        if let Some(entry) = self.unconfirmed.pop_front()
            && entry.closing
        {
            self.drop_statement(&entry, registry);
        }
    }

    /// The server skipped, or failed, the oldest unconfirmed Parse or Close.
    pub fn undo(&mut self, registry: &mut Registry) {
        let Some(entry) = self.unconfirmed.pop_front() else { return };
        if entry.closing {
            self.names.insert(entry.name, entry.statement);
        } else if self.names.get(&entry.name) == Some(&entry.statement) {
            self.names.remove(&entry.name);
            self.drop_statement(&entry, registry);
        }
    }

    fn drop_statement(&mut self, entry: &Unconfirmed, registry: &mut Registry) {
        let text = registry.rest(entry.statement).map_or(0, |rest| rest.len());
        self.bytes = self.bytes.saturating_sub(entry.name.len() + text);
        registry.release(entry.statement);
    }

    /// DEALLOCATE ALL or DISCARD ALL was run. What is unconfirmed stays: it comes later in the stream.
    pub fn clear(&mut self, registry: &mut Registry) {
        let later: Vec<Box<[u8]>> =
            self.unconfirmed.iter().filter(|entry| !entry.closing).map(|entry| entry.name.clone()).collect();
        self.names.retain(|name, statement| {
            let keep = later.contains(name);
            if !keep {
                registry.release(*statement);
            }
            keep
        });
        let names = &self.names;
        self.seen.retain(|name, _| names.contains_key(name));
        if self.names.is_empty() {
            self.bytes = 0;
        }
    }
}

/// What another process needs to know of a client whose requests are all answered.
impl ClientStatements {
    /// The server has reached every Parse and Close.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.unconfirmed.is_empty()
    }

    /// Names with what they stand for.
    pub fn names(&self) -> impl Iterator<Item = (&[u8], StatementId)> {
        self.names.iter().map(|(name, statement)| (&**name, *statement))
    }

    /// A name that the client has already.
    pub fn adopt(&mut self, name: &[u8], rest: &[u8], registry: &mut Registry) {
        // As far as we know, it reads by a description of before every change that was noticed here.
        self.habit.describes = true;
        self.bytes += name.len() + rest.len();
        let statement = registry.intern(rest);
        if let Some(before) = self.names.insert(name.into(), statement) {
            registry.release(before);
        }
    }
}

impl ClientStatements {
    /// The client leaves.
    pub fn forget_all(&mut self, registry: &mut Registry) {
        for entry in self.unconfirmed.drain(..).filter(|entry| entry.closing) {
            registry.release(entry.statement);
        }
        for (_, statement) in std::mem::take(&mut self.names) {
            registry.release(statement);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn names_on_servers_end_in_their_number() {
        assert_eq!(&*server_name(0), b"PGBOUNCER_0");
        assert_eq!(&*server_name(1_203), b"PGBOUNCER_1203");
        assert_eq!(&*server_name(u64::MAX), b"PGBOUNCER_18446744073709551615");
    }

    #[test]
    fn the_same_text_is_one_statement() {
        let mut registry = Registry::default();
        let one = registry.intern(b"select 1\0\0\0");
        assert_eq!(registry.intern(b"select 1\0\0\0"), one);
        assert_ne!(registry.intern(b"select 2\0\0\0"), one);
    }

    #[test]
    fn whoever_comes_after_a_change_has_not_seen_it() {
        let mut registry = Registry::default();
        let mut client = ClientStatements::default();
        let id = registry.intern(b"x");
        client.adopt(b"a", b"x", &mut registry);
        assert!(client.is_current(b"a", registry.shape(id)), "nothing has changed");
        registry.reshape(id, 0);
        let mut newcomer = ClientStatements::default();
        newcomer.adopt(b"a", b"x", &mut registry);
        assert!(!newcomer.is_current(b"a", registry.shape(id)));
    }

    #[test]
    fn a_failed_parse_is_forgotten_and_a_skipped_close_undone() {
        let mut registry = Registry::default();
        let mut client = ClientStatements::default();
        let id = client.parse(b"a", b"x", &mut registry).unwrap();
        client.undo(&mut registry);
        assert_eq!(client.find(b"a"), None);
        assert_eq!(client.parse(b"a", b"x", &mut registry), Some(id));
        client.confirm(&mut registry);
        assert!(client.close(b"a"));
        assert_eq!(client.find(b"a"), None);
        client.undo(&mut registry);
        assert_eq!(client.find(b"a"), Some(id));
    }

    #[test]
    fn clearing_keeps_what_comes_later_in_the_stream() {
        let mut registry = Registry::default();
        let mut client = ClientStatements::default();
        client.parse(b"old", b"x", &mut registry).unwrap();
        client.confirm(&mut registry);
        client.parse(b"new", b"y", &mut registry).unwrap();
        client.clear(&mut registry);
        assert_eq!(client.count(), 1);
        assert!(client.find(b"new").is_some());
    }

    #[test]
    fn what_another_process_prepared_keeps_its_number_and_its_age() {
        let mut registry = Registry::default();
        registry.number_from(1 << 40);
        registry.adopt(7, b"x");
        registry.adopt(8, b"x");
        assert_eq!(registry.intern(b"x"), 7);
        assert_eq!(registry.intern(b"y"), (1 << 40) + 1);
        let mut client = ClientStatements::default();
        client.adopt(b"a", b"x", &mut registry);
        assert!(client.is_settled());
        assert_eq!(client.names().collect::<Vec<_>>(), [(&b"a"[..], 7)]);
    }

    #[test]
    fn unused_texts_do_not_grow_without_bound() {
        let mut registry = Registry::default();
        for number in 0..3 * SPARE_STATEMENTS {
            let id = registry.intern(format!("select {number}").as_bytes());
            registry.release(id);
        }
        assert!(registry.by_id.len() <= SPARE_STATEMENTS + 1);
    }
}
