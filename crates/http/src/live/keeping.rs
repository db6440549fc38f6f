//! Keeps the history and the audit trail in their file, as long as this process is the one that serves the panel.
//! Owns when it is written and who has it while one process takes over from another. Never lets a sample wait for the disk.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use telemetry::Level;
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use crate::live::store::{Opened, Stored};
use crate::shared::Shared;
use crate::time::now_us;
use crate::trail;

/// How often it is written: a process that is killed loses no more than this.
const PERIOD: Duration = Duration::from_secs(5);

/// A file that another process has is tried again after this.
const RETRY: Duration = Duration::from_millis(500);

/// In `state_dir`.
const FILE: &str = "history.redb";

/// Reads what is stored, then writes what is new, again and again; leaves the file to a process that takes over.
pub(crate) async fn keep_storing(shared: Arc<Shared>) {
    let state = Arc::clone(&shared.state);
    let found = spawn_blocking(move || state.file(FILE)).await.ok().flatten();
    let Some(path) = found else { return std::future::pending().await };
    let mut situation = shared.situation.clone();
    let mut is_told = false;
    loop {
        let has_left = situation.borrow_and_update().has_left;
        let shared = Arc::clone(&shared);
        let pause = match (has_left, shared.live.store.is_open()) {
            (true, true) => {
                let _ = spawn_blocking(move || store_now(&shared)).await;
                PERIOD
            }
            (true, false) => PERIOD,
            (false, true) => {
                let _ = spawn_blocking(move || write(&shared)).await;
                PERIOD
            }
            (false, false) => {
                let path = path.clone();
                match spawn_blocking(move || open(&shared, path, is_told)).await {
                    Ok(Outcome::Open) => PERIOD,
                    Ok(Outcome::Busy) => {
                        is_told = true;
                        RETRY
                    }
                    Ok(Outcome::None) | Err(_) => return std::future::pending().await,
                }
            }
        };
        tokio::select! {
            () = sleep(pause) => {}
            changed = situation.changed() => if changed.is_err() { return },
        }
    }
}

/// Writes what is new and closes the file: the process ends, or another takes over.
pub(crate) fn store_now(shared: &Shared) {
    if shared.live.store.is_open() {
        write(shared);
        shared.live.store.close();
    }
}

fn write(shared: &Shared) {
    let (rows, begins) = shared.live.history().unstored();
    let trail = shared.trail.unstored();
    if rows.is_empty() && trail.is_empty() {
        return;
    }
    if let Err(why) = shared.live.store.write(&rows, begins, &trail, trail::MOST as u64) {
        // What was read from the file stays in memory; closed, it is opened and looked at again.
        shared.live.store.close();
        shared.live.history().not_stored();
        shared.trail.not_stored();
        shared.log(Level::Warning, format!("panel: cannot write {FILE}: {why}; trying again"));
    }
}

enum Outcome {
    Open,
    Busy,
    None,
}

fn open(shared: &Shared, path: PathBuf, is_told: bool) -> Outcome {
    match shared.live.store.open(&path) {
        Opened::Yes(Stored { rows, trail }) => {
            shared.live.history().absorb(rows, now_us() / 1_000_000);
            shared.trail.absorb(trail);
            Outcome::Open
        }
        Opened::Anew(why, aside) => {
            let aside = aside.display();
            let text = format!(
                "panel: {FILE} cannot be read ({why}): put aside as \"{aside}\", history begins anew"
            );
            shared.log(Level::Warning, text);
            Outcome::Open
        }
        Opened::Busy => {
            if !is_told {
                let text = format!("panel: another process has \"{}\"; trying again", path.display());
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
