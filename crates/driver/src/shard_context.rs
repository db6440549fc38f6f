//! What a shard's thread knows of the rest of the process: letters, helpers, the log, the listening sockets.
//!
//! Never touches a connection.

use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use messages::{Report, ShardId};
use settings::Config;
use shard::{Action, ConnId};
use telemetry::{Level, Record};

use crate::door::Door;
use crate::engine::{Log, Reports};
use crate::gate::Gate;
use crate::helpers::{Asker, Helpers};
use crate::inspect::with_descriptors;
use crate::listen::Listener;
use crate::mailbox::{Letter, Mailbox, Mover, Ticket};
use crate::succession::{Item, Leaver, Succession};

/// What helpers and listings ask of a connection, however its loop keeps it.
pub(crate) trait Occupant {
    /// Which of the occupants of its id it is.
    fn ticket(&self) -> Ticket;
    /// Its socket, while it has one.
    fn socket(&self) -> Option<&OwnedFd>;
}

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
    /// The other threads accept clients too.
    pub(crate) gates_shared: bool,
}

/// Who accepts clients while he has the time.
const WELCOMES: ShardId = ShardId(0);

impl Outside {
    /// This shard's own mailbox.
    pub(crate) fn mailbox(&self) -> &Mailbox {
        &self.mailboxes[usize::from(self.id.0)]
    }

    /// The listening sockets, taken once.
    pub(crate) fn gate(&mut self) -> Gate {
        let listeners = std::mem::take(&mut self.listeners);
        Gate::new(listeners, Arc::clone(&self.door), Arc::clone(&self.log), self.id != WELCOMES)
    }

    /// The thread that welcomes everybody says how busy it was: from `limit` percent on the others are called to the
    /// gates, and below half of that they may go. A client that is accepted where its pool is need not move.
    pub(crate) fn share_gates(&mut self, percent: u32, limit: u32) {
        if self.id != WELCOMES {
            return;
        }
        let limit = if self.gates_shared { limit / 2 } else { limit };
        let is_called = percent >= limit;
        if is_called != std::mem::replace(&mut self.gates_shared, is_called) {
            for mailbox in self.mailboxes.iter().skip(1) {
                mailbox.post(Letter::CallToGates { is_called });
            }
        }
    }

    /// Does what needs none of the loop's sockets. What does is the loop's own, and never comes here.
    pub(crate) fn act(&self, action: Action, conns: &[impl Occupant], config: &Config) {
        match action {
            Action::Ask { conn, question } => {
                self.helpers.ask(self.asker(conn, conns), *question, config.global.client_login_timeout);
            }
            Action::SendToShard { to, message } => self.post(to, Letter::ShardMessage(*message)),
            Action::Export(what) => self.succession.say(Item::FromShard(self.id, *what)),
            Action::Report(report) => {
                let socket = |conn: ConnId| conns.get(conn.0 as usize).and_then(Occupant::socket);
                let descriptor = |conn| socket(conn).map_or(-1, AsRawFd::as_raw_fd);
                self.report(with_descriptors(*report, descriptor));
            }
            Action::Log(record) => (self.log)(record),
            other => debug_assert!(false, "the loop's own: {other:?}"),
        }
    }

    /// Who an answer about this connection is for.
    pub(crate) fn asker(&self, conn: ConnId, conns: &[impl Occupant]) -> Asker {
        let ticket = conns.get(conn.0 as usize).map_or_else(Ticket::default, Occupant::ticket);
        Asker { shard: self.id, conn, ticket }
    }

    /// Sends a client away.
    pub(crate) fn hand_over(&self, to: ShardId, mover: Mover) {
        self.post(to, Letter::Adopt(mover));
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
