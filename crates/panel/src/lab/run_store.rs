//! Runs of the lab on disk: below `state_dir`, a directory for each with what it has written, beside it what was asked for and how it
//! ended (`ID.json`), and a file that the process which follows it has locked (`ID.lock`).
//! Owns these names, and how another process's run is found to be over. Never decides which runs are kept.

use std::borrow::Cow;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use securefs::Directory;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use super::start_run::StartRun;
use super::{LabRun, RunEnd, RunKind, RunOutput, RunState};
use crate::time::now_rfc3339;

/// In `state_dir`.
const NAME: &str = "lab";

/// The page that a run writes.
pub(crate) const REPORT: &str = "index.html";

/// Only this user's.
const MODE: u32 = 0o600;

/// A longer note is none of ours.
const MAX_RECORD_BYTES: u64 = 256 * 1024;

/// The directory of all runs.
#[derive(Clone)]
pub(super) struct RunStore(Arc<Directory>);

/// What is noted of a run.
#[derive(Serialize, Deserialize)]
struct RunRecord<'a> {
    kind: RunKind,
    args: Cow<'a, StartRun>,
    started: Cow<'a, str>,
    end: Option<Cow<'a, RunEnd>>,
}

impl RunStore {
    /// The shelf of this state directory.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn open(state: &Directory) -> io::Result<RunStore> {
        let made = state.create_directory(NAME).or_else(|_| state.open_directory(NAME));
        made.map(|directory| RunStore(Arc::new(directory)))
    }

    pub(super) fn directory(&self) -> &Arc<Directory> {
        &self.0
    }

    /// Every run that has a note.
    pub(super) fn ids(&self) -> Vec<String> {
        let entries = fs::read_dir(self.0.path()).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        let is_id =
            |id: &str| !id.is_empty() && id.chars().all(|sign| sign.is_ascii_alphanumeric() || sign == '-');
        names
            .filter_map(|name| name.strip_suffix(".json").filter(|id| is_id(id)).map(str::to_owned))
            .collect()
    }

    /// A run of another process.
    pub(super) fn load(&self, id: &str) -> Option<LabRun> {
        let RunRecord { kind, args, started, end } = self.record(id)?;
        let output = RunOutput { end: end.map(Cow::into_owned), ..RunOutput::default() };
        Some(LabRun {
            id: id.to_owned(),
            kind,
            request: args.into_owned(),
            started: started.into_owned(),
            directory: self.0.open_directory(id).ok()?,
            store: Some(self.clone()),
            is_foreign: true,
            lock: Mutex::default(),
            output: Mutex::new(output),
            changes: watch::channel(0).0,
        })
    }

    /// Notes what is known of a run.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn save(&self, run: &LabRun, end: Option<&RunEnd>) -> io::Result<()> {
        let record = RunRecord {
            kind: run.kind,
            args: Cow::Borrowed(&run.request),
            started: Cow::Borrowed(&run.started),
            end: end.map(Cow::Borrowed),
        };
        securefs::replace(self.file(&run.id, "json"), &serde_json::to_vec(&record)?, MODE)
    }

    /// The end of another process's run: as recorded, or that no process follows the run any more.
    pub(super) fn end(&self, id: &str) -> Option<RunEnd> {
        // The lock first: its holder records the end before it releases the lock.
        let is_followed = self.lock(id).is_err();
        if let Some(end) = self.record(id).and_then(|record| record.end) {
            return Some(end.into_owned());
        }
        let report = || self.0.open_directory(id).is_ok_and(|run| run.path().join(REPORT).is_file());
        (!is_followed).then(|| RunEnd {
            state: RunState::Interrupted,
            ended: now_rfc3339(),
            advice: None,
            report: report(),
            error: Some("Weir exited during the run".to_owned()),
        })
    }

    /// The file that says that this process follows a run, as long as it is open.
    ///
    /// # Errors
    /// The system's; another process follows it.
    pub(super) fn lock(&self, id: &str) -> io::Result<File> {
        let mut options = OpenOptions::new();
        let file = options.write(true).create(true).truncate(false).mode(MODE).open(self.file(id, "lock"))?;
        file.try_lock()?;
        Ok(file)
    }

    /// Removes what is noted of a run.
    pub(super) fn forget(&self, id: &str) {
        for extension in ["json", "lock"] {
            let _ = fs::remove_file(self.file(id, extension));
        }
    }

    fn record(&self, id: &str) -> Option<RunRecord<'static>> {
        let bytes = self.0.read(&format!("{id}.json"), MAX_RECORD_BYTES).ok()??;
        serde_json::from_slice(&bytes).ok()
    }

    fn file(&self, id: &str, extension: &str) -> PathBuf {
        self.0.path().join(format!("{id}.{extension}"))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn run(store: &RunStore, id: &str) -> LabRun {
        let request = serde_json::from_str(r#"{"kind":"sweep","workload":"tpcb-like"}"#).unwrap();
        LabRun {
            id: id.to_owned(),
            kind: RunKind::Sweep,
            request,
            started: now_rfc3339(),
            directory: store.directory().create_directory(id).unwrap(),
            store: Some(store.clone()),
            is_foreign: false,
            lock: Mutex::new(Some(store.lock(id).unwrap())),
            output: Mutex::default(),
            changes: watch::channel(0).0,
        }
    }

    #[test]
    fn a_run_of_another_process_is_found_and_its_end_too() {
        let place = Directory::scratch(&std::env::temp_dir(), "weir-shelf").unwrap();
        let (store, other) = (RunStore::open(&place).unwrap(), RunStore::open(&place).unwrap());
        let own = run(&store, "a1");
        own.save();
        assert_eq!(other.ids(), ["a1"]);
        let found = other.load("a1").unwrap();
        found.refresh();
        assert_eq!((found.view().state, found.kind), (RunState::Running, RunKind::Sweep));
        let end =
            RunEnd { state: RunState::Done, ended: now_rfc3339(), advice: None, report: true, error: None };
        own.end(end);
        found.refresh();
        assert_eq!(found.view().state, RunState::Done);
        fs::remove_dir_all(place.path()).unwrap();
    }

    #[test]
    fn a_run_that_nobody_follows_any_more_was_interrupted() {
        let place = Directory::scratch(&std::env::temp_dir(), "weir-shelf").unwrap();
        let store = RunStore::open(&place).unwrap();
        let own = run(&store, "a1");
        own.save();
        drop(own);
        let found = store.load("a1").unwrap();
        found.refresh();
        assert_eq!(found.view().state, RunState::Interrupted);
        store.forget("a1");
        assert!(store.ids().is_empty() && store.load("a1").is_none());
        fs::write(place.path().join("lab/b2.json"), "{").unwrap();
        assert!(store.load("b2").is_none());
        fs::remove_dir_all(place.path()).unwrap();
    }
}
