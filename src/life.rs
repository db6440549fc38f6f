//! The control thread's loop: what happens goes into [`Control`], what it wants done is done here.
//! Owns the clock and the queue of inputs. Never decides anything.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use control::{Control, Facts, Input, Output, Succession};
use http::Panel;
use messages::{Command, Listing, Report, ShardId, Subject};
use settings::Config;
use telemetry::{Level, Record};

use crate::files::{Source, with_files};
use crate::logging::Logger;
use crate::pools_file;
use crate::service_manager::ServiceManager;
use crate::tls::TlsNews;

/// The shards' threads, as the control thread sees them.
pub(crate) trait Crew {
    /// Writes to a shard.
    fn tell(&self, shard: ShardId, command: Command);
    /// Closes the TCP listeners for good.
    fn close_tcp(&self);
    /// Rows about what no shard knows.
    fn inspect(&self, subject: Subject) -> Listing;
    /// Hands over to the process that waits at this line, the panel's listening socket too; what comes of it is an input.
    fn hand_over(
        &self,
        line: &str,
        note: String,
        panel: Option<OwnedFd>,
        patience: Duration,
    ) -> std::io::Result<()>;
    /// Asks the process before this one to cancel what nobody here runs.
    fn cancel_at_predecessor(&self, key: &[u8]);
    /// Undoes what is still paused in the process before this one: one database, or all.
    fn resume_predecessor(&self, database: Option<&str>);
}

/// A running process.
pub(crate) struct Life<C> {
    control: Control,
    crew: C,
    logger: Arc<Logger>,
    tls: TlsNews,
    source: Source,
    inputs: Receiver<Input>,
    manager: ServiceManager,
    panel: Option<Panel>,
    born: Instant,
}

impl<C: Crew> Life<C> {
    /// A process whose shards run already.
    pub(crate) fn new(
        config: Arc<Config>,
        facts: Facts,
        crew: C,
        logger: Arc<Logger>,
        tls: TlsNews,
        source: Source,
        inputs: Receiver<Input>,
    ) -> Life<C> {
        let control = Control::new(config, facts, console::parse, 0);
        let manager = ServiceManager::default();
        Life { control, crew, logger, tls, source, inputs, manager, panel: None, born: Instant::now() }
    }

    /// Tells the service manager that clients can come, and from now on what it has to know.
    pub(crate) fn report_to(&mut self, manager: ServiceManager, takes_over: bool) {
        self.manager = manager;
        self.manager.ready(takes_over);
    }

    /// From now on the panel is told what it has to know.
    pub(crate) fn serve_panel(&mut self, panel: Panel) {
        self.panel = Some(panel);
    }

    /// Runs until the process is to end; gives the crew back, to be dismissed.
    pub(crate) fn run(mut self) -> C {
        loop {
            let wait = Duration::from_micros(self.control.deadline().saturating_sub(self.now_us()));
            let input = match self.inputs.recv_timeout(wait) {
                Ok(input) => input,
                Err(RecvTimeoutError::Timeout) => Input::Tick,
                // Nobody is left who could say anything: not the signals, not the shards.
                Err(RecvTimeoutError::Disconnected) => return self.crew,
            };
            if self.take(input) {
                self.farewell();
                return self.crew;
            }
        }
    }

    /// The last metrics go out if somebody collects them: what they are made of is asked of this thread. Whoever says again
    /// that the process is to end is not kept waiting.
    fn farewell(&mut self) {
        if !self.panel.as_ref().is_some_and(Panel::is_over) {
            return;
        }
        let deadline = Instant::now() + http::LAST_EXPORT;
        while !self.panel.as_ref().is_some_and(Panel::has_exported) {
            let Some(rest) = deadline.checked_duration_since(Instant::now()) else { return };
            match self.inputs.recv_timeout(rest) {
                Ok(Input::Signal(_)) | Err(_) => return,
                Ok(input) => _ = self.take(input),
            }
        }
    }

    /// One input and everything that follows from it; true if that is the end.
    fn take(&mut self, input: Input) -> bool {
        let (mut next, mut waiting) = (Some(input), VecDeque::new());
        while let Some(input) = next.take() {
            let now_us = self.now_us();
            let is_loaded = matches!(input, Input::Loaded(_));
            if let Input::Succession(what) = &input {
                let has_left = matches!(what, Succession::Begun | Succession::Over);
                self.manager.leave_it(has_left);
                self.panel.iter().for_each(|panel| panel.leave(has_left));
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
                        // Between the steps of a change of pools nothing else happens.
                        Some(step @ (Input::PoolsRead(_) | Input::PoolsWritten(_))) => {
                            waiting.push_front(step)
                        }
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

    /// Does one thing; what it leads to at once is returned.
    fn act(&mut self, output: Output) -> Option<Input> {
        match output {
            Output::Tell { shard, command } => self.crew.tell(shard, command),
            Output::List { request, subject } => {
                let rows = self.crew.inspect(subject);
                return Some(Input::Report(Report::Listing { request, shard: ShardId(0), rows, last: true }));
            }
            Output::Answer { id, parts, last } => {
                if let Some(panel) = &self.panel {
                    panel.answered(id, parts, last);
                }
            }
            Output::Log(record) => self.logger.write(&record),
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
            Output::PoolAnswer { id, answer } => {
                if let Some(panel) = &self.panel {
                    panel.pools_changed(id, *answer);
                }
            }
            Output::ServerAnswer { id, facts } => {
                if let Some(panel) = &self.panel {
                    panel.server_answered(id, facts);
                }
            }
            Output::Configured(config) => {
                self.tell_of_log(self.logger.configure(&config.global));
                self.tls.configure(&config, &self.logger);
                self.panel.iter_mut().for_each(|panel| panel.configure(&config));
            }
            Output::ReopenLog => self.tell_of_log(self.logger.reopen()),
            Output::CloseTcp => {
                self.manager.stopping();
                self.panel.iter().for_each(Panel::is_ending);
                self.crew.close_tcp();
            }
            Output::HandOver { line, note } => return self.hand_over(&line, note),
            Output::StrayCancel { key } => self.crew.cancel_at_predecessor(&key),
            Output::ResumePredecessor { database } => self.crew.resume_predecessor(database.as_deref()),
            Output::Exit => {}
        }
        None
    }

    fn hand_over(&self, line: &str, note: String) -> Option<Input> {
        let patience = crate::takeover::patience(self.control.config());
        let panel = self.panel.as_ref().and_then(Panel::listening_socket);
        let fault = self.crew.hand_over(line, note, panel, patience).err()?;
        Some(Input::Succession(Succession::Failed(fault.to_string())))
    }

    /// Takes over what the process before has said of itself; to be called before anything of it comes in.
    pub(crate) fn inherit(&mut self, note: &str) -> &C {
        self.control.inherit(note);
        while let Some(output) = self.control.poll() {
            self.act(output);
        }
        &self.crew
    }

    fn tell_of_log(&self, outcome: std::io::Result<()>) {
        if let Err(fault) = outcome {
            let text = format!("cannot open the log file, the one before stays: {fault}");
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
    struct Told(Mutex<Vec<Command>>);

    impl Crew for Told {
        fn tell(&self, _: ShardId, command: Command) {
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

    fn life(file: &str, inputs: Vec<Input>) -> Life<Told> {
        let (sender, receiver) = channel();
        inputs.into_iter().for_each(|input| sender.send(input).unwrap());
        let source = Source { file: file.to_owned(), flags: Vec::new() };
        let facts = Facts { shards: 1, io_driver: "epoll" };
        let logger = Arc::new(Logger::new(false));
        let Ok(tls) = TlsNews::begin(&Config::default(), &logger) else { panic!("no terms") };
        Life::new(Arc::default(), facts, Told::default(), logger, tls, source, receiver)
    }

    #[test]
    fn a_signal_ends_it() {
        let crew =
            life("x.ini", vec![Input::Signal(Signal::Usr1), Input::Signal(Signal::Quit), Input::Tick]).run();
        assert_eq!(crew.0.lock().unwrap().len(), 1, "the pause was told before the end");
    }

    #[test]
    fn an_unreadable_file_is_no_reload() {
        let query = AdminQuery {
            shard: ShardId(0),
            client: 1,
            client_id: 1,
            role: Role::Admin,
            sql: "reload".to_owned(),
            parameters: None,
            mode: messages::StatementMode::Run,
        };
        let crew = life("/nonexistent/x.ini", vec![Input::Report(Report::Query(query))]).run();
        let told = crew.0.lock().unwrap();
        let [Command::Reply(reply)] = &told[..] else { panic!("{told:?}") };
        assert!(matches!(&reply.parts[..], [ReplyPart::Error { sqlstate: "F0000", .. }]));
    }
}
