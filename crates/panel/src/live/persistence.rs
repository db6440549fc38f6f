//! Keeps the history and the audit trail in their file, as long as this process is the one that serves the panel.
//! Owns when it is written and which process has it during a takeover. Never lets a sample wait for the disk.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use telemetry::Level;
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use crate::audit_trail::{AuditTrail, MAX_ENTRIES};
use crate::context::PanelContext;
use crate::live::LiveSampler;
use crate::live::store::{Opened, Stored};
use crate::state_dir::StateDir;
use crate::time::now_us;

/// How often it is written: a process that is killed loses no more than this.
const PERIOD: Duration = Duration::from_secs(5);

/// A file that another process has is tried again after this.
const RETRY: Duration = Duration::from_millis(500);

/// In `state_dir`.
const FILE: &str = "history.redb";

/// What is kept, and where.
pub(crate) struct HistoryWriter {
    context: PanelContext,
    state_dir: Arc<StateDir>,
    live: Arc<LiveSampler>,
    audit_trail: Arc<AuditTrail>,
}

enum Outcome {
    Open,
    Busy,
    None,
}

impl HistoryWriter {
    pub(crate) fn new(
        context: PanelContext,
        state_dir: Arc<StateDir>,
        live: Arc<LiveSampler>,
        audit_trail: Arc<AuditTrail>,
    ) -> HistoryWriter {
        HistoryWriter { context, state_dir, live, audit_trail }
    }

    /// Reads what is stored, then writes what is new, again and again; leaves the file to a process that takes over.
    pub(crate) async fn run(self: Arc<HistoryWriter>) {
        let state_dir = Arc::clone(&self.state_dir);
        let found = spawn_blocking(move || state_dir.file(FILE)).await.ok().flatten();
        let Some(path) = found else { return std::future::pending().await };
        let mut panel_state = self.context.watch();
        let mut is_logged = false;
        loop {
            let is_handed_over = panel_state.borrow_and_update().is_handed_over;
            let writer = Arc::clone(&self);
            let pause = match (is_handed_over, self.live.store.is_open()) {
                (true, true) => {
                    let _ = spawn_blocking(move || writer.flush_and_close()).await;
                    PERIOD
                }
                (true, false) => PERIOD,
                (false, true) => {
                    let _ = spawn_blocking(move || writer.write()).await;
                    PERIOD
                }
                (false, false) => {
                    let path = path.clone();
                    match spawn_blocking(move || writer.open(&path, is_logged)).await {
                        Ok(Outcome::Open) => PERIOD,
                        Ok(Outcome::Busy) => {
                            is_logged = true;
                            RETRY
                        }
                        Ok(Outcome::None) | Err(_) => return std::future::pending().await,
                    }
                }
            };
            tokio::select! {
                () = sleep(pause) => {}
                changed = panel_state.changed() => if changed.is_err() { return },
            }
        }
    }

    /// Writes what is new and closes the file: the process ends, or another takes over.
    pub(crate) fn flush_and_close(&self) {
        if self.live.store.is_open() {
            self.write();
            self.live.store.close();
        }
    }

    fn write(&self) {
        let (rows, begins) = self.live.history().unsaved();
        let audit_trail = self.audit_trail.unsaved();
        if rows.is_empty() && audit_trail.is_empty() {
            return;
        }
        if let Err(why) = self.live.store.write(&rows, begins, &audit_trail, MAX_ENTRIES as u64) {
            // What was read from the file stays in memory; closed, it is opened and looked at again.
            self.live.store.close();
            self.live.history().mark_unsaved();
            self.audit_trail.mark_unsaved();
            self.context.log(Level::Warning, format!("panel: cannot write {FILE}: {why}; retrying"));
        }
    }

    fn open(&self, path: &Path, is_logged: bool) -> Outcome {
        match self.live.store.open(path) {
            Opened::Yes(Stored { rows, audit_trail }) => {
                self.live.history().restore(rows, now_us() / 1_000_000);
                self.audit_trail.restore(audit_trail);
                Outcome::Open
            }
            Opened::Recreated(why, aside) => {
                let aside = aside.display();
                let text = format!(
                    "panel: {FILE} cannot be read ({why}): renamed to \"{aside}\"; starting a new history"
                );
                self.context.log(Level::Warning, text);
                Outcome::Open
            }
            Opened::Busy => {
                if !is_logged {
                    let text = format!("panel: another process has \"{}\"; retrying", path.display());
                    self.context.log(Level::Log, text);
                }
                Outcome::Busy
            }
            Opened::No(why) => {
                let text = format!(
                    "panel: cannot open \"{}\": {why}; history ends with this process",
                    path.display()
                );
                self.context.log(Level::Warning, text);
                Outcome::None
            }
        }
    }
}
