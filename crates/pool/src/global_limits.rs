//! The limits that hold over all shards: atomics, touched only when a connection opens or closes.
//!
//! Owns counting exactly under concurrency. Never decides what to do when a limit is reached, and is never touched per
//! transaction (a pool on one shard reads nothing here; a spread one reads one shared line when it releases a server).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// A count that never passes its limit, whoever takes from it at the same moment.
#[repr(align(128))]
#[derive(Debug, Default)]
pub struct Tally {
    taken: AtomicU32,
}

impl Tally {
    /// Takes one permit if fewer than `limit` are taken; 0 means no limit.
    pub fn take(&self, limit: u32) -> bool {
        let free = |taken: u32| (limit == 0 || taken < limit).then_some(taken + 1);
        self.taken.fetch_update(Ordering::AcqRel, Ordering::Acquire, free).is_ok()
    }

    /// Gives one permit back.
    pub fn give(&self) {
        let before = self.taken.fetch_sub(1, Ordering::AcqRel);
        debug_assert!(before > 0, "a permit was given back twice");
    }

    /// How many are taken.
    pub fn taken(&self) -> u32 {
        self.taken.load(Ordering::Acquire)
    }
}

/// One (database, user) pool as all shards see it.
#[derive(Debug, Default)]
pub struct Shared {
    /// Server connections of the pool.
    pub servers: Tally,
    /// Bit N: shard N has a part of this pool and may be sent clients.
    shards: AtomicU64,
    /// Bit N: shard N has waiters and no server, and asks for a permit.
    wanting: AtomicU64,
}

impl Shared {
    /// A pool that begins on one shard.
    #[must_use]
    pub fn on(shard: u16) -> Shared {
        Shared { shards: AtomicU64::new(1 << shard), ..Shared::default() }
    }

    /// The shards that have a part, as bits.
    pub fn shards(&self) -> u64 {
        self.shards.load(Ordering::Acquire)
    }

    /// Gives a further shard a part.
    pub fn spread_to(&self, shard: u16) {
        self.shards.fetch_or(1 << shard, Ordering::AcqRel);
    }

    /// The shards that ask for a permit, as bits.
    pub fn wanting(&self) -> u64 {
        self.wanting.load(Ordering::Acquire)
    }

    /// This shard asks for a permit.
    pub fn want(&self, shard: u16) {
        self.wanting.fetch_or(1 << shard, Ordering::AcqRel);
    }

    /// This shard asks no longer; true if it did.
    pub fn want_no_more(&self, shard: u16) -> bool {
        self.wanting.fetch_and(!(1 << shard), Ordering::AcqRel) & (1 << shard) != 0
    }
}

/// What the whole process counts.
#[derive(Debug)]
pub struct Process {
    /// Client connections (max_client_conn).
    pub clients: Tally,
    /// Client connections that have not logged in yet (max_login_conn).
    pub logins: Tally,
    next_id: AtomicU64,
    next_cancel_number: AtomicU32,
}

impl Default for Process {
    fn default() -> Process {
        Process {
            clients: Tally::default(),
            logins: Tally::default(),
            next_id: AtomicU64::new(1),
            next_cancel_number: AtomicU32::new(0),
        }
    }
}

impl Process {
    /// The next number of the one counter over clients and servers.
    pub fn next_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    /// The next number of which a cancel key's process id is made; after the last comes the first.
    pub fn next_cancel_number(&self) -> u32 {
        self.next_cancel_number.fetch_add(1, Ordering::Relaxed)
    }

    /// The number that [`Process::next_id`] would give next.
    pub fn upcoming_id(&self) -> u64 {
        self.next_id.load(Ordering::Relaxed)
    }

    /// Goes on counting where a predecessor process has stopped.
    pub fn continue_ids_at(&self, next: u64) {
        self.next_id.fetch_max(next, Ordering::Relaxed);
    }
}

/// The process id of a client's cancel key and the first four bytes of its secret, not yet forwarded.
pub type CancelKeyPrefix = [u8; 8];

/// A database or a user: what it may have of each side.
#[derive(Debug, Default)]
pub struct Both {
    /// Server connections.
    pub servers: Tally,
    /// Client connections.
    pub clients: Tally,
    /// A database that was made from `*` and told of.
    registered: AtomicBool,
}

impl Both {
    /// Notes that a database was made from `*`; true the first time.
    pub fn register(&self) -> bool {
        !self.registered.swap(true, Ordering::AcqRel)
    }

    /// Whether it is one that was told of.
    #[must_use]
    pub fn is_registered(&self) -> bool {
        self.registered.load(Ordering::Acquire)
    }

    /// It is dropped; true the first time.
    pub fn unregister(&self) -> bool {
        self.registered.swap(false, Ordering::AcqRel)
    }
}

/// Where shards find what they share. Asked once per shard and name, never per transaction; the answers are kept.
pub trait Directory: Send + Sync {
    /// The pool, made on the shard with the fewest pools if nobody has asked before.
    fn pool(&self, database: &str, user: &str) -> Arc<Shared>;
    /// This shard has no part of the pool any more: if none has, it is forgotten.
    fn forget_pool(&self, _database: &str, _user: &str) {}
    /// No pool of this database is left on this shard: if none is anywhere, its counts are forgotten.
    fn forget_database(&self, _name: &str) {}
    /// The database's counts.
    fn database(&self, name: &str) -> Arc<Both>;
    /// The user's counts.
    fn user(&self, name: &str) -> Arc<Both>;
    /// The process's counts.
    fn process(&self) -> Arc<Process>;
    /// How many shards there are (1..=64).
    fn shards(&self) -> u16;
    /// A shard's part of its thread's time, in hundredths, as it last said; the least busy gets what is spread.
    fn busy_percent(&self, shard: u16) -> u32;
    /// Says how busy a shard is.
    fn set_busy_percent(&self, shard: u16, percent: u32);
    /// The client with this cancel key is on this shard, at this place.
    fn keep_cancel_key(&self, key: CancelKeyPrefix, shard: u16, place: u32);
    /// That client has left.
    fn forget_cancel_key(&self, key: CancelKeyPrefix);
    /// Shard and place of the client with this key.
    fn find_cancel_key(&self, key: CancelKeyPrefix) -> Option<(u16, u32)>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tally_never_passes_its_limit() {
        let tally = Arc::new(Tally::default());
        std::thread::scope(|scope| {
            for _ in 0..4 {
                let tally = Arc::clone(&tally);
                scope.spawn(move || {
                    for _ in 0..10_000 {
                        if tally.take(3) {
                            assert!(tally.taken() <= 3);
                            tally.give();
                        }
                    }
                });
            }
        });
        assert_eq!(tally.taken(), 0);
    }

    #[test]
    fn no_limit_is_zero() {
        let tally = Tally::default();
        assert!((0..1_000).all(|_| tally.take(0)));
        assert!(!tally.take(1_000));
    }

    #[test]
    fn shards_ask_and_withdraw() {
        let shared = Shared::on(2);
        shared.spread_to(0);
        assert_eq!(shared.shards(), 0b101);
        shared.want(0);
        assert_eq!(shared.wanting(), 1);
        assert!(shared.want_no_more(0));
        assert!(!shared.want_no_more(0));
    }
}
