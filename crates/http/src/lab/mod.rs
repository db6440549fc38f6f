//! The lab as the panel has it: `weir bench` as a process of its own, one at a time, with what it has said so far.
//!
//! Owns which runs there are and what is kept of them. A run has memory and threads of its own and a lower priority, so
//! that whatever it does costs the data path no more than a stranger's program would. Runs of earlier processes are found in `state_dir`
//! (`shelf`). Never measures anything itself.

mod child;
mod shelf;
mod wish;

use std::borrow::Cow;
use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use securefs::Directory;
use serde::Serialize;
use tokio::sync::watch;
use utoipa::ToSchema;

use crate::access::entropy;
use crate::failure::Failure;
use crate::state_dir::StateDir;
use crate::time::now_rfc3339;
pub(crate) use shelf::REPORT;
use shelf::Shelf;
use wish::Task;
pub(crate) use wish::Wish;

/// So many runs are remembered; with a further one, the oldest goes with its files.
const RUNS: usize = 20;

/// So many lines of a run are kept, the newest; the rest is in its result.
const LINES: usize = 5_000;

/// Every run, the newest first.
pub(crate) struct Lab {
    /// By name.
    pub(crate) workloads: &'static [&'static str],
    /// Where runs are kept over restarts; None where they are not. Looked for when it is first wanted.
    shelf: OnceLock<Option<Shelf>>,
    state: Arc<StateDir>,
    /// Without a shelf the directories of all runs are in here; made for the first.
    scratch_dir: Mutex<Option<Arc<Directory>>>,
    runs: Mutex<VecDeque<Arc<Run>>>,
}

/// One run.
pub(crate) struct Run {
    pub(crate) id: String,
    pub(crate) kind: Cow<'static, str>,
    pub(crate) wish: Wish,
    pub(crate) started: String,
    /// Where the end is noted, for later processes.
    shelf: Option<Shelf>,
    /// Another process began it; its end is found in the file.
    is_foreign: bool,
    /// Locked as long as this process follows the run: so others know that somebody does.
    lock: Mutex<Option<File>>,
    /// Read by its handle: other users may write where its parent is.
    directory: Directory,
    told: Mutex<Told>,
    /// Counts the lines, and changes once more at the end.
    news: watch::Sender<u64>,
}

/// What a run has said so far.
#[derive(Default)]
struct Told {
    lines: VecDeque<Arc<str>>,
    /// How many lines have been forgotten.
    gone: u64,
    process: Option<rustix::process::Pid>,
    end: Option<End>,
}

/// How a run has ended.
#[derive(Clone, Debug, Serialize, serde::Deserialize)]
struct End {
    state: Cow<'static, str>,
    ended: String,
    advice: Option<Advice>,
    /// It has written one.
    report: bool,
    /// What it said last, where it failed.
    error: Option<String>,
}

/// What a sweep advises.
#[derive(Clone, Debug, Serialize, serde::Deserialize, ToSchema)]
pub(crate) struct Advice {
    /// None where the figures do not say.
    pub(crate) size: Option<u32>,
    /// In a sentence.
    pub(crate) verdict: String,
    /// What speaks against taking it for sure: to stand beside the size.
    #[serde(default)]
    pub(crate) doubts: Vec<String>,
    /// To be pasted into a file.
    pub(crate) line: Option<String>,
}

/// A run as the API tells it.
#[derive(Serialize, ToSchema)]
pub(crate) struct RunView {
    id: String,
    kind: Cow<'static, str>,
    /// running, done, failed or interrupted.
    state: Cow<'static, str>,
    /// RFC 3339.
    started: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    ended: Option<String>,
    /// As it was asked for.
    args: Wish,
    #[serde(skip_serializing_if = "Option::is_none")]
    advice: Option<Advice>,
    /// There is a report to read.
    report: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    /// Where its result is on this machine.
    directory: String,
}

impl Lab {
    /// Nothing has run yet.
    pub(crate) fn new(workloads: &'static [&'static str], state: Arc<StateDir>) -> Lab {
        let (shelf, scratch_dir, runs) = (OnceLock::new(), Mutex::default(), Mutex::default());
        Lab { workloads, shelf, state, scratch_dir, runs }
    }

    /// Every run, the newest first. Reads directories.
    pub(crate) fn all(&self) -> Vec<Arc<Run>> {
        self.gather();
        self.runs().iter().cloned().collect()
    }

    /// A run by its id. Reads directories where it is not known yet.
    pub(crate) fn find(&self, id: &str) -> Option<Arc<Run>> {
        let known = || self.runs().iter().find(|run| run.id == id).cloned();
        let run = known().or_else(|| {
            self.gather();
            known()
        })?;
        run.refresh();
        Some(run)
    }

    /// Takes in the runs that other processes have put on the shelf.
    fn gather(&self) {
        let Some(shelf) = self.shelf() else { return };
        let mut runs = self.runs();
        for id in shelf.ids() {
            if !runs.iter().any(|run| run.id == id) {
                runs.extend(shelf.load(&id).map(Arc::new));
            }
        }
        runs.make_contiguous().sort_by(|one, other| other.started.cmp(&one.started));
        self.forget_oldest(&mut runs);
        runs.iter().for_each(|run| run.refresh());
    }

    fn shelf(&self) -> Option<&Shelf> {
        self.shelf.get_or_init(|| self.state.directory().and_then(|state| Shelf::open(&state).ok())).as_ref()
    }

    fn forget_oldest(&self, runs: &mut VecDeque<Arc<Run>>) {
        while runs.len() > RUNS {
            let Some(oldest) = runs.pop_back() else { return };
            let _ = std::fs::remove_dir_all(oldest.directory.path());
            oldest.shelf.iter().for_each(|shelf| shelf.forget(&oldest.id));
        }
    }

    /// Begins a run.
    ///
    /// # Errors
    /// 409 while another one runs, 422 for what the lab does not know, 503 where no process can be started.
    pub(crate) fn begin(&self, wish: Wish, task: &Task) -> Result<Arc<Run>, Failure> {
        let mut runs = self.runs();
        if runs.iter().any(|run| run.is_running()) {
            return Err(Failure::conflict("another run is under way: two would measure each other"));
        }
        let id = crate::access::hex(&entropy::<8>());
        let not_started = |why| Failure::unavailable(format!("the lab does not start: {why}"));
        let shelf = self.shelf().cloned();
        let scratch = match &shelf {
            Some(shelf) => Arc::clone(shelf.directory()),
            None => self.scratch_dir().map_err(not_started)?,
        };
        let lock = shelf.as_ref().map(|shelf| shelf.lock(&id)).transpose().map_err(not_started)?;
        let run = Arc::new(Run {
            directory: scratch.create_directory(&id).map_err(not_started)?,
            id,
            kind: Cow::Borrowed(task.kind),
            wish,
            started: now_rfc3339(),
            shelf,
            is_foreign: false,
            lock: Mutex::new(lock),
            told: Mutex::default(),
            news: watch::channel(0).0,
        });
        run.keep();
        if let Err(why) = child::start(&run, task, scratch.path()) {
            run.shelf.iter().for_each(|shelf| shelf.forget(&run.id));
            return Err(not_started(why));
        }
        runs.push_front(Arc::clone(&run));
        self.forget_oldest(&mut runs);
        Ok(run)
    }

    /// Ends what runs: nobody is left who could look at it.
    pub(crate) fn interrupt_all(&self) {
        self.runs().iter().for_each(|run| run.interrupt());
    }

    /// A directory that no other user can have prepared; made again where a cleaner of temporary files has removed it.
    fn scratch_dir(&self) -> io::Result<Arc<Directory>> {
        let mut known = self.scratch_dir.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(there) = known.as_ref().filter(|directory| !directory.is_gone()) {
            return Ok(Arc::clone(there));
        }
        let made = Arc::new(Directory::scratch(&std::env::temp_dir(), "weir-lab")?);
        Ok(Arc::clone(known.insert(made)))
    }

    fn runs(&self) -> MutexGuard<'_, VecDeque<Arc<Run>>> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Run {
    fn told(&self) -> MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A file of its result; None if it is longer than `most` bytes.
    pub(crate) fn read(&self, name: &str, most: u64) -> io::Result<Option<Vec<u8>>> {
        self.directory.read(name, most)
    }

    fn is_running(&self) -> bool {
        self.told().end.is_none()
    }

    /// Lets it end soon and well: what was measured is kept. By SIGTERM, not SIGINT: a shell that starts Weir in the background has
    /// it ignore SIGINT, and the new process would do so, too, until it has a handler.
    pub(crate) fn interrupt(&self) {
        let told = self.told();
        // A process that has been waited for may be somebody else's by now.
        if let Some(process) = told.process.filter(|_| told.end.is_none()) {
            let _ = rustix::process::kill_process(process, rustix::process::Signal::TERM);
        }
    }

    /// The pool size that it advises, if it has ended and could tell.
    pub(crate) fn advised_size(&self) -> Option<u32> {
        self.told().end.as_ref()?.advice.as_ref()?.size
    }

    /// As the API tells it.
    pub(crate) fn view(&self) -> RunView {
        let end = self.told().end.clone();
        RunView {
            id: self.id.clone(),
            kind: self.kind.clone(),
            state: end.as_ref().map_or(Cow::Borrowed("running"), |end| end.state.clone()),
            started: self.started.clone(),
            ended: end.as_ref().map(|end| end.ended.clone()),
            args: self.wish.clone(),
            advice: end.as_ref().and_then(|end| end.advice.clone()),
            report: end.as_ref().is_some_and(|end| end.report),
            error: end.and_then(|end| end.error),
            directory: self.directory.path().display().to_string(),
        }
    }

    /// Tells when there is more to read.
    pub(crate) fn news(&self) -> watch::Receiver<u64> {
        self.news.subscribe()
    }

    /// The line of this number, or the oldest that is kept, with the number of the next; None if there is none yet, with
    /// whether there will be.
    pub(crate) fn line(&self, number: u64) -> Result<(Arc<str>, u64), bool> {
        let told = self.told();
        let number = number.max(told.gone);
        let place = usize::try_from(number - told.gone).unwrap_or(usize::MAX);
        told.lines.get(place).map(|line| (Arc::clone(line), number + 1)).ok_or(told.end.is_none())
    }

    fn add(&self, line: &str) {
        let mut told = self.told();
        told.lines.push_back(line.into());
        if told.lines.len() > LINES {
            told.lines.pop_front();
            told.gone += 1;
        }
        drop(told);
        self.news.send_modify(|count| *count += 1);
    }

    /// Notes on the shelf what is known of it.
    fn keep(&self) {
        if let Some(shelf) = self.shelf.as_ref().filter(|_| !self.is_foreign) {
            let _ = shelf.keep(self, self.told().end.as_ref());
        }
    }

    /// Looks for the end of a run that another process began: it is on the shelf, or that process is gone.
    fn refresh(&self) {
        let Some(shelf) = self.shelf.as_ref().filter(|_| self.is_foreign && self.is_running()) else {
            return;
        };
        if let Some(end) = shelf.end(&self.id) {
            self.end(end);
        }
    }

    fn end(&self, end: End) {
        self.told().end = Some(end);
        self.keep();
        self.lock.lock().unwrap_or_else(PoisonError::into_inner).take();
        self.news.send_modify(|count| *count += 1);
    }
}
