//! The threads of a process: one per shard, started, written to and ended from here.
//!
//! Owns the choice of the driver and the falling back. Never touches a connection and never decides what shards do.

use std::os::fd::OwnedFd;
use std::sync::mpsc::{Receiver, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use std::{fmt, io, panic, process};

use auth::MockKey;
use messages::{Command, Listing, ShardId, Subject};
use pool::{PoolRegistry, ProbedCluster};
use settings::{Config, IoDriver};
use shard::Shard;
use telemetry::{Level, Record};

use crate::core::{Core, Log, Reports};
use crate::entropy::{BufferedEntropy, KernelEntropy};
use crate::epoll::Epoll;
use crate::event_loop::EventLoop;
use crate::fd_reserve::FdReserve;
use crate::helpers::Helpers;
use crate::listen::{Kind, Listeners};
use crate::mailbox::{MailboxMessage, Mailboxes};
use crate::process_registry::{ProcessRegistry, WantSlots};
use crate::shard_context::ShardContext;
use crate::takeover::{
    self, Predecessor, Takeover, TakeoverImport, TakeoverProgress, TakeoverReceiver, TakeoverSender,
};
use crate::uring::{self, ReceiveBuffers, RingSize, Uring};

/// What is to be started.
pub struct Plan {
    /// The configuration to begin with.
    pub config: Arc<Config>,
    /// How many shards, 1..=64.
    pub threads: u16,
    /// Which driver is wanted.
    pub io: IoDriver,
    /// Receive buffers of io_uring, per shard.
    pub receive_buffers: ReceiveBuffers,
    /// Queues of io_uring, per shard.
    pub ring: RingSize,
    /// Bound already, so that a port in use is reported before anything runs.
    pub listeners: Listeners,
    /// Of the process that this one takes over from, if there is one.
    pub inheritance: TakeoverImport,
    /// The log.
    pub log: Log,
    /// The control thread's ear.
    pub reports: Reports,
    /// Where the process is a node of a fleet.
    pub want_slots: Option<WantSlots>,
}

/// What a shard is made of.
pub struct ShardArgs {
    /// Its number.
    pub id: ShardId,
    /// The configuration to begin with.
    pub config: Arc<Config>,
    /// Where it finds what shards share.
    pub registry: Arc<dyn PoolRegistry>,
}

/// Why the threads could not be started.
#[derive(Debug)]
pub enum StartFault {
    /// `threads` is not in 1..=64.
    Threads(u16),
    /// The system refused: what, and its words.
    System(&'static str, io::Error),
}

impl fmt::Display for StartFault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StartFault::Threads(count) => write!(out, "threads: {count} is not between 1 and 64"),
            StartFault::System(what, why) => write!(out, "cannot make {what}: {why}"),
        }
    }
}

impl std::error::Error for StartFault {}

/// The running threads.
pub struct Engine {
    mailboxes: Mailboxes,
    listeners: Listeners,
    helpers: Arc<Helpers>,
    threads: Vec<JoinHandle<()>>,
    driver: &'static str,
    fallback: Option<String>,
    takeover: Arc<Takeover>,
    registry: Arc<ProcessRegistry>,
    generation: u64,
    log: Log,
}

/// What a loop is, once its thread knows whether it could be made.
type Verdict = Result<(), String>;

impl Engine {
    /// Starts the product: shards with the kernel's entropy.
    ///
    /// # Errors
    /// [`StartFault`]; nothing runs then.
    pub fn start(plan: Plan) -> Result<Engine, StartFault> {
        let mock = Arc::new(MockKey::new(KernelEntropy::key()));
        let user_id = rustix::process::geteuid().as_raw();
        let generation = plan.inheritance.generation;
        Engine::start_with(plan, move |args: ShardArgs| {
            let entropy = Box::new(BufferedEntropy::new());
            let mut shard = Shard::new(args.id, args.config, args.registry, entropy, Arc::clone(&mock));
            shard.trust_unix_user(user_id);
            shard.limit_files(crate::process::file_limit());
            shard.follow(generation);
            shard
        })
    }

    /// Starts shards of any making.
    ///
    /// # Errors
    /// [`StartFault`]; nothing runs then.
    pub fn start_with<C: Core + 'static>(
        plan: Plan,
        make: impl Fn(ShardArgs) -> C + Send + Sync + 'static,
    ) -> Result<Engine, StartFault> {
        if !(1..=64).contains(&plan.threads) {
            return Err(StartFault::Threads(plan.threads));
        }
        let mailboxes = Mailboxes::new(plan.threads).map_err(|why| StartFault::System("a mailbox", why))?;
        let helpers = Helpers::start(&mailboxes, &plan.config.global)
            .map_err(|why| StartFault::System("a thread", why))?;
        if let Some(lack) = helpers.lacking(&plan.config) {
            (plan.log)(Record::new(Level::Warning, format!("{lack}; logins that need it will fail")));
        }
        let helpers = Arc::new(helpers);
        let registry = Arc::new(ProcessRegistry::in_fleet(plan.threads, plan.want_slots.clone()));
        let inheritance = plan.inheritance;
        registry.configure(&plan.config);
        registry.process().continue_ids_at(inheritance.next_id);
        let mut builder = EngineBuilder {
            plan,
            mailboxes,
            helpers,
            fd_reserve: Arc::new(FdReserve::new()),
            takeover: Arc::default(),
            registry,
            threads: Vec::new(),
        };
        let (driver, fallback) = builder.launch(make)?;
        let EngineBuilder { plan, mailboxes, helpers, threads, takeover, registry, .. } = builder;
        announce(&plan.log, plan.io, driver, fallback.as_deref());
        let generation = inheritance.generation;
        let (listeners, log) = (plan.listeners, plan.log);
        Ok(Engine {
            mailboxes,
            listeners,
            helpers,
            threads,
            driver,
            fallback,
            takeover,
            registry,
            generation,
            log,
        })
    }

    /// The driver in use, and why it is not io_uring where that was tried.
    #[must_use]
    pub fn io_driver_in_use(&self) -> (&'static str, Option<&str>) {
        (self.driver, self.fallback.as_deref())
    }

    /// Writes to one shard. A new configuration reaches the registry and the listening sockets before it, and RECONNECT the registry.
    pub fn command(&self, shard: ShardId, command: Command) {
        match &command {
            Command::Configure(config) => {
                self.registry.configure(config);
                self.listeners.configure(&config.global);
                self.helpers.known().configure(&config.global);
            }
            Command::Reconnect { database } => self.registry.forget_clusters(database.as_deref()),
            _ => {}
        }
        self.mailboxes.post(shard, MailboxMessage::Command(command));
    }

    /// The counts of limits that a fleet shares, over all shards.
    #[must_use]
    pub fn fleet_counts(&self) -> Arc<dyn pool::FleetCounts> {
        Arc::<ProcessRegistry>::clone(&self.registry)
    }

    /// The accounts of quotas, over all shards.
    #[must_use]
    pub fn quotas(&self) -> Arc<Mutex<quota::Book>> {
        Arc::clone(self.registry.quotas())
    }

    /// Takes what the hosts of an entry have answered. For one thread.
    pub fn probed_clusters(&self) -> impl Fn(&str, ProbedCluster) + Send + Sync + use<> {
        let registry = Arc::clone(&self.registry);
        move |entry, probed| registry.note_probed(entry, probed)
    }

    /// Rows about what no shard knows; nothing for what shards know.
    #[must_use]
    pub fn inspect(&self, subject: Subject) -> Listing {
        match subject {
            Subject::Hosts => Listing::Hosts(self.helpers.known().host_rows()),
            Subject::Quotas => {
                let quotas = self.registry.quotas().lock().unwrap_or_else(PoisonError::into_inner);
                Listing::Quotas(quotas.rows())
            }
            Subject::Zones => Listing::Zones(self.helpers.known().zone_rows()),
            _ => Listing::Listeners(self.listeners.all.iter().map(|listener| listener.row()).collect()),
        }
    }

    /// Writes to all shards.
    pub fn broadcast(&self, command: &Command) {
        for shard in 0..u16::try_from(self.mailboxes.count()).unwrap_or(u16::MAX) {
            self.command(ShardId(shard), command.clone());
        }
    }

    /// Writes to all shards from any thread, for commands that only concern shards. What one thread writes arrives in its order.
    pub fn broadcaster(&self) -> impl Fn(&Command) + Send + Sync + use<> {
        let mailboxes = self.mailboxes.clone();
        move |command| mailboxes.post_all(|| MailboxMessage::Command(command.clone()))
    }

    /// Receives everything that the predecessor hands on; it must have paused accepting ([`Predecessor::pause_accepting`]).
    ///
    /// # Errors
    /// The predecessor has gone, or the system's.
    pub fn take_over(&self, predecessor: Predecessor) -> io::Result<()> {
        TakeoverReceiver {
            takeover: Arc::clone(&self.takeover),
            mailboxes: self.mailboxes.clone(),
            registry: Arc::clone(&self.registry),
            log: Arc::clone(&self.log),
        }
        .start(predecessor)
    }

    /// Opens a channel to the process that takes over, and hands everything over to it; `news` hears what comes of it.
    /// `name` is of the abstract name space, `note` what the control thread says to the other's, `panel` the panel's listening
    /// socket, and `patience` how long the successor may take before it is ready.
    ///
    /// # Errors
    /// AlreadyExists if that is under way; PermissionDenied if another user's process answers; else the system's.
    pub fn hand_over(
        &self,
        name: &str,
        note: String,
        panel: Option<OwnedFd>,
        patience: Duration,
        news: impl Fn(TakeoverProgress) + Send + 'static,
    ) -> io::Result<()> {
        TakeoverSender {
            channel: takeover::open_channel(name)?,
            takeover: Arc::clone(&self.takeover),
            registry: Arc::clone(&self.registry),
            mailboxes: self.mailboxes.clone(),
            listeners: self.listeners.clone(),
            panel,
            generation: self.generation,
            next_id: self.registry.process().upcoming_id(),
            note,
            patience,
            log: Arc::clone(&self.log),
            news: Box::new(news),
        }
        .start()
    }

    /// Forwards a cancel request for an unknown key to the predecessor, if there is one.
    pub fn cancel_at_predecessor(&self, key: &[u8]) {
        self.takeover.cancel_there(key);
    }

    /// Undoes what was paused in the process that this one still takes over from, if there is one.
    pub fn resume_predecessor(&self, database: Option<&str>) {
        self.takeover.resume_there(database);
    }

    /// Refuses new TCP connections from now on; the unix socket stays for administrators.
    pub fn close_tcp_listeners(&self) {
        self.close(false);
    }

    /// Refuses all new connections from now on and removes the unix socket.
    pub fn close_listeners(&self) {
        self.close(true);
    }

    fn close(&self, all: bool) {
        self.listeners.close(all, |socket, peer| {
            self.mailboxes.post(ShardId(0), MailboxMessage::Accepted { socket, peer });
        });
        self.mailboxes.post_all(|| MailboxMessage::CloseListeners { all });
    }

    /// Ends all threads and waits for them. Connections are closed as they are.
    pub fn join(self) {
        self.listeners.close(true, |_, _| {});
        self.mailboxes.post_all(|| MailboxMessage::Stop);
        for thread in self.threads {
            let _ = thread.join();
        }
    }
}

/// An engine in the making.
struct EngineBuilder {
    plan: Plan,
    mailboxes: Mailboxes,
    helpers: Arc<Helpers>,
    fd_reserve: Arc<FdReserve>,
    takeover: Arc<Takeover>,
    registry: Arc<ProcessRegistry>,
    threads: Vec<JoinHandle<()>>,
}

impl EngineBuilder {
    /// Starts the threads, hears whether each could make its ring, and tells all which driver it is to be.
    fn launch<C: Core + 'static>(
        &mut self,
        make: impl Fn(ShardArgs) -> C + Send + Sync + 'static,
    ) -> Result<(&'static str, Option<String>), StartFault> {
        let make = Arc::new(make);
        let registry: Arc<dyn PoolRegistry> = self.registry.clone();
        let (verdicts, heard) = channel();
        let mut starts: Vec<SyncSender<bool>> = Vec::new();
        for id in (0..self.plan.threads).map(ShardId) {
            let args =
                ShardArgs { id, config: Arc::clone(&self.plan.config), registry: Arc::clone(&registry) };
            let (start, started) = sync_channel(1);
            let (make, context, verdicts) = (Arc::clone(&make), self.context(id), verdicts.clone());
            let try_uring = self.plan.io != IoDriver::Epoll;
            let (size, receive_buffers) = (self.plan.ring, self.plan.receive_buffers);
            let work = move || {
                let ring = try_uring.then(|| uring::Kernel::new(size, receive_buffers));
                let _ = verdicts.send(match &ring {
                    Some(Err(why)) => Err(why.clone()),
                    _ => Ok(()),
                });
                run(started, context, ring.and_then(Result::ok), || make(args));
            };
            let thread = thread::Builder::new().name(format!("weir-shard-{}", id.0)).spawn(guarded(work));
            self.threads.push(thread.map_err(|why| StartFault::System("a thread", why))?);
            starts.push(start);
        }
        let fallback = heard.iter().take(usize::from(self.plan.threads)).filter_map(Verdict::err).next();
        let by_uring = self.plan.io != IoDriver::Epoll && fallback.is_none();
        for start in starts {
            let _ = start.send(by_uring);
        }
        Ok((if by_uring { "io_uring" } else { "epoll" }, fallback))
    }

    fn context(&self, id: ShardId) -> ShardContext {
        ShardContext {
            id,
            mailboxes: self.mailboxes.clone(),
            helpers: Arc::clone(&self.helpers),
            fd_reserve: Arc::clone(&self.fd_reserve),
            takeover: Arc::clone(&self.takeover),
            listeners: self.plan.listeners.all.clone(),
            reports: Arc::clone(&self.plan.reports),
            log: Arc::clone(&self.plan.log),
            accepting_shared: false,
        }
    }
}

/// A shard's thread: waits to be told the driver, then loops until it is stopped.
fn run<C: Core>(
    started: Receiver<bool>,
    context: ShardContext,
    ring: Option<uring::Kernel>,
    make: impl FnOnce() -> C,
) {
    // No message means that the engine could not be started.
    let Ok(by_uring) = started.recv() else { return };
    let log = Arc::clone(&context.log);
    let outcome = match ring.filter(|_| by_uring) {
        Some(kernel) => EventLoop::new(make(), context, Uring::new(kernel), ()).and_then(EventLoop::run),
        None => {
            Epoll::new().and_then(|(epoll, scratch)| EventLoop::new(make(), context, epoll, scratch)?.run())
        }
    };
    if let Err(why) = outcome {
        log(Record::new(Level::Fatal, format!("shard event loop failed: {why}; exiting")));
        process::abort();
    }
}

/// Never half a pooler: a shard's panic ends the process.
fn guarded(work: impl FnOnce()) -> impl FnOnce() {
    move || {
        if panic::catch_unwind(panic::AssertUnwindSafe(work)).is_err() {
            process::abort();
        }
    }
}

fn announce(log: &Log, wanted: IoDriver, driver: &'static str, fallback: Option<&str>) {
    match fallback {
        Some(why) if wanted == IoDriver::IoUring => {
            log(Record::new(Level::Warning, format!("io_uring was asked for and does not work here: {why}")));
            log(Record::new(Level::Log, format!("io driver: {driver} (io_uring: {why})")));
        }
        Some(why) => log(Record::new(Level::Log, format!("io driver: {driver} (io_uring: {why})"))),
        None => log(Record::new(Level::Log, format!("io driver: {driver}"))),
    }
}

impl Listeners {
    /// Whether any of them is TCP.
    #[must_use]
    pub fn has_tcp(&self) -> bool {
        self.all.iter().any(|listener| listener.kind == Kind::Tcp)
    }
}
