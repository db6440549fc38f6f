//! Answers by their keys, in the order of their last use.
//!
//! Owns the table and the list, so that they agree, and what an answer takes of memory.

use std::collections::HashMap;
use std::sync::Arc;

use slab::Slab;

use crate::query_cache::followed::Dependencies;

/// What an answer takes besides its bytes: its places in the tables.
const OVERHEAD_BYTES: u64 = 160;

/// One answer.
pub(super) struct Answer {
    pub(super) key: Arc<[u8]>,
    pub(super) dependencies: Dependencies,
    bytes: Box<[u8]>,
}

impl Answer {
    pub(super) fn new(key: Box<[u8]>, dependencies: Dependencies, bytes: Box<[u8]>) -> Answer {
        Answer { key: key.into(), dependencies, bytes }
    }

    /// What it takes.
    pub(super) fn bytes(&self) -> u64 {
        (self.key.len() + self.bytes.len() + self.dependencies.bytes()) as u64 + OVERHEAD_BYTES
    }
}

struct Place {
    answer: Answer,
    /// The one used before, and the one used after it.
    older: Option<usize>,
    newer: Option<usize>,
}

/// All answers of one cache on one shard.
#[derive(Default)]
pub(super) struct Answers {
    places: Slab<Place>,
    by_key: HashMap<Arc<[u8]>, usize>,
    oldest: Option<usize>,
    newest: Option<usize>,
    bytes: u64,
}

impl Answers {
    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Drops all; returns what they took.
    pub(super) fn clear(&mut self) -> u64 {
        std::mem::take(self).bytes
    }

    /// The answer under this key; it is the one that was used last from here on.
    pub(super) fn find(&mut self, key: &[u8]) -> Option<&mut Answer> {
        let place = *self.by_key.get(key)?;
        if self.newest != Some(place) {
            self.unlink(place);
            self.link(place);
        }
        self.places.get_mut(place).map(|place| &mut place.answer)
    }

    /// Its bytes.
    pub(super) fn get(&self, key: &[u8]) -> Option<&[u8]> {
        let place = self.places.get(*self.by_key.get(key)?)?;
        Some(&place.answer.bytes)
    }

    pub(super) fn insert(&mut self, answer: Answer) {
        let (key, bytes) = (Arc::clone(&answer.key), answer.bytes());
        let place = self.places.insert(Place { answer, older: None, newer: None });
        self.by_key.insert(key, place);
        self.link(place);
        self.bytes += bytes;
    }

    /// Drops it, if it is there; returns what it took.
    pub(super) fn remove(&mut self, key: &[u8]) -> u64 {
        let Some(place) = self.by_key.remove(key) else { return 0 };
        self.unlink(place);
        let bytes = self.places.remove(place).answer.bytes();
        self.bytes -= bytes;
        bytes
    }

    /// Drops the one that has not been used for longest; returns what it took, 0 if there is none.
    pub(super) fn evict(&mut self) -> u64 {
        let oldest = self.oldest.and_then(|place| self.places.get(place));
        match oldest.map(|place| Arc::clone(&place.answer.key)) {
            Some(key) => self.remove(&key),
            None => 0,
        }
    }

    /// Puts it behind all others.
    fn link(&mut self, place: usize) {
        let before = self.newest.replace(place);
        match before.and_then(|before| self.places.get_mut(before)) {
            Some(before) => before.newer = Some(place),
            None => self.oldest = Some(place),
        }
        if let Some(linked) = self.places.get_mut(place) {
            (linked.older, linked.newer) = (before, None);
        }
    }

    fn unlink(&mut self, place: usize) {
        let Some(unlinked) = self.places.get(place) else { return };
        let (older, newer) = (unlinked.older, unlinked.newer);
        match older.and_then(|older| self.places.get_mut(older)) {
            Some(older) => older.newer = newer,
            None => self.oldest = newer,
        }
        match newer.and_then(|newer| self.places.get_mut(newer)) {
            Some(newer) => newer.older = older,
            None => self.newest = older,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answers(keys: &[&str]) -> Answers {
        let mut answers = Answers::default();
        for key in keys {
            answers.insert(Answer::new(
                key.as_bytes().into(),
                Dependencies::default(),
                key.repeat(2).as_bytes().into(),
            ));
        }
        answers
    }

    #[test]
    fn the_one_that_was_not_used_for_longest_goes_first() {
        let mut answers = answers(&["a", "b", "c", "d"]);
        let all = answers.bytes();
        for key in ["a", "c", "c", "a"] {
            assert!(answers.find(key.as_bytes()).is_some());
        }
        assert_eq!(answers.get(b"a"), Some(&b"aa"[..]));
        let mut order = Vec::new();
        let mut freed = 0;
        while answers.len() > 0 {
            let before: Vec<u8> =
                b"abcd".iter().copied().filter(|key| answers.get(&[*key]).is_some()).collect();
            freed += answers.evict();
            order.extend(before.into_iter().filter(|key| answers.get(&[*key]).is_none()));
        }
        assert_eq!((order.as_slice(), freed, answers.bytes(), answers.evict()), (&b"bdca"[..], all, 0, 0));
    }

    #[test]
    fn what_is_removed_is_gone_from_both_tables() {
        let mut answers = answers(&["a", "b", "c"]);
        let all = answers.bytes();
        for key in ["b", "c"] {
            let bytes = answers.remove(key.as_bytes());
            assert!(bytes > OVERHEAD_BYTES && answers.remove(key.as_bytes()) == 0);
        }
        answers.insert(Answer::new(b"d"[..].into(), Dependencies::default(), b"dd"[..].into()));
        assert!(answers.find(b"b").is_none() && answers.find(b"a").is_some());
        assert_eq!(answers.evict() * 3, all, "d");
        assert_eq!((answers.len(), answers.clear() * 3, answers.len()), (1, all, 0));
    }
}
