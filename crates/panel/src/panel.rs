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

use crate::access::{Access, TokenOutput};
use crate::alerts::{AlertRegistry, run_alert_checks, run_webhook};
use crate::audit_trail::{AuditEntry, AuditKind, AuditTrail};
use crate::connections::Connections;
use crate::control_client::{ControlClient, LogWriter, PendingReplies, SendQuery};
use crate::lab::LabRunner;
use crate::listen_socket::ListenSocket;
use crate::listener::{PanelListener, PanelSocket};
use crate::live::{LiveSampler, flush_and_close, run_history_writer, run_sampler};
use crate::log_ring::LogRing;
use crate::otlp::run_exporter;
use crate::pools_client::{PendingPoolRequests, PoolsClient, SendInput};
use crate::query_trends::{QueryTrends, run_query_trends};
use crate::shared::{Exported, PanelState, Shared};
use crate::state_dir::StateDir;
use crate::supervision::{Backoff, SupervisedTask};
use crate::time::us;
use crate::{listen_socket, routes, supervision};

/// Readers that may follow the log at once.
const LOG_READERS: usize = 50;

/// A port that another process has is tried again after this.
const RETRY: Duration = Duration::from_millis(250);

/// How long the end of the process waits for the last of the history to be stored.
const LAST_WRITE: Duration = Duration::from_secs(1);

/// How much lower the panel's priority is than that of the shards.
const NICENESS: i32 = 10;

/// What the panel begins with.
pub struct PanelArgs {
    /// In force.
    pub config: Arc<Config>,
    /// When the process began to count.
    pub born: SystemTime,
    /// The socket that was opened at the start, if the panel is on.
    pub listen_socket: Option<ListenSocket>,
    /// The way to the control thread.
    pub ask: SendQuery,
    /// The same way, for changes of pools and questions to servers.
    pub tell: SendInput,
    /// The log of the process.
    pub log: LogWriter,
    /// Where the start token may be shown.
    pub token_output: TokenOutput,
    /// Its last lines.
    pub log_ring: Arc<LogRing>,
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
    panel_state: watch::Sender<PanelState>,
    pending_replies: Arc<PendingReplies>,
    pending_pool_requests: Arc<PendingPoolRequests>,
    lab: Arc<LabRunner>,
    access: Arc<Access>,
    socket: Arc<PanelSocket>,
    /// The last metrics are sent, or no export is configured.
    exported: Arc<AtomicBool>,
    /// For what is to be stored at the end.
    shared: Arc<Shared>,
    /// Taken by the thread when there is first something to listen on.
    not_started: Option<(Arc<Shared>, Option<ListenSocket>)>,
}

impl Panel {
    /// A panel that follows the settings; its thread begins when `http_port` or `otlp_endpoint` is first set.
    #[must_use]
    pub fn start(args: PanelArgs) -> Panel {
        let pending_replies = Arc::new(PendingReplies::default());
        let pending_pool_requests = Arc::new(PendingPoolRequests::default());
        let access = Arc::new(Access::new(args.token_output));
        let state = Arc::new(StateDir::new(args.state_dir, Arc::clone(&args.log)));
        let lab = Arc::new(LabRunner::new(args.workloads, Arc::clone(&state)));
        let exported = Arc::new(AtomicBool::new(false));
        let audit_trail = AuditTrail::default();
        audit_trail.record(start_entry(args.takes_over));
        let socket = Arc::new(PanelSocket::default());
        let (panel_state, receiver) = watch::channel(PanelState {
            config: args.config,
            is_shutting_down: false,
            is_exiting: false,
            is_handed_over: false,
        });
        let shared = Shared {
            control_client: ControlClient::new(args.ask, Arc::clone(&pending_replies)),
            pools: PoolsClient::new(Arc::clone(&args.tell), Arc::clone(&pending_pool_requests)),
            access: Arc::clone(&access),
            panel_state: receiver,
            log: args.log,
            log_ring: args.log_ring,
            log_readers: Arc::new(Semaphore::new(LOG_READERS)),
            live: LiveSampler::new(),
            query_trends: QueryTrends::default(),
            alerts: AlertRegistry::default(),
            audit_trail,
            state,
            lab: Arc::clone(&lab),
            socket: Arc::clone(&socket),
            born_us: us(args.born),
            exported: Exported { flag: Arc::clone(&exported), tell: args.tell },
            version: args.version,
        };
        let shared = Arc::new(shared);
        let not_started = Some((Arc::clone(&shared), args.listen_socket));
        let mut panel = Panel {
            panel_state,
            pending_replies,
            pending_pool_requests,
            lab,
            access,
            socket,
            exported,
            shared,
            not_started,
        };
        panel.spawn();
        panel
    }

    /// A piece of an answer of the control thread.
    pub fn reply_received(&self, id: u64, parts: Vec<ReplyPart>, last: bool) {
        self.pending_replies.reply_received(id, parts, last);
    }

    /// A change of pools was made, or not.
    pub fn pools_changed(&self, id: u64, outcome: Result<PoolOutcome, PoolError>) {
        self.pending_pool_requests.changed(id, outcome);
    }

    /// A server has said something of itself, or cannot be asked.
    pub fn server_answered(&self, id: u64, server_info: Option<ServerInfo>) {
        self.pending_pool_requests.server_answered(id, server_info);
    }

    /// A statement was explained, or cannot be.
    pub fn explained(&self, id: u64, outcome: ExplainOutcome) {
        self.pending_pool_requests.explained(id, outcome);
    }

    /// A new configuration is in force.
    pub fn configure(&mut self, config: &Arc<Config>) {
        self.panel_state.send_modify(|panel_state| panel_state.config = Arc::clone(config));
        self.spawn();
    }

    /// The process is shutting down: /readyz fails from now on.
    pub fn begin_shutdown(&self) {
        self.panel_state.send_modify(|panel_state| panel_state.is_shutting_down = true);
    }

    /// Another handle of the listening socket, for a process that takes over: so the port is never free. To be closed soon, for the
    /// port stays taken until then. None where the panel does not listen.
    #[must_use]
    pub fn listening_socket(&self) -> Option<OwnedFd> {
        self.socket.handle()
    }

    /// Closes the listening socket for the process that takes over, or reopens it after a failed takeover.
    pub fn set_handed_over(&self, is_handed_over: bool) {
        self.panel_state.send_modify(|panel_state| panel_state.is_handed_over = is_handed_over);
    }

    /// The process ends now. True if metrics are sent once more: that takes no longer than [`crate::LAST_EXPORT`], and goes
    /// on as long as the control thread answers, until [`Panel::has_exported`].
    pub fn exit(&self) -> bool {
        let is_exporting =
            self.not_started.is_none() && self.panel_state.borrow().config.global.otlp_endpoint.is_some();
        self.panel_state.send_modify(|panel_state| panel_state.is_exiting = true);
        is_exporting
    }

    /// The last metrics are sent, or no export is configured.
    #[must_use]
    pub fn has_exported(&self) -> bool {
        self.exported.load(Ordering::Acquire)
    }

    fn spawn(&mut self) {
        let config = Arc::clone(&self.panel_state.borrow().config);
        if config.global.http_port == 0 && config.global.otlp_endpoint.is_none() {
            return;
        }
        let Some((shared, listen_socket)) = self.not_started.take() else { return };
        let log = Arc::clone(&shared.log);
        let spawned = thread::Builder::new()
            .name(supervision::PANEL.to_owned())
            .spawn(move || run_thread(&shared, listen_socket));
        if let Err(why) = spawned {
            log(Record::new(Level::Error, format!("panel: cannot start the thread: {why}")));
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
            flush_and_close(&shared);
            let _ = sender.send(());
        };
        // A disk that does not answer must not keep the process.
        if thread::Builder::new().name(supervision::PANEL.to_owned()).spawn(storing).is_ok() {
            let _ = stored.recv_timeout(LAST_WRITE);
        }
    }
}

fn start_entry(takes_over: bool) -> AuditEntry {
    let kind = if takes_over { AuditKind::Takeover } else { AuditKind::Start };
    AuditEntry { kind, text: concat!("Weir ", env!("CARGO_PKG_VERSION")).to_owned(), ..AuditEntry::default() }
}

/// The thread's main function: restarts after a panic, and returns when the process ends.
fn run_thread(shared: &Arc<Shared>, mut listen_socket: Option<ListenSocket>) {
    let _ = rustix::process::nice(NICENESS); // Of this thread, and those that it starts.
    let mut backoff = Backoff::default();
    loop {
        let (first, begun) = (listen_socket.take(), Instant::now());
        match catch_unwind(AssertUnwindSafe(|| run(shared, first))) {
            Ok(Ok(())) => return,
            Ok(Err(why)) => shared.log(Level::Error, format!("panel: cannot start the runtime: {why}")),
            Err(_) => shared.log(Level::Error, "panel: thread panicked"),
        }
        let pause = backoff.next(begun.elapsed());
        shared.log(Level::Log, format!("panel: restarting the thread in {} s", pause.as_secs()));
        thread::sleep(pause);
    }
}

fn run(shared: &Arc<Shared>, first: Option<ListenSocket>) -> io::Result<()> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_io().enable_time().thread_name(supervision::PANEL).max_blocking_threads(4);
    let runtime = builder.build()?;
    runtime.block_on(serve(shared, first))
}

/// Accepts and serves connections until the process has ended.
async fn serve(shared: &Arc<Shared>, first: Option<ListenSocket>) -> io::Result<()> {
    let router = routes::router(shared);
    let mut panel_state = shared.panel_state.clone();
    let mut listener = PanelListener::new(shared, first)?;
    let mut connections = Connections::new(router);
    let (mut sampling, mut exporting, mut storing) =
        (SupervisedTask::new(), SupervisedTask::new(), SupervisedTask::new());
    let (mut watching, mut telling, mut trends) =
        (SupervisedTask::new(), SupervisedTask::new(), SupervisedTask::new());
    let mut loaded: Option<Arc<Config>> = None;
    let mut tls_acceptor = None;
    loop {
        let now = panel_state.borrow_and_update().clone();
        // While the panel is off http_auth_file is not read: a session that it no longer allows must not go on.
        if now.is_handed_over || now.config.global.http_port == 0 {
            connections.close_all();
        }
        if !loaded.as_ref().is_some_and(|loaded| Arc::ptr_eq(loaded, &now.config)) {
            if now.config.global.http_port != 0 {
                reload_access(shared, &now.config.global, &mut tls_acceptor);
            }
            loaded = Some(Arc::clone(&now.config));
        }
        listener.follow(shared, &now);
        if now.config.global.http_port == 0 {
            sampling.stop();
            trends.stop();
            watching.stop();
        } else {
            trends.ensure_running(|| run_query_trends(Arc::clone(shared)));
            sampling.ensure_running(|| run_sampler(Arc::clone(shared)));
            storing.ensure_running(|| run_history_writer(Arc::clone(shared)));
            watching.ensure_running(|| run_alert_checks(Arc::clone(shared)));
            telling.ensure_running(|| run_webhook(Arc::clone(shared)));
        }
        if !now.is_exiting {
            exporting.ensure_running(|| run_exporter(Arc::clone(shared)));
        }
        tokio::select! {
            () = exporting.finished() => {}
            () = sampling.finished() => {}
            () = trends.finished() => {}
            () = storing.finished() => {}
            () = watching.finished() => {}
            () = telling.finished() => {}
            changed = panel_state.changed() => if changed.is_err() { return Ok(()) },
            accepted = listener.accept() => match accepted {
                Ok((stream, address)) => {
                    connections.add(stream, address, tls_acceptor.as_ref());
                    // Existing connections are read first: one with a complete request is not evicted.
                    tokio::task::yield_now().await;
                }
                // No descriptor is free, mostly: the next try would fail at once.
                Err(_) => tokio::time::sleep(RETRY).await,
            },
            broke = connections.next_closed() => {
                if broke {
                    shared.log(Level::Error, "panel: request handler panicked; connection closed");
                }
            }
            () = tokio::time::sleep(RETRY), if listener.should_retry() => {}
        }
    }
}

/// Reads http_auth_file and the TLS files again.
fn reload_access(shared: &Shared, global: &Global, tls_acceptor: &mut Option<TlsAcceptor>) {
    shared.access.reload(global, &shared.log);
    match listen_socket::tls_acceptor(global) {
        Ok(terms) => *tls_acceptor = terms,
        Err(why) => shared.log(Level::Error, format!("panel: TLS setup failed, keeping the old one: {why}")),
    }
}
