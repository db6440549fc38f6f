//! The control thread's loop: passes inputs to [`Control`] and executes its outputs.
//! Owns the clock and the queue of inputs.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use changes::Changes;
use control::{Control, Input, Output, ProcessInfo, TakeoverEvent};
use fleetagent::FleetAgent;
use hostprobe::HostProbe;
use messages::{Command, Drain, FleetPoolsError, Listing, Report, RequestId, ShardId, Subject};
use panel::Panel;
use patroni::Patroni;
use quotaquery::QuotaQuery;
use settings::Config;
use telemetry::{Level, Record};
use usage::Usage;
use waitsampling::WaitSampling;

use crate::files::{Source, with_files};
use crate::logging::Logger;
use crate::pools_file;
use crate::quotas_file;
use crate::service_manager::ServiceManager;
use crate::tls::TlsConfigLog;

/// The shards' threads, as the control thread sees them.
pub(crate) trait Shards {
    /// Sends a command to a shard.
    fn send(&self, shard: ShardId, command: Command);
    /// Closes the TCP listeners for good.
    fn close_tcp(&self);
    /// Rows of views that no shard has.
    fn inspect(&self, subject: Subject) -> Listing;
    /// Hands over to the process that waits on this channel, with the panel's listening socket; the outcome is an input.
    fn hand_over(
        &self,
        line: &str,
        note: String,
        panel: Option<OwnedFd>,
        timeout: Duration,
    ) -> std::io::Result<()>;
    /// Forwards a cancel request for an unknown key to the predecessor.
    fn cancel_at_predecessor(&self, key: &[u8]);
    /// Resumes one database, or all, in the predecessor.
    fn resume_predecessor(&self, database: Option<&str>);
}

/// Why nothing can be asked of other nodes.
const NO_FLEET: &str = "this process is not a node of a fleet (setting fleet)";

/// The loop of a running process.
pub(crate) struct ControlLoop<C> {
    control: Control,
    shards: C,
    logger: Arc<Logger>,
    tls: TlsConfigLog,
    source: Source,
    inputs: Receiver<Input>,
    manager: ServiceManager,
    panel: Option<Panel>,
    patroni: Option<Patroni>,
    changes: Option<Changes>,
    usage: Option<Usage>,
    quota_query: Option<QuotaQuery>,
    wait_sampling: Option<WaitSampling>,
    host_probe: Option<HostProbe>,
    fleet: Option<FleetAgent>,
    born: Instant,
}

impl<C: Shards> ControlLoop<C> {
    /// A loop for shards that are running.
    pub(crate) fn new(
        config: Arc<Config>,
        facts: ProcessInfo,
        shards: C,
        logger: Arc<Logger>,
        tls: TlsConfigLog,
        source: Source,
        inputs: Receiver<Input>,
    ) -> ControlLoop<C> {
        let control = Control::new(config, facts, 0);
        let manager = ServiceManager::default();
        ControlLoop {
            control,
            shards,
            logger,
            tls,
            source,
            inputs,
            manager,
            panel: None,
            patroni: None,
            changes: None,
            usage: None,
            quota_query: None,
            wait_sampling: None,
            host_probe: None,
            fleet: None,
            born: Instant::now(),
        }
    }

    /// Notifies the service manager of readiness, and of later state changes.
    pub(crate) fn report_to(&mut self, manager: ServiceManager, takes_over: bool) {
        self.manager = manager;
        self.manager.ready(takes_over);
    }

    /// Attaches the panel.
    pub(crate) fn serve_panel(&mut self, panel: Panel) {
        panel.set_draining(self.control.is_draining());
        self.panel = Some(panel);
    }

    /// Attaches the thread that asks Patroni.
    pub(crate) fn follow_patroni(&mut self, patroni: Patroni) {
        self.patroni = Some(patroni);
    }

    /// Attaches the thread that follows the changes of primaries.
    pub(crate) fn follow_changes(&mut self, changes: Changes) {
        self.changes = Some(changes);
    }

    /// Attaches the threads that look at quotas and keep what was used.
    pub(crate) fn keep_usage(&mut self, usage: Usage) {
        self.usage = Some(usage);
    }

    /// Attaches the thread that asks PostgreSQL what quotas need to know.
    pub(crate) fn ask_for_quotas(&mut self, quota_query: QuotaQuery) {
        self.quota_query = Some(quota_query);
    }

    /// Attaches the thread that asks what servers wait for.
    pub(crate) fn sample_waits(&mut self, wait_sampling: WaitSampling) {
        self.wait_sampling = Some(wait_sampling);
    }

    /// Attaches the thread that asks hosts what they are.
    pub(crate) fn probe_hosts(&mut self, mut host_probe: HostProbe) {
        host_probe.pause(&self.control.paused());
        self.host_probe = Some(host_probe);
    }

    /// Tells a shard, and before it the probe of hosts what concerns these, too.
    fn tell(&mut self, shard: ShardId, command: Command) {
        match (&mut self.host_probe, &command) {
            (Some(probe), Command::Pause { .. } | Command::Kill { .. } | Command::Resume { .. }) => {
                probe.pause(&self.control.paused());
            }
            (Some(probe), Command::Reconnect { database }) => probe.forget(database.as_deref()),
            _ => {}
        }
        self.shards.send(shard, command);
    }

    /// Attaches the thread that takes part in a fleet.
    pub(crate) fn take_part_in_fleet(&mut self, fleet: Option<FleetAgent>) {
        fleet.iter().for_each(|fleet| fleet.set_draining(self.control.is_draining()));
        self.fleet = fleet;
    }

    /// The thread that takes part in a fleet, to be stopped when all connections are closed.
    pub(crate) fn fleet(&self) -> Option<FleetAgent> {
        self.fleet.clone()
    }

    /// The threads of quotas: the one that stores is to be stopped when all that is counted was counted.
    pub(crate) fn usage(&self) -> Option<Usage> {
        self.usage.clone()
    }

    /// Runs until shutdown; returns the shards, to be stopped.
    pub(crate) fn run(mut self) -> C {
        loop {
            let wait = Duration::from_micros(self.control.deadline().saturating_sub(self.now_us()));
            let input = match self.inputs.recv_timeout(wait) {
                Ok(input) => input,
                Err(RecvTimeoutError::Timeout) => Input::Tick,
                // Every sender is gone: signals and shards.
                Err(RecvTimeoutError::Disconnected) => return self.shards,
            };
            if self.take(input) {
                self.flush_metrics();
                return self.shards;
            }
        }
    }

    /// Exports the last metrics if a collector is configured: their data comes from this thread. A second shutdown signal ends
    /// the wait.
    fn flush_metrics(&mut self) {
        if !self.panel.as_ref().is_some_and(Panel::exit) {
            return;
        }
        let deadline = Instant::now() + panel::LAST_EXPORT;
        while !self.panel.as_ref().is_some_and(Panel::has_exported) {
            let Some(rest) = deadline.checked_duration_since(Instant::now()) else { return };
            match self.inputs.recv_timeout(rest) {
                Ok(Input::Signal(_)) | Err(_) => return,
                Ok(input) => _ = self.take(input),
            }
        }
    }

    /// Handles one input and its consequences; true to exit.
    fn take(&mut self, input: Input) -> bool {
        let (mut next, mut waiting) = (Some(input), VecDeque::new());
        while let Some(input) = next.take() {
            let now_us = self.now_us();
            let is_loaded = matches!(input, Input::Loaded(_));
            if let Input::Takeover(what) = &input {
                let has_left = matches!(what, TakeoverEvent::Begun | TakeoverEvent::Over);
                self.manager.set_handed_over(has_left);
                self.panel.iter().for_each(|panel| panel.set_handed_over(has_left));
                if !matches!(what, TakeoverEvent::Resumed { .. }) {
                    self.usage.iter().for_each(|usage| usage.set_handed_over(has_left));
                    self.fleet.iter().filter(|_| !has_left).for_each(FleetAgent::take_back);
                }
            }
            self.control.handle(input, now_us);
            let mut later = Vec::new();
            while let Some(output) = self.control.poll() {
                match output {
                    Output::Exit => {
                        self.manager.stopping();
                        return true;
                    }
                    output => match self.act(output) {
                        // The steps of a change of pools are not interleaved with other inputs.
                        Some(
                            step @ (Input::PoolsRead(_) | Input::PoolsWritten(_) | Input::QuotaChanged(_)),
                        ) => waiting.push_front(step),
                        follows => later.extend(follows),
                    },
                }
            }
            if is_loaded {
                self.manager.ready(false);
            }
            waiting.extend(later);
            next = waiting.pop_front();
        }
        false
    }

    /// Executes one output; returns an input that follows at once.
    fn act(&mut self, output: Output) -> Option<Input> {
        match output {
            Output::Tell { shard, command } => self.tell(shard, command),
            Output::List { request, subject } => {
                let rows = self.inspect(subject);
                return Some(Input::Report(Report::Listing { request, shard: ShardId(0), rows, last: true }));
            }
            Output::PanelReply { id, parts, last } => {
                if let Some(panel) = &self.panel {
                    panel.reply_received(id, parts, last);
                }
            }
            Output::Log(record) => self.logger.write(&record),
            Output::Operated(operation) => {
                if let Some(panel) = &self.panel {
                    panel.operated(operation);
                }
            }
            Output::Load => {
                self.manager.reloading();
                return Some(Input::Loaded(self.source.reload(self.control.config())));
            }
            Output::ReadFiles(config) => return Some(Input::FilesRead(with_files(*config))),
            Output::ReadPools { path } => return Some(Input::PoolsRead(pools_file::read(&path))),
            Output::WritePools { path, bytes } => {
                let outcome = pools_file::write(&path, &bytes, &self.source, self.control.config());
                return Some(Input::PoolsWritten(outcome));
            }
            Output::ChangeQuota { path, line } => {
                return Some(Input::QuotaChanged(quotas_file::change(&path, &line)));
            }
            Output::PoolReply { id, answer } => {
                if let Some(panel) = &self.panel {
                    panel.pools_changed(id, *answer);
                }
            }
            Output::ServerReply { id, facts } => {
                self.panel.iter().for_each(|panel| panel.server_answered(id, facts.clone()));
            }
            Output::Explained { id, outcome } => {
                if let Some(panel) = &self.panel {
                    panel.explained(id, outcome);
                }
            }
            Output::Configured(config) => self.configure(&config),
            Output::Switchover(switchover) => {
                if let Some(patroni) = &self.patroni {
                    patroni.switch_over(switchover);
                }
            }
            Output::ReopenLog => self.log_reopen_error(self.logger.reopen()),
            Output::CloseTcp => {
                self.manager.stopping();
                self.panel.iter().for_each(Panel::begin_shutdown);
                self.shards.close_tcp();
            }
            Output::HandOver { line, note } => return self.hand_over(&line, note),
            output @ (Output::OrderDrain { .. }
            | Output::Draining(_)
            | Output::ChangeFleetPools { .. }
            | Output::FleetPoolsInUse(_)
            | Output::AwaitFleetPools { .. }
            | Output::ForgetFleetPools(_)) => return self.act_in_fleet(output),
            Output::StrayCancel { key } => self.shards.cancel_at_predecessor(&key),
            Output::ResumePredecessor { database } => self.shards.resume_predecessor(database.as_deref()),
            Output::Exit => {}
        }
        None
    }

    /// What concerns the other nodes of the fleet; the answer, if it is known at once.
    fn act_in_fleet(&self, output: Output) -> Option<Input> {
        match output {
            Output::OrderDrain { request, node, order } => return self.order_drain(request, node, order),
            Output::Draining(is_draining) => {
                self.panel.iter().for_each(|panel| panel.set_draining(is_draining));
                self.fleet.iter().for_each(|fleet| fleet.set_draining(is_draining));
            }
            Output::ChangeFleetPools { base, pools } => match &self.fleet {
                Some(fleet) => fleet.change_pools(base, pools),
                None => {
                    let why = FleetPoolsError::Failed(NO_FLEET.to_owned());
                    return Some(Input::FleetPoolsChanged(Err(why)));
                }
            },
            Output::FleetPoolsInUse(in_use) => {
                self.fleet.iter().for_each(|fleet| fleet.set_pools_in_use(in_use.clone()));
            }
            Output::AwaitFleetPools { request, revision, wait } => {
                if let Some(fleet) = &self.fleet {
                    fleet.await_pools(request, revision, wait);
                }
            }
            Output::ForgetFleetPools(request) => {
                self.fleet.iter().for_each(|fleet| fleet.forget_pools(request));
            }
            _ => {}
        }
        None
    }

    /// The answer, if it is known at once.
    fn order_drain(&self, request: RequestId, node: String, order: Drain) -> Option<Input> {
        let Some(fleet) = &self.fleet else {
            return Some(Input::DrainOrdered { request, result: Err(NO_FLEET.to_owned()) });
        };
        fleet.order_drain(request, node, order);
        None
    }

    /// Rows of views that no shard has.
    fn inspect(&self, subject: Subject) -> Listing {
        let fleet = self.fleet.as_ref();
        match subject {
            Subject::FleetNodes => Listing::FleetNodes(fleet.map(FleetAgent::nodes).unwrap_or_default()),
            Subject::FleetLimits => Listing::FleetLimits(fleet.map(FleetAgent::limits).unwrap_or_default()),
            Subject::FleetBudgets => {
                Listing::FleetBudgets(fleet.map(FleetAgent::budgets).unwrap_or_default())
            }
            Subject::ProbedHosts => {
                Listing::Clusters(self.host_probe.as_ref().map(HostProbe::rows).unwrap_or_default())
            }
            subject => self.shards.inspect(subject),
        }
    }

    /// Another configuration is in force.
    fn configure(&mut self, config: &Arc<Config>) {
        self.log_reopen_error(self.logger.configure(&config.global));
        self.tls.configure(config, &self.logger);
        self.panel.iter_mut().for_each(|panel| panel.configure(config));
        self.patroni.iter_mut().for_each(|patroni| patroni.configure(config));
        self.changes.iter_mut().for_each(|changes| changes.configure(config));
        self.usage.iter().for_each(|usage| usage.configure(config));
        self.quota_query.iter_mut().for_each(|query| query.configure(config));
        self.wait_sampling.iter_mut().for_each(|sampling| sampling.configure(config));
        let paused = self.control.paused();
        self.host_probe.iter_mut().for_each(|probe| probe.configure(config, &paused));
        self.fleet.iter().for_each(|fleet| fleet.configure(config));
    }

    fn hand_over(&self, line: &str, mut note: String) -> Option<Input> {
        note.extend(self.fleet.as_ref().map(FleetAgent::hand_over));
        let timeout = crate::takeover::timeout(self.control.config());
        let panel = self.panel.as_ref().and_then(Panel::listening_socket);
        let fault = self.shards.hand_over(line, note, panel, timeout).err()?;
        Some(Input::Takeover(TakeoverEvent::Failed(fault.to_string())))
    }

    /// Imports the predecessor's state; to be called before any of its connections arrive.
    pub(crate) fn inherit(&mut self, note: &str) -> &C {
        self.control.import(note);
        while let Some(output) = self.control.poll() {
            self.act(output);
        }
        &self.shards
    }

    /// At a start without a predecessor.
    pub(crate) fn begin(&mut self) {
        self.control.begin();
        while let Some(output) = self.control.poll() {
            self.act(output);
        }
    }

    fn log_reopen_error(&self, outcome: std::io::Result<()>) {
        if let Err(fault) = outcome {
            let text = format!("cannot open the log file, keeping the previous one: {fault}");
            self.logger.write(&Record::new(Level::Error, text));
        }
    }

    fn now_us(&self) -> u64 {
        u64::try_from(self.born.elapsed().as_micros()).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use control::Signal;
    use messages::{AdminQuery, ReplyPart, Role};
    use std::sync::Mutex;
    use std::sync::mpsc::channel;

    #[derive(Default)]
    struct RecordedCommands(Mutex<Vec<Command>>);

    impl Shards for RecordedCommands {
        fn send(&self, _: ShardId, command: Command) {
            self.0.lock().unwrap().push(command);
        }
        fn close_tcp(&self) {}
        fn inspect(&self, _: Subject) -> Listing {
            Listing::Hosts(Vec::new())
        }
        fn hand_over(&self, _: &str, _: String, _: Option<OwnedFd>, _: Duration) -> std::io::Result<()> {
            Err(std::io::ErrorKind::Unsupported.into())
        }
        fn cancel_at_predecessor(&self, _: &[u8]) {}
        fn resume_predecessor(&self, _: Option<&str>) {}
    }

    fn control_loop(file: &str, inputs: Vec<Input>) -> ControlLoop<RecordedCommands> {
        let (sender, receiver) = channel();
        inputs.into_iter().for_each(|input| sender.send(input).unwrap());
        let source = Source { file: file.to_owned(), flags: Vec::new() };
        let facts = ProcessInfo { shards: 1, io_driver: "epoll" };
        let logger = Arc::new(Logger::new(false));
        let Ok(tls) = TlsConfigLog::begin(&Config::default(), &logger) else { panic!("no terms") };
        ControlLoop::new(Arc::default(), facts, RecordedCommands::default(), logger, tls, source, receiver)
    }

    #[test]
    fn a_signal_ends_it() {
        let shards = control_loop(
            "x.ini",
            vec![Input::Signal(Signal::Usr1), Input::Signal(Signal::Quit), Input::Tick],
        )
        .run();
        assert_eq!(shards.0.lock().unwrap().len(), 1, "the pause was told before the end");
    }

    #[test]
    fn an_unreadable_file_is_no_reload() {
        let query = AdminQuery {
            shard: ShardId(0),
            client: 1,
            client_id: 1,
            sender: messages::ConsoleClient::default(),
            role: Role::Admin,
            sql: "reload".to_owned(),
            parameters: None,
            mode: messages::StatementMode::Run,
        };
        let shards = control_loop("/nonexistent/x.ini", vec![Input::Report(Report::Query(query))]).run();
        let told = shards.0.lock().unwrap();
        let [Command::Reply(reply)] = &told[..] else { panic!("{told:?}") };
        assert!(matches!(&reply.parts[..], [ReplyPart::Error { sqlstate: "F0000", .. }]));
    }
}
