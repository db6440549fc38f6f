//! What all requests share: the control client, the configuration in force, access.
//! Never holds anything of a single request.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use control::Input;
use settings::Config;
use telemetry::{Level, Record};
use tokio::sync::{Semaphore, watch};

use crate::access::Access;
use crate::alerts::AlertRegistry;
use crate::audit_trail::AuditTrail;
use crate::control_client::{ControlClient, LogWriter};
use crate::lab::LabRunner;
use crate::listener::PanelSocket;
use crate::live::LiveSampler;
use crate::log_ring::LogRing;
use crate::pools_client::{PoolsClient, SendInput};
use crate::query_trends::QueryTrends;
use crate::state_dir::StateDir;

/// Handed to every route.
pub(crate) struct Shared {
    pub(crate) control_client: ControlClient,
    pub(crate) pools: PoolsClient,
    pub(crate) access: Arc<Access>,
    pub(crate) panel_state: watch::Receiver<PanelState>,
    pub(crate) log: LogWriter,
    /// The end of it.
    pub(crate) log_ring: Arc<LogRing>,
    /// Limits the readers that follow it.
    pub(crate) log_readers: Arc<Semaphore>,
    pub(crate) live: LiveSampler,
    pub(crate) query_trends: QueryTrends,
    pub(crate) alerts: AlertRegistry,
    /// Logins, changes and commands.
    pub(crate) audit_trail: AuditTrail,
    /// What outlives the process.
    pub(crate) state: Arc<StateDir>,
    pub(crate) lab: Arc<LabRunner>,
    /// What a process that takes over is handed.
    pub(crate) socket: Arc<PanelSocket>,
    /// When the process began to count, in microseconds since 1970.
    pub(crate) born_us: u64,
    /// Notified when the exporter has finished.
    pub(crate) exported: Exported,
    /// As SHOW VERSION has it.
    pub(crate) version: &'static str,
}

/// A flag that the control thread's loop looks at, and what wakes it for that.
pub(crate) struct Exported {
    pub(crate) flag: Arc<AtomicBool>,
    pub(crate) tell: SendInput,
}

/// How the state of a route is extracted.
pub(crate) type State = axum::extract::State<Arc<Shared>>;

/// What the process has last said of itself.
#[derive(Clone, Debug)]
pub(crate) struct PanelState {
    /// In force.
    pub(crate) config: Arc<Config>,
    /// The process is going to end.
    pub(crate) is_shutting_down: bool,
    /// It ends now: what is to be said must be said at once.
    pub(crate) is_exiting: bool,
    /// Another process takes over and wants the port.
    pub(crate) is_handed_over: bool,
}

impl Shared {
    /// The configuration in force.
    pub(crate) fn config(&self) -> Arc<Config> {
        Arc::clone(&self.panel_state.borrow().config)
    }

    /// The exporter of metrics has sent its last, or will send nothing.
    pub(crate) fn has_exported(&self) {
        self.exported.flag.store(true, Ordering::Release);
        (self.exported.tell)(Input::Tick);
    }

    /// Writes a line to the log of the process.
    pub(crate) fn log(&self, level: Level, text: impl Into<String>) {
        (self.log)(Record::new(level, text.into()));
    }
}
