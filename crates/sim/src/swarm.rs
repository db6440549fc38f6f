//! What one seed's world is like: which faults it has, how often, how small its buffers are.
//!
//! Every seed takes a random part of the faults and rates spread by orders of magnitude, so that rare things meet rare
//! things (swarm testing, Groce et al. 2012). Nothing here acts.

mod limits;
mod short;

pub(crate) use limits::{Queueing, Quotas, Sharing};

use crate::fault::Fault;
use crate::prng::{MILLION, Prng};
use crate::secret::{PASSWORD, VERIFIER};
use settings::{AuthType, PoolMode, ReadAfterWrite, ReadConsistency, ReplicaLag, TargetSessionAttrs};
use std::time::Duration;

/// How much work a run has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Length {
    /// Thousands of transactions.
    #[default]
    Long,
    /// A few dozen, beside as many faults: for very many runs.
    Short,
}

/// What the network does to every connection.
#[derive(Clone, Debug)]
pub(crate) struct NetworkConditions {
    /// The least time between a write and its arrival.
    pub(crate) latency_us: u64,
    /// Up to so much more.
    pub(crate) jitter_us: u64,
    /// How often what was written together arrives apart.
    pub(crate) split_per_million: u32,
    /// The longest piece of what arrives apart.
    pub(crate) piece_most: u64,
    /// The least a pipe holds.
    pub(crate) capacity_least: u64,
    /// The most a pipe holds.
    pub(crate) capacity_most: u64,
}

impl NetworkConditions {
    fn draw(prng: &mut Prng) -> NetworkConditions {
        let small = prng.chance(400_000);
        let capacity_least = if small { prng.log_between(16, 512) } else { 4096 };
        NetworkConditions {
            latency_us: prng.log_between(5, 500),
            jitter_us: prng.log_between(1, 2_000),
            split_per_million: rate(prng, 600_000),
            piece_most: prng.log_between(1, 512),
            capacity_least,
            capacity_most: prng.log_between(capacity_least, 65_536),
        }
    }

    /// How long something takes now.
    pub(crate) fn delay_us(&self, prng: &mut Prng) -> u64 {
        self.latency_us + prng.below(self.jitter_us)
    }

    /// What a new pipe holds.
    pub(crate) fn capacity(&self, prng: &mut Prng) -> usize {
        usize::try_from(prng.log_between(self.capacity_least, self.capacity_most)).unwrap_or(4096)
    }

    /// How many of the bytes on their way arrive now; all of them unless they are split.
    pub(crate) fn piece(&self, coming: usize, prng: &mut Prng) -> usize {
        if coming > 1 && prng.chance(self.split_per_million) {
            let most = self.piece_most.min(coming as u64);
            return usize::try_from(prng.between(1, most)).unwrap_or(1);
        }
        coming
    }
}

/// What clients are like.
#[derive(Clone, Debug)]
pub(crate) struct ClientMix {
    /// How many there are at a time.
    pub(crate) slots: u32,
    /// Requests until a session ends of itself.
    pub(crate) requests: u64,
    /// The longest pause between two turns.
    pub(crate) think_us: u64,
    /// The least and the longest time from the end of a session until the next one begins in its place.
    pub(crate) away_us: (u64, u64),
    /// The most groups that are sent ahead of their answers.
    pub(crate) depth_most: u64,
    /// How often a session dies while it sends, per turn.
    pub(crate) die_per_million: u32,
    /// How often a session stops reading for a while, per turn.
    pub(crate) deaf_per_million: u32,
    /// How often a session that holds nothing goes idle for longer than any client may wait, per turn.
    pub(crate) long_idle_per_million: u32,
    /// How often a session writes slowly, in pieces, per session.
    pub(crate) slow_per_million: u32,
    /// How often a session sends any message in any state, per session.
    pub(crate) wild_per_million: u32,
    /// How often a session sends nonsense, per turn.
    pub(crate) garbage_per_million: u32,
    /// How often a session has its request cancelled, per turn.
    pub(crate) cancel_per_million: u32,
    /// How often a statement is one that fails.
    pub(crate) fail_per_million: u32,
    /// How often a turn begins a transaction.
    pub(crate) transaction_per_million: u32,
    /// How often a statement changes a tracked parameter.
    pub(crate) set_per_million: u32,
    /// How often a statement copies.
    pub(crate) copy_per_million: u32,
    /// The most rows of a result.
    pub(crate) rows_most: u64,
    /// How often a session replicates, which gives it a server of its own.
    pub(crate) replicate_per_million: u32,
    /// How often a session that replicates asks for a stream, per turn.
    pub(crate) stream_per_million: u32,
    /// How often a session's login must be refused: an unknown user or a wrong password.
    pub(crate) stranger_per_million: u32,
    /// How often a transaction is declared READ ONLY.
    pub(crate) read_only_per_million: u32,
    /// Whether sessions begin with SSLRequest.
    pub(crate) ask_for_tls: bool,
}

/// What servers are like.
#[derive(Clone, Debug)]
pub(crate) struct Servers {
    /// PostgreSQL 18 rather than 15.
    pub(crate) modern: bool,
    /// The longest that a statement takes.
    pub(crate) work_us: u64,
    /// How often a message has a notice or a changed parameter before it.
    pub(crate) chatter_per_million: u32,
    /// How often a prepared statement turns out to be spoilt by DDL, or gone, when it is bound after a while.
    pub(crate) ddl_per_million: u32,
    /// How many connections a server takes.
    pub(crate) max_connections: u32,
    /// How long a restarted server says that it is starting.
    pub(crate) starting_us: u64,
    /// The longest that it takes to look up a user.
    pub(crate) lookup_us: u64,
    /// What it finds then.
    pub(crate) secret: &'static str,
    /// A client finds what it has left in its session, and nothing of others.
    pub(crate) keeps_sessions: bool,
    /// How often the pooler's question for session state fails.
    pub(crate) question_fails_per_million: u32,
}

/// A primary and its standbys, and how reads are sent to these.
#[derive(Clone, Debug, Default)]
pub(crate) struct Hosts {
    /// How many hosts there are.
    pub(crate) count: u8,
    /// The longest that a record takes to a standby.
    pub(crate) lag_us: u64,
    /// Roles may see which timeline a standby receives.
    pub(crate) monitors: bool,
    /// `read_consistency`.
    pub(crate) consistency: ReadConsistency,
    /// `read_after_write`.
    pub(crate) after_write: ReadAfterWrite,
    /// `max_replica_lag`.
    pub(crate) most_lag: ReplicaLag,
    /// `target_session_attrs`.
    pub(crate) attrs: TargetSessionAttrs,
    /// How long after an answer each host is asked again what it is (`host_probe_interval`); 0: they are not asked.
    pub(crate) probe_us: u64,
    /// How many of the connections to a standby that crashes seem to live.
    pub(crate) half_open_per_million: u32,
}

impl Hosts {
    fn draw(prng: &mut Prng) -> Hosts {
        let (session, database) = (ReadConsistency::Session, ReadConsistency::Database);
        let (any, primary) = (TargetSessionAttrs::Any, TargetSessionAttrs::Primary);
        let most_lag = match prng.below(4) {
            0 => ReplicaLag::Time(Duration::from_millis(prng.log_between(10, 2_000))),
            1 => ReplicaLag::Bytes(prng.log_between(1_000, 1_000_000)),
            _ => ReplicaLag::Unlimited,
        };
        Hosts {
            count: prng.pick(&[2, 3, 3]),
            lag_us: prng.log_between(10, 500_000),
            monitors: prng.chance(500_000),
            consistency: prng.pick(&[
                session,
                session,
                session,
                database,
                database,
                ReadConsistency::Eventual,
            ]),
            after_write: if prng.chance(100_000) {
                ReadAfterWrite::Session
            } else {
                ReadAfterWrite::Transaction
            },
            most_lag,
            attrs: prng.pick(&[any, any, primary, TargetSessionAttrs::ReadWrite]),
            probe_us: 0,
            half_open_per_million: 0,
        }
        .with_silence(&mut prng.split(SILENCE))
    }

    /// Hosts fall silent, and are asked whether they have.
    fn with_silence(self, prng: &mut Prng) -> Hosts {
        Hosts {
            probe_us: if prng.chance(700_000) { prng.log_between(100_000, 1_000_000) } else { 0 },
            half_open_per_million: prng.pick(&[0, 300_000, 700_000, MILLION]),
            ..self
        }
    }
}

/// The pooler's settings.
#[derive(Clone, Debug)]
pub(crate) struct Pooling {
    /// Threads.
    pub(crate) shards: u16,
    /// Databases, each with a pool per user.
    pub(crate) databases: u32,
    /// Users.
    pub(crate) users: u32,
    /// Server connections per pool.
    pub(crate) pool_size: u32,
    /// They find their sizes themselves, up to that.
    pub(crate) auto_size: bool,
    /// Further ones for long waits.
    pub(crate) reserve_pool_size: u32,
    /// Server connections per database; 0 is no limit.
    pub(crate) max_db_connections: u32,
    /// When servers go back.
    pub(crate) pool_mode: PoolMode,
    /// Statements kept per server.
    pub(crate) max_prepared_statements: u32,
    /// `session_state = virtual`.
    pub(crate) virtual_sessions: bool,
    /// `deferred_begin`.
    pub(crate) deferred_begin: bool,
    /// `assign_server_at_login`, where a pool is in session pooling.
    pub(crate) assign_at_login: bool,
    /// How pools share the connections of their database.
    pub(crate) sharing: Sharing,
    /// In which order clients wait, and who of them is refused.
    pub(crate) queueing: Queueing,
    /// What the first user may use.
    pub(crate) quotas: Quotas,
    /// Whether waits, idleness and ages are limited so much that clients meet the limits.
    pub(crate) tight_timeouts: bool,
    /// server_lifetime in milliseconds.
    pub(crate) server_lifetime_ms: u64,
    /// Whether `server_check_query` is asked before every use.
    pub(crate) checks: bool,
    /// Whether the oldest idle server is taken first.
    pub(crate) round_robin: bool,
    /// Whether users other than the first are looked up at the server, as the first.
    pub(crate) looks_up: bool,
    /// How clients prove who they are.
    pub(crate) auth_type: AuthType,
    /// What is kept of the password.
    pub(crate) secret: &'static str,
    /// What a RELOAD may change.
    pub(crate) reloads: Reloads,
}

/// The settings that a RELOAD of this world may change, besides pool sizes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reloads {
    /// `pool_mode`, between transaction and session.
    pub(crate) pool_mode: bool,
    /// `max_prepared_statements`, from this up to the world's own.
    pub(crate) statements_least: u32,
    /// `server_reset_query` and `server_reset_query_always`.
    pub(crate) reset_query: bool,
    /// `server_check_query` and `server_check_delay`.
    pub(crate) check_query: bool,
    /// Timeouts, some of which bite.
    pub(crate) timeouts: bool,
    /// `auth_type` and secrets.
    pub(crate) auth: bool,
    /// The host of a database.
    pub(crate) hosts: bool,
    /// Entries of `[databases]` come and go.
    pub(crate) entries: bool,
}

impl Pooling {
    /// Clients outside a transaction hold no server, whatever RELOAD does.
    pub(crate) fn always_shares(&self) -> bool {
        self.pool_mode == PoolMode::Transaction && !self.reloads.pool_mode
    }

    /// A client in a pool finds what it has left in its session, whatever RELOAD does, although it has another server.
    pub(crate) fn keeps_sessions(&self) -> bool {
        self.virtual_sessions && self.always_shares()
    }

    /// Names that SQL gives to statements are those of the protocol, and stay with the client.
    pub(crate) fn sql_names(&self) -> bool {
        self.pool_mode == PoolMode::Session && self.max_prepared_statements == 0 && self.always_names()
    }

    /// Prepared statements keep their names when servers change, whatever RELOAD does.
    pub(crate) fn always_names(&self) -> bool {
        let kept = match self.pool_mode {
            PoolMode::Session => !self.reloads.reset_query,
            _ => self.max_prepared_statements > 0 && self.reloads.statements_least > 0,
        };
        kept && !self.reloads.pool_mode
    }
}

/// How the driver behaves within what its contract allows.
#[derive(Clone, Debug)]
pub(crate) struct Driving {
    /// The most that one read delivers.
    pub(crate) read_most: u64,
    /// Unsent bytes from which on the shard gets an event.
    pub(crate) clog_bytes: usize,
    /// How long the system takes to say that it took what was sent; 0: at once.
    pub(crate) completion_us: u64,
    /// How often one more buffer comes after Pause.
    pub(crate) late_read_per_million: u32,
    /// How late a tick may be.
    pub(crate) tick_late_us: u64,
    /// How long a letter to another shard takes.
    pub(crate) letter_us: u64,
    /// How busy the shards say that they are, in hundredths.
    pub(crate) busy_percent: u32,
}

/// A seed's world.
#[derive(Clone, Debug)]
pub(crate) struct Swarm {
    /// The network.
    pub(crate) network_conditions: NetworkConditions,
    /// The clients.
    pub(crate) client_mix: ClientMix,
    /// The servers.
    pub(crate) servers: Servers,
    /// The servers' hosts, where they are a cluster.
    pub(crate) hosts: Option<Hosts>,
    /// The pooler's settings.
    pub(crate) pooling: Pooling,
    /// The driver.
    pub(crate) driving: Driving,
    /// The faults and their mean distance in microseconds.
    pub(crate) faults: Vec<(Fault, u64)>,
    /// How long the faults last.
    pub(crate) chaos_us: u64,
}

impl Swarm {
    /// The world of a seed.
    pub(crate) fn draw(prng: &mut Prng) -> Swarm {
        let calm = prng.chance(250_000);
        let (network_conditions, mut client_mix, mut servers, pooling) =
            (NetworkConditions::draw(prng), client_mix(prng), servers(prng), pooling(prng));
        servers.secret = pooling.secret;
        if pooling.keeps_sessions() {
            follow_sessions(&mut client_mix, &mut servers, &mut prng.split(SESSION_QUESTIONS));
        }
        // Nobody mends what passes through.
        if pooling.max_prepared_statements == 0 {
            servers.ddl_per_million = 0;
        }
        let mut own = prng.split(CLUSTER);
        let mut swarm = Swarm {
            network_conditions,
            client_mix,
            servers,
            hosts: None,
            pooling,
            driving: driving(prng),
            faults: if calm { Vec::new() } else { faults(prng) },
            chaos_us: prng.between(200_000, 2_000_000),
        };
        if own.chance(MILLION / 6) {
            swarm.draw_hosts(calm, &mut own);
        }
        swarm
    }

    /// Its servers are a primary and standbys.
    fn draw_hosts(&mut self, calm: bool, prng: &mut Prng) {
        self.hosts = Some(Hosts::draw(prng));
        self.pooling.virtual_sessions = false;
        self.servers.keeps_sessions = false;
        self.servers.question_fails_per_million = 0;
        self.servers.max_connections = 1_000;
        self.pooling.pool_mode = PoolMode::Transaction;
        // A pool of which the database has room for no server beside the primary's reads from that.
        self.pooling.max_db_connections = 0;
        self.pooling.reloads.hosts = false;
        // In session pooling nothing is split, and `any` means all hosts.
        self.pooling.reloads.pool_mode &=
            self.hosts.as_ref().is_some_and(|hosts| hosts.attrs != TargetSessionAttrs::Any);
        self.client_mix.replicate_per_million = 0;
        self.client_mix.read_only_per_million = rate(prng, 600_000);
        // There has to be time for servers to be found, asked, and replaced.
        self.chaos_us += prng.log_between(500_000, 4_000_000);
        self.client_mix.requests = self.client_mix.requests.max(20);
        self.faults.retain(|(fault, _)| *fault != Fault::HostMoved);
        for fault in Fault::OF_CLUSTERS.into_iter().filter(|_| !calm) {
            if prng.chance(fault.share_per_million()) {
                self.faults.push((fault, prng.log_between(50_000, 2_000_000)));
            }
        }
    }

    /// Whether a client that does nothing wrong must not see anything go wrong.
    pub(crate) fn is_fair(&self) -> bool {
        let reloads = self.faults.iter().any(|(fault, _)| *fault == Fault::Reload);
        let timeouts_bite = self.pooling.tight_timeouts || reloads && self.pooling.reloads.timeouts;
        !timeouts_bite
            && self.servers.max_connections >= 1_000
            && !self.faults.iter().any(|(fault, _)| fault.hurts())
    }
}

/// Never in half of the worlds, else somewhere between one in a million and `most`.
fn rate(prng: &mut Prng, most: u64) -> u32 {
    if prng.chance(MILLION / 2) { 0 } else { scaled(prng, 1_000, most) }
}

fn scaled(prng: &mut Prng, least: u64, most: u64) -> u32 {
    u32::try_from(prng.log_between(least, most)).unwrap_or(MILLION)
}

fn client_mix(prng: &mut Prng) -> ClientMix {
    ClientMix {
        slots: u32::try_from(prng.between(2, 10)).unwrap_or(2),
        requests: prng.log_between(4, 60),
        think_us: prng.log_between(1, 20_000),
        away_us: (10, 50_000),
        depth_most: prng.between(1, 5),
        die_per_million: rate(prng, 60_000),
        deaf_per_million: rate(prng, 30_000),
        long_idle_per_million: rate(prng, 20_000),
        replicate_per_million: rate(prng, 600_000),
        slow_per_million: rate(prng, 500_000),
        wild_per_million: rate(prng, 800_000),
        garbage_per_million: rate(prng, 10_000),
        cancel_per_million: rate(prng, 200_000),
        fail_per_million: rate(prng, 150_000),
        transaction_per_million: rate(prng, 500_000),
        set_per_million: rate(prng, 100_000),
        copy_per_million: rate(prng, 150_000),
        rows_most: prng.log_between(1, 400),
        stream_per_million: if prng.chance(300_000) { 0 } else { scaled(prng, 50_000, 700_000) },
        stranger_per_million: rate(prng, 400_000),
        read_only_per_million: 0,
        ask_for_tls: prng.chance(300_000),
    }
}

fn servers(prng: &mut Prng) -> Servers {
    let full = prng.chance(100_000);
    Servers {
        modern: prng.chance(500_000),
        work_us: prng.log_between(1, 10_000),
        chatter_per_million: rate(prng, 100_000),
        ddl_per_million: rate(prng, 400_000),
        max_connections: if full { u32::try_from(prng.between(1, 4)).unwrap_or(1) } else { 1_000 },
        starting_us: prng.log_between(1_000, 500_000),
        lookup_us: prng.log_between(1, 300_000),
        secret: VERIFIER,
        keeps_sessions: false,
        question_fails_per_million: 0,
    }
}

/// Clients have sessions that are worth keeping, and now and then a question for them fails.
fn follow_sessions(client_mix: &mut ClientMix, servers: &mut Servers, prng: &mut Prng) {
    client_mix.wild_per_million = client_mix.wild_per_million.max(500_000);
    servers.keeps_sessions = true;
    servers.question_fails_per_million = if prng.chance(700_000) { 0 } else { scaled(prng, 1_000, 500_000) };
}

/// Streams of their own, so that other draws are as without them.
const DEFERRED_BEGIN: u64 = 8_001;
const VIRTUAL_SESSIONS: u64 = 8_002;
const SESSION_QUESTIONS: u64 = 8_003;
const ASSIGN_AT_LOGIN: u64 = 8_004;
const CLUSTER: u64 = 8_005;
const QUEUEING: u64 = 8_006;
const AUTO_SIZE: u64 = 8_009;
const SHARING: u64 = 8_007;
const CLASSES: u64 = 8_008;
const QUOTAS: u64 = 8_010;
const SILENCE: u64 = 8_011;

fn pooling(prng: &mut Prng) -> Pooling {
    let small = |prng: &mut Prng, least, most| u32::try_from(prng.between(least, most)).unwrap_or(1);
    let (prepared, session, looks_up) = (prng.chance(750_000), prng.chance(150_000), prng.chance(300_000));
    let virtual_sessions = prng.split(VIRTUAL_SESSIONS).chance(400_000);
    Pooling {
        shards: u16::try_from(prng.between(1, 3)).unwrap_or(1),
        databases: small(prng, 1, 2),
        users: if looks_up { small(prng, 2, 3) } else { small(prng, 1, 2) },
        pool_size: small(prng, 1, 4),
        auto_size: prng.split(AUTO_SIZE).chance(250_000),
        reserve_pool_size: if prng.chance(200_000) { small(prng, 1, 2) } else { 0 },
        max_db_connections: if prng.chance(200_000) { small(prng, 1, 4) } else { 0 },
        pool_mode: if session { PoolMode::Session } else { PoolMode::Transaction },
        max_prepared_statements: if prepared { small(prng, 1, 3) } else { 0 },
        virtual_sessions,
        deferred_begin: prng.split(DEFERRED_BEGIN).chance(300_000),
        assign_at_login: prng.split(ASSIGN_AT_LOGIN).chance(500_000),
        sharing: limits::sharing(&mut prng.split(SHARING)),
        queueing: limits::queueing(&mut prng.split(QUEUEING)),
        quotas: limits::quotas(&mut prng.split(QUOTAS)),
        tight_timeouts: prng.chance(200_000),
        server_lifetime_ms: if prng.chance(150_000) { prng.log_between(1, 1_000) } else { 3_600_000 },
        checks: prng.chance(200_000),
        round_robin: prng.chance(500_000),
        looks_up,
        auth_type: auth_type(prng),
        secret: if prng.chance(200_000) { PASSWORD } else { VERIFIER },
        reloads: reloads(prng, prepared),
    }
}

fn reloads(prng: &mut Prng, prepared: bool) -> Reloads {
    let least = if prng.chance(150_000) { 0 } else { 1 };
    Reloads {
        pool_mode: prng.chance(300_000),
        statements_least: if prepared { least } else { 0 },
        reset_query: prng.chance(300_000),
        check_query: prng.chance(300_000),
        timeouts: prng.chance(200_000),
        auth: prng.chance(300_000),
        hosts: prng.chance(300_000),
        entries: prng.chance(200_000),
    }
}

fn auth_type(prng: &mut Prng) -> AuthType {
    match prng.below(100) {
        0..60 => AuthType::Trust,
        60..85 => AuthType::ScramSha256,
        85..93 => AuthType::Md5,
        _ => AuthType::Plain,
    }
}

fn driving(prng: &mut Prng) -> Driving {
    let small = prng.chance(300_000);
    Driving {
        read_most: if small { prng.log_between(1, 64) } else { prng.log_between(64, 65_536) },
        clog_bytes: usize::try_from(prng.log_between(1, 65_536)).unwrap_or(1),
        completion_us: if prng.chance(500_000) { 0 } else { prng.log_between(1, 300) },
        late_read_per_million: rate(prng, 800_000),
        tick_late_us: prng.log_between(1, 10_000),
        letter_us: prng.log_between(1, 2_000),
        busy_percent: prng.pick(&[0, 50, 95]),
    }
}

fn faults(prng: &mut Prng) -> Vec<(Fault, u64)> {
    let mut faults = Vec::new();
    for fault in Fault::ALL {
        if prng.chance(fault.share_per_million()) {
            faults.push((fault, prng.log_between(5_000, 1_000_000)));
        }
    }
    faults
}
