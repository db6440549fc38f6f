//! One pool on one shard: which servers are idle, which clients wait, whether to open another server.
//!
//! Owns pure decisions over numbers: events go in, decisions come out. Never sees a byte, a session or a
//! socket; servers and clients are the numbers that their owner gave them.

use std::sync::Arc;

use settings::{PoolMode, Priority, QueueBy, SizeBounds};

use crate::logins::Logins;
use crate::shares::ShareReport;
use crate::uncounted_writes::UncountedWrites;
use crate::{Budget, ConnectionCounts, Full, OpenFor, Queue, SharedPool, Sharing, SlotCounter};

/// A server that was idle for so long does not count as used when another node of the fleet wants its slot. Shorter than [`crate::TENURE_US`]: the shard that
/// counts it, the fleet's thread and the store take most of a second more until the other node has the slot.
const SLOT_UNUSED_US: u64 = 500_000;

/// Within this time a client gets the server that it used last, whose caches are still warm.
const WARM_US: u64 = 1_000_000;

/// After this time a check no longer keeps a client waiting while other servers are idle.
const CHECK_PATIENCE_US: u64 = 300_000;

/// The settings of this pool, resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The mode.
    pub mode: PoolMode,
    /// Session state follows the clients (`session_state`).
    pub follows_sessions: bool,
    /// Clients get their servers at login, and with them the process ids of these (`assign_server_at_login`).
    pub assigns_at_login: bool,
    /// A plain BEGIN is sent with the next request (`deferred_begin`).
    pub defers_begin: bool,
    /// `max_pinned`; 0 is no limit.
    pub max_pinned: u32,
    /// A request that is known to pin waits while `max_pinned` is reached (`max_pinned_action = wait`).
    pub waits_for_pin: bool,
    /// `pool_size`, with the bounds of `auto`.
    pub pool_size: SizeBounds,
    /// `min_pool_size`.
    pub min_pool_size: u32,
    /// Each shard keeps one of its own, whatever the others have.
    pub keeps_own: bool,
    /// `reserve_pool_size`.
    pub reserve_pool_size: u32,
    /// `reserve_pool_timeout`, microseconds; 0 switches the reserve off.
    pub reserve_pool_timeout_us: u64,
    /// `max_db_connections`; 0 is no limit.
    pub max_db_connections: u32,
    /// `max_user_connections`; 0 is no limit.
    pub max_user_connections: u32,
    /// How it takes part in the division of those two (`connection_sharing`); `None` is first come, first served.
    pub sharing: Option<Sharing>,
    /// Whose server time the queue counts (`queue = fair`, `queue_by`); `None` is first come, first served.
    pub fair: Option<QueueBy>,
    /// `queue_burst`, microseconds.
    pub queue_burst_us: u64,
    /// Clients that wait have classes: theirs unless they ask for another, and whether they may (`queue_priority`).
    pub priority: Option<(Priority, bool)>,
    /// `queue_limit`; 0 is no limit.
    pub queue_limit: u32,
    /// `queue_target`, microseconds; 0 is none.
    pub queue_target_us: u64,
    /// Its limits are shared by the nodes of a fleet (`fleet`).
    pub in_fleet: bool,
    /// `server_login_retry`, microseconds.
    pub server_login_retry_us: u64,
    /// `server_round_robin`.
    pub round_robin: bool,
    /// What its clients write is counted, or they cannot write (`read_consistency = database`).
    pub counts_writes: bool,
}

impl Limits {
    /// What the pool never passes: its size and the reserve.
    pub(crate) fn most_servers(&self) -> u32 {
        match self.pool_size.largest() {
            0 => u32::MAX,
            size => size.saturating_add(self.reserve_pool_size),
        }
    }
}

/// An idle server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdleServer {
    /// The server's number, as given by its owner.
    pub server: u32,
    /// Since when it has been idle.
    pub since_us: u64,
}

/// Whether a new server connection may be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Permit {
    /// Yes: it is counted now, everywhere. [`Pool::closed`] gives it back.
    Taken {
        /// It is one of the reserve.
        reserve: bool,
    },
    /// `pool_size` (and the reserve) are reached.
    PoolFull,
    /// `max_db_connections` is reached: an idle server of another pool of this database could make room.
    DatabaseFull,
    /// `max_user_connections` is reached.
    UserFull,
}

/// One pool on one shard.
#[derive(Debug)]
pub struct Pool {
    /// The settings in force.
    pub limits: Limits,
    /// Waiting clients.
    pub queue: Queue,
    /// PAUSE or a shutdown: check out nothing, open nothing.
    pub paused: bool,
    shared: Arc<SharedPool>,
    database: Arc<ConnectionCounts>,
    user: Arc<ConnectionCounts>,
    idle: Vec<IdleServer>,
    /// Servers that are being checked before they are checked out, and since when.
    checking: Vec<IdleServer>,
    open: u32,
    /// Permits of servers that the process being taken over still holds and will send or close.
    external: u32,
    /// Connections that listen for all clients of the pool.
    listeners: u32,
    /// Waiting clients that other shards know of.
    told_waiting: u32,
    told_unused: u32,
    /// See [`Pool::take_lease_shortage`].
    is_short_of_lease: bool,
    /// The size in force here; 0 is no limit.
    size: u32,
    /// Servers whose transactions go on for much longer than is usual, as the other shards have been told.
    told_stuck: u32,
    /// What they know of its part in shared budgets.
    pub(crate) told_share: ShareReport,
    /// How many looks in a row have found clients waiting.
    pub(crate) looks_waiting: u8,
    /// Since when it can serve clients: waits before that are not the load's.
    able_since_us: u64,
    /// While it has clients, unless [`Limits::counts_writes`].
    uncounted_writes: Option<UncountedWrites>,
    /// While the other process holds servers: its clients write there.
    external_writes: Option<UncountedWrites>,
    pub(crate) logins: Logins,
}

impl Pool {
    /// A pool without connections.
    #[must_use]
    pub fn new(
        limits: Limits,
        shared: Arc<SharedPool>,
        database: Arc<ConnectionCounts>,
        user: Arc<ConnectionCounts>,
    ) -> Pool {
        shared.sizing().begin_reporting();
        let size = size_in_force(&limits, &shared);
        shared.share().set(limits.sharing, limits.most_servers());
        Pool {
            limits,
            queue: Queue::default(),
            paused: false,
            shared,
            database,
            user,
            idle: Vec::new(),
            checking: Vec::new(),
            open: 0,
            external: 0,
            listeners: 0,
            told_waiting: 0,
            told_unused: 0,
            is_short_of_lease: false,
            size,
            told_stuck: 0,
            told_share: ShareReport::default(),
            looks_waiting: 0,
            able_since_us: 0,
            uncounted_writes: None,
            external_writes: None,
            logins: Logins::default(),
        }
    }

    /// What all shards share of it.
    #[must_use]
    pub fn shared(&self) -> &Arc<SharedPool> {
        &self.shared
    }

    /// The database's counts.
    #[must_use]
    pub fn database(&self) -> &Arc<ConnectionCounts> {
        &self.database
    }

    /// The user's counts.
    #[must_use]
    pub fn user(&self) -> &Arc<ConnectionCounts> {
        &self.user
    }

    /// Server connections on this shard, those that are opening or closing included.
    #[must_use]
    pub fn open(&self) -> u32 {
        self.open
    }

    /// Servers that are not idle, and clients that wait for one.
    #[inline]
    #[must_use]
    pub fn in_use(&self) -> u32 {
        let idle = u32::try_from(self.idle.len()).unwrap_or(u32::MAX);
        let waiting = u32::try_from(self.queue.shared_len()).unwrap_or(u32::MAX);
        self.open.saturating_sub(idle).saturating_add(waiting)
    }

    /// Idle servers, the longest idle first.
    #[must_use]
    pub fn idle(&self) -> &[IdleServer] {
        &self.idle
    }

    /// An idle server for a client: the one that it used last if that is still warm, else the one that was used last of
    /// all (or first of all: `server_round_robin`). It is not idle any more.
    #[inline]
    pub fn checkout(&mut self, used_last: Option<u32>, now_us: u64) -> Option<IdleServer> {
        if self.paused {
            return None;
        }
        if self.limits.round_robin {
            return (!self.idle.is_empty()).then(|| self.idle.remove(0));
        }
        // The one that was used last of all is most often the client's own, too.
        let own = used_last.filter(|own| self.idle.last().is_some_and(|idle| idle.server != *own));
        if let Some(own) = own
            && let Some(place) = self.idle.iter().rposition(|idle| idle.server == own)
            && now_us.saturating_sub(self.idle[place].since_us) < WARM_US
        {
            return Some(self.idle.remove(place));
        }
        self.idle.pop()
    }

    /// Lets the other shards know how many clients wait here; how many wait in all. One for which an idle server is being checked is as good as served.
    pub fn tell_waiting(&mut self, now_us: u64) -> u32 {
        let checked = self.queue.shared_len() - self.unserved(now_us);
        let waiting = u32::try_from(self.queue.len() - checked).unwrap_or(u32::MAX);
        let told = std::mem::replace(&mut self.told_waiting, waiting);
        self.shared.change_waiting(told, waiting)
    }

    /// In a fleet, lets its thread know how many servers no client has used for [`SLOT_UNUSED_US`].
    pub fn tell_unused(&mut self, now_us: u64) {
        if !self.limits.in_fleet {
            return;
        }
        let is_unused = |idle: &&IdleServer| now_us.saturating_sub(idle.since_us) >= SLOT_UNUSED_US;
        let unused = u32::try_from(self.idle.iter().filter(is_unused).count()).unwrap_or(u32::MAX);
        self.shared.change_unused(std::mem::replace(&mut self.told_unused, unused), unused);
    }

    /// A client waits no longer: the others need not wait for the next tick to know that.
    #[inline]
    pub fn note_left(&mut self, now_us: u64) {
        if self.limits.queue_limit > 0 || self.limits.fair.is_some() {
            self.tell_waiting(now_us);
        }
    }

    /// No client waits for any server, here or on other shards.
    #[must_use]
    pub fn nobody_waits(&self) -> bool {
        self.queue.shared_len() == 0 && self.shared.waiting() == self.told_waiting
    }

    /// It can serve clients again, which it could not for another reason than load.
    pub fn is_able_since(&mut self, now_us: u64) {
        self.able_since_us = now_us;
    }

    /// The pool runs a query of its own on a server, since then: who has come meanwhile does not wait for the load.
    pub fn excuse_since(&mut self, query_us: u64, now_us: u64) {
        if self.queue.standing_since_us().max(self.able_since_us) >= query_us {
            self.able_since_us = now_us;
        }
    }

    /// A client has waited for more than `target_us` for the load's sake, and the queue has not been empty for `standing_us`.
    #[must_use]
    pub fn is_overloaded(&self, since_us: u64, target_us: u64, standing_us: u64, now_us: u64) -> bool {
        let (since_us, standing_since_us) =
            (since_us.max(self.able_since_us), self.queue.standing_since_us().max(self.able_since_us));
        now_us.saturating_sub(since_us) > target_us && now_us.saturating_sub(standing_since_us) > standing_us
    }

    /// An idle server for a waiting client; None if no client waits, or a check is under way for each of them.
    #[inline]
    pub fn checkout_for_waiter(&mut self, now_us: u64) -> Option<IdleServer> {
        if self.queue.shared_len() == 0 || self.idle.is_empty() || self.unserved(now_us) == 0 {
            return None;
        }
        self.checkout(None, now_us)
    }

    /// How many clients wait for any server without one being checked for them.
    pub(crate) fn unserved(&self, now_us: u64) -> usize {
        let fresh = |check: &&IdleServer| now_us.saturating_sub(check.since_us) < CHECK_PATIENCE_US;
        self.queue.shared_len().saturating_sub(self.checking.iter().filter(fresh).count())
    }

    /// A client waits though there is an idle server, and no check of one has begun lately. Never true when the shard has
    /// handled an event; `now_us` may lie in the past for a caller that allows time.
    #[must_use]
    pub fn waits_beside_idle(&self, now_us: u64) -> bool {
        !self.paused && !self.idle.is_empty() && self.unserved(now_us) > 0
    }

    /// The check query of a server begins, before a waiting client gets it; perhaps behind another one, but only one client gets the server.
    pub fn begin_check(&mut self, server: u32, now_us: u64) {
        self.end_check(server);
        self.checking.push(IdleServer { server, since_us: now_us });
    }

    /// The check is over, or the server is closed; false if it was not being checked.
    #[inline]
    pub fn end_check(&mut self, server: u32) -> bool {
        let checks = self.checking.len();
        if checks > 0 {
            self.checking.retain(|check| check.server != server);
        }
        checks > self.checking.len()
    }

    /// Returns a server to the idle list; waiting clients get it next ([`Pool::checkout_for_waiter`]).
    #[inline]
    pub fn return_idle(&mut self, server: u32, now_us: u64) {
        self.idle.push(IdleServer { server, since_us: now_us });
    }

    /// Takes a server off the idle list; false if it is not on it.
    pub fn remove_idle(&mut self, server: u32) -> bool {
        let place = self.idle.iter().position(|idle| idle.server == server);
        if let Some(place) = place {
            self.idle.remove(place);
        }
        place.is_some()
    }

    /// `min_pool_size` is not reached, over all shards.
    #[must_use]
    pub fn below_minimum(&self) -> bool {
        let minimum = match self.size {
            0 => self.limits.min_pool_size,
            size => self.limits.min_pool_size.min(size),
        };
        self.shared.servers.taken() < minimum || self.limits.keeps_own && self.open == 0
    }

    /// Takes a permit to open one more server, from the pool, the database and the user; all or none.
    pub fn take_permit(&mut self, open_for: OpenFor, now_us: u64) -> Permit {
        let Some(reserve) = self.take_from_pool(now_us) else { return Permit::PoolFull };
        let taken = if self.limits.sharing.is_some() { self.shared.servers.taken() } else { 0 };
        if let Some(budget) = self.shared.share().exceeded(taken) {
            self.shared.servers.release();
            return match budget {
                Budget::Database => Permit::DatabaseFull,
                Budget::User => Permit::UserFull,
            };
        }
        if let Err(why) = self.database.servers.take(self.limits.max_db_connections, now_us) {
            self.shared.servers.release();
            self.is_short_of_lease |= why == Full::Lease;
            return Permit::DatabaseFull;
        }
        if let Err(why) = self.user.servers.take(self.limits.max_user_connections, now_us) {
            self.database.servers.release();
            self.shared.servers.release();
            self.is_short_of_lease |= why == Full::Lease;
            return Permit::UserFull;
        }
        if taken == 1 {
            self.shared.share().begins(self.database.next_begun(), self.user.next_begun());
        }
        self.open += 1;
        self.logins.of(open_for).begin();
        Permit::Taken { reserve }
    }

    /// Some(false): within `pool_size`. Some(true): from the reserve, because a client has waited long enough.
    fn take_from_pool(&mut self, now_us: u64) -> Option<bool> {
        let size = self.size;
        match self.shared.servers.take(size, now_us) {
            Ok(()) => return Some(false),
            Err(Full::Lease) => {
                self.is_short_of_lease = true;
                return None;
            }
            Err(Full::Limit) => {}
        }
        let reserve = self.reserve_open(now_us);
        let taken = (reserve > 0).then(|| self.shared.servers.take(size + reserve, now_us))?;
        self.is_short_of_lease |= taken == Err(Full::Lease);
        taken.is_ok().then_some(true)
    }

    /// Since this was asked last, a connection was not opened because of what the fleet has leased to this process.
    pub fn take_lease_shortage(&mut self) -> bool {
        std::mem::take(&mut self.is_short_of_lease)
    }

    /// More servers than the fleet has leased to this process.
    #[inline]
    #[must_use]
    pub fn is_over_lease(&self, now_us: u64) -> bool {
        self.limits.in_fleet && self.counters().into_iter().any(|counter| counter.is_over_lease(now_us))
    }

    /// What counts its servers.
    pub(crate) fn counters(&self) -> [&SlotCounter; 3] {
        [&self.shared.servers, &self.database.servers, &self.user.servers]
    }

    /// The reserve, once a client has waited long enough for it.
    pub(crate) fn reserve_open(&self, now_us: u64) -> u32 {
        let timeout_us = self.limits.reserve_pool_timeout_us;
        let waited_us = self.queue.front().map(|oldest| now_us.saturating_sub(oldest.since_us));
        let long_enough = timeout_us > 0 && waited_us.is_some_and(|waited_us| waited_us >= timeout_us);
        if long_enough { self.limits.reserve_pool_size } else { 0 }
    }

    /// More servers than `pool_size`, not counting `leaving`: the reserve is in use, or the pool has shrunk.
    #[must_use]
    pub fn is_oversized(&self, leaving: u32) -> bool {
        let most = self.size.saturating_add(leaving);
        self.size > 0 && self.shared.servers.taken() > most
    }

    /// More servers than the size that the pool has found, and than the reserve may open, not counting `leaving`: one is closed even if clients wait.
    #[must_use]
    pub fn is_to_shrink(&self, leaving: u32) -> bool {
        let most = self.size.saturating_add(self.limits.reserve_pool_size).saturating_add(leaving);
        self.limits.pool_size.is_auto() && self.shared.servers.taken() > most
    }

    /// More servers than `min_pool_size`, not counting `leaving`.
    #[must_use]
    pub fn is_above_minimum(&self, leaving: u32) -> bool {
        self.shared.servers.taken() > self.limits.min_pool_size.saturating_add(leaving)
    }

    /// A server's socket is closed: its permits are released.
    pub fn closed(&mut self) {
        self.open = self.open.saturating_sub(1);
        self.release_permit();
    }

    /// A server becomes the connection that listens for all clients of the pool. It counts in the limits of its database and user
    /// from here on, and not in `pool_size`: [`Pool::listener_closed`] gives back the rest.
    pub fn begin_listening(&mut self) {
        self.open = self.open.saturating_sub(1);
        self.shared.servers.release();
        self.listeners += 1;
    }

    /// Its socket is closed.
    pub fn listener_closed(&mut self) {
        self.listeners = self.listeners.saturating_sub(1);
        self.database.servers.release();
        self.user.servers.release();
    }

    /// Connections that listen for all clients of the pool, those that are closing included.
    #[must_use]
    pub fn listeners(&self) -> u32 {
        self.listeners
    }

    fn release_permit(&self) {
        self.counters().into_iter().for_each(SlotCounter::release);
    }
}

/// Servers that the other process still holds during a takeover: they count here, so that limits hold over both.
impl Pool {
    /// Permits of servers that the other process holds.
    #[must_use]
    pub fn external(&self) -> u32 {
        self.external
    }

    /// Counts a server that the other process holds. It exists, so it counts whatever the limits are.
    pub fn add_external(&mut self) {
        self.counters().into_iter().for_each(SlotCounter::add);
        self.external += 1;
        self.follow_external_writers();
    }

    /// A server of the other process was imported and is open here now.
    pub fn external_imported(&mut self) {
        if self.external == 0 {
            self.add_external();
        }
        self.external -= 1;
        self.open += 1;
        self.follow_external_writers();
    }

    /// A server that the other process held was closed there; false if it held none.
    pub fn external_closed(&mut self) -> bool {
        let was_held = self.external > 0;
        if was_held {
            self.external -= 1;
            self.release_permit();
            self.follow_external_writers();
        }
        was_held
    }

    fn follow_external_writers(&mut self) {
        let may_write = self.external > 0;
        if may_write != self.external_writes.is_some() {
            self.external_writes = may_write.then(|| UncountedWrites::new(&self.database));
        }
    }
}

/// `pool_size = auto`: all shards follow the size that one of them has decided.
impl Pool {
    /// The size in force here; 0 is no limit.
    #[must_use]
    pub fn size(&self) -> u32 {
        self.size
    }

    /// The settings are others.
    pub fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
        self.follow_size();
    }

    /// Its first client on this shard comes, the last one has left, or its limits are others.
    pub fn follow_writers(&mut self, has_clients: bool) {
        let may_write = has_clients && !self.limits.counts_writes;
        if may_write != self.uncounted_writes.is_some() {
            self.uncounted_writes = may_write.then(|| UncountedWrites::new(&self.database));
        }
    }

    /// The size may have been decided anew; true if another one is in force now.
    pub fn follow_size(&mut self) -> bool {
        let size = size_in_force(&self.limits, &self.shared);
        std::mem::replace(&mut self.size, size) != size
    }

    /// The process before has found this size: the search goes on from there, unless it has begun here.
    pub fn import_size(&mut self, size: u32) {
        self.shared.sizing().import(size);
        self.follow_size();
    }

    /// Lets the shard that decides know how many servers here do not serve.
    pub fn tell_stuck(&mut self, stuck: u32) {
        self.shared.sizing().change_stuck(self.told_stuck, stuck);
        self.told_stuck = stuck;
    }
}

fn size_in_force(limits: &Limits, shared: &SharedPool) -> u32 {
    limits.pool_size.nearest(shared.sizing().target().unwrap_or(0))
}

impl Drop for Pool {
    /// What it has told of waiting clients is not true any more.
    fn drop(&mut self) {
        self.shared.sizing().end_reporting(self.told_stuck);
        self.shared.change_waiting(self.told_waiting, 0);
        self.shared.change_unused(self.told_unused, 0);
        self.shared.share().change(self.told_share, ShareReport::default());
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn limits(pool_size: u32) -> Limits {
        Limits {
            follows_sessions: false,
            assigns_at_login: false,
            defers_begin: false,
            max_pinned: 0,
            waits_for_pin: false,
            mode: PoolMode::Transaction,
            pool_size: SizeBounds::Fixed(pool_size),
            min_pool_size: 0,
            keeps_own: false,
            reserve_pool_size: 0,
            reserve_pool_timeout_us: 5_000_000,
            max_db_connections: 0,
            max_user_connections: 0,
            sharing: None,
            fair: None,
            queue_burst_us: 0,
            priority: None,
            queue_limit: 0,
            queue_target_us: 0,
            in_fleet: false,
            server_login_retry_us: 15_000_000,
            round_robin: false,
            counts_writes: false,
        }
    }

    fn pool(limits: Limits) -> Pool {
        Pool::new(limits, Arc::default(), Arc::default(), Arc::default())
    }

    #[test]
    fn a_warm_server_goes_to_its_last_client_else_the_last_used() {
        let mut pool = pool(limits(3));
        for server in 1..=3 {
            pool.return_idle(server, 10);
        }
        assert_eq!(pool.checkout(Some(1), 20).map(|idle| idle.server), Some(1));
        assert_eq!(
            pool.checkout(Some(2), 10 + WARM_US).map(|idle| idle.server),
            Some(3),
            "2 is not warm any more"
        );
        assert_eq!(pool.checkout(None, 20).map(|idle| idle.server), Some(2));
        assert_eq!(pool.checkout(None, 20), None);
    }

    #[test]
    fn round_robin_takes_the_longest_idle() {
        let mut pool = pool(Limits { round_robin: true, ..limits(3) });
        pool.return_idle(1, 0);
        pool.return_idle(2, 0);
        assert_eq!(pool.checkout(None, 5).map(|idle| idle.server), Some(1));
    }

    #[test]
    fn one_login_at_a_time_and_only_for_a_waiting_client() {
        let mut pool = pool(limits(2));
        assert!(pool.next_to_open(0, false).is_none(), "no client waits");
        pool.queue.join(1, 0);
        assert!(pool.next_to_open(0, false).is_some());
        assert_eq!(pool.take_permit(OpenFor::Any, 0), Permit::Taken { reserve: false });
        assert!(pool.next_to_open(0, false).is_none(), "one is on its way");
        pool.logged_in(OpenFor::Any, true, 0);
        assert!(pool.next_to_open(0, false).is_some());
    }

    #[test]
    fn permits_end_at_the_limit_and_come_back() {
        let mut pool = pool(limits(1));
        assert_eq!(pool.take_permit(OpenFor::Any, 0), Permit::Taken { reserve: false });
        assert_eq!(pool.take_permit(OpenFor::Any, 0), Permit::PoolFull);
        pool.closed();
        assert_eq!(pool.take_permit(OpenFor::Any, 0), Permit::Taken { reserve: false });
    }

    #[test]
    fn a_refused_permit_takes_nothing() {
        let database = Arc::<ConnectionCounts>::default();
        let shared = Arc::<SharedPool>::default();
        let only = Limits { max_db_connections: 1, ..limits(5) };
        let mut pool = Pool::new(only, Arc::clone(&shared), Arc::clone(&database), Arc::default());
        assert!(database.servers.take(1, 0).is_ok());
        assert_eq!(pool.take_permit(OpenFor::Any, 0), Permit::DatabaseFull);
        assert_eq!(shared.servers.taken(), 0);
    }

    #[test]
    fn the_reserve_opens_after_its_timeout() {
        let mut pool = pool(Limits { reserve_pool_size: 1, ..limits(1) });
        pool.queue.join(1, 0);
        assert_eq!(pool.take_permit(OpenFor::Any, 0), Permit::Taken { reserve: false });
        assert_eq!(pool.take_permit(OpenFor::Any, 4_999_999), Permit::PoolFull);
        assert_eq!(pool.take_permit(OpenFor::Any, 5_000_000), Permit::Taken { reserve: true });
        assert!(pool.is_oversized(0));
        assert!(!pool.is_oversized(1), "it will not be");
        assert_eq!(pool.take_permit(OpenFor::Any, 9_000_000), Permit::PoolFull);
    }

    #[test]
    fn a_listener_counts_beside_the_pool() {
        let database = Arc::<ConnectionCounts>::default();
        let only = Limits { max_db_connections: 2, ..limits(1) };
        let mut pool = Pool::new(only, Arc::default(), Arc::clone(&database), Arc::default());
        assert_eq!(pool.take_permit(OpenFor::Any, 0), Permit::Taken { reserve: false });
        pool.begin_listening();
        assert_eq!((pool.open(), pool.listeners(), database.servers.taken()), (0, 1, 1));
        assert_eq!(pool.take_permit(OpenFor::Any, 0), Permit::Taken { reserve: false });
        assert_eq!(pool.take_permit(OpenFor::Any, 0), Permit::PoolFull);
        pool.listener_closed();
        assert_eq!((pool.open(), pool.listeners(), database.servers.taken()), (1, 0, 1));
    }

    /// I17 of ARCHITECTURE.md.
    #[test]
    fn failures_are_retried_more_and_more_slowly_up_to_the_setting() {
        let mut pool = pool(limits(1));
        pool.queue.join(1, 0);
        let mut delays = vec![];
        let mut now_us = 0;
        for _ in 0..10 {
            pool.logged_in(OpenFor::Any, false, now_us);
            delays.push(pool.retry_at_us() - now_us);
            assert!(pool.next_to_open(pool.retry_at_us() - 1, false).is_none());
            now_us = pool.retry_at_us();
        }
        assert_eq!(delays[..4], [100_000, 200_000, 400_000, 800_000]);
        assert_eq!(delays[9], 15_000_000);
        pool.logged_in(OpenFor::Any, true, now_us);
        assert!(pool.next_to_open(now_us, false).is_some());
    }

    #[test]
    fn servers_of_the_other_process_count_until_imported_or_closed() {
        let mut pool = pool(limits(2));
        pool.add_external();
        pool.add_external();
        assert_eq!(pool.take_permit(OpenFor::Any, 0), Permit::PoolFull);
        pool.external_imported();
        assert_eq!((pool.open(), pool.external(), pool.shared().servers.taken()), (1, 1, 2));
        let database = Arc::clone(pool.database());
        assert_eq!(database.cluster.all_writes(), None, "those of its clients are not counted");
        assert!(pool.external_closed() && !pool.external_closed());
        assert_eq!(database.cluster.all_writes(), Some(1));
        assert_eq!(pool.take_permit(OpenFor::Any, 0), Permit::Taken { reserve: false });
        pool.closed();
        pool.closed();
        assert_eq!(pool.shared().servers.taken(), 0);
    }

    #[test]
    fn a_recent_check_serves_one_waiting_client() {
        let mut pool = pool(limits(3));
        for server in 1..=3 {
            pool.return_idle(server, 0);
        }
        assert_eq!(pool.checkout_for_waiter(0), None, "no client waits");
        pool.queue.join_dedicated(1, 0);
        assert_eq!(pool.checkout_for_waiter(0), None, "no client that takes it");
        pool.queue.join(2, 0);
        let checked = pool.checkout_for_waiter(0).map(|idle| idle.server);
        assert_eq!(checked, Some(3));
        pool.begin_check(3, 0);
        assert_eq!(
            (pool.checkout_for_waiter(1), pool.next_to_open(1, false)),
            (None, Some(OpenFor::Dedicated))
        );
        assert_eq!(pool.checkout_for_waiter(CHECK_PATIENCE_US).map(|idle| idle.server), Some(2));
        assert!(pool.end_check(3) && !pool.end_check(3));
        pool.queue.join(3, 1);
        assert_eq!(pool.checkout_for_waiter(2).map(|idle| idle.server), Some(1));
    }

    #[test]
    fn others_are_told_of_those_for_whom_no_server_is_being_checked() {
        let shared = Arc::<SharedPool>::default();
        let part = || {
            Pool::new(
                Limits { queue_limit: 1, ..limits(3) },
                Arc::clone(&shared),
                Arc::default(),
                Arc::default(),
            )
        };
        let (mut here, mut there) = (part(), part());
        for client in 1..=3 {
            here.queue.join(client, 0);
        }
        here.begin_check(1, 0);
        here.begin_check(2, 0);
        assert_eq!((here.tell_waiting(0), there.tell_waiting(0)), (1, 1));
        assert_eq!(here.tell_waiting(CHECK_PATIENCE_US), 3, "they take long");
        while here.queue.serve().is_some() {
            here.note_left(CHECK_PATIENCE_US);
        }
        assert_eq!(there.tell_waiting(0), 0);
    }

    #[test]
    fn a_queue_that_begins_with_one_that_has_waited_elsewhere_stands_since_then() {
        let mut pool = pool(limits(1));
        pool.queue.join(1, 0);
        pool.queue.has_joined(5_000_000);
        assert!(!pool.is_overloaded(0, 50_000, 100_000, 5_050_000));
        pool.queue.join(2, 5_050_000);
        pool.queue.has_joined(5_050_000);
        assert!(pool.is_overloaded(0, 50_000, 100_000, 5_100_001));
    }

    #[test]
    fn a_query_of_the_pools_own_excuses_those_who_came_meanwhile_alone() {
        let mut pool = pool(limits(1));
        pool.queue.join(1, 10_000);
        pool.excuse_since(20_000, 400_000);
        assert!(pool.is_overloaded(10_000, 50_000, 100_000, 400_000), "it has waited before");
        pool.excuse_since(10_000, 400_000);
        assert!(!pool.is_overloaded(10_000, 50_000, 100_000, 450_000));
        assert!(pool.is_overloaded(10_000, 50_000, 100_000, 500_001));
    }

    #[test]
    fn a_paused_pool_checks_out_nothing() {
        let mut pool = pool(limits(1));
        pool.return_idle(1, 0);
        pool.queue.join(1, 0);
        pool.paused = true;
        assert_eq!(pool.checkout(None, 0), None);
        assert!(pool.next_to_open(0, false).is_none());
    }

    #[test]
    fn a_pool_that_is_gone_leaves_nobody_waiting() {
        let shared = Arc::new(SharedPool::default());
        let mut gone = Pool::new(limits(1), Arc::clone(&shared), Arc::default(), Arc::default());
        gone.queue.join(7, 0);
        assert_eq!((gone.tell_waiting(0), shared.waiting()), (1, 1));
        drop(gone);
        assert_eq!(shared.waiting(), 0);
    }
}
