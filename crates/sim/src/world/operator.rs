//! What an operator does: commands to all shards, what is to be expected of each, and how each is undone.
//!
//! Knows what is in force as the control thread does; what a command does inside a shard is the shard's.

use std::collections::{BTreeMap, BTreeSet};

use messages::{Command, Drain, Listing, Report, RequestId, ShutdownMode, Subject};

use super::{Era, What, World};
use crate::fault::Fault;
use crate::pooler::Pooler;
use crate::setup;

/// Within this time a command has reached every shard, and what was on the way before it has arrived.
const REACHED_US: u64 = 20_000;
/// Within this time a client that was sent away has noticed.
const NOTICED_US: u64 = 10 * crate::clock::SECOND_US;

/// How something that an operator did is undone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Undo {
    /// RESUME, of a database or of all.
    Resume(Option<String>),
    /// ENABLE.
    Enable(String),
    /// A removed entry of `[databases]` is there again.
    Restore(String),
    /// ATTACH of a host of a database.
    Attach(String, String),
    /// Reads of a database go to standbys again.
    Split(String),
    /// UNDRAIN.
    Undrain,
}

/// A command whose answer is awaited.
#[derive(Clone, Debug)]
pub(super) enum Awaited {
    Pause(Option<String>),
    Kill(Option<String>),
    Suspend,
    WaitClose,
    /// KILL_CLIENT of this client.
    KillClient(u32),
    /// SHOW CLIENTS, of which one is to be killed.
    ShowClients,
    Shutdown(ShutdownMode),
    /// DETACH or ATTACH.
    Detach,
}

/// What an operator has done and not undone.
#[derive(Debug, Default)]
pub(super) struct Operator {
    /// PAUSE of all.
    pub(super) whole: bool,
    /// KILL of all.
    pub(super) killed: bool,
    pub(super) suspended: bool,
    /// PAUSE or KILL of single databases.
    pub(super) named: BTreeSet<String>,
    /// DISABLE, with the time since which no new client gets in.
    pub(super) disabled: BTreeMap<String, u64>,
    /// DRAIN, with the time since which no new client gets in.
    pub(super) drain: Option<(Drain, u64)>,
    /// Entries that were removed.
    pub(super) removed: BTreeSet<String>,
    /// Clients of these databases that begin before then may be sent away.
    unsafe_until_us: BTreeMap<String, u64>,
    /// Commands that have not reached their shard.
    pub(super) under_way: u32,
    requests: u64,
    awaited: BTreeMap<RequestId, (Awaited, usize, u64)>,
    /// SHUTDOWN.
    pub(super) ending: Option<ShutdownMode>,
    /// Clients that were sent away, and by when they must have noticed.
    pub(super) sent_away: Vec<(u32, u64)>,
}

impl Operator {
    /// Whether a database is paused by what is in force.
    pub(super) fn is_paused(&self, database: &str) -> bool {
        self.whole || self.killed || self.suspended || self.named.contains(database)
    }

    /// RESUME; false if there is nothing to resume.
    pub(super) fn resume(&mut self, database: Option<&str>) -> bool {
        let Some(name) = database else {
            let is_something = self.whole || self.killed || self.suspended;
            (self.whole, self.killed, self.suspended) = (false, false, false);
            return is_something;
        };
        self.named.remove(name)
    }

    /// What the next process knows of it: what is paused by SUSPEND is not.
    pub(super) fn inherited(&self) -> Operator {
        Operator {
            whole: self.whole,
            killed: self.killed,
            named: self.named.clone(),
            disabled: self.disabled.clone(),
            drain: self.drain,
            removed: self.removed.clone(),
            unsafe_until_us: self.unsafe_until_us.clone(),
            under_way: self.under_way,
            requests: self.requests,
            ..Operator::default()
        }
    }

    /// The process has ended, and what was done in it with it. The configuration stays.
    pub(super) fn end(&mut self) {
        *self = Operator {
            removed: std::mem::take(&mut self.removed),
            unsafe_until_us: std::mem::take(&mut self.unsafe_until_us),
            under_way: self.under_way,
            requests: self.requests,
            ..Operator::default()
        };
    }

    /// The process that an operator was speaking to has died: what was done in the one before is in force again.
    pub(super) fn succeed(&mut self, before: Operator) {
        let unsafe_until_us = std::mem::take(&mut self.unsafe_until_us);
        let (under_way, requests) = (self.under_way, self.requests);
        *self = Operator { unsafe_until_us, under_way, requests, suspended: false, ..before };
        self.awaited.clear();
        self.sent_away.clear();
    }

    /// Whether a client of this database that begins now may be sent away by what an operator did.
    pub(super) fn is_unsafe(&self, database: &str, now_us: u64) -> bool {
        self.ending.is_some()
            || self.drain.is_some()
            || self.disabled.contains_key(database)
            || self.removed.contains(database)
            || self.unsafe_until_us.get(database).is_some_and(|until_us| now_us < *until_us)
    }
}

impl<P: Pooler> World<P> {
    /// A command of an operator; what was begun is undone after `for_us`.
    pub(super) fn operate(&mut self, fault: Fault, for_us: u64) {
        if self.operator.ending.is_some() || self.current.is_none() {
            return;
        }
        let which = u32::try_from(self.prng.below(u64::from(self.swarm.pooling.databases))).unwrap_or(0);
        let one = setup::database(which);
        let is_free = !(self.operator.whole || self.operator.suspended);
        match fault {
            Fault::Pause if is_free => self.pause(None, for_us),
            Fault::PauseOne if is_free => self.pause(Some(one), for_us),
            Fault::Suspend if is_free && !self.operator.killed && self.operator.named.is_empty() => {
                self.operator.suspended = true;
                self.ask(Awaited::Suspend, |request| Command::Suspend { request });
                self.undo_later(Undo::Resume(None), for_us);
            }
            Fault::Kill if is_free => self.kill(self.one_or_all(one), for_us),
            Fault::KillClient => {
                let subject = Subject::Clients;
                self.ask(Awaited::ShowClients, |request| Command::List { request, subject });
            }
            Fault::Reconnect => {
                let database = self.one_or_all(one);
                self.forget_probed(database.as_deref());
                self.command(&Command::Reconnect { database });
            }
            Fault::Disable => {
                self.operator.disabled.entry(one.clone()).or_insert(self.clock.now_us() + REACHED_US);
                self.disturb(Some(&one), true);
                self.command(&Command::Disable { database: one.clone(), disabled: true });
                self.undo_later(Undo::Enable(one), for_us);
            }
            Fault::Drain if self.operator.drain.is_none() => self.drain(for_us),
            Fault::WaitClose => {
                let database = self.one_or_all(one);
                let order = |request| Command::WaitClose { request, database: database.clone() };
                self.ask(Awaited::WaitClose, order);
            }
            Fault::Resize | Fault::Reload => self.reload(fault == Fault::Resize, &one, for_us),
            Fault::Detach => self.detach(one, for_us),
            Fault::Unsplit => {
                self.split(&one, false);
                self.undo_later(Undo::Split(one), for_us);
            }
            _ => (),
        }
    }

    fn one_or_all(&self, one: String) -> Option<String> {
        // Drawn from what has happened so far, so that the stream of chances is the same for all commands.
        (!self.events.is_multiple_of(3)).then_some(one)
    }

    fn pause(&mut self, database: Option<String>, for_us: u64) {
        match &database {
            None => self.operator.whole = true,
            Some(name) => drop(self.operator.named.insert(name.clone())),
        }
        let order = |request| Command::Pause { request, database: database.clone() };
        self.ask(Awaited::Pause(database.clone()), order);
        self.undo_later(Undo::Resume(database), for_us);
    }

    /// Clients that have logged in stay, or are ended outside of transactions.
    fn drain(&mut self, for_us: u64) {
        let order = if self.events.is_multiple_of(2) { Drain::AllClients } else { Drain::NewClients };
        self.operator.drain = Some((order, self.clock.now_us() + REACHED_US));
        self.disturb_newcomers(order == Drain::AllClients);
        self.command(&Command::Drain(order));
        self.undo_later(Undo::Undrain, for_us);
    }

    fn undrain(&mut self) {
        if self.operator.drain.take().is_some() {
            self.disturb_newcomers(false);
            self.command(&Command::Drain(Drain::Off));
        }
    }

    /// Clients that are logging in, or come before the command is everywhere, may be refused; those that have logged in may be ended where `all`.
    fn disturb_newcomers(&mut self, all: bool) {
        for client in self.clients.iter_mut().filter(|client| all || !client.is_open()) {
            client.disturbed = true;
        }
        let until_us = self.clock.now_us() + REACHED_US;
        let names = (0..self.swarm.pooling.databases).map(setup::database);
        self.operator.unsafe_until_us.extend(names.map(|name| (name, until_us)));
    }

    fn kill(&mut self, database: Option<String>, for_us: u64) {
        match &database {
            None => self.operator.killed = true,
            Some(name) => drop(self.operator.named.insert(name.clone())),
        }
        self.disturb(database.as_deref(), true);
        let order = |request| Command::Kill { request, database: database.clone() };
        self.ask(Awaited::Kill(database.clone()), order);
        self.undo_later(Undo::Resume(database), for_us);
    }

    /// Clients of a database (all) that are there, or come before the command is everywhere, may be sent away.
    pub(super) fn disturb(&mut self, database: Option<&str>, newcomers_too: bool) {
        let until_us = self.clock.now_us() + REACHED_US;
        let names = (0..self.swarm.pooling.databases).map(setup::database);
        for name in names.filter(|name| database.is_none_or(|database| database == name)) {
            for number in 0..self.clients.len() {
                if self.births[number].database == name {
                    self.clients[number].disturbed = true;
                }
            }
            if newcomers_too {
                self.operator.unsafe_until_us.insert(name, until_us);
            }
        }
    }

    pub(super) fn undo_later(&mut self, undo: Undo, after_us: u64) {
        self.clock.after(after_us, What::Undo(undo));
    }

    pub(super) fn undo(&mut self, undo: Undo) {
        match undo {
            Undo::Resume(database) => self.resume(database),
            Undo::Enable(database) => {
                if self.operator.disabled.remove(&database).is_some() {
                    self.disturb(Some(&database), true);
                    self.command(&Command::Disable { database, disabled: false });
                }
            }
            Undo::Attach(database, host) => self.order_detach(&database, &host, false),
            Undo::Split(database) => self.split(&database, true),
            Undo::Undrain => self.undrain(),
            Undo::Restore(database) => {
                if self.operator.removed.remove(&database) {
                    self.disturb(Some(&database), true);
                    self.configure_again();
                }
            }
        }
    }

    fn resume(&mut self, database: Option<String>) {
        let operator = &mut self.operator;
        if !operator.resume(database.as_deref()) {
            return;
        }
        operator.awaited.retain(|_, (awaited, ..)| match awaited {
            Awaited::Pause(paused) | Awaited::Kill(paused) => *paused != database,
            Awaited::Suspend => database.is_some(),
            _ => true,
        });
        let resume = Command::Resume { database };
        self.command(&resume);
        self.resume_predecessors(&resume);
    }

    /// Everything that an operator has done is undone.
    pub(super) fn undo_everything(&mut self) {
        let named = self.operator.named.iter().map(|name| Undo::Resume(Some(name.clone())));
        let disabled = self.operator.disabled.keys().map(|name| Undo::Enable(name.clone()));
        let removed = self.operator.removed.iter().map(|name| Undo::Restore(name.clone()));
        let undone: Vec<Undo> = named.chain(disabled).chain(removed).collect();
        self.resume(None);
        self.undrain();
        for undo in undone {
            self.undo(undo);
        }
    }

    /// Sends a command that is answered to every shard.
    pub(super) fn ask(&mut self, awaited: Awaited, order: impl Fn(RequestId) -> Command) {
        self.operator.requests += 1;
        let request = RequestId(self.operator.requests);
        let owed = self.current_shards().len();
        self.operator.awaited.insert(request, (awaited, owed, 0));
        self.command(&order(request));
    }

    /// The control thread speaks to every shard.
    pub(super) fn command(&mut self, command: &Command) {
        if self.trace.keeps_lines() {
            self.say(format_args!("operator: {}", in_words(command)));
        }
        for shard in self.current_shards() {
            let at_us = self.post(shard);
            self.operator.under_way += 1;
            self.clock.at(at_us, What::Command(shard, command.clone()));
        }
    }

    /// What shards tell the control thread.
    pub(super) fn hear(&mut self, shard: usize, report: Report) {
        match report {
            Report::Listing { rows: Listing::Sockets(rows), last, request, .. } => {
                if self.era == Era::Chaos && self.operator.awaited.contains_key(&request) && !rows.is_empty()
                {
                    let at = self.prng.index(rows.len());
                    self.operator.awaited.remove(&request);
                    self.kill_client(rows[at].id, &rows[at].address, rows[at].port);
                } else if last {
                    self.heard(request, 0);
                }
            }
            Report::Done { request, count, .. } => {
                if let Some((awaited, ..)) = self.operator.awaited.get(&request).cloned() {
                    self.judge_done(shard, &awaited);
                    self.heard(request, count);
                }
            }
            Report::StrayCancel { key } => self.ask_predecessor_to_cancel(shard, key),
            _ => (),
        }
    }

    fn heard(&mut self, request: RequestId, count: u64) {
        let Some((_, owed, total)) = self.operator.awaited.get_mut(&request) else { return };
        *owed = owed.saturating_sub(1);
        *total += count;
        if *owed > 0 {
            return;
        }
        let Some((awaited, _, total)) = self.operator.awaited.remove(&request) else { return };
        match awaited {
            Awaited::KillClient(number) if total == 1 => {
                self.operator.sent_away.push((number, self.clock.now_us() + NOTICED_US));
            }
            Awaited::KillClient(number) if total > 1 => {
                self.checker.object("I15", format!("KILL_CLIENT of c{number} closed {total} clients"));
            }
            Awaited::Shutdown(mode) => self.shutdown_done(mode),
            _ => (),
        }
    }

    fn kill_client(&mut self, id: u64, address: &str, port: u16) {
        let is_it = |end: &Option<crate::network::End>| {
            end.is_some_and(|end| setup::peer_of(end.link.0) == (address.to_owned(), port))
        };
        let Some(number) = self.client_ends.iter().position(is_it) else { return };
        self.clients[number].disturbed = true;
        let number = u32::try_from(number).unwrap_or(0);
        self.ask(Awaited::KillClient(number), |request| Command::KillClient { request, id });
    }

    /// Commands that are answered when something has become true must be answered in the end.
    pub(super) fn expect_commands_answered(&mut self) {
        if let Some((awaited, owed, _)) = self.operator.awaited.values().next() {
            let text = format!("{owed} shards have not answered {awaited:?}");
            self.checker.object("I15", text);
        }
    }

    /// Clients that were sent away have gone.
    pub(super) fn expect_sent_away_gone(&mut self) {
        let now_us = self.clock.now_us();
        if now_us < self.excused_until_us {
            return;
        }
        let late =
            |(number, by_us): &&(u32, u64)| now_us > *by_us && self.client_ends[*number as usize].is_some();
        if let Some((number, _)) = self.operator.sent_away.iter().find(late) {
            let text = format!("c{number} was closed by KILL_CLIENT and is still connected");
            self.checker.object("I15", text);
        }
        self.operator.sent_away.retain(|(_, by_us)| now_us <= *by_us);
    }
}

/// A command for the trace; of a configuration only what worlds differ in.
pub(super) fn in_words(command: &Command) -> String {
    let Command::Configure(config) = command else { return format!("{command:?}") };
    let global = &config.global;
    let hosts: Vec<_> =
        config.databases.values().map(|entry| (&entry.name, &entry.host, entry.pool_mode)).collect();
    format!(
        "Configure {:?}, pool_size {}, {} statements, reset {:?} (always: {}), check {:?} after {:?}, auth {:?}, {hosts:?}",
        global.pool_mode,
        global.default_pool_size,
        global.max_prepared_statements,
        global.server_reset_query,
        global.server_reset_query_always,
        global.server_check_query,
        global.server_check_delay,
        global.auth_type,
    )
}
