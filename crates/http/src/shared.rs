//! What all requests share: the bridge, the configuration in force, who may come in.
//! Never holds anything of a single request.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use control::Input;
use settings::Config;
use telemetry::{Level, Record};
use tokio::sync::{Semaphore, watch};

use crate::access::Access;
use crate::alerts::Board;
use crate::bridge::{Bridge, Log};
use crate::entrance::PanelSocket;
use crate::journal::Journal;
use crate::lab::Lab;
use crate::live::Live;
use crate::pools_desk::{PoolsDesk, Tell};
use crate::query_trends::QueryTrends;
use crate::state_dir::StateDir;
use crate::trail::Trail;

/// Handed to every route.
pub(crate) struct Shared {
    pub(crate) bridge: Bridge,
    pub(crate) pools: PoolsDesk,
    pub(crate) access: Arc<Access>,
    pub(crate) situation: watch::Receiver<Situation>,
    pub(crate) log: Log,
    /// The end of it.
    pub(crate) journal: Arc<Journal>,
    /// Room for those who follow it.
    pub(crate) log_readers: Arc<Semaphore>,
    pub(crate) live: Live,
    pub(crate) query_trends: QueryTrends,
    pub(crate) alerts: Board,
    /// Who did what.
    pub(crate) trail: Trail,
    /// What outlives the process.
    pub(crate) state: Arc<StateDir>,
    pub(crate) lab: Arc<Lab>,
    /// What a process that takes over is handed.
    pub(crate) socket: Arc<PanelSocket>,
    /// When the process began to count, in microseconds since 1970.
    pub(crate) born_us: u64,
    /// Told when the exporter has nothing more to do.
    pub(crate) exported: Exported,
    /// As SHOW VERSION has it.
    pub(crate) version: &'static str,
}

/// A flag that the control thread's loop looks at, and what wakes it for that.
pub(crate) struct Exported {
    pub(crate) flag: Arc<AtomicBool>,
    pub(crate) tell: Tell,
}

/// How the state of a route is extracted.
pub(crate) type State = axum::extract::State<Arc<Shared>>;

/// What the process has last said of itself.
#[derive(Clone, Debug)]
pub(crate) struct Situation {
    /// In force.
    pub(crate) config: Arc<Config>,
    /// The process is going to end.
    pub(crate) is_ending: bool,
    /// It ends now: what is to be said must be said at once.
    pub(crate) is_over: bool,
    /// Another process takes over and wants the port.
    pub(crate) has_left: bool,
}

impl Shared {
    /// The configuration in force.
    pub(crate) fn config(&self) -> Arc<Config> {
        Arc::clone(&self.situation.borrow().config)
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
