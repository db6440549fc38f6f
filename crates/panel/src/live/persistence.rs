//! Keeps the history and the audit trail in their file, as long as this process is the one that serves the panel.
//! Owns when it is written and which process has it during a takeover. Never lets a sample wait for the disk.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use telemetry::Level;
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use crate::audit_trail;
use crate::live::store::{Opened, Stored};
use crate::shared::Shared;
use crate::time::now_us;

/// How often it is written: a process that is killed loses no more than this.
const PERIOD: Duration = Duration::from_secs(5);

/// A file that another process has is tried again after this.
const RETRY: Duration = Duration::from_millis(500);

/// In `state_dir`.
const FILE: &str = "history.redb";

/// Reads what is stored, then writes what is new, again and again; leaves the file to a process that takes over.
pub(crate) async fn run_history_writer(shared: Arc<Shared>) {
    let state = Arc::clone(&shared.state);
    let found = spawn_blocking(move || state.file(FILE)).await.ok().flatten();
    let Some(path) = found else { return std::future::pending().await };
    let mut panel_state = shared.panel_state.clone();
    let mut is_logged = false;
    loop {
        let is_handed_over = panel_state.borrow_and_update().is_handed_over;
        let shared = Arc::clone(&shared);
        let pause = match (is_handed_over, shared.live.store.is_open()) {
            (true, true) => {
                let _ = spawn_blocking(move || flush_and_close(&shared)).await;
                PERIOD
            }
            (true, false) => PERIOD,
            (false, true) => {
                let _ = spawn_blocking(move || write(&shared)).await;
                PERIOD
            }
            (false, false) => {
                let path = path.clone();
                match spawn_blocking(move || open(&shared, path, is_logged)).await {
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
pub(crate) fn flush_and_close(shared: &Shared) {
    if shared.live.store.is_open() {
        write(shared);
        shared.live.store.close();
    }
}

fn write(shared: &Shared) {
    let (rows, begins) = shared.live.history().unsaved();
    let audit_trail = shared.audit_trail.unsaved();
    if rows.is_empty() && audit_trail.is_empty() {
        return;
    }
    if let Err(why) = shared.live.store.write(&rows, begins, &audit_trail, audit_trail::MAX_ENTRIES as u64) {
        // What was read from the file stays in memory; closed, it is opened and looked at again.
        shared.live.store.close();
        shared.live.history().mark_unsaved();
        shared.audit_trail.mark_unsaved();
        shared.log(Level::Warning, format!("panel: cannot write {FILE}: {why}; retrying"));
    }
}

enum Outcome {
    Open,
    Busy,
    None,
}

fn open(shared: &Shared, path: PathBuf, is_logged: bool) -> Outcome {
    match shared.live.store.open(&path) {
        Opened::Yes(Stored { rows, audit_trail }) => {
            shared.live.history().restore(rows, now_us() / 1_000_000);
            shared.audit_trail.restore(audit_trail);
            Outcome::Open
        }
        Opened::Recreated(why, aside) => {
            let aside = aside.display();
            let text = format!(
                "panel: {FILE} cannot be read ({why}): renamed to \"{aside}\"; starting a new history"
            );
            shared.log(Level::Warning, text);
            Outcome::Open
        }
        Opened::Busy => {
            if !is_logged {
                let text = format!("panel: another process has \"{}\"; retrying", path.display());
                shared.log(Level::Log, text);
            }
            Outcome::Busy
        }
        Opened::No(why) => {
            let text =
                format!("panel: cannot open \"{}\": {why}; history ends with this process", path.display());
            shared.log(Level::Warning, text);
            Outcome::None
        }
    }
}
