//! Counts for the limits that hold over all shards: atomics, touched only when a connection opens or closes, or a pin
//! begins or ends.
//!
//! Owns counting exactly under concurrency. Never decides what to do when a limit is reached, and is never touched per
//! transaction (a pool on one shard reads nothing here; a spread one reads one shared line when it releases a server).

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use quota::Book;
use settings::QueueBy;

use crate::{Budget, CacheBudget, FairPool, FairShare, KnownCluster, PoolShare, SizeFigures, SlotCounter};

/// A count of permits that never passes its limit, however many shards take at the same moment.
#[repr(align(128))]
#[derive(Debug, Default)]
pub struct PermitCounter {
    taken: AtomicU32,
    /// Taken in other processes, which share the limit.
    external: AtomicU32,
}

impl PermitCounter {
    /// Takes one permit if fewer than `limit` are taken, with those of other processes; 0 means no limit.
    pub fn take(&self, limit: u32) -> bool {
        let external = self.external.load(Ordering::Relaxed);
        let free = |taken: u32| (limit == 0 || taken.saturating_add(external) < limit).then_some(taken + 1);
        self.taken.fetch_update(Ordering::AcqRel, Ordering::Acquire, free).is_ok()
    }

    /// Returns one permit.
    pub fn release(&self) {
        let before = self.taken.fetch_sub(1, Ordering::AcqRel);
        debug_assert!(before > 0, "a permit was released twice");
    }

    /// How many are taken in this process.
    pub fn taken(&self) -> u32 {
        self.taken.load(Ordering::Acquire)
    }

    /// How many other processes have taken that share the limit, as far as it is known.
    pub fn external(&self) -> u32 {
        self.external.load(Ordering::Relaxed)
    }

    /// The number that other processes have taken.
    pub fn set_external(&self, external: u32) {
        self.external.store(external, Ordering::Relaxed);
    }
}

/// One (database, user) pool as all shards see it.
#[derive(Debug, Default)]
pub struct SharedPool {
    /// Server connections of the pool.
    pub servers: SlotCounter,
    /// Clients that keep a server because of their sessions, or are about to (`max_pinned`).
    pub(crate) pins: PermitCounter,
    /// What the subjects of its fair queue have in common.
    fair: Arc<FairPool>,
    /// `pool_size = auto`: what shards have counted, and the size.
    sizing: SizeFigures,
    /// Its part in the budgets that it shares with other pools.
    share: PoolShare,
    /// Clients that wait for a server, as the shards have told last.
    waiting: AtomicU32,
    /// Servers that no client has used for a while, as the shards of a fleet's node have told last.
    unused: AtomicU32,
    /// Bit N: shard N has a local pool of this pool and may be sent clients.
    shards: AtomicU64,
    /// Bit N: shard N has waiting clients and no server, and requests a permit.
    permit_requests: AtomicU64,
    /// Bit N: shard N has clients that wait for a pin.
    pin_requests: AtomicU64,
}

impl SharedPool {
    /// A pool that begins on one shard.
    #[must_use]
    pub fn on(shard: u16) -> SharedPool {
        SharedPool { shards: AtomicU64::new(1 << shard), ..SharedPool::default() }
    }

    /// What the subjects of its fair queue have in common.
    #[must_use]
    pub fn fair(&self) -> &Arc<FairPool> {
        &self.fair
    }

    /// What shards count for the size, and the size that was decided.
    #[must_use]
    pub fn sizing(&self) -> &SizeFigures {
        &self.sizing
    }

    /// Its part in the budgets that it shares with other pools.
    #[must_use]
    pub fn share(&self) -> &PoolShare {
        &self.share
    }

    /// Clients that wait for a server, as the shards have told last.
    pub fn waiting(&self) -> u32 {
        self.waiting.load(Ordering::Acquire)
    }

    /// Servers that no client has used for a while, as the shards of a fleet's node have told last.
    pub fn unused(&self) -> u32 {
        self.unused.load(Ordering::Acquire)
    }

    /// A shard's number of these changes from one to the other.
    pub(crate) fn change_unused(&self, before: u32, now: u32) {
        if before != now {
            self.unused.fetch_add(now.wrapping_sub(before), Ordering::AcqRel);
        }
    }

    /// A shard's number of waiting clients changes from one to the other; returns that of all shards.
    pub(crate) fn change_waiting(&self, before: u32, now: u32) -> u32 {
        if before == now {
            return self.waiting();
        }
        let difference = now.wrapping_sub(before);
        self.waiting.fetch_add(difference, Ordering::AcqRel).wrapping_add(difference)
    }

    /// The shards that have a local pool, as bits.
    pub fn shards(&self) -> u64 {
        self.shards.load(Ordering::Acquire)
    }

    /// Gives a further shard a local pool.
    pub fn spread_to(&self, shard: u16) {
        self.shards.fetch_or(1 << shard, Ordering::AcqRel);
    }

    /// The shards that request a permit, as bits.
    pub fn permit_requests(&self) -> u64 {
        self.permit_requests.load(Ordering::Acquire)
    }

    /// This shard requests a permit.
    pub fn request_permit(&self, shard: u16) {
        self.permit_requests.fetch_or(1 << shard, Ordering::AcqRel);
    }

    /// Clients that keep a server because of their sessions, or are about to, over all shards.
    pub fn pinned(&self) -> u32 {
        self.pins.taken()
    }

    /// Clients of this shard wait for a pin.
    pub fn request_pin(&self, shard: u16) {
        self.pin_requests.fetch_or(1 << shard, Ordering::AcqRel);
    }

    /// The shards whose clients wait for a pin, as bits; they are notified, and ask again if they still wait.
    pub fn take_pin_requests(&self) -> u64 {
        match self.pin_requests.load(Ordering::Acquire) {
            0 => 0,
            _ => self.pin_requests.swap(0, Ordering::AcqRel),
        }
    }

    /// This shard requests no permit any more; true if it did.
    pub fn withdraw_permit_request(&self, shard: u16) -> bool {
        self.permit_requests.fetch_and(!(1 << shard), Ordering::AcqRel) & (1 << shard) != 0
    }
}

/// What the whole process counts.
#[derive(Debug)]
pub struct ProcessCounts {
    /// Client connections (max_client_conn).
    pub clients: PermitCounter,
    /// Client connections that have not logged in yet (max_login_conn).
    pub logins: PermitCounter,
    next_id: AtomicU64,
    next_cancel_number: AtomicU32,
}

impl Default for ProcessCounts {
    fn default() -> ProcessCounts {
        ProcessCounts {
            clients: PermitCounter::default(),
            logins: PermitCounter::default(),
            next_id: AtomicU64::new(1),
            next_cancel_number: AtomicU32::new(0),
        }
    }
}

impl ProcessCounts {
    /// The next number of the one counter over clients and servers.
    pub fn next_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    /// The next number of which a cancel key's process id is made; after the last comes the first.
    pub fn next_cancel_number(&self) -> u32 {
        self.next_cancel_number.fetch_add(1, Ordering::Relaxed)
    }

    /// The number that [`ProcessCounts::next_id`] would return next.
    pub fn upcoming_id(&self) -> u64 {
        self.next_id.load(Ordering::Relaxed)
    }

    /// Continues counting where the previous process stopped.
    pub fn continue_ids_at(&self, next: u64) {
        self.next_id.fetch_max(next, Ordering::Relaxed);
    }
}

/// The process id of a client's cancel key and the first four bytes of its secret, not yet forwarded.
pub type CancelKeyPrefix = [u8; 8];

/// The server and client connections of a database or a user.
#[derive(Debug, Default)]
pub struct ConnectionCounts {
    /// Server connections.
    pub servers: SlotCounter,
    /// Client connections.
    pub clients: PermitCounter,
    /// Server connections that listen for all clients of a pool, or are sought for that.
    pub(crate) listeners: PermitCounter,
    /// Counts pools that begin to have a connection (`connection_sharing`).
    begun: AtomicU64,
    /// Bit N: a pool of shard N waits for a part of it.
    askers: AtomicU64,
    /// Of a database: what its servers are servers of.
    pub cluster: KnownCluster,
    /// Of a database: what the answers that are kept of it take.
    pub cache: CacheBudget,
    /// A database that was made from `*` and logged.
    registered: AtomicBool,
}

impl ConnectionCounts {
    /// The next number for a pool that begins to have a connection.
    pub(crate) fn next_begun(&self) -> u64 {
        self.begun.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// A pool of this shard waits until a connection of the budget is closed.
    pub fn ask(&self, shard: u16) {
        self.askers.fetch_or(1 << shard, Ordering::AcqRel);
    }

    /// The shards whose pools wait for that, as bits; they are notified, and ask again if they still wait.
    pub fn take_askers(&self) -> u64 {
        match self.askers.load(Ordering::Acquire) {
            0 => 0,
            _ => self.askers.swap(0, Ordering::AcqRel),
        }
    }

    /// Notes that a database was made from `*`; true the first time.
    pub fn register(&self) -> bool {
        !self.registered.swap(true, Ordering::AcqRel)
    }

    /// Whether it is a database that was made from `*`.
    #[must_use]
    pub fn is_registered(&self) -> bool {
        self.registered.load(Ordering::Acquire)
    }

    /// It is dropped; true the first time.
    pub fn unregister(&self) -> bool {
        self.registered.swap(false, Ordering::AcqRel)
    }
}

/// A limit of server connections, as the process counts it.
#[derive(Clone, Copy, Debug)]
pub enum Counted<'a> {
    /// `pool_size` and its reserve.
    Pool {
        /// The entry.
        database: &'a str,
        /// The user of its server connections.
        user: &'a str,
        /// Of a pool for the reads on one host: that host.
        host: Option<&'a str>,
        /// The pool.
        shared: &'a SharedPool,
    },
    /// `max_db_connections`.
    Database {
        /// The entry.
        name: &'a str,
        /// Its counts.
        counts: &'a ConnectionCounts,
    },
    /// `max_user_connections`.
    User {
        /// The user.
        name: &'a str,
        /// The user's counts.
        counts: &'a ConnectionCounts,
    },
}

/// The counts of all limits that the nodes of a fleet share (`fleet`). Those that are made later begin with no slot.
pub trait FleetCounts: Send + Sync {
    /// Looks at each: pools first. Never to be called in the call.
    fn each(&self, look: &mut dyn FnMut(Counted<'_>));
    /// Client connections of the process.
    fn clients(&self) -> u32;
    /// Those that count in `max_client_conn`, which clients of the console do, too.
    fn counted_clients(&self) -> u32;
    /// What other nodes have of clients, if that counts here: for the counts that there are, and for those that are made later.
    fn set_external_clients(&self, external: ExternalClients);
    /// Looks at the accounts of quotas, while no other thread does. Never to be called in the call.
    fn with_quotas(&self, look: &mut dyn FnMut(&mut Book));
}

/// Clients of the other nodes of a fleet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExternalClients {
    /// All (`max_client_conn`).
    pub all: u32,
    /// By database.
    pub databases: HashMap<Arc<str>, u32>,
    /// By user.
    pub users: HashMap<Arc<str>, u32>,
}

/// Where shards find the counts that they share. Asked once per shard and name, never per transaction; the answers are kept.
pub trait PoolRegistry: Send + Sync {
    /// The pool; at the first call it is created on the shard with the fewest pools.
    fn pool(&self, database: &str, user: &str) -> Arc<SharedPool>;
    /// The pool for its reads on one of its hosts.
    fn host_pool(&self, database: &str, user: &str, host: &str) -> Arc<SharedPool>;
    /// This shard has no local pool any more: if no shard has one, the pool is forgotten.
    fn forget_pool(&self, _database: &str, _user: &str) {}
    /// No pool of this database is left on this shard: if none is anywhere, its counts are forgotten.
    fn forget_database(&self, _name: &str) {}
    /// The database's counts.
    fn database(&self, name: &str) -> Arc<ConnectionCounts>;
    /// The user's counts.
    fn user(&self, name: &str) -> Arc<ConnectionCounts>;
    /// The pools that draw on a budget, those for reads on a host too: of a database or a user.
    fn pools_of(&self, budget: Budget, name: &str) -> Vec<Arc<SharedPool>>;
    /// What a subject of a pool's fair queue has had; it has this weight from now on.
    fn fair_share(&self, pool: &Arc<FairPool>, by: QueueBy, subject: &str, weight: u32) -> Arc<FairShare>;
    /// Looks at the accounts of quotas, while nobody else does. Never to be called in the call.
    fn with_quotas(&self, look: &mut dyn FnMut(&mut Book));
    /// The process's counts.
    fn process(&self) -> Arc<ProcessCounts>;
    /// How many shards there are (1..=64).
    fn shards(&self) -> u16;
    /// How busy a shard's thread is in percent, as last reported; pools spread to the least busy.
    fn busy_percent(&self, shard: u16) -> u32;
    /// A connection was not opened because the process has leased too few slots of a limit that its fleet shares.
    fn want_slots(&self) {}
    /// Reports how busy a shard is.
    fn set_busy_percent(&self, shard: u16, percent: u32);
    /// The client with this cancel key is on this shard, with this connection number. False: another client has the key.
    fn keep_cancel_key(&self, key: CancelKeyPrefix, shard: u16, place: u32) -> bool;
    /// That client has disconnected.
    fn forget_cancel_key(&self, key: CancelKeyPrefix);
    /// Shard and connection number of the client with this key.
    fn find_cancel_key(&self, key: CancelKeyPrefix) -> Option<(u16, u32)>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tally_never_passes_its_limit() {
        let permits = Arc::new(PermitCounter::default());
        std::thread::scope(|scope| {
            for _ in 0..4 {
                let permits = Arc::clone(&permits);
                scope.spawn(move || {
                    for _ in 0..10_000 {
                        if permits.take(3) {
                            assert!(permits.taken() <= 3);
                            permits.release();
                        }
                    }
                });
            }
        });
        assert_eq!(permits.taken(), 0);
    }

    #[test]
    fn what_other_processes_have_taken_counts() {
        let permits = PermitCounter::default();
        permits.set_external(2);
        assert!(permits.take(3));
        assert!(!permits.take(3) && permits.take(0));
        permits.set_external(u32::MAX);
        assert!(!permits.take(1_000) && permits.taken() == 2);
        permits.set_external(0);
        assert!(permits.take(3));
    }

    #[test]
    fn no_limit_is_zero() {
        let permits = PermitCounter::default();
        assert!((0..1_000).all(|_| permits.take(0)));
        assert!(!permits.take(1_000));
    }

    #[test]
    fn shards_request_and_withdraw() {
        let shared = SharedPool::on(2);
        shared.spread_to(0);
        assert_eq!(shared.shards(), 0b101);
        shared.request_permit(0);
        assert_eq!(shared.permit_requests(), 1);
        assert!(shared.withdraw_permit_request(0));
        assert!(!shared.withdraw_permit_request(0));
    }
}
