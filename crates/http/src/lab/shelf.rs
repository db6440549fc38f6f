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

use super::wish::Wish;
use super::{End, Run, Told};
use crate::time::now_rfc3339;

/// In `state_dir`.
const NAME: &str = "lab";

/// The page that a run writes.
pub(crate) const REPORT: &str = "index.html";

/// Only this user's.
const MODE: u32 = 0o600;

/// A longer note is none of ours.
const LONGEST_NOTE: u64 = 256 * 1024;

/// The directory of all runs.
#[derive(Clone)]
pub(super) struct Shelf(Arc<Directory>);

/// What is noted of a run.
#[derive(Serialize, Deserialize)]
struct Note<'a> {
    kind: Cow<'a, str>,
    args: Cow<'a, Wish>,
    started: Cow<'a, str>,
    end: Option<Cow<'a, End>>,
}

impl Shelf {
    /// The shelf of this state directory.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn open(state: &Directory) -> io::Result<Shelf> {
        let made = state.create_directory(NAME).or_else(|_| state.open_directory(NAME));
        made.map(|directory| Shelf(Arc::new(directory)))
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
    pub(super) fn load(&self, id: &str) -> Option<Run> {
        let Note { kind, args, started, end } = self.note(id)?;
        let told = Told { end: end.map(Cow::into_owned), ..Told::default() };
        Some(Run {
            id: id.to_owned(),
            kind: Cow::Owned(kind.into_owned()),
            wish: args.into_owned(),
            started: started.into_owned(),
            directory: self.0.open_directory(id).ok()?,
            shelf: Some(self.clone()),
            is_foreign: true,
            lock: Mutex::default(),
            told: Mutex::new(told),
            news: watch::channel(0).0,
        })
    }

    /// Notes what is known of a run.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn keep(&self, run: &Run, end: Option<&End>) -> io::Result<()> {
        let note = Note {
            kind: Cow::Borrowed(&run.kind),
            args: Cow::Borrowed(&run.wish),
            started: Cow::Borrowed(&run.started),
            end: end.map(Cow::Borrowed),
        };
        securefs::replace(self.file(&run.id, "json"), &serde_json::to_vec(&note)?, MODE)
    }

    /// The end of another process's run: as it was noted, or that nobody follows the run any more.
    pub(super) fn end(&self, id: &str) -> Option<End> {
        // The lock first: who has it notes the end before it lets go.
        let is_followed = self.lock(id).is_err();
        if let Some(end) = self.note(id).and_then(|note| note.end) {
            return Some(end.into_owned());
        }
        let report = || self.0.open_directory(id).is_ok_and(|run| run.path().join(REPORT).is_file());
        (!is_followed).then(|| End {
            state: Cow::Borrowed("interrupted"),
            ended: now_rfc3339(),
            advice: None,
            report: report(),
            error: Some("Weir ended while this was running".to_owned()),
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

    fn note(&self, id: &str) -> Option<Note<'static>> {
        let bytes = self.0.read(&format!("{id}.json"), LONGEST_NOTE).ok()??;
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

    fn run(shelf: &Shelf, id: &str) -> Run {
        let wish = serde_json::from_str(r#"{"kind":"sweep","workload":"tpcb-like"}"#).unwrap();
        Run {
            id: id.to_owned(),
            kind: Cow::Borrowed("sweep"),
            wish,
            started: now_rfc3339(),
            directory: shelf.directory().create_directory(id).unwrap(),
            shelf: Some(shelf.clone()),
            is_foreign: false,
            lock: Mutex::new(Some(shelf.lock(id).unwrap())),
            told: Mutex::default(),
            news: watch::channel(0).0,
        }
    }

    #[test]
    fn a_run_of_another_process_is_found_and_its_end_too() {
        let place = Directory::scratch(&std::env::temp_dir(), "weir-shelf").unwrap();
        let (shelf, other) = (Shelf::open(&place).unwrap(), Shelf::open(&place).unwrap());
        let own = run(&shelf, "a1");
        own.keep();
        assert_eq!(other.ids(), ["a1"]);
        let found = other.load("a1").unwrap();
        found.refresh();
        assert_eq!((found.view().state.as_ref(), found.kind.as_ref()), ("running", "sweep"));
        let end = End { state: "done".into(), ended: now_rfc3339(), advice: None, report: true, error: None };
        own.end(end);
        found.refresh();
        assert_eq!(found.view().state, "done");
        fs::remove_dir_all(place.path()).unwrap();
    }

    #[test]
    fn a_run_that_nobody_follows_any_more_was_interrupted() {
        let place = Directory::scratch(&std::env::temp_dir(), "weir-shelf").unwrap();
        let shelf = Shelf::open(&place).unwrap();
        let own = run(&shelf, "a1");
        own.keep();
        drop(own);
        let found = shelf.load("a1").unwrap();
        found.refresh();
        assert_eq!(found.view().state, "interrupted");
        shelf.forget("a1");
        assert!(shelf.ids().is_empty() && shelf.load("a1").is_none());
        fs::write(place.path().join("lab/b2.json"), "{").unwrap();
        assert!(shelf.load("b2").is_none());
        fs::remove_dir_all(place.path()).unwrap();
    }
}
