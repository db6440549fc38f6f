//! What shards tell of the subjects of fair queues. Data only.

use settings::QueueBy;

/// A subject of a pool's fair queue (`queue = fair`), on one shard.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueRow {
    /// The entry, as clients name it.
    pub database: String,
    /// The user of the pool.
    pub user: String,
    /// The host of a pool for reads.
    pub host: Option<String>,
    /// What kind of subject it is.
    pub by: QueueBy,
    /// Its name.
    pub subject: String,
    /// Its weight.
    pub weight: u32,
    /// Clients of it that wait for a server.
    pub waiting: u64,
    /// Clients of it that have one.
    pub active: u64,
    /// The longest of these waits so far, in microseconds.
    pub longest_wait_us: u64,
    /// Times that a client of it has had a server: of the process.
    pub turns: u64,
    /// How long in all, in microseconds, turns that go on not included: of the process.
    pub server_us: u64,
}

impl QueueRow {
    /// The same of another shard.
    pub fn add(&mut self, other: &QueueRow) {
        self.weight = self.weight.max(other.weight);
        self.waiting += other.waiting;
        self.active += other.active;
        self.longest_wait_us = self.longest_wait_us.max(other.longest_wait_us);
        self.turns = self.turns.max(other.turns);
        self.server_us = self.server_us.max(other.server_us);
    }
}
