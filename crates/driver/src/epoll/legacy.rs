//! What a predecessor process has sent, seated by readiness.

use std::os::fd::OwnedFd;

use shard::{ConnId, Event, Inherit};

use crate::core::Core;
use crate::epoll::EpollLoop;
use crate::epoll::conn::State;
use crate::succession::{Legacy, Newcomer};

impl<C: Core> EpollLoop<C> {
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
                self.obey(&bytes);
            }
        }
    }

    fn seat_newcomer(&mut self, newcomer: Newcomer) -> (ConnId, Vec<u8>, Vec<u8>) {
        let conn = self.core.vacant();
        let Newcomer { socket, state, unsent, unread } = newcomer;
        let is_unix = is_unix(&socket);
        self.net.seat(conn, socket, is_unix, State::Open);
        self.net.inherit(conn, unsent);
        (conn, state, unread)
    }
}

fn is_unix(socket: &OwnedFd) -> bool {
    crate::connect::ends(socket).1.is_none()
}
