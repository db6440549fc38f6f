//! The rest of the process as a shard's thread sees it.
//!
//! Never touches a connection.

use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use messages::{Report, ShardId};
use settings::Config;
use shard::{Action, ConnId};
use telemetry::{Level, Record};

use crate::acceptor::Acceptor;
use crate::engine::{Log, Reports};
use crate::fd_reserve::FdReserve;
use crate::helpers::{Helpers, Requester};
use crate::inspect::with_descriptors;
use crate::listen::Listener;
use crate::mailbox::{ConnMove, Generation, Mailbox, MailboxMessage};
use crate::takeover::{ExportedConn, Item, Takeover};

/// What helpers and listings ask of a connection, however its loop keeps it.
pub(crate) trait Slot {
    /// The generation of its id.
    fn generation(&self) -> Generation;
    /// Its socket, while it has one.
    fn socket(&self) -> Option<&OwnedFd>;
}

/// One shard's share of the process.
pub(crate) struct ShardContext {
    pub(crate) id: ShardId,
    pub(crate) mailboxes: Arc<[Mailbox]>,
    pub(crate) helpers: Arc<Helpers>,
    pub(crate) fd_reserve: Arc<FdReserve>,
    pub(crate) succession: Arc<Takeover>,
    pub(crate) listeners: Vec<Arc<Listener>>,
    pub(crate) reports: Reports,
    pub(crate) log: Log,
    /// The other threads accept clients too.
    pub(crate) gates_shared: bool,
}

/// Who accepts clients while he has the time.
const WELCOMES: ShardId = ShardId(0);

impl ShardContext {
    /// This shard's own mailbox.
    pub(crate) fn mailbox(&self) -> &Mailbox {
        &self.mailboxes[usize::from(self.id.0)]
    }

    /// The listening sockets, taken once.
    pub(crate) fn acceptor(&mut self) -> Acceptor {
        let listeners = std::mem::take(&mut self.listeners);
        Acceptor::new(listeners, Arc::clone(&self.fd_reserve), Arc::clone(&self.log), self.id != WELCOMES)
    }

    /// The thread that welcomes everybody says how busy it was: from `limit` percent on the others are called to the
    /// acceptors, and below half of that they may go. A client that is accepted where its pool is need not move.
    pub(crate) fn share_gates(&mut self, percent: u32, limit: u32) {
        if self.id != WELCOMES {
            return;
        }
        let limit = if self.gates_shared { limit / 2 } else { limit };
        let is_called = percent >= limit;
        if is_called != std::mem::replace(&mut self.gates_shared, is_called) {
            for mailbox in self.mailboxes.iter().skip(1) {
                mailbox.post(MailboxMessage::CallToGates { is_called });
            }
        }
    }

    /// Executes actions that need none of the loop's sockets; the loop executes the others itself.
    pub(crate) fn act(&self, action: Action, conns: &[impl Slot], config: &Config) {
        match action {
            Action::Ask { conn, question } => {
                self.helpers.ask(self.requester(conn, conns), *question, config.global.client_login_timeout);
            }
            Action::SendToShard { to, message } => self.post(to, MailboxMessage::ShardMessage(*message)),
            Action::Export(what) => self.succession.say(Item::FromShard(self.id, *what)),
            Action::Report(report) => {
                let socket = |conn: ConnId| conns.get(conn.0 as usize).and_then(Slot::socket);
                let descriptor = |conn| socket(conn).map_or(-1, AsRawFd::as_raw_fd);
                self.report(with_descriptors(*report, descriptor));
            }
            Action::Log(record) => (self.log)(record),
            other => debug_assert!(false, "the loop's own: {other:?}"),
        }
    }

    /// Who an answer about this connection is for.
    pub(crate) fn requester(&self, conn: ConnId, conns: &[impl Slot]) -> Requester {
        let generation = conns.get(conn.0 as usize).map_or_else(Generation::default, Slot::generation);
        Requester { shard: self.id, conn, generation }
    }

    /// Sends a client away.
    pub(crate) fn hand_over(&self, to: ShardId, mover: ConnMove) {
        self.post(to, MailboxMessage::Adopt(mover));
    }

    /// Sends a socket to the process that takes over.
    pub(crate) fn send_off(&self, exported: ExportedConn) {
        self.succession.say(Item::ExportedConn(self.id, Box::new(exported)));
    }

    /// This thread does not accept connections.
    pub(crate) fn gates_rest(&self) {
        self.succession.say(Item::GatesRest);
    }

    fn post(&self, to: ShardId, message: MailboxMessage) {
        debug_assert!(usize::from(to.0) < self.mailboxes.len(), "no such shard");
        if let Some(mailbox) = self.mailboxes.get(usize::from(to.0)) {
            mailbox.post(message);
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
