//! One pool's part on one shard: which servers are idle, who waits, whether to open another.
//!
//! Owns pure decisions over numbers: it is told what happened and says what should. Never sees a byte, a session or a
//! socket; servers and clients are the numbers that their owner gave them.

use std::sync::Arc;

use settings::PoolMode;

use crate::{Both, Queue, Shared};

/// Within this time the server that a client used last is still warm for it.
const WARM_US: u64 = 1_000_000;

/// After a failed login the first retry comes after this; each further one doubles it, up to `server_login_retry`.
const FIRST_RETRY_US: u64 = 100_000;

/// What the settings say about this pool, resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The mode.
    pub mode: PoolMode,
    /// `pool_size`; 0 is no limit.
    pub pool_size: u32,
    /// `min_pool_size`.
    pub min_pool_size: u32,
    /// `reserve_pool_size`.
    pub reserve_pool_size: u32,
    /// `reserve_pool_timeout`, microseconds; 0 switches the reserve off.
    pub reserve_pool_timeout_us: u64,
    /// `max_db_connections`; 0 is no limit.
    pub max_db_connections: u32,
    /// `max_user_connections`; 0 is no limit.
    pub max_user_connections: u32,
    /// `server_login_retry`, microseconds.
    pub server_login_retry_us: u64,
    /// `server_round_robin`.
    pub round_robin: bool,
}

/// An idle server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Idle {
    /// The server, by the number that its owner gave it.
    pub server: u32,
    /// Since when.
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

/// The pool.
#[derive(Debug)]
pub struct Pool {
    /// What the settings say.
    pub limits: Limits,
    /// Who waits.
    pub queue: Queue,
    /// PAUSE or a shutdown: hand out nothing, open nothing.
    pub paused: bool,
    shared: Arc<Shared>,
    database: Arc<Both>,
    user: Arc<Both>,
    idle: Vec<Idle>,
    open: u32,
    /// Permits of servers that a predecessor process still holds and will send or close.
    elsewhere: u32,
    logging_in: u32,
    retry_at_us: u64,
    retry_delay_us: u64,
}

impl Pool {
    /// An empty part of a pool.
    #[must_use]
    pub fn new(limits: Limits, shared: Arc<Shared>, database: Arc<Both>, user: Arc<Both>) -> Pool {
        Pool {
            limits,
            queue: Queue::default(),
            paused: false,
            shared,
            database,
            user,
            idle: Vec::new(),
            open: 0,
            elsewhere: 0,
            logging_in: 0,
            retry_at_us: 0,
            retry_delay_us: 0,
        }
    }

    /// What all shards share of it.
    #[must_use]
    pub fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// The database's counts.
    #[must_use]
    pub fn database(&self) -> &Arc<Both> {
        &self.database
    }

    /// The user's counts.
    #[must_use]
    pub fn user(&self) -> &Arc<Both> {
        &self.user
    }

    /// Server connections of this part, those that are opening or closing included.
    #[must_use]
    pub fn open(&self) -> u32 {
        self.open
    }

    /// Those that are logging in.
    #[must_use]
    pub fn logging_in(&self) -> u32 {
        self.logging_in
    }

    /// Idle servers, the longest idle first.
    #[must_use]
    pub fn idle(&self) -> &[Idle] {
        &self.idle
    }

    /// An idle server for a client: the one that it used last if that is still warm, else the one that was used last of
    /// all (or first of all: `server_round_robin`). It is not idle any more.
    #[inline]
    pub fn lend(&mut self, used_last: Option<u32>, now_us: u64) -> Option<Idle> {
        if self.paused {
            return None;
        }
        if let Some(server) = used_last
            && !self.limits.round_robin
            && let Some(place) = self.idle.iter().rposition(|idle| idle.server == server)
            && now_us.saturating_sub(self.idle[place].since_us) < WARM_US
        {
            return Some(self.idle.remove(place));
        }
        if self.limits.round_robin && !self.idle.is_empty() {
            Some(self.idle.remove(0))
        } else {
            self.idle.pop()
        }
    }

    /// A server is free and nobody waits.
    #[inline]
    pub fn park(&mut self, server: u32, now_us: u64) {
        self.idle.push(Idle { server, since_us: now_us });
    }

    /// Takes a server off the idle list; false if it is not on it.
    pub fn unpark(&mut self, server: u32) -> bool {
        let place = self.idle.iter().position(|idle| idle.server == server);
        if let Some(place) = place {
            self.idle.remove(place);
        }
        place.is_some()
    }

    /// Somebody waits (or the minimum is not reached), nothing is being opened already, and no failure forbids it.
    /// One login at a time: a server that has just started is not stormed.
    #[must_use]
    pub fn should_open(&self, now_us: u64) -> bool {
        !self.paused
            && self.logging_in == 0
            && now_us >= self.retry_at_us
            && (!self.queue.is_empty() || self.below_minimum())
    }

    /// `min_pool_size` is not reached, over all shards.
    #[must_use]
    pub fn below_minimum(&self) -> bool {
        let minimum = match self.limits.pool_size {
            0 => self.limits.min_pool_size,
            size => self.limits.min_pool_size.min(size),
        };
        self.shared.servers.taken() < minimum
    }

    /// Takes a permit to open one more server, from the pool, the database and the user; all or none.
    pub fn take_permit(&mut self, now_us: u64) -> Permit {
        let Some(reserve) = self.take_from_pool(now_us) else { return Permit::PoolFull };
        if !self.database.servers.take(self.limits.max_db_connections) {
            self.shared.servers.give();
            return Permit::DatabaseFull;
        }
        if !self.user.servers.take(self.limits.max_user_connections) {
            self.database.servers.give();
            self.shared.servers.give();
            return Permit::UserFull;
        }
        self.open += 1;
        self.logging_in += 1;
        Permit::Taken { reserve }
    }

    /// Some(false): within `pool_size`. Some(true): from the reserve, because somebody has waited long enough.
    fn take_from_pool(&self, now_us: u64) -> Option<bool> {
        let size = self.limits.pool_size;
        #[cfg(weir_bug = "limit_off_by_one")]
        let size = size + u32::from(size > 0);
        if self.shared.servers.take(size) {
            return Some(false);
        }
        let reserve = self.reserve_open(now_us);
        (reserve > 0 && self.shared.servers.take(size + reserve)).then_some(true)
    }

    /// The reserve, once somebody has waited long enough for it.
    pub(crate) fn reserve_open(&self, now_us: u64) -> u32 {
        let timeout_us = self.limits.reserve_pool_timeout_us;
        let waited_us = self.queue.front().map(|oldest| now_us.saturating_sub(oldest.since_us));
        let long_enough = timeout_us > 0 && waited_us.is_some_and(|waited_us| waited_us >= timeout_us);
        if long_enough { self.limits.reserve_pool_size } else { 0 }
    }

    /// More servers than `pool_size`, without so many that are leaving: the reserve is in use, or the pool has shrunk.
    #[must_use]
    pub fn is_oversized(&self, leaving: u32) -> bool {
        let most = self.limits.pool_size.saturating_add(leaving);
        self.limits.pool_size > 0 && self.shared.servers.taken() > most
    }

    /// More servers than `min_pool_size`, without so many that are leaving.
    #[must_use]
    pub fn is_above_minimum(&self, leaving: u32) -> bool {
        self.shared.servers.taken() > self.limits.min_pool_size.saturating_add(leaving)
    }

    /// A login ended, well or badly.
    pub fn logged_in(&mut self, well: bool, now_us: u64) {
        self.logging_in = self.logging_in.saturating_sub(1);
        if well {
            self.retry_at_us = 0;
            self.retry_delay_us = 0;
        } else {
            let delay_us =
                (self.retry_delay_us * 2).max(FIRST_RETRY_US).min(self.limits.server_login_retry_us);
            self.retry_delay_us = delay_us;
            self.retry_at_us = now_us + delay_us;
        }
    }

    /// A login ended for a reason that is nobody else's: its one client was not let in, or has left.
    pub fn login_withdrawn(&mut self) {
        self.logging_in = self.logging_in.saturating_sub(1);
    }

    /// Logins fail at present.
    #[must_use]
    pub fn is_failing(&self) -> bool {
        self.retry_delay_us > 0
    }

    /// When the next login may be tried after a failure; 0 if there was none.
    #[must_use]
    pub fn retry_at_us(&self) -> u64 {
        self.retry_at_us
    }

    /// Tries again at once (RECONNECT, RESUME, a new configuration).
    pub fn forget_failure(&mut self) {
        self.retry_at_us = 0;
        self.retry_delay_us = 0;
    }

    /// A server's socket is gone: its permits are free, everywhere.
    pub fn closed(&mut self) {
        self.open = self.open.saturating_sub(1);
        self.give_permit();
    }

    fn give_permit(&self) {
        self.shared.servers.give();
        self.database.servers.give();
        self.user.servers.give();
    }
}

/// Servers that another process holds while it hands over: they count here, so that limits hold over both.
impl Pool {
    /// Permits of servers that are still elsewhere.
    #[must_use]
    pub fn elsewhere(&self) -> u32 {
        self.elsewhere
    }

    /// One more server is held elsewhere. It exists, so it counts whatever the limits say.
    pub fn held_elsewhere(&mut self) {
        self.shared.servers.take(0);
        self.database.servers.take(0);
        self.user.servers.take(0);
        self.elsewhere += 1;
    }

    /// A server came from elsewhere and is open here now.
    pub fn arrived(&mut self) {
        if self.elsewhere == 0 {
            self.held_elsewhere();
        }
        self.elsewhere -= 1;
        self.open += 1;
    }

    /// A server that was held elsewhere was closed there; false if none was.
    pub fn closed_elsewhere(&mut self) -> bool {
        let was_held = self.elsewhere > 0;
        if was_held {
            self.elsewhere -= 1;
            self.give_permit();
        }
        was_held
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn limits(pool_size: u32) -> Limits {
        Limits {
            mode: PoolMode::Transaction,
            pool_size,
            min_pool_size: 0,
            reserve_pool_size: 0,
            reserve_pool_timeout_us: 5_000_000,
            max_db_connections: 0,
            max_user_connections: 0,
            server_login_retry_us: 15_000_000,
            round_robin: false,
        }
    }

    fn pool(limits: Limits) -> Pool {
        Pool::new(limits, Arc::default(), Arc::default(), Arc::default())
    }

    #[test]
    fn a_warm_server_goes_to_its_last_client_else_the_last_used() {
        let mut pool = pool(limits(3));
        for server in 1..=3 {
            pool.park(server, 10);
        }
        assert_eq!(pool.lend(Some(1), 20).map(|idle| idle.server), Some(1));
        assert_eq!(pool.lend(Some(2), 10 + WARM_US).map(|idle| idle.server), Some(3), "2 has gone cold");
        assert_eq!(pool.lend(None, 20).map(|idle| idle.server), Some(2));
        assert_eq!(pool.lend(None, 20), None);
    }

    #[test]
    fn round_robin_takes_the_longest_idle() {
        let mut pool = pool(Limits { round_robin: true, ..limits(3) });
        pool.park(1, 0);
        pool.park(2, 0);
        assert_eq!(pool.lend(None, 5).map(|idle| idle.server), Some(1));
    }

    #[test]
    fn one_login_at_a_time_and_only_for_somebody() {
        let mut pool = pool(limits(2));
        assert!(!pool.should_open(0), "nobody waits");
        pool.queue.join(1, 0);
        assert!(pool.should_open(0));
        assert_eq!(pool.take_permit(0), Permit::Taken { reserve: false });
        assert!(!pool.should_open(0), "one is on its way");
        pool.logged_in(true, 0);
        assert!(pool.should_open(0));
    }

    #[test]
    fn permits_end_at_the_limit_and_come_back() {
        let mut pool = pool(limits(1));
        assert_eq!(pool.take_permit(0), Permit::Taken { reserve: false });
        assert_eq!(pool.take_permit(0), Permit::PoolFull);
        pool.closed();
        assert_eq!(pool.take_permit(0), Permit::Taken { reserve: false });
    }

    #[test]
    fn a_refused_permit_takes_nothing() {
        let database = Arc::<Both>::default();
        let shared = Arc::<Shared>::default();
        let only = Limits { max_db_connections: 1, ..limits(5) };
        let mut pool = Pool::new(only, Arc::clone(&shared), Arc::clone(&database), Arc::default());
        assert!(database.servers.take(1));
        assert_eq!(pool.take_permit(0), Permit::DatabaseFull);
        assert_eq!(shared.servers.taken(), 0);
    }

    #[test]
    fn the_reserve_opens_after_its_timeout() {
        let mut pool = pool(Limits { reserve_pool_size: 1, ..limits(1) });
        pool.queue.join(1, 0);
        assert_eq!(pool.take_permit(0), Permit::Taken { reserve: false });
        assert_eq!(pool.take_permit(4_999_999), Permit::PoolFull);
        assert_eq!(pool.take_permit(5_000_000), Permit::Taken { reserve: true });
        assert!(pool.is_oversized(0));
        assert!(!pool.is_oversized(1), "it will not be");
        assert_eq!(pool.take_permit(9_000_000), Permit::PoolFull);
    }

    #[test]
    fn failures_are_retried_more_and_more_slowly_up_to_the_setting() {
        let mut pool = pool(limits(1));
        pool.queue.join(1, 0);
        let mut delays = vec![];
        let mut now_us = 0;
        for _ in 0..10 {
            pool.logged_in(false, now_us);
            delays.push(pool.retry_at_us() - now_us);
            assert!(!pool.should_open(pool.retry_at_us() - 1));
            now_us = pool.retry_at_us();
        }
        assert_eq!(delays[..4], [100_000, 200_000, 400_000, 800_000]);
        assert_eq!(delays[9], 15_000_000);
        pool.logged_in(true, now_us);
        assert!(pool.should_open(now_us));
    }

    #[test]
    fn what_another_process_holds_counts_until_it_comes_or_goes() {
        let mut pool = pool(limits(2));
        pool.held_elsewhere();
        pool.held_elsewhere();
        assert_eq!(pool.take_permit(0), Permit::PoolFull);
        pool.arrived();
        assert_eq!((pool.open(), pool.elsewhere(), pool.shared().servers.taken()), (1, 1, 2));
        assert!(pool.closed_elsewhere() && !pool.closed_elsewhere());
        assert_eq!(pool.take_permit(0), Permit::Taken { reserve: false });
        pool.closed();
        pool.closed();
        assert_eq!(pool.shared().servers.taken(), 0);
    }

    #[test]
    fn a_paused_pool_gives_nothing() {
        let mut pool = pool(limits(1));
        pool.park(1, 0);
        pool.queue.join(1, 0);
        pool.paused = true;
        assert_eq!(pool.lend(None, 0), None);
        assert!(!pool.should_open(0));
    }
}
