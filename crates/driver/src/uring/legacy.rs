//! What a predecessor process has sent, seated by completion; and gates that are left to a successor.

use rustix::io::ioctl_fionbio;
use shard::{ConnId, Event, Inherit};

use crate::core::Core;
use crate::succession::{Legacy, Newcomer};
use crate::uring::UringLoop;
use crate::uring::conn::State;
use crate::uring::net::Origin;
use crate::uring::ring::{Op, Tag};

impl<C: Core> UringLoop<C> {
    /// Ends the watches on the listening sockets.
    pub(super) fn rest_gates(&mut self) {
        for number in self.net.gate.leave(true) {
            self.net.ring.cancel(Tag { op: Op::Gate, ticket: 0, number });
        }
        self.gates_cancelled = true;
    }

    /// Seats sockets and tells the shard of them; then of what they had said already.
    pub(super) fn inherit(&mut self, legacy: Legacy) {
        let (client, server) = match legacy {
            Legacy::Word(word) => return self.deliver(Event::Inherit(Box::new(word))),
            Legacy::Sockets { client, server } => (client, server),
        };
        let server = server.map(|server| self.seat_newcomer(*server));
        let client = client.map(|client| self.seat_newcomer(*client));
        let mut unread = Vec::new();
        let mut part = |(conn, state, bytes): (ConnId, Vec<u8>, Vec<u8>)| {
            unread.push((conn, bytes));
            (conn, state)
        };
        let (server, client) = (server.map(&mut part), client.map(&mut part));
        let Some(word) = Inherit::sockets(client, server) else { return };
        self.deliver(Event::Inherit(Box::new(word)));
        for (conn, bytes) in unread {
            if !bytes.is_empty() && self.net.open(conn).is_some() {
                self.core.handle(Event::Received { conn, bytes: &bytes, unsent: false }, self.net.now);
                self.obey(Origin::Owned(&bytes));
            }
        }
    }

    fn seat_newcomer(&mut self, newcomer: Newcomer) -> (ConnId, Vec<u8>, Vec<u8>) {
        let conn = self.core.vacant();
        let Newcomer { socket, state, unsent, unread } = newcomer;
        // The other driver may have had it.
        let _ = ioctl_fionbio(&socket, false);
        let slot = self.net.renew(conn, State::Open);
        if !unsent.is_empty() {
            slot.queued = u32::try_from(unsent.len()).unwrap_or(u32::MAX);
            slot.out.get_or_insert_default().copy(&unsent);
        }
        self.net.seat(conn, socket, true);
        (conn, state, unread)
    }
}
