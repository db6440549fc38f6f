//! The prepared statements of one server connection, with the order of their use and whether they can be trusted.
//!
//! A statement counts as prepared from the moment its Parse is queued (what follows in the stream sees it) and is
//! forgotten at once if that Parse fails or is skipped. Never knows a name or a text.

use std::collections::BTreeMap;

use crate::StatementId;

/// One server's set, with the order of use.
#[derive(Debug, Default)]
pub struct ServerStatements {
    kept: BTreeMap<StatementId, Kept>,
    clock: u64,
    /// Counts the times at which nothing was owed.
    rests: u64,
}

/// One statement of a server.
#[derive(Clone, Copy, Debug)]
struct Kept {
    /// When it was last used, by `clock`.
    used: u64,
    /// At which count of `rests` it was last parsed or bound.
    verified: u64,
    /// The server has refused it, or may not have it: it has to be closed before it is prepared again.
    spoilt: bool,
    /// The number of the result that it was prepared for.
    shape: u32,
}

impl ServerStatements {
    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.kept.len()
    }

    /// All of them, the least recently used first.
    #[must_use]
    pub fn by_age(&self) -> Vec<StatementId> {
        let mut by_age: Vec<(u64, StatementId)> =
            self.kept.iter().map(|(id, kept)| (kept.used, *id)).collect();
        by_age.sort_unstable();
        by_age.into_iter().map(|(_, id)| id).collect()
    }

    /// True if the server has it in good order (or will, by the time it reads what comes next); it is now the last used.
    pub fn touch(&mut self, id: StatementId) -> bool {
        self.touch_shape(id, 0)
    }

    /// The same, if it was prepared for this result or a later one.
    pub(crate) fn touch_shape(&mut self, id: StatementId, shape: u32) -> bool {
        self.clock += 1;
        match self.kept.get_mut(&id) {
            Some(kept) if !kept.spoilt && kept.shape >= shape => {
                kept.used = self.clock;
                true
            }
            _ => false,
        }
    }

    /// Its Parse is being sent.
    pub fn insert(&mut self, id: StatementId) {
        self.insert_shape(id, 0);
    }

    /// The same, for this result.
    pub(crate) fn insert_shape(&mut self, id: StatementId, shape: u32) {
        self.clock += 1;
        self.kept.insert(id, Kept { used: self.clock, verified: self.rests, spoilt: false, shape });
    }

    /// The number of the result that it was prepared for.
    pub(crate) fn shape(&self, id: StatementId) -> Option<u32> {
        self.kept.get(&id).map(|kept| kept.shape)
    }

    /// A server that came from another process has it, after all that it has so far. How long ago it was bound there is
    /// not known.
    pub fn adopt(&mut self, id: StatementId) {
        self.insert(id);
        self.rest();
    }

    /// Its Parse failed or was skipped, or it was closed.
    pub fn forget(&mut self, id: StatementId) {
        self.kept.remove(&id);
    }

    /// The least recently used one, taken out, if there are `limit` or more.
    pub fn make_room(&mut self, limit: usize) -> Option<StatementId> {
        if self.kept.len() < limit {
            return None;
        }
        let id = self.kept.iter().min_by_key(|(_, kept)| kept.used).map(|(id, _)| *id)?;
        self.kept.remove(&id);
        Some(id)
    }

    /// DEALLOCATE ALL or DISCARD ALL was run: only those whose Parse is still on its way remain.
    pub fn clear(&mut self, mut on_its_way: impl FnMut(StatementId) -> bool) {
        self.kept.retain(|id, _| on_its_way(*id));
    }

    /// Nothing is owed any more: what was bound before may be spoilt when it is bound next.
    #[inline]
    pub(crate) fn rest(&mut self) {
        self.rests += 1;
    }

    /// The server has bound it.
    pub(crate) fn verify(&mut self, id: StatementId) {
        if let Some(kept) = self.kept.get_mut(&id) {
            kept.verified = self.rests;
        }
    }

    /// It was parsed or bound since the server was last at rest.
    pub(crate) fn is_verified(&self, id: StatementId) -> bool {
        self.kept.get(&id).is_some_and(|kept| kept.verified == self.rests)
    }

    /// It is parsed again under its name, wherever it stands in the order of use; it may have been forgotten since.
    pub(crate) fn prepared_anew(&mut self, id: StatementId, shape: u32) {
        match self.kept.get_mut(&id) {
            Some(kept) => (kept.verified, kept.spoilt, kept.shape) = (self.rests, false, shape),
            None => self.insert_shape(id, shape),
        }
    }

    /// The server refused to bind it, and the client was told.
    pub(crate) fn spoil(&mut self, id: StatementId) {
        if let Some(kept) = self.kept.get_mut(&id) {
            kept.spoilt = true;
        }
    }

    /// Its Close was skipped, so it may be there still: it is closed again before it is prepared again.
    pub(crate) fn doubt(&mut self, id: StatementId) {
        self.insert(id);
        self.spoil(id);
    }

    /// Takes out what is there and cannot be used; it has to be closed.
    pub(crate) fn take_unusable(&mut self, id: StatementId) -> bool {
        self.kept.remove(&id).is_some()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_makes_room() {
        let mut server = ServerStatements::default();
        server.insert(1);
        server.insert(2);
        assert!(server.touch(1));
        assert_eq!(server.make_room(3), None);
        assert_eq!(server.make_room(2), Some(2));
        assert!(!server.touch(2));
    }

    #[test]
    fn they_have_an_age() {
        let mut server = ServerStatements::default();
        server.insert(9);
        server.insert(7);
        server.touch(9);
        assert_eq!(server.by_age(), [7, 9]);
    }

    #[test]
    fn a_spoilt_statement_counts_and_is_not_used() {
        let mut server = ServerStatements::default();
        server.insert(1);
        server.spoil(1);
        assert!(!server.touch(1));
        assert_eq!(server.count(), 1, "the server has it");
        assert!(server.take_unusable(1) && !server.take_unusable(1));
        assert_eq!(server.count(), 0);
    }

    #[test]
    fn one_prepared_for_an_older_result_is_not_used() {
        let mut server = ServerStatements::default();
        server.insert_shape(1, 2);
        assert!(server.touch_shape(1, 2) && !server.touch_shape(1, 3));
        server.prepared_anew(1, 3);
        assert!(server.touch_shape(1, 3));
        server.forget(1);
        server.prepared_anew(1, 3);
        assert!(
            server.touch_shape(1, 3),
            "an error behind which it was skipped once does not matter any more"
        );
    }

    #[test]
    fn a_statement_is_verified_until_the_server_rests() {
        let mut server = ServerStatements::default();
        server.insert(1);
        assert!(server.is_verified(1));
        server.rest();
        assert!(!server.is_verified(1));
        server.verify(1);
        assert!(server.is_verified(1));
    }
}
