//! Derived SCRAM keys, so that a password in clear text costs PBKDF2 once and not with every login. Entries are found
//! by a hash over everything the keys depend on: a changed password never finds the old ones.
//! It never grows past its bound and never keeps a password.

use crate::scram::{self, Keys};
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use zeroize::Zeroizing;

/// Keys of ad-hoc verifiers, for clients that are checked by SCRAM against a plain secret. One per shard.
/// It also evens out the time: once an entry is there, a known user takes no longer than an unknown one.
pub struct DerivedCache(Cache);

/// Keys towards servers, for logins with a plain password. One per shard.
pub struct ServerKeyCache(Cache);

impl DerivedCache {
    /// A cache of at most `bound` users.
    #[must_use]
    pub fn new(bound: usize) -> Self {
        Self(Cache::new(bound))
    }

    pub(crate) fn find(&self, index: &CacheKey) -> Option<Keys> {
        self.0.find(index)
    }

    pub(crate) fn keep(&mut self, index: CacheKey, keys: Keys) {
        self.0.keep(index, keys);
    }
}

impl ServerKeyCache {
    /// A cache of at most `bound` passwords and salts.
    #[must_use]
    pub fn new(bound: usize) -> Self {
        Self(Cache::new(bound))
    }

    pub(crate) fn find(&self, index: &CacheKey) -> Option<Keys> {
        self.0.find(index)
    }

    pub(crate) fn keep(&mut self, index: CacheKey, keys: Keys) {
        self.0.keep(index, keys);
    }
}

impl Default for DerivedCache {
    fn default() -> Self {
        Self::new(DEFAULT_BOUND)
    }
}

impl Default for ServerKeyCache {
    fn default() -> Self {
        Self::new(DEFAULT_BOUND)
    }
}

impl fmt::Debug for DerivedCache {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "DerivedCache({} entries)", self.0.entries.len())
    }
}

impl fmt::Debug for ServerKeyCache {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "ServerKeyCache({} entries)", self.0.entries.len())
    }
}

/// Where an entry stands: a hash over user, password, salt and rounds.
pub(crate) type CacheKey = Zeroizing<[u8; 32]>;

/// The index of these; lengths are hashed along, so that no two sets share one.
pub(crate) fn index(user: &str, password: &[u8], salt: &[u8], iterations: u32) -> CacheKey {
    let lengths = [user.len(), password.len(), salt.len()].map(usize::to_be_bytes);
    let rounds = iterations.to_be_bytes();
    Zeroizing::new(scram::hash(&[lengths.as_flattened(), &rounds, user.as_bytes(), password, salt]))
}

/// The oldest entry makes room for the newest: cheaper than counting uses, and a wrong guess costs one derivation.
struct Cache {
    bound: usize,
    entries: BTreeMap<[u8; 32], Keys>,
    order: VecDeque<[u8; 32]>,
}

impl Cache {
    fn new(bound: usize) -> Self {
        Self { bound, entries: BTreeMap::new(), order: VecDeque::new() }
    }

    fn find(&self, index: &CacheKey) -> Option<Keys> {
        self.entries.get(&**index).cloned()
    }

    fn keep(&mut self, index: CacheKey, keys: Keys) {
        if self.bound == 0 || self.entries.contains_key(&*index) {
            return;
        }
        if self.entries.len() >= self.bound
            && let Some(oldest) = self.order.pop_front()
        {
            self.entries.remove(&oldest);
        }
        self.order.push_back(*index);
        self.entries.insert(*index, keys);
    }
}

const DEFAULT_BOUND: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(byte: u8) -> Keys {
        Keys::from_salted_password(&[byte; 32])
    }

    #[test]
    fn the_oldest_entry_makes_room() {
        let mut cache = DerivedCache::new(2);
        let at = |user| index(user, b"secret", b"salt", 1);
        for (byte, user) in [(1, "a"), (2, "b"), (2, "b"), (3, "c")] {
            cache.keep(at(user), keys(byte));
        }
        assert!(cache.find(&at("a")).is_none());
        assert!(cache.find(&at("b")).is_some_and(|found| found == keys(2)));
        assert!(cache.find(&at("c")).is_some_and(|found| found == keys(3)));
        assert_eq!(format!("{cache:?}"), "DerivedCache(2 entries)");
    }

    #[test]
    fn everything_counts_towards_the_index() {
        let base = index("ab", b"c", b"d", 1);
        for other in [
            index("a", b"bc", b"d", 1),
            index("ab", b"c", b"d", 2),
            index("ab", b"", b"cd", 1),
            index("ab", b"C", b"d", 1),
        ] {
            assert!(base != other);
        }
    }

    #[test]
    fn a_bound_of_zero_keeps_nothing() {
        let mut cache = ServerKeyCache::new(0);
        cache.keep(index("a", b"", b"", 1), keys(1));
        assert!(cache.find(&index("a", b"", b"", 1)).is_none());
    }
}
