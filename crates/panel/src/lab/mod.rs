//! The lab as the panel has it: `weir-bench` as a process of its own, one at a time, with what it has said so far.
//!
//! Owns which runs there are and what is kept of them. A run has memory and threads of its own and a lower priority, so
//! that whatever it does costs the data path no more than a stranger's program would. Runs of earlier processes are found in `state_dir`
//! (`shelf`). Never measures anything itself.

mod child;
mod run_store;
mod start_run;

use std::collections::{BTreeMap, VecDeque};
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
pub(crate) use run_store::REPORT;
use run_store::RunStore;
use start_run::LabCommand;
pub(crate) use start_run::{RunKind, StartRun};

/// Runs that are kept; a further one replaces the oldest and its files.
const MAX_RUNS: usize = 20;

/// The lines of a run that are kept, the newest; the rest is in its result.
const MAX_LINES: usize = 5_000;

/// Every run, the newest first.
pub(crate) struct LabRunner {
    find: fn() -> Result<(), String>,
    /// Where runs are kept over restarts; None where they are not. Looked for when it is first wanted.
    store: OnceLock<Option<RunStore>>,
    state: Arc<StateDir>,
    /// Without a shelf the directories of all runs are in here; made for the first.
    scratch_dir: Mutex<Option<Arc<Directory>>>,
    runs: Mutex<VecDeque<Arc<LabRun>>>,
}

/// One run.
pub(crate) struct LabRun {
    pub(crate) id: String,
    pub(crate) kind: RunKind,
    pub(crate) request: StartRun,
    pub(crate) started: String,
    /// Where the end is noted, for later processes.
    store: Option<RunStore>,
    /// Another process began it; its end is found in the file.
    is_foreign: bool,
    /// Locked as long as this process follows the run, so that other processes know.
    lock: Mutex<Option<File>>,
    /// Read by its handle: other users may write where its parent is.
    directory: Directory,
    output: Mutex<RunOutput>,
    /// Counts the lines, and changes once more at the end.
    changes: watch::Sender<u64>,
}

/// What a run has said so far.
#[derive(Default)]
struct RunOutput {
    lines: VecDeque<Arc<str>>,
    /// How many lines have been forgotten.
    dropped: u64,
    process: Option<rustix::process::Pid>,
    end: Option<RunEnd>,
}

/// How a run stands.
#[derive(Clone, Copy, Debug, Serialize, serde::Deserialize, ToSchema, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RunState {
    Running,
    Done,
    Failed,
    Interrupted,
}

/// How a run has ended.
#[derive(Clone, Debug, Serialize, serde::Deserialize)]
struct RunEnd {
    state: RunState,
    ended: String,
    advice: Option<SizeAdvice>,
    /// It has written one.
    report: bool,
    /// What it said last, where it failed.
    error: Option<String>,
}

/// What a sweep advises.
#[derive(Clone, Debug, Serialize, serde::Deserialize, ToSchema)]
pub(crate) struct SizeAdvice {
    /// None where the figures do not say.
    #[schema(required)]
    pub(crate) size: Option<u32>,
    /// In a sentence.
    pub(crate) verdict: String,
    /// What speaks against taking it for sure: to stand beside the size.
    #[serde(default)]
    #[schema(required)]
    pub(crate) doubts: Vec<String>,
    /// Where reads go to standbys: the size for the `primary` and for each `standby`, as far as they were measured; null where the figures do not say.
    #[serde(default)]
    #[schema(required)]
    pub(crate) sides: BTreeMap<String, Option<u32>>,
    /// To be pasted into a file.
    #[schema(required)]
    pub(crate) line: Option<String>,
}

/// A run as the API shows it.
#[derive(Serialize, ToSchema)]
pub(crate) struct LabRunView {
    id: String,
    kind: RunKind,
    /// running, done, failed or interrupted.
    state: RunState,
    /// RFC 3339.
    started: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    ended: Option<String>,
    /// As it was asked for.
    args: StartRun,
    #[serde(skip_serializing_if = "Option::is_none")]
    advice: Option<SizeAdvice>,
    /// There is a report to read.
    report: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    /// Where its result is on this machine.
    directory: String,
}

impl LabRunner {
    /// Nothing has run yet.
    pub(crate) fn new(find: fn() -> Result<(), String>, state: Arc<StateDir>) -> LabRunner {
        let (store, scratch_dir, runs) = (OnceLock::new(), Mutex::default(), Mutex::default());
        LabRunner { find, store, state, scratch_dir, runs }
    }

    /// What to install where the lab's program is not there. Looked for each time: it may be installed any time.
    pub(crate) fn missing(&self) -> Option<String> {
        (self.find)().err()
    }

    /// Every run, the newest first. Reads directories.
    pub(crate) fn all(&self) -> Vec<Arc<LabRun>> {
        self.scan();
        self.runs().iter().cloned().collect()
    }

    /// A run by its id. Reads directories where it is not known yet.
    pub(crate) fn find(&self, id: &str) -> Option<Arc<LabRun>> {
        let known = || self.runs().iter().find(|run| run.id == id).cloned();
        let run = known().or_else(|| {
            self.scan();
            known()
        })?;
        run.refresh();
        Some(run)
    }

    /// Takes in the runs that other processes have put on the shelf.
    fn scan(&self) {
        let Some(store) = self.store() else { return };
        let mut runs = self.runs();
        for id in store.ids() {
            if !runs.iter().any(|run| run.id == id) {
                runs.extend(store.load(&id).map(Arc::new));
            }
        }
        runs.make_contiguous().sort_by(|one, other| other.started.cmp(&one.started));
        self.forget_oldest(&mut runs);
        runs.iter().for_each(|run| run.refresh());
    }

    fn store(&self) -> Option<&RunStore> {
        self.store
            .get_or_init(|| self.state.directory().and_then(|state| RunStore::open(&state).ok()))
            .as_ref()
    }

    fn forget_oldest(&self, runs: &mut VecDeque<Arc<LabRun>>) {
        while runs.len() > MAX_RUNS {
            let Some(oldest) = runs.pop_back() else { return };
            let _ = std::fs::remove_dir_all(oldest.directory.path());
            oldest.store.iter().for_each(|store| store.forget(&oldest.id));
        }
    }

    /// Begins a run.
    ///
    /// # Errors
    /// 409 while another one runs, 501 where the lab is not installed, 503 where no process can be started.
    pub(crate) fn start(&self, request: StartRun, task: &LabCommand) -> Result<Arc<LabRun>, Failure> {
        if let Some(why) = self.missing() {
            return Err(Failure::LabNotInstalled(why));
        }
        let mut runs = self.runs();
        if runs.iter().any(|run| run.is_running()) {
            return Err(Failure::RunInProgress);
        }
        let id = crate::access::hex(&entropy::<8>());
        let not_started = |why: io::Error| Failure::LabNotStarted(why.to_string());
        let store = self.store().cloned();
        let scratch = match &store {
            Some(store) => Arc::clone(store.directory()),
            None => self.scratch_dir().map_err(not_started)?,
        };
        let lock = store.as_ref().map(|store| store.lock(&id)).transpose().map_err(not_started)?;
        let run = Arc::new(LabRun {
            directory: scratch.create_directory(&id).map_err(not_started)?,
            id,
            kind: task.kind,
            request,
            started: now_rfc3339(),
            store,
            is_foreign: false,
            lock: Mutex::new(lock),
            output: Mutex::default(),
            changes: watch::channel(0).0,
        });
        run.save();
        if let Err(why) = child::start(&run, task, scratch.path()) {
            run.store.iter().for_each(|store| store.forget(&run.id));
            return Err(not_started(why));
        }
        runs.push_front(Arc::clone(&run));
        self.forget_oldest(&mut runs);
        Ok(run)
    }

    /// Ends the running one: the process that would show it exits.
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

    fn runs(&self) -> MutexGuard<'_, VecDeque<Arc<LabRun>>> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LabRun {
    fn output(&self) -> MutexGuard<'_, RunOutput> {
        self.output.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A file of its result; None if it is longer than `most` bytes.
    pub(crate) fn read(&self, name: &str, most: u64) -> io::Result<Option<Vec<u8>>> {
        self.directory.read(name, most)
    }

    fn is_running(&self) -> bool {
        self.output().end.is_none()
    }

    /// Lets it end soon and well: what was measured is kept. By SIGTERM, not SIGINT: a shell that starts Weir in the background has
    /// it ignore SIGINT, and the new process would do so, too, until it has a handler.
    pub(crate) fn interrupt(&self) {
        let output = self.output();
        // The process ID may have been reused once the process was waited for.
        if let Some(process) = output.process.filter(|_| output.end.is_none()) {
            let _ = rustix::process::kill_process(process, rustix::process::Signal::TERM);
        }
    }

    /// The pool size that it advises, if it has ended with one.
    pub(crate) fn advised_size(&self) -> Option<u32> {
        self.output().end.as_ref()?.advice.as_ref()?.size
    }

    /// As the API shows it.
    pub(crate) fn view(&self) -> LabRunView {
        let end = self.output().end.clone();
        LabRunView {
            id: self.id.clone(),
            kind: self.kind,
            state: end.as_ref().map_or(RunState::Running, |end| end.state),
            started: self.started.clone(),
            ended: end.as_ref().map(|end| end.ended.clone()),
            args: self.request.clone(),
            advice: end.as_ref().and_then(|end| end.advice.clone()),
            report: end.as_ref().is_some_and(|end| end.report),
            error: end.and_then(|end| end.error),
            directory: self.directory.path().display().to_string(),
        }
    }

    /// Changes with each line, and at the end.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// The line of this number, or the oldest that is kept, with the number of the next; None if there is none yet, with
    /// whether there will be.
    pub(crate) fn line(&self, number: u64) -> Result<(Arc<str>, u64), bool> {
        let output = self.output();
        let number = number.max(output.dropped);
        let place = usize::try_from(number - output.dropped).unwrap_or(usize::MAX);
        output.lines.get(place).map(|line| (Arc::clone(line), number + 1)).ok_or(output.end.is_none())
    }

    fn add(&self, line: &str) {
        let mut output = self.output();
        output.lines.push_back(line.into());
        if output.lines.len() > MAX_LINES {
            output.lines.pop_front();
            output.dropped += 1;
        }
        drop(output);
        self.changes.send_modify(|count| *count += 1);
    }

    /// Notes on the shelf what is known of it.
    fn save(&self) {
        if let Some(store) = self.store.as_ref().filter(|_| !self.is_foreign) {
            let _ = store.save(self, self.output().end.as_ref());
        }
    }

    /// Looks for the end of a run that another process began: it is on the shelf, or that process is gone.
    fn refresh(&self) {
        let Some(store) = self.store.as_ref().filter(|_| self.is_foreign && self.is_running()) else {
            return;
        };
        if let Some(end) = store.end(&self.id) {
            self.end(end);
        }
    }

    fn end(&self, end: RunEnd) {
        self.output().end = Some(end);
        self.save();
        self.lock.lock().unwrap_or_else(PoisonError::into_inner).take();
        self.changes.send_modify(|count| *count += 1);
    }
}
