//! Changes to the pools that Weir writes itself, in `pools_file`.
//!
//! Owns the order of a change: read the file, edit its text, validate the whole and write it, apply it; one change at a
//! time. On any error nothing is changed. Reading and writing are outputs ([`Output::ReadPools`], [`Output::WritePools`]).

use std::collections::VecDeque;
use std::sync::Arc;

use settings::{PoolsText, with_pools};

use crate::interface::Output;
use crate::machine::Control;
use crate::pools::{
    Budget, Cluster, PoolChange, PoolError, PoolOutcome, PoolRequest, PoolSpec, WriteFault, clusters, entry,
    rules,
};

/// Queued changes, and the one in progress.
#[derive(Debug, Default)]
pub(crate) struct PoolEditor {
    waiting: VecDeque<PoolRequest>,
    reading: Option<PoolRequest>,
    writing: Option<PendingWrite>,
}

/// A change whose text is being written.
#[derive(Debug)]
struct PendingWrite {
    request: PoolRequest,
    text: PoolsText,
    outcome: PoolOutcome,
}

impl Control {
    /// Queues a change.
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
            return self.answer_pool(request.id, Err(PoolError::Ending));
        }
        let Some(path) = self.pools_path() else {
            return self.answer_pool(request.id, Err(PoolError::NoPoolsFile));
        };
        self.pools.reading = Some(request);
        self.push(Output::ReadPools { path });
    }

    fn pools_path(&self) -> Option<String> {
        self.config.global.pools_file.clone().filter(|path| !path.is_empty())
    }

    /// The current file, which may have been edited since it was loaded.
    pub(crate) fn pools_read(&mut self, outcome: Result<Vec<u8>, String>) {
        let Some(request) = self.pools.reading.take() else { return };
        let id = request.id;
        let prepared = outcome
            .map_err(|why| PoolError::Unreadable { file: self.pools_path().unwrap_or_default(), why })
            .and_then(|bytes| self.prepare(&request, &bytes));
        match prepared {
            Ok((_, outcome)) if request.preview => self.answer_pool(id, Ok(outcome)),
            Ok((text, outcome)) => {
                self.push(Output::WritePools { path: text.file().to_owned(), bytes: text.bytes().to_vec() });
                self.pools.writing = Some(PendingWrite { request, text, outcome });
            }
            Err(refusal) => self.answer_pool(id, Err(refusal)),
        }
    }

    /// The new text and its effect, validated by the same parser as at the next start.
    fn prepare(&self, request: &PoolRequest, bytes: &[u8]) -> Result<(PoolsText, PoolOutcome), PoolError> {
        let path = self.pools_path().ok_or(PoolError::NoPoolsFile)?;
        let before = PoolsText::read(&path, bytes).map_err(PoolError::Broken)?;
        // Entries added by hand since the load count: their names are taken.
        let members = |config| self.topologies.clone().apply(config);
        let present = with_pools(&self.config, &path, bytes).map(members).map_err(PoolError::Broken)?;
        let mut text = before.clone();
        let (cluster, size_before) = rules::validate(&present, request)?;
        match &request.change {
            PoolChange::Create(spec) | PoolChange::Update(spec) => {
                let pairs = entry::pairs(&present, cluster.as_ref(), spec, text.pairs(&spec.name));
                text.put(&spec.name, &pairs);
            }
            PoolChange::Delete(name) => {
                text.remove(name);
            }
        }
        let blame = |findings| PoolError::of_entry(request.change.name(), findings);
        let config = with_pools(&self.config, &path, text.bytes()).map(members).map_err(blame)?;
        let made = config.databases.get(request.change.name());
        made.map_or(Ok(()), |entry| rules::check_servers(&present, entry, request))?;
        let now = made.map(|entry| rules::of(clusters(&config), entry)).transpose()?.or(cluster.clone());
        // What another server has said does not count.
        let server = request.server.as_ref().filter(|_| {
            let id = |of: &Option<Cluster>| of.as_ref().map(|cluster| cluster.id.clone());
            id(&now) == id(&cluster)
        });
        let budget = now.map_or_else(Budget::default, |now| Budget::of(&config, &now, server));
        let largest = made.map_or(0, |entry| rules::largest(&config, entry));
        rules::check_budget(&budget, request, size_before, largest)?;
        let warnings = rules::warnings(&config, &budget, request);
        let changes = text.changes_from(&before);
        Ok((text, PoolOutcome { changes, budget, warnings, config: Arc::new(config) }))
    }

    /// The file was written, or could not be.
    pub(crate) fn pools_written(&mut self, outcome: Result<(), WriteFault>) {
        let Some(PendingWrite { request, text, outcome: mut done }) = self.pools.writing.take() else {
            return;
        };
        let answer = match outcome {
            Ok(()) => {
                // The configuration may have changed since: only the pools are replaced.
                if let Ok(config) = with_pools(&self.config, text.file(), text.bytes()) {
                    self.put_in_force(config);
                }
                self.log(described(&request.change));
                done.config = Arc::clone(&self.config);
                Ok(done)
            }
            Err(WriteFault::Config(findings)) => Err(PoolError::Broken(findings)),
            Err(WriteFault::Io(why)) => Err(PoolError::Unwritable { file: text.file().to_owned(), why }),
        };
        self.answer_pool(request.id, answer);
    }

    fn answer_pool(&mut self, id: u64, answer: Result<PoolOutcome, PoolError>) {
        self.push(Output::PoolReply { id, answer: Box::new(answer) });
        self.next_pool_change();
    }
}

/// The line of the log.
fn described(change: &PoolChange) -> String {
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
