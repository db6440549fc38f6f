//! Answers to reads that are used again (`query_cache`), one cache for each entry whose primary's changes are followed.
//!
//! Owns which answers there are and whether one holds: an answer holds if no transaction has changed what it was made of since before its request was sent, and if
//! all that was committed until a short time ago is known. Which requests are looked up and which answers are stored is `link::cached`'s.

mod answers;
mod followed;
pub(crate) mod recording;

use std::collections::HashMap;
use std::sync::Arc;

use messages::{CacheNews, CacheNewsKind};
use pool::ConnectionCounts;
use sql::CachedRead;

use crate::query_cache::answers::{Answer, Answers};
use crate::query_cache::followed::Followed;

pub(crate) use crate::query_cache::followed::{Dependencies, Source, State};

/// The caches of this shard, by the names of their entries.
#[derive(Default)]
pub(crate) struct QueryCaches(HashMap<Arc<str>, QueryCache>);

impl QueryCaches {
    /// No entry has one.
    #[inline(always)]
    pub(crate) fn are_none(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn get_mut(&mut self, database: &str) -> Option<&mut QueryCache> {
        self.0.get_mut(database)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &QueryCache)> {
        self.0.iter()
    }

    /// Something is new of an entry, which has these counts.
    pub(crate) fn note(&mut self, news: CacheNews, counts: impl FnOnce(&str) -> Arc<ConnectionCounts>) {
        let CacheNews { database, what } = news;
        self.0.entry(Arc::clone(&database)).or_insert_with(|| QueryCache::new(counts(&database))).note(what);
    }

    /// The servers of an entry are logged in to otherwise: nothing from before counts, and if they are on another database, nothing at all before its changes are followed.
    pub(crate) fn note_other_servers(&mut self, database: &str, is_other_database: bool) {
        let Some(cache) = self.0.get_mut(database) else { return };
        cache.followed.begin_anew(is_other_database);
        cache.clear();
    }

    /// Entries that are not among these have no cache any more.
    pub(crate) fn retain(&mut self, has_cache: impl Fn(&str) -> bool) {
        self.0.retain(|database, _| has_cache(database));
    }
}

/// What was done with a cache.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CacheCounters {
    /// Requests that were answered from it.
    pub(crate) hits: u64,
    /// Requests that it might have answered, and had no answer to.
    pub(crate) misses: u64,
    /// Answers that were dropped because what they were made of has changed, or may have.
    pub(crate) invalidations: u64,
    /// Answers that were dropped to make room.
    pub(crate) evictions: u64,
}

/// The cache of one entry.
pub(crate) struct QueryCache {
    followed: Followed,
    answers: Answers,
    counts: Arc<ConnectionCounts>,
    /// How often the schema had changed by clients of the entry, over all shards, when that was last looked at.
    schema_changes: u64,
    pub(crate) counters: CacheCounters,
}

impl QueryCache {
    fn new(counts: Arc<ConnectionCounts>) -> QueryCache {
        QueryCache {
            followed: Followed::default(),
            answers: Answers::default(),
            schema_changes: counts.cluster.schema_changes(),
            counts,
            counters: CacheCounters::default(),
        }
    }

    fn note(&mut self, what: CacheNewsKind) {
        if self.followed.note(what) {
            self.clear();
        }
    }

    /// Nothing that was stored counts any more.
    fn clear(&mut self) {
        self.counters.invalidations += self.answers.len() as u64;
        self.counts.cache.give_back(self.answers.clear());
    }

    /// Whether answers can be used now, and if not, why.
    pub(crate) fn state(&self, most_us: u64, now_us: u64) -> State<'_> {
        self.followed.state(self.counts.cluster.known(), most_us, now_us)
    }

    /// How old what is known of the primary is, in microseconds; None if nothing is.
    pub(crate) fn staleness_us(&self, now_us: u64) -> Option<u64> {
        self.followed.staleness_us(now_us)
    }

    /// Up to where in the WAL all changes are known.
    pub(crate) fn lsn(&self) -> u64 {
        self.followed.lsn()
    }

    /// How many answers there are, and what they take.
    pub(crate) fn size(&self) -> (usize, u64) {
        (self.answers.len(), self.answers.bytes())
    }

    /// A client of the entry may have changed the schema: nothing from before counts, nor what is on its way, whether the primary's changes have told it yet or not.
    /// `counts` are the entry's, which may have been forgotten and made anew.
    pub(crate) fn follow_schema(&mut self, counts: &Arc<ConnectionCounts>) {
        if !Arc::ptr_eq(&self.counts, counts) {
            self.clear();
            self.counts = Arc::clone(counts);
        }
        let changes = self.counts.cluster.schema_changes();
        if std::mem::replace(&mut self.schema_changes, changes) != changes {
            self.followed.begin_anew(false);
            self.clear();
        }
    }

    /// The answer under this key, if it holds.
    pub(crate) fn find(&mut self, key: &[u8]) -> Option<&[u8]> {
        let (answer, followed) = (self.answers.find(key)?, &self.followed);
        if !answer.dependencies.hold(followed) {
            self.counters.invalidations += 1;
            self.counts.cache.give_back(self.answers.remove(key));
            return None;
        }
        self.answers.get(key)
    }

    /// What an answer to this text would be made of, as of now, when its request is about to be sent. None: it is not to be stored.
    pub(crate) fn dependencies(&self, read: &CachedRead) -> Option<Dependencies> {
        self.followed.dependencies(read)
    }

    /// A server from there may answer so that the answer can be stored.
    pub(crate) fn may_store(&self, dependencies: &Dependencies, source: Source) -> bool {
        dependencies.may_come_from(&self.followed, source)
    }

    /// Stores an answer, unless what it was made of has changed meanwhile. `limit` is what all answers of the entry may take, over all shards.
    pub(crate) fn store(
        &mut self,
        key: Box<[u8]>,
        mut dependencies: Dependencies,
        answer: Box<[u8]>,
        limit: u64,
    ) {
        if !dependencies.hold(&self.followed) {
            return;
        }
        let answer = Answer::new(key, dependencies, answer);
        let bytes = answer.bytes();
        if bytes > limit / 8 {
            return;
        }
        self.counts.cache.give_back(self.answers.remove(&answer.key));
        while !self.counts.cache.take(bytes, limit) {
            let freed = self.answers.evict();
            if freed == 0 {
                return; // What other shards keep leaves no room.
            }
            self.counters.evictions += 1;
            self.counts.cache.give_back(freed);
        }
        self.answers.insert(answer);
    }
}

impl Drop for QueryCache {
    fn drop(&mut self) {
        self.counts.cache.give_back(self.answers.clear());
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn an_answer_on_its_way_while_a_client_changes_the_schema_is_not_stored() {
        let counts = Arc::new(ConnectionCounts::default());
        let mut cache = QueryCache::new(Arc::clone(&counts));
        cache.note(CacheNewsKind::Begins { system: 7, timeline: 1 });
        cache.note(CacheNewsKind::Catalog { number: 0, uncached: Arc::default() });
        cache.note(CacheNewsKind::Current { as_of_us: 1, lsn: 1, visible: 0 });
        let read = sql::cached_read(b"SELECT a FROM t").unwrap();
        let mut stores = |changes_schema: bool| {
            let dependencies = cache.dependencies(&read).unwrap();
            if changes_schema {
                counts.cluster.note_schema_change();
            }
            cache.follow_schema(&counts);
            cache.store(b"key"[..].into(), dependencies, b"answer"[..].into(), 1 << 20);
            cache.find(b"key").is_some()
        };
        assert_eq!([false, true, false].map(&mut stores), [true, false, true]);
    }
}
