//! What the thread that follows the changes of an entry's primary tells the shards, for the answers that they keep (`query_cache`).
//!
//! Data only. News of one entry reach every shard in the order in which they were told.

use std::collections::HashSet;
use std::sync::Arc;

/// News of one entry.
#[derive(Clone, Debug)]
pub struct CacheNews {
    /// Its name.
    pub database: Arc<str>,
    /// What is new.
    pub what: CacheNewsKind,
}

/// What is new. Names are those of relations without their schemas, in lower case as far as they are ASCII. `number` counts the changes of one stream from 1 on.
#[derive(Clone, Debug)]
pub enum CacheNewsKind {
    /// A primary's changes are followed from here on: nothing from before counts.
    Begins {
        /// Its `system_identifier`.
        system: u64,
        /// Its timeline.
        timeline: u32,
    },
    /// What the catalog holds, as of all changes up to this one.
    Catalog {
        /// The number of the last change that it shows.
        number: u64,
        /// What is not to be kept.
        uncached: Arc<UncachedNames>,
    },
    /// Transactions have committed that changed rows of these relations, or of relations that these are made of (views, parents of partitions).
    Changed {
        /// Its number.
        number: u64,
        /// Where the last of the transactions ends in the WAL, in bytes.
        lsn: u64,
        /// The relations.
        names: Arc<[Box<str>]>,
    },
    /// The schema, a privilege, a policy or the like may have changed: nothing from before counts, and the catalog is unknown until [`CacheNewsKind::Catalog`].
    SchemaChanged {
        /// Its number.
        number: u64,
        /// As in [`CacheNewsKind::Changed`].
        lsn: u64,
    },
    /// All changes that were committed then have been told.
    Current {
        /// The time, in microseconds of the shards' monotonic clock.
        as_of_us: u64,
        /// Where the primary was then, in bytes of WAL.
        lsn: u64,
        /// The transactions of all changes up to this number are visible to new snapshots on the primary: one is, a moment after its commit is written.
        visible: u64,
    },
    /// The changes cannot be followed: nothing counts until [`CacheNewsKind::Begins`].
    Lost {
        /// Why, and what to do about it.
        why: Arc<str>,
    },
}

/// Names with which a text is not kept: what they stand for changes unseen by logical decoding, or answers otherwise from one moment to the next.
#[derive(Debug, Default)]
pub struct UncachedNames {
    /// Of relations and types: foreign, unlogged and temporary tables, sequences, materialized views, relations whose rules or policies call what is not known to depend on rows and settings alone.
    pub names: HashSet<Box<str>>,
    /// Operators of users' own.
    pub operators: HashSet<Box<str>>,
    /// What no text shows (implicit casts of users' own and the like): nothing is kept.
    pub everything: bool,
}
