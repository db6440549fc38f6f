//! The panel's thread: where it listens follows the settings, and what breaks in it breaks nothing else.
//!
//! Owns the thread and its runtime, the listening socket, how many connections there are. Never answers a request itself.

use std::io;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use control::{ExplainOutcome, PoolError, PoolOutcome, ServerInfo};
use messages::ReplyPart;
use settings::{Config, Global};
use telemetry::{Level, Record};
use tokio::sync::{Semaphore, watch};
use tokio_rustls::TlsAcceptor;

use crate::access::{Access, TokenPlace};
use crate::alerts::{Board, keep_telling, keep_watching};
use crate::bridge::{Ask, Bridge, Log, Waiting};
use crate::doorway::Doorway;
use crate::entrance::{Entrance, PanelSocket};
use crate::errand::{Errand, Rest};
use crate::guests::Guests;
use crate::journal::Journal;
use crate::lab::Lab;
use crate::live::{Live, keep_sampling, keep_storing, store_now};
use crate::otlp::keep_exporting;
use crate::pools_desk::{PoolsDesk, PoolsWaiting, Tell};
use crate::query_trends::{QueryTrends, keep_query_trends};
use crate::shared::{Exported, Shared, Situation};
use crate::state_dir::StateDir;
use crate::time::us;
use crate::trail::{Entry, Kind, Trail};
use crate::{routes, seal, threads};

/// At most so many follow the log at once.
const LOG_READERS: usize = 50;

/// A port that somebody else has is tried again after this.
const RETRY: Duration = Duration::from_millis(250);

/// How long the end of the process waits for the last of the history to be stored.
const LAST_WRITE: Duration = Duration::from_secs(1);

/// How much less of the processors the panel gets than those who serve queries.
const NICENESS: i32 = 10;

/// What the panel begins with.
pub struct Plan {
    /// In force.
    pub config: Arc<Config>,
    /// When the process began to count.
    pub born: SystemTime,
    /// The socket that was opened at the start, if the panel is on.
    pub doorway: Option<Doorway>,
    /// The way to the control thread.
    pub ask: Ask,
    /// The same way, for changes of pools and questions to servers.
    pub tell: Tell,
    /// The log of the process.
    pub log: Log,
    /// Where the start token may be shown.
    pub token_place: TokenPlace,
    /// Its last lines.
    pub journal: Arc<Journal>,
    /// As SHOW VERSION has it.
    pub version: &'static str,
    /// Where what outlives the process is kept.
    pub state_dir: Option<PathBuf>,
    /// It has taken over from another process.
    pub takes_over: bool,
    /// What the lab's process can be asked to run.
    pub workloads: &'static [&'static str],
}

/// The panel, as the control thread's loop has it. Nothing here waits for the panel's thread.
pub struct Panel {
    situation: watch::Sender<Situation>,
    waiting: Arc<Waiting>,
    pools_waiting: Arc<PoolsWaiting>,
    lab: Arc<Lab>,
    access: Arc<Access>,
    socket: Arc<PanelSocket>,
    /// The last metrics are sent, or nobody wants them.
    exported: Arc<AtomicBool>,
    /// For what is to be stored at the end.
    shared: Arc<Shared>,
    /// Taken by the thread when there is first something to listen on.
    unborn: Option<(Arc<Shared>, Option<Doorway>)>,
}

impl Panel {
    /// A panel that follows the settings; its thread begins when `http_port` or `otlp_endpoint` is first set.
    #[must_use]
    pub fn start(plan: Plan) -> Panel {
        let waiting = Arc::new(Waiting::default());
        let pools_waiting = Arc::new(PoolsWaiting::default());
        let access = Arc::new(Access::new(plan.token_place));
        let state = Arc::new(StateDir::new(plan.state_dir, Arc::clone(&plan.log)));
        let lab = Arc::new(Lab::new(plan.workloads, Arc::clone(&state)));
        let exported = Arc::new(AtomicBool::new(false));
        let trail = Trail::default();
        trail.note(of_start(plan.takes_over));
        let socket = Arc::new(PanelSocket::default());
        let (situation, receiver) = watch::channel(Situation {
            config: plan.config,
            is_ending: false,
            is_over: false,
            has_left: false,
        });
        let shared = Shared {
            bridge: Bridge::new(plan.ask, Arc::clone(&waiting)),
            pools: PoolsDesk::new(Arc::clone(&plan.tell), Arc::clone(&pools_waiting)),
            access: Arc::clone(&access),
            situation: receiver,
            log: plan.log,
            journal: plan.journal,
            log_readers: Arc::new(Semaphore::new(LOG_READERS)),
            live: Live::new(),
            query_trends: QueryTrends::default(),
            alerts: Board::default(),
            trail,
            state,
            lab: Arc::clone(&lab),
            socket: Arc::clone(&socket),
            born_us: us(plan.born),
            exported: Exported { flag: Arc::clone(&exported), tell: plan.tell },
            version: plan.version,
        };
        let shared = Arc::new(shared);
        let unborn = Some((Arc::clone(&shared), plan.doorway));
        let mut panel =
            Panel { situation, waiting, pools_waiting, lab, access, socket, exported, shared, unborn };
        panel.be_born();
        panel
    }

    /// A piece of an answer of the control thread.
    pub fn answered(&self, id: u64, parts: Vec<ReplyPart>, last: bool) {
        self.waiting.answered(id, parts, last);
    }

    /// A change of pools was made, or not.
    pub fn pools_changed(&self, id: u64, outcome: Result<PoolOutcome, PoolError>) {
        self.pools_waiting.changed(id, outcome);
    }

    /// A server has said something of itself, or cannot be asked.
    pub fn server_answered(&self, id: u64, facts: Option<ServerInfo>) {
        self.pools_waiting.inquired(id, facts);
    }

    /// A statement was explained, or cannot be.
    pub fn explained(&self, id: u64, outcome: ExplainOutcome) {
        self.pools_waiting.explained(id, outcome);
    }

    /// A new configuration is in force.
    pub fn configure(&mut self, config: &Arc<Config>) {
        self.situation.send_modify(|situation| situation.config = Arc::clone(config));
        self.be_born();
    }

    /// The process is going to end: whoever spreads load should look elsewhere.
    pub fn is_ending(&self) {
        self.situation.send_modify(|situation| situation.is_ending = true);
    }

    /// Another handle of the listening socket, for a process that takes over: so the port is never free. To be closed soon, for the
    /// port stays taken until then. None where the panel does not listen.
    #[must_use]
    pub fn listening_socket(&self) -> Option<OwnedFd> {
        self.socket.handle()
    }

    /// Leaves the port to the process that takes over, or comes back because nothing came of it.
    pub fn leave(&self, has_left: bool) {
        self.situation.send_modify(|situation| situation.has_left = has_left);
    }

    /// The process ends now. True if metrics are sent once more: that takes no longer than [`crate::LAST_EXPORT`], and goes
    /// on as long as the control thread answers, until [`Panel::has_exported`].
    pub fn is_over(&self) -> bool {
        let is_exporting =
            self.unborn.is_none() && self.situation.borrow().config.global.otlp_endpoint.is_some();
        self.situation.send_modify(|situation| situation.is_over = true);
        is_exporting
    }

    /// The last metrics are sent, or nobody wants them.
    #[must_use]
    pub fn has_exported(&self) -> bool {
        self.exported.load(Ordering::Acquire)
    }

    fn be_born(&mut self) {
        let config = Arc::clone(&self.situation.borrow().config);
        if config.global.http_port == 0 && config.global.otlp_endpoint.is_none() {
            return;
        }
        let Some((shared, doorway)) = self.unborn.take() else { return };
        let log = Arc::clone(&shared.log);
        let spawned =
            thread::Builder::new().name(threads::PANEL.to_owned()).spawn(move || live(&shared, doorway));
        if let Err(why) = spawned {
            log(Record::new(Level::Error, format!("panel: no thread: {why}")));
        }
    }
}

impl Drop for Panel {
    /// The process ends: what it has started ends with it.
    fn drop(&mut self) {
        self.lab.interrupt_all();
        self.access.close();
        let (shared, (sender, stored)) = (Arc::clone(&self.shared), channel());
        let storing = move || {
            store_now(&shared);
            let _ = sender.send(());
        };
        // A disk that does not answer must not keep the process.
        if thread::Builder::new().name(threads::PANEL.to_owned()).spawn(storing).is_ok() {
            let _ = stored.recv_timeout(LAST_WRITE);
        }
    }
}

fn of_start(takes_over: bool) -> Entry {
    let kind = if takes_over { Kind::Takeover } else { Kind::Start };
    Entry { kind, text: concat!("Weir ", env!("CARGO_PKG_VERSION")).to_owned(), ..Entry::default() }
}

/// The thread's main function: restarts after a panic, and returns when the process ends.
fn live(shared: &Arc<Shared>, mut doorway: Option<Doorway>) {
    let _ = rustix::process::nice(NICENESS); // Of this thread, and those that it starts.
    let mut rest = Rest::default();
    loop {
        let (first, begun) = (doorway.take(), Instant::now());
        match catch_unwind(AssertUnwindSafe(|| run(shared, first))) {
            Ok(Ok(())) => return,
            Ok(Err(why)) => shared.log(Level::Error, format!("panel: no runtime: {why}")),
            Err(_) => shared.log(Level::Error, "panel: thread panicked"),
        }
        let pause = rest.next(begun.elapsed());
        shared.log(Level::Log, format!("panel: restarting the thread in {} s", pause.as_secs()));
        thread::sleep(pause);
    }
}

fn run(shared: &Arc<Shared>, first: Option<Doorway>) -> io::Result<()> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_io().enable_time().thread_name(threads::PANEL).max_blocking_threads(4);
    let runtime = builder.build()?;
    runtime.block_on(attend(shared, first))
}

/// Lets in who comes, where the settings say, until the process has ended.
async fn attend(shared: &Arc<Shared>, first: Option<Doorway>) -> io::Result<()> {
    let router = routes::router(shared);
    let mut situation = shared.situation.clone();
    let mut entrance = Entrance::new(shared, first)?;
    let mut guests = Guests::new(router);
    let (mut sampling, mut exporting, mut storing) = (Errand::new(), Errand::new(), Errand::new());
    let (mut watching, mut telling, mut trends) = (Errand::new(), Errand::new(), Errand::new());
    let mut read: Option<Arc<Config>> = None;
    let mut seal = None;
    loop {
        let now = situation.borrow_and_update().clone();
        // Where the panel is off nobody reads who may come in: what was allowed before would stay allowed.
        if now.has_left || now.config.global.http_port == 0 {
            guests.send_away();
        }
        if !read.as_ref().is_some_and(|read| Arc::ptr_eq(read, &now.config)) {
            if now.config.global.http_port != 0 {
                receive(shared, &now.config.global, &mut seal);
            }
            read = Some(Arc::clone(&now.config));
        }
        entrance.follow(shared, &now);
        if now.config.global.http_port == 0 {
            sampling.stop();
            trends.stop();
            watching.stop();
        } else {
            trends.keep_going(|| keep_query_trends(Arc::clone(shared)));
            sampling.keep_going(|| keep_sampling(Arc::clone(shared)));
            storing.keep_going(|| keep_storing(Arc::clone(shared)));
            watching.keep_going(|| keep_watching(Arc::clone(shared)));
            telling.keep_going(|| keep_telling(Arc::clone(shared)));
        }
        if !now.is_over {
            exporting.keep_going(|| keep_exporting(Arc::clone(shared)));
        }
        tokio::select! {
            () = exporting.ended() => {}
            () = sampling.ended() => {}
            () = trends.ended() => {}
            () = storing.ended() => {}
            () = watching.ended() => {}
            () = telling.ended() => {}
            changed = situation.changed() => if changed.is_err() { return Ok(()) },
            guest = entrance.guest() => match guest {
                Ok((stream, address)) => {
                    guests.welcome(stream, address, seal.as_ref());
                    // Those before it are read first: who has sent its request need not make room.
                    tokio::task::yield_now().await;
                }
                // No descriptor is free, mostly: the next try would fail at once.
                Err(_) => tokio::time::sleep(RETRY).await,
            },
            broke = guests.one_left() => {
                if broke {
                    shared.log(Level::Error, "panel: a request broke; its connection was closed");
                }
            }
            () = tokio::time::sleep(RETRY), if entrance.is_in_the_way() => {}
        }
    }
}

/// Reads who may come in, and by which certificate the panel is known.
fn receive(shared: &Shared, global: &Global, seal: &mut Option<TlsAcceptor>) {
    shared.access.follow(global, &shared.log);
    match seal::of(global) {
        Ok(terms) => *seal = terms,
        Err(why) => shared.log(Level::Error, format!("panel: TLS setup failed, keeping the old one: {why}")),
    }
}
