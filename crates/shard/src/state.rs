//! The state of one shard, and the small lookups that everything else uses.
//!
//! Owns the tables; never decides anything.

use std::collections::BTreeMap;
use std::sync::Arc;

use auth::{DerivedCache, Entropy, MockKey, ScramKeys, ServerKeyCache};
use messages::{Report, RequestId, ShardId, ShardMessage, ShutdownMode};
use pool::{Pool, PoolRegistry, ProcessCounts};
use session::{Catalog, ErrorSeen, StatementRegistry, Tracked};
use settings::{Config, Database};
use slab::Slab;
use telemetry::{Counters, Histograms, Level, Record};
use tls::TlsConfig;

use crate::auth_query::internal_client::InternalClient;
use crate::auth_query::lookup::AuthQueryCache;
use crate::cancel::cancel_conn::CancelConn;
use crate::cancel::key::KeyMaker;
use crate::cancel::peers::{PeerCancelConn, PeerPool};
use crate::client::Client;
use crate::error_counts::ErrorCounts;
use crate::local_pools::idle::Retired;
use crate::login::failure::Failures;
use crate::login::greeting::ServerGreeting;
use crate::login::unauthenticated::Unauthenticated;
use crate::outbox::Outbox;
use crate::queries::QueryTracking;
use crate::server::Server;
use crate::takeover::export::ExportState;
use crate::tls_layer::TlsRequest;
use crate::{Action, ConnId, Now, Target};

/// Derived keys that are remembered at most.
const KEYS_KEPT: usize = 1024;

/// A connection of any kind.
pub(crate) enum Conn {
    /// An id that was allocated and whose first event has not come.
    Reserved,
    Client(Box<Client>),
    Server(Box<Server>),
    Cancel(Box<CancelConn>),
    /// It carries a cancel request to a peer.
    PeerCancel(Box<PeerCancelConn>),
    /// Waits in a pool's queue with a query of Weir's own, without a socket.
    InternalClient(Box<InternalClient>),
}

/// One pool on this shard: its decisions ([`Pool`]), and everything else that is kept of it.
pub(crate) struct LocalPool {
    pub(crate) pool: Pool,
    /// The number that separates its prepared statements from those of other pools.
    pub(crate) catalog: u64,
    pub(crate) database_name: Arc<str>,
    pub(crate) user: Arc<str>,
    pub(crate) database: Arc<Database>,
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
    pub(crate) counters: Counters,
    /// Latencies, once there are any.
    pub(crate) histograms: Option<Box<Histograms>>,
    /// Clients of this pool that have logged in.
    pub(crate) clients: u32,
    /// Which configured host comes next.
    pub(crate) next_host: usize,
    pub(crate) last_used_us: u64,
    /// When a permit was last requested from other shards.
    pub(crate) permit_requested_us: u64,
    /// Cancel requests being forwarded, and those that wait.
    pub(crate) cancels_active: u32,
    pub(crate) cancels_waiting: std::collections::VecDeque<ConnId>,
    /// PAUSE (or KILL) is in force for this database.
    pub(crate) paused_by_command: bool,
}

impl LocalPool {
    /// Its user is the one that the entry forces for every client.
    pub(crate) fn is_forced(&self) -> bool {
        self.database.user.as_deref() == Some(&*self.user)
    }

    /// Where its statements' names are looked up.
    pub(crate) fn catalog(&self) -> Catalog {
        Catalog { id: self.catalog, own_types: self.database.host.len() <= 1 }
    }
}

/// A command that is answered when it is complete.
pub(crate) struct Pending {
    pub(crate) request: RequestId,
    pub(crate) what: PendingKind,
}

pub(crate) enum PendingKind {
    /// No server of this database (all) is in use or open, here or still with a process before.
    Paused(Option<String>),
    /// No server of this database (all) is open here.
    Killed(Option<String>),
    /// No output is left to be sent.
    Suspended,
    /// No server of this database (all) is obsolete.
    ObsoleteClosed(Option<String>),
    /// Shutdown of this mode.
    Shutdown(ShutdownMode),
}

/// All of it.
pub(crate) struct ShardState {
    pub(crate) id: ShardId,
    pub(crate) config: Arc<Config>,
    pub(crate) pool_registry: Arc<dyn PoolRegistry>,
    pub(crate) process: Arc<ProcessCounts>,
    pub(crate) entropy: Box<dyn Entropy>,
    pub(crate) mock: MockKey,
    pub(crate) cancel_keys: KeyMaker,
    pub(crate) unix_user_id: Option<u32>,
    pub(crate) conns: Slab<Conn>,
    pub(crate) local_pools: Slab<LocalPool>,
    /// Counts them as they are made.
    pub(crate) catalogs: u64,
    pub(crate) part_of: BTreeMap<(Arc<str>, Arc<str>), usize>,
    pub(crate) paused_databases: std::collections::BTreeSet<String>,
    /// DISABLE.
    pub(crate) disabled_databases: std::collections::BTreeSet<String>,
    /// SUSPEND: since when.
    pub(crate) suspended_since_us: Option<u64>,
    pub(crate) registry: StatementRegistry,
    pub(crate) tracked: Tracked,
    pub(crate) derived: DerivedCache,
    pub(crate) server_keys: ServerKeyCache,
    pub(crate) outbox: Outbox,
    /// What TLS is like, on both sides.
    pub(crate) tls: TlsConfig,
    /// Requests to the TLS layer, handled before the event ends.
    pub(crate) tls_requests: Vec<TlsRequest>,
    pub(crate) now: Now,
    /// Servers that are idle and unlinked, to be handled before the event ends.
    pub(crate) released: Vec<ConnId>,
    /// Pools with waiters whose server was closed when it was checked for them, likewise.
    pub(crate) unserved: Vec<usize>,
    pub(crate) pending: Vec<Pending>,
    pub(crate) shutdown: Option<ShutdownMode>,
    pub(crate) all_paused: bool,
    /// Another process takes over from this one.
    pub(crate) exporting: Option<ExportState>,
    pub(crate) busy_percent: u32,
    pub(crate) busy_seconds: u32,
    pub(crate) next_tick_us: Option<u64>,
    pub(crate) nobody: Arc<str>,
    /// When each peer last sent something that is no startup packet, in seconds.
    pub(crate) garbage_seen: BTreeMap<Option<std::net::IpAddr>, u64>,
    /// What logins in progress have sent beyond what each may.
    pub(crate) login_bytes: u32,
    /// Connections that have not logged in.
    pub(crate) unauthenticated: Unauthenticated,
    /// Logins that have failed lately.
    pub(crate) failures: Failures,
    /// How many files the process may have open.
    pub(crate) files_max: u64,
    /// Cancel requests for other processes of the group.
    pub(crate) peer_pools: BTreeMap<u32, PeerPool>,
    /// Internal clients of this shard, by the shard and the `id` of the client that waits for them.
    pub(crate) internal_clients: BTreeMap<(ShardId, u64), ConnId>,
    pub(crate) auth_query_cache: AuthQueryCache,
    /// What was counted in pools that are forgotten, by database.
    pub(crate) retired: BTreeMap<Arc<str>, Retired>,
    /// The console counts like a pool.
    pub(crate) console: Counters,
    /// Errors that clients got.
    pub(crate) errors: ErrorCounts,
    /// Statistics of queries, while they are kept.
    pub(crate) tracking: Option<Box<QueryTracking>>,
    /// Errors of the reply that is being passed on; empty between events.
    pub(crate) errors_seen: Vec<ErrorSeen>,
}

impl ShardState {
    pub(crate) fn new(
        id: ShardId,
        config: Arc<Config>,
        pool_registry: Arc<dyn PoolRegistry>,
        entropy: Box<dyn Entropy>,
        mock: Arc<MockKey>,
    ) -> ShardState {
        let tracked = Tracked::new(config.global.track_extra_parameters.iter().map(String::as_str));
        ShardState {
            id,
            process: pool_registry.process(),
            pool_registry,
            entropy,
            cancel_keys: KeyMaker::new(&mock),
            mock: mock_of(&mock, &config),
            unix_user_id: None,
            conns: Slab::new(),
            local_pools: Slab::new(),
            catalogs: 0,
            part_of: BTreeMap::new(),
            paused_databases: std::collections::BTreeSet::new(),
            disabled_databases: std::collections::BTreeSet::new(),
            suspended_since_us: None,
            registry: StatementRegistry::new(&tracked),
            tracked,
            derived: DerivedCache::new(KEYS_KEPT),
            server_keys: ServerKeyCache::new(KEYS_KEPT),
            outbox: Outbox::default(),
            // At the start of a process the caller has checked these settings and reported any error.
            tls: TlsConfig::new(&config).unwrap_or_else(|_| TlsConfig::none()),
            tls_requests: Vec::new(),
            now: Now::default(),
            released: Vec::new(),
            unserved: Vec::new(),
            pending: Vec::new(),
            shutdown: None,
            all_paused: false,
            exporting: None,
            busy_percent: 0,
            busy_seconds: 0,
            next_tick_us: None,
            nobody: Arc::from("(nouser)"),
            garbage_seen: BTreeMap::new(),
            login_bytes: 0,
            unauthenticated: Unauthenticated::default(),
            failures: Failures::default(),
            files_max: u64::MAX,
            peer_pools: BTreeMap::new(),
            internal_clients: BTreeMap::new(),
            auth_query_cache: AuthQueryCache::default(),
            retired: BTreeMap::new(),
            console: Counters::default(),
            errors: ErrorCounts::default(),
            errors_seen: Vec::new(),
            tracking: config.global.track_queries.then(Box::default),
            config,
        }
    }

    pub(crate) fn client(&mut self, conn: ConnId) -> Option<&mut Client> {
        match self.conns.get_mut(conn.0 as usize) {
            Some(Conn::Client(client)) => Some(client),
            _ => None,
        }
    }

    pub(crate) fn server(&mut self, conn: ConnId) -> Option<&mut Server> {
        match self.conns.get_mut(conn.0 as usize) {
            Some(Conn::Server(server)) => Some(server),
            _ => None,
        }
    }

    /// A client and a server at once.
    #[inline]
    pub(crate) fn link(&mut self, client: ConnId, server: ConnId) -> Option<(&mut Client, &mut Server)> {
        linked(&mut self.conns, client, server)
    }

    pub(crate) fn reserve(&mut self) -> ConnId {
        ConnId(u32::try_from(self.conns.insert(Conn::Reserved)).unwrap_or(u32::MAX))
    }

    pub(crate) fn act(&mut self, action: Action) {
        self.outbox.push(action);
    }

    /// Opens a connection.
    pub(crate) fn connect(&mut self, conn: ConnId, target: Target) {
        self.act(Action::Connect { conn, target: Box::new(target) });
    }

    /// Sends another shard a message.
    pub(crate) fn send_to_shard(&mut self, to: ShardId, message: ShardMessage) {
        self.act(Action::SendToShard { to, message: Box::new(message) });
    }

    /// Sends the control thread a message.
    pub(crate) fn report(&mut self, report: Report) {
        self.act(Action::Report(Box::new(report)));
    }

    pub(crate) fn log(&mut self, level: Level, text: impl Into<String>) {
        self.outbox.push(Action::Log(Record::new(level, text)));
    }

    /// All server connections of a local pool.
    pub(crate) fn servers_of(&self, local_pool: usize) -> Vec<ConnId> {
        self.conn_ids(|conn| matches!(conn, Conn::Server(server) if server.pool == local_pool))
    }

    /// The ids of the connections that match.
    pub(crate) fn conn_ids(&self, matches: impl Fn(&Conn) -> bool) -> Vec<ConnId> {
        self.conns
            .iter()
            .filter(|(_, conn)| matches(conn))
            .map(|(index, _)| ConnId(u32::try_from(index).unwrap_or(u32::MAX)))
            .collect()
    }
}

/// Unknown users look like most of the known ones.
pub(crate) fn mock_of(mock: &MockKey, config: &Config) -> MockKey {
    mock.clone().imitating_most(config.secrets.values().map(String::as_str))
}

/// A client and a server at once, while the rest of the state is borrowed elsewhere.
#[inline]
pub(crate) fn linked(
    conns: &mut Slab<Conn>,
    client: ConnId,
    server: ConnId,
) -> Option<(&mut Client, &mut Server)> {
    match conns.get2_mut(client.0 as usize, server.0 as usize) {
        Some((Conn::Client(client), Conn::Server(server))) => Some((client, server)),
        _ => None,
    }
}
