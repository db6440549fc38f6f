//! The rest of the process as a shard's thread sees it.
//!
//! Never touches a connection.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use messages::{Report, ShardId};
use settings::Config;
use shard::{Action, ConnId, Export};
use telemetry::{Level, Record};

use crate::acceptor::Acceptor;
use crate::conn_move::{ConnMove, Destination, ExportedConn};
use crate::conn_table::ConnTable;
use crate::core::{Log, Reports};
use crate::fd_reserve::FdReserve;
use crate::helpers::Helpers;
use crate::ids::Requester;
use crate::inspect::with_descriptors;
use crate::listen::Listener;
use crate::mailbox::{Mailbox, MailboxMessage, Mailboxes};
use crate::takeover::{Item, Takeover};

/// One shard's share of the process.
pub(crate) struct ShardContext {
    pub(crate) id: ShardId,
    pub(crate) mailboxes: Mailboxes,
    pub(crate) helpers: Arc<Helpers>,
    pub(crate) fd_reserve: Arc<FdReserve>,
    pub(crate) takeover: Arc<Takeover>,
    pub(crate) listeners: Vec<Arc<Listener>>,
    pub(crate) reports: Reports,
    pub(crate) log: Log,
    /// The other threads accept clients too.
    pub(crate) accepting_shared: bool,
}

/// The shard whose thread accepts all clients while it has the time.
const ACCEPTS: ShardId = ShardId(0);

impl ShardContext {
    /// This shard's own mailbox.
    pub(crate) fn mailbox(&self) -> &Mailbox {
        self.mailboxes.of(self.id)
    }

    /// The listening sockets, taken once.
    pub(crate) fn acceptor(&mut self) -> Acceptor {
        let listeners = std::mem::take(&mut self.listeners);
        Acceptor::new(listeners, Arc::clone(&self.fd_reserve), Arc::clone(&self.log), self.id != ACCEPTS)
    }

    /// How busy the thread was that accepts for all: from `limit` percent on the others accept, too, until it is below half
    /// of that. A client that is accepted where its pool is need not move.
    pub(crate) fn share_accepting(&mut self, percent: u32, limit: u32) {
        if self.id != ACCEPTS {
            return;
        }
        let limit = if self.accepting_shared { limit / 2 } else { limit };
        let is_shared = percent >= limit;
        if is_shared != std::mem::replace(&mut self.accepting_shared, is_shared) {
            self.mailboxes.post_others(self.id, || MailboxMessage::ShareAccepting { is_shared });
        }
    }

    /// Executes actions that need no backend.
    pub(crate) fn act<K: Default>(&self, action: Action, conns: &ConnTable<K>, config: &Config) {
        match action {
            Action::Ask { conn, question } => {
                self.helpers.ask(self.requester(conn, conns), *question, config.global.client_login_timeout);
            }
            Action::SendToShard { to, message } => {
                self.mailboxes.post(to, MailboxMessage::ShardMessage(*message))
            }
            Action::Report(report) => self.report(with_descriptors(*report, |conn| conns.descriptor(conn))),
            Action::Log(record) => (self.log)(record),
            other => debug_assert!(false, "the event loop's own: {other:?}"),
        }
    }

    /// Sends something that is no connection to the process that takes over.
    pub(crate) fn export(&self, export: Export) {
        self.takeover.say(Item::FromShard(self.id, export));
    }

    /// Who an answer about this connection is for.
    pub(crate) fn requester<K: Default>(&self, conn: ConnId, conns: &ConnTable<K>) -> Requester {
        let generation = conns.get(conn).map(|slot| slot.generation).unwrap_or_default();
        Requester { shard: self.id, conn, generation }
    }

    /// Sends a connection away, with output that its socket has not taken and input that the shard has not seen. The next
    /// process counts a connection that was lost on the way, too.
    pub(crate) fn send_away(
        &self,
        to: Destination,
        socket: Option<OwnedFd>,
        unsent: Vec<u8>,
        unread: Vec<u8>,
    ) {
        match (to, socket) {
            (Destination::Shard(to, client), Some(fd)) => {
                self.mailboxes.post(to, MailboxMessage::Adopt(ConnMove { fd, client, unsent, unread }));
            }
            (Destination::Shard(..), None) => {}
            (Destination::Process(export_state), socket) => {
                let exported = ExportedConn { socket, export_state, unsent, unread };
                self.takeover.say(Item::ExportedConn(self.id, Box::new(exported)));
            }
        }
    }

    /// This thread accepts no connections any more, as another process has requested.
    pub(crate) fn accepting_paused(&self) {
        self.takeover.say(Item::AcceptingPaused);
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
