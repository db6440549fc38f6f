//! What must hold under the commands of an operator: PAUSE, SUSPEND and KILL are done only when nothing is left to do,
//! and then nothing happens until RESUME; a pool is paused only while a command says so (I15).

use messages::Command;

use super::operator::Awaited;
use super::{ConnRef, World};
use crate::client::session::Phase;
use crate::pooler::Pooler;
use crate::tap::Purpose;

/// Which commands are done on a shard and not undone there.
#[derive(Debug, Default)]
pub(super) struct Quiescence {
    /// PAUSE or KILL, of all (None) or of single databases.
    paused: std::collections::BTreeSet<Option<String>>,
    /// SUSPEND, and since when.
    suspended_us: Option<u64>,
}

/// What was read before SUSPEND, and one buffer more, is passed on within this time.
const LAST_READ_US: u64 = 5_000;

impl Quiescence {
    /// The process that takes over speaks: it does not stand still, and passes RESUME on.
    pub(super) fn note_order(&mut self, command: &Command) {
        match command {
            Command::Export { .. } => self.suspended_us = None,
            Command::Resume { database } => drop(self.paused.remove(database)),
            _ => (),
        }
    }

    /// A connection comes from another process: under SUSPEND one buffer of it is still passed on, as of those that were there.
    pub(super) fn note_import(&mut self, now_us: u64) {
        self.suspended_us = self.suspended_us.map(|since_us| since_us.max(now_us));
    }

    fn covers(&self, database: &str, now_us: u64) -> bool {
        let is_still = self.suspended_us.is_some_and(|since_us| now_us > since_us + LAST_READ_US);
        is_still || self.paused.contains(&None) || self.paused.contains(&Some(database.to_owned()))
    }
}

impl<P: Pooler> World<P> {
    /// A shard is about to be told a command.
    pub(super) fn note_command(&mut self, shard: usize, command: &Command) {
        self.operator.under_way -= 1;
        let still = &mut self.shards[shard].still;
        if let Command::Reconnect { database } = command {
            return self.forget_shown(shard, database.as_deref());
        }
        if let Command::Resume { database } = command {
            still.paused.remove(database);
            still.suspended_us = still.suspended_us.filter(|_| database.is_some());
        }
    }

    /// A shard says that what a command asked for is true.
    pub(super) fn judge_done(&mut self, shard: usize, awaited: &Awaited) {
        match awaited {
            // Who is still in a process before is not killed, and may come yet.
            Awaited::Kill(_) if self.is_taken_over(self.shards[shard].process) => (),
            Awaited::Pause(_) if self.has_just_been_taken_over() => (),
            Awaited::Pause(database) | Awaited::Kill(database) => {
                let open = self.shards[shard].sockets.iter().flatten().filter(|socket| !socket.closing);
                let left = open.filter_map(|socket| socket.tap.as_deref()).find(|tap| match &tap.purpose {
                    Purpose::Session { database: open, .. } => {
                        database.as_ref().is_none_or(|database| database == open)
                    }
                    _ => false,
                });
                if let Some(tap) = left {
                    let text = format!("shard {shard} has paused {database:?} and holds {:?}", tap.purpose);
                    return self.checker.object("I15", text);
                }
                self.shards[shard].still.paused.insert(database.clone());
            }
            Awaited::Suspend => self.shards[shard].still.suspended_us = Some(self.clock.now_us()),
            _ => (),
        }
    }

    /// A connection has become a session of a server.
    pub(super) fn expect_not_paused(&mut self, spot: ConnRef, database: &str) {
        // Under SUSPEND what is being opened is opened.
        let paused = &self.shards[spot.shard].still.paused;
        if paused.contains(&None) || paused.contains(&Some(database.to_owned())) {
            let text = format!("shard {} opened a server of {database}, which is paused", spot.shard);
            self.checker.object("I15", text);
        }
    }

    /// A client's request was sent to a server.
    pub(super) fn expect_not_still(&mut self, spot: ConnRef, purpose: &Purpose) {
        if let Purpose::Session { database, .. } = purpose
            && self.shards[spot.shard].still.covers(database, self.clock.now_us())
        {
            let text =
                format!("shard {} sent a request to a server of {database}, which is paused", spot.shard);
            self.checker.object("I15", text);
        }
    }

    /// A client has come in.
    pub(super) fn expect_let_in(&mut self, number: u32) {
        let birth = &self.births[number as usize];
        let since_us = self.operator.disabled.get(&birth.database);
        let is_open = self.clients[number as usize].phase == Phase::Open;
        if is_open && since_us.is_some_and(|since_us| *since_us < birth.at_us) {
            let text = format!("c{number} was let into {}, which is disabled", birth.database);
            self.checker.object("I15", text);
        }
        if is_open && self.operator.drain.is_some_and(|(_, since_us)| since_us < birth.at_us) {
            self.checker.object("I15", format!("c{number} was let in while the pooler drains"));
        }
    }

    /// Once no command is on its way: pools are paused if, and only if, a command that is in force says so.
    pub(super) fn expect_pauses_in_force(&mut self) {
        if self.operator.under_way > 0 {
            return;
        }
        let mut found = None;
        if self.operator.ending.is_some() {
            return;
        }
        for number in self.current_shards() {
            let shard = &self.shards[number];
            for state in shard.pooler.pools() {
                if state.pool.paused != self.operator.is_paused(state.database) {
                    let is = if state.pool.paused { "paused" } else { "not paused" };
                    found =
                        Some(format!("{} is {is} on shard {number}; {:?}", state.database, self.operator));
                }
            }
        }
        if let Some(text) = found {
            self.checker.object("I15", text);
        }
    }
}
