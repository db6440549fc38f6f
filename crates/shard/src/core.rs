//! What all parts of a shard use: the connections and the pools, the actions for the driver, the configuration, the time.
//!
//! Owns no decision, and knows no owner of [`crate::state::ShardState`]: what needs nothing but these tables is a method here.

use std::sync::Arc;

use auth::Entropy;
use messages::{Report, ShardId, ShardMessage};
use pool::{PoolRegistry, ProcessCounts};
use session::{StatementRegistry, Tracked};
use settings::Config;
use telemetry::{Level, Record};

use crate::client::Client;
use crate::connections::{Conn, Connections};
use crate::local_pools::table::{LocalPools, PoolId};
use crate::outbox::Outbox;
use crate::server::Server;
use crate::{Action, ConnId, Now, Target};

/// The tables of a shard, and what every step needs.
pub(crate) struct Core {
    pub(crate) id: ShardId,
    pub(crate) config: Arc<Config>,
    pub(crate) now: Now,
    pub(crate) conns: Connections,
    pub(crate) local_pools: LocalPools,
    pub(crate) outbox: Outbox,
    /// Statements that clients have prepared.
    pub(crate) registry: StatementRegistry,
    /// The parameters that follow clients from server to server.
    pub(crate) tracked: Tracked,
    /// The counts behind limits over all shards.
    pub(crate) pool_registry: Arc<dyn PoolRegistry>,
    pub(crate) process: Arc<ProcessCounts>,
    pub(crate) entropy: Box<dyn Entropy>,
}

impl Core {
    pub(crate) fn new(
        id: ShardId,
        config: Arc<Config>,
        pool_registry: Arc<dyn PoolRegistry>,
        entropy: Box<dyn Entropy>,
    ) -> Core {
        let tracked = Tracked::new(config.global.track_extra_parameters.iter().map(String::as_str));
        Core {
            id,
            config,
            now: Now::default(),
            conns: Connections::default(),
            local_pools: LocalPools::default(),
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

    /// All server connections of a local pool.
    pub(crate) fn servers_of(&self, pool: PoolId) -> Vec<ConnId> {
        self.conns.ids(|conn| matches!(conn, Conn::Server(server) if server.pool == pool))
    }
}
