//! Adopts connections of another shard or process, with io_uring.

use std::os::fd::OwnedFd;

use rustix::io::ioctl_fionbio;
use shard::{ConnId, Event};

use crate::core::Core;
use crate::takeover::AdoptSocket;
use crate::uring::UringLoop;
use crate::uring::net::Origin;

impl<C: Core> AdoptSocket for UringLoop<C> {
    fn seat(&mut self, socket: OwnedFd, unsent: Vec<u8>) -> ConnId {
        let conn = self.core.allocate_id();
        // The other driver may have had it.
        let _ = ioctl_fionbio(&socket, false);
        self.net.seat_with(conn, socket, &unsent, true);
        conn
    }

    fn deliver(&mut self, event: Event<'static>) {
        UringLoop::deliver(self, event);
    }

    fn hear(&mut self, conn: ConnId, unread: &[u8]) {
        if !unread.is_empty() && self.net.open(conn).is_some() {
            self.core.handle(Event::Received { conn, bytes: unread, unsent: false }, self.net.now);
            self.run_actions(Origin::Owned(unread));
        }
    }
}
