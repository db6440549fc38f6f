//! What the shard that decides tells of the size of a pool. Data only.

/// A pool and its size.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolSizeRow {
    /// The entry, as clients name it.
    pub database: String,
    /// The user of the pool.
    pub user: String,
    /// The host of a pool for reads.
    pub host: Option<String>,
    /// `fixed` or `auto`.
    pub mode: &'static str,
    /// The least and the largest size that it may have.
    pub min: u32,
    /// See `min`.
    pub max: u32,
    /// The size in force; with `auto` it may be one that is tried.
    pub size: u32,
    /// The size that was found so far.
    pub found: u32,
    /// Server connections that are open.
    pub open: u32,
    /// What the search is at; empty without one.
    pub state: &'static str,
    /// Why the size is held, if it is.
    pub hold: &'static str,
    /// How long ago the size that was found has changed last, in microseconds.
    pub changed_us: Option<u64>,
    /// That change, with its reason.
    pub change: String,
    /// Changes so far.
    pub changes: u64,
}
