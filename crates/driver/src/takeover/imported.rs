//! What has come from the old process, and how a shard's loop takes it in.
//!
//! Owns the order: sockets are seated, the shard is told of them, then of what they had said already. How a socket is
//! seated is each loop's own ([`AdoptSocket`]). Never receives from the line.

use std::os::fd::OwnedFd;

use shard::{ConnId, Event, Import};

/// Something for a shard from the old process.
pub(crate) enum Imported {
    /// A word.
    Word(Import),
    /// A client, a server, or both, which belong together then.
    Sockets { client: Option<Box<ImportedConn>>, server: Option<Box<ImportedConn>> },
}

/// A socket that has come from the old process.
pub(crate) struct ImportedConn {
    pub(crate) socket: OwnedFd,
    pub(crate) state: Vec<u8>,
    pub(crate) unsent: Vec<u8>,
    pub(crate) unread: Vec<u8>,
}

/// A loop as far as connections are seated in it that began elsewhere.
pub(crate) trait AdoptSocket {
    /// Seats a server, or a client whose login is over, under a free id, with output that its socket has not taken yet.
    fn seat(&mut self, socket: OwnedFd, unsent: Vec<u8>) -> ConnId;
    /// Tells the shard, and does what it wants then.
    fn deliver(&mut self, event: Event<'static>);
    /// Tells the shard what was read elsewhere, if there is anything and the connection is still open.
    fn hear(&mut self, conn: ConnId, unread: &[u8]);
}

impl Imported {
    /// Adopts sockets, notifies the shard of them, then delivers input that was already received.
    pub(crate) fn settle(self, at: &mut impl AdoptSocket) {
        let (client, server) = match self {
            Imported::Word(word) => return at.deliver(Event::Import(Box::new(word))),
            Imported::Sockets { client, server } => (client, server),
        };
        let mut unheard = Vec::new();
        let mut seat = |imported: Box<ImportedConn>| {
            let ImportedConn { socket, state, unsent, unread } = *imported;
            let conn = at.seat(socket, unsent);
            unheard.push((conn, unread));
            (conn, state)
        };
        let (server, client) = (server.map(&mut seat), client.map(&mut seat));
        let Some(word) = Import::sockets(client, server) else { return };
        at.deliver(Event::Import(Box::new(word)));
        for (conn, unread) in unheard {
            at.hear(conn, &unread);
        }
    }
}
