//! Statistics per query fingerprint: the most recently used, at most [`MAX_QUERIES`].
//!
//! Bounded memory (some 5 KiB each at most). Never makes a fingerprint itself and never sees a value.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::{Histogram, ServerWaits, Waits};

/// Number of query fingerprints kept; a further one evicts the least recently used.
pub const MAX_QUERIES: usize = 1_000;

/// A query fingerprint: its number, and its text without values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueryFingerprint {
    /// Equal for equal texts.
    pub number: u64,
    /// At most 2 KiB.
    pub text: String,
    /// The first statement of the kind with parameters instead of values, at most 2 KiB; None if it is longer.
    pub parameterized: Option<String>,
}

/// What was counted of one kind in one database.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueryStats {
    /// How often it was run.
    pub calls: u64,
    /// How often it ended in an error.
    pub errors: u64,
    /// The time of all runs together, in microseconds.
    pub total_us: u64,
    /// The longest run, in microseconds.
    pub max_us: u64,
    /// The times of single runs.
    pub times: Histogram,
    /// What its clients waited for before it, and its answers on their way.
    pub waits: Waits,
    /// What servers were found waiting for in it: part of its time.
    pub server_waits: ServerWaits,
    /// When the first run was counted, in microseconds since 1970; None before it.
    pub since_us: Option<u64>,
}

impl QueryStats {
    /// One more run.
    pub fn count(&mut self, took_us: u64, failed: bool, waits: &Waits, now_us: u64) {
        self.calls += 1;
        self.waits.merge(waits);
        self.errors += u64::from(failed);
        self.total_us += took_us;
        self.max_us = self.max_us.max(took_us);
        self.times.add(took_us);
        self.since_us.get_or_insert(now_us);
    }

    /// The duration that this many of a thousand stayed below, in microseconds. Buckets are wide: never more than the longest run.
    #[must_use]
    pub fn quantile_us(&self, per_mille: u64) -> Option<u64> {
        self.times.quantile_us(per_mille).map(|us| us.min(self.max_us))
    }

    /// Adds another shard's.
    pub fn merge(&mut self, other: &QueryStats) {
        self.calls += other.calls;
        self.errors += other.errors;
        self.total_us += other.total_us;
        self.max_us = self.max_us.max(other.max_us);
        self.times.merge(&other.times);
        self.waits.merge(&other.waits);
        self.server_waits.merge(&other.server_waits);
        self.since_us = match (self.since_us, other.since_us) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
    }
}

/// All kinds that are kept, of all databases.
#[derive(Debug, Default)]
pub struct Queries {
    kinds: BTreeMap<(Arc<str>, u64), Entry>,
    /// By when they were used last: a number that only grows.
    by_use: BTreeMap<u64, (Arc<str>, u64)>,
    uses: u64,
}

#[derive(Debug)]
struct Entry {
    shape: Arc<QueryFingerprint>,
    figures: QueryStats,
    used: u64,
}

impl Queries {
    /// A query of this kind has been run.
    pub fn count(
        &mut self,
        database: &Arc<str>,
        shape: &Arc<QueryFingerprint>,
        took_us: u64,
        failed: bool,
        waits: &Waits,
        now_us: u64,
    ) {
        self.uses += 1;
        let key = (Arc::clone(database), shape.number);
        if !self.kinds.contains_key(&key) && self.kinds.len() >= MAX_QUERIES {
            self.evict_oldest();
        }
        let kind = self.kinds.entry(key.clone()).or_insert_with(|| Entry {
            shape: Arc::clone(shape),
            figures: QueryStats::default(),
            used: self.uses,
        });
        kind.figures.count(took_us, failed, waits, now_us);
        self.by_use.remove(&kind.used);
        kind.used = self.uses;
        self.by_use.insert(kind.used, key);
    }

    /// What a server was found waiting for in a run that has been counted.
    #[cold]
    #[inline(never)]
    pub fn note_server_waits(&mut self, database: &Arc<str>, shape: &QueryFingerprint, waits: &ServerWaits) {
        if let Some(kind) = self.kinds.get_mut(&(Arc::clone(database), shape.number)) {
            kind.figures.server_waits.merge(waits);
        }
    }

    /// Each kind with its database and what was counted.
    pub fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &Arc<QueryFingerprint>, &QueryStats)> {
        self.kinds.iter().map(|((database, _), kind)| (database, &kind.shape, &kind.figures))
    }

    /// Discards the statistics of databases for which this is false.
    pub fn keep_databases(&mut self, is_kept: impl Fn(&str) -> bool) {
        self.kinds.retain(|(database, _), _| is_kept(database));
        self.by_use.retain(|_, (database, _)| is_kept(database));
    }

    fn evict_oldest(&mut self) {
        if let Some((_, oldest)) = self.by_use.pop_first() {
            self.kinds.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Wait;

    fn shape(number: u64) -> Arc<QueryFingerprint> {
        Arc::new(QueryFingerprint { number, text: format!("select {number}"), parameterized: None })
    }

    #[test]
    fn the_ones_used_last_are_kept() {
        let (mut queries, database) = (Queries::default(), Arc::from("d"));
        let mut waits = Waits::default();
        waits.add(Wait::Queue, 5);
        for number in 0..3 * MAX_QUERIES as u64 {
            queries.count(&database, &shape(number), 10, false, &Waits::default(), 1);
            queries.count(&database, &shape(7), 20, number % 2 == 0, &waits, 1);
        }
        assert_eq!((queries.kinds.len(), queries.by_use.len()), (MAX_QUERIES, MAX_QUERIES));
        let (_, found, figures) =
            queries.iter().find(|(_, shape, _)| shape.number == 7).expect("the used one");
        assert_eq!(found.text, "select 7");
        assert_eq!(figures.waits.us(Wait::Queue), 15 * MAX_QUERIES as u64);
        assert_eq!((figures.calls, figures.errors), (3 * MAX_QUERIES as u64 + 1, 3 * MAX_QUERIES as u64 / 2));
        assert!(
            queries.iter().all(|(_, shape, _)| shape.number == 7 || shape.number > 2 * MAX_QUERIES as u64)
        );
    }

    #[test]
    fn databases_are_counted_apart_and_shards_added_up() {
        let mut queries = Queries::default();
        for name in ["a", "b", "b"] {
            queries.count(&Arc::from(name), &shape(1), 100, false, &Waits::default(), 7);
        }
        let calls: Vec<_> =
            queries.iter().map(|(database, _, figures)| (&**database, figures.calls)).collect();
        assert_eq!(calls, [("a", 1), ("b", 2)]);
        let mut sum = QueryStats::default();
        queries.iter().for_each(|(_, _, figures)| sum.merge(figures));
        assert_eq!((sum.calls, sum.total_us, sum.times.count()), (3, 300, 3));
        assert_eq!((sum.max_us, sum.since_us), (100, Some(7)));
        queries.keep_databases(|name| name == "a");
        assert_eq!((queries.iter().count(), queries.by_use.len()), (1, 1));
    }

    #[test]
    fn a_percentile_is_no_larger_than_the_longest_run() {
        let mut figures = QueryStats::default();
        figures.count(700, false, &Waits::default(), 1);
        assert_eq!([500, 950, 1_000].map(|per_mille| figures.quantile_us(per_mille)), [Some(700); 3]);
    }
}
