//! One pool on this shard.
//!
//! Data only; who gets a server when is [`Pool`]'s to decide, and the logic around it is in the folders that use it.

use std::collections::VecDeque;
use std::sync::Arc;

use auth::ScramKeys;
use pool::{Limits, Pool, Sharing};
use session::Catalog;
use settings::{
    Config, ConnectionSharing, Database, PinAction, PoolMode, ReadConsistency, TargetSessionAttrs,
};
use telemetry::{Counters, Histograms};

use crate::ConnId;
use crate::greeting::ServerGreeting;
use crate::local_pools::hosts::NextHost;
use crate::local_pools::known_relations::KnownRelations;
use crate::local_pools::listener::Listener;
use crate::local_pools::serves::Serves;
use crate::local_pools::sizing::Sizing;
use crate::time::{micros, passed};

/// After this wait a client gets the permit of a server that is idle on another shard, fair share or not, or is kept for sequences' values alone.
pub(crate) const LONG_WAIT_US: u64 = 300_000;

/// One pool on this shard: its decisions ([`Pool`]), and everything else that is kept of it.
pub(crate) struct LocalPool {
    pub(crate) pool: Pool,
    /// The number that separates its prepared statements from those of other pools.
    pub(crate) catalog: u64,
    pub(crate) database_name: Arc<str>,
    pub(crate) user: Arc<str>,
    /// Its entry; of a pool for reads, as if that had one host.
    pub(crate) database: Arc<Database>,
    pub(crate) serves: Serves,
    /// Keys from the last client that logged in by SCRAM; they open servers where the stored secret cannot.
    pub(crate) keys: Option<ScramKeys>,
    /// The last password that a client sent in clear text and that was accepted.
    pub(crate) password: Option<auth::Zeroizing<String>>,
    /// The user's secret from `auth_query`.
    pub(crate) found: Option<auth::Zeroizing<String>>,
    /// What servers report at login; None until the first one has logged in.
    pub(crate) server_greeting: Option<Box<ServerGreeting>>,
    /// The last failed server login, if none has succeeded since.
    pub(crate) server_error: Option<Box<messages::ServerError>>,
    /// Tracked parameters of a server after its login.
    pub(crate) default_params: session::Parameters,
    /// What a client and a server last had in common.
    pub(crate) last_params: session::Parameters,
    /// What clients' settings leave in a session (`session_state = virtual`).
    pub(crate) learned_settings: session::LearnedSettings,
    /// Clients ask for what `nextval` left in earlier transactions, likewise: those that call it keep their servers.
    pub(crate) keeps_sequences: bool,
    /// When another shard or pool has asked last for the place of a server that is kept so.
    pub(crate) place_requested_us: Option<u64>,
    /// Tables and views whose use may change a session, likewise.
    pub(crate) relations: KnownRelations,
    /// What listens for all clients of the pool, once one has.
    pub(crate) listener: Option<Box<Listener>>,
    pub(crate) counters: Counters,
    /// `pool_size = auto`: what was counted until the last report, and the search if it is this shard's.
    pub(crate) sizing: Sizing,
    pub(crate) pins: messages::PinCounters,
    /// Latencies, once there are any.
    pub(crate) histograms: Option<Box<Histograms>>,
    /// Clients of this pool that have logged in.
    pub(crate) clients: u32,
    /// Which configured host comes next.
    pub(crate) next_host: NextHost,
    pub(crate) last_used_us: u64,
    /// When a permit was last requested from other shards.
    pub(crate) permit_requested_us: u64,
    /// When a budget that it shares was last divided for it.
    pub(crate) share_asked_us: u64,
    /// Cancel requests being forwarded, and those that wait.
    pub(crate) cancels_active: u32,
    pub(crate) cancels_waiting: VecDeque<ConnId>,
    /// PAUSE (or KILL) is in force for this database.
    pub(crate) paused_by_command: bool,
}

impl LocalPool {
    /// Its user is the one that the entry forces for every client.
    pub(crate) fn is_forced(&self) -> bool {
        self.database.user.as_deref() == Some(&*self.user)
    }

    /// Its host, if it is for reads on that.
    pub(crate) fn host(&self) -> Option<&str> {
        self.serves.standby().map(|standby| &*standby.label)
    }

    /// A server of it has logged in.
    pub(crate) fn has_live_server(&self) -> bool {
        self.pool.open() > self.pool.logging_in()
    }

    /// The clients that wait for any server of the pool.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = ConnId> + '_ {
        self.pool.queue.shared().map(|waiter| ConnId(waiter.client))
    }

    /// The one that waits longest has done so long.
    pub(crate) fn has_waited_long(&self, now_us: u64) -> bool {
        self.pool.queue.front().is_some_and(|oldest| passed(now_us, oldest.since_us, LONG_WAIT_US))
    }

    /// How long it would take to serve all that wait, in whole seconds: at least 1, at most a minute.
    pub(crate) fn seconds_to_serve(&self) -> u64 {
        let typical_us = self.counters.xact_time.checked_div(self.counters.xact_count).unwrap_or(0);
        let waiting_us = typical_us.saturating_mul(self.pool.queue.len() as u64);
        waiting_us.div_ceil(u64::from(self.pool.open().max(1)) * 1_000_000).clamp(1, 60)
    }

    /// How many have waited long because the pool is full, and get none of the connections that are being opened.
    pub(crate) fn late_waiters(&self, now_us: u64) -> usize {
        let queue = &self.pool.queue;
        if queue.is_empty() || self.pool.paused || self.pool.has_room(now_us) {
            return 0;
        }
        let late = queue
            .shared()
            .chain(queue.dedicated())
            .filter(|waiter| passed(now_us, waiter.since_us, LONG_WAIT_US));
        late.count().saturating_sub(self.pool.logging_in() as usize)
    }

    /// Where its statements' names are looked up.
    pub(crate) fn catalog(&self) -> Catalog {
        let has_one_server = self.database.host.len() <= 1 && self.serves.standby().is_none();
        Catalog { id: self.catalog, own_types: has_one_server }
    }
}

impl LocalPool {
    /// A client comes.
    pub(crate) fn add_client(&mut self) {
        self.clients += 1;
        self.pool.follow_writers(true);
    }

    /// A client leaves.
    pub(crate) fn remove_client(&mut self) {
        self.clients = self.clients.saturating_sub(1);
        self.pool.follow_writers(self.clients > 0);
    }

    /// The settings are others.
    pub(crate) fn set_limits(&mut self, limits: Limits) {
        self.pool.set_limits(limits);
        self.pool.follow_writers(self.clients > 0);
    }

    /// No connection uses or waits for it, not even for the end of a cancel.
    pub(crate) fn is_unused(&self) -> bool {
        self.clients == 0
            && self.pool.queue.is_empty()
            && self.cancels_active == 0
            && self.cancels_waiting.is_empty()
    }

    /// Servers of it are kept open: for its clients, or because its user is forced.
    pub(crate) fn keeps_minimum(&self) -> bool {
        if let Some(standby) = self.serves.standby() {
            return standby.is_needed;
        }
        self.pool.limits.min_pool_size > 0 && (self.clients > 0 || self.is_forced())
    }
}

/// Counters on the path of a query: plain additions, of times that are known anyway. The histograms are allocated at the first checkout.
impl LocalPool {
    /// A client got a server that it had waited for so long (0: it was there).
    #[inline]
    pub(crate) fn assigned(&mut self, wait_us: u64) {
        self.counters.server_assignment_count += 1;
        self.counters.wait_time += wait_us;
        self.histograms.get_or_insert_default().wait.add(wait_us);
    }

    /// Counts statements that clients have prepared, that were prepared on servers, and that were bound.
    #[inline]
    pub(crate) fn prepared(&mut self, parsed: u64, parsed_on_server: u64, bound: u64) {
        self.counters.client_parse_count += parsed;
        self.counters.server_parse_count += parsed_on_server;
        self.counters.bind_count += bound;
    }

    /// Counts answered queries and their total time.
    #[inline]
    pub(crate) fn answered(&mut self, queries: u32, took_us: u64) {
        self.counters.query_count += u64::from(queries);
        self.counters.query_time += took_us;
        if let Some(histograms) = &mut self.histograms {
            histograms.query.add_shares(took_us, queries);
        }
    }

    /// Counts finished transactions and their total time.
    #[inline]
    pub(crate) fn transacted(&mut self, transactions: u32, took_us: u64) {
        self.counters.xact_count += u64::from(transactions);
        self.counters.xact_time += took_us;
        if let Some(histograms) = &mut self.histograms {
            histograms.transaction.add_shares(took_us, transactions);
        }
    }
}

/// The limits of a pool by the settings.
pub(crate) fn limits(config: &Config, database: &Database, user: &str) -> Limits {
    let user = config.user(user).map(|user| &**user);
    let is_for_reads = database.read_write_split
        && database.target_session_attrs == TargetSessionAttrs::Standby
        && config.pool_mode(database, user) != PoolMode::Session;
    let judges = config.judges_reads(database, user);
    let max_pinned = config.max_pinned(database, user);
    Limits {
        mode: config.pool_mode(database, user),
        follows_sessions: config.follows_sessions(database, user),
        assigns_at_login: config.assigns_at_login(database, user),
        defers_begin: config.defers_begin(database, user),
        max_pinned,
        waits_for_pin: max_pinned > 0
            && config.follows_sessions(database, user)
            && config.max_pinned_action(database, user) == PinAction::Wait,
        pool_size: config.pool_size(database, user),
        min_pool_size: config.min_pool_size(database).max(u32::from(judges || is_for_reads)),
        keeps_own: is_for_reads,
        reserve_pool_size: config.reserve_pool_size(database, user),
        reserve_pool_timeout_us: micros(config.global.reserve_pool_timeout),
        max_db_connections: config.max_db_connections(database),
        max_user_connections: config.max_user_connections(user),
        in_fleet: config.global.fleet.is_some(),
        sharing: match config.connection_sharing(database) {
            ConnectionSharing::None => None,
            mode => Some(Sharing {
                guaranteed: if is_for_reads { 0 } else { config.guaranteed_connections(database, user) },
                by_demand: mode == ConnectionSharing::Demand,
            }),
        }
        .filter(|_| config.max_db_connections(database) > 0 || config.max_user_connections(user) > 0),
        fair: config.fair_queue(database),
        queue_burst_us: micros(config.queue_burst(database)),
        priority: config.queue_priority(database, user),
        queue_limit: config.queue_limit(database),
        queue_target_us: micros(config.queue_target(database)),
        server_login_retry_us: micros(config.global.server_login_retry),
        round_robin: config.global.server_round_robin || config.global.server_shuffle,
        counts_writes: is_for_reads || judges && database.read_consistency == ReadConsistency::Database,
    }
}
