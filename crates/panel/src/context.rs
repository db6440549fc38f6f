//! What every part of the panel reads: the configuration in force, how the process stands, and its log.
//! Never holds a service, nor anything of a single request.

use std::sync::Arc;

use settings::Config;
use telemetry::{Level, Record};
use tokio::sync::watch;

/// Writes to the log of the process.
pub type LogWriter = Arc<dyn Fn(Record) + Send + Sync>;

/// How the process stands.
#[derive(Clone, Debug)]
pub(crate) struct PanelState {
    /// In force.
    pub(crate) config: Arc<Config>,
    /// The process is going to end.
    pub(crate) is_shutting_down: bool,
    /// New clients are to go to another process.
    pub(crate) is_draining: bool,
    /// It ends now: what is to be said must be said at once.
    pub(crate) is_exiting: bool,
    /// Another process takes over and wants the port.
    pub(crate) is_handed_over: bool,
}

/// A view of the process, for whoever needs the configuration or the log.
#[derive(Clone)]
pub(crate) struct PanelContext {
    state: watch::Receiver<PanelState>,
    log: LogWriter,
    version: &'static str,
}

impl PanelContext {
    pub(crate) fn new(
        state: watch::Receiver<PanelState>,
        log: LogWriter,
        version: &'static str,
    ) -> PanelContext {
        PanelContext { state, log, version }
    }

    /// The configuration in force.
    pub(crate) fn config(&self) -> Arc<Config> {
        Arc::clone(&self.state.borrow().config)
    }

    /// The process is going to end.
    pub(crate) fn is_shutting_down(&self) -> bool {
        self.state.borrow().is_shutting_down
    }

    /// New clients are to go to another process.
    pub(crate) fn is_draining(&self) -> bool {
        self.state.borrow().is_draining
    }

    /// Another process takes over.
    pub(crate) fn is_handed_over(&self) -> bool {
        self.state.borrow().is_handed_over
    }

    /// Follows how the process stands.
    pub(crate) fn watch(&self) -> watch::Receiver<PanelState> {
        self.state.clone()
    }

    /// As SHOW VERSION has it.
    pub(crate) fn version(&self) -> &'static str {
        self.version
    }

    /// Writes a line to the log of the process.
    pub(crate) fn log(&self, level: Level, text: impl Into<String>) {
        self.write(Record::new(level, text.into()));
    }

    /// Writes a record to the log of the process.
    pub(crate) fn write(&self, record: Record) {
        (self.log)(record);
    }

    /// What writes to the log of the process.
    pub(crate) fn log_writer(&self) -> &LogWriter {
        &self.log
    }
}
