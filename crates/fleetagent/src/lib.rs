//! The thread that takes part in a fleet: it joins the node, leases slots of shared limits from the store, and gives them back.
//!
//! Owns when the counters of the process are looked at and what they are set to; what is taken, kept and given back is [`fleet::Node`]'s to decide, and
//! [`fleetstore::Store`] carries it out. No query waits for this thread; opening a connection does where slots have to be leased for it.
#![forbid(unsafe_code)]

mod agent;
mod audit;
mod closing;
mod counters;
mod handover;
mod options;
mod pools;
mod rows;
mod shared_limits;

use std::fmt;
use std::io;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use fleet::{Handover, NodeConfig, SessionId};
use fleetstore::BackendQuery;
use messages::{
    BackendRow, Command, Drain, FleetBudgetRow, FleetLimitRow, FleetNodeRow, FleetPools, FleetPoolsError,
    FleetPoolsInUse, FleetPoolsWait, RequestId, ShardId,
};
use pool::FleetCounts;
use settings::{Config, FleetPeers};
use telemetry::{Level, Record};
use tokio::sync::{Notify, mpsc};

pub use crate::handover::from_note;
pub use crate::options::pod_address;

use crate::agent::Agent;
use crate::options::StoreOptions;
use crate::rows::Rows;

/// How long the end of the process waits for the node to leave.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// How long it waits for the shards to say which connections they have.
const LAST_LIST: Duration = Duration::from_millis(300);

/// The thread's name.
const THREAD: &str = "weir-fleet";

/// Writes to the log.
pub type Log = Arc<dyn Fn(Record) + Send + Sync>;

/// What the thread has for the control thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FleetNews {
    /// The numbers of nodes, and where they are reached, have changed.
    Peers(FleetPeers),
    /// The pools of all nodes, when they have been read and when they have changed.
    Pools(FleetPools),
    /// The answer to [`FleetAgent::change_pools`].
    PoolsChanged(Result<(), FleetPoolsError>),
    /// The answer to [`FleetAgent::await_pools`].
    PoolsUsed {
        /// From the request.
        request: RequestId,
        /// Which nodes use none of them, and why.
        result: Result<(), String>,
    },
    /// Another node has ordered this one to drain, or to end that.
    Drain(Drain),
    /// The answer to [`FleetAgent::order_drain`].
    DrainOrdered {
        /// From the request.
        request: RequestId,
        /// Why the order was not given.
        result: Result<(), String>,
    },
}

/// What the thread has of the rest of the process.
pub struct Outside {
    /// The counters of shared limits.
    pub counts: Arc<dyn FleetCounts>,
    /// Sends a command to every shard.
    pub command: Arc<dyn Fn(&Command) + Send + Sync>,
    /// Takes news to the control thread.
    pub tell: Arc<dyn Fn(FleetNews) + Send + Sync>,
    /// How many shards there are.
    pub shards: u16,
    /// The log.
    pub log: Log,
    /// Microseconds of the clock that shards have, too.
    pub monotonic_us: fn() -> u64,
    /// Seconds since 1970.
    pub wall_s: fn() -> u64,
    /// Entropy.
    pub system: pgclient::System,
}

/// What a node is called.
#[derive(Clone, Debug)]
pub struct Identity {
    /// Its id.
    pub node: String,
    /// Where its peers reach it.
    pub address: String,
    /// The program's version.
    pub version: &'static str,
}

pub(crate) enum Order {
    Configure(Arc<Config>),
    Backends {
        audit: u64,
        shard: ShardId,
        backends: Vec<BackendRow>,
    },
    /// Another node is to drain, or this one.
    Drain {
        request: RequestId,
        node: String,
        order: Drain,
    },
    /// This node drains, or does not any more.
    Draining(bool),
    ChangePools {
        base: u64,
        pools: FleetPools,
    },
    PoolsInUse(FleetPoolsInUse),
    AwaitPools {
        request: RequestId,
        revision: u64,
        wait: FleetPoolsWait,
    },
    ForgetPools(RequestId),
    /// Another process takes over: it goes on as this node.
    HandOver(SyncSender<Handover>),
    /// It does not.
    TakeBack,
    /// The process ends: no more connections are opened.
    Close(SyncSender<()>),
    /// The node leaves; its connections are closed.
    Stop(SyncSender<()>),
}

/// The way to the thread, before it runs and after.
#[derive(Clone)]
pub struct Contact {
    orders: mpsc::UnboundedSender<Order>,
    wanted: Arc<Notify>,
}

/// The thread's end of a [`Contact`].
pub struct Inbox {
    orders: mpsc::UnboundedReceiver<Order>,
    wanted: Arc<Notify>,
}

/// The two ends.
#[must_use]
pub fn contact() -> (Contact, Inbox) {
    let (sender, orders) = mpsc::unbounded_channel();
    let wanted = Arc::new(Notify::new());
    (Contact { orders: sender, wanted: Arc::clone(&wanted) }, Inbox { orders, wanted })
}

impl Contact {
    /// To be called where slots are wanted.
    #[must_use]
    pub fn want_slots(&self) -> Arc<dyn Fn() + Send + Sync> {
        let wanted = Arc::clone(&self.wanted);
        Arc::new(move || wanted.notify_one())
    }

    /// The answer of one shard to [`Command::ListBackends`].
    pub fn backends(&self, audit: u64, shard: ShardId, backends: Vec<BackendRow>) {
        let _ = self.orders.send(Order::Backends { audit, shard, backends });
    }
}

/// Why the thread does not run.
#[derive(Debug)]
pub enum FleetError {
    /// A file of the settings cannot be read: which setting, the file, and the system's words.
    File(&'static str, String, io::Error),
    /// A certificate without its key, or a key without its certificate.
    HalfIdentity,
    /// The same, where `fleet` is Kubernetes, which needs no CA file.
    HalfKubernetesIdentity,
    /// A certificate or a key cannot be used.
    Options(fleetstore::OptionsError),
    /// The system has no thread, or no runtime.
    Thread(io::Error),
}

impl fmt::Display for FleetError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FleetError::File(setting, file, why) => write!(out, "{setting}: cannot read \"{file}\": {why}"),
            FleetError::HalfIdentity => out.write_str(
                "fleet_tls_cert_file and fleet_tls_key_file need each other, and fleet_tls_ca_file",
            ),
            FleetError::HalfKubernetesIdentity => {
                out.write_str("fleet_tls_cert_file and fleet_tls_key_file need each other")
            }
            FleetError::Options(why) => why.fmt(out),
            FleetError::Thread(why) => write!(out, "cannot start the thread of the fleet: {why}"),
        }
    }
}

impl std::error::Error for FleetError {}

/// The running thread.
#[derive(Clone)]
pub struct FleetAgent {
    contact: Contact,
    rows: Arc<Mutex<Rows>>,
}

impl FleetAgent {
    /// Starts the thread of a node of the store that the configuration names; None if it names none. `from`: the process that this one takes over from.
    ///
    /// # Errors
    /// [`FleetError`]: a setting's fault, but for the last.
    pub fn start(
        config: &Arc<Config>,
        identity: Identity,
        (contact, inbox): (Contact, Inbox),
        outside: Outside,
        from: Option<Handover>,
    ) -> Result<Option<FleetAgent>, FleetError> {
        let Some(options) = StoreOptions::read(config, &identity.node)? else { return Ok(None) };
        let query = BackendQuery::new(
            config,
            config.global.fleet_user.clone(),
            outside.system,
            Arc::clone(&outside.log),
        );
        let node_config = NodeConfig {
            id: identity.node.as_str().into(),
            address: identity.address,
            version: identity.version.to_owned(),
            started_s: (outside.wall_s)(),
            nodes: config.global.fleet_nodes,
            min_servers: config.global.fleet_min_servers,
        };
        let rows = Arc::<Mutex<Rows>>::default();
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_io().enable_time().thread_name(THREAD).max_blocking_threads(2);
        let runtime = builder.build().map_err(FleetError::Thread)?;
        let store = {
            let _inside = runtime.enter();
            options.store(query).map_err(FleetError::Options)?
        };
        let session = SessionId(random(outside.system));
        let agent = Agent::new(node_config, session, from, store, config, outside, inbox, Arc::clone(&rows));
        let run = move || runtime.block_on(agent.run());
        thread::Builder::new().name(THREAD.to_owned()).spawn(run).map_err(FleetError::Thread)?;
        Ok(Some(FleetAgent { contact, rows }))
    }

    /// A new configuration is in force.
    pub fn configure(&self, config: &Arc<Config>) {
        let _ = self.contact.orders.send(Order::Configure(Arc::clone(config)));
    }

    /// Orders another node to drain; [`FleetNews::DrainOrdered`] answers.
    pub fn order_drain(&self, request: RequestId, node: String, order: Drain) {
        let _ = self.contact.orders.send(Order::Drain { request, node, order });
    }

    /// This node drains, or does not any more: others see it.
    pub fn set_draining(&self, is_draining: bool) {
        let _ = self.contact.orders.send(Order::Draining(is_draining));
    }

    /// Has these be the pools of all nodes, if those of revision `base` are now; [`FleetNews::PoolsChanged`] answers.
    pub fn change_pools(&self, base: u64, pools: FleetPools) {
        let _ = self.contact.orders.send(Order::ChangePools { base, pools });
    }

    /// What this node uses of the pools of all nodes: others see it.
    pub fn set_pools_in_use(&self, in_use: FleetPoolsInUse) {
        let _ = self.contact.orders.send(Order::PoolsInUse(in_use));
    }

    /// Waits until every node has done this with a revision of the pools; [`FleetNews::PoolsUsed`] answers.
    pub fn await_pools(&self, request: RequestId, revision: u64, wait: FleetPoolsWait) {
        let _ = self.contact.orders.send(Order::AwaitPools { request, revision, wait });
    }

    /// The requester of [`FleetAgent::await_pools`] no longer waits.
    pub fn forget_pools(&self, request: RequestId) {
        let _ = self.contact.orders.send(Order::ForgetPools(request));
    }

    /// Stops talking to the store: another process goes on as this node, with this line in its note ([`from_note`]). Empty if the thread does not answer
    /// in time; the other process joins as a new node then, once the lease of this one is over.
    #[must_use]
    pub fn hand_over(&self) -> String {
        let (answer, answered) = sync_channel(1);
        let _ = self.contact.orders.send(Order::HandOver(answer));
        answered.recv_timeout(LAST_WORDS).map_or_else(|_| String::new(), |handover| handover::note(&handover))
    }

    /// The other process does not go on, or has ended.
    pub fn take_back(&self) {
        let _ = self.contact.orders.send(Order::TakeBack);
    }

    /// No more connections are opened, and those that there are get noted; to be called while the shards run, before [`FleetAgent::stop`].
    pub fn close(&self) {
        let (done, is_done) = sync_channel(1);
        if self.contact.orders.send(Order::Close(done)).is_ok() {
            let _ = is_done.recv_timeout(LAST_LIST);
        }
    }

    /// Leaves the fleet, whose other nodes find out by PostgreSQL when the connections are gone; to be called before the process ends.
    pub fn stop(&self) {
        let (done, is_done) = sync_channel(1);
        if self.contact.orders.send(Order::Stop(done)).is_ok() {
            let _ = is_done.recv_timeout(LAST_WORDS);
        }
    }

    /// For SHOW FLEET; at most half a second old.
    #[must_use]
    pub fn nodes(&self) -> Vec<FleetNodeRow> {
        self.rows().nodes.clone()
    }

    /// For SHOW FLEET_BUDGETS; at most half a second old.
    #[must_use]
    pub fn budgets(&self) -> Vec<FleetBudgetRow> {
        self.rows().budgets.clone()
    }

    /// For SHOW FLEET_LIMITS; at most half a second old.
    #[must_use]
    pub fn limits(&self) -> Vec<FleetLimitRow> {
        self.rows().limits.clone()
    }

    fn rows(&self) -> MutexGuard<'_, Rows> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn random(system: pgclient::System) -> u64 {
    let mut bytes = [0; 8];
    (system.fill_random)(&mut bytes);
    u64::from_le_bytes(bytes)
}

/// Logs what has changed.
pub(crate) fn log(log: &Log, level: Level, text: String) {
    log(Record::new(level, format!("fleet: {text}")));
}
