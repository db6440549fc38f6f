//! The pools of all nodes of a fleet (`fleet_pools`): those in the store are put into this node's pools file and in force, and what is paused and disabled on all
//! nodes is so here. The store is the fleet thread's.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use messages::{Command, FleetPools, FleetPoolsError, FleetPoolsInUse, FleetPoolsWait, RequestId};
use settings::{FleetHolds, PoolsText, digest};
use telemetry::{Level, Record};

use crate::interface::Output;
use crate::machine::commands::log_host_command;
use crate::machine::dispatch::CommandContext;
use crate::machine::pool_changes::{Job, Then};
use crate::request::{Purpose, Request};
use crate::{CommandError, Control, PoolError};

/// Behind a command: on all nodes.
const FLEET: &str = "FLEET";

/// What could not be put into the file is tried again after so long.
const RETRY_US: u64 = 10_000_000;

/// The longest list of what is refused, in bytes.
const MOST_REFUSED: usize = 1_000;

/// The most databases that other nodes see as resumed here alone: a record is written with every renewal of the lease.
const MOST_RESUMED: usize = 256;

/// Begins the lines of the note for a process that takes over: what is held here as on all nodes.
const HELD: &str = "fleet_held\t";

/// What is known of the pools of all nodes.
#[derive(Debug, Default)]
pub(crate) struct FleetPoolsState {
    /// Those in the store, once they have been read, and the digest of their text.
    store: Option<(FleetPools, u64)>,
    /// What is held here because it is held on all nodes. It may have been resumed here since.
    held: FleetHolds,
    /// Orders that are carried out, and not yet on all nodes.
    waiting: BTreeMap<RequestId, HoldOrder>,
    /// Why entries were left out, as it was logged.
    logged: Vec<String>,
    /// Why those in the store could not be put into the file.
    failure: Option<Failure>,
    /// What the others have been said.
    said: FleetPoolsInUse,
}

#[derive(Debug)]
struct Failure {
    why: String,
    retry_us: u64,
}

/// What is to be held on all nodes, or not any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum HoldOrder {
    /// One database, or all.
    Pause(Option<String>),
    Resume(Option<String>),
    Disable(String),
    Enable(String),
}

impl HoldOrder {
    fn word(&self) -> &'static str {
        match self {
            HoldOrder::Pause(_) => "PAUSE",
            HoldOrder::Resume(_) => "RESUME",
            HoldOrder::Disable(_) => "DISABLE",
            HoldOrder::Enable(_) => "ENABLE",
        }
    }

    fn database(&self) -> Option<&str> {
        match self {
            HoldOrder::Pause(name) | HoldOrder::Resume(name) => name.as_deref(),
            HoldOrder::Disable(name) | HoldOrder::Enable(name) => Some(name),
        }
    }

    /// False if it is so already.
    fn apply(&self, holds: &mut FleetHolds) -> bool {
        match self {
            HoldOrder::Pause(None) => !std::mem::replace(&mut holds.all, true),
            HoldOrder::Resume(None) => std::mem::replace(&mut holds.all, false),
            HoldOrder::Pause(Some(name)) => holds.paused.insert(name.clone()),
            HoldOrder::Resume(Some(name)) => holds.paused.remove(name),
            HoldOrder::Disable(name) => holds.disabled.insert(name.clone()),
            HoldOrder::Enable(name) => holds.disabled.remove(name),
        }
    }
}

/// Whether a command with these arguments is for all nodes, and what database it names.
pub(crate) fn target(
    control: &Control,
    context: &CommandContext<'_>,
) -> Result<Option<Option<String>>, CommandError> {
    let is_fleet = |word: &str| word.eq_ignore_ascii_case(FLEET);
    match (context.argument, context.host) {
        (Some(name), Some(word)) if is_fleet(word) => Ok(Some(Some(name.to_owned()))),
        (_, Some(_)) => Err(context.invalid()),
        // An entry of this name is meant rather than the word.
        (Some(word), None)
            if is_fleet(word)
                && control.config.global.fleet.is_some()
                && !control.config.databases.contains_key(word) =>
        {
            Ok(Some(None))
        }
        _ => Ok(None),
    }
}

impl Control {
    /// PAUSE, RESUME, DISABLE and ENABLE on all nodes; answered when every node has done it.
    pub(crate) fn hold_in_fleet(
        &mut self,
        context: &CommandContext<'_>,
        order: HoldOrder,
    ) -> Result<(), CommandError> {
        if !self.config.global.fleet.is_some() {
            return Err(CommandError::Fleet(
                "this process is not a node of a fleet (setting fleet)".to_owned(),
            ));
        }
        let words = order.database().map_or_else(|| FLEET.to_owned(), |name| format!("{name} {FLEET}"));
        log_host_command(self, context, order.word(), order.database().unwrap_or_default(), &words);
        if order.database().is_some_and(|name| name.chars().any(char::is_control)) {
            return Err(CommandError::Fleet("a name for all nodes has no control characters".to_owned()));
        }
        if let Some(name) = order.database()
            && !matches!(order, HoldOrder::Resume(_) | HoldOrder::Enable(_))
        {
            if name == crate::CONSOLE {
                return Err(CommandError::ConsoleDatabase { verb: "pause or disable" });
            }
            if self.config.database(name).is_none() {
                return Err(CommandError::NoSuchDatabase(name.to_owned()));
            }
        }
        if self.is_ending() {
            return Err(CommandError::ShuttingDown);
        }
        self.shared_pools().map_err(|why| CommandError::Fleet(why.to_owned()))?;
        let purpose = Purpose::Fleet(order.word());
        let request = Request { requester: Some(context.requester), owed: 1, deadline_us: None, purpose };
        let request = self.requests.open(request);
        self.queue_pool_job(Job::Hold { request, order, attempts: 0 });
        Ok(())
    }

    /// A node of a fleet whose nodes have the same pools, or why it is none.
    pub(crate) fn shared_pools(&self) -> Result<(), &'static str> {
        let global = &self.config.global;
        if !global.fleet.is_some() {
            Err("this process is not a node of a fleet (setting fleet)")
        } else if !global.fleet_pools {
            Err("the setting fleet_pools is off")
        } else if self.pools_path().is_none() {
            Err("the setting pools_file does not name a file to keep them in")
        } else {
            Ok(())
        }
    }

    /// The text of the pools of all nodes that a change is made to, with the revision in the store and the next one. `part`: what the file has of them.
    pub(crate) fn fleet_pools_base(
        &self,
        part: (u64, PoolsText),
    ) -> Result<(u64, u64, PoolsText), PoolError> {
        let store = self.fleet_pools.store.as_ref().map(|(store, _)| store);
        let store = store.ok_or_else(|| PoolError::Fleet("the store has not been read yet".to_owned()))?;
        let (in_file, text) = part;
        let next = store.revision.max(in_file).saturating_add(1);
        match store.revision {
            0 => Ok((0, next, text)),
            base => Ok((base, next, text.sibling(&store.text))),
        }
    }

    /// The text of the pools of all nodes with what an order changes; none if it is so already. `base`: 0 if the store has none.
    pub(crate) fn held_text(
        &self,
        order: &HoldOrder,
        base: u64,
        mut text: PoolsText,
    ) -> Result<Option<PoolsText>, CommandError> {
        let mut holds = text.holds();
        if order.apply(&mut holds) {
            text.set_holds(&holds);
            return Ok(Some(text));
        }
        match order {
            HoldOrder::Resume(None) => Err(CommandError::NotPaused),
            HoldOrder::Resume(Some(name)) => Err(CommandError::DatabaseNotPaused(name.clone())),
            // The store has lost what the file says.
            _ => Ok((base == 0).then_some(text)),
        }
    }

    /// What could not be put into the file is tried again.
    pub(crate) fn retry_fleet_pools(&mut self) {
        self.fleet_pools.failure = None;
    }

    /// When it is tried again by itself.
    pub(crate) fn fleet_pools_deadline(&self) -> Option<u64> {
        self.fleet_pools.failure.as_ref().map(|failure| failure.retry_us)
    }

    /// The same, if it is time: the file may be on a disk that was full.
    pub(crate) fn retry_fleet_pools_when_due(&mut self) {
        let now_us = self.now_us;
        let Some(failure) = self.fleet_pools.failure.as_mut().filter(|failure| failure.retry_us <= now_us)
        else {
            return;
        };
        failure.retry_us = now_us + RETRY_US;
        if self.is_ending() || self.hands_over {
            return;
        }
        if let Some((pools, _)) = self.fleet_pools.store.clone()
            && self.shared_pools().is_ok()
        {
            self.queue_pool_job(Job::Adopt { pools, then: Then::Nothing });
        }
    }

    /// This node has changed them.
    pub(crate) fn fleet_pools_are(&mut self, pools: &FleetPools) {
        self.fleet_pools.store = Some((pools.clone(), digest(&pools.text)));
        self.fleet_pools.failure = None;
    }

    /// Whether these are in the file, and in force.
    pub(crate) fn has_fleet_pools(&self, pools: &FleetPools, digest: u64) -> bool {
        (self.config.fleet_part.revision, self.config.fleet_part.digest) == (pools.revision, digest)
    }

    /// The pools in the store, when they have been read and when they have changed.
    pub(crate) fn fleet_pools_known(&mut self, pools: FleetPools) {
        let in_file = self.config.fleet_part.revision;
        if (1..in_file).contains(&pools.revision) {
            let text = format!(
                "pools of the fleet: the store has gone back from revision {in_file} to {}",
                pools.revision
            );
            self.push(Output::Log(Record::new(Level::Warning, text)));
        }
        self.fleet_pools_are(&pools);
        self.follow_fleet_pools();
    }

    /// What is in the store is put into the file if it is not there, and what is held on all nodes is held here. A store that has lost them gets them back.
    pub(crate) fn follow_fleet_pools(&mut self) {
        if let Some((pools, digest)) = self.fleet_pools.store.clone()
            && self.shared_pools().is_ok()
        {
            if pools.revision == 0 {
                if self.config.fleet_part.revision > 0 {
                    self.queue_pool_job(Job::PutBack);
                }
            } else if !self.has_fleet_pools(&pools, digest) && self.fleet_pools.failure.is_none() {
                self.queue_pool_job(Job::Adopt { pools, then: Then::Nothing });
            }
        }
        self.hold_as_in_fleet();
        self.report_fleet_pools();
    }

    /// They are in the file and in force.
    pub(crate) fn fleet_pools_adopted(&mut self, pools: &FleetPools) {
        if self.fleet_pools.failure.take().is_some() {
            self.report_fleet_pools();
        }
        let by = if pools.by.is_empty() { "this node" } else { &pools.by };
        self.log(format!("pools of the fleet: revision {} by {by} is in force", pools.revision));
        let refused: Vec<String> =
            self.config.fleet_part.refused.iter().map(|finding| finding.message.clone()).collect();
        let logged = std::mem::replace(&mut self.fleet_pools.logged, refused.clone());
        for message in refused.iter().filter(|message| !logged.contains(message)) {
            let text = format!("pools of the fleet: left out: {message}");
            self.push(Output::Log(Record::new(Level::Warning, text)));
        }
    }

    /// They could not be put into the file.
    pub(crate) fn fleet_pools_failed(&mut self, pools: &FleetPools, why: &str) {
        if self.fleet_pools.failure.as_ref().is_none_or(|failure| failure.why != why) {
            let text = format!("pools of the fleet: revision {} cannot be used: {why}", pools.revision);
            self.push(Output::Log(Record::new(Level::Error, text)));
        }
        self.fleet_pools.failure = Some(Failure { why: why.to_owned(), retry_us: self.now_us + RETRY_US });
        self.report_fleet_pools();
    }

    /// At a start, before clients come: what was held on all nodes is held, until the store says otherwise.
    pub fn begin(&mut self) {
        self.hold_as_in_fleet();
    }

    /// What a process that takes over has to know, a line for each that is held.
    pub(crate) fn fleet_held_note(&self) -> String {
        let FleetHolds { all, paused, disabled } = &self.fleet_pools.held;
        let mut note = if *all { format!("{HELD}all\n") } else { String::new() };
        for (word, names) in [("paused", paused), ("disabled", disabled)] {
            for name in names {
                // Writing to a string does not fail.
                let _ = writeln!(note, "{HELD}{word}\t{name}");
            }
        }
        note
    }

    /// The inverse; other lines are ignored.
    pub(crate) fn import_fleet_held(&mut self, note: &str) {
        let mut held = FleetHolds::default();
        for line in note.lines().filter_map(|line| line.strip_prefix(HELD)) {
            match line.split_once('\t') {
                None => held.all |= line == "all",
                Some(("paused", name)) => drop(held.paused.insert(name.to_owned())),
                Some(("disabled", name)) => drop(held.disabled.insert(name.to_owned())),
                Some(_) => {}
            }
        }
        self.fleet_pools.held = held;
    }

    /// What is held on all nodes, as far as this one knows.
    fn wanted_holds(&self) -> FleetHolds {
        match &self.fleet_pools.store {
            _ if self.shared_pools().is_err() => FleetHolds::default(),
            Some((pools, _)) if pools.revision > 0 => FleetHolds::read(&pools.text),
            _ => self.config.fleet_part.holds.clone(),
        }
    }

    /// Pauses, resumes, disables and enables what differs from all nodes.
    pub(crate) fn hold_as_in_fleet(&mut self) {
        let wanted = self.wanted_holds();
        self.interrupt_waiting(&wanted);
        let FleetHolds { all, paused, disabled } = self.fleet_pools.held.clone();
        if wanted.all && !all {
            self.fleet_pools.held.all = self.pause_for_fleet(None) || self.pause_state.whole();
        } else if all && !wanted.all {
            self.fleet_pools.held.all = false;
            self.resume_for_fleet(None);
        }
        for name in paused.difference(&wanted.paused) {
            self.fleet_pools.held.paused.remove(name);
            self.resume_for_fleet(Some(name));
        }
        for name in wanted.paused.difference(&paused) {
            if self.config.database(name).is_some() && self.pause_for_fleet(Some(name)) {
                self.fleet_pools.held.paused.insert(name.clone());
            }
        }
        for (names, is_disabled) in [
            (wanted.disabled.difference(&disabled).cloned().collect::<BTreeSet<_>>(), true),
            (disabled.difference(&wanted.disabled).cloned().collect(), false),
        ] {
            for database in names {
                self.pause_state.set_disabled(&database, is_disabled);
                match is_disabled {
                    true => self.fleet_pools.held.disabled.insert(database.clone()),
                    false => self.fleet_pools.held.disabled.remove(&database),
                };
                self.broadcast(&Command::Disable { database, disabled: is_disabled });
            }
        }
    }

    /// PAUSE that waits for all nodes, and was undone by RESUME.
    fn interrupt_waiting(&mut self, wanted: &FleetHolds) {
        let is_undone = |order: &HoldOrder| match order {
            HoldOrder::Pause(None) => !wanted.all,
            HoldOrder::Pause(Some(name)) => !wanted.paused.contains(name),
            _ => false,
        };
        let undone: Vec<RequestId> =
            self.fleet_pools.waiting.extract_if(.., |_, order| is_undone(order)).map(|(id, _)| id).collect();
        for request in undone {
            self.push(Output::ForgetFleetPools(request));
            self.refuse_hold(request, &CommandError::Interrupted);
        }
    }

    /// The order is carried out here: its command is answered when it is on all nodes.
    pub(crate) fn await_fleet_pools(&mut self, request: RequestId, order: HoldOrder, revision: u64) {
        let wait = match &order {
            HoldOrder::Pause(name) => FleetPoolsWait::Paused(name.clone()),
            HoldOrder::Resume(_) | HoldOrder::Disable(_) | HoldOrder::Enable(_) => FleetPoolsWait::InUse,
        };
        self.fleet_pools.waiting.insert(request, order);
        self.push(Output::AwaitFleetPools { request, revision, wait });
    }

    /// The requester of a command no longer waits.
    pub(crate) fn forget_fleet_pools(&mut self, request: RequestId) {
        self.fleet_pools.waiting.remove(&request);
        self.push(Output::ForgetFleetPools(request));
    }

    /// False if everything is paused here already.
    fn pause_for_fleet(&mut self, name: Option<&String>) -> bool {
        if self.pause_state.pause(name.map(String::as_str)).is_err() {
            return false;
        }
        let database = name.cloned();
        self.request_all(None, Purpose::FleetPause(database.clone()), true, |request| Command::Pause {
            request,
            database: database.clone(),
        });
        true
    }

    fn resume_for_fleet(&mut self, name: Option<&String>) {
        if self.pause_state.resume(name.map(String::as_str)).is_ok() {
            self.resume_shards(name.cloned());
        }
    }

    /// Says to the others what this node uses, and whether what it is to pause is paused.
    pub(crate) fn report_fleet_pools(&mut self) {
        let Some((store, digest)) = &self.fleet_pools.store else { return };
        let is_pausing =
            self.requests.has(|purpose| matches!(purpose, Purpose::FleetPause(_) | Purpose::Pause(_)));
        let (revision, said) = (store.revision, &self.fleet_pools.said);
        // It may have gone back.
        let paused = if is_pausing { said.paused.min(revision) } else { revision };
        let none = |why: &str| FleetPoolsInUse {
            revision,
            paused,
            uses_none: true,
            refused: why.to_owned(),
            ..FleetPoolsInUse::default()
        };
        let in_use = match (revision, self.shared_pools(), &self.fleet_pools.failure) {
            (0, ..) => FleetPoolsInUse::default(),
            (_, Err(why), _) => none(why),
            (_, Ok(()), Some(failure)) => none(&failure.why),
            (_, Ok(()), None) if !self.has_fleet_pools(store, *digest) => return,
            (_, Ok(()), None) => {
                let (resumed, refused) = (self.resumed_here(), self.refused());
                FleetPoolsInUse { revision, paused, resumed, uses_none: false, refused }
            }
        };
        if *said != in_use {
            self.fleet_pools.said = in_use.clone();
            self.push(Output::FleetPoolsInUse(in_use));
        }
    }

    /// What all nodes pause, and this one not any more.
    fn resumed_here(&self) -> Vec<Option<String>> {
        let FleetHolds { all, paused, .. } = &self.fleet_pools.held;
        if self.pause_state.whole() {
            return Vec::new();
        }
        let resumed = paused.iter().filter(|name| !self.pause_state.holds(name));
        let resumed = resumed.map(|name| Some(name.clone()));
        all.then_some(None).into_iter().chain(resumed).take(MOST_RESUMED).collect()
    }

    /// What is left out, and what is resumed here alone, in short.
    fn refused(&self) -> String {
        let left_out = self.config.fleet_part.refused.iter().map(|finding| finding.message.clone());
        let resumed = self.resumed_here().into_iter();
        let enabled = self.fleet_pools.held.disabled.iter().filter(|name| !self.pause_state.disables(name));
        let texts = left_out
            .chain(
                resumed.map(|name| format!("{} is resumed on this node", name.as_deref().unwrap_or("all"))),
            )
            .chain(enabled.map(|name| format!("{name} is enabled on this node")));
        let text = texts.collect::<Vec<_>>().join("; ");
        let mut text: String = text.chars().map(|c| if c.is_control() { '?' } else { c }).collect();
        if text.len() > MOST_REFUSED {
            text.truncate(text.floor_char_boundary(MOST_REFUSED));
            text.push_str("...");
        }
        text
    }

    /// Every node has done what a command has asked for, or does not do it.
    pub(crate) fn fleet_pools_used(&mut self, request: RequestId, result: Result<(), String>) {
        self.fleet_pools.waiting.remove(&request);
        self.fleet_answered(request, result);
    }

    pub(crate) fn refuse_hold(&mut self, request: RequestId, why: &CommandError) {
        if let Some(Request { requester: Some(requester), .. }) = self.requests.close(request) {
            self.refuse(requester, why);
        }
    }
}

/// The words for [`FleetPoolsError`].
pub(crate) fn words(error: FleetPoolsError) -> String {
    match error {
        FleetPoolsError::Superseded => "other nodes change them at the same time".to_owned(),
        FleetPoolsError::Failed(why) => why,
    }
}

#[cfg(test)]
mod tests;
