//! Messages from other threads: what the control thread, other shards, helpers and a takeover send to this loop.
//!
//! Owns the order in which an imported connection becomes known: its socket is adopted, the shard is notified of it, then
//! of what the connection had sent before.

use shard::{ConnId, Event, Import};

use super::{Adopted, Backend, EventLoop, dial};
use crate::conn_move::{ConnMove, Imported, ImportedConn};
use crate::conn_table::State;
use crate::core::Core;
use crate::mailbox::MailboxMessage;

impl<C: Core, B: Backend> EventLoop<C, B> {
    /// Takes and handles all messages.
    pub(crate) fn read_messages(&mut self) {
        let mut messages = std::mem::take(&mut self.messages);
        self.net.context.mailbox().collect(&mut messages);
        for message in messages.drain(..) {
            self.handle_message(message);
        }
        self.messages = messages;
    }

    fn handle_message(&mut self, message: MailboxMessage) {
        match message {
            MailboxMessage::Command(command) => self.deliver(Event::Command(command)),
            MailboxMessage::ShardMessage(message) => self.deliver(Event::ShardMessage(message)),
            MailboxMessage::Adopt(conn_move) => self.adopt(conn_move),
            MailboxMessage::Answered { conn, generation, answer } => {
                if self.net.conns.is_current(conn, generation) {
                    self.deliver(Event::Answered { conn, answer });
                }
            }
            MailboxMessage::Resolved { conn, generation, addresses } => {
                let config = self.core.config();
                dial::resolved(&mut self.backend, &mut self.net, (conn, generation), addresses, config);
                self.deliver_pending();
            }
            MailboxMessage::Accepted { socket, peer } => self.accepted(socket, peer, false),
            MailboxMessage::CloseListeners { all } => {
                for (listener, closed) in self.net.acceptor.close(all) {
                    self.backend.unwatch_listener(listener, &closed.socket);
                }
            }
            MailboxMessage::PauseAccepting => {
                for listener in self.net.acceptor.pause() {
                    self.unwatch_listener(listener);
                }
                self.accepting_pauses = true;
            }
            MailboxMessage::ResumeAccepting => {
                for listener in self.net.acceptor.resume() {
                    self.watch_listener(listener);
                }
            }
            MailboxMessage::ShareAccepting { is_shared: true } => {
                for listener in self.net.acceptor.share(true) {
                    self.watch_listener(listener);
                }
            }
            MailboxMessage::ShareAccepting { is_shared: false } => self.leave_accepting(),
            MailboxMessage::Import(imported) => self.import(imported),
            MailboxMessage::Stop => self.stopped = true,
        }
    }

    /// Leaves accepting to another thread. Connections for which the kernel has already woken this one are accepted here,
    /// because it has woken no other for them.
    fn leave_accepting(&mut self) {
        for listener in self.net.acceptor.share(false) {
            self.unwatch_listener(listener);
            self.accept(listener);
        }
    }

    /// A client of another shard.
    fn adopt(&mut self, conn_move: ConnMove) {
        let ConnMove { fd, client, unsent, unread } = conn_move;
        let conn = self.core.allocate_id();
        self.net.conns.renew(conn, State::Open);
        self.backend.adopt(&mut self.net, conn, fd, unsent, Adopted::FromShard);
        self.deliver(Event::Adopted { conn, client });
        self.deliver_unread(conn, &unread);
    }

    /// Something of the process that this one takes over from.
    fn import(&mut self, imported: Imported) {
        let (client, server) = match imported {
            Imported::Message(message) => return self.deliver(Event::Import(Box::new(message))),
            Imported::Sockets { client, server } => (client, server),
        };
        let mut undelivered = Vec::new();
        let mut adopt = |imported: Box<ImportedConn>| {
            let ImportedConn { socket, state, unsent, unread } = *imported;
            let conn = self.core.allocate_id();
            self.net.conns.renew(conn, State::Open);
            self.backend.adopt(&mut self.net, conn, socket, unsent, Adopted::FromProcess);
            undelivered.push((conn, unread));
            (conn, state)
        };
        let (server, client) = (server.map(&mut adopt), client.map(&mut adopt));
        let Some(import) = Import::sockets(client, server) else { return };
        self.deliver(Event::Import(Box::new(import)));
        for (conn, unread) in undelivered {
            self.deliver_unread(conn, &unread);
        }
    }

    /// Delivers what was read before the connection came here, if it is still open.
    fn deliver_unread(&mut self, conn: ConnId, unread: &[u8]) {
        if !unread.is_empty() && self.net.conns.open(conn).is_some() {
            self.deliver_bytes(conn, unread, false);
        }
    }
}
