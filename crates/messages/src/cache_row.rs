//! What shards tell of the query caches of entries. Data only.

/// The query cache of an entry (`query_cache`), on one shard.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CacheRow {
    /// As clients name it.
    pub database: String,
    /// Whether answers can be used.
    pub state: CacheState,
    /// How long ago it was that all changes of the primary were known, in microseconds; None if they never were.
    pub staleness_us: Option<u64>,
    /// Answers that are stored.
    pub answers: u64,
    /// What they take.
    pub bytes: u64,
    /// Requests that were answered from it.
    pub hits: u64,
    /// Requests that it might have answered, and had no answer to.
    pub misses: u64,
    /// Answers that were dropped because what they were made of has changed, or may have.
    pub invalidations: u64,
    /// Answers that were dropped to make room.
    pub evictions: u64,
}

impl CacheRow {
    /// The same of another shard: what hinders one counts for all.
    pub fn add(&mut self, other: CacheRow) {
        self.state = self.state.clone().max(other.state);
        self.staleness_us = self.staleness_us.max(other.staleness_us);
        self.answers += other.answers;
        self.bytes += other.bytes;
        self.hits += other.hits;
        self.misses += other.misses;
        self.invalidations += other.invalidations;
        self.evictions += other.evictions;
    }
}

/// Whether the answers of a query cache can be used; the last is the worst.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum CacheState {
    /// They can.
    #[default]
    Current,
    /// The changes of the primary are followed, and not all is known that is needed.
    Starting,
    /// The changes are known only until a longer time ago than is allowed.
    Behind,
    /// The server whose changes are followed is not the primary that clients have.
    OtherPrimary,
    /// The changes are not followed, and why.
    Lost(String),
}
