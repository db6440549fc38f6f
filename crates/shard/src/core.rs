//! What all parts of a shard use: the connections and the pools, the actions for the driver, the configuration, the time.
//!
//! Owns no decision, and knows no owner of [`crate::state::ShardState`]: what such an owner has to do is left in `effects`.

use std::sync::Arc;

use auth::Entropy;
use messages::{Report, ShardId, ShardMessage};
use pool::{PoolRegistry, ProcessCounts};
use session::{StatementRegistry, Tracked};
use settings::Config;
use telemetry::{Level, Record};
use tls::TlsConfig;

use crate::administration::Administration;
use crate::client::{Client, Phase};
use crate::connections::{Conn, Connections};
use crate::effects::{Effect, Effects, TlsRequest};
use crate::error_counts::ErrorCounts;
use crate::local_pools::table::{LocalPools, PoolId};
use crate::outbox::Outbox;
use crate::queries::{self, QueryTracking};
use crate::query_cache::QueryCaches;
use crate::server::Server;
use crate::takeover::ExportState;
use crate::{Action, ConnId, Now, Target};

/// The console's database and its user over the unix socket.
pub(crate) const CONSOLE: &str = "pgbouncer";

/// What is counted beside the pools' own counters.
pub(crate) struct Statistics {
    /// Errors that clients got.
    pub(crate) errors: ErrorCounts,
    /// Statistics of queries, while they are kept.
    pub(crate) tracking: Option<Box<QueryTracking>>,
    /// Connections lost on which clients listened.
    pub(crate) listener_losses: u64,
}

/// TLS on both sides.
pub(crate) struct Tls {
    /// As configured.
    pub(crate) settings: TlsConfig,
    /// Requests to the TLS layer, handled before the event ends.
    pub(crate) requests: Vec<TlsRequest>,
}

/// The tables of a shard, and what every step needs.
pub(crate) struct Core {
    pub(crate) id: ShardId,
    pub(crate) config: Arc<Config>,
    pub(crate) now: Now,
    pub(crate) conns: Connections,
    pub(crate) local_pools: LocalPools,
    /// Some subject has a quota.
    pub(crate) has_quotas: bool,
    /// Storage is limited, or a client still has a setting because of that.
    pub(crate) has_storage_quotas: bool,
    /// Answers that are used again.
    pub(crate) query_caches: QueryCaches,
    pub(crate) outbox: Outbox,
    /// Statements that clients have prepared.
    pub(crate) registry: StatementRegistry,
    /// The parameters that follow clients from server to server.
    pub(crate) tracked: Tracked,
    /// The counts behind limits over all shards.
    pub(crate) pool_registry: Arc<dyn PoolRegistry>,
    pub(crate) process: Arc<ProcessCounts>,
    pub(crate) entropy: Box<dyn Entropy>,
    /// Orders of operators that are in force.
    pub(crate) administration: Administration,
    pub(crate) statistics: Statistics,
    pub(crate) tls: Tls,
    /// Another process takes over from this one.
    pub(crate) exporting: Option<ExportState>,
    /// What is to be done before the event ends.
    pub(crate) effects: Effects,
}

impl Core {
    pub(crate) fn new(
        id: ShardId,
        config: Arc<Config>,
        pool_registry: Arc<dyn PoolRegistry>,
        entropy: Box<dyn Entropy>,
    ) -> Core {
        let tracked = Tracked::new(config.global.track_extra_parameters.iter().map(String::as_str));
        pool_registry.with_quotas(&mut |book| book.set_rules(&config.quotas));
        Core {
            id,
            has_quotas: !config.quotas.is_empty(),
            has_storage_quotas: config.quotas.limits_storage(None),
            administration: Administration::default(),
            statistics: Statistics {
                errors: ErrorCounts::default(),
                tracking: queries::tracks(&config).then(Box::default),
                listener_losses: 0,
            },
            // At the start of a process the caller has checked these settings and reported any error.
            tls: Tls {
                settings: TlsConfig::new(&config).unwrap_or_else(|_| TlsConfig::none()),
                requests: Vec::new(),
            },
            exporting: None,
            effects: Effects::default(),
            config,
            now: Now::default(),
            conns: Connections::default(),
            local_pools: LocalPools::default(),
            query_caches: QueryCaches::default(),
            outbox: Outbox::default(),
            registry: StatementRegistry::new(&tracked),
            tracked,
            process: pool_registry.process(),
            pool_registry,
            entropy,
        }
    }

    #[inline]
    #[track_caller]
    pub(crate) fn client(&mut self, conn: ConnId) -> Option<&mut Client> {
        self.conns.client_mut(conn)
    }

    #[inline]
    #[track_caller]
    pub(crate) fn server(&mut self, conn: ConnId) -> Option<&mut Server> {
        self.conns.server_mut(conn)
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

    /// A request of this client can be sent with it to the process that takes over, if one does and the client can be sent.
    pub(crate) fn try_export(&mut self, conn: ConnId) -> bool {
        if self.client(conn).is_some_and(|client| client.tls.is_some()) {
            return false;
        }
        let Some(exporting) = &mut self.exporting else { return false };
        exporting.rested.push(conn);
        true
    }

    /// A server was opened, or has gone: its permit counts in the process that takes over, if one does.
    pub(crate) fn report_server(&mut self, pool: PoolId, opened: bool) {
        if self.exporting.is_some() {
            self.effects.push(Effect::ServerCounted { pool, opened });
        }
    }

    /// Counts an error that Weir sends to a client.
    pub(crate) fn count_error(&mut self, conn: ConnId, code: &str) {
        let Some(client) = self.conns.client(conn) else { return };
        let database = self.database_of(client);
        self.statistics.errors.count(&database, code.as_bytes());
    }

    /// The name of the client's database, if it is configured or in use; a client that has not authenticated must not
    /// fill the memory with names.
    fn database_of(&self, client: &Client) -> Arc<str> {
        match &client.phase {
            Phase::Console(_) => CONSOLE.into(),
            Phase::Login(login) => {
                let name = login.startup_request.database.as_str();
                let known = name == CONSOLE || self.config.databases.contains_key(name);
                if known { name.into() } else { Arc::default() }
            }
            _ => self
                .local_pools
                .of(client.pool)
                .map(|local_pool| Arc::clone(&local_pool.database_name))
                .unwrap_or_default(),
        }
    }

    /// All server connections of a local pool.
    pub(crate) fn servers_of(&self, pool: PoolId) -> Vec<ConnId> {
        self.conns.ids(|conn| matches!(conn, Conn::Server(server) if server.pool == pool))
    }
}
