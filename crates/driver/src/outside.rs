//! What a shard's thread knows of the rest of the process: letters, helpers, the log, the listening sockets.
//!
//! Never touches a connection.

use std::sync::Arc;

use mail::{Neighbour, Report, ShardId};
use shard::HandOn;
use telemetry::{Level, Record};

use crate::door::Door;
use crate::engine::{Log, Reports};
use crate::gate::Gate;
use crate::helpers::Helpers;
use crate::listen::Listener;
use crate::mailbox::{Letter, Mailbox, Mover};
use crate::succession::{Item, Leaver, Succession};

/// One shard's share of the process.
pub(crate) struct Outside {
    pub(crate) id: ShardId,
    pub(crate) mailboxes: Arc<[Mailbox]>,
    pub(crate) helpers: Arc<Helpers>,
    pub(crate) door: Arc<Door>,
    pub(crate) succession: Arc<Succession>,
    pub(crate) listeners: Vec<Arc<Listener>>,
    pub(crate) reports: Reports,
    pub(crate) log: Log,
}

impl Outside {
    /// This shard's own mailbox.
    pub(crate) fn mailbox(&self) -> &Mailbox {
        &self.mailboxes[usize::from(self.id.0)]
    }

    /// The listening sockets, taken once.
    pub(crate) fn gate(&mut self) -> Gate {
        Gate::new(std::mem::take(&mut self.listeners), Arc::clone(&self.door), Arc::clone(&self.log))
    }

    /// Writes to another shard.
    pub(crate) fn tell(&self, to: ShardId, letter: Neighbour) {
        self.post(to, Letter::Neighbour(letter));
    }

    /// Sends a client away.
    pub(crate) fn hand_over(&self, to: ShardId, mover: Mover) {
        self.post(to, Letter::Adopt(mover));
    }

    /// Tells the process that takes over.
    pub(crate) fn hand_on(&self, what: HandOn) {
        self.succession.say(Item::FromShard(self.id, what));
    }

    /// Sends a socket to the process that takes over.
    pub(crate) fn send_off(&self, leaver: Leaver) {
        self.succession.say(Item::Leaver(self.id, Box::new(leaver)));
    }

    /// The gates of this thread rest.
    pub(crate) fn gates_rest(&self) {
        self.succession.say(Item::GatesRest);
    }

    fn post(&self, to: ShardId, letter: Letter) {
        debug_assert!(usize::from(to.0) < self.mailboxes.len(), "no such shard");
        if let Some(mailbox) = self.mailboxes.get(usize::from(to.0)) {
            mailbox.post(letter);
        }
    }

    /// Writes to the control thread.
    pub(crate) fn report(&self, report: Report) {
        (self.reports)(report);
    }

    /// Writes to the log.
    pub(crate) fn log(&self, level: Level, text: impl Into<String>) {
        (self.log)(Record::new(level, text));
    }
}
