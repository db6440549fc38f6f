//! Pools that Weir makes, changes and deletes itself, in the file that `pools_file` names.
//!
//! Owns the order of a change: read the file, make its new text, have the whole judged and written, put it in force; one
//! change at a time. Where anything fails, nothing has changed. Never touches a file and never half applies: the
//! reading and writing is asked for ([`crate::Output::ReadPools`], [`crate::Output::WritePools`]).

mod budget;
mod clusters;
mod entry;
mod refusal;
mod rules;
mod server;

use std::collections::VecDeque;
use std::sync::Arc;

use settings::{Config, Finding, LineChange, PoolsText, with_pools};

pub use budget::Budget;
pub use clusters::{Cluster, ServerFacts, cluster_id, clusters};
pub use refusal::PoolRefusal;

use crate::Control;
use crate::control::Output;

/// What a pool is to be. Nothing of it has been checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolSpec {
    /// The name that clients ask for as their database.
    pub name: String,
    /// The cluster's id; none where there is only one, and for a pool that exists already and stays where it is.
    pub cluster: Option<String>,
    /// The name of the database on the server.
    pub db: String,
    /// Logs in to the server as this user; none is whoever the client is.
    pub user: Option<String>,
    /// `session`, `transaction` or `statement`.
    pub mode: String,
    /// Server connections.
    pub size: i64,
}

/// A change to the pools.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PoolChange {
    /// A pool that does not exist yet.
    Create(PoolSpec),
    /// The pool of this name gets another database, user, mode or size. All else of its line stays.
    Update(PoolSpec),
    /// The pool of this name goes.
    Delete(String),
}

impl PoolChange {
    /// The pool's name.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            PoolChange::Create(spec) | PoolChange::Update(spec) => &spec.name,
            PoolChange::Delete(name) => name,
        }
    }
}

/// A change that somebody asks for, or asks to see first.
#[derive(Clone, Debug)]
pub struct PoolRequest {
    /// Comes back in the answer.
    pub id: u64,
    /// What.
    pub change: PoolChange,
    /// Only to be shown.
    pub preview: bool,
    /// What the server has said of itself, if it could be asked.
    pub server: Option<ServerFacts>,
}

/// What a change did, or would do.
#[derive(Clone, Debug)]
pub struct PoolOutcome {
    /// The lines of the pools file that differ.
    pub changes: Vec<LineChange>,
    /// The connections of the pool's server, the pool as it is afterwards included.
    pub budget: Budget,
    /// What is allowed and worth knowing.
    pub warnings: Vec<String>,
    /// The configuration afterwards: in force, unless this is a preview.
    pub config: Arc<Config>,
}

/// Why [`Output::WritePools`] came to nothing. The file is as it was.
#[derive(Clone, Debug)]
pub enum WriteFault {
    /// With these pools the process would not start: what is wrong with its files.
    Config(Vec<Finding>),
    /// The system's word.
    Io(String),
}

/// Changes that wait, and the one that is under way.
#[derive(Debug, Default)]
pub(crate) struct Desk {
    waiting: VecDeque<PoolRequest>,
    reading: Option<PoolRequest>,
    writing: Option<Written>,
}

/// A change whose text is being written.
#[derive(Debug)]
struct Written {
    request: PoolRequest,
    text: PoolsText,
    outcome: PoolOutcome,
}

impl Control {
    /// Somebody asks for a change.
    pub(crate) fn pool_request(&mut self, request: PoolRequest) {
        self.pools.waiting.push_back(request);
        self.next_pool_change();
    }

    fn next_pool_change(&mut self) {
        if self.pools.reading.is_some() || self.pools.writing.is_some() {
            return;
        }
        let Some(request) = self.pools.waiting.pop_front() else { return };
        if self.is_ending() || self.hands_over {
            return self.answer_pool(request.id, Err(PoolRefusal::Ending));
        }
        let Some(path) = self.pools_path() else {
            return self.answer_pool(request.id, Err(PoolRefusal::NoPoolsFile));
        };
        self.pools.reading = Some(request);
        self.push(Output::ReadPools { path });
    }

    fn pools_path(&self) -> Option<String> {
        self.config.global.pools_file.clone().filter(|path| !path.is_empty())
    }

    /// The file as it is now, which may not be what was loaded: somebody may have written into it.
    pub(crate) fn pools_read(&mut self, outcome: Result<Vec<u8>, String>) {
        let Some(request) = self.pools.reading.take() else { return };
        let id = request.id;
        let prepared = outcome
            .map_err(|why| PoolRefusal::Unreadable { file: self.pools_path().unwrap_or_default(), why })
            .and_then(|bytes| self.prepare(&request, &bytes));
        match prepared {
            Ok((_, outcome)) if request.preview => self.answer_pool(id, Ok(outcome)),
            Ok((text, outcome)) => {
                self.push(Output::WritePools { path: text.file().to_owned(), bytes: text.bytes().to_vec() });
                self.pools.writing = Some(Written { request, text, outcome });
            }
            Err(refusal) => self.answer_pool(id, Err(refusal)),
        }
    }

    /// The new text and what it means, judged by the same parser that reads it at the next start.
    fn prepare(&self, request: &PoolRequest, bytes: &[u8]) -> Result<(PoolsText, PoolOutcome), PoolRefusal> {
        let path = self.pools_path().ok_or(PoolRefusal::NoPoolsFile)?;
        let before = PoolsText::read(&path, bytes).map_err(PoolRefusal::Broken)?;
        // What somebody wrote into the file counts already: a name there is taken.
        let present = with_pools(&self.config, &path, bytes).map_err(PoolRefusal::Broken)?;
        let mut text = before.clone();
        let (cluster, size_before) = rules::judge(&present, request)?;
        match &request.change {
            PoolChange::Create(spec) | PoolChange::Update(spec) => {
                let pairs = entry::pairs(&present, &cluster, spec, text.pairs(&spec.name));
                text.put(&spec.name, &pairs);
            }
            PoolChange::Delete(name) => {
                text.remove(name);
            }
        }
        let config = with_pools(&self.config, &path, text.bytes()).map_err(PoolRefusal::Broken)?;
        let budget = Budget::of(&config, &cluster, request.server.as_ref());
        rules::within(&budget, request, size_before)?;
        let warnings = rules::warnings(&config, &budget, request);
        let changes = text.changes_from(&before);
        Ok((text, PoolOutcome { changes, budget, warnings, config: Arc::new(config) }))
    }

    /// The file was written, or could not be.
    pub(crate) fn pools_written(&mut self, outcome: Result<(), WriteFault>) {
        let Some(Written { request, text, outcome: mut done }) = self.pools.writing.take() else { return };
        let answer = match outcome {
            Ok(()) => {
                // What is in force may have changed since: only the pools are exchanged.
                if let Ok(config) = with_pools(&self.config, text.file(), text.bytes()) {
                    self.put_in_force(config);
                }
                self.log(said(&request.change));
                done.config = Arc::clone(&self.config);
                Ok(done)
            }
            Err(WriteFault::Config(findings)) => Err(PoolRefusal::Broken(findings)),
            Err(WriteFault::Io(why)) => Err(PoolRefusal::Unwritable { file: text.file().to_owned(), why }),
        };
        self.answer_pool(request.id, answer);
    }

    fn answer_pool(&mut self, id: u64, answer: Result<PoolOutcome, PoolRefusal>) {
        self.push(Output::PoolAnswer { id, answer: Box::new(answer) });
        self.next_pool_change();
    }
}

/// The line of the log.
fn said(change: &PoolChange) -> String {
    match change {
        PoolChange::Create(spec) => format!("pool \"{}\" created: {}", spec.name, shape(spec)),
        PoolChange::Update(spec) => format!("pool \"{}\" changed: {}", spec.name, shape(spec)),
        PoolChange::Delete(name) => format!("pool \"{name}\" deleted"),
    }
}

fn shape(spec: &PoolSpec) -> String {
    let user = spec.user.as_ref().map_or(String::new(), |user| format!(" user={user}"));
    format!("db={}{user} mode={} size={}", spec.db, spec.mode, spec.size)
}

#[cfg(test)]
mod tests;
