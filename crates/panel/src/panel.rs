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

use control::{ExplainOutcome, Input, Operation, PoolError, PoolOutcome, ServerInfo};
use messages::ReplyPart;
use settings::{Config, Global};
use telemetry::Level;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

use crate::access::audit_log::AuditLog;
use crate::access::{Access, TokenOutput};
use crate::alerts::{AlertRegistry, run_alert_checks, run_webhook};
use crate::audit_trail::{AuditEntry, AuditKind, AuditTrail};
use crate::connections::Connections;
use crate::context::{LogWriter, PanelContext, PanelState};
use crate::control_client::{ControlClient, PendingReplies, SendQuery};
use crate::gauges::{Gauges, run_gauges};
use crate::lab::LabRunner;
use crate::listen_socket::ListenSocket;
use crate::listener::{PanelListener, PanelSocket};
use crate::live::{HistoryWriter, LiveSampler, run_sampler};
use crate::log_ring::{LogReaders, LogRing};
use crate::metrics::MetricsSource;
use crate::otlp::run_exporter;
use crate::pool_service::PoolService;
use crate::pools_client::{PendingPoolRequests, PoolsClient, SendInput};
use crate::query_trends::{QueryTrends, run_query_trends};
use crate::routes::RouteState;
use crate::state_dir::StateDir;
use crate::supervision::{Backoff, SupervisedTask};
use crate::time::us;
use crate::{listen_socket, routes, supervision};

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
    /// Whether the lab's program is installed; if not, what to install.
    pub find_lab: fn() -> Result<(), String>,
}

/// The panel, as the control thread's loop has it. Nothing here waits for the panel's thread.
pub struct Panel {
    panel_state: watch::Sender<PanelState>,
    pending_replies: Arc<PendingReplies>,
    pending_pool_requests: Arc<PendingPoolRequests>,
    services: Arc<Services>,
    /// Taken by the thread when there is first something to listen on.
    not_started: Option<Option<ListenSocket>>,
}

/// What the panel's thread runs, and the control thread's loop looks at.
struct Services {
    routes: RouteState,
    history: Arc<HistoryWriter>,
    /// What a process that takes over is handed.
    socket: Arc<PanelSocket>,
    /// When the process began to count, in microseconds since 1970.
    born_us: u64,
    /// The last metrics are sent, or no export is configured.
    exported: AtomicBool,
    /// Wakes the control thread's loop, so that it looks at `exported`.
    wake: SendInput,
}

impl Panel {
    /// A panel that follows the settings; its thread begins when `http_port` or `otlp_endpoint` is first set.
    #[must_use]
    pub fn start(args: PanelArgs) -> Panel {
        let pending_replies = Arc::new(PendingReplies::default());
        let pending_pool_requests = Arc::new(PendingPoolRequests::default());
        let (panel_state, receiver) = watch::channel(PanelState {
            config: Arc::clone(&args.config),
            is_shutting_down: false,
            is_draining: false,
            is_exiting: false,
            is_handed_over: false,
        });
        let context = PanelContext::new(receiver, Arc::clone(&args.log), args.version);
        let control_client = Arc::new(ControlClient::new(args.ask.clone(), Arc::clone(&pending_replies)));
        let pools_client =
            Arc::new(PoolsClient::new(Arc::clone(&args.tell), Arc::clone(&pending_pool_requests)));
        let pools = PoolService::new(context.clone(), Arc::clone(&control_client), pools_client);
        let (services, listen_socket) = Services::new(args, context, control_client, pools);
        let mut panel = Panel {
            panel_state,
            pending_replies,
            pending_pool_requests,
            services: Arc::new(services),
            not_started: Some(listen_socket),
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

    /// An operator has had something done.
    pub fn operated(&self, operation: Operation) {
        self.services.routes.audit_trail.record_operation(operation);
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

    /// The process drains, or does not any more: /readyz fails meanwhile.
    pub fn set_draining(&self, is_draining: bool) {
        self.panel_state.send_modify(|panel_state| panel_state.is_draining = is_draining);
    }

    /// Another handle of the listening socket, for a process that takes over: so the port is never free. To be closed soon, for the
    /// port stays taken until then. None where the panel does not listen.
    #[must_use]
    pub fn listening_socket(&self) -> Option<OwnedFd> {
        self.services.socket.handle()
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
        self.services.exported.load(Ordering::Acquire)
    }

    fn spawn(&mut self) {
        let config = Arc::clone(&self.panel_state.borrow().config);
        if config.global.http_port == 0 && config.global.otlp_endpoint.is_none() {
            return;
        }
        let Some(listen_socket) = self.not_started.take() else { return };
        let services = Arc::clone(&self.services);
        let spawned = thread::Builder::new()
            .name(supervision::PANEL.to_owned())
            .spawn(move || run_thread(&services, listen_socket));
        if let Err(why) = spawned {
            self.services.log(Level::Error, format!("panel: cannot start the thread: {why}"));
        }
    }
}

impl Drop for Panel {
    /// The process ends: what it has started ends with it.
    fn drop(&mut self) {
        self.services.routes.lab.interrupt_all();
        self.services.routes.access.close();
        let (history, (sender, stored)) = (Arc::clone(&self.services.history), channel());
        let storing = move || {
            history.flush_and_close();
            let _ = sender.send(());
        };
        // A disk that does not answer must not keep the process.
        if thread::Builder::new().name(supervision::PANEL.to_owned()).spawn(storing).is_ok() {
            let _ = stored.recv_timeout(LAST_WRITE);
        }
    }
}

impl Services {
    fn new(
        args: PanelArgs,
        context: PanelContext,
        control_client: Arc<ControlClient>,
        pools: PoolService,
    ) -> (Services, Option<ListenSocket>) {
        let state_dir = Arc::new(StateDir::new(args.state_dir, args.log));
        let audit_trail = Arc::new(AuditTrail::default());
        audit_trail.record(start_entry(args.takes_over));
        let (live, alerts) = (Arc::new(LiveSampler::new()), Arc::new(AlertRegistry::default()));
        let history = HistoryWriter::new(
            context.clone(),
            Arc::clone(&state_dir),
            Arc::clone(&live),
            Arc::clone(&audit_trail),
        );
        let routes = RouteState {
            pools,
            access: Arc::new(Access::new(args.token_output)),
            audit_log: AuditLog::new(context.clone(), Arc::clone(&audit_trail)),
            audit_trail,
            log: Arc::new(LogReaders::new(args.log_ring)),
            live,
            query_trends: Arc::new(QueryTrends::default()),
            gauges: Arc::new(Gauges::default()),
            metrics: MetricsSource::new(context.clone(), Arc::clone(&control_client), Arc::clone(&alerts)),
            alerts,
            lab: Arc::new(LabRunner::new(args.find_lab, state_dir)),
            control_client,
            context,
        };
        let services = Services {
            routes,
            history: Arc::new(history),
            socket: Arc::new(PanelSocket::default()),
            born_us: us(args.born),
            exported: AtomicBool::new(false),
            wake: args.tell,
        };
        (services, args.listen_socket)
    }

    fn log(&self, level: Level, text: impl Into<String>) {
        self.routes.context.log(level, text);
    }

    /// Exports metrics until the process ends; then says that the last are sent.
    async fn export(self: Arc<Services>) {
        let routes = &self.routes;
        let control_client = Arc::clone(&routes.control_client);
        run_exporter(routes.context.clone(), control_client, routes.metrics.clone(), self.born_us).await;
        self.exported.store(true, Ordering::Release);
        (self.wake)(Input::Tick);
    }
}

/// The tasks of the panel's thread. Each is started again if it panics.
struct Tasks {
    sampling: SupervisedTask,
    exporting: SupervisedTask,
    storing: SupervisedTask,
    watching: SupervisedTask,
    telling: SupervisedTask,
    trends: SupervisedTask,
    /// Sizes of pools and usage of quotas.
    gauging: SupervisedTask,
}

impl Tasks {
    fn new() -> Tasks {
        Tasks {
            sampling: SupervisedTask::new(),
            exporting: SupervisedTask::new(),
            storing: SupervisedTask::new(),
            watching: SupervisedTask::new(),
            telling: SupervisedTask::new(),
            trends: SupervisedTask::new(),
            gauging: SupervisedTask::new(),
        }
    }

    /// Starts and stops what the settings want.
    fn follow(&mut self, services: &Arc<Services>, now: &PanelState) {
        if now.config.global.http_port == 0 {
            self.sampling.stop();
            self.trends.stop();
            self.gauging.stop();
            self.watching.stop();
        } else {
            self.ensure_running(services);
        }
        if !now.is_exiting {
            self.exporting.ensure_running(|| Arc::clone(services).export());
        }
    }

    fn ensure_running(&mut self, services: &Arc<Services>) {
        let RouteState { context, control_client, pools, live, query_trends, gauges, alerts, .. } =
            &services.routes;
        self.trends.ensure_running(|| {
            run_query_trends(context.clone(), Arc::clone(control_client), Arc::clone(query_trends))
        });
        self.gauging
            .ensure_running(|| run_gauges(context.clone(), Arc::clone(control_client), Arc::clone(gauges)));
        self.sampling
            .ensure_running(|| run_sampler(context.clone(), Arc::clone(live), Arc::clone(control_client)));
        self.storing.ensure_running(|| Arc::clone(&services.history).run());
        self.watching.ensure_running(|| {
            run_alert_checks(context.clone(), Arc::clone(live), pools.clone(), Arc::clone(alerts))
        });
        self.telling.ensure_running(|| run_webhook(context.clone(), Arc::clone(alerts)));
    }

    /// One of them has ended.
    async fn ended(&mut self) {
        tokio::select! {
            () = self.exporting.finished() => {}
            () = self.sampling.finished() => {}
            () = self.trends.finished() => {}
            () = self.gauging.finished() => {}
            () = self.storing.finished() => {}
            () = self.watching.finished() => {}
            () = self.telling.finished() => {}
        }
    }
}

fn start_entry(takes_over: bool) -> AuditEntry {
    let kind = if takes_over { AuditKind::Takeover } else { AuditKind::Start };
    AuditEntry { kind, text: concat!("Weir ", env!("CARGO_PKG_VERSION")).to_owned(), ..AuditEntry::default() }
}

/// The thread's main function: restarts after a panic, and returns when the process ends.
fn run_thread(services: &Arc<Services>, mut listen_socket: Option<ListenSocket>) {
    let _ = rustix::process::nice(NICENESS); // Of this thread, and those that it starts.
    let mut backoff = Backoff::default();
    loop {
        let (first, begun) = (listen_socket.take(), Instant::now());
        match catch_unwind(AssertUnwindSafe(|| run(services, first))) {
            Ok(Ok(())) => return,
            Ok(Err(why)) => services.log(Level::Error, format!("panel: cannot start the runtime: {why}")),
            Err(_) => services.log(Level::Error, "panel: thread panicked"),
        }
        let pause = backoff.next(begun.elapsed());
        services.log(Level::Log, format!("panel: restarting the thread in {} s", pause.as_secs()));
        thread::sleep(pause);
    }
}

fn run(services: &Arc<Services>, first: Option<ListenSocket>) -> io::Result<()> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_io().enable_time().thread_name(supervision::PANEL).max_blocking_threads(4);
    let runtime = builder.build()?;
    runtime.block_on(serve(services, first))
}

/// Accepts and serves connections until the process has ended.
async fn serve(services: &Arc<Services>, first: Option<ListenSocket>) -> io::Result<()> {
    let RouteState { context, access, .. } = &services.routes;
    let router = routes::router(&services.routes);
    let mut panel_state = context.watch();
    let socket = Arc::clone(&services.socket);
    let mut listener = PanelListener::new(context.clone(), Arc::clone(access), socket, first)?;
    let mut connections = Connections::new(router);
    let mut tasks = Tasks::new();
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
                reload_access(&services.routes, &now.config.global, &mut tls_acceptor);
            }
            loaded = Some(Arc::clone(&now.config));
        }
        listener.follow(&now);
        tasks.follow(services, &now);
        tokio::select! {
            () = tasks.ended() => {}
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
                    services.log(Level::Error, "panel: request handler panicked; connection closed");
                }
            }
            () = tokio::time::sleep(RETRY), if listener.should_retry() => {}
        }
    }
}

/// Reads http_auth_file and the TLS files again.
fn reload_access(routes: &RouteState, global: &Global, tls_acceptor: &mut Option<TlsAcceptor>) {
    routes.access.reload(global, routes.context.log_writer());
    match listen_socket::tls_acceptor(global) {
        Ok(terms) => *tls_acceptor = terms,
        Err(why) => {
            routes.context.log(Level::Error, format!("panel: TLS setup failed, keeping the old one: {why}"))
        }
    }
}
