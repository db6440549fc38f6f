//! The texts of prepared statements, and the names that all servers share for them.
//!
//! Owns the registry of texts; each client's names are [`crate::client_statements`]'s, what each server has
//! [`crate::kept`]'s. Never parses SQL.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::resets::may_reset;

/// A statement's number; never used twice on a shard.
pub type StatementId = u64;

/// Unused texts that are kept for the next client that prepares the same.
const SPARE_STATEMENTS: usize = 4096;

/// How much text they may be.
const SPARE_BYTES: usize = 4 * 1024 * 1024;

#[derive(Debug)]
struct Statement {
    /// Parse's body after the name: text, NUL, parameter types.
    rest: Arc<[u8]>,
    clients: u32,
    /// Executing it may change which statements are prepared, or reset parameters; its text says more.
    alters_session: bool,
}

/// All statements of a shard: the same text and types are one statement.
#[derive(Debug, Default)]
pub struct Registry {
    by_rest: BTreeMap<Arc<[u8]>, StatementId>,
    by_id: BTreeMap<StatementId, Statement>,
    /// How often the result of a statement was seen to change; only of those that did.
    shapes: BTreeMap<StatementId, u32>,
    last_id: StatementId,
    spare: Spare,
}

/// What no client uses.
#[derive(Debug, Default)]
struct Spare {
    statements: usize,
    bytes: usize,
}

impl Spare {
    fn add(&mut self, rest: &[u8]) {
        self.statements += 1;
        self.bytes += rest.len();
    }

    fn take(&mut self, rest: &[u8]) {
        self.statements -= 1;
        self.bytes -= rest.len();
    }

    fn is_too_much(&self) -> bool {
        self.statements > SPARE_STATEMENTS || self.bytes > SPARE_BYTES
    }
}

impl Registry {
    /// The statement with this rest of a Parse body, used by one client more.
    pub fn intern(&mut self, rest: &[u8]) -> StatementId {
        let id = match self.by_rest.get(rest) {
            Some(id) => *id,
            None => self.insert(rest),
        };
        if let Some(statement) = self.by_id.get_mut(&id) {
            if statement.clients == 0 {
                self.spare.take(rest);
            }
            statement.clients += 1;
        }
        id
    }

    fn insert(&mut self, rest: &[u8]) -> StatementId {
        self.last_id += 1;
        let rest: Arc<[u8]> = rest.into();
        self.insert_as(self.last_id, rest);
        self.last_id
    }

    fn insert_as(&mut self, id: StatementId, rest: Arc<[u8]>) {
        let alters_session = may_change_statements(&rest).unwrap_or(true) || may_reset(&rest, 0);
        self.spare.add(&rest);
        self.by_rest.insert(Arc::clone(&rest), id);
        self.by_id.insert(id, Statement { rest, clients: 0, alters_session });
    }

    /// The statement with this rest of a Parse body, if there is one.
    pub(crate) fn find(&self, rest: &[u8]) -> Option<StatementId> {
        self.by_rest.get(rest).copied()
    }

    /// Executing it may change which statements are prepared, or reset parameters.
    pub(crate) fn alters_session(&self, id: StatementId) -> bool {
        self.by_id.get(&id).is_none_or(|statement| statement.alters_session)
    }

    /// One client less uses it.
    pub fn release(&mut self, id: StatementId) {
        let Some(statement) = self.by_id.get_mut(&id) else { return };
        if statement.clients == 0 {
            return;
        }
        statement.clients -= 1;
        if statement.clients == 0 {
            self.spare.add(&statement.rest);
            if self.spare.is_too_much() {
                self.forget_spares();
            }
        }
    }

    fn forget_spares(&mut self) {
        self.by_id.retain(|_, statement| statement.clients > 0);
        let by_id = &self.by_id;
        self.by_rest.retain(|_, id| by_id.contains_key(id));
        self.shapes.retain(|id, _| by_id.contains_key(id));
        self.spare = Spare::default();
    }

    /// No client uses it.
    #[cfg(test)]
    pub(crate) fn is_unused(&self, id: StatementId) -> bool {
        self.by_id.get(&id).is_none_or(|statement| statement.clients == 0)
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
        self.insert_as(id, rest.into());
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

/// Whether a statement of the extended protocol, which is one command, is DEALLOCATE, DISCARD or PREPARE; true as well
/// where a comment stands before the command. None if more of the text is needed.
#[inline]
pub(crate) fn may_change_statements(text: &[u8]) -> Option<bool> {
    match text.first()? | 0x20 {
        b'd' | b'p' => {}
        b'a'..=b'z' => return Some(false),
        _ => {}
    }
    let command = text.trim_ascii_start();
    match command.first()?.to_ascii_lowercase() {
        b'd' | b'p' => {}
        b'-' | b'/' => return Some(true),
        _ => return Some(false),
    }
    let Some(start) = command.get(..3) else { return command.contains(&0).then_some(false) };
    Some([b"dea", b"dis", b"pre"].iter().any(|word| start.eq_ignore_ascii_case(*word)))
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

pub(crate) const SERVER_NAME_HEAD: &[u8] = b"PGBOUNCER_";

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
    fn what_another_process_prepared_keeps_its_number() {
        let mut registry = Registry::default();
        registry.number_from(1 << 40);
        registry.adopt(7, b"x");
        registry.adopt(8, b"x");
        assert_eq!(registry.intern(b"x"), 7);
        assert_eq!(registry.intern(b"y"), (1 << 40) + 1);
    }

    #[test]
    fn a_command_that_may_change_statements_is_known_by_its_first_word() {
        for (text, changes) in [
            (&b"deallocate all\0\0\0"[..], Some(true)),
            (b"  \nDISCARD ALL\0", Some(true)),
            (b"Prepare x as select 1\0", Some(true)),
            (b"/* why */ select 1\0", Some(true)),
            (b"-- why\nselect 1\0", Some(true)),
            (b"delete from deallocate\0", Some(false)),
            (b"select 1\0", Some(false)),
            (b"do\0", Some(false)),
            (b"\0", Some(false)),
            (b"de", None),
            (b"  ", None),
            (b"", None),
        ] {
            assert_eq!(may_change_statements(text), changes, "{}", String::from_utf8_lossy(text));
        }
    }

    #[test]
    fn unused_texts_do_not_grow_without_bound() {
        let mut registry = Registry::default();
        for number in 0..3 * SPARE_STATEMENTS {
            let id = registry.intern(format!("select {number}").as_bytes());
            registry.release(id);
        }
        assert!(registry.by_id.len() <= SPARE_STATEMENTS + 1);
        for number in 0..1000 {
            let id = registry.intern(format!("select {number:>30000}").as_bytes());
            registry.release(id);
        }
        assert!(
            registry.by_id.values().map(|statement| statement.rest.len()).sum::<usize>()
                <= SPARE_BYTES + 30_100
        );
    }
}
