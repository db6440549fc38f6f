//! Events of the kernel, and reading: what a connection has received goes to the shard.

use rustix::event::epoll::{Event as Readiness, EventFlags};
use rustix::io::Errno;
use shard::{ConnId, Event};

use crate::conn_table::State;
use crate::core::Core;
use crate::epoll::backend::{Epoll, Subject};
use crate::epoll::conn::Conn;
use crate::event_loop::{EventLoop, run_actions};
use crate::ids::Generation;

/// Buffers read from one connection before others get their turn.
const TURN_READS: usize = 4;

impl<C: Core> EventLoop<C, Epoll> {
    /// Handles one event.
    pub(crate) fn handle_readiness(&mut self, event: Readiness) {
        let (conn, generation) = match Subject::of(event.data) {
            Subject::Mailbox => return self.read_messages(),
            Subject::Listener(listener) => return self.accept(listener),
            Subject::Conn(conn, generation) => (conn, generation),
        };
        match self.net.conns.lookup(conn, generation).map(|slot| slot.state) {
            Some(State::Connecting) => {
                self.connect_finished(conn);
                // A server that sent first: this event was the only one about its first bytes.
                self.wake(conn, generation, event.flags);
            }
            Some(State::Open) => self.wake(conn, generation, event.flags),
            _ => {}
        }
    }

    /// Something is new on a connection. Each event that the shard is notified of may close it, and give its id to another.
    fn wake(&mut self, conn: ConnId, generation: Generation, flags: EventFlags) {
        const END: EventFlags = EventFlags::RDHUP.union(EventFlags::HUP).union(EventFlags::ERR);
        let is_open = |slot: &&mut Conn| slot.state == State::Open;
        let Some(slot) = self.net.conns.lookup(conn, generation).filter(is_open) else { return };
        // First, because closing must know whether there is something to be read.
        if flags.contains(EventFlags::IN) {
            slot.io.readable = true;
            slot.io.has_urgent |= flags.contains(EventFlags::PRI);
        }
        if flags.contains(EventFlags::OUT) && slot.io.backlog.is_some() {
            self.backend.writable(&mut self.net, conn);
            self.deliver_pending();
        }
        if flags.intersects(END) && self.net.conns.lookup(conn, generation).is_some() {
            self.net.saw_end(conn);
            self.deliver_pending();
        }
        if flags.contains(EventFlags::IN) && self.net.conns.lookup(conn, generation).is_some() {
            self.read(conn);
        }
    }

    /// Reads a connection for one turn.
    pub(crate) fn read(&mut self, conn: ConnId) {
        for _ in 0..TURN_READS {
            let Some(slot) = self.net.conns.open(conn).filter(|slot| slot.may_read()) else { return };
            match slot.receive(&mut self.scratch) {
                Ok(0) => return self.end(conn),
                Ok(count) => {
                    slot.io.readable = count == self.scratch.len() || slot.io.has_urgent;
                    slot.emptied = !slot.io.readable;
                    let unsent = slot.io.backlog.is_some();
                    slot.owes_send_empty |= unsent;
                    self.received(conn, count, unsent);
                }
                Err(Errno::AGAIN) => {
                    (slot.io.readable, slot.io.has_urgent, slot.io.hung_up) = (false, false, false);
                    return;
                }
                Err(Errno::INTR) => {}
                Err(_) => return self.end(conn),
            }
        }
        if self.net.conns.open(conn).is_some_and(|slot| slot.may_read()) {
            self.net.queue(conn);
        }
    }

    fn received(&mut self, conn: ConnId, count: usize, unsent: bool) {
        let bytes = &self.scratch[..count];
        self.core.handle(Event::Received { conn, bytes, unsent }, self.now);
        run_actions(&mut self.core, &mut self.net, &mut self.backend, bytes);
        self.deliver_pending();
    }

    fn end(&mut self, conn: ConnId) {
        self.net.conns.slot(conn).ended = true;
        self.deliver(Event::HungUp { conn });
    }

    /// A client whose connection is reported only once it has sent (`tcp_defer_accept`) is read before it is watched: the
    /// first event would only report what is known.
    pub(crate) fn read_then_watch(&mut self, conn: ConnId, generation: Generation) {
        let slot = self.net.conns.slot(conn);
        if !slot.io.is_unix && self.core.config().global.tcp_defer_accept {
            slot.io.readable = true;
            self.read(conn);
        }
        if self.net.conns.is_current(conn, generation) {
            self.backend.watch(&mut self.net, conn);
        }
    }
}
