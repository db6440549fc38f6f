//! The pooler's processes: one that accepts, perhaps predecessors that still hand over, and those that have ended.
//!
//! Owns how a process starts and ends (SHUTDOWN, crash), and what an end may do to clients (I20).

use std::ops::Range;
use std::sync::Arc;

use messages::{Command, RequestId, ShutdownMode};
use settings::Config;
use shard::Event;

use super::operator::{Awaited, Operator, Undo};
use super::{Owner, ShardBox, What, World};
use crate::directory::Names;
use crate::network::Ending;
use crate::pooler::Pooler;
use crate::tap::Purpose;

/// Starts the shards of a process; the number is that of processes before it.
pub(crate) type Starter<P> = Box<dyn Fn(u64, &Arc<Config>) -> (Vec<P>, Arc<Names>)>;

/// A process.
pub(super) struct Process {
    /// Its shards, among all.
    pub(super) shards: Range<usize>,
    pub(super) names: Arc<Names>,
    /// What its operator has done, once another process has taken over.
    pub(super) operator: Option<Operator>,
}

impl<P: Pooler> World<P> {
    /// A process starts, and accepts from now on; its number.
    pub(super) fn start_process(&mut self) -> usize {
        let number = self.processes.len();
        if number > 0 {
            self.quotas.end();
        }
        let mut config = (*self.config).clone();
        config.databases.retain(|name, _| !self.operator.removed.contains(name));
        let (poolers, names) = (self.starter)(number as u64, &Arc::new(config));
        let first = self.shards.len();
        for pooler in poolers {
            let shard = self.shards.len();
            self.shards.push(ShardBox::new(pooler, number));
            self.clock.after(crate::clock::SECOND_US / 10, What::Busy(shard));
        }
        self.processes.push(Process { shards: first..self.shards.len(), names, operator: None });
        self.current = Some(number);
        self.begin_probing_hosts(number);
        number
    }

    /// The shards of the process that accepts.
    pub(super) fn current_shards(&self) -> Range<usize> {
        self.current.map_or(0..0, |current| self.processes[current].shards.clone())
    }

    /// A shard by the number that it has in the process of another one.
    pub(super) fn sibling(&self, shard: usize, number: u16) -> usize {
        self.processes[self.shards[shard].process].shards.start + usize::from(number)
    }

    /// What the process that accepts, or did last, has counted.
    pub(super) fn names(&self) -> &Names {
        let last = self.processes.len() - 1;
        &self.processes[self.current.unwrap_or(last)].names
    }

    /// SHUTDOWN of a kind, or SIGTERM, SIGINT, SIGQUIT, which mean the same.
    pub(super) fn shut_down(&mut self) {
        let Some(current) = self.current else { return };
        if self.operator.ending.is_some() || self.is_taken_over(current) {
            return;
        }
        self.undo_everything();
        let modes = [None, Some(ShutdownMode::WaitForServers), Some(ShutdownMode::WaitForClients)];
        let mode = self.prng.pick(&modes);
        self.disturb(None, true);
        let Some(mode) = mode else {
            self.say(format_args!("operator: SHUTDOWN"));
            return self.exit(current);
        };
        self.spared = match mode {
            ShutdownMode::WaitForServers if self.swarm.is_fair() => self.clients_in_transactions(),
            _ => Vec::new(),
        };
        self.operator.ending = Some(mode);
        self.ask(Awaited::Shutdown(mode), |request| Command::Shutdown { request, mode });
    }

    fn clients_in_transactions(&self) -> Vec<u32> {
        let open = self.slots.iter().flatten().copied();
        open.filter(|number| self.clients[*number as usize].is_in_transaction()).collect()
    }

    /// Clients that were in a transaction when a gentle end began end it (I20).
    pub(super) fn expect_spared(&mut self, number: u32, hung_up: bool) {
        let Some(place) = self.spared.iter().position(|spared| *spared == number) else { return };
        let client = &self.clients[number as usize];
        // The network may cut it, too.
        if !client.is_in_transaction() || client.disturbed {
            self.spared.remove(place);
        } else if hung_up {
            let text = format!("c{number} was cut in a transaction by SHUTDOWN WAIT_FOR_SERVERS");
            self.checker.object("I20", text);
        }
    }

    /// Every shard has done what a gentle end waits for.
    pub(super) fn shutdown_done(&mut self, mode: ShutdownMode) {
        let Some(current) = self.current else { return };
        for shard in self.processes[current].shards.clone() {
            let left = self.shards[shard].sockets.iter().flatten().filter(|socket| !socket.closing);
            let servers = left.filter_map(|socket| socket.tap.as_deref());
            let has_server = servers.into_iter().any(|tap| matches!(tap.purpose, Purpose::Session { .. }));
            if has_server && mode == ShutdownMode::WaitForServers {
                self.checker.object("I20", format!("shard {shard} ended and held servers"));
            }
        }
        self.exit(current);
    }

    /// The process ends; another one starts after a while.
    fn exit(&mut self, process: usize) {
        self.end_process(process);
        self.current = None;
        self.spared.clear();
        self.operator.end();
        let after = self.prng.log_between(1_000, 100_000);
        self.clock.after(after, What::Start);
    }

    /// A process is started in place of one that has ended.
    pub(super) fn start_anew(&mut self) {
        if self.current.is_none() {
            self.disturb(None, true);
            self.start_process();
        }
    }

    /// All sockets of a process are closed by the system.
    pub(super) fn end_process(&mut self, process: usize) {
        self.disturb(None, true);
        self.end_takeovers_of(process);
        for shard in self.processes[process].shards.clone() {
            self.shards[shard].ended = true;
            for socket in std::mem::take(&mut self.shards[shard].sockets).into_iter().flatten() {
                if let Some(end) = socket.end.filter(|_| !socket.closing) {
                    self.abandon(end);
                }
            }
        }
    }

    /// The system closes a socket that no process has any more.
    pub(super) fn abandon(&mut self, end: crate::network::End) {
        let unread = self.network.readable(end) > 0;
        let ending = if unread { Ending::Reset } else { Ending::Finish };
        self.network.close(end, ending, &mut self.clock);
        self.set_owner(end, Owner::Nobody);
    }

    /// What was paused, disabled or drained in the process before is so in the next, before anything comes in.
    pub(super) fn tell_inherited_pauses(&mut self) {
        let request = RequestId(0);
        let all = (self.operator.whole || self.operator.killed).then_some(None);
        let named = self.operator.named.iter().cloned().map(Some);
        let pauses = all.into_iter().chain(named).map(|database| Command::Pause { request, database });
        let disabled = self.operator.disabled.keys().cloned();
        let disables = disabled.map(|database| Command::Disable { database, disabled: true });
        let drain = self.operator.drain.map(|(order, _)| Command::Drain(order));
        let commands: Vec<Command> = pauses.chain(disables).chain(drain).collect();
        for shard in self.current_shards() {
            for command in &commands {
                self.deliver(shard, Event::Command(command.clone()));
            }
        }
    }

    /// Whether what was begun in an earlier process is still to be undone in this one.
    pub(super) fn undo_in_time(&mut self, undo: Undo) {
        // A process that is ending is resumed no more, and one that has ended has forgotten everything.
        if self.operator.ending.is_none() && self.current.is_some() {
            self.undo(undo);
        }
    }
}
