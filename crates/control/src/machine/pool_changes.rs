//! Changes to the pools that Weir writes itself, in `pools_file`: those of this node, and those of all nodes of its fleet.
//!
//! Owns the order of a change: read the file, edit its text, validate the whole, have the store take what is for all nodes, write the file, apply it; one change at a
//! time. On any error nothing is changed. Reading and writing are outputs ([`Output::ReadPools`], [`Output::WritePools`]), and so is asking the store
//! ([`Output::ChangeFleetPools`]), which may take a while: the file is read anew then.

use std::collections::VecDeque;
use std::sync::Arc;

use messages::{FleetPools, FleetPoolsError, RequestId};
use settings::{PoolsText, digest, with_pools};

use crate::CommandError;
use crate::interface::Output;
use crate::machine::Control;
use crate::machine::fleet_pools::{HoldOrder, words};
use crate::pools::{
    Budget, Cluster, PoolChange, PoolError, PoolOutcome, PoolRequest, PoolSpec, WriteFault, clusters, entry,
    rules,
};

/// How often a change is made again because another node was first: as often as ten nodes need that all make changes all the time.
const ATTEMPTS: u8 = 100;

/// Queued changes, and the one in progress.
#[derive(Debug, Default)]
pub(crate) struct PoolEditor {
    waiting: VecDeque<Job>,
    step: Option<Step>,
}

/// A change.
#[derive(Debug)]
pub(crate) enum Job {
    /// Of a pool.
    Change { request: Box<PoolRequest>, attempts: u8 },
    /// Of what is held on all nodes.
    Hold { request: RequestId, order: HoldOrder, attempts: u8 },
    /// The store has lost the pools of all nodes: it gets those of the file.
    PutBack,
    /// These are the pools of all nodes.
    Adopt { pools: FleetPools, then: Then },
}

/// What follows when the pools of all nodes are in force.
#[derive(Debug)]
pub(crate) enum Then {
    Nothing,
    Answer(Box<PoolRequest>, PoolOutcome),
    /// Until they are so on all nodes.
    Await(RequestId, HoldOrder),
}

/// How far the change in progress is.
#[derive(Debug)]
enum Step {
    Reading(Job),
    /// The store is asked to have these.
    Asking(Job, Option<PoolOutcome>, FleetPools),
    /// A change to this node's own pools is being written.
    Writing(Box<PoolRequest>, PoolsText, PoolOutcome),
    /// Pools of all nodes are being written.
    Adopting(PoolsText, FleetPools, Then),
}

/// A change that could be made.
struct Prepared {
    /// The whole file afterwards.
    text: PoolsText,
    /// If it is one of the pools of all nodes: the revision that it was made of, and what they are to be.
    of_fleet: Option<(u64, FleetPools)>,
    outcome: PoolOutcome,
}

impl Control {
    /// Queues a change.
    pub(crate) fn pool_request(&mut self, request: PoolRequest) {
        self.queue_pool_job(Job::Change { request: Box::new(request), attempts: 0 });
    }

    /// The same; what all nodes have already comes before what is to be changed.
    pub(crate) fn queue_pool_job(&mut self, job: Job) {
        match job {
            Job::Adopt { then: Then::Nothing, .. } => {
                let is_adoption = |job: &Job| matches!(job, Job::Adopt { then: Then::Nothing, .. });
                self.pools.waiting.retain(|job| !is_adoption(job));
                self.pools.waiting.push_front(job);
            }
            Job::Adopt { .. } => self.pools.waiting.push_front(job),
            Job::PutBack if self.pools.waiting.iter().any(|job| matches!(job, Job::PutBack)) => {}
            Job::PutBack => self.pools.waiting.push_front(job),
            _ => self.pools.waiting.push_back(job),
        }
        self.next_pool_change();
    }

    fn next_pool_change(&mut self) {
        if self.pools.step.is_some() {
            return;
        }
        let is_done = |job: &Job| match job {
            Job::Adopt { pools, then: Then::Nothing } => self.has_fleet_pools(pools, digest(&pools.text)),
            _ => false,
        };
        let first = self.pools.waiting.iter().position(|job| !is_done(job));
        self.pools.waiting.drain(..first.unwrap_or(self.pools.waiting.len()));
        let Some(job) = self.pools.waiting.pop_front() else { return };
        if self.is_ending() || self.hands_over {
            return self.give_up(job, PoolError::Ending);
        }
        let Some(path) = self.pools_path() else { return self.give_up(job, PoolError::NoPoolsFile) };
        self.pools.step = Some(Step::Reading(job));
        self.push(Output::ReadPools { path });
    }

    pub(crate) fn pools_path(&self) -> Option<String> {
        self.config.global.pools_file.clone().filter(|path| !path.is_empty())
    }

    /// The current file, which may have been edited since it was loaded.
    pub(crate) fn pools_read(&mut self, outcome: Result<Vec<u8>, String>) {
        let Some(Step::Reading(job)) = self.pools.step.take() else { return };
        let path = self.pools_path().unwrap_or_default();
        let read = outcome
            .map_err(|why| PoolError::Unreadable { file: path.clone(), why })
            .and_then(|bytes| PoolsText::read(&path, &bytes).map_err(PoolError::Broken));
        let text = match read {
            Ok(text) => text,
            Err(refusal) => return self.give_up(job, refusal),
        };
        match job {
            Job::Change { request, attempts } => self.change_pool(request, attempts, &text),
            Job::Hold { request, order, attempts } => self.change_hold(request, order, attempts, &text),
            Job::PutBack => self.put_back(&text),
            Job::Adopt { pools, then } => self.adopt(pools, then, &text),
        }
    }

    fn put_back(&mut self, text: &PoolsText) {
        let (_, revision, part) = text.parts();
        if revision == 0 {
            return self.next_pool_change();
        }
        self.log(format!("pools of the fleet: the store has none, revision {revision} is put back"));
        let pools = FleetPools { revision, by: String::new(), text: part.bytes().into() };
        self.ask_fleet(Job::PutBack, None, 0, pools);
    }

    fn change_pool(&mut self, request: Box<PoolRequest>, attempts: u8, text: &PoolsText) {
        match self.prepare(&request, text) {
            Ok(Prepared { outcome, .. }) if request.preview => self.answer_pool(request.id, Ok(outcome)),
            Ok(Prepared { of_fleet: Some((base, pools)), outcome, .. }) => {
                self.ask_fleet(Job::Change { request, attempts }, Some(outcome), base, pools);
            }
            Ok(Prepared { text, outcome, .. }) => {
                self.push(Output::WritePools { path: text.file().to_owned(), bytes: text.bytes().to_vec() });
                self.pools.step = Some(Step::Writing(request, text, outcome));
            }
            Err(refusal) => self.answer_pool(request.id, Err(refusal)),
        }
    }

    fn change_hold(&mut self, request: RequestId, order: HoldOrder, attempts: u8, text: &PoolsText) {
        let (_, in_file, part) = text.parts();
        let base = self.fleet_pools_base((in_file, part));
        let base = base.map_err(|why| CommandError::Fleet(why.to_string()));
        let held = base.and_then(|(base, next, text)| Ok((base, next, self.held_text(&order, base, text)?)));
        match held {
            Ok((base, revision, Some(text))) => {
                let pools = FleetPools { revision, by: String::new(), text: text.bytes().into() };
                self.ask_fleet(Job::Hold { request, order, attempts }, None, base, pools);
            }
            // It is so already, which other nodes may not have heard of.
            Ok((revision, _, None)) => {
                self.await_fleet_pools(request, order, revision);
                self.next_pool_change();
            }
            Err(why) => {
                self.refuse_hold(request, &why);
                self.next_pool_change();
            }
        }
    }

    fn ask_fleet(&mut self, job: Job, outcome: Option<PoolOutcome>, base: u64, pools: FleetPools) {
        self.push(Output::ChangeFleetPools { base, pools: pools.clone() });
        self.pools.step = Some(Step::Asking(job, outcome, pools));
    }

    /// The store has taken a change, or not.
    pub(crate) fn fleet_pools_changed(&mut self, result: Result<(), FleetPoolsError>) {
        let Some(Step::Asking(job, outcome, pools)) = self.pools.step.take() else { return };
        if result.is_ok() {
            self.fleet_pools_are(&pools);
        }
        match (result, job) {
            (Ok(()), Job::Change { request, .. }) => {
                let then = outcome.map_or(Then::Nothing, |outcome| Then::Answer(request, outcome));
                self.queue_pool_job(Job::Adopt { pools, then });
            }
            (Ok(()), Job::Hold { request, order, .. }) => {
                self.queue_pool_job(Job::Adopt { pools, then: Then::Await(request, order) });
            }
            // What was put back is in the file; where another node was first, that is adopted.
            (Ok(()), Job::PutBack) => {
                self.follow_fleet_pools();
                self.next_pool_change();
            }
            (_, Job::PutBack | Job::Adopt { .. }) => self.next_pool_change(),
            // It is made again to what the other node has made, which is put into the file first.
            (Err(FleetPoolsError::Superseded), Job::Change { request, attempts }) if attempts < ATTEMPTS => {
                self.queue_pool_job(Job::Change { request, attempts: attempts + 1 });
            }
            (Err(FleetPoolsError::Superseded), Job::Hold { request, order, attempts })
                if attempts < ATTEMPTS =>
            {
                self.queue_pool_job(Job::Hold { request, order, attempts: attempts + 1 });
            }
            (Err(why), job) => self.give_up(job, PoolError::Fleet(words(why))),
        }
    }

    fn adopt(&mut self, pools: FleetPools, then: Then, text: &PoolsText) {
        let (own, _, _) = text.parts();
        let new = PoolsText::of_parts(&own, pools.revision, &pools.text);
        self.push(Output::WritePools { path: new.file().to_owned(), bytes: new.bytes().to_vec() });
        self.pools.step = Some(Step::Adopting(new, pools, then));
    }

    /// The new text and its effect, validated by the same parser as at the next start.
    fn prepare(&self, request: &PoolRequest, file: &PoolsText) -> Result<Prepared, PoolError> {
        let name = request.change.name();
        let (mut own, in_file, part) = file.parts();
        let is_of_fleet = self.shared_pools().is_ok() && own.pairs(name).is_none();
        if let (false, Err(why)) = (is_of_fleet, self.shared_pools())
            && own.pairs(name).is_none()
            && part.pairs(name).is_some()
            && self.config.global.fleet.is_some()
        {
            return Err(PoolError::Fleet(why.to_owned()));
        }
        let (base, revision, mut part) = match is_of_fleet {
            true => self.fleet_pools_base((in_file, part))?,
            false => (0, in_file, part),
        };
        // What is shown of the change is not that its number grows.
        let joined = |own: &PoolsText, part: &PoolsText| match is_of_fleet || in_file > 0 {
            true => PoolsText::of_parts(own, in_file, part.bytes()),
            false => own.clone(),
        };
        let before = if base > 0 || in_file > 0 { joined(&own, &part) } else { file.clone() };
        // Entries added by hand since the load count: their names are taken.
        let members = |config| self.topologies.clone().apply(config);
        let present = with_pools(&self.config, before.file(), before.bytes())
            .map(members)
            .map_err(PoolError::Broken)?;
        let is_there = present.databases.contains_key(name);
        let is_left_out = is_of_fleet && !is_there && part.pairs(name).is_some();
        let (cluster, size_before) = match &request.change {
            // This node leaves it out, and others may not.
            PoolChange::Delete(_) if is_left_out => (None, 0),
            PoolChange::Create(_) if is_left_out => {
                let (file, line) = (before.file().to_owned(), before.line_of(name).unwrap_or_default());
                return Err(PoolError::Exists { name: name.to_owned(), file, line });
            }
            _ => rules::validate(&present, request)?,
        };
        // Without a fleet the part is as good as the own one.
        let is_in_part = is_of_fleet || own.pairs(name).is_none() && part.pairs(name).is_some();
        let edited = if is_in_part { &mut part } else { &mut own };
        match &request.change {
            PoolChange::Create(spec) | PoolChange::Update(spec) => {
                let pairs = entry::pairs(&present, cluster.as_ref(), spec, edited.pairs(&spec.name));
                edited.put(&spec.name, &pairs);
            }
            PoolChange::Delete(name) => {
                edited.remove(name);
                if is_of_fleet {
                    let mut holds = edited.holds();
                    holds.paused.remove(name);
                    holds.disabled.remove(name);
                    edited.set_holds(&holds);
                }
            }
        }
        let text = joined(&own, &part);
        let blame = |findings| PoolError::of_entry(name, findings);
        let config = with_pools(&self.config, text.file(), text.bytes()).map(members).map_err(blame)?;
        let lost = config.fleet_part.refused.iter().find(|finding| {
            let is_entry = finding.message.contains(&format!("database {name}: "));
            is_entry && !matches!(request.change, PoolChange::Delete(_))
        });
        if let Some(finding) = lost {
            return Err(blame(vec![finding.clone()]));
        }
        let outcome =
            self.outcome(request, &present, config, (cluster, size_before), text.changes_from(&before))?;
        let pools = FleetPools { revision, by: String::new(), text: part.bytes().into() };
        Ok(Prepared { text, of_fleet: is_of_fleet.then_some((base, pools)), outcome })
    }

    /// What a change means for the pool's server.
    fn outcome(
        &self,
        request: &PoolRequest,
        present: &settings::Config,
        config: settings::Config,
        (cluster, size_before): (Option<Cluster>, u32),
        changes: Vec<settings::LineChange>,
    ) -> Result<PoolOutcome, PoolError> {
        let made = config.databases.get(request.change.name());
        made.map_or(Ok(()), |entry| rules::check_servers(present, entry, request))?;
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
        Ok(PoolOutcome { changes, budget, warnings, config: Arc::new(config) })
    }

    /// The file was written, or could not be.
    pub(crate) fn pools_written(&mut self, outcome: Result<(), WriteFault>) {
        match self.pools.step.take() {
            Some(Step::Writing(request, text, done)) => {
                let answer = self.written(outcome, &text).map(|()| {
                    self.log(described(&request.change));
                    PoolOutcome { config: Arc::clone(&self.config), ..done }
                });
                self.answer_pool(request.id, answer);
            }
            Some(Step::Adopting(text, pools, then)) => {
                let result = self.written(outcome, &text).map_err(|why| why.to_string());
                match &result {
                    Ok(()) => self.fleet_pools_adopted(&pools),
                    Err(why) => self.fleet_pools_failed(&pools, why),
                }
                self.adopted(pools.revision, then, result);
            }
            step => self.pools.step = step,
        }
    }

    fn written(&mut self, outcome: Result<(), WriteFault>, text: &PoolsText) -> Result<(), PoolError> {
        match outcome {
            Ok(()) => {
                // The configuration may have changed since: only the pools are replaced.
                let config = with_pools(&self.config, text.file(), text.bytes());
                self.put_in_force(config.map_err(PoolError::NeedsReload)?);
                Ok(())
            }
            Err(WriteFault::Config(findings)) => Err(PoolError::Broken(findings)),
            Err(WriteFault::Io(why)) => Err(PoolError::Unwritable { file: text.file().to_owned(), why }),
        }
    }

    /// The pools of all nodes are changed, even if this one cannot use them: why not.
    fn adopted(&mut self, revision: u64, then: Then, result: Result<(), String>) {
        match then {
            Then::Nothing => self.next_pool_change(),
            Then::Answer(request, outcome) => {
                self.log(described(&request.change));
                let outcome = PoolOutcome { config: Arc::clone(&self.config), ..outcome };
                self.answer_pool(request.id, result.map(|()| outcome).map_err(PoolError::NotHere));
            }
            Then::Await(request, order) => {
                self.await_fleet_pools(request, order, revision);
                self.next_pool_change();
            }
        }
    }

    fn give_up(&mut self, job: Job, why: PoolError) {
        match job {
            Job::Change { request, .. } => return self.answer_pool(request.id, Err(why)),
            Job::Hold { request, .. } => self.refuse_hold(request, &CommandError::Fleet(why.to_string())),
            Job::PutBack => {}
            Job::Adopt { pools, then } => {
                self.fleet_pools_failed(&pools, &why.to_string());
                return self.adopted(pools.revision, then, Err(why.to_string()));
            }
        }
        self.next_pool_change();
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
