//! Adopts connections of another shard or process, with epoll.

use std::os::fd::OwnedFd;

use shard::{ConnId, Event};

use crate::core::Core;
use crate::epoll::EpollLoop;
use crate::epoll::conn::State;
use crate::takeover::AdoptSocket;

impl<C: Core> AdoptSocket for EpollLoop<C> {
    fn seat(&mut self, socket: OwnedFd, unsent: Vec<u8>) -> ConnId {
        let conn = self.core.allocate_id();
        let is_unix = crate::connect::ends(&socket).1.is_none();
        self.net.seat(conn, socket, is_unix, State::Open);
        self.net.inherit(conn, unsent);
        conn
    }

    fn deliver(&mut self, event: Event<'static>) {
        EpollLoop::deliver(self, event);
    }

    fn hear(&mut self, conn: ConnId, unread: &[u8]) {
        if !unread.is_empty() && self.net.open(conn).is_some() {
            self.core.handle(Event::Received { conn, bytes: unread, unsent: false }, self.net.now);
            self.run_actions(unread);
        }
    }
}
